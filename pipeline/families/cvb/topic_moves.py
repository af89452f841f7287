"""Moves of topics: merges, deletions and splits, proposed and accepted between sweeps by held-out tokens.

A CV-HDP keeps all topics of its truncation. The paper (Teh, Kurihara and Welling, 2007) names splitting and merging as
the remedy. Here a round takes three sweeps (`collapsium.workers.families.cvb.topic_moves` has their sums), and moves
are accepted by their gains on a small share of the tokens, which count again once rounds no longer find moves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.delta import Delta
from collapsium.workers.families.cvb.global_state import HdpGlobalState, MovesState
from collapsium.workers.families.cvb.sums import ProposalSums, ScoreSums

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SHARE = 0.1  # of the tokens, held out
PRIOR = 0.05  # alpha pi_k of each topic meanwhile
BEGIN, EVERY = 40, 5  # sweeps before the first round, and from one to the next
LAST = 0.75  # of all sweeps: then the tokens count again
LEAST_SWEEPS = 100  # of a run: with fewer, topics have no time to settle after the last round
IDLE, FEW = 4, 0.02  # so many rounds in a row that moved less than this share of the topics end the search
WORTH = 0.07  # of the topics; if the first round is sure of fewer moves, the truncation is not too large
SURE_MERGE, SURE_DELETE = 1.0, 3.0  # standard errors that a move gains which it is sure of
WORST = -1e6  # of scores, in nats a token
FALL = (
    0.5  # nats, over the root of how many are held out: a round whose score lies so far below the best ends the search
)
LIKE = 5  # topics most like each that it may merge with
DELETES, FEWEST, MOST = 0.25, 20, 100  # of the topics, the smallest, may be deleted; at least and at most so many
MOST_TOPICS = 1024  # of a truncation: products of all pairs of topics are made, 8 MB then
MOST_MERGES, MOST_DELETES = 0.2, 0.1  # of the topics, in a round
MERGE_ERRORS, DELETE_ERRORS = 0.5, 0.0  # least gain, in standard errors of the sum
SPLIT, PARTING = 0.5, 15  # share of the topics that are split, the largest; sweeps after which they are judged
SPLIT_ERRORS = -1.0  # they go together again unless that loses more


def initial_state(topics: int, seed: int, iterations: int) -> MovesState:
    """Return the state before any round.

    Parameters
    ----------
    topics : int
        K.
    seed : int
        Of the run.
    iterations : int
        Planned sweeps.

    Returns
    -------
    MovesState
        The state.
    """
    return MovesState(
        moves_seed=np.array(seed),
        held_share=SHARE,
        held_before=SHARE,
        topic_alive=np.ones(topics, dtype=bool),
        moves_into=np.arange(topics),
        moves_split=np.full(topics, -1),
        merge_candidates=np.zeros((2, 0), dtype=np.int64),
        delete_candidates=np.zeros(0, dtype=np.int64),
        delete_spill=np.zeros((0, topics)),
        moves_last=int(LAST * iterations),
        moves_best=WORST,
        split_pairs=np.zeros((2, 0), dtype=np.int64),
    )


def possible(iterations: int) -> bool:
    """Return whether so many sweeps have room for a round, after which all tokens count again."""
    return int(LAST * iterations) > BEGIN


def next_state(before: HdpGlobalState, after: HdpGlobalState, delta: Delta) -> HdpGlobalState:
    """Take the next step of a round.

    Parameters
    ----------
    before : HdpGlobalState
        The global state that the sweep was made against.
    after : HdpGlobalState
        That after it, so far.
    delta : Delta
        `ProposalSums` or `ScoreSums`, where they were asked for.

    Returns
    -------
    HdpGlobalState
        `after` with the next step.
    """
    old, state = before.moves, after.moves
    if old is None or state is None:
        return after
    # Moves that were to be carried out have been.
    topics = old.topic_alive.size
    into, split = np.arange(topics), np.full(topics, -1)
    state = replace(state, held_before=old.held_share, ask=0, moving=False, moves_into=into, moves_split=split)
    after = replace(after, moves=state)
    if not old.held_share:
        return after
    sweep = int(after.sweeps)
    proposals, scores = delta.read(ProposalSums), delta.read(ScoreSums)
    if old.ask == 1 and proposals is not None:
        return replace(after, moves=_with_candidates(before, after, state, proposals))
    if old.ask == 2 and scores is not None:
        return _with_accepted(old, after, state, scores)
    if old.split_until > sweep:  # topics that were split separate
        return after
    if old.split_pairs.size:
        return replace(after, moves=replace(state, ask=2, merge_candidates=old.split_pairs))
    idle = old.moves_idle >= IDLE
    if idle and old.deletes + old.merges and not old.split_tried and sweep + PARTING < old.moves_last:
        return _with_splits(after, state, sweep)
    if idle or sweep >= old.moves_last:
        return replace(after, moves=replace(state, held_share=0.0, moving=True))
    if sweep >= BEGIN and sweep % EVERY == 0:
        return replace(after, moves=_with_smallest(after, state))
    return after


def _with_smallest(global_state: HdpGlobalState, state: MovesState) -> MovesState:
    """Propose the smallest topics for deletion, the smallest first."""
    alive = np.flatnonzero(state.topic_alive)
    size = global_state.topic_moments[0][alive]
    count = min(max(int(DELETES * alive.size), FEWEST), MOST, alive.size - 1)
    smallest = alive[np.argsort(size, kind="stable")[:count]]
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
    deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    alike = covariance / np.outer(deviation, deviation)
    np.fill_diagonal(alike, -np.inf)
    count = min(LIKE, alive.size - 1)
    nearest = np.argsort(-alike, axis=1, kind="stable")[:, :count]
    owner = np.repeat(np.arange(alive.size), count)
    pairs = np.sort(np.stack([owner, nearest.ravel()]), axis=0)
    pairs = np.unique(pairs, axis=1) if pairs.size else pairs
    candidates = np.ascontiguousarray(alive[pairs]).astype(np.int64)
    return replace(state, ask=2, merge_candidates=candidates, delete_spill=sums.delete_spill)


@dataclass
class _Chosen:
    """Accepted moves, no two of which concern the same topic."""

    into: Ints
    taken: npt.NDArray[np.bool_]
    merges: int = 0
    sure: int = 0  # of all these, those that gain many a standard error
    deletes: int = 0


def _with_accepted(old: MovesState, after: HdpGlobalState, state: MovesState, sums: ScoreSums) -> HdpGlobalState:
    """Accept the moves that gain, the best first."""
    alive = np.array(old.topic_alive)
    chosen = _Chosen(np.arange(alive.size), np.zeros(alive.size, dtype=bool))
    were_split = int(old.split_pairs.shape[1])
    held = max(float(sums.held_score[1]), 1.0)
    score, fallen = float(sums.held_score[0]) / held, old.moves_best - FALL / np.sqrt(held)
    errors = SPLIT_ERRORS if were_split else MERGE_ERRORS
    _choose_merges(chosen, old, after.topic_moments[0], sums, errors)
    _choose_deletes(chosen, old, sums, int(alive.sum()))
    state = replace(
        state,
        split_pairs=np.zeros((2, 0), dtype=np.int64),
        merge_candidates=np.zeros((2, 0), dtype=np.int64),
        delete_candidates=np.zeros(0, dtype=np.int64),
        delete_spill=np.zeros((0, alive.size)),
    )
    accepted = chosen.merges + chosen.deletes
    if not were_split and score < fallen:  # moves that gained one by one have lost together
        return replace(after, moves=replace(state, moves_idle=IDLE))
    state = replace(state, moves_best=max(score, old.moves_best))
    if were_split:  # those that go together again have changed nothing
        state = replace(state, splits=old.splits + were_split - chosen.merges)
        chosen.merges = 0
    first = not old.merges + old.deletes
    if first and chosen.sure < WORTH * alive.sum():  # chance alone finds some; to follow it costs more than it gains
        return replace(after, moves=replace(state, moves_idle=IDLE))
    few = accepted <= FEW * alive.sum()
    state = replace(state, moves_idle=old.moves_idle + 1 if few and not were_split else 0)
    if not accepted:
        return replace(after, moves=state)
    gone = np.flatnonzero(chosen.into != np.arange(alive.size))
    alive[gone] = False
    merges, deletes = old.merges + chosen.merges, old.deletes + chosen.deletes
    state = replace(state, moving=True, moves_into=chosen.into, topic_alive=alive, merges=merges, deletes=deletes)
    # The next sweep sees the topics as moved. The counts themselves, for scores and models, move in that sweep.
    return replace(after, moves=state, topic_ahead=_moved(after.topic_ahead, gone, chosen.into))


def _moved(values: npt.NDArray[Any], gone: Ints, into: Ints) -> npt.NDArray[Any]:
    """Return values with those of topics added to the topics that they become."""
    moved = np.array(values)
    for topic in gone:
        if into[topic] >= 0:
            moved[..., into[topic]] += moved[..., topic]
        moved[..., topic] = 0.0
    return moved


def _with_splits(after: HdpGlobalState, state: MovesState, sweep: int) -> HdpGlobalState:
    """Split the largest topics, in so far as there is room, by halves of the documents.

    The halves separate for some sweeps; those that then predict no better are merged again.
    """
    alive = np.array(state.topic_alive)
    free, size = np.flatnonzero(~alive), after.topic_moments[0]
    count = min(free.size, int(SPLIT * alive.sum()))
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
    state = replace(state, split_pairs=pairs, split_until=sweep + PARTING)
    ahead = np.array(after.topic_ahead)  # counts for scores move in the sweep, as in `_with_accepted`
    ahead[new] = ahead[split] = ahead[split] / 2
    return replace(after, moves=state, topic_ahead=ahead)


def _choose_merges(chosen: _Chosen, old: MovesState, size: Vector, sums: ScoreSums, errors: float) -> None:
    gain, square = sums.merge_gain, sums.merge_square
    first, second = old.merge_candidates
    most = max(int(MOST_MERGES * old.topic_alive.sum()), 1)
    for place in np.argsort(-gain, kind="stable"):
        if chosen.merges == most and errors > 0:
            return
        if gain[place] <= errors * np.sqrt(square[place]) or (errors > 0 and gain[place] <= 0):
            continue
        k, m = int(first[place]), int(second[place])
        if chosen.taken[k] or chosen.taken[m]:
            continue
        if size[m] > size[k]:
            k, m = m, k
        chosen.taken[[k, m]] = True
        chosen.into[m] = k
        chosen.merges += 1
        chosen.sure += int(gain[place] > SURE_MERGE * np.sqrt(square[place]))


def _choose_deletes(chosen: _Chosen, old: MovesState, sums: ScoreSums, topics: int) -> None:
    gain, square = sums.delete_gain, sums.delete_square
    most = max(int(MOST_DELETES * topics), 1)
    for place in np.argsort(-gain, kind="stable"):
        topic = int(old.delete_candidates[place])
        if chosen.deletes == most or topics - chosen.merges - chosen.deletes <= 1:
            return
        if chosen.taken[topic] or gain[place] <= DELETE_ERRORS * np.sqrt(square[place]):
            continue
        chosen.taken[topic] = True
        chosen.into[topic] = -1
        chosen.deletes += 1
        chosen.sure += int(gain[place] > SURE_DELETE * np.sqrt(square[place]))
