"""Sums over documents' lists of active topics: expected tables, moments, and predictive probabilities.

`active` says what the lists are and how their responsibilities are stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.cvb.active import NONE, UNIT
from collapsium.workers.kernels.jit import F4, F4_2, F8, I4, I8, OUT_F8, OUT_F8_2, U2, f8, kernel
from collapsium.workers.kernels.moments import LARGEST, expected_tables, positive, power

Array = npt.NDArray[Any]


@kernel(I8, I4, I8, U2, I8, U2, F4, F4, F8, OUT_F8, OUT_F8)
def listed_tables(
    offsets: Array,
    counts: Array,
    lists: Array,
    topic: Array,
    starts: Array,
    share: Array,
    active_count: Array,
    document_rest: Array,
    prior: Array,
    tables: Array,
    grown: Array,
) -> None:
    """Add the documents' E[s_dk] of active topics, and gather the background's; twin: `naive.lists.tables`.

    Parameters
    ----------
    offsets, counts, lists, topic, starts, share, active_count, document_rest
        As for `active.sweep_active`, after a sweep.
    prior : float64, shape (topics,)
        g of E[s_dk].
    tables : float64, shape (topics,)
        Increased by the sums over documents of E[s_dk].
    grown : float64, shape (topics + 1,)
        Increased, in the last place, by the sum over documents of E[n_d,rest] / a_rest, and decreased for each topic by
        those of documents that list it: together, and times a_k, its background tokens.
    """
    topics = prior.size
    absent, variance, all_prior = np.empty(topics), np.empty(topics), prior.sum()
    for document in range(offsets.size - 1):
        listed, size, at = lists[document], lists[document + 1] - lists[document], starts[document]
        left = all_prior
        absent[:size] = 1.0
        variance[:size] = 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            for j in range(size):
                q = min(float(share[at + j]) / UNIT, LARGEST)
                absent[j] *= 1.0 - q if counts[pair] == 1 else power(1.0 - q, counts[pair])
                variance[j] += counts[pair] * q * (1.0 - q)
            at += size
        for j in range(size):
            k, mean = topic[listed + j], float(active_count[listed + j])
            left -= prior[k]
            present, mean, spread = positive(mean, variance[j], absent[j], 1.0 - absent[j])
            if present > 0.0:
                tables[k] += expected_tables(prior[k], present, mean, spread)
        if size < topics and left > NONE * all_prior:
            growth = document_rest[document] / left
            grown[topics] += growth
            for j in range(size):
                grown[topic[listed + j]] -= growth


@kernel(I8, I4, I4, I8, U2, I8, U2, f8, OUT_F8_2, OUT_F8_2)
def listed_moments(
    offsets: Array,
    position: Array,
    counts: Array,
    lists: Array,
    topic: Array,
    starts: Array,
    share: Array,
    sign: float,
    row_variance: Array,
    row_log_absent: Array,
) -> None:
    """Add V[n_kw] and Z[n_kw] of the active topics' responsibilities; twin: `naive.lists.moments`.

    Parameters
    ----------
    offsets, position, counts, lists, topic, starts, share
        As for `active.sweep_active`.
    sign : float
        1 to add, -1 to take away.
    row_variance, row_log_absent : float64, shape (rows, topics)
        Increased by sum c q (1 - q) and by sum c log(1 - q).
    """
    # Few values there are: a table of logarithms instead of one a responsibility.
    steps = np.minimum(np.arange(UNIT + 1) / UNIT, LARGEST)
    log_absent = np.log(1.0 - steps)
    for document in range(offsets.size - 1):
        listed, size, at = lists[document], lists[document + 1] - lists[document], starts[document]
        for pair in range(offsets[document], offsets[document + 1]):
            row, tokens = position[pair], sign * counts[pair]
            for j in range(size):
                q, k = steps[share[at + j]], topic[listed + j]
                row_variance[row, k] += tokens * q * (1.0 - q)
                row_log_absent[row, k] += tokens * log_absent[share[at + j]]
            at += size


@kernel(I8, I4, F4_2, F8, F8, F8, F8, I8, U2, F4, F4, OUT_F8)
def listed_probability(
    offsets: Array,
    position: Array,
    row_topic: Array,
    word_prior: Array,
    prior: Array,
    totals: Array,
    rest_prior: Array,
    lists: Array,
    topic: Array,
    active_count: Array,
    document_rest: Array,
    probability: Array,
) -> None:
    """Fill sum_k theta_dk phi_kw + theta_rest tau_w of each pair; twin: `naive.lists.probability`.

    With E[n_dk] = a_k E[n_d,rest] / a_rest for topics that are not listed, the sum is that over the list, of the
    counts beyond this, and (1 + E[n_d,rest] / a_rest) S_w.

    Parameters
    ----------
    offsets, position : int64, shape (documents + 1,), int32, shape (pairs,)
        Held-out pairs, and the rows of their words.
    row_topic : float32, shape (rows, topics)
        E[n_kw].
    word_prior : float64, shape (rows,)
        b_w.
    prior, totals : float64, shape (topics,)
        a_k and B + E[n_k].
    rest_prior : float64, shape (2,)
        A - sum_k a_k, and B.
    lists, topic, active_count, document_rest
        As for `active.sweep_active`.
    probability : float64, shape (pairs,)
        Filled.
    """
    topics, all_prior = prior.size, prior.sum()
    ratio, scaled = prior / totals, np.empty(topics)
    background = np.zeros(word_prior.size)
    for row in range(word_prior.size):
        for k in range(topics):
            background[row] += ratio[k] * (word_prior[row] + row_topic[row, k])
    for document in range(offsets.size - 1):
        listed, size = lists[document], lists[document + 1] - lists[document]
        left, length = all_prior, 0.0
        for j in range(size):
            left -= prior[topic[listed + j]]
            length += active_count[listed + j]
        growth = 0.0  # where all topics are listed, what truncation left over belongs to none
        if size < topics and left > NONE * all_prior:
            growth = document_rest[document] / left
            length += document_rest[document]
        for j in range(size):
            k = topic[listed + j]
            scaled[j] = (active_count[listed + j] - prior[k] * growth) / totals[k]
        for pair in range(offsets[document], offsets[document + 1]):
            row = position[pair]
            total = (1.0 + growth) * background[row] + rest_prior[0] * word_prior[row] / rest_prior[1]
            for j in range(size):
                total += scaled[j] * (word_prior[row] + row_topic[row, topic[listed + j]])
            probability[pair] = total / (all_prior + rest_prior[0] + length)
