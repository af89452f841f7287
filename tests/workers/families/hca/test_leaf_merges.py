"""Chains of nodes are pooled if they span the same space, however their factors are rotated, and not otherwise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.families.hca.posterior import fitted
from collapsium.workers.families.hca.tree_update import own_nodes, pooled
from tests.chains import PRIOR, chained, spanned


@given(st.integers(0, 1000), st.integers(1, 3), st.integers(1, 2), st.integers(1, 3))
def test_pooled__merges_chains_that_span_the_same_space(seed, leaves, twice, depth):
    generator = np.random.default_rng(seed)
    apart = list(generator.normal(scale=3.0, size=(leaves, depth, 30)))
    chains = chained(seed, [*apart, *apart[:twice]], chain_vectors=100)
    moves, after = pooled(chains.tree, chains.sums, chains.found, chains.ends, PRIOR, 1.0)
    left = own_nodes(moves.tree)
    assert len(left) == leaves
    assert moves.counts["merged"] == (len(own_nodes(chains.tree)) - leaves) * depth
    assert after.sum() == pytest.approx(chains.ends.sum())
    assert after[moves.tree.levels < 0].sum() == 0.0
    by_node = chains.loadings @ np.linalg.inv(chains.found.solve)
    brought = np.where(np.append(moves.tree.levels >= 0, True), by_node, 0.0)
    for node, weights in moves.sources.items():
        brought[:, node] = sum(weight * by_node[:, source] for source, weight in weights)
    now = brought @ fitted(chains.sums.moved(moves), PRIOR, chains.found.tau).solve
    for direction in apart:
        true_span = spanned(direction.T, slice(None))
        cosines = [np.linalg.svd(spanned(now, nodes).T @ true_span, compute_uv=False)[-1] for nodes in left]
        assert max(cosines) > 0.99


def test_pooled__drops_chains_without_vectors():
    generator = np.random.default_rng(3)
    chains = chained(3, list(generator.normal(scale=3.0, size=(3, 2, 20))), 20)
    ends = np.array(chains.ends)
    ends[own_nodes(chains.tree)[1, -1]] = 0.1
    moves, _ = pooled(chains.tree, chains.sums, chains.found, ends, PRIOR, 1.0)
    np.testing.assert_array_equal(own_nodes(moves.tree), own_nodes(chains.tree)[[0, 2]])
    assert moves.counts["pruned"] == 2


def test_pooled__does_not_change_a_single_chain():
    chains = chained(4, list(np.random.default_rng(4).normal(scale=3.0, size=(1, 2, 10))), 10)
    moves, after = pooled(chains.tree, chains.sums, chains.found, chains.ends, PRIOR, 1.0)
    assert moves.tree is chains.tree
    np.testing.assert_array_equal(after, chains.ends)
