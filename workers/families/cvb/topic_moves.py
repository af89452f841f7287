"""Split-merge moves: topics are merged, deleted and split between sweeps, by held-out tokens.

A CV-HDP keeps all topics of its truncation. The paper (Teh, Kurihara and Welling 2007) names splitting and merging as
the remedy. A round takes three sweeps. The first sums products of the topics' columns and the tokens that deleted
topics would hand over. The second sums the candidates' gains on held-out tokens, by which moves are accepted. The
third begins by carrying out the accepted moves. All sums reduce like any delta, and held-out tokens count again once
rounds find no more moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Delta, Part, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import cooling
from collapsium.workers.families.cvb.active_topics import DocumentChunk, Ints, Selected, starts_of
from collapsium.workers.families.cvb.global_state import (
    CollapsedGlobalState,
    HdpGlobalState,
    HeldTokens,
    MovesState,
    Vector,
)
from collapsium.workers.families.cvb.parameters import Parameters, SweptRows
from collapsium.workers.families.cvb.sums import SCORED_GROUPS, ProposalSums, ScoreSums
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.cvb import deletion_scores, merge_scores
from collapsium.workers.kernels.cvb import topic_moves as kernels
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, NewActiveState
from collapsium.workers.kernels.records import DocumentPairs

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


@dataclass(frozen=True)
class MoveSchedule:
    """Rounds of merges, deletions and splits; the values were tuned on corpora drawn from known topics."""

    # Tokens to hold out of the counts, to score moves. Topics do not learn from them: of 9 million simulated tokens, a
    # tenth held out costs 0.013 nats a token in the sixth sweep.
    held_tokens: float = 100_000.0
    # Share of the tokens that is held out, at least: twice that of the search for the power
    min_held_share: float = 0.01
    max_held_share: float = 0.1  # Share of the tokens that is held out, at most
    # Parameter alpha pi_k of each topic, from the first round on that finds superfluous topics
    held_prior: float = 0.05
    begin: int = 40  # Sweeps before the first round
    every: int = 5  # Sweeps from one round to the next
    last: float = 0.75  # Share of all sweeps after which the held-out tokens count again
    min_sweeps: int = 100  # Sweeps of a run with moves, at least, as topics must converge after the last round
    max_topics: int = 1024  # Largest truncation: products of all pairs of topics take 8 MB then
    idle_rounds: int = 4  # Rounds in a row with few moves after which the search ends
    few_moves: float = 0.02  # Share of the topics up to which the moves of a round are few
    # Share of the topics; if the first round is sure of fewer merges, the truncation is not too large. Topics too many
    # are copies. Deletions do not show it: in short documents all of them seem to gain.
    worth: float = 0.05
    # Standard errors from which on the gain of a merge is sure; merges of copies are sure where they are accepted, as
    # two topics that predict alike gain nothing by a merge
    sure_merge: float = 1.0
    # A round moves nothing if its score, in nats a token, is this over the root of the held-out tokens lower than the
    # best
    max_fall: float = 0.5
    merge_candidates: int = 5  # Nearest topics, by correlation of word counts, that each topic may merge with
    delete_candidates: float = 0.25  # Share of the topics, the smallest, that may be deleted
    min_delete_candidates: int = 20  # Topics that may be deleted, at least
    max_delete_candidates: int = 100  # Topics that may be deleted, at most
    max_merges: float = 0.2  # Share of the topics that a round merges, at most
    max_deletes: float = 0.1  # Share of the topics that a round deletes, at most
    merge_errors: float = 0.5  # Least gain of a merge, in standard errors of the sum
    alike: float = 0.9  # Correlation of word counts from which on two topics are taken for copies of one
    # The same as `merge_errors` for copies: they are merged unless that loses more than so many standard errors
    alike_errors: float = -1.0
    delete_errors: float = 0.0  # Least gain of a deletion, in standard errors of the sum
    split_share: float = 0.5  # Share of the topics that are split, the largest
    split_sweeps: int = 15  # Sweeps after which splits are scored
    split_errors: float = -2.0  # The halves of a split are merged again if that gains more than so many standard errors


SCHEDULE = MoveSchedule()
WORST_SCORE = -1e6  # Score below all others, in nats a token


def held_tokens(tokens: float, seed: int) -> HeldTokens:
    """Return the tokens by which moves are scored, of a corpus of `tokens`; `seed` is the run's."""
    share = min(max(SCHEDULE.held_tokens / max(tokens, 1.0), SCHEDULE.min_held_share), SCHEDULE.max_held_share)
    return HeldTokens(moves_seed=np.array(seed), held_share=share, held_before=share)


