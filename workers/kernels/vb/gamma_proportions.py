"""Mean-field updates of topics whose proportions are gamma variables with rates of their own (Kim and Oh 2017).

q(pi_mk) = Gamma(a_mk, b_mk) with a = g + n and b = R + u, where g_k = beta p_k, n_mk = E[n_mk], R_mk = E[rate] and
u_m = N_m / xi_m. That is the best q(pi) and xi for given n where sum_k a u / (R + u) = N, which has one solution. Rates
are log-linear in the labels of a document: log R_mk = sum_j r_mj x_jk.
"""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Array,
    Float32Matrix,
    Float64Matrix,
    Float64Vector,
    OutFloat64Matrix,
    OutFloat64Vector,
)
from collapsium.workers.kernels.jit import borrower, helper, kernel
from collapsium.workers.kernels.records import DocumentPairs
from collapsium.workers.kernels.vb.mean_field import (
    add_pairs,
    count_topics,
    digammas,
    exponentials,
    finish_words,
    log_gammas,
    logarithms,
    make_workspace,
    replace_counts,
    rescale,
)
from collapsium.workers.kernels.vb.records import (
    DocumentLabels,
    ExpectedCounts,
    MeanFieldTopics,
    PassLimits,
    PriorTerms,
    Rates,
    RateStatistics,
    Workspace,
)

# Newton's method for u: it needs five steps where the last pass was near.
MAX_NEWTON_STEPS = 60
NEWTON_TOLERANCE = 1e-13  # relative change of u

# The integral over y = log t: its step, how far it extends beyond the rates, and the most steps.
Y_STEP, Y_MARGIN, MAX_Y_STEPS = 0.5, 30.0, 20_000


@helper
def _log_rates(first: int, last: int, label: Array, value: Array, label_rates: Array, log_rate: Array) -> None:
    """Fill log R_k = sum_j r_j x_jk of a document whose labels are `first` to `last` - 1."""
    log_rate[:] = 0.0
    for place in range(first, last):
        row, factor = label[place], value[place]
        for k in range(log_rate.size):
            log_rate[k] += factor * label_rates[row, k]


@helper
def _rates(first: int, last: int, label: Array, value: Array, label_rates: Array, rate: Array) -> None:
    """Fill R_k of a document."""
    _log_rates(first, last, label, value, label_rates, rate)
    for k in range(rate.size):
        rate[k] = math.exp(rate[k])


@helper
def _balance(prior: Array, counts: Array, rate: Array, u: float) -> float:
    """Solve sum_k (g_k + n_k) u / (R_k + u) = N = sum_k n_k for u, by Newton's method from `u` or from below."""
    smallest, tokens, all_prior = rate[0], 0.0, 0.0
    for k in range(rate.size):
        smallest = min(smallest, rate[k])
        tokens += counts[k]
        all_prior += prior[k]
    if tokens <= 0.0:
        return 0.0
    # The sum is concave in u, so that from below Newton's steps stay below; u / (smallest + u) is at least each share.
    below = tokens * smallest / all_prior
    u = max(float(u), below)
    for _ in range(MAX_NEWTON_STEPS):
        balance, slope = 0.0, 0.0
        for k in range(rate.size):
            each = 1.0 / (rate[k] + u)
            share = (prior[k] + counts[k]) * each
            balance += share * u
            slope += share * rate[k] * each
        new = max(u - (balance - tokens) / slope, below)
        converged = abs(new - u) <= NEWTON_TOLERANCE * u
        u = new
        if converged:
            break
    return float(u)


