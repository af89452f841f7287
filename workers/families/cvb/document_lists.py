"""Which topics a document lists, chosen anew every few sweeps; see `listed`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.spill import SpillFiles, read_rows
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.cvb.parameters import Parameters, SweptRows
from collapsium.workers.kernels.cvb import active_selection
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, NewActiveState
from collapsium.workers.kernels.records import DocumentPairs

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Ints = npt.NDArray[np.int64]
Steps = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float32]
CHANGING = ("pair_shares", "document_counts", "document_rest")  # arrays that each sweep makes anew
PORTION = 1 << 22  # responsibilities that are worked on together, of 2 bytes

Chosen = tuple[Steps, Ints]

WHOLE = 128  # up to so many topics a document begins with all of them, and may keep them
ROOM, PAIRS_A_TOPIC = 24, 8  # a document may list 24 topics and one for each 8 of its pairs
LEAST = 0.01  # tokens; a topic is active if more than this, and more than its prior, are expected of it


def room(offsets: Ints, topics: int, most: int) -> Ints:
    """Return how many topics each document may list, shape (documents,), from where its pairs begin."""
    lengths = np.diff(offsets)
    places: Ints = np.minimum(room_for(lengths, topics, most), topics) + np.zeros_like(lengths)
    return places


def room_for(pairs: Any, topics: int, most: int) -> Any:
    """Return how many topics documents of so many pairs may list, of those that there are."""
    if most:
        return most
    return topics if topics <= WHOLE else ROOM + pairs // PAIRS_A_TOPIC


def choose(portion: Portion, working: SweptRows, parameters: Parameters) -> Chosen:
    """Choose the topics of each document of a portion anew.

    Parameters
    ----------
    portion : Portion
        The documents with their lists.
    working : Rows
        The shard's rows.
    parameters : Parameters
        For the updates.

    Returns
    -------
    topic : numpy.ndarray of uint16, shape (listed,)
        Active topics, ascending in a document.
    sizes : numpy.ndarray of int64, shape (documents,)
        How many each document has.
    """
    most = parameters.active_settings.most
    sizes_of_room = room(portion.pairs.offsets, parameters.topics.size, most)
    places = np.concatenate([[0], np.cumsum(sizes_of_room)]).astype(np.int64)
    chosen, sizes = buffers.empty(int(places[-1]), np.uint16), np.empty(portion.documents, dtype=np.int64)
    active_selection.select(
        portion.pairs,
        portion.active,
        portion.state,
        parameters.priors,
        working.selection,
        np.maximum(parameters.topics, LEAST),
        active_selection.Selection(places, chosen, sizes),
    )
    within = np.arange(chosen.size) - np.repeat(places[:-1], np.diff(places)) < np.repeat(sizes, np.diff(places))
    return chosen[within], sizes


def carry(portion: Portion, working: SweptRows, chosen: Chosen) -> Portion:
    """Carry a portion's responsibilities over to the lists that were chosen.

    Parameters
    ----------
    portion : Portion
        With its lists so far.
    working : Rows
        The shard's rows; what dropped topics held falls to the background.
    chosen : tuple of numpy.ndarray
        As `choose` gave it.

    Returns
    -------
    Portion
        With the new lists, before the sweep.
    """
    topic, listed = chosen[0], np.concatenate([[0], np.cumsum(chosen[1])]).astype(np.int64)
    if np.array_equal(listed, portion.active.offsets) and np.array_equal(topic, portion.active.topics):
        return portion
    active, starts = ActiveTopics(listed, topic), starts_of(portion.pairs.offsets, listed)
    counts, rest = np.empty(topic.size, dtype=np.float32), np.empty_like(portion.state.background)
    state = NewActiveState(starts, buffers.zeros(int(starts[-1]), np.uint16), counts, rest)
    active_selection.carry(portion.pairs, portion.active, portion.state, active, working.row_changes, state)
    return replace(portion, active=active, state=ActiveState(*state))


@dataclass(frozen=True)
class Portion:
    """A run of a shard's documents with their lists.

    Attributes
    ----------
    pairs : DocumentPairs
        The documents.
    active : ActiveTopics
        Their active topics.
    state : ActiveState
        Their responsibilities and counts.
    document, pair : int
        Numbers, in the shard, of the first document and pair.
    """

    pairs: DocumentPairs
    active: ActiveTopics
    state: ActiveState
    document: int = 0
    pair: int = 0

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.pairs.offsets.size - 1


def starts_of(offsets: Ints, lists: Ints) -> Ints:
    """Return where documents' responsibilities begin, from where their pairs and their lists do."""
    sizes = np.diff(offsets) * np.diff(lists)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def cut(offsets: Ints, lists: Ints) -> list[tuple[int, int]]:
    """Cut documents into runs of at most `PORTION` responsibilities, or of one document that has more."""
    starts, runs, first = starts_of(offsets, lists), [], 0
    while first < lists.size - 1:
        last = int(np.searchsorted(starts, starts[first] + PORTION, side="right")) - 1
        runs.append((first, max(last, first + 1)))
        first = runs[-1][1]
    return runs


