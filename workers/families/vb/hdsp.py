"""The hierarchical Dirichlet scaling process, on a shard (Kim and Oh 2017).

pi_mk ~ Gamma(beta p_k, rate R_mk), z ~ pi_m / sum_k pi_mk, and log R_mk is linear in the labels of a document. By
mean-field variational Bayes: q(z_mn = k) ~ exp( E[log phi_k,x] + E[log pi_mk] ), q(pi_mk) = Gamma(beta p_k + n_mk,
E[R_mk] + N_m / xi_m) with xi_m = sum_k E[pi_mk]: (28) and (37) of the paper.

Rates are made on the driver (`collapsium.pipeline.families.vb.label_scaling`); sweeps see x_jk = log E[R] of each
label. A local state has the labels of each document by their numbers, and E[n_mk].
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.label_index import numbered
from collapsium.workers.arrays.array_fields import (
    ArrayGroup,
    CheckContext,
    FamilyArrays,
    all_or_none,
    ascending,
    counts,
    flags,
    indices,
    numbers,
    offsets,
    optional,
    same_field,
    scalars,
)
from collapsium.workers.arrays.delta import Delta, Part, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.topic_arrays import (
    BY_DOCUMENT,
    LABEL_TABLE,
    MAX_SWEEPS,
    MEAN_FIELD_BLOCKS,
    MEAN_FIELD_ROWS,
    MIN_POSITIVE,
    labelled,
    some_of,
    table_of,
)
from collapsium.workers.families.vb.shard_model import (
    FOLD_IN_LIMITS,
    MeanFieldOptions,
    MeanFieldShardModel,
    even_counts,
    initial_counts,
    start_delta,
    sweep_delta,
)
from collapsium.workers.families.vb.states import Counts, HdspGlobalState, LabelledDocumentTopics, MeanFieldRows, Vector
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.vb.gamma_proportions import (
    expected_proportions,
    gamma_proportions,
    sweep_gamma_proportions,
)
from collapsium.workers.kernels.vb.records import (
    DocumentLabels,
    ExpectedCounts,
    MeanFieldTopics,
    PassLimits,
    RateStatistics,
)

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


BY_GAMMA, BY_NORMAL = ("weight_prior", "weight_rate", "weight_shape"), ("label_topic", "weight_variance")


def _weights(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the weights of labels, which have one of two forms."""
    forms = ["weight_shape" in arrays, "label_topic" in arrays]
    return None if sum(forms) == 1 else "expected either 'weight_shape' or 'label_topic'"


def _signs(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the flag `signed`, which numbers need: kernels have room for negative sums only with it."""
    numbers_ = table_of(arrays).numbers
    return "expected 'signed' where the table of labels has numbers" if numbers_ and not arrays["signed"] else None


def _values(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the values of labels, which are negative only where the global state is `signed`."""
    if context.global_state["signed"] or np.asarray(arrays["document_label_value"]).min(initial=0.0) >= 0.0:
        return None
    return "expected values that are not negative in 'document_label_value', as 'signed' of the global state is off"


HDSP_ARRAYS = FamilyArrays(
    ArrayGroup(
        {
            "prior": counts("f8", "topic"),
            **scalars("f8", "eta gamma vocabulary", MIN_POSITIVE),
            **scalars("i8", "lda_sweeps_left", 0, MAX_SWEEPS),
            "last": indices("i8", "", "topic"),
            **scalars("f8", "label_least label_most"),
            **flags("another_round carried further_sweep led signed with_curvature"),
            **LABEL_TABLE,
            **same_field("label_log label_mean_log", numbers("f8", "label topic")),
            "label_reach": counts("f8", "label"),
            **optional(same_field("label_topic", numbers("f8", "label topic"))),
            **optional(same_field("weight_rate weight_shape", numbers("f8", "label topic", MIN_POSITIVE))),
            **optional(same_field("weight_prior", numbers("f8", "2", MIN_POSITIVE))),
            **optional(scalars("f8", "weight_variance", MIN_POSITIVE)),
            "topic_log": numbers("f8", "topic"),
            "topic_total": counts("f8", "topic"),
        },
        (labelled, some_of("prior"), all_or_none(*BY_GAMMA), all_or_none(*BY_NORMAL), _weights, _signs),
    ),
    lambda global_state: MEAN_FIELD_ROWS,  # noqa: ARG005
    lambda global_state: MEAN_FIELD_BLOCKS,  # noqa: ARG005
    lambda global_state: ArrayGroup({  # noqa: ARG005
        **BY_DOCUMENT,
        "document_label_offsets": offsets("document", "labelled"),
        "document_label": indices("i4", "labelled", "label"),
        "document_label_value": numbers("f8", "labelled"),
    }, (ascending("document_label_offsets", "document_label"), _values)),
)  # fmt: skip


# Sums of each label and topic over the documents that have it; as many again where values may be negative
STATISTICS_PER_LABEL = 4


class HdspShardModel(MeanFieldShardModel[MeanFieldOptions, HdspGlobalState, LabelledDocumentTopics]):
    """The hierarchical Dirichlet scaling process, on a shard."""

    global_state_type, local_type, documents_type = HdspGlobalState, LabelledDocumentTopics, LabelledDocumentTopics
    arrays = HDSP_ARRAYS
    uses_labels = True

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
            self.limits,
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
        gamma_proportions(labels, global_state.prior, counts, theta)
        empty = np.flatnonzero(~counts.any(axis=1))
        if empty.size:
            theta[empty] = _expected_proportions(empty, labels, global_state.prior)
        return theta


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
        own = slice(int(offsets[document]), int(offsets[document + 1]))
        key = label[own].tobytes(), value[own].tobytes()
        if key not in sets:
            sets[key] = len(sets)
            first.append(own)
        place[row] = sets[key]
    ends = np.cumsum([0, *(one.stop - one.start for one in first)], dtype=np.int64)
    theta = np.empty((len(sets), prior.size))
    labels_of_sets, values_of_sets = (np.concatenate([every[one] for one in first]) for every in (label, value))
    expected_proportions(DocumentLabels(ends, labels_of_sets, values_of_sets, log_rate), prior, theta)
    by_document: Vector = theta[place]
    return by_document
