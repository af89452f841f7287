"""Sums over the nodes of networks of vectors, and checks of their counts, in plain Python."""

from collections import Counter

import numpy as np
from scipy.special import gammaln

from collapsium.workers.kernels.networks import consistency
from tests.naive.network import log_polya, log_stirling


def log_terms(state, nodes):
    """Return the terms of log p(n, s) that depend on single values: all but (b|a)_T and the divisors of b and alpha."""
    network, total = state.network, 0.0
    for i in nodes:
        edges, m, tables = network.of[i], state.m[i], state.tables(i)
        if not edges:
            total += (gammaln(network.alpha + m) - gammaln(network.alpha)).sum()
            continue
        total += sum(log_stirling(network.a[i], *counts) for counts in zip(m, tables, strict=True))
        total += (gammaln(tables + 1) - gammaln(state.s[edges] + 1).sum(axis=0)).sum()
        if len(edges) > 1:
            total += log_polya(network.mixing[edges], state.s[edges].sum(axis=1))
    return total


def count_node_topics(node, token_topic, nodes):
    """Return each node's topics in ascending order, and its numbers of tokens."""
    tallies = [Counter(token_topic[node == j].tolist()) for j in nodes]
    return [sorted(tally.items()) for tally in tallies]


def pair_probabilities(laid, mean, phi):
    """Return sum_k nu_jk phi_kw of each pair."""
    owner = np.repeat(laid.node, np.diff(laid.pairs))
    mean = mean / mean.sum(axis=1, keepdims=True)
    return (mean[owner] * phi[laid.row]).sum(axis=1)


def unseated(edges, tokens, tables, nodes):
    """Return whether some node has more tables of a topic than customers, or parents and customers but no table."""
    customers, opened = np.array(tokens), np.zeros_like(tokens)
    for (child, parent), some in zip(edges, tables, strict=True):
        customers[parent] += some
        opened[child] += some
    parted = {child for child, _ in edges}
    return any(
        t > m or (m > 0 and t == 0 and node in parted)
        for node in nodes
        for m, t in zip(customers[node], opened[node], strict=True)
    )


def misplaced(graph, linked, word_kind):
    """Return the names of all faults of nodes that `find_misplaced` may report, and the most nodes per kind in a
    document."""
    shared, kinds = graph.shared, len(linked)
    sizes, edges = np.diff(graph.document_nodes), np.diff(graph.node_edges)
    owner = np.concatenate([np.full(shared, -1), np.repeat(np.arange(sizes.size), sizes)])
    child, parent = np.repeat(np.arange(edges.size), edges), graph.edge_parent
    segment = np.repeat(np.arange(sizes.size), np.diff(graph.document_segments))
    of_documents = np.flatnonzero(graph.document_node >= 0)
    faults = {
        consistency.WRONG_PARENT: linked[graph.node_kind[child], graph.node_kind[parent]] == 0,
        consistency.PARENT_OF_ANOTHER: (owner[parent] != owner[child]) & (parent >= shared),
        consistency.NO_MIXING: graph.edge_mixing[np.repeat(edges > 1, edges)] <= 0,
        consistency.WRONG_SEGMENT_NODE: graph.node_kind[graph.segment_node] != word_kind,
        consistency.SEGMENT_OF_ANOTHER: owner[graph.segment_node] != segment,
        consistency.NODE_OF_ANOTHER: owner[graph.document_node[of_documents]] != of_documents,
    }
    found = {fault for fault, wrong in faults.items() if wrong.any()}
    found |= {consistency.WRONG_PARENT} if (parent >= child).any() else set()
    found |= {consistency.WRONG_SEGMENT_NODE} if (np.diff(graph.segment_node) < 0).any() else set()
    max_nodes = [
        max(np.count_nonzero((owner == document) & (graph.node_kind == kind)) for document in range(sizes.size))
        for kind in range(kinds)
    ]
    return found, max_nodes
