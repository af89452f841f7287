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
from collapsium.workers.families.cvb import schedule, updates
from collapsium.workers.families.cvb.active_topics import DocumentChunk, Ints, Selected, starts_of
from collapsium.workers.families.cvb.global_state import (
    SCORED_GROUPS,
    CollapsedGlobalState,
    HdpGlobalState,
    HeldTokens,
    MovesState,
    ProposalSums,
    RoundSums,
    ScoreSums,
    Vector,
)
from collapsium.workers.families.cvb.parameters import Parameters, SweptRows
from collapsium.workers.families.cvb.schedule import Phase
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels.cvb import topic_moves as kernels
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics
from collapsium.workers.kernels.jit import DocumentPairs

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


Counts = npt.NDArray[np.int32]

WORST_SCORE = -1e6  # Score below all others, in nats per token


def begin(topics: int, iterations: int) -> MovesState:
    """Return the state before any round."""
    return MovesState(
        topic_alive=np.ones(topics, dtype=bool),
        moves_into=np.arange(topics),
        moves_split=np.full(topics, -1),
        merge_candidates=np.zeros((2, 0), dtype=np.int64),
        delete_candidates=np.zeros(0, dtype=np.int64),
        delete_spill=np.zeros((0, topics)),
        moves_last=int(schedule.LAST_ROUND * iterations),
        moves_best=WORST_SCORE,
        split_pairs=np.zeros((2, 0), dtype=np.int64),
    )


def possible(iterations: int) -> bool:
    """Return true if the sweeps suffice for a round that moves topics, after which all tokens count again."""
    return int(schedule.LAST_ROUND * iterations) > schedule.FIRST_ROUND + schedule.ROUND_INTERVAL


def step(before: HdpGlobalState, after: HdpGlobalState, delta: Delta) -> HdpGlobalState:
    """Return the global state with the next step of a round, after a sweep that has taken the step before."""
    if before.moves is None:
        return after
    topics, sweep = before.moves.topic_alive.size, int(after.sweeps)
    state = replace(
        before.moves, ask=RoundSums.NONE, moving=False, moves_into=np.arange(topics), moves_split=np.full(topics, -1)
    )
    if before.phase is not Phase.SPLIT_MERGE:
        return replace(after, moves=state)
    if state.merges + state.deletes:
        # A checkpoint of an earlier release does not say so.
        state = replace(state, superfluous=True)
    returned, proposals, scores = before.moves.ask, delta.read(ProposalSums), delta.read(ScoreSums)
    idle, size = state.moves_idle >= schedule.IDLE_ROUNDS, after.topic_moments[0]
    splits_in_time = not state.split_tried and sweep + schedule.SPLIT_SWEEPS < state.moves_last
    if returned == RoundSums.PROPOSALS and proposals is not None:
        state = _with_candidates(state, size, before.vocabulary, proposals)
    elif returned == RoundSums.GAINS and scores is not None:
        state = _with_accepted(state, size, sweep, scores)
    elif sweep < state.split_until:
        pass  # The halves of split topics separate.
    elif state.split_pairs.size:
        state = replace(state, ask=RoundSums.GAINS, merge_candidates=state.split_pairs)
    elif idle and state.deletes + state.merges and splits_in_time:
        state = _with_splits(state, size, sweep)
    elif idle or sweep >= state.moves_last:
        return end(replace(after, moves=state))
    elif sweep >= schedule.FIRST_ROUND and sweep % schedule.ROUND_INTERVAL == 0:
        # The smallest topics may be deleted, the smallest first; none in the first round, which moves nothing.
        alive = np.flatnonzero(state.topic_alive)
        count = max(int(schedule.DELETE_CANDIDATES * alive.size), schedule.MIN_DELETE_CANDIDATES)
        count = min(count, schedule.MAX_DELETE_CANDIDATES, alive.size - 1)
        smallest = alive[np.argsort(size[alive], kind="stable")[: count if state.superfluous else 0]]
        spill = np.zeros((smallest.size, topics))
        state = replace(state, ask=RoundSums.PROPOSALS, delete_candidates=smallest, delete_spill=spill)
    return replace(after, moves=state)


def end(after: HdpGlobalState) -> HdpGlobalState:
    """Return the global state after the last round: the next sweep counts the tokens that only rounds held out."""
    if after.moves is None:
        return after
    after = replace(after, moves=replace(after.moves, moving=True, superfluous=False))
    return updates.continue_search(after) if after.searching else updates.end_search(after)


