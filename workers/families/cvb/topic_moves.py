"""Held-out tokens of a shard with their scores, and moves of topics: statistics of candidates, and accepted moves.

`collapsium.pipeline.families.cvb.topic_moves` accepts moves. A round takes three sweeps. The first sums products of the
topics' columns and the tokens that deleted topics would hand over. The second sums the candidates' gains on held-out
tokens. The third begins by carrying out the accepted moves. All sums reduce like any delta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Part, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb.active_topics import DocumentChunk, Ints, Selected, starts_of
from collapsium.workers.families.cvb.global_state import CollapsedGlobalState, HeldTokens, MovesState, Vector
from collapsium.workers.families.cvb.parameters import Parameters, SweptRows
from collapsium.workers.families.cvb.sums import SCORED_GROUPS
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.cvb import deletion_scores, merge_scores
from collapsium.workers.kernels.cvb import topic_moves as kernels
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, NewActiveState
from collapsium.workers.kernels.records import DocumentPairs

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

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
