"""From chains to a tree: leaves that were fitted each with nodes of its own above it share those that they agree on.

The factors of a chain may be turned, W x = (W R) R'x with R'x as normal as x, so that what two leaves have in common is
a direction that lies in the span of both chains' loadings, not nodes that are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from collapsar.pipeline.nested import Moves
from collapsar.workers.tree import FREE, ROOT, Tree

Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]

TURNS = 50  # by which the leaves of a group agree on a direction
APART = 2.0  # distance of leaves that are in different groups already


def chains(columns: int, leaves: int, depth: int) -> Tree:
    """Return a root with so many paths behind it that share nothing else."""
    parents = np.full(columns, FREE, dtype=np.int64)
    parents[0] = ROOT
    inner = np.arange(1, 1 + leaves * (depth - 1))
    parents[inner] = np.where((inner - 1) % (depth - 1) == 0, 0, inner - 1)
    return Tree(parents, depth)


def joined(
    tree: Tree, gram: Vector, ends: Vector, sizes: list[int], value: Callable[[Moves, Vector], float]
) -> tuple[Moves, Vector]:
    """Join chains level by level into as many groups as have the largest value.

    Parameters
    ----------
    tree : Tree
        Of chains.
    gram : numpy.ndarray of float64, shape (columns + 1, columns + 1)
        Products of all loadings.
    ends : numpy.ndarray of float64, shape (columns,)
        Vectors that end at each node.
    sizes : list of int
        Most nodes of each level.
    value : callable
        Of moves, and of the ends of the tree that they make.

    Returns
    -------
    moves : Moves
        To a tree of at most `sizes` nodes.
    ends : numpy.ndarray of float64, shape (columns,)
        That tree's.
    """
    found = _Chains(tree, gram, ends)
    best, brought = found.moves()
    for level in range(1, tree.depth - 1):
        linked, reached = found.linked(), -np.inf
        least = max(len(set(found.above[-1].tolist())), 1)
        chosen = found
        for number in range(least, max(sizes[level], least) + 1):
            tried = found.grouped(linked, number)
            moves, after = tried.moves()
            now = value(moves, after)
            if now > reached:
                chosen, reached, best, brought = tried, now, moves, after
        found = chosen
    return best, brought


class _Chains:
    """Leaves that share the nodes of some levels; below these each has factors of its own, turned as it likes."""

    def __init__(self, tree: Tree, gram: Vector, ends: Vector) -> None:
        self.tree, self.gram, self.ends = tree, gram, ends
        leaves = np.flatnonzero(tree.levels == tree.depth - 1)
        self.nodes = [np.array(tree.path(leaf)[1:]) for leaf in leaves]
        self.mass = np.maximum(ends[leaves], 1e-300)
        self.above = [np.zeros(leaves.size, dtype=np.int64)]  # a label of each leaf, for each level that is joined
        self.shared: list[list[Vector]] = []  # of each such level, the factor's direction in each leaf's chain
        self.left = [np.eye(len(nodes)) for nodes in self.nodes]  # directions that are not shared

    def _product(self, one: int, other: int) -> Vector:
        inside = self.gram[np.ix_(self.nodes[one], self.nodes[other])]
        found: Vector = self.left[one].T @ inside @ self.left[other]
        return found

    def linked(self) -> Vector:
        """Link leaves by the smallest angle between what is left of their chains."""
        size = len(self.nodes)
        roots = []
        for one in range(size):
            value, vector = np.linalg.eigh(self._product(one, one))
            roots.append((vector / np.sqrt(np.maximum(value, 1e-12 * max(value[-1], 1e-300)))) @ vector.T)
        distance = np.zeros((size, size))
        for one in range(size):
            for other in range(one):
                cosine = np.linalg.norm(roots[one] @ self._product(one, other) @ roots[other], 2)
                together = self.above[-1][one] == self.above[-1][other]
                distance[one, other] = distance[other, one] = 1.0 - min(cosine, 1.0) if together else APART
        empty: Vector = np.zeros((0, 4))
        return linkage(squareform(distance, checks=False), "average") if size > 1 else empty

    def grouped(self, linked: Vector, number: int) -> _Chains:
        """Join the leaves into some groups, each of which takes up a direction that its leaves have in common."""
        size = len(self.nodes)
        labels = fcluster(linked, number, "maxclust").astype(np.int64) if size > 1 else np.ones(1, dtype=np.int64)
        direction: list[Vector] = [np.zeros(0)] * size
        after = _Chains(self.tree, self.gram, self.ends)
        after.left = list(self.left)
        for label in np.unique(labels):
            inside = np.flatnonzero(labels == label)
            for leaf, turned in zip(inside, self._common(inside), strict=True):
                direction[leaf] = self.left[leaf] @ turned
                basis = np.linalg.svd(turned[np.newaxis])[2][1:].T  # what is at right angles to it
                after.left[leaf] = self.left[leaf] @ basis
        after.above, after.shared = [*self.above, labels], [*self.shared, direction]
        return after

    def _common(self, inside: Ints) -> list[Vector]:
        """Return a unit vector for each leaf's factors, such that their loadings along these are most alike."""
        size = self.left[inside[0]].shape[1]
        products = [[self._product(int(one), int(other)) for other in inside] for one in inside]
        weight = np.sqrt(self.mass[inside])
        whole = np.block([[weight[i] * weight[j] * products[i][j] for j in range(inside.size)]
                          for i in range(inside.size)])  # fmt: skip
        top = np.linalg.eigh(0.5 * (whole + whole.T))[1][:, -1].reshape(inside.size, size)
        found = [_unit(one) for one in top]
        for _ in range(TURNS):
            found = [_unit(sum(self.mass[inside[j]] * products[i][j] @ found[j] for j in range(inside.size)))
                     for i in range(inside.size)]  # fmt: skip
        return found

    def moves(self) -> tuple[Moves, Vector]:
        """Return the moves that make the tree, and its ends."""
        levels = len(self.shared)
        parents = np.full(self.tree.parents.size, FREE, dtype=np.int64)
        parents[0] = ROOT
        sources: dict[int, list[tuple[int, float]]] = {}
        brought = np.zeros(self.ends.size)
        brought[0] = self.ends[0]
        for leaf, nodes in enumerate(self.nodes):
            path = [0]
            for level in range(levels):
                first = int(np.flatnonzero(self.above[level + 1] == self.above[level + 1][leaf])[0])
                path.append(int(self.nodes[first][level]))
                sources.setdefault(path[-1], []).extend(_weights(nodes, self.shared[level][leaf]))
            for place in range(levels, nodes.size):
                path.append(int(nodes[place]))
                sources[path[-1]] = _weights(nodes, self.left[leaf][:, place - levels])
            parents[path[1:]] = path[:-1]
            np.add.at(brought, path[1:], self.ends[nodes])
        gone = int((self.tree.parents != FREE).sum() - (parents != FREE).sum())
        begun = Moves(self.tree)
        return replace(
            begun, tree=Tree(parents, self.tree.depth), sources=sources, counts={**begun.counts, "merged": gone}
        ), brought


def _weights(nodes: Ints, direction: Vector) -> list[tuple[int, float]]:
    return [(int(node), float(weight)) for node, weight in zip(nodes, direction, strict=True)]


def _unit(direction: Vector) -> Vector:
    length = float(np.linalg.norm(direction))
    found: Vector = direction / length if length > 0.0 else np.eye(direction.size)[0]
    return found
