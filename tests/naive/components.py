"""Mean-field updates of vectors on the paths of a Gaussian tree, with each path's loadings written out."""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp


@dataclass
class Paths:
    """The parameters of q(c): loadings and their variances by node, the mean, the nodes of paths by level, and priors."""

    loadings: np.ndarray  # (nodes, columns)
    spread: np.ndarray  # (nodes,)
    mean: np.ndarray  # (columns,)
    paths: np.ndarray  # (nodes, depth), -1 outside the tree
    end_log: np.ndarray  # (nodes,)
    precision: float
    variance: float  # s0, the variance of loadings outside the tree

    def matrix(self, end):
        """Return M_c, shape (columns, depth), and the diagonal s_c."""
        inside = self.paths[end] >= 0
        matrix = np.where(inside, self.loadings[self.paths[end]].T, 0.0)
        return matrix, np.diag(np.where(inside, self.spread[self.paths[end]], self.variance))

    def quadratic(self, end):
        """Return E[W_c'W_c] = M_c'M_c + D diag(s_c)."""
        matrix, spread = self.matrix(end)
        return matrix.T @ matrix + self.mean.size * spread


@dataclass
class Swept:
    """The results of a sweep; q has a column per end, and `mean` and `square` are E[x] and E[xx'] given each end."""

    q: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    bound: float
    by_node: np.ndarray
    second: np.ndarray
    beyond: float
    location: np.ndarray
    spread: np.ndarray


def nearest(values, centres):
    """Return the nearest centre of each vector, the first one in case of ties."""
    return np.argmin(((values[:, np.newaxis] - centres) ** 2).sum(axis=2), axis=1)


def sweep_components(values, tree):
    """Update q(c) q(x | c): C_nc^-1 = I + tau E[W'W] and y_nc = C_nc tau M_c'(t - mu), with S from the marginal of t."""
    nodes, depth = tree.paths.shape
    score, mean = np.zeros((len(values), nodes)), np.zeros((len(values), nodes, depth))
    square = np.zeros((len(values), nodes, depth, depth))
    for row, value in enumerate(values - tree.mean):
        for end in range(nodes):
            inverse = np.eye(depth) + tree.precision * tree.quadratic(end)
            covariance = np.linalg.inv(inverse)
            y = covariance @ (tree.precision * tree.matrix(end)[0].T @ value)
            score[row, end] = tree.end_log[end] - 0.5 * tree.precision * value @ value
            score[row, end] += 0.5 * np.linalg.slogdet(covariance)[1] + 0.5 * y @ inverse @ y
            mean[row, end], square[row, end] = y, covariance + np.outer(y, y)
    log_norm = logsumexp(score, axis=1)
    q = np.exp(score - log_norm[:, np.newaxis])
    return _summed(values, tree, q, mean, square, log_norm.sum(), None, None)


def sweep_factors(values, tree, location, spread):
    """Update q(c) given q(x), then q(x) given q(c)."""
    nodes, depth = tree.paths.shape
    score, bound = np.zeros((len(values), nodes)), 0.0
    moved = np.zeros(location.shape), np.zeros(spread.shape)
    for row, value in enumerate(values - tree.mean):
        y, c = location[row], spread[row]
        moment = c + np.outer(y, y)
        bound += 0.5 * (depth + np.linalg.slogdet(c)[1] - np.trace(moment))  # E[log p(x)] - E[log q(x)]
        for end in range(nodes):
            matrix, _ = tree.matrix(end)
            left = value @ value - 2.0 * value @ matrix @ y + np.trace(tree.quadratic(end) @ moment)
            score[row, end] = tree.end_log[end] - 0.5 * tree.precision * left
        q = np.exp(score[row] - logsumexp(score[row]))
        inverse = np.eye(depth) + tree.precision * sum(q[end] * tree.quadratic(end) for end in range(nodes))
        expected = sum(q[end] * tree.matrix(end)[0] for end in range(nodes))
        moved[1][row] = np.linalg.inv(inverse)
        moved[0][row] = moved[1][row] @ (tree.precision * expected.T @ value)
    log_norm = logsumexp(score, axis=1)
    q = np.exp(score - log_norm[:, np.newaxis])
    mean = np.repeat(moved[0][:, np.newaxis], nodes, axis=1)
    square = mean[..., np.newaxis] * mean[..., np.newaxis, :] + moved[1][:, np.newaxis]
    return _summed(values, tree, q, mean, square, bound + log_norm.sum(), *moved)


def _summed(values, tree, q, mean, square, bound, location, spread):
    """Return sums over the vectors of E[x_i] t and E[x_i x_j], where the mean is a node whose x is one."""
    nodes, depth = tree.paths.shape
    by_node, second, beyond = np.zeros((nodes + 1, values.shape[1])), np.zeros((nodes + 1,) * 2), 0.0
    for row, value in enumerate(values):
        for end in range(nodes):
            x, xx = np.zeros(nodes + 1), np.zeros((nodes + 1, nodes + 1))
            x[nodes] = xx[nodes, nodes] = 1.0
            for level, node in enumerate(tree.paths[end]):
                if node < 0:
                    beyond += q[row, end] * square[row, end, level, level]
                    continue
                x[node] = xx[node, nodes] = xx[nodes, node] = mean[row, end, level]
                for column, its in enumerate(tree.paths[end]):
                    if its >= 0:
                        xx[node, its] = square[row, end, level, column]
            by_node += q[row, end] * np.outer(x, value)
            second += q[row, end] * xx
    return Swept(q, mean, square, bound, by_node, second, beyond, location, spread)
