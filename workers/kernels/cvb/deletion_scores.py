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

# Pairs of a document that say where its tokens would go, at least, and fewer than twice as many: evenly spaced ones of
# longer documents. With all of 5,000 pairs, a round of moves took as long as 20 to 30 sweeps.
SAMPLED_PAIRS = 128


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


class _Leaving(NamedTuple):
    """Tokens of candidates that are active in the document at hand."""

    candidate: Array  # Index of each topic among the candidates; -1 for none; int64 (topics,)
    places: Array  # Places of the candidates among the document's active topics; int64 (candidates + 1,)
    tokens: Array  # Tokens that each active topic gets of each of them; float64 (candidates, topics)
    beyond: Array  # Tokens that the background gets of each of them; float64 (candidates,)
    number: Array  # Number of these candidates; int64 (1,)


class _Recipients(NamedTuple):
    """Topics that get tokens of deleted topics; the numbers of a topic's candidates are adjacent."""

    deleted: Array  # The topic of each candidate; int64 (candidates,)
    given: Array  # C, 0 for the topic itself; float64 (topics, candidates)
    # (B + E[n_j]) / (B + E[n_j] + C_j), and C_j / (B + E[n_j] + C_j); float64 (topics, candidates)
    retained: Array
    gained: Array
    more: Array  # Tokens of the current document that each receives; float64 (topics, candidates)
    factor: Array  # Tokens of a word in each candidate, per sum_j C_j phi_jw; float64 (candidates,)
    sums: Array  # Result of `_fill_gains`; float64 (candidates,)


