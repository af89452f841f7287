"""States and sums of networks of probability vectors, with sampled and with expected tables.

The hyperparameters of a network are learned, and its objective is computed, from sums over nodes.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Generic, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.annotations import (
    ROUNDING_TOLERANCE,
    SAVED,
    UNSAVED,
    ascending,
    indices,
    never_falls,
    non_negative,
    numbers,
)
from collapsium.workers.arrays.delta import Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import CheckContext, LocalState, Rows, State
from collapsium.workers.families.document_entries import MIN_POSITIVE, SampledTokens, length_faults
from collapsium.workers.families.gibbs.states import DirichletGlobalState, SampledGlobalState
from collapsium.workers.families.networks.graph import Graph, Plan
from collapsium.workers.kernels.cvb.active import UNIT
from collapsium.workers.kernels.networks.consistency import OTHER_TOKENS, UNSEATED, find_unlisted, find_unseated
from collapsium.workers.kernels.networks.records import (
    ExpectedTopicCounts,
    Hyperparameters,
    NodeStatistics,
    NodeTopicCounts,
    Responsibilities,
    SharedVectors,
    TableEntries,
)
from collapsium.workers.kernels.networks.updates import MAX_TOPICS
from collapsium.workers.special_functions import digamma, gammaln

Ints: TypeAlias = npt.NDArray[np.int64]
Vector: TypeAlias = npt.NDArray[np.float64]

MAX_CUSTOMERS = (1 << 31) - 1  # Most customers of a vector and topic: kernels count them in 32 bits


@dataclass(frozen=True)
class NetworkGlobalState(DirichletGlobalState):
    """Parameters of a network."""

    alpha: Annotated[Vector, numbers("topic", low=MIN_POSITIVE)]  # Dirichlet parameters of roots
    # b and a of each kind of vectors; a discount is less than 1
    strength: Annotated[Vector, numbers("kind", low=MIN_POSITIVE)]
    discount: Annotated[Vector, numbers("kind", 0, math.nextafter(1.0, 0.0))]
    plan: Plan  # Kinds of vectors and their parents

    @property
    def topic_parameters(self) -> Vector:
        """Dirichlet parameters of roots, a_k."""
        return np.asarray(self.alpha, dtype=np.float64)

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Parameters b, a and alpha as kernels take them."""
        return Hyperparameters(*map(np.asarray, (self.strength, self.discount, self.alpha)))


@dataclass(frozen=True)
class SampledNetworkGlobalState(NetworkGlobalState, SampledGlobalState):
    """Global state with sampled tables."""

    # m of shared nodes, and s of their edges
    shared_customers: Annotated[Ints, numbers("vector topic", 0, MAX_CUSTOMERS)]
    shared_tables: Annotated[Ints, numbers("vector_edge topic", 0, MAX_CUSTOMERS)]

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of the counts of shared nodes: tables have customers, and customers tables."""
        yield from super().faults(context)
        yield from self.plan.row_faults(len(self.shared_customers))
        # A simulated model's vectors are proportions, written as large counts.
        if self.topic.dtype.kind == "f":
            return
        graph, customers, tables = self.plan.shared_graph(), self.shared_customers, self.shared_tables
        if len(tables) != graph.edge_parent.size:
            yield f"expected {graph.edge_parent.size} rows of 'shared_tables', found {len(tables)}"
        opened, below = np.zeros_like(customers), np.zeros_like(customers)
        np.add.at(opened, np.repeat(np.arange(len(customers)), np.diff(graph.node_edges)), tables)
        np.add.at(below, graph.edge_parent, tables)
        sound = (opened <= customers) & (below <= customers) & (customers <= self.topic)
        sound &= graph.is_root[:, np.newaxis] | (opened > 0) | (customers == 0)
        if not sound.all():
            yield "expected tables of customers, and customers of tokens, in 'shared_tables'"


@dataclass(frozen=True)
class ExpectedNetworkGlobalState(NetworkGlobalState):
    """Global state with expected tables."""

    topic: Annotated[Vector, non_negative("topic")]  # E[n_k]
    # E[m] of shared nodes, the customers that documents are to them
    shared_customers: Annotated[Vector, non_negative("vector topic")]
    # Z, the log probability that a shared node has no customers of a topic
    shared_log_absent: Annotated[Vector, numbers("vector topic", high=ROUNDING_TOLERANCE)]
    shared_mean: Annotated[Vector, non_negative("vector topic")]  # E[nu]
    shared_response: Annotated[Vector, numbers("vector topic")]  # By how much E[nu] would fall without a customer

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of the number of shared nodes."""
        yield from super().faults(context)
        yield from self.plan.row_faults(len(self.shared_customers))

    @property
    def shared_vectors(self) -> SharedVectors:
        """Expected vectors of shared nodes as kernels take them."""
        return SharedVectors(np.asarray(self.shared_mean), np.asarray(self.shared_response))


