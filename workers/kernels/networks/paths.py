"""Gibbs sampling over a network of probability vectors: paths of tables that tokens go up and come down.

Every vector is integrated out (Buntine, Du and Nurmi 2010); what is left are whole counts, m_ik customers of value k
at node i, those of its own tokens and of tables below, who sit at t_ik tables whose heads are customers further up. A
token comes with a path: from its node to where a table that is there already, or a root, takes it in. Nodes that others
depend on have a row of counts each while their document is swept; those that nothing depends on, such as the segments
of a segmented model, share one, so that a document's work stays in the processor's nearest memory.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from collapsium.workers.kernels.jit import borrower
from collapsium.workers.kernels.networks.stirling import stirling_ratio
from collapsium.workers.kernels.random import uniform

Array = npt.NDArray[Any]

CHUNK = 16  # values whose weights are summed together; arrays by value are padded to a multiple
CLOCK = 0  # place in `clock` of the time of the last change


@borrower
def is_root(graph: Any, node: int) -> Any:
    """Tell whether a node has no parents."""
    return graph[1][node] == graph[1][node + 1]


@borrower
def slot_of(place: Any, node: int) -> Any:
    """Return the row of a node's counts."""
    return node if node < place[0] else place[1][node - place[2]]


@borrower
def edge_slot(graph: Any, place: Any, node: int, edge: int) -> Any:
    """Return the row of an edge's tables: an edge of a node that shares its row shares too."""
    if node < place[0]:
        return edge
    return place[3][node - place[2]] + edge - graph[1][node]


@borrower
def scale(graph: Any, priors: Any, customers: Array, node: int, slot: int) -> Any:
    """Return what Z_i is divided by: b + M_i, or at a root sum alpha + M_i."""
    if is_root(graph, node):
        return priors[3] + customers[slot]
    return priors[0][graph[0][node]] + customers[slot]


@borrower
def set_terms(graph: Any, priors: Any, rows: Any, node: int, slot: int, k: int) -> None:
    """Fill A_ik and B_ik from m_ik and t_ik."""
    m, t = rows[0][slot, k], rows[1][slot, k]
    if is_root(graph, node):
        rows[2][slot, k] = priors[2][k] + m
        return
    if m == 0:
        rows[2][slot, k], rows[3][slot, k] = 0.0, 1.0
        return
    kind = graph[0][node]
    discount = priors[1][kind]
    table = priors[4][kind]
    inverse = following = 0.0
    for more in range(2):  # in a loop, so that the compiler meets the ratio once
        ratio = stirling_ratio(table, discount, m, max(t + more, 2))
        if more == 0 and t > 1:
            inverse = 1.0 / ratio
        elif more == 1 and t < m:
            following = ratio
    rows[2][slot, k] = (m - t * discount + inverse) * (m + 1 - t) / (m + 1)
    rows[3][slot, k] = (1.0 + (m - (t + 1) * discount) * following) * (t + 1) / (m + 1)


@borrower
def share(graph: Any, totals: Any, node: int, slot: int, edge: int, edge_row: int) -> Any:
    """Return the chance that a table of a node is headed by an edge's parent: (g + s_e.) / (sum g + T)."""
    first, last = graph[1][node], graph[1][node + 1]
    if last == first + 1:
        return 1.0
    total = 0.0
    for one in range(first, last):
        total += graph[3][one]
    return (graph[3][edge] + totals[2][edge_row]) / (total + totals[1][slot])


@borrower
def mean_above(graph: Any, priors: Any, place: Any, rows: Any, totals: Any, node: int, slot: int, k: int) -> Any:
    """Return sum_e rho_e Z_parent(e)(k), the chance of a new table's value."""
    found = 0.0
    for edge in range(graph[1][node], graph[1][node + 1]):
        parent = graph[2][edge]
        above = slot_of(place, parent)
        weight = share(graph, totals, node, slot, edge, edge_slot(graph, place, node, edge))
        found += weight * rows[4][above, k] / scale(graph, priors, totals[0], parent, above)
    return found


