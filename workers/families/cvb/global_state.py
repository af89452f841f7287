"""Global states of families of collapsed topics, and the sums and changes in their deltas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Annotated, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.annotations import UNSAVED, SavedAs, indices, non_negative, numbers
from collapsium.workers.arrays.state import CheckContext, State
from collapsium.workers.families.cvb import schedule
from collapsium.workers.families.cvb.schedule import Phase
from collapsium.workers.families.document_entries import MIN_POSITIVE, WeighedGlobalState

Flags: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]
Rows32: TypeAlias = npt.NDArray[np.int32]
Vector: TypeAlias = npt.NDArray[np.float64]
NonNegative: TypeAlias = Annotated[float, numbers(low=0)]
NonNegativeInt: TypeAlias = Annotated[int, numbers(low=0)]


@dataclass(frozen=True, kw_only=True)
class HeldTokens(State):
    """Tokens that are held out of the counts for a while, to score topics by them."""

    moves_seed: Annotated[npt.NDArray[np.integer], numbers("", -np.inf, np.inf, dtypes="i8 u8")]  # The run's seed
    # Share of the tokens that is held out, now and in the local states
    held_share: Annotated[float, numbers("", 0, 1)]
    held_before: Annotated[float, numbers("", 0, 1)]
    held_tokens: Annotated[float, numbers(low=0, optional=True)] = 0.0  # Tokens that are held out


@dataclass(frozen=True, kw_only=True)
class TemperatureSearch(State):
    """State of the search for the inverse temperature of responsibilities."""

    PREFIX = "cooling_"

    # Inverse temperature in the next sweep, and by how much it is larger in every other document, and smaller in the
    # rest; 0 ends the search
    inverse_temperature: Annotated[float, numbers("", MIN_POSITIVE, 1), SavedAs("power")]
    spread: Annotated[float, numbers("", -1, 1), SavedAs("step")]
    # Sweeps so far, and those after which the search begins and ends
    sweeps: NonNegativeInt = 0
    first: NonNegativeInt
    last: NonNegativeInt
    # Last scores of the held-out tokens of every other document and of the rest, in nats per token; 0 for none
    scores: Annotated[Vector, numbers("2")] = field(default_factory=lambda: np.zeros(2))
    # Sum of the inverse temperatures of the last sweeps, and the number of these sweeps
    sum: NonNegative = 0.0
    averaged: NonNegativeInt = 0


class SmallActiveSets(IntEnum):
    """Documents whose active sets are small."""

    NOWHERE = 0
    IN_HALF = 1  # In the groups `SMALL_SETS`
    EVERYWHERE = 2


@dataclass(frozen=True, kw_only=True)
class ActiveSetTrial(State):
    """State of the trial of small active sets."""

    trial_sweeps: NonNegativeInt  # Sweeps of the trial so far
    # Documents whose active sets are small when they are selected next, as `SmallActiveSets`
    trial_small: Annotated[int, numbers("", 0, max(SmallActiveSets))]
    trial_selecting: bool = False  # Whether active sets are selected before the next sweep, whatever the age of a shard
    # Loss from small active sets, in nats per token: the score gap between the two halves before the sets shrank, minus
    # the gap since
    trial_loss: Annotated[float, numbers("", -np.inf, np.inf)] = 0.0
    # Gain since all documents have small active sets: their mean score, minus their mean score while half had
    trial_gain: Annotated[float, numbers("", -np.inf, np.inf)] = 0.0


@dataclass(frozen=True, kw_only=True)
class CollapsedGlobalState(WeighedGlobalState):
    """Global state of all families of collapsed topics."""

    beta: Annotated[float, numbers(low=MIN_POSITIVE)]  # B, or its expectation
    # Whether responsibilities are sparse, whether their rows run ahead of the counts, whether shards are swept in
    # minibatches, and whether V[n_kw] and Z[n_kw] are summed
    active: bool
    rows_ahead: bool
    stochastic: bool
    moments: bool
    # Bits of the whole numbers that counts of active topics are; 0 where they are floats: with weights of words, with
    # pseudo-counts of seeds among them, with dense responsibilities, and in fits begun by release 0.1.0
    count_bits: Annotated[int, numbers("", 0, 64, optional=True)] = 0
    start_every: NonNegativeInt  # Where documents use all topics, one in `start_every` documents has them at the start
    corpus_tokens: NonNegative  # Tokens of the corpus
    # Batches and minibatches so far
    steps: NonNegative = 0.0
    minibatches: NonNegative = 0.0
    topic_moments: Annotated[Vector, non_negative("2 topic")]  # E[n_k] and V[n_k]
    # Z[n_k]; E[n_k] of the rows as sweeps see them; a_k / (B + E[n_k]) by which background is spread
    topic_log_absent: Annotated[Vector, numbers("topic")]
    topic_ahead: Annotated[Vector, non_negative("topic")]
    spread_weight: Annotated[Vector, non_negative("topic")]
    # Averages over minibatches of E[s_k] and of sum_d E[log eta_d], scaled to the corpus
    corpus_tables: Annotated[Vector | None, numbers("topic", low=0)] = None
    corpus_log_eta: float | None = None
    # Words and topics whose priors are raised
    seed_words: Annotated[Ints | None, non_negative("seed")] = None
    seed_topics: Annotated[Ints | None, indices("seed", below="topic")] = None
    # Their pseudo-counts s_kw, which E[n_k] and finished models include
    seed_counts: Annotated[Vector | None, non_negative("seed")] = None
    # Whether the rows of a fit exclude them, because they would swamp counts in single precision
    seeds_apart: bool | None = None
    # True for further sweeps of a shard in an iteration: held-out tokens were scored before the first. Else None.
    sweeping_again: Annotated[bool | None, UNSAVED] = None
    # Tokens that are held out of the counts, in fits that search for the temperature or whose topics merge and split
    held: HeldTokens | None = None
    temperature_search: TemperatureSearch | None = None  # In fits that choose the temperature themselves
    # The trial of small active sets, in fits of large corpora that search for the temperature
    trial: ActiveSetTrial | None = None

    numbers_words: ClassVar[bool] = False  # Whether rows of finished models name their words

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of counts with a number of bits that no integers have."""
        yield from super().faults(context)
        if self.count_bits not in (0, 32, 64):
            yield f"expected 0, 32 or 64 in 'count_bits', found {self.count_bits}"

    @property
    def phase(self) -> Phase:
        """Phase of the schedule that the next sweep belongs to."""
        held, search, trial = self.held, self.temperature_search, self.trial
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
        return Phase.FORMING if search.sweeps < search.first else Phase.TEMPERATURE_SEARCH

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
        return self.temperature_search is not None and self.temperature_search.spread != 0.0

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
class LevelState(State):
    """Effects of the levels of fields of many levels, such as authors: u_lk ~ N(0, tau^2)."""

    level_variance: Annotated[Vector, numbers("level_field", low=MIN_POSITIVE)]  # tau^2 of each field
    level_field: Annotated[Ints, indices("design_level", below="level_field")]  # Field of each level
    level_effects: Annotated[Vector, numbers("design_level topic", -1e6, 1e6)]  # u_lk


