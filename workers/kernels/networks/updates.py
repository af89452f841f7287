"""Updates of responsibilities over a network of vectors by expected tables, and the vectors that follow from them.

Expected tables and expected vectors of a network, from expected counts: what CV-HDP approximates, at every node.

A node has m_jk expected customers of value k, P(m_jk = 0) = exp(Z_jk), and expects t_jk tables. Given that there are
any, E+ = m / P+ customers come one by one, the first to a table of its own, each other to a new one with the chance
c / (c + i - a t), where i sit at t tables already and c = (b + a T_j) mu_jk, mu_jk = sum_l rho_jl E[nu_lk]: Chinese
restaurants, but for t in place of its distribution, and straight between whole numbers. Without discount these are
sums of c / (c + i), which psi(c + E+) - psi(c) stands for in CV-HDP. Tables go to parents in proportion to
rho_jl E[nu_lk].

Arrays have one row per node: first those above documents, of which mean and response are known, then a document's own.

Responsibilities are sparse: the few topics that matter to a pair, in steps of 2^-15 that add up to one. Weights are
dense, so no topic is lost for good. A pair retains only its topics above a share of the total, up to a largest number
of them; these share the weight of the others in proportion to their own.
"""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.cvb.active import UNIT
from collapsium.workers.kernels.jit import (
    Array,
    DocumentPairs,
    Float32Matrix,
    Float64Matrix,
    Int32Vector,
    Int64Vector,
    Number,
    OutFloat32Matrix,
    OutFloat64Matrix,
    OutInt64Vector,
    borrower,
    helper,
    kernel,
)
from collapsium.workers.kernels.networks.paths import is_root
from collapsium.workers.kernels.networks.records import (
    EdgeShares,
    ExpectedDocument,
    ExpectedPriors,
    ExpectedStatistics,
    ExpectedSweepResults,
    ExpectedTopicCounts,
    ExpectedTotals,
    ExpectedWordCounts,
    GraphArrays,
    Hyperparameters,
    NewExpectedTopicCounts,
    NewResponsibilities,
    NodeDocuments,
    NodeScale,
    PairWorkspace,
    Responsibilities,
    SharedVectors,
)
from collapsium.workers.kernels.special import LARGEST

MAX_TOPICS = 16  # Topics of a pair, at most
MIN_SHARE = np.float32(1.0 / 256)  # Share of a pair's weight below which a topic is left out


@helper
def choose(weight: Array, total: Number, place: Number, topic: Array, share: Array) -> Number:
    """Write a pair's responsibilities from `place` on; return the number of topics."""
    size, cut = 0, total * MIN_SHARE
    for k in range(weight.size):
        if weight[k] <= cut:
            continue
        if size < MAX_TOPICS:
            topic[place + size] = k
            size += 1
            continue
        least = 0
        for index in range(1, MAX_TOPICS):
            if weight[topic[place + index]] < weight[topic[place + least]]:
                least = index
        if weight[k] > weight[topic[place + least]]:
            topic[place + least] = k
    if size == 0:  # more topics than 256, all alike: none is above its share
        topic[place] = np.argmax(weight)
        size = 1
    retained, largest, left = 0.0, 0, np.int64(UNIT)
    for entry in range(size):
        retained += float(weight[topic[place + entry]])
        if weight[topic[place + entry]] > weight[topic[place + largest]]:
            largest = entry
    for entry in range(size):
        ratio = float(weight[topic[place + entry]]) / retained if retained > 0.0 else 0.0
        # Shares index tables, so NaN weights must not lead out of [0, UNIT].
        steps = min(np.int64(ratio * (UNIT - 0.01)), left) if 0.0 <= ratio <= 1.0 else np.int64(0)
        share[place + entry] = steps
        left -= steps
    share[place + largest] += left
    return size


@kernel
def initialise_responsibilities(
    documents: DocumentPairs,
    theta: Float32Matrix,
    phi: Float32Matrix,
    responsibilities: NewResponsibilities,
    filled: OutInt64Vector,
) -> None:
    """Fill pairs' responsibilities in proportion to theta_dk phi_kw; twin: `naive.network_expected.choose`.

    Shapes: `theta`, `phi` (documents, topics); `filled` (1,).
    """
    offsets, position = documents.offsets, documents.position
    size, topic, share = responsibilities.size, responsibilities.topic, responsibilities.share
    weight, place = np.empty(theta.shape[1], dtype=np.float32), 0
    for document in range(offsets.size - 1):
        for pair in range(offsets[document], offsets[document + 1]):
            row, total = position[pair], np.float32(0.0)
            for k in range(weight.size):
                weight[k] = theta[document, k] * phi[row, k]
            for k in range(weight.size):
                total += weight[k]
            chosen = choose(weight, total, place, topic, share)
            size[pair] = chosen
            place += chosen
    filled[0] = place


