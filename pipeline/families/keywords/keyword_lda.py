"""Topics with keywords: the base model of keyATM (Eshima, Imai and Sasaki 2024), by collapsed variational inference.

`collapsium.workers.families.keywords.keyword_lda` has the model and its update.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from collapsium.pipeline.families import description
from collapsium.pipeline.families.base import FILE_START, Description, Footprint, Resumable, Summary, weighed
from collapsium.pipeline.families.cvb import collapsed, updates
from collapsium.pipeline.families.cvb.collapsed import SCHEDULE, CollapsedOptions
from collapsium.pipeline.families.cvb.seeds import SeededTopic
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb.shard_model import NO_ROWS
from collapsium.workers.families.cvb.states import CollapsedRows
from collapsium.workers.families.keywords.keyword_lda import (
    KeywordGlobalState,
    KeywordShardModel,
    KeywordSums,
    effective,
)

Learned = Literal["alpha", "asymmetric-alpha"]


class KeywordOptions(CollapsedOptions, title="topics with keywords (keyATM), collapsed variational inference"):
    """Options of the family."""

    seeds: tuple[SeededTopic, ...] = Field(
        description="names and keywords of the first topics: a TOML file with a table for each topic, such as "
        'space = ["orbit", "nasa"]',
    )
    topics: int = Field(
        ge=1, le=65_535, description="number of topics K, of which the first have the seeds as keywords"
    )
    alpha: float = Field(0.1, gt=0, description="Dirichlet parameter alpha_k of each topic in a document")
    beta: float = Field(
        100.0, gt=0, description="concentration B of a topic over all words; each has Dirichlet parameter B/W"
    )
    keyword_beta: float = Field(0.1, gt=0, description="Dirichlet parameter of each keyword among those of its topic")
    switch_yes: float = Field(1.0, gt=0, description="first parameter of the Beta prior of a keyword topic's switch")
    switch_no: float = Field(1.0, gt=0, description="second parameter of the Beta prior of a keyword topic's switch")
    order: Literal[0] = Field(0, description="zeroth-order updates (CVB0)")
    flatten: float = Field(
        1.0, gt=0, le=1, description="active responsibilities: power to which a token's weights are raised"
    )
    learn: tuple[Learned, ...] = Field(
        (), description="hyperparameters to learn: alpha (one value) or asymmetric-alpha (one value for each topic)"
    )

    @field_validator("learn")
    @classmethod
    def _one_alpha(cls, learn: tuple[Learned, ...]) -> tuple[Learned, ...]:
        if {"alpha", "asymmetric-alpha"} <= set(learn):
            raise ValueError("name either alpha or asymmetric-alpha")
        return learn

    @field_validator("seeds")
    @classmethod
    def _without_strength(cls, seeds: tuple[SeededTopic, ...]) -> tuple[SeededTopic, ...]:
        if not seeds:
            raise ValueError("expected one topic or more")
        if any(topic.strength != 1.0 for topic in seeds):
            raise ValueError("expected seeds without strength, as the family learns the share of keywords")
        return seeds

    @property
    def needs_tables(self) -> bool:
        """True if E[s_k] is summed, to learn a_k."""
        return bool(self.learn)

    @property
    def needs_moments(self) -> bool:
        """False, as no parameter of words is learned."""
        return False


class KeywordLda(Resumable[KeywordOptions, KeywordGlobalState, CollapsedRows]):
    """Topics with keywords by collapsed variational inference."""

    shard_model, Options = KeywordShardModel, KeywordOptions
    # The first topics are those of the keywords, which a file may know and clusters do not.
    starts = (FILE_START,)

    def initialise(self, summary: Summary, options: KeywordOptions, stream: Stream) -> KeywordGlobalState:
        """Return the global state before any document was swept."""
        none = np.zeros(0, dtype=np.int64)
        words, topics = (none, none) if summary.seeds is None else (summary.seeds.words, summary.seeds.topics)
        return KeywordGlobalState(
            **collapsed.initial_counts(summary, options, stream),
            beta=options.beta,
            alpha=np.full(options.topics, options.alpha),
            keyword_words=words,
            keyword_topics=topics,
            keyword_counts=np.zeros(words.size),
            keyword_beta=options.keyword_beta,
            switch_prior=np.array([options.switch_yes, options.switch_no]),
            keyword_means=None if summary.weights is None else summary.weights.means[words].astype(np.float64),
        )

    def footprint(self, summary: Summary, options: KeywordOptions) -> Footprint:
        """Return the memory that the state of a fit takes."""
        return weighed(collapsed.footprint(summary, options, moments=False), summary.pairs, options.weights)

    def word_concentration(self, global_state: KeywordGlobalState) -> float:
        """Return B."""
        return global_state.beta

    def carry(
        self,
        global_state: KeywordGlobalState,
        known: KeywordGlobalState,
        options: KeywordOptions,
        before: KeywordOptions,
    ) -> tuple[KeywordGlobalState, int] | None:
        """Return the global state with a_k as another run has learned them."""
        same = options.topics == before.topics and options.active == before.active and options.seeds == before.seeds
        if not same:
            return None
        return replace(global_state, alpha=known.alpha if options.learn else global_state.alpha), options.topics

    def update(
        self, global_state: KeywordGlobalState, delta: Delta, options: KeywordOptions, stream: Stream
    ) -> KeywordGlobalState:
        """Return the next global state: changed counts, the keywords' E[m_kw], and a_k if they are learned."""
        after, sums = updates.of_corpus(global_state, delta)
        parameters = self.shard_model(options).update_parameters(NO_ROWS, global_state)
        after = updates.counted(global_state, after, delta, parameters)
        cells = delta.read(KeywordSums)
        if cells is not None:
            after = after.with_switches(cells.keyword_cells)
        if sums is not None and sums.tables is not None and options.learn and sums.log_eta < 0:
            tables = sums.tables if "asymmetric-alpha" in options.learn else np.full(options.topics, sums.tables.mean())
            after = replace(after, alpha=np.maximum(tables / -sums.log_eta, SCHEDULE.min_parameter))
        return after

    def figures(self, global_state: KeywordGlobalState) -> dict[str, float]:
        """Return the mean a_k, and the share of the keyword topics' tokens that come from keywords."""
        topics = np.unique(global_state.keyword_topics)
        tokens = float(global_state.topic_moments[0][topics].sum())
        share = float(global_state.keyword_counts.sum()) / max(tokens, 1e-300) if tokens else 0.0
        return {"alpha": float(global_state.alpha.mean()), "keyword_share": share}

    def describe(self, block: CollapsedRows, global_state: KeywordGlobalState, count: int) -> Description:
        """Describe the topics, the largest first, by p_kw."""
        tokens = global_state.topic_moments[0]
        rows, totals = effective(block, global_state)
        words = np.full(rows.words, global_state.beta / global_state.vocabulary)
        totals_of_topics = totals.topic_moments[0]
        return description.describe(rows.dense_counts, words, global_state.beta, totals_of_topics, count, tokens)
