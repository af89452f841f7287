"""Compare the counts of a network that were read from disk with one another."""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Int32Vector,
    Int64Vector,
    OutInt64Matrix,
    OutInt64Vector,
    UInt16Vector,
)
from collapsium.workers.kernels.jit import helper, kernel
from collapsium.workers.kernels.networks.records import GraphArrays, OwnTopics, TableEntries


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
