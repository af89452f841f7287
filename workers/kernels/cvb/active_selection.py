"""Active-set selection: choose the active topics of documents, and carry responsibilities over to them.

`active` defines active topics and their responsibilities; `active_sums` sums over them.
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
from collapsium.workers.kernels.cvb.active import (
    AHEAD,
    CACHE_LINE,
    FIELDS,
    ONE,
    PLACES,
    RATIO,
    ROUNDING,
    STEP,
    UNIT,
    UNITS,
    ZERO,
    place_of,
    rounding_of,
    steps_at,
)
from collapsium.workers.kernels.cvb.records import (
    ActiveState,
    ActiveTopics,
    DocumentWorkspace,
    NewActiveState,
    Priors,
    RunningCounts,
)
from collapsium.workers.kernels.jit import borrower, helper, kernel
from collapsium.workers.kernels.lane_size import LANES
from collapsium.workers.kernels.lanes import gather, load, prefetch, spread_evenly, sum_of
from collapsium.workers.kernels.records import DocumentPairs, token_weight

MIN_PSEUDO_COUNT = 0.5
"""Excess of a document's count over its responsibilities that is no rounding, in tokens."""

HALVINGS = 16  # of the interval of the limit where too many topics pass the threshold


class SelectionRows(NamedTuple):
    """Rows as the iteration began.

    Attributes
    ----------
    expected : float32, shape (rows, topics)
        E[n_kw].
    background_weight : float32, shape (rows,)
        S_w.
    totals : float64, shape (topics,)
        B + E[n_k].
    """

    expected: Float32Matrix
    background_weight: Float32Vector
    totals: Float64Vector


class Selection(NamedTuple):
    """Selected topics.

    Attributes
    ----------
    room : int64, shape (documents + 1,)
        Index in `topics` at which the room for each document's begins.
    topics : uint16, shape (room,)
        Filled with the topics, ascending in a document.
    sizes : int64, shape (documents,)
        Filled with the number of topics of each document; an empty document has none.
    """

    room: Int64Vector
    topics: OutUInt16Vector
    sizes: OutInt64Vector


class _FlatRows(NamedTuple):
    """Rows of words, flattened.

    Attributes
    ----------
    topics : int
        Cells of a row.
    expected : numpy.ndarray of float32, shape (rows * topics,)
        E[n_kw].
    word_prior : numpy.ndarray of float64, shape (rows,)
        b_w.
    background_weight : numpy.ndarray of float32, shape (rows,)
        S_w.
    """

    topics: int
    expected: Array
    word_prior: Array
    background_weight: Array


