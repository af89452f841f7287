"""Families of networks of probability vectors (Buntine, Du and Nurmi 2010)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar

import numpy as np

from collapsium.storage.corpus.label_index import LabelTable
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays, State
from collapsium.workers.families import description
from collapsium.workers.families import generative as drawing
from collapsium.workers.families.family import (
    COMPUTED_STARTS,
    FILE_START,
    Description,
    Footprint,
    Resumable,
    Simulates,
    Summary,
)
from collapsium.workers.families.gibbs.states import SampledRows
from collapsium.workers.families.networks import sampled
from collapsium.workers.families.networks.graph import LABEL, Graph, Plan, graph_of
from collapsium.workers.families.networks.options import NetworkOptions
from collapsium.workers.families.networks.sampled import MIN_PARAMETER, NODE_BYTES, SEGMENT_PAIRS, SampledNetworkModel
from collapsium.workers.families.networks.states import (
    ExpectedNetworkGlobalState,
    ExpectedRows,
    NetworkGlobalState,
    SampledNetworkGlobalState,
    Vector,
)
from collapsium.workers.families.networks.sums import ExpectedSums, NodeTotals
from collapsium.workers.families.networks.variational import ExpectedNetworkModel, expect_shared
from collapsium.workers.kernels.networks.responsibilities import MAX_TOPICS
from collapsium.workers.special_functions import digamma

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents
    from collapsium.workers.families.networks.options import NetworkOptions


PAIR_BYTES, OWN_BYTES = 4.0, 10.0  # Bytes of an active topic of a pair, and of a topic of a segment
# Assumed active topics of a pair, and the share of them that a segment counts once
PAIR_TOPICS, DISTINCT_SHARE = 8.0, 0.5


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


def with_expected_tables(state: SampledNetworkGlobalState) -> ExpectedNetworkGlobalState:
    """Return the first global state with expected tables."""
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


def footprint(summary: Summary, topics: int) -> Footprint:
    """Return the memory of the state: the active topics of pairs, and the counts of each node's tokens."""
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
    global_state: ExpectedNetworkGlobalState, delta: Delta, options: NetworkOptions
) -> ExpectedNetworkGlobalState:
    """Return the next global state: changed counts, and hyperparameters learned as in CV-HDP.

    With q(b) = Gamma(1 + X, 1/mean + Y), E[b] = (1 + X) / (1/mean + Y), where X is the sum over vectors of T_j without
    discount and of (b/a) (psi(b/a + T_j) - psi(b/a)) with one, and Y that of psi(b + M_j) - psi(b);
    a_k <- sum E[s_jk] / sum [psi(A + M_j) - psi(A)] over roots, and b_w likewise.
    """
    changes, own = delta.read(ExpectedTopicChanges), delta.read(ExpectedRound)
    topic = global_state.topic if changes is None else np.maximum(global_state.topic + changes.topic, 0.0)
    after = replace(global_state, topic=topic)
    if own is None:
        # The start sweeps nothing.
        return after
    after = replace(after, shared_customers=own.shared_customers, shared_log_absent=own.shared_log_absent)
    graph, (after, statistics) = after.plan.shared_graph(), expect_shared(after)
    totals: NodeTotals[Vector] = NodeTotals(graph.node_kind, graph.is_root, statistics.customers, statistics.tables)
    shared = ExpectedSums.of(totals, global_state)
    opened, log_q = own.sums.opened + shared.opened, own.sums.log_q + shared.log_q
    if "strength" in options.learn:
        learned = (1.0 + opened) / (1.0 / options.strength_mean + log_q)
        after = replace(after, strength=np.where(opened > 0, np.maximum(learned, MIN_PARAMETER), after.strength))
    log_eta = own.sums.log_eta + shared.log_eta
    if own.alpha_numerator is not None and log_eta < 0:
        numerator = own.alpha_numerator + statistics.alpha_numerator
        numerator = np.full(options.topics, numerator.mean()) if "alpha" in options.learn else numerator
        after = replace(after, alpha=np.maximum(numerator / -log_eta, MIN_PARAMETER))
    if own.tables_of_words is not None:
        rate = float((digamma(global_state.beta + after.topic) - digamma(global_state.beta)).sum())
        if rate > 0:
            after = replace(after, beta=max(own.tables_of_words / rate, MIN_PARAMETER))
    return expect_shared(after)[0]


