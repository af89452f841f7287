"""Documents' lists in portions: a sweep reads, updates and writes a local state piece by piece, wherever it lies.

Where portions are cut depends on the lists alone, so that a result does not depend on where the state lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsar.storage.shard import Shard
from collapsar.workers import buffers
from collapsar.workers.delta import Arrays
from collapsar.workers.shelf import Shelf, part

Ints = npt.NDArray[np.int64]
Steps = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float32]

CHANGING = ("pair_shares", "document_counts", "document_rest")  # arrays that each sweep makes anew
PORTION = 1 << 22  # responsibilities that are worked on together, of 2 bytes


@dataclass(frozen=True)
class Portion:
    """A run of a shard's documents with their lists.

    Attributes
    ----------
    offsets : numpy.ndarray of int64, shape (documents + 1,)
        Where each document's pairs begin; 0 for the first.
    position, counts : numpy.ndarray of int32, shape (pairs,)
        Row and count of each pair.
    lists : numpy.ndarray of int64, shape (documents + 1,)
        Where each document's list begins; 0 for the first.
    topic : numpy.ndarray of uint16, shape (listed,)
        Active topics, ascending in a document.
    count : numpy.ndarray of float32, shape (listed,)
        Their E[n_dk].
    rest : numpy.ndarray of float32, shape (documents,)
        Background tokens.
    share : numpy.ndarray of uint16, shape (responsibilities,)
        q in steps of 2^-15: pair by pair, in the order of the document's list.
    """

    offsets: Ints
    position: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    lists: Ints
    topic: Steps
    count: Floats
    rest: Floats
    share: Steps

    @property
    def starts(self) -> Ints:
        """Where each document's responsibilities begin, shape (documents + 1,)."""
        return starts_of(self.offsets, self.lists)


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
        yield Portion(
            shard.offsets[first : last + 1] - low,
            shard.position[low:high],
            shard.counts[low:high],
            lists[first : last + 1] - listed[0],
            part(local, "document_topics", *listed),
            part(local, "document_counts", *listed),
            part(local, "document_rest", first, last),
            part(local, "pair_shares", int(starts[first]), int(starts[last])),
        )


class Gathering:
    """Puts portions together as a local state: on a shelf if the state before lay on one, else in memory.

    Parameters
    ----------
    before : Arrays
        The state before.
    same : bool
        Whether all lists stay as they are: then arrays in memory are filled in place, not put together from parts.
    """

    def __init__(self, before: Arrays, same: bool) -> None:
        self._before = before
        self._writer = before.writer() if isinstance(before, Shelf) else None
        self._parts: list[dict[str, npt.NDArray[Any]]] = []
        self._sizes: list[Ints] = []
        self._whole: dict[str, npt.NDArray[Any]] = {}
        if same and self._writer is None:
            self._whole = {name: buffers.empty(before[name].shape, before[name].dtype) for name in CHANGING} | {
                name: before[name] for name in ("document_topics", "document_lists")
            }
        self._done = dict.fromkeys(CHANGING, 0)

    def blank(self, portion: Portion) -> tuple[Steps, Floats, Floats]:
        """Return arrays for a portion's new responsibilities, counts and background tokens."""
        made = []
        for name, before in zip(CHANGING, (portion.share, portion.count, portion.rest), strict=True):
            first, self._done[name] = self._done[name], self._done[name] + before.size
            made.append(
                self._whole[name][first : first + before.size]
                if self._whole
                else buffers.empty(before.size, before.dtype)
            )
        return made[0], made[1], made[2]

    def add(self, portion: Portion) -> None:
        """Take the next portion."""
        if self._whole:
            return
        self._sizes.append(np.diff(portion.lists))
        arrays: dict[str, npt.NDArray[Any]] = {"document_topics": portion.topic, "document_counts": portion.count}
        arrays.update(document_rest=portion.rest, pair_shares=portion.share)
        if self._writer is None:
            self._parts.append(arrays)
        else:
            self._writer.add(arrays)

    def finish(self, age: int) -> Arrays:
        """Return the state."""
        more: dict[str, npt.NDArray[Any]] = {"age": np.array(age)}
        if self._whole:
            return {**self._whole, **more}
        lists = np.concatenate([[0], np.cumsum(np.concatenate([*self._sizes, np.zeros(0, np.int64)]))])
        more["document_lists"] = lists.astype(np.int64)
        if self._writer is not None:
            self._writer.add(more)
            return self._writer.finish()
        if not self._parts:  # no document: nothing has changed
            return {**self._before, **more}
        if len(self._parts) == 1:
            return {**self._parts[0], **more}
        return {**{name: np.concatenate([one[name] for one in self._parts]) for name in self._parts[0]}, **more}
