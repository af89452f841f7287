"""The nested Chinese restaurant process on the driver: sticks, and masses of paths outside the tree.

Arrays are by column of the rows; see `collapsium.workers.families.ncrp.tree`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.families.ncrp.tree import Tree
from collapsium.workers.special_functions import betaln, digamma

Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]

LOG_GAMMA_RANGE = -7.0, 7.0  # Range of log gamma, if gamma is learned


@dataclass(frozen=True)
class Sticks:
    """The factors q(v_i) = Beta(a_i, b_i) of all nodes but the root, and the order of siblings."""

    # The prior's, for columns without a node and for the root; float64 (columns,)
    a: Vector
    b: Vector
    rank: Ints  # A node's number among its siblings, from 0; int64 (columns,)

    @property
    def log_stick(self) -> Vector:
        """E[log v_i]."""
        log_stick: Vector = digamma(self.a) - digamma(self.a + self.b)
        return log_stick

    @property
    def log_rest(self) -> Vector:
        """E[log(1 - v_i)]."""
        log_rest: Vector = digamma(self.b) - digamma(self.a + self.b)
        return log_rest


def sticks(tree: Tree, passes: Vector, ends: Vector, gamma: float) -> Sticks:
    """Return the best q(v) given q(c): a_i = 1 + mass of i, b_i = gamma + mass of later siblings.

    Siblings are numbered by falling mass, which no other order beats; paths outside the tree come behind all of them.
    """
    a, b = np.ones(passes.size), np.full(passes.size, gamma)
    rank = np.zeros(passes.size, dtype=np.int64)
    for node in tree.columns:
        children = tree.children(node)
        if not children.size:
            continue
        order = children[np.argsort(-passes[children], kind="stable")]
        later = np.cumsum(np.append(passes[order], ends[node])[::-1])[::-1][1:]
        a[order], b[order], rank[order] = 1.0 + passes[order], gamma + later, np.arange(order.size)
    return Sticks(a, b, rank)


def outside_log(gamma: float) -> float:
    """Return the log mass of all nodes of one level outside the tree: u - log(1 - exp r).

    With u = E[log v] and r = E[log(1 - v)] of v ~ Beta(1, gamma), a sum over j of exp(u + (j - 1) r).
    """
    both = digamma(1.0 + gamma)
    return float(digamma(1.0) - both - special.log(-special.expm1(digamma(gamma) - both)))


def end_logs(tree: Tree, factors: Sticks, gamma: float) -> Vector:
    """Return log sum_c exp(E[log p(c | V)]) over the full paths of each end."""
    logs = np.full(tree.parents.size, -np.inf)
    log_stick, log_rest, beyond = factors.log_stick, factors.log_rest, outside_log(gamma)
    down = np.zeros(tree.parents.size)
    for node in tree.columns:
        children = tree.children(node)
        order = children[np.argsort(factors.rank[children], kind="stable")]
        before = np.cumsum(np.append(0.0, log_rest[order]))
        down[order] = down[node] + log_stick[order] + before[:-1]
        left = tree.depth - 1 - tree.levels[node]
        logs[node] = down[node] + (before[-1] + left * beyond if left else 0.0)
    return logs


def sticks_bound(tree: Tree, factors: Sticks, ends: Vector, gamma: float) -> float:
    """Return E[log p(c | V)] + the entropy outside the tree, and -KL(q(v) | p(v)), all given q(c) and its best q(v)."""
    nodes = tree.columns[1:]
    value = (betaln(factors.a[nodes], factors.b[nodes]) - betaln(1.0, gamma)).sum()
    left = tree.depth - 1 - tree.level
    return float(value + (ends[tree.columns] * left).sum() * outside_log(gamma))


def sticks_divergence(tree: Tree, factors: Sticks, gamma: float) -> float:
    """Return KL(q(v) | p(v)) of all nodes but the root."""
    nodes = tree.columns[1:]
    a, b = factors.a[nodes], factors.b[nodes]
    value = betaln(1.0, gamma) - betaln(a, b) + (a - 1.0) * digamma(a) + (b - gamma) * digamma(b)
    return float((value + (1.0 + gamma - a - b) * digamma(a + b)).sum())


def learned_gamma(tree: Tree, factors: Sticks, ends: Vector, gamma: float) -> float:
    """Return the gamma that maximises the bound given q(c) and q(v); at least as good as the present one."""
    from scipy import optimize

    nodes = tree.columns[1:]
    rest = float(factors.log_rest[nodes].sum())
    left = float((ends[tree.columns] * (tree.depth - 1 - tree.level)).sum())

    def loss(log_gamma: float) -> float:
        value = float(special.exp(log_gamma))
        return -(nodes.size * log_gamma + (value - 1.0) * rest + left * outside_log(value))

    best = optimize.minimize_scalar(loss, bounds=LOG_GAMMA_RANGE, method="bounded", options={"xatol": 1e-6})
    return float(special.exp(best.x)) if best.fun < loss(float(special.log(gamma))) else gamma
