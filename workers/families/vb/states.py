"""States and sums of families of mean-field topics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.labels import LabelTable
from collapsium.workers.arrays.annotations import ascending, indices, non_negative, numbers, offsets
from collapsium.workers.arrays.state import CheckContext, LocalState, State, block_only
from collapsium.workers.families.dirichlet import DirichletPriors
from collapsium.workers.families.document_entries import (
    MIN_POSITIVE,
    LabelBytes,
    WeighedGlobalState,
    WeighedRows,
    table_faults,
)

Counts: TypeAlias = npt.NDArray[np.float32]
Vector: TypeAlias = npt.NDArray[np.float64]

MAX_SWEEPS = 10_000  # Most sweeps that a state may still have to make; a larger number would only make a fit hang


@dataclass(frozen=True, kw_only=True)
class MeanFieldGlobalState(WeighedGlobalState, ABC):
    """Global state of all families of mean-field topics."""

    topic_total: Annotated[Vector, non_negative("topic")]  # E[n_k]
    topic_log: Annotated[Vector, numbers("topic")]  # psi(sum_w lambda_kw)
    further_sweep: bool = False  # Whether the shard was swept in this iteration already

    @property
    def plain_ratio(self) -> Vector | None:
        """(B + plain tokens) / (B + E[n_k]) of each topic; None without weights of words."""
        return self.ratio_of_plain(self.priors.total, self.topic_total)

    @property
    @abstractmethod
    def priors(self) -> DirichletPriors:
        """Dirichlet priors of documents and topics."""


@dataclass(frozen=True, kw_only=True)
class VbLdaGlobalState(MeanFieldGlobalState):
    """Global state of latent Dirichlet allocation."""

    alpha: Annotated[Vector, numbers("topic", low=MIN_POSITIVE)]  # a_k
    beta: Annotated[float, numbers(low=MIN_POSITIVE)]  # B

    @property
    def priors(self) -> DirichletPriors:
        """Dirichlet priors of documents and topics."""
        return DirichletPriors(self.alpha, float(self.alpha.sum()), self.beta / self.vocabulary, self.beta)


@dataclass(frozen=True)
class InverseGammaWeights(State):
    """Weights of labels, w_kj ~ InvGamma(a_w, b_w), with q(w) of the same form."""

    weight_prior: Annotated[Vector, numbers("2", low=MIN_POSITIVE)]  # a_w and b_w
    # Parameters of q(w)
    weight_shape: Annotated[Vector, numbers("label topic", low=MIN_POSITIVE)]
    weight_rate: Annotated[Vector, numbers("label topic", low=MIN_POSITIVE)]


@dataclass(frozen=True)
class LogLinearWeights(State):
    """Weights of labels and numbers, w_kj ~ N(0, sigma), at the most probable w."""

    weight_variance: Annotated[float, numbers(low=MIN_POSITIVE)]  # sigma
    label_topic: Annotated[Vector, numbers("label topic")]  # w


@dataclass(frozen=True)
class LabelRates(State):
    """Rates that labels give to topics, and the weights from which they are computed."""

    # log E[R] and E[log R] of each label of value 1
    label_log: Annotated[Vector, numbers("label topic")]
    label_mean_log: Annotated[Vector, numbers("label topic")]
    # The weights; one of the two
    inverse_gamma: InverseGammaWeights | None = None
    log_linear: LogLinearWeights | None = None

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield a fault if the weights have neither of the two forms."""
        yield from super().faults(context)
        if (self.inverse_gamma is None) == (self.log_linear is None):
            yield "expected either 'weight_shape' or 'label_topic'"


@dataclass(frozen=True)
class LabelRange(State):
    """Range of the documents' labels, which bounds how far weights may move at once."""

    # Largest and smallest sum of |r_mj| over the labels of a document
    label_most: float
    label_least: float
    label_reach: Annotated[Vector, non_negative("label")]  # Largest |r_mj| of each label


@dataclass(frozen=True, kw_only=True)
class HdspGlobalState(MeanFieldGlobalState):
    """Global state of the hierarchical Dirichlet scaling process."""

    eta: Annotated[float, numbers(low=MIN_POSITIVE)]  # Dirichlet parameter of each word in a topic
    gamma: Annotated[float, numbers(low=MIN_POSITIVE)]  # Concentration of the corpus's topics
    prior: Annotated[Vector, non_negative("topic")]  # g_k = alpha p_k
    last: Annotated[int, indices("", below="topic")]  # Topic that has what all sticks leave
    lda_sweeps_left: Annotated[int, numbers("", 0, MAX_SWEEPS)]  # Sweeps of LDA still to come
    another_round: bool = False  # Whether the iteration continues with one more sweep
    carried: bool = False  # Whether the prior is another run's
    label_table: LabelBytes  # The training corpus's labels
    rates: LabelRates  # Rates of the labels
    label_range: LabelRange  # Range of the documents' labels
    signed: bool  # Whether values of labels may be negative
    with_curvature: bool  # Whether sweeps sum the Hessian of the weights
    led: bool  # Whether labels have topics of their own at the start

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of the labels, and of a prior of nothing, by whose sum it is divided."""
        yield from super().faults(context)
        yield from table_faults(self.label_table, context)
        if not (self.prior > 0).any():
            yield "expected more than nothing in 'prior'"
        if self.labels.numbers and not self.signed:
            # Kernels have room for negative sums only with it.
            yield "expected 'signed' where the table of labels has numbers"
        if self.topic_plain is not None:
            yield "expected no 'topic_plain', as words have no weights"

    @property
    def priors(self) -> DirichletPriors:
        """Dirichlet priors of documents and topics; without labels, documents have the parameters g_k."""
        return DirichletPriors(self.prior, float(self.prior.sum()), self.eta, self.eta * self.vocabulary)

    @property
    def labels(self) -> LabelTable:
        """The training corpus's labels."""
        return LabelTable.unpacked(self.label_table)


