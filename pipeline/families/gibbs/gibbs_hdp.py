"""The hierarchical Dirichlet process by direct-assignment Gibbs sampling (Teh, Jordan, Beal and Blei 2006).

theta_d ~ Dir(alpha pi), phi_k ~ Dir(beta tau), pi the sticks of a Dirichlet process of concentration gamma;
alpha, gamma ~ Gamma(shape, rate); tau_w = 1 / W. Topics are born and die: nothing is truncated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from collapsium.pipeline.families import generative
from collapsium.pipeline.families.base import FamilyOptions, Footprint, Summary
from collapsium.pipeline.families.description import holding
from collapsium.pipeline.families.gibbs.sampler import (
    SIMULATED_CONCENTRATION,
    SIMULATED_TOKENS,
    GibbsFamily,
    footprint,
    topic_changes,
)
from collapsium.storage.errors import NumericalError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.gibbs.gibbs_hdp import GibbsHdpGlobalState, GibbsHdpShardModel, GibbsHdpSums
from collapsium.workers.families.gibbs.states import MAX_TOPICS, added_counts
from collapsium.workers.families.gibbs.token_counts import padded

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

LANES = 16  # Shards whose new topics stay apart; more share them
MIN_FREE_SLOTS = 2  # Free slots of a lane, at least, before a sweep

Learned = Literal["alpha", "gamma"]


MAX_START_TOPICS = MAX_TOPICS // 2  # Topics of a start, at most, so that there is room for as many more


class GibbsHdpOptions(FamilyOptions, title="hierarchical Dirichlet process, Gibbs sampling by direct assignment"):
    """Options of the family."""

    max_start_topics: ClassVar[int | None] = MAX_START_TOPICS

    start_topics: int = Field(
        100, ge=1, le=MAX_START_TOPICS, description="number of topics at the start; the tokens are spread over them"
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
        description="concentration B of a topic over the words; each word has Dirichlet parameter B/W, W "
        "being the size of the vocabulary",
    )
    learn: tuple[Learned, ...] = Field(
        ("alpha", "gamma"),
        description="hyperparameters to sample: alpha, gamma; the others stay at the mean of their prior",
    )


class GibbsHdp(GibbsFamily[GibbsHdpOptions, GibbsHdpGlobalState]):
    """The hierarchical Dirichlet process by direct-assignment Gibbs sampling."""

    shard_model = GibbsHdpShardModel
    Options = GibbsHdpOptions

    def initialise(self, summary: Summary, options: GibbsHdpOptions, stream: Stream) -> GibbsHdpGlobalState:
        """Return the state before any document was swept: alpha and gamma at their priors' means, pi even."""
        lanes, first = min(max(summary.shards, 1), LANES), summary.warm or summary.start or options.start_topics
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
        options: GibbsHdpOptions,
        before: GibbsHdpOptions,
    ) -> tuple[GibbsHdpGlobalState, int] | None:
        """Return the global state with another run's slots, and its last draws of alpha, gamma and pi."""
        wide = global_state.with_slots(known.pi.size)
        columns = wide.pi.size
        pi = np.concatenate([known.pi, np.zeros(columns - known.pi.size)])
        alpha = known.alpha if "alpha" in options.learn else global_state.alpha
        gamma = known.gamma if "gamma" in options.learn else global_state.gamma
        return replace(wide, pi=pi, free=pi == 0.0, alpha=alpha, gamma=gamma), columns

    def footprint(self, summary: Summary, options: GibbsHdpOptions) -> Footprint:
        """Return the memory of a state with twice the topics that it starts from, and 100 more."""
        first = max(summary.warm, summary.start, options.start_topics)
        return footprint(summary, _columns(2 * first + 100, LANES))

    def update(
        self, global_state: GibbsHdpGlobalState, delta: Delta, options: GibbsHdpOptions, stream: Stream
    ) -> GibbsHdpGlobalState:
        """Return the next global state: changed counts, drawn alpha, gamma and pi, and slots for new topics.

        alpha ~ Gamma(a + m, b - sum_d log eta_d), eta_d ~ Beta(alpha, n_d); gamma ~ Gamma(a + K, b - log eta),
        eta ~ Beta(gamma, m); (pi, pi_u) ~ Dir(m_1, ..., m_K, gamma), with m_k tables of topic k and m in all.
        """
        topic, sums = added_counts(global_state.topic, topic_changes(delta)), delta.read(GibbsHdpSums)
        after = replace(global_state.with_slots(topic.size), topic=topic, free=topic == 0)
        if sums is None:
            after = replace(after, pi=_initial_pi(after.pi, topic))
        else:
            after = _draw_hyperparameters(after, sums, options, stream.generator())
        lanes = global_state.lanes
        short = np.bincount(np.flatnonzero(after.free) % lanes, minlength=lanes).min() < max(MIN_FREE_SLOTS, 8 // lanes)
        columns = padded(topic.size + topic.size // 8 + 1) if short else topic.size
        if columns > MAX_TOPICS:
            raise NumericalError(f"the model has more than {MAX_TOPICS} topics; use a smaller gamma or a larger beta")
        return after.with_slots(columns)

    def figures(self, global_state: GibbsHdpGlobalState) -> dict[str, float]:
        """Return alpha, gamma, the number of topics that have tokens, and of those that hold 99% of them."""
        topics = float(np.count_nonzero(global_state.topic))
        holders = float(holding(global_state.topic))
        return {"alpha": global_state.alpha, "gamma": global_state.gamma, "topics": topics, "topics_99": holders}

    def draw_model(
        self, summary: Summary, options: GibbsHdpOptions, stream: Stream
    ) -> tuple[Arrays, GibbsHdpGlobalState]:
        """Draw the sticks of the first topics, and their words; alpha and gamma are their priors' means."""
        pi = generative.draw_sticks(options.start_topics, options.gamma_shape / options.gamma_rate, stream)
        tokens = np.maximum(SIMULATED_TOKENS * pi, 1.0)
        drawn = replace(
            self.initialise(summary, options, stream),
            beta=SIMULATED_CONCENTRATION,
            pi=pi,
            topic=tokens,
            free=pi == 0.0,
        )
        return generative.draw_topics(summary.words, tokens, options.beta, stream), drawn

    def simulate(
        self, topics: Arrays, global_state: GibbsHdpGlobalState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, npt.NDArray[np.float64]]:
        """Draw documents, theta_d ~ Dir(alpha pi), and their proportions."""
        prior = global_state.topic_parameters
        return generative.draw_documents(topics, int(global_state.vocabulary), prior, documents, tokens, stream)


def _columns(topics: int, lanes: int) -> int:
    """Return the slots for a number of topics, with some for new topics."""
    return padded(topics + max(MIN_FREE_SLOTS * lanes, 8))


def _initial_pi(pi: npt.NDArray[np.float64], topic: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return pi of the initial topics: unchanged if it covers all, else uniform."""
    even = 1.0 / (np.count_nonzero(topic) + 1)
    known = (topic == 0) | (pi > 0)
    return np.where(topic > 0, pi if known.all() else even, 0.0)


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
