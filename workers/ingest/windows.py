"""Count words, and pairs of words, in sliding windows over texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.segments import running
from collapsium.storage.readers.texts.batches import read_batches
from collapsium.storage.readers.texts.blocks import Block
from collapsium.workers.ingest.phrases import without
from collapsium.workers.ingest.token_reading import ReadRequest, read_tokens
from collapsium.workers.kernels.metrics import windows as kernels
from collapsium.workers.kernels.metrics.windows import CountedPairs, TextTokens

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WordPairs:
    """Words to count, and those pairs of them whose co-occurrence is counted."""

    words: int  # Number of words
    keys: Ints  # Ascending; ``first * words + second`` with ``first < second`` for each pair; int64 (pairs,)

    @staticmethod
    def within(groups: Sequence[Ints], words: int) -> WordPairs:
        """Return all pairs of two words of the same group; arrays of `groups` have a row for each group."""
        keys = [np.zeros(0, dtype=np.int64)]
        for rows in groups:
            first, second = np.triu_indices(rows.shape[1], 1)
            low, high = np.minimum(rows[:, first], rows[:, second]), np.maximum(rows[:, first], rows[:, second])
            keys.append((low.astype(np.int64) * words + high)[low < high])
        return WordPairs(words, np.unique(np.concatenate(keys)))

    def positions(self, first: Ints, second: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the position of each pair in `keys`, and whether it is there."""
        keys = np.minimum(first, second) * self.words + np.maximum(first, second)
        positions = np.searchsorted(self.keys, keys)
        positions[positions == self.keys.size] = 0
        is_known = self.keys[positions] == keys if self.keys.size else np.zeros(keys.shape, dtype=bool)
        return positions, is_known

    @cached_property
    def by_word(self) -> CountedPairs:
        """The pairs, listed for each of their two words."""
        first, second = self.keys // self.words, self.keys % self.words
        words = np.concatenate([first, second])
        order = np.argsort(words, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(words, minlength=self.words))]).astype(np.int64)
        partner = np.concatenate([second, first])[order]
        return CountedPairs(start, partner, np.tile(np.arange(self.keys.size), 2)[order])


@dataclass(frozen=True)
class WindowCounts:
    """Numbers of windows; they add over texts."""

    # All texts, and all windows
    texts: int
    windows: int
    word: Ints  # Windows with each word; int64 (words,)
    pair: Ints  # Windows with both words of each pair of `WordPairs.keys`; int64 (pairs,)

    @staticmethod
    def none(pairs: WordPairs) -> WindowCounts:
        """Return the counts of no texts."""
        return WindowCounts(0, 0, np.zeros(pairs.words, np.int64), np.zeros(pairs.keys.size, np.int64))

    def __add__(self, other: WindowCounts) -> WindowCounts:
        return WindowCounts(
            self.texts + other.texts, self.windows + other.windows, self.word + other.word, self.pair + other.pair
        )

    def __sizeof__(self) -> int:
        return self.word.nbytes + self.pair.nbytes


@dataclass(frozen=True)
class WindowRequest:
    """Words to count in the windows of texts, and options of reading the texts."""

    words: pa.Array  # The words, by their numbers
    pairs: WordPairs  # Pairs of them
    sizes: tuple[int, ...]  # Sizes of windows, in tokens
    reading: ReadRequest  # Options of reading
    by_segment: bool = False  # Whether each segment is a text of its own, which no window leaves


def count_block(block: Block, request: WindowRequest) -> tuple[WindowCounts, ...]:
    """Count words and pairs in the windows of a block of texts, without stop words."""
    reading = request.reading
    counts = [WindowCounts.none(request.pairs) for _ in request.sizes]
    for batch in read_batches(block, reading.kind, reading.options, reading.numbered):
        tokens = without(read_tokens(batch.texts, reading), reading.stops)
        place = np.asarray(pc.fill_null(pc.index_in(tokens.words, value_set=request.words), -1), dtype=np.int64)
        offsets = tokens.offsets
        if batch.segments is not None and not request.by_segment:
            offsets = offsets[running(batch.segments)]
        for number, size in enumerate(request.sizes):
            counts[number] += count_windows(place[tokens.numbers], offsets, request.pairs, size)
    return tuple(counts)


def count_windows(
    numbers: Ints, offsets: Ints, pairs: WordPairs, size: int | None, *, exact: bool = False
) -> WindowCounts:
    """Count words and pairs in all windows of `size` consecutive tokens of each text.

    A text with fewer tokens than `size` is one window, an empty one too.
    """
    counts = WindowCounts.none(pairs)
    texts = TextTokens(np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(numbers, np.int64))
    windows = kernels.count_windows(texts, pairs.by_word, size or 0, int(exact), counts.word, counts.pair)
    return replace(counts, texts=offsets.size - 1, windows=windows)
