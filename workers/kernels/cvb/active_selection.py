"""Active-set selection: choose the active topics of documents.

`active` defines active topics and their responsibilities, and `active_carry` carries these over to selected topics.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Array,
    Float32Matrix,
    Float32Vector,
    Float64Vector,
    Int64Vector,
    Number,
    OutInt64Vector,
    OutUInt16Vector,
)
from collapsium.workers.kernels.cvb.active import CACHE_LINE, ONE, ROUNDING, STEP, ZERO, steps_at
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, DocumentWorkspace, Priors
from collapsium.workers.kernels.jit import borrower, helper, kernel
from collapsium.workers.kernels.lanes import load, prefetch, spread_evenly, sum_of
from collapsium.workers.kernels.records import LANES, DocumentPairs, token_weight

TOGETHER = 4  # Pairs that are processed together; the functions that do so are written for this number
HALVINGS = 16  # Halvings of the interval of the limit, where too many topics pass the threshold


class SelectionRows(NamedTuple):
    """Rows as the iteration began."""

    expected: Float32Matrix  # E[n_kw]; (rows, topics)
    background_weight: Float32Vector  # S_w; (rows,)
    totals: Float64Vector  # B + E[n_k]; (topics,)


class Selection(NamedTuple):
    """Selected topics."""

    max_topics: Int64Vector  # Largest number of topics of each document, 1 or more; (documents,)
    # Filled with the topics, document by document, ascending in each; (at least the sum
    # of `max_topics`,)
    topics: OutUInt16Vector
    sizes: OutInt64Vector  # Filled with the number of topics of each document; an empty document has none; (documents,)


class _FlatRows(NamedTuple):
    """Rows of words, flattened."""

    topics: int  # Cells of a row
    expected: Array  # E[n_kw]; float32 (rows * topics,)
    word_prior: Array  # b_w; float64 (rows,)
    background_weight: Array  # S_w; float32 (rows,)


class _Sums(NamedTuple):
    """Numbers of the topics of a document, and of pairs that are processed together."""

    ratio: Array  # a_k / (B + E[n_k]); float32 (topics,)
    active: Array  # The same of the document's active topics; zero of others; float32 (topics,)
    # The value of a step of the responsibility of each active topic in turn; zero beyond them; float32 (at least
    # topics,)
    units: Array
    plain: Array  # Sums of the pairs' rows, with the background tokens as weights; float32 (topics,)
    known: Array  # Sums of a_k E[n_kw] / (B + E[n_k]) over the active topics, of each pair; float32 (4,)
    background: Array  # Background tokens of each pair, divided by their weight; float32 (4,)


class _Passing(NamedTuple):
    """Topics above their thresholds."""

    topics: Array  # The topics; uint16 (topics,)
    counts: Array  # Their counts; float32 (topics,)


@kernel
def select(
    pairs: DocumentPairs,
    active: ActiveTopics,
    state: ActiveState,
    priors: Priors,
    rows: SelectionRows,
    threshold: Float64Vector,
    selection: Selection,
) -> None:
    """Select each document's active topics anew; twin: `naive.active_topics.select`.

    An active topic has its expected count, any other its share of the background:
    a_k sum over pairs of c (1 - sum q) phi_kw / (S_w - sum over active a_l phi_lw). Those above the threshold are
    selected; where there are more than the document has room for, the largest.

    Shapes: `threshold` (topics,).
    """
    offsets, active_offsets, active_topics, topics = pairs.offsets, active.offsets, active.topics, priors.topics.size
    least, count, ratio = threshold.astype(np.float32), np.empty(topics, np.float32), priors.topics / rows.totals
    flat = _FlatRows(topics, rows.expected.reshape(-1), priors.words, rows.background_weight)
    pair_background, units = np.empty(TOGETHER, np.float32), np.empty(topics + LANES, np.float32)
    plain, active_ratio = np.empty(topics, np.float32), np.empty(topics, np.float32)
    ratio32 = ratio.astype(np.float32)
    sums = _Sums(ratio32, active_ratio, units, plain, np.empty(TOGETHER, np.float32), pair_background)
    passing = _Passing(np.empty(topics, np.uint16), np.empty(topics, np.float32))
    nothing, at_end, chosen = np.zeros(0, np.float32), np.zeros(LANES, np.uint16), 0
    inside = DocumentWorkspace(nothing.view(np.int32), nothing, at_end, ONE, True)
    last = DocumentWorkspace(nothing.view(np.int32), nothing, at_end, ONE, False)
    for document in range(offsets.size - 1):
        selection.sizes[document] = 0
        if offsets[document] == offsets[document + 1]:
            continue
        begin, size = active_offsets[document], active_offsets[document + 1] - active_offsets[document]
        count[:] = ZERO
        if size < topics:
            active_ratio[:], units[:], units[:size] = ZERO, ZERO, STEP
            for j in range(size):
                active_ratio[active_topics[begin + j]] = ratio32[active_topics[begin + j]]
            if state.starts[document + 1] + LANES <= state.responsibilities.size:
                _background_counts(document, size, pairs, state, inside, flat, sums, count)
            else:
                _background_counts(document, size, pairs, state, last, flat, sums, count)
            if priors.design_place.size:
                _share_by_prior(priors.design_priors[priors.design_place[document]], priors.topics, active_ratio, count)
        for j in range(size):
            count[active_topics[begin + j]] = state.counts[begin + j]
        size = _pick(count, least, selection.max_topics[document], passing)
        for j in range(size):
            selection.topics[chosen + j] = passing.topics[j]
        selection.sizes[document] = size
        chosen += size


@borrower
def _share_by_prior(prior: Array, mean_prior: Array, active: Array, count: Array) -> None:
    """Share a document's background by its own a_dk: inactive topics have no ratio in `active`."""
    rest, prior_rest = 0.0, 0.0
    for k in range(count.size):
        if active[k] == ZERO:
            rest, prior_rest = rest + mean_prior[k], prior_rest + prior[k]
    for k in range(count.size):
        count[k] *= np.float32(prior[k] * rest / max(mean_prior[k] * prior_rest, 1e-300))


