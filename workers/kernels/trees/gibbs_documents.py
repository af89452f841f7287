"""Collapsed Gibbs sampling of documents' paths down a tree and of their tokens' levels; also how trees are read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import (
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
from collapsium.workers.kernels.random import uniform
from collapsium.workers.kernels.trees.gibbs_paths import draw_levels, draw_path, tally_levels
from collapsium.workers.kernels.trees.gibbs_proposals import enter, offer

Array = npt.NDArray[Any]

ENTRIES = 3  # draws of the path and the levels of a document that enters
OFFERS = 8  # sweeps in one of which a document is offered another path: it takes several times as long as the rest
COMMON = 4096  # counts that are tallied, not listed one by one
GUESSES, STEPS = 4, 20  # passes over unseen documents: over all paths, and then over the most probable one


@kernel(
    I8, I4, I4, U8, F8, F8, f8, i8, i8, i8, i8, I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I4_2,
    OUT_I4_2, OUT_U1,
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
    turn: int,
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
    (n_i' + W eta_l) at the path's node i of level l (Blei, Griffiths, Jordan and Tenenbaum 2003). In one sweep of eight
    a path with new levels is offered before (`gibbs_proposals.offer`): given its levels a document seldom leaves
    its path. A document outside the tree enters on such a path, or on one of its own, and is then drawn three times
    over. With T tokens and D documents in the shard, T numbers of a stream are for levels and D for paths, as many for
    offers, and D for whether these are accepted; and as many again for each further time.

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
    turn : int
        Number of the sweep: in one of eight a document is offered another path.
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
        given = number, offsets[number], offsets[number + 1], begin, position, counts
        own, time, last = (path[number], here, sizes, token_level), 0, 1
        if path[number, 0] < 0:
            tally_levels(given, own, 0)
            last = ENTRIES + 1 if enter(given, tree, priors, own, work, apart, key, every) else 0
            time = 1
        tally_levels(given, own, int(path[number, 0] >= 0))
        while time < last:
            first = time * (2 * every + offsets.size - 1)
            alone = False
            for one in range(1, depth):
                alone = alone or documents[path[number, one]] == 1
            if births or not alone:
                if (number + time + turn) % OFFERS == 0:
                    offer(given, tree, priors, own, work, key, first + every, every)
                draw_path(given, tree, priors, own, work, uniform(key, first + tokens + number))
            draw_levels(given, tree, priors, own, work, 0, key, first)
            time += 1
        for pair in range(offsets[number], offsets[number + 1]):
            begin += counts[pair]
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
