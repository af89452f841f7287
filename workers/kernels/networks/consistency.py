"""Compare the nodes and counts of a network that were read from disk with one another."""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.jit import (
    Int32Vector,
    Int64Matrix,
    Int64Vector,
    OutInt64Matrix,
    OutInt64Vector,
    UInt16Vector,
    UInt64Vector,
    helper,
    kernel,
)
from collapsium.workers.kernels.networks.records import DocumentNodes, GraphArrays, NodeTopicCounts, TableEntries

# Faults of nodes that `find_misplaced` reports
SOUND, WRONG_PARENT, PARENT_OF_ANOTHER, NO_MIXING, WRONG_SEGMENT_NODE, SEGMENT_OF_ANOTHER, NODE_OF_ANOTHER = range(7)
UNSEATED, OTHER_TOKENS = 1, 2  # Faults of tables that `find_unseated` reports


@helper
def _edge_fault(graph: GraphArrays, linked: Int64Matrix, node: int, first_document_node: int, shared: int) -> int:
    """Return the fault of the edges of a node, whose document's first node is `first_document_node`."""
    first, last = graph.node_edges[node], graph.node_edges[node + 1]
    for edge in range(first, last):
        parent = graph.edge_parent[edge]
        if parent >= node or linked[graph.node_kind[node], graph.node_kind[parent]] == 0:
            return WRONG_PARENT
        if shared <= parent < first_document_node:
            return PARENT_OF_ANOTHER
        if last - first > 1 and not graph.edge_mixing[edge] > 0.0:
            return NO_MIXING
    return SOUND


@helper
def _document_fault(graph: GraphArrays, documents: DocumentNodes, document: int, word_kind: int) -> int:
    """Return the fault of the nodes of a document and of its segments."""
    low, high = documents.nodes[document], documents.nodes[document + 1]
    for segment in range(documents.segments[document], documents.segments[document + 1]):
        node = documents.segment_node[segment]
        falls = segment > 0 and node < documents.segment_node[segment - 1]
        if falls or graph.node_kind[node] != word_kind:
            return WRONG_SEGMENT_NODE
        if node < low or node >= high:
            return SEGMENT_OF_ANOTHER
    node = documents.document_node[document]
    return SOUND if node < 0 or low <= node < high else NODE_OF_ANOTHER


@kernel
def find_misplaced(
    graph: GraphArrays,
    documents: DocumentNodes,
    linked: Int64Matrix,
    word_kind: int,
    max_nodes: OutInt64Vector,
    fault: OutInt64Vector,
) -> None:
    """Find nodes that do not follow the plan of a network; twin: `naive.network_sums.misplaced`.

    Parents are of kinds to which a link leads, stand before their children, and are shared or of the same document.
    Indices must be sound, and offsets must not fall.

    Shapes: `linked` (kinds, kinds); `max_nodes` (kinds,); `fault` (1,).
    """
    shared, nodes_of_kind = documents.nodes[0], np.zeros(max_nodes.size, dtype=np.int64)
    max_nodes[:] = 0
    fault[0] = SOUND
    for node in range(shared):
        fault[0] = _edge_fault(graph, linked, node, 0, shared)
        if fault[0] != SOUND:
            return
    for document in range(documents.nodes.size - 1):
        low, high = documents.nodes[document], documents.nodes[document + 1]
        for node in range(low, high):
            fault[0] = _edge_fault(graph, linked, node, low, shared)
            if fault[0] != SOUND:
                return
            nodes_of_kind[graph.node_kind[node]] += 1
        fault[0] = _document_fault(graph, documents, document, word_kind)
        if fault[0] != SOUND:
            return
        for kind in range(max_nodes.size):
            max_nodes[kind] = max(max_nodes[kind], nodes_of_kind[kind])
            nodes_of_kind[kind] = 0