@kernel
def sweep_gamma_proportions(
    documents: DocumentPairs,
    topics: MeanFieldTopics,
    labels: DocumentLabels,
    before: Float32Matrix,
    limits: PassLimits,
    expected: ExpectedCounts,
    statistics: RateStatistics,
    bound: OutFloat64Vector,
) -> None:
    """Update q(pi) and the responsibilities of each document in turn; twin: `naive.gamma_proportions.sweep`.

    Shapes: `before` (documents, topics); `bound` (1,).
    """
    offsets = documents.offsets
    word_expected, prior, _ = topics
    label_offsets, label, value, label_rates = labels
    document_topic, word_topic = expected
    topic_sums, label_sums, curvature = statistics
    size = prior.size
    space = make_workspace(size, offsets)
    topic_counts, shape, weight, log_weight, new, work, bits, norm = space
    rates = Rates(np.zeros(size), np.zeros(size))
    prior_terms = PriorTerms(prior, np.zeros(size), np.zeros(size))
    log_gammas(prior, work, bits, new, prior_terms.log_gamma)
    digammas(prior, work, bits, prior_terms.digamma)
    word_topic[:] = 0.0
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        begin, end = label_offsets[document], label_offsets[document + 1]
        _rates(begin, end, label, value, label_rates, rates.prior)
        topic_counts[:] = before[document]
        u = _fit_document(first, last, documents, topics, limits, space, rates)
        if last > first:
            bound[0] += add_pairs(first, last, documents, weight, norm, word_topic)
            for k in range(size):
                bound[0] -= topic_counts[k] * log_weight[k]
        for k in range(size):
            document_topic[document, k] = topic_counts[k]
        u = _balance(prior, topic_counts, rates.prior, u)
        _add_topic_sums(u, prior_terms, space, rates, topic_sums)
        for k in range(size):
            bound[0] -= shape[k] * new[k] + prior_terms.log_gamma[k]
        log_gammas(shape, work, bits, weight, new)
        bound[0] += _sum(new)
        tokens = _sum(topic_counts)
        if tokens > 0.0:
            bound[0] += tokens - tokens * math.log(tokens / u)
        for k in range(size):
            new[k] = rates.prior[k] / rates.posterior[k]
        _add_label_sums(begin, end, label, value, topic_counts, new, label_sums, curvature)
    finish_words(word_expected, word_topic)


@borrower
def _fit_document(
    first: int,
    last: int,
    documents: DocumentPairs,
    topics: MeanFieldTopics,
    limits: PassLimits,
    space: Workspace,
    rates: Rates,
) -> float:
    """Update q(pi) and the responsibilities of a document until its E[n_mk] have converged; return its u."""
    word_expected, prior, topic_log = topics
    topic_counts, shape, weight, log_weight, new, work, bits, norm = space
    rate, both = rates
    u = 0.0
    for _ in range(limits.passes if last > first else 0):
        u = _balance(prior, topic_counts, rate, u)
        for k in range(prior.size):
            shape[k] = prior[k] + topic_counts[k]
            both[k] = rate[k] + u
        digammas(shape, work, bits, log_weight)
        logarithms(both, work, bits, new)
        for k in range(prior.size):
            log_weight[k] -= new[k] + topic_log[k]
        rescale(log_weight)
        exponentials(log_weight, work, bits, weight)
        count_topics(first, last, documents, word_expected, weight, norm, new)
        if replace_counts(topic_counts, new) < limits.tolerance * prior.size:
            break
    return u


@borrower
def _add_topic_sums(u: float, prior_terms: PriorTerms, space: Workspace, rates: Rates, topic_sums: Array) -> None:
    """Complete q(pi) of a document, with log b in `space.new`, and add it to the sums of the topics."""
    prior, _, prior_digamma = prior_terms
    topic_counts, shape, weight, _, log_rate, work, bits, _ = space
    rate, both = rates
    for k in range(prior.size):
        shape[k] = prior[k] + topic_counts[k]
        both[k] = rate[k] + u
    logarithms(both, work, bits, log_rate)
    digammas(shape, work, bits, weight)
    for k in range(prior.size):
        topic_sums[0, k] += prior[k] * (weight[k] - prior_digamma[k])
    for k in range(prior.size):
        topic_sums[1, k] -= log_rate[k]


@helper
def _sum(values: Array) -> float:
    """Return the sum of some numbers."""
    total = 0.0
    for k in range(values.size):
        total += values[k]
    return total


