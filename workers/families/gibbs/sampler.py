"""Collapsed Gibbs sampling: the base classes of its families, sweeps over tokens, and whole counts.

Within a shard each token is drawn given all others. Several shards sweep against the counts of the iteration's start
plus their own changes, whose sums are exact: AD-LDA (Newman, Asuncion, Smyth and Welling 2009).

A pair with count c is c tokens, which may have different topics; a pair's tokens are adjacent in arrays by token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import NumericalError
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Delta, Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families import description
from collapsium.workers.families.dirichlet import (
    FOLD_IN_KERNELS,
    DirichletPriors,
    dirichlet_topics,
    fold_in_counts,
    pair_probability,
    proportions_and_topics,
)
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.families.family import (
    COMPUTED_STARTS,
    FILE_START,
    Description,
    Family,
    Footprint,
    GlobalStateT,
    IntegratesProportions,
    LocalT,
    OptionsT,
    Resumable,
    RowsT,
    Simulates,
    Summary,
)
from collapsium.workers.families.gibbs.states import (
    MAX_TOPICS,
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
from collapsium.workers.kernels.cvb import records, words
from collapsium.workers.kernels.cvb.words import active_probability
from collapsium.workers.kernels.gibbs.topics import (
    CHUNK,
    DocumentTopics,
    TopicCounts,
    TopicPrior,
    TopicSlots,
    WordPrior,
    draw_topics,
    list_documents,
    sweep_tokens,
    word_rising,
)
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.prediction import DirichletTopics
from collapsium.workers.special_functions import gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


def padded(topics: int) -> int:
    """Return the number of columns that the kernels work on."""
    return -(-topics // CHUNK) * CHUNK


def draw_initial_topics(shard: Shard, topics: int, columns: int, stream: Stream, warm: Arrays | None) -> TokenTopics:
    """Draw a topic for each token."""
    if warm is None:
        return stream.generator().integers(0, topics, shard.tokens, dtype=np.uint16)
    theta, phi = proportions_and_topics(warm, shard.words.size, np.float64)
    if theta.shape[1] > columns:
        raise ValueError(f"expected at most {columns} topics to start from, found {theta.shape[1]}")
    token_topic = np.empty(shard.tokens, dtype=np.uint16)
    draw_topics(document_pairs(shard), theta, phi, stream.key(), token_topic)
    return token_topic


def count_words(shard: Shard, token_topic: TokenTopics, columns: int) -> Part:
    """Return n_kw of a shard's tokens as a change from nothing."""
    word_topic = np.zeros((shard.words.size, columns), dtype=np.int32)
    np.add.at(word_topic, (np.repeat(shard.position, shard.counts), token_topic), 1)
    return change(word_topic, "word", "topic")


def delta_ids(shard: Shard, columns: int) -> dict[str, AnyArray]:
    """Return the ids of a delta's rows and columns; deltas of other numbers of columns add to it."""
    return {"word": shard.words, "topic": np.arange(columns)}


def lengthened(values: AnyArray, size: int) -> AnyArray:
    """Return an array with zeros appended up to a size."""
    return np.concatenate([values, np.zeros(size - values.size, dtype=values.dtype)])


def widened(word_topic: AnyArray, columns: int) -> AnyArray:
    """Return a copy of rows with a number of columns, those beyond the old ones zero."""
    wide = buffers.empty((len(word_topic), columns), word_topic.dtype)
    wide[:, : word_topic.shape[1]] = word_topic
    wide[:, word_topic.shape[1] :] = 0
    return wide


def word_changes(before: Counts, after: Counts) -> Part:
    """Return the change of rows, which may have more columns than before."""
    difference = buffers.empty(after.shape, np.int32)
    columns = before.shape[1]
    np.subtract(after[:, :columns], before, out=difference[:, :columns])
    difference[:, columns:] = after[:, columns:]
    return change(difference, "word", "topic")


