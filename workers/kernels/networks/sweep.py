"""Gibbs sweeps over documents whose tokens are drawn from a network of vectors; `paths` has the moves.

Table counts of nodes are drawn given all others; nodes that documents share are drawn between sweeps. Counts of a
document are loaded into rows of its nodes, and what is stored of them follows.
"""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.jit import Array, Number, OutInt32Matrix, borrower, helper, kernel
from collapsium.workers.kernels.networks.paths import (
    CHUNK,
    begin_line,
    divisor_of,
    draw_entry_path,
    draw_removal_path,
    draw_topic,
    edge_row_of,
    forget_changes,
    is_root,
    log_change,
    row_of,
    set_terms,
    shift_path,
    update_line,
    update_weights,
)
from collapsium.workers.kernels.networks.records import (
    AncestorLine,
    ChangeLog,
    Clock,
    GraphArrays,
    NodeCounts,
    NodeStatistics,
    NodeTotals,
    Priors,
    RowMap,
    SampledCounts,
    Sampler,
    SamplingHyperparameters,
    SegmentedDocuments,
    SweepResults,
    TableCell,
    TableDraws,
    TableEntries,
    TablePath,
    TokenDraws,
    WordWorkspace,
)
from collapsium.workers.kernels.networks.stirling import log_stirling, stirling_ratio
from collapsium.workers.kernels.random import uniform
from collapsium.workers.kernels.special import digamma

DOCUMENT, TOKEN, FILLED, DRAWN = 0, 1, 2, 3  # Places in `SweepResults.progress`


@helper
def make_sampler(graph: GraphArrays, priors: Priors, nodes: Array, has_children: Array, levels: int) -> Sampler:
    """Allocate the workspace of sweeps, large enough for each document; `nodes` is as in `SegmentedDocuments`."""
    shared = nodes[0]
    widest = max_inner = max_inner_edges = parents = 0
    for document in range(nodes.size - 1):
        inner = edges = 0
        for node in range(nodes[document], nodes[document + 1]):
            node_parents = graph.node_edges[node + 1] - graph.node_edges[node]
            parents = max(parents, node_parents)
            inner += has_children[node]
            edges += node_parents * has_children[node]
        widest = max(widest, nodes[document + 1] - nodes[document])
        max_inner, max_inner_edges = max(max_inner, inner), max(max_inner_edges, edges)
    leaf, leaf_edge = shared + max_inner, graph.node_edges[shared] + max_inner_edges
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
def load_tables(sampler: Sampler, tables: TableEntries, node: int, at_node: int, at_parents: int) -> None:
    """Add the tables of a node's edges to its counts (`at_node`) and to its parents' customers (`at_parents`)."""
    graph, counts, totals = sampler.graph, sampler.counts, sampler.totals
    row = row_of(sampler.rows, node)
    for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
        edge_row = edge_row_of(graph, sampler.rows, node, edge)
        parent = graph.edge_parent[edge]
        above = row_of(sampler.rows, parent)
        for entry in range(tables.start[edge], tables.start[edge] + tables.entries[edge]):
            k, number = tables.topic[entry], tables.number[entry]
            if at_node:
                counts.edge_tables[edge_row, k] += number
                totals.edge_tables[edge_row] += number
                counts.tables[row, k] += number
                totals.tables[row] += number
            if at_parents and parent >= sampler.rows.shared:
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


CLIMB, FALL, UPWARDS, DOWNWARDS, CHOOSE = range(5)  # Phases of `_draw_between`
NEGLIGIBLE = 1e-25  # Weight relative to the most probable number, below which numbers are ignored


@borrower
def neighbour_ratio(sampler: Sampler, cell: TableCell, by: int) -> Number:
    """Return p(s + by + 1) / p(s + by) of the tables s of an edge and topic."""
    graph, priors, counts, totals = sampler.graph, sampler.priors, sampler.counts, sampler.totals
    node, edge, k = cell.node, cell.edge, cell.topic
    row, kind, parent = row_of(sampler.rows, node), graph.node_kind[node], graph.edge_parent[edge]
    m, t = counts.customers[row, k], counts.tables[row, k] + by
    discount = priors.discount[kind]
    ratio = priors.strength[kind] + discount * (totals.tables[row] + by)
    ratio *= stirling_ratio(priors.stirling_ratios[kind], discount, m, t + 1) if t > 0 else 1.0
    if graph.node_edges[node + 1] - graph.node_edges[node] > 1:
        total = totals.tables[row] + by
        for sibling in range(graph.node_edges[node], graph.node_edges[node + 1]):
            total += graph.edge_mixing[sibling]
        share = (graph.edge_mixing[edge] + totals.edge_tables[cell.row] + by) / total
        ratio *= (t + 1) / (counts.edge_tables[cell.row, k] + by + 1) * share
    above = row_of(sampler.rows, parent)
    divisor = divisor_of(sampler, parent, above)
    if cell.fold_in and parent < sampler.rows.shared:
        return ratio * counts.weight[above, k] / divisor
    customers, divisor = counts.customers[above, k] + by, divisor + by
    if is_root(graph, parent):
        return ratio * (priors.alpha[k] + customers) / divisor
    tables, kind = counts.tables[above, k], graph.node_kind[parent]
    weight = customers - tables * priors.discount[kind]
    if tables > 1:
        weight += 1.0 / stirling_ratio(priors.stirling_ratios[kind], priors.discount[kind], customers, tables)
    return ratio * weight / divisor


