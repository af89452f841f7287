"""Networks of probability vectors with expected tables.

Each pair has responsibilities over a few topics (`kernels.networks.updates`), shared by its tokens. They
determine the expected counts of nodes, the expected tables, computed as in CV-HDP, and the expected vectors
(`kernels.networks.updates`). Shared nodes are fixed while shards are swept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Delta, Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays, State
from collapsium.workers.families.dirichlet import proportions_and_topics
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.families.family import Footprint, Summary
from collapsium.workers.families.gibbs.sampler import corpus_sums
from collapsium.workers.families.networks.family import MIN_PARAMETER, NODE_BYTES, SEGMENT_PAIRS, NetworkFamily
from collapsium.workers.families.networks.graph import Graph, segments_of
from collapsium.workers.families.networks.states import (
    ExpectedDocuments,
    ExpectedLocal,
    ExpectedNetworkGlobalState,
    ExpectedNodeTokens,
    ExpectedRows,
    ExpectedSums,
    NodeTotals,
    PairResponsibilities,
    Vector,
)
from collapsium.workers.kernels.cvb.active import UNIT
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.networks.means import pair_probabilities
from collapsium.workers.kernels.networks.records import (
    ExpectedStatistics,
    ExpectedSweepResults,
    ExpectedTopicCounts,
    ExpectedWordCounts,
    NewResponsibilities,
    NodeDocuments,
    Responsibilities,
)
from collapsium.workers.kernels.networks.updates import (
    MAX_TOPICS,
    count_expected_node_topics,
    count_responsibilities,
    expect_shared_nodes,
    expected_means,
    initialise_responsibilities,
    sweep_expected,
)
from collapsium.workers.special_functions import digamma

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


KERNELS = (
    sweep_expected,
    count_expected_node_topics,
    count_responsibilities,
    expected_means,
    expect_shared_nodes,
    pair_probabilities,
)

PAIR_BYTES, OWN_BYTES = 4.0, 10.0  # Bytes of an active topic of a pair, and of a topic of a segment
# Assumed active topics of a pair, and the share of them that a segment counts once
PAIR_TOPICS, DISTINCT_SHARE = 8.0, 0.5
INITIAL_TOPICS = 8  # Topics that each pair has at the start
TOKENS_TOGETHER = 64  # Tokens of neighbouring segments that start with the same topics
FOLD_IN_SWEEPS = 50  # Sweeps over unseen documents


@dataclass(frozen=True)
class ExpectedWordChanges(State):
    """Changes of the expected counts of words."""

    word_topic: Vector  # Change of E[n_kw]; float64 (words, topics)


@dataclass(frozen=True)
class ExpectedRound(State):
    """Sums of a round of sweeps."""

    sums: ExpectedSums  # Sums over the nodes of documents
    # Customers that documents are to shared nodes, and their Z; float64 (shared nodes, topics)
    shared_customers: Vector
    shared_log_absent: Vector
    log_likelihood: float  # sum c log sum_k E[nu_j]'(k) phi'_kw
    # Expected tables of the roots of documents; None where alpha is not learned; float64 (topics,)
    alpha_numerator: Vector | None = None
    tables_of_words: float | None = None  # Expected tables of words; None where B is not learned


@dataclass(frozen=True)
class ExpectedTopicChanges(State):
    """Changes of the expected counts by topic."""

    topic: Vector  # Change of E[n_k]; float64 (topics,)


class ExpectedNetwork(NetworkFamily[ExpectedNetworkGlobalState, ExpectedRows, ExpectedLocal]):
    """Network whose topics and tables are expected."""

    global_state_type, rows_type = ExpectedNetworkGlobalState, ExpectedRows
    local_type, documents_type = ExpectedLocal, ExpectedDocuments

    def initialise(self, summary: Summary, stream: Stream) -> ExpectedNetworkGlobalState:
        """Return the global state before any document was swept, with expected tables."""
        state = self.sampled_state(summary)
        none = np.zeros(state.shared_customers.shape)
        global_state = ExpectedNetworkGlobalState(
            vocabulary=state.vocabulary,
            beta=state.beta,
            topic=np.zeros(state.topic.shape),
            alpha=state.alpha,
            strength=state.strength,
            discount=state.discount,
            shared_customers=none,
            plan=state.plan,
            shared_log_absent=none,
            shared_mean=none,
            shared_response=none,
        )
        return expect_shared(global_state)[0]

    def footprint(self, summary: Summary) -> Footprint:
        """Return the memory of the state: the active topics of pairs, and the counts of each node's tokens."""
        topics = self.options.topics
        entries = min(PAIR_TOPICS, topics)
        pair = 1.0 + PAIR_BYTES * entries + OWN_BYTES * DISTINCT_SHARE * entries + NODE_BYTES / SEGMENT_PAIRS
        return Footprint(
            rows=8.0 * topics,
            shown=8.0 * topics,
            swept=4.0 * topics,
            delta=8.0 * topics,
            pair=pair,
            document=NODE_BYTES + 8.0,
            chunk=(2.0 * pair + (PAIR_BYTES + OWN_BYTES) * min(MAX_TOPICS, topics)) * summary.pairs,
        )

    def update(
        self, global_state: ExpectedNetworkGlobalState, delta: Delta, stream: Stream
    ) -> ExpectedNetworkGlobalState:
        """Return the next global state: changed counts, and hyperparameters learned as in CV-HDP.

        With q(b) = Gamma(1 + X, 1/mean + Y), E[b] = (1 + X) / (1/mean + Y), where X is the sum over vectors of T_j
        without discount and of (b/a) (psi(b/a + T_j) - psi(b/a)) with one, and Y sums psi(b + M_j) - psi(b);
        a_k <- sum E[s_jk] / sum [psi(A + M_j) - psi(A)] over roots, and b_w likewise.
        """
        options = self.options
        changes, swept = delta.read(ExpectedTopicChanges), delta.read(ExpectedRound)
        topic = global_state.topic if changes is None else np.maximum(global_state.topic + changes.topic, 0.0)
        after = replace(global_state, topic=topic)
        if swept is None:
            # The start sweeps nothing.
            return after
        after = replace(after, shared_customers=swept.shared_customers, shared_log_absent=swept.shared_log_absent)
        graph, (after, statistics) = after.plan.shared_graph(), expect_shared(after)
        totals: NodeTotals[Vector] = NodeTotals(graph.node_kind, graph.is_root, statistics.customers, statistics.tables)
        shared = ExpectedSums.of(totals, global_state)
        opened, log_q = swept.sums.opened + shared.opened, swept.sums.log_q + shared.log_q
        if "strength" in options.learn:
            learned = (1.0 + opened) / (1.0 / options.strength_mean + log_q)
            after = replace(after, strength=np.where(opened > 0, np.maximum(learned, MIN_PARAMETER), after.strength))
        log_eta = swept.sums.log_eta + shared.log_eta
        if swept.alpha_numerator is not None and log_eta < 0:
            numerator = swept.alpha_numerator + statistics.alpha_numerator
            numerator = np.full(options.topics, numerator.mean()) if "alpha" in options.learn else numerator
            after = replace(after, alpha=np.maximum(numerator / -log_eta, MIN_PARAMETER))
        if swept.tables_of_words is not None:
            rate = float((digamma(global_state.beta + after.topic) - digamma(global_state.beta)).sum())
            if rate > 0:
                after = replace(after, beta=max(swept.tables_of_words / rate, MIN_PARAMETER))
        return expect_shared(after)[0]

    def objective(self, global_state: ExpectedNetworkGlobalState, delta: Delta) -> dict[str, float]:
        """Return sum c log sum_k E[nu_j]'(k) phi'_kw, in nats: each word given all others. It may fall."""
        swept = delta.read(ExpectedRound)
        return {} if swept is None else {"objective": swept.log_likelihood}

    def kernels(self, global_state: ExpectedNetworkGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        return KERNELS

    def initial_rows(self, words: int, global_state: ExpectedNetworkGlobalState) -> ExpectedRows:
        """Return the rows of words that have no token yet."""
        return ExpectedRows(np.zeros((words, global_state.alpha.size)))

    def start(
        self,
        shard: Shard,
        rows: ExpectedRows,
        global_state: ExpectedNetworkGlobalState,
        stream: Stream,
        warm: Arrays | None = None,
    ) -> tuple[ExpectedLocal, Delta]:
        """Draw a few topics for the pairs of neighbouring segments, or take those that another run expects of them.

        Returns local: The local state; delta: Counts as changes from zero
        """
        topics = global_state.alpha.size
        if warm is None:
            return self._begin(shard, _draw_responsibilities(shard, topics, stream), global_state)
        theta, phi = proportions_and_topics(warm, shard.words.size, np.float32)
        if theta.shape[1] > topics:
            raise ValueError(f"expected at most {topics} topics to start from, found {theta.shape[1]}")
        return self._begin(shard, proportional_responsibilities(shard, theta, phi), global_state)

    def continue_from(
        self,
        shard: Shard,
        saved: Arrays,
        rows: ExpectedRows,
        global_state: ExpectedNetworkGlobalState,
    ) -> tuple[ExpectedLocal, Delta]:
        """Continue from the responsibilities that another run saved."""
        return self._begin(shard, PairResponsibilities.from_arrays(saved), global_state)

    def _begin(
        self, shard: Shard, responsibilities: PairResponsibilities, global_state: ExpectedNetworkGlobalState
    ) -> tuple[ExpectedLocal, Delta]:
        """Return a shard's first local state, and its counts as changes."""
        word_topic = np.zeros((shard.words.size, global_state.alpha.size))
        count_responsibilities(shard.position, shard.counts, responsibilities.record, word_topic)
        local = local_state(shard, Graph.of(shard, global_state.plan), responsibilities, global_state.alpha.size)
        return local, Delta({"word_topic": change(word_topic, "word", "topic")}, {"word": shard.words})

    def sweep(
        self,
        shard: Shard,
        local: ExpectedLocal,
        rows: ExpectedRows,
        global_state: ExpectedNetworkGlobalState,
        stream: Stream,
    ) -> tuple[ExpectedLocal, Delta]:
        """Return the result of a sweep over a shard."""
        began, graph, priors, topics = time.perf_counter(), local.graph, global_state.priors, global_state.alpha.size
        word_topic = buffers.empty((shard.words.size, topics), np.float32)
        np.add(rows.word_topic, priors.word, out=word_topic, casting="same_kind")
        changes = np.zeros((shard.words.size, topics))
        words = ExpectedWordCounts(word_topic, global_state.topic + priors.total, changes, priors.word, int(False))
        learn_alpha = self.options.learns_alpha
        responsibilities, results = _sweep(shard, local, global_state, words, learn_alpha=learn_alpha)
        unshared, statistics = slice(graph.shared, None), results.statistics
        kinds, is_root = graph.node_kind[unshared], graph.is_root[unshared]
        nodes: NodeTotals[Vector] = NodeTotals(kinds, is_root, statistics.customers, statistics.tables)
        parts: dict[str, Part] = {
            "word_topic": change(changes, "word", "topic"),
            "shared_customers": fresh(results.shared_customers, "vector", "topic"),
            "shared_log_absent": fresh(results.shared_log_absent, "vector", "topic"),
            "log_likelihood": fresh(float(results.sums[0])),
            **ExpectedSums.of(nodes, global_state).parts(),
            **corpus_sums(shard),
        }
        if learn_alpha:
            parts["alpha_numerator"] = fresh(statistics.alpha_numerator, "topic")
        after = local_state(shard, graph, responsibilities, topics)
        return after, Delta(parts, {"word": shard.words}, {"kernel": time.perf_counter() - began})

    def advance(
        self, rows: ExpectedRows, delta: Delta, global_state: ExpectedNetworkGlobalState
    ) -> tuple[ExpectedRows, ExpectedNetworkGlobalState]:
        """Return the rows and the global state for another sweep of a shard before its delta is reduced."""
        changes = delta.read(ExpectedWordChanges)
        if changes is None:
            return rows, global_state
        after = replace(global_state, topic=global_state.topic + changes.word_topic.sum(axis=0))
        return ExpectedRows(rows.word_topic + changes.word_topic), after

    def fold(
        self, block: ExpectedRows, delta: Delta, global_state: ExpectedNetworkGlobalState
    ) -> tuple[ExpectedRows, Delta]:
        """Return a block of the vocabulary after the changes of its rows."""
        changes = delta.read(ExpectedWordChanges)
        if changes is None:
            return block, Delta()
        after = np.array(block.word_topic)
        after[delta.ids.get("word", slice(None))] += changes.word_topic
        parts = {
            "topic": change(changes.word_topic.sum(axis=0), "topic"),
            "moved": fresh(float(np.abs(changes.word_topic).sum())),
        }
        if "beta" in self.options.learn:
            prior, counts = global_state.priors.word, after[after > 0]
            present = -special.expm1(-counts)  # as if many pairs each gave a little
            tables = present * prior * (digamma(prior + counts / present) - digamma(prior))
            parts["tables_of_words"] = fresh(float(np.minimum(tables, counts).sum()))
        return ExpectedRows(after), Delta(parts)

    def fold_in(
        self,
        shard: Shard,
        rows: ExpectedRows,
        global_state: ExpectedNetworkGlobalState,
        stream: Stream,
    ) -> ExpectedLocal:
        """Update unseen documents with topics and shared nodes fixed."""
        graph, topics, alpha = (
            Graph.of(shard, global_state.plan),
            global_state.alpha.size,
            global_state.topic_parameters,
        )
        phi = np.ascontiguousarray(self.word_probability(rows, global_state), dtype=np.float32)
        prior = np.tile((alpha / global_state.concentration).astype(np.float32), (shard.documents, 1))
        local = local_state(shard, graph, proportional_responsibilities(shard, prior, phi), topics)
        words = ExpectedWordCounts(phi, np.ones(topics), np.zeros((0, 0)), global_state.priors.word, int(True))
        for _ in range(FOLD_IN_SWEEPS if shard.tokens else 0):
            responsibilities, _ = _sweep(shard, local, global_state, words, learn_alpha=False)
            local = local_state(shard, graph, responsibilities, topics)
        return replace(local, responsibilities=None)

    def node_vectors(
        self, documents: ExpectedDocuments, global_state: ExpectedNetworkGlobalState
    ) -> npt.NDArray[np.float32]:
        """Return E[nu_j] of the nodes of documents, shape (nodes of documents, topics)."""
        graph = documents.graph
        mean = np.empty((graph.own_nodes, global_state.alpha.size), dtype=np.float32)
        nodes, parameters = np.asarray(graph.document_nodes), global_state.hyperparameters
        expected_means(graph.record, nodes, parameters, global_state.shared_vectors, documents.node_tokens.record, mean)
        return mean


def local_state(shard: Shard, graph: Graph, responsibilities: PairResponsibilities, topics: int) -> ExpectedLocal:
    """Return the local state with responsibilities of a shard's pairs, and E[n_jk] and Z[n_jk] of nodes' own tokens."""
    pairs, room = graph.node_pairs(shard), responsibilities.pair_topic.size
    counted = ExpectedTopicCounts(
        np.zeros(pairs.offsets.size, np.int64),
        np.empty(room, np.uint16),
        np.empty(room, np.float32),
        np.empty(room, np.float32),
    )
    count_expected_node_topics(pairs.offsets, pairs.counts, responsibilities.record, topics, counted)
    offsets, *entries = counted
    node_tokens = ExpectedNodeTokens(offsets, *(values[: int(offsets[-1])].copy() for values in entries))
    return ExpectedLocal(graph, shard.lengths, node_tokens, responsibilities)


def _draw_responsibilities(shard: Shard, topics: int, stream: Stream) -> PairResponsibilities:
    """Draw the first responsibilities; neighbouring segments share them, until they have `TOKENS_TOGETHER` tokens."""
    generator, some = stream.generator(), min(INITIAL_TOPICS, topics)
    segments = segments_of(shard)
    tokens = np.concatenate([[0], np.cumsum(shard.counts, dtype=np.int64)])
    lengths = np.diff(tokens[segments.pairs])
    document = np.repeat(np.arange(shard.documents), np.diff(segments.documents))
    before = tokens[segments.pairs[:-1]] - tokens[shard.offsets[:-1]][document]
    first = np.ones(lengths.size, dtype=bool)
    first[1:] = (document[1:] != document[:-1]) | (before[1:] // TOKENS_TOGETHER != before[:-1] // TOKENS_TOGETHER)
    unit = np.repeat(np.cumsum(first) - 1, np.diff(segments.pairs))
    units = int(first.sum())
    chosen = np.argsort(generator.random((units, topics), dtype=np.float32), axis=1, kind="stable")[:, :some].astype(
        np.uint16
    )
    noise = generator.random((units, some)) + 0.1
    steps = np.floor(noise / noise.sum(axis=1, keepdims=True) * UNIT).astype(np.int64)
    steps[:, 0] += UNIT - steps.sum(axis=1)
    sizes = np.full(shard.pairs, some, dtype=np.uint8)
    return PairResponsibilities(sizes, chosen[unit].ravel(), steps.astype(np.uint16)[unit].ravel())


def proportional_responsibilities(
    shard: Shard, theta: npt.NDArray[np.float32], phi: npt.NDArray[np.float32]
) -> PairResponsibilities:
    """Return responsibilities in proportion to theta_dk phi_kw."""
    room, filled = _room_for(shard.pairs, theta.shape[1]), np.zeros(1, dtype=np.int64)
    initialise_responsibilities(document_pairs(shard), theta, phi, room, filled)
    return _without_room(room, int(filled[0]))


def _room_for(pairs: int, topics: int) -> NewResponsibilities:
    """Return room for the responsibilities of pairs."""
    room = pairs * min(MAX_TOPICS, topics)
    return Responsibilities(np.zeros(pairs, np.uint8), np.empty(room, np.uint16), np.empty(room, np.uint16))


def _without_room(responsibilities: NewResponsibilities, entries: int) -> PairResponsibilities:
    """Return responsibilities without room for more entries than there are."""
    size, topic, share = responsibilities
    return PairResponsibilities(size, topic[:entries].copy(), share[:entries].copy())


def _sweep(
    shard: Shard,
    local: ExpectedLocal,
    global_state: ExpectedNetworkGlobalState,
    words: ExpectedWordCounts,
    *,
    learn_alpha: bool,
) -> tuple[PairResponsibilities, ExpectedSweepResults]:
    """Update the pairs of a shard; see `sweep_expected`."""
    if local.responsibilities is None:
        raise TypeError("documents that were folded in are not swept")
    graph, topics = local.graph, global_state.alpha.size
    shape = graph.shared, topics
    results = ExpectedSweepResults(
        _room_for(shard.pairs, topics),
        ExpectedStatistics(
            np.zeros(graph.own_nodes), np.zeros(graph.own_nodes), np.zeros(topics if learn_alpha else 0)
        ),
        np.zeros(shape),
        np.zeros(shape),
        np.zeros(2),
    )
    sweep_expected(
        graph.record,
        NodeDocuments(np.asarray(graph.document_nodes), graph.node_pairs(shard)),
        global_state.hyperparameters,
        global_state.shared_vectors,
        words,
        local.node_tokens.record,
        local.responsibilities.record,
        results,
    )
    return _without_room(results.responsibilities, int(results.sums[1])), results


def expect_shared(global_state: ExpectedNetworkGlobalState) -> tuple[ExpectedNetworkGlobalState, ExpectedStatistics]:
    """Return the global state with the expected vectors of shared nodes, given their customers, and sums over them."""
    graph, topics = global_state.plan.shared_graph(), global_state.alpha.size
    mean, response = np.zeros((graph.shared, topics)), np.zeros((graph.shared, topics))
    statistics = ExpectedStatistics(np.zeros(graph.shared), np.zeros(graph.shared), np.zeros(topics))
    customers, log_absent = np.asarray(global_state.shared_customers), np.asarray(global_state.shared_log_absent)
    parameters = global_state.hyperparameters
    expect_shared_nodes(graph.record, parameters, customers, log_absent, mean, response, statistics)
    return replace(global_state, shared_mean=mean, shared_response=response), statistics
