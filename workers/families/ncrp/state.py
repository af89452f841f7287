"""States of the variational nested Chinese restaurant process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray
from collapsium.workers.arrays.state import GlobalState, LocalState, Rows, State, block_only
from collapsium.workers.families.ncrp.tree import (
    DocumentEnds,
    FittedTree,
    Ints,
    MoveTable,
    Tree,
    UpcomingTree,
    Vector,
    level_sums,
)


@dataclass(frozen=True)
class Initialisation(State):
    """Progress of the initialisation of a tree."""

    seeding: bool  # Whether this round only counts the words of the seed documents
    max_seeds: int  # Most documents that start nodes
    # Stable hashes of the documents that may start nodes, and of those that do in this round, ascending; int64 (n,)
    seed_candidates: Ints
    seeds: Ints
    # Columns of the nodes that each seed document starts; 0 where there are no more; int64 (seeds, depth - 1)
    seed_columns: Ints
    seeds_root: bool  # Whether the root starts with the words of all documents
    hash_limit: int  # Largest hash of the documents that are in the tree; in a gradual start it grows
    admission_factor: float  # By which it grows in an iteration
    absent_tokens: float  # Tokens of the documents that are not in the tree


@dataclass(frozen=True)
class Clustering(State):
    """Progress of the clustering by which a fit starts, in a tree of depth 2."""

    # Sweeps since the clusters started, which goes on after them, and how many they may take
    clustering_sweeps: int
    max_clustering_sweeps: int
    planned_iterations: int  # Iterations of the fit; 0 where that is not known
    comparisons_without_merge: int  # Since the last merge


@dataclass(frozen=True)
class Comparisons(State):
    """Comparisons of nodes for which the next sweep returns sums."""

    # Columns whose evidence as one node is computed; int64 (pairs,)
    compared_first: Ints
    compared_second: Ints
    compares_affinity: bool  # Whether the affinity of all nodes is computed

    @classmethod
    def none(cls) -> Comparisons:
        """Return no comparisons."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), compares_affinity=False)


@dataclass(frozen=True)
class NcrpGlobalState(GlobalState):
    """The trees of the last and the next sweep, and the hyperparameters."""

    vocabulary: float  # W
    # Dirichlet parameters of the level proportions, and of each word at the nodes of a level; float64 (levels,)
    alpha: Vector
    eta: Vector
    gamma: float  # Concentration of each node's children
    # Whether local states have q(z) of each pair, and whether topics are points, not Dirichlet posteriors
    factorised: bool
    point: bool
    # The trees of the last and the next sweep, and the moves between them
    fitted: FittedTree
    upcoming: UpcomingTree
    moves: MoveTable
    # Expected documents that pass each node of the last sweep's tree, and its expected tokens; float64 (columns,)
    node_passes: Vector
    node_tokens: Vector
    # Progress of the start, and what the next sweep computes
    initialisation: Initialisation
    clustering: Clustering
    comparisons: Comparisons
    uncounted: float  # Tokens that are taken to be missing until the tree has its full depth
    another_round: bool  # Whether the iteration goes on with one more sweep

    def level_priors(self, depth: int) -> tuple[Vector, Vector]:
        """Return alpha and eta of the levels of a tree that may not be at its full depth yet."""
        return level_sums(self.alpha, depth), np.append(self.eta[: depth - 1], self.eta[-1])

    def column_priors(self, tree: Tree) -> Vector:
        """Return eta of each column; that of the root where there is no node."""
        return self.level_priors(tree.depth)[1][np.maximum(tree.levels, 0)]

    def word_means(self, word_topic: AnyArray, columns: Ints) -> Vector:
        """Return E[w_i] of the nodes of some columns, shape (words, columns)."""
        prior = self.column_priors(self.fitted.tree)[columns]
        means: Vector = (word_topic[:, columns] + prior) / (self.node_tokens[columns] + self.vocabulary * prior)
        return means


@dataclass(frozen=True)
class NcrpRows(Rows):
    """Expected counts of words."""

    word_topic: Vector  # E[n_iw]; float64 (words, columns)
    # Tokens outside the tree; None of a simulated model, and where sweeps see the rows; float64 (words,)
    word_rest: Vector | None = block_only()


@dataclass(frozen=True)
class NcrpDocuments(LocalState):
    """Documents as a finished model saves them."""

    document_level: Vector  # Expected tokens by level; float64 (documents, depth)
    ends: DocumentEnds  # The most probable ends

    def tokens(self) -> Vector:
        """Return the tokens of each document."""
        tokens: Vector = self.document_level.sum(axis=1)
        return tokens


@dataclass(frozen=True)
class NcrpLocal(NcrpDocuments):
    """Local state of a shard."""

    pair_level: npt.NDArray[np.float32] | None = None  # q(z), in the factorised form; float32 (pairs, depth)


@dataclass(frozen=True)
class NodeTokens(State):
    """Expected tokens of each node, shape (columns,), after a round."""

    node_tokens: Vector


@dataclass(frozen=True)
class WarmSums(NodeTokens):
    """Sums of a start from another tree."""

    warm_parent: Vector  # Parents of its nodes, minus `FREE`; float64 (columns,)
    ends: Vector  # Documents at each end; float64 (columns,)


@dataclass(frozen=True)
class DrawnEnds(State):
    """Ends that were drawn from q(c) of the documents of smallest hash."""

    # Sum of the columns over the documents of a hash, and their number: documents that are alike have one hash; float64
    # (n,)
    drawn_ends: Vector
    drawn_documents: Vector


@dataclass(frozen=True)
class SweepSums(NodeTokens):
    """Sums of a sweep over all shards, and of folding its rows."""

    # Of posterior ``dirichlet`` sum_w log G(eta + n) / G(eta), of ``point`` sum_w (eta + n) log(eta + n); float64
    # (columns,)
    node_sum: Vector
    ends: Vector  # sum_n q(c_n = c); float64 (columns,)
    end_products: Vector  # sum_n q(c_n = i) q(c_n = j); float64 (columns, columns)
    bound: float  # The documents' part of the evidence lower bound
    # Expected tokens by level, and sum_n E[log theta_n] over documents that have tokens; float64 (depth,)
    level_tokens: Vector
    log_theta: Vector
    # Documents that have tokens, all documents, and those that are in the tree
    occupied: float
    documents: float
    joined: float
    absent: float  # Tokens of documents that are not in the tree
    log_phi: Vector | None = None  # sum_w psi(eta + n), where eta is learned; float64 (columns,)
    roots: Vector | None = None  # sum_w sqrt(n_iw n_jw), where nodes are compared; float64 (columns, columns)
    gains: Vector | None = None  # Words' part of the evidence gained if compared nodes are one; float64 (pairs,)
    drawn: DrawnEnds | None = None  # Where the tree may grow
