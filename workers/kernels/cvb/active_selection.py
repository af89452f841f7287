"""Active-set selection: choose the active topics of documents, and carry responsibilities over to these.

`active` defines active topics and their responsibilities.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.cvb.active import (
    AHEAD,
    CACHE_LINE,
    EXACT_TOKENS,
    ONE,
    ROUNDING,
    STEP,
    ZERO,
    add_long_pair,
    clear_counts,
    flush_counts,
    rounding_of,
    steps_at,
)
from collapsium.workers.kernels.cvb.records import (
    ActiveState,
    ActiveTopics,
    DocumentCounts,
    DocumentWorkspace,
    FlatRows,
    NewActiveState,
    Priors,
    RunningCounts,
)
from collapsium.workers.kernels.jit import (
    LANES,
    Array,
    DocumentPairs,
    Float32Matrix,
    Float32Vector,
    Float64Vector,
    Int64Vector,
    Number,
    OutInt64Vector,
    OutUInt16Vector,
    borrower,
    helper,
    kernel,
    token_weight,
)
from collapsium.workers.kernels.lanes import load, prefetch, spread_evenly, store, sum_of

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


class _Moves(NamedTuple):
    """Topics of a document that stay and that go, and their places among the old ones and among the new ones.

    Most places have no signs, so that the compiler knows that no index counts from the end.
    """

    # While topics are compared, the place of each among the new ones, -1 for none; else -1; int64 (topics,)
    place: Array
    # Places of the topics that stay, among the old and among the new ones; uint16 (topics,)
    source: Array
    target: Array
    dropped: Array  # Places of topics that go, among the old ones; uint16 (topics,)
    topics: Array  # The topics that go; uint16 (topics,)
    ratio: Array  # Their a_k / (B + E[n_k]) of S_w; float32 (topics,)


class _Sizes(NamedTuple):
    """Numbers of a document's topics."""

    # Topics so far, and from now on
    old: int
    new: int
    # Topics that are among both, and among the old ones alone
    stay: int
    go: int


@kernel
def carry(
    pairs: DocumentPairs,
    active: ActiveTopics,
    before: ActiveState,
    new_active: ActiveTopics,
    running: RunningCounts,
    after: NewActiveState,
) -> None:
    """Carry responsibilities over to new active topics; responsibilities of dropped topics go to the background.

    Twin: `naive.active_topics.carry`.
    """
    topics, rows, places = running.ratio.size, running.rows, running.ratio.size + LANES
    words = rows.units, np.empty(0), rows.background_weight, rows.background, rows.long_place
    more = rows.long_changes.reshape(-1), rows.seed_place, rows.seed_counts.reshape(-1)
    flat = FlatRows(topics, rows.cells.reshape(-1), *words, *more)
    source, target, dropped = np.empty(topics, np.uint16), np.empty(topics, np.uint16), np.empty(topics, np.uint16)
    leaving = np.empty(topics, np.uint16), np.empty(topics, np.float32)
    moves = _Moves(np.full(topics, -1), source, target, dropped, *leaving)
    counts, units = DocumentCounts(np.empty(topics), np.empty(places, np.float32)), np.empty(places, np.float32)
    nothing, at_end = np.empty(0, np.float32), np.zeros(LANES, np.uint16)
    # Its cells are the values of a step of a responsibility, zero beyond the topics.
    inside = DocumentWorkspace(nothing.view(np.int32), units, at_end, ONE, True)
    last = DocumentWorkspace(nothing.view(np.int32), units, at_end, ONE, False)
    for document in range(pairs.offsets.size - 1):
        first, new_first = active.offsets[document], new_active.offsets[document]
        old = active.topics[first : active.offsets[document + 1]]
        new = new_active.topics[new_first : new_active.offsets[document + 1]]
        sizes = _compare(old, new, running.ratio, moves)
        clear_counts(old.size, counts)
        units[: old.size], units[old.size : old.size + LANES] = STEP, ZERO
        if before.starts[document + 1] + LANES <= before.responsibilities.size:
            rest = _carry_document(document, sizes, pairs, before, after, (moves, counts, inside), flat)
        else:
            rest = _carry_document(document, sizes, pairs, before, after, (moves, counts, last), flat)
        after.background[document] = rest
        after.counts[new_first : new_first + new.size] = 0.0
        for i in range(sizes.stay):
            after.counts[new_first + target[i]] = counts.exact[source[i]]
        if before.pseudo.size:
            after.pseudo[new_first : new_first + new.size] = ZERO
            for i in range(sizes.stay):
                after.pseudo[new_first + target[i]] = before.pseudo[first + source[i]]


@borrower
def _compare(old: Array, new: Array, ratio: Array, moves: _Moves) -> _Sizes:
    """Find the topics that stay and go, without branches that processors could not predict."""
    place, stay, go = moves.place, 0, 0
    for i in range(new.size):
        place[new[i]] = i
    for j in range(old.size):
        new_place = place[old[j]]
        moves.source[stay], moves.target[stay], moves.dropped[go] = j, new_place, j
        stay += new_place >= 0
        go += new_place < 0
    for i in range(new.size):
        place[new[i]] = -1
    for i in range(go):
        moves.topics[i] = old[moves.dropped[i]]
        moves.ratio[i] = ratio[moves.topics[i]]
    return _Sizes(old.size, new.size, stay, go)


