"""What families of networks of probability vectors share beside a shard (Buntine, Du and Nurmi 2010).

nu_j ~ Dir(alpha) at a root, nu_j ~ PDP(a, b, sum_l rho_lj nu_l) elsewhere; z ~ nu_j, w ~ phi_z ~ Dir(b_w). All vectors
are integrated out. What is left are the topics of tokens and, on each edge to a parent, how many tables of each topic
are headed by the parent's customers (`kernels.network`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.segments import Segments
from collapsium.storage.errors import MismatchError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta, Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.gibbs import common as gibbs
from collapsium.workers.families.gibbs.common import Priors, widened
from collapsium.workers.families.networks import variational as networkexpected
from collapsium.workers.families.networks.common import node_pairs, priors, variational, word_probability
from collapsium.workers.families.networks.graph import KEPT, Graph
from collapsium.workers.families.networks.stirling import tables_for
from collapsium.workers.kernels.gibbs.topics import word_rising
from collapsium.workers.kernels.jit import Kernel
from collapsium.workers.kernels.networks.means import dot_pairs, list_nodes, network_means
from collapsium.workers.kernels.networks.paths import CHUNK
from collapsium.workers.kernels.networks.shared_nodes import visit_above
from collapsium.workers.kernels.networks.stirling import fill_ratios
from collapsium.workers.kernels.networks.sweep import sweep_network
from collapsium.workers.special_functions import digamma, gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Vector = npt.NDArray[np.float64]
Tables = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.uint16], npt.NDArray[np.int32]]

KERNELS = (sweep_network, network_means, list_nodes, dot_pairs, word_rising, fill_ratios)
BURN, SAMPLES = 30, 100  # sweeps over unseen documents: until they have settled, and those whose means are taken
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
        row = widened(rows["word_topic"], columns)
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


def kernels(globals: Arrays) -> Sequence[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    if variational(globals):
        return networkexpected.kernels()
    return [*KERNELS, *([visit_above] if len(globals["vector_topic"]) else [])]


def blank(words: int, globals: Arrays) -> Arrays:
    """Make the rows of `words` words before any document has been seen."""
    topics = globals["alpha"].size
    return networkexpected.blank(words, topics) if variational(globals) else gibbs.blank(words, topics)


def start(
    shard: Shard, rows: Arrays, globals: Arrays, stream: Stream, warm: Arrays | None = None
) -> tuple[Arrays, Delta]:
    """Draw each token's first topic, from all alike or by another run, and hang the tokens on the network.

    Parameters
    ----------
    shard : Shard
        The documents.
    rows : Arrays
        Blank.
    globals : Arrays
        As `initialise` made them.
    stream : Stream
        Addressed to the shard.
    warm : Arrays or None
        As for `Sweeps.start`.

    Returns
    -------
    local : Arrays
        The local state.
    delta : Delta
        Counts as changes from nothing.
    """
    if variational(globals):
        return networkexpected.start(shard, globals, stream, warm)
    topics = globals["alpha"].size
    return begun(shard, gibbs.drawn(shard, topics, topics, stream, warm), rows, globals, stream)


def take(shard: Shard, kept: Arrays, rows: Arrays, globals: Arrays) -> tuple[Arrays, Delta]:
    """Go on from the topics that another run kept of the shard's tokens; they hang on the network anew."""
    if variational(globals):
        return networkexpected.take(shard, kept, globals)
    return begun(shard, np.asarray(kept["token_topic"]), rows, globals, Stream(0, "take", place=shard.number))


def begun(
    shard: Shard, token_topic: npt.NDArray[np.uint16], rows: Arrays, globals: Arrays, stream: Stream
) -> tuple[Arrays, Delta]:
    """Hang tokens whose topics are given on the network; see `start`."""
    graph, topics = Graph.of(shard, globals), globals["alpha"].size
    nothing = {**globals, **{name: np.zeros_like(globals[name]) for name in ("vector_topic", "vector_tables")}}
    sampling = Sampling.of(shard, graph, nothing, token_topic, no_tables(graph), rows)
    sampling.run(stream, entering=True)
    row = np.zeros((shard.words.size, topics), dtype=np.int32)
    np.add.at(row, (np.repeat(shard.position, shard.counts), token_topic), 1)
    parts = {"word_topic": change(row, "word", "topic"), **_moved_above(sampling, nothing)}
    return sampling.local(), Delta(parts, gibbs.ids_of(shard, topics))


