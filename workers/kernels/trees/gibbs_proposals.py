"""Propose a path with new levels to a document of a tree, drawn without a look at its own.

Paths are proposed by the prior of the nested Chinese restaurant process and, at each place, the mixture of its path's
topics by the prior's mean proportions. Helpers take the tuples of `collapsium.workers.kernels.trees.gibbs_paths`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from collapsium.workers.kernels.jit import helper
from collapsium.workers.kernels.random import uniform
from collapsium.workers.kernels.trees.gibbs_paths import (
    FEW,
    Array,
    draw_levels,
    draw_place,
    join_path,
    leave_path,
    list_nodes,
    move_words,
    tally_levels,
    weigh_paths,
)


@helper
def _mix_words(document: Any, tree: Any, priors: Any, work: Any) -> None:
    """Fill each place's sum_m log sum_l E[theta_l] phi_{c_l,w_m} by the prior's mean; words of new nodes are even."""
    _, first, last, _, position, counts = document
    parent, totals, row, alpha, eta, total = tree[0], tree[3], tree[4], priors[0], priors[1], priors[2]
    nodes, starts, part, scale, product, mixed, up, place_of = (
        work[0], work[1], work[2], work[3], work[4], work[5], work[9], work[10],
    )  # fmt: skip
    depth, since, size = alpha.size, 0, starts[alpha.size]
    share, below = alpha / alpha.sum(), np.zeros(alpha.size)
    for one in range(depth - 1, -1, -1):
        if one < depth - 1:
            below[one] = below[one + 1] + share[one + 1] * (eta[one + 1] / total[one + 1])
        for place in range(starts[one], starts[one + 1]):
            mixed[place], product[place], place_of[nodes[place]] = 0.0, 1.0, place
            scale[place] = share[one] / (totals[nodes[place]] + total[one])
    for place in range(1, size):
        up[place] = place_of[parent[nodes[place]]]
    for pair in range(first, last):
        words, some = row[position[pair]], min(counts[pair], FEW)
        part[0] = scale[0] * (words[0] + eta[0])
        product[0] *= part[0] + below[0]
        for one in range(1, depth):
            least, rest = eta[one], below[one]
            for place in range(starts[one], starts[one + 1]):
                chance = part[up[place]] + scale[place] * (words[nodes[place]] + least)
                part[place] = chance
                product[place] *= chance + rest
        for one in range(depth if counts[pair] > 1 else 0):
            for place in range(starts[one], starts[one + 1]):
                chance = part[place] + below[one]
                for _ in range(some - 1):
                    product[place] *= chance
                if counts[pair] > FEW:
                    mixed[place] += (counts[pair] - FEW) * math.log(chance)
        since += some
        if since >= FEW or pair == last - 1:
            for place in range(size):
                mixed[place] += math.log(product[place])
                product[place] = 1.0
            since = 0


@helper
def propose(document: Any, tree: Any, priors: Any, work: Any, chance: float) -> int:
    """Draw a path for a document outside of the tree by its prior and mixtures; -1 if there is none."""
    nodes, starts, score, weight, mixed, fresh = work[0], work[1], work[2], work[3], work[5], work[6]
    list_nodes(tree[1], nodes, starts)
    _mix_words(document, tree, priors, work)
    score[:] = 0.0
    fresh[:] = 0.0
    weigh_paths(tree, priors, work)
    for place in range(starts[starts.size - 1]):
        weight[place] += mixed[place]
    return draw_place(weight, starts[starts.size - 1], chance)


@helper
def _enter_anew(end: int, document: Any, tree: Any, priors: Any, own: Any, work: Any, key: Array, number: int) -> Any:
    """Put a document on a path with levels drawn token by token; return the sum of the logs of their weights."""
    tally_levels(document, own, 0)
    join_path(end, tree, own)
    return draw_levels(document, tree, priors, own, work, 1, key, number)


@helper
def _enter_again(end: int, document: Any, tree: Any, own: Any, work: Any) -> None:
    """Put a document on a path with the levels that were kept."""
    token_level, kept, begin, token = own[3], work[8], document[3], document[3]
    for pair in range(document[1], document[2]):
        for _ in range(document[5][pair]):
            token_level[token] = kept[token - begin]
            token += 1
    tally_levels(document, own, 1)
    join_path(end, tree, own)
    move_words(document, tree, own, 1)


@helper
def _keep(document: Any, own: Any, work: Any) -> None:
    """Keep the document's levels."""
    token_level, kept, begin, token = own[3], work[8], document[3], document[3]
    for pair in range(document[1], document[2]):
        for _ in range(document[5][pair]):
            kept[token - begin] = token_level[token]
            token += 1


@helper
def enter(document: Any, tree: Any, priors: Any, own: Any, work: Any, apart: int, key: Array, number: int) -> bool:
    """Let a document enter the tree, on a path of its own below the root or as `propose` says; say if it could."""
    end = 0
    if not (apart and priors[4]):
        place = propose(document, tree, priors, work, uniform(key, number + own[3].size + document[0]))
        if place < 0:
            return False
        end = work[0][place]
    _enter_anew(end, document, tree, priors, own, work, key, number)
    return True


@helper
def offer(document: Any, tree: Any, priors: Any, own: Any, work: Any, key: Array, number: int, every: int) -> None:
    """Offer a document another path with other levels, both drawn without a look at its own.

    With W the product over its tokens of the levels' summed weights as they are counted in one after another, and M
    the product of the mixtures by which a path is drawn, p(c', z') / q(c', z') is W' / M' but for what is the same for
    all; so the offer is accepted with the chance (W' / M') / (W / M).

    Parameters
    ----------
    document, tree, priors, own, work : tuple
        See `collapsium.workers.kernels.trees.gibbs_paths`.
    key : uint64, shape (2,)
        Of the random stream.
    number, every : int
        Number of the stream of the shard's first token, and how many numbers tokens and documents take together.
    """
    route, stays = own[0], 0
    for one in range(1, route.size):
        stays = route[one] if tree[2][route[one]] > 1 else stays
    leave_path(document, tree, own)
    place = propose(document, tree, priors, work, uniform(key, number + own[3].size + document[0]))
    end, ratio = work[0][place], -work[5][place]
    for other in range(work[1][route.size]):
        if work[0][other] == stays:
            ratio += work[5][other]
    _keep(document, own, work)
    tally_levels(document, own, 0)
    join_path(stays, tree, own)
    ratio -= draw_levels(document, tree, priors, own, work, 2, key, number)
    leave_path(document, tree, own)
    ratio += _enter_anew(end, document, tree, priors, own, work, key, number)
    if math.log(1.0 - uniform(key, number + every + document[0])) >= ratio:
        leave_path(document, tree, own)
        _enter_again(stays, document, tree, own, work)
