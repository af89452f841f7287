"""Rows of counts of a network's nodes: where they are, how a document comes into them and what is kept of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import borrower, helper
from collapsium.workers.kernels.networks.paths import edge_slot, is_root, set_terms, slot_of
from collapsium.workers.kernels.networks.stirling import log_stirling, stirling_ratio
from collapsium.workers.kernels.random import uniform
from collapsium.workers.kernels.special import digamma

Array = npt.NDArray[Any]

DOCUMENT, TOKEN, FILLED, DRAWN = 0, 1, 2, 3  # places in `state`


@borrower
def place_nodes(graph: Any, place: Any, inner: Array, first: int, last: int) -> None:
    """Give the nodes of a document their rows: those that others depend on each its own, and one to all others."""
    above, slots, _, edges, shared, shared_edges = place
    row, edge_row = above, graph[1][above]
    for node in range(first, last):
        at = node - first
        if inner[node]:
            slots[at], edges[at] = row, edge_row
            row += 1
            edge_row += graph[1][node + 1] - graph[1][node]
        else:
            slots[at], edges[at] = shared, shared_edges


@borrower
def clear_row(graph: Any, priors: Any, rows: Any, node: int, slot: int, edge_row: int) -> None:
    """Empty the row of a node."""
    top = is_root(graph, node)
    for k in range(priors[2].size):
        rows[0][slot, k] = 0
        rows[1][slot, k] = 0
    for k in range(priors[2].size):
        rows[2][slot, k] = priors[2][k] if top else 0.0
        rows[3][slot, k] = 1.0
    for edge in range(edge_row, edge_row + graph[1][node + 1] - graph[1][node]):
        for k in range(priors[2].size):
            rows[5][edge, k] = 0


@borrower
def clear_totals(graph: Any, totals: Any, times: Any, node: int, slot: int, edge_row: int) -> None:
    """Empty the totals of a node, and let its Z be made anew."""
    totals[0][slot] = totals[1][slot] = 0
    for edge in range(edge_row, edge_row + graph[1][node + 1] - graph[1][node]):
        totals[2][edge] = 0
    times[1][slot] = -1
    times[0][slot] = times[2][0]


@borrower
def load_tables(graph: Any, place: Any, rows: Any, totals: Any, entries: Any, node: int, own: int, up: int) -> None:
    """Add the tables of a node's edges to its own counts, or to those of its parents."""
    start, number, topic, count = entries
    slot = slot_of(place, node)
    for edge in range(graph[1][node], graph[1][node + 1]):
        row = edge_slot(graph, place, node, edge)
        parent = graph[2][edge]
        above = slot_of(place, parent)
        for entry in range(start[edge], start[edge] + number[edge]):
            k, tables = topic[entry], count[entry]
            if own:
                rows[5][row, k] += tables
                totals[2][row] += tables
                rows[1][slot, k] += tables
                totals[1][slot] += tables
            if up and parent >= place[0]:
                rows[0][above, k] += tables
                totals[0][above] += tables


@borrower
def load_tokens(rows: Any, totals: Any, slot: int, token_topic: Array, first: int, last: int) -> None:
    """Count the tokens of a node."""
    for token in range(first, last):
        rows[0][slot, token_topic[token]] += 1
    totals[0][slot] += last - first


@borrower
def make_terms(graph: Any, priors: Any, rows: Any, node: int, slot: int) -> None:
    """Fill A and B of all values that a node has."""
    for k in range(priors[2].size):
        if rows[0][slot, k] > 0:
            set_terms(graph, priors, rows, node, slot, k)


@borrower
def draw_joins(table: Array, discount: float, m: int, t: int, key: Array, state: Array) -> Any:
    """Draw how many customers who joined a table speak for 1 - a: with so many, p(a) ~ (1 - a)^n a^(tables beyond)."""
    # The numbers S^m_t are sums over ways in which customers came, one by one from the last: the last opened a table
    # with chance S^{m-1}_{t-1} / S^m_t, or joined one, which weighs m - 1 - t a = (m - 1 - t) + t (1 - a).
    found = 0.0
    while m > 1:
        joined = (m - 1 - t * discount) * stirling_ratio(table, discount, m - 1, t) if 1 < t < m else 0.0
        opens = 1.0 / (1.0 + joined) if t > 1 else 0.0
        drawn = uniform(key, state[DRAWN])
        state[DRAWN] += 1
        if drawn < opens:
            t -= 1
        else:
            drawn = (drawn - opens) / (1.0 - opens)
            if drawn * (m - 1 - t * discount) < t * (1.0 - discount):
                found += 1.0
        m -= 1
    return found


