"""Counts of words, and of pairs of words, in sliding windows over texts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.argument_types import Int64Vector, OutInt64Vector
from collapsium.workers.kernels.jit import helper, kernel


class TextTokens(NamedTuple):
    """Texts as sequences of tokens."""

    offsets: Int64Vector  # Index of each text's first token; the last is the number of tokens; (texts + 1,)
    number: Int64Vector  # Number of each token's word; -1 for words that are not counted; (tokens,)


class CountedPairs(NamedTuple):
    """Pairs of words that are counted, listed for each of their two words."""

    start: Int64Vector  # Index of each word's first partner; (words + 1,)
    partner: Int64Vector  # Numbers of the partners; (2 pairs,)
    pair: Int64Vector  # Number of each pair; (2 pairs,)


@helper
def _leave(
    word: int,
    window: int,
    pairs: CountedPairs,
    since: OutInt64Vector,
    word_windows: OutInt64Vector,
    pair_windows: OutInt64Vector,
) -> None:
    """Count the windows before `window` in which a word was present, alone and together with its partners."""
    word_windows[word] += window - since[word]
    for place in range(pairs.start[word], pairs.start[word + 1]):
        other = since[pairs.partner[place]]
        if other >= 0:
            pair_windows[pairs.pair[place]] += window - max(since[word], other)
    since[word] = -1


@kernel
def count_windows(
    texts: TextTokens,
    pairs: CountedPairs,
    size: int,
    exact: int,
    word_windows: OutInt64Vector,
    pair_windows: OutInt64Vector,
) -> int:
    """Count words and pairs in all windows of `size` consecutive tokens of each text; twin: `naive.windows.count`.

    The windows in which a word, or a pair, is present are counted when a word leaves, so that a token takes time in
    proportion to the partners of its word.

    Shapes: `word_windows` (words,); `pair_windows` (pairs,).
    """
    since, tokens = np.full(word_windows.size, -1, dtype=np.int64), np.zeros(word_windows.size, dtype=np.int64)
    total = 0
    for text in range(texts.offsets.size - 1):
        begin, length = texts.offsets[text], texts.offsets[text + 1] - texts.offsets[text]
        width = length if size == 0 or length < size else size
        windows = length - width + 1
        total += windows
        for window in range(windows):
            if window > 0:
                word = texts.number[begin + window - 1]
                if word >= 0:
                    tokens[word] -= 1
                    if since[word] >= 0 and (exact == 0 or tokens[word] == 0):
                        _leave(word, window, pairs, since, word_windows, pair_windows)
            for place in range(begin + window + (width - 1 if window > 0 else 0), begin + window + width):
                word = texts.number[place]
                if word >= 0:
                    tokens[word] += 1
                    if since[word] < 0:
                        since[word] = window
        for place in range(begin + windows - 1, begin + length):
            word = texts.number[place]
            if word >= 0:
                tokens[word] = 0
                if since[word] >= 0:
                    _leave(word, windows, pairs, since, word_windows, pair_windows)
    return total