@dataclass(frozen=True)
class ExpectedRows(Rows):
    """Expected counts of words."""

    word_topic: Annotated[Vector, non_negative("word topic")]  # E[n_kw]


@dataclass(frozen=True)
class EdgeTables(State):
    """Table counts of edges, sparse, in the arrays of `TableEntries`."""

    table_start: Annotated[Ints, non_negative("edge")]  # Index of each edge's first entry
    table_entries: Annotated[npt.NDArray[np.int32], non_negative("edge")]  # Entries of each edge
    # Topic of each entry, and its tables
    table_topic: Annotated[npt.NDArray[np.uint16], indices("table", below="topic")]
    table_number: Annotated[npt.NDArray[np.int32], numbers("table", low=0)]

    @property
    def record(self) -> TableEntries:
        """The arrays as kernels take them."""
        arrays = self.table_start, self.table_entries, self.table_topic, self.table_number
        return TableEntries(*map(np.asarray, arrays))


@dataclass(frozen=True)
class NodeTopicLists(State):
    """Topics of the tokens of each node."""

    # Index of each node's first entry; the nodes are of documents
    own_offsets: Annotated[Ints, non_negative("document_node+1")]
    own_topic: Annotated[npt.NDArray[np.uint16], indices("node_topic", below="topic")]  # Topic of each entry

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of offsets, which each node of documents has, and of topics that do not ascend."""
        yield from super().faults(context)
        lists, entries = np.asarray(self.own_offsets), len(self.own_topic)
        nodes = context.sizes["node"] - len(context.global_state.shared_customers)
        if lists.size != nodes + 1 or lists[0] != 0 or lists[-1] != entries or not never_falls(lists):
            yield f"expected offsets of {nodes} nodes from 0 to {entries} that never fall in 'own_offsets'"
        yield from ascending(self, "own_offsets", "own_topic")


@dataclass(frozen=True)
class SampledNodeTokens(NodeTopicLists):
    """Tokens of each node by topic, in the arrays of `NodeTopicCounts`."""

    own_tokens: Annotated[npt.NDArray[np.int32], numbers("node_topic", low=1)]  # Tokens of each entry

    @property
    def record(self) -> NodeTopicCounts:
        """The arrays as kernels take them."""
        return NodeTopicCounts(*map(np.asarray, (self.own_offsets, self.own_topic, self.own_tokens)))


@dataclass(frozen=True)
class ExpectedNodeTokens(NodeTopicLists):
    """Expected tokens of each node by topic, in the arrays of `ExpectedTopicCounts`."""

    # Expected tokens of each entry, and the log probability that it has none
    own_tokens: Annotated[npt.NDArray[np.float32], non_negative("node_topic")]
    own_log_absent: Annotated[npt.NDArray[np.float32], numbers("node_topic", high=0)]

    @property
    def record(self) -> ExpectedTopicCounts:
        """The arrays as kernels take them."""
        arrays = self.own_offsets, self.own_topic, self.own_tokens, self.own_log_absent
        return ExpectedTopicCounts(*map(np.asarray, arrays))


@dataclass(frozen=True)
class PairResponsibilities(State):
    """Sparse responsibilities of pairs, in the arrays of `Responsibilities`."""

    pair_size: Annotated[npt.NDArray[np.uint8], numbers("pair", 0, MAX_TOPICS)]  # Topics of each pair
    # The topics, pair by pair, and their responsibilities
    pair_topic: Annotated[npt.NDArray[np.uint16], indices("share", below="topic")]
    pair_share: Annotated[npt.NDArray[np.uint16], numbers("share", 0, UNIT)]

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of the number of responsibilities."""
        yield from super().faults(context)
        expected = int(np.asarray(self.pair_size).sum(dtype=np.int64))
        if len(self.pair_topic) != expected:
            yield f"expected {expected} numbers in 'pair_topic', found {len(self.pair_topic)}"

    @property
    def record(self) -> Responsibilities:
        """The arrays as kernels take them."""
        return Responsibilities(*map(np.asarray, (self.pair_size, self.pair_topic, self.pair_share)))