@kernel
def count_responsibilities(
    position: Int32Vector, counts: Int32Vector, responsibilities: Responsibilities, word_topic: OutFloat64Matrix
) -> None:
    """Add E[n_kw] of pairs' responsibilities.

    Shapes: `position`, `counts` (pairs,); `word_topic` (words, topics).
    """
    size, topic, share = responsibilities.size, responsibilities.topic, responsibilities.share
    place = 0
    for pair in range(position.size):
        for entry in range(place, place + size[pair]):
            word_topic[position[pair], topic[entry]] += counts[pair] * (share[entry] / UNIT)
        place += size[pair]


@kernel
def count_expected_node_topics(
    pairs: Int64Vector,
    counts: Int32Vector,
    responsibilities: Responsibilities,
    topics: int,
    node_counts: NewExpectedTopicCounts,
) -> None:
    """Fill E[n_jk] and Z[n_jk] of each node's own tokens.

    Shapes: `pairs` (nodes + 1,); `counts` (pairs,).
    """
    size, topic, share = responsibilities.size, responsibilities.topic, responsibilities.share
    offsets, node_topic, node_count, node_log_absent = node_counts
    logs, count, absent = absence_logs(), np.zeros(topics), np.zeros(topics)
    seen, is_seen = np.zeros(topics, dtype=np.int64), np.zeros(topics, dtype=np.int64)
    place = filled = 0
    offsets[0] = 0
    for node in range(pairs.size - 1):
        some = 0
        for pair in range(pairs[node], pairs[node + 1]):
            for entry in range(place, place + size[pair]):
                k = np.int64(topic[entry])
                if share[entry] == 0:
                    continue
                if is_seen[k] == 0:
                    is_seen[k] = 1
                    seen[some] = k
                    some += 1
                count[k] += counts[pair] * (share[entry] / UNIT)
                absent[k] += counts[pair] * logs[share[entry]]
            place += size[pair]
        seen[:some].sort()
        for number in range(some):
            k = seen[number]
            node_topic[filled], node_count[filled], node_log_absent[filled] = k, count[k], absent[k]
            count[k] = absent[k] = 0.0
            is_seen[k] = 0
            filled += 1
        offsets[node + 1] = filled


@helper
def absence_logs() -> Array:
    """Return log(1 - q) of each number of steps, of which there are few."""
    logs = np.empty(UNIT + 1)
    for step in range(UNIT + 1):
        logs[step] = math.log(1.0 - min(step / UNIT, LARGEST))
    return logs


# Customers that come one by one; further customers come in steps of one part in so many of those before
EXACT_CUSTOMERS, RELATIVE_STEP = 32, 16
# Arrays by node and topic: own counts and their Z, customers and theirs, tables, mu, E[nu], both responses
OWN, OWN_ABSENT, CUSTOMERS, ABSENT, TABLES, ABOVE, RISE, MEAN, RESPONSE = range(9)


@helper
def expected_tables(customers: float, base: float, discount: float) -> float:
    """Return the expected tables of so many customers, 1 or more."""
    tables, arrived = 1.0, 1.0
    while arrived < customers:
        step = 1.0 if arrived < EXACT_CUSTOMERS else math.floor(arrived / RELATIVE_STEP)
        step = min(step, customers - arrived)
        at = arrived + 0.5 * max(step - 1.0, 0.0)
        tables += step * base / (base + at - discount * tables)
        arrived += step
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
def load_own(document: ExpectedDocument, node_counts: ExpectedTopicCounts) -> None:
    """Fill the nodes' own counts, and clear all others."""
    values, topics = document.values, document.values.shape[2]
    for node in range(document.first_node, document.end_node):
        row = expected_row_of(document, node)
        for array in range(9):
            for k in range(topics):
                values[array, row, k] = 0.0
        index = node - document.shared
        for entry in range(node_counts.offsets[index], node_counts.offsets[index + 1]):
            values[OWN, row, node_counts.topic[entry]] = node_counts.tokens[entry]
            values[OWN_ABSENT, row, node_counts.topic[entry]] = node_counts.log_absent[entry]


@borrower
def begin_document(document: ExpectedDocument) -> None:
    """Clear a document's tables; the shares of parents return to the prior."""
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


