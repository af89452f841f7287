"""Mean-field updates of documents over the paths of a tree (Wang and Blei 2009), each path with levels of its own.

The probability of a word under a path is a sum over the path's levels, so a child's is its parent's plus one
more product: shared ancestors are summed once. Nodes are ordered level by level, parents first; each is an end too (see
`collapsium.workers.families.ncrp.tree`), where the levels that a path has outside the tree add the prior's probability
of a word.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.argument_types import Array, Float64Matrix, OutFloat64Matrix
from collapsium.workers.kernels.jit import borrower, helper, kernel
from collapsium.workers.kernels.moments import power
from collapsium.workers.kernels.records import DocumentPairs
from collapsium.workers.kernels.special import digamma
from collapsium.workers.kernels.trees.records import (
    DocumentPrior,
    LargestEnds,
    StoppingRule,
    TreeStatistics,
    TreeTopics,
)

MIN_SHARE = 2.0**-60  # share of an end below which it changes no sum in double precision
MAX_LOG_PRODUCT = 600.0  # nats that a product of probabilities may be away from one
MIN_PROBABILITY = 1e-145  # of a word at a node, and of a level: products of the two still have an inverse


class LevelWeights(NamedTuple):
    """Probabilities of a word outside of the nodes of a document's paths."""

    theta: Array  # exp(E[log theta]); (depth,)
    outside: Array  # Probability of a word at nodes outside the tree, by level; (depth,)
    remainder: Array  # Probability of a word at the levels below each, outside the tree; (depth,)


@helper
def expected_log_theta(gamma: Array, log_theta: Array) -> None:
    """Fill E[log theta] of theta ~ Dir(gamma)."""
    total = 0.0
    for level in range(gamma.size):
        total += gamma[level]
    total = digamma(total)
    for level in range(gamma.size):
        log_theta[level] = digamma(gamma[level]) - total


@helper
def log_beta(gamma: Array) -> float:
    """Return log prod G(gamma) - log G(sum gamma)."""
    total, value = 0.0, 0.0
    for level in range(gamma.size):
        total += gamma[level]
        value += math.lgamma(gamma[level])
    return value - math.lgamma(total)


@helper
def add_log_theta(gamma: Array, logs: Array, has_tokens: bool, log_theta: Array) -> None:
    """Add E[log theta] of a document that has tokens to a sum."""
    expected_log_theta(gamma, logs)
    if has_tokens:
        for level in range(gamma.size):
            log_theta[level] += logs[level]


@helper
def softmax(score: Array, q: Array) -> float:
    """Fill q with softmax(score), negligible shares with zero; return log sum exp(score)."""
    top, total, retained = score.max(), 0.0, 0.0
    for end in range(score.size):
        q[end] = math.exp(score[end] - top)
    for end in range(score.size):
        total += q[end]
    for end in range(score.size):
        q[end] = q[end] if q[end] > MIN_SHARE * total else 0.0
    for end in range(score.size):
        retained += q[end]
    scale = 1.0 / retained
    for end in range(score.size):
        q[end] *= scale
    return float(top) + math.log(total)


@helper
def keep_largest(q: Array, min_share: float, ends: Array, masses: Array) -> None:
    """Fill the ends of a document with the largest q and others of at least a share; -1 where there are no more."""
    last_mass = math.inf
    last_end = -1
    for place in range(ends.size):
        least = min_share if place > 0 else 0.0  # none may have the share where there are many
        mass, largest = least, -1
        for end in range(q.size):
            behind = q[end] < last_mass or (q[end] == last_mass and end > last_end)
            if behind and q[end] >= least and (largest < 0 or q[end] > mass):
                mass, largest = q[end], end
        ends[place] = largest
        masses[place] = mass if largest >= 0 else 0.0
        if largest < 0:
            for rest in range(place + 1, ends.size):
                ends[rest], masses[rest] = -1, 0.0
            return
        last_mass, last_end = mass, largest


@borrower
def _fill_level_weights(gamma: Array, logs: Array, levels: LevelWeights) -> None:
    """Fill E[log theta], its exponential, and what the levels below each add outside the tree."""
    theta, outside, remainder = levels.theta, levels.outside, levels.remainder
    expected_log_theta(gamma, logs)
    depth = gamma.size
    for k in range(depth):
        logs[k] = max(logs[k], math.log(MIN_PROBABILITY))
        theta[k] = math.exp(logs[k])
    remainder[depth - 1] = 0.0
    for k in range(depth - 1, 0, -1):
        remainder[k - 1] = remainder[k] + theta[k] * outside[k]


@helper
def _word_probabilities(
    row: Array, parent: Array, level: Array, theta: Array, remainder: Array, probability: Array
) -> float:
    """Fill the probabilities of a word under each end, as multiples of that at the root's end, which is returned."""
    probability[0] = theta[0] * row[0]
    for node in range(1, parent.size):
        probability[node] = probability[parent[node]] + theta[level[node]] * row[node]
    base = float(probability[0] + remainder[0])
    scale = 1.0 / base
    for node in range(parent.size):
        probability[node] = (probability[node] + remainder[level[node]]) * scale
    return base