def add_word_changes(before: Counts, changes: Counts, ids: Ints) -> tuple[Counts, dict[str, Part]]:
    """Add changes to the rows of a block.

    Returns after: The new n_kw; parts: Changes of n_k (``topic``), and ``moved``, the sum of absolute changes of n_kw
    """
    after = widened(before, max(changes.shape[1], before.shape[1]))
    if ids.size == len(after):
        after[:, : changes.shape[1]] += changes
    else:
        after[ids, : changes.shape[1]] += changes
    topic = changes.sum(axis=0, dtype=np.int64)
    return after, {
        "topic": change(topic, "topic"),
        "moved": fresh(float(np.abs(changes).sum(dtype=np.int64))),
    }


def count_documents(
    shard: Shard, token_topic: TokenTopics, prior: Vector, *, tables: bool
) -> tuple[ActiveTopics, dict[str, Part]]:
    """Count each document's tokens by topic, and sum over documents what updates need.

    Returns active: n_dk; sums: Fresh ``rising``, sum_dk log G(a_k + n_dk) / G(a_k), and ``tables``, sum_d a_k (psi(a_k
    + n_dk) - psi(a_k))
    """
    record = DocumentTopics(
        offsets=np.zeros(shard.documents + 1, dtype=np.int64),
        topic=np.empty(token_topic.size, dtype=np.uint16),
        counts=np.empty(token_topic.size, dtype=np.float32),
    )
    table_sums, rising = np.zeros(prior.size if tables else 0), np.zeros(1)
    list_documents(document_pairs(shard), token_topic, prior, record, table_sums, rising)
    entries = record.offsets[-1]
    active = ActiveTopics(record.offsets, record.topic[:entries].copy(), record.counts[:entries].copy())
    sums = {"rising": fresh(rising[0])}
    if tables:
        sums["tables"] = fresh(table_sums, "topic")
    return active, sums


def document_sums(shard: Shard, concentration: float) -> dict[str, Part]:
    """Return the sums over documents that depend only on their lengths."""
    sums = np.zeros(2)
    words.log_eta(shard.lengths.astype(np.float64), np.array([concentration]), sums)
    return {"log_eta": fresh(sums[0]), "falling": fresh(sums[1]), **corpus_sums(shard)}


def corpus_sums(shard: Shard) -> dict[str, Part]:
    """Return ``documents`` and ``tokens`` of a shard."""
    return {"documents": fresh(float(shard.documents)), "tokens": fresh(float(shard.tokens))}


