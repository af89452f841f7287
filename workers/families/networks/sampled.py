"""Networks of probability vectors with sampled topics and tables (Buntine, Du and Nurmi 2010).

nu_j ~ Dir(alpha) at a root, nu_j ~ PDP(a, b, sum_l rho_lj nu_l) elsewhere; z ~ nu_j, w ~ phi_z ~ Dir(b_w). All vectors
are integrated out. What remains are the topics of tokens and, on each edge to a parent, how many tables of each topic
are customers of the parent (`collapsium.workers.kernels.networks.sweep`).

Tables of ratios of generalised Stirling numbers: one row per discount, cached in the process and shared by its threads.
A table has all V^m_t with m up to a power of two, at most `MAX_COUNT`, where it takes 16.8 MB. Beyond, kernels
integrate. Results do not depend on what else the process has computed: a longer table has the same numbers, and m
beyond `MAX_COUNT` is always integrated.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Array, Arrays, State
from collapsium.workers.families.dirichlet import slice_sampled
from collapsium.workers.families.family import Footprint, Summary
from collapsium.workers.families.gibbs import sampler as gibbs
from collapsium.workers.families.gibbs.sampler import (
    GibbsFamily,
    corpus_sums,
    count_words,
    delta_ids,
    draw_initial_topics,
    widened,
    word_changes,
)
from collapsium.workers.families.gibbs.states import Counts, SampledRows, TokenTopics
from collapsium.workers.families.networks.family import (
    MIN_PARAMETER,
    NODE_BYTES,
    SEGMENT_PAIRS,
    NetworkFamily,
    NetworkOptions,
)
from collapsium.workers.families.networks.graph import Graph
from collapsium.workers.families.networks.states import (
    EdgeTables,
    Ints,
    NodeTotals,
    SampledCounts,
    SampledDocuments,
    SampledLocal,
    SampledNetworkGlobalState,
    SampledNodeTokens,
    SampledSums,
    SharedChanges,
    Vector,
)
from collapsium.workers.families.networks.variational import ExpectedNetwork
from collapsium.workers.kernels.gibbs.topics import word_rising
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.networks import records
from collapsium.workers.kernels.networks.means import count_node_topics, network_means, pair_probabilities
from collapsium.workers.kernels.networks.paths import CHUNK
from collapsium.workers.kernels.networks.records import (
    NodeStatistics,
    SamplingHyperparameters,
    SweepResults,
    TableDraws,
    TableEntries,
    TokenDraws,
)
from collapsium.workers.kernels.networks.stirling import fill_ratios
from collapsium.workers.kernels.networks.sweep import sweep_network, sweep_shared_nodes
from collapsium.workers.special_functions import digamma, gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard
    from collapsium.workers.families.networks.family import NetworkOptions


MIN_COUNT, MAX_COUNT = 64, 2048  # Range of the largest m of a table
MAX_CACHED_BYTES = 2**27  # Largest size of the tables that a process caches; the least recently used are dropped

# By use, the last used one last.
_tables: OrderedDict[tuple[float, ...], NDArray[np.float64]] = OrderedDict()
_lock = threading.Lock()


def tables_for(discounts: Iterable[float], max_count: int) -> NDArray[np.float64]:
    """Return the tables of V^m_t = S^m_t / S^m_{t-1} for several discounts."""
    key = tuple(float(a) for a in discounts)
    if not all(0.0 <= a < 1.0 for a in key):
        raise ValueError(f"discounts are {key}; each must be at least 0 and less than 1")
    end = max(MIN_COUNT, 1 << (min(max_count, MAX_COUNT) - 1).bit_length()) if max_count > 0 else MIN_COUNT
    with _lock:
        before = ratios = _tables.pop(key, None)
        if ratios is None or ratios.shape[1] < _size(end):
            # Tables to m = `end` extend those before if there are any.
            ratios, begin = np.empty((len(key), _size(end))), 1
            if before is not None:
                ratios[:, : before.shape[1]] = before
                begin = next(m for m in (end >> i for i in range(1, 64)) if _size(m) == before.shape[1])
            for a, row in zip(key, ratios, strict=True):
                fill_ratios(a, begin, end, row)
            ratios.setflags(write=False)
        _tables[key] = ratios
        while len(_tables) > 1 and sum(table.nbytes for table in _tables.values()) > MAX_CACHED_BYTES:
            _tables.popitem(last=False)
    return ratios


def _size(end: int) -> int:
    """Return the number of ratios in a table to m = `end`."""
    return end * (end - 1) // 2


# Entries for each topic by which the room for tables grows at least when it is too small; it doubles otherwise, as each
# call of the kernel works through all nodes
MORE_ENTRIES = 64


def padded(topics: int) -> int:
    """Return the number of columns that the kernels work on."""
    return -(-topics // CHUNK) * CHUNK


def wide(values: Array, columns: int, dtype: npt.DTypeLike) -> Array:
    """Return a copy with a number of columns, those beyond the old ones zero."""
    copy = np.zeros((*values.shape[:-1], columns), dtype=dtype)
    copy[..., : values.shape[-1]] = values
    return copy


@dataclass
class NetworkSampler:
    """A shard while it is swept."""

    shard: Shard  # The documents
    graph: Graph  # Their network
    global_state: SampledNetworkGlobalState  # Hyperparameters, and counts of shared nodes before the sweep
    settings: NetworkOptions  # The options
    # Topics of tokens, and counts of words and of shared nodes, with padded columns; moved
    counts: records.SampledCounts
    tables: TableEntries  # Tables of edges; replaced

    @staticmethod
    def of(
        shard: Shard,
        graph: Graph,
        global_state: SampledNetworkGlobalState,
        settings: NetworkOptions,
        token_topic: npt.NDArray[np.uint16],
        word_topic: Array,
    ) -> NetworkSampler:
        """Return a sampler of tokens that have no tables yet; no argument is changed later."""
        columns, priors = padded(global_state.alpha.size), global_state.priors
        if word_topic.dtype != np.int32:
            # In a simulated model, counts are probabilities times a large number of tokens.
            word_topic = np.rint(np.clip(word_topic, 0.0, np.iinfo(np.int32).max)).astype(np.int32)
        counts = records.SampledCounts(
            np.array(token_topic),
            widened(word_topic, columns),
            wide(np.asarray(global_state.topic, dtype=np.float64), columns, np.float64),
            priors.word,
            priors.total,
            wide(np.asarray(global_state.shared_customers), columns, np.int32),
            wide(np.asarray(global_state.shared_tables), columns, np.int32),
        )
        edges = graph.edge_parent.size
        tables = TableEntries(
            np.zeros(edges, np.int64), np.zeros(edges, np.int32), np.zeros(0, np.uint16), np.zeros(0, np.int32)
        )
        return NetworkSampler(shard, graph, global_state, settings, counts, tables)

    def run(self, stream: Stream, *, initialise: bool = False, fold_in: bool = False) -> NodeStatistics:
        """Sweep once."""
        keys = [stream.at(purpose=f"{stream.purpose}{name}").key() for name in ("", " tables", " joins")]
        token_draws = TokenDraws(keys[0], int(initialise), int(fold_in), int(self.graph.levels))
        count_joins = "discount" in self.settings.learn and not fold_in and not initialise
        table_draws = TableDraws(int(not initialise and self.settings.tables), keys[1], int(count_joins), keys[2])
        graph, documents = self.graph.record, self.graph.segmented_documents(self.shard)
        largest = self.counts.shared_customers.max(initial=0) + self.shard.tokens
        largest = int(max(self.shard.lengths.max(initial=0), largest, 1))
        hyperparameters = sampling_hyperparameters(self.global_state, largest)
        nodes, edges, columns = self.graph.node_kind.size, self.graph.edge_parent.size, self.counts.topic.size
        room = self.shard.tokens + 1000 if initialise else max(int(1.3 * self.tables.topic.size) + 1000, 64)
        tables = TableEntries(
            np.zeros(edges, np.int64), np.zeros(edges, np.int32), np.empty(room, np.uint16), np.empty(room, np.int32)
        )
        statistics = NodeStatistics(
            np.zeros(nodes, np.int64),
            np.zeros(nodes, np.int64),
            np.zeros((self.global_state.strength.size, 2)),
            np.zeros(columns if self.settings.learns_alpha and not fold_in else 0),
        )
        results = SweepResults(tables, statistics, np.zeros(4, dtype=np.int64))
        while True:
            sweep_network(
                graph, documents, hyperparameters, self.counts, self.tables, token_draws, table_draws, results
            )
            if results.progress[0] == self.shard.documents:
                break
            tables, more = results.tables, max(MORE_ENTRIES * columns, results.tables.topic.size)
            topic, number = (np.concatenate([old, np.empty(more, old.dtype)]) for old in (tables.topic, tables.number))
            results = results._replace(tables=tables._replace(topic=topic, number=number))
        start, entries, topic, number = results.tables
        filled = int(results.progress[2])
        self.tables = TableEntries(start, entries, topic[:filled].copy(), number[:filled].copy())
        return results.statistics

    def local(self) -> SampledLocal:
        """Return the local state."""
        pairs, tokens = self.graph.node_pairs(self.shard), self.shard.tokens
        offsets = np.zeros(pairs.offsets.size, dtype=np.int64)
        topic, number = np.empty(tokens, dtype=np.uint16), np.empty(tokens, dtype=np.int32)
        topics, token_topic = self.global_state.alpha.size, self.counts.token_topic
        count_node_topics(pairs.offsets, pairs.counts, token_topic, topics, offsets, topic, number)
        node_tokens = SampledNodeTokens(offsets, topic[: offsets[-1]].copy(), number[: offsets[-1]].copy())
        counts = SampledCounts(EdgeTables(*self.tables), node_tokens)
        return SampledLocal(self.graph, self.shard.lengths, counts, token_topic=token_topic)

    def shared_changes(self) -> SharedChanges:
        """Return the changes of the counts of shared nodes."""
        before, topics = self.global_state, self.global_state.alpha.size
        return SharedChanges(
            self.counts.shared_customers[:, :topics].astype(np.int64) - before.shared_customers,
            self.counts.shared_tables[:, :topics].astype(np.int64) - before.shared_tables,
        )


def sampling_hyperparameters(global_state: SampledNetworkGlobalState, largest: int) -> SamplingHyperparameters:
    """Return the parameters of vectors as kernels take them, with Stirling ratios up to the largest count."""
    alpha: Vector = wide(global_state.topic_parameters, padded(global_state.alpha.size), np.float64)
    ratios = tables_for(global_state.discount, largest)
    return SamplingHyperparameters(np.asarray(global_state.strength), np.asarray(global_state.discount), alpha, ratios)


def repair_tables(graph: Graph, customers: Ints, tables: Ints) -> tuple[Ints, Ints]:
    """Return tables that their customers allow, after shards have changed them independently."""
    tokens = customers.copy()
    np.subtract.at(tokens, graph.edge_parent, tables)
    repaired = np.maximum(tables, 0)  # several shards may have removed the same one
    total = tokens.copy()
    for node in range(graph.shared - 1, -1, -1):  # children first, because their tables are their parents' customers
        first, last = int(graph.node_edges[node]), int(graph.node_edges[node + 1])
        if first == last:
            continue
        max_tables = total[node]
        for edge in range(first, last):  # what the edges before have left
            repaired[edge] = np.minimum(repaired[edge], max_tables - repaired[first:edge].sum(axis=0))
        lacking = (max_tables > 0) & (repaired[first:last].sum(axis=0) == 0)
        repaired[first] += lacking
        for edge in range(first, last):
            total[graph.edge_parent[edge]] += repaired[edge]
    return total, repaired


@dataclass(frozen=True)
class SharedSweep:
    """Shared nodes after their tables were drawn."""

    # m and s; int64 (shared nodes or their edges, topics)
    customers: Ints
    tables: Ints
    sums: SampledSums  # Sums over the shared nodes


def sweep_shared(
    global_state: SampledNetworkGlobalState, stream: Stream, *, move: bool, count_joins: bool = False
) -> SharedSweep:
    """Draw the table counts of the shared nodes, or leave them, and sum over the nodes."""
    graph, topics = global_state.plan.shared_graph(), global_state.alpha.size
    columns, nodes = padded(topics), graph.shared
    customers = wide(np.asarray(global_state.shared_customers), columns, np.int32)
    tables = wide(np.asarray(global_state.shared_tables), columns, np.int32)
    statistics = NodeStatistics(
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros((global_state.strength.size, 2)),
        np.zeros(columns),
    )
    if nodes:  # the kernel takes long to compile
        keys = (stream.at(purpose=f"above {name}").key() for name in ("tables", "joins"))
        table_key, join_key = keys
        sweep_shared_nodes(
            graph.record,
            sampling_hyperparameters(global_state, int(max(customers.max(initial=0), 1))),
            TableDraws(int(move), table_key, int(count_joins), join_key),
            customers,
            tables,
            statistics,
        )
    totals = NodeTotals(graph.node_kind, graph.is_root, statistics.customers, statistics.tables)
    sums = SampledSums.of(totals, statistics, global_state, stream.at(purpose="above"))
    return SharedSweep(customers[:, :topics].astype(np.int64), tables[:, :topics].astype(np.int64), sums)


KERNELS = (sweep_network, network_means, count_node_topics, pair_probabilities, word_rising, fill_ratios)

BURN_IN_SWEEPS = 30  # Sweeps over unseen documents before samples are taken
FOLD_IN_SAMPLES = 100  # Sweeps over unseen documents whose expected vectors are averaged


@dataclass(frozen=True)
class WordSums(State):
    """Sums over words."""

    word_rising: float  # sum_kw log G(b + n_kw) / G(b)
    tables_of_words: float  # sum_kw b (psi(b + n_kw) - psi(b))


class SampledNetwork(
    NetworkFamily[SampledNetworkGlobalState, SampledRows, SampledLocal],
    GibbsFamily[NetworkOptions, SampledNetworkGlobalState, SampledLocal],
):
    """Network whose topics and tables are sampled."""

    global_state_type, rows_type = SampledNetworkGlobalState, SampledRows
    local_type, documents_type = SampledLocal, SampledDocuments
    variational: ClassVar[type[ExpectedNetwork]] = ExpectedNetwork  # With expected tables

    @classmethod
    def with_options(cls, options: NetworkOptions) -> SampledNetwork | ExpectedNetwork:
        """Return the network with sampled or expected tables, as the options say."""
        return cls.variational(options) if options.inference == "variational" else cls(options)

    def initialise(self, summary: Summary, stream: Stream) -> SampledNetworkGlobalState:
        """Return the global state before any document was swept."""
        return self.sampled_state(summary)

    def footprint(self, summary: Summary) -> Footprint:
        """Return the memory of the state: 2 bytes per token, 6 per topic of a document, and the nodes of segments."""
        topics = self.options.topics
        tokens = summary.tokens / max(summary.pairs, 1)
        pair = 2.0 * tokens + 8.0 + NODE_BYTES / SEGMENT_PAIRS
        document = 2.0 * NODE_BYTES + 6.0 * min(topics, summary.tokens / max(summary.documents, 1))
        chunk = 2.0 * (pair * summary.pairs + document * summary.documents)
        words = gibbs.footprint(summary, topics)
        return replace(words, swept=4.0 * padded(topics), pair=pair, document=document, chunk=chunk)

    def update(
        self, global_state: SampledNetworkGlobalState, delta: Delta, stream: Stream
    ) -> SampledNetworkGlobalState:
        """Return the next global state: changed counts, drawn tables of shared nodes, and learned hyperparameters.

        b ~ p(b) prod_j (b|a)_{T_j} q_j^b, by a slice; a ~ Beta(1 + X, 1 + Y), X and Y being the numbers of factors
        b + i a and m - 1 - t a of p(n, s) that a and 1 - a stand for; alpha and B by Minka's fixed point.
        """
        options = self.options
        after, swept = with_changes(global_state, delta), delta.read(SampledSums)
        if swept is None:
            # The start sweeps nothing.
            return after
        shared = sweep_shared(after, stream, move=options.tables, count_joins="discount" in options.learn)
        after = replace(after, shared_customers=shared.customers, shared_tables=shared.tables)
        sums = swept.plus(shared.sums)
        if "strength" in options.learn:
            after = replace(after, strength=draw_strengths(after, sums, options.strength_mean, stream))
        if "discount" in options.learn:
            after = replace(after, discount=draw_discounts(after, sums, stream))
        if options.learns_alpha and sums.alpha_numerator is not None and sums.log_eta < 0:
            numerator = sums.alpha_numerator
            if "alpha" in options.learn:
                numerator = np.full(options.topics, numerator.mean())
            after = replace(after, alpha=np.maximum(numerator / -sums.log_eta, MIN_PARAMETER))
        words = delta.read(WordSums)
        if "beta" in options.learn and words is not None:
            rate = float((digamma(global_state.beta + after.topic) - digamma(global_state.beta)).sum())
            if rate > 0:
                after = replace(after, beta=max(words.tables_of_words / rate, MIN_PARAMETER))
        return after

    def objective(self, global_state: SampledNetworkGlobalState, delta: Delta) -> dict[str, float]:
        """Return log p(w, z, s) given the hyperparameters, in nats: (4) of the paper, and LDA's terms of words."""
        swept, word_sums = delta.read(SampledSums), delta.read(WordSums)
        if swept is None or word_sums is None:
            return {}
        after = with_changes(global_state, delta)
        sums = swept.plus(sweep_shared(after, Stream(0), move=False).sums)
        number = np.arange(sums.tables.shape[1])
        factors = global_state.strength[:, np.newaxis] + global_state.discount[:, np.newaxis] * number
        rises, total = (sums.tables * special.log(factors)).sum(), global_state.priors.total
        words = float((gammaln(total) - gammaln(total + after.topic)).sum()) + word_sums.word_rising
        return {"objective": float(rises + sums.stirling.sum() + sums.falling.sum()) + words}

    def kernels(self, global_state: SampledNetworkGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        return [*KERNELS, *([sweep_shared_nodes] if len(global_state.shared_customers) else [])]

    def start(
        self,
        shard: Shard,
        rows: SampledRows,
        global_state: SampledNetworkGlobalState,
        stream: Stream,
        warm: Arrays | None = None,
    ) -> tuple[SampledLocal, Delta]:
        """Draw each token's first topic, uniformly or by another run's proportions and topics, and its tables."""
        topics = global_state.alpha.size
        return self._begin(shard, draw_initial_topics(shard, topics, topics, stream, warm), rows, global_state, stream)

    def continue_from(
        self, shard: Shard, saved: Arrays, rows: SampledRows, global_state: SampledNetworkGlobalState
    ) -> tuple[SampledLocal, Delta]:
        """Continue from the topics of tokens that another run saved; tables are drawn anew."""
        stream = Stream(0, "take", place=shard.number)
        return self._begin(shard, np.asarray(saved["token_topic"]), rows, global_state, stream)

    def _begin(
        self,
        shard: Shard,
        token_topic: TokenTopics,
        rows: SampledRows,
        global_state: SampledNetworkGlobalState,
        stream: Stream,
    ) -> tuple[SampledLocal, Delta]:
        """Draw the tables of tokens that have topics."""
        graph, topics = Graph.of(shard, global_state.plan), global_state.alpha.size
        empty = replace(
            global_state,
            shared_customers=np.zeros_like(global_state.shared_customers),
            shared_tables=np.zeros_like(global_state.shared_tables),
        )
        sampler = NetworkSampler.of(shard, graph, empty, self.options, token_topic, rows.word_topic)
        sampler.run(stream, initialise=True)
        parts = {"word_topic": count_words(shard, token_topic, topics), **sampler.shared_changes().parts()}
        return sampler.local(), Delta(parts, delta_ids(shard, topics))

    def sweep(
        self,
        shard: Shard,
        local: SampledLocal,
        rows: SampledRows,
        global_state: SampledNetworkGlobalState,
        stream: Stream,
    ) -> tuple[SampledLocal, Delta]:
        """Return the result of a sweep over a shard."""
        if local.counts is None or local.token_topic is None:
            raise TypeError("documents that were folded in are not swept")
        began, graph, topics = time.perf_counter(), local.graph, global_state.alpha.size
        sampler = NetworkSampler.of(shard, graph, global_state, self.options, local.token_topic, rows.word_topic)
        sampler.tables = local.counts.tables.record
        statistics = sampler.run(stream)
        unshared = slice(graph.shared, None)
        nodes = NodeTotals(
            graph.node_kind[unshared],
            graph.is_root[unshared],
            statistics.customers[unshared],
            statistics.tables[unshared],
        )
        sums = SampledSums.of(nodes, statistics, global_state, stream)
        parts = {
            "word_topic": word_changes(rows.word_topic, sampler.counts.word_topic[:, :topics]),
            **sampler.shared_changes().parts(),
            **sums.parts(),
            **corpus_sums(shard),
        }
        ids = {**delta_ids(shard, topics), "tables": np.arange(sums.tables.shape[1])}
        return sampler.local(), Delta(parts, ids, {"kernel": time.perf_counter() - began})

    def advance_global_state(
        self, global_state: SampledNetworkGlobalState, delta: Delta, changes: Counts
    ) -> SampledNetworkGlobalState:
        """Return the global state after the changes of a shard."""
        shared, after = delta.read(SharedChanges), super().advance_global_state(global_state, delta, changes)
        if shared is None:
            return after
        return replace(
            after,
            shared_customers=global_state.shared_customers + shared.shared_customers,
            shared_tables=global_state.shared_tables + shared.shared_tables,
        )

    def fold_in(
        self, shard: Shard, rows: SampledRows, global_state: SampledNetworkGlobalState, stream: Stream
    ) -> SampledLocal:
        """Sample unseen documents with topics and shared nodes fixed; keep the means of their vectors."""
        graph, topics, alpha = (
            Graph.of(shard, global_state.plan),
            global_state.alpha.size,
            global_state.topic_parameters,
        )
        prior = np.ones((shard.documents, 1)) * alpha / global_state.concentration
        warm = {"document_topic": prior, "word_topic": self.word_probability(rows, global_state)}
        token_topic = draw_initial_topics(shard, topics, topics, stream, warm)
        sampler = NetworkSampler.of(shard, graph, global_state, self.options, token_topic, rows.word_topic)
        sampler.run(stream, initialise=True, fold_in=True)
        mean = np.zeros((graph.own_nodes, topics), dtype=np.float32)
        for number in range(BURN_IN_SWEEPS + FOLD_IN_SAMPLES if shard.tokens else 1):
            if shard.tokens:
                sampler.run(stream.at(purpose=f"{stream.purpose} {number}"), fold_in=True)
            if number >= BURN_IN_SWEEPS or not shard.tokens:
                mean += self.node_vectors(sampler.local(), global_state)
        mean /= FOLD_IN_SAMPLES if shard.tokens else 1
        return SampledLocal(graph, shard.lengths, document_vectors=mean)

    def node_vectors(
        self, documents: SampledDocuments, global_state: SampledNetworkGlobalState
    ) -> npt.NDArray[np.float32]:
        """Return E[nu_j] of the nodes of documents given the counts, shape (nodes of documents, topics)."""
        if documents.counts is None:
            return np.asarray(documents.document_vectors)
        graph, topics = documents.graph, global_state.alpha.size
        columns, mean = padded(topics), np.empty((graph.own_nodes, topics), dtype=np.float32)
        alpha = wide(global_state.topic_parameters, columns, np.float64)
        network_means(
            graph.record,
            np.asarray(graph.document_nodes),
            global_state.hyperparameters._replace(alpha=alpha),
            documents.counts.tables.record,
            documents.counts.node_tokens.record,
            wide(np.asarray(global_state.shared_customers), columns, np.int32),
            wide(np.asarray(global_state.shared_tables), columns, np.int32),
            mean,
        )
        return mean


MIN_DISCOUNT, MAX_DISCOUNT = 1e-6, 0.999  # Bounds of a discount that is drawn


def with_changes(global_state: SampledNetworkGlobalState, delta: Delta) -> SampledNetworkGlobalState:
    """Return the global state after the changes of n_k and of shared nodes, whose tables are then repaired."""
    after, changes = global_state.with_changes(gibbs.topic_changes(delta)), delta.read(SharedChanges)
    if changes is None:
        return after
    customers, tables = repair_tables(
        global_state.plan.shared_graph(),
        global_state.shared_customers + changes.shared_customers,
        global_state.shared_tables + changes.shared_tables,
    )
    return replace(after, shared_customers=customers, shared_tables=tables)


def draw_strengths(global_state: SampledNetworkGlobalState, sums: SampledSums, mean: float, stream: Stream) -> Vector:
    """Draw each kind's b given its vectors' tables and q_j; p(b) ~ exp(-b / mean) prod_j (b|a)_{T_j} q_j^b."""
    strength, discount = np.array(global_state.strength), np.asarray(global_state.discount)
    generator = stream.at(purpose="strength").generator()
    number = np.arange(sums.tables.shape[1])
    for kind in np.flatnonzero(sums.tables.any(axis=1)).tolist():
        tables, log_q = sums.tables[kind].astype(np.float64), sums.log_q[kind]
        if discount[kind] == 0.0:
            strength[kind] = generator.gamma(1.0 + float(sums.tables[kind].sum())) / (1.0 / mean + log_q)
            continue
        steps = discount[kind] * number

        def density(b: float, tables: Vector = tables, steps: Vector = steps, log_q: float = log_q) -> float:
            return float((tables * special.log(b + steps)).sum() - b * log_q)

        strength[kind] = slice_sampled(density, float(strength[kind]), mean, generator)
    return strength


def draw_discounts(global_state: SampledNetworkGlobalState, sums: SampledSums, stream: Stream) -> Vector:
    """Draw each kind's a given its vectors' tables and joins, with b already drawn."""
    strength, discount = np.asarray(global_state.strength), np.array(global_state.discount)
    generator = stream.at(purpose="discount").generator()
    number = np.arange(sums.tables.shape[1])
    for kind in np.flatnonzero(sums.tables.any(axis=1)).tolist():
        probability = discount[kind] * number / (strength[kind] + discount[kind] * number)
        opened = float(generator.binomial(sums.tables[kind], probability).sum())
        discount[kind] = np.clip(generator.beta(1.0 + opened, 1.0 + sums.joins[kind]), MIN_DISCOUNT, MAX_DISCOUNT)
    return discount
