"""Families of networks of probability vectors (Buntine, Du and Nurmi 2010), with sampled or expected tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, model_validator

from collapsium.storage.corpus.labels import LabelTable
from collapsium.storage.errors import MismatchError, OptionError
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families import description
from collapsium.workers.families import generative as drawing
from collapsium.workers.families.family import (
    COMPUTED_STARTS,
    FILE_START,
    Description,
    FamilyOptions,
    Resumable,
    Simulates,
    Summary,
    one_alpha,
)
from collapsium.workers.families.gibbs.sampler import CountedTopics
from collapsium.workers.families.gibbs.states import SampledRows
from collapsium.workers.families.networks.graph import LABEL, Graph, graph_of
from collapsium.workers.families.networks.states import (
    ExpectedNetworkGlobalState,
    ExpectedRows,
    NetworkDocuments,
    NetworkGlobalState,
    SampledNetworkGlobalState,
    Vector,
)
from collapsium.workers.kernels.jit import DocumentPairs
from collapsium.workers.kernels.networks.means import pair_probabilities

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents, Shard
    from collapsium.workers.families.networks.graph import Plan


Learned = Literal["alpha", "asymmetric-alpha", "beta", "strength", "discount"]


class NetworkOptions(FamilyOptions):
    """Options of all families of networks."""

    topics: int = Field(ge=1, le=65_535, description="number of topics K")
    alpha: float = Field(0.1, gt=0, description="Dirichlet parameter alpha_k of each topic, in vectors without parents")
    beta: float = Field(
        100.0,
        gt=0,
        description="concentration beta of a topic over the words; each of the W words has Dirichlet parameter beta/W",
    )
    strength: float = Field(
        10.0, gt=0, description="concentration b of a vector around its parents; its initial value if it is learned"
    )
    discount: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="discount a of the Pitman-Yor process; 0 is a Dirichlet process. If it is learned and 0, "
        "it starts at 0.1",
    )
    strength_mean: float = Field(1000.0, gt=0, description="mean of the exponential prior of b, if b is learned")
    learn: Annotated[tuple[Learned, ...], AfterValidator(one_alpha)] = Field(
        ("strength",),
        description="hyperparameters to learn: alpha (one value), asymmetric-alpha (one value for each "
        "topic), beta, strength (b) and discount (a); b and a have one value for each kind of "
        "vectors",
    )
    inference: Literal["gibbs", "variational"] = Field(
        "gibbs",
        description="gibbs: sample topics and table counts; variational: use their expectations, as CV-HDP "
        "does, which takes fewer but longer sweeps; the discount is then fixed",
    )
    tables: bool = Field(True, description="sample the table counts again after the tokens, so that chains mix faster")

    @property
    def learns_alpha(self) -> bool:
        """True if alpha is learned, one value for all topics or a value for each."""
        return bool({"alpha", "asymmetric-alpha"} & set(self.learn))

    @property
    def unused(self) -> dict[str, str]:
        """Options without effect under these options, and for each the condition under which it applies."""
        return {} if "strength" in self.learn else {"strength_mean": "`learn` strength"}

    @model_validator(mode="after")
    def _expected_discount(self) -> Self:
        if self.inference == "variational" and "discount" in self.learn:
            raise OptionError("discount is fixed with `inference` variational; leave it out, or use gibbs", "learn")
        return self

    @abstractmethod
    def plan(self, labels: LabelTable | None) -> Plan:
        """Return the kinds of vectors and their parents; raise `OptionError` if the corpus has no labels of a field."""


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
    CountedTopics[NetworkOptions, GlobalStateT, RowsT, LocalT],
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

    def metrics(self, global_state: GlobalStateT) -> dict[str, float]:
        """Return the mean alpha_k, B, and the mean b and a of the kinds that have parents."""
        child = np.unique(global_state.plan.links[:, 0])
        metrics = {"alpha": float(global_state.alpha.mean()), "beta": global_state.beta}
        if child.size:
            metrics["strength"] = float(global_state.strength[child].mean())
            metrics["discount"] = float(global_state.discount[child].mean())
        return metrics

    def describe(self, block: RowsT, global_state: GlobalStateT, count: int) -> Description:
        """Describe the topics, the largest first."""
        word_topic, topic = (np.asarray(counts, dtype=np.float64) for counts in (block.word_topic, global_state.topic))
        prior = np.full(len(word_topic), global_state.priors.word)
        return description.describe(word_topic, prior, global_state.priors.total, topic, count)

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
        from collapsium.storage.corpus import writer

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
        extras = {"segments": writer.segment_column(segment_counts, np.diff(bags.offsets))}
        theta = np.zeros((documents, nu.shape[1]))
        np.add.at(theta, owner, nu)
        simulated = writer.drawn_documents(bags.offsets[segments], bags.words, bags.counts, extras)
        return simulated, theta / segment_counts[:, np.newaxis]

    @abstractmethod
    def node_vectors(self, documents: Any, global_state: GlobalStateT) -> npt.NDArray[np.float32]:
        """Return E[nu_j] of the nodes of documents, shape (nodes of documents, topics)."""

    def document_lengths(self, local: LocalT) -> Vector:
        """Return the tokens of each document."""
        return np.asarray(local.document_tokens, dtype=np.float64)

    def predict(self, heldout: Shard, local: LocalT, rows: RowsT, global_state: GlobalStateT) -> Mapping[str, Any]:
        """Return each held-out pair's probability sum_k E[nu_jk] phi_kw, j being the node of its segment."""
        graph, vectors = local.graph, self.node_vectors(local, global_state)
        if heldout.segments is None:
            vectors = document_vectors(graph, vectors, global_state.topic_parameters)
            node, offsets = np.arange(heldout.documents), heldout.offsets
        else:
            fitted, held_out = np.diff(graph.document_segments), np.diff(heldout.segments.documents)
            different = np.flatnonzero(held_out != fitted)
            if different.size:
                document = int(different[0])
                raise MismatchError(
                    f"expected the segments that document {document} of shard {heldout.number} was fitted with, "
                    f"{int(fitted[document])}; found {int(held_out[document])} held out"
                )
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
        # From PDP(a, b, mean): a Dirichlet without discount, else by breaking sticks.
        mean, kind = rho @ nu[graph.edge_parent[first:last]], graph.node_kind[node]
        b, a = float(strength[kind]), float(discount[kind])
        if a == 0.0:
            nu[node] = drawing.draw_proportions(b * mean, 1, generator)[0]
            continue
        rest, vector, running = 1.0, np.zeros(mean.size), np.cumsum(mean)
        for broken in range(1, MAX_STICKS, STICKS_TOGETHER):
            number = np.arange(broken, broken + STICKS_TOGETHER)
            left = np.cumprod(1.0 - generator.beta(1.0 - a, b + number * a))
            place = np.searchsorted(running, generator.random(STICKS_TOGETHER) * running[-1], side="right")
            weight = rest * -np.diff(left, prepend=1.0)
            vector += np.bincount(np.minimum(place, mean.size - 1), weight, mean.size)
            rest *= float(left[-1])
            if rest < MIN_REST:
                break
        nu[node] = vector + rest * mean
    return nu


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
