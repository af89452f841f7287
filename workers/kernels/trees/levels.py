"""Mean-field updates of documents over the paths of a tree, paths and levels apart, as in Wang and Blei (2009)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import F4_2, I4, I8, OUT_F4_2, OUT_F8_2, f8, helper, i8, kernel
from collapsium.workers.kernels.trees.paths import MADE, TREE, add_logs, keep_largest, log_beta, log_levels, softmax

Array = npt.NDArray[Any]


@helper
def _score_levels(
    position: Array,
    counts: Array,
    log_node: Array,
    parent: Array,
    level: Array,
    outside: Array,
    pair_level: Array,
    chance: Array,
    left: Array,
) -> None:
    """Fill sum_m sum_l q(z_m = l) E[log w_{c_l}] of each end."""
    chance[:] = 0.0
    left[:] = 0.0  # of the levels that a path has outside the tree, by the level at which it leaves
    for pair in range(position.size):
        row, count = position[pair], float(counts[pair])
        for node in range(parent.size):
            chance[node] += count * pair_level[pair, level[node]] * log_node[row, node]
        below = 0.0
        for k in range(outside.size - 1, 0, -1):
            below += count * pair_level[pair, k] * outside[k]
            left[k - 1] += below
    for node in range(1, parent.size):
        chance[node] += chance[parent[node]]
    for node in range(parent.size):
        chance[node] += left[level[node]]


@helper
def _pass_down(q: Array, parent: Array, level: Array, passing: Array, mean: Array) -> None:
    """Fill how much of a document passes each node, and is outside the tree at each level."""
    mean[:] = 0.0
    for end in range(q.size):
        passing[end] = q[end]
        for k in range(level[end] + 1, mean.size):
            mean[k] += q[end]
    for node in range(q.size - 1, 0, -1):
        passing[parent[node]] += passing[node]


@helper
def _share_levels(
    position: Array,
    counts: Array,
    log_node: Array,
    level: Array,
    outside: Array,
    logs: Array,
    passing: Array,
    mean: Array,
    weights: Array,
    tokens: Array,
    pair_level: Array,
    row_node: Array,
    adding: bool,
) -> float:
    """Fill q(z) and the tokens by level, add to the rows; return H(q(z)) and E[log w] of what is outside the tree."""
    value = 0.0
    tokens[:] = 0.0
    for pair in range(position.size):
        row, count = position[pair], float(counts[pair])
        for k in range(outside.size):
            weights[k] = logs[k] + mean[k] * outside[k]
        for node in range(passing.size):
            if passing[node] > 0.0:
                weights[level[node]] += passing[node] * log_node[row, node]
        softmax(weights, weights)
        for k in range(outside.size):
            pair_level[pair, k] = weights[k]
            z = float(pair_level[pair, k])
            value += count * z * mean[k] * outside[k] - (count * z * math.log(z) if z > 0.0 else 0.0)
        for k in range(outside.size):
            weights[k] = count * float(pair_level[pair, k])
            tokens[k] += weights[k]
        if adding:
            for node in range(passing.size):
                row_node[row, node] += weights[level[node]] * passing[node]
    return value


@kernel(I8, I4, I4, *TREE, F4_2, i8, f8, OUT_F8_2, OUT_F4_2, *MADE)
def sweep_levels(
    offsets: Array,
    position: Array,
    counts: Array,
    log_node: Array,
    parent: Array,
    level: Array,
    end_log: Array,
    outside: Array,
    alpha: Array,
    before: Array,
    passes: int,
    share: float,
    document_level: Array,
    pair_level: Array,
    row_node: Array,
    ends: Array,
    kept: Array,
    masses: Array,
    log_theta: Array,
    bound: Array,
) -> None:
    """Update q(c), q(z) and q(theta) of each document in turn, all apart; twin: `naive.tree.sweep_levels`.

    q(c) ~ exp(E[log p(c | V)] + sum_m sum_l q(z_m = l) E[log w_{c_l, t_m}]), then q(z_m = l) ~ exp(E[log theta_l] +
    sum_c q(c) E[log w_{c_l, t_m}]), then theta, `passes` times.

    Parameters
    ----------
    offsets, position, counts
        As for `sweep_paths`.
    log_node : float64, shape (shard words, nodes)
        E[log w].
    parent, level, end_log
        As for `sweep_paths`.
    outside : float64, shape (depth,)
        E[log w] of nodes outside the tree, by level.
    alpha : float64, shape (depth,)
        Dirichlet parameters of the level proportions.
    before : float32, shape (pairs, depth)
        q(z) to begin from.
    passes : int
        Passes over a document.
    share : float
        Smallest q(c) of an end to keep in a document's list, behind the largest.
    document_level : float64, shape (documents, depth)
        Filled with the expected tokens by level.
    pair_level : float32, shape (pairs, depth)
        Filled with q(z).
    row_node : float64, shape (shard words, nodes)
        Filled with the expected counts.
    ends, kept, masses, log_theta
        As for `sweep_paths`.
    bound : float64, shape (1,)
        Increased by H(q(c)) + E[log p(c | V)] + H(q(z)) + log B(alpha + n) - log B(alpha), and E[log w] of the tokens
        outside the tree.
    """
    nodes, depth = parent.size, alpha.size
    of_nodes, of_levels = np.empty((4, nodes)), np.empty((6, depth))  # one array of each length, as in `sweep_paths`
    chance, score, q, passing = of_nodes[0], of_nodes[1], of_nodes[2], of_nodes[3]
    gamma, logs, mean, left = of_levels[0], of_levels[1], of_levels[2], of_levels[3]
    tokens, beyond = of_levels[4], of_levels[5]
    prior, total = log_beta(alpha), 0.0
    beyond[:] = outside
    row_node[:] = 0.0
    pair_level[:] = before
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        rows, times = position[first:last], counts[first:last]
        for number in range(passes):
            gamma[:] = alpha
            for pair in range(first, last):
                for k in range(depth):
                    gamma[k] += counts[pair] * pair_level[pair, k]
            log_levels(gamma, logs)
            _score_levels(rows, times, log_node, parent, level, beyond, pair_level[first:last], chance, left)
            for end in range(nodes):
                score[end] = end_log[end] + chance[end]
            total = softmax(score, q)
            for end in range(nodes):
                total -= q[end] * chance[end]
            _pass_down(q, parent, level, passing, mean)
            given = rows, times, log_node, level, beyond, logs, passing, mean, gamma, tokens
            total += _share_levels(*given, pair_level[first:last], row_node, number == passes - 1)
        for k in range(depth):
            gamma[k] = alpha[k] + tokens[k]
        document_level[document] = tokens
        bound[0] += total + log_beta(gamma) - prior
        add_logs(gamma, logs, last > first, log_theta)
        for end in range(nodes):
            ends[end] += q[end]
        keep_largest(q, share, kept[document], masses[document])
