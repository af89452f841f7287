"""Global states of LDA and the HDP by collapsed variational inference."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.state import State
from collapsium.workers.families.cvb import schedule
from collapsium.workers.families.cvb.schedule import Phase
from collapsium.workers.families.plain_tokens import WeighedGlobalState

Flags: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]
Rows32: TypeAlias = npt.NDArray[np.int32]
Vector: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class HeldTokens(State):
    """Tokens that are held out of the counts for a while, to score topics by them."""

    moves_seed: npt.NDArray[np.integer]  # The run's seed; int64 or uint64 ()
    # Share of the tokens that is held out, now and in the local states
    held_share: float
    held_before: float
    held_tokens: float = 0.0  # Tokens that are held out


@dataclass(frozen=True, kw_only=True)
class CoolingState(State):
    """State of the search for the inverse temperature of responsibilities."""

    # Inverse temperature in the next sweep, and by how much it is larger in every other document, and smaller in the
    # rest; 0 ends the search
    cooling_power: float
    cooling_step: float
    # Sweeps so far, and those after which the search begins and ends
    cooling_sweeps: int = 0
    cooling_first: int
    cooling_last: int
    # Last scores of the held-out tokens of every other document and of the rest, in nats a token; 0 for none; float64
    # (2,)
    cooling_scores: Vector = field(default_factory=lambda: np.zeros(2))
    # Sum of the inverse temperatures of the last sweeps, and the number of these sweeps
    cooling_sum: float = 0.0
    cooling_averaged: int = 0


class SmallActiveSets(IntEnum):
    """Documents whose active sets are small."""

    NOWHERE = 0
    IN_HALF = 1  # In the groups `sums.SMALL_SETS`
    EVERYWHERE = 2


@dataclass(frozen=True, kw_only=True)
class ActiveSetTrial(State):
    """State of the trial of small active sets."""

    trial_sweeps: int  # Sweeps of the trial so far
    trial_small: int  # Documents whose active sets are small when they are selected next, as `SmallActiveSets`
    trial_selecting: bool = False  # Whether active sets are selected before the next sweep, whatever the age of a shard
    # Loss from small active sets, in nats per token: the score gap between the two halves before the sets shrank, minus
    # the gap since
    trial_loss: float = 0.0
    # Gain since all documents have small active sets: their mean score, minus their mean score while half had
    trial_gain: float = 0.0


@dataclass(frozen=True, kw_only=True)
class CollapsedGlobalState(WeighedGlobalState):
    """Global state of all families of collapsed topics."""

    vocabulary: float  # W, the number of words
    beta: float  # B, or its expectation
    # Whether responsibilities are sparse, whether their rows run ahead of the counts, whether shards are swept in
    # minibatches, and whether V[n_kw] and Z[n_kw] are summed
    active: bool
    rows_ahead: bool
    stochastic: bool
    moments: bool
    start_every: int  # Where documents use all topics, one in `start_every` documents has them at the start
    corpus_tokens: float  # Tokens of the corpus
    # Batches and minibatches so far
    steps: float = 0.0
    minibatches: float = 0.0
    topic_moments: Vector  # E[n_k] and V[n_k]; float64 (2, topics)
    # Z[n_k]; E[n_k] of the rows as sweeps see them; a_k / (B + E[n_k]) by which background is spread; float64 (topics,)
    topic_log_absent: Vector
    topic_ahead: Vector
    spread_weight: Vector
    # Averages over minibatches of E[s_k] and of sum_d E[log eta_d], scaled to the corpus; float64 (topics,)
    corpus_tables: Vector | None = None
    corpus_log_eta: float | None = None
    # Words and topics whose priors are raised; int64 (seeds,)
    seed_words: Ints | None = None
    seed_topics: Ints | None = None
    # Their pseudo-counts s_kw, which E[n_k] and finished models include; float64 (seeds,)
    seed_counts: Vector | None = None
    # Whether the rows of a fit leave them out, as counts in single precision would be lost beside them
    seeds_apart: bool | None = None
    # True for further sweeps of a shard in an iteration: held-out tokens were scored before the first. Else None.
    sweeping_again: bool | None = None
    # Tokens that are held out of the counts, in fits that search for the temperature or whose topics merge and split
    held: HeldTokens | None = None
    cooling: CoolingState | None = None  # The temperature search, in fits that choose the temperature themselves
    # The trial of small active sets, in fits of large corpora that search for the temperature
    trial: ActiveSetTrial | None = None

    @property
    def phase(self) -> Phase:
        """Phase of the schedule that the next sweep belongs to."""
        held, search, trial = self.held, self.cooling, self.trial
        if held is not None:
            # Split-merge moves hold out more tokens than the temperature search.
            share = schedule.search_share(self.corpus_tokens)
            if held.held_share > share:
                return Phase.SPLIT_MERGE
            if held.held_before > share:
                return Phase.RELEASE
        if search is None or not self.searching:
            return Phase.CONVERGING
        if trial is not None and 0 < trial.trial_sweeps < schedule.trial_sweeps():
            return Phase.ACTIVE_SET_TRIAL
        return Phase.FORMING if search.cooling_sweeps < search.cooling_first else Phase.TEMPERATURE_SEARCH

    @property
    def pseudo_counts(self) -> Vector:
        """Pseudo-counts s_k of each topic, shape (topics,)."""
        topics = self.topic_moments.shape[1]
        if self.seed_topics is None or self.seed_counts is None:
            return np.zeros(topics)
        return np.asarray(np.bincount(self.seed_topics, self.seed_counts, minlength=topics), dtype=np.float64)

    def seed_rows(self, numbers: Ints | None) -> tuple[Rows32, Vector] | None:
        """Return the pseudo-counts that rows of some words leave out, as `kernels.cvb.records.SweepRows` has them.

        `numbers` are the ids of the words, ascending.
        """
        words, topics, counts = self.seed_words, self.seed_topics, self.seed_counts
        if not self.seeds_apart or numbers is None or words is None or topics is None or counts is None:
            return None
        place = np.searchsorted(numbers, words)
        inside = np.flatnonzero(place < numbers.size)
        inside = inside[numbers[place[inside]] == words[inside]]
        rows, row = np.unique(place[inside], return_inverse=True)
        places, values = np.full(numbers.size, -1, dtype=np.int32), np.zeros((rows.size, self.topic_moments.shape[1]))
        places[rows] = np.arange(rows.size)
        np.add.at(values, (row.reshape(-1), topics[inside]), counts[inside])
        return places, values

    @property
    def tokens(self) -> Vector:
        """E[n_k] without pseudo-counts, shape (topics,)."""
        tokens: Vector = np.maximum(self.topic_moments[0] - self.pseudo_counts, 0.0)
        return tokens

    @property
    def plain_ratio(self) -> Vector | None:
        """(B + plain tokens) / (B + E[n_k]) of each topic; None without weights of words."""
        return self.ratio_of_plain(self.beta, self.topic_moments[0])

    @property
    def searching(self) -> bool:
        """True while the temperature is searched for, with or without split-merge moves."""
        return self.cooling is not None and self.cooling.cooling_step != 0.0

    @property
    def releasing(self) -> bool:
        """True if the next sweep begins to count tokens that were held out."""
        return self.held is not None and self.held.held_share < self.held.held_before

    @property
    def changing(self) -> bool:
        """True if the next sweep begins by merging, deleting or splitting topics."""
        return False

    def after_moves(self, counts: Vector) -> Vector:
        """Return E[n_k] as the moves with which the next sweep begins will leave them, shape (topics,)."""
        return counts

    def after_shard(self, counted: Vector, ahead: Vector) -> Self:
        """Return the state for another sweep of a shard, after its own changes of E[n_k]."""
        moments = np.array(self.topic_moments)
        moments[0] = np.maximum(moments[0] + counted, 0.0)
        held = None if self.held is None else replace(self.held, held_before=self.held.held_share)
        trial = None if self.trial is None else replace(self.trial, trial_selecting=False)
        ahead = np.maximum(self.topic_ahead + ahead, 0.0)
        return replace(self, topic_moments=moments, topic_ahead=ahead, held=held, trial=trial, sweeping_again=True)


@dataclass(frozen=True, kw_only=True)
class LdaGlobalState(CollapsedGlobalState):
    """Global state of latent Dirichlet allocation."""

    alpha: Vector  # a_k; float64 (topics,)
    beta_rate: float = 0.0  # - sum_k E[log xi_k], where b_w is learned; 0 before
    word_tables_prior: float  # Pseudo-tables of each word
    asymmetric_beta: bool  # Whether b_w differs by word


class RoundSums(IntEnum):
    """Sums that the next sweep returns for a round of split-merge moves."""

    NONE = 0
    PROPOSALS = 1  # Products of topics, and tokens that other topics would get of a deleted one
    GAINS = 2


@dataclass(frozen=True, kw_only=True)
class MovesState(State):
    """State of split-merge moves: progress of a round, and moves to carry out."""

    topic_alive: Flags  # Topics that exist; bool (topics,)
    moving: bool = False  # Whether the next sweep begins by carrying out moves
    # Whether the first round has found redundant topics, and rounds go on: alpha is fixed meanwhile, and rows have no
    # momentum, which would drive topics past what they become
    superfluous: bool = False
    # The moves; see `kernels.cvb.topic_moves.Moves`; int64 (topics,)
    moves_into: Ints
    moves_split: Ints
    ask: int = RoundSums.NONE  # Sums of the next sweep, as `RoundSums`
    merge_candidates: Ints  # Pairs of topics that may merge; int64 (2, candidates)
    # Those pairs whose words are alike, as of copies of one topic; None before there are pairs by their words; bool
    # (candidates,)
    merge_alike: Flags | None = None
    delete_candidates: Ints  # Topics that may be deleted; int64 (candidates,)
    delete_spill: Vector  # Tokens that other topics would get of them; float64 (candidates, topics)
    # Sweep after which there are no rounds, and rounds in a row that moved little
    moves_last: int
    moves_idle: int = 0
    moves_best: float  # Best score of held-out tokens in a round
    # Moves so far
    merges: int = 0
    deletes: int = 0
    splits: int = 0
    split_until: int = 0  # Sweep from which topics that were split are judged
    split_pairs: Ints  # Topics that were split, with their halves; int64 (2, pairs)
    split_tried: bool = False  # Whether topics have been split


@dataclass(frozen=True, kw_only=True)
class HdpGlobalState(CollapsedGlobalState):
    """Global state of the hierarchical Dirichlet process."""

    # Sweeps so far, and the first ones, in which nothing is learned
    sweeps: float = 0.0
    hold: int
    # E[alpha], G[alpha], E[gamma] and G[beta]
    alpha: float
    alpha_geometric: float
    gamma: float
    beta_geometric: float
    # Shape and rate of the priors of what is learned; float64 (2,)
    alpha_prior: Vector | None = None
    gamma_prior: Vector | None = None
    beta_prior: Vector | None = None
    # Shape and rate of the posteriors; of beta none before it is learned; float64 (2,)
    alpha_posterior: Vector
    gamma_posterior: Vector
    beta_posterior: Vector
    # E[pi_k] and G[pi_k]; float64 (topics,)
    pi: Vector
    pi_geometric: Vector
    stick_order: Ints  # Topics in the order of the sticks; int64 (topics that exist,)
    stick_posterior: Vector  # Parameters of q(pt_k), in that order; float64 (sticks, 2)
    # Parameter of tau's prior for each word, and the sum of q(tau)'s; 0 while tau is 1/W
    tau_prior: float
    tau_total: float = 0.0
    moves: MovesState | None = None  # Split-merge moves, where there are any

    @property
    def changing(self) -> bool:
        """True if the next sweep begins by merging, deleting or splitting topics."""
        moves = self.moves
        if moves is None or not moves.moving:
            return False
        return bool((moves.moves_into != np.arange(moves.moves_into.size)).any() or (moves.moves_split >= 0).any())

    def after_moves(self, counts: Vector) -> Vector:
        """Return E[n_k] as the moves with which the next sweep begins will leave them, shape (topics,)."""
        if self.moves is None or not self.changing:
            return counts
        into, split, after = self.moves.moves_into, self.moves.moves_split, np.array(counts)
        for topic in np.flatnonzero(into != np.arange(into.size)):
            if into[topic] >= 0:
                after[into[topic]] += after[topic]
            after[topic] = 0.0
        parted = np.flatnonzero(split >= 0)
        after[parted] /= 2.0
        after[split[parted]] = after[parted]
        return after

    def after_shard(self, counted: Vector, ahead: Vector) -> Self:
        """Return the state for another sweep of a shard: moves have been carried out, and released tokens counted."""
        after = super().after_shard(counted, ahead)
        return after if self.moves is None else replace(after, moves=replace(self.moves, moving=False))