def _with_candidates(state: MovesState, size: Vector, vocabulary: float, sums: ProposalSums) -> MovesState:
    """Propose pairs of topics for merging: each topic with the topics whose words are most similar."""
    alive = np.flatnonzero(state.topic_alive)
    upper = sums.topic_products[np.ix_(alive, alive)]
    both = upper + upper.T - np.diag(np.diag(upper))
    mean = size[alive] / vocabulary
    covariance = both - vocabulary * np.outer(mean, mean)
    # A flat topic, whose cells are too small to count in the products, has no known correlation.
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    deviation[deviation == 0.0] = np.inf
    alike = covariance / np.outer(deviation, deviation)
    np.fill_diagonal(alike, -np.inf)
    count = min(schedule.MERGE_CANDIDATES, alive.size - 1)
    nearest = np.argsort(-alike, axis=1, kind="stable")[:, :count]
    owner = np.repeat(np.arange(alive.size), count)
    pairs = np.sort(np.stack([owner, nearest.ravel()]), axis=0)
    pairs = np.unique(pairs, axis=1) if pairs.size else pairs
    return replace(
        state,
        ask=RoundSums.GAINS,
        merge_candidates=np.ascontiguousarray(alive[pairs]).astype(np.int64),
        merge_alike=alike[pairs[0], pairs[1]] >= schedule.COPY_CORRELATION,
        delete_spill=sums.delete_spill,
    )


@dataclass
class _Chosen:
    """Accepted moves, no two of which concern the same topic; `sure` of the merges show redundant topics."""

    into: Ints
    taken: npt.NDArray[np.bool_]
    merges: int = 0
    deletes: int = 0
    sure: int = 0


def _with_accepted(state: MovesState, size: Vector, sweep: int, sums: ScoreSums) -> MovesState:
    """Accept the moves that gain, the best first."""
    alive = np.array(state.topic_alive)
    chosen = _Chosen(np.arange(alive.size), np.zeros(alive.size, dtype=bool))
    were_split = int(state.split_pairs.shape[1])
    held = max(float(sums.held_score[1]), 1.0)
    score, fallen = float(sums.held_score[0]) / held, state.moves_best - schedule.MAX_FALL / np.sqrt(held)
    errors = schedule.SPLIT_ERRORS if were_split else schedule.MERGE_ERRORS
    _choose_merges(chosen, state, size, sums, errors)
    if state.superfluous:
        _choose_deletes(chosen, state, sums, int(alive.sum()))
    state = replace(
        state,
        split_pairs=np.zeros((2, 0), dtype=np.int64),
        merge_candidates=np.zeros((2, 0), dtype=np.int64),
        merge_alike=None,
        delete_candidates=np.zeros(0, dtype=np.int64),
        delete_spill=np.zeros((0, alive.size)),
    )
    last_round = replace(state, moves_idle=schedule.IDLE_ROUNDS, split_tried=True)
    if not state.superfluous:
        # The first round moves nothing, because the next rounds have another alpha. Without redundant topics, there are
        # no more: following what chance proposes costs more than it gains.
        redundant = chosen.sure >= schedule.MIN_REDUNDANT_SHARE * alive.sum()
        return replace(state, superfluous=True) if redundant else last_round
    if not were_split and score < fallen:
        # Moves that each gained have lost together, or topics are still changing. If the first ones have lost, the
        # truncation is not too large.
        first = state.merges + state.deletes and sweep < schedule.FIRST_ROUND + 3 * schedule.ROUND_INTERVAL
        return last_round if first else replace(state, moves_idle=state.moves_idle + 1)
    accepted = chosen.merges + chosen.deletes
    is_idle = accepted <= schedule.FEW_MOVES * alive.sum() and not were_split
    splits = state.splits
    if were_split:
        # Halves that are merged again have changed nothing.
        splits, chosen.merges = splits + were_split - chosen.merges, 0
    best, idle = max(score, state.moves_best), state.moves_idle + 1 if is_idle else 0
    state = replace(state, moves_best=best, moves_idle=idle, splits=splits)
    if not accepted:
        return state
    alive[chosen.into != np.arange(alive.size)] = False
    return replace(
        state,
        # Counts and totals move in the next sweep, with the documents of each shard.
        moving=True,
        moves_into=chosen.into,
        topic_alive=alive,
        merges=state.merges + chosen.merges,
        deletes=state.deletes + chosen.deletes,
    )


