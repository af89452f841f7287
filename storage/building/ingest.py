"""Write the documents of a source as a corpus, with vocabulary pruning by document frequency."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.building.ingest_record import Cuts, History, Report, Sieve
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.corpus.shard import Documents, merge_segments
from collapsium.storage.corpus.vocabulary import as_spelled_in
from collapsium.storage.corpus.writer import CorpusWriter, VectorWriter
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.io.folder import Folder, created, ensure_free
from collapsium.storage.readers.base import NOT_IN_VOCABULARY, Dropped, Source
from collapsium.storage.readers.read_options import Guess, distinct_guesses
from collapsium.storage.readers.side_files import Sides, merged
from collapsium.storage.readers.vectors import DenseSource
from collapsium.storage.units import Counting, silent


class RelabelledSource:
    """A source of counted documents with the word ids of another vocabulary; words outside it are dropped."""

    def __init__(self, source: Source, words: Sequence[str]) -> None:
        self.name, self.guesses, self._source, self._words = source.name, source.guesses, source, list(words)
        spelled = pa.array(as_spelled_in(self._words, source.words()), pa.string())
        place = pc.fill_null(pc.index_in(spelled, value_set=pa.array(self._words, pa.string())), -1)
        self._number = np.asarray(place, dtype=np.int32)
        self._unknown = np.zeros(len(spelled), dtype=np.int64)

    def words(self) -> list[str]:
        """Return the other vocabulary."""
        return self._words

    @property
    def knows_words(self) -> bool:
        """True if a word of the source is in the other vocabulary."""
        return bool((self._number >= 0).any())

    @property
    def dropped(self) -> tuple[Dropped, ...]:
        """Numbers of words outside the vocabulary, and of their tokens, in the documents read so far."""
        words = int(np.count_nonzero(self._unknown))
        return (Dropped(NOT_IN_VOCABULARY, words, int(self._unknown.sum())),) if words else ()

    def documents(self) -> Iterator[Documents]:
        """Yield the chunks of documents of the source; each call counts unknown words from zero."""
        self._unknown[:] = 0
        for part in self._source.documents():
            numbers = self._number[part.words]
            lost = numbers < 0
            np.add.at(self._unknown, part.words[lost], part.counts[lost])
            left = part.with_counts(np.where(lost, 0, part.counts).astype(np.int32))
            numbers = numbers[~lost & (part.counts > 0)]
            owner = np.repeat(np.arange(len(left)), np.diff(left.offsets))
            order = np.lexsort((numbers, owner))
            yield replace(left, words=numbers[order], counts=left.counts[order])


def ingest(
    source: Source,
    corpus: str | os.PathLike[str],
    *,
    cuts: Cuts | None = None,
    shard_tokens: int | None = None,
    history: History | None = None,
    sides: Sides | None = None,
    may_be_empty: bool = False,
    progress: Counting = silent,
) -> Manifest:
    """Write a source's documents as a corpus; with `may_be_empty`, none of them needs a word."""
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
            left = documents
            if not retained.all():
                counts = np.where(retained[documents.words], documents.counts, 0).astype(np.int32)
                left = documents.with_counts(counts)
                left = replace(left, words=number[left.words].astype(np.int32))
            if sides is not None:
                left = replace(left, extras=merged(left.extras, sides.of(left.ids, written)))
            writer.add(left)
            written += len(documents)
            empty += int((np.diff(left.offsets) == 0).sum())
            progress(written)
        try:
            vocabulary = [word for word, keep in zip(words, retained, strict=True) if keep]
            manifest = writer.finish(vocabulary, may_be_empty=may_be_empty)
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
            report = replace(report, guesses=_guesses(history, sides, source))
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
            if sides is not None:
                vectors = replace(vectors, extras=merged(vectors.extras, sides.of(vectors.ids, written)))
            writer.add(vectors)
            written += len(vectors)
            progress(written)
        try:
            manifest = writer.finish(columns)
        except InputError as error:
            raise InputError(source.name, error.expected) from None
        unmatched = 0 if sides is None else sides.judge(written)
        if history is not None:
            guesses = _guesses(history, sides, source)
            report = Report(documents=written, unmatched_rows=unmatched, guesses=guesses)
            replace(history, report=report).write(folder)
        return manifest


def _guesses(history: History, sides: Sides | None, source: Source | DenseSource) -> tuple[Guess, ...]:
    return distinct_guesses(history.report.guesses, () if sides is None else sides.guesses, source.guesses)


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