def objective(delta: Delta) -> dict[str, float]:
    """Return sum c log sum_k E[nu_j]'(k) phi'_kw, in nats: each word given all others. It is no bound, and may fall."""
    own = delta.read(ExpectedRound)
    return {} if own is None else {"objective": own.log_likelihood}


SEGMENT_TOKENS = 20.0  # Mean tokens of a segment
MODEL_TOKENS = 1e9  # Tokens of a drawn model, so many that its priors have no influence
MODEL_CONCENTRATION = 1e-9  # Concentration over words of a drawn model
# Sticks of a Pitman-Yor process that are broken at most, and the rest below which no more are broken
MAX_STICKS, MIN_REST = 2000, 1e-4
STICKS_TOGETHER = 200  # Sticks that are broken at a time


def draw_model(
    summary: Summary, concentration: float, global_state: NetworkState, stream: Stream
) -> tuple[Arrays, NetworkState]:
    """Draw topics and the vectors of shared nodes, as counts so large that the priors have no effect.

    Returns topics: As `families.generative` keeps them; global_state: The model's global state
    """
    if (global_state.plan.kinds[:, 0] == LABEL).any():
        raise OptionError("documents with labels are not drawn; leave out vectors over labels", "network")
    generator, topics = stream.at(purpose="simulate above").generator(), global_state.alpha.size
    vectors = draw_vectors(global_state.plan.shared_graph(), global_state, np.zeros((0, topics)), generator)
    tokens, customers = np.full(topics, MODEL_TOKENS / topics), np.rint(MODEL_TOKENS * vectors)
    drawn = drawing.draw_topics(summary.words, tokens, concentration, stream)
    if isinstance(global_state, ExpectedNetworkGlobalState):
        known = replace(global_state, topic=tokens, beta=MODEL_CONCENTRATION)
        return drawn, replace(known, shared_customers=customers, shared_mean=vectors)
    counts = customers.astype(np.int64)
    return drawn, replace(global_state, topic=tokens, beta=MODEL_CONCENTRATION, shared_customers=counts)


def simulate(
    topics: Arrays, global_state: NetworkState, documents: int, tokens: float, stream: Stream
) -> tuple[Documents, Vector]:
    """Draw documents of Poisson numbers of segments, of 20 tokens each on average.

    Returns documents: Without ids, with segments; theta: The mean of each document's segments
    """
    from collapsium.storage.building import simulated as corpus_columns

    generator, words = stream.generator(), int(global_state.vocabulary)
    many = np.maximum(generator.poisson(tokens / SEGMENT_TOKENS, documents), 1)
    segments = np.concatenate([[0], np.cumsum(many)]).astype(np.int64)
    none = np.zeros(documents + 1, dtype=np.int64)
    graph = graph_of(global_state.plan, segments, (none, none[:0]))
    shared = np.asarray(global_state.shared_customers, dtype=np.float64)
    shared = shared / np.maximum(shared.sum(axis=1, keepdims=True), 1.0)
    nu = draw_vectors(graph, global_state, shared, generator)[graph.segment_node]
    owner = np.repeat(np.arange(documents), many)
    bags = drawing.draw_bags(topics, words, nu, tokens * documents / owner.size, generator)
    extras = {"segments": corpus_columns.segment_column(many, np.diff(bags.offsets))}
    theta = np.zeros((documents, nu.shape[1]))
    np.add.at(theta, owner, nu)
    simulated = corpus_columns.drawn_documents(bags.offsets[segments], bags.words, bags.counts, extras)
    return simulated, theta / many[:, np.newaxis]


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


NetworkState: TypeAlias = SampledNetworkGlobalState | ExpectedNetworkGlobalState
GlobalStateT = TypeVar("GlobalStateT", bound=NetworkGlobalState)
NetworkRows: TypeAlias = SampledRows | ExpectedRows
OptionsT = TypeVar("OptionsT", bound=NetworkOptions)

INITIAL_DISCOUNT = 0.1  # First discount where it is learned and none is given


