"""Mean-field updates of bag-of-words topics (Blei, Ng and Jordan 2003): sweeps, rows of words, functions of arrays.

q_dwk ~ exp( psi(gamma_dk) + psi(lambda_kw) - psi(sum_w lambda_kw) ) is a product of a weight of the document and one of
the word, so that no exponential is taken per pair: E[n_dk] = weight_dk sum_w c word_kw / norm_dw, and likewise E[n_kw].
Both kinds of weights are scaled so that the largest over the topics is one, and none is below exp(`MIN_LOG_WEIGHT`);
the scale cancels in the bound.

Topics whose proportions are gamma variables with rates of their own (Kim and Oh 2017): q(pi_mk) = Gamma(a_mk, b_mk)
with a = g + n and b = R + u, where g_k = beta p_k, n_mk = E[n_mk], R_mk = E[rate] and u_m = N_m / xi_m. That is the
best q(pi) and xi for given n where sum_k a u / (R + u) = N, which has one solution. Rates are log-linear in the labels
of a document: log R_mk = sum_j r_mj x_jk.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.jit import (
    Array,
    DocumentPairs,
    Float32Matrix,
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    OutFloat32Matrix,
    OutFloat64Cube,
    OutFloat64Matrix,
    OutFloat64Vector,
    borrower,
    helper,
    kernel,
    token_weight,
)
from collapsium.workers.kernels.special import digamma


class MeanFieldTopics(NamedTuple):
    """Topics as the documents of a shard see them."""

    # exp(psi(lambda_kw)) of the shard's words, each word's up to a factor; float64 (words, topics)
    word_expected: Float64Matrix
    prior: Float64Vector  # a_k, the parameters of the documents' prior; float64 (topics,)
    topic_log: Float64Vector  # psi(sum_w lambda_kw); float64 (topics,)


class PassLimits(NamedTuple):
    """Convergence of a document's update."""

    passes: int  # Largest number of passes over a document
    tolerance: float  # Change of E[n_dk], in tokens and the mean over the topics, below which no further pass follows


class Workspace(NamedTuple):
    """Arrays that a sweep uses again for each document."""

    topic_counts: Array  # E[n_dk] of the document; float64 (topics,)
    shape: Array  # Parameters of its proportions: the prior's, and E[n_dk]; float64 (topics,)
    # The document's weights, and their logarithms; float64 (topics,)
    weight: Array
    log_weight: Array
    # Intermediate results; float64 (topics,)
    new: Array
    work: Array
    bits: Array  # `work` as integers; int64 (topics,)
    # Sum over the topics of each pair's unnormalised responsibilities; as many as the longest document has pairs;
    # float64 (pairs,)
    norm: Array


class ExpectedCounts(NamedTuple):
    """Expected topic counts that a sweep fills."""

    document_topic: OutFloat32Matrix  # E[n_dk]; float32 (documents, topics)
    word_topic: OutFloat64Matrix  # E[n_kw] of the shard's words; float64 (words, topics)


class DocumentLabels(NamedTuple):
    """The labels of a shard's documents, with the logarithms of the rates that they give the topics."""

    offsets: Int64Vector  # Where the labels of each document begin; int64 (documents + 1,)
    label: Int32Vector  # Row in `log_rate` of each; int32
    value: Float64Vector  # r_mj of each; float64
    log_rate: Float64Matrix  # x_jk; float64 (labels, topics)


class RateStatistics(NamedTuple):
    """Sums over documents from which the rates are learned."""

    topic_sums: OutFloat64Matrix  # sum_m g_k (psi(g_k + n_mk) - psi(g_k)), and -sum_m log b_mk; float64 (2, topics)
    # Over the documents with r_mj > 0 the sums of |r| R n / b, |r| R / b, and of both times the sum of |r_mj| over the
    # document's labels; with 8, then also over those with r_mj < 0; float64 (labels, 4 or 8, topics)
    label_sums: OutFloat64Cube
    # Unless it is empty, row j and column i of each half are the sums of r_mj r_mi R n / b and r_mj r_mi R / b; float64
    # (labels, 2 labels, topics)
    curvature: OutFloat64Cube


class Rates(NamedTuple):
    """Rates of a document's gamma variables."""

    # R_mk, and b_mk = R_mk + u_m; float64 (topics,)
    prior: Array
    posterior: Array


class PriorTerms(NamedTuple):
    """Functions of the prior's parameters, alike for all documents."""

    # g_k, log G(g_k), and psi(g_k); float64 (topics,)
    prior: Array
    log_gamma: Array
    digamma: Array


SQRT_HALF_BITS = 0x3FE6A09E667F3BCD  # The bits of sqrt(1/2), read as an integer

LN2, PER_LN2, HALF_LOG_2PI = math.log(2.0), 1.0 / math.log(2.0), 0.5 * math.log(2.0 * math.pi)


