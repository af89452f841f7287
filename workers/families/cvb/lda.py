"""Latent Dirichlet allocation by collapsed variational inference (Teh, Newman and Welling 2007).

theta_d ~ Dir(a_1..a_K), phi_k ~ Dir(b_1..b_W); zeroth order (CVB0) or the paper's second order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays, present
from collapsium.workers.families import generative as drawing
from collapsium.workers.families.cvb import collapsed, plain_topics, prevalence, updates
from collapsium.workers.families.cvb.collapsed import MIN_PARAMETER, NO_ROWS
from collapsium.workers.families.cvb.global_state import LdaGlobalState, Vector, WordSums
from collapsium.workers.families.cvb.options import PlainTopicsOptions, with_seeds
from collapsium.workers.families.cvb.parameters import Parameters, active_settings
from collapsium.workers.families.cvb.plain_topics import PlainTopicsFamily
from collapsium.workers.families.cvb.states import CollapsedRows
from collapsium.workers.families.family import Summary

# A = sum_k a_k of batch fits with active responsibilities; chosen on corpora of short and of long documents, with
# 50 to 1000 topics (see ``docs/benchmarks/shapes.md``)
DEFAULT_CONCENTRATION = 1.0
DEFAULT_ALPHA = 0.1  # a_k of other fits, as common in the literature, and at most of these


Learned = Literal["alpha", "beta", "asymmetric-alpha", "asymmetric-beta"]


class LdaOptions(PlainTopicsOptions, title="latent Dirichlet allocation, collapsed variational inference"):
    """Options of the family."""

    topics: int = Field(ge=1, le=65_535, description="number of topics K")
    alpha: float | None = Field(
        None,
        gt=0,
        description="Dirichlet parameter alpha_k of each topic in a document (default: 1/K, at most 0.1, with "
        "active responsibilities; 0.1 with dense ones, and in the stochastic schedule)",
    )
    beta: float = Field(
        100.0,
        gt=0,
        description="concentration beta of a topic over the words; each of the W words has Dirichlet parameter beta/W",
    )
    tau: float = Field(
        40.0,
        gt=0,
        description="with asymmetric-beta: number of pseudo-tables that all words share, so that words "
        "without tokens keep a positive probability",
    )
    order: Literal[0, 2] = Field(
        0, description="0: zeroth-order updates (CVB0); 2: second-order updates, with their bound"
    )
    learn: tuple[Learned, ...] = Field(
        (),
        description="hyperparameters to learn: alpha, beta (one value each), asymmetric-alpha (one value for "
        "each topic), asymmetric-beta (one value for each word)",
    )

    @model_validator(mode="after")
    def _prevalence_learns_alpha(self) -> LdaOptions:
        if self.prevalence is not None and {"alpha", "asymmetric-alpha"} & set(self.learn):
            raise OptionError(
                "learns the priors of documents, so it cannot be combined with alpha in `learn`", "prevalence"
            )
        return self

    @field_validator("learn")
    @classmethod
    def _one_kind_each(cls, learn: tuple[Learned, ...]) -> tuple[Learned, ...]:
        for name in ("alpha", "beta"):
            if name in learn and f"asymmetric-{name}" in learn:
                raise ValueError(f"name either {name} or asymmetric-{name}")
        return learn

    @property
    def unused(self) -> dict[str, str]:
        """Options without effect under these options, and for each the condition under which it applies."""
        return super().unused | ({} if "asymmetric-beta" in self.learn else {"tau": "`learn` asymmetric-beta"})

    @property
    def needs_tables(self) -> bool:
        """True if E[s_k] is summed, to learn a_k."""
        return bool({"alpha", "asymmetric-alpha"} & set(self.learn))

    @property
    def learns_beta(self) -> bool:
        """True if b_w is learned."""
        return bool({"beta", "asymmetric-beta"} & set(self.learn))

    @property
    def needs_moments(self) -> bool:
        """True if V[n_kw] and Z[n_kw] are summed."""
        return self.order == 2 or self.learns_beta


class Lda(PlainTopicsFamily[LdaOptions, LdaGlobalState]):
    """Latent Dirichlet allocation by collapsed variational inference."""

    Options = LdaOptions
    global_state_type = LdaGlobalState

    def initialise(self, summary: Summary, stream: Stream) -> LdaGlobalState:
        """Return the global state before any document was swept."""
        options = self.options
        counts = collapsed.initial_counts(summary, options, stream)
        default = min(DEFAULT_CONCENTRATION / options.topics, DEFAULT_ALPHA) if counts["active"] else DEFAULT_ALPHA
        global_state = LdaGlobalState(
            **counts,
            alpha=np.full(options.topics, options.alpha or default),
            beta=options.beta,
            word_tables_prior=options.tau / summary.words,
            asymmetric_beta="asymmetric-beta" in options.learn,
        )
        global_state = self.with_prevalence(global_state, summary, global_state.alpha)
        return with_seeds(global_state, summary, options)

    def carry(
        self, global_state: LdaGlobalState, known: LdaGlobalState, before: LdaOptions
    ) -> tuple[LdaGlobalState, int] | None:
        """Return the global state with a_k and B as another run has learned them."""
        if not self.can_carry(global_state, before):
            return None
        alpha = known.alpha if self.options.needs_tables else global_state.alpha
        beta = known.beta if "beta" in self.options.learn else global_state.beta
        after = replace(global_state, alpha=alpha, beta=beta)
        after = plain_topics.with_known_prevalence(after, known)
        return updates.carried(after, known, self.options), self.options.topics

    def update(self, global_state: LdaGlobalState, delta: Delta, stream: Stream) -> LdaGlobalState:
        """Return the next global state: changed counts, and a_k and b_w if they are learned.

        a_k <- sum_d E[s_dk] / sum_d [psi(A+n_d) - psi(A)];  b_w <- sum_k E[t_kw] / (-sum_k E[log xi_k]), to whose
        tables the asymmetric form adds tau / W.
        """
        options = self.options
        after, sums = updates.of_corpus(global_state, delta)
        parameters = self.update_parameters(NO_ROWS, global_state)
        after = updates.counted(global_state, after, delta, parameters)
        after = prevalence.updated(after, delta, options.inverse_temperature)
        if sums is None or after.searching:
            return after
        if sums.tables is not None and options.needs_tables and sums.log_eta < 0:
            tables = sums.tables if "asymmetric-alpha" in options.learn else np.full(options.topics, sums.tables.mean())
            after = replace(after, alpha=np.maximum(tables / -sums.log_eta, MIN_PARAMETER))
        words = delta.read(WordSums)
        if words is not None and options.learns_beta:
            log_xi, _ = collapsed.topic_totals(after.topic_moments, after.topic_log_absent, global_state.beta)
            rate = -float(log_xi.sum())
            if rate > 0:
                pseudo = options.tau if "asymmetric-beta" in options.learn else 0.0
                beta = max((words.tables_of_words + pseudo) / rate, MIN_PARAMETER)
                after = replace(after, beta_rate=rate, beta=beta)
        return after

    def metrics(self, global_state: LdaGlobalState) -> dict[str, float]:
        """Return the mean a_k, B and, where a fit chooses it, the inverse temperature."""
        metrics = {"alpha": float(global_state.alpha.mean()), "beta": global_state.beta}
        if global_state.prevalence is not None:
            metrics["concentration"] = float(global_state.alpha.sum())
        return metrics | updates.metrics(global_state)

    def edited(
        self, global_state: LdaGlobalState, mixing: Vector, tokens: Vector, plain: Vector | None
    ) -> LdaGlobalState:
        """Return the global state after an edit of topics; the a_k of merged topics add up."""
        counts = plain_topics.edited_counts(global_state, mixing, tokens, plain)
        return replace(global_state, **counts, alpha=plain_topics.mixed(mixing, global_state.alpha))

    def draw_model(self, summary: Summary, stream: Stream) -> tuple[Arrays, LdaGlobalState]:
        """Draw topics to simulate from, as counts so large that the prior has no effect."""
        tokens = np.full(self.options.topics, 1e9 / self.options.topics)
        global_state = replace(
            self.initialise(summary, stream),
            beta=1e-9,
            moments=False,
            # The counts are complete: no word has background to spread.
            active=False,
            held=None,
            temperature_search=None,
            asymmetric_beta=False,
            topic_moments=np.stack([tokens, np.zeros(self.options.topics)]),
        )
        return drawing.draw_topics(summary.words, tokens, self.options.beta, stream), global_state

    def simulated_prior(self, global_state: LdaGlobalState) -> Vector:
        """Return a_k."""
        return global_state.alpha

    def update_parameters(self, rows: CollapsedRows, global_state: LdaGlobalState) -> Parameters:
        """Return a_k and b_w: B / W or, with asymmetric beta, from the tables of each word."""
        if global_state.asymmetric_beta and global_state.beta_rate > 0:
            words: Vector = (present(rows.word_tables) + global_state.word_tables_prior) / global_state.beta_rate
        else:
            words = np.full(rows.words, global_state.beta / global_state.vocabulary)
        return Parameters(
            topics=global_state.alpha,
            concentration=float(global_state.alpha.sum()),
            words=words,
            total=global_state.beta,
            order=self.options.order,
            tables=self.options.needs_tables,
            moments=global_state.moments,
            seeds=global_state.seed_rows(rows.word_number),
            active=active_settings(global_state, self.options, global_state.alpha),
        )
