"""Active-set CVB0 updates: sparse responsibilities over the topics that a document uses.

The responsibility of all other topics together is a pair's background. Zeroth order (CVB0; Asuncion, Welling, Smyth and
Teh 2009): an active topic weighs (a_k + E'[n_dk]) (b_w + E'[n_kw]) / (B + E'[n_k]) as in `dense`, and the background
(S_w - sum over active a_k phi_kw) (1 + E'[n_d,rest] / a_rest), with phi_kw = (b_w + E[n_kw]) / (B + E[n_k]) and
S_w = sum_k a_k phi_kw: inactive topics share the document's background in proportion to a_k.

Responsibilities are multiples of 2^-15 in 16 bits, so that counts of tokens are exact sums: they do not drift, and no
order of addition changes them. The rest that truncation leaves belongs to the background.

A helper updates all pairs of a document and indexes flat arrays: a slice for each pair would count references, which
costs more than the arithmetic. Cells of the running rows are gathered for several pairs ahead, so that their cache
misses overlap: a document's pairs have different words.
"""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.argument_types import Array, Float32Vector, Number
from collapsium.workers.kernels.cvb.records import (
    ActiveState,
    ActiveTopics,
    FlatRows,
    NewActiveState,
    PairWorkspace,
    Priors,
    RowChanges,
    RunningCounts,
    SweepRows,
)
from collapsium.workers.kernels.jit import borrower, helper, kernel
from collapsium.workers.kernels.records import DocumentPairs

UNIT = 32768
"""Steps of a responsibility of one."""

STEP = np.float32(1.0 / UNIT)

NEARLY = np.float32(UNIT - 0.01)
"""A little less than `UNIT`: rounding in float32 never makes the sum of a pair's steps exceed `UNIT`."""

AHEAD = 16
"""Pairs whose cells are gathered together."""

ONE_BITS = np.float32(0x3F800000)
"""The bits of 1.0 in float32, read as an integer."""

ZERO, ONE, TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)
MIN_PRIOR, MIN_TOTAL = np.float32(1e-12), np.float32(1e-37)

ROUNDING = np.float32(1e-5)
"""Share of S_w below which a background weight is rounding error alone."""

MIN_INACTIVE_PRIOR = 1e-9
"""Share of the prior below which the inactive topics of a document have no background."""


