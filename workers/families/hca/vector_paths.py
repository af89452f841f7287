"""Paths and factors of vectors on a Gaussian tree, with the sums over vectors from which loadings are computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers.families.hca.leaf_splits import LeafProbes
from collapsium.workers.families.hca.states import HcaGlobalState, TreeModel, VectorFactors
from collapsium.workers.families.ncrp.tree import DocumentEnds, Tree, Vector
from collapsium.workers.kernels.trees.gaussian import (
    FactorPosterior,
    GaussianTree,
    TreeStatistics,
    VectorPosterior,
    sweep_components,
    sweep_factors,
)

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import VectorShard

MAX_ENDS, MIN_SHARE = 16, 1e-3  # Most ends that are stored of a vector, and the least q(c) of a stored end


class VectorPaths:
    """Paths and factors of a shard's vectors after a pass."""

    def __init__(
        self,
        shard: VectorShard,
        local: VectorFactors | None,
        sums: Vector,
        model: TreeModel,
        global_state: HcaGlobalState,
        prior_variance: float,
    ) -> None:
        tree, self._tree = model.tree, model.tree
        size, count, columns = tree.columns.size, shard.documents, tree.parents.size
        places = np.append(tree.columns, columns)
        loadings = np.ascontiguousarray(np.einsum("wi,ij->jw", sums, model.loadings.solve[:, places]))
        paths = end_paths(tree, without_root=model.without_root)
        tau = global_state.next_sweep.tau
        quadratic, covariance, log_determinant = end_quadratics(
            model, paths, global_state.vocabulary, prior_variance, tau
        )
        end_log = np.ascontiguousarray(model.end_log[tree.columns])
        self.by_node, self.second = np.zeros((size + 1, shard.words.size)), np.zeros((size + 1, size + 1))
        self.ends, self.sums = np.zeros(size), np.zeros(3)
        self._ends = np.zeros((count, MAX_ENDS), dtype=np.int32)
        self._masses = np.zeros((count, MAX_ENDS), dtype=np.float32)
        self._best, self._factors = np.zeros(count, dtype=np.int32), np.zeros((count, paths.shape[1]))
        self._spread: Vector | None = None
        posterior = VectorPosterior(self._ends, self._masses, self._best, self._factors)
        statistics = TreeStatistics(self.by_node, self.second, self.ends, self.sums)
        nodes, mean = np.ascontiguousarray(loadings[:-1]), np.ascontiguousarray(loadings[-1])
        if global_state.separate_factors and local is not None and local.document_spread is not None:
            own = FactorPosterior(np.array(local.document_factors), np.array(local.document_spread))
            self._spread = own.covariance
            gaussian_tree = GaussianTree(nodes, mean, paths, quadratic, end_log, tau)
            sweep_factors(shard.values, gaussian_tree, MIN_SHARE, own, posterior, statistics)
        else:
            gaussian_tree = GaussianTree(nodes, mean, paths, covariance, end_log - 0.5 * log_determinant, tau)
            sweep_components(shard.values, gaussian_tree, MIN_SHARE, posterior, statistics)
            if global_state.factorised:
                self._spread = covariance[self._best]
        self._values, self._loadings, self._paths, self._covariance = shard.values, loadings, paths, covariance

    def step_probes(self, probes: LeafProbes) -> None:
        """Step the probes of all leaves."""
        for place in np.flatnonzero(self._paths[:, -1] >= 0):
            chosen, loadings = np.flatnonzero(self._best == place), self._loadings[self._paths[place]]
            if chosen.size:
                column = int(self._tree.columns[place])
                probes.step(column, self._loadings[-1], loadings, chosen, self._factors[chosen])

    def add_other_side(
        self, column: int, chosen: npt.NDArray[np.int64], by_word: Vector, second: Vector, ends: Vector
    ) -> None:
        """Add the sums over some of a leaf's vectors in a column of their own."""
        if not chosen.size:
            return
        place = int(self._best[chosen[0]])
        share = np.where(self._ends[chosen] == place, self._masses[chosen].astype(np.float64), 0.0).sum(axis=1)
        location = self._factors[chosen]
        spread = self._spread[chosen] if self._spread is not None else self._covariance[self._best[chosen]]
        own = np.einsum("n,nk->k", share, spread[:, -1] + location[:, -1:] * location)
        by_word[:, column] = np.einsum("n,nw->w", share * location[:, -1], self._values[chosen])
        path = np.append(self._tree.columns[self._paths[place]], column)
        second[column, path] = second[path, column] = np.append(own, own[-1])
        second[column, -1] = second[-1, column] = float(share @ location[:, -1])
        ends[column] = float(share.sum())

    def local(self) -> VectorFactors:
        """Return the local state."""
        columns = self._tree.columns
        ends = DocumentEnds.of_largest(self._ends, self._masses, columns)
        return VectorFactors(ends, columns[self._best].astype(np.int32), self._factors, self._spread)


def end_paths(tree: Tree, *, without_root: bool) -> npt.NDArray[np.int64]:
    """Return the places of the nodes on the path to each end, -1 outside the tree."""
    columns = tree.paths()[tree.columns, int(without_root) :]
    return np.ascontiguousarray(np.where(columns >= 0, tree.places[columns], -1))


def end_quadratics(
    model: TreeModel, paths: npt.NDArray[np.int64], words: float, prior_variance: float, tau: float
) -> tuple[Vector, Vector, Vector]:
    """Return Q = M'M + D diag(s) of each end, C = (I + tau Q)^-1, and log |C^-1|."""
    gram, spread = model.loadings.gram, model.loadings.spread
    columns = np.where(paths >= 0, model.tree.columns[paths], -1)
    inside = (columns >= 0)[:, :, np.newaxis] & (columns >= 0)[:, np.newaxis, :]
    quadratic = np.where(inside, gram[columns[:, :, np.newaxis], columns[:, np.newaxis, :]], 0.0)
    steps = np.arange(paths.shape[1])
    quadratic[:, steps, steps] += words * np.where(columns >= 0, spread[columns], prior_variance)
    precision = np.eye(paths.shape[1]) + tau * quadratic
    log_determinant = np.linalg.slogdet(precision)[1]
    return quadratic, np.ascontiguousarray(np.linalg.inv(precision)), log_determinant
