"""The hierarchical Dirichlet scaling process (Kim and Oh 2017), by mean-field variational Bayes.

p_k = V_k prod_{l<k} (1 - V_l), V_k ~ Beta(1, gamma); pi_mk ~ Gamma(alpha p_k, rate R_mk); z ~ pi_m / sum_k pi_mk;
phi_k ~ Dir(eta, ..., eta). R_mk is a function of the labels of document m
(`collapsium.workers.families.vb.label_scaling`); without labels, R = 1 and this is the hierarchical Dirichlet
process. gamma and alpha are the paper's alpha and beta.

V has a point for its q. In g_k = alpha p_k the bound is sum_m [ log G(g_k + n_mk) - log G(g_k) + g_k (E[log R_mk] -
log b_mk) ] + (gamma - 1) log p_K, as prod_{k<K} (1 - V_k) = p_K. With log G(g+n)/G(g) >= g0 (psi(g0+n) - psi(g0)) log
g + const (Minka 2000) and -log sum_k g_k below its tangent, each g_k has its best value in closed form.

Beside a shard, in the paper's symbols: pi_mk ~ Gamma(beta p_k, rate R_mk), z ~ pi_m / sum_k pi_mk, and log R_mk is
linear in the labels of a document. By mean-field variational Bayes: q(z_mn = k) ~ exp( E[log phi_k,x] + E[log pi_mk]
), q(pi_mk) = Gamma(beta p_k + n_mk, E[R_mk] + N_m / xi_m) with xi_m = sum_k E[pi_mk]: (28) and (37) of the paper.

Rates are made on the driver (`collapsium.workers.families.vb.label_scaling`); sweeps see x_jk = log E[R] of each
label. A local state has the labels of each document by their numbers, and E[n_mk].
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from collapsium.storage.corpus.labels import LabelTable, numbered
from collapsium.storage.errors import OptionError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta, Part, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families import description
from collapsium.workers.families import generative as drawing
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.families.family import FamilyOptions, Footprint, Simulates, Summary, WeighsLabels
from collapsium.workers.families.vb.label_scaling import (
    MAX_HESSIAN_SIZE,
    AnyScaling,
    InverseGamma,
    LogLinear,
    WeightSums,
    scaling_of,
)
from collapsium.workers.families.vb.mean_field import (
    FOLD_IN_LIMITS,
    ONE_PASS,
    MeanFieldFamily,
    even_counts,
    initial_counts,
    start_delta,
    sweep_delta,
    topics_footprint,
    totals_bound,
)
from collapsium.workers.families.vb.states import (
    MAX_SWEEPS,
    Counts,
    FoldSums,
    HdspGlobalState,
    HdspSums,
    InverseGammaWeights,
    LabelledDocumentTopics,
    LabelRange,
    LabelRates,
    LogLinearWeights,
    MeanFieldRows,
    Vector,
)
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.vb.mean_field import (
    DocumentLabels,
    ExpectedCounts,
    MeanFieldTopics,
    PassLimits,
    RateStatistics,
    expected_proportions,
    gamma_proportions,
    sweep_gamma_proportions,
)
from collapsium.workers.options import Formerly
from collapsium.workers.special_functions import digamma

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents, Shard


# Sums of each label and topic over the documents that have it; as many again where values may be negative
STATISTICS_PER_LABEL = 4


def _with_labels(document_topic: Counts, shard: Shard, global_state: HdspGlobalState) -> LabelledDocumentTopics:
    """Return documents with their labels, numbered as in the training corpus's table."""
    labels = numbered(shard.labels, global_state.labels, shard.documents)
    return LabelledDocumentTopics(document_topic, labels.offsets, labels.label, labels.value)


@dataclass(frozen=True)
class _ShardLabels:
    """Labels of a shard's documents."""

    numbers: npt.NDArray[np.int64]  # Sorted numbers of the labels that the shard has, or of all; int64 (labels,)
    record: DocumentLabels  # The documents' labels by their places among `numbers`
    totals: Vector  # sum_m r_mj; float64 (labels,)

    def statistics(self, global_state: HdspGlobalState, with_curvature: bool) -> RateStatistics:
        """Return zeros for a sweep to add to."""
        topics, labels = global_state.prior.size, self.numbers.size
        kinds = STATISTICS_PER_LABEL * (2 if global_state.signed else 1)
        curvature = np.zeros((labels, 2 * labels, topics) if with_curvature else (0, 0, 0))
        return RateStatistics(np.zeros((2, topics)), np.zeros((labels, kinds, topics)), curvature)


