"""Turn chains into a tree: leaves that were fitted with separate nodes above them come to share nodes.

The factors of a chain may be rotated, W x = (W R) R'x, where R'x has the distribution of x. So what two leaves have in
common is a direction in the span of both chains' loadings, not nodes that are equal.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import NumericalError
from collapsium.workers.families.hca import posterior as gaussian
from collapsium.workers.families.hca.posterior import Components, Prior, Sums
from collapsium.workers.families.ncrp import prior as nested
from collapsium.workers.families.ncrp.node_moves import Moves
from collapsium.workers.families.ncrp.tree import FREE, ROOT, Tree

Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]


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
        for number in _numbers(least, max(min(sizes[level], len(held.nodes)), least)):
            tried = held.grouped(linked, number)
            moves, after, value = scores.fit(tried)
            if value > reached:
                chosen, reached, best, brought = tried, value, moves, after
    return best, brought


def _numbers(smallest: int, largest: int) -> list[int]:
    """Return the numbers of groups to try: all, or some between the two."""
    numbers = np.unique(np.rint(np.geomspace(smallest, largest, min(largest - smallest + 1, GROUP_NUMBERS))))
    return [int(number) for number in numbers]


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
        value = gaussian.evidence(self.sums.moved(moves), moves.tree.columns, self.prior, self.components.tau)
        value += nested.sticks_bound(moves.tree, sticks, brought, self.gamma)
        for leaf, mapping in enumerate(maps):
            second = self.sums.second[np.ix_(chains.nodes[leaf], chains.nodes[leaf])]
            value += chains.mass[leaf] * float(np.linalg.slogdet(mapping)[1])
            value -= 0.5 * float(np.trace(mapping @ second @ mapping.T) - np.trace(second))
        return moves, brought, value

    def _mapped(self, chains: _Chains, moves: Moves) -> list[Vector]:
        tau, sums = self.components.tau, self.sums.moved(moves)
        moved = gaussian.fitted(sums, self.prior, tau)
        # E[w']'E[w].
        across = moved.solve @ _one_side(self.sums.products, moves) @ self.components.solve
        paths = moves.tree.paths()
        maps = []
        for nodes in chains.nodes:
            path = paths[nodes[-1]]
            quadratic = moved.gram[np.ix_(path, path)] + sums.words * np.diag(moved.spread[path])
            maps.append(np.linalg.solve(np.eye(path.size) / tau + quadratic, across[np.ix_(path, nodes)]))
        return maps


def _one_side(products: Vector, moves: Moves) -> Vector:
    """Return a matrix of products with its rows moved to another tree."""
    moved: Vector = gaussian.brought(products.T, moves).T
    return moved


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
                sources.setdefault(int(node), []).extend(_weights(nodes, weights))
            parents[path[1:]] = path[:-1]
            np.add.at(brought, path, self.ends[nodes])
        removed = int((self.tree.parents != FREE).sum() - (parents != FREE).sum())
        begun = Moves(self.tree)
        after = Tree(parents, self.tree.depth - 1)
        return replace(begun, tree=after, sources=sources, counts={**begun.counts, "merged": removed}), brought


def _weights(nodes: Ints, direction: Vector) -> list[tuple[int, float]]:
    return [(int(node), float(weight)) for node, weight in zip(nodes, direction, strict=True)]


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
