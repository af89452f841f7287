"""Sweeps over active topics, one pair at a time in float64; responsibilities are read and returned in steps of 2^-15."""

from itertools import pairwise

import numpy as np

UNIT = 2**15
NEARLY = UNIT - 0.01  # steps that a pair's responsibilities may use, so that after truncation they never exceed UNIT


def documents(offsets, lists, topic, starts, share):
    """Return each document's pairs (a slice), active topics, and responsibilities q (pairs, active topics)."""
    result = []
    for d, (first, last) in enumerate(pairwise(offsets)):
        active = topic[lists[d] : lists[d + 1]].astype(np.int64)
        q = share[starts[d] : starts[d + 1]].reshape(last - first, active.size) / UNIT
        result.append((slice(first, last), active, q))
    return result


def in_steps(blocks):
    """Return the concatenated responsibilities of documents in steps."""
    return np.concatenate([np.zeros(0), *(q.ravel() * UNIT for q in blocks)]).astype(np.uint16)


def document_counts(offsets, counts, lists, topic, starts, share):
    """Return E[n_dk] of all documents' active topics, concatenated, and the documents' background tokens."""
    active_counts, rest = [np.zeros(0)], []
    for pairs, _, q in documents(offsets, lists, topic, starts, share):
        active_counts.append(counts[pairs] @ q)
        rest.append(counts[pairs] @ (1 - q.sum(axis=1)))
    return np.concatenate(active_counts), np.array(rest)


def word_counts(shape, offsets, position, counts, lists, topic, starts, share):
    """Return the counts of active topics by word and topic, shape (rows, topics), and each word's background tokens."""
    active_counts, rest = np.zeros(shape), np.zeros(shape[0])
    for pairs, active, q in documents(offsets, lists, topic, starts, share):
        c = counts[pairs].astype(np.float64)
        np.add.at(active_counts, (position[pairs][:, np.newaxis], active), c[:, np.newaxis] * q)
        np.add.at(rest, position[pairs], c * (1 - q.sum(axis=1)))
    return active_counts, rest


def initialise(offsets, lists, noise):
    """Return responsibilities in proportion to noise, the same for all pairs of a document."""
    blocks = []
    for (first, last), (low, high) in zip(pairwise(offsets), pairwise(lists), strict=True):
        noise_of_topics = noise[low:high].astype(np.float64)
        blocks.append(np.tile(np.floor(noise_of_topics / noise_of_topics.sum() * NEARLY) / UNIT, (last - first, 1)))
    return in_steps(blocks)


def logarithm(x):
    """Return the approximate base-2 logarithm e + m - 1 of m 2^e, m in [1, 2), which its bits are when read as an
    integer."""
    half, e = np.frexp(x)
    return np.where(x > 0, e - 1 + (2 * half - 1), -127.0)


def exponential(y):
    """Return the inverse of `logarithm`."""
    return np.exp2(np.floor(y)) * (1 + y - np.floor(y))


def to_power(weights, power):
    """Raise weights to a power, up to a common factor: exactly for 1 and 2, otherwise by the bits of a float."""
    return weights**power if power in (1, 2) else exponential(power * logarithm(weights))


def sweep(
    offsets, position, counts, b, background, a, ratio, powers, lists, topic, starts, share, running, row_topic,
    weights=None, least=0.0, document_priors=None,
):  # fmt: skip
    """Sweep once over the documents; return new responsibilities, the change of E[n_kw], and B + E[n_k].

    `background` is S_w of the rows `row_topic`, computed with `ratio` = a_k / (B + E[n_k]); `running` is B + E[n_k].
    What a document gives to a topic changes E[n_dk] and E[n_kw] from the next pair on, and E[n_k] from the next
    document on, but never `ratio`. B + E[n_k] is raised to `least` if it is lower. `counts` are the weights of all
    tokens of the pairs, and `weights` the weight of one token, which is excluded. `powers` are the inverse
    temperatures of documents with even and with odd indices. `document_priors` are the documents' own a_dk; `a` is
    then their mean.
    """
    weights = np.ones(len(position)) if weights is None else weights.astype(np.float64)
    row_topic = np.array(row_topic, dtype=np.float64)
    row_change, background = np.zeros_like(row_topic), np.array(background, dtype=np.float64)
    running, blocks = np.array(running, dtype=np.float64), []
    for number, (pairs, listed, q) in enumerate(documents(offsets, lists, topic, starts, share)):
        document_counts, power = counts[pairs] @ q, powers[number % 2]
        rest, before = counts[pairs] @ (1 - q.sum(axis=1)), document_counts
        unlisted = a.size - listed.size
        a_rest = np.delete(a, listed).sum()
        a_document = a if document_priors is None else document_priors[number]
        a_listed, a_unlisted = a_document[listed], np.delete(a_document, listed).sum()
        total = np.maximum(running[listed], least)
        for i, (w, c, weight) in enumerate(zip(position[pairs], counts[pairs], weights[pairs], strict=True)):
            old, n_kw = weight * q[i], row_topic[w, listed] + row_change[w, listed]
            token_weights = (
                (a_listed + np.maximum(document_counts - old, 0)) * (b[w] + np.maximum(n_kw - old, 0)) / (total - old)
            )
            inactive = 0.0
            if unlisted:
                inactive = background[w] - (ratio[listed] * (b[w] + n_kw)).sum()
                inactive = inactive if inactive > 1e-5 * background[w] else 0.0  # below, rounding alone
                inactive *= (a_unlisted + max(rest - weight * (1 - q[i].sum()), 0.0)) / a_rest
                inactive = unlisted * to_power(inactive / unlisted, power)  # as many equal topics
            token_weights = to_power(token_weights, power)
            before_pair, q[i] = q[i].copy(), np.floor(token_weights / (token_weights.sum() + inactive) * NEARLY) / UNIT
            document_counts = document_counts + c * (q[i] - before_pair)
            row_change[w, listed] += c * (q[i] - before_pair)
            background[w] += (ratio[listed] * c * (q[i] - before_pair)).sum()
            rest += c * (before_pair.sum() - q[i].sum())
        running[listed] += document_counts - before
        blocks.append(q)
    return in_steps(blocks), row_change, running
