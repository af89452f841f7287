"""Topics whose proportions are gamma variables with rates, one document at a time, with explicit responsibilities."""

from itertools import pairwise

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, gammaln

from tests.naive.mean_field import responsibilities


def rates(label_offsets, label, value, log_rate, document):
    """Return R_k of a document."""
    entries = slice(label_offsets[document], label_offsets[document + 1])
    return np.exp((value[entries, np.newaxis] * log_rate[label[entries]]).sum(axis=0))


def balance(prior, counts, rate):
    """Return the u at which sum_k (g + n) u / (R + u) = N, by bisection of its logarithm."""
    tokens = counts.sum()
    if tokens == 0:
        return 0.0
    beyond = lambda t: ((prior + counts) / (1 + rate * np.exp(-t))).sum() - tokens  # noqa: E731
    return np.exp(brentq(beyond, -200, 200, xtol=1e-13))


def sweep(documents, topics, labels, before, limits, kinds):
    """Return all arrays that the kernel fills, as a dictionary."""
    offsets, position, counts = documents[:3]
    word_expected, prior, topic_log = topics
    log_word, size, rows = np.log(word_expected), prior.size, labels.log_rate.shape[0]
    results = {
        "document_topic": np.zeros(before.shape),
        "word_topic": np.zeros(word_expected.shape),
        "topic_sums": np.zeros((2, size)),
        "label_sums": np.zeros((rows, kinds, size)),
        "curvature": np.zeros((rows, 2 * rows, size)),
        "bound": 0.0,
    }
    for d, (first, last) in enumerate(pairwise(offsets)):
        rate = rates(*labels, d)
        words, count = position[first:last], counts[first:last, np.newaxis]
        document_counts = before[d].astype(np.float64)
        q = logs = np.zeros((0, size))
        for _ in range(limits.passes if last > first else 0):
            log_pi = digamma(prior + document_counts) - np.log(rate + balance(prior, document_counts, rate))
            q, logs = responsibilities(log_pi - topic_log, log_word[words])
            new = (count * q).sum(axis=0)
            change, document_counts = np.abs(new - document_counts).mean(), new
            if change < limits.tolerance:
                break
        results["document_topic"][d] = document_counts
        np.add.at(results["word_topic"], words, count * q)
        u = balance(prior, document_counts, rate)
        shape, b = prior + document_counts, rate + u
        results["topic_sums"] += [prior * (digamma(shape) - digamma(prior)), -np.log(b)]
        results["bound"] += (count * q * (log_word[words] - logs)).sum()
        results["bound"] += (gammaln(shape) - gammaln(prior) - shape * np.log(b)).sum()
        if last > first:
            results["bound"] += document_counts.sum() * (1 - np.log(document_counts.sum() / u))
        add_label_sums(results, labels, d, document_counts, rate / b)
    return results


def add_label_sums(results, labels, document, counts, part):
    """Add a document to the sums of its labels."""
    offsets, label, value, log_rate = labels
    entries = range(offsets[document], offsets[document + 1])
    length = sum(abs(value[entry]) for entry in entries)
    for entry in entries:
        kind = 0 if value[entry] > 0 else 4
        if value[entry]:
            part_of_label = abs(value[entry]) * part
            results["label_sums"][label[entry], kind : kind + 4] += [
                part_of_label * counts,
                part_of_label,
                length * part_of_label * counts,
                length * part_of_label,
            ]
        for second in entries:
            both = value[entry] * value[second] * part
            results["curvature"][label[entry], label[second]] += both * counts
            results["curvature"][label[entry], len(log_rate) + label[second]] += both


def proportions(labels, prior, document_topic):
    """Return theta = E[pi] / sum_k E[pi]."""
    theta = np.zeros(document_topic.shape)
    for d, counts in enumerate(document_topic):
        rate = rates(*labels, d)
        theta[d] = (prior + counts) / (rate + balance(prior, counts, rate))
    return theta / theta.sum(axis=1, keepdims=True)


def expected(labels, prior):
    """Return E[pi_k / sum_l pi_l] of pi_k ~ Gamma(g_k, R_k), on a fine grid of log t."""
    documents = labels[0].size - 1
    theta = np.zeros((documents, prior.size))
    t = np.arange(-100, 100 + 100 / min(prior.sum(), 1.0), 0.05)[:, np.newaxis]
    for d in range(documents):
        document_rate = np.log(rates(*labels, d))
        falls = (prior * np.logaddexp(0, t - document_rate)).sum(axis=1, keepdims=True)
        theta[d] = 0.05 * (prior * np.exp(t - np.logaddexp(t, document_rate) - falls)).sum(axis=0)
    assert np.allclose(theta.sum(axis=1), 1.0)
    return theta
