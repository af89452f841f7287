"""Topics with keywords: the base model of keyATM (Eshima, Imai and Sasaki 2024), by collapsed variational inference.

A token of a keyword topic k is drawn from phi_k, over all words, or with probability pi_k from psi_k, over the topic's
keywords V_k: theta_d ~ Dir(a), phi_k ~ Dir(b), psi_k ~ Dir(c), pi_k ~ Beta(g1, g2). With n_kw the tokens of word w in
topic k, of which m_kw come from the keywords, and n0 = n - m, the collapsed probability of w in k is

    p_kw = (n0_kw + b_w) / (n0_k + B) (n0_k + g2) / (n_k + g1 + g2)
         + [w in V_k] (m_kw + c) / (m_k + |V_k| c) (m_k + g1) / (n_k + g1 + g2).

Given its topic, a token's switch depends on its word alone, so that E[m_kw] is E[n_kw] times the share of the second
term in p_kw. Updates are LDA's with p_kw T_k - b_w in place of n_kw, and with T_k in place of B + n_k, where
T_k = (n0_k + B) (n_k + g1 + g2) / (n0_k + g2). This leaves n_kw of words without keywords as it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, field_validator

from collapsium.workers.arrays.annotations import indices, non_negative, numbers
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays, State
from collapsium.workers.families import description
from collapsium.workers.families.cvb import active, collapsed, updates
from collapsium.workers.families.cvb.collapsed import MIN_PARAMETER, NO_ROWS, CollapsedFamily, Local
from collapsium.workers.families.cvb.global_state import CollapsedGlobalState, Ints, Vector
from collapsium.workers.families.cvb.options import CollapsedOptions, SeededTopic
from collapsium.workers.families.cvb.parameters import Parameters, active_settings, counted_in
from collapsium.workers.families.cvb.states import CollapsedRows
from collapsium.workers.families.document_entries import MIN_POSITIVE, MIN_WEIGHT, weighed_rows
from collapsium.workers.families.family import FILE_START, Description, Footprint, Summary, one_alpha
from collapsium.workers.kernels.cvb import warm_start as warm_kernels
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.prediction import DirichletTopics
from collapsium.workers.options import Accepts, Formerly

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


KEYWORD_SHARE = 0.7  # Share of a keyword's tokens that begin in its topics, as in the R package keyATM
START_CONCENTRATION = 1.0  # Dirichlet parameter of the first proportions of documents


SWITCH_ROUNDS = 5  # Rounds of the fixed point of E[m_kw] after a sweep


@dataclass(frozen=True, kw_only=True)
class KeywordGlobalState(CollapsedGlobalState):
    """Global state of topics with keywords."""

    numbers_words = True

    alpha: Annotated[Vector, non_negative("topic")]  # a_k
    # Word and topic of each keyword
    keyword_words: Annotated[Ints, non_negative("keyword")]
    keyword_topics: Annotated[Ints, indices("keyword", below="topic")]
    keyword_counts: Annotated[Vector, non_negative("keyword")]  # E[m_kw]
    keyword_beta: Annotated[float, numbers(low=MIN_POSITIVE)]  # c, the Dirichlet parameter of each keyword in its topic
    switch_prior: Annotated[Vector, numbers("2", low=MIN_POSITIVE)]  # g1 and g2
    # With weights of words, the mean weight of a token of each keyword
    keyword_means: Annotated[Vector | None, numbers("keyword", low=MIN_WEIGHT)] = None

    def by_topic(self, values: Vector) -> Vector:
        """Return sums of keywords' values by topic, shape (topics,)."""
        return np.asarray(np.bincount(self.keyword_topics, values, minlength=self.alpha.size), dtype=np.float64)

    @property
    def effective_totals(self) -> Vector:
        """T_k; B + n_k of topics without keywords."""
        # Tokens that do not come from keywords, n0_k.
        general = np.maximum(self.topic_moments[0] - self.by_topic(self.keyword_counts), 0.0)
        first, second = self.switch_prior
        totals = (general + self.beta) * (self.topic_moments[0] + first + second) / (general + second)
        has_keywords = self.by_topic(np.ones(self.keyword_topics.size)) > 0
        effective: Vector = np.where(has_keywords, totals, self.topic_moments[0] + self.beta)
        return effective

    @property
    def keyword_probability(self) -> Vector:
        """Second term of p_kw for each keyword, shape (keywords,)."""
        first, second = self.switch_prior
        number, totals = self.by_topic(np.ones(self.keyword_topics.size)), self.by_topic(self.keyword_counts)
        switch = (totals + first) / (self.topic_moments[0] + first + second)
        within = (self.keyword_counts + self.keyword_beta) / (totals + np.maximum(number, 1.0) * self.keyword_beta)[
            self.keyword_topics
        ]
        probability: Vector = within * switch[self.keyword_topics]
        return probability

    def with_switches(self, cells: Vector) -> KeywordGlobalState:
        """Return the state with E[m_kw] = E[n_kw] P(keyword | w, k), from E[n_kw] of the keywords."""
        after, word_prior = self, self.beta / self.vocabulary
        for _ in range(SWITCH_ROUNDS):
            switched = after.keyword_probability
            effective = after.effective_totals[self.keyword_topics]
            general = (np.maximum(cells - after.keyword_counts, 0.0) + word_prior) / effective
            after = replace(after, keyword_counts=cells * switched / np.maximum(switched + general, 1e-300))
        return after