@borrower
def spread(graph: Any, priors: Any, place: Any, rows: Any, totals: Any, node: int) -> None:
    """Fill Z_i, but for its divisor, from the parents': A_ik + B_ik (b + a T_i) sum_e rho_e Z_parent(e)(k)."""
    slot = slot_of(place, node)
    own, first, last = rows[4][slot], graph[1][node], graph[1][node + 1]
    if first == last:
        for k in range(own.size):
            own[k] = rows[2][slot, k]
        return
    kind = graph[0][node]
    factor = priors[0][kind] + priors[1][kind] * totals[1][slot]
    stay, up = rows[2][slot], rows[3][slot]
    if last == first + 1:
        parent = graph[2][first]
        above = slot_of(place, parent)
        factor /= scale(graph, priors, totals[0], parent, above)
        given = rows[4][above]
        for k in range(own.size):
            own[k] = stay[k] + up[k] * factor * given[k]
        return
    own[:] = 0.0
    for edge in range(first, last):
        parent = graph[2][edge]
        above = slot_of(place, parent)
        weight = share(graph, totals, node, slot, edge, edge_slot(graph, place, node, edge))
        weight *= factor / scale(graph, priors, totals[0], parent, above)
        given = rows[4][above]
        for k in range(own.size):
            own[k] += weight * given[k]
    for k in range(own.size):
        own[k] = stay[k] + up[k] * own[k]


@borrower
def refresh(graph: Any, priors: Any, place: Any, rows: Any, totals: Any, times: Any, line: Any, lowest: int) -> bool:
    """Bring Z of the nodes of a line, ancestors first, up to date with what has changed at and after `lowest`."""
    changed, computed, clock = times
    nodes, count = line
    first = count[0]
    while first > 0 and nodes[first - 1] > lowest:
        first -= 1
    again = False
    for one in range(first, count[0]):
        node = nodes[one]
        slot = slot_of(place, node)
        stale = computed[slot] < 0
        for edge in range(graph[1][node], graph[1][node + 1]):
            stale = stale or changed[slot_of(place, graph[2][edge])] > computed[slot]
        if stale:
            spread(graph, priors, place, rows, totals, node)
            clock[CLOCK] += 1
            changed[slot] = computed[slot] = clock[CLOCK]
            again = again or one == count[0] - 1
    return again


@borrower
def settle_path(
    graph: Any, priors: Any, place: Any, rows: Any, totals: Any, times: Any, path: Any, k: int, by: int
) -> Any:
    """Change the counts along a path by one customer each; return its topmost node."""
    nodes, via, length = path
    changed, _, clock = times
    clock[CLOCK] += 1
    for at in range(length[0]):
        node = nodes[at]
        slot = slot_of(place, node)
        rows[0][slot, k] += by
        totals[0][slot] += by
        if via[at] >= 0:
            row = edge_slot(graph, place, node, via[at])
            rows[5][row, k] += by
            totals[2][row] += by
            rows[1][slot, k] += by
            totals[1][slot] += by
        set_terms(graph, priors, rows, node, slot, k)
        changed[slot] = clock[CLOCK]
    top = nodes[length[0] - 1]
    slot = slot_of(place, top)
    if is_root(graph, top):
        rows[4][slot, k] = rows[2][slot, k]
    else:
        kind = graph[0][top]
        factor = priors[0][kind] + priors[1][kind] * totals[1][slot]
        above = mean_above(graph, priors, place, rows, totals, top, slot, k)
        rows[4][slot, k] = rows[2][slot, k] + rows[3][slot, k] * factor * above
    return top


@borrower
def find_way_out(
    graph: Any, place: Any, rows: Any, path: Any, node: int, k: int, key: Array, number: int, held: int
) -> bool:
    """Draw the path by which a customer leaves; tell whether the counts allow it."""
    nodes, via, length = path
    at = 0
    allowed = True
    while True:
        if held and node < place[0]:  # what lies above stays as it is
            break
        nodes[at], via[at] = node, -1
        if is_root(graph, node):
            at += 1
            break
        slot = slot_of(place, node)
        left = uniform(key, number + at) * rows[0][slot, k]
        for edge in range(graph[1][node], graph[1][node + 1]):
            left -= rows[5][edge_slot(graph, place, node, edge), k]
            if left < 0.0:
                via[at] = edge
                break
        if rows[0][slot, k] > 1 and rows[1][slot, k] == 1 and via[at] >= 0:
            allowed = False
        at += 1
        if via[at - 1] < 0:
            break
        node = graph[2][via[at - 1]]
    length[0] = at
    return allowed


