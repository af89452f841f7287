"""Collapsed Gibbs sampling of documents' paths down a tree, and of the levels of their tokens.

A document's path is drawn given the levels of its tokens and all other documents: the prior of the nested Chinese
restaurant process times, at each node, the Dirichlet-multinomial probability of the words that the document would bring
to it. What paths share is computed once, and the root, which all share, not at all. Leaving the tree at an inner node
is one choice, as all new nodes below it are alike.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsar.workers.kernels.compile import (
    F8,
    F8_2,
    I4,
    I4_2,
    I8,
    I8_2,
    OUT_F8_2,
    OUT_I4_2,
    OUT_I8,
    OUT_I8_2,
    OUT_U1,
    U8,
    f8,
    helper,
    i8,
    kernel,
)
from collapsar.workers.kernels.random import uniform

Array = npt.NDArray[Any]

FEW = 16  # factors that are multiplied before a logarithm is taken
ENTRIES = 3  # draws of the path and the levels of a document that enters
COMMON = 4096  # counts that are tallied, not listed one by one
GUESSES, STEPS = 4, 20  # passes over unseen documents: over all paths, and then over the most probable one
FREE = -2  # parent of a slot that is no node; the root's is -1


@helper
def log_rising(prior: float, count: int) -> Any:
    """Return log G(a + n) / G(a)."""
    if count > FEW:
        return math.lgamma(prior + count) - math.lgamma(prior)
    product = 1.0
    for number in range(count):
        product *= prior + number
    return math.log(product)


@helper
def by_level(level: Array, nodes: Array, starts: Array) -> None:
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
def _add_words(
    first: int, last: int, position: Array, here: Array, at: int, eta: float, nodes: Array, row: Array, score: Array
) -> Any:
    """Add to nodes' scores the logs of their words' rising factors; return that of a node without words."""
    product, logs = np.ones(nodes.size), np.zeros(nodes.size)
    fresh, log_fresh, since = 1.0, 0.0, 0
    for pair in range(first, last):
        words = row[position[pair]]
        for number in range(here[pair - first, at]):
            for place in range(nodes.size):
                product[place] *= words[nodes[place]] + (eta + number)
            fresh *= eta + number
            since += 1
            if since == FEW:
                for place in range(nodes.size):
                    logs[place] += math.log(product[place])
                    product[place] = 1.0
                log_fresh += math.log(fresh)
                fresh, since = 1.0, 0
    for place in range(nodes.size):
        score[nodes[place]] += logs[place] + math.log(product[place])
    return log_fresh + math.log(fresh)


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
def _draw_end(
    starts: Array, nodes: Array, parent: Array, level: Array, documents: Array, gamma: float, births: int, fresh: Array,
    score: Array, weight: Array, chance: float,
) -> int:  # fmt: skip
    """Draw the node where a path ends or, if it is an inner one, leaves the tree; -1 if there is none.

    `score` holds each node's log probability of its words, `fresh` those of new nodes of a level and all below.
    """
    depth, most = starts.size - 1, -np.inf
    score[0] = 0.0
    for place in range(starts[depth]):
        node = nodes[place]
        if place:
            up = parent[node]
            score[node] += score[up] + math.log(documents[node] / (gamma + documents[up]))
        weight[place] = score[node]
        if place < starts[depth - 1]:
            leaving = math.log(gamma / (gamma + documents[node])) + fresh[level[node] + 1]
            weight[place] = score[node] + leaving if births else -np.inf
        most = max(most, weight[place])
    if most == -np.inf:
        return -1
    for place in range(starts[depth]):
        weight[place] = math.exp(weight[place] - most)
    return nodes[_pick(weight, starts[depth], chance)]


@helper
def _leave(
    route: Array, parent: Array, level: Array, documents: Array, reusable: Array, state: Array, free: Array
) -> None:
    """Take a document off its path; nodes that no document passes are no more."""
    for at in range(route.size - 1, -1, -1):
        node = route[at]
        documents[node] -= 1
        if at and documents[node] == 0:
            parent[node], level[node] = FREE, -1
            if reusable[node]:
                free[state[2]] = node
                state[2] += 1


@helper
def _enter(end: int, route: Array, parent: Array, level: Array, documents: Array, state: Array, free: Array) -> None:
    """Put a document on the path that ends at a node or, if it is an inner one, leaves the tree there."""
    last, node = level[end], end
    for at in range(last, -1, -1):
        route[at] = node
        node = parent[node]
    for at in range(last + 1, route.size):
        state[2] -= 1
        node = free[state[2]]
        parent[node], level[node], documents[node] = route[at - 1], at, 0
        route[at] = node
    for at in range(route.size):
        documents[route[at]] += 1


@helper
def _move_words(
    first: int, last: int, position: Array, here: Array, route: Array, sign: int, row: Array, totals: Array
) -> None:
    """Add a document's words to the nodes of its path, or take them away."""
    for pair in range(first, last):
        words = row[position[pair]]
        for at in range(route.size):
            count = sign * here[pair - first, at]
            words[route[at]] += count
            totals[route[at]] += count