def sweep(shard: Shard, local: Arrays, rows: Arrays, globals: Arrays, stream: Stream) -> tuple[Arrays, Delta]:
    """Pass once over a shard; its delta has what `collapsium.pipeline.families.networks.common.update` takes."""
    if variational(globals):
        return networkexpected.sweep(shard, local, rows, globals)
    began = time.perf_counter()
    graph = Graph.kept(local)
    tables: Any = tuple(np.asarray(local[f"{KEPT}{name}"]) for name in TABLES)
    sampling = Sampling.of(shard, graph, globals, np.asarray(local["token_topic"]), tables, rows)
    found = sampling.run(stream)
    parts = {"word_topic": gibbs.changes(rows, sampling.row[:, : globals["alpha"].size])}
    parts.update(_moved_above(sampling, globals))
    below = slice(graph.above, None)
    roots = np.diff(graph.node_edges)[below] == 0
    parts.update(
        node_sums(
            graph.node_kind[below], roots, found["node_customers"][below], found["node_tables"][below], globals, stream
        )
    )
    parts["stirling"] = fresh(found["sums"][:, 0], "kind")
    parts["joins"] = fresh(found["sums"][:, 1], "kind")
    if found["rising"].size:
        parts["rising"] = fresh(found["rising"][: globals["alpha"].size], "topic")
    parts.update(documents=fresh(float(shard.documents)), tokens=fresh(float(shard.tokens)))
    ids = {**gibbs.ids_of(shard, globals["alpha"].size), "tables": np.arange(parts["tables"].values.shape[1])}
    return sampling.local(), Delta(parts, ids, {"kernel": time.perf_counter() - began})


def _moved_above(sampling: Sampling, before: Arrays) -> dict[str, Part]:
    """Return by how much the counts of vectors above documents have moved."""
    parts = {}
    for name, dim, after in zip(("vector_topic", "vector_tables"), ("vector", "link"), sampling.above, strict=True):
        topics = before[name].shape[1]
        parts[name] = change(after[:, :topics].astype(np.int64) - before[name], dim, "topic")
    return parts


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


