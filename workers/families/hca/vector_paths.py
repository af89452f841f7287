"""Paths and factors of vectors on a Gaussian tree, with the sums of them that loadings are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.delta import Arrays
from collapsium.workers.families.hca.leaf_splits import Parting
from collapsium.workers.families.ncrp.tree import Tree, kept_lists
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

Vector = npt.NDArray[np.float64]

MAX_ENDS, MIN_SHARE = 16, 1e-3  # ends that a vector's list holds, and the least q(c) of one


class VectorPaths:
    """Paths and factors of a shard's vectors after a pass; `which` names the globals of the tree: ``next_`` or none."""

    def __init__(
        self, shard: VectorShard, local: Arrays, sums: Vector, tree: Tree, globals: Arrays, which: str
    ) -> None:
        size, count, columns = tree.columns.size, shard.documents, tree.parents.size
        places = np.append(tree.columns, columns)
        loadings = np.ascontiguousarray(np.einsum("wi,ij->jw", sums, globals[f"{which}solve"][:, places]))
        paths = end_paths(tree, chained=bool(globals["chained"]) and which == "next_")
        quadratic, covariance, log_determinant = end_quadratics(tree, paths, globals, which)
        end_log = np.ascontiguousarray(globals[f"{which}end_log"][tree.columns])
        tau = float(globals["tau"])
        self.by_node, self.second = np.zeros((size + 1, shard.words.size)), np.zeros((size + 1, size + 1))
        self.ends, self.sums = np.zeros(size), np.zeros(3)
        self.kept = np.zeros((count, MAX_ENDS), dtype=np.int32)
        self.masses = np.zeros((count, MAX_ENDS), dtype=np.float32)
        self.best, self.factors = np.zeros(count, dtype=np.int32), np.zeros((count, paths.shape[1]))
        self.spread: Vector | None = None
        posterior = VectorPosterior(self.kept, self.masses, self.best, self.factors)
        statistics = TreeStatistics(self.by_node, self.second, self.ends, self.sums)
        loadings_of_nodes, mean = np.ascontiguousarray(loadings[:-1]), np.ascontiguousarray(loadings[-1])
        if globals["factorised"] and "document_spread" in local and bool(globals["apart"]):
            location = np.array(local["document_factors"])
            self.spread = np.array(local["document_spread"])
            gaussian_tree = GaussianTree(loadings_of_nodes, mean, paths, quadratic, end_log, tau)
            own = FactorPosterior(location, self.spread)
            sweep_factors(shard.values, gaussian_tree, MIN_SHARE, own, posterior, statistics)
        else:
            end_log = end_log - 0.5 * log_determinant
            gaussian_tree = GaussianTree(loadings_of_nodes, mean, paths, covariance, end_log, tau)
            sweep_components(shard.values, gaussian_tree, MIN_SHARE, posterior, statistics)
            if globals["factorised"]:
                self.spread = covariance[self.best]
        self._values, self._loadings, self._paths, self._covariance = shard.values, loadings, paths, covariance

    def parted(self, tree: Tree, parting: Parting) -> Parting:
        """Step the probes of all leaves, and part one."""
        for place in np.flatnonzero(self._paths[:, -1] >= 0):
            chosen, made = np.flatnonzero(self.best == place), self._loadings[self._paths[place]]
            if chosen.size:
                parting.leaf(int(tree.columns[place]), self._loadings[-1], made, chosen, self.factors[chosen])
        return parting

    def other_side(
        self, tree: Tree, column: int, chosen: npt.NDArray[np.int64], by_word: Vector, second: Vector, ends: Vector
    ) -> None:
        """Add up once more, in a column of their own, some of the vectors of a leaf."""
        if not chosen.size:
            return
        place = int(self.best[chosen[0]])
        share = np.where(self.kept[chosen] == place, self.masses[chosen].astype(np.float64), 0.0).sum(axis=1)
        location = self.factors[chosen]
        spread = self.spread[chosen] if self.spread is not None else self._covariance[self.best[chosen]]
        own = np.einsum("n,nk->k", share, spread[:, -1] + location[:, -1:] * location)
        by_word[:, column] = np.einsum("n,nw->w", share * location[:, -1], self._values[chosen])
        path = np.append(tree.columns[self._paths[place]], column)
        second[column, path] = second[path, column] = np.append(own, own[-1])
        second[column, -1] = second[-1, column] = float(share @ location[:, -1])
        ends[column] = float(share.sum())

    def local(self, tree: Tree) -> dict[str, npt.NDArray[Any]]:
        """Return the local state."""
        found: dict[str, npt.NDArray[Any]] = {
            **kept_lists(self.kept, self.masses, tree.columns),
            "document_best": tree.columns[self.best].astype(np.int32),
            "document_factors": self.factors,
        }
        return found if self.spread is None else {**found, "document_spread": self.spread}


def end_paths(tree: Tree, *, chained: bool) -> npt.NDArray[np.int64]:
    """Return the places of the nodes on the way to each end, -1 outside the tree; of chains without the root."""
    columns = tree.paths()[tree.columns, int(chained) :]
    return np.ascontiguousarray(np.where(columns >= 0, tree.places[columns], -1))


def end_quadratics(
    tree: Tree, paths: npt.NDArray[np.int64], globals: Arrays, which: str
) -> tuple[Vector, Vector, Vector]:
    """Return M'M + D diag(s) of each end, C = (I + tau of it)^-1, and log|C^-1|."""
    gram, spread = globals[f"{which}gram"], globals[f"{which}spread"]
    words, prior = float(globals["vocabulary"]), float(globals["prior_variance"])
    columns = np.where(paths >= 0, tree.columns[paths], -1)
    inside = (columns >= 0)[:, :, np.newaxis] & (columns >= 0)[:, np.newaxis, :]
    quadratic = np.where(inside, gram[columns[:, :, np.newaxis], columns[:, np.newaxis, :]], 0.0)
    steps = np.arange(paths.shape[1])
    quadratic[:, steps, steps] += words * np.where(columns >= 0, spread[columns], prior)
    whole = np.eye(paths.shape[1]) + float(globals["tau"]) * quadratic
    log_determinant = np.linalg.slogdet(whole)[1]
    return quadratic, np.ascontiguousarray(np.linalg.inv(whole)), log_determinant
