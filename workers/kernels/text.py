"""Texts: runs of bytes of words, each numbered by its first occurrence, and counts of words in sliding windows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.jit import (
    Int32Vector,
    Int64Vector,
    Number,
    OutInt32Vector,
    OutInt64Vector,
    UInt8Vector,
    helper,
    kernel,
)


@kernel
def number_runs(
    data: UInt8Vector,
    offsets: Int64Vector,
    inside: UInt8Vector,
    room: Int64Vector,
    numbers: OutInt32Vector,
    ends: OutInt64Vector,
    first: OutInt64Vector,
    length: OutInt64Vector,
) -> int:
    """Give numbers to the runs of a text's documents by their bytes, in the order in which they first occur.

    A table of slots holds the numbers, by a hash of the bytes (FNV-1a in 31 bits), and grows by itself. Twin:
    `naive.runs.number_runs`.

    Shapes: `data` (bytes,); `offsets` (documents + 1,); `inside` (256,); `room` (1,); `numbers` (at least runs,);
    `ends` (documents,); `first`, `length` (at least distinct runs,).
    """
    slots: Number = room[0]
    table = np.full(slots, -1, dtype=np.int32)
    hashes = np.empty(slots, dtype=np.int64)
    runs, distinct = 0, 0
    for document in range(offsets.size - 1):
        place, end = offsets[document], offsets[document + 1]
        while place < end:
            if inside[data[place]] == 0:
                place += 1
                continue
            begin: Number = place
            key: Number = 18652613
            while place < end and inside[data[place]] != 0:
                key = ((key ^ np.int64(data[place])) * 16777619) & 0x7FFFFFFF
                place += 1
            size = place - begin
            slot = (key ^ (key >> 15)) & (slots - 1)
            while True:
                run_number = table[slot]
                if run_number < 0:
                    break
                if hashes[run_number] == key and length[run_number] == size:
                    same = True
                    for step in range(size):
                        if data[first[run_number] + step] != data[begin + step]:
                            same = False
                            break
                    if same:
                        break
                slot = (slot + 1) & (slots - 1)
            if run_number < 0:
                run_number = np.int32(distinct)
                table[slot] = run_number
                hashes[distinct], first[distinct], length[distinct] = key, begin, size
                distinct += 1
            numbers[runs] = run_number
            runs += 1
            if 2 * distinct > slots:
                slots *= 2
                old, hashes = hashes, np.empty(slots, dtype=np.int64)
                table = np.full(slots, -1, dtype=np.int32)
                for number in range(distinct):
                    hashes[number] = old[number]
                    slot = (hashes[number] ^ (hashes[number] >> 15)) & (slots - 1)
                    while table[slot] >= 0:
                        slot = (slot + 1) & (slots - 1)
                    table[slot] = number
        ends[document] = runs
    return distinct


@kernel
def expand_runs(
    numbers: Int32Vector,
    ends: Int64Vector,
    starts: Int64Vector,
    words: Int32Vector,
    tokens: OutInt32Vector,
    lengths: OutInt64Vector,
) -> None:
    """Put the words of each run in its place; twin: `naive.runs.expand_runs`.

    Shapes: `numbers` (runs,); `ends`, `lengths` (documents,); `starts` (distinct runs + 1,); `tokens` (at least
    tokens,).
    """
    place, run = 0, 0
    for document in range(ends.size):
        before = place
        while run < ends[document]:
            number = numbers[run]
            for word in range(starts[number], starts[number + 1]):
                tokens[place] = words[word]
                place += 1
            run += 1
        lengths[document] = place - before


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
        partner_since = since[pairs.partner[place]]
        if partner_since >= 0:
            pair_windows[pairs.pair[place]] += window - max(since[word], partner_since)
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
