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
from collapsium.workers.kernels.networks.means import list_nodes
from collapsium.workers.kernels.networks.paths import CHUNK
from collapsium.workers.kernels.networks.sweep import sweep_network
from collapsium.workers.special_functions import digamma, gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Vector = npt.NDArray[np.float64]
Tables = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.uint16], npt.NDArray[np.int32]]

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
    tables : tuple of numpy.ndarray
        Where each edge's tables lie, on how many topics, and these with their tables; replaced.
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
    tables: Tables
    row: npt.NDArray[np.int32]
    totals: Vector
    above: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]

    @staticmethod
    def of(
        shard: Shard, graph: Graph, globals: Arrays, token_topic: npt.NDArray[np.uint16], tables: Tables, rows: Arrays
    ) -> Sampling:
        """Make it; nothing that is given is changed later."""
        columns = padded(globals["alpha"].size)
        above = tuple(wide(np.asarray(globals[name]), columns, np.int32) for name in ("vector_topic", "vector_tables"))
        totals = wide(np.asarray(globals["topic"], dtype=np.float64), columns, np.float64)
        row = widened(_whole(rows["word_topic"]), columns)
        return Sampling(shard, graph, globals, np.array(token_topic), tables, row, totals, (above[0], above[1]))

    def run(
        self, stream: Stream, *, entering: bool = False, held: bool = False, word: Priors | None = None
    ) -> dict[str, npt.NDArray[Any]]:
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
        dict of str to numpy.ndarray
            ``node_customers`` and ``node_tables``, M and T of each node; ``sums`` and ``rising`` of the kernel.
        """
        shard, graph, globals_, given = self.shard, self.graph, self.globals, word or priors(self.globals)
        segments = shard.segments or Segments.of(shard.offsets, {})
        columns, nodes, edges = self.row.shape[1], graph.node_kind.size, graph.edge_parent.size
        alpha = wide(given.topics, columns, np.float64)
        most = int(max(shard.lengths.max(initial=0), self.above[0].max(initial=0) + shard.tokens, 1))
        learning = bool(np.any(globals_["learn_discount"])) and not held and not entering
        mode = np.array([entering, held, not entering and bool(globals_["move_tables"]), learning], dtype=np.int64)
        room = max(int(1.3 * self.tables[2].size) + 1000, 64) if not entering else shard.tokens + 1000
        made: list[Any] = [
            np.zeros(edges, np.int64),
            np.zeros(edges, np.int32),
            np.empty(room, np.uint16),
            np.empty(room, np.int32),
        ]
        found: dict[str, npt.NDArray[Any]] = {
            "node_customers": np.zeros(nodes, np.int64),
            "node_tables": np.zeros(nodes, np.int64),
        }
        found["sums"] = np.zeros((globals_["strength"].size, 2))
        found["rising"] = np.zeros(columns if bool(globals_["learn_alpha"]) and not held else 0)
        state, ratios = np.zeros(4, dtype=np.int64), tables_for(globals_["discount"], most)
        keys: Any = [stream.at(purpose=f"{stream.purpose}{name}").key() for name in ("", " tables", " joins")]
        while True:
            arguments: Any = (
                graph.node_kind, graph.node_edges, graph.edge_parent, graph.edge_mixing, graph.nodes,
                segments.documents, segments.pairs, graph.segment_node, shard.position, shard.counts,
                np.asarray(globals_["strength"]), np.asarray(globals_["discount"]), alpha, ratios, given.word,
                given.total, *keys, mode, int(graph.levels[0]), *self.tables, *self.above, self.totals, self.row,
                self.token_topic, *made, *found.values(), state,
            )  # fmt: skip
            sweep_network(*arguments)
            if state[0] == shard.documents:
                break
            made[2:] = [np.concatenate([one, np.empty(one.size + columns * 64, one.dtype)]) for one in made[2:]]
        self.tables = made[0], made[1], made[2][: state[2]].copy(), made[3][: state[2]].copy()
        return found

    def local(self) -> dict[str, npt.NDArray[Any]]:
        """Return the local state."""
        shard, graph = self.shard, self.graph
        pairs = node_pairs(shard, graph)
        starts = np.zeros(pairs.size, dtype=np.int64)
        topic, count = np.empty(shard.tokens, dtype=np.uint16), np.empty(shard.tokens, dtype=np.int32)
        list_nodes(pairs, shard.counts, self.token_topic, self.globals["alpha"].size, starts, topic, count)
        own = starts, topic[: starts[-1]].copy(), count[: starts[-1]].copy()
        return {
            "token_topic": self.token_topic,
            **graph.local(),
            **{f"{KEPT}{name}": np.asarray(values) for name, values in zip(TABLES, self.tables, strict=True)},
            **{f"{KEPT}{name}": np.asarray(values) for name, values in zip(OWN, own, strict=True)},
            f"{KEPT}tokens": shard.lengths,
        }


def no_tables(graph: Graph) -> Tables:
    """Return tables of which there are none."""
    edges = graph.edge_parent.size
    return np.zeros(edges, np.int64), np.zeros(edges, np.int32), np.zeros(0, np.uint16), np.zeros(0, np.int32)


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
