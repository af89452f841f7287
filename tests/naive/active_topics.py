"""Active topics of documents: their selection and sums over them, one document at a time."""

from itertools import pairwise

import numpy as np

from tests.naive import moments as exact
from tests.naive.active import documents, in_steps
from tests.naive.predict import pair_probability


def expected(offsets, position, counts, b, background, a, totals, lists, topic, starts, share, row_topic):
    """Return E[n_dk] of all topics, shape (documents, topics), dividing the background of each pair by its word.

    An inactive topic has a_k sum over pairs of c (1 - sum q) phi_kw / (S_w - sum over active a_l phi_lw), without the
    pairs whose denominator is almost zero.
    """
    result = np.zeros((len(offsets) - 1, a.size))
    weighed = a * (b[:, np.newaxis] + row_topic) / totals  # a_k phi_kw
    for d, (pairs, active, q) in enumerate(documents(offsets, lists, topic, starts, share)):
        for w, c, held in zip(position[pairs], counts[pairs], q.sum(axis=1), strict=True):
            left = background[w] - weighed[w, active].sum()
            if left > 1e-5 * background[w]:
                result[d] += c * (1 - held) * weighed[w] / left
        result[d, active] = counts[pairs] @ q
    return result


def select(count, threshold, room):
    """Return the topics whose expected counts exceed their thresholds, or the largest of them if there is no room for
    all.

    Among equal counts the first topics are preferred. If no topic exceeds its threshold, the largest of all is active.
    If more than half of all topics do, and there is room for all, all are active.
    """
    passing = np.flatnonzero(count > threshold)
    if passing.size == 0:
        return np.array([count.argmax()])
    if room == count.size and 2 * passing.size > room:
        return np.arange(count.size)
    return np.sort(passing[np.argsort(-count[passing], kind="stable")[:room]])


def carry(shape, offsets, position, counts, lists, topic, starts, share, new_lists, new_topic):
    """Return responsibilities of new active topics, and tokens of dropped topics by words and topics, shape (rows,
    topics)."""
    blocks, dropped = [], np.zeros(shape)
    for d, (pairs, active, q) in enumerate(documents(offsets, lists, topic, starts, share)):
        dense = np.zeros((q.shape[0], shape[1]))
        dense[:, active] = q
        selected = new_topic[new_lists[d] : new_lists[d + 1]]
        blocks.append(dense[:, selected].copy())
        dense[:, selected] = 0.0
        np.add.at(dropped, position[pairs], counts[pairs][:, np.newaxis] * dense)
    return in_steps(blocks), dropped


def tables(offsets, counts, lists, topic, starts, share, prior, pseudo=0.0, document_priors=None):
    """Return sums over documents of E[s_dk] of active topics, and of E[n_d,rest] / a_rest where a topic is inactive.

    Pseudo-counts, one number for all active topics, are certain. `document_priors` are the documents' own a_dk, if
    they have any.
    """
    total, growth = np.zeros(prior.size), np.zeros(prior.size)
    for d, (pairs, active, q) in enumerate(documents(offsets, lists, topic, starts, share)):
        mean, variance, log_absent = exact.moments(q, counts[pairs])
        log_absent = np.full_like(log_absent, -np.inf) if pseudo else log_absent
        a = prior if document_priors is None else document_priors[d]
        total[active] += exact.tables(a[active], mean + pseudo, variance, log_absent)
        inactive = np.delete(np.arange(prior.size), active)
        if inactive.size:
            growth[inactive] += (counts[pairs] @ (1 - q.sum(axis=1))) / prior[inactive].sum()
    return total, growth


def moments(shape, offsets, position, counts, lists, topic, starts, share):
    """Return V[n_kw] and Z[n_kw] of the active topics' responsibilities, shape (2, rows, topics)."""
    result = np.zeros((2, *shape))
    for pairs, active, q in documents(offsets, lists, topic, starts, share):
        for w, c, responsibilities in zip(position[pairs], counts[pairs], q, strict=True):
            _, variance, log_absent = exact.moments(responsibilities[np.newaxis], [c])
            result[0, w, active] += variance
            result[1, w, active] += log_absent
    return result


def document_topic(a, lists, topic, active_count, rest):
    """Return E[n_dk] of all topics: inactive ones share the background in proportion to a_k."""
    result = np.zeros((len(rest), a.size))
    for d, (low, high) in enumerate(pairwise(lists)):
        inactive = np.delete(np.arange(a.size), topic[low:high])
        result[d, inactive] = rest[d] * a[inactive] / a[inactive].sum()
        result[d, topic[low:high]] = active_count[low:high]
    return result


def probability(offsets, position, row_topic, b, a, totals, rest_prior, lists, topic, active_count, rest):
    """Return sum_k theta_dk phi_kw + theta_rest tau_w of each pair; `rest_prior` is A - sum_k a_k, and B."""
    count = document_topic(a, lists, topic, active_count, rest)
    lengths = count.sum(axis=1)  # if all topics are active, the remainder of truncation belongs to no topic
    length = a.sum() + rest_prior[0] + lengths
    theta, phi = (a + count) / length[:, np.newaxis], (b[:, np.newaxis] + row_topic) / totals
    return pair_probability(offsets, position, theta, phi, rest_prior[0] / length, b / rest_prior[1])