@borrower
def _background_counts(
    document: int,
    size: int,
    pairs: DocumentPairs,
    state: ActiveState,
    work: DocumentWorkspace,
    rows: _FlatRows,
    sums: _Sums,
    count: Array,
) -> None:
    """Fill the background tokens of each topic in a document."""
    begin, end, at, bottom = pairs.offsets[document], pairs.offsets[document + 1], state.starts[document], ZERO
    position, active_ratio = pairs.position, ZERO
    for k in range(count.size):
        active_ratio += sums.active[k]
    sums.plain[:] = ZERO
    for pair in range(begin, end, TOGETHER):
        for ahead in range(pair + TOGETHER, min(pair + 2 * TOGETHER, position.size)):
            for k in range(0, rows.topics, CACHE_LINE):
                prefetch(rows.expected, np.int64(position[ahead]) * rows.topics + k)
        # The last ones of a document may be fewer; a row then stands for the missing ones, with no tokens.
        first = (
            np.int64(position[pair]) * rows.topics,
            np.int64(position[min(pair + 1, end - 1)]) * rows.topics,
            np.int64(position[min(pair + 2, end - 1)]) * rows.topics,
            np.int64(position[min(pair + 3, end - 1)]) * rows.topics,
        )
        _active_products(first, rows.expected, sums)
        sums.background[:] = ZERO
        for i in range(min(TOGETHER, end - pair)):
            row = np.int64(position[pair + i])
            weight, b = rows.background_weight[row], np.float32(rows.word_prior[row])
            left = weight - (sums.known[i] + active_ratio * b)
            if left > weight * ROUNDING:  # below, rounding alone: the background weighs nothing
                share = max(ONE - _held(at, size, state.responsibilities, sums.units, work), ZERO)
                tokens = np.float32(pairs.counts[pair + i] * token_weight(pairs.weights, pair + i))
                sums.background[i] = tokens * share / left
                bottom += sums.background[i] * b
            at += size
        _add_rows(first, rows.expected, sums.background, sums.plain)
    for k in range(count.size):
        count[k] = sums.ratio[k] * (bottom + sums.plain[k])


