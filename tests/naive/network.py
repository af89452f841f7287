"""Networks of Dirichlet-distributed vectors: the probability of a state, and the sampler's moves, in plain Python.

A token of value k at node j is a customer of j. At a node with parents, each customer sits at a table of its own
value, and each table is a customer of one of the parents; at a root, customers are only counted. The seating is summed
out, so a state is n_jk, the numbers of tokens, and s_ek, the numbers of tables on edge e, which leads from a node to
one of its parents. They determine tp_ik, the tables at node i, and m_ik, its customers.

Each move is defined twice: by all its outcomes with their probabilities, for exact tests, and by draws from uniform
numbers, each with its index in a stream, as in the compiled sampler.
"""

import functools
import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from tests.naive.gibbs import pick
from tests.naive.random import uniform


def numbers_of(key):
    """Return a function from an index to this number of a stream."""
    return lambda number: uniform(key, int(number))


def ignore(state):
    """Do nothing with the state after a move."""


class Network:
    """Nodes with their parents, which have lower numbers; `strength` and `discount` are given by kind of node.

    The first `held` nodes stay fixed while documents are folded in below them.
    """

    def __init__(self, parents, strength, discount, alpha, kind=None, mixing=None, held=0):
        self.nodes, self.held = len(parents), held
        self.edges = [(i, parent) for i, above in enumerate(parents) for parent in above]
        self.of = [[e for e, (child, _) in enumerate(self.edges) if child == i] for i in range(self.nodes)]
        kind = np.zeros(self.nodes, dtype=int) if kind is None else kind
        self.b, self.a = np.array(strength, dtype=float)[kind], np.array(discount, dtype=float)[kind]
        self.alpha = np.array(alpha, dtype=float)
        self.mixing = np.ones(len(self.edges)) if mixing is None else np.array(mixing, dtype=float)
        longest = [1] * self.nodes
        for i, parent in self.edges:
            longest[i] = max(longest[i], longest[parent] + 1)
        self.levels = max(longest)

    def ends(self, i):
        """Return whether paths end at node i, which is fixed or has no parents."""
        return i < self.held or not self.of[i]

    def inner(self):
        """Return the nodes that have parents and are not fixed."""
        return [i for i in range(self.nodes) if not self.ends(i)]


class State:
    """The arrays n (nodes, K), s (edges, K) and m (nodes, K).

    m follows from n and s, except at fixed nodes, whose customers were counted before.
    """

    def __init__(self, network, n, s, m=None):
        self.network, self.n, self.s = network, np.array(n), np.array(s)
        self.m = self.customers() if m is None else np.array(m)

    def copy(self):
        return State(self.network, self.n, self.s, self.m)

    def customers(self):
        m = self.n.copy()
        for (_, parent), s in zip(self.network.edges, self.s, strict=True):
            m[parent] += s
        return m

    def tables(self, i):
        """Return tp_ik."""
        return self.s[self.network.of[i]].sum(axis=0)

    def is_valid(self):
        """Return whether m is correct, tp <= m, and tp = 0 exactly where m = 0."""
        tables = np.array([self.tables(i) for i in self.network.inner()]).reshape(-1, self.m.shape[1])
        m = self.m[self.network.inner()]
        right = (self.customers() == self.m)[self.network.held :].all() and (self.n >= 0).all() and (self.s >= 0).all()
        return bool(right and (tables <= m).all() and ((tables == 0) == (m == 0)).all())

    def shift(self, j, k, path, by):
        """Add a token to n_jk and a table to each edge of a path up from j, or with by = -1 remove them."""
        self.n[j, k] += by
        self.m[j, k] += by
        for e in path:
            self.s[e, k] += by
            parent = self.network.edges[e][1]
            self.m[parent, k] += by * (parent >= self.network.held)


@functools.cache
def log_stirling_row(a, m):
    """Return log S^m_t for t = 0 ... m."""
    if m == 0:
        return np.zeros(1)
    if m == 1:
        return np.array([-np.inf, 0.0])
    last = log_stirling_row(a, m - 1)
    stay = np.log(m - 1 - np.arange(m) * a) + last
    return np.logaddexp(np.append(stay, -np.inf), np.append(-np.inf, last))