@borrower
def draw_change(sampler: Sampler, cell: TableCell, random: float) -> int:
    """Draw by how much the tables of an edge and topic change, from all numbers that the counts allow."""
    counts, k, parent = sampler.counts, cell.topic, sampler.graph.edge_parent[cell.edge]
    row = row_of(sampler.rows, cell.node)
    m, t, s = counts.customers[row, k], counts.tables[row, k], counts.edge_tables[cell.row, k]
    low, high = max(-s, 1 - t), m - t
    if not is_root(sampler.graph, parent) and not (cell.fold_in and parent < sampler.rows.shared):
        above = row_of(sampler.rows, parent)
        low = max(low, counts.tables[above, k] - counts.customers[above, k])
        if counts.customers[above, k] == 0:
            high = 0
    if low == high:
        return int(low)
    drawn: int = _draw_between(sampler, cell, random, low, high)
    return drawn


@borrower
def _draw_between(sampler: Sampler, cell: TableCell, random: float, low: int, high: int) -> int:
    """Draw from `low` to `high`: climb to the most probable number, sum on both sides of it, choose from the lowest.

    All of it is one loop, so that the compiler meets the ratio of neighbours once.
    """
    at = best = last = 0
    step, weight, total, left = CLIMB, 1.0, 1.0, 0.0
    while True:
        if step == CLIMB and at == high:
            step = FALL
        if step == FALL and at == low:
            best, step = at, UPWARDS
        if step == UPWARDS and (at == high or weight <= NEGLIGIBLE):
            last, at, weight, step = at, best, 1.0, DOWNWARDS
        if step == DOWNWARDS and (at == low or weight <= NEGLIGIBLE):
            left, step = random * total - weight, CHOOSE
        if step == CHOOSE and (at == last or left < 0.0):
            return at
        down = step in (FALL, DOWNWARDS)
        ratio = neighbour_ratio(sampler, cell, at - 1 if down else at)
        if step == CLIMB:
            if ratio > 1.0:
                at += 1
            else:
                step = FALL
        elif step == FALL:
            if ratio < 1.0:
                at -= 1
            else:
                best, step = at, UPWARDS
        elif step == UPWARDS:
            weight *= ratio
            total += weight
            at += 1
        elif step == DOWNWARDS:
            weight /= ratio
            total += weight
            at -= 1
        else:
            weight *= ratio
            left -= weight
            at += 1


@borrower
def move_tables(sampler: Sampler, node: int, key: Array, fold_in: int) -> None:
    """Draw all table counts of a node; number e K + k of the random stream belongs to edge e and topic k."""
    graph, counts, totals, clock = sampler.graph, sampler.counts, sampler.totals, sampler.clock
    row, topics = row_of(sampler.rows, node), sampler.priors.alpha.size
    for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
        edge_row, parent = edge_row_of(graph, sampler.rows, node, edge), graph.edge_parent[edge]
        above = row_of(sampler.rows, parent)
        fixed = fold_in and parent < sampler.rows.shared
        for k in range(topics):
            if counts.customers[row, k] < 2 and counts.tables[row, k] == counts.edge_tables[edge_row, k]:
                continue  # none, or one customer, who sits at one table
            cell = TableCell(node, edge, edge_row, fold_in, k)
            by = draw_change(sampler, cell, uniform(key, edge * topics + k))
            if by == 0:
                continue
            counts.edge_tables[edge_row, k] += by
            totals.edge_tables[edge_row] += by
            counts.tables[row, k] += by
            totals.tables[row] += by
            clock.now[0] += 1
            clock.changed[row], clock.computed[row] = clock.now[0], -1
            log_change(sampler, node if fixed else parent)
            set_terms(sampler, node, row, k)
            if fixed:
                continue
            counts.customers[above, k] += by
            totals.customers[above] += by
            set_terms(sampler, parent, above, k)
            clock.changed[above] = clock.now[0]
            if is_root(graph, parent):
                counts.weight[above, k] = counts.join_weight[above, k]
            else:
                clock.computed[above] = -1


