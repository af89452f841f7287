"""Networks of Dirichlet-distributed vectors that are small enough to enumerate all seatings, states and moves.

`naive.network` has the formulas and moves that the compiled sampler is compared with.
"""

import itertools
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import chisquare

from collapsium.workers.arrays.random_streams import Stream
from tests.naive.network import (
    Layout,
    Network,
    State,
    enter_all,
    expected,
    log_polya,
    log_probability,
    move_tables,
    move_token,
    sweep,
    table_outcomes,
    token_outcomes,
    weights,
)


@dataclass(frozen=True)
class Case:
    """A network with tokens at some of its nodes."""

    parents: list
    tokens: list  # the node of each token
    values: int = 2
    kind: list | None = None
    mixing: list | None = None
    held: int = 0
    above: tuple = ()  # tokens by value at each node that is held fixed

    def network(self, discounted):
        discount = [0.35, 0.6] if discounted else [0.0, 0.0]
        return Network(
            self.parents, [0.8, 1.7], discount, [0.5, 1.25, 0.9][: self.values], self.kind or [0] * len(self.parents),
            self.mixing, self.held,
        )  # fmt: skip

    def likelihood(self):
        """Return the likelihood of each value for each token, shape (tokens, values)."""
        return np.random.default_rng(5).dirichlet(np.ones(self.values), len(self.tokens))


CASES = {
    "one vector with a parent": Case([[], [0]], [1, 1, 1], values=3),
    "chain": Case([[], [0], [1]], [2, 2, 1], kind=[0, 0, 1]),
    "segments": Case([[], [0], [0], [0]], [1, 1, 2, 3]),
    "diamond": Case([[], [0], [0], [1, 2]], [3, 3, 1], kind=[0, 0, 1, 0], mixing=[1, 1, 0.4, 1.5]),
    "two roots": Case([[], [], [0, 1]], [2, 2, 0], mixing=[0.7, 2.0]),
    "vector above documents": Case([[], [0], [0], [1], [2]], [3, 3, 4], kind=[0, 1, 1, 0, 0]),
    "documents below what is held": Case([[], [0], [1], [0, 2]], [2, 3, 3], held=2, above=(4, 2), mixing=[1, 1, 2, 0.5]),
}  # fmt: skip
NOT_HELD = [name for name, case in CASES.items() if not case.held]


@pytest.fixture(params=[False, True], ids=["a = 0", "a > 0"])
def discounted(request):
    return request.param


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def empty_state(case, network):
    """Return a state without tokens, except at fixed nodes, whose tokens have at most two tables on each edge."""
    shape = (len(case.parents), case.values)
    state = State(network, np.zeros(shape, dtype=int), np.zeros((len(network.edges), case.values), dtype=int))
    for i in range(case.held):
        state.m[i] = case.above
        for e in network.of[i]:
            state.s[e] = np.minimum(case.above, 2)
    return state


def table_counts_of(network, n, held_s):
    """Yield all possible s_.k of one value given n_.k: the numbers of tables of all edges."""

    def extend(i, s, m):
        if i < network.held:
            yield tuple(s)
            return
        edges = network.of[i]
        for edge_tables in itertools.product(range(m[i] + 1), repeat=len(edges)):
            if edges and (sum(edge_tables) > m[i] or (sum(edge_tables) == 0) != (m[i] == 0)):
                continue
            at, more = list(s), list(m)
            for e, count in zip(edges, edge_tables, strict=True):
                at[e] = count
                more[network.edges[e][1]] += count
            yield from extend(i - 1, at, more)

    yield from extend(network.nodes - 1, list(held_s), list(n))


def states_of(case, network):
    """Return all states as {(values of the tokens, tables): State}."""
    empty, found = empty_state(case, network), {}
    for z in itertools.product(range(case.values), repeat=len(case.tokens)):
        n = np.zeros_like(empty.n)
        np.add.at(n, (case.tokens, list(z)), 1)
        columns = [list(table_counts_of(network, n[:, k], empty.s[:, k])) for k in range(case.values)]
        for s in itertools.product(*columns):
            state = State(network, n, np.array(s).T)
            state.m[: case.held] = empty.m[: case.held]
            found[z, state.s.tobytes()] = state
    return found


