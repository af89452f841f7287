"""Sweeps over active topics by the second-order update; `active` says how documents list topics.

An active topic weighs what it does in the zeroth order times
exp( - V'[n_dk] / (2 (a_k + E'[n_dk])^2) - V'[n_kw] / (2 (b_w + E'[n_kw])^2) + V'[n_k] / (2 (B + E'[n_k])^2) ),
as in `assign`, a prime excluding one copy of the pair itself. The background keeps its zeroth-order weight: its tokens
are spread so thin over the topics that their variance weighs nothing.

Steps of responsibilities being whole, q (1 - q) is a multiple of 2^-30: in float64 sums of it over a document are exact
and no rounding is left over where the own copy is all there is, which a square of a small prior would blow up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.cvb.active import AHEAD, LEAST, NEARLY, ONE, ROUNDING, STEP, ZERO, _gather, _scatter
from collapsium.workers.kernels.cvb.dense import STEEPEST
from collapsium.workers.kernels.jit import (
    F4,
    F4_2,
    F8,
    F8_2,
    I4,
    I8,
    OUT_F4,
    OUT_F4_2,
    OUT_F8,
    OUT_U2,
    U2,
    helper,
    kernel,
)

Array = npt.NDArray[Any]

HALF = np.float32(0.5)
FAINTEST = np.float32(1e-30)  # weight of an active topic, so that something is left to normalise
LOG2_E, LN_2 = np.float32(1.4426950408889634), np.float32(0.6931471805599453)
BIAS = np.int32(127)  # of the exponent of a float32, which stands above 23 bits of fraction
HALF_UP = np.float32(127.5)  # the bias, and a half to round by cutting off
POWER_OF_TWO = np.int32(1 << 23)
THIRD, FOURTH, FIFTH, SIXTH = (np.float32(1 / n) for n in (3, 4, 5, 6))


@kernel(
    I8, I4, I4, F8, F4, F8, F8, I8, U2, I8, U2, F4, F4, F4_2, F8_2, F8, OUT_F8, OUT_F4_2, OUT_U2, OUT_F4, OUT_F4, OUT_F8
)  # fmt: skip
def sweep_active_second(
    offsets: Array,
    position: Array,
    counts: Array,
    word_prior: Array,
    background: Array,
    prior: Array,
    ratio: Array,
    lists: Array,
    topic: Array,
    starts: Array,
    share: Array,
    active_count: Array,
    document_rest: Array,
    row_topic: Array,
    row_variance: Array,
    total_variance: Array,
    running: Array,
    row_change: Array,
    new_share: Array,
    new_active_count: Array,
    new_document_rest: Array,
    rest_change: Array,
) -> None:
    """Update the responsibilities of a run of documents by the second order; twin: `naive.active_second.sweep`.

    V[n_dk] is summed as a document begins and follows its pairs. V[n_kw] and V[n_k] stay as the iteration began, where
    `assign.sweep_second` moves them too: they are sums over many documents.

    Parameters
    ----------
    offsets, position, counts, word_prior, background, prior, ratio
        As for `active.sweep_active`.
    lists, topic, starts, share, active_count, document_rest, row_topic
        As for `active.sweep_active`.
    row_variance : float64, shape (rows, topics)
        V[n_kw] of the active topics' responsibilities as the iteration began.
    total_variance : float64, shape (topics,)
        V[n_k] as the iteration began.
    running, row_change, new_share, new_active_count, new_document_rest, rest_change
        As for `active.sweep_active`.
    """
    topics = prior.size
    here, began = np.empty(topics, dtype=np.float32), np.empty(topics, dtype=np.float32)
    own, inverse, known_ratio = np.empty_like(here), np.empty_like(here), np.empty_like(here)
    old, new, weight, exponent = np.empty_like(here), np.empty_like(here), np.empty_like(here), np.empty_like(here)
    bits = exponent.view(np.int32)
    spread, overall = np.empty(topics), np.empty(topics)
    cells, moves = np.empty(topics * AHEAD, dtype=np.float32), np.empty(topics * AHEAD, dtype=np.float32)
    widths = np.empty(topics * AHEAD)
    rows = row_topic.reshape(-1), row_change.reshape(-1), row_variance.reshape(-1), cells, moves, widths
    all_prior = prior.sum()
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        listed, size = lists[document], lists[document + 1] - lists[document]
        left = all_prior
        for j in range(size):
            k = topic[listed + j]
            here[j] = active_count[listed + j]
            began[j] = here[j]
            own[j] = max(np.float32(prior[k]), LEAST)
            inverse[j] = np.float32(1.0 / running[k])
            known_ratio[j] = np.float32(ratio[k])
            overall[j] = total_variance[k]
            left -= prior[k]
        _document_variance(counts[first:last], size, starts[document], share, spread)
        rest = _document(
            position[first:last],
            counts[first:last],
            word_prior,
            background,
            topics,
            topic[listed : listed + size],
            here,
            own,
            inverse,
            known_ratio,
            spread,
            overall,
            *(old, new, weight, exponent, bits),
            document_rest[document],
            np.float32(1.0 / max(left, 1e-9)),
            starts[document],
            share,
            new_share,
            *rows,
            rest_change,
        )
        new_document_rest[document] = max(rest, ZERO)
        for j in range(size):
            running[topic[listed + j]] += here[j] - began[j]
            new_active_count[listed + j] = here[j]


@helper
def _document_variance(counts: Array, size: int, at: int, share: Array, spread: Array) -> None:
    """Fill V[n_dk] of a document's list."""
    for j in range(size):
        spread[j] = 0.0
    for pair in range(counts.size):
        if at < 0:  # never so; it tells the compiler that no index counts from the end
            break
        for j in range(size):
            q = np.float64(np.float32(share[at + j]) * STEP)
            spread[j] += counts[pair] * q * (1.0 - q)
        at += size