@dataclass(frozen=True)
class KeywordSums(State):
    """Sums of a fold over the rows."""

    keyword_cells: Vector  # E[n_kw] of the keywords; float64 (keywords,)


def _places(words: Ints, global_state: KeywordGlobalState) -> tuple[Ints, Ints]:
    """Return the indices of the keywords among ascending words, and the keywords that are among them."""
    place = np.searchsorted(words, global_state.keyword_words)
    inside = np.flatnonzero(place < words.size)
    inside = inside[words[place[inside]] == global_state.keyword_words[inside]]
    return place[inside], inside


def effective(rows: CollapsedRows, global_state: KeywordGlobalState) -> tuple[CollapsedRows, KeywordGlobalState]:
    """Return rows and totals with which LDA's updates become the updates of the model with keywords."""
    totals = global_state.effective_totals
    ahead = global_state.topic_ahead + totals - global_state.beta - global_state.topic_moments[0]
    moments = np.stack([totals - global_state.beta, global_state.topic_moments[1]])
    after = replace(global_state, topic_moments=moments, topic_ahead=np.maximum(ahead, 0.0))
    if global_state.topic_plain is not None and global_state.keyword_means is not None:
        switched = global_state.keyword_probability * totals[global_state.keyword_topics] - global_state.keyword_counts
        plain = global_state.topic_plain + global_state.by_topic(switched / global_state.keyword_means)
        after = replace(after, topic_plain=plain)
    if rows.word_number is None:
        return rows, after
    place, inside = _places(rows.word_number, global_state)
    topic = global_state.keyword_topics[inside]
    from_keywords = global_state.keyword_probability[inside] * totals[topic]
    changed: dict[str, Any] = {}
    for name in ("word_topic", "word_active"):
        before = getattr(rows, name)
        if before is not None:
            values = np.array(before)
            general = np.maximum(values[place, topic] - global_state.keyword_counts[inside], 0.0)
            values[place, topic] = general + from_keywords
            changed[name] = values
    return replace(rows, **changed), after


Learned = Literal["alpha", "asymmetric-alpha"]


