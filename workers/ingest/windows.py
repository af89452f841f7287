"""Count words, and pairs of words, in sliding windows over texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.segments import running
from collapsium.storage.readers.texts.batches import read_batches
from collapsium.storage.readers.texts.blocks import Block
from collapsium.workers.ingest.phrases import without
from collapsium.workers.ingest.token_reading import ReadRequest, read_tokens

Ints = npt.NDArray[np.int64]

MAX_WINDOWS = 1 << 14
"""Windows of a text that are counted at a time, to bound memory; their number is exact in single precision."""


@dataclass(frozen=True)
class WordPairs:
    """Words to count, and those pairs of them whose co-occurrence is counted.

    Attributes
    ----------
    words : int
        Number of words.
    keys : numpy.ndarray of int64, shape (pairs,)
        Ascending; ``first * words + second`` with ``first < second`` for each pair.
    """

    words: int
    keys: Ints

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
        there = self.keys[positions] == keys if self.keys.size else np.zeros(keys.shape, dtype=bool)
        return positions, there

    def among(self, words: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the pairs of which both words are among ascending `words`.

        Parameters
        ----------
        words : numpy.ndarray of int64, shape (n,)
            Ascending numbers of words.

        Returns
        -------
        first, second, positions : numpy.ndarray of int64, shape (pairs among them,)
            Indices of both words in `words`, and positions in `keys`.
        """
        if words.size * words.size < 2 * self.keys.size:
            first, second = np.triu_indices(words.size, 1)
            positions, there = self.positions(words[first], words[second])
            return first[there], second[there], positions[there]
        index = np.full(self.words, -1, dtype=np.int64)
        index[words] = np.arange(words.size)
        first, second = index[self.keys // self.words], index[self.keys % self.words]
        positions = np.flatnonzero((first >= 0) & (second >= 0))
        return first[positions], second[positions], positions


@dataclass(frozen=True)
class WindowCounts:
    """Numbers of windows; they add over texts.

    Attributes
    ----------
    texts, windows : int
        All texts, and all windows.
    word : numpy.ndarray of int64, shape (words,)
        Windows with each word.
    pair : numpy.ndarray of int64, shape (pairs,)
        Windows with both words of each pair of `WordPairs.keys`.
    """

    texts: int
    windows: int
    word: Ints
    pair: Ints

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
    """Words to count in the windows of texts, and options of reading the texts.

    Attributes
    ----------
    words : pyarrow.Array of string
        The words, by their numbers.
    pairs : WordPairs
        Pairs of them.
    sizes : tuple of int
        Sizes of windows, in tokens.
    reading : ReadRequest
        Options of reading.
    by_segment : bool
        Whether each segment is a text of its own, which no window leaves.
    """

    words: pa.Array
    pairs: WordPairs
    sizes: tuple[int, ...]
    reading: ReadRequest
    by_segment: bool = False


def count_block(block: Block, request: WindowRequest) -> tuple[WindowCounts, ...]:
    """Count words and pairs in the windows of a block of texts, without stop words.

    Parameters
    ----------
    block : tuple of Span
        Files, or parts of them.
    request : WindowRequest
        Words, sizes of windows, and options of reading.

    Returns
    -------
    tuple of WindowCounts
        Counts for each size. Words that are not counted, except stop words, take their places in windows.
    """
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

    Parameters
    ----------
    numbers : numpy.ndarray of int64, shape (tokens,)
        Number of each token's word from 0 to ``pairs.words - 1``, or -1 for a word that is not counted.
    offsets : numpy.ndarray of int64, shape (texts + 1,)
        Index of each text's first token.
    pairs : WordPairs
        Words and pairs to count.
    size : int or None
        Tokens of a window; None for one window a text.
    exact : bool, optional
        Whether a word is in a window as long as any of its tokens is. By default it is out of the window as soon as the
        first of its tokens leaves, until its next token enters, which is how gensim counts.

    Returns
    -------
    WindowCounts
        Counts of all texts.
    """
    counts = replace(WindowCounts.none(pairs), texts=offsets.size - 1)
    windows = 0
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        text = numbers[begin:end]
        width = text.size if size is None else size
        count = max(text.size - width + 1, 1)
        windows += count
        tokens = np.flatnonzero(text >= 0)
        if not tokens.size:
            continue
        present, rows = np.unique(text[tokens], return_inverse=True)
        first, last = _spans(tokens, rows, width, count, exact=exact)
        one, other, positions = pairs.among(present)
        for low in range(0, count, MAX_WINDOWS):
            inside = _presence(first - low, last - low, rows, present.size, min(count - low, MAX_WINDOWS))
            counts.word[present] += inside.sum(axis=1)
            if positions.size:
                together = inside.astype(np.float32)
                counts.pair[positions] += (together @ together.T)[one, other].astype(np.int64)
    return replace(counts, windows=windows)


def _spans(tokens: Ints, rows: Ints, width: int, windows: int, *, exact: bool) -> tuple[Ints, Ints]:
    """Return the windows in which each token makes its word present: the first, and the one after the last."""
    enters = np.clip(tokens - width + 1, 0, windows)
    leaving = tokens
    if not exact:
        # The first token of the word that is in the window when this one enters.
        order = np.lexsort((tokens, rows))
        place = rows * (tokens[-1] + 1)
        leaving = tokens[order][np.searchsorted((place + tokens)[order], place + enters)]
    return enters, np.minimum(leaving + 1, windows)


def _presence(first: Ints, last: Ints, rows: Ints, words: int, windows: int) -> npt.NDArray[np.bool_]:
    """Return the presence of words in the windows 0 to `windows` - 1, shape (words, windows)."""
    changes = np.zeros((words, windows + 1), dtype=np.int32)
    np.add.at(changes, (rows, np.clip(first, 0, windows)), 1)
    np.add.at(changes, (rows, np.clip(last, 0, windows)), -1)
    inside: npt.NDArray[np.bool_] = np.cumsum(changes[:, :-1], axis=1) > 0
    return inside
