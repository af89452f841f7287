"""Moves of topics between sweeps: held-out tokens, products of columns, gains of merges and deletes, new active topics.

s = sum_k theta_k phi_kw, with theta_k = a_k + E[n_dk] and phi_kw = (b_w + E[n_kw]) / (B + E[n_k]), is the probability
of a held-out token's word, but for a factor. The gain of a move is the change of its logarithm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.cvb.active import MIN_INACTIVE_PRIOR, ROUNDING, UNIT, ZERO
from collapsium.workers.kernels.cvb.active_selection import add_tokens
from collapsium.workers.kernels.cvb.records import (
    ActiveState,
    ActiveTopics,
    NewActiveState,
    Priors,
    RunningCounts,
    TopicCounts,
)
from collapsium.workers.kernels.jit import (
    Array,
    DocumentPairs,
    Float32Matrix,
    Float32Vector,
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    Number,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt32Vector,
    OutInt64Vector,
    OutUInt16Vector,
    borrower,
    helper,
    kernel,
    token_weight,
)
from collapsium.workers.kernels.random import mixed

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
def fill_proportions(active: Array, count: Array, rest: float, prior: Array, all_prior: float, theta: Array) -> float:
    """Fill theta of a document for all topics; return the prior of its inactive topics, 0 for next to none."""
    left = all_prior
    for j in range(active.size):
        left -= prior[active[j]]
    if active.size == prior.size or left <= MIN_INACTIVE_PRIOR * all_prior:
        left = 0.0
    growth = float(rest) / left if left > 0.0 else 0.0
    for k in range(prior.size):
        theta[k] = prior[k] * (1.0 + growth)
    for j in range(active.size):
        theta[active[j]] = prior[active[j]] + float(count[j])
    return left


@helper
def fill_probabilities(row: int, b: float, theta: Array, totals: Array, row_topic: Array, product: Array) -> float:
    """Fill theta_k phi_kw of all topics, and return their sum."""
    s = 0.0
    for k in range(theta.size):
        product[k] = theta[k] * (b + row_topic[row, k]) / totals[k]
    for k in range(theta.size):
        s += product[k]
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
    theta, product = np.empty(prior.size), np.empty(prior.size)
    for document in range(offsets.size - 1):
        first, last = active_offsets[document], active_offsets[document + 1]
        known, group = False, document % score.shape[1]
        for pair in range(offsets[document], offsets[document + 1]):
            if held_out[pair] == 0:
                continue
            if not known:
                document_active, count = active_topics[first:last], active_counts[first:last]
                if priors.design_place.size:
                    a = priors.design_priors[priors.design_place[document]]
                    fill_proportions(document_active, count, background[document], a, a.sum(), theta)
                else:
                    fill_proportions(document_active, count, background[document], prior, all_prior, theta)
                known, mass = True, theta.sum()
                if merges.plain_ratio.size:
                    mass = 0.0
                    for k in range(theta.size):
                        mass += theta[k] * merges.plain_ratio[k]
            row, b = position[pair], word_prior[position[pair]]
            s = fill_probabilities(row, b, theta, totals, row_topic, product)
            score[0, group] += held_out[pair] * np.log(s / mass)
            score[1, group] += held_out[pair]
            for p in range(retained.size):
                k, m = retained[p], merged[p]
                both = (theta[k] + theta[m]) * (b + row_topic[row, k] + row_topic[row, m])
                both /= totals[k] + totals[m] - priors.words_total
                delta = log_ratio((both - product[k] - product[m]) / s)
                gain[p] += held_out[pair] * delta
                square[p] += held_out[pair] * delta * delta


STRIDE = np.uint64(0x9E3779B97F4A7C15)


class Moves(NamedTuple):
    """Accepted moves of topics, and the hash keys of the documents in which they are carried out."""

    into: Int64Vector  # The topic that each becomes; -1 for none; (topics,)
    # The topic that it becomes in about half of the documents, by a stable hash; -1 for the same; (topics,)
    split: Int64Vector
    key: np.uint64  # Address of the shard's documents
    first_document: int  # Number in the shard of the first of these documents


@kernel
def hold_out(pairs: DocumentPairs, words: Int32Vector, key: np.uint64, share: float, held_out: OutInt32Vector) -> None:
    """Draw the number of held-out copies of each pair, by a stable hash; twin: `naive.topic_moves.hold_out`.

    Shapes: `words` (rows,); `held_out` (pairs,).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    limit = np.uint64(share * 2.0**53)
    for document in range(offsets.size - 1):
        address = mixed(np.uint64(key) + np.uint64(document + 1) * STRIDE)
        for pair in range(offsets[document], offsets[document + 1]):
            word = mixed(address + np.uint64(words[position[pair]] + 1) * STRIDE)
            held_out[pair] = 0
            for copy in range(counts[pair]):
                held_out[pair] += (mixed(word + np.uint64(copy + 1) * STRIDE) >> np.uint64(11)) < limit


