"""The driver's half of collapsed Gibbs sampling, which its families share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from collapsium.workers.arrays.delta import Delta
from collapsium.workers.families import description
from collapsium.workers.families.dirichlet import DirichletPriors
from collapsium.workers.families.family import (
    COMPUTED_STARTS,
    FILE_START,
    Description,
    Footprint,
    OptionsT,
    Resumable,
    Simulates,
    Summary,
)
from collapsium.workers.families.gibbs.states import Ints, SampledGlobalState, SampledRows, SampleSums, TopicChanges
from collapsium.workers.families.gibbs.token_counts import padded
from collapsium.workers.special_functions import gammaln

if TYPE_CHECKING:
    from collapsium.workers.arrays.random_streams import Stream

GibbsGlobalStateT = TypeVar("GibbsGlobalStateT", bound=SampledGlobalState)

# Tokens of a model that documents are simulated from: counts are so large that the prior does not show
SIMULATED_TOKENS = 1e9
SIMULATED_CONCENTRATION = 1e-9  # Concentration over words of such a model


class GibbsFamily(
    Resumable[OptionsT, GibbsGlobalStateT, SampledRows],
    Simulates[OptionsT, GibbsGlobalStateT, SampledRows],
):
    """Family of collapsed Gibbs sampling, whose rows are whole counts of tokens by word and topic."""

    is_sampler = True
    starts = (FILE_START, *COMPUTED_STARTS)

    def update(
        self, global_state: GibbsGlobalStateT, delta: Delta, options: OptionsT, stream: Stream
    ) -> GibbsGlobalStateT:
        """Return the global state with the changes of the counts."""
        return global_state.with_changes(topic_changes(delta))

    def objective(self, global_state: GibbsGlobalStateT, delta: Delta) -> dict[str, float]:
        """Return log p(w, z | a, b), in nats, with theta and phi integrated out.

        sum_d log G(A)/G(A+n_d) + sum_dk log G(a_k+n_dk)/G(a_k) + sum_k log G(B)/G(B+n_k) + sum_kw log G(b+n_kw)/G(b).
        """
        sums = delta.read(SampleSums)
        if sums is None:
            return {}
        falling = topics_falling(global_state, delta)
        return {"objective": sums.falling + sums.rising + falling + sums.word_rising}

    def describe(self, block: SampledRows, global_state: GibbsGlobalStateT, count: int) -> Description:
        """Describe the topics that exist, the largest first, by phi_kw = (b + n_kw) / (B + n_k)."""
        return describe_topics(block, global_state.topic, global_state.priors, count)

    def word_concentration(self, global_state: GibbsGlobalStateT) -> float:
        """Return B, the concentration of a topic over the words."""
        return global_state.beta


def topic_changes(delta: Delta) -> Ints | None:
    """Return the changes of n_k in a delta; None where no word has changed."""
    changes = delta.read(TopicChanges)
    return None if changes is None else changes.topic


def topics_falling(global_state: SampledGlobalState, delta: Delta) -> float:
    """Return sum_k log G(B) / G(B + n_k) after a delta."""
    total, topic = global_state.beta, global_state.with_changes(topic_changes(delta)).topic
    return float((gammaln(total) - gammaln(total + topic)).sum())


def describe_topics(block: SampledRows, topic: Ints, priors: DirichletPriors, count: int) -> Description:
    """Describe the topics that exist, the largest first."""
    word_topic, tokens = np.asarray(block.word_topic, dtype=np.float64), np.asarray(topic, np.float64)
    existing = np.flatnonzero(priors.topics > 0.0)
    prior = np.full(len(word_topic), priors.word)
    topics = description.describe(word_topic[:, existing], prior, priors.total, tokens[existing], count)
    return replace(topics, ids=existing[topics.ids])


def footprint(summary: Summary, topics: int) -> Footprint:
    """Return the memory of a state: 2 bytes a token, 6 a topic that a document has, whole counts of 4."""
    tokens = summary.tokens / max(summary.documents, 1)
    pair, document = 2.0 * summary.tokens / max(summary.pairs, 1), 6.0 * min(topics, tokens) + 16.0
    return Footprint(
        rows=4.0 * topics,
        shown=4.0 * topics,
        swept=4.0 * padded(topics),
        delta=4.0 * topics,
        pair=pair,
        document=document,
        chunk=2.0 * (pair * summary.pairs + document * summary.documents) + 6.0 * summary.tokens,
    )