def is_held_for_moves(held_share: float, tokens: float) -> bool:
    """Return whether a share of a corpus's tokens is held out for moves, as the search for the power holds out less."""
    return held_share > cooling.held_share(tokens)


def initial_state(topics: int, iterations: int) -> MovesState:
    """Return the state before any round."""
    return MovesState(
        topic_alive=np.ones(topics, dtype=bool),
        moves_into=np.arange(topics),
        moves_split=np.full(topics, -1),
        merge_candidates=np.zeros((2, 0), dtype=np.int64),
        delete_candidates=np.zeros(0, dtype=np.int64),
        delete_spill=np.zeros((0, topics)),
        moves_last=int(SCHEDULE.last * iterations),
        moves_best=WORST_SCORE,
        split_pairs=np.zeros((2, 0), dtype=np.int64),
    )


def possible(iterations: int) -> bool:
    """Return true if so many sweeps have room for a round that moves topics, after which all tokens count again."""
    return int(SCHEDULE.last * iterations) > SCHEDULE.begin + SCHEDULE.every


def next_state(before: HdpGlobalState, after: HdpGlobalState, delta: Delta) -> HdpGlobalState:
    """Return the global state after the next step of a round."""
    old, state, held = before.moves, after.moves, after.held
    if old is None or state is None or held is None:
        return after
    topics = old.topic_alive.size
    into, split = np.arange(topics), np.full(topics, -1)
    state = replace(state, ask=0, moving=False, moves_into=into, moves_split=split)
    after = replace(after, moves=state)
    if not is_held_for_moves(held.held_share, after.corpus_tokens):
        return after
    if old.merges + old.deletes and not old.superfluous:
        # A checkpoint of an earlier release does not say so.
        old, state = replace(old, superfluous=True), replace(state, superfluous=True)
        after = replace(after, moves=state)
    sweep = int(after.sweeps)
    proposals, scores = delta.read(ProposalSums), delta.read(ScoreSums)
    if old.ask == 1 and proposals is not None:
        return replace(after, moves=_with_candidates(before, after, state, proposals))
    if old.ask == 2 and scores is not None:
        return _with_accepted(old, after, state, scores)
    if old.split_until > sweep:
        # The halves of split topics separate.
        return after
    if old.split_pairs.size:
        return replace(after, moves=replace(state, ask=2, merge_candidates=old.split_pairs))
    idle = old.moves_idle >= SCHEDULE.idle_rounds
    if idle and old.deletes + old.merges and not old.split_tried and sweep + SCHEDULE.split_sweeps < old.moves_last:
        return _with_splits(after, state, sweep)
    if idle or sweep >= old.moves_last:
        after = cooling.resumed(after) if after.searching else replace(after, held=replace(held, held_share=0.0))
        return replace(after, moves=replace(state, moving=True, superfluous=False))
    if sweep >= SCHEDULE.begin and sweep % SCHEDULE.every == 0:
        return replace(after, moves=_with_smallest(after, state))
    return after


def _with_smallest(global_state: HdpGlobalState, state: MovesState) -> MovesState:
    """Propose the smallest topics for deletion, the smallest first; none in the first round, which moves nothing."""
    alive = np.flatnonzero(state.topic_alive)
    size = global_state.topic_moments[0][alive]
    count = max(int(SCHEDULE.delete_candidates * alive.size), SCHEDULE.min_delete_candidates)
    count = min(count, SCHEDULE.max_delete_candidates, alive.size - 1)
    smallest = alive[np.argsort(size, kind="stable")[: count if state.superfluous else 0]]
    spill = np.zeros((smallest.size, state.topic_alive.size))
    return replace(state, ask=1, delete_candidates=smallest, delete_spill=spill)


