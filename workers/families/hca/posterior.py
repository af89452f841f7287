"""Gaussian trees on the driver: the best q(w) and q(tau) given sums over vectors, the bound, and chains that join.

Arrays are by column of the rows, the mean being the last; A = sum_n q E[x x'], K = B'B over the columns of the vectors.

Chains become a tree: leaves that were fitted with separate nodes above them come to share nodes. The factors of a
chain may be rotated, W x = (W R) R'x, where R'x has the distribution of x. So what two leaves have in common is a
direction in the span of both chains' loadings, not nodes that are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import NumericalError
from collapsium.workers import special_functions as special
from collapsium.workers.families.hca.states import Loadings, NextLoadings, Prior
from collapsium.workers.families.ncrp import tree as nested
from collapsium.workers.families.ncrp.node_moves import Moves
from collapsium.workers.families.ncrp.tree import FREE, ROOT, Tree
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
        precision = np.eye(len(sums.second)) / prior.variance + tau * sums.second
        solve: Vector = np.asarray(tau * np.linalg.inv(0.5 * (precision + precision.T)), dtype=np.float64)
        gram, spread = solve @ sums.products @ solve, 1.0 / (1.0 / prior.variance + tau * np.diag(sums.second))
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


GROUPING_ROUNDS = 8  # Rounds of loadings and maps that score a grouping
GROUP_NUMBERS = 24  # Numbers of groups that are tried, at most
# Distance of leaves that are in different groups of the level above; distances within a group are at most 1
GROUPS_APART = 2.0


def levels(
    products: Vector,
    counts: Vector,
    clusters: Ints,
    sizes: list[int],
) -> list[Ints]:
    """Return a label of each cluster for each level, by Ward's linkage of their means: each splits the one above."""
    from scipy.cluster import hierarchy
    from scipy.spatial import distance as spatial_distance

    if clusters.size == 1:
        return [np.zeros(1, dtype=np.int64) for _ in sizes]
    scaled = products[np.ix_(clusters, clusters)] / np.outer(counts[clusters], counts[clusters])
    length = np.diag(scaled)
    distance = np.sqrt(np.maximum(length + length[:, np.newaxis] - 2.0 * scaled, 0.0))
    np.fill_diagonal(distance, 0.0)
    if not np.isfinite(distance).all():
        raise NumericalError(
            "squares of the vectors' values overflow (above about 1e308); expected smaller values: scale the columns "
            "and ingest them again"
        )
    joined = hierarchy.linkage(spatial_distance.squareform(0.5 * (distance + distance.T), checks=False), "ward")
    below = [hierarchy.fcluster(joined, min(size, clusters.size), "maxclust").astype(np.int64) for size in sizes[1:]]
    return [np.zeros(clusters.size, dtype=np.int64), *below]


def joined(
    tree: Tree, sums: Sums, components: Components, ends: Vector, sizes: list[int], prior: Prior, gamma: float
) -> tuple[Moves, Vector]:
    """Join chains level by level into the number of groups with the largest bound.

    Returns moves: To a tree of at most `sizes` nodes; ends: That tree's
    """
    scores = _GroupingScores(sums, components, prior, gamma)
    chosen = _Chains(tree, components.gram, ends).grouped(np.zeros((0, 4)), 1)
    best, brought, _ = scores.fit(chosen)
    for level in range(1, tree.depth - 2):
        linked, reached, held = chosen.linked(), -np.inf, chosen
        least = len(set(held.above[-1].tolist()))
        most = max(min(sizes[level], len(held.nodes)), least)
        # All numbers of groups are tried, or some between the two.
        numbers = np.unique(np.rint(np.geomspace(least, most, min(most - least + 1, GROUP_NUMBERS))))
        for number in numbers.tolist():
            tried = held.grouped(linked, int(number))
            moves, after, value = scores.fit(tried)
            if value > reached:
                chosen, reached, best, brought = tried, value, moves, after
    return best, brought


