"""Select the active topics of each document, and read and write active responsibilities in chunks of documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.spill import SpillFiles, read_rows
from collapsium.workers.arrays.state import Array, Arrays
from collapsium.workers.families.cvb.global_state import SCORED_GROUPS, SMALL_SETS, SmallActiveSets
from collapsium.workers.families.cvb.parameters import Parameters, SweptRows
from collapsium.workers.families.document_entries import pair_weights
from collapsium.workers.kernels.cvb import active_selection
from collapsium.workers.kernels.cvb.active import count_documents
from collapsium.workers.kernels.cvb.records import NO_PSEUDO_COUNTS, ActiveState, ActiveTopics, NewActiveState
from collapsium.workers.kernels.jit import LANES, DocumentPairs

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Ints = npt.NDArray[np.int64]
Steps = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float32]
Vector = npt.NDArray[np.float64]
# Arrays of a local state that each sweep writes anew, with their types
SWEPT_ARRAYS = {"pair_shares": np.uint16, "document_counts": np.float64, "document_rest": np.float64}

DESIGN = ("design_rows", "design_place")  # Arrays that sweeps leave as they are, where priors follow a design
PSEUDO = "start_counts"  # Array of pseudo-counts that a start leaves in the prior; topics that are dropped lose theirs

# Array of checkpoints up to release 0.1: the pseudo-counts of each document, which its counts include
OLD_PSEUDO = "document_pseudo"

# In these counts, the excess over the responsibilities, in tokens, above which it is not due to rounding
MIN_OLD_PSEUDO = 0.5
CHUNK_RESPONSIBILITIES = 1 << 22  # Responsibilities, of 2 bytes each, that are swept together

Selected = tuple[Steps, Ints]
PairsT = TypeVar("PairsT", float, npt.NDArray[np.number])


MAX_COMPLETE_TOPICS = 128  # Up to this many topics, short documents begin with all of them, and all may stay active
# With more topics, a document may have `BASE_ROOM` active ones, and one more for each `PAIRS_PER_TOPIC` pairs, to
# the nearest multiple of eight, as kernels process eight at a time; but `MIN_ROOM` at least. (40 instead of 64 in
# short documents lose 0.01 to 0.03 in score on news and reviews.)
BASE_ROOM = 24
PAIRS_PER_TOPIC = 8
MIN_ROOM = 64
# Responsibilities of a document, which limit the active topics of long ones, but not to fewer than `MIN_LONG_ROOM`:
# thousands of words show which topics a document has, and topics beyond hold shares of a percent
MAX_RESPONSIBILITIES = 3 << 15
MIN_LONG_ROOM = 16
# Small active sets have room for a `SMALL_DIVISOR`-th of the topics of others, to the nearest multiple of eight,
# and for eight at least
SMALL_DIVISOR = 8
MIN_TOKENS = 0.01  # Expected tokens that an active topic exceeds; it also exceeds its prior a_k


def max_active(offsets: Ints, topics: int, limit: int) -> Ints:
    """Return the most active topics of each document, shape (documents,), from the offsets of its pairs."""
    lengths = np.diff(offsets)
    limits: Ints = np.minimum(max_active_for(lengths, topics, limit), topics) + np.zeros_like(lengths)
    return limits


def max_active_for(pairs: PairsT, topics: int, limit: int) -> PairsT | int:
    """Return the most active topics of documents by their number of pairs; `limit` is the option, 0 for the default."""
    if limit:
        return limit
    room: PairsT | int = topics
    if topics > MAX_COMPLETE_TOPICS:
        pairs_per_group = LANES * PAIRS_PER_TOPIC
        grown = BASE_ROOM + LANES * ((pairs + pairs_per_group // 2) // pairs_per_group)
        room = np.maximum(grown, MIN_ROOM)
    of_long = np.maximum(LANES * (MAX_RESPONSIBILITIES // np.maximum(LANES * pairs, 1)), MIN_LONG_ROOM)
    largest: PairsT | int = np.minimum(room, of_long)
    return largest


def begins_complete(lengths: npt.NDArray[np.number], topics: int, limit: int) -> bool:
    """Return whether documents of these lengths begin with all topics, because most of their pairs may keep all.

    `limit` is as for `max_active_for`.
    """
    if topics > min(MAX_COMPLETE_TOPICS, limit or topics):
        return False
    complete = lengths[max_active_for(lengths, topics, limit) >= topics]
    return bool(2 * complete.sum() >= lengths.sum())


def max_small(limits: Ints) -> Ints:
    """Return the most active topics of documents with small active sets, from those with large ones."""
    unit = LANES * SMALL_DIVISOR
    small: Ints = np.minimum(LANES * np.maximum((limits + unit // 2) // unit, 1), limits)
    return small


def select(chunk: DocumentChunk, working: SweptRows, parameters: Parameters) -> Selected:
    """Select the active topics of each document of a chunk."""
    settings = parameters.active_settings
    room = max_active(chunk.pairs.offsets, parameters.topics.size, settings.max_topics)
    if settings.small_sets != SmallActiveSets.NOWHERE:
        groups = (chunk.document + np.arange(chunk.documents)) % SCORED_GROUPS
        small = np.isin(groups, SMALL_SETS) | (settings.small_sets == SmallActiveSets.EVERYWHERE)
        room = np.where(small, max_small(room), room)
    topic, sizes = buffers.empty(int(room.sum()), np.uint16), np.empty(chunk.documents, dtype=np.int64)
    active_selection.select(
        chunk.pairs,
        chunk.active,
        chunk.weighing,
        parameters.priors_of(chunk.document, chunk.documents),
        working.selection,
        np.maximum(parameters.topics, MIN_TOKENS),
        active_selection.Selection(room, topic, sizes),
    )
    return topic[: sizes.sum()].copy(), sizes


def carry(chunk: DocumentChunk, working: SweptRows, selected: Selected) -> DocumentChunk:
    """Carry a chunk's responsibilities over to newly selected topics."""
    topic, active_offsets = selected[0], np.concatenate([[0], np.cumsum(selected[1])]).astype(np.int64)
    if np.array_equal(active_offsets, chunk.active.offsets) and np.array_equal(topic, chunk.active.topics):
        return chunk
    active, starts = ActiveTopics(active_offsets, topic), starts_of(chunk.pairs.offsets, active_offsets)
    pseudo = np.empty(topic.size if chunk.state.pseudo.size else 0, dtype=np.float32)
    counts, rest = np.empty(topic.size), np.empty_like(chunk.state.background)
    state = ActiveState(starts, buffers.empty(int(starts[-1]), np.uint16), counts, rest, pseudo)
    active_selection.carry(chunk.pairs, chunk.active, chunk.state, active, working.running, state)
    return replace(chunk, active=active, state=ActiveState(*state))