def _with_candidates(
    before: HdpGlobalState, after: HdpGlobalState, state: MovesState, sums: ProposalSums
) -> MovesState:
    """Propose pairs of topics for merging: each with those whose words are most like its own."""
    alive = np.flatnonzero(state.topic_alive)
    upper = sums.topic_products[np.ix_(alive, alive)]
    both = upper + upper.T - np.diag(np.diag(upper))
    mean = after.topic_moments[0][alive] / before.vocabulary
    covariance = both - before.vocabulary * np.outer(mean, mean)
    # Of a flat topic, whose cells are too small to count in the products, no correlation is known.
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    deviation[deviation == 0.0] = np.inf
    alike = covariance / np.outer(deviation, deviation)
    np.fill_diagonal(alike, -np.inf)
    count = min(SCHEDULE.merge_candidates, alive.size - 1)
    nearest = np.argsort(-alike, axis=1, kind="stable")[:, :count]
    owner = np.repeat(np.arange(alive.size), count)
    pairs = np.sort(np.stack([owner, nearest.ravel()]), axis=0)
    pairs = np.unique(pairs, axis=1) if pairs.size else pairs
    candidates = np.ascontiguousarray(alive[pairs]).astype(np.int64)
    copies = alike[pairs[0], pairs[1]] >= SCHEDULE.alike
    return replace(state, ask=2, merge_candidates=candidates, merge_alike=copies, delete_spill=sums.delete_spill)


@dataclass
class _Chosen:
    """Accepted moves, no two of which concern the same topic; `sure` of the merges show superfluous topics."""

    into: Ints
    taken: npt.NDArray[np.bool_]
    merges: int = 0
    deletes: int = 0
    sure: int = 0


def _with_accepted(old: MovesState, after: HdpGlobalState, state: MovesState, sums: ScoreSums) -> HdpGlobalState:
    """Accept the moves that gain, the best first."""
    alive = np.array(old.topic_alive)
    chosen = _Chosen(np.arange(alive.size), np.zeros(alive.size, dtype=bool))
    were_split = int(old.split_pairs.shape[1])
    held = max(float(sums.held_score[1]), 1.0)
    score, fallen = float(sums.held_score[0]) / held, old.moves_best - SCHEDULE.max_fall / np.sqrt(held)
    errors = SCHEDULE.split_errors if were_split else SCHEDULE.merge_errors
    _choose_merges(chosen, old, after.topic_moments[0], sums, errors)
    state = replace(
        state,
        split_pairs=np.zeros((2, 0), dtype=np.int64),
        merge_candidates=np.zeros((2, 0), dtype=np.int64),
        merge_alike=None,
        delete_candidates=np.zeros(0, dtype=np.int64),
        delete_spill=np.zeros((0, alive.size)),
    )
    if not old.superfluous:
        return replace(after, moves=_after_first_round(state, chosen.sure >= SCHEDULE.worth * alive.sum()))
    _choose_deletes(chosen, old, sums, int(alive.sum()))
    accepted = chosen.merges + chosen.deletes
    if not were_split and score < fallen:
        # Moves that each gained have lost together, or topics are still changing.
        if old.merges + old.deletes and int(after.sweeps) < SCHEDULE.begin + 3 * SCHEDULE.every:
            # The first have lost: the truncation is not too large.
            return replace(after, moves=replace(state, moves_idle=SCHEDULE.idle_rounds, split_tried=True))
        return replace(after, moves=replace(state, moves_idle=old.moves_idle + 1))
    state = replace(state, moves_best=max(score, old.moves_best))
    if were_split:
        # Halves that are merged again have changed nothing.
        state = replace(state, splits=old.splits + were_split - chosen.merges)
        chosen.merges = 0
    few = accepted <= SCHEDULE.few_moves * alive.sum()
    state = replace(state, moves_idle=old.moves_idle + 1 if few and not were_split else 0)
    if not accepted:
        return replace(after, moves=state)
    gone = np.flatnonzero(chosen.into != np.arange(alive.size))
    alive[gone] = False
    merges, deletes = old.merges + chosen.merges, old.deletes + chosen.deletes
    state = replace(state, moves_into=chosen.into, topic_alive=alive, merges=merges, deletes=deletes)
    # Counts and totals move in the next sweep, with the documents of each shard.
    return replace(after, moves=replace(state, moving=True))