def _labels_of(
    local: LabelledDocumentTopics, global_state: HdspGlobalState, *, all_labels: bool, without: bool
) -> _ShardLabels:
    """Return the labels of a shard's documents; `without`, documents count as having none."""
    label, value = np.asarray(local.document_label), np.asarray(local.document_label_value)
    offsets = np.asarray(local.document_label_offsets)
    if all_labels:
        numbers, row = np.arange(len(global_state.rates.label_log)), label
    else:
        unique, places = np.unique(label, return_inverse=True)
        numbers, row = unique.astype(np.int64), places.astype(np.int32)
    log_rate = np.ascontiguousarray(global_state.rates.label_log[numbers])
    record = DocumentLabels(np.zeros_like(offsets) if without else offsets, row, value, log_rate)
    totals = np.asarray(np.bincount(row, weights=value, minlength=numbers.size), dtype=np.float64)
    return _ShardLabels(numbers, record, totals)


@dataclass(frozen=True)
class _SweptDocuments:
    """Results of a sweep: E[n_mk], E[n_kw], sums over the documents, and their part of the bound."""

    document_topic: Counts
    word_topic: Vector
    statistics: RateStatistics
    bound: float


def _fit_documents(
    shard: Shard,
    before: Counts,
    model: MeanFieldTopics,
    labels: DocumentLabels,
    limits: PassLimits,
    statistics: RateStatistics,
) -> _SweptDocuments:
    """Update the documents, and add to the statistics."""
    expected = ExpectedCounts(np.empty(before.shape, dtype=np.float32), np.empty(model.word_expected.shape))
    bound, counts = np.zeros(1), np.ascontiguousarray(before)
    sweep_gamma_proportions(document_pairs(shard), model, labels, counts, limits, expected, statistics, bound)
    return _SweptDocuments(expected.document_topic, expected.word_topic, statistics, float(bound[0]))


def _expected_proportions(documents: npt.NDArray[np.int64], labels: DocumentLabels, prior: Vector) -> Vector:
    """Return the expected proportions of documents without words, computed once for each set of labels."""
    offsets, label, value, log_rate = labels
    sets: dict[tuple[bytes, bytes], int] = {}
    place, first = np.empty(documents.size, dtype=np.int64), []
    for row, document in enumerate(documents.tolist()):
        entries = slice(int(offsets[document]), int(offsets[document + 1]))
        key = label[entries].tobytes(), value[entries].tobytes()
        if key not in sets:
            sets[key] = len(sets)
            first.append(entries)
        place[row] = sets[key]
    ends = np.cumsum([0, *(span.stop - span.start for span in first)], dtype=np.int64)
    theta = np.empty((len(sets), prior.size))
    labels_of_sets, values_of_sets = (np.concatenate([every[span] for span in first]) for every in (label, value))
    expected_proportions(DocumentLabels(ends, labels_of_sets, values_of_sets, log_rate), prior, theta)
    by_document: Vector = theta[place]
    return by_document


# Largest logarithm of a rate of unseen documents, and largest value of a label: their products are finite.
MAX_LOG_RATE, MAX_LABEL_VALUE = 600.0, 1e200