@kernel
def initialise(
    pairs: DocumentPairs, active: ActiveTopics, noise: Float32Vector, state: NewActiveState, rows: RowChanges
) -> None:
    """Fill equal responsibilities of all pairs of a document, in proportion to noise; twin: `naive.active.initialise`.

    Parameters
    ----------
    pairs : DocumentPairs
        The documents.
    active : ActiveTopics
        Their active topics.
    noise : float32, shape (active,)
        Positive numbers.
    state : NewActiveState
        Filled.
    rows : RowChanges
        Increased by the counts by words.
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    active_offsets, active_topics, starts = active.offsets, active.topics, state.starts
    responsibilities, active_counts, background = state.responsibilities, state.counts, state.background
    row_active, row_background = rows.active, rows.background
    steps = np.empty(row_active.shape[1], dtype=np.uint16)
    for document in range(offsets.size - 1):
        begin, at = active_offsets[document], starts[document]
        size = active_offsets[document + 1] - begin
        total, left, tokens = ZERO, UNIT, 0
        for j in range(size):
            total += noise[begin + j]
        for j in range(size):
            steps[j] = np.int64(noise[begin + j] * (NEARLY / total))
            left -= steps[j]
        for pair in range(offsets[document], offsets[document + 1]):
            row, each = position[pair], counts[pair] / UNIT
            tokens += counts[pair]
            for j in range(size):
                responsibilities[at + j] = steps[j]
            for j in range(size):
                row_active[row, active_topics[begin + j]] += np.float32(each * steps[j])
            row_background[row] += each * left
            at += size
        background[document] = np.float32(tokens * left / UNIT)
        for j in range(size):
            active_counts[begin + j] = np.float32(tokens * np.int64(steps[j]) / UNIT)


@kernel
def sweep_active(
    pairs: DocumentPairs,
    active: ActiveTopics,
    before: ActiveState,
    priors: Priors,
    rows: SweepRows,
    power: float,
    running: RunningCounts,
    after: NewActiveState,
) -> None:
    """Update the responsibilities of a run of documents by the zeroth order; twin: `naive.active.sweep`.

    Parameters
    ----------
    pairs : DocumentPairs
        The documents.
    active : ActiveTopics
        Their active topics.
    before : ActiveState
        After the previous sweep.
    priors : Priors
        a_k and b_w.
    rows : SweepRows
        Rows of the shard's words.
    power : float
        Power of the weights to which responsibilities are proportional: 1 for the plain update, less to flatten them (a
        higher temperature; the power is approximate), 2 to sharpen them.
    running : RunningCounts
        Changed by these documents.
    after : NewActiveState
        Filled.
    """
    prior, ratio, totals = priors.topics, rows.ratio, running.totals
    active_offsets, active_topics = active.offsets, active.topics
    counts, new_counts, background, new_background = before.counts, after.counts, before.background, after.background
    topics = prior.size
    here, began = np.empty(topics, dtype=np.float32), np.empty(topics, dtype=np.float32)
    own, inverse, known_ratio = np.empty_like(here), np.empty_like(here), np.empty_like(here)
    weight = np.empty(topics + 1, dtype=np.float32)
    bits, exponent = weight.view(np.int32), np.float32(power)
    work = PairWorkspace(here, own, inverse, known_ratio, np.empty_like(here), weight, bits, exponent)
    flat = FlatRows(
        topics,
        rows.expected.reshape(-1),
        running.changes.active.reshape(-1),
        priors.words,
        rows.background_weight,
        running.changes.background,
        np.empty(topics * AHEAD, dtype=np.float32),
        np.empty(topics * AHEAD, dtype=np.float32),
    )
    all_prior = prior.sum()
    for document in range(pairs.offsets.size - 1):
        begin, size = active_offsets[document], active_offsets[document + 1] - active_offsets[document]
        left = all_prior
        for j in range(size):
            k = active_topics[begin + j]
            here[j] = counts[begin + j]
            began[j] = here[j]
            own[j] = max(np.float32(prior[k]), MIN_PRIOR)
            inverse[j] = np.float32(1.0 / totals[k])
            known_ratio[j] = np.float32(ratio[k])
            left -= prior[k]
        tokens = background[document]
        if size == topics:
            tokens += _update_over_all(document, pairs, before, after, work, flat)
        else:
            own_topics, growth = active_topics[begin : begin + size], np.float32(1.0 / max(left, 1e-9))
            tokens = _update_over_active(document, pairs, own_topics, (tokens, growth), before, after, work, flat)
        new_background[document] = max(tokens, ZERO)
        for j in range(size):
            totals[active_topics[begin + j]] += here[j] - began[j]
            new_counts[begin + j] = here[j]


@borrower
def _update_over_all(
    document: int, pairs: DocumentPairs, before: ActiveState, after: NewActiveState, work: PairWorkspace, rows: FlatRows
) -> Number:
    """Update the pairs of a document whose topics are all active: cells lie side by side.

    Excluding the own copy from N = B + E[n_k] takes no division: with y = q/N, 1 / (N - q) is (1 + y) (1 + y^2) / N to
    within y^4. Return the change of the background tokens.
    """
    position, counts = pairs.position, pairs.counts
    at, responsibilities = before.starts[document], before.responsibilities
    new_responsibilities = after.responsibilities
    here, own, inverse, old, weight = work.counts, work.prior, work.inverse, work.before, work.weight
    cell, moved = rows.expected, rows.moved
    size, change = own.size, ZERO
    for pair in range(pairs.offsets[document], pairs.offsets[document + 1]):
        row, tokens = np.int64(position[pair]), np.float32(counts[pair])
        first, b = row * size, max(np.float32(rows.word_prior[row]), MIN_PRIOR)
        # Never true: it tells the compiler that no index counts from the end.
        if at < 0 or first < 0:
            break
        total, before_sum, after_sum = ZERO, ZERO, ZERO
        for j in range(size):
            q = np.float32(responsibilities[at + j]) * STEP
            inv = inverse[j]
            y = q * inv
            value = (max(here[j] - q, ZERO) + own[j]) * (max(cell[first + j] + moved[first + j] - q, ZERO) + b)
            value *= inv * (ONE + y) * (ONE + y * y)
            old[j], weight[j] = q, value
            before_sum += q
            total += value
        if work.power != ONE:
            total = _temper(weight, work.bits, size, total, work.power)
        scale = NEARLY / max(total, MIN_TOTAL)
        for j in range(size):
            steps = np.uint16(np.int32(weight[j] * scale))
            new_responsibilities[at + j] = steps
            q = np.float32(steps) * STEP
            after_sum += q
            weight[j] = tokens * (q - old[j])
        for j in range(size):
            moved[first + j] += weight[j]
        for j in range(size):
            here[j] += weight[j]
        change += tokens * (before_sum - after_sum)
        rows.background_change[row] += float(counts[pair]) * (float(before_sum) - float(after_sum))
        at += size
    return change


@borrower
def _update_over_active(
    document: int,
    pairs: DocumentPairs,
    topic: Array,
    background: tuple[Number, Number],
    before: ActiveState,
    after: NewActiveState,
    work: PairWorkspace,
    rows: FlatRows,
) -> Number:
    """Update the pairs of a document over its active topics.

    Its background is a pair of numbers: its tokens, and 1 / a_rest. Return the background tokens after the update.
    """
    first_pair, size, topics = pairs.offsets[document], topic.size, rows.topics
    documents_pairs = pairs.offsets[document + 1] - first_pair
    at, responsibilities = before.starts[document], before.responsibilities
    new_responsibilities = after.responsibilities
    here, own, inverse, old, weight = work.counts, work.prior, work.inverse, work.before, work.weight
    cells, moves, known_ratio = rows.cells, rows.moves, work.ratio
    rest, growth = background
    for pair in range(documents_pairs):
        if pair % AHEAD == 0:
            _gather(pairs.position, first_pair + pair, pairs.offsets[document + 1], topic, rows)
        row, tokens = np.int64(pairs.position[first_pair + pair]), np.float32(pairs.counts[first_pair + pair])
        at_cell, b = pair % AHEAD * size, max(np.float32(rows.word_prior[row]), MIN_PRIOR)
        if at < 0 or at_cell < 0:
            break
        total, before_sum, after_sum, known = ZERO, ZERO, ZERO, ZERO
        for j in range(size):
            q = np.float32(responsibilities[at + j]) * STEP
            # S_w is of the rows at the start of the sweep, so this sum is too.
            known += known_ratio[j] * (cells[at_cell + j] + b)
            x, inv = cells[at_cell + j] + moves[at_cell + j], inverse[j]
            y = q * inv
            value = (max(here[j] - q, ZERO) + own[j]) * (max(x - q, ZERO) + b) * inv * (ONE + y) * (ONE + y * y)
            old[j], weight[j] = q, value
            before_sum += q
            total += value
        others = _background_weight(rows.background_weight[row], known, rest - ONE + before_sum, growth)
        if work.power == ONE:
            total += others
        else:
            # Inactive topics are taken as equal.
            weight[size] = others / np.float32(topics - size)
            total = _temper(weight, work.bits, size + 1, total + weight[size], work.power)
            total += weight[size] * np.float32(topics - size - 1)
        scale = NEARLY / max(total, MIN_TOTAL)
        for j in range(size):
            steps = np.uint16(np.int32(weight[j] * scale))
            new_responsibilities[at + j] = steps
            q = np.float32(steps) * STEP
            after_sum += q
            weight[j] = tokens * (q - old[j])
        for j in range(size):
            moves[at_cell + j] += weight[j]
        for j in range(size):
            here[j] += weight[j]
        rest += tokens * (before_sum - after_sum)
        rows.background_change[row] += float(pairs.counts[first_pair + pair]) * (float(before_sum) - float(after_sum))
        at += size
        if pair % AHEAD == AHEAD - 1 or pair == documents_pairs - 1:
            _scatter(pairs.position, first_pair + pair - pair % AHEAD, pairs.offsets[document + 1], topic, rows)
    return rest


@helper
def _background_weight(total: Number, known: Number, tokens: Number, growth: Number) -> Number:
    """Return the weight of the background: S_w without the active topics, times 1 + E'[n_d,rest] / a_rest."""
    weight = total - known
    if weight < total * ROUNDING:
        weight = ZERO
    return weight * (ONE + max(tokens, ZERO) * growth)


