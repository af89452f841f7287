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
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import helper
from collapsium.workers.kernels.moments import LARGEST
from collapsium.workers.kernels.networks.paths import is_root

Array = npt.NDArray[Any]

SINGLY, PIECES = 32, 16  # customers that come one by one; so many parts of those before come together later
OWN, OWN_ABSENT, CUSTOMERS, ABSENT, TABLES, ABOVE, RISE, MEAN, RESPONSE = range(9)  # arrays of a node and value


@helper
def climbed(customers: float, base: float, discount: float) -> float:
    """Return the expected tables of so many customers, 1 or more."""
    tables, here = 1.0, 1.0
    while here < customers:
        step = 1.0 if here < SINGLY else math.floor(here / PIECES)
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
    return present * climbed(customers / present, base, discount)


@helper
def row_of(place: Any, node: int) -> Any:
    """Return the row of a node; `place` has how many nodes stand above, and the document's first."""
    return node if node < place[0] else place[0] + node - place[1]


@helper
def make_room(nodes: int, edges: int, values: int) -> Any:
    """Return arrays of so many rows and edges: by value; M, T; rho and tables of edges."""
    rows = np.zeros((9, nodes, values))
    return rows, (np.zeros(nodes), np.zeros(nodes)), (np.zeros(edges), np.zeros(edges))


@helper
def load_own(place: Any, rows: Any, lists: Any, low: int, high: int) -> None:
    """Fill the nodes' own counts from lists, and forget all else; `lists` begin with the first node below."""
    starts, topic, count, log_absent = lists
    for node in range(low, high):
        row = row_of(place, node)
        for array in range(9):
            rows[array, row, :] = 0.0
        listed = node - place[0]
        for entry in range(starts[listed], starts[listed + 1]):
            rows[OWN, row, topic[entry]] = count[entry]
            rows[OWN_ABSENT, row, topic[entry]] = log_absent[entry]


@helper
def begin_document(graph: Any, place: Any, totals: Any, edges: Any, low: int, high: int) -> None:
    """Forget a document's tables, and let them go to parents by their prior alone."""
    first = graph[1][low]
    for node in range(low, high):
        totals[1][row_of(place, node)] = 0.0
        total = 0.0
        for edge in range(graph[1][node], graph[1][node + 1]):
            total += graph[3][edge]
        for edge in range(graph[1][node], graph[1][node + 1]):
            edges[0][edge - first] = graph[3][edge] / total


@helper
def gather(graph: Any, priors: Any, place: Any, rows: Any, totals: Any, edges: Any, span: Any, first: int) -> None:
    """Seat the customers of a document's nodes, from the last to the first, whose tables are their parents' customers.

    In the first round nothing is known of what lies above, and each value that is there has one table. Customers of
    nodes above the document are left, unless they are to be counted.

    Parameters
    ----------
    graph : tuple of numpy.ndarray
        Kinds of nodes, where their edges begin, parents and mixing parameters.
    priors : tuple
        b, a, alpha, its sum, and whether alpha is learned.
    place : tuple of int
        How many nodes stand above documents, and the document's first.
    rows : numpy.ndarray of float64, shape (9, rows, topics)
        What is known of each node and value; customers, absences and tables are filled.
    totals : tuple of numpy.ndarray of float64, shape (rows,)
        M and T; filled.
    edges : tuple of numpy.ndarray of float64, shape (edges of the document,)
        rho and tables; filled.
    span : tuple of int
        The document's nodes, from and to, and whether customers above are counted.
    first : int
        Whether this is the first round.
    """
    low, high, counting = span
    for node in range(low, high):
        row = row_of(place, node)
        rows[CUSTOMERS, row, :] = rows[OWN, row]
        rows[ABSENT, row, :] = rows[OWN_ABSENT, row]
    for node in range(high - 1, low - 1, -1):
        row = row_of(place, node)
        total = 0.0
        for k in range(rows.shape[2]):
            total += rows[CUSTOMERS, row, k]
        totals[0][row] = total
        if not is_root(graph, node):
            _seat(graph, priors, place, rows, totals, edges, (node, row, graph[1][low], counting), first)