@kernel
def find_unseated(
    graph: GraphArrays,
    document_nodes: Int64Vector,
    document_tokens: Int64Vector,
    tables: TableEntries,
    node_topics: NodeTopicCounts,
    topics: int,
    shared_customers: OutInt64Matrix,
    fault: OutInt64Vector,
) -> None:
    """Find tables and customers of documents' nodes that exclude one another; twin: `naive.network_sums.unseated`.

    A node has at least one table of a topic that it has customers of, and at most as many as customers; a root has only
    customers. Indices must be sound.

    Shapes: `document_nodes` (documents + 1,); `document_tokens` (documents,); `shared_customers` (shared nodes,
    topics); `fault` (1,).
    """
    shared, max_nodes, unseated = document_nodes[0], 0, 0
    for document in range(document_nodes.size - 1):
        max_nodes = max(max_nodes, document_nodes[document + 1] - document_nodes[document])
    customers, unchecked = np.zeros((max_nodes, topics), dtype=np.int64), np.zeros(max_nodes, dtype=np.int64)
    opened = np.zeros(topics, dtype=np.int64)
    for document in range(document_nodes.size - 1):
        low, high, tokens = document_nodes[document], document_nodes[document + 1], 0
        # Children come after their parents, so that all customers of a node are known when it is met.
        for node in range(high - 1, low - 1, -1):
            customers_of, first, last = customers[node - low], graph.node_edges[node], graph.node_edges[node + 1]
            for entry in range(node_topics.offsets[node - shared], node_topics.offsets[node - shared + 1]):
                customers_of[node_topics.topic[entry]] += node_topics.tokens[entry]
                unchecked[node - low] += node_topics.tokens[entry]
                tokens += node_topics.tokens[entry]
            for edge in range(first, last):
                parent = graph.edge_parent[edge]
                for entry in range(tables.start[edge], tables.start[edge] + tables.entries[edge]):
                    k, number = tables.topic[entry], tables.number[entry]
                    opened[k] += number
                    if parent < shared:
                        shared_customers[parent, k] += number
                    else:
                        customers[parent - low, k] += number
                        unchecked[parent - low] += number
            for edge in range(first, last):
                for entry in range(tables.start[edge], tables.start[edge] + tables.entries[edge]):
                    k = tables.topic[entry]
                    unseated |= int(opened[k] > customers_of[k] or (customers_of[k] > 0 and opened[k] == 0))
                    unchecked[node - low] -= customers_of[k]
                    # A topic that is met again has neither, which is sound.
                    customers_of[k] = opened[k] = 0
            # Customers of topics that no edge has: only roots need no tables.
            if unchecked[node - low] > 0:
                unseated |= int(first < last)
                customers_of[:] = 0
                unchecked[node - low] = 0
        if tokens != document_tokens[document]:
            fault[0] = OTHER_TOKENS
            return
    fault[0] = UNSEATED if unseated else SOUND


@kernel
def find_unlisted(
    pairs: Int64Vector,
    counts: Int32Vector,
    token_topic: UInt16Vector,
    node_topics: NodeTopicCounts,
    keys: UInt64Vector,
    unlisted: OutInt64Vector,
) -> None:
    """Find nodes whose own topics differ from their tokens' topics; twin: `naive.network_sums.count_node_topics`.

    The sums of keys over a node's tokens and over its own topics, modulo 2^64, are the same where the topics are, and
    else with a probability of some 2^-60.

    Shapes: `pairs` (nodes of documents + 1,); `counts` (pairs,); `token_topic` (tokens,); `keys` (topics,);
    `unlisted` (1,).
    """
    first = 0
    unlisted[0] = -1
    for node in range(pairs.size - 1):
        last = first
        for pair in range(pairs[node], pairs[node + 1]):
            last += counts[pair]
        difference = np.uint64(0)
        for token in range(first, last):
            difference += keys[token_topic[token]]
        left = last - first
        for entry in range(node_topics.offsets[node], node_topics.offsets[node + 1]):
            difference -= keys[node_topics.topic[entry]] * np.uint64(node_topics.tokens[entry])
            left -= node_topics.tokens[entry]
        if difference != np.uint64(0) or left != 0:
            unlisted[0] = node
            return
        first = last