@helper
def _temper(weight: Array, bits: Array, size: int, total: Number, power: Number) -> Number:
    """Raise weights to a power, up to a factor, and return their sum.

    The bits of a float, read as an integer, are its logarithm to within 0.09 of a factor of two. A power is therefore a
    product of bits, and more exact the nearer it is to 1. A square is computed as such, of weights scaled to about 1.
    """
    scale = np.float32(size) / max(total, MIN_TOTAL)
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


@borrower
def _gather(position: Array, begin: int, end: int, topic: Array, rows: FlatRows) -> None:
    """Fill the cells of the next pairs' rows, gathered so that their cache misses overlap."""
    to = 0
    for pair in range(begin, min(begin + AHEAD, end)):
        first = np.int64(position[pair]) * rows.topics
        if first < 0 or to < 0:
            return
        for j in range(topic.size):
            rows.cells[to + j] = rows.expected[first + topic[j]]
            rows.moves[to + j] = rows.moved[first + topic[j]]
        to += topic.size


@borrower
def _scatter(position: Array, begin: int, end: int, topic: Array, rows: FlatRows) -> None:
    """Write the gathered changes back to the pairs' rows."""
    at = 0
    for pair in range(begin, min(begin + AHEAD, end)):
        first = np.int64(position[pair]) * rows.topics
        if first < 0 or at < 0:
            return
        for j in range(topic.size):
            rows.moved[first + topic[j]] = rows.moves[at + j]
        at += topic.size
