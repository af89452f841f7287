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
    """Changes of rows in a delta; the fields are those of `CollapsedRows`."""

    word_topic: npt.NDArray[np.floating] | None = None
    word_active: npt.NDArray[np.float32] | None = None
    word_rest: Vector | None = None
    word_topic_variance: Vector | None = None
    word_topic_log_absent: Vector | None = None


@dataclass(frozen=True)
class WordGain(State):
    """Rows of a minibatch's shards.

    Attributes
    ----------
    word_gain : numpy.ndarray of float32, shape (words, topics)
        Tokens that they have gained.
    """

    word_gain: npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class SweepSums(State):
    """Sums over the documents of a round of sweeps.

    Attributes
    ----------
    documents, tokens : float
        Their numbers.
    held_out : float, optional
        Tokens of the documents that are held out.
    tables : numpy.ndarray of float64, shape (topics,), optional
        E[s_k].
    log_eta : float
        sum_d E[log eta_d].
    bound_documents : float, optional
        The documents' terms of the bound, with order 2.
    """

    documents: float
    tokens: float
    held_out: float | None = None
    tables: Vector | None = None
    log_eta: float = 0.0
    bound_documents: float | None = None


@dataclass(frozen=True, kw_only=True)
class StepSums(State):
    """Sums over the shards of a minibatch.

    Attributes
    ----------
    topic_gain : numpy.ndarray of float64, shape (topics,)
        Tokens that topics have gained.
    decay, shards, batches : float
        Factors of a count to which nothing is added, shards, and batches.
    """

    topic_gain: Vector
    decay: float
    shards: float
    batches: float


@dataclass(frozen=True, kw_only=True)
class TopicTotals(State):
    """Totals of topics from rows of active responsibilities: the background is spread anew.

    Attributes
    ----------
    topic_total, topic_ahead : numpy.ndarray of float64, shape (topics,)
        E[n_k], and the same of the rows that run ahead.
    topic_variance_total, topic_log_absent_total : numpy.ndarray of float64, shape (topics,), optional
        V[n_k] and Z[n_k].
    """

    topic_total: Vector
    topic_ahead: Vector
    topic_variance_total: Vector | None = None
    topic_log_absent_total: Vector | None = None


@dataclass(frozen=True, kw_only=True)
class TopicChanges(State):
    """Changes of topics from rows of dense responsibilities.

    Attributes
    ----------
    topic, topic_variance, topic_log_absent : numpy.ndarray of float64, shape (topics,), optional
        Changes of E[n_k], V[n_k] and Z[n_k].
    """

    topic: Vector | None = None
    topic_variance: Vector | None = None
    topic_log_absent: Vector | None = None


@dataclass(frozen=True)
class WordSums(State):
    """Sums over words, where moments are summed.

    Attributes
    ----------
    tables_of_words, bound_words : float
        sum_kw E[t_kw], and the words' terms of the bound.
    """

    tables_of_words: float
    bound_words: float


@dataclass(frozen=True)
class TauSums(State):
    """Sums over words of q(tau)'s divergence from its prior.

    Attributes
    ----------
    tau_gammaln, tau_digamma, tau_more : float
        Of log G(tau_w), of (tau_w - a_w) psi(tau_w), and of tau_w - a_w.
    """

    tau_gammaln: float
    tau_digamma: float
    tau_more: float


@dataclass(frozen=True)
class ProposalSums(State):
    """Sums for proposing moves.

    Attributes
    ----------
    topic_products : numpy.ndarray of float64, shape (topics, topics)
        Products of the topics' columns.
    delete_spill : numpy.ndarray of float64, shape (candidates, topics)
        Tokens that other topics would get of candidates.
    """

    topic_products: Vector
    delete_spill: Vector


SCORED_GROUPS = 4
"""Groups of documents, to which those of a shard belong in turn.

The powers of weights differ between the first and third group and the others, the sizes of active sets between the
first and second and the others, so that neither difference is taken for the other.
"""
LARGER_POWER, SMALLER_POWER = (0, 2), (1, 3)
LARGE_SETS, SMALL_SETS = (0, 1), (2, 3)


@dataclass(frozen=True)
class HeldScoreSums(State):
    """Score of held-out tokens, by which the power of the weights and the size of active sets are chosen.

    Attributes
    ----------
    cooling_score : numpy.ndarray of float64, shape (2, 4)
        Their log probability and their number in the documents of four groups: the first, fifth, ninth document of a
        shard and so on, and likewise from the second, the third and the fourth.
    """

    cooling_score: Vector

    def in_groups(self, first: Sequence[int], second: Sequence[int]) -> tuple[Vector, Vector]:
        """Return the scores of two sets of groups in nats a token, and their numbers of tokens, both of shape (2,)."""
        log_probability, tokens = (values[[first, second]].sum(axis=1) for values in self.cooling_score)
        return log_probability / np.maximum(tokens, 1.0), tokens


@dataclass(frozen=True)
class ScoreSums(State):
    """Sums over held-out tokens for accepting moves.

    Attributes
    ----------
    merge_gain, merge_square, delete_gain, delete_square : numpy.ndarray of float64, shape (candidates,)
        Gains of candidates, and their squares.
    held_score : numpy.ndarray of float64, shape (2,)
        Log probability of held-out tokens, and their number.
    """

    merge_gain: Vector
    merge_square: Vector
    delete_gain: Vector
    delete_square: Vector
    held_score: Vector
