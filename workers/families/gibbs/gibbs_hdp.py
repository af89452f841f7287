"""The hierarchical Dirichlet process by the direct-assignment Gibbs sampler, on a shard.

Teh, Jordan, Beal and Blei (2006), section 5.3: theta_d ~ Dir(alpha pi), phi_k ~ Dir(beta tau) with tau_w = 1 / W, and
pi_u is the part of pi of topics that do not exist yet:
p(z = k) ~ (n_dk' + alpha pi_k) (n_kw' + beta tau_w) / (n_k' + beta), p(z = new) ~ alpha pi_u tau_w.

A topic is a slot, whose number is its id: a column of the counts. A shard may take free slots whose number leaves the
same remainder as its own by ``lanes``, so topics that are created in different shards in one iteration stay apart; with
more shards than lanes, those of shards that share a lane meet in a slot and are one topic from then on, as all do in
HD-HDP (Newman, Asuncion, Smyth and Welling 2009), whose approximation this is. One shard alone samples exactly.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import State
from collapsium.workers.families.gibbs.shard_model import FreeTopicsShardModel
from collapsium.workers.families.gibbs.states import (
    Counts,
    GibbsLocal,
    SampledGlobalState,
    SampledRows,
    Vector,
)
from collapsium.workers.families.gibbs.token_counts import count_documents, delta_ids, document_sums, word_changes
from collapsium.workers.families.gibbs.token_sweep import Slots, sweep_shard
from collapsium.workers.families.topic_arrays import GIBBS_HDP_ARRAYS
from collapsium.workers.kernels.cvb.active_sums import active_probability
from collapsium.workers.kernels.cvb.words import log_eta
from collapsium.workers.kernels.gibbs.topics import draw_tables, list_documents, sweep_tokens, word_rising
from collapsium.workers.kernels.jit import AnyKernel

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


@dataclass(frozen=True)
class GibbsHdpGlobalState(SampledGlobalState):
    """Global state of the hierarchical Dirichlet process."""

    # Concentrations of a document and of the sticks
    alpha: float
    gamma: float
    pi: Vector  # Weights of the topics; 0 of free slots; float64 (slots,)
    free: npt.NDArray[np.bool_]  # Whether no topic has a slot; bool (slots,)
    start_topics: int  # Topics over which tokens are spread at the start
    lanes: int  # Shards whose new topics stay apart

    @property
    def topic_parameters(self) -> Vector:
        """Dirichlet parameters of the topics in a document, alpha pi_k."""
        return self.alpha * self.pi

    @property
    def concentration(self) -> float:
        """Sum of the Dirichlet parameters of all topics, of those too that do not exist yet."""
        return self.alpha

    @property
    def initial_topics(self) -> int:
        """Number of topics over which tokens are spread at the start."""
        return self.start_topics

    def with_slots(self, columns: int) -> GibbsHdpGlobalState:
        """Return the state with at least a number of slots."""
        added = max(columns - self.pi.size, 0)
        if not added:
            return self
        return replace(
            self,
            pi=np.concatenate([self.pi, np.zeros(added, self.pi.dtype)]),
            topic=np.concatenate([self.topic, np.zeros(added, self.topic.dtype)]),
            free=np.concatenate([self.free, np.ones(added, dtype=bool)]),
        )

    def slots_of(self, shard: int) -> Slots:
        """Return the slots of a shard's new topics."""
        lane, columns, free = shard % self.lanes, self.free.size, np.flatnonzero(self.free)
        own = [int(slot) for slot in free[free % self.lanes == lane]]
        return Slots(self.gamma, own, columns + (lane - columns) % self.lanes, self.lanes)


@dataclass(frozen=True)
class GibbsHdpSums(State):
    """Sums of a sweep, from which alpha, gamma and pi are drawn."""

    tables: Vector  # m_k, tables of each topic; float64 (slots,)
    log_stick: float  # sum_d log eta_d, eta_d ~ Beta(alpha, n_d)


@dataclass(frozen=True)
class BornTopics(State):
    """Topics that were created in a sweep."""

    born: Vector  # Their pi_k; 0 of other slots; float64 (slots,)


class GibbsHdpShardModel(FreeTopicsShardModel[Any, GibbsHdpGlobalState]):
    """The hierarchical Dirichlet process on a shard."""

    global_state_type = GibbsHdpGlobalState
    arrays = GIBBS_HDP_ARRAYS

    def kernels(self, global_state: GibbsHdpGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        return (sweep_tokens, list_documents, word_rising, log_eta, active_probability, draw_tables)

    def sweep(
        self, shard: Shard, local: GibbsLocal, rows: SampledRows, global_state: GibbsHdpGlobalState, stream: Stream
    ) -> tuple[GibbsLocal, Delta]:
        """Pass once over a shard, then draw the numbers of its tables and its documents' sticks."""
        began, priors = time.perf_counter(), global_state.priors
        slots = global_state.slots_of(shard.number)
        sweep = sweep_shard(shard, local.token_topic, rows.word_topic, global_state.topic, priors, stream, slots)
        columns = sweep.prior.size
        active, sums = count_documents(shard, sweep.token_topic, sweep.prior, tables=False)
        tables, key = np.zeros(columns), stream.at(purpose=f"{stream.purpose} tables").key()
        draw_tables(active.document_topics, active.document_counts, sweep.prior, key, tables)
        free = np.ones(columns, dtype=bool)
        free[: global_state.free.size] = global_state.free
        parts = {
            **sums,
            **document_sums(shard, priors.concentration),
            "word_topic": word_changes(rows.word_topic, sweep.word_topic),
            "tables": fresh(tables, "topic"),
            "born": fresh(np.where(free, sweep.prior, 0.0) / priors.concentration, "topic"),
            "log_stick": fresh(_log_sticks(shard, priors.concentration, stream)),
        }
        seconds = {"kernel": time.perf_counter() - began}
        return GibbsLocal(active, token_topic=sweep.token_topic), Delta(parts, delta_ids(shard, columns), seconds)

    def advance_global_state(
        self, global_state: GibbsHdpGlobalState, delta: Delta, changes: Counts
    ) -> GibbsHdpGlobalState:
        """Return the global state after the changes of a shard, with the topics that were created in it."""
        wide = global_state.with_slots(changes.shape[1])
        topic, births = wide.topic + changes.sum(axis=0, dtype=np.int64), delta.read(BornTopics)
        pi = wide.pi if births is None else wide.pi + births.born
        return replace(wide, topic=topic, pi=np.where(topic > 0, pi, 0.0), free=wide.free & (topic == 0))


def _log_sticks(shard: Shard, alpha: float, stream: Stream) -> float:
    """Draw eta_d ~ Beta(alpha, n_d) of the documents that have tokens; return the sum of their logarithms."""
    lengths = shard.lengths[shard.lengths > 0].astype(np.float64)
    generator = stream.at(purpose=f"{stream.purpose} sticks").generator()
    # In logarithms, where a small alpha does not vanish: Gamma(a) is Gamma(a + 1) U^(1/a).
    log_one = special.log(generator.standard_gamma(alpha + 1.0, lengths.size))
    log_one -= generator.standard_exponential(lengths.size) / alpha
    return float((log_one - np.logaddexp(log_one, special.log(generator.standard_gamma(lengths)))).sum())