@helper
def logarithms(x: Array, work: Array, bits: Array, out: Array) -> None:
    """Fill log x, to 1e-15, of normal numbers above 0; `bits` is a view of `work` as integers."""
    # With x = 2^e m, sqrt(1/2) <= m < sqrt(2), and f = (m - 1)/(m + 1): log m = 2 (f + f^3/3 + f^5/5 + ...).
    for k in range(x.size):
        work[k] = x[k]
    for k in range(x.size):
        exponent = (bits[k] - SQRT_HALF_BITS) >> 52
        bits[k] -= exponent << 52
        out[k] = exponent
    for k in range(x.size):
        f = (work[k] - 1.0) / (work[k] + 1.0)
        r = f * f
        high = 1 / 11 + r * (1 / 13 + r * (1 / 15 + r * (1 / 17 + r * (1 / 19))))
        series = 1 + r * (1 / 3 + r * (1 / 5 + r * (1 / 7 + r * (1 / 9 + r * high))))
        out[k] = out[k] * LN2 + 2.0 * f * series


@helper
def exponentials(x: Array, work: Array, bits: Array, out: Array) -> None:
    """Fill exp x, to 1e-13, for -700 <= x <= 0: 2^n times a polynomial of the remainder; `bits` as for `logarithms`."""
    for k in range(x.size):
        # Truncated towards zero, which is to the nearest here.
        n = np.int32(x[k] * PER_LN2 - 0.5)
        bits[k] = (np.int64(n) + 1023) << 52
        r = x[k] - n * LN2
        high = 1 / 720 + r * (1 / 5040 + r * (1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r * (1 / 39916800)))))
        out[k] = 1 + r * (1 + r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120 + r * high)))))
    for k in range(x.size):
        out[k] *= work[k]


@helper
def digammas(x: Array, work: Array, bits: Array, out: Array) -> None:
    """Fill psi(x), to 1e-12, for 1e-12 <= x <= 1e30: the series at z = x + 8, less 1/x + 1/(x+1) + ... + 1/(x+7)."""
    # With y = x (x + 7), the last sum is (2x + 7) ( 1/y + 1/(y+6) + 1/(y+10) + 1/(y+12) ).
    for k in range(x.size):
        work[k] = x[k] + 8.0
    logarithms(work, work, bits, out)
    for k in range(x.size):
        z, y = x[k] + 8.0, x[k] * (x[k] + 7.0)
        r = 1.0 / z
        r2 = r * r
        series = r2 * (1 / 12 - r2 * (1 / 120 - r2 * (1 / 252 - r2 * (1 / 240 - r2 * (1 / 132)))))
        outer, inner = y * (y + 6.0), (y + 10.0) * (y + 12.0)
        below = (2.0 * x[k] + 7.0) * ((2.0 * y + 6.0) * inner + (2.0 * y + 22.0) * outer) / (outer * inner)
        out[k] += -0.5 * r - series - below


@helper
def log_gammas(x: Array, work: Array, bits: Array, logs: Array, out: Array) -> None:
    """Fill log G(x), to 1e-12 of itself or one, for 1e-12 <= x <= 1e30: at x + 8, less log x (x+1) ... (x+7)."""
    for k in range(x.size):
        y = x[k] * (x[k] + 7.0)
        out[k] = y * (y + 6.0) * (y + 10.0) * (y + 12.0)
    logarithms(out, work, bits, logs)
    for k in range(x.size):
        out[k] = -logs[k]
    for k in range(x.size):
        work[k] = x[k] + 8.0
    logarithms(work, work, bits, logs)
    for k in range(x.size):
        z = x[k] + 8.0
        r = 1.0 / z
        r2 = r * r
        series = r * (1 / 12 - r2 * (1 / 360 - r2 * (1 / 1260 - r2 * (1 / 1680 - r2 * (1 / 1188)))))
        out[k] += (z - 0.5) * logs[k] - z + HALF_LOG_2PI + series


@kernel
def special_functions(
    x: Float64Vector,
    logs: OutFloat64Vector,
    exponential: OutFloat64Vector,
    log_gamma: OutFloat64Vector,
    first: OutFloat64Vector,
) -> None:
    """Fill log x, exp(-x), log G(x) and psi(x), as the kernels above compute them.

    Shapes: `x`, `logs`, `exponential`, `log_gamma`, `first` (n,).
    """
    work, negative = np.zeros(x.size), -x
    bits = work.view(np.int64)
    logarithms(x, work, bits, logs)
    for k in range(x.size):
        negative[k] = max(negative[k], -700.0)
    exponentials(negative, work, bits, exponential)
    log_gammas(x, work, bits, first, log_gamma)
    digammas(x, work, bits, first)


MIN_LOG_WEIGHT = -345.0  # the product of two weights stays a normal number


