"""States of networks of probability vectors, with sampled and with expected tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.state import GlobalState, LocalState, Rows, State
from collapsium.workers.families.dirichlet import DirichletPriors
from collapsium.workers.families.gibbs.states import SampledGlobalState
from collapsium.workers.families.networks.graph import Graph, Plan
from collapsium.workers.kernels.networks.records import (
    Hyperparameters,
    OwnExpectedTopics,
    OwnTopics,
    Responsibilities,
    SharedVectors,
    TableEntries,
)

Ints: TypeAlias = npt.NDArray[np.int64]
Vector: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NetworkGlobalState(GlobalState):
    """Parameters of a network."""

    vocabulary: float  # W, the number of words
    beta: float  # B, the concentration of a topic over the words
    alpha: Vector  # Dirichlet parameters of roots; float64 (topics,)
    # b and a of each kind of vectors; float64 (kinds,)
    strength: Vector
    discount: Vector
    plan: Plan  # Kinds of vectors and their parents

    @property
    def topic_parameters(self) -> Vector:
        """Dirichlet parameters of roots, a_k."""
        return np.asarray(self.alpha, dtype=np.float64)

    @property
    def concentration(self) -> float:
        """Sum of the Dirichlet parameters of roots."""
        return float(self.topic_parameters.sum())

    @property
    def priors(self) -> DirichletPriors:
        """Dirichlet priors of roots and of topics."""
        return DirichletPriors(self.topic_parameters, self.concentration, self.beta / self.vocabulary, self.beta)

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Parameters b, a and alpha as kernels take them."""
        return Hyperparameters(*map(np.asarray, (self.strength, self.discount, self.alpha)))


@dataclass(frozen=True)
class SampledNetworkGlobalState(NetworkGlobalState, SampledGlobalState):
    """Global state with sampled tables."""

    shared_customers: Ints  # m of shared nodes; int64 (shared nodes, topics)
    shared_tables: Ints  # s of their edges; int64 (edges of shared nodes, topics)


@dataclass(frozen=True)
class ExpectedNetworkGlobalState(NetworkGlobalState):
    """Global state with expected tables."""

    topic: Vector  # E[n_k]; float64 (topics,)
    # E[m] of shared nodes, the customers that documents are to them; float64 (shared nodes, topics)
    shared_customers: Vector
    # Z, the log probability that a shared node has no customers of a topic; float64 (shared nodes, topics)
    shared_log_absent: Vector
    shared_mean: Vector  # E[nu]; float64 (shared nodes, topics)
    shared_response: Vector  # By how much E[nu] would fall without a customer; float64 (shared nodes, topics)

    @property
    def shared_vectors(self) -> SharedVectors:
        """Expected vectors of shared nodes as kernels take them."""
        return SharedVectors(np.asarray(self.shared_mean), np.asarray(self.shared_response))


@dataclass(frozen=True)
class ExpectedRows(Rows):
    """Expected counts of words."""

    word_topic: Vector  # E[n_kw]; float64 (words, topics)


@dataclass(frozen=True)
class EdgeTables(State):
    """Table counts of edges, sparse; the arrays are those of `TableEntries`."""

    table_start: Ints  # Index of each edge's first entry; int64 (edges,)
    table_entries: npt.NDArray[np.int32]  # Entries of each edge; int32 (edges,)
    # Topic of each entry, and its tables; uint16 (entries,)
    table_topic: npt.NDArray[np.uint16]
    table_number: npt.NDArray[np.int32]

    @property
    def record(self) -> TableEntries:
        """The arrays as kernels take them."""
        arrays = self.table_start, self.table_entries, self.table_topic, self.table_number
        return TableEntries(*map(np.asarray, arrays))


@dataclass(frozen=True)
class OwnTokens(State):
    """Tokens of each node by topic; the arrays are those of `OwnTopics`."""

    own_offsets: Ints  # Index of each node's first entry; int64 (nodes of documents + 1,)
    # Topic of each entry, and its tokens; uint16 (entries,)
    own_topic: npt.NDArray[np.uint16]
    own_tokens: npt.NDArray[np.int32]

    @property
    def record(self) -> OwnTopics:
        """The arrays as kernels take them."""
        return OwnTopics(*map(np.asarray, (self.own_offsets, self.own_topic, self.own_tokens)))


@dataclass(frozen=True)
class OwnExpectedTokens(State):
    """Expected tokens of each node by topic; the arrays are those of `OwnExpectedTopics`."""

    own_offsets: Ints  # Index of each node's first entry; int64 (nodes of documents + 1,)
    # Topic of each entry, its expected tokens, and the log probability that it has none; uint16, float32 (entries,)
    own_topic: npt.NDArray[np.uint16]
    own_tokens: npt.NDArray[np.float32]
    own_log_absent: npt.NDArray[np.float32]

    @property
    def record(self) -> OwnExpectedTopics:
        """The arrays as kernels take them."""
        arrays = self.own_offsets, self.own_topic, self.own_tokens, self.own_log_absent
        return OwnExpectedTopics(*map(np.asarray, arrays))


@dataclass(frozen=True)
class PairResponsibilities(State):
    """Sparse responsibilities of pairs; the arrays are those of `Responsibilities`."""

    pair_size: npt.NDArray[np.uint8]  # Topics of each pair; uint8 (pairs,)
    # These, pair by pair, and their responsibilities; uint16 (entries,)
    pair_topic: npt.NDArray[np.uint16]
    pair_share: npt.NDArray[np.uint16]

    @property
    def record(self) -> Responsibilities:
        """The arrays as kernels take them."""
        return Responsibilities(*map(np.asarray, (self.pair_size, self.pair_topic, self.pair_share)))


@dataclass(frozen=True)
class NetworkDocuments(LocalState):
    """Network of a shard's documents."""

    graph: Graph  # The network
    document_tokens: Ints  # Tokens of each document; int64 (documents,)


@dataclass(frozen=True)
class SampledCounts(State):
    """Sampled counts of a shard's nodes."""

    tables: EdgeTables  # Tables of edges
    own: OwnTokens  # Tokens of nodes


@dataclass(frozen=True)
class SampledDocuments(NetworkDocuments):
    """Counts of documents that were swept, or mean vectors of documents that were folded in."""

    counts: SampledCounts | None = None  # Counts of documents that were swept
    # Means of E[nu_j] over samples, of documents that were folded in; float32 (nodes of documents, topics)
    document_vectors: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True)
class SampledLocal(SampledDocuments):
    """Local state with sampled tables."""

    # z of each token, those of a pair side by side; None where documents were folded in; uint16 (tokens,)
    token_topic: npt.NDArray[np.uint16] | None = None


@dataclass(frozen=True)
class ExpectedDocuments(NetworkDocuments):
    """Expected counts of documents."""

    own: OwnExpectedTokens  # Expected tokens of nodes


@dataclass(frozen=True)
class ExpectedLocal(ExpectedDocuments):
    """Local state with expected tables."""

    responsibilities: PairResponsibilities | None = None  # Of the pairs; None where documents were folded in
