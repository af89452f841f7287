"""Initialise a tree of components: leaves, and the nodes above them, from clusters of vectors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.hca.posterior import Sums
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.ncrp.tree import FREE, ROOT, Tree

Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]

FACTOR_VARIANCE = 0.01  # Variance of the initial factors, without which those of one path would be one direction


class InitialTree:
    """A tree of clusters, each with factors of plus and minus one.

    A leaf's factor is one for all its vectors, so that it starts at their mean; those of the nodes above are drawn for
    each cluster, so that nodes on a path differ.
    """

    def __init__(self, labels: list[Ints], columns: int, clusters: Ints, stream: Stream, *, chained: bool) -> None:
        self._clusters, depth = clusters, len(labels)
        parents = np.full(columns, FREE, dtype=np.int64)
        parents[0] = ROOT
        nodes: list[dict[int, int]] = [{0: 0}]
        free = iter(range(1, columns))
        for level in range(1, depth):
            nodes.append({})
            for row, label in enumerate(labels[level]):
                if label not in nodes[level]:
                    nodes[level][int(label)] = next(free)
                    parents[nodes[level][label]] = nodes[level - 1][labels[level - 1][row]]
        self.tree = Tree(parents, depth)
        self._leaves = np.array([nodes[-1][int(label)] for label in labels[-1]], dtype=np.int64)
        factors = np.where(stream.generator().random((clusters.size, depth)) < 0.5, -1.0, 1.0)
        factors[:, -1] = 1.0
        # Weights of clusters in nodes.
        self._weights = np.zeros((columns + 1, columns + 1))
        self._weights[-1, -1] = 1.0
        self.sources: dict[int, list[tuple[int, float]]] = {}
        for row, cluster in enumerate(clusters):
            for level in range(int(chained), depth):
                node = nodes[level][int(labels[level][row])]
                self.sources.setdefault(node, []).append((int(cluster), float(factors[row, level])))
                self._weights[cluster, node] = factors[row, level]

    def ends(self, counts: Vector) -> Vector:
        """Return the vectors at each leaf, from those of each cluster."""
        ends = np.zeros(counts.size)
        np.add.at(ends, self._leaves, counts[self._clusters])
        return ends

    def sums(self, counts: Vector, products: Vector, square: float, documents: float, words: float) -> Sums:
        """Return the sums of a sweep of this tree."""
        weights = self._weights
        second = np.einsum("ci,cj->ij", weights[:-1] * counts[:, np.newaxis], weights[:-1])
        mean = np.einsum("ci,c->i", weights[:-1], counts)
        second += FACTOR_VARIANCE * np.diag(np.diag(second))
        second[-1], second[:, -1] = mean, mean
        second[-1, -1] = documents
        brought = np.einsum("ci,cj->ij", weights, np.einsum("cd,dj->cj", products, weights))
        return Sums(second, brought, square, 0.0, documents, words)