@kernel
def sweep_mean_field(
    documents: DocumentPairs,
    topics: MeanFieldTopics,
    before: Float32Matrix,
    limits: PassLimits,
    expected: ExpectedCounts,
    log_theta: OutFloat64Vector,
    bound: OutFloat64Vector,
) -> None:
    """Update gamma and the responsibilities of each document in turn; twin: `naive.mean_field.sweep`.

    Shapes: `before` (documents, topics); `log_theta` (topics,); `bound` (1,).
    """
    offsets, counts, weights = documents.offsets, documents.counts, documents.weights
    word_expected, prior, _ = topics
    document_topic, word_topic = expected
    size, all_prior, at_prior = prior.size, prior.sum(), np.zeros(prior.size)
    space = make_workspace(size, offsets)
    topic_counts, shape, weight, log_weight, new, work, bits, norm = space
    log_gammas(prior, work, bits, new, at_prior)
    word_topic[:] = 0.0
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        if first == last:
            document_topic[document] = 0.0
            continue
        for k in range(size):
            topic_counts[k] = before[document, k]
        _fit_document(first, last, documents, topics, limits, space)
        bound[0] += add_pairs(first, last, documents, weight, norm, word_topic)
        tokens = 0.0
        for pair in range(first, last):
            tokens += counts[pair] * token_weight(weights, pair)
        for k in range(size):
            document_topic[document, k] = topic_counts[k]
        for k in range(size):
            shape[k] = prior[k] + topic_counts[k]
        if log_theta.size:
            digammas(shape, work, bits, new)
            of_all = digamma(all_prior + tokens)
            for k in range(size):
                log_theta[k] += new[k] - of_all
        log_gammas(shape, work, bits, weight, new)
        of_topics = bound[0]
        for k in range(size):
            of_topics += new[k] - at_prior[k] - topic_counts[k] * log_weight[k]
        bound[0] = of_topics + math.lgamma(all_prior) - math.lgamma(all_prior + tokens)
    finish_words(word_expected, word_topic)


@helper
def make_workspace(topics: int, offsets: Array) -> Workspace:
    """Return the workspace of a sweep over documents."""
    longest = np.diff(offsets).max() if offsets.size > 1 else 0
    topic_counts, shape, weight, log_weight = np.zeros(topics), np.zeros(topics), np.zeros(topics), np.zeros(topics)
    new, work = np.zeros(topics), np.zeros(topics)
    return Workspace(topic_counts, shape, weight, log_weight, new, work, work.view(np.int64), np.zeros(longest))


@borrower
def _fit_document(
    first: int, last: int, documents: DocumentPairs, topics: MeanFieldTopics, limits: PassLimits, space: Workspace
) -> None:
    """Update a document's gamma and responsibilities until its E[n_dk] have converged."""
    word_expected, prior, topic_log = topics
    topic_counts, shape, weight, log_weight, new, work, bits, norm = space
    for _ in range(limits.passes):
        for k in range(prior.size):
            shape[k] = prior[k] + topic_counts[k]
        digammas(shape, work, bits, log_weight)
        for k in range(prior.size):
            log_weight[k] -= topic_log[k]
        rescale(log_weight)
        exponentials(log_weight, work, bits, weight)
        count_topics(first, last, documents, word_expected, weight, norm, new)
        if replace_counts(topic_counts, new) < limits.tolerance * prior.size:
            break


@kernel
def count_products(
    documents: DocumentPairs, document_weight: Float64Matrix, word_weight: Float64Matrix, expected: ExpectedCounts
) -> None:
    """Count responsibilities, products of document and word weights; twin: `naive.mean_field.products`."""
    offsets = documents.offsets
    document_topic, word_topic = expected
    topics = document_weight.shape[1]
    topic_counts = np.zeros(topics)
    norm = np.zeros(np.diff(offsets).max() if offsets.size > 1 else 0)
    word_topic[:] = 0.0
    for document in range(offsets.size - 1):
        first, last, weight = offsets[document], offsets[document + 1], document_weight[document]
        count_topics(first, last, documents, word_weight, weight, norm, topic_counts)
        add_pairs(first, last, documents, weight, norm, word_topic)
        for k in range(topics):
            document_topic[document, k] = topic_counts[k]
    finish_words(word_weight, word_topic)


@helper
def add_pairs(first: int, last: int, documents: DocumentPairs, weight: Array, norm: Array, word_topic: Array) -> float:
    """Add a document's pairs to the words' counts, but for the words' weights; return sum c log norm."""
    logs = 0.0
    for pair in range(first, last):
        row, total = documents.position[pair], norm[pair - first]
        tokens = documents.counts[pair] * token_weight(documents.weights, pair)
        factor = tokens / total
        logs += tokens * math.log(total)
        for k in range(weight.size):
            word_topic[row, k] += factor * weight[k]
    return logs


