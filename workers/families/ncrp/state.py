"""States of the variational nested Chinese restaurant process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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


class NcrpOptions(Protocol):
    """Options that the shard model reads."""

    @property
    def learn(self) -> Sequence[str]:
        """Hyperparameters that are learned: ``alpha``, ``eta``, ``gamma``."""

    @property
    def document_sweeps(self) -> int:
        """Passes over a document in an iteration."""

    def growing(self) -> int:
        """Return the most documents at which the tree may grow in an iteration."""


@dataclass(frozen=True)
class Initialisation(State):
    """Progress of the initialisation of a tree.

    Attributes
    ----------
    seeding : bool
        Whether this round only counts the words of the seed documents.
    max_seeds : int
        Most documents that start nodes.
    seed_candidates, seeds : numpy.ndarray of int64, shape (n,)
        Stable hashes of the documents that may start nodes, and of those that do in this round, ascending.
    seed_columns : numpy.ndarray of int64, shape (seeds, depth - 1)
        Columns of the nodes that each seed document starts; 0 where there are no more.
    seeds_root : bool
        Whether the root starts with the words of all documents.
    hash_limit : int
        Largest hash of the documents that are in the tree; in a gradual start it grows.
    admission_factor : float
        By which it grows in an iteration.
    absent_tokens : float
        Tokens of the documents that are not in the tree.
    """

    seeding: bool
    max_seeds: int
    seed_candidates: Ints
    seeds: Ints
    seed_columns: Ints
    seeds_root: bool
    hash_limit: int
    admission_factor: float
    absent_tokens: float


@dataclass(frozen=True)
class Clustering(State):
    """Progress of the clustering by which a fit starts, in a tree of depth 2.

    Attributes
    ----------
    clustering_sweeps, max_clustering_sweeps : int
        Sweeps since the clusters started, which goes on after them, and how many they may take.
    planned_iterations : int
        Iterations of the fit; 0 where that is not known.
    comparisons_without_merge : int
        Since the last merge.
    """

    clustering_sweeps: int
    max_clustering_sweeps: int
    planned_iterations: int
    comparisons_without_merge: int


@dataclass(frozen=True)
class Comparisons(State):
    """Comparisons of nodes for which the next sweep returns sums.

    Attributes
    ----------
    compared_first, compared_second : numpy.ndarray of int64, shape (pairs,)
        Columns whose evidence as one node is computed.
    compares_affinity : bool
        Whether the affinity of all nodes is computed.
    """

    compared_first: Ints
    compared_second: Ints
    compares_affinity: bool

    @classmethod
    def none(cls) -> Comparisons:
        """Return no comparisons."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), compares_affinity=False)


@dataclass(frozen=True)
class NcrpGlobalState(GlobalState):
    """The trees of the last and the next sweep, and the hyperparameters.

    Attributes
    ----------
    vocabulary : float
        W.
    alpha, eta : numpy.ndarray of float64, shape (levels,)
        Dirichlet parameters of the level proportions, and of each word at the nodes of a level.
    gamma : float
        Concentration of each node's children.
    factorised, point : bool
        Whether local states have q(z) of each pair, and whether topics are points, not Dirichlet posteriors.
    fitted, upcoming, moves : FittedTree, UpcomingTree and MoveTable
        The trees of the last and the next sweep, and the moves between them.
    node_passes, node_tokens : numpy.ndarray of float64, shape (columns,)
        Expected documents that pass each node of the last sweep's tree, and its expected tokens.
    initialisation, clustering, comparisons : Initialisation, Clustering and Comparisons
        Progress of the start, and what the next sweep computes.
    uncounted : float
        Tokens that are taken to be missing until the tree has its full depth.
    another_round : bool
        Whether the iteration goes on with one more sweep.
    """

    vocabulary: float
    alpha: Vector
    eta: Vector
    gamma: float
    factorised: bool
    point: bool
    fitted: FittedTree
    upcoming: UpcomingTree
    moves: MoveTable
    node_passes: Vector
    node_tokens: Vector
    initialisation: Initialisation
    clustering: Clustering
    comparisons: Comparisons
    uncounted: float
    another_round: bool

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
    """Expected counts of words.

    Attributes
    ----------
    word_topic : numpy.ndarray of float64, shape (words, columns)
        E[n_iw].
    word_rest : numpy.ndarray of float64, shape (words,), or None
        Tokens outside the tree; None of a simulated model, and where sweeps see the rows.
    """

    word_topic: Vector
    word_rest: Vector | None = block_only()


