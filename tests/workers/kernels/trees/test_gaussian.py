import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.families.hca.hca import end_paths, end_quadratics
from collapsium.workers.families.hca.states import Loadings, TreeModel
from collapsium.workers.families.ncrp.tree import FREE, ROOT, Tree
from collapsium.workers.kernels.trees.gaussian import (
    FactorPosterior,
    GaussianTree,
    TreeStatistics,
    VectorPosterior,
    invert,
    nearest,
    sweep_components,
    sweep_factors,
)
from tests.naive import components as naive

pytestmark = pytest.mark.kernels

SHARE = 1e-3


@st.composite
def trees(draw, max_nodes=9):
    """Draw a tree over columns, some of them free; inner nodes may lack children."""
    depth = draw(st.integers(1, 5))
    parents = [ROOT]
    levels = [0]
    for _ in range(draw(st.integers(0, max_nodes - 1)) if depth > 1 else 0):
        able = [place for place, level in enumerate(levels) if level < depth - 1]
        parents.append(draw(st.sampled_from(able)))
        levels.append(levels[parents[-1]] + 1)
    columns = np.concatenate([[0], 1 + np.array(draw(st.permutations(range(len(parents) + 2))))])[: len(parents)]
    found = np.full(len(parents) + 3, FREE, dtype=np.int64)
    for place, parent in enumerate(parents):
        found[columns[place]] = ROOT if place == 0 else columns[parent]
    return Tree(found, depth)


@st.composite
def problems(draw):
    """Draw vectors and a tree with loadings; values and precision may have any scale, and need not match."""
    tree, generator = draw(trees()), np.random.default_rng(draw(st.integers(0, 2**31)))
    count, words = draw(st.integers(0, 4)), draw(st.integers(1, 6))
    scale = draw(st.sampled_from([1e-100, 1e-3, 1.0, 1e5, 1e100]))
    tau = draw(st.sampled_from([1e-2, 1.0, 1e2])) / scale**2
    size = tree.parents.size
    loadings = scale * generator.normal(size=(size + 1, words))
    spread = scale**2 * np.exp(generator.normal(-3.0, 2.0, size=size + 1))
    values = scale * draw(st.sampled_from([1.0, 0.0, 10.0])) * generator.normal(size=(count, words))
    variance = scale**2 * draw(st.sampled_from([1.0, 1000.0]))
    gram = loadings @ loadings.T
    model = TreeModel(tree, Loadings(np.zeros(gram.shape), gram, spread), np.zeros(size), without_root=False)
    end_log = generator.normal(scale=2.0, size=tree.columns.size) - 3.0
    paths = end_paths(tree, without_root=False)
    twin = naive.Paths(loadings[tree.columns], spread[tree.columns], loadings[-1], paths, end_log, tau, variance)
    return model, values, twin


def sizes_of(twin):
    """Return the number of columns of the vectors, the prior variance and the precision."""
    return float(twin.mean.size), twin.variance, twin.precision


def results_for(count, twin, limit):
    """Return arrays for a kernel to fill and to add to."""
    (nodes, depth), words = twin.paths.shape, twin.mean.size
    ends = np.full((count, limit), -7, dtype=np.int32)
    masses = np.full((count, limit), np.nan, dtype=np.float32)
    posterior = VectorPosterior(ends, masses, np.full(count, -7, dtype=np.int32), np.full((count, depth), np.nan))
    second = np.zeros((nodes + 1, nodes + 1))
    return posterior, TreeStatistics(np.zeros((nodes + 1, words)), second, np.zeros(nodes), np.zeros(3))


def assert_near(found, expected, rtol=1e-7):
    """Require that values are close relative to the largest expected one."""
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max(initial=1e-300))


