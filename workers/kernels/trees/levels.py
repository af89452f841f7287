"""Mean-field updates of documents over the paths of a tree, paths and levels apart, as in Wang and Blei (2009)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.argument_types import Array, Float32Matrix, OutFloat32Matrix, OutFloat64Matrix
from collapsium.workers.kernels.jit import borrower, kernel
from collapsium.workers.kernels.records import DocumentPairs
from collapsium.workers.kernels.trees.paths import (
    add_log_theta,
    expected_log_theta,
    keep_largest,
    log_beta,
    softmax,
)
from collapsium.workers.kernels.trees.records import DocumentPrior, LargestEnds, TreeStatistics, TreeTopics


class LevelCounts(NamedTuple):
    """Levels of the documents' tokens."""

    document_level: OutFloat64Matrix  # Filled with the expected tokens by level; (documents, depth)
    pair_level: OutFloat32Matrix  # Filled with q(z); (pairs, depth)


class Document(NamedTuple):
    """A document: rows and counts of its pairs, and q(z) of each, shape (pairs, depth)."""

    rows: Array
    counts: Array
    pair_level: Array


class Passing(NamedTuple):
    """The part of a document that passes each node, shape (nodes,), and that is outside the tree, shape (depth,)."""

    nodes: Array
    outside: Array


class LevelVectors(NamedTuple):
    """Numbers of a document by level, shape (depth,)."""

    outside: Array  # E[log w] of nodes outside the tree
    logs: Array  # E[log theta]
    weights: Array  # Working space
    tokens: Array  # Filled with the expected tokens


@borrower
def _score_ends(document: Document, topics: TreeTopics, outside: Array, score: Array, left: Array) -> None:
    """Fill sum_m sum_l q(z_m = l) E[log w_{c_l}] of each end."""
    rows, counts, pair_level = document.rows, document.counts, document.pair_level
    parent, level, log_node = topics.parent, topics.level, topics.word_node
    score[:] = 0.0
    left[:] = 0.0  # of the levels that a path has outside the tree, by the level at which it leaves
    for pair in range(rows.size):
        row, count = rows[pair], float(counts[pair])
        for node in range(parent.size):
            score[node] += count * pair_level[pair, level[node]] * log_node[row, node]
        below = 0.0
        for k in range(outside.size - 1, 0, -1):
            below += count * pair_level[pair, k] * outside[k]
            left[k - 1] += below
    for node in range(1, parent.size):
        score[node] += score[parent[node]]
    for node in range(parent.size):
        score[node] += left[level[node]]


@borrower
def _pass_down(q: Array, topics: TreeTopics, passing: Passing) -> None:
    """Fill how much of a document passes each node, and is outside the tree at each level."""
    parent, level, nodes, outside = topics.parent, topics.level, passing.nodes, passing.outside
    outside[:] = 0.0
    for end in range(q.size):
        nodes[end] = q[end]
        for k in range(level[end] + 1, outside.size):
            outside[k] += q[end]
    for node in range(q.size - 1, 0, -1):
        nodes[parent[node]] += nodes[node]


@borrower
def _assign_levels(
    document: Document,
    topics: TreeTopics,
    passing: Passing,
    levels: LevelVectors,
    expected: Array,
    adds_counts: bool,
) -> float:
    """Fill q(z) and the tokens by level, and add to the expected counts by word and node.

    The return is H(q(z)) and E[log w] of the tokens outside the tree.
    """
    rows, counts, pair_level = document.rows, document.counts, document.pair_level
    level, log_node, nodes, mean = topics.level, topics.word_node, passing.nodes, passing.outside
    outside, logs, weights, tokens = levels.outside, levels.logs, levels.weights, levels.tokens
    value = 0.0
    tokens[:] = 0.0
    for pair in range(rows.size):
        row, count = rows[pair], float(counts[pair])
        for k in range(outside.size):
            weights[k] = logs[k] + mean[k] * outside[k]
        for node in range(nodes.size):
            if nodes[node] > 0.0:
                weights[level[node]] += nodes[node] * log_node[row, node]
        softmax(weights, weights)
        for k in range(outside.size):
            pair_level[pair, k] = weights[k]
            z = float(pair_level[pair, k])
            value += count * z * mean[k] * outside[k] - (count * z * math.log(z) if z > 0.0 else 0.0)
        for k in range(outside.size):
            weights[k] = count * float(pair_level[pair, k])
            tokens[k] += weights[k]
        if adds_counts:
            for node in range(nodes.size):
                expected[row, node] += weights[level[node]] * nodes[node]
    return value


@kernel
def sweep_levels(
    pairs: DocumentPairs,
    topics: TreeTopics,
    prior: DocumentPrior,
    previous: Float32Matrix,
    passes: int,
    levels: LevelCounts,
    statistics: TreeStatistics,
    largest: LargestEnds,
) -> None:
    """Update q(c), q(z) and q(theta) of each document in turn, all apart; twin: `naive.tree.sweep_levels`.

    q(c) ~ exp(E[log p(c | V)] + sum_m sum_l q(z_m = l) E[log w_{c_l, t_m}]), then q(z_m = l) ~ exp(E[log theta_l] +
    sum_c q(c) E[log w_{c_l, t_m}]), then theta, `passes` times.

    Shapes: `previous` (pairs, depth).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    alpha, end_log, pair_level = prior.alpha, prior.end_log, levels.pair_level
    ends, bound, expected = statistics.ends, statistics.bound, statistics.word_node
    nodes, depth = topics.parent.size, alpha.size
    of_nodes, of_levels = np.empty((4, nodes)), np.empty((6, depth))  # one array of each length, as in `sweep_paths`
    evidence, score, q, gamma, left = of_nodes[0], of_nodes[1], of_nodes[2], of_levels[0], of_levels[3]
    passing = Passing(of_nodes[3], of_levels[2])
    vectors = LevelVectors(of_levels[5], of_levels[1], gamma, of_levels[4])
    log_prior, total = log_beta(alpha), 0.0
    vectors.outside[:] = topics.outside
    expected[:] = 0.0
    pair_level[:] = previous
    for number in range(offsets.size - 1):
        first, last = offsets[number], offsets[number + 1]
        document = Document(position[first:last], counts[first:last], pair_level[first:last])
        for done in range(passes):
            gamma[:] = alpha
            for pair in range(first, last):
                for k in range(depth):
                    gamma[k] += counts[pair] * pair_level[pair, k]
            expected_log_theta(gamma, vectors.logs)
            _score_ends(document, topics, vectors.outside, evidence, left)
            for end in range(nodes):
                score[end] = end_log[end] + evidence[end]
            total = softmax(score, q)
            for end in range(nodes):
                total -= q[end] * evidence[end]
            _pass_down(q, topics, passing)
            total += _assign_levels(document, topics, passing, vectors, expected, done == passes - 1)
        for k in range(depth):
            gamma[k] = alpha[k] + vectors.tokens[k]
        levels.document_level[number] = vectors.tokens
        bound[0] += total + log_beta(gamma) - log_prior
        add_log_theta(gamma, vectors.logs, last > first, statistics.log_theta)
        for end in range(nodes):
            ends[end] += q[end]
        keep_largest(q, largest.min_share, largest.ends[number], largest.masses[number])
