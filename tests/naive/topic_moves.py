"""Moves of topics, one document at a time: gains on held-out tokens, and states after moves."""

from itertools import pairwise

import numpy as np

from collapsium.workers.kernels.cvb.topic_moves import SAMPLED_PAIRS
from tests.naive.active import documents, in_steps
from tests.naive.random import MASK, mixed

STRIDE = 0x9E3779B97F4A7C15
LEAST_RATIO = 0.001  # lower bound of ratios of probabilities


def address(key, number):
    """Return the hash of number `number` under the hash `key` of its container."""
    return mixed((int(key) + (int(number) + 1) * STRIDE) & MASK)


def hold_out(offsets, words, position, counts, key, share):
    """Return the number of held-out copies of each pair: those whose hash, as a fraction of 1, is less than `share`."""
    held = np.zeros(len(position), dtype=np.int32)
    for d, (first, last) in enumerate(pairwise(offsets)):
        for pair in range(first, last):
            place = address(address(key, d), words[position[pair]])
            held[pair] = sum((address(place, copy) >> 11) < share * 2.0**53 for copy in range(counts[pair]))
    return held


def theta(a, active, count, rest):
    """Return a_k + E[n_dk] of all topics; inactive ones share the document's background in proportion to the prior."""
    weights, unlisted = np.array(a), np.delete(np.arange(a.size), active)
    weights[active] += count
    if unlisted.size and a[unlisted].sum() > 1e-9 * a.sum():
        weights[unlisted] += rest * a[unlisted] / a[unlisted].sum()
    return weights


def phi(b, totals, row_topic):
    """Return (b_w + E[n_kw]) / (B + E[n_k]), shape (rows, topics)."""
    return (b[:, np.newaxis] + row_topic.astype(np.float64)) / totals


def merged(k, m, theta, b, totals, row_topic, concentration):
    """Return theta and phi of the remaining topics after merging m into k: tokens add up, and b_w and B count once."""
    theta, totals, row_topic = np.array(theta), np.array(totals), row_topic.astype(np.float64)
    theta[k] += theta[m]
    row_topic[:, k] += row_topic[:, m]
    totals[k] += totals[m] - concentration
    return np.delete(theta, m), np.delete(phi(b, totals, row_topic), m, axis=1)


def gained(before, after, held):
    """Return the log ratio of probabilities and its square, each summed over the held-out copies."""
    delta = np.log(np.maximum(after / before, LEAST_RATIO))
    return np.array([(held * delta).sum(), (held * delta**2).sum()])


def score_merges(
    offsets, position, held, lists, topic, active_count, rest, a, b, totals, row_topic, concentration, into, gone
):
    """Return the gains of merging pairs of topics, and the sums of squares, shape (2, candidates)."""
    result = np.zeros((2, len(into)))
    for d, (first, last) in enumerate(pairwise(offsets)):
        entries = slice(lists[d], lists[d + 1])
        mine = theta(a, topic[entries], active_count[entries], rest[d])
        rows = position[first:last]
        before = phi(b, totals, row_topic)[rows] @ mine
        for place, (k, m) in enumerate(zip(into, gone, strict=True)):
            new_theta, new_phi = merged(k, m, mine, b, totals, row_topic, concentration)
            result[:, place] += gained(before, new_phi[rows] @ new_theta, held[first:last])
    return result


def score(offsets, position, held, lists, topic, active_count, rest, a, b, totals, row_topic, ratio=1.0):
    """Return the sum of the log probabilities of the held-out tokens, and their number.

    With word weights, `ratio` is the ratio of a topic's unweighted to its weighted tokens, both including the prior.
    """
    result = np.zeros(2)
    for d, (first, last) in enumerate(pairwise(offsets)):
        entries = slice(lists[d], lists[d + 1])
        mine = theta(a, topic[entries], active_count[entries], rest[d])
        p = phi(b, totals, row_topic)[position[first:last]] @ mine / (ratio * mine).sum()
        result += held[first:last] @ np.log(p), held[first:last].sum()
    return result


