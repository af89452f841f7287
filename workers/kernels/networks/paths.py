"""Gibbs sampling over a network of probability vectors: paths of tables along which tokens are removed and added.

Every vector is integrated out (Buntine, Du and Nurmi 2010). Integer counts remain: m_ik customers of topic k at node i,
which are its own tokens and the tables of its children, sit at t_ik tables, each of which is a customer of one of the
node's parents. A token has a path: from its node to the node at which it joins a table that exists, or to a root.
"""

from __future__ import annotations

from collapsium.workers.kernels.jit import Array, Number, borrower
from collapsium.workers.kernels.networks.records import GraphArrays, RowMap, Sampler
from collapsium.workers.kernels.networks.stirling import stirling_ratio
from collapsium.workers.kernels.random import uniform

CHUNK = 16  # Topics whose weights are summed together; arrays by topic are padded to a multiple


@borrower
def is_root(graph: GraphArrays, node: int) -> Number:
    """Return whether a node has no parents."""
    return graph.node_edges[node] == graph.node_edges[node + 1]


@borrower
def row_of(rows: RowMap, node: int) -> Number:
    """Return the row of a node's counts."""
    return node if node < rows.shared else rows.node_row[node - rows.first_node]


@borrower
def edge_row_of(graph: GraphArrays, rows: RowMap, node: int, edge: int) -> Number:
    """Return the row of an edge's tables: an edge of a node that shares its row shares too."""
    if node < rows.shared:
        return edge
    return rows.edge_row[node - rows.first_node] + edge - graph.node_edges[node]


@borrower
def divisor_of(sampler: Sampler, node: int, row: int) -> Number:
    """Return the divisor of Z_i: b + M_i, or at a root sum alpha + M_i."""
    if is_root(sampler.graph, node):
        return sampler.priors.concentration + sampler.totals.customers[row]
    return sampler.priors.strength[sampler.graph.node_kind[node]] + sampler.totals.customers[row]


@borrower
def set_terms(sampler: Sampler, node: int, row: int, k: int) -> None:
    """Fill A_ik and B_ik from m_ik and t_ik."""
    counts, priors = sampler.counts, sampler.priors
    m, t = counts.customers[row, k], counts.tables[row, k]
    if is_root(sampler.graph, node):
        counts.join_weight[row, k] = priors.alpha[k] + m
        return
    if m == 0:
        counts.join_weight[row, k], counts.open_weight[row, k] = 0.0, 1.0
        return
    kind = sampler.graph.node_kind[node]
    discount = priors.discount[kind]
    ratios = priors.stirling_ratios[kind]
    inverse = following = 0.0
    # A loop, so that the compiler inlines the ratio once.
    for more in range(2):
        ratio = stirling_ratio(ratios, discount, m, max(t + more, 2))
        if more == 0 and t > 1:
            inverse = 1.0 / ratio
        elif more == 1 and t < m:
            following = ratio
    counts.join_weight[row, k] = (m - t * discount + inverse) * (m + 1 - t) / (m + 1)
    counts.open_weight[row, k] = (1.0 + (m - (t + 1) * discount) * following) * (t + 1) / (m + 1)


@borrower
def parent_share(sampler: Sampler, node: int, row: int, edge: int) -> Number:
    """Return the probability that a node's table is a customer of an edge's parent: (g + s_e.) / (sum g + T)."""
    graph = sampler.graph
    first, last = graph.node_edges[node], graph.node_edges[node + 1]
    if last == first + 1:
        return 1.0
    total = 0.0
    for sibling in range(first, last):
        total += graph.edge_mixing[sibling]
    tables = sampler.totals.edge_tables[edge_row_of(graph, sampler.rows, node, edge)]
    return (graph.edge_mixing[edge] + tables) / (total + sampler.totals.tables[row])


@borrower
def parent_weight(sampler: Sampler, node: int, row: int, k: int) -> Number:
    """Return sum_e rho_e Z_parent(e)(k), the weight of a new table's topic."""
    graph, total = sampler.graph, 0.0
    for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
        parent = graph.edge_parent[edge]
        above = row_of(sampler.rows, parent)
        weight = parent_share(sampler, node, row, edge)
        total += weight * sampler.counts.weight[above, k] / divisor_of(sampler, parent, above)
    return total


@borrower
def update_weights(sampler: Sampler, node: int) -> None:
    """Fill Z_i, but for its divisor, from the parents': A_ik + B_ik (b + a T_i) sum_e rho_e Z_parent(e)(k)."""
    graph, counts = sampler.graph, sampler.counts
    row = row_of(sampler.rows, node)
    node_weight, first, last = counts.weight[row], graph.node_edges[node], graph.node_edges[node + 1]
    if first == last:
        for k in range(node_weight.size):
            node_weight[k] = counts.join_weight[row, k]
        return
    kind = graph.node_kind[node]
    factor = sampler.priors.strength[kind] + sampler.priors.discount[kind] * sampler.totals.tables[row]
    join, open_weight = counts.join_weight[row], counts.open_weight[row]
    if last == first + 1:
        parent = graph.edge_parent[first]
        above = row_of(sampler.rows, parent)
        factor /= divisor_of(sampler, parent, above)
        parents = counts.weight[above]
        for k in range(node_weight.size):
            node_weight[k] = join[k] + open_weight[k] * factor * parents[k]
        return
    node_weight[:] = 0.0
    for edge in range(first, last):
        parent = graph.edge_parent[edge]
        above = row_of(sampler.rows, parent)
        weight = parent_share(sampler, node, row, edge)
        weight *= factor / divisor_of(sampler, parent, above)
        parents = counts.weight[above]
        for k in range(node_weight.size):
            node_weight[k] += weight * parents[k]
    for k in range(node_weight.size):
        node_weight[k] = join[k] + open_weight[k] * node_weight[k]


