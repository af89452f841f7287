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

from collapsar.workers.kernels.compile import (
    F4,
    F4_2,
    F8,
    F8_2,
    I4,
    I8,
    OUT_F4,
    OUT_F4_2,
    OUT_F8,
    OUT_F8_2,
    OUT_U2,
    U2,
    f8,
    helper,
    kernel,
    u8,
)

Array = npt.NDArray[Any]

UNIT = 32768  # steps of a responsibility of one
AHEAD = 16  # pairs whose cells are gathered together
STEP = np.float32(1.0 / UNIT)
NEARLY = np.float32(UNIT - 0.01)  # so that rounding in float32 never makes the sum of a pair's steps exceed UNIT
ZERO, ONE = np.float32(0.0), np.float32(1.0)
LEAST = np.float32(1e-12)


@kernel(F4_2, F8, f8, F8, F8, F8, OUT_F8_2, OUT_F4, OUT_F4)
def spread(
    active: Array,
    rest: Array,
    even: float,
    word_prior: Array,
    weight: Array,
    ratio: Array,
    row_topic: Array,
    background: Array,
    spreading: Array,
) -> None:
    """Fill E[n_kw] of rows whose background is spread over the topics, and S_w; twin: `naive.active.spread`.

    Parameters
    ----------
    active : float32, shape (rows, topics)
        Counts that documents give to their listed topics.
    rest : float64, shape (rows,)
        Background tokens of each word, spread in proportion to weight_k (even + active_kw).
    even : float
        What keeps the spread even where a word has no tokens.
    word_prior : float64, shape (rows,)
        b_w.
    weight, ratio : float64, shape (topics,)
        a_k / (B + E[n_k]), as when E[n_k] was last summed, and now.
    row_topic : float64, shape (rows, topics)
        Filled with E[n_kw].
    background : float32, shape (rows,)
        Filled with S_w = sum_k ratio_k (b_w + E[n_kw]).
    spreading : float32, shape (rows,)
        Filled with the factors by which E[n_kw] = active_kw + factor_w weight_k (even + active_kw).
    """
    for row in range(rest.size):
        each, known = _each(active[row], rest[row], even, weight), 0.0
        for k in range(weight.size):
            count = active[row, k] + each * weight[k] * (even + active[row, k])
            row_topic[row, k] = count
            known += ratio[k] * (word_prior[row] + count)
        background[row], spreading[row] = np.float32(known), np.float32(each)


@helper
def _each(active: Array, rest: float, even: float, weight: Array) -> float:
    """Return the factor that spreads a word's background tokens over the topics."""
    total = 0.0
    for k in range(weight.size):
        total += weight[k] * (even + active[k])
    return rest / max(total, 1e-300)


@kernel(I8, I4, I4, I8, U2, I8, u8, u8, OUT_U2, OUT_F4, OUT_F4, OUT_F8_2, OUT_F8)
def begin(
    offsets: Array,
    position: Array,
    counts: Array,
    lists: Array,
    topic: Array,
    starts: Array,
    key: int,
    number: int,
    share: Array,
    active_count: Array,
    document_rest: Array,
    row_active: Array,
    row_rest: Array,
) -> None:
    """Draw near-uniform responsibilities, q ~ 0.1 + u with u uniform on [0, 1], and count; twin: `naive.active.begin`.

    Parameters
    ----------
    offsets, position, counts, lists, topic, starts
        As for `sweep_active`.
    key : uint64
        Of the random numbers.
    number : uint64
        Of the first responsibility; each gets the random number of its place in the shard.
    share : uint16, shape (responsibilities,)
        Filled with q, in steps of 2^-15.
    active_count, document_rest : float32, shape (listed,) and (documents,)
        Zero on entry; filled with E[n_dk] of the lists and the documents' background tokens.
    row_active, row_rest : float64, shape (rows, topics) and (rows,)
        Increased by the counts by words.
    """
    noise = np.empty(row_active.shape[1], dtype=np.float32)
    for document in range(offsets.size - 1):
        listed, size, at = lists[document], lists[document + 1] - lists[document], starts[document]
        for pair in range(offsets[document], offsets[document + 1]):
            row, tokens, left, total = position[pair], counts[pair], UNIT, ZERO
            for j in range(size):
                noise[j] = np.float32(0.1) + _uniform(key, number + np.uint64(at + j))
                total += noise[j]
            for j in range(size):
                steps = np.int64(noise[j] * (NEARLY / total))
                share[at + j] = steps
                left -= steps
                active_count[listed + j] += np.float32(tokens * steps / UNIT)
                row_active[row, topic[listed + j]] += tokens * steps / UNIT
            document_rest[document] += np.float32(tokens * left / UNIT)
            row_rest[row] += tokens * left / UNIT
            at += size


