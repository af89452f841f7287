"""Mean-field updates of vectors over the paths of a Gaussian tree (Wang and Blei 2009).

A path's loadings are its nodes' loadings, so that all a vector needs are its products with each node's loadings, and a
small matrix of each path. Each node is an end too (see `collapsium.workers.families.ncrp.tree`); nodes outside the tree
have no mean.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.jit import (
    Array,
    Float64Cube,
    Float64Matrix,
    Float64Vector,
    Int64Matrix,
    OutFloat32Matrix,
    OutFloat64Cube,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt32Matrix,
    OutInt32Vector,
    helper,
    kernel,
)
from collapsium.workers.kernels.trees.paths import keep_largest, softmax


class GaussianTree(NamedTuple):
    """A tree as vectors see it."""

    loadings: Float64Matrix  # E[w]; float64 (nodes, columns)
    mean: Float64Vector  # E[mu]; float64 (columns,)
    paths: Int64Matrix  # Places of the nodes on the path to each end; -1 outside the tree; int64 (nodes, depth)
    # C_c of each end for `sweep_components`, M_c'M_c + D diag(s_c) for `sweep_factors`; float64 (nodes, depth, depth)
    matrices: Float64Cube
    end_log: Float64Vector  # Log prior mass of each end; for `sweep_components` with log|C_c| / 2; float64 (nodes,)
    precision: float  # E[tau]


class VectorPosterior(NamedTuple):
    """Variational distributions of vectors, which a sweep fills."""

    # The largest ends of each vector, and their q(c); int32 (vectors, most)
    ends: OutInt32Matrix
    masses: OutFloat32Matrix
    best: OutInt32Vector  # End of the most probable full path; int32 (vectors,)
    factors: OutFloat64Matrix  # E[x | best]; float64 (vectors, depth)


class FactorPosterior(NamedTuple):
    """The factors' own distributions q(x_n) = N(y_n, C_n), which a sweep updates."""

    mean: OutFloat64Matrix  # y_n; float64 (vectors, depth)
    covariance: OutFloat64Cube  # C_n; float64 (vectors, depth, depth)


class TreeStatistics(NamedTuple):
    """Sufficient statistics of a tree, which a sweep increases."""

    by_node: OutFloat64Matrix  # sum_n q(c through i) E[x_i] t_n, and last sum_n t_n; float64 (nodes + 1, columns)
    # sum_n q E[x_i x_j]; the last row and column belong to the mean, whose x is 1; float64 (nodes + 1, nodes + 1)
    second: OutFloat64Matrix
    ends: OutFloat64Vector  # sum_n q(c) at each end; float64 (nodes,)
    # The vectors' part of the bound but for constants, the squared lengths of t, and E[x^2] outside the tree; float64
    # (3,)
    sums: OutFloat64Vector


@kernel
def nearest(values: Float64Matrix, centres: Float64Matrix, label: OutInt32Vector) -> None:
    """Fill the nearest centre of each vector, the first of several; twin: `naive.components.nearest`.

    Shapes: `values` (vectors, columns); `centres` (centres, columns); `label` (vectors,).
    """
    for row in range(values.shape[0]):
        best = math.inf
        for centre in range(centres.shape[0]):
            distance = 0.0
            for column in range(values.shape[1]):
                difference = values[row, column] - centres[centre, column]
                distance += difference * difference
            if distance < best:
                best, label[row] = distance, centre


@helper
def _products(value: Array, mean: Array, loadings: Array, product: Array) -> float:
    """Fill the products of a vector's distance from the mean with all loadings; return its squared length."""
    length = 0.0
    for column in range(value.size):
        difference = value[column] - mean[column]
        length += difference * difference
    for node in range(loadings.shape[0]):
        total = 0.0
        for column in range(value.size):
            total += (value[column] - mean[column]) * loadings[node, column]
        product[node] = total
    return length


@helper
def _along(path: Array, matrix: Array, k: int, product: Array) -> float:
    """Return sum_j matrix_kj product_j over a path's nodes.

    In a number, as sums in arrays may add in another order where the compiler takes arrays to overlap.
    """
    total = 0.0
    for j in range(path.size):
        if path[j] >= 0:
            total += matrix[k, j] * product[path[j]]
    return total


@helper
def _times(matrix: Array, k: int, vector: Array) -> float:
    """Return sum_j matrix_kj vector_j."""
    total = 0.0
    for j in range(vector.size):
        total += matrix[k, j] * vector[j]
    return total


@helper
def _best_leaf(q: Array, paths: Array) -> int:
    """Return the most probable end that is a full path; the most probable end, if there is none."""
    largest, leaf = -1.0, -1
    for end in range(q.size):
        if paths[end, paths.shape[1] - 1] >= 0 and q[end] > largest:
            largest, leaf = q[end], end
    return leaf if leaf >= 0 else int(np.argmax(q))


@helper
def _count(
    path: Array,
    share: float,
    mean: Array,
    covariance: Array,
    weight: Array,
    second: Array,
    beyond: Array,
) -> None:
    """Add a vector's share of a path to the second moments, and its factors to the nodes' weights."""
    last = second.shape[0] - 1
    for k in range(path.size):
        node = path[k]
        if node < 0:
            beyond[0] += share * (covariance[k, k] + mean[k] * mean[k])
            continue
        weight[node] += share * mean[k]
        second[node, last] += share * mean[k]
        second[last, node] += share * mean[k]
        for j in range(path.size):
            if path[j] >= 0:
                second[node, path[j]] += share * (covariance[k, j] + mean[k] * mean[j])


