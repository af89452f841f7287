"""Segmentation of UTF-8 text into runs of bytes of words, each numbered by its first occurrence."""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Int32Vector,
    Int64Vector,
    Number,
    OutInt32Vector,
    OutInt64Vector,
    UInt8Vector,
)
from collapsium.workers.kernels.jit import kernel


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
                hashes[:distinct] = old[:distinct]
                table = np.full(slots, -1, dtype=np.int32)
                for number in range(distinct):
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
