"""Compare the nodes and counts of a network that were read from disk with one another."""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Int32Vector,
    Int64Matrix,
    Int64Vector,
    OutInt64Matrix,
    OutInt64Vector,
    UInt16Vector,
)
from collapsium.workers.kernels.jit import helper, kernel
from collapsium.workers.kernels.networks.records import DocumentNodes, GraphArrays, OwnTopics, TableEntries

SOUND, WRONG_PARENT, PARENT_OF_ANOTHER, NO_MIXING, WRONG_SEGMENT_NODE, SEGMENT_OF_ANOTHER, NODE_OF_ANOTHER = range(7)
"""Faults of nodes that `find_misplaced` reports."""


@helper
def _edge_fault(graph: GraphArrays, linked: Int64Matrix, node: int, first_own: int, shared: int) -> int:
    """Return the fault of the edges of a node, whose document's first node is `first_own`."""
    first, last = graph.node_edges[node], graph.node_edges[node + 1]
    for edge in range(first, last):
        parent = graph.edge_parent[edge]
        if parent >= node or linked[graph.node_kind[node], graph.node_kind[parent]] == 0:
            return WRONG_PARENT
        if shared <= parent < first_own:
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
    most: OutInt64Vector,
    fault: OutInt64Vector,
) -> None:
    """Find nodes that do not follow the plan of a network; twin: `naive.network_sums.misplaced`.

    Parents are of kinds to which a link leads, stand before their children, and are shared or of the same document.
    Indices must be sound, and offsets must not fall.

    Parameters
    ----------
    graph : GraphArrays
        The network.
    documents : DocumentNodes
        Nodes of documents and segments.
    linked : int64, shape (kinds, kinds)
        1 where a link leads from a kind to the kind of its parents, else 0.
    word_kind : int
        Kind of the nodes of segments.
    most : int64, shape (kinds,)
        Filled with the largest number of nodes of each kind that a document has.
    fault : int64, shape (1,)
        Filled with the first fault, `SOUND` if there is none.
    """
    shared, here = documents.nodes[0], np.zeros(most.size, dtype=np.int64)
    most[:] = 0
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
            here[graph.node_kind[node]] += 1
        fault[0] = _document_fault(graph, documents, document, word_kind)
        if fault[0] != SOUND:
            return
        for kind in range(most.size):
            most[kind] = max(most[kind], here[kind])
            here[kind] = 0


@helper
def _is_seated(graph: GraphArrays, node: int, customers: int, tables: int) -> bool:
    """Return whether a node may have so many customers and tables of a topic."""
    root = graph.node_edges[node] == graph.node_edges[node + 1]
    return tables <= customers and (root or tables > 0 or customers == 0)


@kernel
def find_unseated(
    graph: GraphArrays,
    document_nodes: Int64Vector,
    tables: TableEntries,
    own: OwnTopics,
    topics: int,
    shared_customers: OutInt64Matrix,
    unseated: OutInt64Vector,
) -> None:
    """Find tables and customers of documents' nodes that exclude one another; twin: `naive.network_sums.unseated`.

    A node has at least one table of a topic that it has customers of, and at most as many as customers; a root has
    customers alone. Indices must be sound.

    Parameters
    ----------
    graph : GraphArrays
        The network.
    document_nodes : int64, shape (documents + 1,)
        Index of each document's first node.
    tables : TableEntries
        Tables of the edges of documents' nodes.
    own : OwnTopics
        Tokens of documents' nodes.
    topics : int
        Number of topics.
    shared_customers : int64, shape (shared nodes, topics)
        Increased by the customers that these tables are of shared nodes.
    unseated : int64, shape (1,)
        Filled with 1 if there are any, else with 0.
    """
    shared, most = document_nodes[0], 0
    for document in range(document_nodes.size - 1):
        most = max(most, document_nodes[document + 1] - document_nodes[document])
    customers, opened = np.zeros((most, topics), dtype=np.int64), np.zeros((most, topics), dtype=np.int64)
    unseated[0] = 0
    for document in range(document_nodes.size - 1):
        low, high = document_nodes[document], document_nodes[document + 1]
        for node in range(low, high):
            for entry in range(own.offsets[node - shared], own.offsets[node - shared + 1]):
                customers[node - low, own.topic[entry]] += own.tokens[entry]
            for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
                parent = graph.edge_parent[edge]
                for entry in range(tables.start[edge], tables.start[edge] + tables.entries[edge]):
                    opened[node - low, tables.topic[entry]] += tables.number[entry]
                    if parent < shared:
                        shared_customers[parent, tables.topic[entry]] += tables.number[entry]
                    else:
                        customers[parent - low, tables.topic[entry]] += tables.number[entry]
        for node in range(low, high):
            for entry in range(own.offsets[node - shared], own.offsets[node - shared + 1]):
                k = own.topic[entry]
                if not _is_seated(graph, node, customers[node - low, k], opened[node - low, k]):
                    unseated[0] = 1
            for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
                parent = graph.edge_parent[edge]
                for entry in range(tables.start[edge], tables.start[edge] + tables.entries[edge]):
                    k = tables.topic[entry]
                    if not _is_seated(graph, node, customers[node - low, k], opened[node - low, k]):
                        unseated[0] = 1
                    if parent >= shared and not _is_seated(
                        graph, parent, customers[parent - low, k], opened[parent - low, k]
                    ):
                        unseated[0] = 1
        for node in range(low, high):
            for entry in range(own.offsets[node - shared], own.offsets[node - shared + 1]):
                customers[node - low, own.topic[entry]] = 0
            for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
                parent = graph.edge_parent[edge]
                for entry in range(tables.start[edge], tables.start[edge] + tables.entries[edge]):
                    opened[node - low, tables.topic[entry]] = 0
                    if parent >= shared:
                        customers[parent - low, tables.topic[entry]] = 0


@kernel
def find_unlisted(
    pairs: Int64Vector,
    counts: Int32Vector,
    token_topic: UInt16Vector,
    own: OwnTopics,
    topics: int,
    unlisted: OutInt64Vector,
) -> None:
    """Find nodes whose own topics are not those of their tokens; twin: `naive.network_sums.count_node_topics`.

    Parameters
    ----------
    pairs : int64, shape (nodes of documents + 1,)
        Index of each node's first pair.
    counts : int32, shape (pairs,)
        Count of each pair.
    token_topic : uint16, shape (tokens,)
        Topic of each token.
    own : OwnTopics
        To compare with; topics of a node are distinct.
    topics : int
        Number of topics.
    unlisted : int64, shape (1,)
        Filled with the number of the first such node, -1 if there is none.
    """
    here, first = np.zeros(topics, dtype=np.int64), 0
    unlisted[0] = -1
    for node in range(pairs.size - 1):
        last = first
        for pair in range(pairs[node], pairs[node + 1]):
            last += counts[pair]
        for token in range(first, last):
            here[token_topic[token]] += 1
        left = last - first
        for entry in range(own.offsets[node], own.offsets[node + 1]):
            if here[own.topic[entry]] != own.tokens[entry]:
                unlisted[0] = node
                return
            left -= own.tokens[entry]
            here[own.topic[entry]] = 0
        if left != 0:
            unlisted[0] = node
            return
        first = last
