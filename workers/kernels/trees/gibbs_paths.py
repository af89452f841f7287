"""Draw the path of a document of a tree given the levels of its tokens, and these given the path.

The probability of a path given levels is the prior of the nested Chinese restaurant process times, at each node, the
Dirichlet-multinomial probability of the words that the document would add to it. What paths share is computed once,
and the root, which all share, not at all. Leaving the tree at an inner node is one choice, as all new nodes below it
are alike: paths are named by the place, in a list of all nodes, where they end or leave the tree.
"""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.argument_types import Array, Number
from collapsium.workers.kernels.jit import borrower, helper
from collapsium.workers.kernels.random import uniform
from collapsium.workers.kernels.trees.gibbs_records import (
    FREE,
    DocumentState,
    SampledTree,
    TreeDocument,
    TreePriors,
    Workspace,
)

FACTORS_PER_LOGARITHM = 8  # factors that are multiplied before a logarithm is taken
SERIES_FROM = 16.0  # from where log Gamma is taken by its series
DRAW, ADD_DRAWN, ADD_STORED = 0, 1, 2  # modes of `draw_levels`


@helper
def log_rising(prior: float, count: int) -> Number:
    """Return log G(a + n) / G(a); by Stirling's series, to 1e-11, where a is large."""
    if count <= FACTORS_PER_LOGARITHM:
        product = 1.0
        for number in range(count):
            product *= prior + number
        return math.log(product)
    if prior < SERIES_FROM:
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
    for at in range(starts.size - 1):
        starts[at] = filled
        for node in range(level.size):
            if level[node] == at:
                nodes[filled] = node
                filled += 1
    starts[starts.size - 1] = filled


@helper
def _draw_weighted(weight: Array, size: int, number: float) -> int:
    """Draw a place in proportion to its weight, by a uniform number."""
    total = 0.0
    for place in range(size):
        total += weight[place]
    left, drawn = number * total, 0
    for place in range(size):
        if weight[place] > 0.0:
            drawn = place  # rounding may lead past the last that has a weight
            if left < weight[place]:
                break
            left -= weight[place]
    return drawn


@helper
def draw_place(weight: Array, size: int, number: float) -> int:
    """Draw a place in proportion to the exponentials of its weight, by a uniform number; -1 if there is none."""
    most = np.max(weight[:size])
    if most == -np.inf:
        return -1
    for place in range(size):
        weight[place] = math.exp(weight[place] - most)
    return _draw_weighted(weight, size, number)


@borrower
def _score_nodes(
    document: TreeDocument, tree: SampledTree, priors: TreePriors, state: DocumentState, work: Workspace
) -> None:
    """Fill the nodes' log probabilities of the document's words at their level, and new nodes' log probabilities."""
    first, last, position = document.first, document.last, document.position
    totals, row, eta, total = tree.totals, tree.row, priors.eta, priors.eta_total
    pair_level, level_tokens = state.pair_level, state.level_tokens
    nodes, starts, score, product, new_score = work.nodes, work.starts, work.score, work.product, work.new_score
    new_score[eta.size] = 0.0
    for at in range(eta.size - 1, 0, -1):
        low, high = starts[at], starts[at + 1]
        new, log_new, pending = 1.0, 0.0, 0
        for place in range(low, high):
            score[nodes[place]] = -log_rising(total[at] + totals[nodes[place]], level_tokens[at])
            product[place] = 1.0
        for pair in range(first, last):
            words = row[position[pair]]
            for number in range(pair_level[pair - first, at]):
                for place in range(low, high):
                    product[place] *= words[nodes[place]] + (eta[at] + number)
                new *= eta[at] + number
                pending += 1
                if pending == FACTORS_PER_LOGARITHM:
                    for place in range(low, high):
                        score[nodes[place]] += math.log(product[place])
                        product[place] = 1.0
                    log_new += math.log(new)
                    new, pending = 1.0, 0
        for place in range(low, high):
            score[nodes[place]] += math.log(product[place])
        new_score[at] = new_score[at + 1] + log_new + math.log(new) - log_rising(total[at], level_tokens[at])


@borrower
def weigh_paths(tree: SampledTree, priors: TreePriors, work: Workspace) -> None:
    """Fill each place's log weight: the prior of its path, and the scores of the nodes along it."""
    parent, documents, gamma, can_grow = tree.parent, tree.documents, priors.gamma, tree.slots.can_grow
    nodes, starts, score, weight, new_score = work.nodes, work.starts, work.score, work.weight, work.new_score
    depth = starts.size - 1
    score[0] = 0.0
    for at in range(depth):
        for place in range(starts[at], starts[at + 1]):
            node = nodes[place]
            if at:
                up = parent[node]
                score[node] += score[up] + math.log(documents[node] / (gamma + documents[up]))
            weight[place] = score[node]
            if at < depth - 1:
                leaving = math.log(gamma / (gamma + documents[node])) + new_score[at + 1]
                weight[place] = score[node] + leaving if can_grow else -np.inf