@borrower
def _reassign(
    documents: _Documents, document: int, model: _Model, theta: Array, growth: float, leaving: _Leaving
) -> None:
    """Fill the tokens that other active topics of a document, and its background, get of each candidate.

    Each pair's go in proportion to theta_j phi_jw; `growth` is 1 + E[n_d,rest] / a_rest; 0 with no background. Some of
    the pairs of a long document stand for all.
    """
    position, counts = documents.pairs.position, documents.pairs.counts
    topic, responsibilities = documents.active.topics, documents.state.responsibilities
    prior, word_prior, row_topic = model.priors.topics, model.priors.words, model.topics.rows
    inverse, weights = model.inverse, model.weights
    places, tokens, beyond = leaving.places, leaving.tokens, leaving.beyond
    begin = documents.active.offsets[document]
    size = documents.active.offsets[document + 1] - begin
    first, last = documents.pairs.offsets[document], documents.pairs.offsets[document + 1]
    stride = max((last - first) // SAMPLED_PAIRS, 1)
    candidates = _find_candidates(documents, begin, size, leaving)
    if candidates == 0:
        return
    for pair in range(first + (last - first) % stride, last, stride):
        at, known, begun = documents.state.starts[document] + (pair - first) * size, 0.0, False
        row, others = position[pair], 0.0
        for c in range(candidates):
            steps = responsibilities[at + places[c]]
            if steps == 0:
                continue
            if not begun:
                b, begun = word_prior[row], True
                for j in range(size):
                    k = topic[begin + j]
                    phi = (b + row_topic[row, k]) * inverse[k]
                    known += prior[k] * phi
                    weights[j] = theta[k] * phi
                others = max(float(model.background_weight[row]) - known, 0.0)
                others = 0.0 if others < model.background_weight[row] * ROUNDING else others * growth
            # Its own weight is left out of the sum, and not taken off it: the others may weigh too little beside it.
            total = others
            for j in range(places[c]):
                total += weights[j]
            for j in range(places[c] + 1, size):
                total += weights[j]
            if total > 0.0:
                each = counts[pair] * token_weight(documents.pairs.weights, pair) * float(steps) / UNIT / total
                for j in range(size):
                    tokens[c, j] += each * weights[j]
                beyond[c] += each * others
    for c in range(candidates):
        tokens[c, places[c]] = 0.0
        if stride > 1:
            _scale(c, size, documents.state.counts[begin + places[c]], leaving)


@borrower
def _find_candidates(documents: _Documents, begin: int, size: int, leaving: _Leaving) -> int:
    """Fill the places of the candidates that have tokens in a document, and zeros for them; return their number."""
    candidates = 0
    for place in range(size):
        topic = documents.active.topics[begin + place]
        if leaving.candidate[topic] >= 0 and documents.state.counts[begin + place] > ZERO:
            leaving.places[candidates] = place
            leaving.beyond[candidates] = 0.0
            for j in range(size):
                leaving.tokens[candidates, j] = 0.0
            candidates += 1
    leaving.number[0] = candidates
    return candidates


@borrower
def _scale(c: int, size: int, count: float, leaving: _Leaving) -> None:
    """Scale the tokens of a candidate, from some pairs of a document, to its count in all of the document."""
    sampled = leaving.beyond[c]
    for j in range(size):
        sampled += leaving.tokens[c, j]
    scale = count / sampled if sampled > 0.0 else 0.0
    leaving.beyond[c] *= scale
    for j in range(size):
        leaving.tokens[c, j] *= scale


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
    numbers, all_prior = np.empty((2, prior.size)), prior.sum()
    theta, inverse = numbers[0], 1.0 / topics.totals
    documents = _Documents(pairs, active, state)
    model = _Model(priors, topics, background_weight, inverse, numbers[1])
    leaving = _leaving(candidate, len(reassigned))
    for document in range(pairs.offsets.size - 1):
        first, last = active_offsets[document], active_offsets[document + 1]
        own, rest = active_topics[first:last], state.background[document]
        left = fill_proportions(own, state.counts[first:last], rest, prior, all_prior, theta)
        _reassign(documents, document, model, theta, 1.0 + rest / left if left > 0.0 else 0.0, leaving)
        for c in range(leaving.number[0]):
            number = candidate[own[leaving.places[c]]]
            for j in range(own.size):
                reassigned[number, own[j]] += leaving.tokens[c, j]


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
    candidate, reassigned, gain, square = deletions
    candidates, all_prior, numbers = len(reassigned), prior.sum(), np.empty((3, prior.size))
    theta, phi, inverse = numbers[0], numbers[1], 1.0 / topics.totals
    documents = _Documents(pairs, active, state)
    model = _Model(priors, topics, background_weight, inverse, numbers[2])
    beyond, weight = np.zeros(candidates), np.zeros(candidates)
    recipients, leaving = _recipients(candidate, reassigned, topics.totals), _leaving(candidate, candidates)
    deleted, more, after = recipients.deleted, recipients.more, recipients.sums
    for document in range(offsets.size - 1):
        first, last = active_offsets[document], active_offsets[document + 1]
        own, known, left, mass = active_topics[first:last], False, 0.0, 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            if held_out[pair] == 0:
                continue
            if not known:
                rest = state.background[document]
                left = fill_proportions(own, state.counts[first:last], rest, prior, all_prior, theta)
                mass = theta.sum()
                _reassign(documents, document, model, theta, 1.0 + rest / left if left > 0.0 else 0.0, leaving)
                more[:] = 0.0
                for c in range(candidates):
                    # Where a candidate is inactive, it has its prior and share of the background.
                    weight[c], beyond[c] = theta[deleted[c]], 0.0
                for n in range(leaving.number[0]):
                    k = own[leaving.places[n]]
                    c = candidate[k]
                    beyond[c], weight[c] = leaving.beyond[n], prior[k]
                    for j in range(own.size):
                        more[own[j], c] = leaving.tokens[n, j]
                known = True
            row, b = position[pair], word_prior[position[pair]]
            s, active_weight = 0.0, 0.0
            for k in range(phi.size):
                phi[k] = (b + row_topic[row, k]) * inverse[k]
                s += theta[k] * phi[k]
            for j in range(own.size):
                active_weight += prior[own[j]] * phi[own[j]]
            others = max(float(background_weight[row]) - active_weight, 0.0)
            _fill_gains(row_topic, row, theta, phi, recipients)
            for c in range(candidates):
                changed = s - theta[deleted[c]] * phi[deleted[c]] + after[c]
                if left > 0.0:
                    changed += beyond[c] / left * others
                delta = log_ratio((changed * mass / (mass - weight[c]) - s) / s)
                gain[c] += held_out[pair] * delta
                square[c] += held_out[pair] * delta * delta


@helper
def _leaving(candidate: Array, candidates: int) -> Number:
    """Return room for the tokens of candidates in a document."""
    places, number = np.zeros(candidates + 1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    return _Leaving(candidate, places, np.zeros((candidates, candidate.size)), np.zeros(candidates), number)


@helper
def _recipients(candidate: Array, reassigned: Array, totals: Array) -> Number:
    """Return the topics that get tokens of each candidate."""
    candidates, topics = reassigned.shape
    deleted, given, more = (
        np.empty(candidates, dtype=np.int64),
        np.empty((topics, candidates)),
        np.zeros((topics, candidates)),
    )
    retained, gained = np.empty((topics, candidates)), np.empty((topics, candidates))
    for k in range(topics):
        if candidate[k] >= 0:
            deleted[candidate[k]] = k
    for c in range(candidates):
        for k in range(topics):
            given[k, c] = 0.0 if k == deleted[c] else reassigned[c, k]
            retained[k, c] = totals[k] / (totals[k] + given[k, c])
            gained[k, c] = given[k, c] / (totals[k] + given[k, c])
    return _Recipients(deleted, given, retained, gained, more, np.zeros(candidates), np.zeros(candidates))


@borrower
def _fill_gains(row_topic: Array, row: int, theta: Array, phi: Array, recipients: _Recipients) -> None:
    """Fill by how much sum_j theta'_j phi'_jw exceeds sum_j theta_j phi_jw, over the recipients of each candidate.

    The loops over candidates are the inner ones, as the numbers of candidates are adjacent.
    """
    given, retained, gained, more = recipients.given, recipients.retained, recipients.gained, recipients.more
    factor, sums = recipients.factor, recipients.sums
    for c in range(sums.size):
        factor[c], sums[c] = 0.0, 0.0
    for k in range(phi.size):
        for c in range(sums.size):
            factor[c] += given[k, c] * phi[k]
    for c in range(sums.size):
        count = float(row_topic[row, recipients.deleted[c]])
        factor[c] = count / factor[c] if factor[c] > 0.0 else 0.0
    for k in range(phi.size):
        for c in range(sums.size):
            share = retained[k, c] + factor[c] * gained[k, c]
            sums[c] += phi[k] * ((theta[k] + more[k, c]) * share - theta[k])