@borrower
def _add_word_scores(
    position: Array,
    counts: Array,
    topics: TreeTopics,
    levels: LevelWeights,
    probability: Array,
    product: Array,
    score: Array,
) -> float:
    """Add the log probabilities of a document's words to the scores of all ends; return the term common to all ends.

    Probabilities are multiplied, and a logarithm is taken before a product could leave the range of a double.
    """
    parent, level, word_node, theta, remainder = (
        topics.parent, topics.level, topics.word_node, levels.theta, levels.remainder,
    )  # fmt: skip
    common, low, high = 0.0, 0.0, 0.0
    product[:] = 1.0
    for pair in range(position.size):
        count = counts[pair]
        base = _word_probabilities(word_node[position[pair]], parent, level, theta, remainder, probability)
        common += count * math.log(base)
        least, most = 1.0, 1.0
        for end in range(probability.size):
            least, most = min(least, probability[end]), max(most, probability[end])
        down, up = count * math.log(least), count * math.log(most)
        if low + down < -MAX_LOG_PRODUCT or high + up > MAX_LOG_PRODUCT:
            for end in range(probability.size):
                score[end] += math.log(product[end])
                product[end] = 1.0
            low, high = 0.0, 0.0
        if down < -MAX_LOG_PRODUCT or up > MAX_LOG_PRODUCT:
            for end in range(probability.size):
                score[end] += count * math.log(probability[end])
            continue
        low, high = low + down, high + up
        if count == 1:
            for end in range(probability.size):
                product[end] *= probability[end]
        else:
            for end in range(probability.size):
                product[end] *= power(probability[end], count)
    for end in range(probability.size):
        score[end] += math.log(product[end])
    return common


@borrower
def _assign_levels(
    position: Array,
    counts: Array,
    topics: TreeTopics,
    levels: LevelWeights,
    q: Array,
    tokens: Array,
    expected: Array,
    adds_counts: bool,
) -> None:
    """Fill a document's expected tokens by level, and add its expected counts to `expected`, by word and node."""
    parent, level, word_node = topics.parent, topics.level, topics.word_node
    theta, outside, remainder = levels.theta, levels.outside, levels.remainder
    depth = tokens.size
    tokens[:] = 0.0
    for end in range(q.size):
        if q[end] == 0.0:
            continue
        for pair in range(position.size):
            row, value, node = position[pair], remainder[level[end]], end
            while node >= 0:
                value += theta[level[node]] * word_node[row, node]
                node = parent[node]
            weight = q[end] * counts[pair] / value
            for k in range(level[end] + 1, depth):
                tokens[k] += weight * theta[k] * outside[k]
            node = end
            while node >= 0:
                share = weight * theta[level[node]] * word_node[row, node]
                tokens[level[node]] += share
                if adds_counts:
                    expected[row, node] += share
                node = parent[node]


@kernel
def sweep_paths(
    pairs: DocumentPairs,
    topics: TreeTopics,
    prior: DocumentPrior,
    previous: Float64Matrix,
    stopping: StoppingRule,
    document_level: OutFloat64Matrix,
    statistics: TreeStatistics,
    largest: LargestEnds,
) -> None:
    """Update q(c) q(z | c) and q(theta) of each document in turn; twin: `naive.tree.sweep_paths`.

    log S_c = E[log p(c | V)] + sum_m log sum_l exp(E[log theta_l] + E[log w_{c_l, t_m}]), q(c) = S_c / sum S.

    Shapes: `previous`, `document_level` (documents, depth).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    alpha, end_log = prior.alpha, prior.end_log
    ends, bound, expected = statistics.ends, statistics.bound, statistics.word_node
    nodes, depth = topics.parent.size, alpha.size
    # One array of each length: loops over two that lie side by side are compiled twice, and sums might differ.
    of_nodes, of_levels = np.empty((4, nodes)), np.empty((6, depth))
    probability, score, product, q = of_nodes[0], of_nodes[1], of_nodes[2], of_nodes[3]
    gamma, logs, tokens = of_levels[0], of_levels[1], of_levels[4]
    levels = LevelWeights(of_levels[2], of_levels[5], of_levels[3])
    log_prior, total = log_beta(alpha), 0.0
    levels.outside[:] = topics.outside
    expected[:] = 0.0
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        rows, times = position[first:last], counts[first:last]
        tokens[:] = previous[document]
        number, change = 0, math.inf
        while number < stopping.passes and change >= stopping.tolerance:
            number += 1
            for k in range(depth):
                gamma[k] = alpha[k] + tokens[k]
            _fill_level_weights(gamma, logs, levels)
            score[:] = end_log
            total = _add_word_scores(rows, times, topics, levels, probability, product, score)
            total += softmax(score, q)
            _assign_levels(rows, times, topics, levels, q, tokens, expected, number == stopping.passes)
            change = 0.0
            for k in range(depth):
                change += abs(alpha[k] + tokens[k] - gamma[k])
        if number < stopping.passes:
            _assign_levels(rows, times, topics, levels, q, tokens, expected, True)
        for k in range(depth):
            total -= tokens[k] * logs[k]
        for k in range(depth):
            gamma[k] = alpha[k] + tokens[k]
        document_level[document] = tokens
        bound[0] += total + log_beta(gamma) - log_prior
        add_log_theta(gamma, logs, last > first, statistics.log_theta)
        for end in range(nodes):
            ends[end] += q[end]
        keep_largest(q, largest.min_share, largest.ends[document], largest.masses[document])