@dataclass(frozen=True)
class MeanFieldRows(WeighedRows):
    """Weights of words during a fit, and their counts."""

    # exp(psi(lambda_kw)), each word's scaled so that the largest is one; None in a finished model
    word_expected: Annotated[Vector | None, non_negative("word topic")] = None
    # E[n_kw] during a fit, which sweeps do not see
    block_topic: Annotated[Vector | None, non_negative("word topic")] = block_only()
    word_topic: Annotated[Vector | None, non_negative("word topic")] = None  # E[n_kw] of a finished model

    @classmethod
    def stored(cls, context: CheckContext) -> set[str]:
        """Return the arrays on disk: the counts, the weights of a fit, and the words' weights where they have any."""
        fitted = {"word_topic"} if context.finished else {"block_topic", "word_expected"}
        weighed = context.global_state.topic_plain is not None
        return fitted | ({"word_weight", "word_mean"} if weighed else set())

    @property
    def counts(self) -> Vector:
        """Counts E[n_kw], which sweeps do not see."""
        counts = self.block_topic if self.word_topic is None else self.word_topic
        if counts is None:
            raise ValueError("expected rows with their counts, found those that sweeps see")
        return np.asarray(counts, dtype=np.float64)

    @property
    def weights(self) -> Vector:
        """Weights exp(psi(lambda_kw)), which a finished model does not have."""
        if self.word_expected is None:
            raise ValueError("expected rows with their weights, found rows of a finished model")
        return np.ascontiguousarray(self.word_expected)


@dataclass(frozen=True)
class DocumentTopics(LocalState):
    """Topics of documents."""

    document_topic: Annotated[Counts, non_negative("document topic")]  # E[n_dk]

    @property
    def counts(self) -> Vector:
        """Counts E[n_dk] in double precision."""
        return np.ascontiguousarray(self.document_topic, dtype=np.float64)


@dataclass(frozen=True)
class VbLdaLocal(DocumentTopics):
    """Local state of a shard."""

    # Sweeps still to begin from even proportions; 0 where documents were folded in
    even_sweeps_left: Annotated[int, numbers("", 0, MAX_SWEEPS)] = 0


@dataclass(frozen=True)
class LabelledDocumentTopics(DocumentTopics):
    """Topics and labels of documents."""

    # Where the labels of each document begin
    document_label_offsets: Annotated[npt.NDArray[np.int64], offsets("document", into="labelled")]
    # Number of each label in the training corpus's table
    document_label: Annotated[npt.NDArray[np.int32], indices("labelled", below="label")]
    document_label_value: Annotated[Vector, numbers("labelled")]  # r_mj of each

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of labels that do not ascend, and of values, which are negative only with `signed`."""
        yield from super().faults(context)
        yield from ascending(self, "document_label_offsets", "document_label")
        if not context.global_state.signed and np.asarray(self.document_label_value).min(initial=0.0) < 0.0:
            yield "expected values that are not negative in 'document_label_value', as the global state is not 'signed'"


@dataclass(frozen=True)
class WordCounts(State):
    """Counts by word of a sweep or of the start."""

    word_topic: Vector  # E[n_kw]; float64 (words, topics)


@dataclass(frozen=True)
class FoldSums(State):
    """Sums over the words of new rows."""

    topic_total: Vector  # E[n_k]; float64 (topics,)
    moved: float  # Sum of the absolute changes of E[n_kw]
    bound_words: float  # The words' part of the bound
    log_phi: float  # sum_kw psi(lambda_kw)


@dataclass(frozen=True)
class SweepSums(State):
    """Sums over the documents of a sweep; the start has none."""

    bound_documents: float  # The documents' part of the bound
    # How many were swept
    documents: float
    tokens: float


@dataclass(frozen=True)
class VbLdaSums(SweepSums):
    """Sums over the documents of a sweep of latent Dirichlet allocation."""

    even: float  # Documents that began from even proportions
    # sum_d E[log theta_dk] over the documents that are not empty, where a_k is learned; float64 (topics,)
    log_theta: Vector | None = None
    occupied: float | None = None  # How many documents these are


@dataclass(frozen=True)
class HdspSums(SweepSums):
    """Sums over the documents of a sweep of the hierarchical Dirichlet scaling process."""

    tables: Vector  # sum_m g_k (psi(g_k + n_mk) - psi(g_k)); float64 (topics,)
    minus_log_rate: Vector  # -sum_m log b_mk; float64 (topics,)
    labels: LabelSums | None = None  # Sums of the labels that documents have; None in sweeps of LDA


@dataclass(frozen=True)
class LabelSums(State):
    """Sums of the labels that the documents of a sweep have; see `collapsium.workers.kernels.vb.mean_field`."""

    label_total: Vector  # sum_m r_mj; float64 (labels,)
    label_sums: Vector  # As in `RateStatistics`; float64 (labels, 4 or 8, topics)
    # The Hessian of the weights, where it is summed; float64 (labels, 2 labels, topics)
    label_curvature: Vector | None = None

    def of_all(self, labels: int, present: npt.NDArray[np.int64]) -> Self:
        """Return the sums of all labels, zero of those that no document has."""
        total, sums = np.zeros(labels), np.zeros((labels, *self.label_sums.shape[1:]))
        total[present], sums[present] = self.label_total, self.label_sums
        return type(self)(total, sums, self.label_curvature)
