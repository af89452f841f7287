"""Sums over the nodes of a network, from which hyperparameters are learned."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln, psi
from scipy.stats import kstest

from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.networks.states import NodeTotals, SampledSums
from collapsium.workers.kernels.networks.records import NodeStatistics

pytestmark = pytest.mark.usefixtures("wrapping")


@dataclass(frozen=True)
class Parameters:
    """The parameters that sums over nodes depend on."""

    strength: np.ndarray
    alpha: np.ndarray

    @property
    def concentration(self):
        return float(self.alpha.sum())


def sums_of(nodes, global_state, seed=1):
    """Return the sums over nodes, for kernels that report no statistics."""
    size = nodes.kind.size
    statistics = NodeStatistics(np.zeros(size), np.zeros(size), np.zeros((global_state.strength.size, 2)), np.zeros(0))
    return SampledSums.of(nodes, statistics, global_state, Stream(seed))


@st.composite
def sums(draw):
    size, kinds = draw(st.integers(0, 8)), draw(st.integers(1, 3))
    noise = np.random.default_rng(draw(st.integers(0, 2**31)))
    customers = noise.poisson(3.0, size)
    tables = np.minimum(noise.integers(1, 4, size), customers)
    global_state = Parameters(noise.gamma(1.0, 2.0, kinds) + 0.1, noise.gamma(1.0, 1.0, 4) + 0.1)
    roots = noise.random(size) < 0.4
    return NodeTotals(
        noise.integers(0, kinds, size).astype(np.int32), roots, customers, np.where(roots, 0, tables)
    ), global_state


@given(sums())
def test_node_sums__match_single_nodes(case):
    nodes, global_state = case
    kind, roots, customers, tables = nodes
    found, kinds = sums_of(nodes, global_state), global_state.strength.size
    total = global_state.alpha.sum()
    falling, beyond, eta = np.zeros(kinds), Counter(), 0.0
    for j, m in enumerate(customers):
        b = total if roots[j] else global_state.strength[kind[j]]
        falling[kind[j]] += gammaln(b) - gammaln(b + m)
        eta += (psi(total) - psi(total + m)) * roots[j]
        beyond.update((kind[j], i) for i in range(tables[j]))
    np.testing.assert_allclose(found.falling, falling, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.log_eta, eta, rtol=1e-9, atol=1e-12)
    assert found.tables.shape == (kinds, tables.max(initial=0))
    assert {(k, i): n for (k, i), n in np.ndenumerate(found.tables) if n} == beyond
    mine = np.isin(np.arange(falling.size), kind[(customers > 0) & ~roots])
    np.testing.assert_array_equal(found.log_q > 0.0, mine)


@pytest.mark.parametrize(("b", "m"), [(0.3, 1), (12.0, 40)])
def test_log_q__follows_a_beta_distribution(b, m):
    global_state = Parameters(np.array([b]), np.ones(2))
    node = NodeTotals(np.zeros(1, np.int32), np.zeros(1, bool), np.array([m]), np.array([1]))
    found = [float(sums_of(node, global_state, seed).log_q[0]) for seed in range(800)]
    assert kstest(np.exp(-np.array(found)), "beta", (b, m)).pvalue > 0.01


@given(sums(), st.data())
def test_sums_of_two_groups_of_nodes__add_up_to_the_sums_of_all_nodes(case, data):
    nodes, global_state = case
    first = data.draw(st.integers(0, nodes.kind.size))
    parts = [NodeTotals(*(sums[part] for sums in nodes)) for part in (slice(first), slice(first, None))]
    added, whole = sums_of(parts[0], global_state).plus(sums_of(parts[1], global_state)), sums_of(nodes, global_state)
    np.testing.assert_array_equal(added.tables, whole.tables)
    np.testing.assert_allclose(added.falling, whole.falling, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(added.log_eta, whole.log_eta, rtol=1e-9, atol=1e-12)
