"""States of the nested Chinese restaurant process, variational and sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray
from collapsium.workers.arrays.annotations import indices, non_negative, numbers, presence_faults, sizes
from collapsium.workers.arrays.state import Array, CheckContext, GlobalState, LocalState, Rows, State, block_only
from collapsium.workers.families.document_entries import MIN_POSITIVE, CountedTokens, Keys, document_pairs
from collapsium.workers.families.gibbs.sampler import Slots, widened
from collapsium.workers.families.gibbs.states import Counts
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
    tree_faults,
)
from collapsium.workers.kernels.gibbs.consistency import FingerprintKeys, fingerprint_levels
from collapsium.workers.kernels.trees.paths import FREE, TreePriors

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard
    from collapsium.workers.arrays.delta import Delta


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


def levels(parent: npt.ArrayLike) -> Ints:
    """Return the level of each node: 0 of the root, -1 of a free slot; shape (slots,)."""
    up = np.asarray(parent, dtype=np.int64)
    level_of = np.where(up == -1, 0, -1)
    for level in range(up.size):
        below = (up >= 0) & (level_of[up] == level)
        if not below.any():
            break
        level_of[below] = level + 1
    return level_of


@dataclass(frozen=True)
class NodeChanges(State):
    """Changes of the node of each slot in a round."""

    node_documents: Ints  # Documents that pass it; int64 (slots,)
    node_parent: Ints  # Its parent; int64 (slots,)


@dataclass(frozen=True)
class Histograms(State):
    """Histograms of counts, from which the probability of a sample is computed."""

    word_histogram: Ints  # Words and nodes of each group that have each count n_iw; int64 (groups, word counts)
    # The groups: a level or, of a node that is new in a round, the number of levels plus its slot; int64 (groups,)
    group_ids: Ints
    word_count_ids: Ints  # The counts n_iw; int64 (word counts,)
    # Documents that have each count of tokens at a level and, last, in all; int64 (level counts, levels + 1)
    level_histogram: Ints
    level_count_ids: Ints  # The counts n_dl; int64 (level counts,)


@dataclass(frozen=True)
class GibbsNcrpSums(State):
    """Sums of a round over all shards."""

    topic: Ints | None = None  # Changes of n_i; None where no shard has words; int64 (slots,)
    nodes: NodeChanges | None = None  # Changes of the tree; None where there are no shards
    histograms: Histograms | None = None  # None at the start, when no shard is swept
    outside: float = 0.0  # Documents outside the tree

    @classmethod
    def of(cls, delta: Delta) -> Self:
        """Return the sums that a delta holds, with the ids of its dims."""
        ids = {f"{dim}_ids": values for dim, values in delta.ids.items()}
        return cls.from_arrays({name: part.values for name, part in delta.parts.items()} | ids)


@dataclass(frozen=True)
class GibbsNcrpGlobalState(GlobalState):
    """The tree, its counts, and the hyperparameters."""

    vocabulary: Annotated[float, numbers(low=MIN_POSITIVE)]  # W
    # Shards of the corpus, and groups of free slots; shards of one lane take turns in creating nodes
    shards: Annotated[int, numbers(low=1)]
    lanes: Annotated[int, numbers(low=1)]
    warm_topics: Annotated[int, numbers(low=0)]  # Topics of another run that the fit starts from; 0 for none
    # Dirichlet parameters of the levels in a document, and of each word at the nodes of a level
    alpha: Annotated[Vector, numbers("level", low=MIN_POSITIVE)]
    eta: Annotated[Vector, numbers("level", low=MIN_POSITIVE)]
    gamma: Annotated[float, numbers(low=MIN_POSITIVE)]  # Concentration of the nested Chinese restaurant process
    # Each node's parent, the documents that pass it, and its tokens n_i
    node_parent: Annotated[Ints, indices("topic", below="topic", low=FREE)]
    node_documents: Annotated[npt.NDArray[np.number], non_negative("topic", dtypes="i8 f8")]
    topic: Annotated[npt.NDArray[np.number], non_negative("topic", dtypes="i8 f8")]
    free: Annotated[npt.NDArray[np.bool_], numbers("topic")]  # Slots that new nodes may take
    another_round: bool  # Whether there are documents outside the tree, which one more sweep adds

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of parents that are no tree, and of free slots, which have nothing."""
        yield from super().faults(context)
        yield from tree_faults(self.node_parent, context.sizes["level"], "node_parent")
        for name, values in (("node_documents", self.node_documents), ("topic", self.topic)):
            if (np.asarray(values)[self.free] > 0).any():
                yield f"expected nothing of free columns in '{name}'"

    @property
    def words(self) -> int:
        """W."""
        return int(self.vocabulary)

    @property
    def levels(self) -> Ints:
        """The level of each node; -1 of free slots."""
        return levels(self.node_parent)

    @property
    def priors(self) -> TreePriors:
        """The hyperparameters as kernels take them."""
        return TreePriors(self.alpha, self.eta, self.eta * self.words, self.gamma)

    def slots_of(self, shard: int, iteration: int) -> Slots | None:
        """Return the slots for a shard's new nodes; None where it is another shard's turn."""
        turns = -(-self.shards // self.lanes)
        if shard // self.lanes % turns != iteration % turns:
            return None
        lane, columns, free = shard % self.lanes, self.free.size, np.flatnonzero(self.free)
        lane_slots = [int(slot) for slot in free[free % self.lanes == lane]]
        return Slots(self.gamma, lane_slots, columns + (lane - columns) % self.lanes, self.lanes)

    def with_slots(self, count: int) -> Self:
        """Return the state with at least a number of slots."""
        added = max(count - self.node_parent.size, 0)
        return dataclasses.replace(
            self,
            node_parent=_longer(self.node_parent, added, FREE),
            node_documents=_longer(self.node_documents, added, 0),
            topic=_longer(self.topic, added, 0),
            free=_longer(self.free, added, True),
        )

    def with_nodes(self, changes: NodeChanges) -> Self:
        """Return the state with the nodes that a round adds, and without those that no document passes any more."""
        documents = self.node_documents + changes.node_documents
        parent = np.where(documents > 0, self.node_parent + changes.node_parent, FREE)
        parent[0] = -1
        return dataclasses.replace(self, node_documents=documents, node_parent=parent)

    def counted(self, sums: GibbsNcrpSums) -> Self:
        """Return the state after a round's counts and nodes."""
        topic = np.asarray(self.topic, dtype=np.int64)
        if sums.topic is not None:
            topic = _longer(topic, max(sums.topic.size - topic.size, 0), 0)
            topic[: sums.topic.size] += sums.topic
        after = dataclasses.replace(self.with_slots(topic.size), topic=topic)
        if sums.nodes is not None:
            after = after.with_nodes(sums.nodes)
        return dataclasses.replace(after, free=after.node_parent == FREE)

    def word_probability(self, word_topic: AnyArray) -> Vector:
        """Return phi_iw = (n_iw + eta_l) / (n_i + W eta_l) by word and slot, also for free slots."""
        level = self.levels
        eta = np.where(level >= 0, self.eta[level], 1.0)
        phi: Vector = (all_columns(word_topic, level.size) + eta) / (self.topic + self.words * eta)
        return phi


@dataclass(frozen=True)
class GibbsNcrpRows(Rows):
    """Counts of words."""

    word_topic: Annotated[Counts, non_negative("word <topic", dtypes="i4 f8")]  # n_iw; float64 in a simulated model

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of counts: a fit has whole ones, and a finished model all slots."""
        yield from super().faults(context)
        (words, columns), slots, global_state = self.word_topic.shape, context.sizes["topic"], context.global_state
        if context.finished:
            if columns != slots:
                yield f"expected the shape ({words}, {slots}) of 'word_topic', found {self.word_topic.shape}"
            return
        if self.word_topic.dtype != np.int32:
            yield f"expected numbers of type int32 in 'word_topic', found {self.word_topic.dtype}"
        for name in ("node_documents", "topic"):
            if getattr(global_state, name).dtype.kind != "i":
                yield f"expected whole counts in '{name}' of the global state"


@dataclass(frozen=True)
class GibbsNcrpDocuments(LocalState):
    """Documents as a finished model saves them."""

    # c; -1 of documents outside the tree, and where the tree has no such node
    document_path: Annotated[npt.NDArray[np.int32], indices("document level", below="topic", low=-1)]
    # n_dl, or E[n_dl] of documents that were folded in
    document_level: Annotated[npt.NDArray[np.number], non_negative("document level", dtypes="i4")]

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of paths, which lead down from the root, and of tokens that are not a document's length."""
        yield from super().faults(context)
        path, parents = np.asarray(self.document_path), np.asarray(context.global_state.node_parent)
        above, node = path[:, :-1], path[:, 1:]
        if (path[:, :1] > 0).any() or not np.where(node >= 0, (above >= 0) & (parents[node] == above), True).all():
            yield "expected paths from the root down in 'document_path'"
        if context.shard is None:
            return
        tokens, levels_of = np.zeros(len(path), dtype=np.int64), np.asarray(self.document_level, dtype=np.int32)
        # A sum along rows of a few numbers takes several times as long.
        for level in range(path.shape[1]):
            tokens += levels_of[:, level]
        if not (tokens == np.where(path[:, 0] >= 0, context.shard.lengths, 0)).all():
            yield "expected the tokens of each document in 'document_level'"


@dataclass(frozen=True)
class GibbsNcrpLocal(GibbsNcrpDocuments, CountedTokens):
    """Local state of a shard."""

    token_level: Annotated[npt.NDArray[np.uint8], indices("token", below="level")]  # z

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of nodes that more documents pass than the global state counts."""
        yield from super().faults(context)
        passed, counted = np.asarray(self.document_path), context.global_state.node_documents
        if (counted < np.bincount(passed[passed >= 0], minlength=counted.size)).any():
            yield "expected what 'node_documents' of the global state counts in 'document_path'"

    def token_columns(self, shard: Shard) -> Ints:
        """Return the node of each token; -1 if its document is not in the tree yet."""
        owner = np.repeat(np.arange(shard.documents), shard.lengths)
        return np.asarray(self.document_path)[owner, self.token_level].astype(np.int64)

    def token_fingerprint(self, shard: Shard, words: Keys, columns: Keys) -> int:
        """Return the sum of the products of the keys of each token's word and node, modulo 2^64."""
        total, keys = np.zeros(1, dtype=np.uint64), FingerprintKeys(words, columns)
        fingerprint_levels(document_pairs(shard), self.token_level, self.document_path, keys, total)
        return int(total[0])


def all_columns(word_topic: AnyArray, slots: int) -> AnyArray:
    """Return rows with all slots, which a block gets only when it is folded."""
    return word_topic if word_topic.shape[1] == slots else widened(word_topic, slots)


def _longer(values: Array, added: int, value: int) -> Array:
    return np.append(values, np.full(added, value)).astype(values.dtype)
