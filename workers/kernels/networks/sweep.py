"""Gibbs sweeps over documents whose tokens are drawn from a network of vectors; `paths` has the moves.

Table counts of nodes are drawn given all others; nodes that documents share are drawn between sweeps.
"""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.argument_types import Array, Number, OutInt32Matrix
from collapsium.workers.kernels.jit import borrower, kernel
from collapsium.workers.kernels.networks.node_counts import (
    DOCUMENT,
    FILLED,
    TOKEN,
    assign_rows,
    at_document,
    clear_row,
    clear_totals,
    fill_mean_terms,
    fill_terms,
    find_parents,
    load_document,
    load_own_tokens,
    load_shared,
    load_tables,
    load_tokens,
    make_sampler,
    store_node,
    store_shared,
)
from collapsium.workers.kernels.networks.paths import (
    CHUNK,
    begin_line,
    divisor_of,
    draw_entry_path,
    draw_removal_path,
    draw_topic,
    edge_row_of,
    is_root,
    log_change,
    row_of,
    set_terms,
    shift_path,
    update_line,
    update_weights,
)
from collapsium.workers.kernels.networks.records import (
    GraphArrays,
    NodeStatistics,
    SampledCounts,
    SamplingHyperparameters,
    SegmentedDocuments,
    SweepResults,
    TableDraws,
    TableEntries,
    TokenDraws,
)
from collapsium.workers.kernels.networks.stirling import stirling_ratio
from collapsium.workers.kernels.networks.workspaces import Priors, Sampler, TableCell, WordWorkspace
from collapsium.workers.kernels.random import uniform

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
        for other in range(graph.node_edges[node], graph.node_edges[node + 1]):
            total += graph.edge_mixing[other]
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
        most = min((node_edges[high] - node_edges[low]) * min(topics, tokens), token_draws.levels * tokens)
        if progress[FILLED] + most > room:
            break
        here = at_document(sampler, low)
        assign_rows(here, high)
        load_document(here, tables, high, token_draws.initialise)
        load_own_tokens(here, documents, document, words.token_topic, progress[TOKEN], token_draws.initialise)
        _sweep_document(here, documents, document, words, tables, token_draws, table_draws, results)
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
