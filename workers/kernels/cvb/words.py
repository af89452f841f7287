"""Sums over the words, and over documents' active topics: expected tables, moments, and terms of the bound.

`active` defines active topics and their responsibilities.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.cvb.active import MIN_INACTIVE_PRIOR, ONE, STEP, UNIT, ZERO, steps_at
from collapsium.workers.kernels.cvb.records import (
    ActiveState,
    ActiveTopics,
    DocumentWorkspace,
    Priors,
    TopicCounts,
    WordMoments,
)
from collapsium.workers.kernels.jit import (
    LANES,
    Array,
    DocumentPairs,
    Float32Matrix,
    Float32Vector,
    Float64Vector,
    Int32Vector,
    OutFloat64Matrix,
    OutFloat64Vector,
    borrower,
    kernel,
    token_weight,
)
from collapsium.workers.kernels.lanes import Lanes, load, spread_evenly, store
from collapsium.workers.kernels.special import (
    LARGEST,
    absence,
    digamma,
    expected_log_beta,
    expected_log_rising,
    expected_tables,
    positive,
)

MIN_ABSENT = 1e-300  # smallest probability of absence of a shard: below, a count is positive for certain


@kernel
def add_log_absent(
    position: Int32Vector,
    counts: Int32Vector,
    weights: Float32Vector,
    pair_topic: Float32Matrix,
    row_topic: OutFloat64Matrix,
) -> None:
    """Fill Z[n_kw] = sum c log(1 - q) over a shard's pairs of each word; twin: `naive.words.log_absent`.

    The probability itself is a product, with one logarithm a cell at the end, and has a lower limit, so that the
    difference of two sweeps is always finite.

    Shapes: `position`, `counts`, `weights` (pairs,); `pair_topic` (pairs, topics); `row_topic` (shard words, topics).
    """
    row_topic[:] = 1.0
    for pair in range(position.size):
        row, count, weight = position[pair], counts[pair], token_weight(weights, pair)
        for k in range(row_topic.shape[1]):
            absent = 1.0 - min(float(pair_topic[pair, k]), LARGEST)
            row_topic[row, k] = max(row_topic[row, k] * absence(absent, count, weight), MIN_ABSENT)
    for row in range(row_topic.shape[0]):
        for k in range(row_topic.shape[1]):
            row_topic[row, k] = math.log(row_topic[row, k])


@kernel
def add_counts(
    position: Int32Vector,
    counts: Int32Vector,
    weights: Float32Vector,
    pair_topic: Float32Matrix,
    row_topic: OutFloat64Matrix,
    row_variance: OutFloat64Matrix,
) -> None:
    """Add E[n_kw] and V[n_kw] of a shard's pairs; twin: `naive.words.counts`.

    Shapes: `position`, `counts`, `weights` (pairs,); `pair_topic` (pairs, topics); `row_topic`, `row_variance` (shard
    words, topics).
    """
    for pair in range(position.size):
        row, tokens = position[pair], counts[pair] * token_weight(weights, pair)
        for k in range(row_topic.shape[1]):
            row_topic[row, k] += tokens * pair_topic[pair, k]
        if row_variance.size:
            for k in range(row_topic.shape[1]):
                q = float(pair_topic[pair, k])
                row_variance[row, k] += tokens * q * (1.0 - q)


@kernel
def word_tables(words: WordMoments, prior: Float64Vector, tables: OutFloat64Vector, bound: OutFloat64Vector) -> None:
    """Fill sum_k E[t_kw] of each word and sum_kw F[log G(h_w + n_kw) / G(h_w)]; twin: `naive.words.word_tables`.

    Shapes: `prior`, `tables` (words,); `bound` (1,).
    """
    word_topic, variance, log_absent = words.mean, words.variance, words.log_absent
    for word in range(word_topic.shape[0]):
        tables[word], below = 0.0, digamma(prior[word])
        for k in range(word_topic.shape[1]):
            absent, present = math.exp(log_absent[word, k]), -math.expm1(log_absent[word, k])
            present, mean, spread = positive(word_topic[word, k], variance[word, k], absent, present)
            if present > 0.0:
                tables[word] += expected_tables(prior[word], below, present, mean, spread)
                bound[0] += expected_log_rising(prior[word], present, mean, spread)


@kernel
def topic_totals(
    total: Float64Vector,
    variance: Float64Vector,
    log_absent: Float64Vector,
    prior: Float64Vector,
    log_xi: OutFloat64Vector,
    log_rising: OutFloat64Vector,
) -> None:
    """Fill E[log xi_k] and F[log G(B + n_k) / G(B)] of each topic; twin: `naive.words.topic_totals`.

    Shapes: `total`, `variance`, `log_absent`, `log_xi`, `log_rising` (topics,); `prior` (1,).
    """
    for k in range(total.size):
        absent, present = math.exp(log_absent[k]), -math.expm1(log_absent[k])
        present, mean, spread = positive(total[k], variance[k], absent, present)
        log_xi[k] = expected_log_beta(prior[0], present, mean, spread)
        log_rising[k] = expected_log_rising(prior[0], present, mean, spread) if present > 0.0 else 0.0


@kernel
def log_eta(lengths: Float64Vector, prior: Float64Vector, sums: OutFloat64Vector) -> None:
    """Add sum_d E[log eta_d] and sum_d log G(A)/G(A + n_d) over documents; twin: `naive.words.log_eta`.

    `prior` is A, or A_d of each document.

    Shapes: `lengths` (documents,); `prior` (1,) or (documents,); `sums` (2,).
    """
    unit = np.ones(1)
    for document in range(lengths.size):
        if lengths[document] > 0.0:
            total = prior[document if prior.size > 1 else 0]
            sums[0] += expected_log_beta(total, unit[0], lengths[document], 0.0)
            sums[1] += math.lgamma(total) - math.lgamma(total + lengths[document])


class _DocumentSums(NamedTuple):
    """Sums over the pairs of a document by its active topics, filled up to a multiple of eight."""

    units: Array  # Value of a step of a responsibility: 2^-15, and 0 beyond the list; float32
    present: Array  # P(n_dk > 0). In a document of more than 100,000 pairs, rounding may cost it 1e-4.; float32
    variance: Array  # V[n_dk]; float32
    eight: Array  # For numbers of eight topics; float32 (8,)


@kernel
def active_tables(
    pairs: DocumentPairs,
    active: ActiveTopics,
    state: ActiveState,
    priors: Priors,
    tables: OutFloat64Vector,
    growth: OutFloat64Vector,
) -> None:
    """Add the documents' E[s_dk] of active topics, and sum the background's growth; twin: `naive.active_topics.tables`.

    Pseudo-counts of a start have tables as tokens do.

    Shapes: `tables` (topics,); `growth` (topics + 1,).
    """
    offsets, active_offsets, active_topics, prior = pairs.offsets, active.offsets, active.topics, priors.topics
    topics, all_prior, below = prior.size, prior.sum(), np.empty(prior.size)
    for k in range(topics):
        below[k] = digamma(prior[k])
    padded, steps = (topics + LANES - 1) // LANES * LANES, np.zeros(LANES, np.uint16)
    by_topic = np.zeros((3, padded), np.float32)
    sums = _DocumentSums(by_topic[0], by_topic[1], by_topic[2], np.zeros(LANES, np.float32))
    work = DocumentWorkspace(np.zeros(0, np.int32), sums.units, steps, ONE, True)
    at_end = DocumentWorkspace(work.places, sums.units, steps, ONE, False)
    for document in range(offsets.size - 1):
        begin = active_offsets[document]
        size = active_offsets[document + 1] - begin
        left = all_prior
        for j in range((size + LANES - 1) // LANES * LANES):
            sums.units[j] = STEP if j < size else ZERO
            sums.present[j] = sums.variance[j] = ZERO
        if state.starts[document + 1] + LANES <= state.responsibilities.size:
            _sum_pairs(document, size, pairs, state, work, sums)
        else:
            _sum_pairs(document, size, pairs, state, at_end, sums)
        for j in range(size):
            k, mean, chance = active_topics[begin + j], state.counts[begin + j], float(sums.present[j])
            left -= prior[k]
            if state.pseudo.size and state.pseudo[begin + j] > ZERO:
                # Pseudo-counts of a start are certain: the topic is in the document.
                mean, chance = mean + state.pseudo[begin + j], 1.0
            present, mean, spread = positive(mean, float(sums.variance[j]), 1.0 - chance, chance)
            if present > 0.0:
                a, psi = prior[k], below[k]
                if priors.design_place.size:
                    a = priors.design_priors[priors.design_place[document], k]
                    psi = digamma(a)
                tables[k] += expected_tables(a, psi, present, mean, spread)
        if size < topics and left > MIN_INACTIVE_PRIOR * all_prior:
            more = state.background[document] / left
            growth[topics] += more
            for j in range(size):
                growth[active_topics[begin + j]] -= more


@borrower
def _sum_pairs(
    document: int, size: int, pairs: DocumentPairs, state: ActiveState, work: DocumentWorkspace, sums: _DocumentSums
) -> None:
    """Sum up the pairs of a document by its active topics, eight at a time."""
    at, one = state.starts[document], spread_evenly(ONE)
    for pair in range(pairs.offsets[document], pairs.offsets[document + 1]):
        count, weight = pairs.counts[pair], token_weight(pairs.weights, pair)
        tokens, single = spread_evenly(np.float32(count * weight)), count == 1 and weight == 1.0
        for j in range(0, size, LANES):
            q = steps_at(state.responsibilities, at + j, size - j, work) * load(sums.units, j)
            hit = q if single else _presence(q, count, weight, sums.eight)
            present, q_tokens = load(sums.present, j), tokens * q
            store(sums.present, j, present + hit * (one - present))
            store(sums.variance, j, load(sums.variance, j) + q_tokens * (one - q))
        at += size


@borrower
def _presence(q: Lanes, count: int, weight: float, eight: Array) -> Lanes:
    """Return the probabilities that some token of a pair has a topic: 1 less `special.absence`."""
    one = spread_evenly(ONE)
    if weight == 1.0:
        absent, base = one, one - q
        while count > 0:
            if count & 1:
                absent = absent * base
            count >>= 1
            base = base * base
        return one - absent
    store(eight, 0, q)
    for lane in range(LANES):
        eight[lane] = -math.expm1(weight * count * math.log1p(-min(float(eight[lane]), LARGEST)))
    return load(eight, 0)


@kernel
def active_moments(
    pairs: DocumentPairs,
    active: ActiveTopics,
    state: ActiveState,
    sign: float,
    row_variance: OutFloat64Matrix,
    row_log_absent: OutFloat64Matrix,
) -> None:
    """Add V[n_kw] and Z[n_kw] of the active topics' responsibilities; twin: `naive.active_topics.moments`.

    Shapes: `row_variance`, `row_log_absent` (rows, topics).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    active_offsets, active_topics = active.offsets, active.topics
    starts, responsibilities = state.starts, state.responsibilities
    # There are few values: a table of logarithms instead of one a responsibility.
    steps = np.minimum(np.arange(UNIT + 1) / UNIT, LARGEST)
    log_absent = np.log(1.0 - steps)
    for document in range(offsets.size - 1):
        begin, at = active_offsets[document], starts[document]
        size = active_offsets[document + 1] - begin
        for pair in range(offsets[document], offsets[document + 1]):
            row, tokens = position[pair], sign * counts[pair] * token_weight(pairs.weights, pair)
            for j in range(size):
                q, k = steps[responsibilities[at + j]], active_topics[begin + j]
                row_variance[row, k] += tokens * q * (1.0 - q)
                row_log_absent[row, k] += tokens * log_absent[responsibilities[at + j]]
            at += size


