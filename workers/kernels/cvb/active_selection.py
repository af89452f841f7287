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
from collapsium.workers.kernels.cvb.active import ONE, ROUNDING, STEP, UNIT, ZERO
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, NewActiveState, Priors, RowChanges
from collapsium.workers.kernels.jit import borrower, helper, kernel
from collapsium.workers.kernels.records import DocumentPairs

HALVINGS = 16  # of the interval of the limit where too many topics pass the threshold


class SelectionRows(NamedTuple):
    """E[n_kw] as the iteration began, in the parts of which `background.spread` makes it: half the memory to read.

    Attributes
    ----------
    active : float32, shape (rows, topics)
        Counts of active topics.
    spreading : float32, shape (rows,)
        factor_w: E[n_kw] = active_kw + factor_w weight_k (even + active_kw).
    even : float
        Keeps the spread even where a word has no tokens.
    weight : float64, shape (topics,)
        a_k / (B + E[n_k]), as when E[n_k] was last summed.
    background_weight : float32, shape (rows,)
        S_w.
    totals : float64, shape (topics,)
        B + E[n_k].
    """

    active: Float32Matrix
    spreading: Float32Vector
    even: float
    weight: Float64Vector
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


class _Rows(NamedTuple):
    """Single-precision `SelectionRows`.

    Attributes
    ----------
    active : numpy.ndarray of float32, shape (rows * topics,)
        Counts of active topics, flattened.
    spreading, background_weight : numpy.ndarray of float32, shape (rows,)
        factor_w and S_w.
    word_prior : numpy.ndarray of float64, shape (rows,)
        b_w.
    ratio, weight : numpy.ndarray of float32, shape (topics,)
        a_k / (B + E[n_k]), now and as when E[n_k] was last summed.
    even : float32
        As of `SelectionRows`.
    """

    active: Array
    spreading: Array
    background_weight: Array
    word_prior: Array
    ratio: Array
    weight: Array
    even: Number


class _Work(NamedTuple):
    """Sums over the pairs of a document.

    Attributes
    ----------
    background : numpy.ndarray of float32, shape (at least pairs + 3,)
        Background tokens of each pair, divided by their weight; zero on entry.
    plain, scaled : numpy.ndarray of float32, shape (topics,)
        Sums of the pairs' rows, with the background tokens as weights, and these times factor_w.
    """

    background: Array
    plain: Array
    scaled: Array


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
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    active_offsets, active_topics, active_counts = active.offsets, active.topics, state.counts
    starts, responsibilities = state.starts, state.responsibilities
    room, selected, sizes = selection.room, selection.topics, selection.sizes
    topics = priors.topics.size
    flat = _Rows(
        rows.active.reshape(-1),
        rows.spreading,
        rows.background_weight,
        priors.words,
        (priors.topics / rows.totals).astype(np.float32),
        rows.weight.astype(np.float32),
        np.float32(rows.even),
    )
    least, count = threshold.astype(np.float32), np.empty(topics, np.float32)
    plain, scaled = np.empty(topics, np.float32), np.empty(topics, np.float32)
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        sizes[document] = 0
        if first == last:
            continue
        own = active_topics[active_offsets[document] : active_offsets[document + 1]]
        count[:] = ZERO
        if own.size < topics:
            work = _Work(np.zeros(last - first + 3, np.float32), plain, scaled)
            here = position[first:last], counts[first:last], own, starts[document], responsibilities
            _background_counts(*here, flat, work, count)
        for j in range(own.size):
            count[own[j]] = active_counts[active_offsets[document] + j]
        sizes[document] = _pick(count, least, room[document + 1] - room[document], room[document], selected)


