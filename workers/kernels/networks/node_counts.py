"""Rows of counts of a network's nodes: how a document's counts are loaded into them, and what is stored of them."""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.argument_types import Array, Number
from collapsium.workers.kernels.jit import borrower, helper
from collapsium.workers.kernels.networks.paths import edge_row_of, forget_changes, is_root, row_of, set_terms
from collapsium.workers.kernels.networks.records import (
    GraphArrays,
    SegmentedDocuments,
    SweepResults,
    TableDraws,
    TableEntries,
)
from collapsium.workers.kernels.networks.stirling import log_stirling, stirling_ratio
from collapsium.workers.kernels.networks.workspaces import (
    AncestorLine,
    ChangeLog,
    Clock,
    NodeCounts,
    NodeTotals,
    Priors,
    RowMap,
    Sampler,
    TablePath,
)
from collapsium.workers.kernels.random import uniform
from collapsium.workers.kernels.special import digamma

DOCUMENT, TOKEN, FILLED, DRAWN = 0, 1, 2, 3  # Places in `SweepResults.progress`


@helper
def make_sampler(graph: GraphArrays, priors: Priors, nodes: Array, has_children: Array, levels: int) -> Sampler:
    """Allocate the workspace of sweeps, large enough for each document; `nodes` is as in `SegmentedDocuments`."""
    shared = nodes[0]
    widest = own = own_edges = parents = 0
    for document in range(nodes.size - 1):
        some = edges = 0
        for node in range(nodes[document], nodes[document + 1]):
            several = graph.node_edges[node + 1] - graph.node_edges[node]
            parents = max(parents, several)
            some += has_children[node]
            edges += several * has_children[node]
        widest = max(widest, nodes[document + 1] - nodes[document])
        own, own_edges = max(own, some), max(own_edges, edges)
    leaf, leaf_edge = shared + own, graph.node_edges[shared] + own_edges
    shape, edges = (leaf + 1, priors.alpha.size), leaf_edge + parents + 1
    longest = shared + widest + 1
    rows = RowMap(
        has_children, shared, shared, np.zeros(widest + 1, dtype=np.int64), np.zeros(widest + 1, dtype=np.int64),
        leaf, leaf_edge,
    )  # fmt: skip
    counts = NodeCounts(
        np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.int32), np.zeros(shape), np.ones(shape),
        np.zeros(shape), np.zeros((edges, shape[1]), dtype=np.int32),
    )  # fmt: skip
    totals = NodeTotals(
        np.zeros(shape[0], dtype=np.int64), np.zeros(shape[0], dtype=np.int64), np.zeros(edges, dtype=np.int64)
    )
    clock = Clock(
        np.zeros(shape[0], dtype=np.int64), np.full(shape[0], -1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    )
    line = AncestorLine(
        np.zeros(longest, dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(longest, dtype=np.int64),
        np.zeros(1, dtype=np.int64), np.zeros(longest, dtype=np.int64), np.zeros(1, dtype=np.int64),
        np.zeros(longest, dtype=np.int64),
    )  # fmt: skip
    log = ChangeLog(np.zeros(longest, dtype=np.int64), np.zeros(longest, dtype=np.int64), np.zeros(1, dtype=np.int64))
    path = TablePath(np.zeros(levels, dtype=np.int64), np.zeros(levels, dtype=np.int64), np.zeros(1, dtype=np.int64))
    return Sampler(graph, priors, rows, counts, totals, clock, line, log, path)


@helper
def at_document(sampler: Sampler, first_node: int) -> Sampler:
    """Return the sampler with the rows of the document that begins with a node."""
    rows = sampler.rows
    moved = RowMap(
        rows.has_children, rows.shared, first_node, rows.node_row, rows.edge_row, rows.leaf_row, rows.leaf_edge_row
    )
    return Sampler(
        sampler.graph, sampler.priors, moved, sampler.counts, sampler.totals, sampler.clock, sampler.line, sampler.log,
        sampler.path,
    )  # fmt: skip


@helper
def find_parents(edge_parent: Array, nodes: int) -> Array:
    """Return which nodes have children."""
    has_children = np.zeros(nodes, dtype=np.int64)
    for edge in range(edge_parent.size):
        has_children[edge_parent[edge]] = 1
    return has_children


@borrower
def assign_rows(sampler: Sampler, last_node: int) -> None:
    """Assign rows to the nodes of a document: one to each that has children, and one to all others."""
    graph, rows = sampler.graph, sampler.rows
    forget_changes(sampler, last_node)
    row, edge_row = rows.shared, graph.node_edges[rows.shared]
    for node in range(rows.first_node, last_node):
        at = node - rows.first_node
        if rows.has_children[node]:
            rows.node_row[at], rows.edge_row[at] = row, edge_row
            row += 1
            edge_row += graph.node_edges[node + 1] - graph.node_edges[node]
        else:
            rows.node_row[at], rows.edge_row[at] = rows.leaf_row, rows.leaf_edge_row


@borrower
def clear_row(sampler: Sampler, node: int, row: int, edge_row: int) -> None:
    """Empty the row of a node."""
    graph, counts, alpha = sampler.graph, sampler.counts, sampler.priors.alpha
    root = is_root(graph, node)
    for k in range(alpha.size):
        counts.customers[row, k] = 0
        counts.tables[row, k] = 0
    for k in range(alpha.size):
        counts.join_weight[row, k] = alpha[k] if root else 0.0
        counts.open_weight[row, k] = 1.0
    for edge in range(edge_row, edge_row + graph.node_edges[node + 1] - graph.node_edges[node]):
        for k in range(alpha.size):
            counts.edge_tables[edge, k] = 0


@borrower
def clear_totals(sampler: Sampler, node: int, row: int, edge_row: int) -> None:
    """Empty the totals of a node, and mark its weights as out of date."""
    graph, totals, clock = sampler.graph, sampler.totals, sampler.clock
    totals.customers[row] = totals.tables[row] = 0
    for edge in range(edge_row, edge_row + graph.node_edges[node + 1] - graph.node_edges[node]):
        totals.edge_tables[edge] = 0
    clock.computed[row] = -1
    clock.changed[row] = clock.now[0]


@borrower
def load_tables(sampler: Sampler, tables: TableEntries, node: int, own: int, up: int) -> None:
    """Add the tables of a node's edges to its own counts (`own`), and to the customers of its parents (`up`)."""
    graph, counts, totals = sampler.graph, sampler.counts, sampler.totals
    row = row_of(sampler.rows, node)
    for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
        edge_row = edge_row_of(graph, sampler.rows, node, edge)
        parent = graph.edge_parent[edge]
        above = row_of(sampler.rows, parent)
        for entry in range(tables.start[edge], tables.start[edge] + tables.entries[edge]):
            k, number = tables.topic[entry], tables.number[entry]
            if own:
                counts.edge_tables[edge_row, k] += number
                totals.edge_tables[edge_row] += number
                counts.tables[row, k] += number
                totals.tables[row] += number
            if up and parent >= sampler.rows.shared:
                counts.customers[above, k] += number
                totals.customers[above] += number


@borrower
def load_tokens(sampler: Sampler, row: int, token_topic: Array, first: int, last: int) -> None:
    """Count the tokens of a node."""
    for token in range(first, last):
        sampler.counts.customers[row, token_topic[token]] += 1
    sampler.totals.customers[row] += last - first


@borrower
def load_own_tokens(
    sampler: Sampler, documents: SegmentedDocuments, document: int, token_topic: Array, token: int, initialise: int
) -> None:
    """Count the tokens of a document's nodes that have rows of their own, and fill their terms."""
    has_children = sampler.rows.has_children
    if not initialise:
        for segment in range(documents.segments[document], documents.segments[document + 1]):
            node = documents.segment_node[segment]
            for pair in range(documents.segment_pairs[segment], documents.segment_pairs[segment + 1]):
                if has_children[node]:
                    row = row_of(sampler.rows, node)
                    load_tokens(sampler, row, token_topic, token, token + documents.counts[pair])
                token += documents.counts[pair]
    for node in range(documents.nodes[document], documents.nodes[document + 1]):
        if has_children[node]:
            fill_terms(sampler, node, row_of(sampler.rows, node))


@borrower
def fill_terms(sampler: Sampler, node: int, row: int) -> None:
    """Fill A and B of all topics that a node has."""
    for k in range(sampler.priors.alpha.size):
        if sampler.counts.customers[row, k] > 0:
            set_terms(sampler, node, row, k)


@borrower
def fill_mean_terms(sampler: Sampler, node: int, row: int) -> None:
    """Fill the terms of E[nu_ik]: alpha_k + m_ik at a root, else m_ik - a t_ik, with B_ik = 1."""
    priors, counts = sampler.priors, sampler.counts
    discount = priors.discount[sampler.graph.node_kind[node]]
    for k in range(priors.alpha.size):
        if is_root(sampler.graph, node):
            counts.join_weight[row, k] = priors.alpha[k] + counts.customers[row, k]
        else:
            counts.join_weight[row, k] = counts.customers[row, k] - discount * counts.tables[row, k]


@borrower
def load_shared(sampler: Sampler, customers: Array, tables: Array) -> None:
    """Fill the rows of shared nodes."""
    graph, counts, totals = sampler.graph, sampler.counts, sampler.totals
    for node in range(len(customers)):
        clear_row(sampler, node, node, graph.node_edges[node])
        for k in range(customers.shape[1]):
            counts.customers[node, k] = customers[node, k]
            totals.customers[node] += customers[node, k]
        for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
            for k in range(tables.shape[1]):
                counts.edge_tables[edge, k] = tables[edge, k]
                totals.edge_tables[edge] += tables[edge, k]
                counts.tables[node, k] += tables[edge, k]
            totals.tables[node] += totals.edge_tables[edge]


@borrower
def store_shared(sampler: Sampler, customers: Array, tables: Array) -> None:
    """Write the counts of shared nodes."""
    edges, counts = sampler.graph.node_edges, sampler.counts
    for node in range(len(customers)):
        for k in range(customers.shape[1]):
            customers[node, k] = counts.customers[node, k]
        for edge in range(edges[node], edges[node + 1]):
            for k in range(tables.shape[1]):
                tables[edge, k] = counts.edge_tables[edge, k]


@borrower
def load_document(sampler: Sampler, tables: TableEntries, last_node: int, initialise: int) -> None:
    """Fill the rows of the document's nodes that have children, but for their own tokens."""
    graph, rows = sampler.graph, sampler.rows
    for node in range(rows.first_node, last_node):
        if rows.has_children[node]:
            row, edge_row = row_of(rows, node), edge_row_of(graph, rows, node, graph.node_edges[node])
            clear_row(sampler, node, row, edge_row)
            clear_totals(sampler, node, row, edge_row)
    if not initialise:
        for node in range(rows.first_node, last_node):
            load_tables(sampler, tables, node, rows.has_children[node], 1)


@borrower
def draw_joins(ratios: Array, discount: float, m: int, t: int, key: Array, progress: Array) -> Number:
    """Draw how many customers who joined a table speak for 1 - a: with n of them, p(a) ~ (1 - a)^n a^(tables - 1)."""
    # The numbers S^m_t are sums over the ways in which customers came, one by one from the last. The last opened a
    # table with probability S^{m-1}_{t-1} / S^m_t, or joined one, of weight m - 1 - t a = (m - 1 - t) + t (1 - a).
    joins = 0.0
    while m > 1:
        joined = (m - 1 - t * discount) * stirling_ratio(ratios, discount, m - 1, t) if 1 < t < m else 0.0
        opens = 1.0 / (1.0 + joined) if t > 1 else 0.0
        drawn = uniform(key, progress[DRAWN])
        progress[DRAWN] += 1
        if drawn < opens:
            t -= 1
        else:
            drawn = (drawn - opens) / (1.0 - opens)
            if drawn * (m - 1 - t * discount) < t * (1.0 - discount):
                joins += 1.0
        m -= 1
    return joins


@borrower
def store_node(sampler: Sampler, results: SweepResults, draws: TableDraws, node: int) -> None:
    """Write the tables of a node, and add its terms of the objective and of the hyperparameters' updates."""
    graph, priors, counts, totals = sampler.graph, sampler.priors, sampler.counts, sampler.totals
    statistics, row, kind = results.statistics, row_of(sampler.rows, node), graph.node_kind[node]
    sums, first, last = statistics.kind_sums, graph.node_edges[node], graph.node_edges[node + 1]
    statistics.customers[node], statistics.tables[node] = totals.customers[row], totals.tables[row]
    several, discount, ratios, mixing = last - first > 1, priors.discount[kind], priors.stirling_ratios[kind], 0.0
    for edge in range(first, last):
        edge_row = edge_row_of(graph, sampler.rows, node, edge)
        if node >= sampler.rows.shared:
            store_tables(results, edge, counts.edge_tables[edge_row])
        if several:
            mixing += graph.edge_mixing[edge]
            prior = graph.edge_mixing[edge]
            sums[kind, 0] += math.lgamma(prior + totals.edge_tables[edge_row]) - math.lgamma(prior)
    if several:
        sums[kind, 0] += math.lgamma(mixing) - math.lgamma(mixing + totals.tables[row])
    for k in range(priors.alpha.size):
        m, t = counts.customers[row, k], counts.tables[row, k]
        if m == 0:
            continue
        if is_root(graph, node):
            alpha = priors.alpha[k]
            sums[kind, 0] += math.lgamma(alpha + m) - math.lgamma(alpha)
            if statistics.alpha_numerator.size:
                statistics.alpha_numerator[k] += alpha * (digamma(alpha + m) - digamma(alpha))
            continue
        sums[kind, 0] += log_stirling(ratios, discount, m, t)
        if several:
            sums[kind, 0] += math.lgamma(t + 1.0)
            for edge in range(first, last):
                tables = counts.edge_tables[edge_row_of(graph, sampler.rows, node, edge), k]
                sums[kind, 0] -= math.lgamma(tables + 1.0)
        if draws.count_joins:
            sums[kind, 1] += draw_joins(ratios, discount, m, t, draws.join_key, results.progress)


@borrower
def store_tables(results: SweepResults, edge: int, edge_tables: Array) -> None:
    """Append the entries of an edge's tables."""
    tables, progress = results.tables, results.progress
    tables.start[edge] = progress[FILLED]
    for k in range(edge_tables.size):
        if edge_tables[k]:
            tables.topic[progress[FILLED]], tables.number[progress[FILLED]] = k, edge_tables[k]
            progress[FILLED] += 1
    tables.entries[edge] = progress[FILLED] - tables.start[edge]