@helper
def _uniform(key: int, number: int) -> Any:
    """Return a number in [0, 1) by its place in the stream of a key (the mixing function of SplitMix64)."""
    mixed = key + number * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return np.float32(mixed >> np.uint64(40)) * np.float32(2.0**-24)


@kernel(F4_2, F8, f8, F8, F8_2, OUT_F4_2)
def row_changes(active: Array, rest: Array, even: float, weight: Array, row_topic: Array, change: Array) -> None:
    """Fill how far a sweep has moved rows that `spread` began, exactly, in whole steps; twin: `naive.active.changes`.

    Parameters
    ----------
    active, rest, even, weight
        As given to `spread`.
    row_topic : float64, shape (rows, topics)
        E[n_kw] after the sweep.
    change : float32, shape (rows, topics)
        Filled.
    """
    for row in range(rest.size):
        each = _each(active[row], rest[row], even, weight)
        for k in range(weight.size):
            count = active[row, k] + each * weight[k] * (even + active[row, k])
            change[row, k] = np.float32(np.rint((row_topic[row, k] - count) * UNIT) / UNIT)


@kernel(F4_2, F8, f8, F8, F4_2, I8, OUT_F4_2, OUT_F8, OUT_F8)
def fold_rows(
    active: Array,
    rest: Array,
    even: float,
    weight: Array,
    change: Array,
    place: Array,
    new_active: Array,
    total: Array,
    background: Array,
) -> None:
    """Add the change of some rows to a block's, and sum the block up by topic; twin: `naive.active.fold`.

    Parameters
    ----------
    active : float32, shape (words, topics)
        The block.
    rest, even, weight
        As for `spread`, of the new rows.
    change : float32, shape (rows, topics)
        What to add.
    place : int64, shape (words,)
        Row of `change` for each word; -1 for none.
    new_active : float32, shape (words, topics)
        Filled.
    total, background : float64, shape (topics,)
        Zero on entry; increased by the sums of E[n_kw], and of the spread background in it.
    """
    for word in range(rest.size):
        row = place[word]
        for k in range(weight.size):
            new_active[word, k] = active[word, k]
        if row >= 0:
            for k in range(weight.size):
                new_active[word, k] += change[row, k]
        each = _each(new_active[word], rest[word], even, weight)
        for k in range(weight.size):
            spread_here = each * weight[k] * (even + new_active[word, k])
            background[k] += spread_here
            total[k] += new_active[word, k] + spread_here


