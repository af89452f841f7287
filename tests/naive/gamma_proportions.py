"""Topics whose proportions are gamma variables with rates, a document at a time, with responsibilities written out."""

from itertools import pairwise

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, gammaln

from tests.naive.mean_field import responsibilities


def rates(label_offsets, label, value, log_rate, document):
    """R_k of a document."""
    own = slice(label_offsets[document], label_offsets[document + 1])
    return np.exp((value[own, np.newaxis] * log_rate[label[own]]).sum(axis=0))


def balance(prior, here, rate):
    """The u at which sum_k (g + n) u / (R + u) = N, by bisection of its logarithm."""
    tokens = here.sum()
    if tokens == 0:
        return 0.0
    beyond = lambda t: ((prior + here) / (1 + rate * np.exp(-t))).sum() - tokens  # noqa: E731
    return np.exp(brentq(beyond, -200, 200, xtol=1e-13))


def sweep(documents, topics, labels, before, limits, kinds):
    """All that the kernel fills, as a dict."""
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
        here = before[d].astype(np.float64)
        q = logs = np.zeros((0, size))
        for _ in range(limits.passes if last > first else 0):
            log_pi = digamma(prior + here) - np.log(rate + balance(prior, here, rate))
            q, logs = responsibilities(log_pi - topic_log, log_word[words])
            new = (count * q).sum(axis=0)
            change, here = np.abs(new - here).mean(), new
            if change < limits.tolerance:
                break
        results["document_topic"][d] = here
        np.add.at(results["word_topic"], words, count * q)
        u = balance(prior, here, rate)
        shape, b = prior + here, rate + u
        results["topic_sums"] += [prior * (digamma(shape) - digamma(prior)), -np.log(b)]
        results["bound"] += (count * q * (log_word[words] - logs)).sum()
        results["bound"] += (gammaln(shape) - gammaln(prior) - shape * np.log(b)).sum()
        if last > first:
            results["bound"] += here.sum() * (1 - np.log(here.sum() / u))
        add_label_sums(results, labels, d, here, rate / b)
    return results


def add_label_sums(results, labels, document, here, part):
    """Add a document to the sums of its labels."""
    offsets, label, value, log_rate = labels
    own = range(offsets[document], offsets[document + 1])
    length = sum(abs(value[entry]) for entry in own)
    for entry in own:
        kind = 0 if value[entry] > 0 else 4
        if value[entry]:
            each = abs(value[entry]) * part
            results["label_sums"][label[entry], kind : kind + 4] += [
                each * here,
                each,
                length * each * here,
                length * each,
            ]
        for other in own:
            both = value[entry] * value[other] * part
            results["curvature"][label[entry], label[other]] += both * here
            results["curvature"][label[entry], len(log_rate) + label[other]] += both


def proportions(labels, prior, document_topic):
    """theta = E[pi] / sum_k E[pi]."""
    theta = np.zeros(document_topic.shape)
    for d, here in enumerate(document_topic):
        rate = rates(*labels, d)
        theta[d] = (prior + here) / (rate + balance(prior, here, rate))
    return theta / theta.sum(axis=1, keepdims=True)


def expected(labels, prior):
    """E[pi_k / sum_l pi_l] of pi_k ~ Gamma(g_k, R_k), on a fine grid of log t."""
    documents = labels[0].size - 1
    theta = np.zeros((documents, prior.size))
    t = np.arange(-100, 100 + 100 / min(prior.sum(), 1.0), 0.05)[:, np.newaxis]
    for d in range(documents):
        document_rate = np.log(rates(*labels, d))
        falls = (prior * np.logaddexp(0, t - document_rate)).sum(axis=1, keepdims=True)
        theta[d] = 0.05 * (prior * np.exp(t - np.logaddexp(t, document_rate) - falls)).sum(axis=0)
    assert np.allclose(theta.sum(axis=1), 1.0)
    return theta
