"""Moves between sweeps: tokens held out to judge them, products by which topics are compared, and carrying lists over.

`judging` says what is judged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.cvb.active import UNIT
from collapsium.workers.kernels.jit import (
    F4_2,
    I4,
    I8,
    OUT_F4_2,
    OUT_F8,
    OUT_F8_2,
    OUT_I4,
    OUT_I8,
    OUT_U2,
    U2,
    f8,
    helper,
    i8,
    kernel,
    u8,
)
from collapsium.workers.kernels.random import mixed

Array = npt.NDArray[Any]

STRIDE = np.uint64(0x9E3779B97F4A7C15)


@kernel(I8, I4, I4, I4, u8, f8, OUT_I4)
def hold_out(offsets: Array, words: Array, position: Array, counts: Array, key: int, share: float, held: Array) -> None:
    """Draw how many copies of each pair are held out, by a hash of their address; twin: `naive.moves.hold_out`.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    words : int32, shape (rows,)
        Ids of the rows' words.
    position, counts
        As for `active.sweep_active`.
    key : int
        Address of the shard's documents.
    share : float
        Probability that a copy is held out.
    held : int32, shape (pairs,)
        Filled.
    """
    limit = np.uint64(share * 2.0**53)
    for document in range(offsets.size - 1):
        address = mixed(np.uint64(key) + np.uint64(document + 1) * STRIDE)
        for pair in range(offsets[document], offsets[document + 1]):
            word = mixed(address + np.uint64(words[position[pair]] + 1) * STRIDE)
            held[pair] = 0
            for copy in range(counts[pair]):
                held[pair] += (mixed(word + np.uint64(copy + 1) * STRIDE) >> np.uint64(11)) < limit


@kernel(I8, I8, U2, I8, I8, u8, i8, OUT_U2, OUT_I8)
def move_lists(
    offsets: Array,
    lists: Array,
    topic: Array,
    into: Array,
    split: Array,
    key: int,
    first: int,
    chosen: Array,
    sizes: Array,
) -> None:
    """Give each document the list that moves make of its own; twin: `naive.moves.moved`.

    Parameters
    ----------
    offsets, lists, topic
        As for `active.sweep_active`.
    into : int64, shape (topics,)
        What each topic becomes; -1 for nothing.
    split : int64, shape (topics,)
        What it becomes in about half of the documents, by a hash of their address; -1 for the same.
    key, first : int
        Address of the shard's documents, and the number in it of the first of these.
    chosen : uint16, shape (listed,)
        Filled with the new lists, ascending, each where the old one began.
    sizes : int64, shape (documents,)
        Filled with how many topics each document lists.
    """
    taken = np.zeros(into.size, dtype=np.int64)
    for document in range(offsets.size - 1):
        begin, end = lists[document], lists[document + 1]
        other = _is_other(key, first + document)
        for j in range(begin, end):
            target = _target(topic[j], into, split, other)
            if target >= 0:
                taken[target] = 1
        size = 0
        for k in range(into.size):
            if taken[k]:
                chosen[begin + size] = k
                size += 1
                taken[k] = 0
        sizes[document] = size


@helper
def _is_other(key: Any, document: int) -> Any:
    return mixed(np.uint64(key) + np.uint64(document + 1) * STRIDE) >> np.uint64(63) == np.uint64(1)


@helper
def _target(topic: Any, into: Array, split: Array, other: Any) -> Any:
    k = np.int64(topic)
    return split[k] if other and split[k] >= 0 else into[k]


@kernel(I8, I4, I4, I4, I8, U2, I8, U2, I8, U2, I8, I8, I8, u8, i8, OUT_F4_2, OUT_F8, OUT_U2, OUT_F8, OUT_F8)
def move_shares(
    offsets: Array,
    position: Array,
    counts: Array,
    more: Array,
    lists: Array,
    topic: Array,
    starts: Array,
    share: Array,
    new_lists: Array,
    new_topic: Array,
    new_starts: Array,
    into: Array,
    split: Array,
    key: int,
    first: int,
    row_change: Array,
    rest_change: Array,
    new_share: Array,
    new_active_count: Array,
    new_document_rest: Array,
) -> None:
    """Carry responsibilities over to the lists of `move_lists`, and count tokens that were held out.

    What a deleted topic held falls to the background. Twin: `naive.moves.moved`.

    Parameters
    ----------
    offsets, position, counts
        As for `active.sweep_active`; `counts` as they count from now on.
    more : int32, shape (pairs,)
        How many of them did not count before.
    lists, topic, starts, share
        As for `active.sweep_active`.
    new_lists, new_topic, new_starts
        The new lists and where their responsibilities begin.
    into, split, key, first
        As for `move_lists`.
    row_change, rest_change
        Changed by what moves: float32, shape (rows, topics), and float64, shape (rows,).
    new_share : uint16
        Zero on entry; filled.
    new_active_count, new_document_rest : float64, shape (listed,) and (documents,)
        Zero on entry; filled with E[n_dk] of the new lists and the documents' background tokens.
    """
    place = np.empty(into.size, dtype=np.int64)
    for document in range(offsets.size - 1):
        begin, size, at = lists[document], lists[document + 1] - lists[document], starts[document]
        there, there_size = new_lists[document], new_lists[document + 1] - new_lists[document]
        to, other = new_starts[document], _is_other(key, first + document)
        for j in range(there_size):
            place[new_topic[there + j]] = j
        for pair in range(offsets[document], offsets[document + 1]):
            row, each, had = position[pair], counts[pair] / UNIT, (counts[pair] - more[pair]) / UNIT
            left, kept = np.int64(UNIT), np.int64(UNIT)
            for j in range(size):
                steps, k = np.int64(share[at + j]), np.int64(topic[begin + j])
                target = _target(k, into, split, other)
                left -= steps
                if target >= 0:
                    kept -= steps
                    new_share[to + place[target]] += np.uint16(steps)
                    new_active_count[there + place[target]] += each * steps
                if target == k:
                    row_change[row, k] += np.float32((each - had) * steps)
                elif steps:
                    row_change[row, k] -= np.float32(had * steps)
                    if target >= 0:
                        row_change[row, target] += np.float32(each * steps)
            rest_change[row] += each * kept - had * left
            new_document_rest[document] += each * kept
            at += size
            to += there_size


@kernel(F4_2, f8, OUT_F8_2)
def gram(row_topic: Array, least: float, products: Array) -> None:
    """Add the products of columns, of cells that are not next to nothing; twin: `naive.moves.gram`.

    Parameters
    ----------
    row_topic : float32, shape (words, topics)
        E[n_kw].
    least : float
        Cells that do not pass it count as nothing: most words occur in few topics.
    products : float64, shape (topics, topics)
        Increased by sum_w E[n_kw] E[n_lw], for k up to l only.
    """
    topics = row_topic.shape[1]
    place, value = np.empty(topics, dtype=np.int64), np.empty(topics)
    for word in range(len(row_topic)):
        size = 0
        for k in range(topics):
            if row_topic[word, k] > least:
                place[size], value[size] = k, row_topic[word, k]
                size += 1
        for i in range(size):
            for j in range(i, size):
                products[place[i], place[j]] += value[i] * value[j]