def _after_first_round(state: MovesState, superfluous: bool) -> MovesState:
    """Return the state after the first round, which moves nothing: those to come have another alpha.

    Without superfluous topics, there are no more rounds: following what chance proposes costs more than it gains.
    """
    if superfluous:
        return replace(state, superfluous=True)
    return replace(state, moves_idle=SCHEDULE.idle_rounds, split_tried=True)


def _with_splits(after: HdpGlobalState, state: MovesState, sweep: int) -> HdpGlobalState:
    """Split the largest topics by halves of their documents, as far as there is room.

    The halves separate for some sweeps. Those that predict no better by then are merged again.
    """
    alive = np.array(state.topic_alive)
    free, size = np.flatnonzero(~alive), after.topic_moments[0]
    count = min(free.size, int(SCHEDULE.split_share * alive.sum()))
    state = replace(state, split_tried=True)
    if not count:
        return replace(after, moves=state)
    ranked = np.flatnonzero(alive)[np.argsort(-size[alive], kind="stable")]
    split, new = ranked[:count], free[:count]
    halves = np.full(alive.size, -1)
    halves[split] = new
    alive[new] = True
    pairs = np.stack([split, new]).astype(np.int64)
    state = replace(state, moving=True, moves_split=halves, topic_alive=alive, moves_idle=0)
    state = replace(state, split_pairs=pairs, split_until=sweep + SCHEDULE.split_sweeps)
    return replace(after, moves=state)


def _choose_merges(chosen: _Chosen, old: MovesState, size: Vector, sums: ScoreSums, errors: float) -> None:
    gain, error = sums.merge_gain, np.sqrt(sums.merge_square)
    first, second = old.merge_candidates
    copies = np.zeros(gain.size, dtype=bool) if old.merge_alike is None else old.merge_alike
    least = np.where(copies, SCHEDULE.alike_errors, errors) * error
    most = max(int(SCHEDULE.max_merges * old.topic_alive.sum()), 1)
    for index in np.argsort(-gain, kind="stable"):
        if chosen.merges == most and errors > 0:
            return
        if gain[index] <= least[index]:
            continue
        k, m = int(first[index]), int(second[index])
        if chosen.taken[k] or chosen.taken[m]:
            continue
        if size[m] > size[k]:
            k, m = m, k
        chosen.taken[[k, m]] = True
        chosen.into[m] = k
        chosen.merges += 1
        chosen.sure += int(copies[index] or gain[index] > SCHEDULE.sure_merge * error[index])


def _choose_deletes(chosen: _Chosen, old: MovesState, sums: ScoreSums, topics: int) -> None:
    gain, square = sums.delete_gain, sums.delete_square
    most = max(int(SCHEDULE.max_deletes * topics), 1)
    for index in np.argsort(-gain, kind="stable"):
        topic = int(old.delete_candidates[index])
        if chosen.deletes == most or topics - chosen.merges - chosen.deletes <= 1:
            return
        if chosen.taken[topic] or gain[index] <= SCHEDULE.delete_errors * np.sqrt(square[index]):
            continue
        chosen.taken[topic] = True
        chosen.into[topic] = -1
        chosen.deletes += 1


Counts = npt.NDArray[np.int32]

HOLDING_KERNELS = (
    kernels.hold_out,
    merge_scores.score_merges,
    kernels.move_topics,
    kernels.move_responsibilities,
)
KERNELS = (*HOLDING_KERNELS, deletion_scores.reassign, deletion_scores.score_deletions, kernels.gram)
MIN_CELL_TOKENS = 0.1  # Least expected tokens of a word in a topic that count when topics are compared


def key_of(held: HeldTokens, shard: int, purpose: str) -> int:
    """Return the key from which a shard's documents are hashed."""
    generator = Stream(int(held.moves_seed), purpose, place=shard).generator()
    return int(generator.integers(1 << 63))


def held_out(shard: Shard, held: HeldTokens, share: float) -> Counts:
    """Return the number of held-out copies of each pair, shape (pairs,)."""
    copies = np.zeros(shard.pairs, dtype=np.int32)
    if share > 0.0:
        key = np.uint64(key_of(held, shard.number, "hold out"))
        kernels.hold_out(document_pairs(shard), shard.words, key, share, copies)
    return copies