class _Sums(NamedTuple):
    """Sums over the pairs of a document.

    Attributes
    ----------
    background : numpy.ndarray of float32, shape (at least pairs + 3,)
        Background tokens of each pair, divided by their weight; zero on entry.
    plain : numpy.ndarray of float32, shape (topics,)
        Sums of the pairs' rows, with the background tokens as weights.
    ratio : numpy.ndarray of float32, shape (topics,)
        a_k / (B + E[n_k]).
    """

    background: Array
    plain: Array
    ratio: Array


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

    Parameters
    ----------
    pairs : DocumentPairs
        The documents.
    active : ActiveTopics
        Their active topics so far.
    state : ActiveState
        After the previous sweep.
    priors : Priors
        a_k and b_w.
    rows : SelectionRows
        Of the shard's words.
    threshold : float64, shape (topics,)
        Least expected count of an active topic.
    selection : Selection
        Filled.
    """
    offsets, active_offsets, active_topics, topics = pairs.offsets, active.offsets, active.topics, priors.topics.size
    room, selected, sizes = selection.room, selection.topics, selection.sizes
    least, count, ratio = threshold.astype(np.float32), np.empty(topics, np.float32), priors.topics / rows.totals
    flat = _FlatRows(topics, rows.expected.reshape(-1), priors.words, rows.background_weight)
    most = (np.diff(offsets).max() if offsets.size > 1 else 0) + 3
    sums = _Sums(np.empty(most, np.float32), np.empty(topics, np.float32), ratio.astype(np.float32))
    groups = (topics + LANES - 1) // LANES
    cells = np.zeros(groups * LANES * FIELDS, dtype=np.float32)
    places = cells.view(np.int32)
    work = DocumentWorkspace(places, cells, np.zeros(LANES, dtype=np.uint16), ONE, True)
    at_end = DocumentWorkspace(places, cells, work.steps, ONE, False)
    for document in range(offsets.size - 1):
        sizes[document] = 0
        if offsets[document] == offsets[document + 1]:
            continue
        begin, size = active_offsets[document], active_offsets[document + 1] - active_offsets[document]
        count[:] = ZERO
        if size < topics:
            for j in range((size + LANES - 1) // LANES * LANES):
                k = active_topics[begin + j] if j < size else 0
                places[place_of(j) + PLACES] = k
                cells[place_of(j) + RATIO] = sums.ratio[k] if j < size else ZERO
                cells[place_of(j) + UNITS] = STEP if j < size else ZERO
            if state.starts[document + 1] + LANES <= state.responsibilities.size:
                _background_counts(document, size, pairs, state, work, flat, sums, count)
            else:
                _background_counts(document, size, pairs, state, at_end, flat, sums, count)
        for j in range(size):
            count[active_topics[begin + j]] = state.counts[begin + j]
        sizes[document] = _pick(count, least, room[document + 1] - room[document], room[document], selected)


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
    begin, length = pairs.offsets[document], pairs.offsets[document + 1] - pairs.offsets[document]
    each, at, bottom = sums.background, state.starts[document], ZERO
    each[: length + 3] = ZERO
    for pair in range(length):
        ahead = min(begin + pair + AHEAD, pairs.position.size - 1)
        for k in range(0, rows.topics, CACHE_LINE):
            prefetch(rows.expected, np.int64(pairs.position[ahead]) * rows.topics + k)
        row = np.int64(pairs.position[begin + pair])
        held, known = _active_share(row, at, size, state.responsibilities, work, rows)
        at += size
        left = rows.background_weight[row] - known
        if left > rows.background_weight[row] * ROUNDING:  # below, rounding alone: the background weighs nothing
            tokens = np.float32(pairs.counts[begin + pair] * token_weight(pairs.weights, begin + pair))
            each[pair] = tokens * max(ONE - held, ZERO) / left
        bottom += each[pair] * np.float32(rows.word_prior[row])
    sums.plain[:] = ZERO
    for pair in range(0, length, 4):
        _add_four(begin, pair, length - 1, pairs.position, rows.expected, each, sums.plain)
    for k in range(count.size):
        count[k] = sums.ratio[k] * (bottom + sums.plain[k])


@borrower
def _active_share(
    row: int, at: int, size: int, responsibilities: Array, work: DocumentWorkspace, rows: _FlatRows
) -> tuple[Number, Number]:
    """Return the sums over a pair's active topics of the responsibilities and of a_k phi_kw."""
    held, b = spread_evenly(ZERO), spread_evenly(np.float32(rows.word_prior[row]))
    known = held
    for group in range((size + LANES - 1) // LANES):
        j = group * LANES
        held = held + steps_at(responsibilities, at + j, size - j, work) * load(work.cells, j * FIELDS + UNITS)
        cell = gather(rows.expected, row * rows.topics, work.cells, j * FIELDS + PLACES)
        known = known + load(work.cells, j * FIELDS + RATIO) * (cell + b)
    return sum_of(held), sum_of(known)


@helper
def _add_four(begin: int, pair: int, last: int, position: Array, flat: Array, each: Array, plain: Array) -> None:
    """Add up the rows of four pairs at a time, so that the sums are read and written once for four rows."""
    topics = plain.size
    r, s = position[begin + pair], position[begin + min(pair + 1, last)]
    t, u = position[begin + min(pair + 2, last)], position[begin + min(pair + 3, last)]
    e, f, g, h = each[pair], each[pair + 1], each[pair + 2], each[pair + 3]
    a, b, c, d = np.int64(r) * topics, np.int64(s) * topics, np.int64(t) * topics, np.int64(u) * topics
    if a < 0 or b < 0 or c < 0 or d < 0:  # never so; it shows the compiler that no index counts from the end
        return
    for k in range(topics):
        plain[k] += e * flat[a + k] + f * flat[b + k] + g * flat[c + k] + h * flat[d + k]


@helper
def _pick(count: Array, least: Array, room: int, at: int, selected: Array) -> int:
    """Fill in the topics above their thresholds, the largest where room is short, at least one; return their number."""
    passing, largest = 0, 0
    for k in range(count.size):
        passing += count[k] > least[k]
        if count[k] > count[largest]:
            largest = k
    if passing == 0:
        selected[at] = largest
        return 1
    low, high = ZERO, count[largest]  # more than `room` pass above the one, no more above the other
    ties = passing  # of those between the two, the number that find room
    if passing > room:
        ties = room
        for _ in range(HALVINGS):
            middle = np.float32(0.5) * (low + high)
            # Counted in float32, eight at a time.
            above = ZERO
            for k in range(count.size):
                above += ONE if count[k] > max(middle, least[k]) else ZERO
            if above > room:
                low = middle
            else:
                high, ties = middle, room - int(above)
    # A sweep over more than half of the topics is faster over all, whose cells lie side by side.
    everything = room == count.size and 2 * passing > room
    size = 0
    for k in range(count.size):
        is_active = everything
        if not everything and count[k] > max(low, least[k]):
            is_active = passing <= room or count[k] > high or ties > 0
            ties -= is_active and passing > room and count[k] <= high
        if is_active:
            selected[at + size] = k
            size += 1
    return size


@kernel
def carry(
    pairs: DocumentPairs,
    active: ActiveTopics,
    before: ActiveState,
    new_active: ActiveTopics,
    running: RunningCounts,
    after: NewActiveState,
) -> None:
    """Carry responsibilities over to new active topics; those of dropped topics go to the background.

    Twin: `naive.active_topics.carry`.

    Parameters
    ----------
    pairs : DocumentPairs
        The documents.
    active : ActiveTopics
        Their active topics so far.
    before : ActiveState
        After the previous sweep.
    new_active : ActiveTopics
        Their active topics from now on.
    running : RunningCounts
        Tokens of dropped topics are moved to the background.
    after : NewActiveState
        Filled; its responsibilities are zero on entry.
    """
    offsets, position, responsibilities = pairs.offsets, pairs.position, before.responsibilities
    active_offsets, active_topics, new_responsibilities = active.offsets, active.topics, after.responsibilities
    new_offsets, new_topics = new_active.offsets, new_active.topics
    topics, flat, background_change = running.ratio.size, running.rows.cells.reshape(-1), running.rows.background
    place, count = np.empty(topics, np.int64), np.empty(topics)
    # Without signs, so that the compiler knows that no index counts from the end.
    source, target, dropped = np.empty(topics, np.uint16), np.empty(topics, np.uint16), np.empty(topics, np.uint16)
    for document in range(offsets.size - 1):
        old = active_topics[active_offsets[document] : active_offsets[document + 1]]
        new = new_topics[new_offsets[document] : new_offsets[document + 1]]
        _places(old, new, place)
        stay, go = 0, 0
        for j in range(old.size):
            if place[j] >= 0:
                source[stay], target[stay] = j, place[j]
                stay += 1
            else:
                dropped[go] = j
                go += 1
        rest, at, there = 0.0, before.starts[document], after.starts[document]
        count[:] = 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            row, left = position[pair], np.int64(UNIT)
            each = pairs.counts[pair] * token_weight(pairs.weights, pair) / UNIT
            if at < 0 or there < 0:
                break
            ahead = np.int64(position[min(pair + AHEAD, position.size - 1)]) * topics
            for i in range(go):
                prefetch(flat, ahead + np.int64(old[dropped[i]]))
            for i in range(stay):
                new_responsibilities[there + target[i]] = responsibilities[at + source[i]]
            for j in range(old.size):
                count[j] += each * responsibilities[at + j]
                left -= responsibilities[at + j]
            for i in range(go):
                steps = np.int64(responsibilities[at + dropped[i]])
                if steps:
                    add_tokens(row, np.int64(old[dropped[i]]), each * steps, -1, running, pairs.weights)
                    background_change[row] += each * steps
                    left += steps
            rest += each * left
            at += old.size
            there += new.size
        after.background[document] = np.float32(rest)
        after.counts[new_offsets[document] : new_offsets[document + 1]] = ZERO
        for i in range(stay):
            # A start that stays in the prior has pseudo-counts, which no responsibilities account for.
            here = before.counts[active_offsets[document] + source[i]]
            own = here - count[source[i]] > MIN_PSEUDO_COUNT
            after.counts[new_offsets[document] + target[i]] = here if own else np.float32(count[source[i]])


@borrower
def add_tokens(row: int, topic: Number, tokens: Number, sign: int, running: RunningCounts, weights: Array) -> None:
    """Add tokens of a word to a topic (1), or take them (-1)."""
    rows, unit = running.rows, running.rows.units[row]
    rows.cells[row, topic] += sign * np.int32(tokens / unit + rounding_of(weights, unit))
    rows.background_weight[row] += sign * running.ratio[topic] * tokens
    if rows.long_place[row] >= 0:
        rows.long_changes[rows.long_place[row], topic] += np.float32(sign * tokens)


@helper
def _places(old: Array, new: Array, place: Array) -> None:
    """Fill the place of each of the old topics among the new ones; -1 for none."""
    next_one = 0
    for j in range(old.size):
        while next_one < new.size and new[next_one] < old[j]:
            next_one += 1
        place[j] = next_one if next_one < new.size and new[next_one] == old[j] else -1