@helper
def _add_vector(value: Array, weight: Array, by_node: Array) -> None:
    """Add a vector to the sums of its nodes."""
    for node in range(weight.size):
        if weight[node] != 0.0:
            for column in range(value.size):
                by_node[node, column] += weight[node] * value[column]


@kernel
def sweep_components(
    values: Float64Matrix, tree: GaussianTree, min_share: float, posterior: VectorPosterior, statistics: TreeStatistics
) -> None:
    """Update q(c) q(x | c) of each vector; twin: `naive.components.sweep_components`.

    Shapes: `values` (vectors, columns).
    """
    loadings, mean, paths, covariance, end_log, precision = tree
    largest_ends, masses, best, factors = posterior
    by_node, second, ends, sums = statistics
    nodes, depth = paths.shape
    product, score, q, weight = np.empty(nodes), np.empty(nodes), np.empty(nodes), np.empty(nodes + 1)
    inner = np.empty(depth)
    for row in range(values.shape[0]):
        length = _products(values[row], mean, loadings, product)
        for end in range(nodes):
            value = 0.0
            for k in range(depth):
                if paths[end, k] >= 0:
                    value += precision * product[paths[end, k]] * _along(paths[end], covariance[end], k, product)
            score[end] = end_log[end] + 0.5 * precision * value
        sums[0] += softmax(score, q) - 0.5 * precision * length
        weight[:] = 0.0
        best[row] = _best_leaf(q, paths)
        for end in range(nodes):
            ends[end] += q[end]
            if q[end] == 0.0 and end != best[row]:
                continue
            for k in range(depth):
                inner[k] = precision * _along(paths[end], covariance[end], k, product)
            if end == best[row]:
                factors[row] = inner
            _count(paths[end], q[end], inner, covariance[end], weight, second, sums[2:])
        weight[nodes] = 1.0
        second[nodes, nodes] += 1.0
        _add_vector(values[row], weight, by_node)
        squares = sums[1]
        for column in range(values.shape[1]):
            squares += values[row, column] * values[row, column]
        sums[1] = squares
        keep_largest(q, min_share, largest_ends[row], masses[row])


@helper
def invert(matrix: Array, inverse: Array) -> float:
    """Fill the inverse of a symmetric positive definite matrix, by Gauss and Jordan; return log|matrix|."""
    size, log_determinant = matrix.shape[0], 0.0
    for i in range(size):
        for j in range(size):
            inverse[i, j] = matrix[i, j]
    for pivot in range(size):
        scale = inverse[pivot, pivot]
        log_determinant += math.log(scale)
        inverse[pivot, pivot] = 1.0
        for column in range(size):
            inverse[pivot, column] /= scale
        for row in range(size):
            if row != pivot:
                factor = inverse[row, pivot]
                inverse[row, pivot] = 0.0
                for column in range(size):
                    inverse[row, column] -= factor * inverse[pivot, column]
    return log_determinant


@kernel
def sweep_factors(
    values: Float64Matrix,
    tree: GaussianTree,
    min_share: float,
    q_factors: FactorPosterior,
    posterior: VectorPosterior,
    statistics: TreeStatistics,
) -> None:
    """Update q(c), then q(x) of each vector, mutually independent; twin: `naive.components.sweep_factors`."""
    loadings, mean, paths, quadratic, end_log, precision = tree
    location, spread = q_factors
    largest_ends, masses, best, factors = posterior
    by_node, second, ends, sums = statistics
    nodes, depth = paths.shape
    product, score, q, weight = np.empty(nodes), np.empty(nodes), np.empty(nodes), np.empty(nodes + 1)
    pull, work, moments = np.empty(depth), np.empty((depth, depth)), np.empty((depth, depth))
    for row in range(values.shape[0]):
        length = _products(values[row], mean, loadings, product)
        y, c = location[row], spread[row]
        value = 0.5 * (depth + invert(c, work)) - 0.5 * precision * length
        for k in range(depth):
            value -= 0.5 * (c[k, k] + y[k] * y[k])
            for j in range(depth):
                moments[k, j] = c[k, j] + y[k] * y[j]
        for end in range(nodes):
            total = 0.0
            for k in range(depth):
                total -= 0.5 * _times(quadratic[end], k, moments[k])
                if paths[end, k] >= 0:
                    total += y[k] * product[paths[end, k]]
            score[end] = end_log[end] + precision * total
        sums[0] += softmax(score, q) + value
        work[:] = 0.0
        pull[:] = 0.0
        for k in range(depth):
            work[k, k] = 1.0
        for end in range(nodes):
            for k in range(depth):
                if q[end] > 0.0 and paths[end, k] >= 0:
                    pull[k] += precision * q[end] * product[paths[end, k]]
                for j in range(depth):
                    work[k, j] += precision * q[end] * quadratic[end, k, j]
        invert(work, c)
        for k in range(depth):
            y[k] = _times(c, k, pull)
        weight[:] = 0.0
        best[row] = _best_leaf(q, paths)
        factors[row] = y
        for end in range(nodes):
            ends[end] += q[end]
            if q[end] > 0.0:
                _count(paths[end], q[end], y, c, weight, second, sums[2:])
        weight[nodes] = 1.0
        second[nodes, nodes] += 1.0
        _add_vector(values[row], weight, by_node)
        squares = sums[1]
        for column in range(values.shape[1]):
            squares += values[row, column] * values[row, column]
        sums[1] = squares
        keep_largest(q, min_share, largest_ends[row], masses[row])