@dataclass(frozen=True)
class NetworkDocuments(LocalState):
    """Network of a shard's documents."""

    graph: Graph  # The network
    document_tokens: Annotated[Ints, non_negative("document")]  # Tokens of each document

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of other lengths than the shard's."""
        yield from super().faults(context)
        yield from length_faults(self.document_tokens, context)


@dataclass(frozen=True)
class SampledCounts(State):
    """Sampled counts of a shard's nodes."""

    tables: EdgeTables  # Tables of edges
    node_tokens: SampledNodeTokens  # Tokens of nodes


@dataclass(frozen=True)
class SampledDocuments(NetworkDocuments):
    """Counts of documents that were swept, or mean vectors of documents that were folded in."""

    counts: Annotated[SampledCounts | None, SAVED] = None  # Counts of documents that were swept
    # Means of E[nu_j] over samples, of documents that were folded in, shape (nodes of documents, topics)
    document_vectors: Annotated[npt.NDArray[np.float32] | None, UNSAVED] = None

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of tables of edges: each has customers, as far as the documents count them."""
        yield from super().faults(context)
        if self.counts is None:
            return
        tables, node_tokens, graph = self.counts.tables.record, self.counts.node_tokens.record, self.graph
        entries, topics, lengths = tables.topic.size, context.sizes["topic"], np.asarray(self.document_tokens)
        if (tables.start + tables.entries > entries).any() or tables.entries.sum(dtype=np.int64) != entries:
            yield f"expected {entries} entries in 'table_entries', at places that 'table_start' has"
        customers, fault = np.zeros((graph.shared, topics), dtype=np.int64), np.zeros(1, dtype=np.int64)
        find_unseated(
            graph.record, np.asarray(graph.document_nodes), lengths, tables, node_tokens, topics, customers, fault
        )
        if fault[0] == OTHER_TOKENS or lengths.max(initial=0) > MAX_CUSTOMERS:
            yield "expected the tokens of each document in 'own_tokens'"
        if fault[0] == UNSEATED or tables.entries[: graph.node_edges[graph.shared]].any():
            yield "expected tables that have customers, and customers that have tables, in 'table_number'"
        yield from self.token_faults(node_tokens, customers, context)

    def token_faults(self, node_tokens: NodeTopicCounts, customers: Ints, context: CheckContext) -> Iterator[str]:
        """Yield the faults of the tokens, which a finished model does not have."""
        yield from ()


@dataclass(frozen=True)
class SampledLocal(SampledDocuments, SampledTokens):
    """Local state with sampled tables."""

    def token_faults(self, node_tokens: NodeTopicCounts, customers: Ints, context: CheckContext) -> Iterator[str]:
        """Yield the faults of tokens that disagree with the documents' counts or the global state."""
        shard = context.shard
        if shard is None or shard.of_vectors:
            return
        unlisted, pairs = np.zeros(1, dtype=np.int64), self.graph.node_pairs(shard)
        # The keys are random and not recorded, so that nobody can construct other topics with the same sum.
        generator = np.random.Generator(np.random.PCG64(secrets.randbits(128)))
        keys = generator.integers(0, 1 << 64, context.sizes["topic"], dtype=np.uint64)
        find_unlisted(pairs.offsets, pairs.counts, np.asarray(self.token_topic), node_tokens, keys, unlisted)
        if unlisted[0] >= 0:
            yield "expected the topics of each node's tokens in 'own_topic'"
        if not (customers <= np.asarray(context.global_state.shared_customers)).all():
            yield "expected tables that 'shared_customers' of the global state counts"


