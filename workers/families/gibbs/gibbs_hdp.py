"""The hierarchical Dirichlet process by direct-assignment Gibbs sampling (Teh, Jordan, Beal and Blei 2006).

theta_d ~ Dir(alpha pi), phi_k ~ Dir(beta tau) with tau_w = 1 / W, pi the sticks of a Dirichlet process of
concentration gamma, and pi_u the part of pi of topics that do not exist yet; alpha, gamma ~ Gamma(shape, rate): p(z =
k) ~ (n_dk' + alpha pi_k) (n_kw' + beta tau_w) / (n_k' + beta), p(z = new) ~ alpha pi_u tau_w.

A topic is a slot, whose number is its id: a column of the counts. A shard may take free slots whose number leaves the
same remainder as its own by ``lanes``, so topics that are created in different shards in one iteration stay apart;
with more shards than lanes, new topics in one lane meet in a slot and are one topic from then on, as all
do in HD-HDP (Newman, Asuncion, Smyth and Welling 2009), whose approximation this is. One shard alone samples exactly.
Topics are born and die: nothing is truncated.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from collapsium.storage.errors import NumericalError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.annotations import non_negative, numbers
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays, CheckContext, State
from collapsium.workers.families import generative
from collapsium.workers.families.description import holding
from collapsium.workers.families.document_entries import MIN_POSITIVE
from collapsium.workers.families.family import FamilyOptions, Footprint, Summary
from collapsium.workers.families.gibbs.sampler import (
    SIMULATED_CONCENTRATION,
    SIMULATED_TOKENS,
    FreeTopicsFamily,
    Slots,
    count_documents,
    delta_ids,
    document_sums,
    footprint,
    padded,
    sweep_shard,
    topic_changes,
    word_changes,
)
from collapsium.workers.families.gibbs.states import (
    MAX_TOPICS,
    Counts,
    GibbsLocal,
    SampledGlobalState,
    SampledRows,
    Vector,
    added_counts,
)
from collapsium.workers.kernels.cvb.words import active_probability, log_eta
from collapsium.workers.kernels.gibbs.topics import draw_tables, list_documents, sweep_tokens, word_rising
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.options import Formerly

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents, Shard


@dataclass(frozen=True)
class GibbsHdpGlobalState(SampledGlobalState):
    """Global state of the hierarchical Dirichlet process."""

    grows = True

    # Concentrations of a document and of the sticks
    alpha: Annotated[float, numbers(low=MIN_POSITIVE)]
    gamma: Annotated[float, numbers(low=MIN_POSITIVE)]
    pi: Annotated[Vector, non_negative("topic")]  # Weights of the topics; 0 of free slots
    free: Annotated[npt.NDArray[np.bool_], numbers("topic")]  # Whether no topic has a slot
    start_topics: Annotated[int, numbers("", 1, MAX_TOPICS)]  # Topics over which tokens are spread at the start
    lanes: Annotated[int, numbers("", 1, MAX_TOPICS)]  # Shards whose new topics stay apart

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of free slots, which have no tokens, and of topics with tokens, which have a weight."""
        yield from super().faults(context)
        for name, values in (("pi", self.pi), ("topic", self.topic)):
            if (np.asarray(values)[self.free] > 0).any():
                yield f"expected nothing of free columns in '{name}'"
        simulated = self.topic.dtype.kind != "i"
        if not simulated and (np.asarray(self.pi)[np.asarray(self.topic) > 0] <= 0).any():
            yield "expected positive shares of the topics that have tokens in 'pi'"

    @property
    def topic_parameters(self) -> Vector:
        """Dirichlet parameters of the topics in a document, alpha pi_k."""
        return self.alpha * self.pi

    @property
    def concentration(self) -> float:
        """Sum of the Dirichlet parameters of all topics, of those too that do not exist yet."""
        return self.alpha

    @property
    def initial_topics(self) -> int:
        """Number of topics over which tokens are spread at the start."""
        return self.start_topics

    def with_slots(self, columns: int) -> GibbsHdpGlobalState:
        """Return the state with at least a number of slots."""
        added = max(columns - self.pi.size, 0)
        if not added:
            return self
        return replace(
            self,
            pi=np.concatenate([self.pi, np.zeros(added, self.pi.dtype)]),
            topic=np.concatenate([self.topic, np.zeros(added, self.topic.dtype)]),
            free=np.concatenate([self.free, np.ones(added, dtype=bool)]),
        )

    def slots_of(self, shard: int) -> Slots:
        """Return the slots of a shard's new topics."""
        lane, columns, free = shard % self.lanes, self.free.size, np.flatnonzero(self.free)
        lane_slots = [int(slot) for slot in free[free % self.lanes == lane]]
        return Slots(self.gamma, lane_slots, columns + (lane - columns) % self.lanes, self.lanes)