@dataclass(frozen=True)
class DocumentChunk:
    """Consecutive documents of a shard with their active topics."""

    pairs: DocumentPairs  # The documents
    active: ActiveTopics  # Their active topics
    state: ActiveState  # Their responsibilities and counts
    # Index of the first document and of the first pair in the shard
    document: int = 0
    pair: int = 0

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.pairs.offsets.size - 1

    @property
    def weighing(self) -> ActiveState:
        """The state with counts as they weigh in the update: with the pseudo-counts of a start."""
        state = self.state
        return state._replace(counts=state.counts + state.pseudo) if state.pseudo.size else state

    def exactly_counted(self, counted: DocumentPairs, pseudo: Floats | None) -> DocumentChunk:
        """Return a chunk of a checkpoint up to release 0.1 with exact counts, and its pseudo-counts apart.

        `counted` are its pairs with the tokens that the counts have, and `pseudo` the pseudo-counts of each document.
        """
        before, sizes = self.state, np.diff(self.active.offsets)
        after = ActiveState(
            before.starts, before.responsibilities, np.empty(before.counts.size), np.empty(self.documents)
        )
        count_documents(counted, self.active, before, int(pseudo is not None), after)
        if pseudo is not None:
            excess = np.where(np.repeat(pseudo > 0.0, sizes), before.counts - after.counts, 0.0)
            after = after._replace(pseudo=np.where(excess > MIN_OLD_PSEUDO, excess, 0.0).astype(np.float32))
        return replace(self, state=ActiveState(*after))


def starts_of(offsets: Ints, lists: Ints) -> Ints:
    """Return the offsets of documents' responsibilities, from the offsets of their pairs and of their active topics."""
    sizes = np.diff(offsets) * np.diff(lists)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def chunk_bounds(offsets: Ints, lists: Ints) -> list[tuple[int, int]]:
    """Return the first and last-plus-one documents of chunks of at most `CHUNK_RESPONSIBILITIES`."""
    starts, bounds, first = starts_of(offsets, lists), [], 0
    while first < lists.size - 1:
        last = int(np.searchsorted(starts, starts[first] + CHUNK_RESPONSIBILITIES, side="right")) - 1
        bounds.append((first, max(last, first + 1)))
        first = bounds[-1][1]
    return bounds


