"""Paths and levels of documents in a tree of topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray
from collapsium.workers import special_functions as special
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.ncrp.state import NcrpDocuments, NcrpGlobalState, NcrpLocal
from collapsium.workers.families.ncrp.tree import DocumentEnds, Ints, Tree, Vector, deepened
from collapsium.workers.kernels.trees.levels import LevelCounts, sweep_levels
from collapsium.workers.kernels.trees.paths import MIN_PROBABILITY, sweep_paths
from collapsium.workers.kernels.trees.records import (
    DocumentPrior,
    LargestEnds,
    StoppingRule,
    TreeStatistics,
    TreeTopics,
)
from collapsium.workers.special_functions import digamma

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

MAX_ENDS = 16  # ends that are stored of a document
MIN_END_SHARE = 1e-3  # least q(c) of a stored end behind the largest


@dataclass(frozen=True)
class WordLogs:
    """E[log w], or log w, of the words of the rows at the nodes of a tree, in the order of `Tree.columns`."""

    tree: Tree  # The nodes
    alpha: Vector  # Dirichlet parameters of the level proportions; float64 (depth,)
    log_node: Vector  # Of the tree's nodes; float64 (words, nodes)
    log_outside: Vector  # Of nodes outside the tree, by level; float64 (depth,)

    @classmethod
    def of(
        cls, global_state: NcrpGlobalState, tree: Tree, word_topic: AnyArray, totals: Vector, *, point: bool
    ) -> WordLogs:
        """Return those of a tree's topics."""
        words = global_state.vocabulary
        alpha, eta = global_state.level_priors(tree.depth)
        prior, counts = eta[tree.level], np.ascontiguousarray(word_topic[:, tree.columns])
        if point:
            log_outside = np.full(tree.depth, -special.log(words))
            log_node = special.log(counts + prior) - special.log(totals[tree.columns] + words * prior)
        else:
            log_outside = digamma(eta) - digamma(words * eta)
            log_node = digamma(counts + prior) - digamma(totals[tree.columns] + words * prior)
        return cls(tree, alpha, log_node, log_outside)


class DocumentPaths:
    """The paths and levels of a shard's documents after a pass."""

    def __init__(
        self,
        shard: Shard,
        document_level: Vector,
        pair_level: npt.NDArray[np.float32] | None,
        logs: WordLogs,
        end_log: Vector,
        stopping: StoppingRule,
    ) -> None:
        tree = self._tree = logs.tree
        size, depth = tree.columns.size, tree.depth
        self.document_level = np.zeros((shard.documents, depth))
        self.row_node = buffers.empty((shard.words.size, size), np.float64)
        self.ends, self.log_theta, bound = np.zeros(size), np.zeros(depth), np.zeros(1)
        self.pair_level: npt.NDArray[np.float32] | None = None
        self._largest = LargestEnds(
            np.zeros((shard.documents, MAX_ENDS), dtype=np.int32),
            np.zeros((shard.documents, MAX_ENDS), dtype=np.float32),
            MIN_END_SHARE,
        )
        statistics = TreeStatistics(self.row_node, self.ends, self.log_theta, bound)
        prior = DocumentPrior(np.ascontiguousarray(end_log[tree.columns]), logs.alpha)
        pairs = document_pairs(shard)
        if pair_level is not None:
            previous = _deepened_pairs(pair_level, logs.alpha)
            self.pair_level = np.empty_like(previous)
            topics = TreeTopics(tree.parent, tree.level, logs.log_node, logs.log_outside)
            levels = LevelCounts(self.document_level, self.pair_level)
            sweep_levels(pairs, topics, prior, previous, stopping.passes, levels, statistics, self._largest)
        else:
            start = np.ascontiguousarray(deepened(document_level, logs.alpha))
            weights, outside = (
                np.maximum(special.exp(one), MIN_PROBABILITY) for one in (logs.log_node, logs.log_outside)
            )
            topics = TreeTopics(tree.parent, tree.level, weights, outside)
            sweep_paths(pairs, topics, prior, start, stopping, self.document_level, statistics, self._largest)
        self.bound = float(bound[0])

    def local(self) -> NcrpLocal:
        """Return the local state from which the next sweep starts."""
        ends = DocumentEnds.of_largest(self._largest.ends, self._largest.masses, self._tree.columns)
        return NcrpLocal(self.document_level, ends, self.pair_level)


def _deepened_pairs(pair_level: npt.NDArray[np.float32], alpha: Vector) -> npt.NDArray[np.float32]:
    if pair_level.shape[1] == alpha.size:
        return np.ascontiguousarray(pair_level)
    return np.ascontiguousarray(deepened(pair_level, alpha), dtype=np.float32)


def level_proportions(local: NcrpDocuments, global_state: NcrpGlobalState) -> Vector:
    """Return E[theta] of each document, shape (documents, depth)."""
    alpha = global_state.level_priors(global_state.fitted.depth)[0]
    gamma = deepened(local.document_level, alpha) + alpha
    theta: Vector = np.ascontiguousarray(gamma / gamma.sum(axis=1, keepdims=True))
    return theta


def best_paths(global_state: NcrpGlobalState, owner: AnyArray, ends: AnyArray, masses: Vector, documents: int) -> Ints:
    """Return the most probable full path of each document in the tree."""
    tree, passes = global_state.fitted.tree, global_state.node_passes
    order = np.lexsort((-masses, tree.levels[ends] < tree.depth - 1, owner))
    best = np.zeros(documents, dtype=np.int64)
    best[owner[order][::-1]] = ends[order][::-1]
    paths = tree.paths()
    for level in range(1, tree.depth):
        for column in np.flatnonzero((tree.levels == level - 1) & (paths[:, -1] < 0)):
            children = tree.children(int(column))
            if children.size:
                best[best == column] = children[np.argmax(passes[children])]
    best_path: Ints = paths[best]
    return best_path
