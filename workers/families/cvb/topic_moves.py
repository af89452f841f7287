"""Moves of topics between sweeps, beside a shard: tokens held out to judge them, the judgement, and carrying them out.

`collapsium.pipeline.families.cvb.topic_moves` decides. A round takes three sweeps, in which the globals ask for what
the next step needs: products of the topics' columns and where tokens of small topics would go; what each candidate
gains on held-out tokens; then the sweep that begins by carrying out what was decided. All of it reduces like any delta.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Arrays, Part, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb.document_lists import Chosen, Ints, Portion, starts_of
from collapsium.workers.families.cvb.parameters import Parameters, Rows
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
LEAST_CELL = 0.1  # tokens; less of a word in a topic says nothing of whether topics are alike


def blank_globals(topics: int, seed: int, share: float) -> dict[str, npt.NDArray[Any]]:
    """Return the globals that moves begin with.

    Parameters
    ----------
    topics : int
        K.
    seed : int
        Of the run.
    share : float
        Share of the tokens that are held out.

    Returns
    -------
    dict of str to numpy.ndarray
        ``held_share`` and ``held_before``: the share now, and as of the local states; ``topic_alive``; ``moves_into``
        and ``moves_split`` (see `kernels.topic_moves.Moves`); ``ask`` (1: products and spilling, 2: gains);
        ``merge_candidates`` (2, candidates), ``delete_candidates`` and ``delete_spill`` (candidates, topics).
    """
    return {
        "moves_seed": np.array(seed),
        "held_share": np.array(share),
        "held_before": np.array(share),
        "topic_alive": np.ones(topics, dtype=bool),
        "moves_into": np.arange(topics),
        "moves_split": np.full(topics, -1),
        "moving": np.array(False),
        "ask": np.array(0),
        "merge_candidates": np.zeros((2, 0), dtype=np.int64),
        "delete_candidates": np.zeros(0, dtype=np.int64),
        "delete_spill": np.zeros((0, topics)),
    }


def key_of(globals: Arrays, shard: int, purpose: str) -> int:
    """Return the address of a shard's documents, for hashes."""
    generator = Stream(int(globals["moves_seed"]), purpose, place=shard).generator()
    return int(generator.integers(1 << 63))


def held_out(shard: Shard, globals: Arrays, share: float) -> Counts:
    """Return how many copies of each pair take no part in the counts, shape (pairs,)."""
    held = np.zeros(shard.pairs, dtype=np.int32)
    if share > 0.0:
        key = np.uint64(key_of(globals, shard.number, "hold out"))
        kernels.hold_out(document_pairs(shard), shard.words, key, share, held)
    return held


def counting(shard: Shard, globals: Arrays) -> Shard:
    """Return a shard with those tokens only that take part in the counts; the same pairs, of which some count 0."""
    share = float(globals.get("held_share", 0.0))
    return replace(shard, counts=shard.counts - held_out(shard, globals, share)) if share > 0.0 else shard


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
        working: Rows,
        parameters: Parameters,
    ) -> Chosen:
        """Give the new lists of a portion; see `document_lists.choose`."""
        offsets = portion.active.offsets
        chosen, sizes = np.empty_like(portion.active.topics), np.zeros(portion.documents, dtype=np.int64)
        kernels.move_topics(portion.active, self._moves(portion), chosen, sizes)
        spans = np.diff(offsets)
        within = np.arange(chosen.size) - np.repeat(offsets[:-1], spans) < np.repeat(sizes, spans)
        return chosen[within], sizes

    def carry(self, portion: Portion, working: Rows, chosen: Chosen) -> Portion:
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


def moving(shard: Shard, globals: Arrays) -> Moving | None:
    """Return what a shard must carry out before this sweep; None for nothing.

    Parameters
    ----------
    shard : Shard
        With all its tokens.
    globals : Arrays
        Of the sweep.

    Returns
    -------
    Moving or None
        Merges, deletes and splits, and tokens that are no longer held out.
    """
    if "moving" not in globals or not globals["moving"]:
        return None
    before, now = float(globals["held_before"]), float(globals["held_share"])
    more = held_out(shard, globals, before) if now < before else np.zeros(shard.pairs, dtype=np.int32)
    key = key_of(globals, shard.number, "split")
    return Moving(np.asarray(globals["moves_into"]), np.asarray(globals["moves_split"]), key, more)


class Judge:
    """Adds up over a shard what a decision needs, from the state before its sweep.

    Parameters
    ----------
    shard : Shard
        With all its tokens.
    globals : Arrays
        Say what is asked for, and the candidates.
    """

    def __init__(self, shard: Shard, globals: Arrays) -> None:
        self.ask = int(globals.get("ask", 0))
        if not self.ask:
            return
        topics = globals["topic_alive"].size
        self._kept, self._merged = np.ascontiguousarray(globals["merge_candidates"])
        self._deletes, self._spilt = np.asarray(globals["delete_candidates"]), np.asarray(globals["delete_spill"])
        self._number = np.full(topics, -1, dtype=np.int64)
        self._number[self._deletes] = np.arange(self._deletes.size)
        self._held = held_out(shard, globals, float(globals["held_share"]))
        self._sums = np.zeros((2, self._kept.size)), np.zeros((2, self._deletes.size))
        self._spill = np.zeros((self._deletes.size, topics))
        self._score = np.zeros(2)

    def see(self, portion: Portion, working: Rows, parameters: Parameters) -> None:
        """Add a portion."""
        held = self._held[portion.pair : portion.pair + portion.pairs.counts.size]
        documents, priors = (portion.active, portion.state), parameters.priors
        weight = working.sweep.background_weight
        if self.ask == 1:
            candidates = self._number, self._spill
            deletion_scores.reassign(portion.pairs, *documents, priors, working.topics, weight, *candidates)
            return
        merges = merge_scores.Merges(self._kept, self._merged, *self._sums[0])
        merge_scores.score_merges(portion.pairs, held, *documents, priors, working.topics, merges, self._score)
        deletions = deletion_scores.Deletions(self._number, self._spilt, *self._sums[1])
        deletion_scores.score_deletions(portion.pairs, held, *documents, priors, working.topics, weight, deletions)

    def parts(self) -> dict[str, Part]:
        """Return what was added up: ``delete_spill``, or gains with their squares, and ``held_score``."""
        if not self.ask:
            return {}
        if self.ask == 1:
            return {"delete_spill": fresh(self._spill)}
        (merge, merge_square), (delete, delete_square) = self._sums
        return {
            "merge_gain": fresh(merge),
            "merge_square": fresh(merge_square),
            "delete_gain": fresh(delete),
            "delete_square": fresh(delete_square),
            "held_score": fresh(self._score),
        }


def products(row_topic: npt.NDArray[np.float32]) -> dict[str, Part]:
    """Return the sums over a block's words by which topics are compared, ``topic_products``."""
    found = np.zeros((row_topic.shape[1], row_topic.shape[1]))
    kernels.gram(row_topic, LEAST_CELL, found)
    return {"topic_products": fresh(found)}
