"""Moves of topics between sweeps: held-out tokens, products of columns, and new active topics.

`merge_scores` and `deletion_scores` compute the scores by which moves are accepted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Array,
    Float32Matrix,
    Int32Vector,
    Int64Vector,
    Number,
    OutFloat64Matrix,
    OutInt32Vector,
    OutInt64Vector,
    OutUInt16Vector,
)
from collapsium.workers.kernels.cvb.active import UNIT
from collapsium.workers.kernels.cvb.active_carry import add_tokens
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, NewActiveState, RunningCounts
from collapsium.workers.kernels.jit import borrower, helper, kernel
from collapsium.workers.kernels.random import mixed
from collapsium.workers.kernels.records import DocumentPairs, token_weight

STRIDE = np.uint64(0x9E3779B97F4A7C15)


class Moves(NamedTuple):
    """Accepted moves of topics, and the hash keys of the documents in which they are carried out."""

    into: Int64Vector  # The topic that each becomes; -1 for none; (topics,)
    # The topic that it becomes in about half of the documents, by a stable hash; -1 for the same; (topics,)
    split: Int64Vector
    key: np.uint64  # Address of the shard's documents
    first_document: int  # Number in the shard of the first of these documents


@kernel
def hold_out(pairs: DocumentPairs, words: Int32Vector, key: np.uint64, share: float, held_out: OutInt32Vector) -> None:
    """Draw the number of held-out copies of each pair, by a stable hash; twin: `naive.topic_moves.hold_out`.

    Shapes: `words` (rows,); `held_out` (pairs,).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    limit = np.uint64(share * 2.0**53)
    for document in range(offsets.size - 1):
        address = mixed(np.uint64(key) + np.uint64(document + 1) * STRIDE)
        for pair in range(offsets[document], offsets[document + 1]):
            word = mixed(address + np.uint64(words[position[pair]] + 1) * STRIDE)
            held_out[pair] = 0
            for copy in range(counts[pair]):
                held_out[pair] += (mixed(word + np.uint64(copy + 1) * STRIDE) >> np.uint64(11)) < limit


@kernel
def move_topics(active: ActiveTopics, moves: Moves, new_topics: OutUInt16Vector, sizes: OutInt64Vector) -> None:
    """Fill each document's active topics after moves; twin: `naive.topic_moves.moved`.

    Shapes: `new_topics` (active,); `sizes` (documents,).
    """
    active_offsets, active_topics, into, split = active.offsets, active.topics, moves.into, moves.split
    taken = np.zeros(into.size, dtype=np.int64)
    for document in range(active_offsets.size - 1):
        begin, end = active_offsets[document], active_offsets[document + 1]
        in_half = _in_half(moves.key, moves.first_document + document)
        for j in range(begin, end):
            target = _target(active_topics[j], into, split, in_half)
            if target >= 0:
                taken[target] = 1
        size = 0
        for k in range(into.size):
            if taken[k]:
                new_topics[begin + size] = k
                size += 1
                taken[k] = 0
        sizes[document] = size


@helper
def _in_half(key: Number, document: int) -> Number:
    """Return whether a document is in the half in which topics that split become another."""
    return mixed(np.uint64(key) + np.uint64(document + 1) * STRIDE) >> np.uint64(63) == np.uint64(1)


@helper
def _target(topic: Number, into: Array, split: Array, in_half: Number) -> Number:
    """Return the topic that a topic becomes in a document; -1 for none."""
    k = np.int64(topic)
    return split[k] if in_half and split[k] >= 0 else into[k]


@kernel
def move_responsibilities(
    pairs: DocumentPairs,
    released: Int32Vector,
    active: ActiveTopics,
    before: ActiveState,
    moves: Moves,
    new_active: ActiveTopics,
    running: RunningCounts,
    after: NewActiveState,
) -> None:
    """Carry responsibilities over to the topics of `move_topics`, and count tokens that were held out.

    Responsibilities of a deleted topic go to the background. Twin: `naive.topic_moves.moved`.

    Shapes: `released` (pairs,).
    """
    offsets, responsibilities, background_change = pairs.offsets, before.responsibilities, running.rows.background
    target, held, count = (
        np.empty(moves.into.size, dtype=np.int64),
        np.empty(moves.into.size),
        np.empty(moves.into.size),
    )
    place = np.empty(moves.into.size, dtype=np.int64)
    for document in range(offsets.size - 1):
        begin, at, to = active.offsets[document], before.starts[document], after.starts[document]
        new_begin, size = new_active.offsets[document], active.offsets[document + 1] - begin
        for j in range(new_active.offsets[document + 1] - new_begin):
            place[new_active.topics[new_begin + j]] = j
        moved = _fill_targets(document, begin, size, active, moves, target)
        held[:size] = 0.0
        count[:size] = 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            weight, row = token_weight(pairs.weights, pair), pairs.position[pair]
            each, had = weight * pairs.counts[pair] / UNIT, weight * (pairs.counts[pair] - released[pair]) / UNIT
            left = np.int64(UNIT)
            for j in range(size):
                steps = np.int64(responsibilities[at + j])
                left -= steps
                held[j] += had * steps
                count[j] += each * steps
            new_left = left
            for j in range(size):
                if target[j] >= 0:
                    after.responsibilities[to + place[target[j]]] += responsibilities[at + j]
                else:
                    new_left += np.int64(responsibilities[at + j])
            # Where neither topics nor tokens are others, no row is touched.
            if moved or each != had:
                for j in range(size):
                    steps = np.int64(responsibilities[at + j])
                    if steps:
                        add_tokens(row, np.int64(active.topics[begin + j]), had * steps, -1, running, pairs.weights)
                    if steps and target[j] >= 0:
                        add_tokens(row, target[j], each * steps, 1, running, pairs.weights)
            background_change[row] += each * new_left - had * left
            after.background[document] += each * new_left
            at += size
            to += new_active.offsets[document + 1] - new_begin
        for j in range(size):
            running.totals[active.topics[begin + j]] -= held[j]
            if target[j] >= 0:
                running.totals[target[j]] += count[j]
                after.counts[new_begin + place[target[j]]] += count[j]
                if before.pseudo.size:
                    after.pseudo[new_begin + place[target[j]]] += before.pseudo[begin + j]


@borrower
def _fill_targets(document: int, begin: int, size: int, active: ActiveTopics, moves: Moves, target: Array) -> Number:
    """Fill the new number of each active topic of a document, -1 for none; return whether any becomes another."""
    moved, in_half = False, _in_half(moves.key, moves.first_document + document)
    for j in range(size):
        k = np.int64(active.topics[begin + j])
        target[j] = _target(k, moves.into, moves.split, in_half)
        moved |= target[j] != k
    return moved


@kernel
def gram(row_topic: Float32Matrix, least: float, products: OutFloat64Matrix) -> None:
    """Add the products of columns, of cells above a limit; twin: `naive.topic_moves.gram`.

    Shapes: `row_topic` (words, topics); `products` (topics, topics).
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