@helper
def _document(
    position: Array,
    counts: Array,
    word_prior: Array,
    background: Array,
    topics: int,
    topic: Array,
    here: Array,
    own: Array,
    inverse: Array,
    known_ratio: Array,
    spread: Array,
    overall: Array,
    old: Array,
    new: Array,
    weight: Array,
    exponent: Array,
    bits: Array,
    rest: Any,
    grow: Any,
    at: int,
    share: Array,
    new_share: Array,
    cell: Array,
    moved: Array,
    variance: Array,
    cells: Array,
    moves: Array,
    widths: Array,
    rest_change: Array,
) -> Any:
    """Update the pairs of a document over its list; return its background tokens."""
    size = topic.size
    for pair in range(position.size):
        if pair % AHEAD == 0:
            _gather(position, pair, topics, topic, cell, moved, cells, moves)
            _gather_variance(position, pair, topics, topic, variance, widths)
        row, at_cell = np.int64(position[pair]), pair % AHEAD * size
        b = max(np.float32(word_prior[row]), LEAST)
        if at < 0 or at_cell < 0:
            break
        held, known = ZERO, ZERO
        for j in range(size):
            q = np.float32(share[at + j]) * STEP
            old[j] = q
            held += q
            known += known_ratio[j] * (cells[at_cell + j] + b)  # as S_w is of the rows as they were
        _weigh(here, own, inverse, spread, overall, old, b, at_cell, cells, moves, widths, size, weight, exponent)
        total = _correct(size, weight, exponent, bits)
        others = background[row] - known
        if size < topics and others > background[row] * ROUNDING:  # below, rounding alone
            total += others * (ONE + max(rest - ONE + held, ZERO) * grow)
        scale, kept = NEARLY / max(total, FAINTEST), ZERO
        for j in range(size):
            steps = np.uint16(np.int32(weight[j] * scale))
            new_share[at + j] = steps
            new[j] = np.float32(steps) * STEP
            kept += new[j]
        _move(counts[pair], old, new, size, at_cell, here, moves, spread)
        rest += np.float32(counts[pair]) * (held - kept)
        rest_change[row] += float(counts[pair]) * (float(held) - float(kept))
        at += size
        if pair % AHEAD == AHEAD - 1 or pair == position.size - 1:
            _scatter(position, pair - pair % AHEAD, topics, topic, moves, moved)
    return rest


