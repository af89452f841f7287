"""Sample the topics and tables of networks of probability vectors (Buntine, Du and Nurmi 2010).

nu_j ~ Dir(alpha) at a root, nu_j ~ PDP(a, b, sum_l rho_lj nu_l) elsewhere; z ~ nu_j, w ~ phi_z ~ Dir(b_w). All vectors
are integrated out. What is left are the topics of tokens and, on each edge to a parent, how many tables of each topic
are headed by the parent's customers (`collapsium.workers.kernels.networks.sweep`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.segments import Segments
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Part, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.gibbs.common import Priors, widened
from collapsium.workers.families.networks.common import node_pairs, priors
from collapsium.workers.families.networks.graph import KEPT, Graph
from collapsium.workers.families.networks.stirling import tables_for
from collapsium.workers.kernels.networks.means import count_node_topics
from collapsium.workers.kernels.networks.paths import CHUNK
from collapsium.workers.kernels.networks.records import (
    NewTableEntries,
    NodeStatistics,
    SampledCounts,
    SamplingHyperparameters,
    SegmentedDocuments,
    SweepResults,
    TableDraws,
    TableEntries,
    TokenDraws,
)
from collapsium.workers.kernels.networks.sweep import sweep_network
from collapsium.workers.special_functions import digamma, gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Vector = npt.NDArray[np.float64]

TABLES = ("table_start", "table_entries", "table_topic", "table_count")
OWN = ("own_lists", "own_topics", "own_counts")


def padded(topics: int) -> int:
    """Return the columns that the kernels work on."""
    return -(-topics // CHUNK) * CHUNK


def wide(values: npt.NDArray[Any], columns: int, dtype: Any) -> npt.NDArray[Any]:
    """Return a copy with so many columns, those beyond the old ones zero."""
    made = np.zeros((*values.shape[:-1], columns), dtype=dtype)
    made[..., : values.shape[-1]] = values
    return made


def _whole(counts: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return counts as whole numbers; those of a drawn model are probabilities times a large number of tokens."""
    if counts.dtype == np.int32:
        return counts
    made: npt.NDArray[np.int32] = np.rint(np.clip(counts, 0.0, np.iinfo(np.int32).max)).astype(np.int32)
    return made


@dataclass
class Sampling:
    """A shard while it is swept.

    Attributes
    ----------
    shard : Shard
        The documents.
    graph : Graph
        Their network.
    globals : Arrays
        Hyperparameters, and counts above documents.
    token_topic : numpy.ndarray of uint16, shape (tokens,)
        z; moved.
    tables : TableEntries
        Tables of edges; replaced.
    row : numpy.ndarray of int32, shape (words, columns)
        n_kw; moved.
    totals : numpy.ndarray of float64, shape (columns,)
        n_k; moved.
    above : tuple of numpy.ndarray of int32
        Customers and tables of the vectors above documents, shape (vectors or their edges, columns); moved.
    """

    shard: Shard
    graph: Graph
    globals: Arrays
    token_topic: npt.NDArray[np.uint16]
    tables: TableEntries
    row: npt.NDArray[np.int32]
    totals: Vector
    above: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]

    @staticmethod
    def of(
        shard: Shard,
        graph: Graph,
        globals: Arrays,
        token_topic: npt.NDArray[np.uint16],
        tables: TableEntries,
        rows: Arrays,
    ) -> Sampling:
        """Make it; nothing that is given is changed later."""
        columns = padded(globals["alpha"].size)
        above = tuple(wide(np.asarray(globals[name]), columns, np.int32) for name in ("vector_topic", "vector_tables"))
        totals = wide(np.asarray(globals["topic"], dtype=np.float64), columns, np.float64)
        row = widened(_whole(rows["word_topic"]), columns)
        return Sampling(shard, graph, globals, np.array(token_topic), tables, row, totals, (above[0], above[1]))

    def run(
        self, stream: Stream, *, entering: bool = False, held: bool = False, word: Priors | None = None
    ) -> NodeStatistics:
        """Sweep once.

        Parameters
        ----------
        stream : Stream
            Addressed to the shard.
        entering : bool, optional
            Whether tokens have topics and no tables yet.
        held : bool, optional
            Whether topics and what lies above documents stay as they are.
        word : Priors, optional
            Of words; by default those of the globals.

        Returns
        -------
        NodeStatistics
            Of all nodes; those of shared nodes are 0.
        """
        shard, graph, globals_, given = self.shard, self.graph, self.globals, word or priors(self.globals)
        columns, nodes, edges = self.row.shape[1], graph.node_kind.size, graph.edge_parent.size
        learning = bool(np.any(globals_["learn_discount"])) and not held and not entering
        keys = [stream.at(purpose=f"{stream.purpose}{name}").key() for name in ("", " tables", " joins")]
        tokens = TokenDraws(keys[0], int(entering), int(held), int(graph.levels[0]))
        tables = TableDraws(int(not entering and bool(globals_["move_tables"])), keys[1], int(learning), keys[2])
        room = max(int(1.3 * self.tables.topic.size) + 1000, 64) if not entering else shard.tokens + 1000
        results = SweepResults(
            NewTableEntries(
                np.zeros(edges, np.int64),
                np.zeros(edges, np.int32),
                np.empty(room, np.uint16),
                np.empty(room, np.int32),
            ),
            NodeStatistics(
                np.zeros(nodes, np.int64),
                np.zeros(nodes, np.int64),
                np.zeros((globals_["strength"].size, 2)),
                np.zeros(columns if bool(globals_["learn_alpha"]) and not held else 0),
            ),
            np.zeros(4, dtype=np.int64),
        )
        documents, hyperparameters = self._documents(), self._hyperparameters(given)
        counts = SampledCounts(self.token_topic, self.row, self.totals, given.word, given.total, *self.above)
        while True:
            sweep_network(graph.arrays(), documents, hyperparameters, counts, self.tables, tokens, tables, results)
            if results.progress[0] == shard.documents:
                break
            results = results._replace(tables=_with_more_room(results.tables, columns * 64))
        filled = int(results.progress[2])
        self.tables = TableEntries(
            results.tables.start,
            results.tables.entries,
            results.tables.topic[:filled].copy(),
            results.tables.number[:filled].copy(),
        )
        return results.statistics

    def _documents(self) -> SegmentedDocuments:
        """Return the shard's documents as kernels take them."""
        shard, graph = self.shard, self.graph
        segments = shard.segments or Segments.of(shard.offsets, {})
        return SegmentedDocuments(
            graph.nodes, segments.documents, segments.pairs, graph.segment_node, shard.position, shard.counts
        )

    def _hyperparameters(self, given: Priors) -> SamplingHyperparameters:
        """Return the parameters of vectors as kernels take them."""
        most = int(max(self.shard.lengths.max(initial=0), self.above[0].max(initial=0) + self.shard.tokens, 1))
        return SamplingHyperparameters(
            np.asarray(self.globals["strength"]),
            np.asarray(self.globals["discount"]),
            wide(given.topics, self.row.shape[1], np.float64),
            tables_for(self.globals["discount"], most),
        )

    def local(self) -> dict[str, npt.NDArray[Any]]:
        """Return the local state."""
        shard, graph = self.shard, self.graph
        pairs = node_pairs(shard, graph)
        starts = np.zeros(pairs.size, dtype=np.int64)
        topic, count = np.empty(shard.tokens, dtype=np.uint16), np.empty(shard.tokens, dtype=np.int32)
        count_node_topics(pairs, shard.counts, self.token_topic, self.globals["alpha"].size, starts, topic, count)
        own = starts, topic[: starts[-1]].copy(), count[: starts[-1]].copy()
        return {
            "token_topic": self.token_topic,
            **graph.local(),
            **{f"{KEPT}{name}": np.asarray(values) for name, values in zip(TABLES, self.tables, strict=True)},
            **{f"{KEPT}{name}": np.asarray(values) for name, values in zip(OWN, own, strict=True)},
            f"{KEPT}tokens": shard.lengths,
        }