@kernel
def active_probability(
    pairs: DocumentPairs,
    active: ActiveTopics,
    active_counts: Float64Vector,
    background: Float64Vector,
    priors: Priors,
    topics: TopicCounts,
    rest_prior: Float64Vector,
    probability: OutFloat64Vector,
) -> None:
    """Fill sum_k theta_dk phi_kw + theta_rest tau_w of each pair; twin: `naive.active_topics.probability`.

    With E[n_dk] = a_k E[n_d,rest] / a_rest for inactive topics, the sum is that over the active ones, of the counts
    beyond this, and (1 + E[n_d,rest] / a_rest) S_w.

    Shapes: `active_counts`, `background` (active,); `rest_prior` (2,); `probability` (pairs,).
    """
    offsets, position, active_offsets, active_topics = pairs.offsets, pairs.position, active.offsets, active.topics
    prior, word_prior, row_topic, totals = priors.topics, priors.words, topics.rows, topics.totals
    number, all_prior = prior.size, prior.sum()
    ratio, scaled = prior / totals, np.empty(number)
    word_weight = np.zeros(word_prior.size)
    for row in range(word_prior.size):
        known = 0.0
        for k in range(number):
            known += ratio[k] * (word_prior[row] + row_topic[row, k])
        word_weight[row] = known
    for document in range(offsets.size - 1):
        begin, size = active_offsets[document], active_offsets[document + 1] - active_offsets[document]
        left, length = all_prior, 0.0
        for j in range(size):
            left -= prior[active_topics[begin + j]]
            length += active_counts[begin + j]
        growth = 0.0  # where all topics are active, what truncation left over belongs to none
        if size < number and left > MIN_INACTIVE_PRIOR * all_prior:
            growth = background[document] / left
            length += background[document]
        for j in range(size):
            k = active_topics[begin + j]
            scaled[j] = (active_counts[begin + j] - prior[k] * growth) / totals[k]
        for pair in range(offsets[document], offsets[document + 1]):
            row = position[pair]
            total = (1.0 + growth) * word_weight[row] + rest_prior[0] * word_prior[row] / rest_prior[1]
            for j in range(size):
                total += scaled[j] * (word_prior[row] + row_topic[row, active_topics[begin + j]])
            probability[pair] = total / (all_prior + rest_prior[0] + length)