@dataclass(frozen=True)
class GibbsHdpSums(State):
    """Sums of a sweep, from which alpha, gamma and pi are drawn."""

    tables: Vector  # m_k, tables of each topic; float64 (slots,)
    log_stick: float  # sum_d log eta_d, eta_d ~ Beta(alpha, n_d)


@dataclass(frozen=True)
class BornTopics(State):
    """Topics that were created in a sweep."""

    born: Vector  # Their pi_k; 0 of other slots; float64 (slots,)


LANES = 16  # Shards whose new topics stay apart; more share them
MIN_FREE_SLOTS = 2  # Free slots of a lane, at least, before a sweep

Learned = Literal["alpha", "gamma"]


MAX_START_TOPICS = MAX_TOPICS // 2  # Largest number of initial topics, which leaves room for as many new ones


class GibbsHdpOptions(FamilyOptions, title="hierarchical Dirichlet process, Gibbs sampling by direct assignment"):
    """Options of the family."""

    max_start_topics: ClassVar[int | None] = MAX_START_TOPICS

    init_topics: Annotated[int, Formerly("start_topics")] = Field(
        100, ge=1, le=MAX_START_TOPICS, description="initial number of topics; the tokens are spread over them"
    )
    alpha_shape: float = Field(
        4.0, gt=0, description="shape of the Gamma prior of alpha, the concentration of a document's topics"
    )
    alpha_rate: float = Field(4.0, gt=0, description="rate of the Gamma prior of alpha")
    gamma_shape: float = Field(
        7.0, gt=0, description="shape of the Gamma prior of gamma, the concentration of the topics' shares"
    )
    gamma_rate: float = Field(7.0, gt=0, description="rate of the Gamma prior of gamma")
    beta: float = Field(
        100.0,
        gt=0,
        description="concentration beta of a topic over the words; each of the W words has Dirichlet parameter beta/W",
    )
    learn: tuple[Learned, ...] = Field(
        ("alpha", "gamma"),
        description="hyperparameters to sample: alpha, gamma; the others stay at the mean of their prior",
    )