NOTHING_CHANGED = 1 << 62  # Later than all nodes: the weights of the line are up to date


@kernel
def sweep_network(
    graph: GraphArrays,
    documents: SegmentedDocuments,
    hyperparameters: SamplingHyperparameters,
    counts: SampledCounts,
    tables: TableEntries,
    token_draws: TokenDraws,
    table_draws: TableDraws,
    results: SweepResults,
) -> None:
    """Draw each token's topic and path given all others, then the table counts; twin: `naive.network.sweep`.

    A token of node j is removed with a path drawn by s_ek / m_ik, unless a node would be left with customers and
    without a table. Its topic is drawn with weights Z_j(k) (n_kw + b) / (n_k + B), its new path by the terms of Z.
    Table counts s_ek are then drawn from their conditionals: counts of nodes without children when their tokens are
    through, the others' at the document's end.
    """
    strength, discount, alpha = hyperparameters.strength, hyperparameters.discount, hyperparameters.alpha
    priors = Priors(strength, discount, alpha, alpha.sum(), hyperparameters.stirling_ratios)
    topics, nodes, segments, pair_counts = alpha.size, documents.nodes, documents.segments, documents.counts
    segment_pairs, node_edges, progress = documents.segment_pairs, graph.node_edges, results.progress
    room = results.tables.topic.size
    has_children = find_parents(graph.edge_parent, graph.node_kind.size)
    sampler = make_sampler(graph, priors, nodes, has_children, token_draws.levels)
    words = WordWorkspace(
        counts.token_topic, counts.word_topic, counts.topic, counts.word_prior, counts.total_prior,
        1.0 / (counts.topic + counts.total_prior), np.empty(topics), np.empty(topics // CHUNK),
    )  # fmt: skip
    load_shared(sampler, counts.shared_customers, counts.shared_tables)
    for node in range(sampler.rows.shared):
        if token_draws.fold_in:  # a vector that nothing changes is its expectation
            fill_mean_terms(sampler, node, node)
        else:
            fill_terms(sampler, node, node)
        update_weights(sampler, node)
        sampler.clock.computed[node] = 0
    for document in range(progress[DOCUMENT], nodes.size - 1):
        progress[DOCUMENT] = document
        low, high = nodes[document], nodes[document + 1]
        tokens = 0
        for pair in range(segment_pairs[segments[document]], segment_pairs[segments[document + 1]]):
            tokens += pair_counts[pair]
        # A token adds at most one table to each node on its path to a root.
        max_tables = min((node_edges[high] - node_edges[low]) * min(topics, tokens), token_draws.levels * tokens)
        if progress[FILLED] + max_tables > room:
            break
        document_sampler = at_document(sampler, low)
        assign_rows(document_sampler, high)
        load_document(document_sampler, tables, high, token_draws.initialise)
        load_own_tokens(
            document_sampler, documents, document, words.token_topic, progress[TOKEN], token_draws.initialise
        )
        _sweep_document(document_sampler, documents, document, words, tables, token_draws, table_draws, results)
        progress[DOCUMENT] = document + 1
    store_shared(sampler, counts.shared_customers, counts.shared_tables)


@borrower
def _sweep_document(
    sampler: Sampler,
    documents: SegmentedDocuments,
    document: int,
    words: WordWorkspace,
    tables: TableEntries,
    token_draws: TokenDraws,
    table_draws: TableDraws,
    results: SweepResults,
) -> None:
    """Sweep over the segments of a document whose nodes with children are loaded."""
    segment, last = documents.segments[document], documents.segments[document + 1]
    low, high = documents.nodes[document], documents.nodes[document + 1]
    has_children, segment_node = sampler.rows.has_children, documents.segment_node
    while segment < last:
        node, after = segment_node[segment], segment
        while after < last and segment_node[after] == node:
            after += 1
        pairs = documents.segment_pairs[segment], documents.segment_pairs[after]
        if not has_children[node]:
            tokens, token = 0, results.progress[TOKEN]
            for pair in range(pairs[0], pairs[1]):
                tokens += documents.counts[pair]
            _load_leaf(sampler, tables, node, words.token_topic, token, token + tokens, token_draws.initialise)
        _sweep_tokens(sampler, documents, pairs, words, token_draws, results.progress, node)
        segment = after
        current, least = (high - 1, low) if segment == last else (node, node)
        while current >= least:  # nothing changes the counts of a node after its own tables: children go first
            if (current == node and not has_children[current]) or (segment == last and has_children[current]):
                if table_draws.move:
                    move_tables(sampler, current, table_draws.key, token_draws.fold_in)
                store_node(sampler, results, table_draws, current)
            current -= 1


@borrower
def _load_leaf(
    sampler: Sampler, tables: TableEntries, node: int, token_topic: Array, first: int, last: int, initialise: int
) -> None:
    """Fill the row of nodes without children with the counts of one of them, which has the tokens `first` to `last`."""
    edges = sampler.graph.node_edges
    row, edge_row = row_of(sampler.rows, node), edge_row_of(sampler.graph, sampler.rows, node, edges[node])
    clear_row(sampler, node, row, edge_row)
    clear_totals(sampler, node, row, edge_row)
    if not initialise:
        load_tables(sampler, tables, node, 1, 0)
        load_tokens(sampler, row, token_topic, first, last)
        fill_terms(sampler, node, row)


@borrower
def _sweep_tokens(
    sampler: Sampler,
    documents: SegmentedDocuments,
    pairs: tuple[int, int],
    words: WordWorkspace,
    draws: TokenDraws,
    progress: Array,
    node: int,
) -> None:
    """Draw topics and paths of the tokens of one node."""
    path, key, initialise, fold_in = sampler.path, draws.key, draws.initialise, draws.fold_in
    token_topic, inverse, totals = words.token_topic, words.inverse, words.topic
    row, levels, token = row_of(sampler.rows, node), path.nodes.size, progress[TOKEN]
    lowest: Number = node - 1  # the lowest node whose change Z of others lacks
    begin_line(sampler, node)
    for pair in range(pairs[0], pairs[1]):
        word = words.word_topic[documents.position[pair]]
        for _ in range(documents.counts[pair]):
            k: Number = np.int64(token_topic[token])
            first = token * (1 + 2 * levels)
            leaves = True
            if not initialise:
                leaves = draw_removal_path(sampler, node, k, key, first + 1, fold_in)
            for step in range(initialise, 2 if leaves else 0):
                if step == 1:
                    if lowest < node:
                        update_line(sampler, lowest)
                        lowest = NOTHING_CHANGED
                    if not initialise:
                        random = uniform(key, first)
                        k = draw_topic(
                            sampler.counts.weight[row], inverse, word, words.word_prior, random, words.weight,
                            words.chunk_sums,
                        )  # fmt: skip
                        token_topic[token] = k
                    draw_entry_path(sampler, node, k, key, first + 1 + levels, fold_in)
                by = 2 * step - 1
                top = shift_path(sampler, k, by)
                if path.edges[path.length[0] - 1] >= 0:  # its parents are fixed, so that Z has changed throughout
                    sampler.clock.computed[row_of(sampler.rows, top)] = -1
                    top -= 1
                if top != node:
                    lowest = min(lowest, top)
                if not (fold_in or initialise):
                    totals[k] += by
                    word[k] += by
                    inverse[k] = 1.0 / (totals[k] + words.total_prior)
            token += 1
    progress[TOKEN] = token


@kernel
def sweep_shared_nodes(
    graph: GraphArrays,
    hyperparameters: SamplingHyperparameters,
    draws: TableDraws,
    customers: OutInt32Matrix,
    tables: OutInt32Matrix,
    statistics: NodeStatistics,
) -> None:
    """Draw the table counts of all shared nodes, children first, and sum up; twin: `naive.network.move_tables`.

    Shapes: `customers`, `tables` (nodes, topics).
    """
    strength, discount, alpha = hyperparameters.strength, hyperparameters.discount, hyperparameters.alpha
    priors = Priors(strength, discount, alpha, alpha.sum(), hyperparameters.stirling_ratios)
    nodes = graph.node_kind.size
    sampler = make_sampler(graph, priors, np.array([nodes]), np.ones(nodes, dtype=np.int64), 1)
    load_shared(sampler, customers, tables)
    for node in range(nodes):
        fill_terms(sampler, node, node)
    none = TableEntries(
        np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.uint16),
        np.zeros(0, dtype=np.int32),
    )  # fmt: skip
    results = SweepResults(none, statistics, np.zeros(4, dtype=np.int64))
    for node in range(nodes - 1, -1, -1):
        if draws.move:
            move_tables(sampler, node, draws.key, 0)
        store_node(sampler, results, draws, node)
    store_shared(sampler, customers, tables)