def assert_equals_naive(values, twin, filled, expected, limit):
    """Require that the kernel's results equal the naive version's."""
    (listed, masses, best, factors), (by_node, second, ends, sums) = filled
    assert_near(by_node, expected.by_node)
    assert_near(second, expected.second)
    assert_near(second, second.T, 1e-12)
    np.testing.assert_allclose(ends, expected.q.sum(axis=0), rtol=1e-6, atol=1e-8)
    assert_near(sums, [expected.bound, (values**2).sum(), expected.beyond])
    assert sums[1] == pytest.approx((values**2).sum(), rel=1e-12, abs=0.0)
    assert sums[2] == pytest.approx(expected.beyond, rel=1e-6, abs=1e-9 * len(values))
    full = np.flatnonzero(twin.paths[:, -1] >= 0)
    for row, q in enumerate(expected.q):
        among = full if full.size else np.arange(q.size)
        assert best[row] in among
        assert q[best[row]] >= q[among].max() - 1e-8
        assert_near(factors[row], expected.mean[row, best[row]])
        largest = np.sort(np.where(q >= SHARE, q, 0.0))[::-1][:limit]
        np.testing.assert_allclose(masses[row][: largest.size], largest, rtol=1e-5, atol=1e-7)
        is_listed = listed[row] >= 0
        np.testing.assert_allclose(q[listed[row][is_listed]], masses[row][is_listed], rtol=1e-5)
        assert not masses[row][~is_listed].any()
        assert (np.unique(listed[row][is_listed], return_counts=True)[1] == 1).all()


@given(problems(), st.integers(1, 4))
def test_components__equal_the_naive_version(drawn, limit):
    model, values, twin = drawn
    quadratic, covariance, log_determinant = end_quadratics(model, twin.paths, *sizes_of(twin))
    for end in range(len(twin.paths)):
        assert_near(quadratic[end], twin.quadratic(end), 1e-10)
    filled = results_for(len(values), twin, limit)
    end_log = twin.end_log - 0.5 * log_determinant
    tree_ = GaussianTree(twin.loadings, twin.mean, twin.paths, covariance, end_log, twin.precision)
    sweep_components(values, tree_, SHARE, *filled)
    assert_equals_naive(values, twin, filled, naive.sweep_components(values, twin), limit)


@given(problems(), st.integers(1, 4), st.integers(0, 1000))
def test_factors__equal_the_naive_version(drawn, limit, seed):
    model, values, twin = drawn
    depth, generator = twin.paths.shape[1], np.random.default_rng(seed)
    quadratic, _, _ = end_quadratics(model, twin.paths, *sizes_of(twin))
    location = generator.normal(size=(len(values), depth))
    root = 0.3 * generator.normal(size=(len(values), depth, depth))
    spread = np.matmul(root, root.transpose(0, 2, 1)) + 0.1 * np.eye(depth)
    expected = naive.sweep_factors(values, twin, location, spread)
    filled = results_for(len(values), twin, limit)
    tree_ = GaussianTree(twin.loadings, twin.mean, twin.paths, quadratic, twin.end_log, twin.precision)
    sweep_factors(values, tree_, SHARE, FactorPosterior(location, spread), *filled)
    assert_equals_naive(values, twin, filled, expected, limit)
    assert_near(location, expected.location)
    assert_near(spread, expected.spread)


@given(st.integers(0, 5), st.integers(1, 5), st.integers(1, 4), st.sampled_from([1e-150, 1.0, 1e150]), st.data())
def test_nearest__equals_the_naive_version_and_takes_the_first_of_several(count, centres, words, scale, data):
    generator = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    values, label = scale * generator.integers(-2, 3, size=(count, words)), np.full(count, -7, dtype=np.int32)
    places = scale * generator.integers(-2, 3, size=(centres, words)).astype(np.float64)
    nearest(values, places, label)
    np.testing.assert_array_equal(label, naive.nearest(values, places))


@given(st.integers(1, 6), st.integers(0, 1000), st.sampled_from([1e-6, 1.0, 1e6]))
def test_inverse__matches_the_matrix(size, seed, scale):
    root = np.random.default_rng(seed).normal(size=(size, size))
    matrix, inverse = scale * (root @ root.T + np.eye(size)), np.empty((size, size))
    log_determinant = invert(matrix, inverse)
    np.testing.assert_allclose(inverse, np.linalg.inv(matrix), rtol=1e-8, atol=1e-10 / scale)
    assert log_determinant == pytest.approx(np.linalg.slogdet(matrix)[1], rel=1e-10, abs=1e-10)
