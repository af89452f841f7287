"""Collapsed Gibbs sampling of documents' paths down a tree and of their tokens' levels, and fold-in of documents.

Propose a path with new levels to a document of a tree, drawn independently of its own.

Paths are proposed by the prior of the nested Chinese restaurant process and, at each place, the mixture of its path's
topics by the prior's mean proportions.
"""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Array,
    Float64Vector,
    Int32Matrix,
    Int64Vector,
    Number,
    OutFloat64Matrix,
    OutInt64Matrix,
    OutInt64Vector,
    UInt64Vector,
)
from collapsium.workers.kernels.jit import helper, kernel
from collapsium.workers.kernels.random import uniform
from collapsium.workers.kernels.records import DocumentPairs
from collapsium.workers.kernels.trees.gibbs_paths import (
    ADD_DRAWN,
    ADD_STORED,
    DRAW,
    FACTORS_PER_LOGARITHM,
    draw_levels,
    draw_path,
    draw_place,
    join_path,
    leave_path,
    list_nodes,
    move_words,
    tally_levels,
    weigh_paths,
)
from collapsium.workers.kernels.trees.gibbs_records import (
    Assignments,
    CandidatePaths,
    DocumentState,
    SampledTree,
    SweepOptions,
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


FIRST_DRAWS = 3  # draws of the path and the levels of a document that joins the tree
PROPOSAL_PERIOD = 8  # sweeps in one of which a document is proposed another path: it takes several times as long
MAX_TALLIED = 4096  # counts from which on cells are listed one by one instead of being tallied
FOLD_IN_PASSES, FOLD_IN_LEVEL_PASSES = 4, 20  # over unseen documents: over all paths, then over the most probable one


@helper
def _workspace(slots: int, depth: int, longest: int) -> Number:
    """Return working space for trees of so many slots and levels, and documents of so many tokens."""
    return Workspace(
        nodes=np.zeros(slots, dtype=np.int64),
        starts=np.zeros(depth + 1, dtype=np.int64),
        score=np.zeros(slots),
        weight=np.zeros(slots),
        product=np.zeros(slots),
        log_mixture=np.zeros(slots),
        new_score=np.zeros(depth + 1),
        level_weight=np.zeros(depth),
        saved_levels=np.zeros(longest, dtype=np.uint8),
        parent_place=np.zeros(slots, dtype=np.int64),
        place_of=np.zeros(slots, dtype=np.int64),
    )


@helper
def _longest(offsets: Array, counts: Array) -> Number:
    """Return the most pairs and the most tokens that a document has."""
    most_pairs = most_tokens = 0
    for document in range(offsets.size - 1):
        tokens = 0
        for pair in range(offsets[document], offsets[document + 1]):
            tokens += counts[pair]
        most_pairs = max(most_pairs, offsets[document + 1] - offsets[document])
        most_tokens = max(most_tokens, tokens)
    return most_pairs, most_tokens


@kernel
def sweep_documents(
    pairs: DocumentPairs,
    key: UInt64Vector,
    priors: TreePriors,
    options: SweepOptions,
    tree: SampledTree,
    assignments: Assignments,
    cursor: OutInt64Vector,
) -> None:
    """Draw each document's path and its tokens' levels, given all others; twin: `naive.gibbs_tree.sweep`.

    p(c_d = c) ~ p(c | others, gamma) prod_l p(w_dl | words of c_l), and p(z = l) ~ (n_dl' + alpha_l) (n_iw' + eta_l) /
    (n_i' + W eta_l) at the path's node i of level l (Blei, Griffiths, Jordan and Tenenbaum 2003). In one sweep of eight
    a path with new levels is proposed before (`gibbs_proposals.metropolis_step`): given its levels a document seldom
    leaves its path. A document outside the tree joins on such a path, or on one of its own, and is then drawn three
    times over. With T tokens and D documents in the shard, T random numbers are for levels and D for paths, as many for
    proposals, and D for whether these are accepted; and as many again for each further time.

    Shapes: `key`, `cursor` (2,).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    path, token_level, documents = assignments.path, assignments.token_level, tree.documents
    can_grow, free_count = tree.slots.can_grow, tree.slots.free_count
    depth, size = priors.alpha.size, offsets.size - 1
    most_pairs, most_tokens = _longest(offsets, counts)
    pair_level, level_tokens = np.zeros((most_pairs, depth), dtype=np.int64), np.zeros(depth, dtype=np.int64)
    work = _workspace(tree.level.size, depth, most_tokens)
    stride, begin = token_level.size + size, cursor[1]
    for number in range(cursor[0], size):
        cursor[0], cursor[1] = number, begin
        if can_grow and free_count[0] < depth - 1:
            return
        document = TreeDocument(number, offsets[number], offsets[number + 1], begin, position, counts)
        state, time, last = DocumentState(path[number], pair_level, level_tokens, token_level), 0, 1
        if path[number, 0] < 0:
            tally_levels(document, state, 0)
            joined = add_document(document, tree, priors, state, work, options.separate, key, stride)
            last = FIRST_DRAWS + 1 if joined else 0
            time = 1
        tally_levels(document, state, int(path[number, 0] >= 0))
        while time < last:
            first = time * (2 * stride + size)
            alone = False
            for at in range(1, depth):
                alone = alone or documents[path[number, at]] == 1
            if can_grow or not alone:
                if (number + time + options.iteration) % PROPOSAL_PERIOD == 0:
                    metropolis_step(document, tree, priors, state, work, key, first + stride, stride)
                draw_path(document, tree, priors, state, work, uniform(key, first + token_level.size + number))
            draw_levels(document, tree, priors, state, work, DRAW, key, first)
            time += 1
        for pair in range(offsets[number], offsets[number + 1]):
            begin += counts[pair]
    cursor[0], cursor[1] = size, begin


@kernel
def count_histogram(
    row: Int32Matrix, level: Int64Vector, tally: OutInt64Matrix, large: OutInt64Vector, larger: OutInt64Matrix
) -> None:
    """Tally the counts by word and node, for each level; twin: `naive.gibbs_tree.count_histogram`.

    Shapes: `row` (words, slots); `level` (slots,); `tally` (levels, 4096); `large` (1,); `larger` (n, 2).
    """
    for word in range(row.shape[0]):
        for node in range(level.size):
            count = row[word, node]
            if count <= 0 or level[node] < 0:
                continue
            if count < tally.shape[1]:
                tally[level[node], count] += 1
            else:
                larger[large[0], 0], larger[large[0], 1] = level[node], count
                large[0] += 1


@helper
def _expected_levels(
    first: int, last: int, position: Array, counts: Array, theta: Array, phi: Array, path: Array, mean: Array
) -> Number:
    """Fill the expected tokens of each level on a path; return the log probability of the document's words."""
    log_words = 0.0
    mean[:] = 0.0
    for pair in range(first, last):
        words, total = phi[position[pair]], 0.0
        for at in range(theta.size):
            total += theta[at] * words[path[at]]
        for at in range(theta.size):
            mean[at] += counts[pair] * theta[at] * words[path[at]] / total
        log_words += counts[pair] * math.log(total)
    return log_words


@kernel
def fold_documents(
    pairs: DocumentPairs, alpha: Float64Vector, paths: CandidatePaths, chosen: OutInt64Vector, mean: OutFloat64Matrix
) -> None:
    """Fit paths and levels of unseen documents, the nodes held fixed; twin: `naive.gibbs_tree.fold_documents`.

    q(c) ~ p(c) prod_m (sum_l theta_l phi_{c_l,w_m}), theta_l ~ alpha_l + E[n_l] under q, a few times over; then theta
    alone, on the path of the largest q.

    Shapes: `alpha` (levels,); `chosen` (documents,); `mean` (documents, levels).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    nodes, log_prior, phi = paths.nodes, paths.log_prior, paths.phi
    path_mean, score = np.empty((log_prior.size, alpha.size)), np.empty(log_prior.size)
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        theta = alpha / alpha.sum()
        for _ in range(FOLD_IN_PASSES):
            for path in range(log_prior.size):
                log_words = _expected_levels(first, last, position, counts, theta, phi, nodes[path], path_mean[path])
                score[path] = log_prior[path] + log_words
            most, total = score.max(), 0.0
            theta[:] = alpha
            for path in range(log_prior.size):
                total += math.exp(score[path] - most)
            for path in range(log_prior.size):
                theta += math.exp(score[path] - most) / total * path_mean[path]
            theta /= theta.sum()
        best = score.argmax()
        chosen[document] = best
        for _ in range(FOLD_IN_LEVEL_PASSES):
            _expected_levels(first, last, position, counts, theta, phi, nodes[best], mean[document])
            theta[:] = alpha + mean[document]
            theta /= theta.sum()
