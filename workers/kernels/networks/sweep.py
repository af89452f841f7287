"""Gibbs sweeps over documents whose tokens are drawn from a network of vectors; `paths` has the moves."""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.argument_types import Array, Number
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
    draw_entry_path,
    draw_removal_path,
    draw_topic,
    edge_row_of,
    row_of,
    shift_path,
    update_line,
    update_weights,
)
from collapsium.workers.kernels.networks.records import (
    GraphArrays,
    SampledCounts,
    SamplingHyperparameters,
    SegmentedDocuments,
    SweepResults,
    TableDraws,
    TableEntries,
    TokenDraws,
)
from collapsium.workers.kernels.networks.tables import move_tables
from collapsium.workers.kernels.networks.workspaces import Priors, Sampler, WordWorkspace
from collapsium.workers.kernels.random import uniform

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