@borrower
def place_of(rows: RowMap, node: int) -> Number:
    """Return the place of a node among the shared nodes and its document's nodes."""
    return node if node < rows.shared else rows.shared + node - rows.first_node


@borrower
def log_change(sampler: Sampler, node: int) -> None:
    """Note that counts of a node, and perhaps of some of its descendants, have changed now."""
    log = sampler.log
    size = log.size[0]
    while size > 0 and log.nodes[size - 1] >= node:
        size -= 1
    log.times[size], log.nodes[size] = sampler.clock.now[0], node
    log.size[0] = size + 1


@borrower
def forget_changes(sampler: Sampler, last_node: int) -> None:
    """Drop the changes of nodes of the document before; nothing is up to date in the one that begins."""
    line, log, rows = sampler.line, sampler.log, sampler.rows
    while log.size[0] > 0 and log.nodes[log.size[0] - 1] >= rows.shared:
        log.size[0] -= 1
    for node in range(rows.first_node, last_node):
        line.verified[place_of(rows, node)] = -1


@borrower
def is_verified(sampler: Sampler, node: int) -> bool:
    """Return whether neither a node nor any of its ancestors has changed since all of them were up to date."""
    log, verified = sampler.log, sampler.line.verified[place_of(sampler.rows, node)]
    if verified < 0:
        return False
    low, high = 0, log.size[0]
    while low < high:
        middle = (low + high) >> 1
        if log.times[middle] > verified:
            high = middle
        else:
            low = middle + 1
    return bool(low == log.size[0] or log.nodes[low] > node)


@borrower
def begin_line(sampler: Sampler, node: int) -> None:
    """Begin the line of a node, which is the first to be listed."""
    line = sampler.line
    line.epoch[0] += 1
    line.waiting[0], line.waiting_size[0], line.size[0] = node, 1, 0


@borrower
def list_next(sampler: Sampler) -> Number:
    """Move the greatest node that waits into the line; return the least of its parents that may be stale, or itself."""
    graph, line, nodes, rows = sampler.graph, sampler.line, sampler.line.waiting, sampler.rows
    node, size = nodes[0], line.waiting_size[0] - 1
    slot, child, moved = 0, 1, nodes[size]
    while child < size:
        if child + 1 < size and nodes[child + 1] > nodes[child]:
            child += 1
        if nodes[child] <= moved:
            break
        nodes[slot] = nodes[child]
        slot, child = child, 2 * child + 1
    nodes[slot] = moved
    line.nodes[line.size[0]] = node
    line.size[0] += 1
    least = node
    time = line.verified[place_of(rows, node)] if is_verified(sampler, node) else -1
    for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
        parent = graph.edge_parent[edge]
        place = place_of(rows, parent)
        if line.visited[place] == line.epoch[0]:
            continue
        line.visited[place] = line.epoch[0]
        # A node's ancestors were up to date when it was.
        line.verified[place] = max(line.verified[place], time)
        if not is_verified(sampler, parent):
            least = min(least, parent)
        slot = size
        size += 1
        while slot > 0 and nodes[(slot - 1) >> 1] < parent:
            nodes[slot] = nodes[(slot - 1) >> 1]
            slot = (slot - 1) >> 1
        nodes[slot] = parent
    line.waiting_size[0] = size
    return least


@borrower
def update_line(sampler: Sampler, lowest: int) -> None:
    """Bring Z of the nodes of the line, ancestors first, up to date with what has changed at and after `lowest`.

    Ancestors are listed down to the least that may be stale, not to the roots: in a chain of segments that would make
    a document's time quadratic in its segments.
    """
    graph, clock, line = sampler.graph, sampler.clock, sampler.line
    while line.waiting_size[0] > 0 and line.waiting[0] > lowest:
        lowest = min(lowest, list_next(sampler) - 1)
    first = 0
    while first < line.size[0] and line.nodes[first] > lowest:
        first += 1
    for place in range(first - 1, -1, -1):
        node = line.nodes[place]
        row = row_of(sampler.rows, node)
        stale = clock.computed[row] < 0
        for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
            stale = stale or clock.changed[row_of(sampler.rows, graph.edge_parent[edge])] > clock.computed[row]
        if stale:
            update_weights(sampler, node)
            clock.now[0] += 1
            clock.changed[row] = clock.computed[row] = clock.now[0]
        line.verified[place_of(sampler.rows, node)] = clock.now[0]


