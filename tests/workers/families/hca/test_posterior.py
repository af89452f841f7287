"""The updates of Gaussian trees against the paper's updates of one node at a time, and against the bound itself."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from collapsium.storage.errors import NumericalError
from collapsium.workers.families.hca.posterior import (
    Components,
    Sums,
    divergence,
    evidence,
    expanded,
    first_tau,
    fitted,
)
from collapsium.workers.families.hca.states import Prior
from collapsium.workers.families.ncrp.node_moves import Moves, first_tree
from collapsium.workers.families.ncrp.tree import ROOT, Tree


class Vectors:
    """Vectors t and the moments of their factors at every node.

    `x` (vectors, columns + 1) has the means, and ones in its last column; `between` is E[x x'], the product of means
    plus the covariance.
    """

    def __init__(self, seed, count, words, columns, scale=1.0, beyond=0.0):
        generator = np.random.default_rng(seed)
        self.t = scale * generator.normal(size=(count, words))
        self.x = np.append(generator.normal(size=(count, columns)), np.ones((count, 1)), axis=1)
        root = generator.normal(size=(count, columns, columns))
        self.between = self.x[:, :, np.newaxis] * self.x[:, np.newaxis]
        self.between[:, :columns, :columns] += np.matmul(root, root.transpose(0, 2, 1))
        self.beyond = beyond

    def sums(self):
        b = self.x.T @ self.t
        square, (count, words) = float((self.t**2).sum()), self.t.shape
        return Sums(self.between.sum(axis=0), b @ b.T, square, self.beyond, float(count), float(words))

    def squared_residuals(self, mean, spread, prior):
        """Return sum_n E|t - W x - mu|^2, one vector at a time; the rows of `mean` are the nodes' loadings, and last
        mu."""
        total = self.t.shape[1] * prior.variance * self.beyond
        for t, x, between in zip(self.t, self.x, self.between, strict=True):
            total += t @ t - 2.0 * t @ mean.T @ x + np.trace((mean @ mean.T + t.size * np.diag(spread)) @ between)
        return total

    def converged(self, prior, rounds=20000):
        """Iterate the paper's updates of one node at a time to convergence; return means, variances, and tau's shape
        and rate."""
        nodes, words = self.x.shape[1], self.t.shape[1]
        mean, spread, a, b = np.zeros((nodes, words)), np.zeros(nodes), prior.shape + 0.5 * self.t.size, 1.0
        tau = self.t.size / (self.t**2).sum()
        for _ in range(rounds):
            for node in range(nodes):
                spread[node] = 1.0 / (1.0 / prior.variance + tau * self.between[:, node, node].sum())
                remaining = np.delete(np.arange(nodes), node)
                rest = self.between[:, node, remaining].sum(axis=0) @ mean[remaining]
                mean[node] = spread[node] * tau * (self.x[:, node] @ self.t - rest)
            b = prior.rate + 0.5 * self.squared_residuals(mean, spread, prior)
            if abs(a / b / tau - 1.0) < 1e-13:
                break
            tau = a / b
        return mean, spread, a, b


def bound(vectors, found, mean, prior):
    """Return the part of the bound that depends on q(w), q(mu) and q(tau)."""
    words, columns = vectors.t.shape[1], np.arange(mean.shape[0] - 1)
    likelihood = 0.5 * vectors.t.size * (found.log_tau - np.log(2.0 * np.pi))
    likelihood -= 0.5 * found.tau * vectors.squared_residuals(mean, found.spread, prior)
    return likelihood - divergence(found, columns, prior, words)


def with_parameters(found, mean, spread, shape, rate):
    return Components(found.solve, mean @ mean.T, spread, shape, rate)


@given(
    st.integers(0, 1000),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([1e-2, 1.0, 30.0]),
    st.sampled_from([0.0, 2.0]),
)
def test_fitted__is_the_fixed_point_of_updates_of_one_node_at_a_time(seed, count, words, columns, scale, beyond):
    vectors, prior = Vectors(seed, count, words, columns, scale, beyond), Prior(5.0, 0.5, 0.5)
    start = vectors.t.size / (vectors.t**2).sum()
    found = fitted(vectors.sums(), prior, start)
    for _ in range(200):  # tau converges over the iterations of a fit
        found = fitted(vectors.sums(), prior, found.tau)
    mean, spread, a, b = vectors.converged(prior)
    solved = found.solve.T @ vectors.x.T @ vectors.t
    np.testing.assert_allclose(solved, mean, rtol=1e-5, atol=1e-6 * np.abs(mean).max())
    np.testing.assert_allclose(found.gram, solved @ solved.T, rtol=1e-8, atol=1e-10 * np.abs(found.gram).max())
    np.testing.assert_allclose(found.spread, spread, rtol=1e-6)
    assert (found.shape, found.rate) == (pytest.approx(a), pytest.approx(b, rel=1e-6))


@given(st.integers(0, 1000), st.integers(1, 8), st.integers(1, 4), st.integers(1, 3))
def test_fitted__is_a_local_maximum_of_the_bound(seed, count, words, columns):
    vectors, prior, generator = Vectors(seed, count, words, columns), Prior(5.0, 0.5, 0.5), np.random.default_rng(seed)
    found = fitted(vectors.sums(), prior, 1.0)
    for _ in range(50):
        found = fitted(vectors.sums(), prior, found.tau)
    mean = found.solve.T @ vectors.x.T @ vectors.t
    best = bound(vectors, found, mean, prior)
    for step in (1e-2, 1e-3, -1e-3, -1e-2):
        direction = generator.normal(size=mean.shape)
        neighbours = [
            (mean + step * direction, found.spread, found.shape, found.rate),
            (mean, found.spread * np.exp(step * generator.normal(size=found.spread.size)), found.shape, found.rate),
            (mean, found.spread, found.shape * np.exp(step), found.rate),
            (mean, found.spread, found.shape, found.rate * np.exp(step)),
        ]
        for neighbour in neighbours:
            assert bound(vectors, with_parameters(found, *neighbour), neighbour[0], prior) <= best + 1e-9 * abs(best)
    gained = [bound(vectors, with_parameters(found, mean * (1 + e), found.spread, found.shape, found.rate), mean * (1 + e), prior)
              for e in (1e-4, -1e-4)]  # fmt: skip
    assert abs(gained[0] - gained[1]) / 2e-4 < 1e-3 * max(abs(best), 1.0)  # the derivative is zero


@given(st.integers(0, 1000), st.integers(1, 5), st.floats(0.1, 10.0))
def test_divergence__matches_normal_and_gamma_distributions(seed, words, variance):
    generator = np.random.default_rng(seed)
    mean, prior = generator.normal(size=(4, words)), Prior(variance, 1.5, 0.7)
    found = Components(np.eye(4), mean @ mean.T, generator.gamma(2.0, size=4), 3.0, 2.5)
    expected = 0.0
    for node in (0, 2, 3):  # column 1 is not a node; the last column belongs to the mean
        s = found.spread[node]
        expected += 0.5 * (words * (s / variance - 1.0 - np.log(s / variance)) + mean[node] @ mean[node] / variance)
    q, p = stats.gamma(found.shape, scale=1 / found.rate), stats.gamma(prior.shape, scale=1 / prior.rate)
    expected += integrate.quad(lambda x: q.pdf(x) * (q.logpdf(x) - p.logpdf(x)), 1e-12, 60.0, limit=200)[0]
    assert divergence(found, np.array([0, 2]), prior, words) == pytest.approx(expected, rel=1e-7)


@given(st.integers(0, 1000), st.integers(1, 10), st.integers(1, 4), st.floats(0.1, 10.0))
def test_evidence__is_the_increase_of_the_bound_by_the_best_loadings(seed, count, words, tau):
    """It is the maximum over loadings of -tau E|t - W x - mu|^2 / 2 - KL(q(w), q(mu)), minus its value without
    loadings."""
    vectors, prior, columns = Vectors(seed, count, words, 3), Prior(5.0, 1.0, 1.0), np.array([0, 2])
    keep = np.array([0, 2, 3])
    a, b = vectors.between.sum(axis=0)[np.ix_(keep, keep)], (vectors.x.T @ vectors.t)[keep]
    mean = tau * np.linalg.solve(np.eye(3) / prior.variance + tau * a, b)
    spread = 1.0 / (1.0 / prior.variance + tau * np.diag(a))
    squared_residuals = -2.0 * (b * mean).sum() + np.trace(mean @ mean.T @ a) + words * (spread * np.diag(a)).sum()
    loss = 0.5 * (words * (spread / prior.variance - 1.0 - np.log(spread / prior.variance)).sum())
    loss += 0.5 * (mean**2).sum() / prior.variance
    expected = -0.5 * tau * squared_residuals - loss
    assert evidence(vectors.sums(), columns, prior, tau) == pytest.approx(expected, rel=1e-8, abs=1e-8)


@given(st.integers(0, 1000), st.integers(1, 8), st.integers(1, 4), st.sampled_from([1.0, -1.0]))
def test_sums_of_a_merged_tree__equal_sums_of_merged_vectors(seed, count, words, sign):
    """Each vector is at one of two sibling leaves; merging these adds their factors x, with a sign."""
    vectors, generator = Vectors(seed, count, words, 4), np.random.default_rng(seed)
    apart = np.where(generator.random(count) < 0.5, 1, 2)  # a vector's factor is zero at one of the two siblings
    vectors.x[np.arange(count), apart] = 0.0
    vectors.between[np.arange(count), apart] = 0.0
    vectors.between[np.arange(count), :, apart] = 0.0
    before = vectors.sums()
    moves = Moves(first_tree(4, 3)).merged([(2, 1)], sign)
    after = before.moved(moves)
    turn = np.eye(5)
    turn[1, 2], turn[1, 1] = sign, 0.0  # x_2 becomes x_2 + sign x_1
    vectors.x, vectors.between = vectors.x @ turn, np.einsum("ij,nik,kl->njl", turn, vectors.between, turn)
    expected = vectors.sums()
    np.testing.assert_allclose(after.second, expected.second, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(after.products, expected.products, rtol=1e-10, atol=1e-10)
    assert (after.square, after.beyond, after.documents) == (before.square, before.beyond, before.documents)


def test_sums__follow_a_chain_of_merges_and_drop_pruned_nodes():
    vectors = Vectors(3, 20, 3, 4)
    before = vectors.sums()
    tree = Tree(np.array([ROOT, 0, 0, 0]), 2)
    moves = Moves(tree).merged([(1, 2)]).merged([(3, 1)], -1.0)
    once = before.moved(moves)
    weights = np.zeros((5, 5))
    weights[0, 0] = weights[4, 4] = 1.0
    weights[[1, 2, 3], 3] = -1.0, -1.0, 1.0
    np.testing.assert_allclose(once.second, weights.T @ before.second @ weights, rtol=1e-12, atol=1e-12)
    gone = before.moved(Moves(tree).pruned(np.array([9.0, 9.0, 0.0, 9.0]), 1.0))
    assert not gone.second[2].any()
    assert not gone.products[:, 2].any()
    np.testing.assert_array_equal(gone.second[np.ix_([0, 1, 3, 4], [0, 1, 3, 4])],
                                  before.second[np.ix_([0, 1, 3, 4], [0, 1, 3, 4])])  # fmt: skip


def test_a_single_zero_vector__has_finite_components():
    sums = Sums(np.eye(3), np.zeros((3, 3)), 0.0, 0.0, 1.0, 2.0)
    found = fitted(sums, Prior(1000.0, 0.001, 0.001), 1.0)
    assert np.isfinite([*found.spread, found.tau, found.log_tau]).all()
    assert np.isfinite(divergence(found, np.arange(2), Prior(1000.0, 0.001, 0.001), 2.0))


def sums_of_correlated_factors(seed, parents, depth, words=6, count=400):
    """Return sums of vectors whose factors differ from their prior: correlated, scaled, and with nonzero means."""
    generator = np.random.default_rng(seed)
    tree = Tree(np.array(parents), depth)
    size = tree.parents.size + 1
    second, by_node, ends = np.zeros((size, size)), np.zeros((words, size)), np.zeros(size - 1)
    for leaf in np.flatnonzero(tree.levels == depth - 1):
        path = np.append(tree.path(int(leaf)), size - 1)
        mixing = generator.normal(size=(depth, depth)) + 2.0 * np.eye(depth)
        y = np.append(generator.normal(size=(count, depth)) @ mixing + 0.5, np.ones((count, 1)), axis=1)
        t = y @ generator.normal(scale=3.0, size=(depth + 1, words)) + 0.3 * generator.normal(size=(count, words))
        second[np.ix_(path, path)] += y.T @ y
        by_node[:, path] += t.T @ y
        ends[leaf] = count
    square = 1e6 * count
    return tree, Sums(second, by_node.T @ by_node, square, 0.0, ends.sum(), float(words)), by_node, ends


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("parents", "depth"), [([-1, 0, 0, 1, 1, 2], 3), ([-1, 0, 0], 2), ([-1], 1)])
def test_expanded__standardises_factors_and_preserves_what_they_explain(seed, parents, depth):
    tree, sums, by_node, ends = sums_of_correlated_factors(seed, parents, depth)
    prior, passes = Prior(1e9, 0.001, 0.001), tree.gathered(ends)
    moves = expanded(Moves(tree), sums, passes, prior, 10.0)
    assert moves.sources
    after = sums.moved(moves)
    np.testing.assert_allclose(np.diag(after.second)[:-1], passes, rtol=1e-8)
    assert abs(after.second[0, -1]) < 1e-6 * passes[0]  # factors of the root have mean zero
    for node in tree.columns[1:]:
        above = tree.path(int(node))[:-1]
        np.testing.assert_allclose(after.second[node, above], 0.0, atol=1e-6 * passes[node])
    mapping = np.eye(len(sums.second))
    for node, weights in moves.sources.items():
        mapping[node] = 0.0
        for source, weight in weights:
            mapping[node, source] += weight
    before = by_node @ fitted(sums, prior, 10.0).solve
    now = (by_node @ mapping.T) @ fitted(after, prior, 10.0).solve
    np.testing.assert_allclose(now @ mapping, before, rtol=1e-4, atol=1e-4)  # W' x' = W x
    assert not expanded(Moves(tree), after, passes, prior, 10.0).sources or np.allclose(
        after.moved(expanded(Moves(tree), after, passes, prior, 10.0)).second, after.second, atol=1e-5 * passes[0]
    )


def test_values_whose_squares_are_too_large__are_refused():
    prior, sums = Prior(1e9, 0.001, 0.001), replace(Vectors(1, 4, 3, 2).sums(), square=np.inf)
    with pytest.raises(NumericalError, match="expected values whose squares can be summed"):
        fitted(sums, prior, first_tau(sums, prior))