def within_range(labels: DocumentLabels) -> DocumentLabels:
    """Return labels whose rates floating point can represent, with other rows for documents with larger ones.

    A number far beyond the training corpus leads to such rates. Proportions do not change if all rates of a document
    are divided by the smallest, and a topic whose rate is then too large to be represented has no share.
    """
    offsets, label, value, log_rate = labels
    owner = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    value = np.clip(value, -MAX_LABEL_VALUE, MAX_LABEL_VALUE)
    reach = np.bincount(owner, np.abs(value) * np.abs(log_rate).max(axis=1, initial=0.0)[label], offsets.size - 1)
    rows, retained = list[Vector](), np.ones(label.size, dtype=bool)
    label, value = label.copy(), value.copy()
    for document in np.flatnonzero(reach > MAX_LOG_RATE).tolist():
        entries = slice(int(offsets[document]), int(offsets[document + 1]))
        logs = (value[entries, np.newaxis] * log_rate[label[entries]]).sum(axis=0)
        if np.abs(logs).max() > MAX_LOG_RATE:
            retained[entries.start + 1 : entries.stop] = False
            label[entries.start], value[entries.start] = len(log_rate) + len(rows), 1.0
            rows.append(np.minimum(logs - logs.min(), MAX_LOG_RATE))
    if not rows:
        return labels
    counts = np.bincount(owner[retained], minlength=offsets.size - 1)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return DocumentLabels(ends, label[retained], value[retained], np.concatenate([log_rate, rows]))


Ints = npt.NDArray[np.int64]

MIN_SHARE = 1e-8  # Smallest g_k: from 0 a topic could not recover


def with_prior_by_size(global_state: HdspGlobalState, total: Vector) -> HdspGlobalState:
    """Return the topics' shares by their sizes; the smallest is the last, which takes the rest of all sticks."""
    share = (total + 1.0) / (total + 1.0).sum()
    return replace(global_state, prior=global_state.prior.sum() * share, last=int(np.argmin(share)))


def log_rate_rest(global_state: HdspGlobalState, sums: HdspSums, present: Ints) -> Vector:
    """Return sum_m (E[log R_mk] - log b_mk), shape (topics,); the labels' sums are of those `present`."""
    if sums.labels is None:
        return sums.minus_log_rate
    rates = global_state.rates.label_mean_log[present]
    rest: Vector = sums.minus_log_rate + np.einsum("j,jk->k", sums.labels.label_total, rates)
    return rest


def gradient(global_state: HdspGlobalState, sums: HdspSums, present: Ints) -> Vector:
    """Return the bound's gradient along g_k = alpha p_k, with all else at its best or fixed, shape (topics,)."""
    before, last, gamma = global_state.prior, global_state.last, global_state.gamma
    slope: Vector = sums.tables / before + log_rate_rest(global_state, sums, present) - (gamma - 1.0) / before.sum()
    slope[last] += (gamma - 1.0) / before[last]
    return slope


def _with_sum(tables: Vector, fall: Vector, alpha: float) -> Vector:
    """Return the g_k, whose sum is alpha, that maximise sum_k (tables_k log g_k - fall_k g_k): tables / (fall + x)."""
    from scipy import optimize

    some = tables > 0.0
    low = -float(fall[some].min(initial=np.inf)) if some.any() else np.inf
    if not np.isfinite(low):
        return np.full(tables.size, alpha / tables.size)

    def excess(step: float) -> float:
        return float((tables[some] / (fall[some] + low + special.exp(step))).sum()) - alpha

    # An upper bound of the root, because each denominator is at least exp(step).
    span = special.log(tables[some].sum() / alpha)
    x = low + special.exp(optimize.brentq(excess, special.log(tables[some].min() / alpha) - 50.0, span + 50.0))
    after: Vector = np.where(some, tables / np.where(some, fall + x, 1.0), 0.0)
    return after


INITIAL_ALPHA_WITH_LABELS = 1000.0  # Tokens that labels count for at the start

Learned = Literal["gamma", "alpha", "weights", "variance"]