@borrower
def shift_path(sampler: Sampler, k: int, by: int) -> Number:
    """Change the counts along the path by one customer each; return its topmost node."""
    graph, counts, totals, path, clock = sampler.graph, sampler.counts, sampler.totals, sampler.path, sampler.clock
    clock.now[0] += 1
    for step in range(path.length[0]):
        node = path.nodes[step]
        row = row_of(sampler.rows, node)
        counts.customers[row, k] += by
        totals.customers[row] += by
        if path.edges[step] >= 0:
            edge_row = edge_row_of(graph, sampler.rows, node, path.edges[step])
            counts.edge_tables[edge_row, k] += by
            totals.edge_tables[edge_row] += by
            counts.tables[row, k] += by
            totals.tables[row] += by
        set_terms(sampler, node, row, k)
        clock.changed[row] = clock.now[0]
    top = path.nodes[path.length[0] - 1]
    log_change(sampler, top)
    row = row_of(sampler.rows, top)
    if is_root(graph, top):
        counts.weight[row, k] = counts.join_weight[row, k]
    else:
        kind = graph.node_kind[top]
        factor = sampler.priors.strength[kind] + sampler.priors.discount[kind] * totals.tables[row]
        above = parent_weight(sampler, top, row, k)
        counts.weight[row, k] = counts.join_weight[row, k] + counts.open_weight[row, k] * factor * above
    return top


@borrower
def draw_removal_path(sampler: Sampler, node: int, k: int, key: Array, number: int, fold_in: int) -> bool:
    """Draw the path by which a customer leaves; return whether the counts allow it."""
    graph, counts, path = sampler.graph, sampler.counts, sampler.path
    step = 0
    allowed = True
    while True:
        # Shared nodes are fixed when documents are folded in.
        if fold_in and node < sampler.rows.shared:
            break
        path.nodes[step], path.edges[step] = node, -1
        if is_root(graph, node):
            step += 1
            break
        row = row_of(sampler.rows, node)
        left = uniform(key, number + step) * counts.customers[row, k]
        for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
            left -= counts.edge_tables[edge_row_of(graph, sampler.rows, node, edge), k]
            if left < 0.0:
                path.edges[step] = edge
                break
        if counts.customers[row, k] > 1 and counts.tables[row, k] == 1 and path.edges[step] >= 0:
            allowed = False
        step += 1
        if path.edges[step - 1] < 0:
            break
        node = graph.edge_parent[path.edges[step - 1]]
    path.length[0] = step
    return allowed


@borrower
def draw_entry_path(sampler: Sampler, node: int, k: int, key: Array, number: int, fold_in: int) -> None:
    """Draw the path by which a customer of topic k enters: at each node a table that exists, or a new one."""
    graph, counts, path = sampler.graph, sampler.counts, sampler.path
    step = 0
    while True:
        if fold_in and node < sampler.rows.shared:
            break
        path.nodes[step], path.edges[step] = node, -1
        if is_root(graph, node):
            step += 1
            break
        row, kind = row_of(sampler.rows, node), graph.node_kind[node]
        factor = counts.open_weight[row, k] * (
            sampler.priors.strength[kind] + sampler.priors.discount[kind] * sampler.totals.tables[row]
        )
        join = counts.join_weight[row, k]
        left = uniform(key, number + step)
        left *= join + factor * parent_weight(sampler, node, row, k)
        for edge in range(graph.node_edges[node], graph.node_edges[node + 1]):
            parent = graph.edge_parent[edge]
            above = row_of(sampler.rows, parent)
            weight = parent_share(sampler, node, row, edge)
            left -= factor * weight * counts.weight[above, k] / divisor_of(sampler, parent, above)
            if left < 0.0 or (edge == graph.node_edges[node + 1] - 1 and join == 0.0):
                path.edges[step] = edge
                break
        step += 1
        if path.edges[step - 1] < 0:
            break
        node = graph.edge_parent[path.edges[step - 1]]
    path.length[0] = step


@borrower
def draw_topic(
    node_weight: Array, inverse: Array, word_topic: Array, prior: float, random: float, weight: Array, chunk_sums: Array
) -> int:
    """Draw a topic in proportion to Z_j(k) (n_kw + b) / (n_k + B)."""
    total = 0.0
    for chunk in range(chunk_sums.size):
        chunk_sum = 0.0
        for inside in range(CHUNK):
            k = chunk * CHUNK + inside
            product = node_weight[k] * inverse[k] * (word_topic[k] + prior)
            weight[k] = product
            chunk_sum += product
        chunk_sums[chunk] = chunk_sum
        total += chunk_sum
    left, chunk = random * total, 0
    while chunk < chunk_sums.size - 1 and left >= chunk_sums[chunk]:
        left -= chunk_sums[chunk]
        chunk += 1
    k = chunk * CHUNK
    last = k + CHUNK - 1
    while k < last and left >= weight[k]:
        left -= weight[k]
        k += 1
    # Rounding may lead past the last topic that has a weight.
    while k > 0 and weight[k] <= 0.0:
        k -= 1
    return k
