"""Documents of an nCRP tree: their paths and levels as a pass infers them, and the topics that it infers them by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Arrays
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.ncrp.tree import Tree, deepened, kept_lists, level_sums
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

Vector = npt.NDArray[np.float64]

MOST_ENDS, LEAST_SHARE = 16, 1e-3  # ends that a document's list holds, and the least q(c) of one


def level_priors(globals: Arrays, depth: int) -> tuple[Vector, Vector]:
    """Return alpha and eta of the levels of a tree that may not be at its full depth yet."""
    return level_sums(globals["alpha"], depth), np.append(globals["eta"][: depth - 1], globals["eta"][-1])


def column_priors(globals: Arrays, tree: Tree) -> Vector:
    """Return eta of each column; that of the root where there is no node."""
    return level_priors(globals, tree.depth)[1][np.maximum(tree.levels, 0)]


class Topics:
    """The topics of a tree over the words at hand, its nodes in the order of `Tree.columns`."""

    def __init__(self, globals: Arrays, tree: Tree, rows: Arrays, totals: Vector) -> None:
        words = float(globals["vocabulary"])
        self.alpha, eta = level_priors(globals, tree.depth)
        prior, counted = eta[tree.level], rows["word_topic"][:, tree.columns]
        counted = np.ascontiguousarray(counted)
        if globals["point"]:
            self.log_outside = np.full(tree.depth, -special.log(words))
            self.log = special.log(counted + prior) - special.log(totals[tree.columns] + words * prior)
        else:
            self.log_outside = digamma(eta) - digamma(words * eta)
            self.log = digamma(counted + prior) - digamma(totals[tree.columns] + words * prior)


class DocumentPaths:
    """The paths and levels of a shard's documents after a pass."""

    def __init__(
        self,
        shard: Shard,
        local: Arrays,
        topics: Topics,
        tree: Tree,
        globals: Arrays,
        passes: int,
        tolerance: float,
    ) -> None:
        size, depth = tree.columns.size, tree.depth
        self.document_level = np.zeros((shard.documents, depth))
        self.row_node = buffers.empty((shard.words.size, size), np.float64)
        self.ends, self.log_theta, sums = np.zeros(size), np.zeros(depth), np.zeros(1)
        self.kept = np.zeros((shard.documents, MOST_ENDS), dtype=np.int32)
        self.masses = np.zeros((shard.documents, MOST_ENDS), dtype=np.float32)
        self.pair_level: npt.NDArray[np.float32] | None = None
        prior = DocumentPrior(np.ascontiguousarray(globals["next_end_log"][tree.columns]), topics.alpha)
        statistics = TreeStatistics(self.row_node, self.ends, self.log_theta, sums)
        largest = LargestEnds(self.kept, self.masses, LEAST_SHARE)
        pairs = document_pairs(shard)
        if globals["factorised"]:
            before = _deepened_pairs(local["pair_level"], topics.alpha)
            self.pair_level = np.empty_like(before)
            nodes = TreeTopics(tree.parent, tree.level, topics.log, topics.log_outside)
            levels = LevelCounts(self.document_level, self.pair_level)
            sweep_levels(pairs, nodes, prior, before, passes, levels, statistics, largest)
        else:
            previous = np.ascontiguousarray(deepened(local["document_level"], topics.alpha))
            weights, outside = (
                np.maximum(special.exp(logs), MIN_PROBABILITY) for logs in (topics.log, topics.log_outside)
            )
            nodes = TreeTopics(tree.parent, tree.level, weights, outside)
            stopping = StoppingRule(passes, tolerance)
            sweep_paths(pairs, nodes, prior, previous, stopping, self.document_level, statistics, largest)
        self.bound = float(sums[0])

    def local(self, tree: Tree) -> dict[str, npt.NDArray[Any]]:
        """Return the local state: what the next sweep begins from, and the documents' ends by column."""
        found = {"document_level": self.document_level, **kept_lists(self.kept, self.masses, tree.columns)}
        return found if self.pair_level is None else {**found, "pair_level": self.pair_level}


def _deepened_pairs(pair_level: npt.NDArray[np.float32], alpha: Vector) -> npt.NDArray[np.float32]:
    if pair_level.shape[1] == alpha.size:
        return np.ascontiguousarray(pair_level)
    return np.ascontiguousarray(deepened(pair_level, alpha), dtype=np.float32)


def document_ends(local: Arrays) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Vector]:
    """Return the lists of ends; documents that have not been swept yet are at the root's."""
    lists, ends, masses = local["document_lists"], local["document_ends"], local["document_masses"]
    absent = np.flatnonzero(np.diff(lists) == 0)
    ends = np.insert(np.asarray(ends, dtype=np.int64), lists[absent], 0)
    masses = np.insert(np.asarray(masses, dtype=np.float64), lists[absent], 1.0)
    lengths = np.maximum(np.diff(lists), 1)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), ends, masses


def level_proportions(local: Arrays, globals: Arrays) -> Vector:
    """Return E[theta] of each document, shape (documents, depth)."""
    alpha = level_priors(globals, int(globals["depth"]))[0]
    gamma = deepened(local["document_level"], alpha) + alpha
    found: Vector = np.ascontiguousarray(gamma / gamma.sum(axis=1, keepdims=True))
    return found


def best_paths(
    tree: Tree, globals: Arrays, owner: npt.NDArray[Any], ends: npt.NDArray[Any], masses: Vector, documents: int
) -> npt.NDArray[np.int64]:
    """Return the most probable full path of each document in the tree.

    Parameters
    ----------
    tree : Tree
        The tree.
    globals : Arrays
        The model's.
    owner, ends, masses : numpy.ndarray
        Document, column and q(c) of each end in the documents' lists.
    documents : int
        Number of documents.

    Returns
    -------
    numpy.ndarray of int64, shape (documents, depth)
        Columns of the nodes. Where no end of a list is a leaf, the path goes on to the largest child.
    """
    order = np.lexsort((-masses, tree.levels[ends] < tree.depth - 1, owner))
    best = np.zeros(documents, dtype=np.int64)
    best[owner[order][::-1]] = ends[order][::-1]
    paths = tree.paths()
    passes = globals["node_passes"]
    for level in range(1, tree.depth):
        for column in np.flatnonzero((tree.levels == level - 1) & (paths[:, -1] < 0)):
            children = tree.children(int(column))
            if children.size:
                best[best == column] = children[np.argmax(passes[children])]
    found: npt.NDArray[np.int64] = paths[best]
    return found