@helper
def _draw_levels(
    first: int, last: int, begin: int, position: Array, counts: Array, alpha: Array, eta: Array, total: Array,
    route: Array, counted: bool, key: Array, number: int, here: Array, sizes: Array, row: Array, totals: Array,
    token_level: Array, weight: Array,
) -> None:  # fmt: skip
    """Draw each token's level given those of all others; those of a document that enters are not `counted` yet."""
    at, depth = begin, alpha.size
    for pair in range(first, last):
        words = row[position[pair]]
        for _ in range(counts[pair]):
            if counted:
                old = token_level[at]
                words[route[old]] -= 1
                totals[route[old]] -= 1
                here[pair - first, old] -= 1
                sizes[old] -= 1
            for one in range(depth):
                node = route[one]
                weight[one] = (alpha[one] + sizes[one]) * (words[node] + eta[one]) / (totals[node] + total[one])
            new = _pick(weight, depth, uniform(key, number + at))
            words[route[new]] += 1
            totals[route[new]] += 1
            here[pair - first, new] += 1
            sizes[new] += 1
            token_level[at] = new
            at += 1


@kernel(
    I8, I4, I4, U8, F8, F8, f8, i8, i8, I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I4_2, OUT_I4_2, OUT_U1,
)  # fmt: skip
def sweep_documents(
    offsets: Array,
    position: Array,
    counts: Array,
    key: Array,
    alpha: Array,
    eta: Array,
    gamma: float,
    vocabulary: int,
    births: int,
    reusable: Array,
    state: Array,
    free: Array,
    parent: Array,
    level: Array,
    documents: Array,
    totals: Array,
    row: Array,
    path: Array,
    token_level: Array,
) -> None:
    """Draw each document's path and its tokens' levels, given all others; twin: `naive.gibbs_tree.sweep`.

    p(c_d = c) ~ p(c | others, gamma) prod_l p(w_dl | words of c_l), and p(z = l) ~ (n_dl' + alpha_l) (n_iw' + eta_l) /
    (n_i' + W eta_l) at the path's node i of level l (Blei, Griffiths, Jordan and Tenenbaum 2003). A document outside
    the tree enters on a path of its own below the root: its levels are drawn, then path and levels three times over.
    With T tokens and D documents in the shard, the numbers of a stream are token t's, T for each document's path, and
    again T + D for each further time.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row and count of each pair.
    key : uint64, shape (2,)
        Of the random stream.
    alpha, eta : float64, shape (levels,)
        Dirichlet parameters of the levels in a document, and of each word at the nodes of a level.
    gamma : float
        Concentration of the restaurants.
    vocabulary : int
        W.
    births : int
        Whether there may be new nodes; if not, a document that has nodes to itself stays where it is.
    reusable : int64, shape (slots,)
        Not 0 for slots that go back to `free` when they are empty again.
    state : int64, shape (3,)
        Document to go on with, its first token, and how many slots are free; moved. The sweep ends before a document
        that could find too few, else with the number of documents.
    free : int64
        Free slots, the next to be taken last.
    parent, level : int64, shape (slots,)
        The tree: -1 and 0 of the root, slot 0; -2 and -1 of what is no node; moved.
    documents, totals : int64, shape (slots,)
        Documents that pass each node, and its tokens; moved.
    row : int32, shape (rows, slots)
        Its words; moved.
    path : int32, shape (documents, levels)
        c; -1 of a document outside the tree; moved.
    token_level : uint8, shape (tokens,)
        z of each token, those of a pair side by side; moved.
    """
    depth, total = alpha.size, eta * vocabulary
    widest = 0
    for document in range(offsets.size - 1):
        widest = max(widest, offsets[document + 1] - offsets[document])
    here, sizes = np.zeros((widest, depth), dtype=np.int64), np.zeros(depth, dtype=np.int64)
    nodes, starts = np.zeros(level.size, dtype=np.int64), np.zeros(depth + 1, dtype=np.int64)
    score, weight, fresh = np.zeros(level.size), np.zeros(max(level.size, depth)), np.zeros(depth + 1)
    every = token_level.size + offsets.size - 1
    begin = state[1]
    for document in range(state[0], offsets.size - 1):
        state[0], state[1] = document, begin
        if births and state[2] < depth - 1:
            return
        first, last, route, at = offsets[document], offsets[document + 1], path[document], begin
        inside = route[0] >= 0
        sizes[:] = 0
        for pair in range(first, last):
            here[pair - first, :] = 0
            for _ in range(counts[pair]):
                if inside:
                    here[pair - first, token_level[at]] += 1
                    sizes[token_level[at]] += 1
                at += 1
        for time in range(0 if inside else -1, 1 if inside else ENTRIES):
            number = (time if inside else time + 1) * every
            alone = False
            if time >= 0:
                for one in range(1, depth):
                    alone = alone or documents[route[one]] == 1
            if births or not alone:
                if time >= 0:
                    _move_words(first, last, position, here, route, -1, row, totals)
                    _leave(route, parent, level, documents, reusable, state, free)
                end = 0
                if time >= 0 or not births:
                    by_level(level, nodes, starts)
                    for one in range(depth - 1, 0, -1):
                        mine = nodes[starts[one] : starts[one + 1]]
                        for node in mine:
                            score[node] = -log_rising(total[one] + totals[node], sizes[one])
                        new = _add_words(first, last, position, here, one, eta[one], mine, row, score)
                        fresh[one] = fresh[one + 1] + new - log_rising(total[one], sizes[one])
                    end = _draw_end(
                        starts, nodes, parent, level, documents, gamma, births, fresh, score, weight,
                        uniform(key, number + token_level.size + document),
                    )  # fmt: skip
                if end < 0:
                    break
                _enter(end, route, parent, level, documents, state, free)
                _move_words(first, last, position, here, route, 1, row, totals)
            _draw_levels(
                first, last, begin, position, counts, alpha, eta, total, route, time >= 0, key, number, here, sizes,
                row, totals, token_level, weight,
            )  # fmt: skip
        begin = at
    state[0], state[1] = offsets.size - 1, begin


