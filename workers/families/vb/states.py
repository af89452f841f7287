"""States and sums of families of mean-field topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.label_index import LabelTable
from collapsium.workers.arrays.state import LocalState, State, block_only
from collapsium.workers.families.dirichlet import DirichletPriors
from collapsium.workers.families.plain_tokens import WeighedGlobalState, WeighedRows

Counts: TypeAlias = npt.NDArray[np.float32]
Vector: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class MeanFieldGlobalState(WeighedGlobalState):
    """Global state of all families of mean-field topics."""

    vocabulary: float  # W, the number of words
    topic_total: Vector  # E[n_k]; float64 (topics,)
    topic_log: Vector  # psi(sum_w lambda_kw); float64 (topics,)
    further_sweep: bool = False  # Whether the shard was swept in this iteration already

    @property
    def plain_ratio(self) -> Vector | None:
        """(B + plain tokens) / (B + E[n_k]) of each topic; None without weights of words."""
        return self.ratio_of_plain(self.priors.total, self.topic_total)

    @property
    def priors(self) -> DirichletPriors:
        """Dirichlet priors of documents and topics."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class VbLdaGlobalState(MeanFieldGlobalState):
    """Global state of latent Dirichlet allocation."""

    alpha: Vector  # a_k; float64 (topics,)
    beta: float  # B

    @property
    def priors(self) -> DirichletPriors:
        """Dirichlet priors of documents and topics."""
        return DirichletPriors(self.alpha, float(self.alpha.sum()), self.beta / self.vocabulary, self.beta)


@dataclass(frozen=True)
class InverseGammaWeights(State):
    """Weights of labels, w_kj ~ InvGamma(a_w, b_w), with q(w) of the same form."""

    weight_prior: Vector  # a_w and b_w; float64 (2,)
    # Parameters of q(w); float64 (labels, topics)
    weight_shape: Vector
    weight_rate: Vector


@dataclass(frozen=True)
class LogLinearWeights(State):
    """Weights of labels and numbers, w_kj ~ N(0, sigma), at the most probable w."""

    weight_variance: float  # sigma
    label_topic: Vector  # w; float64 (labels, topics)


@dataclass(frozen=True)
class LabelRates(State):
    """Rates that labels give to topics, and the weights of which they are made."""

    # log E[R] and E[log R] of each label of value 1; float64 (labels, topics)
    label_log: Vector
    label_mean_log: Vector
    # The weights; one of the two
    inverse_gamma: InverseGammaWeights | None = None
    log_linear: LogLinearWeights | None = None


@dataclass(frozen=True)
class LabelRange(State):
    """Range of the documents' labels, which bounds how far weights may move at once."""

    # Largest and smallest sum of |r_mj| over the labels of a document
    label_most: float
    label_least: float
    label_reach: Vector  # Largest |r_mj| of each label; float64 (labels,)


@dataclass(frozen=True, kw_only=True)
class HdspGlobalState(MeanFieldGlobalState):
    """Global state of the hierarchical Dirichlet scaling process."""

    eta: float  # Dirichlet parameter of each word in a topic
    gamma: float  # Concentration of the corpus's topics
    prior: Vector  # g_k = alpha p_k; float64 (topics,)
    last: int  # Topic that has what all sticks leave
    lda_sweeps_left: int  # Sweeps of LDA still to come
    another_round: bool = False  # Whether the iteration goes on with one more sweep
    carried: bool = False  # Whether the prior is another run's
    label_table: npt.NDArray[np.uint8]  # The training corpus's labels, as `LabelTable.packed` has them; uint8
    rates: LabelRates  # Rates of the labels
    label_range: LabelRange  # Range of the documents' labels
    signed: bool  # Whether values of labels may be negative
    with_curvature: bool  # Whether sweeps sum the Hessian of the weights
    led: bool  # Whether labels have topics of their own at the start

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

    # exp(psi(lambda_kw)), each word's scaled so that the largest is one; None in a finished model; float64 (words,
    # topics)
    word_expected: Vector | None = None
    block_topic: Vector | None = block_only()  # E[n_kw] during a fit, which sweeps do not see; float64 (words, topics)
    word_topic: Vector | None = None  # E[n_kw] of a finished model; float64 (words, topics)

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
            raise ValueError("expected rows with their weights, found those of a finished model")
        return np.ascontiguousarray(self.word_expected)


@dataclass(frozen=True)
class DocumentTopics(LocalState):
    """Topics of documents."""

    document_topic: Counts  # E[n_dk]; float32 (documents, topics)

    @property
    def counts(self) -> Vector:
        """Counts E[n_dk] in double precision."""
        return np.ascontiguousarray(self.document_topic, dtype=np.float64)


@dataclass(frozen=True)
class VbLdaLocal(DocumentTopics):
    """Local state of a shard."""

    even_sweeps_left: int = 0  # Sweeps still to begin from even proportions; 0 where documents were folded in


@dataclass(frozen=True)
class LabelledDocumentTopics(DocumentTopics):
    """Topics and labels of documents."""

    document_label_offsets: npt.NDArray[np.int64]  # Where the labels of each document begin; int64 (documents + 1,)
    document_label: npt.NDArray[np.int32]  # Number of each label in the training corpus's table; int32
    document_label_value: Vector  # r_mj of each; float64


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
    """Sums of the labels that the documents of a sweep have; see `collapsium.workers.kernels.vb.records`."""

    label_total: Vector  # sum_m r_mj; float64 (labels,)
    label_sums: Vector  # As in `RateStatistics`; float64 (labels, 4 or 8, topics)
    # The Hessian of the weights, where it is summed; float64 (labels, 2 labels, topics)
    label_curvature: Vector | None = None

    def of_all(self, labels: int, present: npt.NDArray[np.int64]) -> Self:
        """Return the sums of all labels, zero of those that no document has."""
        total, sums = np.zeros(labels), np.zeros((labels, *self.label_sums.shape[1:]))
        total[present], sums[present] = self.label_total, self.label_sums
        return type(self)(total, sums, self.label_curvature)