@borrower
def _active_products(first: tuple[int, int, int, int], flat: Array, sums: _Sums) -> None:
    """Fill the products of the rows of pairs with the ratios of active topics."""
    a, b, c, d = first
    zero, complete = spread_evenly(ZERO), sums.active.size // LANES * LANES
    e, f, g, h = zero, zero, zero, zero
    for k in range(0, complete, LANES):
        ratio = load(sums.active, k)
        e, f = e + ratio * load(flat, a + k), f + ratio * load(flat, b + k)
        g, h = g + ratio * load(flat, c + k), h + ratio * load(flat, d + k)
    v, w, x, y = sum_of(e), sum_of(f), sum_of(g), sum_of(h)
    for k in range(complete, sums.active.size):
        v, w = v + sums.active[k] * flat[a + k], w + sums.active[k] * flat[b + k]
        x, y = x + sums.active[k] * flat[c + k], y + sums.active[k] * flat[d + k]
    sums.known[0], sums.known[1], sums.known[2], sums.known[3] = v, w, x, y


@borrower
def _held(at: int, size: int, responsibilities: Array, units: Array, work: DocumentWorkspace) -> Number:
    """Return the sum of a pair's responsibilities."""
    held = spread_evenly(ZERO)
    for j in range(0, size, LANES):
        held = held + steps_at(responsibilities, at + j, size - j, work) * load(units, j)
    return sum_of(held)


@helper
def _add_rows(first: tuple[int, int, int, int], flat: Array, background: Array, plain: Array) -> None:
    """Add up the rows of pairs, so that the sums are read and written once for all of them."""
    a, b, c, d = first
    e, f, g, h = background[0], background[1], background[2], background[3]
    if a < 0 or b < 0 or c < 0 or d < 0:  # never so; it shows the compiler that no index counts from the end
        return
    for k in range(plain.size):
        plain[k] += e * flat[a + k] + f * flat[b + k] + g * flat[c + k] + h * flat[d + k]


@helper
def _pick(count: Array, least: Array, room: int, passing: _Passing) -> int:
    """Find the topics above their thresholds, the largest where room is short, at least one; return their number.

    Loops over topics have no branches that depend on counts, which processors could not predict.
    """
    topics, counts, number = passing.topics, passing.counts, 0
    for k in range(count.size):
        topics[number], counts[number] = k, count[k]
        number += count[k] > least[k]
    if number == 0:
        topics[0] = np.argmax(count)
        return 1
    # A sweep over more than half of the topics is faster over all, whose cells lie side by side.
    if room == count.size and 2 * number > room:
        for k in range(room):
            topics[k] = k
        return room
    if number <= room:
        return number
    low, high, ties = ZERO, ZERO, room  # more than `room` are above the one, no more above the other
    for i in range(number):
        high = max(high, counts[i])
    for _ in range(HALVINGS):
        middle = np.float32(0.5) * (low + high)
        # Counted in float32, eight at a time.
        above = ZERO
        for i in range(number):
            above += ONE if counts[i] > middle else ZERO
        if above > room:
            low = middle
        else:
            high, ties = middle, room - int(above)  # of those between the two, the number that find room
            if ties == 0:
                break
    size = 0
    for i in range(number):
        tied = (counts[i] > low) & (counts[i] <= high) & (ties > 0)
        topics[size] = topics[i]
        size += (counts[i] > high) | tied
        ties -= tied
    return size