@kernel
def move_topics(active: ActiveTopics, moves: Moves, new_topics: OutUInt16Vector, sizes: OutInt64Vector) -> None:
    """Fill each document's active topics after moves; twin: `naive.topic_moves.moved`.

    Shapes: `new_topics` (active,); `sizes` (documents,).
    """
    active_offsets, active_topics, into, split = active.offsets, active.topics, moves.into, moves.split
    taken = np.zeros(into.size, dtype=np.int64)
    for document in range(active_offsets.size - 1):
        begin, end = active_offsets[document], active_offsets[document + 1]
        in_half = _in_half(moves.key, moves.first_document + document)
        for j in range(begin, end):
            target = _target(active_topics[j], into, split, in_half)
            if target >= 0:
                taken[target] = 1
        size = 0
        for k in range(into.size):
            if taken[k]:
                new_topics[begin + size] = k
                size += 1
                taken[k] = 0
        sizes[document] = size


@helper
def _in_half(key: Number, document: int) -> Number:
    """Return whether a document is in the half in which topics that split become another."""
    return mixed(np.uint64(key) + np.uint64(document + 1) * STRIDE) >> np.uint64(63) == np.uint64(1)


@helper
def _target(topic: Number, into: Array, split: Array, in_half: Number) -> Number:
    """Return the topic that a topic becomes in a document; -1 for none."""
    k = np.int64(topic)
    return split[k] if in_half and split[k] >= 0 else into[k]


@kernel
def move_responsibilities(
    pairs: DocumentPairs,
    released: Int32Vector,
    active: ActiveTopics,
    before: ActiveState,
    moves: Moves,
    new_active: ActiveTopics,
    running: RunningCounts,
    after: NewActiveState,
) -> None:
    """Carry responsibilities over to the topics of `move_topics`, and count tokens that were held out.

    Responsibilities of a deleted topic go to the background. Twin: `naive.topic_moves.moved`.

    Shapes: `released` (pairs,).
    """
    offsets, responsibilities, background_change = pairs.offsets, before.responsibilities, running.rows.background
    target, held, count = (
        np.empty(moves.into.size, dtype=np.int64),
        np.empty(moves.into.size),
        np.empty(moves.into.size),
    )
    place = np.empty(moves.into.size, dtype=np.int64)
    for document in range(offsets.size - 1):
        begin, at, to = active.offsets[document], before.starts[document], after.starts[document]
        new_begin, size = new_active.offsets[document], active.offsets[document + 1] - begin
        for j in range(new_active.offsets[document + 1] - new_begin):
            place[new_active.topics[new_begin + j]] = j
        moved = _fill_targets(document, begin, size, active, moves, target)
        held[:size] = 0.0
        count[:size] = 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            weight, row = token_weight(pairs.weights, pair), pairs.position[pair]
            added = weight * pairs.counts[pair] / UNIT
            removed = weight * (pairs.counts[pair] - released[pair]) / UNIT
            left = np.int64(UNIT)
            for j in range(size):
                steps = np.int64(responsibilities[at + j])
                left -= steps
                held[j] += removed * steps
                count[j] += added * steps
            new_left = left
            for j in range(size):
                if target[j] >= 0:
                    after.responsibilities[to + place[target[j]]] += responsibilities[at + j]
                else:
                    new_left += np.int64(responsibilities[at + j])
            # Where neither topics nor tokens are others, no row is touched.
            if moved or added != removed:
                for j in range(size):
                    steps = np.int64(responsibilities[at + j])
                    if steps:
                        add_tokens(row, np.int64(active.topics[begin + j]), removed * steps, -1, running, pairs.weights)
                    if steps and target[j] >= 0:
                        add_tokens(row, target[j], added * steps, 1, running, pairs.weights)
            background_change[row] += added * new_left - removed * left
            after.background[document] += added * new_left
            at += size
            to += new_active.offsets[document + 1] - new_begin
        for j in range(size):
            running.totals[active.topics[begin + j]] -= held[j]
            if target[j] >= 0:
                running.totals[target[j]] += count[j]
                after.counts[new_begin + place[target[j]]] += count[j]
                if before.pseudo.size:
                    after.pseudo[new_begin + place[target[j]]] += before.pseudo[begin + j]