@kernel(I4_2, I8, OUT_I8_2, OUT_I8, OUT_I8_2)
def tally_cells(row: Array, level: Array, tally: Array, large: Array, larger: Array) -> None:
    """Tally the cells of counts by word and node, for each level; twin: `naive.gibbs_tree.tally_cells`.

    Parameters
    ----------
    row : int32, shape (words, slots)
        n_iw.
    level : int64, shape (slots,)
        -1 of what is no node.
    tally : int64, shape (levels, 4096)
        Increased by the number of cells of each level that hold each count.
    large : int64, shape (1,)
        Increased by the number of cells that hold 4096 or more.
    larger : int64, shape (n, 2)
        Filled with level and count of each of these.
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
def _expect(
    first: int, last: int, position: Array, counts: Array, theta: Array, phi: Array, route: Array, mean: Array
) -> Any:
    """Fill the expected tokens of each level on a path; return the log probability of the document's words."""
    log_words = 0.0
    mean[:] = 0.0
    for pair in range(first, last):
        words, total = phi[position[pair]], 0.0
        for at in range(theta.size):
            total += theta[at] * words[route[at]]
        for at in range(theta.size):
            mean[at] += counts[pair] * theta[at] * words[route[at]] / total
        log_words += counts[pair] * math.log(total)
    return log_words


@kernel(I8, I4, I4, F8, F8_2, F8, I8_2, OUT_I8, OUT_F8_2)
def fold_documents(
    offsets: Array,
    position: Array,
    counts: Array,
    alpha: Array,
    phi: Array,
    log_prior: Array,
    paths: Array,
    chosen: Array,
    mean: Array,
) -> None:
    """Find paths and levels of unseen documents, the nodes held fixed; twin: `naive.gibbs_tree.fold_documents`.

    q(c) ~ p(c) prod_m (sum_l theta_l phi_{c_l,w_m}), theta_l ~ alpha_l + E[n_l] under q, a few times over; then theta
    alone, on the path of the largest q.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row and count of each pair.
    alpha : float64, shape (levels,)
        Dirichlet parameters.
    phi : float64, shape (rows, nodes)
        Probabilities of words.
    log_prior : float64, shape (paths,)
        log p(c).
    paths : int64, shape (paths, levels)
        The nodes of each; there is one path at least.
    chosen : int64, shape (documents,)
        Filled with each document's path.
    mean : float64, shape (documents, levels)
        Filled with E[n_dl].
    """
    each, score = np.empty((log_prior.size, alpha.size)), np.empty(log_prior.size)
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        theta = alpha / alpha.sum()
        for _ in range(GUESSES):
            for one in range(log_prior.size):
                score[one] = log_prior[one] + _expect(first, last, position, counts, theta, phi, paths[one], each[one])
            most, total = score.max(), 0.0
            theta[:] = alpha
            for one in range(log_prior.size):
                total += math.exp(score[one] - most)
            for one in range(log_prior.size):
                theta += math.exp(score[one] - most) / total * each[one]
            theta /= theta.sum()
        best = score.argmax()
        chosen[document] = best
        for _ in range(STEPS):
            _expect(first, last, position, counts, theta, phi, paths[best], mean[document])
            theta[:] = alpha + mean[document]
            theta /= theta.sum()
