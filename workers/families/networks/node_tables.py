"""Table counts of a shard's network by edge, to compare with the customers of each node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.delta import Arrays
from collapsium.workers.families.networks.graph import Graph

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NodeTables:
    """Tables of the edges of documents' nodes, one entry for each edge and topic that has some.

    Attributes
    ----------
    edge, topic, count : numpy.ndarray of int64, shape (entries,)
        Edge, topic and number of tables of each entry.
    """

    edge: Ints
    topic: Ints
    count: Ints

    @staticmethod
    def of(local: Arrays) -> NodeTables | None:
        """Take them from a local state; None if the places of entries do not fit their number."""
        start, entries = (np.asarray(local[f"document_table_{name}"]) for name in ("start", "entries"))
        topic, count = (np.asarray(local[f"document_table_{name}"]) for name in ("topic", "count"))
        if (start + entries > topic.size).any() or entries.sum(dtype=np.int64) != topic.size:
            return None
        edge = np.repeat(np.arange(entries.size), entries)
        first = np.cumsum(entries, dtype=np.int64) - entries
        place = np.repeat(start - first, entries) + np.arange(edge.size)
        return NodeTables(edge, topic[place].astype(np.int64), count[place].astype(np.int64))

    def have_customers(self, graph: Graph, own: Ints, tokens: Ints, topics: int) -> bool:
        """Say whether each node has between one table a topic and as many as customers, a root none.

        Parameters
        ----------
        graph : Graph
            The network.
        own : numpy.ndarray of int64
            Nodes times `topics`, plus topics, of nodes' own tokens.
        tokens : numpy.ndarray of int64
            The number of these.
        topics : int
            How many topics there are.

        Returns
        -------
        bool
            Whether the counts allow one another.
        """
        child = np.repeat(np.arange(graph.node_kind.size), np.diff(graph.node_edges))[self.edge]
        parent = graph.edge_parent[self.edge]
        below = parent >= graph.above
        if (child < graph.above).any():
            return False
        keys = np.concatenate([child * topics + self.topic, (parent * topics + self.topic)[below], own])
        weights = np.concatenate([self.count, self.count[below], tokens])
        places, inverse = np.unique(keys, return_inverse=True)
        size, opened = places.size, self.edge.size
        tables = np.bincount(inverse[:opened], weights[:opened], size)
        customers = np.bincount(inverse[opened:], weights[opened:], size)
        root = (np.diff(graph.node_edges) == 0)[places // topics]
        return bool(((tables <= customers) & (root | (tables > 0) | (customers == 0))).all())

    def shared_customers(self, graph: Graph, topics: int) -> Ints:
        """Return the customers that vectors above documents have of these tables, shape (vectors, topics)."""
        parent = graph.edge_parent[self.edge]
        above = parent < graph.above
        keys = parent[above] * topics + self.topic[above]
        counts = np.bincount(keys, self.count[above], graph.above * topics).astype(np.int64)
        return counts.reshape(graph.above, topics)