@borrower
def _carry_document(
    document: int,
    sizes: _Sizes,
    pairs: DocumentPairs,
    before: ActiveState,
    after: NewActiveState,
    work: tuple[_Moves, DocumentCounts, DocumentWorkspace],
    rows: FlatRows,
) -> Number:
    """Carry the responsibilities of a document's pairs over, and count them; return its background tokens."""
    moves, counts, steps = work
    responsibilities, new, position = before.responsibilities, after.responsibilities, pairs.position
    at, target, rest, short = before.starts[document], after.starts[document], 0.0, 0
    new[target : after.starts[document + 1]] = 0
    for pair in range(pairs.offsets[document], pairs.offsets[document + 1]):
        if at < 0 or target < 0:  # never so; it shows the compiler that no index counts from the end
            break
        ahead = np.int64(position[min(pair + AHEAD, position.size - 1)]) * rows.topics
        if sizes.go * CACHE_LINE < rows.topics:
            for i in range(sizes.go):
                prefetch(rows.cells, ahead + np.int64(moves.topics[i]))
        else:
            for k in range(0, rows.topics, CACHE_LINE):
                prefetch(rows.cells, ahead + k)
        for i in range(sizes.stay):
            new[target + moves.target[i]] = responsibilities[at + moves.source[i]]
        tokens, weight, gone = pairs.counts[pair], token_weight(pairs.weights, pair), ZERO
        if pairs.weights.size or tokens > EXACT_TOKENS:
            add_long_pair(at, sizes.old, tokens * weight, responsibilities, counts)
            held = _count(at, sizes.old, ZERO, responsibilities, counts, steps)
        else:
            if short + tokens > EXACT_TOKENS:
                flush_counts(sizes.old, counts)
                short = 0
            short += tokens
            held = _count(at, sizes.old, np.float32(tokens), responsibilities, counts, steps)
        if sizes.go:
            token = np.float32(tokens), np.float32(weight)
            gone = _drop(np.int64(position[pair]), at, sizes.go, token, responsibilities, moves, pairs.weights, rows)
        rest += tokens * weight * (1.0 - (held - gone))
        at += sizes.old
        target += sizes.new
    flush_counts(sizes.old, counts)
    return rest


@borrower
def _count(
    at: int, size: int, tokens: Number, responsibilities: Array, counts: DocumentCounts, work: DocumentWorkspace
) -> Number:
    """Add a pair's responsibilities to the counts; return their sum."""
    held, pair_tokens = spread_evenly(ZERO), spread_evenly(tokens)
    for j in range(0, size, LANES):
        steps = steps_at(responsibilities, at + j, size - j, work)
        store(counts.short, j, load(counts.short, j) + pair_tokens * steps)
        held = held + steps * load(work.cells, j)
    return sum_of(held)


@borrower
def _drop(
    row: int,
    at: int,
    go: int,
    token: tuple[Number, Number],
    responsibilities: Array,
    moves: _Moves,
    weights: Array,
    rows: FlatRows,
) -> Number:
    """Move a pair's tokens of topics that go to the background; return the sum of their responsibilities.

    A pair's tokens and their weight are given. Without weights, cells are rounded as by the sweep that filled them.
    """
    tokens, weight = token
    first, step, unit, held, known = row * rows.topics, STEP * weight, rows.units[row], 0, ZERO
    units, half = tokens / unit, rounding_of(weights, unit)
    if first < 0 or at < 0:  # never so
        return ZERO
    for i in range(go):
        steps = responsibilities[at + moves.dropped[i]]
        rows.cells[first + moves.topics[i]] -= np.int32(np.float32(steps) * step * units + half)
        known += np.float32(steps) * moves.ratio[i]
        held += steps
    gone = np.float32(held) * STEP
    rows.background_weight[row] -= float(tokens * step * known)
    rows.background_change[row] += float(tokens) * float(weight * gone)
    if rows.long_place[row] >= 0:
        long_first = np.int64(rows.long_place[row]) * rows.topics
        for i in range(go):
            q = np.float32(responsibilities[at + moves.dropped[i]]) * step
            rows.long_changes[long_first + moves.topics[i]] -= float(tokens) * float(q)
    return gone


@borrower
def add_tokens(row: int, topic: Number, tokens: Number, sign: int, running: RunningCounts, weights: Array) -> None:
    """Add tokens of a word to a topic (1), or take them (-1)."""
    rows, unit = running.rows, running.rows.units[row]
    rows.cells[row, topic] += sign * np.int32(tokens / unit + rounding_of(weights, unit))
    rows.background_weight[row] += sign * running.ratio[topic] * tokens
    if rows.long_place[row] >= 0:
        rows.long_changes[rows.long_place[row], topic] += sign * tokens
