"""Scores of deleting topics: where their tokens would go, and gains on held-out tokens.

`merge_scores` defines the gain of a move.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Array,
    Float32Vector,
    Float64Matrix,
    Int32Vector,
    Int64Vector,
    Number,
    OutFloat64Matrix,
    OutFloat64Vector,
)
from collapsium.workers.kernels.cvb.active import ROUNDING, UNIT, ZERO
from collapsium.workers.kernels.cvb.merge_scores import fill_proportions, log_ratio
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, Priors, TopicCounts
from collapsium.workers.kernels.jit import borrower, helper, kernel
from collapsium.workers.kernels.records import DocumentPairs, token_weight


class Deletions(NamedTuple):
    """Topics that may be deleted, and their gains."""

    candidate: Int64Vector  # Index of each topic among the candidates; -1 for none; (topics,)
    reassigned: Float64Matrix  # C, as `reassign` sums it over all documents; (candidates, topics)
    # Increased by sum c delta and sum c delta^2 over held-out tokens, delta being log(s' / s) of normalised
    # probabilities; (candidates,)
    gain: OutFloat64Vector
    square: OutFloat64Vector


class _Documents(NamedTuple):
    """Documents with their responsibilities."""

    # As the kernels take them
    pairs: DocumentPairs
    active: ActiveTopics
    state: ActiveState


class _Model(NamedTuple):
    """Topics and their priors."""

    # As the kernels take them
    priors: Priors
    topics: TopicCounts
    background_weight: Array  # S_w; float32 (rows,)
    inverse: Array  # 1 / (B + E[n_k]); float64 (topics,)
    weights: Array  # For the weights of a pair; float64 (topics,)


class _Recipients(NamedTuple):
    """Topics that get tokens of deleted topics."""

    deleted: Array  # The topic of each candidate; int64 (candidates,)
    given: Array  # C, 0 for the topic itself; float64 (candidates, topics)
    # (B + E[n_j]) / (B + E[n_j] + C_j), and C_j / (B + E[n_j] + C_j); float64 (candidates, topics)
    retained: Array
    gained: Array
    more: Array  # Tokens of the document at hand that each gets; float64 (candidates, topics)


@borrower
def _reassign(
    documents: _Documents, document: int, place: int, model: _Model, theta: Array, growth: float, tokens: Array
) -> float:
    """Fill the tokens that the other active topics of a document get of one; return those that its background gets.

    Each pair's go in proportion to theta_j phi_jw; `growth` is 1 + E[n_d,rest] / a_rest; 0 with no background.
    """
    position, counts = documents.pairs.position, documents.pairs.counts
    topic, responsibilities = documents.active.topics, documents.state.responsibilities
    prior, word_prior, row_topic = model.priors.topics, model.priors.words, model.topics.rows
    inverse, weights = model.inverse, model.weights
    begin, at = documents.active.offsets[document], documents.state.starts[document]
    size = documents.active.offsets[document + 1] - begin
    tokens[:size] = 0.0
    beyond = 0.0
    for pair in range(documents.pairs.offsets[document], documents.pairs.offsets[document + 1]):
        steps = responsibilities[at + place]
        at += size
        if steps == 0:
            continue
        row, b = position[pair], word_prior[position[pair]]
        total, known = 0.0, 0.0
        for j in range(size):
            k = topic[begin + j]
            phi = (b + row_topic[row, k]) * inverse[k]
            known += prior[k] * phi
            # Left out of the sum, and not taken off it: the others may weigh too little beside it.
            weights[j] = theta[k] * phi if j != place else 0.0
            total += weights[j]
        others = max(float(model.background_weight[row]) - known, 0.0)
        others = 0.0 if others < model.background_weight[row] * ROUNDING else others * growth
        total += others
        if total > 0.0:
            each = counts[pair] * token_weight(documents.pairs.weights, pair) * float(steps) / UNIT / total
            for j in range(size):
                tokens[j] += each * weights[j]
            beyond += each * others
    return beyond


@kernel
def reassign(
    pairs: DocumentPairs,
    active: ActiveTopics,
    state: ActiveState,
    priors: Priors,
    topics: TopicCounts,
    background_weight: Float32Vector,
    candidate: Int64Vector,
    reassigned: OutFloat64Matrix,
) -> None:
    """Add the tokens that other topics would get if topics were deleted; twin: `naive.topic_moves.reassign`.

    Shapes: `background_weight` (rows,); `candidate` (topics,); `reassigned` (candidates, topics).
    """
    prior, active_offsets, active_topics = priors.topics, active.offsets, active.topics
    active_counts, background = state.counts, state.background
    numbers, all_prior = np.empty((3, prior.size)), prior.sum()
    theta, tokens, inverse = numbers[0], numbers[1], 1.0 / topics.totals
    documents = _Documents(pairs, active, state)
    model = _Model(priors, topics, background_weight, inverse, numbers[2])
    for document in range(pairs.offsets.size - 1):
        first, last = active_offsets[document], active_offsets[document + 1]
        own, known, growth = active_topics[first:last], False, 0.0
        for place in range(own.size):
            number = candidate[own[place]]
            if number < 0 or active_counts[first + place] <= ZERO:
                continue
            if not known:
                left = fill_proportions(own, active_counts[first:last], background[document], prior, all_prior, theta)
                growth = 1.0 + background[document] / left if left > 0.0 else 0.0
                known = True
            _reassign(documents, document, place, model, theta, growth, tokens)
            for j in range(own.size):
                reassigned[number, own[j]] += tokens[j]


@kernel
def score_deletions(
    pairs: DocumentPairs,
    held_out: Int32Vector,
    active: ActiveTopics,
    state: ActiveState,
    priors: Priors,
    topics: TopicCounts,
    background_weight: Float32Vector,
    deletions: Deletions,
) -> None:
    """Add the gains of deleting topics on held-out tokens; twin: `naive.topic_moves.score_deletions`.

    A document's tokens of the topic go to the others in proportion to the update without it, which gives theta'. A
    word's go to topic j in proportion to C_j phi_jw, C_j being the tokens that j gets in all, which gives phi'.

    Shapes: `background_weight` (rows,).
    """
    offsets, position, active_offsets, active_topics = pairs.offsets, pairs.position, active.offsets, active.topics
    prior, word_prior, row_topic = priors.topics, priors.words, topics.rows
    active_counts, background = state.counts, state.background
    candidate, reassigned, gain, square = deletions
    candidates, all_prior, numbers = len(reassigned), prior.sum(), np.empty((4, prior.size))
    theta, phi, tokens, inverse = numbers[0], numbers[1], numbers[2], 1.0 / topics.totals
    documents = _Documents(pairs, active, state)
    model = _Model(priors, topics, background_weight, inverse, numbers[3])
    beyond, weight = np.zeros(candidates), np.zeros(candidates)
    recipients = _recipients(candidate, reassigned, topics.totals)
    deleted, more = recipients.deleted, recipients.more
    for document in range(offsets.size - 1):
        first, last = active_offsets[document], active_offsets[document + 1]
        own, known, left, growth, mass = active_topics[first:last], False, 0.0, 0.0, 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            if held_out[pair] == 0:
                continue
            if not known:
                left = fill_proportions(own, active_counts[first:last], background[document], prior, all_prior, theta)
                growth = 1.0 + background[document] / left if left > 0.0 else 0.0
                mass = theta.sum()
                more[:] = 0.0
                for c in range(candidates):
                    # Where a candidate is inactive, it has its prior and share of the background.
                    weight[c], beyond[c] = theta[deleted[c]], 0.0
                for place in range(own.size):
                    c = candidate[own[place]]
                    if c >= 0:
                        beyond[c] = _reassign(documents, document, place, model, theta, growth, tokens)
                        weight[c] = prior[own[place]]
                        for j in range(own.size):
                            more[c, own[j]] = tokens[j]
                known = True
            row, b = position[pair], word_prior[position[pair]]
            s, active_weight = 0.0, 0.0
            for k in range(phi.size):
                phi[k] = (b + row_topic[row, k]) * inverse[k]
                s += theta[k] * phi[k]
            for j in range(own.size):
                active_weight += prior[own[j]] * phi[own[j]]
            others = max(float(background_weight[row]) - active_weight, 0.0)
            for c in range(candidates):
                after = s - theta[deleted[c]] * phi[deleted[c]]
                after += _recipients_gain(c, float(row_topic[row, deleted[c]]), theta, phi, recipients)
                if left > 0.0:
                    after += beyond[c] / left * others
                delta = log_ratio((after * mass / (mass - weight[c]) - s) / s)
                gain[c] += held_out[pair] * delta
                square[c] += held_out[pair] * delta * delta


@helper
def _recipients(candidate: Array, reassigned: Array, totals: Array) -> Number:
    """Return the topics that get tokens of each candidate."""
    candidates, topics = reassigned.shape
    deleted, given, more = np.empty(candidates, dtype=np.int64), reassigned.copy(), np.zeros((candidates, topics))
    retained, gained = np.empty((candidates, topics)), np.empty((candidates, topics))
    for k in range(topics):
        if candidate[k] >= 0:
            deleted[candidate[k]] = k
            given[candidate[k], k] = 0.0
    for c in range(candidates):
        for k in range(topics):
            retained[c, k] = totals[k] / (totals[k] + given[c, k])
            gained[c, k] = given[c, k] / (totals[k] + given[c, k])
    return _Recipients(deleted, given, retained, gained, more)


@borrower
def _recipients_gain(candidate: int, count: float, theta: Array, phi: Array, recipients: _Recipients) -> float:
    """Return by how much sum_j theta'_j phi'_jw exceeds sum_j theta_j phi_jw, over the recipients of a topic.

    Its count is the number of the word's tokens, which go to them.
    """
    given, retained, gained, more = recipients.given, recipients.retained, recipients.gained, recipients.more
    bottom, result = 0.0, 0.0
    for k in range(phi.size):
        bottom += given[candidate, k] * phi[k]
    factor = count / bottom if bottom > 0.0 else 0.0
    for k in range(phi.size):
        share = retained[candidate, k] + factor * gained[candidate, k]
        result += phi[k] * ((theta[k] + more[candidate, k]) * share - theta[k])
    return result