def no_tables(graph: Graph) -> TableEntries:
    """Return tables of which there are none."""
    edges = graph.edge_parent.size
    return TableEntries(
        np.zeros(edges, np.int64), np.zeros(edges, np.int32), np.zeros(0, np.uint16), np.zeros(0, np.int32)
    )


def _with_more_room(tables: NewTableEntries, more: int) -> NewTableEntries:
    """Return tables with room for more entries."""
    topic, number = (np.concatenate([old, np.empty(more, old.dtype)]) for old in (tables.topic, tables.number))
    return NewTableEntries(tables.start, tables.entries, topic, number)


def node_sums(
    kind: npt.NDArray[np.int32],
    roots: npt.NDArray[np.bool_],
    customers: npt.NDArray[np.int64],
    tables: npt.NDArray[np.int64],
    globals: Arrays,
    stream: Stream,
) -> dict[str, Part]:
    """Sum over nodes what strengths, discounts and the objective need of their customers M and tables T.

    Parameters
    ----------
    kind : numpy.ndarray of int32, shape (nodes,)
        Their kinds.
    roots : numpy.ndarray of bool, shape (nodes,)
        Which have no parents.
    customers, tables : numpy.ndarray of int64, shape (nodes,)
        M and T.
    globals : Arrays
        With b and alpha.
    stream : Stream
        Addressed to the shard.

    Returns
    -------
    dict of str to Part
        ``log_q``, by kind the sum of log 1/q_j with q_j ~ Beta(b, M_j); ``tables``, by kind and i the nodes with more
        than i tables; ``falling``, by kind the sum of log G(b)/G(b + M), of roots that of alpha; and ``log_eta``, over
        roots the sum of digamma(A) - digamma(A + M).
    """
    strength, total = np.asarray(globals["strength"]), float(np.sum(globals["alpha"]))
    kinds, here = strength.size, customers > 0
    below, top = here & ~roots, here & roots
    b, many = strength[kind[below]], customers[below].astype(np.float64)
    generator = stream.at(purpose=f"{stream.purpose} strength").generator()
    log_q = special.log1p(generator.standard_gamma(many) / np.maximum(generator.standard_gamma(b), 1e-300))
    falls = gammaln(b) - gammaln(b + many)
    falling = np.bincount(kind[below], falls, kinds).astype(np.float64)  # of nothing, NumPy's are whole numbers
    large = customers[top].astype(np.float64)
    falling += np.bincount(kind[top], gammaln(total) - gammaln(total + large), kinds)
    most = int(tables.max(initial=0))
    histogram = np.zeros((kinds, most + 1), dtype=np.int64)
    np.add.at(histogram, (kind[below], tables[below]), 1)
    beyond = histogram[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
    return {
        "log_q": fresh(np.bincount(kind[below], log_q, kinds).astype(np.float64), "kind"),
        "tables": fresh(beyond, "kind", "tables"),
        "falling": fresh(falling, "kind"),
        "log_eta": fresh(float((digamma(total) - digamma(total + large)).sum())),
    }
