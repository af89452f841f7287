"""States of the variational nested Chinese restaurant process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray
from collapsium.workers.arrays.annotations import indices, non_negative, numbers, presence_faults, sizes
from collapsium.workers.arrays.state import CheckContext, GlobalState, LocalState, Rows, State, block_only
from collapsium.workers.families.ncrp.tree import (
    DocumentEnds,
    FittedTree,
    Ints,
    MoveTable,
    Tree,
    UpcomingTree,
    Vector,
    level_sums,
    size_faults,
)
from collapsium.workers.families.plain_tokens import MIN_POSITIVE


@dataclass(frozen=True)
class Initialisation(State):
    """Progress of the initialisation of a tree."""

    seeding: bool  # Whether this round only counts the words of the seed documents
    max_seeds: Annotated[int, numbers(low=0)]  # Most documents that start nodes
    # Stable hashes of the documents that may start nodes, and of those that do in this round, ascending
    seed_candidates: Annotated[Ints, numbers("candidate", -np.inf, np.inf, dtypes="i8 u8")]
    seeds: Annotated[Ints, numbers("seed", -np.inf, np.inf, dtypes="i8 u8")]
    # Columns of the nodes that each seed document starts, by level below the root; 0 where there are no more
    seed_columns: Annotated[Ints, indices("seeded below", below="next")]
    seeds_root: bool  # Whether the root starts with the words of all documents
    hash_limit: Annotated[
        int, numbers("", 0, np.inf)
    ]  # Largest hash of the documents that are in the tree; in a gradual start it grows
    admission_factor: float  # By which it grows in an iteration
    absent_tokens: float  # Tokens of the documents that are not in the tree


@dataclass(frozen=True)
class Clustering(State):
    """Progress of the clustering by which a fit starts, in a tree of depth 2."""

    # Sweeps since the clusters started, which goes on after them, and how many they may take
    clustering_sweeps: Annotated[int, numbers(low=0)]
    max_clustering_sweeps: Annotated[int, numbers(low=0)]
    planned_iterations: Annotated[int, numbers(low=0)]  # Iterations of the fit; 0 where that is not known
    comparisons_without_merge: Annotated[int, numbers(low=0)]  # Since the last merge


@dataclass(frozen=True)
class Comparisons(State):
    """Comparisons of nodes for which the next sweep returns sums."""

    # Columns whose evidence as one node is computed
    compared_first: Annotated[Ints, indices("compared", below="next")]
    compared_second: Annotated[Ints, indices("compared", below="next")]
    compares_affinity: bool  # Whether the affinity of all nodes is computed

    @classmethod
    def none(cls) -> Comparisons:
        """Return no comparisons."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), compares_affinity=False)


@dataclass(frozen=True)
class NcrpGlobalState(GlobalState):
    """The trees of the last and the next sweep, and the hyperparameters."""

    vocabulary: Annotated[float, numbers(low=MIN_POSITIVE)]  # W
    # Dirichlet parameters of the level proportions, and of each word at the nodes of a level
    alpha: Annotated[Vector, numbers("level", low=MIN_POSITIVE)]
    eta: Annotated[Vector, numbers("level", low=MIN_POSITIVE)]
    gamma: Annotated[float, numbers(low=MIN_POSITIVE)]  # Concentration of each node's children
    # Whether local states have q(z) of each pair, and whether topics are points, not Dirichlet posteriors
    factorised: bool
    point: bool
    # The trees of the last and the next sweep, and the moves between them
    fitted: Annotated[FittedTree, sizes(end="topic")]
    upcoming: Annotated[UpcomingTree, sizes(next_end="next")]
    moves: Annotated[MoveTable, sizes(column="next")]
    # Expected documents that pass each node of the last sweep's tree, and its expected tokens
    node_passes: Annotated[Vector, non_negative("topic")]
    node_tokens: Annotated[Vector, non_negative("topic")]
    # Progress of the start, and what the next sweep computes
    initialisation: Initialisation
    clustering: Clustering
    comparisons: Comparisons
    uncounted: float  # Tokens that are taken to be missing until the tree has its full depth
    another_round: bool  # Whether the iteration continues with one more sweep

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of prior masses of ends above 1."""
        yield from super().faults(context)
        for name, masses in (("end_log", self.fitted.end_log), ("next_end_log", self.upcoming.next_end_log)):
            if masses.max(initial=0.0) > 0.0:
                yield f"expected numbers up to 0 in '{name}', found {masses.max():g}"

    def level_priors(self, depth: int) -> tuple[Vector, Vector]:
        """Return alpha and eta of the levels of a tree that may not be at its full depth yet."""
        return level_sums(self.alpha, depth), np.append(self.eta[: depth - 1], self.eta[-1])

    def column_priors(self, tree: Tree) -> Vector:
        """Return eta of each column; the root's where there is no node."""
        return self.level_priors(tree.depth)[1][np.maximum(tree.levels, 0)]

    def word_means(self, word_topic: AnyArray, columns: Ints) -> Vector:
        """Return E[w_i] of the nodes of some columns, shape (words, columns)."""
        prior = self.column_priors(self.fitted.tree)[columns]
        means: Vector = (word_topic[:, columns] + prior) / (self.node_tokens[columns] + self.vocabulary * prior)
        return means


@dataclass(frozen=True)
class NcrpRows(Rows):
    """Expected counts of words."""

    word_topic: Annotated[Vector, numbers("word topic")]  # E[n_iw]
    # Tokens outside the tree; None of a simulated model, and where sweeps see the rows
    word_rest: Annotated[Vector | None, numbers("word")] = block_only()

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of rows of a fit without the tokens outside the tree, or of trees of several sizes."""
        yield from super().faults(context)
        if context.finished:
            return
        if self.word_rest is None:
            yield "the array 'word_rest' is missing"
        yield from size_faults(context.global_state.fitted, context.global_state.upcoming)


@dataclass(frozen=True)
class NcrpDocuments(LocalState):
    """Documents as a finished model saves them."""

    document_level: Annotated[Vector, non_negative("document depth")]  # Expected tokens by level
    ends: DocumentEnds  # The most probable ends

    def tokens(self) -> Vector:
        """Return the tokens of each document."""
        tokens: Vector = self.document_level.sum(axis=1)
        return tokens


@dataclass(frozen=True)
class NcrpLocal(NcrpDocuments):
    """Local state of a shard."""

    # q(z), in the factorised form
    pair_level: Annotated[npt.NDArray[np.float32] | None, numbers("pair depth", 0, 1.001)] = None

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of responsibilities, which the factorised form alone has."""
        yield from super().faults(context)
        yield from presence_faults(self.pair_level, "pair_level", expected=context.global_state.factorised)


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

    # sum_w log G(eta + n) / G(eta) for posterior ``dirichlet``, sum_w (eta + n) log(eta + n) for ``point``; float64
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
