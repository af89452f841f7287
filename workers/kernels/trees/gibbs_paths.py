"""Draw the path of a document of a tree given the levels of its tokens, and these given the path.

The probability of a path given levels is the prior of the nested Chinese restaurant process times, at each node, the
Dirichlet-multinomial probability of the words that the document would bring to it. What paths share is computed once,
and the root, which all share, not at all. Leaving the tree at an inner node is one choice, as all new nodes below it
are alike: paths are named by the place, in a list of all nodes, where they end or leave the tree.

Helpers take what belongs together in tuples:

* ``document``: number of the document, of its first and last-plus-one pair and its first token, and the shard's
  ``position`` and ``counts`` of pairs;
* ``tree``: ``parent``, ``level``, ``documents``, ``totals`` and ``row``, as the sweep has them, and its slots:
  ``reusable``, ``state`` and ``free``;
* ``priors``: alpha, eta, W eta, gamma, and whether there may be new nodes;
* ``own``: the document's path, its tokens by pair and level, and by level, and ``token_level`` of the shard;
* ``work``: ``nodes`` by level and where each level ``starts``, and space for numbers by node, place, level and token.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import helper
from collapsium.workers.kernels.random import uniform

Array = npt.NDArray[Any]

FEW = 8  # factors that are multiplied before a logarithm is taken
LARGE = 16.0  # from where log Gamma is taken by its series
FREE = -2  # parent of a slot that is no node; the root's is -1


@helper
def log_rising(prior: float, count: int) -> Any:
    """Return log G(a + n) / G(a); by Stirling's series, to 1e-11, where a is large."""
    if count <= FEW:
        product = 1.0
        for number in range(count):
            product *= prior + number
        return math.log(product)
    if prior < LARGE:
        return math.lgamma(prior + count) - math.lgamma(prior)
    after = prior + count
    one, other = 1.0 / after, 1.0 / prior
    rest = one * (1 / 12 - one * one * (1 / 360 - one * one / 1260))
    rest -= other * (1 / 12 - other * other * (1 / 360 - other * other / 1260))
    log = math.log(after)
    return (prior - 0.5) * (log - math.log(prior)) + count * (log - 1.0) + rest


@helper
def list_nodes(level: Array, nodes: Array, starts: Array) -> None:
    """List the nodes, level by level and ascending within; `starts` is where each level begins."""
    filled = 0
    for one in range(starts.size - 1):
        starts[one] = filled
        for node in range(level.size):
            if level[node] == one:
                nodes[filled] = node
                filled += 1
    starts[starts.size - 1] = filled


@helper
def _pick(weight: Array, size: int, chance: float) -> int:
    """Draw a place in proportion to its weight."""
    total = 0.0
    for place in range(size):
        total += weight[place]
    left, found = chance * total, 0
    for place in range(size):
        if weight[place] > 0.0:
            found = place  # rounding may lead past the last that has a weight
            if left < weight[place]:
                break
            left -= weight[place]
    return found


@helper
def draw_place(weight: Array, size: int, chance: float) -> int:
    """Draw a place in proportion to the exponentials of its weight; -1 if there is none."""
    most = np.max(weight[:size])
    if most == -np.inf:
        return -1
    for place in range(size):
        weight[place] = math.exp(weight[place] - most)
    return _pick(weight, size, chance)


@helper
def _weigh_words(document: Any, tree: Any, priors: Any, own: Any, work: Any) -> None:
    """Fill the nodes' log probabilities of the document's words of their level, and those of new nodes."""
    _, first, last, _, position, _ = document
    totals, row, eta, total, here, sizes = tree[3], tree[4], priors[1], priors[2], own[1], own[2]
    nodes, starts, score, product, fresh = work[0], work[1], work[2], work[4], work[6]
    fresh[eta.size] = 0.0
    for one in range(eta.size - 1, 0, -1):
        low, high = starts[one], starts[one + 1]
        new, log_new, since = 1.0, 0.0, 0
        for place in range(low, high):
            score[nodes[place]] = -log_rising(total[one] + totals[nodes[place]], sizes[one])
            product[place] = 1.0
        for pair in range(first, last):
            words = row[position[pair]]
            for number in range(here[pair - first, one]):
                for place in range(low, high):
                    product[place] *= words[nodes[place]] + (eta[one] + number)
                new *= eta[one] + number
                since += 1
                if since == FEW:
                    for place in range(low, high):
                        score[nodes[place]] += math.log(product[place])
                        product[place] = 1.0
                    log_new += math.log(new)
                    new, since = 1.0, 0
        for place in range(low, high):
            score[nodes[place]] += math.log(product[place])
        fresh[one] = fresh[one + 1] + log_new + math.log(new) - log_rising(total[one], sizes[one])