class NetworkFamily(Resumable[OptionsT, NetworkState, NetworkRows], Simulates[OptionsT, NetworkState, NetworkRows]):
    """Family of networks; tables are sampled or expected, by the option ``inference``."""

    # The half for the shards, with sampled tables and with expected tables
    shard_model: ClassVar[type[SampledNetworkModel]] = SampledNetworkModel
    expected_model: ClassVar[type[ExpectedNetworkModel]] = ExpectedNetworkModel
    fixed_plan: ClassVar[Plan]  # Kinds of vectors and their parents, where they do not depend on options
    is_sampler = True
    starts = (FILE_START, *COMPUTED_STARTS)

    def make_shard_model(self, options: OptionsT) -> SampledNetworkModel | ExpectedNetworkModel:
        """Return the half for the shards."""
        expected = options.inference == "variational"
        return self.expected_model(options) if expected else self.shard_model(options)

    def plan(self, options: OptionsT, labels: LabelTable | None) -> Plan:
        """Return kinds of vectors and their parents."""
        return self.fixed_plan

    def initialise(self, summary: Summary, options: OptionsT, stream: Stream) -> NetworkState:
        """Return the global state before any document was swept."""
        plan = self.plan(options, summary.labels)
        graph, kinds = plan.shared_graph(), len(plan.kinds)
        discount = INITIAL_DISCOUNT if "discount" in options.learn and not options.discount else options.discount
        state = SampledNetworkGlobalState(
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
        return with_expected_tables(state) if options.inference == "variational" else state

    def carry(
        self, global_state: NetworkState, known: NetworkState, options: OptionsT, before: OptionsT
    ) -> tuple[NetworkState, int] | None:
        """Return the global state of a fit that goes on from another run, whose network has as many kinds."""
        same = options.topics == before.topics and options.inference == before.inference
        if not same or global_state.strength.shape != known.strength.shape:
            return None
        return carry_parameters(global_state, known, options), options.topics

    def footprint(self, summary: Summary, options: OptionsT) -> Footprint:
        """Return the memory that the state of a fit takes."""
        if options.inference == "variational":
            return footprint(summary, options.topics)
        return sampled.footprint(summary, options.topics)

    def update(self, global_state: NetworkState, delta: Delta, options: OptionsT, stream: Stream) -> NetworkState:
        """Return the next global state, from the sums of a round of sweeps."""
        if isinstance(global_state, ExpectedNetworkGlobalState):
            return update(global_state, delta, options)
        return sampled.update(global_state, delta, options, stream)

    def objective(self, global_state: NetworkState, delta: Delta) -> dict[str, float]:
        """Return log p(w, z, s) given the hyperparameters, or the log probability of each pair given all others."""
        if isinstance(global_state, ExpectedNetworkGlobalState):
            return objective(delta)
        return sampled.objective(global_state, delta)

    def figures(self, global_state: NetworkState) -> dict[str, float]:
        """Return the mean alpha_k, B, and the mean b and a of the kinds that have parents."""
        child = np.unique(global_state.plan.links[:, 0])
        figures = {"alpha": float(global_state.alpha.mean()), "beta": global_state.beta}
        if child.size:
            figures["strength"] = float(global_state.strength[child].mean())
            figures["discount"] = float(global_state.discount[child].mean())
        return figures

    def describe(self, block: NetworkRows, global_state: NetworkState, count: int) -> Description:
        """Describe the topics, the largest first."""
        word_topic, topic = (np.asarray(counts, dtype=np.float64) for counts in (block.word_topic, global_state.topic))
        prior = np.full(len(word_topic), global_state.priors.word)
        return description.describe(word_topic, prior, global_state.priors.total, topic, count)

    def word_concentration(self, global_state: NetworkState) -> float:
        """Return B, the concentration of a topic over the words."""
        return global_state.beta

    def label_table(self, global_state: NetworkState) -> LabelTable | None:
        """Return the labels of the training corpus, where labels have vectors."""
        return global_state.plan.labels()

    def draw_model(self, summary: Summary, options: OptionsT, stream: Stream) -> tuple[Arrays, NetworkState]:
        """Draw topics, and vectors of shared nodes, for simulation."""
        return draw_model(summary, options.beta, self.initialise(summary, options, stream), stream)

    def simulate(
        self, topics: Arrays, global_state: NetworkState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, Vector]:
        """Draw documents of segments, and the proportions of whole documents."""
        return simulate(topics, global_state, documents, tokens, stream)


def carry_parameters(global_state: GlobalStateT, known: NetworkState, options: NetworkOptions) -> GlobalStateT:
    """Return a global state with another run's values of the parameters that the options learn."""
    return replace(
        global_state,
        alpha=known.alpha if options.learns_alpha else global_state.alpha,
        beta=known.beta if "beta" in options.learn else global_state.beta,
        strength=known.strength if "strength" in options.learn else global_state.strength,
        discount=known.discount if "discount" in options.learn else global_state.discount,
    )
