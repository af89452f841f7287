"""Moves of topics between sweeps, beside a shard: held-out tokens, statistics of candidates, and accepted moves.

`collapsium.pipeline.families.cvb.topic_moves` accepts moves. A round takes three sweeps: the first sums products of the
topics' columns and the tokens that small topics would hand over; the second the candidates' gains on held-out tokens;
the third begins by carrying out the accepted moves. All sums reduce like any delta.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Part, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb.document_lists import Chosen, Ints, Portion, starts_of
from collapsium.workers.families.cvb.global_state import MovesState
from collapsium.workers.families.cvb.parameters import Parameters, SweptRows
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.cvb import deletion_scores, merge_scores
from collapsium.workers.kernels.cvb import topic_moves as kernels
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics
from collapsium.workers.kernels.records import DocumentPairs

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Counts = npt.NDArray[np.int32]

KERNELS = (
    kernels.hold_out,
    merge_scores.score_merges,
    deletion_scores.reassign,
    deletion_scores.score_deletions,
    kernels.move_topics,
    kernels.move_responsibilities,
    kernels.gram,
)
MIN_CELL_TOKENS = 0.1  # less of a word in a topic does not count when topics are compared


def key_of(state: MovesState, shard: int, purpose: str) -> int:
    """Return the address of a shard's documents, for hashes."""
    generator = Stream(int(state.moves_seed), purpose, place=shard).generator()
    return int(generator.integers(1 << 63))


def held_out(shard: Shard, state: MovesState, share: float) -> Counts:
    """Return how many copies of each pair take no part in the counts, shape (pairs,)."""
    held = np.zeros(shard.pairs, dtype=np.int32)
    if share > 0.0:
        key = np.uint64(key_of(state, shard.number, "hold out"))
        kernels.hold_out(document_pairs(shard), shard.words, key, share, held)
    return held


def counted_part(shard: Shard, state: MovesState | None) -> Shard:
    """Return a shard without its held-out tokens; the same pairs, of which some count 0."""
    if state is None or state.held_share <= 0.0:
        return shard
    return replace(shard, counts=shard.counts - held_out(shard, state, state.held_share))


@dataclass(frozen=True)
class Moving:
    """Moves that a shard carries out before it is swept.

    Attributes
    ----------
    into, split : numpy.ndarray of int64, shape (topics,)
        See `kernels.topic_moves.Moves`.
    key : int
        Address of the shard's documents.
    more : numpy.ndarray of int32, shape (pairs,)
        Tokens of each pair that count from now on.
    """

    into: Ints
    split: Ints
    key: int
    more: Counts

    def before(self, portion: Portion) -> DocumentPairs:
        """Return a portion's pairs with the counts of its state, before held-out tokens were released."""
        return portion.pairs._replace(counts=portion.pairs.counts - self._more(portion))

    def _more(self, portion: Portion) -> Counts:
        return self.more[portion.pair : portion.pair + portion.pairs.counts.size]

    def _moves(self, portion: Portion) -> kernels.Moves:
        return kernels.Moves(self.into, self.split, np.uint64(self.key), portion.document)

    def choose(
        self,
        portion: Portion,
        working: SweptRows,
        parameters: Parameters,
    ) -> Chosen:
        """Give the new lists of a portion; see `document_lists.choose`."""
        offsets = portion.active.offsets
        chosen, sizes = np.empty_like(portion.active.topics), np.zeros(portion.documents, dtype=np.int64)
        kernels.move_topics(portion.active, self._moves(portion), chosen, sizes)
        spans = np.diff(offsets)
        within = np.arange(chosen.size) - np.repeat(offsets[:-1], spans) < np.repeat(sizes, spans)
        return chosen[within], sizes

    def carry(self, portion: Portion, working: SweptRows, chosen: Chosen) -> Portion:
        """Carry a portion's responsibilities over to its new lists; see `document_lists.carry`."""
        listed = np.concatenate([[0], np.cumsum(chosen[1])]).astype(np.int64)
        starts = starts_of(portion.pairs.offsets, listed)
        share = buffers.zeros(int(starts[-1]), np.uint16)
        state = kernels.MovedState(starts, share, np.zeros(chosen[0].size), np.zeros(portion.documents))
        active = ActiveTopics(listed, chosen[0])
        kernels.move_responsibilities(
            portion.pairs,
            self._more(portion),
            portion.active,
            portion.state,
            self._moves(portion),
            active,
            working.row_changes,
            state,
        )
        counts, background = state.counts.astype(np.float32), state.background.astype(np.float32)
        return replace(portion, active=active, state=ActiveState(starts, share, counts, background))


def moving(shard: Shard, state: MovesState | None) -> Moving | None:
    """Return the moves that a shard carries out before this sweep; None for none.

    Parameters
    ----------
    shard : Shard
        With all its tokens.
    state : MovesState or None
        Of the sweep.

    Returns
    -------
    Moving or None
        Merges, deletes and splits, and tokens that are no longer held out.
    """
    if state is None or not state.moving:
        return None
    before, now = state.held_before, state.held_share
    more = held_out(shard, state, before) if now < before else np.zeros(shard.pairs, dtype=np.int32)
    return Moving(state.moves_into, state.moves_split, key_of(state, shard.number, "split"), more)


class MoveStatistics:
    """Sums over a shard by which moves are proposed or accepted, from the state before its sweep.

    Parameters
    ----------
    shard : Shard
        With all its tokens.
    state : MovesState
        With the candidates.
    """

    def __init__(self, shard: Shard, state: MovesState) -> None:
        self._ask, topics = state.ask, state.topic_alive.size
        self._kept, self._merged = np.ascontiguousarray(state.merge_candidates)
        self._deletes, self._spilt = state.delete_candidates, state.delete_spill
        self._number = np.full(topics, -1, dtype=np.int64)
        self._number[self._deletes] = np.arange(self._deletes.size)
        self._held = held_out(shard, state, state.held_share)
        self._sums = np.zeros((2, self._kept.size)), np.zeros((2, self._deletes.size))
        self._spill = np.zeros((self._deletes.size, topics))
        self._score = np.zeros(2)

    def add(self, portion: Portion, working: SweptRows, parameters: Parameters) -> None:
        """Add a portion."""
        held = self._held[portion.pair : portion.pair + portion.pairs.counts.size]
        documents, priors = (portion.active, portion.state), parameters.priors
        weight = working.sweep.background_weight
        if self._ask == 1:
            candidates = self._number, self._spill
            deletion_scores.reassign(portion.pairs, *documents, priors, working.topics, weight, *candidates)
            return
        merges = merge_scores.Merges(self._kept, self._merged, *self._sums[0])
        merge_scores.score_merges(portion.pairs, held, *documents, priors, working.topics, merges, self._score)
        deletions = deletion_scores.Deletions(self._number, self._spilt, *self._sums[1])
        deletion_scores.score_deletions(portion.pairs, held, *documents, priors, working.topics, weight, deletions)

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
            "held_score": fresh(self._score),
        }


def statistics(shard: Shard, state: MovesState | None) -> MoveStatistics | None:
    """Return the sums that the state asks for; None for none."""
    return None if state is None or not state.ask else MoveStatistics(shard, state)


def products(row_topic: npt.NDArray[np.float32]) -> dict[str, Part]:
    """Return the sums over a block's words by which topics are compared, ``topic_products``."""
    sums = np.zeros((row_topic.shape[1], row_topic.shape[1]))
    kernels.gram(row_topic, MIN_CELL_TOKENS, sums)
    return {"topic_products": fresh(sums)}
