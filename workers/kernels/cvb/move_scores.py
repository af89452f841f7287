"""Judging moves of topics: what merging two or deleting one gains on tokens that take no part in the counts.

s = sum_k theta_k phi_kw, with theta_k = a_k + E[n_dk] and phi_kw = (b_w + E[n_kw]) / (B + E[n_k]), is the probability
of such a token's word, but for a factor, and what the move does to its logarithm is what it gains.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.cvb.active import NONE, ROUNDING, UNIT, ZERO
from collapsium.workers.kernels.jit import F4, F4_2, F8, F8_2, I4, I8, OUT_F8, OUT_F8_2, U2, f8, helper, kernel

Array = npt.NDArray[Any]

SMALL = 0.01  # up to here, the logarithm of 1 + x is a series


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


@kernel(I8, I4, I4, I8, U2, F4, F4, F8, F8, F8, F4_2, f8, I8, I8, OUT_F8, OUT_F8, OUT_F8)
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
    score: Array,
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
    score : float64, shape (2,)
        Increased by sum c log p, p being the probability of a held-out token's word as things are, and sum c.
    """
    all_prior, mass = prior.sum(), 0.0
    theta, each = np.empty(prior.size), np.empty(prior.size)
    for document in range(offsets.size - 1):
        first, last = lists[document], lists[document + 1]
        known = False
        for pair in range(offsets[document], offsets[document + 1]):
            if held[pair] == 0:
                continue
            if not known:
                _weights(topic[first:last], active_count[first:last], document_rest[document], prior, all_prior, theta)
                known, mass = True, theta.sum()
            row, b = position[pair], word_prior[position[pair]]
            s = _probabilities(row, b, theta, totals, row_topic, each)
            score[0] += held[pair] * np.log(s / mass)
            score[1] += held[pair]
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
    offsets, position, counts, lists, topic, starts, share, active_count, document_rest, prior, word_prior
        As for `active.sweep_active`.
    totals, row_topic
        As for `judge_merges`.
    background
        As for `active.sweep_active`.
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
    offsets, position, counts
        As for `active.sweep_active`.
    held
        As for `judge_merges`.
    lists, topic, starts, share, active_count, document_rest, prior, word_prior
        As for `active.sweep_active`.
    totals, row_topic
        As for `judge_merges`.
    background
        As for `active.sweep_active`.
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
