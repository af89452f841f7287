"""Chains that are joined to trees: what they span, and what of it leaves share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsar.pipeline import Model, chains, fit, infer, simulate
from collapsar.pipeline.gaussian import Prior, Sums, evidence
from collapsar.pipeline.nested import sticks, sticks_bound
from collapsar.workers.hca import loadings
from collapsar.workers.tree import FREE, ROOT, Tree, swept


def chains_of(columns, leaves, depth):
    """A root with so many paths behind it that share nothing else."""
    parents = np.full(columns, FREE, dtype=np.int64)
    parents[0] = ROOT
    inner = np.arange(1, 1 + leaves * (depth - 1))
    parents[inner] = np.where((inner - 1) % (depth - 1) == 0, 0, inner - 1)
    return Tree(parents, depth)


def turned_chains(seed, branching, leaves_each, words, depth=3):
    """Loadings of chains whose leaves share a direction by groups, each chain turned at random; ends; true groups."""
    generator = np.random.default_rng(seed)
    groups = np.repeat(np.arange(branching), leaves_each)
    tree = chains_of(1 + groups.size * (depth - 1) + 3, groups.size, depth)
    made = np.zeros((words, tree.parents.size + 1))
    made[:, 0], made[:, -1] = generator.normal(size=(2, words))
    shared = generator.normal(scale=3.0, size=(branching, words))
    for leaf, group in zip(np.flatnonzero(tree.levels == depth - 1), groups, strict=True):
        own = np.stack([shared[group], *generator.normal(scale=3.0, size=(depth - 2, words))], axis=1)
        made[:, tree.path(leaf)[1:]] = own @ np.linalg.qr(generator.normal(size=(depth - 1, depth - 1)))[0]
    ends = np.where(tree.levels == depth - 1, generator.integers(50, 150, tree.parents.size), 0).astype(np.float64)
    return tree, made, ends, groups


def valued(tree, made, ends, tau=10.0, gamma=1.0):
    """What of the bound a tree decides, of x that are normal given each leaf."""
    size = tree.parents.size + 1
    second = np.zeros((size, size))
    second[-1, -1] = second[0, 0] = ends.sum()
    passes = tree.gathered(ends)
    second[np.arange(1, size - 1), np.arange(1, size - 1)] = passes[1:]
    sums_of = made @ second
    sums = Sums(second, sums_of.T @ sums_of, 0.0, 0.0, ends.sum(), float(len(made)))

    def value(moves, after):
        found = evidence(sums.moved(moves), moves.tree.columns, Prior(1000.0, 1.0, 1.0), tau)
        return found + sticks_bound(
            moves.tree, sticks(moves.tree, moves.tree.gathered(after), after, gamma), after, gamma
        )

    return value


@given(st.integers(0, 1000), st.integers(1, 3), st.integers(1, 3))
def test_joined__finds_what_leaves_share_however_chains_are_turned(seed, branching, each):
    tree, made, ends, groups = turned_chains(seed, branching, each, 30)
    sizes = [1, 5, groups.size]
    moves, after = chains.joined(tree, made.T @ made, ends, sizes, valued(tree, made, ends))
    found = moves.tree
    leaves = np.flatnonzero(found.levels == 2)
    np.testing.assert_array_equal(leaves, np.flatnonzero(tree.levels == 2))
    above = found.parents[leaves]
    for one in range(groups.size):
        np.testing.assert_array_equal(above == above[one], groups == groups[one])
    assert after.sum() == pytest.approx(ends.sum())
    np.testing.assert_array_equal(after[leaves], ends[leaves])


@given(st.integers(0, 1000), st.integers(2, 5), st.integers(1, 4))
def test_joined__keeps_what_each_chain_spans_of_a_chain_by_itself(seed, depth, leaves):
    """Where groups are single leaves, factors are turned and no more: W W' is what it was."""
    tree, made, ends, _ = turned_chains(seed, leaves, 1, 20, depth)
    moves, _ = chains.joined(
        tree, made.T @ made, ends, [1, *[leaves] * (depth - 1)], lambda moves, _: moves.tree.columns.size
    )
    assert moves.tree.columns.size == tree.columns.size
    for leaf in np.flatnonzero(tree.levels == depth - 1):
        path, before = tree.path(leaf)[1:], made[:, tree.path(leaf)[1:]]
        turn = np.zeros((made.shape[1], depth - 1))
        for place, node in enumerate(moves.tree.path(leaf)[1:]):
            for source, weight in moves.sources.get(node, [(node, 1.0)]):
                turn[source, place] += weight
        assert not np.delete(turn, path, axis=0).any()
        now = made @ turn
        np.testing.assert_allclose(now @ now.T, before @ before.T, rtol=1e-8, atol=1e-8)


@given(st.integers(0, 1000), st.integers(1, 8), st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_joined__has_no_more_nodes_than_there_is_room_for(seed, leaves, most):
    depth = len(most) + 2
    tree, made, ends, _ = turned_chains(seed, leaves, 1, 10, depth)
    sizes = [1, *np.minimum(np.cumsum(most), leaves).tolist(), leaves]
    moves, after = chains.joined(tree, made.T @ made, ends, sizes, valued(tree, made, ends))
    for level, size in enumerate(sizes):
        assert 1 <= (moves.tree.levels == level).sum() <= size
    assert moves.counts["merged"] == tree.columns.size - moves.tree.columns.size
    assert (moves.tree.parents[moves.tree.columns[1:]] >= 0).all()
    assert after[moves.tree.levels < 0].sum() == 0.0


@pytest.mark.parametrize("seed", [0, 2, 8])
def test_planted_trees_of_vectors__are_found_branch_by_branch(tmp_path, seed):
    """Vectors of a leaf of their own share one, and their path spans what the true one does."""
    import pyarrow.parquet as pq

    simulate(tmp_path / "c", family="hca", depth=3, documents=1000, words=30, seed=seed)
    model = fit(tmp_path / "c", tmp_path / "run", family="hca", depth=3, seed=seed, scheduler="serial", iterations=50)
    infer(tmp_path / "run", tmp_path / "c", tmp_path / "i.parquet", scheduler="serial")
    path = np.array([row["path"] for row in pq.read_table(tmp_path / "i.parquet").to_pylist()])
    leaf = np.array([row["topics"][0] for row in pq.read_table(tmp_path / "c/truth/proportions").to_pylist()])
    truth = Model(tmp_path / "c")
    true = swept(truth.globals).paths()[leaf]
    pure = sum(np.bincount(true[path[:, 1] == node, 1]).max() for node in np.unique(path[:, 1]))
    assert pure / len(path) > 0.95
    made, drawn = loadings(model.rows(0), model.globals), truth.rows(0)["word_node"]
    for one in np.unique(leaf):
        nodes, counts = np.unique(path[leaf == one, 2], return_counts=True)
        ours = np.linalg.qr(made[:, swept(model.globals).path(nodes[counts.argmax()])])[0]
        theirs = np.linalg.qr(drawn[:, swept(truth.globals).path(one)])[0]
        assert np.linalg.svd(ours.T @ theirs, compute_uv=False)[-1] > 0.99
