"""Latent Dirichlet allocation by mean-field variational Bayes (Blei, Ng and Jordan 2003), topics smoothed too.

theta_d ~ Dir(a_1..a_K), phi_k ~ Dir(b_1..b_W); q(theta_d) = Dir(gamma_d), q(phi_k) = Dir(lambda_k), and

    gamma_dk = a_k + sum_w c q,   lambda_kw = b_w + sum_d c q,
    q_dwk ~ exp( psi(gamma_dk) + psi(lambda_kw) - psi(sum_w lambda_kw) ).

Responsibilities are not saved: they follow from gamma and lambda.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families import dirichlet as dirichlet
from collapsium.workers.families import generative as drawing
from collapsium.workers.families.document_entries import PlainSums, document_pairs, weighed
from collapsium.workers.families.family import (
    Footprint,
    IntegratesProportions,
    Simulates,
    Summary,
    one_alpha,
    weighed_footprint,
)
from collapsium.workers.families.vb.mean_field import (
    FOLD_IN_LIMITS,
    MAX_SWEEPS,
    ONE_PASS,
    MeanFieldFamily,
    even_counts,
    initial_counts,
    plain_rows,
    start_delta,
    sweep_delta,
    topics_footprint,
    totals_bound,
)
from collapsium.workers.families.vb.states import (
    Counts,
    DocumentTopics,
    FoldSums,
    MeanFieldRows,
    VbLdaGlobalState,
    VbLdaLocal,
    VbLdaSums,
    Vector,
)
from collapsium.workers.families.word_weights import WeightedOptions
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.prediction import DirichletTopics
from collapsium.workers.kernels.vb import mean_field
from collapsium.workers.kernels.vb.mean_field import ExpectedCounts, MeanFieldTopics, PassLimits
from collapsium.workers.special_functions import digamma

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents, Shard


Learned = Literal["alpha", "beta", "asymmetric-alpha"]


class VbLdaOptions(WeightedOptions, title="latent Dirichlet allocation, mean-field variational Bayes"):
    """Options of the family."""

    topics: int = Field(ge=1, le=65_535, description="number of topics K")
    alpha: float = Field(0.1, gt=0, description="Dirichlet parameter alpha_k of each topic in a document")
    beta: float = Field(
        100.0,
        gt=0,
        description="concentration beta of a topic over the words; each of the W words has Dirichlet parameter beta/W",
    )
    learn: Annotated[tuple[Learned, ...], AfterValidator(one_alpha)] = Field(
        (),
        description="hyperparameters to learn: alpha, beta (one value each), asymmetric-alpha (one value for "
        "each topic)",
    )
    document_sweeps: int = Field(
        5,
        ge=1,
        le=MAX_SWEEPS,
        description="largest number of passes over a document in an iteration; each pass updates gamma and q",
    )
    document_tolerance: float = Field(
        0.001,
        ge=0,
        description="stop the passes over a document when its expected counts change by less than this: in "
        "tokens, the mean over the topics; 0: make all passes",
    )

    even_sweeps: int = Field(
        20,
        ge=0,
        le=MAX_SWEEPS,
        description="number of first iterations in which documents start from equal proportions instead of their "
        "previous ones, which avoids a poor local optimum after a random start; afterwards the objective never "
        "decreases",
    )

    @property
    def unused(self) -> dict[str, str]:
        """Options without effect under these options, and for each the condition under which it applies."""
        return ONE_PASS if self.document_sweeps == 1 else {}

    @property
    def learns_alpha(self) -> bool:
        """True if a_k is learned."""
        return bool({"alpha", "asymmetric-alpha"} & set(self.learn))


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


class VbLda(
    MeanFieldFamily[VbLdaOptions, VbLdaGlobalState, VbLdaLocal],
    IntegratesProportions[VbLdaOptions, VbLdaGlobalState, MeanFieldRows, VbLdaLocal],
    Simulates[VbLdaOptions, VbLdaGlobalState, MeanFieldRows, VbLdaLocal],
):
    """Latent Dirichlet allocation by mean-field variational Bayes."""

    Options = VbLdaOptions
    global_state_type, local_type, documents_type = VbLdaGlobalState, VbLdaLocal, DocumentTopics

    def initialise(self, summary: Summary, stream: Stream) -> VbLdaGlobalState:
        """Return the global state before any document was swept."""
        options = self.options
        return VbLdaGlobalState(
            vocabulary=float(summary.words),
            alpha=np.full(options.topics, options.alpha),
            beta=options.beta,
            topic_total=np.zeros(options.topics),
            topic_log=np.full(options.topics, digamma(options.beta)),
            topic_plain=None if summary.weights is None else np.zeros(options.topics),
            first_weights=None if summary.weights is None else summary.weights.weights,
            first_means=None if summary.weights is None else summary.weights.means,
        )

    def carry(
        self, global_state: VbLdaGlobalState, known: VbLdaGlobalState, before: VbLdaOptions
    ) -> tuple[VbLdaGlobalState, int] | None:
        """Return the global state with a_k and B as another run has learned them."""
        if self.options.topics != before.topics:
            return None
        alpha = known.alpha if self.options.learns_alpha else global_state.alpha
        beta = known.beta if "beta" in self.options.learn else global_state.beta
        return replace(global_state, alpha=alpha, beta=beta), self.options.topics

    def footprint(self, summary: Summary) -> Footprint:
        """Return the memory that the state of a fit takes."""
        return weighed_footprint(topics_footprint(self.options.topics, summary), summary.pairs, self.options.weights)

    def update(
        self,
        global_state: VbLdaGlobalState,
        delta: Delta,
        stream: Stream,
    ) -> VbLdaGlobalState:
        """Return the next global state: the topics' totals, and a_k and b_w if they are learned.

        Both maximise the bound: a_k by E[log theta_dk] of the documents that have tokens, b_w by E[log phi_kw]. They
        are held while documents begin from even proportions, because topics that are alike would drive them up.
        """
        folded, swept = delta.read(FoldSums), delta.read(VbLdaSums)
        if folded is None:
            raise ValueError("expected a delta that was folded into rows")
        topic_log = digamma(global_state.beta + folded.topic_total)
        after = replace(global_state, topic_total=folded.topic_total, topic_log=topic_log)
        plain = delta.read(PlainSums)
        if plain is not None:
            # The rows have the weights of words from here on.
            after = replace(after, topic_plain=plain.topic_plain, first_weights=None, first_means=None)
        if swept is None or swept.even > 0:
            return after
        if swept.log_theta is not None and swept.occupied:
            alpha, topics = global_state.alpha, self.options.topics
            if "asymmetric-alpha" in self.options.learn and topics > 1:
                alpha = dirichlet.asymmetric(alpha, swept.log_theta, swept.occupied)
            elif "alpha" in self.options.learn:
                same = dirichlet.symmetric(float(alpha[0]), topics, float(swept.log_theta.sum()), swept.occupied)
                alpha = np.full(topics, same)
            after = replace(after, alpha=alpha)
        if "beta" in self.options.learn:
            words = int(global_state.vocabulary)
            logs = folded.log_phi - words * topic_log.sum()
            beta = words * dirichlet.symmetric(global_state.beta / words, words, float(logs), self.options.topics)
            after = replace(after, beta=beta)
        return after

    def objective(self, global_state: VbLdaGlobalState, delta: Delta) -> dict[str, float]:
        """Return the evidence lower bound, in nats, of the q, gamma and lambda that the sweep has made.

        sum_d [log B(gamma_d) - log B(a)] + sum_k [log B(lambda_k) - log B(b)] - sum c q log q, where log B(x) =
        sum_i log G(x_i) - log G(sum_i x_i); gamma and lambda being the best for q, all else of the bound cancels.
        """
        folded, swept = delta.read(FoldSums), delta.read(VbLdaSums)
        if folded is None or swept is None:
            return {}
        return {"objective": swept.bound_documents + folded.bound_words + totals_bound(global_state.beta, folded)}

    def metrics(self, global_state: VbLdaGlobalState) -> dict[str, float]:
        """Return the mean a_k, and B."""
        return {"alpha": float(global_state.alpha.mean()), "beta": global_state.beta}

    def word_concentration(self, global_state: VbLdaGlobalState) -> float:
        """Return B."""
        return global_state.beta

    def draw_model(self, summary: Summary, stream: Stream) -> tuple[Arrays, VbLdaGlobalState]:
        """Draw topics for simulation, as counts so large that the prior has no effect."""
        tokens = np.full(self.options.topics, 1e9 / self.options.topics)
        global_state = self.initialise(summary, stream)
        global_state = replace(global_state, beta=1e-9, topic_total=tokens, topic_log=digamma(tokens))
        return drawing.draw_topics(summary.words, tokens, self.options.beta, stream), global_state

    def simulate(
        self, topics: Arrays, global_state: VbLdaGlobalState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, npt.NDArray[np.float64]]:
        """Draw documents, theta_d ~ Dir(alpha, ..., alpha), and their proportions."""
        return drawing.draw_documents(
            topics, int(global_state.vocabulary), global_state.alpha, documents, tokens, stream
        )

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
        document_topic, word_topic, bound = _fit_documents(
            shard, before, model, PassLimits(self.options.document_sweeps, self.options.document_tolerance), log_theta
        )
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