@borrower
def finish_node(graph: Any, priors: Any, place: Any, rows: Any, totals: Any, made: Any, node: int) -> None:
    """Keep the tables of a node, and add up what the objective and the next hyperparameters need of it."""
    start, number, topic, count, customers, tables, sums, rising, state, learn, key = made
    above, slot, kind = place[0], slot_of(place, node), graph[0][node]
    customers[node], tables[node] = totals[0][slot], totals[1][slot]
    root, several = is_root(graph, node), graph[1][node + 1] - graph[1][node] > 1
    discount, table, mixing = priors[1][kind], priors[4][kind], 0.0
    for edge in range(graph[1][node], graph[1][node + 1]):
        row = edge_slot(graph, place, node, edge)
        if node >= above:
            start[edge] = state[FILLED]
            for k in range(priors[2].size):
                if rows[5][row, k]:
                    topic[state[FILLED]], count[state[FILLED]] = k, rows[5][row, k]
                    state[FILLED] += 1
            number[edge] = state[FILLED] - start[edge]
        if several:
            mixing += graph[3][edge]
            sums[kind, 0] += math.lgamma(graph[3][edge] + totals[2][row]) - math.lgamma(graph[3][edge])
    if several:
        sums[kind, 0] += math.lgamma(mixing) - math.lgamma(mixing + totals[1][slot])
    for k in range(priors[2].size):
        m, t = rows[0][slot, k], rows[1][slot, k]
        if m == 0:
            continue
        if root:
            alpha = priors[2][k]
            sums[kind, 0] += math.lgamma(alpha + m) - math.lgamma(alpha)
            if rising.size:
                rising[k] += alpha * (digamma(alpha + m) - digamma(alpha))
            continue
        sums[kind, 0] += log_stirling(table, discount, m, t)
        if several:
            sums[kind, 0] += math.lgamma(t + 1.0)
            for edge in range(graph[1][node], graph[1][node + 1]):
                sums[kind, 0] -= math.lgamma(rows[5][edge_slot(graph, place, node, edge), k] + 1.0)
        if learn:
            sums[kind, 1] += draw_joins(table, discount, m, t, key, state)


@borrower
def make_means(graph: Any, priors: Any, rows: Any, node: int, slot: int) -> None:
    """Fill what E[nu_ik] follows from: alpha_k + m_ik at a root, else m_ik - a t_ik beside (b + a T_i) times above."""
    discount = priors[1][graph[0][node]]
    for k in range(priors[2].size):
        if is_root(graph, node):
            rows[2][slot, k] = priors[2][k] + rows[0][slot, k]
        else:
            rows[2][slot, k] = rows[0][slot, k] - discount * rows[1][slot, k]


@helper
def room(graph: Any, document_nodes: Array, inner: Array, values: int, levels: int) -> Any:
    """Make what sweeps work in, large enough for each document."""
    above = document_nodes[0]
    widest = own = own_edges = parents = 0
    for document in range(document_nodes.size - 1):
        some = edges = 0
        for node in range(document_nodes[document], document_nodes[document + 1]):
            several = graph[1][node + 1] - graph[1][node]
            parents = max(parents, several)
            some += inner[node]
            edges += several * inner[node]
        widest = max(widest, document_nodes[document + 1] - document_nodes[document])
        own, own_edges = max(own, some), max(own_edges, edges)
    shared, shared_edges = above + own, graph[1][above] + own_edges
    shape, edges = (shared + 1, values), shared_edges + parents + 1
    rows = (
        np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.int32), np.zeros(shape), np.ones(shape),
        np.zeros(shape), np.zeros((edges, values), dtype=np.int32),
    )  # fmt: skip
    totals = np.zeros(shape[0], dtype=np.int64), np.zeros(shape[0], dtype=np.int64), np.zeros(edges, dtype=np.int64)
    times = np.zeros(shape[0], dtype=np.int64), np.full(shape[0], -1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    some = above + widest + 1
    line = np.zeros(some, dtype=np.int64), np.zeros(1, dtype=np.int64)
    marks = np.zeros(some, dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(some, dtype=np.int64)
    path = np.zeros(levels, dtype=np.int64), np.zeros(levels, dtype=np.int64), np.zeros(1, dtype=np.int64)
    slots = np.zeros(widest + 1, dtype=np.int64), np.zeros(widest + 1, dtype=np.int64)
    return rows, totals, times, line, marks, path, (above, slots[0], above, slots[1], shared, shared_edges)


@helper
def inner_nodes(edge_parent: Array, nodes: int) -> Array:
    """Tell which nodes others depend on."""
    inner = np.zeros(nodes, dtype=np.int64)
    for edge in range(edge_parent.size):
        inner[edge_parent[edge]] = 1
    return inner


@borrower
def load_above(graph: Any, priors: Any, rows: Any, totals: Any, customers: Array, tables: Array) -> None:
    """Fill the rows of the nodes above documents."""
    for node in range(len(customers)):
        clear_row(graph, priors, rows, node, node, graph[1][node])
        for k in range(customers.shape[1]):
            rows[0][node, k] = customers[node, k]
            totals[0][node] += customers[node, k]
        for edge in range(graph[1][node], graph[1][node + 1]):
            for k in range(tables.shape[1]):
                rows[5][edge, k] = tables[edge, k]
                totals[2][edge] += tables[edge, k]
                rows[1][node, k] += tables[edge, k]
            totals[1][node] += totals[2][edge]


@borrower
def load_document(
    graph: Any, priors: Any, place: Any, rows: Any, totals: Any, times: Any, inner: Array, entries: Any, bounds: Any
) -> None:
    """Fill the rows of the nodes of a document that others depend on, but for tokens of their own."""
    first, last, entering = bounds
    for node in range(first, last):
        if inner[node]:
            slot, edge_row = slot_of(place, node), edge_slot(graph, place, node, graph[1][node])
            clear_row(graph, priors, rows, node, slot, edge_row)
            clear_totals(graph, totals, times, node, slot, edge_row)
    if not entering:
        for node in range(first, last):
            load_tables(graph, place, rows, totals, entries, node, inner[node], 1)