class HdspOptions(FamilyOptions, title="hierarchical Dirichlet scaling process, mean-field variational Bayes"):
    """Options of the family."""

    topics: int = Field(200, ge=1, le=65_535, description="truncation K: the largest number of topics")
    scaling: Literal["labels", "linear"] = Field(
        "labels",
        description="how labels scale the proportions: labels, a weight for each label that a document has, "
        "with an inverse-gamma prior; linear, the exponential of a linear function of labels and "
        "covariates, with a normal prior",
    )
    labels: tuple[str, ...] = Field((), description="fields of labels to use (default: all fields of the corpus)")
    covariates: tuple[str, ...] = Field(
        (),
        description="with linear scaling: covariates to use; they are standardised, and a missing value "
        "counts as the mean",
    )
    gamma: float = Field(1.0, ge=1, description="initial concentration gamma of the corpus's topics")
    alpha: float | None = Field(
        None,
        gt=0,
        description="initial concentration alpha of a document's topics (default: 1000 with labels, so that "
        "topics form by labels; else 1). To predict from labels alone with the default eta, fix alpha at 1000, or "
        "at 5 if most labels are missing, by leaving alpha out of `learn`",
    )
    eta: float = Field(0.1, gt=0, description="Dirichlet parameter eta of each word in a topic; it is not learned")
    weight_shape: float = Field(
        1.0, gt=0, description="labels scaling: initial shape a_w of the weights' inverse-gamma prior"
    )
    weight_rate: float = Field(
        1.0, gt=0, description="labels scaling: initial rate b_w of the weights' inverse-gamma prior"
    )
    weight_variance: float = Field(
        1.0, gt=0, description="linear scaling: initial variance of the weights' normal prior"
    )
    learn: tuple[Learned, ...] = Field(
        ("gamma", "alpha", "weights"),
        description="hyperparameters to learn: gamma, alpha, weights (a_w and b_w), variance (of the linear "
        "weights; it shrinks towards zero if most labels are rare). The weights themselves are "
        "always learned",
    )
    initial_topics: Annotated[Literal["labels", "lda"], Formerly("start")] = Field(
        "labels",
        description="labels, from sweeps of LDA that tie topics to labels; lda, from sweeps of LDA without labels, as "
        "in the paper, which usually gives worse bounds and predictions",
    )
    lda_sweeps: int = Field(
        3,
        ge=1,
        le=MAX_SWEEPS,
        description="number of sweeps of LDA that form the initial topics in the first iteration",
    )
    document_sweeps: int = Field(
        5,
        ge=1,
        le=MAX_SWEEPS,
        description="largest number of passes over a document in an iteration; each pass updates q(pi) and q(z)",
    )
    document_tolerance: float = Field(
        0.001,
        ge=0,
        description="stop the passes over a document when its expected counts change by less than this: in "
        "tokens, the mean over the topics; 0: make all passes",
    )

    @property
    def label_scaling(self) -> AnyScaling:
        """The scaling function."""
        if self.scaling == "labels":
            return InverseGamma(self.weight_shape, self.weight_rate, "weights" in self.learn)
        return LogLinear(self.weight_variance, "variance" in self.learn)

    @property
    def unused(self) -> dict[str, str]:
        """Options without effect under these options, and for each the condition under which it applies."""
        passes = ONE_PASS if self.document_sweeps == 1 else {}
        if self.scaling == "labels":
            return {"weight_variance": "`scaling` linear, found labels", **passes}
        return {**dict.fromkeys(("weight_shape", "weight_rate"), "`scaling` labels, found linear"), **passes}

    def sums_curvature(self, labels: int) -> bool:
        """Return true if the Hessian of the weights is summed, as for linear weights if labels are few."""
        return self.scaling == "linear" and labels**2 * self.topics <= MAX_HESSIAN_SIZE

    @property
    def covariates_need(self) -> str:
        """Options that would make a fit use the covariates of a corpus; empty if it does."""
        scaling = "" if self.scaling == "linear" else "scaling = linear and "
        return "" if self.covariates else f"{scaling}covariates = their names"

    @model_validator(mode="after")
    def _numbers_are_linear(self) -> HdspOptions:
        if self.covariates and self.scaling != "linear":
            raise OptionError("numbers need `scaling` linear; `scaling` labels uses labels only", "covariates")
        return self


INITIAL_LOG_FACTOR = 8.0  # Log of the factor by which a label favours its own topics in the sweeps of LDA
TOPICS_PER_SHARED_TOPIC = 10  # One in this number of topics belongs to no label at the start
LABEL_ARRAYS = 24  # Arrays of labels x topics that the global state and its update hold, counted twice as rows are

SIMULATED_LABELS, LABELS_PER_SIMULATED_DOCUMENT = 8, 2.0