@helper
def _seat(graph: Any, priors: Any, place: Any, rows: Any, totals: Any, edges: Any, at: Any, first: int) -> None:
    """Seat the customers of a node."""
    node, row, offset, counting = at
    begin, end = graph[1][node], graph[1][node + 1]
    discount = priors[1][graph[0][node]]
    factor = priors[0][graph[0][node]] + discount * totals[1][row]
    for edge in range(begin, end):
        edges[1][edge - offset] = 0.0
    tables = prior = 0.0
    for k in range(rows.shape[2]):
        customers, log_absent = rows[CUSTOMERS, row, k], rows[ABSENT, row, k]
        if customers <= 0.0:
            rows[TABLES, row, k] = 0.0
            continue
        present = -math.expm1(log_absent)
        found = min(customers, present)
        if not first and customers > present:
            found = present * climbed(customers / present, factor * rows[ABOVE, row, k], discount)
        rows[TABLES, row, k] = found
        tables += found
        for edge in range(begin, end):
            parent = graph[2][edge]
            part = 1.0
            if end > begin + 1:
                part = edges[0][edge - offset]
                if not first:
                    part *= rows[MEAN, row_of(place, parent), k] / max(rows[ABOVE, row, k], 1e-300)
            edges[1][edge - offset] += part * found
            if counting or parent >= place[0]:
                rows[CUSTOMERS, row_of(place, parent), k] += part * found
                if not is_root(graph, parent) or priors[4]:
                    rows[ABSENT, row_of(place, parent), k] += math.log1p(-min(part * present, LARGEST))
    totals[1][row] = tables
    if end > begin + 1:
        for edge in range(begin, end):
            prior += graph[3][edge]
        for edge in range(begin, end):
            edges[0][edge - offset] = (graph[3][edge] + edges[1][edge - offset]) / (prior + tables)


@helper
def inherit(graph: Any, place: Any, rows: Any, edges: Any, node: int, offset: int) -> None:
    """Fill mu_jk, and by how much it would fall for each table of value k that were not there."""
    row, begin, end = row_of(place, node), graph[1][node], graph[1][node + 1]
    above, rise = rows[ABOVE, row], rows[RISE, row]
    if end == begin + 1:
        above[:] = rows[MEAN, row_of(place, graph[2][begin])]
        rise[:] = rows[RESPONSE, row_of(place, graph[2][begin])]
        return
    above[:] = 0.0
    rise[:] = 0.0
    for edge in range(begin, end):
        parent, weight = row_of(place, graph[2][edge]), edges[0][edge - offset]
        given, response = rows[MEAN, parent], rows[RESPONSE, parent]
        for k in range(above.size):
            above[k] += weight * given[k]
            rise[k] += weight * weight * given[k] * response[k]
    for k in range(above.size):
        rise[k] /= max(above[k], 1e-300)


@helper
def expect(graph: Any, priors: Any, place: Any, rows: Any, totals: Any, node: int) -> None:
    """Fill E[nu_jk] from counts and mu_jk, and by how much it would fall without a customer of value k."""
    row = row_of(place, node)
    mean, response, customers = rows[MEAN, row], rows[RESPONSE, row], rows[CUSTOMERS, row]
    if is_root(graph, node):
        scale = 1.0 / (priors[3] + totals[0][row])
        for k in range(mean.size):
            mean[k] = (priors[2][k] + customers[k]) * scale
            response[k] = scale
        return
    discount, strength = priors[1][graph[0][node]], priors[0][graph[0][node]]
    factor, scale = strength + discount * totals[1][row], 1.0 / (strength + totals[0][row])
    above, rise, tables = rows[ABOVE, row], rows[RISE, row], rows[TABLES, row]
    for k in range(mean.size):
        base = factor * above[k]
        opened = base / (base + max(customers[k] - 1.0 - discount * max(tables[k] - 1.0, 0.0), 0.0) + 1e-300)
        mean[k] = (customers[k] - discount * tables[k] + base) * scale
        response[k] = (1.0 - discount * opened + factor * rise[k] * opened) * scale


@helper
def spread_down(graph: Any, priors: Any, place: Any, rows: Any, totals: Any, edges: Any, span: Any) -> None:
    """Fill what the vectors of a document's nodes are expected to be, parents first."""
    low, high, _ = span
    for node in range(low, high):
        if not is_root(graph, node):
            inherit(graph, place, rows, edges, node, graph[1][low])
        expect(graph, priors, place, rows, totals, node)
