"""Mean-field variational inference: the base class of its families.

A sweep returns its shard's E[n_kw] as a fresh total, and folding replaces the counts by the sum over the shards. A
shard's changes act from the next iteration on, so that the number of shards affects only rounding. Sweeps see
exp(psi(lambda_kw)) of the words; the counts stay in their block.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Delta, Part, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families import description
from collapsium.workers.families.dirichlet import pair_probability, proportions_and_topics
from collapsium.workers.families.document_entries import (
    document_pairs,
    normalised,
    plain_counts,
    plain_sums,
    weighed_rows,
)
from collapsium.workers.families.family import (
    COMPUTED_STARTS,
    FILE_START,
    CarriesHyperparameters,
    Description,
    FamilyOptions,
    Footprint,
    Summary,
)
from collapsium.workers.families.vb.states import (
    Counts,
    DocumentTopics,
    FoldSums,
    MeanFieldGlobalState,
    MeanFieldRows,
    Vector,
    WordCounts,
)
from collapsium.workers.kernels import prediction
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.vb import mean_field
from collapsium.workers.kernels.vb.mean_field import ExpectedCounts, PassLimits
from collapsium.workers.special_functions import digamma, gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


OptionsT = TypeVar("OptionsT", bound=FamilyOptions)
GlobalStateT = TypeVar("GlobalStateT", bound=MeanFieldGlobalState)
LocalT = TypeVar("LocalT", bound=DocumentTopics)

MEAN_FIELD_KERNELS = (mean_field.count_products, mean_field.fold_words, prediction.pair_probability)
MAX_SWEEPS = 10_000  # Passes over a document, at most
ONE_PASS = {"document_tolerance": "more passes over a document than one (`document_sweeps`)"}  # Unused with one pass
FOLD_IN_LIMITS = PassLimits(passes=100, tolerance=1e-4)
INITIAL_TOPICS = 8  # Topics of a document at the start
MIN_SHARE = 1e-100  # Share of a topic that a document or a word does not have: the product of two is still above zero


class MeanFieldFamily(CarriesHyperparameters[OptionsT, GlobalStateT, MeanFieldRows, LocalT]):
    """A family of mean-field topics."""

    rows_type = MeanFieldRows

    starts = (FILE_START, *COMPUTED_STARTS)

    def describe(self, block: MeanFieldRows, global_state: GlobalStateT, count: int) -> Description:
        """Describe the topics, the largest first."""
        priors, counts = global_state.priors, block.counts
        return description.describe(
            counts, np.full(len(counts), priors.word), priors.total, global_state.topic_total, count
        )

    @abstractmethod
    def proportions(self, local: LocalT, global_state: GlobalStateT) -> Vector:
        """Return the expected proportions of documents, shape (documents, topics)."""

    def kernels(self, global_state: GlobalStateT) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        return MEAN_FIELD_KERNELS

    def initial_rows(self, words: int, global_state: GlobalStateT) -> MeanFieldRows:
        """Return the rows of `words` words before the first document is counted."""
        shape = words, global_state.topic_total.size
        return MeanFieldRows(word_expected=np.ones(shape), block_topic=np.zeros(shape))

    def first_rows(self, low: int, high: int, global_state: GlobalStateT) -> MeanFieldRows:
        """Return the rows of the words `low` to `high` - 1 before the first document, with their weights if any."""
        return weighed_rows(self.initial_rows(high - low, global_state), low, high, global_state)

    def advance(
        self, rows: MeanFieldRows, delta: Delta, global_state: GlobalStateT
    ) -> tuple[MeanFieldRows, GlobalStateT]:
        """Return the rows unchanged: a shard's changes take effect in the next iteration, except on its documents."""
        return rows, replace(global_state, further_sweep=True)

    def fold(self, block: MeanFieldRows, delta: Delta, global_state: GlobalStateT) -> tuple[MeanFieldRows, Delta]:
        """Replace a block's counts by new ones, and compute exp(psi(lambda_kw)) from them.

        Returns block: The new rows; delta: `FoldSums`
        """
        before, counts = block.counts, np.zeros(block.counts.shape)
        swept = delta.read(WordCounts)
        if swept is not None:
            counts[delta.ids["word"]] = swept.word_topic
        expected, sums = np.empty(counts.shape), np.zeros(2)
        mean_field.fold_words(counts, block.weights, np.full(len(counts), global_state.priors.word), expected, sums)
        folded = FoldSums(counts.sum(axis=0), float(np.abs(counts - before).sum()), float(sums[0]), float(sums[1]))
        dims = {"topic_total": ("topic",)}
        parts = {name: fresh(values, *dims.get(name, ())) for name, values in folded.to_arrays().items()}
        if block.word_mean is not None:
            parts.update(plain_sums(counts, block.word_mean))
        return replace(block, word_expected=expected, block_topic=counts), Delta(parts)

    def finished_rows(self, block: MeanFieldRows, global_state: GlobalStateT) -> MeanFieldRows:
        """Return the rows as a finished model saves them: E[n_kw]."""
        return MeanFieldRows(word_topic=block.counts, word_weight=block.word_weight, word_mean=block.word_mean)

    def fixed_weights(self, rows: MeanFieldRows, global_state: GlobalStateT) -> tuple[Vector, Vector]:
        """Return exp(psi(lambda_kw)) and psi(sum_w lambda_kw) of a model's topics."""
        counts = np.ascontiguousarray(rows.counts)
        expected, priors = np.empty(counts.shape), global_state.priors
        prior = np.full(len(counts), priors.word)
        mean_field.fold_words(counts, np.ones(counts.shape), prior, expected, np.zeros(2))
        return expected, digamma(priors.total + global_state.topic_total)

    def word_probability(self, rows: MeanFieldRows, global_state: GlobalStateT) -> Vector:
        """Return phi_kw, which is an expectation, shape (words, topics)."""
        return global_state.priors.word_probability(rows.counts, global_state.topic_total)

    def predict(
        self, heldout: Shard, local: LocalT, rows: MeanFieldRows, global_state: GlobalStateT
    ) -> Mapping[str, AnyArray]:
        """Return each held-out pair's probability sum_k theta_dk phi_kw, theta and phi being expectations."""
        theta, phi = self.proportions(local, global_state), self.word_probability(plain_rows(rows), global_state)
        probability, ratio = pair_probability(heldout, theta, phi, 0.0), global_state.plain_ratio
        plain = None if ratio is None else (theta * ratio).sum(axis=1)
        return {"probability": normalised(probability, heldout, plain)}

    def probabilities(self, rows: MeanFieldRows, global_state: GlobalStateT) -> Mapping[str, AnyArray]:
        """Return phi_kw, which is an expectation."""
        return {"word_topic": self.word_probability(rows, global_state)}

    def infer(self, local: LocalT, global_state: GlobalStateT) -> Mapping[str, AnyArray]:
        """Return the documents' proportions."""
        return {"document_topic": self.proportions(local, global_state)}

    def word_tokens(self, rows: MeanFieldRows) -> Vector:
        """Return the tokens that a model expects of each word."""
        tokens: Vector = rows.counts.sum(axis=1)
        return tokens if rows.word_mean is None else tokens / rows.word_mean

    def document_lengths(self, local: LocalT) -> Vector:
        """Return the tokens that a local state expects of each document."""
        lengths: Vector = np.asarray(local.document_topic, dtype=np.float64).sum(axis=1)
        return lengths


