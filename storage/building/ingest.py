"""Write the documents of a source as a corpus, with vocabulary pruning by document frequency."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.storage.building.ingest_record import History, Report
from collapsium.storage.building.vocabulary_cuts import Cuts, Sieve
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.corpus.shard import Documents, merge_segments
from collapsium.storage.corpus.vectors import Vectors
from collapsium.storage.corpus.writer import CorpusWriter, VectorWriter
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.transactions import created, ensure_free
from collapsium.storage.readers.base import Source
from collapsium.storage.readers.counts.relabelled import RelabelledSource
from collapsium.storage.readers.read_options import Guess, distinct_guesses
from collapsium.storage.readers.side_files.columns import Sides, merged
from collapsium.storage.readers.vectors.base import DenseSource
from collapsium.storage.units import Counting, silent

Some = TypeVar("Some", Documents, Vectors)


def ingest(
    source: Source,
    corpus: str | os.PathLike[str],
    *,
    cuts: Cuts | None = None,
    shard_tokens: int | None = None,
    history: History | None = None,
    sides: Sides | None = None,
    progress: Counting = silent,
) -> Manifest:
    """Write a source's documents as a corpus."""
    _require_shard_tokens(shard_tokens)
    ensure_free(Folder(corpus))
    cuts = cuts or Cuts()
    words = source.words()
    retained, report, frequent = _retained_words(source, cuts, words)
    number = np.cumsum(retained, dtype=np.int64) - 1
    with created(Folder(corpus)) as folder:
        writer = CorpusWriter(folder, int(retained.sum()), shard_tokens)
        written, empty = 0, 0
        for documents in source.documents():
            left = documents if retained.all() else _cut(documents, retained, number)
            writer.add(left if sides is None else _sided(left, sides, written))
            written += len(documents)
            empty += int((np.diff(left.offsets) == 0).sum())
            progress(written)
        try:
            manifest = writer.finish([word for word, keep in zip(words, retained, strict=True) if keep])
        except InputError as error:
            raise InputError(source.name, error.expected) from None
        unmatched = 0 if sides is None else sides.judge(written)
        if history is not None:
            lost = source.dropped if isinstance(source, RelabelledSource) else ()
            report = replace(report, unmatched_rows=unmatched, dropped=(*report.dropped, *lost))
            report = replace(
                report,
                documents=written,
                empty_documents=empty,
                tokens=manifest.tokens,
                source_tokens=report.source_tokens or manifest.tokens,
            )
            report = replace(report, guesses=_guesses(history, sides))
            replace(history, report=report, frequent=frequent).write(folder)
        return manifest


def ingest_vectors(
    source: DenseSource,
    corpus: str | os.PathLike[str],
    *,
    shard_tokens: int | None = None,
    history: History | None = None,
    sides: Sides | None = None,
    progress: Counting = silent,
) -> Manifest:
    """Write a source's vectors as a corpus."""
    _require_shard_tokens(shard_tokens)
    columns = source.columns()
    with created(Folder(corpus)) as folder:
        writer = VectorWriter(folder, len(columns), shard_tokens)
        written = 0
        for vectors in source.vectors():
            writer.add(vectors if sides is None else _sided(vectors, sides, written))
            written += len(vectors)
            progress(written)
        try:
            manifest = writer.finish(columns)
        except InputError as error:
            raise InputError(source.name, error.expected) from None
        unmatched = 0 if sides is None else sides.judge(written)
        if history is not None:
            report = Report(documents=written, unmatched_rows=unmatched)
            guesses = distinct_guesses(_guesses(history, sides), source.guesses)
            replace(history, report=replace(report, guesses=guesses)).write(folder)
        return manifest


def _guesses(history: History, sides: Sides | None) -> tuple[Guess, ...]:
    """Return the guesses that were made before the documents were read."""
    return distinct_guesses(history.report.guesses, () if sides is None else sides.guesses)


def _sided(part: Some, sides: Sides, first: int) -> Some:
    """Add the labels and covariates of side files to documents, or vectors, of which the first has number `first`."""
    return replace(part, extras=merged(part.extras, sides.of(part.ids, first)))


def _require_shard_tokens(shard_tokens: int | None) -> None:
    if shard_tokens is not None and shard_tokens < 1:
        raise OptionError(f"expected 1 or more, found {shard_tokens}", "shard_tokens")


def _retained_words(
    source: Source, cuts: Cuts, words: list[str]
) -> tuple[npt.NDArray[np.bool_], Report, tuple[str, ...]]:
    """Return the mask of retained words, the report, and the words that were too frequent.

    Documents are counted only if there is a rule.
    """
    if not cuts.drops_words:
        return np.ones(len(words), dtype=bool), Report(source_words=len(words), words=len(words)), ()
    frequency, tokens = np.zeros((2, len(words)), dtype=np.int64)
    documents = 0
    for part in source.documents():
        merged = merge_segments(part)
        frequency += np.bincount(merged.words, minlength=len(words))
        np.add.at(tokens, merged.words, merged.counts)
        documents += len(part)
    sieve = Sieve(pa.array(words, pa.string()), frequency, tokens)
    sieve.cut(cuts, documents)
    if not sieve.retained.any():
        raise InputError(source.name, f"no word is left of {len(words)} after pruning by document frequency")
    report = Report(
        source_words=len(words),
        words=int(sieve.retained.sum()),
        source_tokens=int(tokens.sum()),
        dropped=tuple(sieve.dropped),
    )
    return sieve.retained, report, sieve.frequent


def _cut(documents: Documents, retained: npt.NDArray[np.bool_], number: npt.NDArray[np.int64]) -> Documents:
    inside = documents.with_counts(np.where(retained[documents.words], documents.counts, 0).astype(np.int32))
    return Documents(inside.ids, inside.offsets, number[inside.words].astype(np.int32), inside.counts, inside.extras)
