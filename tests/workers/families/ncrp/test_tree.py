import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.families.ncrp.tree import (
    FREE,
    NOWHERE,
    ROOT,
    FittedTree,
    MoveTable,
    Tree,
    UpcomingTree,
    deepened,
    level_sums,
)
from tests.strategies import trees

#       0
#    4     2
#   1 6         (3 and 5 are free)
SAMPLE = Tree(np.array([ROOT, 4, 0, FREE, 0, FREE, 4]), 3)


def test_the_example_tree__has_these_levels_and_parents():
    np.testing.assert_array_equal(SAMPLE.levels, [0, 2, 1, -1, 1, -1, 2])
    np.testing.assert_array_equal(SAMPLE.columns, [0, 2, 4, 1, 6])
    np.testing.assert_array_equal(SAMPLE.places, [0, 3, 1, -1, 2, -1, 4])
    np.testing.assert_array_equal(SAMPLE.parent, [-1, 0, 0, 2, 2])
    np.testing.assert_array_equal(SAMPLE.level, [0, 1, 1, 2, 2])
    np.testing.assert_array_equal(SAMPLE.children(4), [1, 6])
    assert SAMPLE.path(6) == [0, 4, 6]
    np.testing.assert_array_equal(SAMPLE.paths()[[2, 3, 6]], [[0, 2, -1], [-1, -1, -1], [0, 4, 6]])
    np.testing.assert_array_equal(SAMPLE.gathered(np.array([1.0, 2, 3, 99, 4, 99, 5])), [15, 2, 3, 0, 11, 0, 5])


@given(trees())
def test_columns__are_ordered_by_level_with_parents_first(tree):
    nodes = np.flatnonzero(tree.parents != FREE)
    assert sorted(tree.columns) == list(nodes)
    assert tree.columns[0] == 0
    assert (np.diff(tree.level) >= 0).all()
    np.testing.assert_array_equal(tree.columns[tree.places[nodes]], nodes)
    assert (tree.places[tree.parents == FREE] == -1).all()
    assert (tree.parent[1:] < np.arange(1, tree.columns.size)).all()
    np.testing.assert_array_equal(tree.columns[tree.parent[1:]], tree.parents[tree.columns[1:]])
    np.testing.assert_array_equal(tree.level[1:], tree.level[tree.parent[1:]] + 1)
    assert tree.level.max() < tree.depth
    assert sorted(child for node in nodes for child in tree.children(node)) == sorted(nodes[1:])


@given(trees())
def test_paths__lead_from_the_root_to_each_node(tree):
    paths = tree.paths()
    for column in range(tree.parents.size):
        path = tree.path(column) if tree.levels[column] >= 0 else []
        np.testing.assert_array_equal(paths[column], path + [-1] * (tree.depth - len(path)))
        if path:
            assert path[0] == 0
            assert path[-1] == column
            assert [tree.parents[node] for node in path[1:]] == path[:-1]


@given(trees(), st.integers(0, 1000))
def test_gathered__sums_the_values_below_each_node(tree, seed):
    ends = np.random.default_rng(seed).random(tree.parents.size)
    found = tree.gathered(ends)
    for column in range(tree.parents.size):
        below = [node for node in tree.columns if column in tree.path(node)]
        assert found[column] == pytest.approx(ends[below].sum(), rel=1e-12)
    assert found[0] == pytest.approx(ends[tree.columns].sum(), rel=1e-12)


def moves_of(rows):
    source, target, weight = zip(*rows, strict=True) if rows else ((), (), ())
    sources, targets = np.array(source, dtype=np.int64), np.array(target, dtype=np.int64)
    return MoveTable(sources, targets, np.array(weight, dtype=np.float64))


@given(st.integers(1, 6), st.integers(0, 5), st.data())
def test_moves__multiply_columns_by_a_matrix(columns, words, data):
    column = st.integers(0, columns - 1)
    row = st.tuples(st.one_of(st.just(NOWHERE), column), column, st.sampled_from([0.0, 0.25, 1.0]))
    rows = data.draw(st.lists(row, max_size=8))
    values = np.random.default_rng(words).random((words, columns))
    matrix = np.eye(columns)
    matrix[:, [target for _, target, _ in rows]] = 0.0
    for source, target, weight in rows:
        if source != NOWHERE:
            matrix[source, target] += weight
    before = values.copy()
    np.testing.assert_allclose(moves_of(rows).apply(values), values @ matrix, rtol=1e-12)
    np.testing.assert_array_equal(values, before)  # arrays that others also refer to must not be changed in place
    if words:
        np.testing.assert_allclose(moves_of(rows).apply(values[0]), values[0] @ matrix, rtol=1e-12)


def test_moves__copy_nothing_if_no_node_moves():
    values = np.ones((3, 4))
    assert moves_of([]).apply(values) is values


@given(st.integers(0, 5), st.integers(1, 5), st.integers(0, 3), st.integers(0, 1000))
def test_deepened__preserves_the_tokens_of_each_document(documents, levels, more, seed):
    generator = np.random.default_rng(seed)
    by_level, alpha = generator.random((documents, levels)), generator.random(levels + more) + 0.1
    found = deepened(by_level, alpha)
    assert found.shape == (documents, levels + more)
    np.testing.assert_array_equal(found[:, : levels - 1], by_level[:, : levels - 1])
    np.testing.assert_allclose(found.sum(axis=1), by_level.sum(axis=1), rtol=1e-12)
    below = alpha[levels - 1 :] / alpha[levels - 1 :].sum()
    np.testing.assert_allclose(found[:, levels - 1 :], by_level[:, -1:] * below, rtol=1e-12)


def test_level_sums__add_deeper_nodes_to_the_last_level():
    np.testing.assert_array_equal(level_sums(np.array([50.0, 20.0, 10.0, 5.0]), 2), [50.0, 35.0])
    np.testing.assert_array_equal(level_sums(np.array([50.0, 20.0, 10.0]), 3), [50.0, 20.0, 10.0])


def test_states__contain_the_present_and_the_next_tree():
    fitted = FittedTree(SAMPLE.parents, 3, np.zeros(7), grown=0, merged=0, pruned=0)
    upcoming = UpcomingTree(np.array([ROOT, 0, FREE]), 2, np.zeros(3), next_grown=1, next_merged=2, next_pruned=3)
    assert fitted.tree.depth == 3
    np.testing.assert_array_equal(fitted.tree.parents, SAMPLE.parents)
    np.testing.assert_array_equal(upcoming.tree.columns, [0, 1])
    after = upcoming.fitted(np.ones(3))
    assert (after.depth, after.grown, after.merged, after.pruned) == (2, 1, 2, 3)