@dataclass(frozen=True, kw_only=True)
class PrevalenceState(State):
    """Priors of documents that follow a design; see `kernels.cvb.prevalence`."""

    # The design as JSON; see `collapsium.workers.design.ModelDesign`
    prevalence_design: Annotated[npt.NDArray[np.uint8], numbers("design_byte", 0, 255)]
    # Largest sum of |x_dp| over the columns of each term and, for each column, its term
    prevalence_reach: Annotated[Vector, numbers("design_term", low=0)]
    prevalence_terms: Annotated[Ints, indices("design_column", below="design_term")]
    # lambda_kp; in the HDP, intercepts are -log m_k
    prevalence_coefficients: Annotated[Vector, numbers("design_column topic", -1e6, 1e6)]
    prevalence_concentration: Annotated[float, numbers(low=MIN_POSITIVE)]  # A where it is held, and its prior mean
    prevalence_free: bool = False  # Whether concentrations are free; held while responsibilities are tempered
    prevalence_multiplies: bool = False  # Whether the design multiplies the shares of topics, as in the HDP
    # Sweeps so far, and those after which coefficients are learned
    prevalence_sweeps: NonNegativeInt = 0
    prevalence_first: NonNegativeInt = 0
    levels: LevelState | None = None  # Of designs with fields of many levels

    @property
    def row_size(self) -> int:
        """Numbers in a document's row: columns, and a level of each field of many."""
        return len(self.prevalence_coefficients) + (0 if self.levels is None else self.levels.level_variance.size)

    @property
    def held(self) -> float:
        """A where it is held, as kernels take it; 0 where concentrations are free."""
        return 0.0 if self.prevalence_free or self.prevalence_multiplies else self.prevalence_concentration

    @property
    def learns(self) -> bool:
        """True if coefficients, or effects of levels, are learned after the next sweep."""
        after = self.prevalence_sweeps - self.prevalence_first
        return after >= 0 and after % schedule.PREVALENCE_INTERVAL == 0

    @property
    def learns_levels(self) -> bool:
        """True if effects of levels are learned next: they take turns with the coefficients."""
        after = self.prevalence_sweeps - self.prevalence_first
        return self.levels is not None and after // schedule.PREVALENCE_INTERVAL % 2 == 1


@dataclass(frozen=True, kw_only=True)
class PlainTopicsGlobalState(CollapsedGlobalState):
    """Global state of LDA or the HDP."""

    prevalence: PrevalenceState | None = None  # Priors that follow a design


@dataclass(frozen=True, kw_only=True)
class LdaGlobalState(PlainTopicsGlobalState):
    """Global state of latent Dirichlet allocation."""

    alpha: Annotated[Vector, non_negative("topic")]  # a_k; of documents with priors of their own the mean
    beta_rate: NonNegative = 0.0  # - sum_k E[log xi_k], where b_w is learned; 0 before
    word_tables_prior: NonNegative  # Pseudo-tables of each word
    asymmetric_beta: bool  # Whether b_w differs by word