@helper
def _gather_variance(position: Array, begin: int, topics: int, topic: Array, variance: Array, widths: Array) -> None:
    """Bring V[n_kw] of the next pairs' rows together, as `active._gather` does their counts."""
    to = 0
    for pair in range(begin, min(begin + AHEAD, position.size)):
        first = np.int64(position[pair]) * topics
        if first < 0 or to < 0:
            return
        for j in range(topic.size):
            widths[to + j] = variance[first + topic[j]]
        to += topic.size


@helper
def _weigh(
    here: Array,
    own: Array,
    inverse: Array,
    spread: Array,
    overall: Array,
    old: Array,
    b: Any,
    at_cell: int,
    cells: Array,
    moves: Array,
    widths: Array,
    size: int,
    weight: Array,
    exponent: Array,
) -> None:
    """Fill a pair's zeroth-order weights and the exponents that correct them."""
    if at_cell < 0:
        return
    for j in range(size):
        q, inv = old[j], inverse[j]
        y = q * inv
        documents = max(here[j] - q, ZERO) + own[j]
        words = max(cells[at_cell + j] + moves[at_cell + j] - q, ZERO) + b
        each = inv * (ONE + y) * (ONE + y * y)  # 1 / (B + E'[n_k]), as in `active`
        single = np.float64(q) * (1.0 - np.float64(q))
        exponent[j] = HALF * (
            np.float32(max(overall[j] - single, 0.0)) * each * each
            - np.float32(max(spread[j] - single, 0.0)) / (documents * documents)
            - np.float32(max(widths[at_cell + j] - single, 0.0)) / (words * words)
        )
        weight[j] = documents * words * each


@helper
def _correct(size: int, weight: Array, exponent: Array, bits: Array) -> Any:
    """Multiply weights by exp(exponent), within bounds, and return their sum.

    A library's exp is called for one number at a time. With y = exponent / log 2 and n the whole number nearest to it,
    2^n is a float whose bits are (n + 127) 2^23, and 2^(y - n) a Taylor series to within 2e-7.

    Parameters
    ----------
    size : int
        How many there are.
    weight : float32
        Changed.
    exponent, bits : float32, int32
        The same memory; left with 2^n.
    """
    for j in range(size):
        y = min(max(exponent[j], -STEEPEST), STEEPEST) * LOG2_E
        n = np.int32(np.int32(y + HALF_UP) - BIAS)
        t = (y - np.float32(n)) * LN_2
        series = ONE + t * SIXTH
        series = ONE + t * FIFTH * series
        series = ONE + t * FOURTH * series
        series = ONE + t * THIRD * series
        series = ONE + t * HALF * series
        weight[j] *= ONE + t * series
        bits[j] = np.int32(np.int32(n + BIAS) * POWER_OF_TWO)
    total = ZERO
    for j in range(size):
        value = max(weight[j] * exponent[j], FAINTEST)
        weight[j] = value
        total += value
    return total


@helper
def _move(
    count: int, old: Array, new: Array, size: int, at_cell: int, here: Array, moves: Array, spread: Array
) -> None:
    """Move a pair's tokens, and their variance, in the running counts."""
    tokens, each = np.float32(count), np.float64(count)
    if at_cell < 0:
        return
    for j in range(size):
        step = tokens * (new[j] - old[j])
        here[j] += step
        moves[at_cell + j] += step
    for j in range(size):
        before, after = np.float64(old[j]), np.float64(new[j])
        spread[j] += each * (after * (1.0 - after) - before * (1.0 - before))
