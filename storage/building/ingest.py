"""From a source to a corpus on disk, with cuts by document frequency where they are asked for."""

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
from collapsium.storage.readers.side_files.table import Sides, merged
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
    """Write a source's documents as a corpus.

    Parameters
    ----------
    source : Source
        As `collapsium.storage.readers.open.open_source` gives it.
    corpus : str or path-like
        The folder to make, local or an fsspec URL.
    cuts : Cuts, optional
        Words to drop by document frequency; by default none. Documents stay, even if no word of theirs does.
    shard_tokens : int, optional
        Tokens of a shard; by default an eighth of the corpus, between 100,000 and 2,000,000.
    history : History, optional
        How the source was read; what was dropped is added, and the record written beside the manifest.
    sides : Sides, optional
        Labels and covariates from side files.
    progress : callable, optional
        Told the number of documents written so far.

    Returns
    -------
    Manifest
        What the corpus holds.

    Raises
    ------
    InputError
        The source is damaged, or no word is left. Nothing is left behind.
    OccupiedError
        The folder exists.
    OptionError
        `shard_tokens` is less than 1.
    """
    _require_shard_tokens(shard_tokens)
    ensure_free(Folder(corpus))
    cuts = cuts or Cuts()
    words = source.words()
    kept, report, frequent = _kept_words(source, cuts, words)
    number = np.cumsum(kept, dtype=np.int64) - 1
    with created(Folder(corpus)) as folder:
        writer = CorpusWriter(folder, int(kept.sum()), shard_tokens)
        written, empty = 0, 0
        for documents in source.documents():
            left = documents if kept.all() else _cut(documents, kept, number)
            writer.add(left if sides is None else _sided(left, sides, written))
            written += len(documents)
            empty += int((np.diff(left.offsets) == 0).sum())
            progress(written)
        try:
            manifest = writer.finish([word for word, keep in zip(words, kept, strict=True) if keep])
        except InputError as error:
            raise InputError(source.name, error.expected) from None
        unmatched = 0 if sides is None else sides.judge(written)
        if history is not None:
            lost = source.dropped if isinstance(source, RelabelledSource) else ()
            report = replace(report, unmatched_rows=unmatched, dropped=(*report.dropped, *lost))
            found = report.tokens_found or manifest.tokens
            told = replace(report, documents=written, empty_documents=empty, tokens=manifest.tokens, tokens_found=found)
            replace(history, report=told, frequent=frequent).write(folder)
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
    """Write a source's vectors as a corpus.

    Parameters
    ----------
    source : DenseSource
        As `collapsium.storage.readers.open.open_vectors` gives it.
    corpus, shard_tokens, history, sides, progress
        As for `ingest`; tokens are values.

    Returns
    -------
    Manifest
        What the corpus holds; ``vectors.constant`` has the columns that are the same in all vectors.

    Raises
    ------
    InputError
        The source is damaged, a value is not finite, or there are no vectors. Nothing is left behind.
    OccupiedError
        The folder exists.
    OptionError
        `shard_tokens` is less than 1.
    """
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
            replace(history, report=Report(documents=written, unmatched_rows=unmatched)).write(folder)
        return manifest


def _sided(part: Some, sides: Sides, first: int) -> Some:
    """Add what side files say of documents, or vectors, the first of which has this number."""
    return replace(part, extras=merged(part.extras, sides.of(part.ids, first)))


def _require_shard_tokens(shard_tokens: int | None) -> None:
    if shard_tokens is not None and shard_tokens < 1:
        raise OptionError(f"expected 1 or more, found {shard_tokens}", "shard_tokens")


def _kept_words(source: Source, cuts: Cuts, words: list[str]) -> tuple[npt.NDArray[np.bool_], Report, tuple[str, ...]]:
    """Choose the words to keep; return what was dropped and the words that were too frequent.

    Where there is no rule, nothing is counted.
    """
    if not cuts.wanted:
        return np.ones(len(words), dtype=bool), Report(words_found=len(words), words=len(words)), ()
    frequency, tokens = np.zeros((2, len(words)), dtype=np.int64)
    documents = 0
    for part in source.documents():
        merged = merge_segments(part)
        frequency += np.bincount(merged.words, minlength=len(words))
        np.add.at(tokens, merged.words, merged.counts)
        documents += len(part)
    sieve = Sieve(pa.array(words, pa.string()), frequency, tokens)
    sieve.cut(cuts, documents)
    if not sieve.kept.any():
        raise InputError(source.name, f"no word is left of {len(words)} after the cuts by document frequency")
    found = int(tokens.sum())
    kept = int(sieve.kept.sum())
    report = Report(words_found=len(words), words=kept, tokens_found=found, dropped=tuple(sieve.dropped))
    return sieve.kept, report, sieve.frequent


def _cut(documents: Documents, kept: npt.NDArray[np.bool_], number: npt.NDArray[np.int64]) -> Documents:
    inside = documents.with_counts(np.where(kept[documents.words], documents.counts, 0).astype(np.int32))
    return Documents(inside.ids, inside.offsets, number[inside.words].astype(np.int32), inside.counts, inside.extras)
