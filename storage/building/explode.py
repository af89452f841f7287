"""Count the segments of a corpus, and make a corpus with the segments as documents."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.building.ingest_record import inherit_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import Step, write_part
from collapsium.storage.corpus.list_columns import segment_bounds, segment_counts
from collapsium.storage.corpus.manifest import DOCUMENTS, Manifest
from collapsium.storage.corpus.segments import COLUMN, running
from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.writer import CorpusWriter
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import InputError, MismatchError
from collapsium.storage.io.folder import Folder, created, ensure_free
from collapsium.storage.units import Counting, silent


def segment_summary(corpus: Corpus) -> JsonObject:
    """Count the segments of a corpus."""
    if COLUMN not in corpus.manifest.fields:
        return {}
    count = empty = longest = 0
    for reference in corpus.references:
        column = reference.further()[COLUMN]
        lengths = np.diff(segment_bounds(column))
        count, empty = count + lengths.size, empty + int((lengths == 0).sum())
        longest = max(longest, int(segment_counts(column).max(initial=0)))
    mean = count / max(corpus.manifest.documents, 1)
    return {"segments": {"count": count, "empty": empty, "mean": mean, "most": longest}}


def explode_corpus(corpus: Corpus, out: str | os.PathLike[str], *, progress: Counting = silent) -> Manifest:
    """Make a corpus whose documents are the segments of another.

    The shards and the vocabulary are kept, so that the two parts of a split again have the same documents. Document
    frequencies are counted anew.
    """
    corpus.require(DOCUMENTS, "explode")
    if COLUMN not in corpus.manifest.fields:
        raise MismatchError(
            f"{corpus.url}: its documents have no segments; `ingest` with `segments` keeps the segments of texts"
        )
    ensure_free(Folder(out))
    words, read = corpus.vocabulary.words, 0
    with created(Folder(out)) as folder:
        writer = CorpusWriter(folder, len(words))
        for reference in corpus.references:
            documents = reference.documents()
            parts = exploded(documents)
            if len(parts):
                writer.add_shard(parts)
            read += len(documents)
            progress(read)
        write_part(folder, corpus, Step(corpus=corpus.manifest.digest, kind="segments"))
        try:
            manifest = writer.finish(words)
        except InputError as error:
            raise InputError(os.fspath(out), error.expected) from None
        inherit_history(corpus.folder, folder, documents=manifest.documents, exploded=True)
        return manifest


def exploded(documents: Documents) -> Documents:
    """Return the segments of documents as documents."""
    column = documents.extras[COLUMN]
    counts, bounds = segment_counts(column), segment_bounds(column)
    owner = pa.array(np.repeat(np.arange(len(documents)), counts))
    number = np.arange(counts.sum()) - np.repeat(running(counts)[:-1], counts) + 1
    ids = pc.binary_join_element_wise(documents.ids.take(owner), pa.array(number).cast(pa.string()), "#")
    extras = {name: column.take(owner) for name, column in documents.extras.items() if name != COLUMN}
    return Documents(ids, bounds, documents.words, documents.counts, extras)