@helper
def weigh_paths(tree: Any, priors: Any, work: Any) -> None:
    """Fill each place's log weight: the prior of its path, and what `score` and `fresh` say of the nodes along it."""
    parent, documents, gamma, births = tree[0], tree[2], priors[3], priors[4]
    nodes, starts, score, weight, fresh = work[0], work[1], work[2], work[3], work[6]
    depth = starts.size - 1
    score[0] = 0.0
    for one in range(depth):
        for place in range(starts[one], starts[one + 1]):
            node = nodes[place]
            if one:
                up = parent[node]
                score[node] += score[up] + math.log(documents[node] / (gamma + documents[up]))
            weight[place] = score[node]
            if one < depth - 1:
                leaving = math.log(gamma / (gamma + documents[node])) + fresh[one + 1]
                weight[place] = score[node] + leaving if births else -np.inf


@helper
def move_words(document: Any, tree: Any, own: Any, sign: int) -> None:
    """Add the document's words to the nodes of its path, or take them away."""
    _, first, last, _, position, _ = document
    totals, row, route, here = tree[3], tree[4], own[0], own[1]
    for pair in range(first, last):
        words = row[position[pair]]
        for one in range(route.size):
            count = sign * here[pair - first, one]
            words[route[one]] += count
            totals[route[one]] += count


@helper
def leave_path(document: Any, tree: Any, own: Any) -> None:
    """Take a document out of the tree; nodes that no document passes are no more."""
    move_words(document, tree, own, -1)
    parent, level, documents, _, _, reusable, state, free = tree
    route = own[0]
    for one in range(route.size - 1, -1, -1):
        node = route[one]
        documents[node] -= 1
        if one and documents[node] == 0:
            parent[node], level[node] = FREE, -1
            if reusable[node]:
                free[state[2]] = node
                state[2] += 1


@helper
def join_path(end: int, tree: Any, own: Any) -> None:
    """Put a document, without its words, on the path that ends at a node or, if it is an inner one, leaves the tree."""
    parent, level, documents, _, _, _, state, free = tree
    route = own[0]
    last, node = level[end], end
    for one in range(last, -1, -1):
        route[one] = node
        node = parent[node]
    for one in range(last + 1, route.size):
        state[2] -= 1
        node = free[state[2]]
        parent[node], level[node], documents[node] = route[one - 1], one, 0
        route[one] = node
    for one in range(route.size):
        documents[route[one]] += 1


@helper
def tally_levels(document: Any, own: Any, counted: int) -> None:
    """Tally a document's tokens by pair and level, and by level; none, where they are not counted."""
    _, first, last, begin, _, counts = document
    _, here, sizes, token_level = own
    sizes[:] = 0
    token = begin
    for pair in range(first, last):
        here[pair - first, :] = 0
        for _ in range(counts[pair]):
            if counted:
                here[pair - first, token_level[token]] += 1
                sizes[token_level[token]] += 1
            token += 1


@helper
def draw_levels(document: Any, tree: Any, priors: Any, own: Any, work: Any, mode: int, key: Array, number: int) -> Any:
    """Draw each token's level given those of all others, or count tokens in one after another.

    Parameters
    ----------
    document, tree, priors, own, work : tuple
        See above.
    mode : int
        0: all tokens are counted already; 1: none is, and levels are drawn as they come; 2: nor is any, and levels
        stay.
    key : uint64, shape (2,)
        Of the random stream.
    number : int
        Of the stream, of the shard's first token.

    Returns
    -------
    float
        Where tokens are counted in, the sum of the logarithms of all levels' weights.
    """
    _, first, last, token, position, counts = document
    totals, row, alpha, eta, total = tree[3], tree[4], priors[0], priors[1], priors[2]
    route, here, sizes, token_level = own
    weight, logs = work[7], 0.0
    for pair in range(first, last):
        words = row[position[pair]]
        for _ in range(counts[pair]):
            if mode == 0:
                old = token_level[token]
                words[route[old]] -= 1
                totals[route[old]] -= 1
                here[pair - first, old] -= 1
                sizes[old] -= 1
            whole = 0.0
            for one in range(alpha.size):
                node = route[one]
                weight[one] = (alpha[one] + sizes[one]) * (words[node] + eta[one]) / (totals[node] + total[one])
                whole += weight[one]
            if mode:
                logs += math.log(whole)
            if mode < 2:
                token_level[token] = _pick(weight, alpha.size, uniform(key, number + token))
            new = token_level[token]
            words[route[new]] += 1
            totals[route[new]] += 1
            here[pair - first, new] += 1
            sizes[new] += 1
            token += 1
    return logs


@helper
def draw_path(document: Any, tree: Any, priors: Any, own: Any, work: Any, chance: float) -> None:
    """Draw a document's path given the levels of its tokens."""
    leave_path(document, tree, own)
    list_nodes(tree[1], work[0], work[1])
    _weigh_words(document, tree, priors, own, work)
    weigh_paths(tree, priors, work)
    place = draw_place(work[3], work[1][own[0].size], chance)
    join_path(work[0][place], tree, own)
    move_words(document, tree, own, 1)