@borrower
def _background_counts(
    position: Array,
    counts: Array,
    own: Array,
    at: int,
    responsibilities: Array,
    rows: _Rows,
    work: _Work,
    count: Array,
) -> None:
    """Fill the background tokens of each topic in a document."""
    evenly, bottom = ZERO, ZERO
    each, ratio, spread, even = work.background, rows.ratio, rows.weight, rows.even
    for pair in range(position.size):
        row = np.int64(position[pair])
        first, b, factor = row * count.size, np.float32(rows.word_prior[row]), rows.spreading[row]
        held, known = ZERO, ZERO
        for j in range(own.size):
            x = rows.active[first + own[j]]
            held += np.float32(responsibilities[at + j]) * STEP
            known += ratio[own[j]] * (b + x + factor * spread[own[j]] * (even + x))
        at += own.size
        left = rows.background_weight[row] - known
        if left > rows.background_weight[row] * ROUNDING:  # below, rounding alone: the background weighs nothing
            each[pair] = np.float32(counts[pair]) * max(ONE - held, ZERO) / left
        bottom += each[pair] * b
        evenly += each[pair] * factor * even
    work.plain[:] = ZERO
    work.scaled[:] = ZERO
    for pair in range(0, position.size, 4):
        _add_four(pair, position, rows.spreading, rows.active, each, work.plain, work.scaled)
    for k in range(count.size):
        count[k] = ratio[k] * (bottom + work.plain[k] + spread[k] * (evenly + work.scaled[k]))


@helper
def _add_four(
    pair: int, position: Array, spreading: Array, flat: Array, each: Array, plain: Array, scaled: Array
) -> None:
    """Add up the rows of four pairs at a time, so that the sums are read and written once for four rows."""
    last, topics = position.size - 1, plain.size
    r, s = position[pair], position[min(pair + 1, last)]
    t, u = position[min(pair + 2, last)], position[min(pair + 3, last)]
    e, f, g, h = each[pair], each[pair + 1], each[pair + 2], each[pair + 3]
    i, j, m, n = e * spreading[r], f * spreading[s], g * spreading[t], h * spreading[u]
    a, b, c, d = np.int64(r) * topics, np.int64(s) * topics, np.int64(t) * topics, np.int64(u) * topics
    if a < 0 or b < 0 or c < 0 or d < 0:  # never so; it shows the compiler that no index counts from the end
        return
    for k in range(topics):
        w, x, y, z = flat[a + k], flat[b + k], flat[c + k], flat[d + k]
        plain[k] += e * w + f * x + g * y + h * z
        scaled[k] += i * w + j * x + m * y + n * z


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
            above = 0
            for k in range(count.size):
                above += count[k] > max(middle, least[k])
            if above > room:
                low = middle
            else:
                high, ties = middle, room - above
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
    changes: RowChanges,
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
    changes : RowChanges
        Tokens of dropped topics are moved to the background.
    after : NewActiveState
        Filled; its responsibilities are zero on entry.
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    starts, responsibilities = before.starts, before.responsibilities
    new_starts, new_responsibilities, new_counts, background = (
        after.starts,
        after.responsibilities,
        after.counts,
        after.background,
    )
    active_offsets, active_topics = active.offsets, active.topics
    new_offsets, new_topics = new_active.offsets, new_active.topics
    row_change, background_change = changes.active, changes.background
    place = np.empty(row_change.shape[1], dtype=np.int64)
    count = np.empty(row_change.shape[1])
    for document in range(offsets.size - 1):
        old = active_topics[active_offsets[document] : active_offsets[document + 1]]
        new = new_topics[new_offsets[document] : new_offsets[document + 1]]
        _places(old, new, place)
        rest, at, there = 0.0, starts[document], new_starts[document]
        count[:] = 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            row, each, left = position[pair], counts[pair] / UNIT, np.int64(UNIT)
            for j in range(old.size):
                steps = np.int64(responsibilities[at + j])
                if place[j] >= 0:
                    new_responsibilities[there + place[j]] = steps
                    count[place[j]] += each * steps
                    left -= steps
                elif steps:
                    row_change[row, old[j]] -= np.float32(each * steps)
                    background_change[row] += each * steps
            rest += each * left
            at += old.size
            there += new.size
        background[document] = np.float32(rest)
        for j in range(new.size):
            new_counts[new_offsets[document] + j] = np.float32(count[j])


@helper
def _places(old: Array, new: Array, place: Array) -> None:
    """Fill the place of each of the old topics among the new ones; -1 for none."""
    next_one = 0
    for j in range(old.size):
        while next_one < new.size and new[next_one] < old[j]:
            next_one += 1
        place[j] = next_one if next_one < new.size and new[next_one] == old[j] else -1