def held_copies(shard: Shard, held: HeldTokens | None) -> Counts | None:
    """Return the number of copies of each pair that are held out now; None where a fit holds none out."""
    return None if held is None else held_out(shard, held, held.held_share)


def counted_part(shard: Shard, copies: Counts | None) -> Shard:
    """Return a shard without its held-out tokens: the same pairs with smaller counts, some of them 0."""
    return shard if copies is None or not copies.any() else replace(shard, counts=shard.counts - copies)


class Statistics(Protocol):
    """Sums over a shard, from its state before a sweep."""

    def add(self, chunk: DocumentChunk, working: SweptRows, parameters: Parameters) -> None:
        """Add the sums of a chunk."""

    def parts(self) -> dict[str, Part]:
        """Return the sums as parts of a delta."""


class HeldScore:
    """Score of a shard's held-out tokens."""

    def __init__(self, held: Counts, plain_ratio: Vector) -> None:
        self._held, self._score, self._plain_ratio = held, np.zeros((2, SCORED_GROUPS)), plain_ratio

    def add(self, chunk: DocumentChunk, working: SweptRows, parameters: Parameters) -> None:
        """Add the sums of a chunk."""
        held, none = self._held[chunk.pair : chunk.pair + chunk.pairs.counts.size], np.zeros(0, dtype=np.int64)
        merges = merge_scores.Merges(none, none, self._plain_ratio, np.zeros(0), np.zeros(0))
        documents, score = (chunk.active, chunk.weighing), np.zeros_like(self._score)
        merge_scores.score_merges(chunk.pairs, held, *documents, parameters.priors, working.topics, merges, score)
        self._score += np.roll(score, chunk.document % SCORED_GROUPS, axis=1)

    def parts(self) -> dict[str, Part]:
        """Return `HeldScoreSums`."""
        return {"cooling_score": fresh(self._score)}


@dataclass(frozen=True)
class Moving:
    """Moves that a shard carries out before it is swept."""

    # See `kernels.topic_moves.Moves`; int64 (topics,)
    into: Ints
    split: Ints
    key: int  # Key from which the shard's documents are hashed
    released: Counts  # Tokens of each pair that are no longer held out; int32 (pairs,)

    def before(self, chunk: DocumentChunk) -> DocumentPairs:
        """Return a chunk's pairs with their counts before held-out tokens were released."""
        return chunk.pairs._replace(counts=chunk.pairs.counts - self._released(chunk))

    def _released(self, chunk: DocumentChunk) -> Counts:
        return self.released[chunk.pair : chunk.pair + chunk.pairs.counts.size]

    def _moves(self, chunk: DocumentChunk) -> kernels.Moves:
        return kernels.Moves(self.into, self.split, np.uint64(self.key), chunk.document)

    def select(self, chunk: DocumentChunk, working: SweptRows, parameters: Parameters) -> Selected:
        """Return the active topics of a chunk after the moves; see `active_topics.select`."""
        offsets = chunk.active.offsets
        chosen, sizes = np.empty_like(chunk.active.topics), np.zeros(chunk.documents, dtype=np.int64)
        kernels.move_topics(chunk.active, self._moves(chunk), chosen, sizes)
        spans = np.diff(offsets)
        within = np.arange(chosen.size) - np.repeat(offsets[:-1], spans) < np.repeat(sizes, spans)
        return chosen[within], sizes

    def carry(self, chunk: DocumentChunk, working: SweptRows, selected: Selected) -> DocumentChunk:
        """Carry a chunk's responsibilities over to the topics after the moves; see `active_topics.carry`."""
        offsets = np.concatenate([[0], np.cumsum(selected[1])]).astype(np.int64)
        starts = starts_of(chunk.pairs.offsets, offsets)
        share = buffers.zeros(int(starts[-1]), np.uint16)
        pseudo = np.zeros(selected[0].size if chunk.state.pseudo.size else 0, dtype=np.float32)
        state = NewActiveState(starts, share, np.zeros(selected[0].size), np.zeros(chunk.documents), pseudo)
        active = ActiveTopics(offsets, selected[0])
        kernels.move_responsibilities(
            chunk.pairs,
            self._released(chunk),
            chunk.active,
            chunk.state,
            self._moves(chunk),
            active,
            working.running,
            state,
        )
        return replace(chunk, active=active, state=ActiveState(*state))


