"""Networks of probability vectors by expected tables, beside a shard: the sibling of the sampler of `network`.

Each pair has responsibilities over a few topics (`kernels.networks.responsibilities`), shared by its tokens. From them
follow the expected counts of nodes, expected tables, as CV-HDP expects them, and expected vectors
(`kernels.networks.updates`). Shared nodes are fixed while shards are swept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.segments import Segments
from collapsium.workers import special_functions as special
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Arrays, Delta, Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.networks.common import hyperparameters, node_pairs, priors, word_probability
from collapsium.workers.families.networks.graph import KEPT, Graph
from collapsium.workers.kernels.cvb.active import UNIT
from collapsium.workers.kernels.jit import Kernel
from collapsium.workers.kernels.networks.expected_records import (
    ExpectedStatistics,
    ExpectedSweepResults,
    ExpectedWordCounts,
    NewOwnExpectedTopics,
    NewResponsibilities,
    NodeDocuments,
    OwnExpectedTopics,
    Responsibilities,
    SharedVectors,
)
from collapsium.workers.kernels.networks.means import pair_probabilities
from collapsium.workers.kernels.networks.responsibilities import (
    MAX_TOPICS,
    count_expected_node_topics,
    count_responsibilities,
    initialise_responsibilities,
)
from collapsium.workers.kernels.networks.updates import expect_shared_nodes, expected_means, sweep_expected
from collapsium.workers.kernels.records import DocumentPairs
from collapsium.workers.special_functions import digamma

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Vector = npt.NDArray[np.float64]

KERNELS = (
    sweep_expected,
    count_expected_node_topics,
    count_responsibilities,
    expected_means,
    expect_shared_nodes,
    pair_probabilities,
)
PAIRS = ("pair_sizes", "pair_topics", "pair_shares")
OWN = ("own_lists", "own_topics", "own_counts", "own_absent")
FIRST, TOGETHER = 8, 64  # topics that pairs begin with, those of so many tokens the same ones
FOLD_IN_SWEEPS = 50  # over unseen documents


def kernels() -> Sequence[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    return KERNELS


def blank(words: int, topics: int) -> Arrays:
    """Make the rows of words that have no token yet."""
    return {"word_topic": np.zeros((words, topics))}


def room_for(pairs: int, topics: int) -> NewResponsibilities:
    """Return room for the responsibilities of pairs."""
    room = pairs * min(MAX_TOPICS, topics)
    return NewResponsibilities(np.zeros(pairs, np.uint8), np.empty(room, np.uint16), np.empty(room, np.uint16))


def start(shard: Shard, globals: Arrays, stream: Stream, warm: Arrays | None = None) -> tuple[Arrays, Delta]:
    """Give the pairs of each few segments the same few topics, drawn at random, or those that another run has for them.

    Parameters
    ----------
    shard, globals, stream, warm
        As for `network.start`.

    Returns
    -------
    local : Arrays
        The local state.
    delta : Delta
        Counts as changes from nothing.

    Raises
    ------
    ValueError
        The other run has more topics.
    """
    topics = globals["alpha"].size
    if warm is None:
        return begun(shard, _drawn(shard, topics, stream), globals)
    theta, phi = (np.ascontiguousarray(warm[name], dtype=np.float32) for name in ("document_topic", "word_topic"))
    if theta.shape[1] > topics:
        raise ValueError(f"a start from {theta.shape[1]} topics needs as many; there are {topics}")
    return begun(shard, proportional(shard, theta, phi), globals)


def _drawn(shard: Shard, topics: int, stream: Stream) -> Responsibilities:
    """Draw the first responsibilities; neighbouring segments share them, until they have `TOGETHER` tokens."""
    generator, some = stream.generator(), min(FIRST, topics)
    segments = shard.segments or Segments.of(shard.offsets, {})
    tokens = np.concatenate([[0], np.cumsum(shard.counts, dtype=np.int64)])
    each = np.diff(tokens[segments.pairs])
    document = np.repeat(np.arange(shard.documents), np.diff(segments.documents))
    before = tokens[segments.pairs[:-1]] - tokens[shard.offsets[:-1]][document]
    first = np.ones(each.size, dtype=bool)
    first[1:] = (document[1:] != document[:-1]) | (before[1:] // TOGETHER != before[:-1] // TOGETHER)
    unit = np.repeat(np.cumsum(first) - 1, np.diff(segments.pairs))
    units = int(first.sum())
    chosen = np.argsort(generator.random((units, topics), dtype=np.float32), axis=1, kind="stable")[:, :some].astype(
        np.uint16
    )
    noise = generator.random((units, some)) + 0.1
    steps = np.floor(noise / noise.sum(axis=1, keepdims=True) * UNIT).astype(np.int64)
    steps[:, 0] += UNIT - steps.sum(axis=1)
    sizes = np.full(shard.pairs, some, dtype=np.uint8)
    return Responsibilities(sizes, chosen[unit].ravel(), steps.astype(np.uint16)[unit].ravel())


def proportional(shard: Shard, theta: npt.NDArray[np.float32], phi: npt.NDArray[np.float32]) -> Responsibilities:
    """Return responsibilities in proportion to theta_dk phi_kw."""
    room, filled = room_for(shard.pairs, theta.shape[1]), np.zeros(1, dtype=np.int64)
    initialise_responsibilities(document_pairs(shard), theta, phi, room, filled)
    return without_room(room, int(filled[0]))


def without_room(responsibilities: NewResponsibilities, entries: int) -> Responsibilities:
    """Return responsibilities without room for more entries than there are."""
    size, topic, share = responsibilities
    return Responsibilities(size, topic[:entries].copy(), share[:entries].copy())


def take(shard: Shard, kept: Arrays, globals: Arrays) -> tuple[Arrays, Delta]:
    """Go on from the responsibilities that another run kept of the shard's pairs."""
    return begun(shard, responsibilities_of(kept), globals)


