"""What the vectors of a network are expected to be, given its counts; and what words that makes likely."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import (
    F4_2,
    F8,
    F8_2,
    I4,
    I4_2,
    I8,
    OUT_F4_2,
    OUT_F8,
    OUT_I4,
    OUT_I8,
    OUT_U2,
    U2,
    i8,
    kernel,
)
from collapsium.workers.kernels.networks.node_counts import load_above, load_document, make_means, place_nodes, room
from collapsium.workers.kernels.networks.paths import scale, slot_of, spread

Array = npt.NDArray[Any]


@kernel(
    I4, I8, I8, F8, I8, F8, F8, F8, F8_2, I8, I4, U2, I4, I8, U2, I4, I4_2, I4_2, OUT_F4_2,
)  # fmt: skip
def network_means(
    node_kind: Array,
    node_edges: Array,
    edge_parent: Array,
    edge_mixing: Array,
    document_nodes: Array,
    strength: Array,
    discount: Array,
    alpha: Array,
    ratios: Array,
    start: Array,
    entries: Array,
    entry_topic: Array,
    entry_count: Array,
    own_lists: Array,
    own_topic: Array,
    own_count: Array,
    above_customers: Array,
    above_tables: Array,
    mean: Array,
) -> None:
    """Fill E[nu_jk] given all counts; twin: `naive.network.expected`.

    (alpha_k + m_jk) / (sum alpha + M_j) at a root, else (m_jk - a t_jk + (b + a T_j) sum_l rho_lj E[nu_lk]) / (b +
    M_j).

    Parameters
    ----------
    node_kind, node_edges, edge_parent, edge_mixing, document_nodes, strength, discount, alpha, ratios
        As for `network_sweep.sweep_network`.
    start, entries, entry_topic, entry_count
        The tables, as there.
    own_lists : int64, shape (nodes of documents + 1,)
        Where the topics of each node's own tokens begin.
    own_topic, own_count : uint16 and int32, shape (n,)
        These, and how many tokens have them.
    above_customers, above_tables : int32, shape (nodes above, values) and (their edges, values)
        m and s above documents.
    mean : float32, shape (nodes of documents, topics)
        Filled.
    """
    graph, values, above = (node_kind, node_edges, edge_parent, edge_mixing), alpha.size, document_nodes[0]
    priors = strength, discount, alpha, alpha.sum(), ratios, values
    inner, tables = np.ones(node_kind.size, dtype=np.int64), (start, entries, entry_topic, entry_count)
    rows, totals, times, _, _, _, place = room(graph, document_nodes, inner, values, 1)
    load_above(graph, priors, rows, totals, above_customers, above_tables)
    for node in range(above):
        make_means(graph, priors, rows, node, node)
        spread(graph, priors, place, rows, totals, node)
    for document in range(document_nodes.size - 1):
        low, high = document_nodes[document], document_nodes[document + 1]
        place = place[0], place[1], low, place[3], place[4], place[5]
        place_nodes(graph, place, inner, low, high)
        load_document(graph, priors, place, rows, totals, times, inner, tables, (low, high, 0))
        for node in range(low, high):
            slot = slot_of(place, node)
            for entry in range(own_lists[node - above], own_lists[node - above + 1]):
                rows[0][slot, own_topic[entry]] += own_count[entry]
                totals[0][slot] += own_count[entry]
            make_means(graph, priors, rows, node, slot)
        for node in range(low, high):
            slot = slot_of(place, node)
            spread(graph, priors, place, rows, totals, node)
            divisor = scale(graph, priors, totals[0], node, slot)
            for k in range(mean.shape[1]):
                mean[node - above, k] = rows[4][slot, k] / divisor


@kernel(I8, I4, U2, i8, OUT_I8, OUT_U2, OUT_I4)
def list_nodes(
    pairs: Array, counts: Array, token_topic: Array, topics: int, lists: Array, topic: Array, count: Array
) -> None:
    """List the topics of each node's own tokens; twin: `naive.network.list_nodes`.

    Parameters
    ----------
    pairs : int64, shape (nodes + 1,)
        Where each node's pairs begin.
    counts : int32, shape (pairs,)
        Count of each pair.
    token_topic : uint16, shape (tokens,)
        Topic of each token.
    topics : int
        How many topics there are.
    lists : int64, shape (nodes + 1,)
        Filled with where each node's topics begin.
    topic, count : uint16 and int32, shape (tokens,)
        Filled, as far as there are topics, with these, ascending, and their tokens.
    """
    here, seen = np.zeros(topics, dtype=np.int64), np.zeros(topics, dtype=np.int64)
    at = filled = 0
    lists[0] = 0
    for node in range(pairs.size - 1):
        some = 0
        for pair in range(pairs[node], pairs[node + 1]):
            for _ in range(counts[pair]):
                k = np.int64(token_topic[at])
                if here[k] == 0:
                    seen[some] = k
                    some += 1
                here[k] += 1
                at += 1
        seen[:some].sort()
        for place in range(some):
            topic[filled], count[filled] = seen[place], here[seen[place]]
            here[seen[place]] = 0
            filled += 1
        lists[node + 1] = filled


@kernel(I8, I8, I4, F4_2, F8_2, OUT_F8)
def dot_pairs(runs: Array, node: Array, position: Array, mean: Array, phi: Array, probability: Array) -> None:
    """Fill sum_k nu_jk phi_kw of each pair; twin: `naive.network.dot_pairs`.

    Parameters
    ----------
    runs : int64, shape (segments + 1,)
        Where each segment's pairs begin.
    node : int64, shape (segments,)
        Row of `mean` of each segment.
    position : int32, shape (pairs,)
        Row of each pair.
    mean : float32, shape (nodes, topics)
        nu.
    phi : float64, shape (rows, topics)
        Probabilities of words.
    probability : float64, shape (pairs,)
        Filled.
    """
    for segment in range(runs.size - 1):
        given = mean[node[segment]]
        total = 0.0
        for k in range(given.size):
            total += given[k]
        for pair in range(runs[segment], runs[segment + 1]):
            words, found = phi[position[pair]], 0.0
            for k in range(given.size):
                found += given[k] * words[k]
            probability[pair] = found / total