def log_stirling(a, m, t):
    """Return log S^m_t."""
    return log_stirling_row(a, m)[t] if t <= m else -np.inf


def log_rising(x, step, count):
    """Return the log of x (x + step) ... with `count` factors."""
    return np.log(x + step * np.arange(count)).sum()


def log_polya(prior, counts):
    """Return the log probability of a sequence of draws with these counts from a Dirichlet-distributed vector."""
    return (gammaln(prior + counts) - gammaln(prior)).sum() + gammaln(prior.sum()) - gammaln(prior.sum() + counts.sum())


def log_probability(state):
    """Return log p(n, s) of tokens as sequences of draws, given the fixed nodes."""
    network, total = state.network, 0.0
    above = np.log(expected(state)[: network.held]) if network.held else None
    for i in range(network.held, network.nodes):
        edges, m = network.of[i], state.m[i]
        if not edges:
            total += log_polya(network.alpha, m)
            continue
        a, b, tables = network.a[i], network.b[i], state.tables(i)
        total += log_rising(b, a, tables.sum()) - log_rising(b, 1.0, m.sum())
        total += sum(log_stirling(a, *counts) for counts in zip(m, tables, strict=True))
        # the number of ways to choose the parents of tables
        total += (gammaln(tables + 1) - gammaln(state.s[edges] + 1).sum(axis=0)).sum()
        if len(edges) > 1:
            total += log_polya(network.mixing[edges], state.s[edges].sum(axis=1))
        total += sum(state.s[e] @ above[network.edges[e][1]] for e in edges if network.edges[e][1] < network.held)
    return total


def weights(state, i, above):
    """Return the weights of another customer of each value k at node i with parents, given the parents' weights.

    They are for existing tables, shape (K,), and for a new table on each edge, shape (edges of i, K).
    """
    network, m, tables = state.network, state.m[i], state.tables(i)
    edges, a = network.of[i], network.a[i]
    known, new = np.zeros(m.size), np.ones(m.size)
    for k in np.flatnonzero(m):
        now, t = log_stirling(a, m[k], tables[k]), tables[k]
        known[k] = np.exp(log_stirling(a, m[k] + 1, t) - now) * (m[k] + 1 - t) / (m[k] + 1)
        new[k] = np.exp(log_stirling(a, m[k] + 1, t + 1) - now) * (t + 1) / (m[k] + 1)
    share = network.mixing[edges] + state.s[edges].sum(axis=1)
    share = share / share.sum()
    from_parents = np.array([above[network.edges[e][1]] for e in edges])
    return known, new * (network.b[i] + a * tables.sum()) * share[:, np.newaxis] * from_parents


def expected(state):
    """Return E[nu_ik | n, s], shape (nodes, K): the probability that the next customer of node i has value k."""
    network, nu = state.network, np.zeros(state.m.shape)
    for i in range(network.nodes):
        if network.of[i]:
            edges, a, tables = network.of[i], network.a[i], state.tables(i)
            share = network.mixing[edges] + state.s[edges].sum(axis=1)
            above = share / share.sum() @ nu[[network.edges[e][1] for e in edges]]
            nu[i] = state.m[i] - a * tables + (network.b[i] + a * tables.sum()) * above
            nu[i] /= network.b[i] + state.m[i].sum()
        else:
            nu[i] = (network.alpha + state.m[i]) / (network.alpha.sum() + state.m[i].sum())
    return nu


def customer_weights(state):
    """Return Z_i(k), shape (nodes, K): the total weight of all ways to add a customer of value k to node i.

    The weight of a way is p(n, s) with it / p(n, s) * the probability that removing the customer would draw this way.
    As a removal may be rejected, Z_i(k) differs from the probabilities of the next customer (`expected`), and does not
    sum to 1. A fixed node is a known vector, for which Z_i(k) is its expectation.
    """
    network, z = state.network, np.zeros(state.m.shape)
    z[: network.held] = expected(state)[: network.held]
    for i in range(network.held, network.nodes):
        if network.of[i]:
            known, new = weights(state, i, z)
            z[i] = (known + new.sum(axis=0)) / (network.b[i] + state.m[i].sum())
        else:
            z[i] = (network.alpha + state.m[i]) / (network.alpha.sum() + state.m[i].sum())
    return z