class _GroupingScores:
    """Scores of groupings of chains: the part of the bound that they decide, with the best maps of their factors."""

    def __init__(self, sums: Sums, components: Components, prior: Prior, gamma: float) -> None:
        self.sums, self.components, self.prior, self.gamma = sums, components, prior, gamma

    def fit(self, chains: _Chains) -> tuple[Moves, Vector, float]:
        """Return moves, the ends of the tree that they make, and the value, after some rounds of loadings and maps.

        x' = G x of each leaf, where G is from the best q(x') of what its chain explains, and the best q(w) then
        belongs to the mapped sums.
        """
        maps = chains.maps()
        for _ in range(GROUPING_ROUNDS):
            moves, brought = chains.moves(maps)
            maps = self._mapped(chains, moves)
        moves, brought = chains.moves(maps)
        sticks = nested.sticks(moves.tree, moves.tree.gathered(brought), brought, self.gamma)
        value = evidence(self.sums.moved(moves), moves.tree.columns, self.prior, self.components.tau)
        value += nested.sticks_bound(moves.tree, sticks, brought, self.gamma)
        for leaf, mapping in enumerate(maps):
            second = self.sums.second[np.ix_(chains.nodes[leaf], chains.nodes[leaf])]
            value += chains.mass[leaf] * float(np.linalg.slogdet(mapping)[1])
            value -= 0.5 * float(np.trace(mapping @ second @ mapping.T) - np.trace(second))
        return moves, brought, value

    def _mapped(self, chains: _Chains, moves: Moves) -> list[Vector]:
        tau, sums = self.components.tau, self.sums.moved(moves)
        moved = fitted(sums, self.prior, tau)
        # E[w']'E[w].
        across = moved.solve @ brought(self.sums.products.T, moves).T @ self.components.solve
        paths = moves.tree.paths()
        maps = []
        for nodes in chains.nodes:
            path = paths[nodes[-1]]
            quadratic = moved.gram[np.ix_(path, path)] + sums.words * np.diag(moved.spread[path])
            maps.append(np.linalg.solve(np.eye(path.size) / tau + quadratic, across[np.ix_(path, nodes)]))
        return maps


