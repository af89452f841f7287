"""Latent Dirichlet allocation by mean-field variational Bayes, on a shard (Blei, Ng and Jordan 2003).

theta_d ~ Dir(a_1..a_K), phi_k ~ Dir(b_1..b_W); q(theta_d) = Dir(gamma_d), q(phi_k) = Dir(lambda_k), and

    gamma_dk = a_k + sum_w c q,   lambda_kw = b_w + sum_d c q,
    q_dwk ~ exp( psi(gamma_dk) + psi(lambda_kw) - psi(sum_w lambda_kw) ).

Responsibilities are not saved: they follow from gamma and lambda.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.document_pairs import document_pairs, weighed
from collapsium.workers.families.topic_arrays import VB_LDA_ARRAYS
from collapsium.workers.families.vb.shard_model import (
    FOLD_IN_LIMITS,
    MeanFieldOptions,
    MeanFieldShardModel,
    even_counts,
    initial_counts,
    plain_rows,
    start_delta,
    sweep_delta,
)
from collapsium.workers.families.vb.states import (
    Counts,
    DocumentTopics,
    MeanFieldRows,
    VbLdaGlobalState,
    VbLdaLocal,
    Vector,
)
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.metrics.likelihood import DirichletTopics
from collapsium.workers.kernels.vb import mean_field
from collapsium.workers.kernels.vb.records import ExpectedCounts, MeanFieldTopics, PassLimits

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


class VbLdaOptions(MeanFieldOptions, Protocol):
    """Options that sweeps read."""

    @property
    def even_sweeps(self) -> int:
        """Number of first iterations in which documents begin from even proportions."""

    @property
    def learns_alpha(self) -> bool:
        """True if a_k is learned."""

    @property
    def log_counts(self) -> bool:
        """True if the tokens of a pair weigh log(1 + c) times the weight of the word; see `document_pairs.weighed`."""


class VbLdaShardModel(MeanFieldShardModel[VbLdaOptions, VbLdaGlobalState, VbLdaLocal]):
    """Latent Dirichlet allocation by mean-field variational Bayes, on a shard."""

    global_state_type, local_type, documents_type = VbLdaGlobalState, VbLdaLocal, DocumentTopics
    arrays = VB_LDA_ARRAYS
    dirichlet_proportions = True

    def kernels(self, global_state: VbLdaGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        return [*super().kernels(global_state), mean_field.sweep_mean_field]

    def weighed(self, shard: Shard, rows: MeanFieldRows) -> Shard:
        """Return a shard with the weights of its words, if they have any."""
        return weighed(shard, rows.word_weight, log_counts=self.options.log_counts)

    def start(
        self,
        shard: Shard,
        rows: MeanFieldRows,
        global_state: VbLdaGlobalState,
        stream: Stream,
        warm: Arrays | None = None,
    ) -> tuple[VbLdaLocal, Delta]:
        """Draw a shard's initial responsibilities, or take another run's; see `initial_counts`."""
        shard = self.weighed(shard, rows)
        document_topic, word_topic = initial_counts(shard, global_state.alpha.size, stream, warm)
        even = self.options.even_sweeps if warm is None else 0
        return VbLdaLocal(document_topic, even), start_delta(shard, word_topic)

    def sweep(
        self,
        shard: Shard,
        local: VbLdaLocal,
        rows: MeanFieldRows,
        global_state: VbLdaGlobalState,
        stream: Stream,
    ) -> tuple[VbLdaLocal, Delta]:
        """Pass over a shard, each document until its gamma has converged or its passes are used up.

        Returns local: The new one; delta: Fresh `WordCounts` and `VbLdaSums`
        """
        began, topics, shard = time.perf_counter(), global_state.alpha.size, self.weighed(shard, rows)
        log_theta = np.zeros(topics if self.options.learns_alpha else 0)
        even = local.even_sweeps_left > 0
        from_even = even and not global_state.further_sweep
        before = even_counts(shard, topics) if from_even else local.document_topic
        model = MeanFieldTopics(rows.weights, global_state.alpha, global_state.topic_log)
        document_topic, word_topic, bound = _fit_documents(shard, before, model, self.limits, log_theta)
        parts = {
            "bound_documents": fresh(bound),
            "documents": fresh(float(shard.documents)),
            "tokens": fresh(float(shard.tokens)),
            "even": fresh(float(shard.documents if even else 0)),
        }
        if log_theta.size:
            parts.update(log_theta=fresh(log_theta, "topic"), occupied=fresh(float((shard.lengths > 0).sum())))
        after = VbLdaLocal(document_topic, local.even_sweeps_left - from_even)
        return after, sweep_delta(shard, word_topic, parts, None, time.perf_counter() - began)

    def fold_in(
        self,
        shard: Shard,
        rows: MeanFieldRows,
        global_state: VbLdaGlobalState,
        stream: Stream,
    ) -> VbLdaLocal:
        """Fit gamma of unseen documents under fixed topics, from even proportions."""
        expected, topic_log = self.fixed_weights(rows, global_state)
        shard = self.weighed(shard, rows)
        model, before = (
            MeanFieldTopics(expected, global_state.alpha, topic_log),
            even_counts(shard, global_state.alpha.size),
        )
        document_topic, _, _ = _fit_documents(shard, before, model, FOLD_IN_LIMITS, np.zeros(0))
        return VbLdaLocal(document_topic)

    def dirichlet_topics(self, rows: MeanFieldRows, global_state: VbLdaGlobalState) -> DirichletTopics:
        """Return phi_kw and a_k."""
        phi, ratio = self.word_probability(plain_rows(rows), global_state), global_state.plain_ratio
        return DirichletTopics(phi if ratio is None else phi / ratio, global_state.alpha)

    def proportions(self, local: DocumentTopics, global_state: VbLdaGlobalState) -> Vector:
        """Return theta_dk = gamma_dk / sum_k gamma_dk."""
        return global_state.priors.proportions(local.counts)


def _fit_documents(
    shard: Shard, before: Counts, model: MeanFieldTopics, limits: PassLimits, log_theta: Vector
) -> tuple[Counts, Vector, float]:
    """Return E[n_dk], E[n_kw], and the documents' part of the bound."""
    document_topic = np.empty(before.shape, dtype=np.float32)
    word_topic, bound = buffers.empty(model.word_expected.shape, np.float64), np.zeros(1)
    expected = ExpectedCounts(document_topic, word_topic)
    documents, counts = document_pairs(shard), np.ascontiguousarray(before)
    mean_field.sweep_mean_field(documents, model, counts, limits, expected, log_theta, bound)
    return document_topic, word_topic, float(bound[0])
