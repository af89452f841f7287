"""Counted documents with the word ids of another vocabulary; words are matched by their spelling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.vocabulary import as_spelled_in
from collapsium.storage.readers.base import NOT_IN_VOCABULARY, Dropped, Source


class RelabelledSource:
    """A source of counted documents with the word ids of another vocabulary; words outside it are dropped."""

    def __init__(self, source: Source, words: Sequence[str]) -> None:
        self.name, self._source, self._words = source.name, source, list(words)
        spelled = pa.array(as_spelled_in(self._words, source.words()), pa.string())
        place = pc.fill_null(pc.index_in(spelled, value_set=pa.array(self._words, pa.string())), -1)
        self._number = np.asarray(place, dtype=np.int32)
        self._unknown = np.zeros(len(spelled), dtype=np.int64)

    def words(self) -> list[str]:
        """Return the other vocabulary."""
        return self._words

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