class _Chains:
    """Leaves that share the nodes of some levels; below these, each leaf has separate factors, in any rotation."""

    def __init__(self, tree: Tree, gram: Vector, ends: Vector) -> None:
        self.tree, self.gram, self.ends = tree, gram, ends
        leaves = np.flatnonzero(tree.levels == tree.depth - 1)
        self.nodes = [np.array(tree.path(int(leaf))[1:], dtype=np.int64) for leaf in leaves]
        self.mass = np.maximum(ends[leaves], 1e-300)
        self.above: list[Ints] = []  # a label of each leaf, for each level that is joined
        self.shared: list[list[Vector]] = []  # of each such level, the factor's direction in each leaf's chain
        self.left = [np.eye(len(nodes)) for nodes in self.nodes]  # directions that are not shared

    def _product(self, first: int, second: int) -> Vector:
        inside = self.gram[np.ix_(self.nodes[first], self.nodes[second])]
        product: Vector = self.left[first].T @ inside @ self.left[second]
        return product

    def linked(self) -> Vector:
        """Link leaves by the smallest angle between the unshared directions of their chains."""
        from scipy.cluster import hierarchy
        from scipy.spatial import distance as spatial_distance

        size = len(self.nodes)
        roots = [_inverse_root(self._product(row, row)) for row in range(size)]
        distance = np.zeros((size, size))
        for row in range(size):
            for column in range(row):
                cosine = float(np.linalg.norm(roots[row] @ self._product(row, column) @ roots[column], 2))
                together = self.above[-1][row] == self.above[-1][column]
                distance[row, column] = distance[column, row] = 1.0 - min(cosine, 1.0) if together else GROUPS_APART
        empty: Vector = np.zeros((0, 4))
        return hierarchy.linkage(spatial_distance.squareform(distance, checks=False), "average") if size > 1 else empty

    def grouped(self, linked: Vector, number: int) -> _Chains:
        """Join the leaves into groups, each of which shares a common direction of its leaves."""
        size = len(self.nodes)
        labels = np.ones(size, dtype=np.int64)
        if number > 1:
            from scipy.cluster import hierarchy

            labels = hierarchy.fcluster(linked, number, "maxclust").astype(np.int64)
        direction: list[Vector] = [np.zeros(0)] * size
        after = _Chains(self.tree, self.gram, self.ends)
        after.left = list(self.left)
        for label in np.unique(labels):
            inside = np.flatnonzero(labels == label)
            for leaf, turned in zip(inside, self._common(inside), strict=True):
                direction[leaf] = self.left[leaf] @ turned
                # The orthogonal complement of the direction.
                basis = np.linalg.svd(turned[np.newaxis])[2][1:].T
                after.left[leaf] = self.left[leaf] @ basis
        after.above, after.shared = [*self.above, labels], [*self.shared, direction]
        return after

    def _common(self, inside: Ints) -> list[Vector]:
        """Return a unit vector for each leaf's factors, along which the directions of loadings agree most.

        The direction nearest to the spans of all: the first of a generalised canonical correlation (Kettenring 1971).
        """
        size, weight = self.left[inside[0]].shape[1], np.sqrt(self.mass[inside])
        if inside.size == 1:
            product = self._product(int(inside[0]), int(inside[0]))
            return [_unit(np.linalg.eigh(0.5 * (product + product.T))[1][:, -1])]
        roots = [_inverse_root(self._product(int(node), int(node))) for node in inside]
        products = np.zeros((inside.size * size, inside.size * size))
        for i, node in enumerate(inside):
            for j, second in enumerate(inside):
                block = weight[i] * weight[j] * roots[i] @ self._product(int(node), int(second)) @ roots[j]
                products[i * size : (i + 1) * size, j * size : (j + 1) * size] = block
        top = np.linalg.eigh(0.5 * (products + products.T))[1][:, -1].reshape(inside.size, size)
        return [_unit(root @ block) for root, block in zip(roots, top, strict=True)]

    def maps(self) -> list[Vector]:
        """Return the map of each leaf's factors: the shared directions, and the others."""
        return [np.column_stack([*(path[leaf] for path in self.shared), left]).T for leaf, left in enumerate(self.left)]

    def moves(self, maps: list[Vector]) -> tuple[Moves, Vector]:
        """Return the moves to the tree with mapped factors, and its ends."""
        parents = np.full(self.tree.parents.size, FREE, dtype=np.int64)
        parents[0] = ROOT
        sources: dict[int, list[tuple[int, float]]] = {}
        brought = np.zeros(self.ends.size)
        brought[0] = self.ends[0]
        for leaf, nodes in enumerate(self.nodes):
            path = np.array(nodes)
            path[0] = 0
            for level, labels in enumerate(self.above[1:], 1):
                path[level] = self.nodes[int(np.flatnonzero(labels == labels[leaf])[0])][level]
            for node, weights in zip(path, maps[leaf], strict=True):
                weighted = zip(nodes.tolist(), weights.tolist(), strict=True)
                sources.setdefault(int(node), []).extend(weighted)
            parents[path[1:]] = path[:-1]
            np.add.at(brought, path, self.ends[nodes])
        removed = int((self.tree.parents != FREE).sum() - (parents != FREE).sum())
        begun = Moves(self.tree)
        after = Tree(parents, self.tree.depth - 1)
        return replace(begun, tree=after, sources=sources, counts={**begun.counts, "merged": removed}), brought


def _inverse_root(matrix: Vector) -> Vector:
    """Return the inverse square root of a symmetric matrix, with eigenvalues bounded from below; zero of zero."""
    value, vector = np.linalg.eigh(0.5 * (matrix + matrix.T))
    top = float(value[-1])
    if not top > 1e-280:
        return np.zeros(matrix.shape)
    root: Vector = (vector / np.sqrt(np.maximum(value / top, 1e-12) * top)) @ vector.T
    return root


def _unit(direction: Vector) -> Vector:
    length = float(np.linalg.norm(direction))
    unit: Vector = direction / length if length > 0.0 else np.eye(direction.size)[0]
    return unit
