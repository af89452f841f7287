"""Nodes that documents share, between sweeps: their tables drawn anew, and sums over them."""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.argument_types import OutInt32Matrix
from collapsium.workers.kernels.jit import kernel
from collapsium.workers.kernels.networks.node_counts import (
    fill_terms,
    load_shared,
    make_sampler,
    store_node,
    store_shared,
)
from collapsium.workers.kernels.networks.records import (
    GraphArrays,
    NewTableEntries,
    NodeStatistics,
    SamplingHyperparameters,
    SweepResults,
    TableDraws,
)
from collapsium.workers.kernels.networks.tables import move_tables
from collapsium.workers.kernels.networks.workspaces import Priors


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
    none = NewTableEntries(
        np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.uint16),
        np.zeros(0, dtype=np.int32),
    )  # fmt: skip
    results = SweepResults(none, statistics, np.zeros(4, dtype=np.int64))
    for node in range(nodes - 1, -1, -1):
        if draws.move:
            move_tables(sampler, node, draws.key, 0)
        store_node(sampler, results, draws, node)
    store_shared(sampler, customers, tables)
