"""Lists of active topics: choose them, and carry responsibilities over to new ones.

`active` says what the lists are and how their responsibilities are stored; `list_sums` adds up over them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.cvb.active import ONE, ROUNDING, STEP, UNIT, ZERO
from collapsium.workers.kernels.jit import (
    F4,
    F4_2,
    F8,
    I4,
    I8,
    OUT_F4,
    OUT_F4_2,
    OUT_F8,
    OUT_I8,
    OUT_U2,
    U2,
    f8,
    helper,
    kernel,
)

Array = npt.NDArray[Any]

HALVINGS = 16  # of the interval in which the limit lies where too many topics pass the threshold


@kernel(I8, I4, I4, F8, F4, F8, F8, F8, I8, U2, I8, U2, F4, F4_2, F4, f8, F8, I8, OUT_U2, OUT_I8)
def choose(
    offsets: Array,
    position: Array,
    counts: Array,
    word_prior: Array,
    background: Array,
    prior: Array,
    totals: Array,
    threshold: Array,
    lists: Array,
    topic: Array,
    starts: Array,
    share: Array,
    active_count: Array,
    active: Array,
    spreading: Array,
    even: float,
    weight: Array,
    room: Array,
    chosen: Array,
    sizes: Array,
) -> None:
    """Choose each document's active topics anew; twin: `naive.lists.choose`.

    A listed topic has its expected count, any other what the background gives it:
    a_k sum over pairs of c (1 - sum q) phi_kw / (S_w - sum over active a_l phi_lw). Kept are those above the
    threshold; where there are more than the document has room for, the largest.

    Parameters
    ----------
    offsets, position, counts, word_prior, background, prior, totals
        As for `active.sweep_active`.
    threshold : float64, shape (topics,)
        Least expected count of an active topic.
    lists, topic, starts, share, active_count
        As for `active.sweep_active`.
    active, spreading, even, weight
        E[n_kw] as the iteration began, in the parts that `background.spread` put together: half the memory to read.
    room : int64, shape (documents + 1,)
        Where the room for each document's list begins in `chosen`.
    chosen : uint16
        Filled with the chosen topics, ascending.
    sizes : int64, shape (documents,)
        Filled with how many each document has; an empty document has none.
    """
    topics = prior.size
    ratio, spread = (prior / totals).astype(np.float32), weight.astype(np.float32)
    least, flat = threshold.astype(np.float32), active.reshape(-1)
    count, plain, scaled = np.empty(topics, np.float32), np.empty(topics, np.float32), np.empty(topics, np.float32)
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        sizes[document] = 0
        if first == last:
            continue
        own = topic[lists[document] : lists[document + 1]]
        count[:] = ZERO
        if own.size < topics:
            pairs = position[first:last], counts[first:last], word_prior, background, ratio
            rows = flat, spreading, np.float32(even), spread
            _background_counts(*pairs, own, starts[document], share, *rows, plain, scaled, count)
        for j in range(own.size):
            count[own[j]] = active_count[lists[document] + j]
        sizes[document] = _pick(count, least, room[document + 1] - room[document], room[document], chosen)


@helper
def _background_counts(
    position: Array,
    counts: Array,
    word_prior: Array,
    background: Array,
    ratio: Array,
    own: Array,
    at: int,
    share: Array,
    flat: Array,
    spreading: Array,
    even: Any,
    spread: Array,
    plain: Array,
    scaled: Array,
    count: Array,
) -> None:
    """Fill what the background of a document gives each topic."""
    evenly, bottom = ZERO, ZERO
    each = np.zeros(position.size + 3, np.float32)
    for pair in range(position.size):
        row = np.int64(position[pair])
        first, b, factor = row * count.size, np.float32(word_prior[row]), spreading[row]
        held, known = ZERO, ZERO
        for j in range(own.size):
            x = flat[first + own[j]]
            held += np.float32(share[at + j]) * STEP
            known += ratio[own[j]] * (b + x + factor * spread[own[j]] * (even + x))
        at += own.size
        left = background[row] - known
        if left > background[row] * ROUNDING:  # below, rounding alone: the background weighs nothing
            each[pair] = np.float32(counts[pair]) * max(ONE - held, ZERO) / left
        bottom += each[pair] * b
        evenly += each[pair] * factor * even
    plain[:] = ZERO
    scaled[:] = ZERO
    for pair in range(0, position.size, 4):
        _add_four(pair, position, spreading, flat, each, plain, scaled)
    for k in range(count.size):
        count[k] = ratio[k] * (bottom + plain[k] + spread[k] * (evenly + scaled[k]))


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
    if a < 0 or b < 0 or c < 0 or d < 0:  # never so; it tells the compiler that no index counts from the end
        return
    for k in range(topics):
        w, x, y, z = flat[a + k], flat[b + k], flat[c + k], flat[d + k]
        plain[k] += e * w + f * x + g * y + h * z
        scaled[k] += i * w + j * x + m * y + n * z


@helper
def _pick(count: Array, least: Array, room: int, at: int, chosen: Array) -> int:
    """Write down the topics above their thresholds, the largest where room is short, at least one."""
    passing, largest = 0, 0
    for k in range(count.size):
        passing += count[k] > least[k]
        if count[k] > count[largest]:
            largest = k
    if passing == 0:
        chosen[at] = largest
        return 1
    low, high = ZERO, count[largest]  # more than `room` pass above the one, no more above the other
    ties = passing  # of those between the two, how many find room
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
        listed = everything
        if not everything and count[k] > max(low, least[k]):
            listed = passing <= room or count[k] > high or ties > 0
            ties -= listed and passing > room and count[k] <= high
        if listed:
            chosen[at + size] = k
            size += 1
    return size


@kernel(I8, I4, I4, I8, U2, I8, U2, I8, U2, I8, OUT_F4_2, OUT_F8, OUT_U2, OUT_F4, OUT_F4)
def carry(
    offsets: Array,
    position: Array,
    counts: Array,
    lists: Array,
    topic: Array,
    starts: Array,
    share: Array,
    new_lists: Array,
    new_topic: Array,
    new_starts: Array,
    row_change: Array,
    rest_change: Array,
    new_share: Array,
    new_active_count: Array,
    new_document_rest: Array,
) -> None:
    """Carry responsibilities over to new lists; what dropped topics held falls to the background.

    Twin: `naive.lists.carry`.

    Parameters
    ----------
    offsets, position, counts, lists, topic, starts, share
        As for `active.sweep_active`.
    new_lists, new_topic, new_starts
        The new lists and where their responsibilities begin.
    row_change : float32, shape (rows, topics)
        Change of E[n_kw]; decreased by what dropped topics held.
    rest_change : float64, shape (rows,)
        Increased by it.
    new_share : uint16
        Zero on entry; filled with the responsibilities of topics that stay.
    new_active_count, new_document_rest : float32
        Filled with E[n_dk] of the new lists and the documents' background tokens.
    """
    place = np.empty(row_change.shape[1], dtype=np.int64)
    count = np.empty(row_change.shape[1])
    for document in range(offsets.size - 1):
        old, new = (
            topic[lists[document] : lists[document + 1]],
            new_topic[new_lists[document] : new_lists[document + 1]],
        )
        _places(old, new, place)
        rest, at, there = 0.0, starts[document], new_starts[document]
        count[:] = 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            row, each, left = position[pair], counts[pair] / UNIT, np.int64(UNIT)
            for j in range(old.size):
                steps = np.int64(share[at + j])
                if place[j] >= 0:
                    new_share[there + place[j]] = steps
                    count[place[j]] += each * steps
                    left -= steps
                elif steps:
                    row_change[row, old[j]] -= np.float32(each * steps)
                    rest_change[row] += each * steps
            rest += each * left
            at += old.size
            there += new.size
        new_document_rest[document] = np.float32(rest)
        for j in range(new.size):
            new_active_count[new_lists[document] + j] = np.float32(count[j])


@helper
def _places(old: Array, new: Array, place: Array) -> None:
    """Fill where each of the old topics stands in the new list; -1 for nowhere."""
    next_one = 0
    for j in range(old.size):
        while next_one < new.size and new[next_one] < old[j]:
            next_one += 1
        place[j] = next_one if next_one < new.size and new[next_one] == old[j] else -1
