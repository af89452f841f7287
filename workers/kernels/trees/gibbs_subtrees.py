"""Gibbs sampling of where the nodes of a tree hang, each with all documents that pass it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import F8, I4, I8, OUT_I4_2, OUT_I8, OUT_U1, U8, f8, helper, i8, kernel
from collapsium.workers.kernels.random import uniform
from collapsium.workers.kernels.trees.gibbs_paths import FREE, draw_place, list_nodes, log_rising

Array = npt.NDArray[Any]


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
    up: int, node: int, upto: int, members: Array, begins: Array, token_level: Array,
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
    I8, I4, I4, U8, F8, F8, f8, i8, i8, i8, I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I8, OUT_I4_2, OUT_I4_2,
    OUT_U1,
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
    M is (m)^(n) / (gamma + M)^(n), in rising factors, and that of a new one gamma G(n) / (gamma + M)^(n). Before, with
    a chance of a half, an only child is offered to exchange all words with the node above, by Metropolis' rule.

    Documents of other shards cannot be taken along: where there are any, nodes that they know stay where they are, as
    does a node for which too few slots are free. With S slots, numbers i, S + i and 2 S + i of the stream are slot i's.

    Parameters
    ----------
    offsets, position, counts, key, alpha, eta, gamma, vocabulary, births
        As for `sweep_documents`.
    known : int
        Whether other shards know the nodes whose slots are not `reusable`.
    reusable, state, free, parent, level, documents, totals, row, path, token_level
        As for `sweep_documents`.
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
            only = mine and documents[up] == count and (reusable[up] or not known)
            if only and uniform(key, slots + node) < 0.5:
                ratio = _swap_ratio(up, node, upto, members, begins, token_level, alpha, eta, total, totals, row)
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
