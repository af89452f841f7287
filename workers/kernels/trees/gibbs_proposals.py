"""Propose a path with new levels to a document of a tree, drawn independently of its own.

Paths are proposed by the prior of the nested Chinese restaurant process and, at each place, the mixture of its path's
topics by the prior's mean proportions.
"""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.argument_types import Array, Number
from collapsium.workers.kernels.jit import helper
from collapsium.workers.kernels.random import uniform
from collapsium.workers.kernels.trees.gibbs_paths import (
    ADD_DRAWN,
    ADD_STORED,
    FACTORS_PER_LOGARITHM,
    draw_levels,
    draw_place,
    join_path,
    leave_path,
    list_nodes,
    move_words,
    tally_levels,
    weigh_paths,
)
from collapsium.workers.kernels.trees.gibbs_records import (
    DocumentState,
    SampledTree,
    TreeDocument,
    TreePriors,
    Workspace,
)


@helper
def _mix_words(document: TreeDocument, tree: SampledTree, priors: TreePriors, work: Workspace) -> None:
    """Fill each place's sum_m log sum_l E[theta_l] phi_{c_l,w_m} by the prior's mean; words of new nodes are even."""
    first, last, position, counts = document.first, document.last, document.position, document.counts
    parent, totals, row = tree.parent, tree.totals, tree.row
    alpha, eta, total = priors.alpha, priors.eta, priors.eta_total
    nodes, starts, partial, scale, product = work.nodes, work.starts, work.score, work.weight, work.product
    log_mixture, parent_place, place_of = work.log_mixture, work.parent_place, work.place_of
    depth, pending, size = alpha.size, 0, starts[alpha.size]
    share, below = alpha / alpha.sum(), np.zeros(alpha.size)
    for at in range(depth - 1, -1, -1):
        if at < depth - 1:
            below[at] = below[at + 1] + share[at + 1] * (eta[at + 1] / total[at + 1])
        for place in range(starts[at], starts[at + 1]):
            log_mixture[place], product[place], place_of[nodes[place]] = 0.0, 1.0, place
            scale[place] = share[at] / (totals[nodes[place]] + total[at])
    for place in range(1, size):
        parent_place[place] = place_of[parent[nodes[place]]]
    for pair in range(first, last):
        words, factors = row[position[pair]], min(counts[pair], FACTORS_PER_LOGARITHM)
        partial[0] = scale[0] * (words[0] + eta[0])
        product[0] *= partial[0] + below[0]
        for at in range(1, depth):
            least, rest = eta[at], below[at]
            for place in range(starts[at], starts[at + 1]):
                probability = partial[parent_place[place]] + scale[place] * (words[nodes[place]] + least)
                partial[place] = probability
                product[place] *= probability + rest
        for at in range(depth if counts[pair] > 1 else 0):
            for place in range(starts[at], starts[at + 1]):
                probability = partial[place] + below[at]
                for _ in range(factors - 1):
                    product[place] *= probability
                if counts[pair] > FACTORS_PER_LOGARITHM:
                    log_mixture[place] += (counts[pair] - FACTORS_PER_LOGARITHM) * math.log(probability)
        pending += factors
        if pending >= FACTORS_PER_LOGARITHM or pair == last - 1:
            for place in range(size):
                log_mixture[place] += math.log(product[place])
                product[place] = 1.0
            pending = 0


@helper
def _propose_place(
    document: TreeDocument, tree: SampledTree, priors: TreePriors, work: Workspace, number: float
) -> int:
    """Draw a path for a document outside of the tree by its prior and mixtures; -1 if there is none."""
    starts, weight, log_mixture = work.starts, work.weight, work.log_mixture
    list_nodes(tree.level, work.nodes, starts)
    _mix_words(document, tree, priors, work)
    work.score[:] = 0.0
    work.new_score[:] = 0.0
    weigh_paths(tree, priors, work)
    for place in range(starts[starts.size - 1]):
        weight[place] += log_mixture[place]
    return draw_place(weight, starts[starts.size - 1], number)