def reassigned_tokens(k, rows, counts, q, active, theta, phi):
    """Return a document's tokens of an active topic after reassignment to all other topics by the update without it.

    In a long document, evenly spaced pairs represent all pairs.
    """
    result = np.zeros(theta.size)
    stride = max(len(rows) // SAMPLED_PAIRS, 1)
    some = slice(len(rows) % stride, None, stride)
    tokens = counts * q[:, list(active).index(k)]
    for w, share in zip(rows[some], tokens[some], strict=True):
        weights = theta * phi[w]
        weights[k] = 0.0
        if weights.sum() > 0.0:
            result += share * weights / weights.sum()
    return result * (tokens.sum() / result.sum() if stride > 1 and result.any() else 1.0)


def reassign(offsets, position, counts, lists, topic, starts, share, active_count, rest, a, b, totals, row_topic, gone):
    """Return the tokens that each of the topics `gone` passes to other active topics, shape (candidates, topics)."""
    result, probability = np.zeros((len(gone), a.size)), phi(b, totals, row_topic)
    for d, (pairs, active, q) in enumerate(documents(offsets, lists, topic, starts, share)):
        mine = theta(a, active, active_count[lists[d] : lists[d + 1]], rest[d])
        for place, k in enumerate(gone):
            if k in active:
                handed = reassigned_tokens(k, position[pairs], counts[pairs], q, active, mine, probability)
                result[place, active] += handed[active]
    return result


def without(k, b, totals, row_topic, spilt):
    """Return phi after topic k was deleted; tokens of each word are divided in proportion to C_j phi_jw, and column k
    is 0."""
    probability = phi(b, totals, row_topic)
    weights = spilt * probability
    weights[:, k] = 0.0
    share = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
    more = row_topic[:, [k]].astype(np.float64) * share
    result = (b[:, np.newaxis] + row_topic + more) / (totals + spilt)
    result[:, k] = 0.0
    return result


def score_deletions(
    offsets, position, counts, held, lists, topic, starts, share, active_count, rest, a, b, totals, row_topic, gone,
    spilt,
):  # fmt: skip
    """Return the gains of deleting topics, and the sums of squares, shape (2, candidates).

    Probabilities are s / sum theta before and after. Tokens that move to a document's background are predicted as the
    background was before the deletion.
    """
    result, probability = np.zeros((2, len(gone))), phi(b, totals, row_topic)
    for d, (pairs, active, q) in enumerate(documents(offsets, lists, topic, starts, share)):
        mine, rows = theta(a, active, active_count[lists[d] : lists[d + 1]], rest[d]), position[pairs]
        unlisted = np.delete(np.arange(a.size), active)
        before = probability[rows] @ (mine / mine.sum())
        for place, k in enumerate(gone):
            active_counts, beyond = np.array(mine), np.zeros(a.size)
            active_counts[k] = 0.0
            if k in active:
                handed = reassigned_tokens(k, rows, counts[pairs], q, active, mine, probability)
                active_counts[active] += handed[active]
                beyond[unlisted] = handed[unlisted].sum() * a[unlisted] / a[unlisted].sum()
            after = without(k, b, totals, row_topic, spilt[place])[rows] @ active_counts + probability[rows] @ beyond
            result[:, place] += gained(before, after / (active_counts.sum() + beyond.sum()), held[pairs])
    return result


def target(k, into, split, key, document):
    """Return the topic that replaces a topic in a document; -1 for none."""
    is_split = address(key, document) >> 63
    return split[k] if is_split and split[k] >= 0 else into[k]


def moved(
    shape, offsets, position, counts, more, lists, topic, starts, share, into, split, key, first
):  # fmt: skip
    """Return the new active topics, responsibilities, and the changes of E[n_kw] and of the background.

    `more` tokens, which were held out before, count after the moves.
    """
    new_lists, blocks = [], []
    change, rest_change = np.zeros(shape), np.zeros(shape[0])
    for d, (pairs, active, q) in enumerate(documents(offsets, lists, topic, starts, share)):
        targets = [target(k, into, split, key, first + d) for k in active]
        before, after = np.zeros((len(q), shape[1])), np.zeros((len(q), shape[1]))
        for j, k in enumerate(active):
            before[:, k] += q[:, j]
            if targets[j] >= 0:
                after[:, targets[j]] += q[:, j]
        new = np.array(sorted({int(k) for k in targets if k >= 0}), dtype=np.int64)
        new_lists.append(new)
        blocks.append(after[:, new])
        now, had = counts[pairs][:, np.newaxis], (counts[pairs] - more[pairs])[:, np.newaxis]
        np.add.at(change, position[pairs], now * after - had * before)
        left = now * (1 - after.sum(axis=1, keepdims=True)) - had * (1 - before.sum(axis=1, keepdims=True))
        np.add.at(rest_change, position[pairs], left[:, 0])
    return new_lists, in_steps(blocks), change, rest_change


def gram(row_topic, least):
    """Return the products of columns, from cells above `least`, shape (topics, topics); the lower triangle is 0."""
    cells = np.where(row_topic > least, row_topic, 0.0).astype(np.float64)
    return np.triu(cells.T @ cells)