@helper
def _add_label_sums(
    begin: int, end: int, label: Array, value: Array, counts: Array, part: Array, label_sums: Array, curvature: Array
) -> None:
    """Add a document to the sums of its labels; `part` is R / b."""
    length = 0.0
    for place in range(begin, end):
        length += abs(value[place])
    for place in range(begin, end):
        row, size = label[place], abs(value[place])
        kind = 0 if value[place] > 0.0 else 4
        if size == 0.0:
            continue
        for k in range(part.size):
            each = size * part[k]
            label_sums[row, kind, k] += each * counts[k]
            label_sums[row, kind + 1, k] += each
            label_sums[row, kind + 2, k] += length * each * counts[k]
            label_sums[row, kind + 3, k] += length * each
        if curvature.shape[0]:
            half = curvature.shape[1] // 2
            for other in range(begin, end):
                column, product = label[other], value[place] * value[other]
                for k in range(part.size):
                    each = product * part[k]
                    curvature[row, column, k] += each * counts[k]
                    curvature[row, half + column, k] += each


@kernel
def expected_proportions(labels: DocumentLabels, prior: Float64Vector, theta: OutFloat64Matrix) -> None:
    """Fill theta_k = E[pi_k / sum_l pi_l] of documents without words; twin: `naive.gamma_proportions.expected`.

    pi_k ~ Gamma(g_k, R_k). 1 / s being the integral of exp(-s t) over t > 0, theta_k integrates g_k / (R_k + t) prod_l
    (1 + t / R_l)^-g_l. With t = exp(y) it falls on both sides and is analytic beside the real line, without
    growing up to pi / 2, so that sums over steps h of y are off by some exp(-pi^2 / h) of themselves: 3e-9.

    Shapes: `prior` (topics,); `theta` (documents, topics).
    """
    offsets, label, value, label_rates = labels
    topics, all_prior = prior.size, _sum(prior)
    log_rate, falling, part, logs = np.zeros(topics), np.zeros(topics), np.zeros(topics), np.zeros(topics)
    work = np.zeros(topics)
    bits = work.view(np.int64)
    for document in range(theta.shape[0]):
        _log_rates(offsets[document], offsets[document + 1], label, value, label_rates, log_rate)
        low, high = log_rate.min() - Y_MARGIN, log_rate.max() + Y_MARGIN / min(all_prior, 1.0)
        steps = min(int((high - low) / Y_STEP) + 1, MAX_Y_STEPS)
        theta[document] = 0.0
        for step in range(steps):
            y = low + step * Y_STEP
            for k in range(topics):
                falling[k] = max(-abs(y - log_rate[k]), -600.0)
            exponentials(falling, work, bits, part)
            for k in range(topics):
                falling[k] = 1.0 + part[k]
            logarithms(falling, work, bits, logs)
            exponent = 0.0
            for k in range(topics):
                exponent += prior[k] * (max(y - log_rate[k], 0.0) + logs[k])
            weight = math.exp(-exponent)
            for k in range(topics):
                above = 1.0 if y > log_rate[k] else part[k]
                theta[document, k] += weight * prior[k] * above / falling[k]
        total = _sum(theta[document])
        for k in range(topics):
            theta[document, k] /= total


@kernel
def gamma_proportions(
    labels: DocumentLabels, prior: Float64Vector, document_topic: Float64Matrix, theta: OutFloat64Matrix
) -> None:
    """Fill theta_mk = E[pi_mk] / sum_k E[pi_mk], E[pi] = a / b; twin: `naive.gamma_proportions.proportions`.

    Shapes: `prior` (topics,); `document_topic`, `theta` (documents, topics).
    """
    offsets, label, value, label_rates = labels
    topics = prior.size
    mean, rate = np.zeros(topics), np.zeros(topics)
    for document in range(document_topic.shape[0]):
        _rates(offsets[document], offsets[document + 1], label, value, label_rates, rate)
        u = _balance(prior, document_topic[document], rate, 0.0)
        total = 0.0
        for k in range(topics):
            mean[k] = (prior[k] + document_topic[document, k]) / (rate[k] + u)
            total += mean[k]
        for k in range(topics):
            theta[document, k] = mean[k] / total
