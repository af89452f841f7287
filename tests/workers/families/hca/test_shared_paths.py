"""Chains of nodes that are joined to trees: the space they span, and the part of it that leaves share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import Model, fit, simulate
from collapsium.workers.families.hca import posterior as chains
from collapsium.workers.families.hca.posterior import fitted
from tests.chains import PRIOR, chained, spanned


def shared_directions(seed, branching, leaves, words=30, depth=3):
    """Return directions of leaves that share the first direction, and the second within groups; and the groups."""
    generator = np.random.default_rng(seed)
    groups = np.repeat(np.arange(branching), leaves)
    root, branch = generator.normal(scale=3.0, size=words), generator.normal(scale=3.0, size=(branching, words))
    rest = generator.normal(scale=3.0, size=(groups.size, depth - 2, words))
    return [
        np.stack([root, branch[group], *leaf_directions]) for group, leaf_directions in zip(groups, rest, strict=True)
    ], groups


@pytest.mark.parametrize("branching", [1, 2, 3])
@pytest.mark.parametrize("leaf_count", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_joined__finds_what_leaves_share_however_their_factors_are_rotated(seed, branching, leaf_count):
    directions, groups = shared_directions(seed, branching, leaf_count)
    chain_model = chained(seed, directions)
    moves, after = chains.joined(
        chain_model.tree,
        chain_model.sums,
        chain_model.found,
        chain_model.ends,
        [1, groups.size, groups.size],
        PRIOR,
        1.0,
    )
    leaves = np.flatnonzero(moves.tree.levels == 2)
    np.testing.assert_array_equal(leaves, np.flatnonzero(chain_model.tree.levels == 3))
    above = moves.tree.parents[leaves]
    for leaf in range(groups.size):
        np.testing.assert_array_equal(above == above[leaf], groups == groups[leaf])
    np.testing.assert_array_equal(after[leaves], chain_model.ends[leaves])
    assert after.sum() == pytest.approx(chain_model.ends.sum())


@given(st.integers(0, 1000), st.integers(1, 3), st.integers(1, 2))
def test_joined__preserves_what_chains_explain(seed, branching, leaves):
    """Each path of the tree spans what the chain of its leaf did."""
    directions, _ = shared_directions(seed, branching, leaves)
    chain_model = chained(seed, directions, chain_vectors=60)
    sizes = [1, len(directions), len(directions)]
    moves, _ = chains.joined(chain_model.tree, chain_model.sums, chain_model.found, chain_model.ends, sizes, PRIOR, 1.0)
    by_node = chain_model.loadings @ np.linalg.inv(chain_model.found.solve)
    brought = np.zeros(by_node.shape)
    for node in moves.tree.columns:
        for source, weight in moves.sources[int(node)]:
            brought[:, node] += weight * by_node[:, source]
    brought[:, -1] = by_node[:, -1]
    now = brought @ fitted(chain_model.sums.moved(moves), PRIOR, chain_model.found.tau).solve
    for leaf, direction in zip(np.flatnonzero(moves.tree.levels == 2), directions, strict=True):
        found_span, true_span = spanned(now, moves.tree.path(int(leaf))), spanned(direction.T, slice(None))
        assert np.linalg.svd(found_span.T @ true_span, compute_uv=False)[-1] > 0.99


@given(st.integers(0, 1000), st.integers(1, 6), st.lists(st.integers(1, 3), min_size=1, max_size=2))
def test_joined__has_at_most_max_nodes(seed, leaves, level_nodes):
    depth = len(level_nodes) + 2
    directions, _ = shared_directions(seed, leaves, 1, 12, depth)
    chain_model = chained(seed, directions, 12, chain_vectors=30)
    sizes = [1, *np.minimum(np.cumsum(level_nodes), leaves).tolist(), leaves]
    moves, after = chains.joined(
        chain_model.tree, chain_model.sums, chain_model.found, chain_model.ends, sizes, PRIOR, 1.0
    )
    for level, size in enumerate(sizes):
        assert 1 <= (moves.tree.levels == level).sum() <= size
    assert moves.counts["merged"] == chain_model.tree.columns.size - moves.tree.columns.size
    assert (moves.tree.parents[moves.tree.columns[1:]] >= 0).all()
    assert after[moves.tree.levels < 0].sum() == 0.0


def tree_agreement(model, truth):
    """Return the number of leaves below each branch with 1% of the vectors, and the cosine of each true node's nearest
    node."""
    fitted, passes = model.global_state.fitted.tree, model.global_state.masses.node_passes
    loadings, drawn = model.rows(0).loadings(model.global_state), truth.rows(0).word_node
    present = passes >= 0.01 * passes[0]
    shape = sorted(int(present[fitted.children(node)].sum()) for node in fitted.children(0) if present[node])
    true = truth.global_state.fitted.tree
    cosine = np.abs(loadings.T @ drawn) / np.outer(
        np.linalg.norm(loadings, axis=0) + 1e-300, np.linalg.norm(drawn, axis=0)
    )
    near = [cosine[:-1][present & (fitted.levels == true.levels[node]), node].max() for node in true.columns]
    return shape, min(near)


@pytest.mark.parametrize(("seed", "nodes", "documents"), [(2, 30, 1000), (0, 13, 2000)])
def test_simulated_trees_of_vectors__are_recovered(tmp_path, seed, nodes, documents):
    """The shape and all loadings are recovered, also with exactly as many nodes as there are, which takes splits and
    merges."""
    simulate(tmp_path / "c", family="hca", depth=3, documents=documents, words=30, seed=seed)
    options = {"depth": 3, "max_nodes": nodes, "seed": seed, "scheduler": "serial", "iterations": 40}
    model = fit(tmp_path / "c", tmp_path / "run", family="hca", **options)
    shape, near = tree_agreement(model, Model(tmp_path / "c"))
    assert shape == [3, 3, 3]
    assert near > 0.95