def moving(shard: Shard, held: HeldTokens | None, state: MovesState | None, topics: int) -> Moving | None:
    """Return the moves that a shard carries out before this sweep; None for none."""
    releasing = held is not None and held.held_share < held.held_before
    if held is None or not (releasing or (state is not None and state.moving)):
        return None
    released = np.zeros(shard.pairs, dtype=np.int32)
    if releasing:
        # The tokens of a smaller share are among those of a larger one.
        released = held_out(shard, held, held.held_before) - held_out(shard, held, held.held_share)
    into, split = np.arange(topics), np.full(topics, -1)
    if state is not None:
        into, split = state.moves_into, state.moves_split
    return Moving(into, split, key_of(held, shard.number, "split"), released)


class MoveStatistics:
    """Sums over a shard for proposing or accepting moves, from the state before its sweep."""

    def __init__(self, held: Counts, state: MovesState, plain_ratio: Vector) -> None:
        self._plain_ratio = plain_ratio
        self._ask, topics = state.ask, state.topic_alive.size
        self._surviving, self._merged = np.ascontiguousarray(state.merge_candidates)
        self._deletes, self._spilt = state.delete_candidates, state.delete_spill
        self._number = np.full(topics, -1, dtype=np.int64)
        self._number[self._deletes] = np.arange(self._deletes.size)
        self._held = held
        self._sums = np.zeros((2, self._surviving.size)), np.zeros((2, self._deletes.size))
        self._spill = np.zeros((self._deletes.size, topics))
        self._score = np.zeros((2, 1))

    def add(self, chunk: DocumentChunk, working: SweptRows, parameters: Parameters) -> None:
        """Add the sums of a chunk."""
        held = self._held[chunk.pair : chunk.pair + chunk.pairs.counts.size]
        documents, priors = (chunk.active, chunk.weighing), parameters.priors
        weight = working.selection.background_weight
        if self._ask == 1:
            candidates = self._number, self._spill
            deletion_scores.reassign(chunk.pairs, *documents, priors, working.topics, weight, *candidates)
            return
        merges = merge_scores.Merges(self._surviving, self._merged, self._plain_ratio, *self._sums[0])
        merge_scores.score_merges(chunk.pairs, held, *documents, priors, working.topics, merges, self._score)
        deletions = deletion_scores.Deletions(self._number, self._spilt, *self._sums[1])
        deletion_scores.score_deletions(chunk.pairs, held, *documents, priors, working.topics, weight, deletions)

    def parts(self) -> dict[str, Part]:
        """Return the sums: ``delete_spill``, or `ScoreSums`."""
        if self._ask == 1:
            return {"delete_spill": fresh(self._spill)}
        (merge, merge_square), (delete, delete_square) = self._sums
        return {
            "merge_gain": fresh(merge),
            "merge_square": fresh(merge_square),
            "delete_gain": fresh(delete),
            "delete_square": fresh(delete_square),
            "held_score": fresh(self._score.sum(axis=1)),
        }


def statistics(
    copies: Counts | None, global_state: CollapsedGlobalState, state: MovesState | None
) -> Sequence[Statistics]:
    """Return the sums that the next update needs, on held-out copies: of the search for the power, and of moves."""
    sums: list[Statistics] = []
    if global_state.sweeping_again:
        # They are of the state with which the iteration began.
        return sums
    ratio = global_state.plain_ratio
    plain_ratio = np.zeros(0) if ratio is None else ratio
    if copies is not None and global_state.searching:
        sums.append(HeldScore(copies, plain_ratio))
    if copies is not None and state is not None and state.ask:
        sums.append(MoveStatistics(copies, state, plain_ratio))
    return sums


def products(row_topic: npt.NDArray[np.float32]) -> dict[str, Part]:
    """Return the sums over a block's words by which topics are compared, ``topic_products``."""
    sums = np.zeros((row_topic.shape[1], row_topic.shape[1]))
    kernels.gram(row_topic, MIN_CELL_TOKENS, sums)
    return {"topic_products": fresh(sums)}