@kernel(I8, I4, I4, F8, F4, F8, I8, U2, I8, U2, F4, F4, OUT_F8, OUT_F8_2, OUT_U2, OUT_F4, OUT_F4, OUT_F8)
def sweep_active(
    offsets: Array,
    position: Array,
    counts: Array,
    word_prior: Array,
    background: Array,
    prior: Array,
    lists: Array,
    topic: Array,
    starts: Array,
    share: Array,
    active_count: Array,
    document_rest: Array,
    running: Array,
    row_topic: Array,
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
    running : float64, shape (topics,)
        B + E[n_k] before these documents; on return, after them.
    row_topic : float64, shape (rows, topics)
        E[n_kw] before these documents; on return, after them.
    new_share, new_active_count, new_document_rest
        Filled with the same after this sweep.
    rest_change : float64, shape (rows,)
        Increased by the change of each word's background tokens.
    """
    topics = prior.size
    here, began = np.empty(topics, dtype=np.float32), np.empty(topics, dtype=np.float32)
    own, inverse, weight, old = np.empty_like(here), np.empty_like(here), np.empty_like(here), np.empty_like(here)
    cells, all_prior = np.empty(topics * AHEAD), prior.sum()
    row_cell = row_topic.reshape(-1)
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
            left -= prior[k]
        pairs = position[first:last], counts[first:last], word_prior
        work = here, own, inverse, old, weight
        if size == topics:
            rest = _document_of_all(*pairs, *work, at, share, new_share, row_cell, rest_change)
            rest += document_rest[document]
        else:
            given = (
                topic[listed : listed + size],
                background,
                document_rest[document],
                np.float32(1.0 / max(left, 1e-9)),
            )
            rest = _document(*pairs, *work, at, share, new_share, row_cell, rest_change, topics, *given, cells)
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
    at: int,
    share: Array,
    new_share: Array,
    row_cell: Array,
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
            value = (max(here[j] - q, ZERO) + own[j]) * (max(np.float32(row_cell[first + j]) - q, ZERO) + b)
            value *= inv * (ONE + y) * (ONE + y * y)
            old[j], weight[j] = q, value
            held += q
            total += value
        scale = NEARLY / max(total, LEAST * LEAST)
        for j in range(size):
            steps = np.uint16(np.int32(weight[j] * scale))
            new_share[at + j] = steps
            q = np.float32(steps) * STEP
            kept += q
            weight[j] = tokens * (q - old[j])
        for j in range(size):
            row_cell[first + j] += weight[j]
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
    at: int,
    share: Array,
    new_share: Array,
    row_cell: Array,
    rest_change: Array,
    topics: int,
    topic: Array,
    background: Array,
    rest: Any,
    grow: Any,
    cells: Array,
) -> Any:
    """Update the pairs of a document over its list; return its background tokens."""
    size = topic.size
    for pair in range(position.size):
        if pair % AHEAD == 0:
            _move_cells(True, position, pair, topics, topic, row_cell, cells)
        row, tokens, cell = np.int64(position[pair]), np.float32(counts[pair]), pair % AHEAD * size
        b = max(np.float32(word_prior[row]), LEAST)
        if at < 0 or cell < 0:
            break
        total, held, kept, known = ZERO, ZERO, ZERO, ZERO
        for j in range(size):
            q = np.float32(share[at + j]) * STEP
            x, inv = np.float32(cells[cell + j]), inverse[j]
            y = q * inv
            value = (max(here[j] - q, ZERO) + own[j]) * (max(x - q, ZERO) + b) * inv * (ONE + y) * (ONE + y * y)
            known += own[j] * (x + b) * inv
            old[j], weight[j] = q, value
            held += q
            total += value
        total += max(background[row] - known, ZERO) * (ONE + max(rest - ONE + held, ZERO) * grow)
        scale = NEARLY / max(total, LEAST * LEAST)
        for j in range(size):
            steps = np.uint16(np.int32(weight[j] * scale))
            new_share[at + j] = steps
            q = np.float32(steps) * STEP
            kept += q
            weight[j] = tokens * (q - old[j])
        for j in range(size):
            cells[cell + j] += weight[j]
        for j in range(size):
            here[j] += weight[j]
        rest += tokens * (held - kept)
        rest_change[row] += float(counts[pair]) * (float(held) - float(kept))
        at += size
        if pair % AHEAD == AHEAD - 1 or pair == position.size - 1:
            _move_cells(False, position, pair - pair % AHEAD, topics, topic, row_cell, cells)
    return rest


@helper
def _move_cells(
    there: bool, position: Array, begin: int, topics: int, topic: Array, row_cell: Array, cells: Array
) -> None:
    """Bring the cells of the next pairs' rows together, so that their cache misses overlap, or put them back."""
    cell = 0
    for pair in range(begin, min(begin + AHEAD, position.size)):
        first = np.int64(position[pair]) * topics
        if first < 0 or cell < 0:
            return
        if there:
            for j in range(topic.size):
                cells[cell + j] = row_cell[first + topic[j]]
        else:
            for j in range(topic.size):
                row_cell[first + topic[j]] = cells[cell + j]
        cell += topic.size
