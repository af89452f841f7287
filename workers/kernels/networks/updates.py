"""Updates of responsibilities over a network of vectors, by expected tables; and the vectors that follow from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.cvb.active import UNIT
from collapsium.workers.kernels.jit import (
    F4,
    F8,
    F8_2,
    I4,
    I8,
    OUT_F4_2,
    OUT_F8,
    OUT_F8_2,
    OUT_U1,
    OUT_U2,
    U1,
    U2,
    f8,
    helper,
    i8,
    kernel,
)
from collapsium.workers.kernels.networks.expected_tables import (
    ABOVE,
    ABSENT,
    CUSTOMERS,
    MEAN,
    OWN,
    OWN_ABSENT,
    RESPONSE,
    RISE,
    TABLES,
    begin_document,
    expect,
    gather,
    inherit,
    load_own,
    make_room,
    row_of,
    seated,
    spread_down,
)
from collapsium.workers.kernels.networks.paths import is_root
from collapsium.workers.kernels.networks.topic_lists import absences, choose

Array = npt.NDArray[Any]

ROUNDS = 3  # in which tables are made from counts alone
LEAST = 1e-3  # part of mu_jk that stays when a pair's own tables are taken off


@helper
def _largest(node_edges: Array, document_nodes: Array) -> Any:
    """Return the most nodes and edges that a document has."""
    nodes = edges = 0
    for document in range(document_nodes.size - 1):
        low, high = document_nodes[document], document_nodes[document + 1]
        nodes, edges = max(nodes, high - low), max(edges, node_edges[high] - node_edges[low])
    return nodes, edges


@kernel(
    I4, I8, I8, F8, I8, F8, F8, F8, F8_2, F8_2, i8, f8, I8, I4, I4, I8, U2, F4, F4, U1, U2, U2, OUT_F4_2, OUT_F8,
    OUT_F8_2, OUT_U1, OUT_U2, OUT_U2, OUT_F8, OUT_F8, OUT_F8_2, OUT_F8_2, OUT_F8, OUT_F8,
)  # fmt: skip
def sweep_expected(
    node_kind: Array, node_edges: Array, edge_parent: Array, edge_mixing: Array, document_nodes: Array,
    strength: Array, discount: Array, alpha: Array, above_mean: Array, above_response: Array, held: int,
    word_prior: float, pairs: Array, position: Array, counts: Array, own_lists: Array,
    own_topic: Array, own_count: Array, own_absent: Array, size: Array, topic: Array, share: Array, running: Array,
    totals: Array, moved: Array, new_size: Array, new_topic: Array, new_share: Array, node_customers: Array,
    node_tables: Array, above_customers: Array, above_absent: Array, rising: Array, sums: Array,
) -> None:  # fmt: skip
    """Update the responsibilities of a shard's pairs, one after another; twin: `naive.network_expected.sweep`.

    q_k ~ E[nu_j]'(k) (b + E'[n_kw]) / (B + E'[n_k]), a prime meaning without the pair's own share: of m_jk, of its
    tables, and of what these add to mu_jk.

    Parameters
    ----------
    node_kind, node_edges, edge_parent, edge_mixing, document_nodes, strength, discount, alpha
        As for `network_sweep.sweep_network`.
    above_mean, above_response : float64, shape (nodes above, topics)
        E[nu] of vectors above documents, and by how much it would fall without a customer.
    held : int
        Whether words stay as they are: `running` then has phi_kw.
    word_prior : float
        b.
    pairs : int64, shape (nodes of documents + 1,)
        Where each node's pairs begin.
    position, counts : int32, shape (pairs,)
        Row and count of each pair.
    own_lists, own_topic, own_count, own_absent
        E and Z of each node's own tokens, as `network_shares.list_shares` fills them.
    size, topic, share
        The pairs' lists, as `network_shares.give` fills them.
    running : float32, shape (rows, topics)
        b + E[n_kw]; moved, but for rounding as `moved` is.
    totals : float64, shape (topics,)
        B + E[n_k]; moved.
    moved : float64, shape (rows, topics)
        Increased by how far E[n_kw] moves, in exact sums; (0, 0) where words are held.
    new_size, new_topic, new_share
        Filled with the new lists.
    node_customers, node_tables : float64, shape (nodes of documents,)
        Filled with M_j and T_j after the sweep.
    above_customers, above_absent : float64, shape (nodes above, topics)
        Increased by the customers that documents are above, and their Z.
    rising : float64, shape (topics,)
        Increased by the expected tables of the roots below, of strength alpha_k.
    sums : float64, shape (2,)
        Filled with sum c log sum_k E[nu_j]'(k) phi'_kw, and with how much room the new lists took.
    """
    graph, priors = (
        (node_kind, node_edges, edge_parent, edge_mixing),
        (strength, discount, alpha, alpha.sum(), rising.size),
    )
    above, values = above_mean.shape[0], alpha.size
    most = _largest(node_edges, document_nodes)
    rows, sizes, edges = make_room(above + most[0], most[1], values)
    rows[MEAN, :above], rows[RESPONSE, :above] = above_mean, above_response
    inverse, logs = np.empty(values, dtype=np.float32), absences()
    work = np.empty(values, dtype=np.float32), np.empty(values, dtype=np.float32), inverse
    inverse[:] = 1.0 / totals
    given, made = (size, topic, share), (new_size, new_topic, new_share)
    words, at = (running, totals, moved, word_prior, held), np.zeros(2, dtype=np.int64)
    for document in range(document_nodes.size - 1):
        low, high = document_nodes[document], document_nodes[document + 1]
        place = above, low
        load_own(place, rows, (own_lists, own_topic, own_count, own_absent), low, high)
        begin_document(graph, place, sizes, edges, low, high)
        for number in range(ROUNDS + 1):  # the last after the pairs have moved
            counting = 1 if number == ROUNDS else 0
            gather(graph, priors, place, rows, sizes, edges, (low, high, counting), 1 if number == 0 else 0)
            if number < ROUNDS:
                spread_down(graph, priors, place, rows, sizes, edges, (low, high, 0))
            if number != ROUNDS - 1:
                continue
            for node in range(low, high):
                span = pairs[node - above], pairs[node - above + 1]
                if span[0] < span[1]:
                    _visit(
                        graph, priors, place, rows, sizes, edges, (node, node_edges[low]), span, position, counts,
                        given, made, words, work, logs, at, sums,
                    )  # fmt: skip
        for node in range(low, high):
            row = row_of(place, node)
            node_customers[node - above], node_tables[node - above] = sizes[0][row], sizes[1][row]
            if rising.size and is_root(graph, node):
                for k in range(values):
                    rising[k] += seated(rows[CUSTOMERS, row, k], rows[ABSENT, row, k], alpha[k], 0.0)
    for node in range(above):
        above_customers[node] += rows[CUSTOMERS, node]
        above_absent[node] += rows[ABSENT, node]
    sums[1] = at[1]


@helper
def _visit(
    graph: Any, priors: Any, place: Any, rows: Any, sizes: Any, edges: Any, where: Any, span: Any, position: Array,
    counts: Array, given: Any, made: Any, words: Any, work: Any, logs: Array, at: Any, sums: Array,
) -> None:  # fmt: skip
    """Update the pairs of a node, then its tables and the vectors of its parents and its own."""
    node, offset = where
    row, root, kind = row_of(place, node), is_root(graph, node), graph[0][node]
    discount = 0.0 if root else priors[1][kind]
    factor, strength = 1.0, priors[3]
    if root:
        rows[ABOVE, row] = priors[2]
        rows[RISE, row, :] = 0.0
    else:
        inherit(graph, place, rows, edges, node, offset)
        strength, factor = priors[0][kind], priors[0][kind] + discount * sizes[1][row]
    customers, log_absent = rows[CUSTOMERS, row], rows[ABSENT, row]
    mean, weight, inverse = work
    for k in range(mean.size):
        mean[k] = customers[k] - discount * rows[TABLES, row, k] + factor * rows[ABOVE, row, k]
    chance = factor, discount, 1.0 / (strength + max(sizes[0][row] - 1.0, 0.0))
    for pair in range(span[0], span[1]):
        first, many, each = at[0], np.int64(given[0][pair]), np.float64(counts[pair])
        cells, total = words[0][position[pair]], np.float32(0.0)
        for k in range(weight.size):
            weight[k] = mean[k] * cells[k] * inverse[k]
        for entry in range(first, first + many):
            k, q = given[1][entry], given[2][entry] / UNIT
            own = _without(rows, row, k, q, logs[given[2][entry]], root, chance)
            word = np.float64(cells[k])
            if not words[4]:
                word = max(word - q, words[3]) / (words[1][k] - q)
            weight[k] = own * word
        for k in range(weight.size):
            total += weight[k]
        sums[0] += each * math.log(max(float(total) * chance[2], 1e-300))
        found = choose(weight, total, at[1], made[1], made[2])
        made[0][pair] = found
        for turn in range(2):  # what was given is taken back, then what is given now is added
            lists, begin, end = given, first, first + many
            sign = -each
            if turn == 1:
                lists, begin, end, sign = made, at[1], at[1] + found, each
            for entry in range(begin, end):
                k, q = lists[1][entry], sign * (lists[2][entry] / UNIT)
                customers[k] = max(customers[k] + q, 0.0)
                rows[OWN, row, k] = max(rows[OWN, row, k] + q, 0.0)
                rows[OWN_ABSENT, row, k] = min(rows[OWN_ABSENT, row, k] + sign * logs[lists[2][entry]], 0.0)
                log_absent[k] = min(log_absent[k] + sign * logs[lists[2][entry]], 0.0)
                mean[k] = customers[k] - discount * rows[TABLES, row, k] + factor * rows[ABOVE, row, k]
                if not words[4]:
                    cells[k] = max(cells[k] + q, words[3])
                    words[2][position[pair], k] += q
                    words[1][k] += q
                    inverse[k] = 1.0 / words[1][k]
        at[0] += many
        at[1] += found
    if not root:
        _seat_again(graph, priors, place, rows, sizes, edges, node, offset, factor)
    for edge in range(graph[1][node], graph[1][node + 1] + 1):  # parents, and the node itself
        one = graph[2][edge] if edge < graph[1][node + 1] else node
        if one >= place[0]:
            expect(graph, priors, place, rows, sizes, one)


@helper
def _without(rows: Any, row: int, k: int, q: float, log_absent: float, root: Any, chance: Any) -> Any:
    """Return E[nu_jk] but for its divisor, without one copy of a pair whose share is q."""
    factor, discount, _ = chance
    customers, absent, above = rows[CUSTOMERS, row, k], rows[ABSENT, row, k], rows[ABOVE, row, k]
    less = max(customers - q, 0.0)
    if root:
        return less + above
    before = tables = 0.0
    for turn in range(2):  # in a loop, so that the compiler meets it once
        before = tables
        some, none = (customers, absent) if turn == 0 else (less, min(absent - log_absent, 0.0))
        tables = seated(some, none, factor * above, discount)
    lost = max(before - tables, 0.0)
    return less - discount * tables + factor * max(above - lost * rows[RISE, row, k], LEAST * above)


@helper
def _seat_again(
    graph: Any, priors: Any, place: Any, rows: Any, sizes: Any, edges: Any, node: int, offset: int, factor: float
) -> None:
    """Seat the customers of a node whose tokens have moved, and bring its parents up to date."""
    row, begin, end = row_of(place, node), graph[1][node], graph[1][node + 1]
    discount, change = priors[1][graph[0][node]], 0.0
    for k in range(rows.shape[2]):
        before = rows[TABLES, row, k]
        if before == 0.0 and rows[CUSTOMERS, row, k] <= 0.0:
            continue
        base = factor * rows[ABOVE, row, k]
        found = seated(rows[CUSTOMERS, row, k], rows[ABSENT, row, k], base, discount)
        rows[TABLES, row, k] = found
        change += found - before
        for edge in range(begin, end):
            parent = graph[2][edge]
            above = row_of(place, parent)
            if parent < place[0]:
                continue
            part = found - before
            if end > begin + 1:
                part *= edges[0][edge - offset] * rows[MEAN, above, k] / max(rows[ABOVE, row, k], 1e-300)
            after = max(rows[CUSTOMERS, above, k] + part, 0.0)
            sizes[0][above] += after - rows[CUSTOMERS, above, k]
            rows[CUSTOMERS, above, k] = after
    sizes[1][row] += change


@kernel(I4, I8, I8, F8, I8, F8, F8, F8, F8_2, F8_2, I8, U2, F4, F4, OUT_F4_2)
def expected_means(
    node_kind: Array, node_edges: Array, edge_parent: Array, edge_mixing: Array, document_nodes: Array,
    strength: Array, discount: Array, alpha: Array, above_mean: Array, above_response: Array, own_lists: Array,
    own_topic: Array, own_count: Array, own_absent: Array, mean: Array,
) -> None:  # fmt: skip
    """Fill E[nu_jk] of the nodes of documents; twin: `naive.network_expected.means`.

    Parameters
    ----------
    node_kind, node_edges, edge_parent, edge_mixing, document_nodes, strength, discount, alpha, above_mean, \
above_response, own_lists, own_topic, own_count, own_absent
        As for `sweep_expected`.
    mean : float32, shape (nodes of documents, topics)
        Filled.
    """
    graph, priors = (node_kind, node_edges, edge_parent, edge_mixing), (strength, discount, alpha, alpha.sum(), 0)
    above = above_mean.shape[0]
    most = _largest(node_edges, document_nodes)
    rows, sizes, edges = make_room(above + most[0], most[1], alpha.size)
    rows[MEAN, :above], rows[RESPONSE, :above] = above_mean, above_response
    for document in range(document_nodes.size - 1):
        low, high = document_nodes[document], document_nodes[document + 1]
        place = above, low
        load_own(place, rows, (own_lists, own_topic, own_count, own_absent), low, high)
        begin_document(graph, place, sizes, edges, low, high)
        for number in range(ROUNDS):
            gather(graph, priors, place, rows, sizes, edges, (low, high, 0), 1 if number == 0 else 0)
            spread_down(graph, priors, place, rows, sizes, edges, (low, high, 0))
        for node in range(low, high):
            for k in range(mean.shape[1]):
                mean[node - above, k] = rows[MEAN, row_of(place, node), k]


@kernel(I4, I8, I8, F8, F8, F8, F8, F8_2, F8_2, OUT_F8_2, OUT_F8_2, OUT_F8, OUT_F8, OUT_F8)
def expect_above(
    node_kind: Array, node_edges: Array, edge_parent: Array, edge_mixing: Array, strength: Array, discount: Array,
    alpha: Array, customers: Array, absent: Array, mean: Array, response: Array, node_customers: Array,
    node_tables: Array, rising: Array,
) -> None:  # fmt: skip
    """Fill what vectors above documents are expected to be; twin: `naive.network_expected.means`.

    Parameters
    ----------
    node_kind, node_edges, edge_parent, edge_mixing, strength, discount, alpha
        As for `sweep_expected`, of the vectors above documents alone.
    customers, absent : float64, shape (nodes, topics)
        The customers that documents are to each, and their Z.
    mean, response : float64, shape (nodes, topics)
        Filled.
    node_customers, node_tables : float64, shape (nodes,)
        Filled with M_j and T_j.
    rising : float64, shape (topics,)
        Increased as by `sweep_expected`.
    """
    graph, priors = (
        (node_kind, node_edges, edge_parent, edge_mixing),
        (strength, discount, alpha, alpha.sum(), rising.size),
    )
    nodes, place = node_kind.size, (0, 0)
    rows, sizes, edges = make_room(nodes, edge_parent.size, alpha.size)
    rows[OWN], rows[OWN_ABSENT] = customers, absent
    begin_document(graph, place, sizes, edges, 0, nodes)
    for number in range(2 * ROUNDS):
        gather(graph, priors, place, rows, sizes, edges, (0, nodes, 0), 1 if number == 0 else 0)
        spread_down(graph, priors, place, rows, sizes, edges, (0, nodes, 0))
    mean[:], response[:] = rows[MEAN], rows[RESPONSE]
    node_customers[:], node_tables[:] = sizes[0], sizes[1]
    for node in range(nodes):
        if is_root(graph, node):
            for k in range(alpha.size):
                rising[k] += seated(rows[CUSTOMERS, node, k], rows[ABSENT, node, k], alpha[k], 0.0)
