"""Collapsed Gibbs sampling of documents' paths down a tree and of their tokens' levels, and fold-in of documents."""

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
from collapsium.workers.kernels.trees.gibbs_paths import DRAW, draw_levels, draw_path, tally_levels
from collapsium.workers.kernels.trees.gibbs_proposals import add_document, metropolis_step
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
            for one in range(log_prior.size):
                log_words = _expected_levels(first, last, position, counts, theta, phi, nodes[one], path_mean[one])
                score[one] = log_prior[one] + log_words
            most, total = score.max(), 0.0
            theta[:] = alpha
            for one in range(log_prior.size):
                total += math.exp(score[one] - most)
            for one in range(log_prior.size):
                theta += math.exp(score[one] - most) / total * path_mean[one]
            theta /= theta.sum()
        best = score.argmax()
        chosen[document] = best
        for _ in range(FOLD_IN_LEVEL_PASSES):
            _expected_levels(first, last, position, counts, theta, phi, nodes[best], mean[document])
            theta[:] = alpha + mean[document]
            theta /= theta.sum()
