"""Families of networks of probability vectors (Buntine, Du and Nurmi 2010), with sampled or expected tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.label_index import LabelTable
from collapsium.storage.errors import MismatchError, OptionError
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families import description
from collapsium.workers.families import generative as drawing
from collapsium.workers.families.family import (
    COMPUTED_STARTS,
    FILE_START,
    Description,
    Resumable,
    Simulates,
    Summary,
)
from collapsium.workers.families.gibbs.states import SampledRows
from collapsium.workers.families.networks.graph import LABEL, Graph, graph_of
from collapsium.workers.families.networks.options import NetworkOptions
from collapsium.workers.families.networks.states import (
    ExpectedNetworkGlobalState,
    ExpectedRows,
    NetworkDocuments,
    NetworkGlobalState,
    SampledNetworkGlobalState,
    Vector,
)
from collapsium.workers.kernels.networks.means import pair_probabilities
from collapsium.workers.kernels.records import DocumentPairs

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents, Shard
    from collapsium.workers.families.networks.graph import Graph
    from collapsium.workers.families.networks.options import NetworkOptions


MIN_PARAMETER = 1e-8  # Least Dirichlet parameter that learning may reach
NODE_BYTES = 60.0  # Bytes of a node, its edge, and the offsets of its counts
SEGMENT_PAIRS = 5.0  # Assumed pairs of a segment, to estimate memory
INITIAL_DISCOUNT = 0.1  # First discount where it is learned and none is given
SEGMENT_TOKENS = 20.0  # Mean tokens of a segment
MODEL_TOKENS = 1e9  # Tokens of a drawn model, so many that its priors have no influence
MODEL_CONCENTRATION = 1e-9  # Concentration over words of a drawn model
# Sticks of a Pitman-Yor process that are broken at most, and the rest below which no more are broken
MAX_STICKS, MIN_REST = 2000, 1e-4
STICKS_TOGETHER = 200  # Sticks that are broken at a time

GlobalStateT = TypeVar("GlobalStateT", SampledNetworkGlobalState, ExpectedNetworkGlobalState)
RowsT = TypeVar("RowsT", SampledRows, ExpectedRows)
LocalT = TypeVar("LocalT", bound=NetworkDocuments)


class NetworkFamily(
    Resumable[NetworkOptions, GlobalStateT, RowsT, LocalT],
    Simulates[NetworkOptions, GlobalStateT, RowsT, LocalT],
):
    """Family of networks; subclasses sample tables, or expect them."""

    is_sampler = True
    uses_segments = True
    starts = (FILE_START, *COMPUTED_STARTS)

    def sampled_state(self, summary: Summary) -> SampledNetworkGlobalState:
        """Return the first global state of a sampler."""
        options = self.options
        plan = options.plan(summary.labels)
        graph, kinds = plan.shared_graph(), len(plan.kinds)
        discount = INITIAL_DISCOUNT if "discount" in options.learn and not options.discount else options.discount
        return SampledNetworkGlobalState(
            vocabulary=float(summary.words),
            beta=options.beta,
            topic=np.zeros(options.topics, dtype=np.int64),
            alpha=np.full(options.topics, options.alpha),
            strength=np.full(kinds, options.strength),
            discount=np.full(kinds, discount),
            shared_customers=np.zeros((graph.shared, options.topics), dtype=np.int64),
            plan=plan,
            shared_tables=np.zeros((graph.edge_parent.size, options.topics), dtype=np.int64),
        )

    def carry(
        self, global_state: GlobalStateT, known: GlobalStateT, before: NetworkOptions
    ) -> tuple[GlobalStateT, int] | None:
        """Return the global state of a fit that continues another run, whose network has the same number of kinds."""
        same = self.options.topics == before.topics and self.options.inference == before.inference
        if not same or global_state.strength.shape != known.strength.shape:
            return None
        learn = self.options.learn
        after = replace(
            global_state,
            alpha=known.alpha if self.options.learns_alpha else global_state.alpha,
            beta=known.beta if "beta" in learn else global_state.beta,
            strength=known.strength if "strength" in learn else global_state.strength,
            discount=known.discount if "discount" in learn else global_state.discount,
        )
        return after, self.options.topics

    def figures(self, global_state: GlobalStateT) -> dict[str, float]:
        """Return the mean alpha_k, B, and the mean b and a of the kinds that have parents."""
        child = np.unique(global_state.plan.links[:, 0])
        figures = {"alpha": float(global_state.alpha.mean()), "beta": global_state.beta}
        if child.size:
            figures["strength"] = float(global_state.strength[child].mean())
            figures["discount"] = float(global_state.discount[child].mean())
        return figures

    def describe(self, block: RowsT, global_state: GlobalStateT, count: int) -> Description:
        """Describe the topics, the largest first."""
        word_topic, topic = (np.asarray(counts, dtype=np.float64) for counts in (block.word_topic, global_state.topic))
        prior = np.full(len(word_topic), global_state.priors.word)
        return description.describe(word_topic, prior, global_state.priors.total, topic, count)

    def word_concentration(self, global_state: GlobalStateT) -> float:
        """Return B, the concentration of a topic over the words."""
        return global_state.beta

    def label_table(self, global_state: GlobalStateT) -> LabelTable | None:
        """Return the labels of the training corpus, where labels have vectors."""
        return global_state.plan.labels()

    def draw_model(self, summary: Summary, stream: Stream) -> tuple[Arrays, GlobalStateT]:
        """Draw topics and the vectors of shared nodes, as counts so large that the priors have no effect."""
        global_state = self.initialise(summary, stream)
        if (global_state.plan.kinds[:, 0] == LABEL).any():
            raise OptionError("documents with labels are not drawn; leave out vectors over labels", "network")
        generator, topics = stream.at(purpose="simulate above").generator(), global_state.alpha.size
        vectors = draw_vectors(global_state.plan.shared_graph(), global_state, np.zeros((0, topics)), generator)
        tokens, customers = np.full(topics, MODEL_TOKENS / topics), np.rint(MODEL_TOKENS * vectors)
        drawn = drawing.draw_topics(summary.words, tokens, self.options.beta, stream)
        if isinstance(global_state, ExpectedNetworkGlobalState):
            known = replace(global_state, topic=tokens, beta=MODEL_CONCENTRATION)
            return drawn, replace(known, shared_customers=customers, shared_mean=vectors)
        counts = customers.astype(np.int64)
        return drawn, replace(global_state, topic=tokens, beta=MODEL_CONCENTRATION, shared_customers=counts)

    def simulate(
        self, topics: Arrays, global_state: GlobalStateT, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, Vector]:
        """Draw documents of Poisson numbers of segments, of 20 tokens each on average, and their mean vectors."""
        from collapsium.storage.building import simulated as corpus_columns

        generator, words = stream.generator(), int(global_state.vocabulary)
        segment_counts = np.maximum(generator.poisson(tokens / SEGMENT_TOKENS, documents), 1)
        segments = np.concatenate([[0], np.cumsum(segment_counts)]).astype(np.int64)
        none = np.zeros(documents + 1, dtype=np.int64)
        graph = graph_of(global_state.plan, segments, (none, none[:0]))
        shared = np.asarray(global_state.shared_customers, dtype=np.float64)
        shared = shared / np.maximum(shared.sum(axis=1, keepdims=True), 1.0)
        nu = draw_vectors(graph, global_state, shared, generator)[graph.segment_node]
        owner = np.repeat(np.arange(documents), segment_counts)
        bags = drawing.draw_bags(topics, words, nu, tokens * documents / owner.size, generator)
        extras = {"segments": corpus_columns.segment_column(segment_counts, np.diff(bags.offsets))}
        theta = np.zeros((documents, nu.shape[1]))
        np.add.at(theta, owner, nu)
        simulated = corpus_columns.drawn_documents(bags.offsets[segments], bags.words, bags.counts, extras)
        return simulated, theta / segment_counts[:, np.newaxis]

    @abstractmethod
    def node_vectors(self, documents: Any, global_state: GlobalStateT) -> npt.NDArray[np.float32]:
        """Return E[nu_j] of the nodes of documents, shape (nodes of documents, topics)."""

    def word_probability(self, rows: RowsT, global_state: GlobalStateT) -> Vector:
        """Return phi_kw, shape (words, topics)."""
        return global_state.priors.word_probability(rows.word_topic, global_state.topic)

    def probabilities(self, rows: RowsT, global_state: GlobalStateT) -> Mapping[str, Any]:
        """Return phi_kw, by the last sample or by expected counts."""
        return {"word_topic": self.word_probability(rows, global_state)}

    def word_tokens(self, rows: RowsT) -> Vector:
        """Return the tokens of each word."""
        tokens: Vector = np.asarray(rows.word_topic, dtype=np.float64).sum(axis=1)
        return tokens

    def document_lengths(self, local: LocalT) -> Vector:
        """Return the tokens of each document."""
        return np.asarray(local.document_tokens, dtype=np.float64)

    def predict(self, heldout: Shard, local: LocalT, rows: RowsT, global_state: GlobalStateT) -> Mapping[str, Any]:
        """Return each held-out pair's probability sum_k E[nu_jk] phi_kw, j being the node of its segment."""
        graph, vectors = local.graph, self.node_vectors(local, global_state)
        if heldout.segments is None:
            vectors, node = (
                document_vectors(graph, vectors, global_state.topic_parameters),
                np.arange(heldout.documents),
            )
            offsets = heldout.offsets
        else:
            _require_segments(heldout, graph)
            node, offsets = graph.segment_node - graph.shared, heldout.segments.pairs
        probability, phi = np.empty(heldout.pairs), self.word_probability(rows, global_state)
        pair_probabilities(DocumentPairs(offsets, heldout.position, heldout.counts), node, vectors, phi, probability)
        return {"probability": probability}

    def infer(self, local: NetworkDocuments, global_state: GlobalStateT) -> Mapping[str, Any]:
        """Return the proportions of documents and of their segments."""
        graph, vectors = local.graph, self.node_vectors(local, global_state)
        return {
            "document_topic": document_vectors(graph, vectors, global_state.topic_parameters),
            "segment_topic": vectors[graph.segment_node - graph.shared],
            "segments": np.diff(graph.document_segments),
        }


