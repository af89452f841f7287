"""Nodes that documents share: counts that all shards change, drawn anew on the driver between sweeps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.networks.graph import Graph
from collapsium.workers.families.networks.sampler import padded, sampling_hyperparameters, wide
from collapsium.workers.families.networks.states import Ints, SampledNetworkGlobalState
from collapsium.workers.families.networks.sums import NodeTotals, SampledSums
from collapsium.workers.kernels.networks.records import NodeStatistics, TableDraws
from collapsium.workers.kernels.networks.shared_nodes import sweep_shared_nodes


def repair_tables(graph: Graph, customers: Ints, tables: Ints) -> tuple[Ints, Ints]:
    """Return tables that their customers allow, after shards have changed them independently."""
    own = customers.copy()
    np.subtract.at(own, graph.edge_parent, tables)
    repaired = np.maximum(tables, 0)  # several shards may have removed the same one
    total = own.copy()
    for node in range(graph.shared - 1, -1, -1):  # children first, as their tables are their parents' customers
        first, last = int(graph.node_edges[node]), int(graph.node_edges[node + 1])
        if first == last:
            continue
        most = total[node]
        for edge in range(first, last):  # what the edges before have left
            repaired[edge] = np.minimum(repaired[edge], most - repaired[first:edge].sum(axis=0))
        lacking = (most > 0) & (repaired[first:last].sum(axis=0) == 0)
        repaired[first] += lacking
        for edge in range(first, last):
            total[graph.edge_parent[edge]] += repaired[edge]
    return total, repaired


@dataclass(frozen=True)
class SharedSweep:
    """Shared nodes after their tables were drawn."""

    # m and s; int64 (shared nodes or their edges, topics)
    customers: Ints
    tables: Ints
    sums: SampledSums  # Sums over the shared nodes


def sweep_shared(
    global_state: SampledNetworkGlobalState, stream: Stream, *, move: bool, count_joins: bool = False
) -> SharedSweep:
    """Draw the table counts of the shared nodes, or leave them, and sum over the nodes."""
    graph, topics = global_state.plan.shared_graph(), global_state.alpha.size
    columns, nodes = padded(topics), graph.shared
    customers = wide(np.asarray(global_state.shared_customers), columns, np.int32)
    tables = wide(np.asarray(global_state.shared_tables), columns, np.int32)
    statistics = NodeStatistics(
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros((global_state.strength.size, 2)),
        np.zeros(columns),
    )
    if nodes:  # the kernel takes long to compile
        keys = (stream.at(purpose=f"above {name}").key() for name in ("tables", "joins"))
        table_key, join_key = keys
        sweep_shared_nodes(
            graph.record,
            sampling_hyperparameters(global_state, int(max(customers.max(initial=0), 1))),
            TableDraws(int(move), table_key, int(count_joins), join_key),
            customers,
            tables,
            statistics,
        )
    totals = NodeTotals(graph.node_kind, graph.is_root, statistics.customers, statistics.tables)
    sums = SampledSums.of(totals, statistics, global_state, stream.at(purpose="above"))
    return SharedSweep(customers[:, :topics].astype(np.int64), tables[:, :topics].astype(np.int64), sums)
