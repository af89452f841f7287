"""Gaussian trees on the driver: the best q(w) and q(tau) given sums over vectors, and the bound.

Arrays are by column of the rows, the mean being the last; A = sum_n q E[x x'], K = B'B over the columns of the vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import NumericalError
from collapsium.workers import special_functions as special
from collapsium.workers.families.hca.states import Loadings, NextLoadings
from collapsium.workers.families.ncrp.node_moves import Moves
from collapsium.workers.special_functions import digamma, gammaln

Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]


MAX_FIT_ROUNDS = 20
FIT_TOLERANCE = 1e-10  # Relative change of tau at which they end
MIN_REMAINDER = 1e-9  # A factor stays as it is if the factors below it leave a smaller share of its square


@dataclass(frozen=True)
class Sums:
    """Sums of a sweep."""

    # A and K; float64 (columns + 1, columns + 1)
    second: Vector
    products: Vector
    # sum |t|^2, sum E[x^2] outside the tree, the number of vectors, and D, the number of their columns
    square: float
    beyond: float
    documents: float
    words: float

    def moved(self, moves: Moves) -> Sums:
        """Return the sums for another tree; sums of merged nodes add."""
        second, products = (brought(brought(moment, moves).T, moves).T for moment in (self.second, self.products))
        return replace(self, second=second, products=products)


def brought(values: Vector, moves: Moves) -> Vector:
    """Return a matrix with its columns moved to another tree."""
    present = np.append(moves.tree.levels >= 0, True)
    after = np.where(present, values, 0.0)
    for target, terms in moves.sources.items():
        after[:, target] = 0.0
        for source, weight in terms:
            after[:, target] += weight * values[:, source]
    return after


@dataclass(frozen=True)
class Prior:
    """Variance s0 of loadings, and shape and rate of tau's Gamma distribution."""

    variance: float
    shape: float
    rate: float


@dataclass(frozen=True)
class Components:
    """Posterior of the loadings, the mean and the noise: q(w), q(mu) and q(tau)."""

    solve: Vector  # H: loadings are B H; float64 (columns + 1, columns + 1)
    gram: Vector  # m_i'm_j; float64 (columns + 1, columns + 1)
    spread: Vector  # s_i; float64 (columns + 1,)
    shape: float  # Shape and rate of q(tau)
    rate: float

    @property
    def loadings(self) -> Loadings:
        """The loadings and the mean as sweeps see them."""
        return Loadings(self.solve, self.gram, self.spread)

    @property
    def next_loadings(self) -> NextLoadings:
        """The same for the next sweep."""
        return NextLoadings(self.solve, self.gram, self.spread)

    @property
    def tau(self) -> float:
        """Mean of tau."""
        return self.shape / self.rate

    @property
    def log_tau(self) -> float:
        """Mean of log tau."""
        return float(digamma(self.shape) - special.log(self.rate))


def _solved(sums: Sums, prior: Prior, tau: float) -> tuple[Vector, Vector, Vector]:
    precision = np.eye(len(sums.second)) / prior.variance + tau * sums.second
    solve: Vector = np.asarray(tau * np.linalg.inv(0.5 * (precision + precision.T)), dtype=np.float64)
    gram: Vector = solve @ sums.products @ solve
    return solve, gram, 1.0 / (1.0 / prior.variance + tau * np.diag(sums.second))


def fitted(sums: Sums, prior: Prior, tau: float) -> Components:
    """Return the best q(w), q(mu) and q(tau) given q(c) and q(x), in turn from a tau.

    m = tau (I / s0 + tau A)^-1 B, 1 / s_i = 1 / s0 + tau A_ii, all nodes and the mean at once;
    tau ~ Gamma(a0 + N D / 2, b0 + sum E|t - W x - mu|^2 / 2).
    """
    shape = prior.shape + 0.5 * sums.documents * sums.words
    for _ in range(MAX_FIT_ROUNDS):
        if not tau > 0.0:
            raise NumericalError(
                "the noise of the vectors is too large for floating point; expected values whose squares can be summed"
            )
        solve, gram, spread = _solved(sums, prior, tau)
        left = sums.square - 2.0 * float((solve * sums.products).sum()) + float((sums.second * gram).sum())
        left += sums.words * (float(np.diag(sums.second) @ spread) + prior.variance * sums.beyond)
        components = Components(solve, gram, spread, shape, prior.rate + 0.5 * max(left, 0.0))
        if abs(components.tau / tau - 1.0) < FIT_TOLERANCE:
            break
        tau = components.tau
    return components