def draw_vectors(
    graph: Graph, global_state: NetworkGlobalState, shared: Vector, generator: np.random.Generator
) -> Vector:
    """Draw all vectors of a network, parents first."""
    alpha, strength, discount = global_state.topic_parameters, global_state.strength, global_state.discount
    nu = np.zeros((graph.node_kind.size, alpha.size))
    nu[: len(shared)] = shared
    for node in range(len(shared), len(nu)):
        first, last = int(graph.node_edges[node]), int(graph.node_edges[node + 1])
        if first == last:
            nu[node] = drawing.draw_proportions(alpha, 1, generator)[0]
            continue
        rho = generator.dirichlet(graph.edge_mixing[first:last]) if last > first + 1 else np.ones(1)
        mean, kind = rho @ nu[graph.edge_parent[first:last]], graph.node_kind[node]
        nu[node] = _draw_about(mean, float(strength[kind]), float(discount[kind]), generator)
    return nu


def _draw_about(mean: Vector, strength: float, discount: float, generator: np.random.Generator) -> Vector:
    """Draw from PDP(a, b, mean): a Dirichlet without discount, else by breaking sticks."""
    if discount == 0.0:
        drawn: Vector = drawing.draw_proportions(strength * mean, 1, generator)[0]
        return drawn
    rest, vector, running = 1.0, np.zeros(mean.size), np.cumsum(mean)
    for first in range(1, MAX_STICKS, STICKS_TOGETHER):
        number = np.arange(first, first + STICKS_TOGETHER)
        left = np.cumprod(1.0 - generator.beta(1.0 - discount, strength + number * discount))
        place = np.searchsorted(running, generator.random(STICKS_TOGETHER) * running[-1], side="right")
        weight = rest * -np.diff(left, prepend=1.0)
        vector += np.bincount(np.minimum(place, mean.size - 1), weight, mean.size)
        rest *= float(left[-1])
        if rest < MIN_REST:
            break
    total: Vector = vector + rest * mean
    return total


def document_vectors(graph: Graph, vectors: npt.NDArray[np.float32], alpha: Vector) -> npt.NDArray[np.float32]:
    """Return the proportions of whole documents: their own vector, or the mean of their segments'."""
    if (graph.document_node >= 0).all():
        return vectors[graph.document_node - graph.shared]
    segments = np.diff(graph.document_segments)
    owner = np.repeat(np.arange(segments.size), segments)
    sums = np.zeros((segments.size, vectors.shape[1]))
    np.add.at(sums, owner, vectors[graph.segment_node - graph.shared])
    sums[segments == 0] = alpha / alpha.sum()
    return (sums / np.maximum(segments, 1)[:, np.newaxis]).astype(np.float32)


def _require_segments(heldout: Shard, graph: Graph) -> None:
    """Refuse held-out pairs of documents that have other segments than they were fitted with."""
    if heldout.segments is None:
        return
    fitted, held_out = np.diff(graph.document_segments), np.diff(heldout.segments.documents)
    different = np.flatnonzero(held_out != fitted)
    if different.size:
        document = int(different[0])
        raise MismatchError(
            f"expected the segments that document {document} of shard {heldout.number} was fitted with, "
            f"{int(fitted[document])}; found {int(held_out[document])} held out"
        )