@dataclass(frozen=True)
class NcrpDocuments(LocalState):
    """Documents as a finished model saves them.

    Attributes
    ----------
    document_level : numpy.ndarray of float64, shape (documents, depth)
        Expected tokens by level.
    ends : DocumentEnds
        The most probable ends.
    """

    document_level: Vector
    ends: DocumentEnds

    def tokens(self) -> Vector:
        """Return the tokens of each document."""
        tokens: Vector = self.document_level.sum(axis=1)
        return tokens


@dataclass(frozen=True)
class NcrpLocal(NcrpDocuments):
    """Local state of a shard.

    Attributes
    ----------
    pair_level : numpy.ndarray of float32, shape (pairs, depth), or None
        q(z), in the factorised form.
    """

    pair_level: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True)
class NodeTokens(State):
    """Expected tokens of each node, shape (columns,), after a round."""

    node_tokens: Vector


@dataclass(frozen=True)
class WarmSums(NodeTokens):
    """Sums of a start from another tree.

    Attributes
    ----------
    warm_parent : numpy.ndarray of float64, shape (columns,)
        Parents of its nodes, minus `FREE`.
    ends : numpy.ndarray of float64, shape (columns,)
        Documents at each end.
    """

    warm_parent: Vector
    ends: Vector


@dataclass(frozen=True)
class DrawnEnds(State):
    """Ends that were drawn from q(c) of the documents of smallest hash.

    Attributes
    ----------
    drawn_ends, drawn_documents : numpy.ndarray of float64, shape (n,)
        Sum of the columns over the documents of a hash, and their number: documents that are alike have one hash.
    """

    drawn_ends: Vector
    drawn_documents: Vector


@dataclass(frozen=True)
class SweepSums(NodeTokens):
    """Sums of a sweep over all shards, and of folding its rows.

    Attributes
    ----------
    node_sum : numpy.ndarray of float64, shape (columns,)
        Of posterior ``dirichlet`` sum_w log G(eta + n) / G(eta), of ``point`` sum_w (eta + n) log(eta + n).
    ends : numpy.ndarray of float64, shape (columns,)
        sum_n q(c_n = c).
    end_products : numpy.ndarray of float64, shape (columns, columns)
        sum_n q(c_n = i) q(c_n = j).
    bound : float
        The documents' part of the evidence lower bound.
    level_tokens, log_theta : numpy.ndarray of float64, shape (depth,)
        Expected tokens by level, and sum_n E[log theta_n] over documents that have tokens.
    occupied, documents, joined : float
        Documents that have tokens, all documents, and those that are in the tree.
    absent : float
        Tokens of documents that are not in the tree.
    log_phi : numpy.ndarray of float64, shape (columns,), or None
        sum_w psi(eta + n), where eta is learned.
    roots : numpy.ndarray of float64, shape (columns, columns), or None
        sum_w sqrt(n_iw n_jw), where nodes are compared.
    gains : numpy.ndarray of float64, shape (pairs,), or None
        Words' part of the evidence gained if compared nodes are one.
    drawn : DrawnEnds or None
        Where the tree may grow.
    """

    node_sum: Vector
    ends: Vector
    end_products: Vector
    bound: float
    level_tokens: Vector
    log_theta: Vector
    occupied: float
    documents: float
    joined: float
    absent: float
    log_phi: Vector | None = None
    roots: Vector | None = None
    gains: Vector | None = None
    drawn: DrawnEnds | None = None