class KeywordOptions(CollapsedOptions, title="topics with keywords (keyATM), collapsed variational inference"):
    """Options of the family."""

    seeds: Annotated[tuple[SeededTopic, ...], Accepts(str | os.PathLike[str] | Mapping[str, Any])] = Field(
        description="keywords of the first topics: a TOML file with a list for each topic, such as "
        'space = ["orbit", "nasa"]',
    )
    topics: int = Field(
        ge=1, le=65_535, description="number of topics K, of which the first have the seed words as keywords"
    )
    alpha: float = Field(0.1, gt=0, description="Dirichlet parameter alpha_k of each topic in a document")
    beta: float = Field(
        100.0,
        gt=0,
        description="concentration beta of a topic over the words; each of the W words has Dirichlet parameter beta/W",
    )
    keyword_beta: float = Field(0.1, gt=0, description="Dirichlet parameter of each keyword among its topic's keywords")
    switch_yes: float = Field(1.0, gt=0, description="first parameter of the Beta prior of a keyword topic's switch")
    switch_no: float = Field(1.0, gt=0, description="second parameter of the Beta prior of a keyword topic's switch")
    order: Literal[0] = Field(0, description="zeroth-order updates (CVB0)")
    inverse_temperature: Annotated[float, Formerly("flatten")] = Field(
        1.0,
        gt=0,
        le=1,
        description="active responsibilities: inverse temperature, the power to which a token's responsibilities are "
        "raised before they are normalised",
    )
    learn: Annotated[tuple[Learned, ...], AfterValidator(one_alpha)] = Field(
        (), description="hyperparameters to learn: alpha (one value) or asymmetric-alpha (one value for each topic)"
    )

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


