"""Check a corpus: digests of all files, and the consistency of their contents."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import read_steps
from collapsium.storage.corpus.list_columns import segment_bounds
from collapsium.storage.corpus.manifest import MANIFEST, VECTORS
from collapsium.storage.corpus.shard import Documents, merge_segments
from collapsium.storage.corpus.vocabulary import words_digest
from collapsium.storage.errors import CollapsiumError
from collapsium.storage.io.folder import Folder

Counts = npt.NDArray[np.int64]


def corpus_faults(folder: Folder) -> Iterator[str]:
    """Yield the faults of a corpus."""
    try:
        corpus = Corpus(folder.url)
        read_steps(folder)
    except CollapsiumError as error:
        yield str(error)
        return
    if corpus.holds == VECTORS:
        yield from _vectors(corpus)
        return
    words = corpus.manifest.vocabulary.words
    documents, tokens = np.zeros(words, dtype=np.int64), np.zeros(words, dtype=np.int64)
    complete = True
    for reference in corpus.references:
        try:
            part = reference.documents()
        except CollapsiumError as error:
            complete = False
            yield str(error)
            continue
        merged = merge_segments(part)
        documents += np.bincount(merged.words, minlength=words)
        np.add.at(tokens, merged.words, merged.counts)
        yield _shard_fault(f"{folder.url}/{reference.record.file}", part, merged, reference.record.ids_sha256)
    yield from _vocabulary(corpus, documents if complete else None, tokens)


def _vocabulary(corpus: Corpus, documents: Counts | None, tokens: Counts) -> Iterator[str]:
    """Yield the faults of the vocabulary, from the counts of words in the shards."""
    path = f"{corpus.folder.url}/{corpus.manifest.vocabulary.file}"
    try:
        vocabulary = corpus.vocabulary
    except CollapsiumError as error:
        yield str(error)
        return
    same = words_digest(vocabulary.words) == corpus.manifest.vocabulary.words_sha256
    yield "" if same else f"{path}: the words do not have the digest of the manifest"
    if documents is None:
        return
    if not (np.array_equal(vocabulary.documents, documents) and np.array_equal(vocabulary.tokens, tokens)):
        yield f"{path}: the words' numbers of documents and tokens are not those of the shards"


def _vectors(corpus: Corpus) -> Iterator[str]:
    """Yield the faults of a corpus of vectors."""
    manifest, dense = corpus.manifest, corpus.manifest.vectors
    words = manifest.vocabulary.words
    least, most, complete = np.full(words, np.inf), np.full(words, -np.inf), True
    for reference in corpus.references:
        try:
            part = reference.vectors()
        except CollapsiumError as error:
            complete = False
            yield str(error)
            continue
        least, most = np.minimum(least, part.values.min(axis=0)), np.maximum(most, part.values.max(axis=0))
        same = part.ids_sha256() == reference.record.ids_sha256
        path = f"{corpus.folder.url}/{reference.record.file}"
        yield "" if same else f"{path}: the vectors' ids do not have the digest of the manifest"
    if complete and dense is not None and tuple(np.flatnonzero(least == most)) != dense.constant:
        yield f"{corpus.folder.url}/{MANIFEST}: the constant columns are not those of the vectors"
    every = np.full(words, manifest.documents, dtype=np.int64)
    yield from _vocabulary(corpus, every, every)


def _shard_fault(path: str, part: Documents, merged: Documents, ids: str) -> str:
    if part.ids_sha256() != ids:
        return f"{path}: the documents' ids do not have the digest of the manifest"
    starts = np.zeros(merged.words.size + 1, dtype=bool)
    starts[merged.offsets] = True
    if merged.words.size and not (np.diff(merged.words) > 0)[~starts[1:-1]].all():
        return f"{path}: expected each word once in a document or segment, in ascending order"
    if "segments" in part.extras:
        starts = np.zeros(part.words.size + 1, dtype=bool)
        starts[segment_bounds(part.extras["segments"])] = True
        if part.words.size and not (np.diff(part.words) > 0)[~starts[1:-1]].all():
            return f"{path}: expected each word once in a segment, in ascending order"
    return ""