def portions(shard: Shard, local: Arrays) -> Iterator[Portion]:
    """Read a shard's lists, portion by portion.

    Parameters
    ----------
    shard : Shard
        The documents.
    local : Arrays
        Their lists, in memory or on a shelf.

    Yields
    ------
    Portion
        All documents, in their order.
    """
    lists = np.asarray(local["document_lists"])
    starts = starts_of(shard.offsets, lists)
    for first, last in cut(shard.offsets, lists):
        low, high = int(shard.offsets[first]), int(shard.offsets[last])
        listed = int(lists[first]), int(lists[last])
        pairs = DocumentPairs(shard.offsets[first : last + 1] - low, shard.position[low:high], shard.counts[low:high])
        state = ActiveState(
            starts[first : last + 1] - starts[first],
            read_rows(local, "pair_shares", int(starts[first]), int(starts[last])),
            read_rows(local, "document_counts", *listed),
            read_rows(local, "document_rest", first, last),
        )
        active = ActiveTopics(lists[first : last + 1] - listed[0], read_rows(local, "document_topics", *listed))
        yield Portion(pairs, active, state, first, low)


class Gathering:
    """Puts portions together as a local state: on a shelf if the state before lay on one, else in memory.

    In memory, arrays are made whole and filled in place: as often as they were put together from parts, they would be
    fetched from the system twice.

    Parameters
    ----------
    shard : Shard
        The documents.
    before : Arrays
        The state before.
    chosen : sequence of (numpy.ndarray, numpy.ndarray)
        In memory, the new lists of each portion: topics, and how many each document has.
    same : bool
        Whether all lists stay as they are.
    """

    def __init__(self, shard: Shard, before: Arrays, chosen: Sequence[tuple[Steps, Ints]], *, same: bool) -> None:
        self._writer = before.writer() if isinstance(before, SpillFiles) else None
        self._sizes: list[Ints] = []
        self._lists, topic = before["document_lists"], before["document_topics"]
        self._done = dict.fromkeys(CHANGING, 0)
        self._whole: dict[str, npt.NDArray[Any]] = {}
        if self._writer is not None:
            return
        if not same:
            sizes = [part[1] for part in chosen]
            self._lists = np.concatenate([[0], np.cumsum(np.concatenate([*sizes, np.zeros(0, np.int64)]))])
            self._lists = self._lists.astype(np.int64)
            topic = np.concatenate([*(part[0] for part in chosen), np.zeros(0, dtype=np.uint16)])
        lengths = int(starts_of(shard.offsets, self._lists)[-1]), topic.size, shard.documents
        for name, length in zip(CHANGING, lengths, strict=True):
            self._whole[name] = buffers.empty(length, before[name].dtype)
        self._whole["document_topics"] = topic

    def blank(self, portion: Portion) -> NewActiveState:
        """Return arrays for a portion's new responsibilities, counts and background tokens."""
        made = []
        for name, before in zip(CHANGING, portion.state[1:], strict=True):
            first, self._done[name] = self._done[name], self._done[name] + before.size
            whole = self._whole[name][first : first + before.size] if self._whole else None
            made.append(buffers.empty(before.size, before.dtype) if whole is None else whole)
        return NewActiveState(portion.state.starts, *made)

    def add(self, portion: Portion) -> None:
        """Add the next portion, whose arrays are those of `blank`."""
        if self._writer is None:
            return
        self._sizes.append(np.diff(portion.active.offsets))
        _, responsibilities, counts, rest = portion.state
        arrays: dict[str, npt.NDArray[Any]] = {"document_topics": portion.active.topics, "document_counts": counts}
        self._writer.add({**arrays, "document_rest": rest, "pair_shares": responsibilities})

    def finish(self, age: int) -> Arrays:
        """Return the state."""
        if self._writer is None:
            return {**self._whole, "document_lists": self._lists, "age": np.array(age)}
        sizes = np.concatenate([*self._sizes, np.zeros(0, np.int64)])
        lists = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._writer.add({"document_lists": lists, "age": np.array(age)})
        return self._writer.finish()
