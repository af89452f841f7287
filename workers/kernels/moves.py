"""Moves between sweeps: tokens held out to judge them, the judgement, and carrying lists over.

A move merges two topics, deletes one or splits one. It is judged by tokens that take no part in the counts:
s = sum_k theta_k phi_kw, with theta_k = a_k + E[n_dk] and phi_kw = (b_w + E[n_kw]) / (B + E[n_k]), is the probability
of such a token's word, but for a factor, and what the move does to its logarithm is what it gains.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsar.workers.kernels.active import NONE, ROUNDING, UNIT, ZERO
from collapsar.workers.kernels.compile import (
    F4,
    F4_2,
    F8,
    F8_2,
    I4,
    I8,
    OUT_F4_2,
    OUT_F8,
    OUT_F8_2,
    OUT_I4,
    OUT_I8,
    OUT_U2,
    U2,
    f8,
    helper,
    i8,
    kernel,
    u8,
)

Array = npt.NDArray[Any]

FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
STRIDE = np.uint64(0x9E3779B97F4A7C15)
SMALL = 0.01  # up to here, the logarithm of 1 + x is a series


@helper
def mixed(value: Any) -> Any:
    """Mix the bits of a whole number so that any change of it changes half of them (the finaliser of splitmix64)."""
    value = (value ^ (value >> np.uint64(30))) * FIRST
    value = (value ^ (value >> np.uint64(27))) * SECOND
    return value ^ (value >> np.uint64(31))


@kernel(I8, I4, I4, I4, u8, f8, OUT_I4)
def hold_out(offsets: Array, words: Array, position: Array, counts: Array, key: int, share: float, held: Array) -> None:
    """Draw how many copies of each pair are held out, by a hash of their address; twin: `naive.moves.hold_out`.

    Parameters
    ----------
    offsets, position, counts
        As for `active.sweep_active`.
    words : int32, shape (rows,)
        Ids of the rows' words.
    key : int
        Address of the shard's documents.
    share : float
        Probability that a copy is held out.
    held : int32, shape (pairs,)
        Filled.
    """
    limit = np.uint64(share * 2.0**53)
    for document in range(offsets.size - 1):
        address = mixed(np.uint64(key) + np.uint64(document + 1) * STRIDE)
        for pair in range(offsets[document], offsets[document + 1]):
            word = mixed(address + np.uint64(words[position[pair]] + 1) * STRIDE)
            held[pair] = 0
            for copy in range(counts[pair]):
                held[pair] += (mixed(word + np.uint64(copy + 1) * STRIDE) >> np.uint64(11)) < limit


@helper
def log_ratio(x: float) -> Any:
    """Return log(1 + x), of little x by a series; what is far below zero counts as a thousandth."""
    if -SMALL < x < SMALL:
        return x * (1.0 - x * (0.5 - x * (1.0 / 3.0 - 0.25 * x)))
    return np.log(1.0 + max(x, -0.999))


@helper
def _weights(own: Array, count: Array, rest: float, prior: Array, all_prior: float, theta: Array) -> float:
    """Fill theta of a document for all topics; return the prior of those that it does not list, 0 for next to none."""
    left = all_prior
    for j in range(own.size):
        left -= prior[own[j]]
    if own.size == prior.size or left <= NONE * all_prior:
        left = 0.0
    growth = float(rest) / left if left > 0.0 else 0.0
    for k in range(prior.size):
        theta[k] = prior[k] * (1.0 + growth)
    for j in range(own.size):
        theta[own[j]] = prior[own[j]] + float(count[j])
    return left


@helper
def _probabilities(row: int, b: float, theta: Array, totals: Array, row_topic: Array, each: Array) -> float:
    """Fill theta_k phi_kw of all topics, and return their sum."""
    s = 0.0
    for k in range(theta.size):
        each[k] = theta[k] * (b + row_topic[row, k]) / totals[k]
        s += each[k]
    return s


@kernel(I8, I4, I4, I8, U2, F4, F4, F8, F8, F8, F4_2, f8, I8, I8, OUT_F8, OUT_F8)
def judge_merges(
    offsets: Array,
    position: Array,
    held: Array,
    lists: Array,
    topic: Array,
    active_count: Array,
    document_rest: Array,
    prior: Array,
    word_prior: Array,
    totals: Array,
    row_topic: Array,
    concentration: float,
    kept: Array,
    merged: Array,
    gain: Array,
    square: Array,
) -> None:
    """Add what merging pairs of topics gains on held-out tokens; twin: `naive.moves.judge_merges`.

    With theta and phi of the two as one, log(1 + (theta phi - theta_k phi_k - theta_l phi_l) / s).

    Parameters
    ----------
    offsets, position
        As for `active.sweep_active`.
    held : int32, shape (pairs,)
        Held-out copies of each pair.
    lists, topic, active_count, document_rest, prior, word_prior
        As for `active.sweep_active`.
    totals : float64, shape (topics,)
        B + E[n_k].
    row_topic : float32, shape (rows, topics)
        E[n_kw].
    concentration : float
        B: it counts once in the topic that two become, as b_w does.
    kept, merged : int64, shape (candidates,)
        Topics k and l of each candidate.
    gain, square : float64, shape (candidates,)
        Increased by sum c delta and sum c delta^2.
    """
    all_prior = prior.sum()
    theta, each = np.empty(prior.size), np.empty(prior.size)
    for document in range(offsets.size - 1):
        first, last = lists[document], lists[document + 1]
        known = False
        for pair in range(offsets[document], offsets[document + 1]):
            if held[pair] == 0:
                continue
            if not known:
                _weights(topic[first:last], active_count[first:last], document_rest[document], prior, all_prior, theta)
                known = True
            row, b = position[pair], word_prior[position[pair]]
            s = _probabilities(row, b, theta, totals, row_topic, each)
            for p in range(kept.size):
                k, m = kept[p], merged[p]
                both = (theta[k] + theta[m]) * (b + row_topic[row, k] + row_topic[row, m])
                both /= totals[k] + totals[m] - concentration
                delta = log_ratio((both - each[k] - each[m]) / s)
                gain[p] += held[pair] * delta
                square[p] += held[pair] * delta * delta


@helper
def _hand_on(
    position: Array,
    counts: Array,
    own: Array,
    share: Array,
    at: int,
    place: int,
    theta: Array,
    growth: float,
    prior: Array,
    word_prior: Array,
    totals: Array,
    row_topic: Array,
    background: Array,
    given: Array,
) -> float:
    """Fill what the other topics of a document's list get of the tokens of one; return what its background gets.

    Each pair's go in proportion to theta_j phi_jw; `growth` is 1 + E[n_d,rest] / a_rest; 0 with no background.
    """
    given[: own.size] = 0.0
    beyond = 0.0
    for pair in range(position.size):
        steps = share[at + pair * own.size + place]
        if steps == 0:
            continue
        row, b = position[pair], word_prior[position[pair]]
        total, known = 0.0, 0.0
        for j in range(own.size):
            phi = (b + row_topic[row, own[j]]) / totals[own[j]]
            known += prior[own[j]] * phi
            if j != place:
                total += theta[own[j]] * phi
        others = max(float(background[row]) - known, 0.0)
        others = 0.0 if others < background[row] * ROUNDING else others * growth
        total += others
        if total > 0.0:
            each = counts[pair] * float(steps) / UNIT / total
            for j in range(own.size):
                if j != place:
                    given[j] += each * theta[own[j]] * (b + row_topic[row, own[j]]) / totals[own[j]]
            beyond += each * others
    return beyond


@kernel(I8, I4, I4, I8, U2, I8, U2, F4, F4, F8, F8, F8, F4_2, F4, I8, OUT_F8_2)
def spill(
    offsets: Array,
    position: Array,
    counts: Array,
    lists: Array,
    topic: Array,
    starts: Array,
    share: Array,
    active_count: Array,
    document_rest: Array,
    prior: Array,
    word_prior: Array,
    totals: Array,
    row_topic: Array,
    background: Array,
    number: Array,
    spilt: Array,
) -> None:
    """Add where the tokens of topics would go if they were deleted; twin: `naive.moves.spill`.

    Parameters
    ----------
    offsets, position, counts, lists, topic, starts, share, active_count, document_rest, prior, word_prior, background
        As for `active.sweep_active`.
    totals, row_topic
        As for `judge_merges`.
    number : int64, shape (topics,)
        Which candidate a topic is; -1 for none.
    spilt : float64, shape (candidates, topics)
        Increased by the tokens that go from a candidate to each topic that the documents list beside it.
    """
    all_prior = prior.sum()
    theta, given = np.empty(prior.size), np.empty(prior.size)
    for document in range(offsets.size - 1):
        first, last = lists[document], lists[document + 1]
        own, known, growth = topic[first:last], False, 0.0
        pairs = slice(offsets[document], offsets[document + 1])
        for place in range(own.size):
            candidate = number[own[place]]
            if candidate < 0 or active_count[first + place] <= ZERO:
                continue
            if not known:
                left = _weights(own, active_count[first:last], document_rest[document], prior, all_prior, theta)
                growth = 1.0 + document_rest[document] / left if left > 0.0 else 0.0
                known = True
            rows = prior, word_prior, totals, row_topic, background
            where = own, share, starts[document], place
            _hand_on(position[pairs], counts[pairs], *where, theta, growth, *rows, given)
            for j in range(own.size):
                spilt[candidate, own[j]] += given[j]


@kernel(I8, I4, I4, I4, I8, U2, I8, U2, F4, F4, F8, F8, F8, F4_2, F4, I8, F8_2, OUT_F8, OUT_F8)
def judge_deletes(
    offsets: Array,
    position: Array,
    counts: Array,
    held: Array,
    lists: Array,
    topic: Array,
    starts: Array,
    share: Array,
    active_count: Array,
    document_rest: Array,
    prior: Array,
    word_prior: Array,
    totals: Array,
    row_topic: Array,
    background: Array,
    number: Array,
    spilt: Array,
    gain: Array,
    square: Array,
) -> None:
    """Add what deleting topics gains on held-out tokens; twin: `naive.moves.judge_deletes`.

    A document's tokens of the topic go to the others in proportion to the update without it, which gives theta'. A
    word's go to topic j in proportion to C_j phi_jw, C_j being the tokens that j gets in all, which gives phi'.

    Parameters
    ----------
    offsets, position, counts, lists, topic, starts, share, active_count, document_rest, prior, word_prior, background
        As for `active.sweep_active`.
    held, totals, row_topic
        As for `judge_merges`.
    number : int64, shape (topics,)
        Which candidate a topic is; -1 for none.
    spilt : float64, shape (candidates, topics)
        C, as `spill` adds it up over all documents.
    gain, square : float64, shape (candidates,)
        Increased by sum c delta and sum c delta^2, delta = log(s' / s) of normalised probabilities.
    """
    topics, candidates, all_prior = prior.size, len(spilt), prior.sum()
    theta, each, more = np.empty(topics), np.empty(topics), np.zeros((candidates, topics))
    beyond, weight, target = np.zeros(candidates), np.zeros(candidates), np.empty(candidates, dtype=np.int64)
    for k in range(topics):
        if number[k] >= 0:
            target[number[k]] = k
    heirs, heirs_end = _heirs(target, spilt)
    for document in range(offsets.size - 1):
        first, last = lists[document], lists[document + 1]
        own, known, left, growth, mass = topic[first:last], False, 0.0, 0.0, 0.0
        pairs = slice(offsets[document], offsets[document + 1])
        for pair in range(offsets[document], offsets[document + 1]):
            if held[pair] == 0:
                continue
            if not known:
                left = _weights(own, active_count[first:last], document_rest[document], prior, all_prior, theta)
                growth = 1.0 + document_rest[document] / left if left > 0.0 else 0.0
                mass = theta.sum()
                for c in range(candidates):  # one that is not listed has its prior, and some background
                    weight[c], beyond[c] = theta[target[c]], 0.0
                    for i in range(heirs_end[c]):
                        more[c, heirs[c, i]] = 0.0
                for place in range(own.size):
                    c = number[own[place]]
                    if c >= 0:
                        rows = prior, word_prior, totals, row_topic, background
                        where = own, share, starts[document], place
                        given = each  # to write on
                        beyond[c] = _hand_on(position[pairs], counts[pairs], *where, theta, growth, *rows, given)
                        weight[c] = prior[own[place]]
                        for j in range(own.size):
                            more[c, own[j]] = given[j]
                known = True
            row, b = position[pair], word_prior[position[pair]]
            s = _probabilities(row, b, theta, totals, row_topic, each)
            listed = 0.0
            for j in range(own.size):
                listed += prior[own[j]] * (b + row_topic[row, own[j]]) / totals[own[j]]
            others = max(float(background[row]) - listed, 0.0)
            for c in range(candidates):
                own_heirs = heirs[c, : heirs_end[c]]
                after = s - each[target[c]]
                after += _handed(target[c], row, b, theta, more[c], each, totals, row_topic, spilt[c], own_heirs)
                if left > 0.0:
                    after += beyond[c] / left * others
                delta = log_ratio((after * mass / (mass - weight[c]) - s) / s)
                gain[c] += held[pair] * delta
                square[c] += held[pair] * delta * delta


@helper
def _heirs(gone: Array, spilt: Array) -> Any:
    """Return which topics get tokens of each candidate, and how many these are."""
    heirs, size = np.empty(spilt.shape, dtype=np.int64), np.zeros(gone.size, dtype=np.int64)
    for c in range(gone.size):
        for j in range(spilt.shape[1]):
            if spilt[c, j] > 0.0 and j != gone[c]:
                heirs[c, size[c]] = j
                size[c] += 1
    return heirs, size


@helper
def _handed(
    gone: int,
    row: int,
    b: float,
    theta: Array,
    more: Array,
    each: Array,
    totals: Array,
    row_topic: Array,
    spilt: Array,
    heirs: Array,
) -> float:
    """Return by how much sum_j theta'_j phi'_jw passes sum_j theta_j phi_jw, over those that get a topic's tokens."""
    bottom, result = 0.0, 0.0
    for i in range(heirs.size):
        bottom += spilt[heirs[i]] * (b + row_topic[row, heirs[i]]) / totals[heirs[i]]
    factor = float(row_topic[row, gone]) / bottom if bottom > 0.0 else 0.0
    for i in range(heirs.size):
        j = heirs[i]
        phi = (b + row_topic[row, j]) / totals[j] * (totals[j] + factor * spilt[j]) / (totals[j] + spilt[j])
        result += (theta[j] + more[j]) * phi - each[j]
    return result


@kernel(I8, I8, U2, I8, I8, u8, i8, OUT_U2, OUT_I8)
def move_lists(
    offsets: Array,
    lists: Array,
    topic: Array,
    into: Array,
    split: Array,
    key: int,
    first: int,
    chosen: Array,
    sizes: Array,
) -> None:
    """Give each document the list that moves make of its own; twin: `naive.moves.moved`.

    Parameters
    ----------
    offsets, lists, topic
        As for `active.sweep_active`.
    into : int64, shape (topics,)
        What each topic becomes; -1 for nothing.
    split : int64, shape (topics,)
        What it becomes in about half of the documents, by a hash of their address; -1 for the same.
    key, first : int
        Address of the shard's documents, and the number in it of the first of these.
    chosen : uint16, shape (listed,)
        Filled with the new lists, ascending, each where the old one began.
    sizes : int64, shape (documents,)
        Filled with how many topics each document lists.
    """
    taken = np.zeros(into.size, dtype=np.int64)
    for document in range(offsets.size - 1):
        begin, end = lists[document], lists[document + 1]
        other = _is_other(key, first + document)
        for j in range(begin, end):
            target = _target(topic[j], into, split, other)
            if target >= 0:
                taken[target] = 1
        size = 0
        for k in range(into.size):
            if taken[k]:
                chosen[begin + size] = k
                size += 1
                taken[k] = 0
        sizes[document] = size


@helper
def _is_other(key: Any, document: int) -> Any:
    return mixed(np.uint64(key) + np.uint64(document + 1) * STRIDE) >> np.uint64(63) == np.uint64(1)


@helper
def _target(topic: Any, into: Array, split: Array, other: Any) -> Any:
    k = np.int64(topic)
    return split[k] if other and split[k] >= 0 else into[k]


@kernel(I8, I4, I4, I4, I8, U2, I8, U2, I8, U2, I8, I8, I8, u8, i8, OUT_F4_2, OUT_F8, OUT_U2, OUT_F8, OUT_F8)
def move_shares(
    offsets: Array,
    position: Array,
    counts: Array,
    more: Array,
    lists: Array,
    topic: Array,
    starts: Array,
    share: Array,
    new_lists: Array,
    new_topic: Array,
    new_starts: Array,
    into: Array,
    split: Array,
    key: int,
    first: int,
    row_change: Array,
    rest_change: Array,
    new_share: Array,
    new_active_count: Array,
    new_document_rest: Array,
) -> None:
    """Carry responsibilities over to the lists of `move_lists`, and count tokens that were held out.

    What a deleted topic held falls to the background. Twin: `naive.moves.moved`.

    Parameters
    ----------
    offsets, position, counts, lists, topic, starts, share
        As for `active.sweep_active`; `counts` as they count from now on.
    more : int32, shape (pairs,)
        How many of them did not count before.
    new_lists, new_topic, new_starts
        The new lists and where their responsibilities begin.
    into, split, key, first
        As for `move_lists`.
    row_change, rest_change
        Changed by what moves: float32, shape (rows, topics), and float64, shape (rows,).
    new_share : uint16
        Zero on entry; filled.
    new_active_count, new_document_rest : float64, shape (listed,) and (documents,)
        Zero on entry; filled with E[n_dk] of the new lists and the documents' background tokens.
    """
    place = np.empty(into.size, dtype=np.int64)
    for document in range(offsets.size - 1):
        begin, size, at = lists[document], lists[document + 1] - lists[document], starts[document]
        there, there_size = new_lists[document], new_lists[document + 1] - new_lists[document]
        to, other = new_starts[document], _is_other(key, first + document)
        for j in range(there_size):
            place[new_topic[there + j]] = j
        for pair in range(offsets[document], offsets[document + 1]):
            row, each, had = position[pair], counts[pair] / UNIT, (counts[pair] - more[pair]) / UNIT
            left, kept = np.int64(UNIT), np.int64(UNIT)
            for j in range(size):
                steps, k = np.int64(share[at + j]), np.int64(topic[begin + j])
                target = _target(k, into, split, other)
                left -= steps
                if target >= 0:
                    kept -= steps
                    new_share[to + place[target]] += np.uint16(steps)
                    new_active_count[there + place[target]] += each * steps
                if target == k:
                    row_change[row, k] += np.float32((each - had) * steps)
                elif steps:
                    row_change[row, k] -= np.float32(had * steps)
                    if target >= 0:
                        row_change[row, target] += np.float32(each * steps)
            rest_change[row] += each * kept - had * left
            new_document_rest[document] += each * kept
            at += size
            to += there_size


@kernel(F4_2, f8, OUT_F8_2)
def gram(row_topic: Array, least: float, products: Array) -> None:
    """Add the products of columns, of cells that are not next to nothing; twin: `naive.moves.gram`.

    Parameters
    ----------
    row_topic : float32, shape (words, topics)
        E[n_kw].
    least : float
        Cells that do not pass it count as nothing: most words occur in few topics.
    products : float64, shape (topics, topics)
        Increased by sum_w E[n_kw] E[n_lw], for k up to l only.
    """
    topics = row_topic.shape[1]
    place, value = np.empty(topics, dtype=np.int64), np.empty(topics)
    for word in range(len(row_topic)):
        size = 0
        for k in range(topics):
            if row_topic[word, k] > least:
                place[size], value[size] = k, row_topic[word, k]
                size += 1
        for i in range(size):
            for j in range(i, size):
                products[place[i], place[j]] += value[i] * value[j]
