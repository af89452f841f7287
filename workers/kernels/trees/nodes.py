"""Sums over the words of a tree's nodes, by which moves are judged, and what paths predict."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import F4, F8, F8_2, I4, I8, OUT_F8, OUT_F8_2, kernel

Array = npt.NDArray[Any]

FEW = 1e-9  # tokens of a word that are none


@kernel(F8_2, OUT_F8_2)
def root_products(word_node: Array, gram: Array) -> None:
    """Fill sum_w sqrt(n_iw n_jw) of all pairs of nodes; twin: `naive.tree.root_products`.

    Parameters
    ----------
    word_node : float64, shape (words, nodes)
        Expected counts.
    gram : float64, shape (nodes, nodes)
        Filled.
    """
    nodes = word_node.shape[1]
    some, root = np.empty(nodes, dtype=np.int64), np.empty(nodes)
    gram[:] = 0.0
    for word in range(word_node.shape[0]):
        count = 0
        for node in range(nodes):
            if word_node[word, node] > FEW:
                some[count], root[count] = node, math.sqrt(word_node[word, node])
                count += 1
        for one in range(count):
            for other in range(one + 1):
                gram[some[one], some[other]] += root[one] * root[other]
    for one in range(nodes):
        for other in range(one):
            gram[other, one] = gram[one, other]


@kernel(F8_2, I8, I8, F8, OUT_F8)
def together(word_node: Array, first: Array, second: Array, prior: Array, gain: Array) -> None:
    """Fill sum_w log G(a + n_iw + n_jw) G(a) / (G(a + n_iw) G(a + n_jw)) of pairs; twin: `naive.tree.together`.

    Parameters
    ----------
    word_node : float64, shape (words, nodes)
        Expected counts.
    first, second : int64, shape (pairs,)
        Nodes i and j.
    prior : float64, shape (pairs,)
        a, the Dirichlet parameter of each word.
    gain : float64, shape (pairs,)
        Filled.
    """
    gain[:] = 0.0
    for word in range(word_node.shape[0]):
        for pair in range(first.size):
            one, other = word_node[word, first[pair]], word_node[word, second[pair]]
            if one > FEW and other > FEW:
                a = prior[pair]
                gain[pair] += math.lgamma(a + one + other) + math.lgamma(a)
                gain[pair] -= math.lgamma(a + one) + math.lgamma(a + other)


@kernel(I8, I4, I4, F8_2, I8, I8, F8_2, I8, I4, F4, F8, OUT_F8, OUT_F8)
def path_probability(
    offsets: Array,
    position: Array,
    counts: Array,
    word_node: Array,
    parent: Array,
    level: Array,
    theta: Array,
    lists: Array,
    ends: Array,
    masses: Array,
    outside: Array,
    probability: Array,
    document_log: Array,
) -> None:
    """Predict pairs, and whole documents, by the paths of each document; twin: `naive.tree.path_probability`.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row and count of each pair.
    word_node : float64, shape (words at hand, nodes)
        E[w].
    parent, level : int64, shape (nodes,)
        Place of each node's parent, and its level.
    theta : float64, shape (documents, depth)
        E[theta].
    lists : int64, shape (documents + 1,)
        Where each document's ends begin.
    ends, masses : int32 and float32, shape (listed ends,)
        Their places and q(c); these are taken to sum to one.
    outside : float64, shape (depth,)
        E[w] of nodes outside the tree.
    probability : float64, shape (pairs,)
        Filled with sum_c q(c) sum_l theta_l w_{c_l}.
    document_log : float64, shape (documents,)
        Filled with log sum_c q(c) prod_m sum_l theta_l w_{c_l, t_m}.
    """
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