def posterior(case, states):
    """Return the probability of each state, from p(n, s) and the tokens' likelihoods."""
    likelihood = case.likelihood()
    logs = np.array([
        log_probability(state) + np.log(likelihood[range(len(z)), list(z)]).sum() for (z, _), state in states.items()
    ])  # fmt: skip
    weight = np.exp(logs - logs.max())
    return weight / weight.sum()


# Probabilities, by all ways to sit


def seatings(customers):
    """Yield all ways for a sequence of customers (their values) to share tables of one value, as lists of (value,
    customers)."""
    if not customers:
        yield []
        return
    for tables in seatings(customers[:-1]):
        for i, (value, size) in enumerate(tables):
            if value == customers[-1]:
                yield [*tables[:i], (value, size + 1), *tables[i + 1 :]]
        yield [*tables, (customers[-1], 1)]


def rising(x, step, count):
    return np.prod([x + step * i for i in range(count)])


def probability_of_draws(network, drawn, fixed, i=None):
    """Return the probability of the values that each node has drawn, summed over all seatings and parents of tables."""
    i = network.nodes - 1 if i is None else i
    if i < network.held:
        return np.prod([fixed[j][value] for j in range(network.held) for value in drawn[j]])
    edges = network.of[i]
    if not edges:
        chance = np.exp(log_polya(network.alpha, np.bincount(drawn[i], minlength=network.alpha.size)))
        return chance * probability_of_draws(network, drawn, fixed, i - 1) if i else chance
    total = 0.0
    for tables in seatings(drawn[i]):
        seated = rising(network.b[i], network.a[i], len(tables)) / rising(network.b[i], 1, len(drawn[i]))
        seated *= np.prod([rising(1 - network.a[i], 1, size - 1) for _, size in tables])
        for asked in itertools.product(edges, repeat=len(tables)):
            extend = [list(topics) for topics in drawn]
            for e, (value, _) in zip(asked, tables, strict=True):
                extend[network.edges[e][1]].append(value)
            mixed = log_polya(network.mixing[edges], np.array([asked.count(e) for e in edges])) if len(edges) > 1 else 0
            total += seated * np.exp(mixed) * probability_of_draws(network, extend, fixed, i - 1)
    return total


def test_probability__summed_over_tables_matches_the_draws(case, discounted):
    network = case.network(discounted)
    summed = Counter()
    for (z, _), state in states_of(case, network).items():
        assert state.is_valid()
        summed[z] += np.exp(log_probability(state))
    fixed = expected(empty_state(case, network))
    for z, found in summed.items():
        drawn = [[value for value, j in zip(z, case.tokens, strict=True) if j == i] for i in range(network.nodes)]
        assert found == pytest.approx(probability_of_draws(network, drawn, fixed), rel=1e-12)
    assert sum(summed.values()) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("case", [CASES[name] for name in NOT_HELD], ids=NOT_HELD)
def test_expected__is_the_probability_of_the_next_token(case, discounted):
    network, summed, longer = case.network(discounted), Counter(), Counter()
    last = len(case.parents) - 1
    for (z, _), state in states_of(case, network).items():
        found = expected(state)
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
        for k, chance in enumerate(found[last]):
            summed[*z, k] += np.exp(log_probability(state)) * chance
    for (z, _), state in states_of(replace(case, tokens=[*case.tokens, last]), network).items():
        longer[z] += np.exp(log_probability(state))
    assert summed == pytest.approx(longer, rel=1e-12)


# Moves, by all that they can lead to


def token_matrix(case, states, place, outcomes=token_outcomes):
    """Return the transition probabilities between all states by the move of one token."""
    numbers = {key: i for i, key in enumerate(states)}
    entries = [], ([], [])
    likelihood = case.likelihood()[place]
    for row, ((z, _), state) in enumerate(states.items()):
        for chance, value, after in outcomes(state, case.tokens[place], z[place], likelihood):
            assert after.is_valid()
            entries[0].append(chance)
            entries[1][0].append(row)
            entries[1][1].append(numbers[(*z[:place], value, *z[place + 1 :]), after.s.tobytes()])
    return csr_array(entries, shape=(len(states), len(states)))