@borrower
def _fill_targets(document: int, begin: int, size: int, active: ActiveTopics, moves: Moves, target: Array) -> Number:
    """Fill the new number of each active topic of a document, -1 for none; return whether any becomes another."""
    moved, in_half = False, _in_half(moves.key, moves.first_document + document)
    for j in range(size):
        k = np.int64(active.topics[begin + j])
        target[j] = _target(k, moves.into, moves.split, in_half)
        moved |= target[j] != k
    return moved


@kernel
def gram(row_topic: Float32Matrix, least: float, products: OutFloat64Matrix) -> None:
    """Add the products of columns, of cells above a limit; twin: `naive.topic_moves.gram`.

    Shapes: `row_topic` (words, topics); `products` (topics, topics).
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


# Fewest pairs of a document that estimate where its tokens would go. Longer documents use evenly spaced pairs, fewer
# than twice as many. With all of 5,000 pairs, a round of split-merge moves took as long as 20 to 30 sweeps.
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
        row, inactive = position[pair], 0.0
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
                inactive = max(float(model.background_weight[row]) - known, 0.0)
                inactive = 0.0 if inactive < model.background_weight[row] * ROUNDING else inactive * growth
            # Its own weight is left out of the sum, and not taken off it: the others may weigh too little beside it.
            total = inactive
            for j in range(places[c]):
                total += weights[j]
            for j in range(places[c] + 1, size):
                total += weights[j]
            if total > 0.0:
                factor = counts[pair] * token_weight(documents.pairs.weights, pair) * float(steps) / UNIT / total
                for j in range(size):
                    tokens[c, j] += factor * weights[j]
                beyond[c] += factor * inactive
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
        document_active, rest = active_topics[first:last], state.background[document]
        left = fill_proportions(document_active, state.counts[first:last], rest, prior, all_prior, theta)
        _reassign(documents, document, model, theta, 1.0 + rest / left if left > 0.0 else 0.0, leaving)
        for c in range(leaving.number[0]):
            number = candidate[document_active[leaving.places[c]]]
            for j in range(document_active.size):
                reassigned[number, document_active[j]] += leaving.tokens[c, j]


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
        document_active, known, left, mass = active_topics[first:last], False, 0.0, 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            if held_out[pair] == 0:
                continue
            if not known:
                rest = state.background[document]
                left = fill_proportions(document_active, state.counts[first:last], rest, prior, all_prior, theta)
                mass = theta.sum()
                _reassign(documents, document, model, theta, 1.0 + rest / left if left > 0.0 else 0.0, leaving)
                more[:] = 0.0
                for c in range(candidates):
                    # Where a candidate is inactive, it has its prior and share of the background.
                    weight[c], beyond[c] = theta[deleted[c]], 0.0
                for n in range(leaving.number[0]):
                    k = document_active[leaving.places[n]]
                    c = candidate[k]
                    beyond[c], weight[c] = leaving.beyond[n], prior[k]
                    for j in range(document_active.size):
                        more[document_active[j], c] = leaving.tokens[n, j]
                known = True
            row, b = position[pair], word_prior[position[pair]]
            s, active_weight = 0.0, 0.0
            for k in range(phi.size):
                phi[k] = (b + row_topic[row, k]) * inverse[k]
            for k in range(phi.size):
                s += theta[k] * phi[k]
            for j in range(document_active.size):
                active_weight += prior[document_active[j]] * phi[document_active[j]]
            inactive = max(float(background_weight[row]) - active_weight, 0.0)
            _fill_gains(row_topic, row, theta, phi, recipients)
            for c in range(candidates):
                changed = s - theta[deleted[c]] * phi[deleted[c]] + after[c]
                if left > 0.0:
                    changed += beyond[c] / left * inactive
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
