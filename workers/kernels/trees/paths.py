"""Mean-field updates of documents over the paths of a tree (Wang and Blei 2009), a path with its own levels.

The chance of a word under a path is a sum over the path's levels, so that of a child is that of its parent and one
product more: shared ancestors are summed once. Nodes stand level by level, parents first; each is an end too (see
`collapsium.workers.families.ncrp.tree`), where the levels that a path has outside the tree add the prior's chance of a
word.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import (
    F8,
    F8_2,
    I4,
    I8,
    OUT_F4_2,
    OUT_F8,
    OUT_F8_2,
    OUT_I4_2,
    f8,
    helper,
    i8,
    kernel,
)
from collapsium.workers.kernels.moments import power
from collapsium.workers.kernels.special import digamma

Array = npt.NDArray[Any]

LEAST = 2.0**-60  # share of an end below which it changes no sum in double precision
ROOM = 600.0  # nats that a product of chances may be away from one
LOWEST = 1e-145  # least chance of a word at a node, and of a level: products of the two still have an inverse


@helper
def log_levels(gamma: Array, log_theta: Array) -> None:
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
def add_logs(gamma: Array, logs: Array, there: bool, log_theta: Array) -> None:
    """Add E[log theta] of a document that is there to a sum."""
    log_levels(gamma, logs)
    if there:
        for level in range(gamma.size):
            log_theta[level] += logs[level]


@helper
def softmax(score: Array, q: Array) -> float:
    """Fill q with softmax(score), what is next to nothing with zero; return log sum exp(score)."""
    top, total, kept = score.max(), 0.0, 0.0
    for end in range(score.size):
        q[end] = math.exp(score[end] - top)
    for end in range(score.size):
        total += q[end]
    for end in range(score.size):
        q[end] = q[end] if q[end] > LEAST * total else 0.0
    for end in range(score.size):
        kept += q[end]
    scale = 1.0 / kept
    for end in range(score.size):
        q[end] *= scale
    return float(top) + math.log(total)


@helper
def keep_largest(q: Array, share: float, ends: Array, masses: Array) -> None:
    """Fill a document's list with the largest end and others of at least a share; -1 where there are no more."""
    last = math.inf
    before = -1
    for place in range(ends.size):
        least = share if place > 0 else 0.0  # none may have the share where there are many
        best, found = least, -1
        for end in range(q.size):
            behind = q[end] < last or (q[end] == last and end > before)
            if behind and q[end] >= least and (found < 0 or q[end] > best):
                best, found = q[end], end
        ends[place] = found
        masses[place] = best if found >= 0 else 0.0
        if found < 0:
            for rest in range(place + 1, ends.size):
                ends[rest], masses[rest] = -1, 0.0
            return
        last, before = best, found


@helper
def _thetas(gamma: Array, logs: Array, theta: Array, outside: Array, beyond: Array) -> None:
    """Fill E[log theta], its exponential, and what the levels below each add outside the tree."""
    log_levels(gamma, logs)
    depth = gamma.size
    for k in range(depth):
        logs[k] = max(logs[k], math.log(LOWEST))
        theta[k] = math.exp(logs[k])
    beyond[depth - 1] = 0.0
    for k in range(depth - 1, 0, -1):
        beyond[k - 1] = beyond[k] + theta[k] * outside[k]


@helper
def _chances(row: Array, parent: Array, level: Array, theta: Array, beyond: Array, chance: Array) -> float:
    """Fill the chances of a word under each end, as multiples of that at the root's end, which is returned."""
    chance[0] = theta[0] * row[0]
    for node in range(1, parent.size):
        chance[node] = chance[parent[node]] + theta[level[node]] * row[node]
    base = float(chance[0] + beyond[0])
    scale = 1.0 / base
    for node in range(parent.size):
        chance[node] = (chance[node] + beyond[level[node]]) * scale
    return base


@helper
def _scores(
    position: Array,
    counts: Array,
    word_node: Array,
    parent: Array,
    level: Array,
    theta: Array,
    beyond: Array,
    chance: Array,
    product: Array,
    score: Array,
) -> float:
    """Add log chances of a document's words to the scores of all ends but for what is common to all, the return.

    Chances are multiplied, and a logarithm is taken before a product could leave the range of a double.
    """
    common, low, high = 0.0, 0.0, 0.0
    product[:] = 1.0
    for pair in range(position.size):
        count = counts[pair]
        common += count * math.log(_chances(word_node[position[pair]], parent, level, theta, beyond, chance))
        least, most = 1.0, 1.0
        for end in range(chance.size):
            least, most = min(least, chance[end]), max(most, chance[end])
        down, up = count * math.log(least), count * math.log(most)
        if low + down < -ROOM or high + up > ROOM:
            for end in range(chance.size):
                score[end] += math.log(product[end])
                product[end] = 1.0
            low, high = 0.0, 0.0
        if down < -ROOM or up > ROOM:
            for end in range(chance.size):
                score[end] += count * math.log(chance[end])
            continue
        low, high = low + down, high + up
        if count == 1:
            for end in range(chance.size):
                product[end] *= chance[end]
        else:
            for end in range(chance.size):
                product[end] *= power(chance[end], count)
    for end in range(chance.size):
        score[end] += math.log(product[end])
    return common