def plain_rows(rows: MeanFieldRows) -> MeanFieldRows:
    """Return rows with counts of plain tokens; the same rows without weights of words."""
    if rows.word_mean is None:
        return rows
    return MeanFieldRows(word_topic=plain_counts(rows.counts, rows.word_mean).astype(np.float64))


def initial_counts(shard: Shard, topics: int, stream: Stream, warm: Arrays | None) -> tuple[Counts, Vector]:
    """Return the counts of a shard's initial responsibilities, random by document or from another run."""
    if warm is None:
        # Over a few random topics each, or over all if they are few.
        generator, documents, selects = stream.generator(), shard.documents, topics > INITIAL_TOPICS
        chosen = np.arange(topics)
        if selects:
            chosen = np.argsort(generator.random((documents, topics)), axis=1, kind="stable")[:, :INITIAL_TOPICS]
        shares = np.full((documents, topics), MIN_SHARE)
        drawn = generator.random((documents, min(INITIAL_TOPICS, topics))) + 0.1
        shares[np.arange(documents)[:, np.newaxis], chosen] += drawn
        shares /= shares.sum(axis=1, keepdims=True)
        phi = np.ones((shard.words.size, topics))
    else:
        theta, phi = proportions_and_topics(warm, shard.words.size, np.float64)
        shares, phi = _with_topics(theta, topics), _with_topics(phi, topics)
    document_topic = np.empty((shard.documents, topics), dtype=np.float32)
    word_topic = buffers.empty((shard.words.size, topics), np.float64)
    mean_field.count_products(document_pairs(shard), shares, phi, ExpectedCounts(document_topic, word_topic))
    return document_topic, word_topic


def _with_topics(probability: AnyArray, topics: int) -> Vector:
    """Return another run's proportions or probabilities with further topics, none of them zero."""
    if probability.shape[1] > topics:
        raise ValueError(f"expected at most {topics} topics to begin from, found {probability.shape[1]}")
    extended = np.full((probability.shape[0], topics), MIN_SHARE)
    extended[:, : probability.shape[1]] = np.maximum(probability, MIN_SHARE)
    return extended


def even_counts(shard: Shard, topics: int) -> Counts:
    """Return E[n_dk] of even proportions."""
    return np.repeat((shard.weighted_lengths / topics).astype(np.float32)[:, np.newaxis], topics, axis=1)


def sweep_delta(
    shard: Shard, word_topic: Vector, parts: Mapping[str, Part], labels: npt.NDArray[np.int64] | None, seconds: float
) -> Delta:
    """Return a sweep's delta: fresh E[n_kw] and other sums, sums of labels by their numbers."""
    ids: dict[str, AnyArray] = {"word": shard.words}
    if labels is not None:
        ids["label"] = labels
    return Delta({"word_topic": fresh(word_topic, "word", "topic"), **parts}, ids, {"kernel": seconds})


def start_delta(shard: Shard, word_topic: Vector) -> Delta:
    """Return the delta of a start: fresh E[n_kw]."""
    return Delta({"word_topic": fresh(word_topic, "word", "topic")}, {"word": shard.words})


def topics_footprint(topics: int, summary: Summary) -> Footprint:
    """Return the memory of counts and weights of words in 8 bytes, and of counts of documents in 4."""
    return Footprint(
        rows=16.0 * topics,
        shown=8.0 * topics,
        # While rows are folded.
        swept=16.0 * topics,
        delta=8.0 * topics,
        pair=0.0,
        document=4.0 * topics,
        chunk=8.0 * topics * summary.documents,
    )


def totals_bound(total: float, folded: FoldSums) -> float:
    """Return the totals' part of the bound, sum_k log G(B) / G(B + n_k)."""
    return -float((gammaln(total + folded.topic_total) - gammaln(total)).sum())
