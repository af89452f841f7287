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
from collapsium.workers.kernels.cvb.merge_scores import fill_probabilities, fill_proportions, log_ratio
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, Priors, TopicCounts
from collapsium.workers.kernels.jit import borrower, helper, kernel
from collapsium.workers.kernels.records import DocumentPairs, token_weight


class Deletions(NamedTuple):
    """Topics that may be deleted, and their gains.

    Attributes
    ----------
    candidate : int64, shape (topics,)
        Index of each topic among the candidates; -1 for none.
    reassigned : float64, shape (candidates, topics)
        C, as `reassign` sums it over all documents.
    gain, square : float64, shape (candidates,)
        Increased by sum c delta and sum c delta^2 over held-out tokens, delta being log(s' / s) of normalised
        probabilities.
    """

    candidate: Int64Vector
    reassigned: Float64Matrix
    gain: OutFloat64Vector
    square: OutFloat64Vector


class _Documents(NamedTuple):
    """Documents with their responsibilities.

    Attributes
    ----------
    pairs, active, state : DocumentPairs, ActiveTopics, ActiveState
        As the kernels take them.
    """

    pairs: DocumentPairs
    active: ActiveTopics
    state: ActiveState


class _Model(NamedTuple):
    """Topics and their priors.

    Attributes
    ----------
    priors, topics : Priors, TopicCounts
        As the kernels take them.
    background_weight : numpy.ndarray of float32, shape (rows,)
        S_w.
    """

    priors: Priors
    topics: TopicCounts
    background_weight: Array


class _Recipients(NamedTuple):
    """Topics that get tokens of deleted topics.

    Attributes
    ----------
    deleted : numpy.ndarray of int64, shape (candidates,)
        The topic of each candidate.
    topics : numpy.ndarray of int64, shape (candidates, topics)
        Its recipients, the first `sizes`.
    sizes : numpy.ndarray of int64, shape (candidates,)
        Their number.
    more : numpy.ndarray of float64, shape (candidates, topics)
        Tokens of the document at hand that each gets.
    """

    deleted: Array
    topics: Array
    sizes: Array
    more: Array


@borrower
def _reassign(
    documents: _Documents, document: int, place: int, model: _Model, theta: Array, growth: float, tokens: Array
) -> float:
    """Fill the tokens that the other active topics of a document get of one; return those that its background gets.

    Each pair's go in proportion to theta_j phi_jw; `growth` is 1 + E[n_d,rest] / a_rest; 0 with no background.
    """
    position, counts = documents.pairs.position, documents.pairs.counts
    topic, responsibilities = documents.active.topics, documents.state.responsibilities
    prior, word_prior, row_topic, totals = (
        model.priors.topics,
        model.priors.words,
        model.topics.rows,
        model.topics.totals,
    )
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
            phi = (b + row_topic[row, topic[begin + j]]) / totals[topic[begin + j]]
            known += prior[topic[begin + j]] * phi
            if j != place:
                total += theta[topic[begin + j]] * phi
        others = max(float(model.background_weight[row]) - known, 0.0)
        others = 0.0 if others < model.background_weight[row] * ROUNDING else others * growth
        total += others
        if total > 0.0:
            each = counts[pair] * token_weight(documents.pairs.weights, pair) * float(steps) / UNIT / total
            for j in range(size):
                k = topic[begin + j]
                if j != place:
                    tokens[j] += each * theta[k] * (b + row_topic[row, k]) / totals[k]
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

    Parameters
    ----------
    pairs, active, state, priors, topics
        As for `merge_scores.score_merges`.
    background_weight : float32, shape (rows,)
        S_w.
    candidate : int64, shape (topics,)
        Index of each topic among the candidates; -1 for none.
    reassigned : float64, shape (candidates, topics)
        Increased by the tokens that go from a candidate to each topic that is active beside it.
    """
    prior, active_offsets, active_topics = priors.topics, active.offsets, active.topics
    active_counts, background = state.counts, state.background
    documents, model = _Documents(pairs, active, state), _Model(priors, topics, background_weight)
    all_prior = prior.sum()
    theta, tokens = np.empty(prior.size), np.empty(prior.size)
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

    Parameters
    ----------
    pairs, held_out, active, state, priors, topics
        As for `merge_scores.score_merges`.
    background_weight : float32, shape (rows,)
        S_w.
    deletions : Deletions
        Candidates, whose gains are increased.
    """
    offsets, position, active_offsets, active_topics = pairs.offsets, pairs.position, active.offsets, active.topics
    prior, word_prior, row_topic, totals = priors.topics, priors.words, topics.rows, topics.totals
    active_counts, background = state.counts, state.background
    candidate, reassigned, gain, square = deletions
    documents, model = _Documents(pairs, active, state), _Model(priors, topics, background_weight)
    candidates, all_prior = len(reassigned), prior.sum()
    theta, each, beyond, weight = np.empty(prior.size), np.empty(prior.size), np.zeros(candidates), np.zeros(candidates)
    recipients = _recipients(candidate, reassigned)
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
                _clear(recipients, theta, weight, beyond)
                for place in range(own.size):
                    c = candidate[own[place]]
                    if c >= 0:
                        tokens = each  # to write on
                        beyond[c] = _reassign(documents, document, place, model, theta, growth, tokens)
                        weight[c] = prior[own[place]]
                        for j in range(own.size):
                            more[c, own[j]] = tokens[j]
                known = True
            row, b = position[pair], word_prior[position[pair]]
            s = fill_probabilities(row, b, theta, totals, row_topic, each)
            active_weight = 0.0
            for j in range(own.size):
                active_weight += prior[own[j]] * (b + row_topic[row, own[j]]) / totals[own[j]]
            others = max(float(background_weight[row]) - active_weight, 0.0)
            for c in range(candidates):
                after = s - each[deleted[c]]
                after += _recipients_gain(c, row, b, theta, each, recipients, topics, reassigned)
                if left > 0.0:
                    after += beyond[c] / left * others
                delta = log_ratio((after * mass / (mass - weight[c]) - s) / s)
                gain[c] += held_out[pair] * delta
                square[c] += held_out[pair] * delta * delta


