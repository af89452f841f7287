"""Mean-field updates of vectors over the paths of a Gaussian tree (Wang and Blei 2009).

A path's loadings are those of its nodes, so that all a vector needs are its products with each node's loadings, and a
small matrix of each path. Each node is an end too (see `collapsium.workers.families.ncrp.tree`); nodes outside the tree
have no mean.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import (
    F8,
    F8_2,
    F8_3,
    I8_2,
    OUT_F4_2,
    OUT_F8,
    OUT_F8_2,
    OUT_F8_3,
    OUT_I4,
    OUT_I4_2,
    f8,
    helper,
    kernel,
)
from collapsium.workers.kernels.trees.paths import keep_largest, softmax

Array = npt.NDArray[Any]

SUMS = OUT_F8_2, OUT_F8_2, OUT_F8, OUT_I4_2, OUT_F4_2, OUT_I4, OUT_F8_2, OUT_F8


@kernel(F8_2, F8_2, OUT_I4)
def nearest(values: Array, centres: Array, label: Array) -> None:
    """Fill the nearest centre of each vector, the first of several; twin: `naive.components.nearest`.

    Parameters
    ----------
    values : float64, shape (vectors, columns)
        The vectors.
    centres : float64, shape (centres, columns)
        The centres.
    label : int32, shape (vectors,)
        Filled.
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
    best, found = -1.0, -1
    for end in range(q.size):
        if paths[end, paths.shape[1] - 1] >= 0 and q[end] > best:
            best, found = q[end], end
    return found if found >= 0 else int(np.argmax(q))


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
    """Add what a vector gives a path to the second moments, and its factors to the nodes' weights."""
    last = second.shape[0] - 1
    for k in range(path.size):
        one = path[k]
        if one < 0:
            beyond[0] += share * (covariance[k, k] + mean[k] * mean[k])
            continue
        weight[one] += share * mean[k]
        second[one, last] += share * mean[k]
        second[last, one] += share * mean[k]
        for j in range(path.size):
            if path[j] >= 0:
                second[one, path[j]] += share * (covariance[k, j] + mean[k] * mean[j])


@helper
def _add_vector(value: Array, weight: Array, by_node: Array) -> None:
    for node in range(weight.size):
        if weight[node] != 0.0:
            for column in range(value.size):
                by_node[node, column] += weight[node] * value[column]


@kernel(F8_2, F8_2, F8, I8_2, F8_3, F8, f8, f8, *SUMS)
def sweep_components(
    values: Array,
    loadings: Array,
    mean: Array,
    paths: Array,
    covariance: Array,
    end_log: Array,
    precision: float,
    share: float,
    by_node: Array,
    second: Array,
    ends: Array,
    kept: Array,
    masses: Array,
    best: Array,
    factors: Array,
    sums: Array,
) -> None:
    """Update q(c) q(x | c) of each vector; twin: `naive.components.sweep_components`.

    Parameters
    ----------
    values : float64, shape (vectors, columns)
        The vectors t.
    loadings : float64, shape (nodes, columns)
        E[w].
    mean : float64, shape (columns,)
        E[mu].
    paths : int64, shape (nodes, depth)
        Places of the nodes on the way to each end; -1 outside the tree.
    covariance : float64, shape (nodes, depth, depth)
        C_c of each end.
    end_log : float64, shape (nodes,)
        Log prior mass of each end, with log|C_c| / 2.
    precision : float
        E[tau].
    share : float
        Smallest q(c) of an end to keep in a vector's list.
    by_node : float64, shape (nodes + 1, columns)
        Increased by sum_n q(c through i) E[x_i] t_n, and last sum_n t_n.
    second : float64, shape (nodes + 1, nodes + 1)
        Increased by sum_n q E[x_i x_j]; the last row and column are those of the mean, whose x is 1.
    ends : float64, shape (nodes,)
        Increased by q(c) at each end.
    kept, masses : int32 and float32, shape (vectors, most)
        Filled with each vector's largest ends and their q(c).
    best : int32, shape (vectors,)
        Filled with the most probable full path's end.
    factors : float64, shape (vectors, depth)
        Filled with E[x | best].
    sums : float64, shape (3,)
        Increased by log sum_c S_c but for constants, the squared lengths of t, and E[x^2] outside the tree.
    """
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
        for column in range(values.shape[1]):
            sums[1] += values[row, column] * values[row, column]
        keep_largest(q, share, kept[row], masses[row])


@helper
def invert(matrix: Array, inverse: Array) -> float:
    """Fill the inverse of a symmetric positive definite matrix, by Gauss and Jordan; return log|matrix|."""
    size, log_determinant = matrix.shape[0], 0.0
    for one in range(size):
        for other in range(size):
            inverse[one, other] = matrix[one, other]
    for pivot in range(size):
        scale = inverse[pivot, pivot]
        log_determinant += math.log(scale)
        inverse[pivot, pivot] = 1.0
        for other in range(size):
            inverse[pivot, other] /= scale
        for row in range(size):
            if row != pivot:
                factor = inverse[row, pivot]
                inverse[row, pivot] = 0.0
                for other in range(size):
                    inverse[row, other] -= factor * inverse[pivot, other]
    return log_determinant


@kernel(F8_2, F8_2, F8, I8_2, F8_3, F8, f8, f8, OUT_F8_2, OUT_F8_3, *SUMS)
def sweep_factors(
    values: Array,
    loadings: Array,
    mean: Array,
    paths: Array,
    quadratic: Array,
    end_log: Array,
    precision: float,
    share: float,
    location: Array,
    spread: Array,
    by_node: Array,
    second: Array,
    ends: Array,
    kept: Array,
    masses: Array,
    best: Array,
    factors: Array,
    sums: Array,
) -> None:
    """Update q(c), then q(x) of each vector, apart; twin: `naive.components.sweep_factors`.

    Parameters
    ----------
    values, loadings, mean, paths
        As for `sweep_components`.
    quadratic : float64, shape (nodes, depth, depth)
        M_c'M_c + D diag(s_c) of each end.
    end_log : float64, shape (nodes,)
        Log prior mass of each end.
    precision, share
        As for `sweep_components`.
    location, spread : float64, shape (vectors, depth) and (vectors, depth, depth)
        y_n and C_n of q(x_n), which the new ones take the place of.
    by_node, second, ends, kept, masses, best, factors
        As for `sweep_components`.
    sums : float64, shape (3,)
        As for `sweep_components`, the first with E[log p(x)] - E[log q(x)] of the q(x) given.
    """
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
        for column in range(values.shape[1]):
            sums[1] += values[row, column] * values[row, column]
        keep_largest(q, share, kept[row], masses[row])
