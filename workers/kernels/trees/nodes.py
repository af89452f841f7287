"""Sums over the words of a tree's nodes that score moves, and the predictive probabilities of paths."""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Float64Matrix,
    Float64Vector,
    Int64Vector,
    OutFloat64Matrix,
    OutFloat64Vector,
)
from collapsium.workers.kernels.jit import kernel
from collapsium.workers.kernels.records import DocumentPairs
from collapsium.workers.kernels.trees.records import StoredEnds, TreeTopics

MIN_COUNT = 1e-9  # expected tokens of a word below which it is taken not to occur


@kernel
def root_products(word_node: Float64Matrix, gram: OutFloat64Matrix) -> None:
    """Fill sum_w sqrt(n_iw n_jw) of all pairs of nodes; twin: `naive.tree.root_products`.

    Shapes: `word_node` (words, nodes); `gram` (nodes, nodes).
    """
    nodes = word_node.shape[1]
    occurring, root = np.empty(nodes, dtype=np.int64), np.empty(nodes)
    gram[:] = 0.0
    for word in range(word_node.shape[0]):
        count = 0
        for node in range(nodes):
            if word_node[word, node] > MIN_COUNT:
                occurring[count], root[count] = node, math.sqrt(word_node[word, node])
                count += 1
        for i in range(count):
            for j in range(i + 1):
                gram[occurring[i], occurring[j]] += root[i] * root[j]
    for i in range(nodes):
        for j in range(i):
            gram[j, i] = gram[i, j]


@kernel
def merge_gains(
    word_node: Float64Matrix, first: Int64Vector, second: Int64Vector, prior: Float64Vector, gain: OutFloat64Vector
) -> None:
    """Fill sum_w log G(a + n_iw + n_jw) G(a) / (G(a + n_iw) G(a + n_jw)) of pairs; twin: `naive.tree.merge_gains`.

    Shapes: `word_node` (words, nodes); `first`, `second`, `prior`, `gain` (pairs,).
    """
    gain[:] = 0.0
    for word in range(word_node.shape[0]):
        for pair in range(first.size):
            n_i, n_j = word_node[word, first[pair]], word_node[word, second[pair]]
            if n_i > MIN_COUNT and n_j > MIN_COUNT:
                a = prior[pair]
                gain[pair] += math.lgamma(a + n_i + n_j) + math.lgamma(a)
                gain[pair] -= math.lgamma(a + n_i) + math.lgamma(a + n_j)


@kernel
def path_probability(
    pairs: DocumentPairs,
    topics: TreeTopics,
    theta: Float64Matrix,
    stored: StoredEnds,
    probability: OutFloat64Vector,
    document_log: OutFloat64Vector,
) -> None:
    """Predict pairs, and whole documents, by the paths of each document; twin: `naive.tree.path_probability`.

    Shapes: `theta` (documents, depth); `probability` (pairs,); `document_log` (documents,).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    parent, level, word_node, outside = topics.parent, topics.level, topics.word_node, topics.outside
    lists, ends, masses = stored.offsets, stored.ends, stored.masses
    probability[:] = 0.0
    for document in range(offsets.size - 1):
        total = 0.0
        for place in range(lists[document], lists[document + 1]):
            total += float(masses[place])
        document_log[document] = -math.inf
        for place in range(lists[document], lists[document + 1]):
            share, end, left, score = float(masses[place]) / total, ends[place], 0.0, 0.0
            for k in range(level[end] + 1, theta.shape[1]):
                left += theta[document, k] * outside[k]
            for pair in range(offsets[document], offsets[document + 1]):
                value, node = left, int(end)
                while node >= 0:
                    value += theta[document, level[node]] * word_node[position[pair], node]
                    node = parent[node]
                probability[pair] += share * value
                score += counts[pair] * math.log(value)
            score += math.log(share)
            high = max(score, document_log[document])
            low = min(score, document_log[document])
            document_log[document] = high + math.log1p(math.exp(low - high))