class Hdsp(
    MeanFieldFamily[HdspOptions, HdspGlobalState, LabelledDocumentTopics],
    Simulates[HdspOptions, HdspGlobalState, MeanFieldRows, LabelledDocumentTopics],
    WeighsLabels[HdspOptions, HdspGlobalState, MeanFieldRows, LabelledDocumentTopics],
):
    """The hierarchical Dirichlet scaling process."""

    Options = HdspOptions
    global_state_type, local_type, documents_type = HdspGlobalState, LabelledDocumentTopics, LabelledDocumentTopics
    uses_labels = True

    def initialise(self, summary: Summary, stream: Stream) -> HdspGlobalState:
        """Return the global state before any document was swept."""
        options = self.options
        table = summary.labels or LabelTable()
        largest = np.array([1.0] * len(table.names) + [number.largest for number in table.numbers])
        log_rate = _initial_log_rate(table, options)
        alpha = options.alpha or (INITIAL_ALPHA_WITH_LABELS if len(table) else 1.0)
        return HdspGlobalState(
            vocabulary=float(summary.words),
            eta=options.eta,
            gamma=options.gamma,
            prior=np.full(options.topics, alpha / options.topics),
            topic_total=np.zeros(options.topics),
            topic_log=np.full(options.topics, digamma(options.eta * summary.words)),
            lda_sweeps_left=0 if summary.warm else options.lda_sweeps,
            last=options.topics - 1,
            label_table=table.packed(),
            label_range=LabelRange(
                label_most=float(table.max_labels + largest[len(table.names) :].sum()),
                label_least=0.0 if table.numbers else 1.0,
                label_reach=largest,
            ),
            signed=bool(table.numbers),
            with_curvature=len(table) > 0 and options.sums_curvature(len(table)),
            led=bool(log_rate.any()),
            rates=options.label_scaling.initial_rates(log_rate),
        )

    def carry(
        self, global_state: HdspGlobalState, known: HdspGlobalState, before: HdspOptions
    ) -> tuple[HdspGlobalState, int] | None:
        """Return the global state as another run has learned it, if labels and scaling are the same."""
        same = self.options.topics == before.topics and self.options.scaling == before.scaling
        if not same or not np.array_equal(global_state.label_table, known.label_table):
            return None
        gamma = known.gamma if "gamma" in self.options.learn else global_state.gamma
        learned = replace(
            global_state, prior=known.prior, last=known.last, rates=known.rates, gamma=gamma, carried=True
        )
        return learned, self.options.topics

    def footprint(self, summary: Summary) -> Footprint:
        """Return the memory that the state of a fit takes."""
        table, topics = summary.labels or LabelTable(), self.options.topics
        labels, words = len(table), max(summary.words, 1)
        kinds = STATISTICS_PER_LABEL * (2 if table.numbers else 1)
        hessian = 2 * labels if self.options.sums_curvature(labels) else 0
        # Sums, and the rates.
        sums_bytes = 8.0 * labels * topics * (kinds + 5 + hessian)
        known = 12.0 * sum(table.documents) / max(summary.documents, 1) + 12.0 * len(table.numbers) + 8.0
        footprint = topics_footprint(topics, summary)
        return replace(
            footprint,
            rows=footprint.rows + LABEL_ARRAYS * 8.0 * labels * topics / words,
            swept=footprint.swept + sums_bytes / words,
            delta=footprint.delta + sums_bytes / words,
            document=footprint.document + known,
        )

    def update(
        self,
        global_state: HdspGlobalState,
        delta: Delta,
        stream: Stream,
    ) -> HdspGlobalState:
        """Update alpha p_k, the labels' weights, and the parameters of their priors."""
        folded, swept = delta.read(FoldSums), delta.read(HdspSums)
        if folded is None:
            raise ValueError("expected a delta that was folded into rows")
        total, left = folded.topic_total, global_state.lda_sweeps_left
        after = replace(
            global_state, topic_total=total, topic_log=digamma(self.options.eta * global_state.vocabulary + total)
        )
        if swept is None:
            return after if left or global_state.carried else with_prior_by_size(after, total)
        if left:
            after = replace(after, lda_sweeps_left=left - 1, another_round=True)
            return with_prior_by_size(after, total) if left == 1 else after
        return _learned(replace(after, another_round=False), global_state, swept, delta, self.options)

    def needs_another_round(self, global_state: HdspGlobalState) -> bool:
        """Return true if the iteration continues with one more sweep."""
        return global_state.another_round

    def objective(self, global_state: HdspGlobalState, delta: Delta) -> dict[str, float]:
        """Return the evidence lower bound (46), in nats, of q(z), q(pi) and q(phi) as the sweep has made them."""
        folded, swept = delta.read(FoldSums), delta.read(HdspSums)
        if folded is None or swept is None or global_state.lda_sweeps_left:
            return {}
        prior, gamma = global_state.prior, global_state.gamma
        documents = swept.bound_documents
        rest = log_rate_rest(global_state, swept, _labels_of_delta(delta))
        documents += float((prior * (rest - swept.minus_log_rate)).sum())
        last = float(prior[global_state.last] / prior.sum())
        sticks = (prior.size - 1) * special.log(gamma) + (gamma - 1.0) * special.log(last)
        weights = scaling_of(global_state.rates).bound(global_state.rates)
        totals = totals_bound(global_state.eta * global_state.vocabulary, folded)
        return {"objective": documents + folded.bound_words + totals + float(sticks) + weights}

    def metrics(self, global_state: HdspGlobalState) -> dict[str, float]:
        """Return gamma, alpha, the parameters of the weights' prior, and the topics with 99% of the tokens."""
        topics = float(description.holding(global_state.topic_total))
        weights = scaling_of(global_state.rates).metrics(global_state.rates)
        return {"gamma": global_state.gamma, "alpha": float(global_state.prior.sum()), **weights, "topics_99": topics}

    def label_table(self, global_state: HdspGlobalState) -> LabelTable:
        """Return the labels and covariates of the training corpus."""
        return global_state.labels

    def label_weights(self, global_state: HdspGlobalState) -> Vector:
        """Return the log factor of each label and topic: -log E[R], shape (labels, topics)."""
        weights: Vector = -global_state.rates.label_log
        return weights

    def draw_model(self, summary: Summary, stream: Stream) -> tuple[Arrays, HdspGlobalState]:
        """Draw topics, sticks and weights of some labels for simulation."""
        names = tuple(("label", f"l{number}") for number in range(SIMULATED_LABELS))
        table = LabelTable(names, (1,) * SIMULATED_LABELS, (), SIMULATED_LABELS, 0)
        pi = drawing.draw_sticks(self.options.topics, self.options.gamma, stream)
        labelled = Summary(summary.documents, summary.words, summary.tokens, labels=table)
        tokens = 1e9 * pi
        global_state = replace(
            self.initialise(labelled, stream),
            rates=_draw_rates(self.options, stream.at(purpose="simulate weights").generator()),
            topic_total=tokens,
            topic_log=digamma(np.maximum(tokens, MIN_SHARE)),
            prior=np.maximum((self.options.alpha or 1.0) * pi, MIN_SHARE),
            eta=1e-9,
            lda_sweeps_left=0,
        )
        return drawing.draw_topics(summary.words, tokens, self.options.eta * summary.words, stream), global_state

    def simulate(
        self, topics: Arrays, global_state: HdspGlobalState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, npt.NDArray[np.float64]]:
        """Draw documents with some labels each, pi_mk ~ Gamma(alpha p_k, R_mk), and their proportions."""
        from collapsium.storage.corpus import writer

        table, generator = global_state.labels, stream.at(purpose="simulate labels").generator()
        probability = min(LABELS_PER_SIMULATED_DOCUMENT / max(len(table), 1), 1.0)
        has = generator.random((documents, len(table))) < probability
        extras = {"labels": writer.label_column(has, table.names)}
        log_pi = drawing.log_gammas(global_state.prior, documents, generator) - has @ global_state.rates.label_log
        pi = special.exp(log_pi - log_pi.max(axis=1, keepdims=True))
        theta = pi / pi.sum(axis=1, keepdims=True)
        bags = drawing.draw_bags(topics, int(global_state.vocabulary), theta, tokens, generator)
        return replace(bags, extras=extras), theta

    def kernels(self, global_state: HdspGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        return [*super().kernels(global_state), sweep_gamma_proportions, gamma_proportions, expected_proportions]

    def start(
        self,
        shard: Shard,
        rows: MeanFieldRows,
        global_state: HdspGlobalState,
        stream: Stream,
        warm: Arrays | None = None,
    ) -> tuple[LabelledDocumentTopics, Delta]:
        """Draw a shard's initial responsibilities, or take another run's, and number the labels of its documents."""
        document_topic, word_topic = initial_counts(shard, global_state.prior.size, stream, warm)
        return _with_labels(document_topic, shard, global_state), start_delta(shard, word_topic)

    def sweep(
        self,
        shard: Shard,
        local: LabelledDocumentTopics,
        rows: MeanFieldRows,
        global_state: HdspGlobalState,
        stream: Stream,
    ) -> tuple[LabelledDocumentTopics, Delta]:
        """Pass over a shard, each document until its E[n_mk] have converged or its passes are used up.

        Returns local: The new one; delta: Fresh `WordCounts` and `HdspSums`
        """
        began, as_lda = time.perf_counter(), global_state.lda_sweeps_left > 0
        if as_lda and not global_state.further_sweep:
            local = replace(local, document_topic=even_counts(shard, global_state.prior.size))
        model = MeanFieldTopics(rows.weights, global_state.prior, global_state.topic_log)
        with_curvature = global_state.with_curvature and not as_lda
        without_labels = as_lda and not global_state.led
        labels = _labels_of(local, global_state, all_labels=with_curvature, without=without_labels)
        swept = _fit_documents(
            shard,
            local.document_topic,
            model,
            labels.record,
            PassLimits(self.options.document_sweeps, self.options.document_tolerance),
            labels.statistics(global_state, with_curvature),
        )
        statistics = swept.statistics
        parts: dict[str, Part] = {
            "bound_documents": fresh(swept.bound),
            "documents": fresh(float(shard.documents)),
            "tokens": fresh(float(shard.tokens)),
            "tables": fresh(statistics.topic_sums[0], "topic"),
            "minus_log_rate": fresh(statistics.topic_sums[1], "topic"),
        }
        by_label = labels.numbers.size > 0 and not as_lda
        if by_label:
            parts["label_total"] = fresh(labels.totals, "label")
            parts["label_sums"] = fresh(statistics.label_sums, "label")
            if statistics.curvature.size:
                parts["label_curvature"] = fresh(statistics.curvature, "label")
        numbers = labels.numbers if by_label else None
        delta = sweep_delta(shard, swept.word_topic, parts, numbers, time.perf_counter() - began)
        return replace(local, document_topic=swept.document_topic), delta

    def fold_in(
        self,
        shard: Shard,
        rows: MeanFieldRows,
        global_state: HdspGlobalState,
        stream: Stream,
    ) -> LabelledDocumentTopics:
        """Fit E[n_mk] of unseen documents under fixed topics and label weights; without words their labels decide."""
        expected, topic_log = self.fixed_weights(rows, global_state)
        model = MeanFieldTopics(expected, global_state.prior, topic_log)
        local = _with_labels(even_counts(shard, global_state.prior.size), shard, global_state)
        labels = _labels_of(local, global_state, all_labels=False, without=False)
        record = within_range(labels.record)
        labels = replace(labels, numbers=np.arange(len(record.log_rate)), record=record)
        statistics = labels.statistics(global_state, with_curvature=False)
        swept = _fit_documents(shard, local.document_topic, model, labels.record, FOLD_IN_LIMITS, statistics)
        return replace(local, document_topic=swept.document_topic)

    def proportions(self, local: LabelledDocumentTopics, global_state: HdspGlobalState) -> Vector:
        """Return theta_mk = E[pi_mk] / sum_k E[pi_mk] or, without words, E[pi_mk / sum_k pi_mk].

        Words make the sum nearly certain. Labels alone do not: where alpha p_k is small, the topic whose pi happens to
        be large is not the one with the largest mean, and the quotient of means promises too much.
        """
        counts = local.counts
        theta = np.empty(counts.shape)
        labels = DocumentLabels(
            np.asarray(local.document_label_offsets),
            np.asarray(local.document_label),
            np.asarray(local.document_label_value),
            np.ascontiguousarray(global_state.rates.label_log),
        )
        labels = within_range(labels)
        gamma_proportions(labels, global_state.prior, counts, theta)
        empty = np.flatnonzero(~counts.any(axis=1))
        if empty.size:
            theta[empty] = _expected_proportions(empty, labels, global_state.prior)
        return theta


def _initial_log_rate(table: LabelTable, options: HdspOptions) -> Vector:
    """Return the initial log E[R] of labels, shape (labels, topics): lower by `INITIAL_LOG_FACTOR` for their topics.

    A tenth of the topics are left to all. Each label has a topic, if there are so many, the most frequent labels first,
    and the remaining ones are shared out by the roots of the labels' documents. A number counts as two labels, for
    values above its mean and below, of half its documents each.
    """
    log_rate = np.zeros((len(table), options.topics))
    if options.initial_topics == "lda" or not len(table):
        return log_rate
    labels = [(row, -INITIAL_LOG_FACTOR, float(count)) for row, count in enumerate(table.documents)]
    for row, covariate in enumerate(table.numbers, start=len(table.names)):
        factor = INITIAL_LOG_FACTOR / max(covariate.largest, 1.0)
        labels += [(row, sign * factor, covariate.documents / 2) for sign in (-1, 1)]
    counts = np.array([count for _, _, count in labels], dtype=np.float64)
    available = options.topics - options.topics // TOPICS_PER_SHARED_TOPIC
    topics_of = np.zeros(counts.size, dtype=np.int64)
    topics_of[np.argsort(-counts, kind="stable")[:available]] = 1
    roots = np.sqrt(counts)
    topics_of += np.floor(max(available - int(topics_of.sum()), 0) * roots / max(float(roots.sum()), 1.0)).astype(
        np.int64
    )
    ends = np.cumsum(topics_of)
    for (row, factor, _), last, topics in zip(labels, ends.tolist(), topics_of.tolist(), strict=True):
        log_rate[row, last - topics : last] = factor
    return log_rate


def _labels_of_delta(delta: Delta) -> npt.NDArray[np.int64]:
    """Return the numbers of the labels that a delta has sums of."""
    return delta.ids.get("label", np.zeros(0, dtype=np.int64))


def _learned(
    after: HdspGlobalState, before: HdspGlobalState, sums: HdspSums, delta: Delta, options: HdspOptions
) -> HdspGlobalState:
    """Return the next global state with the best prior, weights and gamma."""
    present = _labels_of_delta(delta)
    # g_k = alpha p_k becomes (tables_k + [k last] (gamma - 1)) / ((gamma - 1) / alpha - rest_k).
    tables, alpha = np.array(sums.tables), before.prior.sum()
    tables[before.last] += before.gamma - 1.0
    fall = (before.gamma - 1.0) / alpha - log_rate_rest(before, sums, present)
    if "alpha" in options.learn:
        prior: Vector = np.where(fall > 0.0, tables / np.where(fall > 0.0, fall, 1.0), before.prior)
    else:
        prior = _with_sum(tables, fall, float(alpha))
    prior = np.maximum(prior, MIN_SHARE)
    rates = after.rates
    if sums.labels is not None:
        weight_sums = WeightSums.of(prior, sums.labels.of_all(len(rates.label_log), present))
        rates = options.label_scaling.next_rates(rates, weight_sums, after.label_range)
    gamma = after.gamma
    if "gamma" in options.learn and options.topics > 1:
        last = float(prior[before.last] / prior.sum())
        gamma = float(max((options.topics - 1) / -special.log(last), 1.0))
    return replace(after, prior=prior, rates=rates, gamma=gamma)


def _draw_rates(options: HdspOptions, generator: np.random.Generator) -> LabelRates:
    """Draw the weights of labels for simulation."""
    size = SIMULATED_LABELS, options.topics
    if options.scaling == "labels":
        drawn = options.weight_rate / generator.standard_gamma(options.weight_shape, size)
        # So that q(w) is nearly a point.
        certain = 1e6
        prior = np.array([options.weight_shape, options.weight_rate])
        return InverseGamma().rates(InverseGammaWeights(prior, np.full(size, certain), certain * drawn))
    drawn = generator.normal(0.0, np.sqrt(options.weight_variance), size)
    return LogLinear().rates(LogLinearWeights(options.weight_variance, drawn))