ROUNDS = 3  # Rounds in which tables are made from counts alone
MIN_MEAN_SHARE = 1e-3  # Share of mu_jk that remains when a pair's own tables are removed


@helper
def _largest(node_edges: Array, document_nodes: Array) -> Number:
    """Return the most nodes and edges that a document has."""
    nodes = edges = 0
    for document in range(document_nodes.size - 1):
        low, high = document_nodes[document], document_nodes[document + 1]
        nodes, edges = max(nodes, high - low), max(edges, node_edges[high] - node_edges[low])
    return nodes, edges


@kernel
def sweep_expected(
    graph: GraphArrays,
    documents: NodeDocuments,
    hyperparameters: Hyperparameters,
    shared: SharedVectors,
    words: ExpectedWordCounts,
    node_counts: ExpectedTopicCounts,
    responsibilities: Responsibilities,
    results: ExpectedSweepResults,
) -> None:
    """Update the responsibilities of a shard's pairs, one after another; twin: `naive.network_expected.Document.visit`.

    q_k ~ E[nu_j]'(k) (b + E'[n_kw]) / (B + E'[n_k]), where a prime means without the pair's own share: of m_jk, of its
    tables, and of their part in mu_jk.
    """
    alpha, nodes, statistics = hyperparameters.alpha, documents.nodes, results.statistics
    learn_alpha = statistics.alpha_numerator.size
    priors = ExpectedPriors(hyperparameters.strength, hyperparameters.discount, alpha, alpha.sum(), learn_alpha)
    first, topics, largest = shared.mean.shape[0], alpha.size, _largest(graph.node_edges, nodes)
    workspace = make_document(graph, priors, first, first + largest[0], largest[1])
    values, totals = workspace.values, workspace.totals
    values[MEAN, :first], values[RESPONSE, :first] = shared.mean, shared.response
    inverse = np.empty(topics, dtype=np.float32)
    inverse[:] = 1.0 / words.topic
    pairs = PairWorkspace(
        documents.pairs, responsibilities, results.responsibilities, np.zeros(2, dtype=np.int64), absence_logs(),
        np.empty(topics, dtype=np.float32), np.empty(topics, dtype=np.float32), inverse,
    )  # fmt: skip
    for number in range(nodes.size - 1):
        low, high = nodes[number], nodes[number + 1]
        document = at_nodes(workspace, low, high)
        load_own(document, node_counts)
        begin_document(document)
        for turn in range(ROUNDS + 1):  # the last after the pairs have moved
            gather(document, 1 if turn == ROUNDS else 0, 1 if turn == 0 else 0)
            if turn < ROUNDS:
                expect_document(document)
            if turn == ROUNDS - 1:
                for node in range(low, high):
                    _visit_node(document, node, words, pairs, results.sums)
        for node in range(low, high):
            row = expected_row_of(document, node)
            statistics.customers[node - first] = totals.customers[row]
            statistics.tables[node - first] = totals.tables[row]
            if learn_alpha and is_root(graph, node):
                _add_root_tables(document, node, statistics)
    for node in range(first):
        results.shared_customers[node] += values[CUSTOMERS, node]
        results.shared_log_absent[node] += values[ABSENT, node]
    results.sums[1] = pairs.place[1]


@borrower
def _add_root_tables(document: ExpectedDocument, node: int, statistics: ExpectedStatistics) -> None:
    """Add the expected tables of a root, whose strength is alpha_k."""
    row, values, alpha = expected_row_of(document, node), document.values, document.priors.alpha
    for k in range(alpha.size):
        statistics.alpha_numerator[k] += seated(values[CUSTOMERS, row, k], values[ABSENT, row, k], alpha[k], 0.0)