def fold(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Add the rows of a delta to a block of the vocabulary."""
    if variational(globals):
        return networkexpected.fold(block, delta, globals)
    return gibbs.fold(block, delta, priors(globals))


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Give the rows and globals with which a shard sweeps once more before its delta is reduced."""
    if variational(globals):
        return networkexpected.advance(rows, delta, globals)
    after, moved = gibbs.advance(rows, delta)
    above = {name: globals[name] + delta[name] for name in ("vector_topic", "vector_tables")}
    return after, {**globals, **above, "topic": globals["topic"] + moved}


def finish(block: Arrays, globals: Arrays) -> Arrays:
    """Give the rows that a finished model keeps."""
    return block


def settle(shard: Shard, rows: Arrays, globals: Arrays, stream: Stream) -> Arrays:
    """Sample unseen documents with topics and the vectors above them held fixed; keep the means of their vectors.

    Parameters
    ----------
    shard : Shard
        The documents.
    rows : Arrays
        Of its words.
    globals : Arrays
        The model's.
    stream : Stream
        Addressed to the shard.

    Returns
    -------
    Arrays
        ``document_vectors``, float32, shape (nodes of documents, topics), the means of E[nu_j] over samples; and the
        graph.
    """
    if variational(globals):
        return networkexpected.settle(shard, rows, globals)
    graph, topics = Graph.of(shard, globals), globals["alpha"].size
    given = priors(globals)
    alike = np.ones((shard.documents, 1)) * given.topics / given.concentration
    warm = {"document_topic": alike, "word_topic": word_probability(rows, globals)}
    token_topic = gibbs.drawn(shard, topics, topics, stream, warm)
    sampling = Sampling.of(shard, graph, globals, token_topic, no_tables(graph), rows)
    sampling.run(stream, entering=True, held=True)
    mean = np.zeros((int(graph.nodes[-1]) - graph.above, topics), dtype=np.float32)
    for number in range(BURN + SAMPLES if shard.tokens else 1):
        if shard.tokens:
            sampling.run(stream.at(purpose=f"{stream.purpose} {number}"), held=True)
        if number >= BURN or not shard.tokens:
            mean += vectors(sampling.local(), globals)
    mean /= SAMPLES if shard.tokens else 1
    return {**graph.local(), f"{KEPT}vectors": mean, f"{KEPT}tokens": shard.lengths}


def vectors(local: Arrays, globals: Arrays) -> npt.NDArray[np.float32]:
    """Return E[nu_j] of the nodes of documents given the counts, float32, shape (nodes of documents, topics)."""
    if f"{KEPT}vectors" in local:
        return np.asarray(local[f"{KEPT}vectors"])
    if variational(globals):
        return networkexpected.vectors(local, globals)
    graph, topics = Graph.kept(local), globals["alpha"].size
    columns = padded(topics)
    above = [wide(np.asarray(globals[name]), columns, np.int32) for name in ("vector_topic", "vector_tables")]
    tables = [np.asarray(local[f"{KEPT}{name}"]) for name in TABLES]
    own = [np.asarray(local[f"{KEPT}{name}"]) for name in OWN]
    most = int(max(np.max(local[f"{KEPT}tokens"], initial=0), above[0].max(initial=0), 1))
    found = np.empty((int(graph.nodes[-1]) - graph.above, topics), dtype=np.float32)
    arguments: Any = (
        graph.node_kind, graph.node_edges, graph.edge_parent, graph.edge_mixing, graph.nodes,
        np.asarray(globals["strength"]), np.asarray(globals["discount"]),
        wide(np.asarray(globals["alpha"]), columns, np.float64), tables_for(globals["discount"], most), *tables, *own,
        *above, found,
    )  # fmt: skip
    network_means(*arguments)
    return found


def probabilities(rows: Arrays, globals: Arrays) -> Arrays:
    """Give phi_kw of the words at hand, of the last sample."""
    return {"word_topic": word_probability(rows, globals)}


def predict(heldout: Shard, local: Arrays, rows: Arrays, globals: Arrays) -> Arrays:
    """Give each held-out pair's probability sum_k E[nu_jk] phi_kw, j being the vector that its segment draws from.

    Parameters
    ----------
    heldout : Shard
        Held-out pairs; without segments they are drawn from what documents expect as a whole.
    local, rows, globals : Arrays
        As for `Sweeps.predict`.

    Returns
    -------
    Arrays
        ``probability``, float64, shape (pairs,).

    Raises
    ------
    MismatchError
        A document has other segments than it was fitted with.
    """
    graph, given = Graph.kept(local), vectors(local, globals)
    if heldout.segments is None:
        mean, node, pairs = document_vectors(local, globals), np.arange(heldout.documents), heldout.offsets
    else:
        wrong = np.flatnonzero(np.diff(heldout.segments.documents) != np.diff(graph.segments))
        if wrong.size:
            one = int(wrong[0])
            raise MismatchError(
                f"expected the segments that document {one} of shard {heldout.number} was fitted with, "
                f"{int(np.diff(graph.segments)[one])}; found {int(np.diff(heldout.segments.documents)[one])} held out"
            )
        mean, node, pairs = given, graph.segment_node - graph.above, heldout.segments.pairs
    probability = np.empty(heldout.pairs)
    dot_pairs(pairs, node, heldout.position, mean, word_probability(rows, globals), probability)
    return {"probability": probability}


def document_vectors(local: Arrays, globals: Arrays) -> npt.NDArray[np.float32]:
    """Return what documents expect of topics as a whole: their own vector, or the mean of their segments'."""
    graph, given = Graph.kept(local), vectors(local, globals)
    if (graph.document_node >= 0).all():
        return given[graph.document_node - graph.above]
    each = np.diff(graph.segments)
    owner = np.repeat(np.arange(each.size), each)
    found = np.zeros((each.size, given.shape[1]))
    np.add.at(found, owner, given[graph.segment_node - graph.above])
    alpha = np.asarray(globals["alpha"])
    found[each == 0] = alpha / alpha.sum()
    return (found / np.maximum(each, 1)[:, np.newaxis]).astype(np.float32)


def infer(local: Arrays, globals: Arrays) -> Arrays:
    """Give the proportions of documents and of their segments; see `Sweeps.infer`."""
    graph, given = Graph.kept(local), vectors(local, globals)
    return {
        "document_topic": document_vectors(local, globals),
        "segment_topic": given[graph.segment_node - graph.above],
        "segments": np.diff(graph.segments),
    }


def lengths(local: Arrays) -> Arrays:
    """Give the tokens of each document."""
    return {"document_tokens": np.asarray(local[f"{KEPT}tokens"], dtype=np.float64)}
