"""Mean-field updates, one document at a time, with explicit responsibilities."""

from itertools import pairwise

import numpy as np
from scipy.special import digamma, gammaln, logsumexp


def responsibilities(log_document, log_word):
    """Return q ~ exp(log_document + log_word), shape (pairs, topics), and its logarithm."""
    logs = log_document + log_word
    logs = logs - logsumexp(logs, axis=1, keepdims=True)
    return np.exp(logs), logs


def with_totals(documents):
    """Return offsets, rows, and the weight of all tokens of each pair, or their number if they have no weights."""
    offsets, position, counts, *weights = documents
    return offsets, position, counts * weights[0].astype(np.float64) if weights and weights[0].size else counts


def sweep(documents, topics, before, limits):
    """Return E[n_dk], E[n_kw], sum_d E[log theta_dk] and the documents' part of the bound."""
    offsets, position, counts = with_totals(documents)
    word_expected, prior, topic_log = topics
    log_word, by_document = np.log(word_expected), np.zeros(before.shape)
    by_word, log_theta, bound = np.zeros(word_expected.shape), np.zeros(prior.size), 0.0
    for d, (first, last) in enumerate(pairwise(offsets)):
        if first == last:
            continue
        words, count = position[first:last], counts[first:last, np.newaxis]
        document_counts = before[d].astype(np.float64)
        for _ in range(limits.passes):
            q, logs = responsibilities(digamma(prior + document_counts) - topic_log, log_word[words])
            new = (count * q).sum(axis=0)
            change, document_counts = np.abs(new - document_counts).mean(), new
            if change < limits.tolerance:
                break
        by_document[d] = document_counts
        np.add.at(by_word, words, count * q)
        gamma = prior + document_counts
        log_theta += digamma(gamma) - digamma(gamma.sum())
        bound += (count * q * (log_word[words] - logs)).sum()
        bound += (gammaln(gamma) - gammaln(prior)).sum() - gammaln(gamma.sum()) + gammaln(prior.sum())
    return by_document, by_word, log_theta, bound


def products(documents, document_weight, word_weight):
    """Return E[n_dk] and E[n_kw] of q ~ document_weight word_weight."""
    offsets, position, counts = with_totals(documents)
    by_document, by_word = np.zeros(document_weight.shape), np.zeros(word_weight.shape)
    for d, (first, last) in enumerate(pairwise(offsets)):
        q = document_weight[d] * word_weight[position[first:last]]
        q = counts[first:last, np.newaxis] * q / q.sum(axis=1, keepdims=True)
        by_document[d] = q.sum(axis=0)
        np.add.at(by_word, position[first:last], q)
    return by_document, by_word


def fold(word_topic, word_expected, prior):
    """Return exp(psi(lambda_kw)) scaled to a maximum of one per word, the words' part of the bound, and sum_kw
    psi(lambda_kw)."""
    b = prior[:, np.newaxis]
    logs = digamma(b + word_topic)
    bound = (gammaln(b + word_topic) - gammaln(b) - word_topic * np.log(word_expected)).sum()
    return np.exp(logs - logs.max(axis=1, keepdims=True)), bound, logs.sum()
