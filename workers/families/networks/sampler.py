"""Sample the topics and tables of networks of probability vectors (Buntine, Du and Nurmi 2010).

nu_j ~ Dir(alpha) at a root, nu_j ~ PDP(a, b, sum_l rho_lj nu_l) elsewhere; z ~ nu_j, w ~ phi_z ~ Dir(b_w). All vectors
are integrated out. What remains are the topics of tokens and, on each edge to a parent, how many tables of each topic
are customers of the parent (`collapsium.workers.kernels.networks.sweep`).

Tables of ratios of generalised Stirling numbers: a row a discount, cached in the process and shared by its threads.

A table has all V^m_t with m up to a power of two, at most `MAX_COUNT`, where it takes 16.8 MB. Beyond, kernels
integrate. Results do not depend on what else the process has computed: a longer table has the same numbers, and m
beyond `MAX_COUNT` is always integrated.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Array
from collapsium.workers.families.gibbs.token_counts import widened
from collapsium.workers.families.networks.graph import Graph
from collapsium.workers.families.networks.options import NetworkOptions
from collapsium.workers.families.networks.states import (
    EdgeTables,
    OwnTokens,
    SampledCounts,
    SampledLocal,
    SampledNetworkGlobalState,
    Vector,
)
from collapsium.workers.families.networks.sums import SharedChanges
from collapsium.workers.kernels.networks import records
from collapsium.workers.kernels.networks.means import count_node_topics
from collapsium.workers.kernels.networks.paths import CHUNK
from collapsium.workers.kernels.networks.records import (
    NewTableEntries,
    NodeStatistics,
    SamplingHyperparameters,
    SweepResults,
    TableDraws,
    TableEntries,
    TokenDraws,
)
from collapsium.workers.kernels.networks.stirling import fill_ratios
from collapsium.workers.kernels.networks.sweep import sweep_network

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


MIN_COUNT, MAX_COUNT = 64, 2048  # Range of the largest m of a table
MAX_CACHED_BYTES = 2**27  # Most bytes of the tables in a process, of which the last used stay

# By use, the last used one last.
_tables: OrderedDict[tuple[float, ...], NDArray[np.float64]] = OrderedDict()
_lock = threading.Lock()


def tables_for(discounts: Iterable[float], most: int) -> NDArray[np.float64]:
    """Return the tables of V^m_t = S^m_t / S^m_{t-1} for several discounts."""
    key = tuple(float(a) for a in discounts)
    if not all(0.0 <= a < 1.0 for a in key):
        raise ValueError(f"discounts are {key}; each must be at least 0 and less than 1")
    end = max(MIN_COUNT, 1 << (min(most, MAX_COUNT) - 1).bit_length()) if most > 0 else MIN_COUNT
    with _lock:
        ratios = _tables.pop(key, None)
        if ratios is None or ratios.shape[1] < _size(end):
            ratios = _grown(key, ratios, end)
        _tables[key] = ratios
        while len(_tables) > 1 and sum(table.nbytes for table in _tables.values()) > MAX_CACHED_BYTES:
            _tables.popitem(last=False)
    return ratios


def _size(end: int) -> int:
    """Return the number of ratios in a table to m = `end`."""
    return end * (end - 1) // 2


def _grown(key: tuple[float, ...], before: NDArray[np.float64] | None, end: int) -> NDArray[np.float64]:
    """Return tables to m = `end`, which extend those before if there are any."""
    tables = np.empty((len(key), _size(end)))
    begin = 1
    if before is not None:
        tables[:, : before.shape[1]] = before
        begin = next(m for m in (end >> i for i in range(1, 64)) if _size(m) == before.shape[1])
    for a, row in zip(key, tables, strict=True):
        fill_ratios(a, begin, end, row)
    tables.setflags(write=False)
    return tables


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


def _integers(counts: Array) -> npt.NDArray[np.int32]:
    """Return counts as integers; those of a simulated model are probabilities times a large number of tokens."""
    if counts.dtype == np.int32:
        return counts
    integers: npt.NDArray[np.int32] = np.rint(np.clip(counts, 0.0, np.iinfo(np.int32).max)).astype(np.int32)
    return integers


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
        counts = records.SampledCounts(
            np.array(token_topic),
            widened(_integers(word_topic), columns),
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
        hyperparameters, results = self._hyperparameters(), self._results(initialise=initialise, fold_in=fold_in)
        while True:
            sweep_network(
                graph, documents, hyperparameters, self.counts, self.tables, token_draws, table_draws, results
            )
            if results.progress[0] == self.shard.documents:
                break
            more = max(MORE_ENTRIES * self.counts.topic.size, results.tables.topic.size)
            results = results._replace(tables=_with_more_room(results.tables, more))
        start, entries, topic, number = results.tables
        filled = int(results.progress[2])
        self.tables = TableEntries(start, entries, topic[:filled].copy(), number[:filled].copy())
        return results.statistics

    def _hyperparameters(self) -> SamplingHyperparameters:
        """Return the parameters of vectors as kernels take them."""
        largest = self.counts.shared_customers.max(initial=0) + self.shard.tokens
        return sampling_hyperparameters(self.global_state, int(max(self.shard.lengths.max(initial=0), largest, 1)))

    def _results(self, *, initialise: bool, fold_in: bool) -> SweepResults:
        """Return room for what a sweep writes."""
        nodes, edges, columns = self.graph.node_kind.size, self.graph.edge_parent.size, self.counts.topic.size
        room = self.shard.tokens + 1000 if initialise else max(int(1.3 * self.tables.topic.size) + 1000, 64)
        tables = NewTableEntries(
            np.zeros(edges, np.int64), np.zeros(edges, np.int32), np.empty(room, np.uint16), np.empty(room, np.int32)
        )
        statistics = NodeStatistics(
            np.zeros(nodes, np.int64),
            np.zeros(nodes, np.int64),
            np.zeros((self.global_state.strength.size, 2)),
            np.zeros(columns if self.settings.learns_alpha and not fold_in else 0),
        )
        return SweepResults(tables, statistics, np.zeros(4, dtype=np.int64))

    def local(self) -> SampledLocal:
        """Return the local state."""
        pairs, tokens = self.graph.node_pairs(self.shard), self.shard.tokens
        offsets = np.zeros(pairs.offsets.size, dtype=np.int64)
        topic, number = np.empty(tokens, dtype=np.uint16), np.empty(tokens, dtype=np.int32)
        topics, token_topic = self.global_state.alpha.size, self.counts.token_topic
        count_node_topics(pairs.offsets, pairs.counts, token_topic, topics, offsets, topic, number)
        own = OwnTokens(offsets, topic[: offsets[-1]].copy(), number[: offsets[-1]].copy())
        counts = SampledCounts(EdgeTables(*self.tables), own)
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


def _with_more_room(tables: NewTableEntries, more: int) -> NewTableEntries:
    """Return tables with room for more entries."""
    topic, number = (np.concatenate([old, np.empty(more, old.dtype)]) for old in (tables.topic, tables.number))
    return NewTableEntries(tables.start, tables.entries, topic, number)
