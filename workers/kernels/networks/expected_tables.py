"""Expected tables and expected vectors of a network, from expected counts: what CV-HDP approximates, at every node.

A node has m_jk expected customers of value k, P(m_jk = 0) = exp(Z_jk), and expects t_jk tables. Given that there are
any, E+ = m / P+ customers come one by one, the first to a table of its own, each other to a new one with the chance
c / (c + i - a t), where i sit at t tables already and c = (b + a T_j) mu_jk, mu_jk = sum_l rho_jl E[nu_lk]: Chinese
restaurants, but for t in place of its distribution, and straight between whole numbers. Without discount these are
sums of c / (c + i), which psi(c + E+) - psi(c) stands for in CV-HDP. Tables go to parents in proportion to
rho_jl E[nu_lk].

Arrays have a row a node: first those above documents, of which mean and response are known, then a document's own.
"""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.argument_types import Number
from collapsium.workers.kernels.jit import borrower, helper
from collapsium.workers.kernels.moments import LARGEST
from collapsium.workers.kernels.networks.expected_records import OwnExpectedTopics
from collapsium.workers.kernels.networks.paths import is_root
from collapsium.workers.kernels.networks.records import GraphArrays
from collapsium.workers.kernels.networks.workspaces import (
    EdgeShares,
    ExpectedDocument,
    ExpectedPriors,
    ExpectedTotals,
)

# Customers that come one by one; further customers come in steps of one part in so many of those before
EXACT_CUSTOMERS, RELATIVE_STEP = 32, 16
# Arrays by node and topic: own counts and their Z, customers and theirs, tables, mu, E[nu], both responses
OWN, OWN_ABSENT, CUSTOMERS, ABSENT, TABLES, ABOVE, RISE, MEAN, RESPONSE = range(9)


@helper
def expected_tables(customers: float, base: float, discount: float) -> float:
    """Return the expected tables of so many customers, 1 or more."""
    tables, here = 1.0, 1.0
    while here < customers:
        step = 1.0 if here < EXACT_CUSTOMERS else math.floor(here / RELATIVE_STEP)
        step = min(step, customers - here)
        at = here + 0.5 * max(step - 1.0, 0.0)
        tables += step * base / (base + at - discount * tables)
        here += step
    return tables


@helper
def seated(customers: float, log_absent: float, base: float, discount: float) -> float:
    """Return E[t], never more than m nor less than P(m > 0) allows."""
    if customers <= 0.0:
        return 0.0
    present = -math.expm1(log_absent)
    if customers <= present:
        return customers
    return present * expected_tables(customers / present, base, discount)


@borrower
def expected_row_of(document: ExpectedDocument, node: int) -> Number:
    """Return the row of a node: shared nodes come first."""
    return node if node < document.shared else document.shared + node - document.first_node


@helper
def make_document(graph: GraphArrays, priors: ExpectedPriors, shared: int, nodes: int, edges: int) -> ExpectedDocument:
    """Allocate counts of so many nodes, shared ones among them, and edges."""
    totals, shares = ExpectedTotals(np.zeros(nodes), np.zeros(nodes)), EdgeShares(np.zeros(edges), np.zeros(edges))
    values = np.zeros((9, nodes, priors.alpha.size))
    return ExpectedDocument(graph, priors, values, totals, shares, shared, shared, shared)


@helper
def at_nodes(document: ExpectedDocument, first_node: int, end_node: int) -> ExpectedDocument:
    """Return the workspace with the nodes of another document."""
    return ExpectedDocument(
        document.graph, document.priors, document.values, document.totals, document.edges, document.shared,
        first_node, end_node,
    )  # fmt: skip


@borrower
def load_own(document: ExpectedDocument, own: OwnExpectedTopics) -> None:
    """Fill the nodes' own counts, and clear all others."""
    values, topics = document.values, document.values.shape[2]
    for node in range(document.first_node, document.end_node):
        row = expected_row_of(document, node)
        for array in range(9):
            for k in range(topics):
                values[array, row, k] = 0.0
        index = node - document.shared
        for entry in range(own.offsets[index], own.offsets[index + 1]):
            values[OWN, row, own.topic[entry]] = own.tokens[entry]
            values[OWN_ABSENT, row, own.topic[entry]] = own.log_absent[entry]


@borrower
def begin_document(document: ExpectedDocument) -> None:
    """Clear a document's tables; the shares of parents are those of the prior."""
    graph, share = document.graph, document.edges.share
    first = graph.node_edges[document.first_node]
    for node in range(document.first_node, document.end_node):
        document.totals.tables[expected_row_of(document, node)] = 0.0
        total = 0.0
        for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
            total += graph.edge_mixing[edge]
        for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
            share[edge - first] = graph.edge_mixing[edge] / total


