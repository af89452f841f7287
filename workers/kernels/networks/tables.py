"""Table counts of a network, each drawn given all others and the tokens' topics."""

from __future__ import annotations

from collapsium.workers.kernels.argument_types import Array, Number
from collapsium.workers.kernels.jit import borrower
from collapsium.workers.kernels.networks.paths import divisor_of, edge_row_of, is_root, log_change, row_of, set_terms
from collapsium.workers.kernels.networks.stirling import stirling_ratio
from collapsium.workers.kernels.networks.workspaces import Sampler, TableCell
from collapsium.workers.kernels.random import uniform

CLIMB, FALL, UPWARDS, DOWNWARDS, CHOOSE = range(5)  # Phases of `_draw_between`
NEGLIGIBLE = 1e-25  # Weight relative to the most probable number, below which numbers are ignored


@borrower
def neighbour_ratio(sampler: Sampler, cell: TableCell, by: int) -> Number:
    """Return p(s + by + 1) / p(s + by) of the tables s of an edge and topic."""
    graph, priors, counts, totals = sampler.graph, sampler.priors, sampler.counts, sampler.totals
    node, edge, k = cell.node, cell.edge, cell.topic
    row, kind, parent = row_of(sampler.rows, node), graph.node_kind[node], graph.edge_parent[edge]
    m, t = counts.customers[row, k], counts.tables[row, k] + by
    discount = priors.discount[kind]
    ratio = priors.strength[kind] + discount * (totals.tables[row] + by)
    ratio *= stirling_ratio(priors.stirling_ratios[kind], discount, m, t + 1) if t > 0 else 1.0
    if graph.node_edges[node + 1] - graph.node_edges[node] > 1:
        total = totals.tables[row] + by
        for other in range(graph.node_edges[node], graph.node_edges[node + 1]):
            total += graph.edge_mixing[other]
        share = (graph.edge_mixing[edge] + totals.edge_tables[cell.row] + by) / total
        ratio *= (t + 1) / (counts.edge_tables[cell.row, k] + by + 1) * share
    above = row_of(sampler.rows, parent)
    divisor = divisor_of(sampler, parent, above)
    if cell.fold_in and parent < sampler.rows.shared:
        return ratio * counts.weight[above, k] / divisor
    customers, divisor = counts.customers[above, k] + by, divisor + by
    if is_root(graph, parent):
        return ratio * (priors.alpha[k] + customers) / divisor
    tables, kind = counts.tables[above, k], graph.node_kind[parent]
    weight = customers - tables * priors.discount[kind]
    if tables > 1:
        weight += 1.0 / stirling_ratio(priors.stirling_ratios[kind], priors.discount[kind], customers, tables)
    return ratio * weight / divisor


@borrower
def draw_change(sampler: Sampler, cell: TableCell, random: float) -> int:
    """Draw by how much the tables of an edge and topic change, from all numbers that the counts allow."""
    counts, k, parent = sampler.counts, cell.topic, sampler.graph.edge_parent[cell.edge]
    row = row_of(sampler.rows, cell.node)
    m, t, s = counts.customers[row, k], counts.tables[row, k], counts.edge_tables[cell.row, k]
    low, high = max(-s, 1 - t), m - t
    if not is_root(sampler.graph, parent) and not (cell.fold_in and parent < sampler.rows.shared):
        above = row_of(sampler.rows, parent)
        low = max(low, counts.tables[above, k] - counts.customers[above, k])
        if counts.customers[above, k] == 0:
            high = 0
    if low == high:
        return int(low)
    drawn: int = _draw_between(sampler, cell, random, low, high)
    return drawn


@borrower
def _draw_between(sampler: Sampler, cell: TableCell, random: float, low: int, high: int) -> int:
    """Draw from `low` to `high`: climb to the most probable number, sum on both sides of it, choose from the lowest.

    All of it is one loop, so that the compiler meets the ratio of neighbours once.
    """
    at = best = last = 0
    step, weight, total, left = CLIMB, 1.0, 1.0, 0.0
    while True:
        if step == CLIMB and at == high:
            step = FALL
        if step == FALL and at == low:
            best, step = at, UPWARDS
        if step == UPWARDS and (at == high or weight <= NEGLIGIBLE):
            last, at, weight, step = at, best, 1.0, DOWNWARDS
        if step == DOWNWARDS and (at == low or weight <= NEGLIGIBLE):
            left, step = random * total - weight, CHOOSE
        if step == CHOOSE and (at == last or left < 0.0):
            return at
        down = step in (FALL, DOWNWARDS)
        ratio = neighbour_ratio(sampler, cell, at - 1 if down else at)
        if step == CLIMB:
            if ratio > 1.0:
                at += 1
            else:
                step = FALL
        elif step == FALL:
            if ratio < 1.0:
                at -= 1
            else:
                best, step = at, UPWARDS
        elif step == UPWARDS:
            weight *= ratio
            total += weight
            at += 1
        elif step == DOWNWARDS:
            weight /= ratio
            total += weight
            at -= 1
        else:
            weight *= ratio
            left -= weight
            at += 1


@borrower
def move_tables(sampler: Sampler, node: int, key: Array, fold_in: int) -> None:
    """Draw all table counts of a node; number e K + k of the random stream belongs to edge e and topic k."""
    graph, counts, totals, clock = sampler.graph, sampler.counts, sampler.totals, sampler.clock
    row, topics = row_of(sampler.rows, node), sampler.priors.alpha.size
    for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
        edge_row, parent = edge_row_of(graph, sampler.rows, node, edge), graph.edge_parent[edge]
        above = row_of(sampler.rows, parent)
        fixed = fold_in and parent < sampler.rows.shared
        for k in range(topics):
            if counts.customers[row, k] < 2 and counts.tables[row, k] == counts.edge_tables[edge_row, k]:
                continue  # none, or one customer, who sits at one table
            cell = TableCell(node, edge, edge_row, fold_in, k)
            by = draw_change(sampler, cell, uniform(key, edge * topics + k))
            if by == 0:
                continue
            counts.edge_tables[edge_row, k] += by
            totals.edge_tables[edge_row] += by
            counts.tables[row, k] += by
            totals.tables[row] += by
            clock.now[0] += 1
            clock.changed[row], clock.computed[row] = clock.now[0], -1
            log_change(sampler, node if fixed else parent)
            set_terms(sampler, node, row, k)
            if fixed:
                continue
            counts.customers[above, k] += by
            totals.customers[above] += by
            set_terms(sampler, parent, above, k)
            clock.changed[above] = clock.now[0]
            if is_root(graph, parent):
                counts.weight[above, k] = counts.join_weight[above, k]
            else:
                clock.computed[above] = -1