@borrower
def _visit_node(
    document: ExpectedDocument, node: int, words: ExpectedWordCounts, pairs: PairWorkspace, sums: Array
) -> None:
    """Update the pairs of a node, then its tables and the expected vectors of its parents and its own."""
    graph, priors, values, totals = document.graph, document.priors, document.values, document.totals
    begin, end = pairs.pairs.offsets[node - document.shared], pairs.pairs.offsets[node - document.shared + 1]
    if begin == end:
        return
    row, root, kind = expected_row_of(document, node), is_root(graph, node), graph.node_kind[node]
    discount = 0.0 if root else priors.discount[kind]
    factor, strength = 1.0, priors.concentration
    if root:
        for k in range(pairs.mean.size):
            values[ABOVE, row, k] = priors.alpha[k]
        for k in range(pairs.mean.size):
            values[RISE, row, k] = 0.0
    else:
        inherit(document, node)
        strength, factor = priors.strength[kind], priors.strength[kind] + discount * totals.tables[row]
    for k in range(pairs.mean.size):
        pairs.mean[k] = values[CUSTOMERS, row, k] - discount * values[TABLES, row, k] + factor * values[ABOVE, row, k]
    scale, divisor = NodeScale(factor, discount), 1.0 / (strength + max(totals.customers[row] - 1.0, 0.0))
    for pair in range(begin, end):
        total = _fill_weights(values, row, root, pair, words, pairs, scale)
        sums[0] += np.float64(pairs.pairs.counts[pair]) * math.log(max(float(total) * divisor, 1e-300))
        chosen = choose(pairs.weight, total, pairs.place[1], pairs.after.topic, pairs.after.share)
        pairs.after.size[pair] = chosen
        _move_pair(values, row, pair, chosen, words, pairs, scale)
    if not root:
        _seat_again(document, node, factor)
    for edge in range(graph.node_edges[node], graph.node_edges[node + 1] + 1):  # parents, and the node itself
        expected = graph.edge_parent[edge] if edge < graph.node_edges[node + 1] else node
        if expected >= document.shared:
            expect(document, expected)


@borrower
def _fill_weights(
    values: Array, row: int, root: Number, pair: int, words: ExpectedWordCounts, pairs: PairWorkspace, scale: NodeScale
) -> Number:
    """Fill the weights of a pair's topics; return their sum."""
    before, mean, weight, inverse = pairs.before, pairs.mean, pairs.weight, pairs.inverse
    first, word_topic, total = pairs.place[0], words.word_topic[pairs.pairs.position[pair]], np.float32(0.0)
    for k in range(weight.size):
        weight[k] = mean[k] * word_topic[k] * inverse[k]
    for entry in range(first, first + np.int64(before.size[pair])):
        k, q = before.topic[entry], before.share[entry] / UNIT
        node_mean = _without(values, row, k, q, pairs.logs[before.share[entry]], root, scale)
        word = np.float64(word_topic[k])
        if not words.fold_in:
            word = max(word - q, words.prior) / (words.topic[k] - q)
        weight[k] = node_mean * word
    for k in range(weight.size):
        total += weight[k]
    return total


@borrower
def _without(values: Array, row: int, k: int, q: float, log_absent: float, root: Number, scale: NodeScale) -> Number:
    """Return E[nu_jk] but for its divisor, without one copy of a pair whose share is q."""
    customers, absent, above = values[CUSTOMERS, row, k], values[ABSENT, row, k], values[ABOVE, row, k]
    less = max(customers - q, 0.0)
    if root:
        return less + above
    before = tables = 0.0
    for turn in range(2):  # in a loop, so that the compiler meets it once
        before = tables
        some, none = (customers, absent) if turn == 0 else (less, min(absent - log_absent, 0.0))
        tables = seated(some, none, scale.factor * above, scale.discount)
    lost = max(before - tables, 0.0)
    mean = max(above - lost * values[RISE, row, k], MIN_MEAN_SHARE * above)
    return less - scale.discount * tables + scale.factor * mean


@borrower
def _move_pair(
    values: Array, row: int, pair: int, chosen: int, words: ExpectedWordCounts, pairs: PairWorkspace, scale: NodeScale
) -> None:
    """Subtract what a pair contributed to the counts, and add what it contributes now."""
    customers, log_absent, mean, place = values[CUSTOMERS, row], values[ABSENT, row], pairs.mean, pairs.place
    count, position = np.float64(pairs.pairs.counts[pair]), pairs.pairs.position[pair]
    word_topic, pair_topics = words.word_topic[position], np.int64(pairs.before.size[pair])
    for turn in range(2):
        topic, share, begin, end = pairs.before.topic, pairs.before.share, place[0], place[0] + pair_topics
        sign = -count
        if turn == 1:
            topic, share, begin, end, sign = pairs.after.topic, pairs.after.share, place[1], place[1] + chosen, count
        for entry in range(begin, end):
            k, q = topic[entry], sign * (share[entry] / UNIT)
            customers[k] = max(customers[k] + q, 0.0)
            values[OWN, row, k] = max(values[OWN, row, k] + q, 0.0)
            values[OWN_ABSENT, row, k] = min(values[OWN_ABSENT, row, k] + sign * pairs.logs[share[entry]], 0.0)
            log_absent[k] = min(log_absent[k] + sign * pairs.logs[share[entry]], 0.0)
            mean[k] = customers[k] - scale.discount * values[TABLES, row, k] + scale.factor * values[ABOVE, row, k]
            if not words.fold_in:
                word_topic[k] = max(word_topic[k] + q, words.prior)
                words.change[position, k] += q
                words.topic[k] += q
                pairs.inverse[k] = 1.0 / words.topic[k]
    place[0] += pair_topics
    place[1] += chosen