# Moves of tokens, by all their outcomes


def ways_off(state, i, k):
    """Return the possible paths of a customer of value k at node i, with their probabilities."""
    if state.network.ends(i):
        return [(1.0, [])]
    ways = [(1 - state.tables(i)[k] / state.m[i, k], [])]
    for e in state.network.of[i]:
        if state.s[e, k]:
            further = ways_off(state, state.network.edges[e][1], k)
            ways += [(state.s[e, k] / state.m[i, k] * chance, [e, *path]) for chance, path in further]
    return [way for way in ways if way[0] > 0]


def ways_on(state, i, k, z):
    """Return the possible paths of another customer of value k at node i, with their probabilities."""
    if state.network.ends(i):
        return [(1.0, [])]
    known, new = weights(state, i, z)
    total = known[k] + new[:, k].sum()
    ways = [(known[k] / total, [])] if known[k] > 0 else []
    for e, weight in zip(state.network.of[i], new[:, k], strict=True):
        further = ways_on(state, state.network.edges[e][1], k, z)
        ways += [(weight / total * chance, [e, *path]) for chance, path in further]
    return ways


def without_token(state, j, k, path):
    """Return the state without a token and its path, or None if customers would be left without a table."""
    off = state.copy()
    off.shift(j, k, path, -1)
    nodes = [j, *(state.network.edges[e][1] for e in path)]
    left = [i for i in nodes if not state.network.ends(i) and off.m[i, k] > 0 and off.tables(i)[k] == 0]
    return None if left else off


def token_outcomes(state, j, k, likelihood):
    """Return all outcomes of moving a token of value k at node j as (probability, value, state); some occur
    repeatedly.

    `likelihood` is the likelihood of the token's word for each value, without the token.
    """
    outcomes = []
    for chance, path in ways_off(state, j, k):
        off = without_token(state, j, k, path)
        if off is None:
            outcomes.append((chance, k, state))
            continue
        z = customer_weights(off)
        weight = z[j] * likelihood
        for value in np.flatnonzero(weight):
            for way, up in ways_on(off, j, value, z):
                on = off.copy()
                on.shift(j, value, up, 1)
                outcomes.append((chance * weight[value] / weight.sum() * way, int(value), on))
    return outcomes


# Moves of tokens, by draws


def draw_off(state, j, k, number, first):
    """Draw the path of a customer that is removed; number(n) is number n of the stream."""
    path, i = [], j
    while not state.network.ends(i):
        x, taken = number(first + len(path)) * state.m[i, k], None
        for e in state.network.of[i]:
            x -= state.s[e, k]
            if x < 0:
                taken = e
                break
        if taken is None:
            break
        path.append(taken)
        i = state.network.edges[taken][1]
    return path


def draw_on(state, j, k, number, first):
    """Draw the path of another customer."""
    path, i, z = [], j, customer_weights(state)
    while not state.network.ends(i):
        known, new = weights(state, i, z)
        x, taken = number(first + len(path)) * (known[k] + new[:, k].sum()), None
        for e, weight in zip(state.network.of[i], new[:, k], strict=True):
            x -= weight
            if x < 0 or (known[k] == 0 and e == state.network.of[i][-1]):
                taken = e
                break
        if taken is None:
            break
        path.append(taken)
        i = state.network.edges[taken][1]
    return path


def move_token(state, place, j, k, likelihood, number):
    """Move token `place`, of value k at node j, in this state; return its new value."""
    levels = state.network.levels
    first = place * (1 + 2 * levels)
    off = without_token(state, j, k, draw_off(state, j, k, number, first + 1))
    if off is None:
        return k
    value = pick(customer_weights(off)[j] * likelihood, number(first))
    path = draw_on(off, j, value, number, first + 1 + levels)
    state.n, state.s, state.m = off.n, off.s, off.m
    state.shift(j, value, path, 1)
    return value


