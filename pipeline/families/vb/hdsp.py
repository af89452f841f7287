"""The hierarchical Dirichlet scaling process (Kim and Oh 2017), by mean-field variational Bayes.

p_k = V_k prod_{l<k} (1 - V_l), V_k ~ Beta(1, gamma); pi_mk ~ Gamma(alpha p_k, rate R_mk); z ~ pi_m / sum_k pi_mk; phi_k
~ Dir(eta, ..., eta). R_mk is a function of the labels of document m
(`collapsium.pipeline.families.vb.label_scaling`); without labels, R = 1 and this is the hierarchical Dirichlet
process. gamma and alpha are the paper's alpha and beta.

V has a point for its q. In g_k = alpha p_k the bound is sum_m [ log G(g_k + n_mk) - log G(g_k) + g_k (E[log R_mk] -
log b_mk) ] + (gamma - 1) log p_K, as prod_{k<K} (1 - V_k) = p_K. With log G(g+n)/G(g) >= g0 (psi(g0+n) - psi(g0)) log g
+ const (Minka 2000) and -log sum_k g_k below its tangent, each g_k has its best value in closed form.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families import description
from collapsium.pipeline.families import generative as drawing
from collapsium.pipeline.families.base import Simulates, Summary, WeighsLabels
from collapsium.pipeline.families.footprint import Footprint
from collapsium.pipeline.families.vb.hdsp_options import HdspOptions
from collapsium.pipeline.families.vb.label_scaling import (
    InverseGamma,
    LogLinear,
    WeightSums,
    scaling_of,
)
from collapsium.pipeline.families.vb.mean_field import (
    MeanFieldFamily,
    per_word,
    topics_footprint,
    totals_bound,
)
from collapsium.pipeline.families.vb.topic_prior import MIN_SHARE, log_rate_rest, next_prior, with_prior_by_size
from collapsium.storage.corpus.label_index import LabelTable
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.vb.hdsp import STATISTICS_PER_LABEL, HdspShardModel
from collapsium.workers.families.vb.states import (
    FoldSums,
    HdspGlobalState,
    HdspSums,
    InverseGammaWeights,
    LabelRange,
    LabelRates,
    LogLinearWeights,
    MeanFieldRows,
    Vector,
)
from collapsium.workers.special_functions import digamma

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

INITIAL_LOG_FACTOR = 8.0  # Log of the factor by which a label favours its own topics in the sweeps of LDA
TOPICS_PER_SHARED_TOPIC = 10  # One of so many topics belongs to no label at the start
LABEL_ARRAYS = 24  # Arrays of labels x topics that the global state and its update hold, counted twice as rows are

SIMULATED_LABELS, LABELS_PER_SIMULATED_DOCUMENT = 8, 2.0


class Hdsp(
    MeanFieldFamily[HdspOptions, HdspGlobalState],
    Simulates[HdspOptions, HdspGlobalState, MeanFieldRows],
    WeighsLabels[HdspOptions, HdspGlobalState, MeanFieldRows],
):
    """The hierarchical Dirichlet scaling process."""

    shard_model, Options = HdspShardModel, HdspOptions

    def initialise(self, summary: Summary, options: HdspOptions, stream: Stream) -> HdspGlobalState:
        """Return the global state before any document was swept."""
        table = summary.labels or LabelTable()
        largest = np.array([1.0] * len(table.names) + [one.largest for one in table.numbers])
        log_rate = _initial_log_rate(table, options)
        return HdspGlobalState(
            vocabulary=float(summary.words),
            eta=options.eta,
            gamma=options.gamma,
            prior=np.full(options.topics, options.initial_alpha(len(table)) / options.topics),
            topic_total=np.zeros(options.topics),
            topic_log=np.full(options.topics, digamma(options.eta * summary.words)),
            lda_sweeps_left=0 if summary.warm else options.lda_sweeps,
            last=options.topics - 1,
            label_table=table.packed(),
            label_range=LabelRange(
                label_most=float(table.most + largest[len(table.names) :].sum()),
                label_least=0.0 if table.numbers else 1.0,
                label_reach=largest,
            ),
            signed=bool(table.numbers),
            with_curvature=len(table) > 0 and options.sums_curvature(len(table)),
            led=bool(log_rate.any()),
            rates=options.label_scaling.initial_rates(log_rate),
        )

    def carry(
        self, global_state: HdspGlobalState, known: HdspGlobalState, options: HdspOptions, before: HdspOptions
    ) -> tuple[HdspGlobalState, int] | None:
        """Return the global state as another run has learned it, if labels and scaling are the same."""
        same = options.topics == before.topics and options.scaling == before.scaling
        if not same or not np.array_equal(global_state.label_table, known.label_table):
            return None
        gamma = known.gamma if "gamma" in options.learn else global_state.gamma
        learned = replace(
            global_state, prior=known.prior, last=known.last, rates=known.rates, gamma=gamma, carried=True
        )
        return learned, options.topics

    def footprint(self, summary: Summary, options: HdspOptions) -> Footprint:
        """Return the memory that the state of a fit takes."""
        table, topics = summary.labels or LabelTable(), options.topics
        labels, words = len(table), max(summary.words, 1)
        kinds = STATISTICS_PER_LABEL * (2 if table.numbers else 1)
        hessian = 2 * labels if options.sums_curvature(labels) else 0
        # Sums, and the rates.
        each = 8.0 * labels * topics * (kinds + 5 + hessian)
        known = 12.0 * sum(table.documents) / max(summary.documents, 1) + 12.0 * len(table.numbers) + 8.0
        return per_word(
            topics_footprint(topics, summary),
            rows=LABEL_ARRAYS * 8.0 * labels * topics / words,
            swept=each / words,
            document=known,
        )

    def update(
        self,
        global_state: HdspGlobalState,
        delta: Delta,
        options: HdspOptions,
        stream: Stream,
    ) -> HdspGlobalState:
        """Update alpha p_k, the labels' weights, and the parameters of their priors."""
        folded, swept = delta.read(FoldSums), delta.read(HdspSums)
        if folded is None:
            raise ValueError("expected a delta that was folded into rows")
        total, left = folded.topic_total, global_state.lda_sweeps_left
        after = replace(
            global_state, topic_total=total, topic_log=digamma(options.eta * global_state.vocabulary + total)
        )
        if swept is None:
            return after if left or global_state.carried else with_prior_by_size(after, total)
        if left:
            after = replace(after, lda_sweeps_left=left - 1, another_round=True)
            return with_prior_by_size(after, total) if left == 1 else after
        return _learned(replace(after, another_round=False), global_state, swept, delta, options)

    def needs_another_round(self, global_state: HdspGlobalState) -> bool:
        """Return true if the iteration goes on with one more sweep."""
        return global_state.another_round

    def objective(self, global_state: HdspGlobalState, delta: Delta) -> dict[str, float]:
        """Return the evidence lower bound (46), in nats, of q(z), q(pi) and q(phi) as the sweep has made them."""
        folded, swept = delta.read(FoldSums), delta.read(HdspSums)
        if folded is None or swept is None or global_state.lda_sweeps_left:
            return {}
        prior, gamma = global_state.prior, global_state.gamma
        documents = swept.bound_documents
        rest = log_rate_rest(global_state, swept, _labels_of(delta))
        documents += float((prior * (rest - swept.minus_log_rate)).sum())
        last = float(prior[global_state.last] / prior.sum())
        sticks = (prior.size - 1) * special.log(gamma) + (gamma - 1.0) * special.log(last)
        weights = scaling_of(global_state.rates).bound(global_state.rates)
        totals = totals_bound(global_state.eta * global_state.vocabulary, folded)
        return {"objective": documents + folded.bound_words + totals + float(sticks) + weights}

    def figures(self, global_state: HdspGlobalState) -> dict[str, float]:
        """Return gamma, alpha, the parameters of the weights' prior, and the topics with 99% of the tokens."""
        topics = float(description.holding(global_state.topic_total))
        weights = scaling_of(global_state.rates).figures(global_state.rates)
        return {"gamma": global_state.gamma, "alpha": float(global_state.prior.sum()), **weights, "topics_99": topics}

    def label_table(self, global_state: HdspGlobalState) -> LabelTable:
        """Return the labels and covariates of the training corpus."""
        return global_state.labels

    def label_weights(self, global_state: HdspGlobalState) -> Vector:
        """Return the log factor of each label and topic: -log E[R], shape (labels, topics)."""
        weights: Vector = -global_state.rates.label_log
        return weights

    def draw_model(self, summary: Summary, options: HdspOptions, stream: Stream) -> tuple[Arrays, HdspGlobalState]:
        """Draw topics, sticks and weights of some labels for simulation."""
        names = tuple(("label", f"l{number}") for number in range(SIMULATED_LABELS))
        table = LabelTable(names, (1,) * SIMULATED_LABELS, (), SIMULATED_LABELS, 0)
        pi = drawing.draw_sticks(options.topics, options.gamma, stream)
        labelled = Summary(summary.documents, summary.words, summary.tokens, labels=table)
        tokens = 1e9 * pi
        global_state = replace(
            self.initialise(labelled, options, stream),
            rates=_draw_rates(options, stream.at(purpose="simulate weights").generator()),
            topic_total=tokens,
            topic_log=digamma(np.maximum(tokens, MIN_SHARE)),
            prior=np.maximum((options.alpha or 1.0) * pi, MIN_SHARE),
            eta=1e-9,
            lda_sweeps_left=0,
        )
        return drawing.draw_topics(summary.words, tokens, options.eta * summary.words, stream), global_state

    def simulate(
        self, topics: Arrays, global_state: HdspGlobalState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, npt.NDArray[np.float64]]:
        """Draw documents with some labels each, pi_mk ~ Gamma(alpha p_k, R_mk), and their proportions."""
        from collapsium.pipeline.families import corpus_columns

        table, generator = global_state.labels, stream.at(purpose="simulate labels").generator()
        probability = min(LABELS_PER_SIMULATED_DOCUMENT / max(len(table), 1), 1.0)
        has = generator.random((documents, len(table))) < probability
        extras = {"labels": corpus_columns.label_column(has, table.names)}
        log_pi = drawing.log_gammas(global_state.prior, documents, generator) - has @ global_state.rates.label_log
        pi = special.exp(log_pi - log_pi.max(axis=1, keepdims=True))
        theta = pi / pi.sum(axis=1, keepdims=True)
        bags = drawing.draw_bags(topics, int(global_state.vocabulary), theta, tokens, generator)
        return replace(bags, extras=extras), theta


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


def _labels_of(delta: Delta) -> npt.NDArray[np.int64]:
    """Return the numbers of the labels that a delta has sums of."""
    return delta.ids.get("label", np.zeros(0, dtype=np.int64))


def _learned(
    after: HdspGlobalState, before: HdspGlobalState, sums: HdspSums, delta: Delta, options: HdspOptions
) -> HdspGlobalState:
    """Return the next global state with the best prior, weights and gamma."""
    present = _labels_of(delta)
    prior = next_prior(before, sums, present, learn_alpha="alpha" in options.learn)
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