def _with_splits(state: MovesState, size: Vector, sweep: int) -> MovesState:
    """Split the largest topics by halves of their documents, as many as the truncation allows.

    The halves separate for some sweeps. Those that predict no better by then are merged again.
    """
    alive = np.array(state.topic_alive)
    free = np.flatnonzero(~alive)
    count = min(free.size, int(schedule.SPLIT_SHARE * alive.sum()))
    state = replace(state, split_tried=True)
    if not count:
        return state
    ranked = np.flatnonzero(alive)[np.argsort(-size[alive], kind="stable")]
    split, new = ranked[:count], free[:count]
    halves = np.full(alive.size, -1)
    halves[split] = new
    alive[new] = True
    return replace(
        state,
        moving=True,
        moves_split=halves,
        topic_alive=alive,
        moves_idle=0,
        split_pairs=np.stack([split, new]).astype(np.int64),
        split_until=sweep + schedule.SPLIT_SWEEPS,
    )


def _choose_merges(chosen: _Chosen, state: MovesState, size: Vector, sums: ScoreSums, errors: float) -> None:
    gain, error = sums.merge_gain, np.sqrt(sums.merge_square)
    first, second = state.merge_candidates
    copies = np.zeros(gain.size, dtype=bool) if state.merge_alike is None else state.merge_alike
    least = np.where(copies, schedule.COPY_ERRORS, errors) * error
    max_merges = max(int(schedule.MAX_MERGES * state.topic_alive.sum()), 1)
    for index in np.argsort(-gain, kind="stable"):
        if chosen.merges == max_merges and errors > 0:
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
        chosen.sure += int(copies[index] or gain[index] > schedule.SURE_MERGE_ERRORS * error[index])


def _choose_deletes(chosen: _Chosen, state: MovesState, sums: ScoreSums, topics: int) -> None:
    gain, square = sums.delete_gain, sums.delete_square
    max_deletes = max(int(schedule.MAX_DELETES * topics), 1)
    for index in np.argsort(-gain, kind="stable"):
        topic = int(state.delete_candidates[index])
        if chosen.deletes == max_deletes or topics - chosen.merges - chosen.deletes <= 1:
            return
        if chosen.taken[topic] or gain[index] <= schedule.DELETE_ERRORS * np.sqrt(square[index]):
            continue
        chosen.taken[topic] = True
        chosen.into[topic] = -1
        chosen.deletes += 1


# Beside a shard -------------------------------------------------------------------------------------------------------

HOLDING_KERNELS = (
    kernels.hold_out,
    kernels.score_merges,
    kernels.move_topics,
    kernels.move_responsibilities,
)
KERNELS = (*HOLDING_KERNELS, kernels.reassign, kernels.score_deletions, kernels.gram)
MIN_CELL_TOKENS = 0.1  # Minimum expected tokens of a word in a topic for it to count when topics are compared


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
    """Return the number of copies of each pair that are held out now; None if the fit holds out none."""
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
        merges = kernels.Merges(none, none, self._plain_ratio, np.zeros(0), np.zeros(0))
        documents, score = (chunk.active, chunk.weighing), np.zeros_like(self._score)
        priors = parameters.priors_of(chunk.document, chunk.documents)
        kernels.score_merges(chunk.pairs, held, *documents, priors, working.topics, merges, score)
        self._score += np.roll(score, chunk.document % SCORED_GROUPS, axis=1)

    def parts(self) -> dict[str, Part]:
        """Return `HeldScoreSums`."""
        return {"search_score": fresh(self._score)}


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
        state = ActiveState(starts, share, np.zeros(selected[0].size), np.zeros(chunk.documents), pseudo)
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
        # A larger share contains the tokens of a smaller one.
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
        if self._ask == RoundSums.PROPOSALS:
            candidates = self._number, self._spill
            kernels.reassign(chunk.pairs, *documents, priors, working.topics, weight, *candidates)
            return
        merges = kernels.Merges(self._surviving, self._merged, self._plain_ratio, *self._sums[0])
        kernels.score_merges(chunk.pairs, held, *documents, priors, working.topics, merges, self._score)
        deletions = kernels.Deletions(self._number, self._spilt, *self._sums[1])
        kernels.score_deletions(chunk.pairs, held, *documents, priors, working.topics, weight, deletions)

    def parts(self) -> dict[str, Part]:
        """Return the sums: ``delete_spill``, or `ScoreSums`."""
        if self._ask == RoundSums.PROPOSALS:
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
    """Return the sums that the next update needs, on held-out copies: of the temperature search, and of moves."""
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
