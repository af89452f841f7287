"""Expected vectors of a network given its counts, topics of nodes' own tokens, and probabilities of words."""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.jit import (
    DocumentPairs,
    Float32Matrix,
    Float64Matrix,
    Int32Matrix,
    Int32Vector,
    Int64Vector,
    OutFloat32Matrix,
    OutFloat64Vector,
    OutInt32Vector,
    OutInt64Vector,
    OutUInt16Vector,
    UInt16Vector,
    kernel,
)
from collapsium.workers.kernels.networks.paths import divisor_of, row_of, update_weights
from collapsium.workers.kernels.networks.records import (
    GraphArrays,
    Hyperparameters,
    NodeTopicCounts,
    Priors,
    TableEntries,
)
from collapsium.workers.kernels.networks.sweep import (
    assign_rows,
    at_document,
    fill_mean_terms,
    load_document,
    load_shared,
    make_sampler,
)


@kernel
def network_means(
    graph: GraphArrays,
    document_nodes: Int64Vector,
    hyperparameters: Hyperparameters,
    tables: TableEntries,
    node_topics: NodeTopicCounts,
    shared_customers: Int32Matrix,
    shared_tables: Int32Matrix,
    mean: OutFloat32Matrix,
) -> None:
    """Fill E[nu_jk] given all counts; twin: `naive.network.expected`.

    (alpha_k + m_jk) / (sum alpha + M_j) at a root, else (m_jk - a t_jk + (b + a T_j) sum_l rho_lj E[nu_lk]) / (b +
    M_j).

    Shapes: `document_nodes` (documents + 1,); `shared_customers`, `shared_tables` (shared nodes, topics); `mean`
    (nodes of documents, topics).
    """
    alpha, ratios, shared = hyperparameters.alpha, np.empty((hyperparameters.strength.size, 0)), document_nodes[0]
    priors = Priors(hyperparameters.strength, hyperparameters.discount, alpha, alpha.sum(), ratios)
    sampler = make_sampler(graph, priors, document_nodes, np.ones(graph.node_kind.size, dtype=np.int64), 1)
    offsets, topic, tokens = node_topics.offsets, node_topics.topic, node_topics.tokens
    customers, totals, weight = sampler.counts.customers, sampler.totals.customers, sampler.counts.weight
    load_shared(sampler, shared_customers, shared_tables)
    for node in range(shared):
        fill_mean_terms(sampler, node, node)
        update_weights(sampler, node)
    for document in range(document_nodes.size - 1):
        low, high = document_nodes[document], document_nodes[document + 1]
        document_sampler = at_document(sampler, low)
        assign_rows(document_sampler, high)
        load_document(document_sampler, tables, high, 0)
        for node in range(low, high):
            row = row_of(document_sampler.rows, node)
            for entry in range(offsets[node - shared], offsets[node - shared + 1]):
                customers[row, topic[entry]] += tokens[entry]
                totals[row] += tokens[entry]
            fill_mean_terms(document_sampler, node, row)
        for node in range(low, high):
            row = row_of(document_sampler.rows, node)
            update_weights(document_sampler, node)
            divisor = divisor_of(document_sampler, node, row)
            for k in range(mean.shape[1]):
                mean[node - shared, k] = weight[row, k] / divisor


@kernel
def count_node_topics(
    pairs: Int64Vector,
    counts: Int32Vector,
    token_topic: UInt16Vector,
    topics: int,
    offsets: OutInt64Vector,
    topic: OutUInt16Vector,
    tokens: OutInt32Vector,
) -> None:
    """Fill the topics of each node's own tokens; twin: `naive.network_sums.count_node_topics`.

    Shapes: `pairs` (nodes + 1,); `counts` (pairs,); `token_topic` (tokens,).
    """
    tokens_of, seen = np.zeros(topics, dtype=np.int64), np.zeros(topics, dtype=np.int64)
    token = filled = 0
    offsets[0] = 0
    for node in range(pairs.size - 1):
        some = 0
        for pair in range(pairs[node], pairs[node + 1]):
            for _ in range(counts[pair]):
                k = np.int64(token_topic[token])
                if tokens_of[k] == 0:
                    seen[some] = k
                    some += 1
                tokens_of[k] += 1
                token += 1
        seen[:some].sort()
        for place in range(some):
            topic[filled], tokens[filled] = seen[place], tokens_of[seen[place]]
            tokens_of[seen[place]] = 0
            filled += 1
        offsets[node + 1] = filled


@kernel
def pair_probabilities(
    segments: DocumentPairs, node: Int64Vector, mean: Float32Matrix, phi: Float64Matrix, probability: OutFloat64Vector
) -> None:
    """Fill sum_k nu_jk phi_kw of each pair; twin: `naive.network_sums.pair_probabilities`.

    Shapes: `node` (segments,); `mean` (nodes, topics); `phi` (words, topics); `probability` (pairs,).
    """
    offsets, position = segments.offsets, segments.position
    for segment in range(offsets.size - 1):
        vector = mean[node[segment]]
        total = 0.0
        for k in range(vector.size):
            total += vector[k]
        for pair in range(offsets[segment], offsets[segment + 1]):
            words, dot = phi[position[pair]], 0.0
            for k in range(vector.size):
                dot += vector[k] * words[k]
            probability[pair] = dot / total