@helper
def finish_words(word_weight: Array, word_topic: Array) -> None:
    """Multiply the sums of `add_pairs` by the words' weights, which makes them E[n_kw]."""
    for row in range(word_topic.shape[0]):
        for k in range(word_topic.shape[1]):
            word_topic[row, k] *= word_weight[row, k]


@helper
def count_topics(
    first: int,
    last: int,
    documents: DocumentPairs,
    word_expected: Array,
    weight: Array,
    norm: Array,
    topic_counts: Array,
) -> None:
    """Fill E[n_dk] of a document, and the sum over the topics of each of its pairs' unnormalised responsibilities."""
    topic_counts[:] = 0.0
    for pair in range(first, last):
        row, total = documents.position[pair], 0.0
        for k in range(weight.size):
            total += weight[k] * word_expected[row, k]
        norm[pair - first] = total
        factor = documents.counts[pair] * token_weight(documents.weights, pair) / total
        for k in range(weight.size):
            topic_counts[k] += factor * word_expected[row, k]
    for k in range(weight.size):
        topic_counts[k] *= weight[k]


@helper
def replace_counts(counts: Array, new: Array) -> float:
    """Copy new counts over others; return the sum of the absolute changes."""
    change = 0.0
    for k in range(counts.size):
        change += abs(new[k] - counts[k])
    for k in range(counts.size):
        counts[k] = new[k]
    return change


@kernel
def fold_words(
    word_topic: Float64Matrix,
    word_expected: Float64Matrix,
    prior: Float64Vector,
    new_expected: OutFloat64Matrix,
    sums: OutFloat64Vector,
) -> None:
    """Compute the weights of words from their new counts, and their part of the bound; twin: `naive.mean_field.fold`.

    Shapes: `word_topic`, `word_expected`, `new_expected` (words, topics); `prior` (words,); `sums` (2,).
    """
    topics = word_topic.shape[1]
    value, logs, new, work = np.zeros(topics), np.zeros(topics), np.zeros(topics), np.zeros(topics)
    bits = work.view(np.int64)
    bound, log_phi = sums[0], sums[1]
    for word in range(word_topic.shape[0]):
        at_prior = math.lgamma(prior[word])
        logarithms(word_expected[word], work, bits, logs)
        for k in range(topics):
            bound -= word_topic[word, k] * logs[k] + at_prior
        for k in range(topics):
            value[k] = prior[word] + word_topic[word, k]
        log_gammas(value, work, bits, logs, new)
        for k in range(topics):
            bound += new[k]
        digammas(value, work, bits, logs)
        for k in range(topics):
            log_phi += logs[k]
        rescale(logs)
        exponentials(logs, work, bits, new)
        for k in range(topics):
            new_expected[word, k] = new[k]
    sums[0], sums[1] = bound, log_phi


@helper
def rescale(logs: Array) -> None:
    """Subtract the largest of some logarithms from all, and raise those below `MIN_LOG_WEIGHT` to it."""
    top = -np.inf
    for k in range(logs.size):
        top = max(top, logs[k])
    for k in range(logs.size):
        logs[k] = max(logs[k] - top, MIN_LOG_WEIGHT)


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
            factor = 1.0 / (rate[k] + u)
            share = (prior[k] + counts[k]) * factor
            balance += share * u
            slope += share * rate[k] * factor
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
        for k in range(size):
            topic_counts[k] = before[document, k]
        u = _fit_gamma_document(first, last, documents, topics, limits, space, rates)
        if last > first:
            of_words = bound[0] + add_pairs(first, last, documents, weight, norm, word_topic)
            for k in range(size):
                of_words -= topic_counts[k] * log_weight[k]
            bound[0] = of_words
        for k in range(size):
            document_topic[document, k] = topic_counts[k]
        u = _balance(prior, topic_counts, rates.prior, u)
        _add_topic_sums(u, prior_terms, space, rates, topic_sums)
        of_proportions = bound[0]
        for k in range(size):
            of_proportions -= shape[k] * new[k] + prior_terms.log_gamma[k]
        bound[0] = of_proportions
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
def _fit_gamma_document(
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
            factor = size * part[k]
            label_sums[row, kind, k] += factor * counts[k]
            label_sums[row, kind + 1, k] += factor
            label_sums[row, kind + 2, k] += length * factor * counts[k]
            label_sums[row, kind + 3, k] += length * factor
        if curvature.shape[0]:
            half = curvature.shape[1] // 2
            for second in range(begin, end):
                column, product = label[second], value[place] * value[second]
                for k in range(part.size):
                    factor = product * part[k]
                    curvature[row, column, k] += factor * counts[k]
                    curvature[row, half + column, k] += factor


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
        for k in range(topics):
            total += mean[k]
        for k in range(topics):
            theta[document, k] = mean[k] / total
