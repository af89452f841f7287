"""Latent Dirichlet allocation by collapsed Gibbs sampling (Griffiths and Steyvers 2004).

theta_d ~ Dir(a_1..a_K), phi_k ~ Dir(b, ..., b); p(z = k) ~ (n_dk' + a_k) (n_kw' + b) / (n_k' + B), where a prime means
without the token itself. With several shards it is AD-LDA (Newman, Asuncion, Smyth and Welling 2009). Dirichlet
parameters may be learned by Minka's fixed point.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field

from collapsium.workers.arrays.annotations import numbers
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays, State
from collapsium.workers.families import generative
from collapsium.workers.families.document_entries import MIN_POSITIVE
from collapsium.workers.families.family import FamilyOptions, Footprint, Summary, one_alpha
from collapsium.workers.families.gibbs.sampler import (
    SIMULATED_CONCENTRATION,
    SIMULATED_TOKENS,
    FreeTopicsFamily,
    count_documents,
    delta_ids,
    document_sums,
    footprint,
    sweep_shard,
    word_changes,
)
from collapsium.workers.families.gibbs.states import GibbsLocal, SampledGlobalState, SampledRows, Vector
from collapsium.workers.kernels.cvb.words import active_probability, log_eta
from collapsium.workers.kernels.gibbs.topics import list_documents, sweep_tokens, word_rising
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.special_functions import digamma

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents, Shard


@dataclass(frozen=True)
class GibbsLdaGlobalState(SampledGlobalState):
    """Global state of latent Dirichlet allocation."""

    alpha: Annotated[Vector, numbers("topic", low=MIN_POSITIVE)]  # a_k

    @property
    def topic_parameters(self) -> Vector:
        """Dirichlet parameters of the topics in a document, a_k."""
        return np.asarray(self.alpha, dtype=np.float64)


@dataclass(frozen=True)
class GibbsLdaSums(State):
    """Sums of a sweep, by which a_k is learned."""

    log_eta: float  # sum_d psi(A) - psi(A + n_d)
    # sum_d a_k (psi(a_k + n_dk) - psi(a_k)); None where a_k is not learned; float64 (topics,)
    tables: Vector | None = None


@dataclass(frozen=True)
class WordTables(State):
    """Sums over the counts by word, by which B is learned."""

    tables_of_words: float  # sum_kw b (psi(b + n_kw) - psi(b))


Learned = Literal["alpha", "asymmetric-alpha", "beta"]


class GibbsLdaOptions(FamilyOptions, title="latent Dirichlet allocation, collapsed Gibbs sampling"):
    """Options of the family."""

    topics: int = Field(ge=1, le=65_535, description="number of topics K")
    alpha: float = Field(0.1, gt=0, description="Dirichlet parameter alpha_k of each topic in a document")
    beta: float = Field(
        100.0,
        gt=0,
        description="concentration beta of a topic over the words; each of the W words has Dirichlet parameter beta/W",
    )
    learn: Annotated[tuple[Learned, ...], AfterValidator(one_alpha)] = Field(
        (), description="hyperparameters to learn: alpha (one value), asymmetric-alpha (one value for each topic), beta"
    )

    @property
    def learns_alpha(self) -> bool:
        """True if a_k is learned."""
        return bool({"alpha", "asymmetric-alpha"} & set(self.learn))


MIN_PARAMETER = 1e-8  # Smallest Dirichlet parameter that learning may reach


class GibbsLda(FreeTopicsFamily[GibbsLdaOptions, GibbsLdaGlobalState]):
    """Latent Dirichlet allocation by collapsed Gibbs sampling."""

    global_state_type = GibbsLdaGlobalState
    Options = GibbsLdaOptions

    def initialise(self, summary: Summary, stream: Stream) -> GibbsLdaGlobalState:
        """Return the global state before any document was swept."""
        return GibbsLdaGlobalState(
            vocabulary=float(summary.words),
            beta=self.options.beta,
            topic=np.zeros(self.options.topics, dtype=np.int64),
            alpha=np.full(self.options.topics, self.options.alpha),
        )

    def carry(
        self,
        global_state: GibbsLdaGlobalState,
        known: GibbsLdaGlobalState,
        before: GibbsLdaOptions,
    ) -> tuple[GibbsLdaGlobalState, int] | None:
        """Return the global state with a_k and B as another run has learned them."""
        if self.options.topics != before.topics:
            return None
        alpha = known.alpha if self.options.learns_alpha else global_state.alpha
        beta = known.beta if "beta" in self.options.learn else global_state.beta
        return replace(global_state, alpha=alpha, beta=beta), self.options.topics

    def footprint(self, summary: Summary) -> Footprint:
        """Return the memory that the state of a fit takes."""
        return footprint(summary, self.options.topics)

    def update(self, global_state: GibbsLdaGlobalState, delta: Delta, stream: Stream) -> GibbsLdaGlobalState:
        """Return the next global state: changed counts, and a_k and B if they are learned.

        a_k <- a_k sum_d [psi(a_k+n_dk) - psi(a_k)] / sum_d [psi(A+n_d) - psi(A)];
        B <- sum_kw b [psi(b+n_kw) - psi(b)] / sum_k [psi(B+n_k) - psi(B)].
        """
        after, sums = super().update(global_state, delta, stream), delta.read(GibbsLdaSums)
        if sums is None:
            return after
        if sums.tables is not None and sums.log_eta < 0:
            tables = np.full(self.options.topics, sums.tables.mean()) if "alpha" in self.options.learn else sums.tables
            after = replace(after, alpha=np.maximum(tables / -sums.log_eta, MIN_PARAMETER))
        words = delta.read(WordTables)
        if words is not None and "beta" in self.options.learn:
            rate = float((digamma(global_state.beta + after.topic) - digamma(global_state.beta)).sum())
            if rate > 0:
                after = replace(after, beta=max(words.tables_of_words / rate, MIN_PARAMETER))
        return after

    def metrics(self, global_state: GibbsLdaGlobalState) -> dict[str, float]:
        """Return the mean a_k, and B."""
        return {"alpha": float(global_state.alpha.mean()), "beta": global_state.beta}

    def draw_model(self, summary: Summary, stream: Stream) -> tuple[Arrays, GibbsLdaGlobalState]:
        """Draw topics for simulation."""
        tokens = np.full(self.options.topics, SIMULATED_TOKENS / self.options.topics)
        global_state = self.initialise(summary, stream)
        topics = generative.draw_topics(summary.words, tokens, self.options.beta, stream)
        return topics, replace(global_state, beta=SIMULATED_CONCENTRATION, topic=tokens)

    def simulate(
        self, topics: Arrays, global_state: GibbsLdaGlobalState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, npt.NDArray[np.float64]]:
        """Draw documents, theta_d ~ Dir(alpha, ..., alpha), and their proportions."""
        return generative.draw_documents(
            topics, int(global_state.vocabulary), global_state.alpha, documents, tokens, stream
        )

    def kernels(self, global_state: GibbsLdaGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        return (sweep_tokens, list_documents, word_rising, log_eta, active_probability)

    def sweep(
        self, shard: Shard, local: GibbsLocal, rows: SampledRows, global_state: GibbsLdaGlobalState, stream: Stream
    ) -> tuple[GibbsLocal, Delta]:
        """Return the result of a sweep over a shard."""
        began, priors, topics = time.perf_counter(), global_state.priors, global_state.topic.size
        sweep = sweep_shard(shard, local.token_topic, rows.word_topic, global_state.topic, priors, stream)
        active, sums = count_documents(shard, sweep.token_topic, priors.topics, tables=self.options.learns_alpha)
        parts = {
            "word_topic": word_changes(rows.word_topic, sweep.word_topic[:, :topics]),
            **sums,
            **document_sums(shard, priors.concentration),
        }
        seconds = {"kernel": time.perf_counter() - began}
        return GibbsLocal(active, token_topic=sweep.token_topic), Delta(parts, delta_ids(shard, topics), seconds)
