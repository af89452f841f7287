"""Scores of merging two topics: gains on held-out tokens.

s = sum_k theta_k phi_kw, with theta_k = a_k + E[n_dk] and phi_kw = (b_w + E[n_kw]) / (B + E[n_k]), is the probability
of a held-out token's word, but for a factor. A move's gain is the change of its logarithm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Array,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    Number,
    OutFloat64Matrix,
    OutFloat64Vector,
)
from collapsium.workers.kernels.cvb.active import MIN_INACTIVE_PRIOR
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, Priors, TopicCounts
from collapsium.workers.kernels.jit import helper, kernel
from collapsium.workers.kernels.records import DocumentPairs

SMALL = 0.01  # up to here, the logarithm of 1 + x is a series


class Merges(NamedTuple):
    """Pairs of topics that may merge, and their gains."""

    # Topics k and l of each candidate; (candidates,)
    retained: Int64Vector
    merged: Int64Vector
    # With weights of words, (B + plain tokens) / (B + E[n_k]) of each topic; empty without; (topics,)
    plain_ratio: Float64Vector
    # Increased by sum c delta and sum c delta^2 over held-out tokens, delta being the gain of one; (candidates,)
    gain: OutFloat64Vector
    square: OutFloat64Vector


@helper
def log_ratio(x: float) -> Number:
    """Return log(1 + x), of small x by a series; 1 + x below a thousandth counts as a thousandth."""
    if -SMALL < x < SMALL:
        return x * (1.0 - x * (0.5 - x * (1.0 / 3.0 - 0.25 * x)))
    return np.log(1.0 + max(x, -0.999))


@helper
def fill_proportions(own: Array, count: Array, rest: float, prior: Array, all_prior: float, theta: Array) -> float:
    """Fill theta of a document for all topics; return the prior of its inactive topics, 0 for next to none."""
    left = all_prior
    for j in range(own.size):
        left -= prior[own[j]]
    if own.size == prior.size or left <= MIN_INACTIVE_PRIOR * all_prior:
        left = 0.0
    growth = float(rest) / left if left > 0.0 else 0.0
    for k in range(prior.size):
        theta[k] = prior[k] * (1.0 + growth)
    for j in range(own.size):
        theta[own[j]] = prior[own[j]] + float(count[j])
    return left


@helper
def fill_probabilities(row: int, b: float, theta: Array, totals: Array, row_topic: Array, each: Array) -> float:
    """Fill theta_k phi_kw of all topics, and return their sum."""
    s = 0.0
    for k in range(theta.size):
        each[k] = theta[k] * (b + row_topic[row, k]) / totals[k]
        s += each[k]
    return s


@kernel
def score_merges(
    pairs: DocumentPairs,
    held_out: Int32Vector,
    active: ActiveTopics,
    state: ActiveState,
    priors: Priors,
    topics: TopicCounts,
    merges: Merges,
    score: OutFloat64Matrix,
) -> None:
    """Add the gains of merging pairs of topics on held-out tokens; twin: `naive.topic_moves.score_merges`.

    With theta and phi of the two as one, log(1 + (theta phi - theta_k phi_k - theta_l phi_l) / s). B counts once in the
    topic that two become, as b_w does.

    Shapes: `held_out` (pairs,); `score` (2, groups).
    """
    offsets, position, active_offsets, active_topics = pairs.offsets, pairs.position, active.offsets, active.topics
    prior, word_prior, row_topic, totals = priors.topics, priors.words, topics.rows, topics.totals
    retained, merged, gain, square = merges.retained, merges.merged, merges.gain, merges.square
    active_counts, background = state.counts, state.background
    all_prior, mass = prior.sum(), 0.0
    theta, each = np.empty(prior.size), np.empty(prior.size)
    for document in range(offsets.size - 1):
        first, last = active_offsets[document], active_offsets[document + 1]
        known, group = False, document % score.shape[1]
        for pair in range(offsets[document], offsets[document + 1]):
            if held_out[pair] == 0:
                continue
            if not known:
                own, count = active_topics[first:last], active_counts[first:last]
                if priors.own_place.size:
                    a = priors.own[priors.own_place[document]]
                    fill_proportions(own, count, background[document], a, a.sum(), theta)
                else:
                    fill_proportions(own, count, background[document], prior, all_prior, theta)
                known, mass = True, theta.sum()
                if merges.plain_ratio.size:
                    mass = 0.0
                    for k in range(theta.size):
                        mass += theta[k] * merges.plain_ratio[k]
            row, b = position[pair], word_prior[position[pair]]
            s = fill_probabilities(row, b, theta, totals, row_topic, each)
            score[0, group] += held_out[pair] * np.log(s / mass)
            score[1, group] += held_out[pair]
            for p in range(retained.size):
                k, m = retained[p], merged[p]
                both = (theta[k] + theta[m]) * (b + row_topic[row, k] + row_topic[row, m])
                both /= totals[k] + totals[m] - priors.words_total
                delta = log_ratio((both - each[k] - each[m]) / s)
                gain[p] += held_out[pair] * delta
                square[p] += held_out[pair] * delta * delta