@helper
def _recipients(candidate: Array, reassigned: Array) -> Number:
    """Return the topics that get tokens of each candidate."""
    candidates, topics = reassigned.shape
    deleted = np.empty(candidates, dtype=np.int64)
    for k in range(topics):
        if candidate[k] >= 0:
            deleted[candidate[k]] = k
    recipients, sizes = np.empty(reassigned.shape, dtype=np.int64), np.zeros(candidates, dtype=np.int64)
    for c in range(candidates):
        for j in range(topics):
            if reassigned[c, j] > 0.0 and j != deleted[c]:
                recipients[c, sizes[c]] = j
                sizes[c] += 1
    return _Recipients(deleted, recipients, sizes, np.zeros((candidates, topics)))


@borrower
def _clear(recipients: _Recipients, theta: Array, weight: Array, beyond: Array) -> None:
    """Set candidates to their prior and share of the background, as where they are inactive."""
    for c in range(weight.size):
        weight[c], beyond[c] = theta[recipients.deleted[c]], 0.0
        for i in range(recipients.sizes[c]):
            recipients.more[c, recipients.topics[c, i]] = 0.0


@borrower
def _recipients_gain(
    candidate: int,
    row: int,
    b: float,
    theta: Array,
    each: Array,
    recipients: _Recipients,
    topics: TopicCounts,
    reassigned: Array,
) -> float:
    """Return by how much sum_j theta'_j phi'_jw exceeds sum_j theta_j phi_jw, over the recipients of a topic."""
    totals, row_topic = topics.totals, topics.rows
    bottom, result = 0.0, 0.0
    for i in range(recipients.sizes[candidate]):
        j = recipients.topics[candidate, i]
        bottom += reassigned[candidate, j] * (b + row_topic[row, j]) / totals[j]
    factor = float(row_topic[row, recipients.deleted[candidate]]) / bottom if bottom > 0.0 else 0.0
    for i in range(recipients.sizes[candidate]):
        j = recipients.topics[candidate, i]
        tokens = reassigned[candidate, j]
        phi = (b + row_topic[row, j]) / totals[j] * (totals[j] + factor * tokens) / (totals[j] + tokens)
        result += (theta[j] + recipients.more[candidate, j]) * phi - each[j]
    return result
