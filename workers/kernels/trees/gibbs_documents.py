"""Collapsed Gibbs sampling of documents' paths down a tree and of their tokens' levels, and fold-in of documents.

The probability of a path given levels is the prior of the nested Chinese restaurant process times, at each node, the
Dirichlet-multinomial probability of the words that the document would add to it. A node is scored once for all paths
through it; the root, which all paths share, is not scored. Leaving the tree at an inner node is a single choice,
because all new nodes below it are alike. So a path is named by the node, in a list of all nodes, where it ends or
leaves the tree.

A document may also be proposed a path with new levels, drawn independently of its present path: by the prior of the
nested Chinese restaurant process and, at each place, the mixture of its path's topics by the prior's mean proportions.
"""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.jit import (
    Array,
    DocumentPairs,
    Float64Vector,
    Int32Matrix,
    Int64Vector,
    Number,
    OutFloat64Matrix,
    OutInt64Matrix,
    OutInt64Vector,
    UInt64Vector,
    borrower,
    helper,
    kernel,
)
from collapsium.workers.kernels.random import uniform
from collapsium.workers.kernels.trees.paths import (
    FREE,
    Assignments,
    CandidatePaths,
    DocumentState,
    SampledTree,
    SweepOptions,
    TreeDocument,
    TreePriors,
    Workspace,
)

FACTORS_PER_LOGARITHM = 8  # factors that are multiplied before a logarithm is taken
SERIES_FROM = 16.0  # argument from which log Gamma is computed by its series
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
    inverse_after, inverse_prior = 1.0 / after, 1.0 / prior
    rest = inverse_after * (1 / 12 - inverse_after * inverse_after * (1 / 360 - inverse_after * inverse_after / 1260))
    rest -= inverse_prior * (1 / 12 - inverse_prior * inverse_prior * (1 / 360 - inverse_prior * inverse_prior / 1260))
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
    peak = np.max(weight[:size])
    if peak == -np.inf:
        return -1
    for place in range(size):
        weight[place] = math.exp(weight[place] - peak)
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
    """Add the document's words to the nodes of its path, or remove them."""
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
    """Remove a document from the tree, with nodes that no other document passes."""
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
    for candidate in range(starts[path.size]):
        if nodes[candidate] == old_end:
            log_ratio += log_mixture[candidate]
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
PROPOSAL_PERIOD = 8  # a document is proposed another path in one of so many sweeps, as that takes several times as long
MAX_TALLIED = 4096  # count from which cells are listed one by one instead of being tallied
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
    max_pairs = max_tokens = 0
    for document in range(offsets.size - 1):
        tokens = 0
        for pair in range(offsets[document], offsets[document + 1]):
            tokens += counts[pair]
        max_pairs = max(max_pairs, offsets[document + 1] - offsets[document])
        max_tokens = max(max_tokens, tokens)
    return max_pairs, max_tokens


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
    a path with new levels is proposed before (`metropolis_step`): given its levels a document seldom
    leaves its path. A document outside the tree joins on such a path, or on one of its own, and is then drawn three
    times over. With T tokens and D documents in the shard, T random numbers are for levels and D for paths, as many for
    proposals, and D for whether these are accepted; and as many again for each further time.

    Shapes: `key`, `cursor` (2,).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    path, token_level, documents = assignments.path, assignments.token_level, tree.documents
    can_grow, free_count = tree.slots.can_grow, tree.slots.free_count
    depth, size = priors.alpha.size, offsets.size - 1
    max_pairs, max_tokens = _longest(offsets, counts)
    pair_level, level_tokens = np.zeros((max_pairs, depth), dtype=np.int64), np.zeros(depth, dtype=np.int64)
    work = _workspace(tree.level.size, depth, max_tokens)
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
            peak, total = score.max(), 0.0
            theta[:] = alpha
            for path in range(log_prior.size):
                total += math.exp(score[path] - peak)
            for path in range(log_prior.size):
                theta += math.exp(score[path] - peak) / total * path_mean[path]
            theta /= theta.sum()
        best = score.argmax()
        chosen[document] = best
        for _ in range(FOLD_IN_LEVEL_PASSES):
            _expected_levels(first, last, position, counts, theta, phi, nodes[best], mean[document])
            theta[:] = alpha + mean[document]
            theta /= theta.sum()