def enter(state, place, j, k, number):
    """Add a token of value k to node j in this state."""
    levels = state.network.levels
    state.shift(j, k, draw_on(state, j, k, number, place * (1 + 2 * levels) + 1 + levels), 1)


def table_outcomes(state, e, k):
    """Return all possible values of s_ek given all else, in ascending order, as (probability, state)."""
    network = state.network
    i, parent = network.edges[e]
    outcomes = []
    for value in range(state.m[i, k] + 1):
        changed = state.copy()
        changed.s[e, k] = value
        changed.m[parent, k] += (value - state.s[e, k]) * (parent >= network.held)
        if changed.is_valid():
            outcomes.append((log_probability(changed), changed))
    logs = np.array([log for log, _ in outcomes])
    chance = np.exp(logs - logs.max())
    return list(zip(chance / chance.sum(), (changed for _, changed in outcomes), strict=True))


def move_tables(state, nodes, number, values=None, after_move=ignore):
    """Draw the table counts of the edges of some nodes in this state, from the last node to the first.

    Number e `values` + k of the stream belongs to edge e and value k; `values` defaults to the number of values.
    """
    values = state.m.shape[1] if values is None else values
    for i in sorted(nodes, reverse=True):
        for e in state.network.of[i]:
            for k in np.flatnonzero(state.m[i]):
                outcomes = table_outcomes(state, e, k)
                chosen = outcomes[pick(np.array([chance for chance, _ in outcomes]), number(e * values + k))][1]
                state.s, state.m = chosen.s, chosen.m
                after_move(state)


class Layout(NamedTuple):
    """The layout of a shard's documents: the nodes and segments of documents, the node and pairs of segments, and
    pairs."""

    nodes: np.ndarray
    segments: np.ndarray
    node: np.ndarray
    pairs: np.ndarray
    row: np.ndarray
    count: np.ndarray

    def tokens(self):
        """Return each token's row and node."""
        pair = np.repeat(np.arange(len(self.count)), self.count)
        node = np.asarray(self.node)[np.searchsorted(self.pairs, pair, side="right") - 1]
        return np.asarray(self.row)[pair], node


def enter_all(state, laid, token_topic, key, after_move=ignore):
    """Add tokens that have topics to this state, one after another."""
    for place, (j, k) in enumerate(zip(laid.tokens()[1], token_topic, strict=True)):
        enter(state, place, j, k, numbers_of(key))
        after_move(state)


def sweep(
    state, laid, z, row_topic, topic, beta, total, key, table_key=None, *, values=None, held=False, after_move=ignore
):  # fmt: skip
    """Move each token, and with `table_key` the table counts, in this state.

    It also changes `z`, and unless the topics are `held` fixed, `row_topic` (n_kw, shape (rows, K)) and `topic` (n_k).
    Tables of nodes without descendants are drawn after their tokens, and tables of other nodes at the end of their
    document, from the last node to the first. `beta` is the prior of a word, and `total` its sum over all words;
    `after_move` is called with the state after each move.
    """
    rows, every = laid.tokens()[0], np.arange(topic.size)
    inner, place = {parent for _, parent in state.network.edges}, 0
    for first, last, low, high in zip(laid.segments, laid.segments[1:], laid.nodes, laid.nodes[1:], strict=False):
        for j, group in itertools.groupby(range(first, last), laid.node.__getitem__):
            segments = list(group)
            for _ in range(laid.count[laid.pairs[segments[0]] : laid.pairs[segments[-1] + 1]].sum()):
                row, same_topic = rows[place], (every == z[place]) & (not held)
                likelihood = (row_topic[row] - same_topic + beta) / (topic - same_topic + total)
                z[place] = move_token(state, place, j, int(z[place]), likelihood, numbers_of(key))
                after_move(state)
                by = ((every == z[place]) & (not held)).astype(int) - same_topic
                row_topic[row] += by.astype(row_topic.dtype)
                topic += by.astype(topic.dtype)
                place += 1
            if j not in inner and table_key is not None:
                move_tables(state, [j], numbers_of(table_key), values, after_move)
        if table_key is not None and first < last:
            move_tables(state, inner.intersection(range(low, high)), numbers_of(table_key), values, after_move)