class GibbsHdp(FreeTopicsFamily[GibbsHdpOptions, GibbsHdpGlobalState]):
    """The hierarchical Dirichlet process by direct-assignment Gibbs sampling."""

    global_state_type = GibbsHdpGlobalState
    Options = GibbsHdpOptions

    def initialise(self, summary: Summary, stream: Stream) -> GibbsHdpGlobalState:
        """Return the state before any document was swept: alpha and gamma at their priors' means, pi even."""
        options = self.options
        lanes, first = min(max(summary.shards, 1), LANES), summary.warm or summary.start or options.init_topics
        pi = np.zeros(_columns(first, lanes))
        pi[:first] = 1.0 / (first + 1)
        return GibbsHdpGlobalState(
            vocabulary=float(summary.words),
            beta=options.beta,
            topic=np.zeros(pi.size, dtype=np.int64),
            alpha=options.alpha_shape / options.alpha_rate,
            gamma=options.gamma_shape / options.gamma_rate,
            pi=pi,
            free=pi == 0.0,
            start_topics=first,
            lanes=lanes,
        )

    def carry(
        self,
        global_state: GibbsHdpGlobalState,
        known: GibbsHdpGlobalState,
        before: GibbsHdpOptions,
    ) -> tuple[GibbsHdpGlobalState, int] | None:
        """Return the global state with another run's slots, and its last draws of alpha, gamma and pi."""
        wide = global_state.with_slots(known.pi.size)
        columns = wide.pi.size
        pi = np.concatenate([known.pi, np.zeros(columns - known.pi.size)])
        alpha = known.alpha if "alpha" in self.options.learn else global_state.alpha
        gamma = known.gamma if "gamma" in self.options.learn else global_state.gamma
        return replace(wide, pi=pi, free=pi == 0.0, alpha=alpha, gamma=gamma), columns

    def footprint(self, summary: Summary) -> Footprint:
        """Return the memory of a state with twice the topics that it starts from, and 100 more."""
        first = max(summary.warm, summary.start, self.options.init_topics)
        return footprint(summary, _columns(2 * first + 100, LANES))

    def update(self, global_state: GibbsHdpGlobalState, delta: Delta, stream: Stream) -> GibbsHdpGlobalState:
        """Return the next global state: changed counts, drawn alpha, gamma and pi, and slots for new topics.

        alpha ~ Gamma(a + m, b - sum_d log eta_d), eta_d ~ Beta(alpha, n_d); gamma ~ Gamma(a + K, b - log eta),
        eta ~ Beta(gamma, m); (pi, pi_u) ~ Dir(m_1, ..., m_K, gamma), with m_k tables of topic k and m in all.
        """
        topic, sums = added_counts(global_state.topic, topic_changes(delta)), delta.read(GibbsHdpSums)
        after = replace(global_state.with_slots(topic.size), topic=topic, free=topic == 0)
        if sums is None:
            # Initial topics keep their pi if it covers all, else it is even.
            even, known = 1.0 / (np.count_nonzero(topic) + 1), (topic == 0) | (after.pi > 0)
            after = replace(after, pi=np.where(topic > 0, after.pi if known.all() else even, 0.0))
        else:
            after = _draw_hyperparameters(after, sums, self.options, stream.generator())
        lanes = global_state.lanes
        short = np.bincount(np.flatnonzero(after.free) % lanes, minlength=lanes).min() < max(MIN_FREE_SLOTS, 8 // lanes)
        columns = padded(topic.size + topic.size // 8 + 1) if short else topic.size
        if columns > MAX_TOPICS:
            raise NumericalError(f"the model has more than {MAX_TOPICS} topics; use a smaller gamma or a larger beta")
        return after.with_slots(columns)

    def metrics(self, global_state: GibbsHdpGlobalState) -> dict[str, float]:
        """Return alpha, gamma, the number of topics that have tokens, and of those that hold 99% of them."""
        topics = float(np.count_nonzero(global_state.topic))
        holders = float(holding(global_state.topic))
        return {"alpha": global_state.alpha, "gamma": global_state.gamma, "topics": topics, "topics_99": holders}

    def draw_model(self, summary: Summary, stream: Stream) -> tuple[Arrays, GibbsHdpGlobalState]:
        """Draw the sticks of the first topics, and their words; alpha and gamma are their priors' means."""
        pi = generative.draw_sticks(
            self.options.init_topics, self.options.gamma_shape / self.options.gamma_rate, stream
        )
        tokens = np.maximum(SIMULATED_TOKENS * pi, 1.0)
        drawn = replace(
            self.initialise(summary, stream),
            beta=SIMULATED_CONCENTRATION,
            pi=pi,
            topic=tokens,
            free=pi == 0.0,
        )
        return generative.draw_topics(summary.words, tokens, self.options.beta, stream), drawn

    def simulate(
        self, topics: Arrays, global_state: GibbsHdpGlobalState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, npt.NDArray[np.float64]]:
        """Draw documents, theta_d ~ Dir(alpha pi), and their proportions."""
        prior = global_state.topic_parameters
        return generative.draw_documents(topics, int(global_state.vocabulary), prior, documents, tokens, stream)

    def kernels(self, global_state: GibbsHdpGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        return (sweep_tokens, list_documents, word_rising, log_eta, active_probability, draw_tables)

    def sweep(
        self, shard: Shard, local: GibbsLocal, rows: SampledRows, global_state: GibbsHdpGlobalState, stream: Stream
    ) -> tuple[GibbsLocal, Delta]:
        """Pass once over a shard, then draw the numbers of its tables and its documents' sticks."""
        began, priors = time.perf_counter(), global_state.priors
        slots = global_state.slots_of(shard.number)
        sweep = sweep_shard(shard, local.token_topic, rows.word_topic, global_state.topic, priors, stream, slots)
        columns = sweep.prior.size
        active, sums = count_documents(shard, sweep.token_topic, sweep.prior, tables=False)
        tables, key = np.zeros(columns), stream.at(purpose=f"{stream.purpose} tables").key()
        draw_tables(active.document_topics, active.document_counts, sweep.prior, key, tables)
        free = np.ones(columns, dtype=bool)
        free[: global_state.free.size] = global_state.free
        # The documents that have tokens draw eta_d ~ Beta(alpha, n_d), in logarithms, where a small alpha does not
        # vanish: Gamma(a) is Gamma(a + 1) U^(1/a).
        alpha, lengths = priors.concentration, shard.lengths[shard.lengths > 0].astype(np.float64)
        generator = stream.at(purpose=f"{stream.purpose} sticks").generator()
        log_gamma = special.log(generator.standard_gamma(alpha + 1.0, lengths.size))
        log_gamma -= generator.standard_exponential(lengths.size) / alpha
        log_sticks = log_gamma - np.logaddexp(log_gamma, special.log(generator.standard_gamma(lengths)))
        parts = {
            **sums,
            **document_sums(shard, priors.concentration),
            "word_topic": word_changes(rows.word_topic, sweep.word_topic),
            "tables": fresh(tables, "topic"),
            "born": fresh(np.where(free, sweep.prior, 0.0) / priors.concentration, "topic"),
            "log_stick": fresh(float(log_sticks.sum())),
        }
        seconds = {"kernel": time.perf_counter() - began}
        return GibbsLocal(active, token_topic=sweep.token_topic), Delta(parts, delta_ids(shard, columns), seconds)

    def advance_global_state(
        self, global_state: GibbsHdpGlobalState, delta: Delta, changes: Counts
    ) -> GibbsHdpGlobalState:
        """Return the global state after the changes of a shard, with the topics that were created in it."""
        wide = global_state.with_slots(changes.shape[1])
        topic, births = wide.topic + changes.sum(axis=0, dtype=np.int64), delta.read(BornTopics)
        pi = wide.pi if births is None else wide.pi + births.born
        return replace(wide, topic=topic, pi=np.where(topic > 0, pi, 0.0), free=wide.free & (topic == 0))


def _columns(topics: int, lanes: int) -> int:
    """Return the slots for a number of topics, with some for new topics."""
    return padded(topics + max(MIN_FREE_SLOTS * lanes, 8))


def _draw_hyperparameters(
    global_state: GibbsHdpGlobalState, sums: GibbsHdpSums, options: GibbsHdpOptions, generator: np.random.Generator
) -> GibbsHdpGlobalState:
    """Draw alpha, gamma and pi given the tables of all topics."""
    occupied, total = sums.tables > 0, float(sums.tables.sum())
    alpha, gamma = global_state.alpha, global_state.gamma
    if "alpha" in options.learn:
        alpha = float(generator.gamma(options.alpha_shape + total) / (options.alpha_rate - sums.log_stick))
    if "gamma" in options.learn:
        stick = generator.beta(gamma, total) if total else 1.0
        rate = options.gamma_rate - special.log(max(stick, 1e-300))
        gamma = float(generator.gamma(options.gamma_shape + np.count_nonzero(occupied)) / rate)
    weight = generator.gamma(np.append(sums.tables[occupied], gamma))
    pi = np.zeros(sums.tables.size)
    pi[occupied] = weight[:-1] / weight.sum()
    return replace(global_state, alpha=alpha, gamma=gamma, pi=pi)