@dataclass(frozen=True)
class ExpectedDocuments(NetworkDocuments):
    """Expected counts of documents."""

    node_tokens: ExpectedNodeTokens  # Expected tokens of nodes


@dataclass(frozen=True)
class ExpectedLocal(ExpectedDocuments):
    """Local state with expected tables."""

    # Responsibilities of the pairs; None where documents were folded in
    responsibilities: Annotated[PairResponsibilities | None, SAVED] = None


CountsT = TypeVar("CountsT", Ints, Vector)

MIN_GAMMA = 1e-300  # Least draw of a Gamma distribution that is divided by


class NodeTotals(NamedTuple, Generic[CountsT]):
    """Customers and tables of nodes over all topics."""

    kind: npt.NDArray[np.int32]  # Kind of each node; (nodes,)
    is_root: npt.NDArray[np.bool_]  # Whether it has no parents; (nodes,)
    # M and T, or their expectations; (nodes,)
    customers: CountsT
    tables: CountsT


@dataclass(frozen=True)
class SharedChanges(State):
    """Changes of the counts of shared nodes."""

    # Changes of m and s; int64 (shared nodes or their edges, topics)
    shared_customers: Ints
    shared_tables: Ints

    def parts(self) -> dict[str, Part]:
        """Return the arrays as parts of a delta."""
        return {
            "shared_customers": change(self.shared_customers, "vector", "topic"),
            "shared_tables": change(self.shared_tables, "link", "topic"),
        }


