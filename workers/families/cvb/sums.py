"""Sums and changes in the deltas of families of collapsed topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.state import State

Vector: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RowChanges(State):
    """Changes of rows in a delta, with the fields of `CollapsedRows`."""

    word_topic: npt.NDArray[np.floating] | None = None
    # In tokens, or in steps of a responsibility; see `CollapsedGlobalState.count_bits`
    word_active: npt.NDArray[np.float32 | np.int32 | np.int64] | None = None
    word_rest: Vector | None = None
    word_topic_variance: Vector | None = None
    word_topic_log_absent: Vector | None = None


@dataclass(frozen=True)
class WordGain(State):
    """Rows of a minibatch's shards."""

    word_gain: npt.NDArray[np.float32]  # Tokens that they have gained; float32 (words, topics)


@dataclass(frozen=True, kw_only=True)
class SweepSums(State):
    """Sums over the documents of a round of sweeps."""

    # Their numbers
    documents: float
    tokens: float
    held_out: float | None = None  # Tokens of the documents that are held out
    tables: Vector | None = None  # E[s_k]; float64 (topics,)
    log_eta: float = 0.0  # sum_d E[log eta_d]
    bound_documents: float | None = None  # The documents' terms of the bound, with order 2


@dataclass(frozen=True, kw_only=True)
class PrevalenceSums(State):
    """Sums over documents whose priors follow a design."""

    # a_dk of the sweep, in the HDP times h_d; float64 (topics,)
    prior_total: Vector
    prior_weight: float  # Number of documents; in the HDP, the sum of h_d
    log_prior_total: float  # log sum_k exp(x_d.lambda_k)
    # Derivatives by the coefficients; None in sweeps after which none are learned; see
    # `kernels.cvb.prevalence.CoefficientSums`
    prevalence_gradient: Vector | None = None
    prevalence_curvature: Vector | None = None
    level_tables: Vector | None = None
    level_growth: Vector | None = None


@dataclass(frozen=True, kw_only=True)
class StepSums(State):
    """Sums over the shards of a minibatch."""

    topic_gain: Vector  # Tokens that topics have gained; float64 (topics,)
    # Factors of a count to which nothing is added, shards, and batches
    decay: float
    shards: float
    batches: float


@dataclass(frozen=True, kw_only=True)
class TopicTotals(State):
    """Totals of topics from rows of active responsibilities: the background is spread anew."""

    # E[n_k], and the same of the rows that run ahead, of each band of the vocabulary where counts are whole numbers;
    # float64 (topics,) or (bands, topics)
    topic_total: Vector
    topic_ahead: Vector
    # V[n_k] and Z[n_k]; float64 (topics,)
    topic_variance_total: Vector | None = None
    topic_log_absent_total: Vector | None = None


@dataclass(frozen=True, kw_only=True)
class TopicChanges(State):
    """Changes of topics from rows of dense responsibilities."""

    # Changes of E[n_k], V[n_k] and Z[n_k]; float64 (topics,)
    topic: Vector | None = None
    topic_variance: Vector | None = None
    topic_log_absent: Vector | None = None


@dataclass(frozen=True)
class WordSums(State):
    """Sums over words, where moments are summed."""

    # sum_kw E[t_kw], and the words' terms of the bound
    tables_of_words: float
    bound_words: float


@dataclass(frozen=True)
class TauSums(State):
    """Sums over words of q(tau)'s divergence from its prior."""

    tau_gammaln: float  # Sum of log G(tau_w)
    tau_digamma: float  # Sum of (tau_w - a_w) psi(tau_w)
    tau_more: float  # Sum of tau_w - a_w


@dataclass(frozen=True)
class ProposalSums(State):
    """Sums for proposing moves."""

    topic_products: Vector  # Products of the topics' columns; float64 (topics, topics)
    delete_spill: Vector  # Tokens that other topics would get of candidates; float64 (candidates, topics)


# Groups of documents, to which a shard's documents belong in turn. Temperatures differ between the first and third
# group and the others, the sizes of active sets between the first and second and the others, so that neither
# difference is taken for the other.
SCORED_GROUPS = 4
COLDER, HOTTER = (0, 2), (1, 3)
LARGE_SETS, SMALL_SETS = (0, 1), (2, 3)


@dataclass(frozen=True)
class HeldScoreSums(State):
    """Score of held-out tokens, by which the temperature and the size of active sets are chosen."""

    # Their log probability and their number in the documents of four groups: the first, fifth, ninth document of a
    # shard and so on, and likewise from the second, the third and the fourth; float64 (2, 4)
    cooling_score: Vector

    def in_groups(self, first: Sequence[int], second: Sequence[int]) -> tuple[Vector, Vector]:
        """Return the scores of two sets of groups in nats per token, and their numbers of tokens; shapes (2,)."""
        log_probability, tokens = (values[[first, second]].sum(axis=1) for values in self.cooling_score)
        return log_probability / np.maximum(tokens, 1.0), tokens


@dataclass(frozen=True)
class ScoreSums(State):
    """Sums over held-out tokens for accepting moves."""

    # Gains of candidates, and their squares; float64 (candidates,)
    merge_gain: Vector
    merge_square: Vector
    delete_gain: Vector
    delete_square: Vector
    held_score: Vector  # Log probability of held-out tokens, and their number; float64 (2,)
