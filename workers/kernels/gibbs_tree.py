"""Collapsed Gibbs sampling of documents' paths down a tree and of the levels of their tokens; what trees are read by."""

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
    U1,
    U8,
    f8,
    helper,
    i8,
    kernel,
)
from collapsar.workers.kernels.gibbs_paths import (
    FREE,
    draw_levels,
    draw_path,
    draw_place,
    enter,
    list_nodes,
    log_rising,
    offer,
    tally_levels,
)
from collapsar.workers.kernels.random import uniform

Array = npt.NDArray[Any]

ENTRIES = 3  # draws of the path and the levels of a document that enters
COMMON = 4096  # counts that are tallied, not listed one by one
GUESSES, STEPS = 4, 20  # passes over unseen documents: over all paths, and then over the most probable one


@kernel(
    I8, I4, I4, U8, F8, F8, f8, i8, i8, i8, I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I4_2, OUT_I4_2, OUT_U1,
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
    apart: int,
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
    (n_i' + W eta_l) at the path's node i of level l (Blei, Griffiths, Jordan and Tenenbaum 2003). Before, a path with
    new levels is offered (`gibbs_paths.offer`): given its levels a document seldom leaves where it has settled. A
    document outside the tree enters on such a path, or on one of its own, and is then drawn three times over. With T tokens and D documents
    in the shard, T numbers of a stream are for levels and D for paths, as many for offers, and D for whether these are
    accepted; and as many again for each further time.

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
    apart : int
        Whether a document enters on a path of its own.
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
    depth, slots, tokens = alpha.size, level.size, token_level.size
    widest = longest = token = 0
    for document in range(offsets.size - 1):
        widest, begin = max(widest, offsets[document + 1] - offsets[document]), token
        for pair in range(offsets[document], offsets[document + 1]):
            token += counts[pair]
        longest = max(longest, token - begin)
    here, sizes = np.zeros((widest, depth), dtype=np.int64), np.zeros(depth, dtype=np.int64)
    tree = parent, level, documents, totals, row, reusable, state, free
    priors = alpha, eta, eta * vocabulary, gamma, births
    work = (
        np.zeros(slots, dtype=np.int64), np.zeros(depth + 1, dtype=np.int64), np.zeros(slots), np.zeros(slots),
        np.zeros(slots), np.zeros(slots), np.zeros(depth + 1), np.zeros(depth), np.zeros(longest, dtype=np.uint8),
        np.zeros(slots, dtype=np.int64), np.zeros(slots, dtype=np.int64),
    )  # fmt: skip
    every, begin = tokens + offsets.size - 1, state[1]
    for number in range(state[0], offsets.size - 1):
        state[0], state[1] = number, begin
        if births and state[2] < depth - 1:
            return
        document = number, offsets[number], offsets[number + 1], begin, position, counts
        own, time, last = (path[number], here, sizes, token_level), 0, 1
        if path[number, 0] < 0:
            tally_levels(document, own, 0)
            last = ENTRIES + 1 if enter(document, tree, priors, own, work, apart, key, every) else 0
            time = 1
        tally_levels(document, own, int(path[number, 0] >= 0))
        while time < last:
            first = time * (2 * every + offsets.size - 1)
            alone = False
            for one in range(1, depth):
                alone = alone or documents[path[number, one]] == 1
            if births or not alone:
                offer(document, tree, priors, own, work, key, first + every, every)
                draw_path(document, tree, priors, own, work, uniform(key, first + tokens + number))
            draw_levels(document, tree, priors, own, work, 0, key, first)
            time += 1
        for pair in range(offsets[number], offsets[number + 1]):
            begin += counts[pair]
    state[0], state[1] = offsets.size - 1, begin


@helper
def _bring_words(
    first: int, last: int, order: Array, offsets: Array, position: Array, counts: Array, begins: Array,
    token_level: Array, upto: int, brought: Array, touched: Array, sizes: Array,
) -> int:  # fmt: skip
    """Tally the words that some documents have at the levels from 1 to `upto` - 1; return how many words these are."""
    filled = 0
    sizes[:] = 0
    for entry in range(first, last):
        document = order[entry]
        token = begins[document]
        for pair in range(offsets[document], offsets[document + 1]):
            word = position[pair]
            for _ in range(counts[pair]):
                one = token_level[token]
                token += 1
                if 0 < one < upto:
                    if brought[word, 0] == 0:
                        brought[word, 0] = 1
                        touched[filled] = word
                        filled += 1
                    brought[word, one] += 1
                    sizes[one] += 1
    return filled


@helper
def _swap_ratio(
    up: int, node: int, upto: int, members: Array, offsets: Array, counts: Array, begins: Array, token_level: Array,
    alpha: Array, eta: Array, total: Array, totals: Array, row: Array,
) -> Any:  # fmt: skip
    """Return the log of by how much a sample is more probable if a node and its only child exchange their words."""
    here = there = 0.0
    for word in range(row.shape[0]):
        if row[word, up] != row[word, node]:
            here += log_rising(eta[upto - 1], row[word, up]) + log_rising(eta[upto], row[word, node])
            there += log_rising(eta[upto - 1], row[word, node]) + log_rising(eta[upto], row[word, up])
    here -= log_rising(total[upto - 1], totals[up]) + log_rising(total[upto], totals[node])
    there -= log_rising(total[upto - 1], totals[node]) + log_rising(total[upto], totals[up])
    for document in members:
        above = below = 0
        for token in range(begins[document], begins[document + 1]):
            above += token_level[token] == upto - 1
            below += token_level[token] == upto
        here += log_rising(alpha[upto - 1], above) + log_rising(alpha[upto], below)
        there += log_rising(alpha[upto - 1], below) + log_rising(alpha[upto], above)
    return there - here


@helper
def _swap(
    up: int, node: int, upto: int, members: Array, begins: Array, token_level: Array, totals: Array, row: Array
) -> None:
    """Let a node and its only child exchange their words."""
    for word in range(row.shape[0]):
        row[word, up], row[word, node] = row[word, node], row[word, up]
    totals[up], totals[node] = totals[node], totals[up]
    for document in members:
        for token in range(begins[document], begins[document + 1]):
            if token_level[token] == upto:
                token_level[token] = upto - 1
            elif token_level[token] == upto - 1:
                token_level[token] = upto


@helper
def _hang(
    node: int, members: Array, place: int, nodes: Array, upto: int, parent: Array, level: Array, documents: Array,
    state: Array, free: Array, path: Array,
) -> None:  # fmt: skip
    """Hang a node, with the documents that pass it, below another one or below new nodes that hang there."""
    up = nodes[place]
    for one in range(level[up] + 1, upto):
        state[2] -= 1
        new = free[state[2]]
        parent[new], level[new], documents[new] = up, one, 0
        up = new
    parent[node] = up
    for one in range(upto - 1, -1, -1):
        documents[up] += members.size
        for document in members:
            path[document, one] = up
        up = parent[up]


@kernel(
    I8, I4, I4, U8, F8, F8, f8, i8, i8, i8, I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I4_2, OUT_I4_2, OUT_U1,
)  # fmt: skip
def hang_nodes(
    offsets: Array,
    position: Array,
    counts: Array,
    key: Array,
    alpha: Array,
    eta: Array,
    gamma: float,
    vocabulary: int,
    births: int,
    known: int,
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
    """Draw where each node from level 2 on hangs, given all else; twin: `naive.gibbs_tree.hang_nodes`.

    All documents that pass a node take their paths down to it together, and their words of the levels between it and
    the root along; the paths below it stay. With n documents, the prior of joining a node of m where the one above has
    M is (m)^(n) / (gamma + M)^(n), in rising factors, and that of a new one gamma G(n) / (gamma + M)^(n). Documents of
    other shards cannot be taken along: where there are any, nodes that they know stay where they are, as does a node for
    which too few slots are free. Number i of the stream is slot i's.

    Parameters
    ----------
    offsets, position, counts, key, alpha, eta, gamma, vocabulary, births, reusable, state, free, parent, level, documents, \
totals, row, path, token_level
        As for `sweep_documents`; levels stay.
    known : int
        Whether other shards know the nodes whose slots are not `reusable`.
    """
    depth, total, slots = eta.size, eta * vocabulary, level.size
    begins, token = np.zeros(offsets.size, dtype=np.int64), 0
    for document in range(offsets.size - 1):
        begins[document] = token
        for pair in range(offsets[document], offsets[document + 1]):
            token += counts[pair]
    begins[offsets.size - 1] = token
    brought, touched = np.zeros((row.shape[0], depth), dtype=np.int64), np.zeros(row.shape[0], dtype=np.int64)
    nodes, starts, sizes = (
        np.zeros(slots, dtype=np.int64),
        np.zeros(depth + 1, dtype=np.int64),
        np.zeros(depth, np.int64),
    )
    score, weight, fresh = np.zeros(slots), np.zeros(slots), np.zeros(depth + 1)
    for upto in range(2, depth):
        inside = np.flatnonzero(path[:, 0] >= 0)
        order = inside[np.argsort(path[inside, upto], kind="mergesort")]
        first = 0
        while first < order.size:
            node, last = path[order[first], upto], first + 1
            while last < order.size and path[order[last], upto] == node:
                last += 1
            members, count, route = order[first:last], last - first, path[order[first]].copy()
            alone = False
            for one in range(1, upto):
                alone = alone or documents[route[one]] == count
            mine = documents[node] == count and (reusable[node] or not known)
            up = route[upto - 1]
            if mine and upto > 1 and documents[up] == count and (reusable[up] or not known):
                if uniform(key, slots + node) < 0.5:
                    ratio = _swap_ratio(
                        up, node, upto, members, offsets, counts, begins, token_level, alpha, eta, total, totals, row
                    )
                    if math.log(1.0 - uniform(key, 2 * slots + node)) < ratio:
                        _swap(up, node, upto, members, begins, token_level, totals, row)
            if mine and (not births or state[2] >= upto - 1) and (births or not alone):
                filled = _bring_words(
                    first, last, order, offsets, position, counts, begins, token_level, upto, brought, touched, sizes
                )
                for one in range(1, upto):
                    up = route[one]
                    for entry in range(filled):
                        row[touched[entry], up] -= brought[touched[entry], one]
                    totals[up] -= sizes[one]
                documents[0] -= count
                for one in range(upto - 1, 0, -1):
                    up = route[one]
                    documents[up] -= count
                    if documents[up] == 0:
                        parent[up], level[up] = FREE, -1
                        if reusable[up]:
                            free[state[2]] = up
                            state[2] += 1
                list_nodes(level, nodes, starts)
                seats = math.log(gamma) + math.lgamma(count)
                fresh[upto], score[0] = 0.0, 0.0
                for one in range(upto - 1, 0, -1):
                    new = seats - log_rising(gamma, count) - log_rising(total[one], sizes[one])
                    for entry in range(filled):
                        new += log_rising(eta[one], brought[touched[entry], one])
                    fresh[one] = fresh[one + 1] + new
                for one in range(upto):
                    for place in range(starts[one], starts[one + 1]):
                        up = nodes[place]
                        if one:
                            above = parent[up]
                            here = score[above] + log_rising(documents[up], count)
                            here -= log_rising(gamma + documents[above], count)
                            here -= log_rising(total[one] + totals[up], sizes[one])
                            for entry in range(filled):
                                word = touched[entry]
                                here += log_rising(row[word, up] + eta[one], brought[word, one])
                            score[up] = here
                        weight[place] = score[up] + seats - log_rising(gamma + documents[up], count)
                        if one < upto - 1:
                            weight[place] = weight[place] + fresh[one + 1] if births else -np.inf
                place = draw_place(weight, starts[upto], uniform(key, node))
                _hang(node, members, place, nodes, upto, parent, level, documents, state, free, path)
                for one in range(1, upto):
                    up = path[members[0], one]
                    for entry in range(filled):
                        row[touched[entry], up] += brought[touched[entry], one]
                    totals[up] += sizes[one]
                for entry in range(filled):
                    brought[touched[entry], :] = 0
            first = last


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