@helper
def _spread(
    position: Array,
    counts: Array,
    word_node: Array,
    parent: Array,
    level: Array,
    theta: Array,
    beyond: Array,
    outside: Array,
    q: Array,
    tokens: Array,
    row_node: Array,
    adding: bool,
) -> None:
    """Fill a document's expected tokens by level; add its expected counts to the rows, if asked for."""
    depth = tokens.size
    tokens[:] = 0.0
    for end in range(q.size):
        if q[end] == 0.0:
            continue
        for pair in range(position.size):
            row, value, node = position[pair], beyond[level[end]], end
            while node >= 0:
                value += theta[level[node]] * word_node[row, node]
                node = parent[node]
            weight = q[end] * counts[pair] / value
            for k in range(level[end] + 1, depth):
                tokens[k] += weight * theta[k] * outside[k]
            node = end
            while node >= 0:
                part = weight * theta[level[node]] * word_node[row, node]
                tokens[level[node]] += part
                if adding:
                    row_node[row, node] += part
                node = parent[node]


MADE = OUT_F8_2, OUT_F8, OUT_I4_2, OUT_F4_2, OUT_F8, OUT_F8
TREE = F8_2, I8, I8, F8, F8, F8


@kernel(I8, I4, I4, *TREE, F8_2, i8, f8, f8, OUT_F8_2, *MADE)
def sweep_paths(
    offsets: Array,
    position: Array,
    counts: Array,
    word_node: Array,
    parent: Array,
    level: Array,
    end_log: Array,
    outside: Array,
    alpha: Array,
    before: Array,
    passes: int,
    tolerance: float,
    share: float,
    document_level: Array,
    row_node: Array,
    ends: Array,
    kept: Array,
    masses: Array,
    log_theta: Array,
    bound: Array,
) -> None:
    """Update q(c) q(z | c) and q(theta) of each document in turn; twin: `naive.tree.sweep_paths`.

    log S_c = E[log p(c | V)] + sum_m log sum_l exp(E[log theta_l] + E[log w_{c_l, t_m}]), q(c) = S_c / sum S.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row and count of each pair.
    word_node : float64, shape (shard words, nodes)
        exp(E[log w]), or w itself; at least `LOWEST`.
    parent, level : int64, shape (nodes,)
        Place of each node's parent, and its level.
    end_log : float64, shape (nodes,)
        Log prior mass of each end.
    outside : float64, shape (depth,)
        What `word_node` is at nodes outside the tree, by level.
    alpha : float64, shape (depth,)
        Dirichlet parameters of the level proportions.
    before : float64, shape (documents, depth)
        Expected tokens by level to begin from.
    passes : int
        Most passes over a document.
    tolerance : float
        A document is left when fewer tokens than this have changed their level.
    share : float
        Smallest q(c) of an end to keep in a document's list, behind the largest.
    document_level : float64, shape (documents, depth)
        Filled with the expected tokens by level.
    row_node : float64, shape (shard words, nodes)
        Filled with the expected counts.
    ends : float64, shape (nodes,)
        Increased by q(c) at each end.
    kept, masses : int32 and float32, shape (documents, most)
        Filled with each document's largest ends and their q(c); -1 and 0 where there are no more.
    log_theta : float64, shape (depth,)
        Increased by E[log theta] of the documents that have tokens.
    bound : float64, shape (1,)
        Increased by log sum S - sum_l n_l E[log theta_l] + log B(alpha + n) - log B(alpha).
    """
    nodes, depth = parent.size, alpha.size
    # One array of each length: loops over two that lie side by side are compiled twice, and sums might differ.
    of_nodes, of_levels = np.empty((4, nodes)), np.empty((6, depth))
    chance, score, product, q = of_nodes[0], of_nodes[1], of_nodes[2], of_nodes[3]
    gamma, logs, theta, beyond = of_levels[0], of_levels[1], of_levels[2], of_levels[3]
    tokens, left = of_levels[4], of_levels[5]
    prior, total = log_beta(alpha), 0.0
    left[:] = outside
    row_node[:] = 0.0
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        rows, times = position[first:last], counts[first:last]
        tokens[:] = before[document]
        number, change = 0, math.inf
        while number < passes and change >= tolerance:
            number += 1
            for k in range(depth):
                gamma[k] = alpha[k] + tokens[k]
            _thetas(gamma, logs, theta, left, beyond)
            score[:] = end_log
            total = _scores(rows, times, word_node, parent, level, theta, beyond, chance, product, score)
            total += softmax(score, q)
            given_ = rows, times, word_node, parent, level, theta, beyond, left, q, tokens, row_node
            _spread(*given_, number == passes)
            change = 0.0
            for k in range(depth):
                change += abs(alpha[k] + tokens[k] - gamma[k])
        if number < passes:
            _spread(rows, times, word_node, parent, level, theta, beyond, left, q, tokens, row_node, True)
        for k in range(depth):
            total -= tokens[k] * logs[k]
        for k in range(depth):
            gamma[k] = alpha[k] + tokens[k]
        document_level[document] = tokens
        bound[0] += total + log_beta(gamma) - prior
        add_logs(gamma, logs, last > first, log_theta)
        for end in range(nodes):
            ends[end] += q[end]
        keep_largest(q, share, kept[document], masses[document])
