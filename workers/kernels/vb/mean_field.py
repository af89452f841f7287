"""Mean-field updates of bag-of-words topics (Blei, Ng and Jordan 2003): sweeps over documents, and rows of words.

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
from collapsium.workers.kernels.vb.vector_functions import digammas, exponentials, log_gammas, logarithms

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