def document_chunks(shard: Shard, local: Arrays) -> Iterator[DocumentChunk]:
    """Yield a shard's documents with their active topics, chunk by chunk."""
    lists = np.asarray(local["document_lists"])
    starts = starts_of(shard.offsets, lists)
    for first, last in chunk_bounds(shard.offsets, lists):
        low, high = int(shard.offsets[first]), int(shard.offsets[last])
        entries = int(lists[first]), int(lists[last])
        of_pairs = (values[low:high] for values in (shard.position, shard.counts, pair_weights(shard)))
        pairs = DocumentPairs(shard.offsets[first : last + 1] - low, *of_pairs)
        state = ActiveState(
            starts[first : last + 1] - starts[first],
            read_rows(local, "pair_shares", int(starts[first]), int(starts[last])),
            np.asarray(read_rows(local, "document_counts", *entries), dtype=np.float64),
            np.asarray(read_rows(local, "document_rest", first, last), dtype=np.float64),
            read_rows(local, PSEUDO, *entries) if PSEUDO in local else NO_PSEUDO_COUNTS,
        )
        active = ActiveTopics(lists[first : last + 1] - entries[0], read_rows(local, "document_topics", *entries))
        yield DocumentChunk(pairs, active, state, first, low)


class LocalStateBuilder:
    """Joins swept chunks to a local state: in spill files if the state before is spilled, else in memory.

    In memory, arrays are allocated at their final size and filled in place: joining parts would take twice the memory.
    """

    def __init__(self, shard: Shard, before: Arrays, selected: Sequence[Selected], *, same: bool) -> None:
        self._writer = before.writer() if isinstance(before, SpillFiles) else None
        self._sizes: list[Ints] = []
        self._swept = dict(SWEPT_ARRAYS)
        if PSEUDO in before or OLD_PSEUDO in before:
            self._swept[PSEUDO] = np.float32
        self._lists, topic = before["document_lists"], before["document_topics"]
        self._design = {name: np.asarray(before[name]) for name in DESIGN if name in before}
        self._done = dict.fromkeys(self._swept, 0)
        self._arrays: dict[str, Array] = {}
        if self._writer is not None:
            return
        if not same:
            sizes = [part[1] for part in selected]
            self._lists = np.concatenate([[0], np.cumsum(np.concatenate([*sizes, np.zeros(0, np.int64)]))])
            self._lists = self._lists.astype(np.int64)
            topic = np.concatenate([*(part[0] for part in selected), np.zeros(0, dtype=np.uint16)])
        lengths = int(starts_of(shard.offsets, self._lists)[-1]), topic.size, shard.documents, topic.size
        for (name, dtype), length in zip(self._swept.items(), lengths, strict=False):
            self._arrays[name] = buffers.empty(length, dtype)
        self._arrays["document_topics"] = topic

    def allocate(self, chunk: DocumentChunk) -> NewActiveState:
        """Return arrays for a chunk's new responsibilities, counts and background tokens."""
        arrays = []
        for (name, dtype), before in zip(self._swept.items(), chunk.state[1:], strict=False):
            first, self._done[name] = self._done[name], self._done[name] + before.size
            view = self._arrays[name][first : first + before.size] if self._arrays else None
            arrays.append(buffers.empty(before.size, dtype) if view is None else view)
        after = ActiveState(chunk.state.starts, *arrays)
        # A sweep leaves pseudo-counts as they are.
        np.copyto(after.pseudo, chunk.state.pseudo)
        return after

    def add(self, chunk: DocumentChunk) -> None:
        """Add the next chunk, in the arrays of `allocate`."""
        if self._writer is None:
            return
        self._sizes.append(np.diff(chunk.active.offsets))
        arrays = dict(zip(self._swept, chunk.state[1:], strict=False))
        self._writer.add({"document_topics": chunk.active.topics, **arrays})

    def finish(self, age: int) -> Arrays:
        """Return the local state."""
        if self._writer is None:
            return {**self._arrays, **self._design, "document_lists": self._lists, "age": np.array(age)}
        sizes = np.concatenate([*self._sizes, np.zeros(0, np.int64)])
        lists = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._writer.add({**self._design, "document_lists": lists, "age": np.array(age)})
        return self._writer.finish()