def first_tau(sums: Sums, prior: Prior) -> float:
    """Return E[tau] without components, when all variation of the vectors is noise."""
    return (prior.shape + 0.5 * sums.documents * sums.words) / (prior.rate + 0.5 * sums.square)


def divergence(components: Components, columns: Ints, prior: Prior, words: float) -> float:
    """Return KL(q | p) of w_i and mu, and of tau."""
    rows = np.append(columns, len(components.spread) - 1)
    ratio = components.spread[rows] / prior.variance
    value = 0.5 * words * (ratio - 1.0 - special.log(ratio)).sum() + np.diag(components.gram)[rows].sum() / (
        2 * prior.variance
    )
    value += (
        (components.shape - prior.shape) * digamma(components.shape) - gammaln(components.shape) + gammaln(prior.shape)
    )
    value += (
        prior.shape * (special.log(components.rate) - special.log(prior.rate))
        + components.shape * (prior.rate - components.rate) / components.rate
    )
    return float(value)


def evidence(sums: Sums, columns: Ints, prior: Prior, tau: float) -> float:
    """Return the part of the bound with the best q(w): tau tr(H K) / 2 - D sum_i log(1 + s0 tau A_ii) / 2."""
    rows = np.append(columns, len(sums.second) - 1)
    second, products = sums.second[np.ix_(rows, rows)], sums.products[np.ix_(rows, rows)]
    solve = tau * np.linalg.inv(np.eye(rows.size) / prior.variance + tau * 0.5 * (second + second.T))
    value = (
        tau * float((solve * products).sum()) - sums.words * special.log1p(prior.variance * tau * np.diag(second)).sum()
    )
    return 0.5 * float(value)


def expanded(moves: Moves, sums: Sums, passes: Vector, prior: Prior, tau: float) -> Moves:
    """Scale and rotate factors towards their prior N(0, I), which separate updates do slowly.

    Parameter expansion (Liu, Rubin and Wu 1998): x'_i = u_ii x_i + sum_j u_ij x_j over the nodes j below i, and for
    the root the mean, leaves W x as it was, with loadings that follow. The prior is met best when x'_i is what those
    below do not predict, u_ii^2 being the number of vectors through i over its sum of squares.
    """
    tree, sources, gain = moves.tree, dict(moves.sources), 0.0
    below: dict[int, list[int]] = {}
    for node in tree.columns[::-1]:
        below.setdefault(int(node), [])
        below.setdefault(int(tree.parents[node]), []).extend([int(node), *below[int(node)]])
    for node in map(int, tree.columns):
        square, rest = float(sums.second[node, node]), [*below[node], *([-1] if node == 0 else [])]
        if not square > 0.0 or passes[node] < 1.0:
            continue
        inside = sums.second[np.ix_(rest, rest)]
        weights = np.linalg.lstsq(inside, sums.second[rest, node])[0] if rest else np.zeros(0)
        left = square - float(weights @ sums.second[rest, node])
        if not left > MIN_REMAINDER * square:
            continue
        scale = float(np.sqrt(passes[node] / left))
        gain += 0.5 * (square - passes[node]) + passes[node] * special.log(scale)
        last = len(sums.second) - 1
        sources[node] = [
            (node, scale),
            *((child % (last + 1), -scale * w) for child, w in zip(rest, weights, strict=True)),
        ]
    tried = replace(moves, sources=sources)
    before, after = (evidence(moments, tree.columns, prior, tau) for moments in (sums, sums.moved(tried)))
    return tried if gain + after > before else moves