@borrower
def _seat_again(document: ExpectedDocument, node: int, factor: float) -> None:
    """Seat the customers of a node whose pairs were updated, and update its parents' customers."""
    graph, values, totals = document.graph, document.values, document.totals
    row, begin, end = expected_row_of(document, node), graph.node_edges[node], graph.node_edges[node + 1]
    discount, share, change = document.priors.discount[graph.node_kind[node]], document.edges.share, 0.0
    offset = graph.node_edges[document.first_node]
    for k in range(values.shape[2]):
        before = values[TABLES, row, k]
        if before == 0.0 and values[CUSTOMERS, row, k] <= 0.0:
            continue
        base = factor * values[ABOVE, row, k]
        tables = seated(values[CUSTOMERS, row, k], values[ABSENT, row, k], base, discount)
        values[TABLES, row, k] = tables
        change += tables - before
        for edge in range(begin, end):
            parent = graph.edge_parent[edge]
            above = expected_row_of(document, parent)
            if parent < document.shared:
                continue
            part = tables - before
            if end > begin + 1:
                part *= share[edge - offset] * values[MEAN, above, k] / max(values[ABOVE, row, k], 1e-300)
            after = max(values[CUSTOMERS, above, k] + part, 0.0)
            totals.customers[above] += after - values[CUSTOMERS, above, k]
            values[CUSTOMERS, above, k] = after
    totals.tables[row] += change


@kernel
def expected_means(
    graph: GraphArrays,
    document_nodes: Int64Vector,
    hyperparameters: Hyperparameters,
    shared: SharedVectors,
    node_counts: ExpectedTopicCounts,
    mean: OutFloat32Matrix,
) -> None:
    """Fill E[nu_jk] of the nodes of documents; twin: `naive.network_expected.Document`.

    Shapes: `document_nodes` (documents + 1,); `mean` (nodes of documents, topics).
    """
    alpha, first = hyperparameters.alpha, shared.mean.shape[0]
    priors = ExpectedPriors(hyperparameters.strength, hyperparameters.discount, alpha, alpha.sum(), 0)
    largest = _largest(graph.node_edges, document_nodes)
    workspace = make_document(graph, priors, first, first + largest[0], largest[1])
    values = workspace.values
    values[MEAN, :first], values[RESPONSE, :first] = shared.mean, shared.response
    for number in range(document_nodes.size - 1):
        low, high = document_nodes[number], document_nodes[number + 1]
        document = at_nodes(workspace, low, high)
        load_own(document, node_counts)
        begin_document(document)
        for turn in range(ROUNDS):
            gather(document, 0, 1 if turn == 0 else 0)
            expect_document(document)
        for node in range(low, high):
            row = expected_row_of(document, node)
            for k in range(mean.shape[1]):
                mean[node - first, k] = values[MEAN, row, k]


@kernel
def expect_shared_nodes(
    graph: GraphArrays,
    hyperparameters: Hyperparameters,
    customers: Float64Matrix,
    log_absent: Float64Matrix,
    mean: OutFloat64Matrix,
    response: OutFloat64Matrix,
    statistics: ExpectedStatistics,
) -> None:
    """Fill the expected vectors of shared nodes; twin: `naive.network_expected.Document`.

    Shapes: `customers`, `log_absent`, `mean`, `response` (nodes, topics).
    """
    alpha, nodes = hyperparameters.alpha, graph.node_kind.size
    learn_alpha = statistics.alpha_numerator.size
    priors = ExpectedPriors(hyperparameters.strength, hyperparameters.discount, alpha, alpha.sum(), learn_alpha)
    document = at_nodes(make_document(graph, priors, 0, nodes, graph.edge_parent.size), 0, nodes)
    values, totals = document.values, document.totals
    values[OWN], values[OWN_ABSENT] = customers, log_absent
    begin_document(document)
    for turn in range(2 * ROUNDS):
        gather(document, 0, 1 if turn == 0 else 0)
        expect_document(document)
    mean[:], response[:] = values[MEAN], values[RESPONSE]
    statistics.customers[:], statistics.tables[:] = totals.customers, totals.tables
    for node in range(nodes):
        if is_root(graph, node):
            _add_root_tables(document, node, statistics)