class RoundSums(IntEnum):
    """Sums that the next sweep returns for a round of split-merge moves."""

    NONE = 0
    PROPOSALS = 1  # Products of topics, and tokens that other topics would get of a deleted one
    GAINS = 2


@dataclass(frozen=True, kw_only=True)
class MovesState(State):
    """State of split-merge moves: progress of a round, and moves to carry out."""

    topic_alive: Annotated[Flags, numbers("topic")]  # Topics that exist
    moving: bool = False  # Whether the next sweep begins by carrying out moves
    # Whether the first round has found redundant topics, and rounds continue: alpha is fixed meanwhile, and rows have
    # no momentum, which would drive topics past their optimum
    superfluous: Annotated[bool, numbers("", 0, 1, optional=True)] = False
    # The moves; see `kernels.cvb.topic_moves.Moves`
    moves_into: Annotated[Ints, indices("topic", below="topic", low=-1)]
    moves_split: Annotated[Ints, indices("topic", below="topic", low=-1)]
    ask: NonNegativeInt = RoundSums.NONE  # Sums of the next sweep, as `RoundSums`
    merge_candidates: Annotated[Ints, indices("2 merge", below="topic")]  # Pairs of topics that may merge
    # The pairs whose words are alike, as of copies of one topic; None before there are pairs by their words
    merge_alike: Annotated[Flags | None, numbers("merge")] = None
    delete_candidates: Annotated[Ints, indices("deleted", below="topic")]  # Topics that may be deleted
    delete_spill: Annotated[Vector, non_negative("deleted topic")]  # Tokens that other topics would get of them
    # Sweep after which there are no rounds, and rounds in a row that moved little
    moves_last: NonNegativeInt
    moves_idle: NonNegativeInt = 0
    moves_best: float  # Best score of held-out tokens in a round
    # Moves so far
    merges: NonNegativeInt = 0
    deletes: NonNegativeInt = 0
    splits: NonNegativeInt = 0
    split_until: NonNegativeInt = 0  # Sweep from which topics that were split are judged
    split_pairs: Annotated[Ints, indices("2 split", below="topic")]  # Topics that were split, with their halves
    split_tried: bool = False  # Whether topics have been split

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield a fault if a candidate for deletion is listed twice."""
        yield from super().faults(context)
        if np.unique(self.delete_candidates).size != self.delete_candidates.size:
            yield "expected each topic once in 'delete_candidates'"


@dataclass(frozen=True, kw_only=True)
class HdpGlobalState(PlainTopicsGlobalState):
    """Global state of the hierarchical Dirichlet process."""

    # Sweeps so far, and the first ones, in which nothing is learned
    sweeps: NonNegative = 0.0
    hold: NonNegativeInt
    # E[alpha], G[alpha], E[gamma] and G[beta]
    alpha: Annotated[float, numbers(low=MIN_POSITIVE)]
    alpha_geometric: Annotated[float, numbers(low=MIN_POSITIVE)]
    gamma: Annotated[float, numbers(low=MIN_POSITIVE)]
    beta_geometric: Annotated[float, numbers(low=MIN_POSITIVE)]
    # Shape and rate of the priors of what is learned
    alpha_prior: Annotated[Vector | None, numbers("2", low=MIN_POSITIVE)] = None
    gamma_prior: Annotated[Vector | None, numbers("2", low=MIN_POSITIVE)] = None
    beta_prior: Annotated[Vector | None, numbers("2", low=MIN_POSITIVE)] = None
    # Shape and rate of the posteriors; of beta none before it is learned
    alpha_posterior: Annotated[Vector, numbers("2", low=0)]
    gamma_posterior: Annotated[Vector, numbers("2", low=0)]
    beta_posterior: Annotated[Vector, numbers("learned", low=0)]
    # E[pi_k] and G[pi_k]
    pi: Annotated[Vector, non_negative("topic")]
    pi_geometric: Annotated[Vector, non_negative("topic")]
    stick_order: Annotated[Ints, indices("alive", below="topic")]  # Topics that exist, in the order of the sticks
    stick_posterior: Annotated[Vector, non_negative("stick 2")]  # Parameters of q(pt_k), in that order
    # Parameter of tau's prior for each word, and the sum of q(tau)'s; 0 while tau is 1/W
    tau_prior: NonNegative
    tau_total: NonNegative = 0.0
    moves: MovesState | None = None  # Split-merge moves, where there are any

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of sticks, such as two sticks of one topic."""
        yield from super().faults(context)
        if self.stick_posterior.shape[0] not in (0, self.stick_order.size):
            yield f"expected {self.stick_order.size} rows of 'stick_posterior', or none"
        if self.beta_posterior.size not in (0, 2):
            yield "expected two numbers in 'beta_posterior', or none"
        if np.unique(self.stick_order).size != self.stick_order.size:
            yield "expected each topic once in 'stick_order'"

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
    search_score: Vector

    def in_groups(self, first: Sequence[int], second: Sequence[int]) -> tuple[Vector, Vector]:
        """Return the scores of two sets of groups in nats per token, and their numbers of tokens; shapes (2,)."""
        log_probability, tokens = (values[[first, second]].sum(axis=1) for values in self.search_score)
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
