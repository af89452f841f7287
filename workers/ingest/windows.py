"""Counts of words, and of pairs of words, in sliding windows over texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


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
    def within(groups: Ints, words: int) -> WordPairs:
        """Return all pairs of two words of the same group; `groups` has a row for each group."""
        first, second = np.triu_indices(groups.shape[1], 1)
        low = np.minimum(groups[:, first], groups[:, second]).astype(np.int64)
        high = np.maximum(groups[:, first], groups[:, second]).astype(np.int64)
        return WordPairs(words, np.unique((low * words + high)[low < high]))

    def positions(self, first: Ints, second: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the position of each pair in `keys`, and whether it is there."""
        keys = np.minimum(first, second) * self.words + np.maximum(first, second)
        positions = np.searchsorted(self.keys, keys)
        positions[positions == self.keys.size] = 0
        there = self.keys[positions] == keys if self.keys.size else np.zeros(keys.shape, dtype=bool)
        return positions, there


@dataclass(frozen=True)
class WindowCounts:
    """Numbers of windows; they add over texts.

    Attributes
    ----------
    windows : int
        All windows.
    word : numpy.ndarray of int64, shape (words,)
        Windows with each word.
    pair : numpy.ndarray of int64, shape (pairs,)
        Windows with both words of each pair of `WordPairs.keys`.
    """

    windows: int
    word: Ints
    pair: Ints

    def __add__(self, other: WindowCounts) -> WindowCounts:
        return WindowCounts(self.windows + other.windows, self.word + other.word, self.pair + other.pair)


def count_windows(numbers: Ints, offsets: Ints, pairs: WordPairs, size: int | None, *, exact: bool) -> WindowCounts:
    """Count words and pairs in all windows of `size` consecutive tokens of each text.

    A text with fewer tokens than `size` is one window, an empty one too.

    Parameters
    ----------
    numbers : numpy.ndarray of int64, shape (tokens,)
        The number of each token's word from 0 to ``pairs.words - 1``, or -1 for a word that is not counted.
    offsets : numpy.ndarray of int64, shape (texts + 1,)
        Where each text's tokens begin.
    pairs : WordPairs
        Words and pairs to count.
    size : int or None
        Tokens of a window; None for one window a text.
    exact : bool
        Whether a word is in a window as long as any of its tokens is. Otherwise it is out of the window as soon as the
        first of its tokens leaves, until its next token enters, which is how gensim counts.

    Returns
    -------
    WindowCounts
        Of all texts.
    """
    word, pair, windows = np.zeros(pairs.words, np.int64), np.zeros(pairs.keys.size, np.int64), 0
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        text = numbers[begin:end]
        width = text.size if size is None else size
        count = max(text.size - width + 1, 1)
        windows += count
        tokens = np.flatnonzero(text >= 0)
        if not tokens.size:
            continue
        present, rows = np.unique(text[tokens], return_inverse=True)
        inside = _presence(tokens, rows, present.size, width, count, exact=exact)
        word[present] += inside.sum(axis=1)
        first, second = np.triu_indices(present.size, 1)
        positions, there = pairs.positions(present[first], present[second])
        if there.any():
            together = inside.astype(np.float32) @ inside.astype(np.float32).T  # whole numbers, exact below 2^24
            pair[positions[there]] += together[first[there], second[there]].astype(np.int64)
    return WindowCounts(windows, word, pair)


def _presence(tokens: Ints, rows: Ints, words: int, width: int, windows: int, *, exact: bool) -> npt.NDArray[np.bool_]:
    """Return which words are in which windows of a text, shape (words, windows)."""
    enters = np.clip(tokens - width + 1, 0, windows)
    leaving = tokens
    if not exact:  # the first token of the word that is in the window when this one enters
        order = np.lexsort((tokens, rows))
        place = rows * (tokens[-1] + 1)
        found = np.searchsorted((place + tokens)[order], place + enters)
        leaving = tokens[order][found]
    leaves = np.minimum(leaving + 1, windows)
    changes = np.zeros((words, windows + 1), dtype=np.int32)
    np.add.at(changes, (rows, enters), 1)
    np.add.at(changes, (rows, leaves), -1)
    inside: npt.NDArray[np.bool_] = np.cumsum(changes[:, :-1], axis=1) > 0
    return inside
