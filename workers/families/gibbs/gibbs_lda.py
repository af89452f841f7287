"""Latent Dirichlet allocation by collapsed Gibbs sampling, on a shard (Griffiths and Steyvers 2004).

theta_d ~ Dir(a_1..a_K), phi_k ~ Dir(b, ..., b); p(z = k) ~ (n_dk' + a_k) (n_kw' + b) / (n_k' + B), a prime meaning
without the token itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import State
from collapsium.workers.families.gibbs.shard_model import FreeTopicsShardModel
from collapsium.workers.families.gibbs.states import GibbsLocal, SampledGlobalState, SampledRows, Vector
from collapsium.workers.families.gibbs.token_counts import count_documents, delta_ids, document_sums, word_changes
from collapsium.workers.families.gibbs.token_sweep import sweep_shard
from collapsium.workers.families.topic_arrays import GIBBS_LDA_ARRAYS
from collapsium.workers.kernels.cvb.active_sums import active_probability
from collapsium.workers.kernels.cvb.words import log_eta
from collapsium.workers.kernels.gibbs.topics import list_documents, sweep_tokens, word_rising
from collapsium.workers.kernels.jit import AnyKernel

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


class GibbsLdaSettings(Protocol):
    """Options that the sampler reads."""

    @property
    def learns_alpha(self) -> bool:
        """True if a_k is learned."""


@dataclass(frozen=True)
class GibbsLdaGlobalState(SampledGlobalState):
    """Global state of latent Dirichlet allocation."""

    alpha: Vector  # a_k; float64 (topics,)

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


class GibbsLdaShardModel(FreeTopicsShardModel[GibbsLdaSettings, GibbsLdaGlobalState]):
    """Latent Dirichlet allocation on a shard."""

    global_state_type = GibbsLdaGlobalState
    arrays = GIBBS_LDA_ARRAYS

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