class KeywordLda(CollapsedFamily[KeywordOptions, KeywordGlobalState]):
    """Topics with keywords by collapsed variational inference."""

    Options = KeywordOptions
    global_state_type = KeywordGlobalState
    # The first topics are the topics with keywords, which a file may know and clusters do not.
    starts = (FILE_START,)

    def footprint(self, summary: Summary) -> Footprint:
        """Return the memory that the state of a fit takes; counts of keywords are not whole numbers."""
        return replace(super().footprint(summary), change_share=None)

    def initialise(self, summary: Summary, stream: Stream) -> KeywordGlobalState:
        """Return the global state before any document was swept."""
        options = self.options
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

    def carry(
        self,
        global_state: KeywordGlobalState,
        known: KeywordGlobalState,
        before: KeywordOptions,
    ) -> tuple[KeywordGlobalState, int] | None:
        """Return the global state with a_k as another run has learned them."""
        options = self.options
        same = (options.topics, options.active, options.seeds) == (before.topics, before.active, before.seeds)
        alpha = known.alpha if options.learn else global_state.alpha
        return (replace(global_state, alpha=alpha), options.topics) if same else None

    def update(self, global_state: KeywordGlobalState, delta: Delta, stream: Stream) -> KeywordGlobalState:
        """Return the next global state: changed counts, the keywords' E[m_kw], and a_k if they are learned."""
        after, sums = updates.of_corpus(global_state, delta)
        parameters = self.update_parameters(NO_ROWS, global_state)
        after = updates.counted(global_state, after, delta, parameters)
        cells = delta.read(KeywordSums)
        if cells is not None:
            after = after.with_switches(cells.keyword_cells)
        if sums is not None and sums.tables is not None and self.options.learn and sums.log_eta < 0:
            same = "alpha" in self.options.learn
            tables = np.full(self.options.topics, sums.tables.mean()) if same else sums.tables
            after = replace(after, alpha=np.maximum(tables / -sums.log_eta, MIN_PARAMETER))
        return after

    def metrics(self, global_state: KeywordGlobalState) -> dict[str, float]:
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

    def update_parameters(self, rows: CollapsedRows, global_state: KeywordGlobalState) -> Parameters:
        """Return a_k and b_w."""
        return Parameters(
            topics=global_state.alpha,
            concentration=float(global_state.alpha.sum()),
            words=np.full(rows.words, global_state.beta / global_state.vocabulary),
            total=global_state.beta,
            tables=self.options.needs_tables,
            active=active_settings(global_state, self.options, global_state.alpha),
        )

    def kernels(self, global_state: KeywordGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls, including its start's."""
        if global_state.active:
            return [*super().kernels(global_state), warm_kernels.expected_counts, warm_kernels.initialise_active]
        return [*super().kernels(global_state), warm_kernels.initialise_dense]

    def first_rows(self, low: int, high: int, global_state: KeywordGlobalState) -> CollapsedRows:
        """Return the rows of the words `low` to `high` - 1 before the first document, with their numbers."""
        rows = weighed_rows(self.initial_rows(high - low, global_state), low, high, global_state)
        return replace(rows, word_number=np.arange(low, high))

    def start(
        self,
        shard: Shard,
        rows: CollapsedRows,
        global_state: KeywordGlobalState,
        stream: Stream,
        warm: Arrays | None = None,
    ) -> tuple[Local, Delta]:
        """Return a shard's first local state: keywords mostly in their topics, other words by drawn proportions."""
        if warm is None:
            topics = global_state.alpha.size
            theta = stream.generator().dirichlet(np.full(topics, START_CONCENTRATION), shard.documents)
            phi = np.full((shard.words.size, topics), 1.0 / topics)
            place, inside = _places(shard.words.astype(np.int64), global_state)
            owners = np.bincount(place, minlength=shard.words.size).astype(np.float64)
            phi[np.unique(place)] *= 1.0 - KEYWORD_SHARE
            np.add.at(phi, (place, global_state.keyword_topics[inside]), KEYWORD_SHARE / owners[place])
            warm = {"document_topic": theta, "word_topic": phi}
        parameters = self.update_parameters(rows, global_state)
        local, delta = active.start_from(self.weighed(shard, rows), parameters, warm)
        return local, counted_in(global_state.count_bits, delta)

    def sweep(
        self,
        shard: Shard,
        local: Local,
        rows: CollapsedRows,
        global_state: KeywordGlobalState,
        stream: Stream,
        joining: Shard | None = None,
    ) -> tuple[Local, Delta]:
        """Return the result of a sweep over a shard, with the effective counts of keywords."""
        return super().sweep(shard, local, *effective(rows, global_state), stream, joining)

    def fold(
        self, block: CollapsedRows, delta: Delta, global_state: KeywordGlobalState, bands: slice | None = None
    ) -> tuple[CollapsedRows, Delta]:
        """Return a block of the vocabulary after the changes of its rows, and `KeywordSums`."""
        after, folded = super().fold(block, delta, global_state, bands)
        cells = np.zeros(global_state.keyword_words.size)
        if after.word_number is not None:
            place, inside = _places(after.word_number, global_state)
            counts = after.active_counts if after.word_topic is None else after.dense_counts
            cells[inside] = np.maximum(counts[place, global_state.keyword_topics[inside]], 0.0)
        return after, folded + Delta({"keyword_cells": fresh(cells)})

    def fold_in(self, shard: Shard, rows: CollapsedRows, global_state: KeywordGlobalState, stream: Stream) -> Local:
        """Fit the counts of unseen documents under fixed topics."""
        return super().fold_in(shard, *self._predictive(rows, global_state), stream)

    def predict(self, heldout: Shard, local: Local, rows: CollapsedRows, global_state: KeywordGlobalState) -> Arrays:
        """Return the probability of each held-out pair, sum_k theta_dk p_kw."""
        return super().predict(heldout, local, *self._predictive(rows, global_state))

    def probabilities(self, rows: CollapsedRows, global_state: KeywordGlobalState) -> Arrays:
        """Return p_kw of the words of the rows."""
        return super().probabilities(*self._predictive(rows, global_state))

    def dirichlet_topics(self, rows: CollapsedRows, global_state: KeywordGlobalState) -> DirichletTopics:
        """Return p_kw and a_k."""
        return super().dirichlet_topics(*self._predictive(rows, global_state))

    def _predictive(
        self, rows: CollapsedRows, global_state: KeywordGlobalState
    ) -> tuple[CollapsedRows, KeywordGlobalState]:
        """Return the rows of a finished model, and totals, as prediction takes them."""
        return effective(self.finished_rows(rows.counted(), global_state), global_state)