@borrower
def gather(document: ExpectedDocument, count_shared: int, first_round: int) -> None:
    """Seat the customers of a document's nodes, from the last to the first; their tables are their parents' customers.

    In the first round nothing is known of the parents, and each topic that is there has one table. Customers of
    shared nodes are left as they are, unless they are to be counted.
    """
    values, topics = document.values, document.values.shape[2]
    for node in range(document.first_node, document.end_node):
        row = expected_row_of(document, node)
        for k in range(topics):
            values[CUSTOMERS, row, k] = values[OWN, row, k]
        for k in range(topics):
            values[ABSENT, row, k] = values[OWN_ABSENT, row, k]
    for node in range(document.end_node - 1, document.first_node - 1, -1):
        row = expected_row_of(document, node)
        total = 0.0
        for k in range(topics):
            total += values[CUSTOMERS, row, k]
        document.totals.customers[row] = total
        if not is_root(document.graph, node):
            _seat(document, node, count_shared, first_round)


@borrower
def _seat(document: ExpectedDocument, node: int, count_shared: int, first_round: int) -> None:
    """Seat the customers of a node."""
    graph, values, edges, kind = document.graph, document.values, document.edges, document.graph.node_kind[node]
    begin, end, offset = graph.node_edges[node], graph.node_edges[node + 1], graph.node_edges[document.first_node]
    row, discount = expected_row_of(document, node), document.priors.discount[kind]
    factor = document.priors.strength[kind] + discount * document.totals.tables[row]
    for edge in range(begin, end):
        edges.tables[edge - offset] = 0.0
    total = prior = 0.0
    for k in range(values.shape[2]):
        customers, log_absent = values[CUSTOMERS, row, k], values[ABSENT, row, k]
        if customers <= 0.0:
            values[TABLES, row, k] = 0.0
            continue
        present = -math.expm1(log_absent)
        tables = min(customers, present)
        if not first_round and customers > present:
            tables = present * expected_tables(customers / present, factor * values[ABOVE, row, k], discount)
        values[TABLES, row, k] = tables
        total += tables
        for edge in range(begin, end):
            parent = graph.edge_parent[edge]
            above = expected_row_of(document, parent)
            part = 1.0
            if end > begin + 1:
                part = edges.share[edge - offset]
                if not first_round:
                    part *= values[MEAN, above, k] / max(values[ABOVE, row, k], 1e-300)
            edges.tables[edge - offset] += part * tables
            if count_shared or parent >= document.shared:
                values[CUSTOMERS, above, k] += part * tables
                if not is_root(graph, parent) or document.priors.learn_alpha:
                    values[ABSENT, above, k] += math.log1p(-min(part * present, LARGEST))
    document.totals.tables[row] = total
    if end > begin + 1:
        for edge in range(begin, end):
            prior += graph.edge_mixing[edge]
        for edge in range(begin, end):
            edges.share[edge - offset] = (graph.edge_mixing[edge] + edges.tables[edge - offset]) / (prior + total)


@borrower
def inherit(document: ExpectedDocument, node: int) -> None:
    """Fill mu_jk, and by how much it would fall for each table of topic k that were not there."""
    graph, values, share = document.graph, document.values, document.edges.share
    row, begin, end = expected_row_of(document, node), graph.node_edges[node], graph.node_edges[node + 1]
    above, rise, offset = values[ABOVE, row], values[RISE, row], graph.node_edges[document.first_node]
    if end == begin + 1:
        parent = expected_row_of(document, graph.edge_parent[begin])
        for k in range(above.size):
            above[k] = values[MEAN, parent, k]
        for k in range(above.size):
            rise[k] = values[RESPONSE, parent, k]
        return
    above[:] = 0.0
    rise[:] = 0.0
    for edge in range(begin, end):
        parent, weight = expected_row_of(document, graph.edge_parent[edge]), share[edge - offset]
        mean, response = values[MEAN, parent], values[RESPONSE, parent]
        for k in range(above.size):
            above[k] += weight * mean[k]
            rise[k] += weight * weight * mean[k] * response[k]
    for k in range(above.size):
        rise[k] /= max(above[k], 1e-300)


@borrower
def expect(document: ExpectedDocument, node: int) -> None:
    """Fill E[nu_jk] from counts and mu_jk, and by how much it would fall without a customer of topic k."""
    row, priors, totals, values = expected_row_of(document, node), document.priors, document.totals, document.values
    mean, response, customers = values[MEAN, row], values[RESPONSE, row], values[CUSTOMERS, row]
    if is_root(document.graph, node):
        scale = 1.0 / (priors.concentration + totals.customers[row])
        for k in range(mean.size):
            mean[k] = (priors.alpha[k] + customers[k]) * scale
            response[k] = scale
        return
    kind = document.graph.node_kind[node]
    discount, strength = priors.discount[kind], priors.strength[kind]
    factor, scale = strength + discount * totals.tables[row], 1.0 / (strength + totals.customers[row])
    above, rise, tables = values[ABOVE, row], values[RISE, row], values[TABLES, row]
    for k in range(mean.size):
        base = factor * above[k]
        opened = base / (base + max(customers[k] - 1.0 - discount * max(tables[k] - 1.0, 0.0), 0.0) + 1e-300)
        mean[k] = (customers[k] - discount * tables[k] + base) * scale
        response[k] = (1.0 - discount * opened + factor * rise[k] * opened) * scale


@borrower
def expect_document(document: ExpectedDocument) -> None:
    """Fill E[nu] of a document's nodes, parents first."""
    for node in range(document.first_node, document.end_node):
        if not is_root(document.graph, node):
            inherit(document, node)
        expect(document, node)