@helper
def _join_with_new_levels(
    end: int,
    document: TreeDocument,
    tree: SampledTree,
    priors: TreePriors,
    state: DocumentState,
    work: Workspace,
    key: Array,
    number: int,
) -> Number:
    """Put a document on a path with levels drawn token by token; return the sum of the logs of their weights."""
    tally_levels(document, state, 0)
    join_path(end, tree, state)
    return draw_levels(document, tree, priors, state, work, ADD_DRAWN, key, number)


@helper
def _join_with_saved_levels(
    end: int, document: TreeDocument, tree: SampledTree, state: DocumentState, saved: Array
) -> None:
    """Put a document on a path with the levels before the proposal."""
    token_level, counts, begin, token = state.token_level, document.counts, document.token, document.token
    for pair in range(document.first, document.last):
        for _ in range(counts[pair]):
            token_level[token] = saved[token - begin]
            token += 1
    tally_levels(document, state, 1)
    join_path(end, tree, state)
    move_words(document, tree, state, 1)


@helper
def _save_levels(document: TreeDocument, token_level: Array, saved: Array) -> None:
    """Save the document's levels."""
    counts, begin, token = document.counts, document.token, document.token
    for pair in range(document.first, document.last):
        for _ in range(counts[pair]):
            saved[token - begin] = token_level[token]
            token += 1


@helper
def add_document(
    document: TreeDocument,
    tree: SampledTree,
    priors: TreePriors,
    state: DocumentState,
    work: Workspace,
    separate: int,
    key: Array,
    number: int,
) -> bool:
    """Put a document into the tree, on a path of its own or a proposed one; return whether there was a path."""
    end = 0
    if not (separate and tree.slots.can_grow):
        drawn = uniform(key, number + state.token_level.size + document.number)
        place = _propose_place(document, tree, priors, work, drawn)
        if place < 0:
            return False
        end = work.nodes[place]
    _join_with_new_levels(end, document, tree, priors, state, work, key, number)
    return True


@helper
def metropolis_step(
    document: TreeDocument,
    tree: SampledTree,
    priors: TreePriors,
    state: DocumentState,
    work: Workspace,
    key: Array,
    number: int,
    stride: int,
) -> None:
    """Propose another path with other levels to a document, both drawn independently of its own.

    With W the product over its tokens of the levels' summed weights as they are counted in one after another, and M
    the product of the mixtures by which a path is drawn, p(c', z') / q(c', z') is W' / M' but for a factor common to
    all; so the proposal is accepted with probability (W' / M') / (W / M).

    Shapes: `key` (2,).
    """
    path, old_end = state.path, 0
    nodes, starts, log_mixture, documents = work.nodes, work.starts, work.log_mixture, tree.documents
    for at in range(1, path.size):
        old_end = path[at] if documents[path[at]] > 1 else old_end
    leave_path(document, tree, state)
    drawn = uniform(key, number + state.token_level.size + document.number)
    place = _propose_place(document, tree, priors, work, drawn)
    end, log_ratio = nodes[place], -log_mixture[place]
    for other in range(starts[path.size]):
        if nodes[other] == old_end:
            log_ratio += log_mixture[other]
    _save_levels(document, state.token_level, work.saved_levels)
    tally_levels(document, state, 0)
    join_path(old_end, tree, state)
    log_ratio -= draw_levels(document, tree, priors, state, work, ADD_STORED, key, number)
    leave_path(document, tree, state)
    log_ratio += _join_with_new_levels(end, document, tree, priors, state, work, key, number)
    if math.log(1.0 - uniform(key, number + stride + document.number)) >= log_ratio:
        leave_path(document, tree, state)
        _join_with_saved_levels(old_end, document, tree, state, work.saved_levels)
