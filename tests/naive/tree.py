"""Documents over the complete paths of a tree: every path is written out, and all sums are in logarithms.

A tree is given by the parents and levels of its nodes, parents first. An end is the node at which a path leaves the
tree; its deeper nodes, outside the tree, are `None`.
"""

from itertools import pairwise

import numpy as np
from scipy.special import digamma, entr, gammaln, logsumexp


def ends_of(parent, level, depth):
    """Return the node of each end at each level, or None."""
    paths = []
    for node in range(len(parent)):
        path, above = [None] * depth, node
        while above >= 0:
            path[level[above]] = above
            above = parent[above]
        paths.append(path)
    return paths


def log_words(paths, rows, log_node, log_outside):
    """Return log w_{c_l, t_m}, shape (ends, pairs, levels)."""
    logs = np.empty((len(paths), len(rows), len(log_outside)))
    for end, path in enumerate(paths):
        for k, node in enumerate(path):
            logs[end, :, k] = log_outside[k] if node is None else log_node[rows, node]
    return logs


def log_thetas(gamma):
    """Return E[log theta] of theta ~ Dir(gamma)."""
    return digamma(gamma) - digamma(gamma.sum())


def theta_bound(gamma, alpha, tokens):
    """Return E[log p(z | theta)] + E[log p(theta)] - E[log q(theta)], with every term written out."""
    logs = log_thetas(gamma)
    value = float((tokens * logs).sum())
    for sign, parameters in ((1.0, alpha), (-1.0, gamma)):
        value += sign * float(gammaln(parameters.sum()) - gammaln(parameters).sum() + ((parameters - 1.0) * logs).sum())
    return value


def largest(q, share, limit):
    """Return the largest q and all others with at least a share, in descending order; among equal ones the first comes
    first."""
    order = sorted(range(len(q)), key=lambda end: (-q[end], end))
    chosen = [end for place, end in enumerate(order[:limit]) if place == 0 or q[end] >= share]
    return chosen, [q[end] for end in chosen]


class Sums:
    """The sums of sweeps."""

    def __init__(self, documents, words, nodes, depth):
        self.document_level, self.row_node = np.zeros((documents, depth)), np.zeros((words, nodes))
        self.ends, self.log_theta, self.bound, self.q = np.zeros(nodes), np.zeros(depth), 0.0, []

    def add(self, document, has_path, paths, rows, q, z, counts, alpha):
        """Add one document, with q(c), shape (ends,), and q(z | c), shape (ends, pairs, levels)."""
        expected = q[:, np.newaxis, np.newaxis] * counts[:, np.newaxis] * z
        tokens = expected.sum(axis=(0, 1))
        self.document_level[document] = tokens
        for end, path in enumerate(paths):
            for k, node in enumerate(path):
                if node is not None:
                    np.add.at(self.row_node[:, node], rows, expected[end, :, k])
        self.ends += q
        self.q.append(q)
        if has_path:
            self.log_theta += log_thetas(alpha + tokens)
        self.bound += theta_bound(alpha + tokens, alpha, tokens)
        return expected


def sweep_paths(
    offsets, position, counts, word_node, parent, level, end_log, outside, alpha, before, passes, tolerance
):
    """Update q(c) q(z | c) and then q(theta), in some passes over each document."""
    depth = alpha.size
    paths = ends_of(parent, level, depth)
    sums = Sums(len(offsets) - 1, *word_node.shape, depth)
    for document, (first, last) in enumerate(pairwise(offsets)):
        rows, times, tokens = position[first:last], counts[first:last].astype(float), before[document].copy()
        words = log_words(paths, rows, np.log(word_node), np.log(outside))
        for _ in range(passes):
            joint = words + log_thetas(alpha + tokens)
            pair_logs = logsumexp(joint, axis=2)
            score = end_log + pair_logs @ times
            log_q = score - logsumexp(score)
            z = np.exp(joint - pair_logs[:, :, np.newaxis])
            new = np.einsum("e,m,eml->l", np.exp(log_q), times, z)
            change, tokens = np.abs(new - tokens).sum(), new
            if change < tolerance:
                break
        q = np.exp(log_q)
        expected = sums.add(document, last > first, paths, rows, q, z, times, alpha)
        sums.bound += float((q * end_log).sum() + entr(q).sum() + (expected * words).sum())
        sums.bound += float((q[:, np.newaxis] * times * entr(z).sum(axis=2)).sum())
    return sums


def sweep_levels(offsets, position, counts, log_node, parent, level, end_log, outside, alpha, before, passes):
    """Update q(c), q(z) and q(theta) separately, in some passes over each document; z is rounded to its stored
    precision."""
    depth = alpha.size
    paths = ends_of(parent, level, depth)
    sums = Sums(len(offsets) - 1, *log_node.shape, depth)
    inside = np.array([[node is not None for node in path] for path in paths])
    pair_level = np.array(before)
    for document, (first, last) in enumerate(pairwise(offsets)):
        rows, times = position[first:last], counts[first:last].astype(float)
        words = log_words(paths, rows, log_node, outside)
        z = pair_level[first:last].astype(float)
        for _ in range(passes):
            score = end_log + np.einsum("m,ml,eml->e", times, z, words)
            q = np.exp(score - logsumexp(score))
            logs = log_thetas(alpha + times @ z) + np.einsum("e,eml->ml", q, words)
            z = np.exp(logs - logsumexp(logs, axis=1, keepdims=True)).astype(np.float32).astype(float)
        pair_level[first:last] = z
        expected = sums.add(document, last > first, paths, rows, q, np.tile(z, (len(paths), 1, 1)), times, alpha)
        sums.bound += float((q * end_log).sum() + entr(q).sum() + times @ entr(z).sum(axis=1))
        sums.bound += float((expected * words)[np.broadcast_to(~inside[:, np.newaxis], words.shape)].sum())
    sums.pair_level = pair_level
    return sums


def root_products(word_node):
    """Return sum_w sqrt(n_iw n_jw)."""
    return np.sqrt(word_node).T @ np.sqrt(word_node)


def merge_gains(word_node, first, second, prior):
    """Return the log ratio of the words' part of p(t) with two nodes merged, and with two separate nodes."""
    gains = []
    for i, j, a in zip(first, second, prior, strict=True):
        left, right = word_node[:, i], word_node[:, j]
        gains.append((gammaln(a + left + right) - gammaln(a + left) - gammaln(a + right) + gammaln(a)).sum())
    return np.array(gains)


def path_probability(offsets, position, counts, word_node, parent, level, theta, lists, ends, masses, outside):
    """Return the probabilities of pairs, and the log probabilities of documents, given the paths of each."""
    paths = ends_of(parent, level, theta.shape[1])
    probability, document_log = np.zeros(len(position)), np.zeros(len(offsets) - 1)
    for document, (first, last) in enumerate(pairwise(offsets)):
        stored = slice(lists[document], lists[document + 1])
        share = masses[stored].astype(float) / masses[stored].astype(float).sum()
        stored_paths = [paths[end] for end in ends[stored]]
        words = np.exp(log_words(stored_paths, position[first:last], np.log(word_node), np.log(outside)))
        chance = words @ theta[document]
        probability[first:last] = share @ chance
        document_log[document] = logsumexp(np.log(share) + np.log(chance) @ counts[first:last])
    return probability, document_log
