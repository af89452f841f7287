"""Sums over documents' active topics: expected tables, moments, and predictive probabilities.

`active` defines active topics and their responsibilities.
"""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Float32Vector,
    Float64Vector,
    OutFloat64Matrix,
    OutFloat64Vector,
)
from collapsium.workers.kernels.cvb.active import MIN_INACTIVE_PRIOR, UNIT
from collapsium.workers.kernels.cvb.active_selection import MIN_PSEUDO_COUNT
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, Priors, TopicCounts
from collapsium.workers.kernels.jit import kernel
from collapsium.workers.kernels.moments import LARGEST, absence, expected_tables, positive
from collapsium.workers.kernels.records import DocumentPairs, token_weight


@kernel
def active_tables(
    pairs: DocumentPairs,
    active: ActiveTopics,
    state: ActiveState,
    prior: Float64Vector,
    tables: OutFloat64Vector,
    growth: OutFloat64Vector,
) -> None:
    """Add the documents' E[s_dk] of active topics, and sum the background's growth; twin: `naive.active_topics.tables`.

    Counts that no responsibilities account for are pseudo-counts of a start, which have tables as tokens do.

    Parameters
    ----------
    pairs, active : DocumentPairs, ActiveTopics
        The documents and their active topics.
    state : ActiveState
        After a sweep.
    prior : float64, shape (topics,)
        g of E[s_dk].
    tables : float64, shape (topics,)
        Increased by the sums over documents of E[s_dk].
    growth : float64, shape (topics + 1,)
        Increased, in the last place, by the sum over documents of E[n_d,rest] / a_rest, and decreased for each topic by
        those of documents where it is active: together, and times a_k, its background tokens.
    """
    offsets, counts, active_offsets, active_topics = pairs.offsets, pairs.counts, active.offsets, active.topics
    starts, responsibilities, active_counts, background = (
        state.starts,
        state.responsibilities,
        state.counts,
        state.background,
    )
    topics = prior.size
    absent, variance, held, all_prior = np.empty(topics), np.empty(topics), np.empty(topics), prior.sum()
    for document in range(offsets.size - 1):
        begin, at = active_offsets[document], starts[document]
        size = active_offsets[document + 1] - begin
        left = all_prior
        absent[:size] = 1.0
        variance[:size] = 0.0
        held[:size] = 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            weight = token_weight(pairs.weights, pair)
            single = counts[pair] == 1 and weight == 1.0
            for j in range(size):
                q = min(float(responsibilities[at + j]) / UNIT, LARGEST)
                absent[j] *= 1.0 - q if single else absence(1.0 - q, counts[pair], weight)
                variance[j] += counts[pair] * weight * q * (1.0 - q)
                held[j] += counts[pair] * weight * q
            at += size
        for j in range(size):
            k, mean = active_topics[begin + j], float(active_counts[begin + j])
            left -= prior[k]
            if mean - held[j] > MIN_PSEUDO_COUNT:
                # Pseudo-counts of a start are certain: the topic is in the document.
                absent[j] = 0.0
            present, mean, spread = positive(mean, variance[j], absent[j], 1.0 - absent[j])
            if present > 0.0:
                tables[k] += expected_tables(prior[k], present, mean, spread)
        if size < topics and left > MIN_INACTIVE_PRIOR * all_prior:
            more = background[document] / left
            growth[topics] += more
            for j in range(size):
                growth[active_topics[begin + j]] -= more


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

    Parameters
    ----------
    pairs, active : DocumentPairs, ActiveTopics
        The documents and their active topics.
    state : ActiveState
        Their responsibilities.
    sign : float
        1 to add, -1 to subtract.
    row_variance, row_log_absent : float64, shape (rows, topics)
        Increased by sum c q (1 - q) and by sum c log(1 - q).
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
    active_counts: Float32Vector,
    background: Float32Vector,
    priors: Priors,
    topics: TopicCounts,
    rest_prior: Float64Vector,
    probability: OutFloat64Vector,
) -> None:
    """Fill sum_k theta_dk phi_kw + theta_rest tau_w of each pair; twin: `naive.active_topics.probability`.

    With E[n_dk] = a_k E[n_d,rest] / a_rest for inactive topics, the sum is that over the active ones, of the counts
    beyond this, and (1 + E[n_d,rest] / a_rest) S_w.

    Parameters
    ----------
    pairs : DocumentPairs
        Held-out pairs of the documents.
    active : ActiveTopics
        Active topics of the documents.
    active_counts, background : float32, shape (active,) and (documents,)
        E[n_dk] of the active topics, and the documents' background tokens.
    priors : Priors
        a_k and b_w.
    topics : TopicCounts
        E[n_kw] of the held-out words, and B + E[n_k].
    rest_prior : float64, shape (2,)
        A - sum_k a_k, and B.
    probability : float64, shape (pairs,)
        Filled.
    """
    offsets, position, active_offsets, active_topics = pairs.offsets, pairs.position, active.offsets, active.topics
    prior, word_prior, row_topic, totals = priors.topics, priors.words, topics.rows, topics.totals
    number, all_prior = prior.size, prior.sum()
    ratio, scaled = prior / totals, np.empty(number)
    word_weight = np.zeros(word_prior.size)
    for row in range(word_prior.size):
        for k in range(number):
            word_weight[row] += ratio[k] * (word_prior[row] + row_topic[row, k])
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