@borrower
def find_way_in(
    graph: Any, priors: Any, place: Any, rows: Any, totals: Any, path: Any, node: int, k: int, key: Array, number: int,
    held: int,
) -> None:  # fmt: skip
    """Draw the path by which a customer of value k enters: at each node a table that is there, or a new one."""
    nodes, via, length = path
    at = 0
    while True:
        if held and node < place[0]:
            break
        nodes[at], via[at] = node, -1
        if is_root(graph, node):
            at += 1
            break
        slot, kind = slot_of(place, node), graph[0][node]
        factor = rows[3][slot, k] * (priors[0][kind] + priors[1][kind] * totals[1][slot])
        stay = rows[2][slot, k]
        left = uniform(key, number + at)
        left *= stay + factor * mean_above(graph, priors, place, rows, totals, node, slot, k)
        for edge in range(graph[1][node], graph[1][node + 1]):
            parent = graph[2][edge]
            above = slot_of(place, parent)
            weight = share(graph, totals, node, slot, edge, edge_slot(graph, place, node, edge))
            left -= factor * weight * rows[4][above, k] / scale(graph, priors, totals[0], parent, above)
            if left < 0.0 or (edge == graph[1][node + 1] - 1 and stay == 0.0):
                via[at] = edge
                break
        at += 1
        if via[at - 1] < 0:
            break
        node = graph[2][via[at - 1]]
    length[0] = at


@borrower
def draw_value(
    given: Array, inverse: Array, row: Array, prior: float, chance: float, weight: Array, sums: Array
) -> int:
    """Draw a value in proportion to Z_j(k) (n_kw + b) / (n_k + B)."""
    total = 0.0
    for chunk in range(sums.size):
        here = 0.0
        for inside in range(CHUNK):
            k = chunk * CHUNK + inside
            one = given[k] * inverse[k] * (row[k] + prior)
            weight[k] = one
            here += one
        sums[chunk] = here
        total += here
    left, chunk = chance * total, 0
    while chunk < sums.size - 1 and left >= sums[chunk]:
        left -= sums[chunk]
        chunk += 1
    k = chunk * CHUNK
    last = k + CHUNK - 1
    while k < last and left >= weight[k]:
        left -= weight[k]
        k += 1
    while k > 0 and weight[k] <= 0.0:  # rounding has led past the last value that has a weight
        k -= 1
    return k


@borrower
def make_line(graph: Any, place: Any, line: Any, marks: Any, before: int, node: int) -> bool:
    """List a node behind its ancestors, these in their order; tell whether the list before was only added to."""
    nodes, count = line
    seen, epoch, stack = marks
    above, base = place[0], place[2]
    extends = False
    every = before >= 0
    for edge in range(graph[1][node], graph[1][node + 1]):
        parent = graph[2][edge]
        extends = extends or parent == before
        every = every and seen[parent if parent < above else above + parent - base] == epoch[0]
    if not (extends and every):
        epoch[0] += 1
        count[0] = 0
    seen[node if node < above else above + node - base] = epoch[0]
    nodes[count[0]] = node
    count[0] += 1
    if extends and every:
        return True
    waiting = 1
    stack[0] = node
    while waiting:
        waiting -= 1
        here = stack[waiting]
        for edge in range(graph[1][here], graph[1][here + 1]):
            parent = graph[2][edge]
            at = parent if parent < above else above + parent - base
            if seen[at] != epoch[0]:
                seen[at] = epoch[0]
                nodes[count[0]] = parent
                count[0] += 1
                stack[waiting] = parent
                waiting += 1
    for last in range(1, count[0]):  # few, and nearly in order
        here, at = nodes[last], last
        while at > 0 and nodes[at - 1] > here:
            nodes[at] = nodes[at - 1]
            at -= 1
        nodes[at] = here
    return False
