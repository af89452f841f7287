"""Table counts of a network drawn anew, each given all others and the tokens' values."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from collapsium.workers.kernels.jit import borrower
from collapsium.workers.kernels.networks.paths import edge_slot, is_root, scale, set_terms, slot_of
from collapsium.workers.kernels.networks.stirling import stirling_ratio
from collapsium.workers.kernels.random import uniform

Array = npt.NDArray[Any]

CLIMB, FALL, UPWARDS, DOWNWARDS, CHOOSE = range(5)  # what `_walk` does
NEGLIGIBLE = 1e-25  # of the most probable number, beyond which numbers are no longer looked at


@borrower
def more_tables(graph: Any, priors: Any, place: Any, rows: Any, totals: Any, edge: Any, k: int, by: int) -> Any:
    """Return p(s + by + 1) / p(s + by) of the tables s of value k on an edge (node, edge, its row, held)."""
    node, number, row, held = edge
    slot, kind, parent = slot_of(place, node), graph[0][node], graph[2][number]
    m, t = rows[0][slot, k], rows[1][slot, k] + by
    discount = priors[1][kind]
    found = priors[0][kind] + discount * (totals[1][slot] + by)
    found *= stirling_ratio(priors[4][kind], discount, m, t + 1) if t > 0 else 1.0
    if graph[1][node + 1] - graph[1][node] > 1:
        total = totals[1][slot] + by
        for one in range(graph[1][node], graph[1][node + 1]):
            total += graph[3][one]
        found *= (t + 1) / (rows[5][row, k] + by + 1) * (graph[3][number] + totals[2][row] + by) / total
    above = slot_of(place, parent)
    divisor = scale(graph, priors, totals[0], parent, above)
    if held and parent < place[0]:
        return found * rows[4][above, k] / divisor
    customers, divisor = rows[0][above, k] + by, divisor + by
    if is_root(graph, parent):
        return found * (priors[2][k] + customers) / divisor
    tables, kind = rows[1][above, k], graph[0][parent]
    weight = customers - tables * priors[1][kind]
    if tables > 1:
        weight += 1.0 / stirling_ratio(priors[4][kind], priors[1][kind], customers, tables)
    return found * weight / divisor


@borrower
def draw_tables(graph: Any, priors: Any, place: Any, rows: Any, totals: Any, edge: Any, k: int, chance: float) -> int:
    """Draw by how much the tables of value k on an edge change, from all numbers that all constraints allow."""
    node, number, row, held = edge
    slot, parent = slot_of(place, node), graph[2][number]
    m, t, s = rows[0][slot, k], rows[1][slot, k], rows[5][row, k]
    low, high = max(-s, 1 - t), m - t
    if not is_root(graph, parent) and not (held and parent < place[0]):
        above = slot_of(place, parent)
        low = max(low, rows[1][above, k] - rows[0][above, k])
        if rows[0][above, k] == 0:
            high = 0
    if low == high:
        return int(low)
    drawn: int = _walk(graph, priors, place, rows, totals, edge, k, chance, low, high)
    return drawn


@borrower
def _walk(
    graph: Any, priors: Any, place: Any, rows: Any, totals: Any, edge: Any, k: int, chance: float, low: int, high: int
) -> int:
    """Draw from `low` to `high`: find the most probable number, sum to both sides of it, and go up from the lowest.

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
            left, step = chance * total - weight, CHOOSE
        if step == CHOOSE and (at == last or left < 0.0):
            return at
        down = step in (FALL, DOWNWARDS)
        ratio = more_tables(graph, priors, place, rows, totals, edge, k, at - 1 if down else at)
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
def move_tables(
    graph: Any, priors: Any, place: Any, rows: Any, totals: Any, times: Any, node: int, key: Array, held: int
) -> None:
    """Draw all table counts of a node; number e K + k of the stream belongs to those of edge e and value k."""
    slot, values = slot_of(place, node), priors[5]
    changed, computed, clock = times
    for number in range(graph[1][node], graph[1][node + 1]):
        row, parent = edge_slot(graph, place, node, number), graph[2][number]
        above = slot_of(place, parent)
        fixed = held and parent < place[0]
        for k in range(values):
            if rows[0][slot, k] < 2 and rows[1][slot, k] == rows[5][row, k]:
                continue  # none, or one customer, who sits at one table
            edge = node, number, row, held
            by = draw_tables(graph, priors, place, rows, totals, edge, k, uniform(key, number * values + k))
            if by == 0:
                continue
            rows[5][row, k] += by
            totals[2][row] += by
            rows[1][slot, k] += by
            totals[1][slot] += by
            clock[0] += 1
            changed[slot], computed[slot] = clock[0], -1
            set_terms(graph, priors, rows, node, slot, k)
            if fixed:
                continue
            rows[0][above, k] += by
            totals[0][above] += by
            set_terms(graph, priors, rows, parent, above, k)
            changed[above] = clock[0]
            if is_root(graph, parent):
                rows[4][above, k] = rows[2][above, k]
            else:
                computed[above] = -1
