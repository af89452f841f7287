"""States of networks of probability vectors, with sampled and with expected tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.state import GlobalState, LocalState, Rows, State
from collapsium.workers.families.dirichlet import DirichletPriors
from collapsium.workers.families.gibbs.states import SampledGlobalState
from collapsium.workers.families.networks.graph import Graph, Plan
from collapsium.workers.kernels.networks.expected_records import (
    OwnExpectedTopics,
    Responsibilities,
    SharedVectors,
)
from collapsium.workers.kernels.networks.records import Hyperparameters, OwnTopics, TableEntries

Ints: TypeAlias = npt.NDArray[np.int64]
Vector: TypeAlias = npt.NDArray[np.float64]


class NetworkSettings(Protocol):
    """Options that the shard models read."""

    @property
    def learn(self) -> tuple[str, ...]:
        """Hyperparameters that are learned."""

    @property
    def learns_alpha(self) -> bool:
        """True if alpha is learned."""

    @property
    def tables(self) -> bool:
        """True if table counts are drawn besides the tokens."""


@dataclass(frozen=True)
class NetworkGlobalState(GlobalState):
    """Parameters of a network.

    Attributes
    ----------
    vocabulary : float
        W, the number of words.
    beta : float
        B, the concentration of a topic over the words.
    alpha : numpy.ndarray of float64, shape (topics,)
        Dirichlet parameters of roots.
    strength, discount : numpy.ndarray of float64, shape (kinds,)
        b and a of each kind of vectors.
    plan : Plan
        Kinds of vectors and their parents.
    """

    vocabulary: float
    beta: float
    alpha: Vector
    strength: Vector
    discount: Vector
    plan: Plan

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
    """Global state with sampled tables.

    Attributes
    ----------
    shared_customers : numpy.ndarray of int64, shape (shared nodes, topics)
        m of shared nodes.
    shared_tables : numpy.ndarray of int64, shape (edges of shared nodes, topics)
        s of their edges.
    """

    shared_customers: Ints
    shared_tables: Ints


@dataclass(frozen=True)
class ExpectedNetworkGlobalState(NetworkGlobalState):
    """Global state with expected tables.

    Attributes
    ----------
    topic : numpy.ndarray of float64, shape (topics,)
        E[n_k].
    shared_customers : numpy.ndarray of float64, shape (shared nodes, topics)
        E[m] of shared nodes, the customers that documents are to them.
    shared_log_absent : numpy.ndarray of float64, shape (shared nodes, topics)
        Z, the log probability that a shared node has no customers of a topic.
    shared_mean : numpy.ndarray of float64, shape (shared nodes, topics)
        E[nu].
    shared_response : numpy.ndarray of float64, shape (shared nodes, topics)
        By how much E[nu] would fall without a customer.
    """

    topic: Vector
    shared_customers: Vector
    shared_log_absent: Vector
    shared_mean: Vector
    shared_response: Vector

    @property
    def shared_vectors(self) -> SharedVectors:
        """Expected vectors of shared nodes as kernels take them."""
        return SharedVectors(np.asarray(self.shared_mean), np.asarray(self.shared_response))


@dataclass(frozen=True)
class ExpectedRows(Rows):
    """Expected counts of words.

    Attributes
    ----------
    word_topic : numpy.ndarray of float64, shape (words, topics)
        E[n_kw].
    """

    word_topic: Vector


@dataclass(frozen=True)
class EdgeTables(State):
    """Table counts of edges, sparse; the arrays are those of `TableEntries`.

    Attributes
    ----------
    table_start : numpy.ndarray of int64, shape (edges,)
        Index of each edge's first entry.
    table_entries : numpy.ndarray of int32, shape (edges,)
        Entries of each edge.
    table_topic, table_number : numpy.ndarray of uint16 and int32, shape (entries,)
        Topic of each entry, and its tables.
    """

    table_start: Ints
    table_entries: npt.NDArray[np.int32]
    table_topic: npt.NDArray[np.uint16]
    table_number: npt.NDArray[np.int32]

    @property
    def record(self) -> TableEntries:
        """The arrays as kernels take them."""
        arrays = self.table_start, self.table_entries, self.table_topic, self.table_number
        return TableEntries(*map(np.asarray, arrays))


@dataclass(frozen=True)
class OwnTokens(State):
    """Tokens of each node by topic; the arrays are those of `OwnTopics`.

    Attributes
    ----------
    own_offsets : numpy.ndarray of int64, shape (nodes of documents + 1,)
        Index of each node's first entry.
    own_topic, own_tokens : numpy.ndarray of uint16 and int32, shape (entries,)
        Topic of each entry, and its tokens.
    """

    own_offsets: Ints
    own_topic: npt.NDArray[np.uint16]
    own_tokens: npt.NDArray[np.int32]

    @property
    def record(self) -> OwnTopics:
        """The arrays as kernels take them."""
        return OwnTopics(*map(np.asarray, (self.own_offsets, self.own_topic, self.own_tokens)))


@dataclass(frozen=True)
class OwnExpectedTokens(State):
    """Expected tokens of each node by topic; the arrays are those of `OwnExpectedTopics`.

    Attributes
    ----------
    own_offsets : numpy.ndarray of int64, shape (nodes of documents + 1,)
        Index of each node's first entry.
    own_topic, own_tokens, own_log_absent : numpy.ndarray of uint16, float32 and float32, shape (entries,)
        Topic of each entry, its expected tokens, and the log probability that it has none.
    """

    own_offsets: Ints
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
    """Sparse responsibilities of pairs; the arrays are those of `Responsibilities`.

    Attributes
    ----------
    pair_size : numpy.ndarray of uint8, shape (pairs,)
        Topics of each pair.
    pair_topic, pair_share : numpy.ndarray of uint16, shape (entries,)
        These, pair by pair, and their responsibilities.
    """

    pair_size: npt.NDArray[np.uint8]
    pair_topic: npt.NDArray[np.uint16]
    pair_share: npt.NDArray[np.uint16]

    @property
    def record(self) -> Responsibilities:
        """The arrays as kernels take them."""
        return Responsibilities(*map(np.asarray, (self.pair_size, self.pair_topic, self.pair_share)))


@dataclass(frozen=True)
class NetworkDocuments(LocalState):
    """Network of a shard's documents.

    Attributes
    ----------
    graph : Graph
        The network.
    document_tokens : numpy.ndarray of int64, shape (documents,)
        Tokens of each document.
    """

    graph: Graph
    document_tokens: Ints


@dataclass(frozen=True)
class SampledCounts(State):
    """Sampled counts of a shard's nodes.

    Attributes
    ----------
    tables : EdgeTables
        Tables of edges.
    own : OwnTokens
        Tokens of nodes.
    """

    tables: EdgeTables
    own: OwnTokens


@dataclass(frozen=True)
class SampledDocuments(NetworkDocuments):
    """Counts of documents that were swept, or mean vectors of documents that were folded in.

    Attributes
    ----------
    counts : SampledCounts or None
        Counts of documents that were swept.
    document_vectors : numpy.ndarray of float32, shape (nodes of documents, topics), or None
        Means of E[nu_j] over samples, of documents that were folded in.
    """

    counts: SampledCounts | None = None
    document_vectors: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True)
class SampledLocal(SampledDocuments):
    """Local state with sampled tables.

    Attributes
    ----------
    token_topic : numpy.ndarray of uint16, shape (tokens,), or None
        z of each token, those of a pair side by side; None where documents were folded in.
    """

    token_topic: npt.NDArray[np.uint16] | None = None


@dataclass(frozen=True)
class ExpectedDocuments(NetworkDocuments):
    """Expected counts of documents.

    Attributes
    ----------
    own : OwnExpectedTokens
        Expected tokens of nodes.
    """

    own: OwnExpectedTokens


@dataclass(frozen=True)
class ExpectedLocal(ExpectedDocuments):
    """Local state with expected tables.

    Attributes
    ----------
    responsibilities : PairResponsibilities or None
        Of the pairs; None where documents were folded in.
    """

    responsibilities: PairResponsibilities | None = None