@dataclass(frozen=True)
class SampledSums(State):
    """Sums over nodes with sampled tables."""

    log_q: Vector  # Sum of log 1/q_j, q_j ~ Beta(b, M_j); float64 (kinds,)
    tables: Ints  # By i, the nodes with more than i tables; int64 (kinds, n)
    falling: Vector  # Sum of log G(b) / G(b + M_j), at roots of log G(A) / G(A + M_j); float64 (kinds,)
    log_eta: float  # Sum over roots of psi(A) - psi(A + M_j)
    stirling: Vector  # Sum of log S^m_t and the other terms of p(n, s) of single topics; float64 (kinds,)
    joins: Vector  # Customers that speak for 1 - a; float64 (kinds,)
    # Sum over roots of a_k (psi(a_k + m_k) - psi(a_k)); None where alpha is not learned; float64 (topics,)
    alpha_numerator: Vector | None = None

    @classmethod
    def of(
        cls, nodes: NodeTotals[Ints], statistics: NodeStatistics, global_state: NetworkGlobalState, stream: Stream
    ) -> Self:
        """Return the sums over nodes, for which q_j are drawn."""
        strength, total = np.asarray(global_state.strength), global_state.concentration
        kinds, kind = strength.size, nodes.kind
        below, top = (nodes.customers > 0) & ~nodes.is_root, (nodes.customers > 0) & nodes.is_root
        b, customers = strength[kind[below]], nodes.customers[below].astype(np.float64)
        generator = stream.at(purpose=f"{stream.purpose} strength").generator()
        log_q = special.log1p(generator.standard_gamma(customers) / np.maximum(generator.standard_gamma(b), MIN_GAMMA))
        falls = gammaln(b) - gammaln(b + customers)
        # Without nodes, the counts of NumPy are integers.
        falling = np.bincount(kind[below], falls, kinds).astype(np.float64)
        large = nodes.customers[top].astype(np.float64)
        falling += np.bincount(kind[top], gammaln(total) - gammaln(total + large), kinds)
        histogram = np.zeros((kinds, int(nodes.tables.max(initial=0)) + 1), dtype=np.int64)
        np.add.at(histogram, (kind[below], nodes.tables[below]), 1)
        numerator, topics = statistics.alpha_numerator, global_state.alpha.size
        return cls(
            log_q=np.bincount(kind[below], log_q, kinds).astype(np.float64),
            tables=histogram[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:],
            falling=falling,
            log_eta=float((digamma(total) - digamma(total + large)).sum()),
            stirling=statistics.kind_sums[:, 0],
            joins=statistics.kind_sums[:, 1],
            alpha_numerator=numerator[:topics] if numerator.size else None,
        )

    def parts(self) -> dict[str, Part]:
        """Return the sums as parts of a delta."""
        parts = {name: fresh(getattr(self, name), "kind") for name in ("log_q", "falling", "stirling", "joins")}
        parts.update(tables=fresh(self.tables, "kind", "tables"), log_eta=fresh(self.log_eta))
        if self.alpha_numerator is not None:
            parts["alpha_numerator"] = fresh(self.alpha_numerator, "topic")
        return parts

    def plus(self, other: SampledSums) -> SampledSums:
        """Return the sums over the nodes of both."""
        tables = np.zeros((self.tables.shape[0], max(self.tables.shape[1], other.tables.shape[1])), dtype=np.int64)
        for summand in (self.tables, other.tables):
            tables[:, : summand.shape[1]] += summand
        numerators = [sums.alpha_numerator for sums in (self, other) if sums.alpha_numerator is not None]
        return SampledSums(
            log_q=self.log_q + other.log_q,
            tables=tables,
            falling=self.falling + other.falling,
            log_eta=self.log_eta + other.log_eta,
            stirling=self.stirling + other.stirling,
            joins=self.joins + other.joins,
            alpha_numerator=np.sum(numerators, axis=0) if numerators else None,
        )


@dataclass(frozen=True)
class ExpectedSums(State):
    """Sums over nodes with expected tables."""

    opened: Vector  # Sum of (b/a) (psi(b/a + T) - psi(b/a)), or of T where a = 0; float64 (kinds,)
    log_q: Vector  # Sum of psi(b + M) - psi(b); float64 (kinds,)
    log_eta: float  # Sum over roots of psi(A) - psi(A + M)

    @classmethod
    def of(cls, nodes: NodeTotals[Vector], global_state: NetworkGlobalState) -> Self:
        """Return the sums over nodes; b, a and alpha come from the global state."""
        strength, discount, total = global_state.strength, global_state.discount, global_state.concentration
        occupied = nodes.customers > 0
        below, top = occupied & ~nodes.is_root, occupied & nodes.is_root
        kinds = nodes.kind[below]
        b, a, opened = strength[kinds], discount[kinds], nodes.tables[below].astype(np.float64)
        with_discount = a > 0
        ratio = b[with_discount] / a[with_discount]
        opened[with_discount] = ratio * (digamma(ratio + opened[with_discount]) - digamma(ratio))
        log_q = digamma(b + nodes.customers[below]) - digamma(b)
        return cls(
            opened=np.bincount(kinds, opened, strength.size).astype(np.float64),
            log_q=np.bincount(kinds, log_q, strength.size).astype(np.float64),
            log_eta=float((digamma(total) - digamma(total + nodes.customers[top])).sum()),
        )

    def parts(self) -> Mapping[str, Part]:
        """Return the sums as parts of a delta."""
        return {
            "opened": fresh(self.opened, "kind"),
            "log_q": fresh(self.log_q, "kind"),
            "log_eta": fresh(self.log_eta),
        }