def table_matrix(states, e, k):
    """Return the transition probabilities between all states by the move of s_ek, which is only drawn if there are
    customers."""
    numbers = {key: i for i, key in enumerate(states)}
    entries = [], ([], [])
    for row, ((z, _), state) in enumerate(states.items()):
        has_customers = state.m[state.network.edges[e][0], k] > 0
        for chance, after in table_outcomes(state, e, k) if has_customers else [(1.0, state)]:
            entries[0].append(chance)
            entries[1][0].append(row)
            entries[1][1].append(numbers[z, after.s.tobytes()])
    return csr_array(entries, shape=(len(states), len(states)))


def check_invariant(matrix, weight):
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-12)
    assert abs(weight @ matrix - weight).sum() < 1e-12


def test_token_moves__leave_the_posterior_invariant_and_reach_every_state(case, discounted):
    states = states_of(case, case.network(discounted))
    weight, reached = posterior(case, states), 0
    for place in range(len(case.tokens)):
        matrix = token_matrix(case, states, place)
        check_invariant(matrix, weight)
        reached = reached + matrix
    assert connected_components(reached, connection="strong")[0] == 1


def test_table_moves__leave_the_posterior_invariant(case, discounted):
    network = case.network(discounted)
    states = states_of(case, network)
    weight = posterior(case, states)
    for e, (i, _) in enumerate(network.edges):
        for k in range(case.values if i >= case.held else 0):
            check_invariant(table_matrix(states, e, k), weight)


# Moves, as they are drawn


def pick_state(case, network, pick):
    """Return one of the states, with its tokens' values."""
    states = states_of(case, network)
    (z, _), state = list(states.items())[int(pick * len(states))]
    return z, state


@pytest.mark.parametrize(
    ("name", "pick"), [("diamond", 0.11), ("diamond", 0.52), ("chain", 0.9), (list(CASES)[-1], 0.3)]
)
def test_move_token__draws_the_listed_outcomes_with_their_probabilities(name, pick):
    case, rng = CASES[name], np.random.default_rng(8)
    network = case.network(True)
    z, state = pick_state(case, network, pick)
    likelihood, place, draws = case.likelihood()[1], 1, 1 + 2 * network.levels
    listed, drawn, asked = Counter(), Counter(), set()
    for chance, value, after in token_outcomes(state, case.tokens[place], z[place], likelihood):
        listed[value, after.s.tobytes()] += chance

    def number(n):
        asked.add(n)
        return rng.random()

    for _ in range(600):
        after = state.copy()
        value = move_token(after, place, case.tokens[place], z[place], likelihood, number)
        assert after.is_valid()
        drawn[value, after.s.tobytes()] += 1
    assert set(drawn) <= set(listed)
    assert asked <= set(range(place * draws, (place + 1) * draws))
    often = [state for state, chance in listed.items() if chance > 0.01]
    seen = np.array([*(drawn[state] for state in often), 600 - sum(drawn[state] for state in often)])
    chance = np.array([*(listed[state] for state in often), 1 - sum(listed[state] for state in often) + 1e-9])
    assert chisquare(seen, 600 * chance / chance.sum()).pvalue > 1e-3


def test_move_tables__selects_outcomes_by_cumulative_probability(discounted):
    case = replace(CASES["chain"], tokens=[2, 2, 2, 2])
    state = next(state for (z, _), state in states_of(case, case.network(discounted)).items() if set(z) == {1})
    outcomes, running = table_outcomes(state, 1, 1), 0.0
    assert [outcome.s[1, 1] for _, outcome in outcomes] == [1, 2, 3, 4][-len(outcomes) :]
    assert len(outcomes) > 2
    for chance, outcome in outcomes:
        after, numbers = state.copy(), np.full(4, np.nan)
        numbers[1 * case.values + 1] = running + chance / 2
        move_tables(after, [2], numbers.__getitem__)
        np.testing.assert_array_equal(after.s, outcome.s)
        assert after.is_valid()
        running += chance