@borrower
def move_words(document: TreeDocument, tree: SampledTree, state: DocumentState, sign: int) -> None:
    """Add the document's words to the nodes of its path, or take them away."""
    first, position = document.first, document.position
    totals, row, path, pair_level = tree.totals, tree.row, state.path, state.pair_level
    for pair in range(first, document.last):
        words = row[position[pair]]
        for at in range(path.size):
            count = sign * pair_level[pair - first, at]
            words[path[at]] += count
            totals[path[at]] += count


@borrower
def leave_path(document: TreeDocument, tree: SampledTree, state: DocumentState) -> None:
    """Take a document out of the tree; remove nodes that no document passes."""
    move_words(document, tree, state, -1)
    parent, level, documents, slots, path = tree.parent, tree.level, tree.documents, tree.slots, state.path
    reusable, free, free_count = slots.reusable, slots.free, slots.free_count
    for at in range(path.size - 1, -1, -1):
        node = path[at]
        documents[node] -= 1
        if at and documents[node] == 0:
            parent[node], level[node] = FREE, -1
            if reusable[node]:
                free[free_count[0]] = node
                free_count[0] += 1


@borrower
def join_path(end: int, tree: SampledTree, state: DocumentState) -> None:
    """Put a document, without its words, on the path that ends at a leaf or leaves the tree at an inner node."""
    parent, level, documents, slots, path = tree.parent, tree.level, tree.documents, tree.slots, state.path
    free, free_count = slots.free, slots.free_count
    last, node = level[end], end
    for at in range(last, -1, -1):
        path[at] = node
        node = parent[node]
    for at in range(last + 1, path.size):
        free_count[0] -= 1
        node = free[free_count[0]]
        parent[node], level[node], documents[node] = path[at - 1], at, 0
        path[at] = node
    for at in range(path.size):
        documents[path[at]] += 1


@borrower
def tally_levels(document: TreeDocument, state: DocumentState, counted: int) -> None:
    """Tally a document's tokens by pair and level, and by level; all are 0 where they are not counted."""
    first, counts = document.first, document.counts
    pair_level, level_tokens, token_level = state.pair_level, state.level_tokens, state.token_level
    level_tokens[:] = 0
    token = document.token
    for pair in range(first, document.last):
        pair_level[pair - first, :] = 0
        for _ in range(counts[pair]):
            if counted:
                pair_level[pair - first, token_level[token]] += 1
                level_tokens[token_level[token]] += 1
            token += 1


@borrower
def draw_levels(
    document: TreeDocument,
    tree: SampledTree,
    priors: TreePriors,
    state: DocumentState,
    work: Workspace,
    mode: int,
    key: Array,
    number: int,
) -> Number:
    """Draw each token's level given all other levels, or count tokens in one after another.

    Shapes: `key` (2,).
    """
    first, position, counts, token = document.first, document.position, document.counts, document.token
    totals, row, alpha, eta, total = tree.totals, tree.row, priors.alpha, priors.eta, priors.eta_total
    path, pair_level, level_tokens = state.path, state.pair_level, state.level_tokens
    token_level, weight, logs = state.token_level, work.level_weight, 0.0
    for pair in range(first, document.last):
        words = row[position[pair]]
        for _ in range(counts[pair]):
            if mode == DRAW:
                old = token_level[token]
                words[path[old]] -= 1
                totals[path[old]] -= 1
                pair_level[pair - first, old] -= 1
                level_tokens[old] -= 1
            total_weight = 0.0
            for at in range(alpha.size):
                node = path[at]
                weight[at] = (alpha[at] + level_tokens[at]) * (words[node] + eta[at]) / (totals[node] + total[at])
                total_weight += weight[at]
            if mode != DRAW:
                logs += math.log(total_weight)
            if mode != ADD_STORED:
                token_level[token] = _draw_weighted(weight, alpha.size, uniform(key, number + token))
            new = token_level[token]
            words[path[new]] += 1
            totals[path[new]] += 1
            pair_level[pair - first, new] += 1
            level_tokens[new] += 1
            token += 1
    return logs


@borrower
def draw_path(
    document: TreeDocument,
    tree: SampledTree,
    priors: TreePriors,
    state: DocumentState,
    work: Workspace,
    number: float,
) -> None:
    """Draw a document's path given the levels of its tokens, by a uniform number."""
    leave_path(document, tree, state)
    list_nodes(tree.level, work.nodes, work.starts)
    _score_nodes(document, tree, priors, state, work)
    weigh_paths(tree, priors, work)
    place = draw_place(work.weight, work.starts[state.path.size], number)
    join_path(work.nodes[place], tree, state)
    move_words(document, tree, state, 1)