def responsibilities_of(local: Arrays) -> Responsibilities:
    """Return the responsibilities of a local state."""
    return Responsibilities(*(np.asarray(local[name]) for name in PAIRS))


def own_topics_of(local: Arrays) -> OwnExpectedTopics:
    """Return the counts of nodes' own tokens of a local state."""
    return OwnExpectedTopics(*(np.asarray(local[f"{KEPT}{name}"]) for name in OWN))


def begun(shard: Shard, responsibilities: Responsibilities, globals: Arrays) -> tuple[Arrays, Delta]:
    """Return a shard's first local state, and its counts as changes."""
    graph, topics = Graph.of(shard, globals), globals["alpha"].size
    row = np.zeros((shard.words.size, topics))
    count_responsibilities(shard.position, shard.counts, responsibilities, row)
    local = local_of(shard, graph, responsibilities, topics)
    return local, Delta({"word_topic": change(row, "word", "topic")}, _ids(shard))


def _ids(shard: Shard) -> dict[str, npt.NDArray[Any]]:
    return {"word": shard.words}


def own_topics(shard: Shard, graph: Graph, responsibilities: Responsibilities, topics: int) -> OwnExpectedTopics:
    """Return E[n_jk] and Z[n_jk] of nodes' own tokens."""
    pairs, room = node_pairs(shard, graph), responsibilities.topic.size
    own = NewOwnExpectedTopics(
        np.zeros(pairs.size, np.int64),
        np.empty(room, np.uint16),
        np.empty(room, np.float32),
        np.empty(room, np.float32),
    )
    count_expected_node_topics(pairs, shard.counts, responsibilities, topics, own)
    offsets, *entries = own
    return OwnExpectedTopics(offsets, *(values[: int(offsets[-1])].copy() for values in entries))


def local_of(
    shard: Shard, graph: Graph, responsibilities: Responsibilities, topics: int
) -> dict[str, npt.NDArray[Any]]:
    """Return the local state."""
    own = own_topics(shard, graph, responsibilities, topics)
    return {
        **{name: np.asarray(values) for name, values in zip(PAIRS, responsibilities, strict=True)},
        **graph.local(),
        **{f"{KEPT}{name}": np.asarray(values) for name, values in zip(OWN, own, strict=True)},
        f"{KEPT}tokens": shard.lengths,
    }


def shared_vectors(globals: Arrays) -> SharedVectors:
    """Return the expected vectors of shared nodes."""
    return SharedVectors(np.asarray(globals["vector_mean"]), np.asarray(globals["vector_response"]))