def test_sweep__gives_valid_states_and_correct_counts(case, discounted):
    network = case.network(discounted)
    state, key = empty_state(case, network), Stream(3).key()
    nodes = sorted(set(case.tokens))
    pairs, rows, counts = np.arange(len(nodes) + 1) * 2, np.tile([0, 1], len(nodes)), np.tile([2, 1], len(nodes))
    laid = Layout(np.array([case.held, network.nodes]), np.array([0, len(nodes)]), np.array(nodes), pairs, rows, counts)
    row, _ = laid.tokens()
    z, moves = np.arange(row.size) % case.values, []

    def after_move(state):
        assert state.is_valid()
        moves.append(state.n.sum())

    enter_all(state, laid, z, key, after_move)
    row_topic = np.zeros((2, case.values), dtype=int)
    np.add.at(row_topic, (row, z), 1)
    before, topic = row_topic.copy(), row_topic.sum(axis=0)
    for iteration in range(3):
        keys = [Stream(3, name, iteration).key() for name in ("", "tables")]
        sweep(state, laid, z, row_topic, topic, 0.1, 0.2, *keys, held=case.held > 0, after_move=after_move)
    assert moves[: row.size] == list(range(1, row.size + 1))
    assert set(moves[row.size :]) == {row.size}
    expected_rows = np.zeros_like(row_topic)
    np.add.at(expected_rows, (row, z), 1)
    np.testing.assert_array_equal(row_topic, before if case.held else expected_rows)
    np.testing.assert_array_equal(topic, row_topic.sum(axis=0))


# The token move as it is printed in section 3.2 of the paper


def printed_outcomes(state, j, k, likelihood):
    """Yield outcomes of forced paths: up where there are as many tables as customers, or no customers yet."""
    network, off, path, i = state.network, state.copy(), [], j
    while network.of[i] and state.tables(i)[k] == state.m[i, k]:
        path.append(network.of[i][0])
        i = network.edges[path[-1]][1]
    off.shift(j, k, path, -1)

    def way(i, value):
        if not network.of[i]:
            return (network.alpha + off.m[i])[value] / (network.alpha.sum() + off.m[i].sum()), []
        m, t = off.m[i, value], off.tables(i)
        if m:
            known, _ = weights(off, i, np.ones(off.m.shape))
            return known[value] * (m + 1) / (m + 1 - t[value]) / (network.b[i] + off.m[i].sum()), []
        e = network.of[i][0]
        above, extend = way(network.edges[e][1], value)
        opened = (network.b[i] + network.a[i] * t.sum()) / (network.b[i] + off.m[i].sum())
        return opened * above, [e, *extend]

    ways = [way(j, value) for value in range(likelihood.size)]
    weight = likelihood * [way for way, _ in ways]
    for value, (_, up) in enumerate(ways):
        on = off.copy()
        on.shift(j, value, up, 1)
        yield weight[value] / weight.sum(), value, on


def test_the_token_move_as_printed__does_not_leave_the_posterior_invariant(discounted):
    case = Case([[], [0], [0]], [1, 1, 2, 2])
    network = case.network(discounted)
    states = states_of(case, network)
    weight = posterior(case, states)

    def composed(outcomes):
        """Return the transition matrix of a sweep that draws all tables anew after each token move."""
        tables = [table_matrix(states, e, k) for e in range(2) for k in range(2)]
        whole = np.eye(len(states))
        for place in range(len(case.tokens)):
            for matrix in (token_matrix(case, states, place, outcomes), *tables):
                whole = whole @ matrix
        return whole

    def distance(whole):
        """Return the total variation distance between the posterior and the distribution after many sweeps."""
        at = np.full(len(states), 1 / len(states))
        for _ in range(500):
            at = at @ whole
        return abs(at - weight).sum() / 2

    assert distance(composed(token_outcomes)) < 1e-12
    assert distance(composed(printed_outcomes)) > 0.01