@dataclass
class Slots:
    """Slots for the topics that are created while a shard is swept."""

    gamma: float  # Concentration of the sticks
    free: list[int]  # Slots that this shard may take, ascending
    # Further slots are `first`, `first` + `stride`, ..
    first: int
    stride: int

    def take_further(self) -> list[int]:
        """Return some further slots, ascending, which are then taken."""
        count = max(CHUNK // self.stride, 1)
        further = [self.first + self.stride * number for number in range(count)]
        self.first += self.stride * count
        return further


@dataclass
class TokenSweep:
    """Counts of a shard that are updated with each token that is drawn."""

    token_topic: TokenTopics  # z; uint16 (tokens,)
    word_topic: Counts  # n_kw, with the changes of this shard; int32 (words of the shard, columns)
    # a_k and n_k; float64 (columns,)
    prior: Vector
    totals: Vector
    remainder: Vector  # Sum of a of all topics that do not exist yet; float64 (1,)

    def widen(self, columns: int) -> None:
        """Append empty topics; raise `NumericalError` if tokens could not name them."""
        if columns > MAX_TOPICS:
            raise NumericalError(f"more than {MAX_TOPICS} topics are needed; use a smaller gamma or a larger beta")
        self.word_topic = widened(self.word_topic, columns)
        self.prior, self.totals = lengthened(self.prior, columns), lengthened(self.totals, columns)

    def run(self, shard: Shard, priors: DirichletPriors, stream: Stream, slots: Slots | None) -> None:
        """Draw each token's topic once; append slots whenever none is free for a new topic."""
        documents, key, word_prior = document_pairs(shard), stream.key(), WordPrior(priors.word, priors.total)
        free = np.array(slots.free[::-1] if slots else [], dtype=np.int64)
        free_count, progress = np.array([free.size]), np.zeros(3, dtype=np.int64)
        reusable = np.zeros(self.prior.size, dtype=np.int64)
        reusable[free] = 1
        while True:
            sweep_tokens(
                documents,
                key,
                word_prior,
                TopicPrior(self.prior, self.remainder),
                TopicSlots(slots.gamma if slots else 0.0, reusable, free, free_count),
                TopicCounts(self.totals, self.word_topic),
                self.token_topic,
                progress,
            )
            if slots is None or progress[0] == shard.documents:
                return
            further = slots.take_further()
            self.widen(padded(further[-1] + 1))
            reusable = lengthened(reusable, self.prior.size)
            reusable[further] = 1
            free = np.concatenate([np.array(further[::-1], dtype=np.int64), np.zeros(free.size, dtype=np.int64)])
            free_count[0] = len(further)


def sweep_shard(
    shard: Shard,
    token_topic: TokenTopics | None,
    word_topic: Counts,
    topic: Ints,
    priors: DirichletPriors,
    stream: Stream,
    slots: Slots | None = None,
) -> TokenSweep:
    """Draw each token's topic once."""
    columns = padded(priors.topics.size)
    remainder = max(priors.concentration - float(priors.topics.sum()), 0.0) if slots else 0.0
    sweep = TokenSweep(
        token_topic=np.array(token_topic),
        word_topic=widened(word_topic, columns),
        prior=lengthened(priors.topics, columns),
        totals=lengthened(topic.astype(np.float64), columns),
        remainder=np.array([remainder]),
    )
    sweep.run(shard, priors, stream, slots)
    return sweep


GibbsGlobalStateT = TypeVar("GibbsGlobalStateT", bound=SampledGlobalState)

# Tokens of a model that documents are simulated from: counts are so large that the prior does not show
SIMULATED_TOKENS = 1e9
SIMULATED_CONCENTRATION = 1e-9  # Concentration over words of such a model


class CountedTopics(Family[OptionsT, GlobalStateT, RowsT, LocalT]):
    """Family whose rows are tokens by word and topic, with a `DirichletGlobalState` that has their sums."""

    def word_concentration(self, global_state: Any) -> float:
        """Return B, the concentration of a topic over the words."""
        concentration: float = global_state.beta
        return concentration

    def word_probability(self, rows: Any, global_state: Any) -> Vector:
        """Return phi_kw, by the last sample or by expected counts, shape (words, topics)."""
        finished: Any = self.finished_rows(rows, global_state)
        probability: Vector = global_state.priors.word_probability(finished.word_topic, global_state.topic)
        return probability

    def probabilities(self, rows: Any, global_state: Any) -> Mapping[str, Any]:
        """Return phi_kw, by the last sample or by expected counts."""
        return {"word_topic": self.word_probability(rows, global_state)}

    def word_tokens(self, rows: Any) -> Vector:
        """Return the tokens of each word."""
        tokens: Vector = np.asarray(rows.word_topic, dtype=np.float64).sum(axis=1)
        return tokens


class GibbsFamily(
    CountedTopics[OptionsT, GibbsGlobalStateT, SampledRows, LocalT],
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
        priors, word_topic = global_state.priors, np.asarray(block.word_topic, dtype=np.float64)
        existing, tokens = np.flatnonzero(priors.topics > 0.0), np.asarray(global_state.topic, np.float64)
        prior = np.full(len(word_topic), priors.word)
        topics = description.describe(word_topic[:, existing], prior, priors.total, tokens[existing], count)
        return replace(topics, ids=existing[topics.ids])

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
