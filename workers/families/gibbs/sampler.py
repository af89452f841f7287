"""Collapsed Gibbs sampling: the base classes of its families.

Within a shard each token is drawn given all others. Several shards sweep against the counts of the iteration's start
plus their own changes, whose sums are exact: AD-LDA (Newman, Asuncion, Smyth and Welling 2009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families import description
from collapsium.workers.families.dirichlet import (
    FOLD_IN_KERNELS,
    DirichletPriors,
    dirichlet_topics,
    fold_in_counts,
    pair_probability,
)
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.family import (
    COMPUTED_STARTS,
    FILE_START,
    Description,
    Footprint,
    IntegratesProportions,
    LocalT,
    OptionsT,
    Resumable,
    Simulates,
    Summary,
)
from collapsium.workers.families.gibbs.states import (
    ActiveTopics,
    Counts,
    GibbsDocuments,
    GibbsLocal,
    Ints,
    SampledGlobalState,
    SampledRows,
    SampleSums,
    TokenTopics,
    TopicChanges,
    Vector,
    WordChanges,
)
from collapsium.workers.families.gibbs.tokens import (
    add_word_changes,
    count_documents,
    count_words,
    delta_ids,
    draw_initial_topics,
    padded,
    widened,
)
from collapsium.workers.kernels.cvb import records
from collapsium.workers.kernels.cvb.active_sums import active_probability
from collapsium.workers.kernels.gibbs.topics import word_rising
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.likelihood import DirichletTopics
from collapsium.workers.special_functions import gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard
    from collapsium.workers.arrays.random_streams import Stream


GibbsGlobalStateT = TypeVar("GibbsGlobalStateT", bound=SampledGlobalState)

# Tokens of a model that documents are simulated from: counts are so large that the prior does not show
SIMULATED_TOKENS = 1e9
SIMULATED_CONCENTRATION = 1e-9  # Concentration over words of such a model


class GibbsFamily(
    Resumable[OptionsT, GibbsGlobalStateT, SampledRows, LocalT],
    Simulates[OptionsT, GibbsGlobalStateT, SampledRows, LocalT],
):
    """Family of collapsed Gibbs sampling, whose rows are whole counts of tokens by word and topic."""

    rows_type = SampledRows

    is_sampler = True
    starts = (FILE_START, *COMPUTED_STARTS)

    def update(self, global_state: GibbsGlobalStateT, delta: Delta, stream: Stream) -> GibbsGlobalStateT:
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

    def initial_rows(self, words: int, global_state: GibbsGlobalStateT) -> SampledRows:
        """Return the rows of words that have no token yet."""
        return SampledRows(np.zeros((words, global_state.topic.size), dtype=np.int32))

    def advance(
        self, rows: SampledRows, delta: Delta, global_state: GibbsGlobalStateT
    ) -> tuple[SampledRows, GibbsGlobalStateT]:
        """Return the rows and the global state for another sweep of a shard before its delta is reduced."""
        changes = delta.read(WordChanges)
        if changes is None:
            return rows, global_state
        word_topic = widened(rows.word_topic, changes.word_topic.shape[1]) + changes.word_topic
        return SampledRows(word_topic), self.advance_global_state(global_state, delta, changes.word_topic)

    def advance_global_state(self, global_state: GibbsGlobalStateT, delta: Delta, changes: Counts) -> GibbsGlobalStateT:
        """Return the global state after the changes of a shard."""
        return global_state.with_changes(changes.sum(axis=0, dtype=np.int64))

    def fold(self, block: SampledRows, delta: Delta, global_state: GibbsGlobalStateT) -> tuple[SampledRows, Delta]:
        """Return a block of the vocabulary after the changes of its rows."""
        changes = delta.read(WordChanges)
        if changes is None:
            return block, Delta()
        word_topic, parts = add_word_changes(block.word_topic, changes.word_topic, delta.ids["word"])
        sums = np.zeros(2)
        word_rising(word_topic, global_state.priors.word, sums)
        parts.update(word_rising=fresh(sums[0]), tables_of_words=fresh(sums[1]))
        return SampledRows(word_topic), Delta(parts, {"topic": np.arange(parts["topic"].values.size)})

    def finished_rows(self, block: SampledRows, global_state: GibbsGlobalStateT) -> SampledRows:
        """Return the rows with a column for each topic; a block gets further columns only when it is folded."""
        columns = global_state.topic.size
        return block if block.word_topic.shape[1] == columns else SampledRows(widened(block.word_topic, columns))

    def word_probability(self, rows: SampledRows, global_state: GibbsGlobalStateT) -> Vector:
        """Return phi_kw of the last sample, shape (words, topics)."""
        return global_state.priors.word_probability(
            self.finished_rows(rows, global_state).word_topic, global_state.topic
        )

    def probabilities(self, rows: SampledRows, global_state: GibbsGlobalStateT) -> Mapping[str, Any]:
        """Return phi_kw of the last sample."""
        return {"word_topic": self.word_probability(rows, global_state)}

    def word_tokens(self, rows: SampledRows) -> Vector:
        """Return the tokens of each word."""
        tokens: Vector = np.asarray(rows.word_topic, dtype=np.float64).sum(axis=1)
        return tokens


class FreeTopicsFamily(
    GibbsFamily[OptionsT, GibbsGlobalStateT, GibbsLocal],
    IntegratesProportions[OptionsT, GibbsGlobalStateT, SampledRows, GibbsLocal],
):
    """Family whose documents may have all topics."""

    local_type, documents_type = GibbsLocal, GibbsDocuments

    def fold_in_kernels(self, global_state: GibbsGlobalStateT) -> Sequence[AnyKernel]:
        """Return the kernels that `fold_in` and `predict` call."""
        return FOLD_IN_KERNELS

    def start(
        self,
        shard: Shard,
        rows: SampledRows,
        global_state: GibbsGlobalStateT,
        stream: Stream,
        warm: Arrays | None = None,
    ) -> tuple[GibbsLocal, Delta]:
        """Draw each token's first topic, uniformly or by another run's proportions and topics."""
        columns = global_state.topic.size
        return self._begin(
            shard, draw_initial_topics(shard, global_state.initial_topics, columns, stream, warm), columns
        )

    def continue_from(
        self,
        shard: Shard,
        saved: Arrays,
        rows: SampledRows,
        global_state: GibbsGlobalStateT,
    ) -> tuple[GibbsLocal, Delta]:
        """Continue from the topics of tokens that another run saved."""
        return self._begin(shard, saved["token_topic"], global_state.topic.size)

    def _begin(self, shard: Shard, token_topic: TokenTopics, columns: int) -> tuple[GibbsLocal, Delta]:
        active, _ = count_documents(shard, token_topic, np.ones(columns), tables=False)
        parts = {"word_topic": count_words(shard, token_topic, columns)}
        return GibbsLocal(active, token_topic=token_topic), Delta(parts, delta_ids(shard, columns))

    def fold_in(self, shard: Shard, rows: SampledRows, global_state: GibbsGlobalStateT, stream: Stream) -> GibbsLocal:
        """Fit the counts of unseen documents under fixed topics, by zeroth-order sweeps."""
        phi = self.word_probability(rows, global_state)
        return GibbsLocal(document_topic=fold_in_counts(shard, phi, global_state.topic_parameters))

    def predict(
        self, heldout: Shard, local: GibbsLocal, rows: SampledRows, global_state: GibbsGlobalStateT
    ) -> Mapping[str, Any]:
        """Return each held-out pair's probability sum_k theta_dk phi_kw + theta_u / W, by the last sample."""
        priors = global_state.priors
        if local.active is not None:
            rows = self.finished_rows(rows, global_state)
            return {"probability": _active_probability(heldout, local.active, rows, global_state)}
        theta = priors.proportions(local.dense(priors.topics.size))
        phi = self.word_probability(rows, global_state)
        return {"probability": pair_probability(heldout, theta, phi, priors.word / priors.total)}

    def dirichlet_topics(self, rows: SampledRows, global_state: GibbsGlobalStateT) -> DirichletTopics:
        """Return phi_kw and a_k."""
        priors, phi = global_state.priors, self.word_probability(rows, global_state)
        rest_word = np.full(len(phi), priors.word / priors.total)
        return dirichlet_topics(phi, priors.topics, priors.concentration, rest_word)

    def infer(self, local: GibbsDocuments, global_state: GibbsGlobalStateT) -> Mapping[str, Any]:
        """Return the documents' proportions theta_dk = (a_k + n_dk) / (A + n_d)."""
        return {"document_topic": global_state.priors.proportions(local.dense(global_state.topic.size))}

    def document_lengths(self, local: GibbsDocuments) -> Vector:
        """Return the tokens of each document."""
        return local.lengths()


def _active_probability(
    heldout: Shard, active: ActiveTopics, rows: SampledRows, global_state: SampledGlobalState
) -> Vector:
    priors, probability, topics = global_state.priors, np.empty(heldout.pairs), active.record
    active_probability(
        document_pairs(heldout),
        records.ActiveTopics(topics.offsets, topics.topic),
        topics.counts.astype(np.float64),
        np.zeros(heldout.documents),
        records.Priors(priors.topics, np.full(len(rows.word_topic), priors.word), priors.total),
        records.TopicCounts(
            np.asarray(rows.word_topic, dtype=np.float32), global_state.topic.astype(np.float64) + priors.total
        ),
        np.array([max(priors.concentration - priors.topics.sum(), 0.0), priors.total]),
        probability,
    )
    return probability


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
    """Return the memory of a state: 2 bytes per token, 6 per topic of a document, 4 per count."""
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
