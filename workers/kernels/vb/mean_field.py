"""Mean-field updates of bag-of-words topics (Blei, Ng and Jordan 2003): sweeps, rows of words, functions of arrays.

q_dwk ~ exp( psi(gamma_dk) + psi(lambda_kw) - psi(sum_w lambda_kw) ) is a product of a weight of the document and one of
the word, so that no exponential is taken per pair: E[n_dk] = weight_dk sum_w c word_kw / norm_dw, and likewise E[n_kw].
Both kinds of weights are scaled so that the largest over the topics is one, and none is below exp(`MIN_LOG_WEIGHT`);
the scale cancels in the bound.
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
from collapsium.workers.kernels.records import DocumentPairs, token_weight
from collapsium.workers.kernels.special import digamma
from collapsium.workers.kernels.vb.records import ExpectedCounts, MeanFieldTopics, PassLimits, Workspace

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
        topic_counts[:] = before[document]
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
        for k in range(size):
            bound[0] += new[k] - at_prior[k] - topic_counts[k] * log_weight[k]
        bound[0] += math.lgamma(all_prior) - math.lgamma(all_prior + tokens)
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
        each = tokens / total
        logs += tokens * math.log(total)
        for k in range(weight.size):
            word_topic[row, k] += each * weight[k]
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
        each = documents.counts[pair] * token_weight(documents.weights, pair) / total
        for k in range(weight.size):
            topic_counts[k] += each * word_expected[row, k]
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
    for word in range(word_topic.shape[0]):
        at_prior = math.lgamma(prior[word])
        logarithms(word_expected[word], work, bits, logs)
        for k in range(topics):
            sums[0] -= word_topic[word, k] * logs[k] + at_prior
        for k in range(topics):
            value[k] = prior[word] + word_topic[word, k]
        log_gammas(value, work, bits, logs, new)
        for k in range(topics):
            sums[0] += new[k]
        digammas(value, work, bits, logs)
        for k in range(topics):
            sums[1] += logs[k]
        rescale(logs)
        exponentials(logs, work, bits, new)
        for k in range(topics):
            new_expected[word, k] = new[k]


@helper
def rescale(logs: Array) -> None:
    """Subtract the largest of some logarithms from all, and raise those below `MIN_LOG_WEIGHT` to it."""
    top = -np.inf
    for k in range(logs.size):
        top = max(top, logs[k])
    for k in range(logs.size):
        logs[k] = max(logs[k] - top, MIN_LOG_WEIGHT)