def sweep(shard: Shard, local: Arrays, rows: Arrays, globals: Arrays) -> tuple[Arrays, Delta]:
    """Pass once over a shard; its delta has what `collapsium.pipeline.families.networks.variational.update` takes."""
    began = time.perf_counter()
    graph, given_, topics = Graph.kept(local), priors(globals), globals["alpha"].size
    running = buffers.empty((shard.words.size, topics), np.float32)
    np.add(rows["word_topic"], given_.word, out=running, casting="same_kind")
    totals, moved = np.asarray(globals["topic"]) + given_.total, np.zeros((shard.words.size, topics))
    learning = bool(globals["learn_alpha"])
    words = ExpectedWordCounts(running, totals, moved, given_.word, int(False))
    responsibilities, results = _swept(shard, graph, local, globals, words, learning=learning)
    statistics = results.statistics
    parts: dict[str, Part] = {"word_topic": change(moved, "word", "topic")}
    parts["vector_topic"] = fresh(results.shared_customers, "vector", "topic")
    parts["vector_absent"] = fresh(results.shared_log_absent, "vector", "topic")
    below = slice(graph.above, None)
    roots = np.diff(graph.node_edges)[below] == 0
    parts.update(node_sums(graph.node_kind[below], roots, statistics.customers, statistics.tables, globals))
    if learning:
        parts["rising"] = fresh(statistics.alpha_numerator, "topic")
    parts["log_likelihood"] = fresh(float(results.sums[0]))
    parts.update(documents=fresh(float(shard.documents)), tokens=fresh(float(shard.tokens)))
    after = local_of(shard, graph, responsibilities, topics)
    return after, Delta(parts, _ids(shard), {"kernel": time.perf_counter() - began})


def _swept(
    shard: Shard, graph: Graph, local: Arrays, globals: Arrays, words: ExpectedWordCounts, *, learning: bool
) -> tuple[Responsibilities, ExpectedSweepResults]:
    """Update the pairs of a shard; see `sweep_expected`."""
    topics, nodes = globals["alpha"].size, int(graph.nodes[-1]) - graph.above
    documents = NodeDocuments(graph.nodes, DocumentPairs(node_pairs(shard, graph), shard.position, shard.counts))
    results = ExpectedSweepResults(
        room_for(shard.pairs, topics),
        ExpectedStatistics(np.zeros(nodes), np.zeros(nodes), np.zeros(topics if learning else 0)),
        np.zeros((graph.above, topics)),
        np.zeros((graph.above, topics)),
        np.zeros(2),
    )
    sweep_expected(
        graph.arrays(),
        documents,
        hyperparameters(globals),
        shared_vectors(globals),
        words,
        own_topics_of(local),
        responsibilities_of(local),
        results,
    )
    return without_room(results.responsibilities, int(results.sums[1])), results


def node_sums(
    kind: npt.NDArray[np.int32], roots: npt.NDArray[np.bool_], customers: Vector, tables: Vector, globals: Arrays
) -> dict[str, Part]:
    """Sum over nodes what strengths need of their expected customers M and tables T.

    Parameters
    ----------
    kind : numpy.ndarray of int32, shape (nodes,)
        Their kinds.
    roots : numpy.ndarray of bool, shape (nodes,)
        Which have no parents.
    customers, tables : numpy.ndarray of float64, shape (nodes,)
        M and T.
    globals : Arrays
        With b, a and alpha.

    Returns
    -------
    dict of str to Part
        By kind ``opened``, the sum of (b/a) (psi(b/a + T) - psi(b/a)), or of T where a = 0, and ``log_q``, that of
        psi(b + M) - psi(b); and ``log_eta``, over roots the sum of psi(A) - psi(A + M).
    """
    strength, discount, total = globals["strength"], globals["discount"], float(np.sum(globals["alpha"]))
    here = customers > 0
    below, top = here & ~roots, here & roots
    own = kind[below]
    b, a, opened = strength[own], discount[own], tables[below].astype(np.float64)
    some = a > 0
    ratio = b[some] / a[some]
    opened[some] = ratio * (digamma(ratio + opened[some]) - digamma(ratio))
    log_q = digamma(b + customers[below]) - digamma(b)
    sums = {"opened": opened, "log_q": log_q}
    return {
        **{
            name: fresh(np.bincount(own, each, strength.size).astype(np.float64), "kind") for name, each in sums.items()
        },
        "log_eta": fresh(float((digamma(total) - digamma(total + customers[top])).sum())),
    }


