"""The vectors above documents, as the driver sees them: their tables drawn anew, and sums over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import F8, F8_2, I4, I8, OUT_F8, OUT_F8_2, OUT_I4_2, OUT_I8, U8, i8, kernel
from collapsium.workers.kernels.networks.node_counts import finish_node, load_above, make_terms, room
from collapsium.workers.kernels.networks.tables import move_tables

Array = npt.NDArray[Any]


@kernel(
    I4, I8, I8, F8, F8, F8, F8, F8_2, U8, U8, i8, i8, OUT_I4_2, OUT_I4_2, OUT_I8, OUT_I8, OUT_F8_2, OUT_F8,
)  # fmt: skip
def visit_above(
    node_kind: Array,
    node_edges: Array,
    edge_parent: Array,
    edge_mixing: Array,
    strength: Array,
    discount: Array,
    alpha: Array,
    ratios: Array,
    table_key: Array,
    join_key: Array,
    moving: int,
    learning: int,
    customers: Array,
    tables: Array,
    node_customers: Array,
    node_tables: Array,
    sums: Array,
    rising: Array,
) -> None:
    """Draw the table counts of all vectors above documents, children first, and sum up; twin: `naive.network`.

    Parameters
    ----------
    node_kind, node_edges, edge_parent, edge_mixing, strength, discount, alpha, ratios, table_key, join_key
        As for `network_sweep.sweep_network`.
    moving, learning : int
        Whether to draw table counts, and what discounts follow from.
    customers, tables : int32, shape (nodes, values) and (edges, values)
        m and s; moved.
    node_customers, node_tables, sums, rising
        As there.
    """
    graph, values, nodes = (node_kind, node_edges, edge_parent, edge_mixing), alpha.size, node_kind.size
    priors = strength, discount, alpha, alpha.sum(), ratios, values
    rows, totals, times, _, _, _, place = room(graph, np.array([nodes]), np.ones(nodes, dtype=np.int64), values, 1)
    load_above(graph, priors, rows, totals, customers, tables)
    for node in range(nodes):
        make_terms(graph, priors, rows, node, node)
    none, state = np.zeros(0, dtype=np.int64), np.zeros(4, dtype=np.int64)
    made = (
        none, np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.uint16), np.zeros(0, dtype=np.int32), node_customers,
        node_tables, sums, rising, state, learning, join_key,
    )  # fmt: skip
    for node in range(nodes - 1, -1, -1):
        if moving:
            move_tables(graph, priors, place, rows, totals, times, node, table_key, 0)
        finish_node(graph, priors, place, rows, totals, made, node)
    for node in range(nodes):
        customers[node] = rows[0][node]
        for edge in range(node_edges[node], node_edges[node + 1]):
            tables[edge] = rows[5][edge]
