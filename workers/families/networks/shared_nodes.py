"""The vectors above documents: counts that all shards share, kept whole between sweeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.delta import Arrays, Part, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.networks.graph import Graph, graph_above
from collapsium.workers.families.networks.sampler import node_sums, padded, wide
from collapsium.workers.families.networks.stirling import tables_for
from collapsium.workers.kernels.networks.records import NodeStatistics, SamplingHyperparameters, TableDraws
from collapsium.workers.kernels.networks.shared_nodes import sweep_shared_nodes

Counts = npt.NDArray[np.int64]


def mended(graph: Graph, customers: Counts, tables: Counts) -> tuple[Counts, Counts]:
    """Let tables be again such as their customers allow, after shards have moved them apart from each other.

    Parameters
    ----------
    graph : Graph
        Of the vectors above documents.
    customers, tables : numpy.ndarray of int64, shape (vectors or their edges, topics)
        Sums of what shards say.

    Returns
    -------
    customers, tables : numpy.ndarray of int64
        With 1 <= t <= m where there are customers and no tables elsewhere; customers that come from documents are what
        they were.
    """
    own = customers.copy()
    np.subtract.at(own, graph.edge_parent, tables)
    given = np.maximum(tables, 0)  # several shards may have taken off the same one
    whole = own.copy()
    for node in range(graph.above - 1, -1, -1):  # children first, as their tables are their parents' customers
        first, last = int(graph.node_edges[node]), int(graph.node_edges[node + 1])
        if first == last:
            continue
        most = whole[node]
        for edge in range(first, last):  # what the edges before have left
            given[edge] = np.minimum(given[edge], most - given[first:edge].sum(axis=0))
        lacking = (most > 0) & (given[first:last].sum(axis=0) == 0)
        given[first] += lacking
        for edge in range(first, last):
            whole[graph.edge_parent[edge]] += given[edge]
    return whole, given


@dataclass(frozen=True)
class Above:
    """The vectors above documents after a visit.

    Attributes
    ----------
    customers, tables : numpy.ndarray of int64, shape (vectors or their edges, topics)
        m and s.
    sums : dict of str to Part
        As shards tell them of documents' vectors: ``log_q``, ``tables``, ``falling``, ``log_eta``, ``stirling``,
        ``joins`` and ``rising``.
    """

    customers: Counts
    tables: Counts
    sums: dict[str, Part]


def visited(globals: Arrays, stream: Stream, *, moving: bool) -> Above:
    """Draw the table counts of the vectors above documents, or leave them, and sum up what they tell.

    Parameters
    ----------
    globals : Arrays
        With counts that allow one another.
    stream : Stream
        Addressed to the iteration.
    moving : bool
        Whether to draw.

    Returns
    -------
    Above
        What it comes to.
    """
    graph = graph_above(globals)
    topics = globals["alpha"].size
    columns, nodes = padded(topics), graph.above
    customers, tables = (
        wide(np.asarray(globals[name]), columns, np.int32) for name in ("vector_topic", "vector_tables")
    )
    statistics = NodeStatistics(
        np.zeros(nodes, np.int64), np.zeros(nodes, np.int64), np.zeros((globals["strength"].size, 2)), np.zeros(columns)
    )
    if nodes:  # the kernel takes long to compile
        hyperparameters = SamplingHyperparameters(
            np.asarray(globals["strength"]),
            np.asarray(globals["discount"]),
            wide(np.asarray(globals["alpha"]), columns, np.float64),
            tables_for(globals["discount"], int(max(customers.max(initial=0), 1))),
        )
        draws = TableDraws(
            int(moving),
            stream.at(purpose="above tables").key(),
            int(bool(globals["learn_discount"])),
            stream.at(purpose="above joins").key(),
        )
        sweep_shared_nodes(graph.arrays(), hyperparameters, draws, customers, tables, statistics)
    roots = np.diff(graph.node_edges) == 0
    found: dict[str, Any] = node_sums(
        graph.node_kind, roots, statistics.customers, statistics.tables, globals, stream.at(purpose="above")
    )
    sums, rising = statistics.kind_sums, statistics.alpha_numerator
    found["stirling"], found["joins"] = fresh(sums[:, 0], "kind"), fresh(sums[:, 1], "kind")
    found["rising"] = fresh(rising[:topics], "topic")
    return Above(customers[:, :topics].astype(np.int64), tables[:, :topics].astype(np.int64), found)