def fold(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Add the rows of a delta to a block of the vocabulary.

    Parameters
    ----------
    block, delta, globals
        As for `network.fold`.

    Returns
    -------
    block : Arrays
        The new rows.
    delta : Delta
        Changes of E[n_k] (``topic``); fresh ``moved``, the sum of absolute changes of E[n_kw], and, where B is learned,
        ``tables_of_words``.
    """
    if "word_topic" not in delta:
        return block, Delta()
    moved, ids = delta["word_topic"], delta.ids.get("word", slice(None))
    after = np.array(block["word_topic"])
    after[ids] += moved
    parts = {"topic": change(moved.sum(axis=0), "topic"), "moved": fresh(float(np.abs(moved).sum()))}
    if bool(globals["learn_beta"]):
        prior, here = priors(globals).word, after[after > 0]
        present = -special.expm1(-here)  # as if many pairs each gave a little
        tables = present * prior * (digamma(prior + here / present) - digamma(prior))
        parts["tables_of_words"] = fresh(float(np.minimum(tables, here).sum()))
    return {"word_topic": after}, Delta(parts)


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Give the rows and globals with which a shard sweeps once more before its delta is reduced."""
    moved = delta["word_topic"]
    return {"word_topic": rows["word_topic"] + moved}, {**globals, "topic": globals["topic"] + moved.sum(axis=0)}


def settle(shard: Shard, rows: Arrays, globals: Arrays) -> Arrays:
    """Update unseen documents with topics and the vectors above them held fixed; see `network.settle`."""
    graph, topics = Graph.of(shard, globals), globals["alpha"].size
    phi = np.ascontiguousarray(word_probability(rows, globals), dtype=np.float32)
    alpha = priors(globals)
    alike = np.tile((alpha.topics / alpha.concentration).astype(np.float32), (shard.documents, 1))
    local = local_of(shard, graph, proportional(shard, alike, phi), topics)
    words = ExpectedWordCounts(phi, np.ones(topics), np.zeros((0, 0)), alpha.word, int(True))
    for _ in range(FOLD_IN_SWEEPS if shard.tokens else 0):
        responsibilities, _ = _swept(shard, graph, local, globals, words, learning=False)
        local = local_of(shard, graph, responsibilities, topics)
    return {name: values for name, values in local.items() if name not in PAIRS}


def vectors(local: Arrays, globals: Arrays) -> npt.NDArray[np.float32]:
    """Return E[nu_j] of the nodes of documents, float32, shape (nodes of documents, topics)."""
    graph = Graph.kept(local)
    mean = np.empty((int(graph.nodes[-1]) - graph.above, globals["alpha"].size), dtype=np.float32)
    expected_means(
        graph.arrays(), graph.nodes, hyperparameters(globals), shared_vectors(globals), own_topics_of(local), mean
    )
    return mean


def expected_above(graph: Graph, globals: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Return what vectors above documents are expected to be, given the customers that documents are to them.

    Parameters
    ----------
    graph : Graph
        Of the vectors above documents alone.
    globals : Arrays
        With ``vector_topic`` and ``vector_absent``.

    Returns
    -------
    dict of str to numpy.ndarray
        ``mean`` and ``response``, shape (vectors, topics); ``node_customers`` and ``node_tables``, M and T; ``rising``.
    """
    topics = globals["alpha"].size
    mean, response = np.zeros((graph.above, topics)), np.zeros((graph.above, topics))
    statistics = ExpectedStatistics(np.zeros(graph.above), np.zeros(graph.above), np.zeros(topics))
    customers, absent = np.asarray(globals["vector_topic"]), np.asarray(globals["vector_absent"])
    expect_shared_nodes(graph.arrays(), hyperparameters(globals), customers, absent, mean, response, statistics)
    return {
        "mean": mean,
        "response": response,
        "node_customers": statistics.customers,
        "node_tables": statistics.tables,
        "rising": statistics.alpha_numerator,
    }
