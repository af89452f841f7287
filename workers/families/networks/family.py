"""Networks of probability vectors beside a shard: the functions that their families share.

Families sample topics and tables (`collapsium.workers.families.networks.sampler`), or expect them
(`collapsium.workers.families.networks.variational`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import MismatchError
from collapsium.workers.arrays.delta import Arrays, Delta, Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.gibbs import common as gibbs
from collapsium.workers.families.networks import variational as networkexpected
from collapsium.workers.families.networks.common import hyperparameters, priors, variational, word_probability
from collapsium.workers.families.networks.graph import KEPT, Graph
from collapsium.workers.families.networks.sampler import OWN, TABLES, Sampling, no_tables, node_sums, padded, wide
from collapsium.workers.kernels.gibbs.topics import word_rising
from collapsium.workers.kernels.jit import Kernel
from collapsium.workers.kernels.networks.means import count_node_topics, network_means, pair_probabilities
from collapsium.workers.kernels.networks.records import OwnTopics, TableEntries
from collapsium.workers.kernels.networks.shared_nodes import sweep_shared_nodes
from collapsium.workers.kernels.networks.stirling import fill_ratios
from collapsium.workers.kernels.networks.sweep import sweep_network
from collapsium.workers.kernels.records import DocumentPairs

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

KERNELS = (sweep_network, network_means, count_node_topics, pair_probabilities, word_rising, fill_ratios)

BURN, SAMPLES = 30, 100  # sweeps over unseen documents: until they have settled, and those whose means are taken


def kernels(globals: Arrays) -> Sequence[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    if variational(globals):
        return networkexpected.kernels()
    return [*KERNELS, *([sweep_shared_nodes] if len(globals["vector_topic"]) else [])]


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
    tables = TableEntries(*(np.asarray(local[f"{KEPT}{name}"]) for name in TABLES))
    sampling = Sampling.of(shard, graph, globals, np.asarray(local["token_topic"]), tables, rows)
    statistics = sampling.run(stream)
    parts = {"word_topic": gibbs.changes(rows, sampling.row[:, : globals["alpha"].size])}
    parts.update(_moved_above(sampling, globals))
    below = slice(graph.above, None)
    roots = np.diff(graph.node_edges)[below] == 0
    parts.update(
        node_sums(graph.node_kind[below], roots, statistics.customers[below], statistics.tables[below], globals, stream)
    )
    parts["stirling"] = fresh(statistics.kind_sums[:, 0], "kind")
    parts["joins"] = fresh(statistics.kind_sums[:, 1], "kind")
    if statistics.alpha_numerator.size:
        parts["rising"] = fresh(statistics.alpha_numerator[: globals["alpha"].size], "topic")
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
    shared = [wide(np.asarray(globals[name]), columns, np.int32) for name in ("vector_topic", "vector_tables")]
    tables = TableEntries(*(np.asarray(local[f"{KEPT}{name}"]) for name in TABLES))
    own = OwnTopics(*(np.asarray(local[f"{KEPT}{name}"]) for name in OWN))
    parameters = hyperparameters(globals)
    parameters = parameters._replace(alpha=wide(parameters.alpha, columns, np.float64))
    mean = np.empty((int(graph.nodes[-1]) - graph.above, topics), dtype=np.float32)
    network_means(graph.arrays(), graph.nodes, parameters, tables, own, shared[0], shared[1], mean)
    return mean


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
    segments = DocumentPairs(pairs, heldout.position, heldout.counts)
    pair_probabilities(segments, node, mean, word_probability(rows, globals), probability)
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
