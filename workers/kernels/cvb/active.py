"""Sweeps over active topics: each document keeps a list of topics, and its pairs' responsibilities over those only.

What a pair gives to all other topics is one background share. Zeroth order (CVB0; Asuncion, Welling, Smyth and Teh
2009): an active topic weighs (a_k + E'[n_dk]) (b_w + E'[n_kw]) / (B + E'[n_k]) as in `assign`, and the background
(S_w - sum over active a_k phi_kw) (1 + E'[n_d,rest] / a_rest), with phi_kw = (b_w + E[n_kw]) / (B + E[n_k]) and
S_w = sum_k a_k phi_kw: the topics that are not listed share what the document gives them in proportion to a_k.

Responsibilities are whole multiples of 2^-15 in 16 bits, so that counts of tokens are exact sums: they do not drift,
and no order of addition changes them. What truncation leaves over falls to the background.

A helper does a whole document and indexes flat arrays: a slice a pair would count references, which costs more than the
arithmetic. Cells of the running rows are gathered for several pairs ahead (a document's pairs have different words), so
that their cache misses overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import (
    F4,
    F4_2,
    F8,
    I4,
    I8,
    OUT_F4,
    OUT_F4_2,
    OUT_F8,
    OUT_U2,
    U2,
    f8,
    helper,
    kernel,
)

Array = npt.NDArray[Any]

UNIT = 32768  # steps of a responsibility of one
ONE_BITS = np.float32(0x3F800000)  # the bits of 1.0 in float32, as a whole number
AHEAD = 16  # pairs whose cells are gathered together
STEP = np.float32(1.0 / UNIT)
NEARLY = np.float32(UNIT - 0.01)  # so that rounding in float32 never makes the sum of a pair's steps exceed UNIT
ZERO, ONE, TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)
LEAST, TINY = np.float32(1e-12), np.float32(1e-37)
ROUNDING = np.float32(1e-5)
NONE = 1e-9  # of the prior; a document that lists all but so little has no background


@kernel(I8, I4, I4, I8, U2, F4, I8, OUT_U2, OUT_F4, OUT_F4, OUT_F4_2, OUT_F8)
def begin(
    offsets: Array,
    position: Array,
    counts: Array,
    lists: Array,
    topic: Array,
    noise: Array,
    starts: Array,
    share: Array,
    active_count: Array,
    document_rest: Array,
    row_active: Array,
    row_rest: Array,
) -> None:
    """Give all pairs of a document the same responsibilities, in proportion to noise; twin: `naive.active.begin`.

    Parameters
    ----------
    offsets, position, counts, lists, topic
        As for `sweep_active`.
    noise : float32, shape (listed,)
        Above 0.
    starts : int64, shape (documents + 1,)
        Where each document's responsibilities begin.
    share : uint16, shape (responsibilities,)
        Filled with q, in steps of 2^-15.
    active_count, document_rest : float32, shape (listed,) and (documents,)
        Filled with E[n_dk] of the lists and the documents' background tokens.
    row_active, row_rest : float32, shape (rows, topics), and float64, shape (rows,)
        Increased by the counts by words.
    """
    steps = np.empty(row_active.shape[1], dtype=np.uint16)
    for document in range(offsets.size - 1):
        listed, size, at = lists[document], lists[document + 1] - lists[document], starts[document]
        total, left, tokens = ZERO, UNIT, 0
        for j in range(size):
            total += noise[listed + j]
        for j in range(size):
            steps[j] = np.int64(noise[listed + j] * (NEARLY / total))
            left -= steps[j]
        for pair in range(offsets[document], offsets[document + 1]):
            row, each = position[pair], counts[pair] / UNIT
            tokens += counts[pair]
            for j in range(size):
                share[at + j] = steps[j]
            for j in range(size):
                row_active[row, topic[listed + j]] += np.float32(each * steps[j])
            row_rest[row] += each * left
            at += size
        document_rest[document] = np.float32(tokens * left / UNIT)
        for j in range(size):
            active_count[listed + j] = np.float32(tokens * np.int64(steps[j]) / UNIT)


@kernel(I8, I4, I4, F8, F4, F8, F8, f8, I8, U2, I8, U2, F4, F4, F4_2, OUT_F8, OUT_F4_2, OUT_U2, OUT_F4, OUT_F4, OUT_F8)
def sweep_active(
    offsets: Array,
    position: Array,
    counts: Array,
    word_prior: Array,
    background: Array,
    prior: Array,
    ratio: Array,
    power: float,
    lists: Array,
    topic: Array,
    starts: Array,
    share: Array,
    active_count: Array,
    document_rest: Array,
    row_topic: Array,
    running: Array,
    row_change: Array,
    new_share: Array,
    new_active_count: Array,
    new_document_rest: Array,
    rest_change: Array,
) -> None:
    """Update the responsibilities of a run of documents by the zeroth order; twin: `naive.active.sweep`.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row and count of each pair.
    word_prior : float64, shape (rows,)
        b_w.
    background : float32, shape (rows,)
        S_w.
    prior : float64, shape (topics,)
        a_k.
    ratio : float64, shape (topics,)
        a_k / (B + E[n_k]) as S_w was made with.
    power : float
        Responsibilities are in proportion to their weights to this power: 1 for the update itself, about so much if
        less, which flattens them (a higher temperature), 2 to sharpen them.
    lists : int64, shape (documents + 1,)
        Where each document's active topics begin in `topic`.
    topic : uint16, shape (listed,)
        Active topics, ascending in a document.
    starts : int64, shape (documents + 1,)
        Where each document's responsibilities begin: pair by pair, in the order of its list.
    share : uint16, shape (responsibilities,)
        q after the previous sweep, in steps of 2^-15.
    active_count, document_rest : float32, shape (listed,) and (documents,)
        E[n_dk] of the active topics, and background tokens of each document, after the previous sweep.
    row_topic : float32, shape (rows, topics)
        E[n_kw] as the shard's sweep began.
    running : float64, shape (topics,)
        B + E[n_k] before these documents; on return, after them.
    row_change : float32, shape (rows, topics)
        How far E[n_kw] has moved since then before these documents; on return, after them. Apart from `row_topic`, as
        whole steps up to 2^9 tokens are exact in float32, which a count need not be.
    new_share, new_active_count, new_document_rest
        Filled with the same after this sweep.
    rest_change : float64, shape (rows,)
        Increased by the change of each word's background tokens.
    """
    topics = prior.size
    here, began = np.empty(topics, dtype=np.float32), np.empty(topics, dtype=np.float32)
    own, inverse, old = np.empty_like(here), np.empty_like(here), np.empty_like(here)
    known_ratio = np.empty_like(here)
    weight = np.empty(topics + 1, dtype=np.float32)
    bits, exponent = weight.view(np.int32), np.float32(power)
    cells, moves = np.empty(topics * AHEAD, dtype=np.float32), np.empty(topics * AHEAD, dtype=np.float32)
    all_prior, cell, moved = prior.sum(), row_topic.reshape(-1), row_change.reshape(-1)
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        listed, size, at = lists[document], lists[document + 1] - lists[document], starts[document]
        left = all_prior
        for j in range(size):
            k = topic[listed + j]
            here[j] = active_count[listed + j]
            began[j] = here[j]
            own[j] = max(np.float32(prior[k]), LEAST)
            inverse[j] = np.float32(1.0 / running[k])
            known_ratio[j] = np.float32(ratio[k])
            left -= prior[k]
        pairs = position[first:last], counts[first:last], word_prior
        work = here, own, inverse, old, weight, bits, exponent
        if size == topics:
            rest = _document_of_all(*pairs, *work, at, share, new_share, cell, moved, rest_change)
            rest += document_rest[document]
        else:
            given = (
                topic[listed : listed + size],
                known_ratio,
                background,
                document_rest[document],
                np.float32(1.0 / max(left, 1e-9)),
            )
            rest = _document(
                *pairs, *work, at, share, new_share, cell, moved, rest_change, topics, *given, cells, moves
            )
        new_document_rest[document] = max(rest, ZERO)
        for j in range(size):
            running[topic[listed + j]] += here[j] - began[j]
            new_active_count[listed + j] = here[j]


@helper
def _document_of_all(
    position: Array,
    counts: Array,
    word_prior: Array,
    here: Array,
    own: Array,
    inverse: Array,
    old: Array,
    weight: Array,
    bits: Array,
    power: Any,
    at: int,
    share: Array,
    new_share: Array,
    cell: Array,
    moved: Array,
    rest_change: Array,
) -> Any:
    """Update the pairs of a document that lists all topics: cells lie side by side. Return the background's change.

    Excluding the own copy from N = B + E[n_k] takes no division: with y = q/N, 1 / (N - q) is (1 + y) (1 + y^2) / N to
    within y^4.
    """
    size, change = own.size, ZERO
    for pair in range(position.size):
        row, tokens = np.int64(position[pair]), np.float32(counts[pair])
        first, b = row * size, max(np.float32(word_prior[row]), LEAST)
        if at < 0 or first < 0:  # never so; it tells the compiler that no index counts from the end
            break
        total, held, kept = ZERO, ZERO, ZERO
        for j in range(size):
            q = np.float32(share[at + j]) * STEP
            inv = inverse[j]
            y = q * inv
            value = (max(here[j] - q, ZERO) + own[j]) * (max(cell[first + j] + moved[first + j] - q, ZERO) + b)
            value *= inv * (ONE + y) * (ONE + y * y)
            old[j], weight[j] = q, value
            held += q
            total += value
        if power != ONE:
            total = _temper(weight, bits, size, total, power)
        scale = NEARLY / max(total, TINY)
        for j in range(size):
            steps = np.uint16(np.int32(weight[j] * scale))
            new_share[at + j] = steps
            q = np.float32(steps) * STEP
            kept += q
            weight[j] = tokens * (q - old[j])
        for j in range(size):
            moved[first + j] += weight[j]
        for j in range(size):
            here[j] += weight[j]
        change += tokens * (held - kept)
        rest_change[row] += float(counts[pair]) * (float(held) - float(kept))
        at += size
    return change


@helper
def _document(
    position: Array,
    counts: Array,
    word_prior: Array,
    here: Array,
    own: Array,
    inverse: Array,
    old: Array,
    weight: Array,
    bits: Array,
    power: Any,
    at: int,
    share: Array,
    new_share: Array,
    cell: Array,
    moved: Array,
    rest_change: Array,
    topics: int,
    topic: Array,
    known_ratio: Array,
    background: Array,
    rest: Any,
    grow: Any,
    cells: Array,
    moves: Array,
) -> Any:
    """Update the pairs of a document over its list; return its background tokens."""
    size = topic.size
    for pair in range(position.size):
        if pair % AHEAD == 0:
            _gather(position, pair, topics, topic, cell, moved, cells, moves)
        row, tokens, at_cell = np.int64(position[pair]), np.float32(counts[pair]), pair % AHEAD * size
        b = max(np.float32(word_prior[row]), LEAST)
        if at < 0 or at_cell < 0:
            break
        total, held, kept, known = ZERO, ZERO, ZERO, ZERO
        for j in range(size):
            q = np.float32(share[at + j]) * STEP
            known += known_ratio[j] * (cells[at_cell + j] + b)  # as S_w is of the rows as they were
            x, inv = cells[at_cell + j] + moves[at_cell + j], inverse[j]
            y = q * inv
            value = (max(here[j] - q, ZERO) + own[j]) * (max(x - q, ZERO) + b) * inv * (ONE + y) * (ONE + y * y)
            old[j], weight[j] = q, value
            held += q
            total += value
        others = background[row] - known
        if others < background[row] * ROUNDING:  # rounding alone: the background weighs nothing
            others = ZERO
        others *= ONE + max(rest - ONE + held, ZERO) * grow
        if power == ONE:
            total += others
        else:  # as many equal topics
            weight[size] = others / np.float32(topics - size)
            total = _temper(weight, bits, size + 1, total + weight[size], power)
            total += weight[size] * np.float32(topics - size - 1)
        scale = NEARLY / max(total, TINY)
        for j in range(size):
            steps = np.uint16(np.int32(weight[j] * scale))
            new_share[at + j] = steps
            q = np.float32(steps) * STEP
            kept += q
            weight[j] = tokens * (q - old[j])
        for j in range(size):
            moves[at_cell + j] += weight[j]
        for j in range(size):
            here[j] += weight[j]
        rest += tokens * (held - kept)
        rest_change[row] += float(counts[pair]) * (float(held) - float(kept))
        at += size
        if pair % AHEAD == AHEAD - 1 or pair == position.size - 1:
            _scatter(position, pair - pair % AHEAD, topics, topic, moves, moved)
    return rest


@helper
def _temper(weight: Array, bits: Array, size: int, total: Any, power: Any) -> Any:
    """Raise weights to a power, up to a factor, and return their sum.

    The bits of a float, read as a whole number, are its logarithm to within 0.09 of a factor of two: a power is a
    product of them, and more exact the nearer it is to 1. A square is taken as one, of weights brought about 1.
    """
    scale = np.float32(size) / max(total, TINY)
    if power == TWO:
        for j in range(size):
            weight[j] *= scale
        for j in range(size):
            weight[j] *= weight[j]
    else:
        for j in range(size):
            bits[j] = np.int32((np.float32(bits[j]) - ONE_BITS) * power + ONE_BITS)
    total = ZERO
    for j in range(size):
        total += weight[j]
    return total


@helper
def _gather(
    position: Array, begin: int, topics: int, topic: Array, cell: Array, moved: Array, cells: Array, moves: Array
) -> None:
    """Bring the cells of the next pairs' rows together, so that their cache misses overlap."""
    to = 0
    for pair in range(begin, min(begin + AHEAD, position.size)):
        first = np.int64(position[pair]) * topics
        if first < 0 or to < 0:
            return
        for j in range(topic.size):
            cells[to + j] = cell[first + topic[j]]
            moves[to + j] = moved[first + topic[j]]
        to += topic.size


@helper
def _scatter(position: Array, begin: int, topics: int, topic: Array, moves: Array, moved: Array) -> None:
    """Put the changes of the pairs' rows back."""
    at = 0
    for pair in range(begin, min(begin + AHEAD, position.size)):
        first = np.int64(position[pair]) * topics
        if first < 0 or at < 0:
            return
        for j in range(topic.size):
            moved[first + topic[j]] = moves[at + j]
        at += topic.size
