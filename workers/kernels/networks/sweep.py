"""Sweeps over documents whose tokens hang on a network of vectors; the moves are those of `network`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import (
    F8,
    F8_2,
    I4,
    I8,
    OUT_F8,
    OUT_F8_2,
    OUT_I4,
    OUT_I4_2,
    OUT_I8,
    OUT_U2,
    U2,
    U8,
    borrower,
    f8,
    i8,
    kernel,
)
from collapsium.workers.kernels.networks.node_counts import (
    DOCUMENT,
    FILLED,
    TOKEN,
    clear_row,
    clear_totals,
    finish_node,
    inner_nodes,
    load_above,
    load_document,
    load_tables,
    load_tokens,
    make_means,
    make_terms,
    place_nodes,
    room,
)
from collapsium.workers.kernels.networks.paths import (
    CHUNK,
    draw_value,
    edge_slot,
    find_way_in,
    find_way_out,
    make_line,
    refresh,
    settle_path,
    slot_of,
    spread,
)
from collapsium.workers.kernels.networks.tables import move_tables
from collapsium.workers.kernels.random import uniform

Array = npt.NDArray[Any]

NOTHING_CHANGED = 1 << 62
ENTERING, HELD, MOVING, JOINS = 0, 1, 2, 3  # places in `mode`


@borrower
def sweep_tokens(
    graph: Any, priors: Any, work: Any, words: Any, pairs: Any, node: int, key: Array, mode: Array, state: Array,
    lowest: int,
) -> Any:  # fmt: skip
    """Draw values and paths of the tokens of one node; return the lowest node whose Z others have not heard of."""
    rows, totals, times, line, _, path, place = work
    position, counts, token_topic, inverse, word_totals, row, prior, total_prior, weight, chunks = words
    slot, levels, at = slot_of(place, node), path[0].size, state[TOKEN]
    for pair in range(pairs[0], pairs[1]):
        here = row[position[pair]]
        for _ in range(counts[pair]):
            k: Any = np.int64(token_topic[at])
            first = at * (1 + 2 * levels)
            leaves = True
            if not mode[ENTERING]:
                leaves = find_way_out(graph, place, rows, path, node, k, key, first + 1, mode[HELD])
            for step in range(mode[ENTERING], 2 if leaves else 0):
                if step == 1:
                    if lowest < node:
                        refresh(graph, priors, place, rows, totals, times, line, lowest)
                        lowest = NOTHING_CHANGED
                    if not mode[ENTERING]:
                        chance = uniform(key, first)
                        k = draw_value(rows[4][slot], inverse, here, prior, chance, weight, chunks)
                        token_topic[at] = k
                    number = first + 1 + levels
                    find_way_in(graph, priors, place, rows, totals, path, node, k, key, number, mode[HELD])
                by = 2 * step - 1
                top = settle_path(graph, priors, place, rows, totals, times, path, k, by)
                if path[1][path[2][0] - 1] >= 0:  # what lies above is held, so that Z has changed throughout
                    times[1][slot_of(place, top)] = -1
                    top -= 1
                if top != node:
                    lowest = min(lowest, top)
                if not (mode[HELD] or mode[ENTERING]):
                    word_totals[k] += by
                    here[k] += by
                    inverse[k] = 1.0 / (word_totals[k] + total_prior)
            at += 1
    state[TOKEN] = at
    return lowest


@borrower
def load_own_tokens(
    graph: Any, priors: Any, place: Any, rows: Any, totals: Any, inner: Array, document: Any, words: Any, at: int
) -> None:
    """Count the tokens of those nodes of a document that have rows of their own, and fill what chances follow from."""
    first, last, segments, segment_pairs, segment_node, entering = document
    counts, token_topic = words[1], words[2]
    if not entering:
        for segment in range(segments[0], segments[1]):
            node = segment_node[segment]
            for pair in range(segment_pairs[segment], segment_pairs[segment + 1]):
                if inner[node]:
                    load_tokens(rows, totals, slot_of(place, node), token_topic, at, at + counts[pair])
                at += counts[pair]
    for node in range(first, last):
        if inner[node]:
            make_terms(graph, priors, rows, node, slot_of(place, node))


@kernel(
    I4, I8, I8, F8, I8, I8, I8, I8, I4, I4, F8, F8, F8, F8_2, f8, f8, U8, U8, U8, I8, i8, I8, I4, U2, I4,
    OUT_I4_2, OUT_I4_2, OUT_F8, OUT_I4_2, OUT_U2, OUT_I8, OUT_I4, OUT_U2, OUT_I4, OUT_I8, OUT_I8, OUT_F8_2, OUT_F8,
    OUT_I8,
)  # fmt: skip
def sweep_network(
    node_kind: Array,
    node_edges: Array,
    edge_parent: Array,
    edge_mixing: Array,
    document_nodes: Array,
    document_segments: Array,
    segment_pairs: Array,
    segment_node: Array,
    position: Array,
    counts: Array,
    strength: Array,
    discount: Array,
    alpha: Array,
    ratios: Array,
    word_prior: float,
    total_prior: float,
    key: Array,
    table_key: Array,
    join_key: Array,
    mode: Array,
    levels: int,
    start: Array,
    entries: Array,
    entry_topic: Array,
    entry_count: Array,
    above_customers: Array,
    above_tables: Array,
    word_totals: Array,
    row: Array,
    token_topic: Array,
    new_start: Array,
    new_entries: Array,
    new_topic: Array,
    new_count: Array,
    node_customers: Array,
    node_tables: Array,
    sums: Array,
    rising: Array,
    state: Array,
) -> None:
    """Draw each token's value and path given all others, then the table counts; twin: `naive.network.sweep`.

    A token of node j is taken off with a path drawn by s_ek / m_ik, unless a node would be left with customers and
    without a table; its value is drawn with chances ~ Z_j(k) (n_kw + b) / (n_k + B), its new path by the terms of Z.
    Table counts s_ek are then drawn from their conditionals: those of nodes that nothing depends on when their tokens
    are through, the others' at the document's end.

    Parameters
    ----------
    node_kind : int32, shape (nodes,)
        Kind of each node, parents before children; those above documents first, then each document's.
    node_edges : int64, shape (nodes + 1,)
        Where each node's edges to its parents begin; a root has none.
    edge_parent, edge_mixing : int64 and float64, shape (edges,)
        Parent, and Dirichlet parameter g of the mixing vector.
    document_nodes, document_segments : int64, shape (documents + 1,)
        Where each document's nodes and segments begin.
    segment_pairs : int64, shape (segments + 1,)
        Where each segment's pairs begin.
    segment_node : int64, shape (segments,)
        The node whose vector each segment's tokens are drawn from; segments of a node are neighbours.
    position, counts : int32, shape (pairs,)
        Row and count of each pair.
    strength, discount : float64, shape (kinds,)
        b and a.
    alpha : float64, shape (values,)
        Dirichlet parameters of roots; 0 in padding.
    ratios : float64, shape (kinds, n)
        Tables of Stirling ratios of each kind's discount.
    word_prior, total_prior : float
        b of a word and B.
    key, table_key, join_key : uint64, shape (2,)
        Of the random streams of tokens, of table counts and of what is drawn for the discount.
    mode : int64, shape (4,)
        Whether tokens enter with the values that they have; whether topics and what lies above documents are held;
        whether table counts are drawn; whether to draw what the discount follows from.
    levels : int
        Nodes on the longest path.
    start, entries : int64 and int32, shape (edges,)
        Where each edge's tables lie, and on how many values.
    entry_topic, entry_count : uint16 and int32, shape (n,)
        Value and number of tables.
    above_customers, above_tables : int32, shape (nodes above, values) and (their edges, values)
        m and s above documents; moved.
    word_totals : float64, shape (values,)
        n_k; moved.
    row : int32, shape (rows, values)
        n_kw; moved.
    token_topic : uint16, shape (tokens,)
        Value of each token, those of a pair side by side; moved.
    new_start, new_entries, new_topic, new_count
        Filled as `start` and the others are.
    node_customers, node_tables : int64, shape (nodes,)
        Filled with M and T of documents' nodes.
    sums : float64, shape (kinds, 2)
        Increased by the sums of log S^m_t and what else of p(n, s) single values tell, and by the customers who speak
        for 1 - a.
    rising : float64, shape (values,) or (0,)
        Increased by the sums over roots of alpha_k (psi(alpha_k + m_k) - psi(alpha_k)).
    state : int64, shape (4,)
        Document to go on with, its first token, how many entries are filled, and numbers drawn of `join_key`; moved.
        The sweep ends before a document for whose tables there may be no room, else with the number of documents.
    """
    graph, values = (node_kind, node_edges, edge_parent, edge_mixing), alpha.size
    priors = strength, discount, alpha, alpha.sum(), ratios, values
    inner, tables = inner_nodes(edge_parent, node_kind.size), (start, entries, entry_topic, entry_count)
    rows, totals, times, line, marks, path, place = room(graph, document_nodes, inner, values, levels)
    words = (
        position, counts, token_topic, 1.0 / (word_totals + total_prior), word_totals, row, word_prior, total_prior,
        np.empty(values), np.empty(values // CHUNK),
    )  # fmt: skip
    made = (
        new_start, new_entries, new_topic, new_count, node_customers, node_tables, sums, rising, state, mode[JOINS],
        join_key,
    )  # fmt: skip
    load_above(graph, priors, rows, totals, above_customers, above_tables)
    for node in range(place[0]):
        if mode[HELD]:  # a vector that nothing changes is what it is expected to be
            make_means(graph, priors, rows, node, node)
        else:
            make_terms(graph, priors, rows, node, node)
        spread(graph, priors, place, rows, totals, node)
        times[1][node] = 0
    for document in range(state[DOCUMENT], document_nodes.size - 1):
        state[DOCUMENT] = document
        low, high = document_nodes[document], document_nodes[document + 1]
        segment, last = document_segments[document], document_segments[document + 1]
        tokens = 0
        for pair in range(segment_pairs[segment], segment_pairs[last]):
            tokens += counts[pair]
        if state[FILLED] + (node_edges[high] - node_edges[low]) * min(values, tokens) > new_topic.size:
            break
        place = place[0], place[1], low, place[3], place[4], place[5]
        work = rows, totals, times, line, marks, path, place
        place_nodes(graph, place, inner, low, high)
        load_document(graph, priors, place, rows, totals, times, inner, tables, (low, high, mode[ENTERING]))
        own = low, high, (segment, last), segment_pairs, segment_node, mode[ENTERING]
        load_own_tokens(graph, priors, place, rows, totals, inner, own, words, state[TOKEN])
        before, lowest = np.int64(-1), -1
        while segment < last:
            node, after, slot = segment_node[segment], segment, slot_of(place, segment_node[segment])
            while after < last and segment_node[after] == node:
                after += 1
            if not inner[node]:
                edge_row = edge_slot(graph, place, node, node_edges[node])
                clear_row(graph, priors, rows, node, slot, edge_row)
                clear_totals(graph, totals, times, node, slot, edge_row)
                if not mode[ENTERING]:
                    load_tables(graph, place, rows, totals, tables, node, 1, 0)
                    tokens = 0
                    for pair in range(segment_pairs[segment], segment_pairs[after]):
                        tokens += counts[pair]
                    load_tokens(rows, totals, slot, token_topic, state[TOKEN], state[TOKEN] + tokens)
                    make_terms(graph, priors, rows, node, slot)
            lowest = min(lowest, node - 1) if make_line(graph, place, line, marks, before, node) else -1
            before = node
            pairs = segment_pairs[segment], segment_pairs[after]
            lowest = sweep_tokens(graph, priors, work, words, pairs, node, key, mode, state, lowest)
            segment = after
            one, least = (high - 1, low) if segment == last else (node, node)
            while one >= least:  # nothing changes the counts of a node after its own tables: children go first
                if (one == node and not inner[one]) or (segment == last and inner[one]):
                    if mode[MOVING]:
                        move_tables(graph, priors, place, rows, totals, times, one, table_key, mode[HELD])
                        lowest = -1
                    finish_node(graph, priors, place, rows, totals, made, one)
                one -= 1
        state[DOCUMENT] = document + 1
    for node in range(place[0]):
        above_customers[node] = rows[0][node]
        for edge in range(node_edges[node], node_edges[node + 1]):
            above_tables[edge] = rows[5][edge]
