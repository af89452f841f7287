"""Carry responsibilities over to newly selected active topics.

`active` defines active topics and their responsibilities, and `active_selection` selects them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.argument_types import Array, Number
from collapsium.workers.kernels.cvb.active import (
    AHEAD,
    CACHE_LINE,
    EXACT_TOKENS,
    ONE,
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
    RunningCounts,
)
from collapsium.workers.kernels.jit import borrower, kernel
from collapsium.workers.kernels.lanes import load, prefetch, spread_evenly, store, sum_of
from collapsium.workers.kernels.records import LANES, DocumentPairs, token_weight


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
