"""Reuse the memory of large arrays: what one sweep frees, the next one takes.

The system supplies fresh memory page by page, which takes nearly as long as a sweep over it: 2.5 microseconds per page
on a virtual machine, as long as a sweep takes for 1800 of the page's 2048 responsibilities. Arrays made here are like
any other. When the last array that refers to a piece of memory is freed, the piece is kept for the next array that
fits.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.state import Array


@dataclass(frozen=True)
class PoolSettings:
    """Sizes by which memory is fetched and retained, in bytes."""

    min_bytes: int = 1 << 20  # Smaller arrays come from NumPy's allocator
    # Pieces are multiples of a page, large ones of a huge page
    page_bytes: int = 1 << 16
    huge_page_bytes: int = 1 << 21
    max_waste: float = 1.5  # A piece may be this many times as large as the array that takes it
    idle_bytes: int = 1 << 25  # Bytes that may wait however little is in use
    # Share of the peak by which used and waiting memory together may exceed it. Pieces of one size are no use to
    # arrays of another: without it, a small piece more than at the peak would drive out a large one that is needed
    # next.
    slack: float = 1 / 32
    # Arrays after which a peak is forgotten, if none of them reached it, twice as many at the latest. An iteration
    # makes some ten a shard, between its highest and its lowest use.
    peak_arrays: int = 1000


class Pool:
    """Pieces of memory that wait to be used again: hardly more bytes in all than were in use at once, or were reserved.

    A sweep needs about twice the memory that is in use between sweeps, and would otherwise have to request anew what
    the previous sweep freed. Once no piece is in use any more, the peak is forgotten.
    """

    def __init__(self, settings: PoolSettings | None = None) -> None:
        self.settings, self.lean = settings or PoolSettings(), False
        # Reentrant: garbage collection runs anywhere, so a piece may come back while one is taken.
        self._lock = threading.RLock()
        self._free: list[mmap.mmap] = []
        self._idle = self._used = self._reserved = 0
        self._owners: set[str] = set()
        # Most bytes in use at once since the count was last reset, and in the period before that.
        self._peak = self._earlier_peak = self._made = 0

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Return a C-contiguous array that is not filled."""
        item = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        if count * item.itemsize < self.settings.min_bytes:
            return np.empty(shape, dtype=item)
        piece = self._take(count * item.itemsize)
        array = np.frombuffer(memoryview(piece), dtype=item, count=count)
        # Views of the array keep it alive, and with it the piece.
        weakref.finalize(array, self._give, piece).atexit = False
        return array.reshape(shape)

    def _take(self, size: int) -> mmap.mmap:
        with self._lock:
            limit = self.settings.max_waste * size + self.settings.page_bytes
            fitting = [piece for piece in self._free if size <= len(piece) <= limit]
            if fitting:
                piece = min(fitting, key=len)
                self._free = [free for free in self._free if free is not piece]
                self._idle = sum(len(free) for free in self._free)
            else:
                piece = self._fetch(size)
            self._used += len(piece)
            self._peak = max(self._peak, self._used)
            self._made += 1
            if self._made >= self.settings.peak_arrays:
                self._earlier_peak, self._peak, self._made = self._peak, self._used, 0
            self._trim()
            return piece

    def _give(self, piece: mmap.mmap) -> None:
        with self._lock:
            self._used -= len(piece)
            if not self._used:
                self._forget()
            self._free.append(piece)
            self._idle += len(piece)
            self._trim()

    def _trim(self) -> None:
        """Give back to the system the pieces that have waited longest, down to the limit."""
        idle_bytes = self.settings.idle_bytes
        largest = max(int((1 + self.settings.slack) * max(self._peak, self._earlier_peak)), self._reserved)
        # Where memory is short, what the shards that stay in memory have reserved waits for their next sweeps.
        limit = max((self._reserved if self.lean else largest) - self._used, idle_bytes)
        while self._free and self._idle > limit:
            self._idle -= len(self._free.pop(0))

    def reserve(self, sizes: Iterable[int], owner: str = "") -> None:
        """Fetch memory ahead for arrays of these sizes in bytes; it waits as if they had been freed.

        An owner that has memory gets no more, as when a shard is read again after work was lost.
        """
        with self._lock:
            if owner in self._owners:
                return
            self._owners |= {owner} if owner else set()
        pieces = [self._fetch(size) for size in sizes if size >= self.settings.min_bytes]
        for piece in pieces:
            np.frombuffer(memoryview(piece), dtype=np.uint8)[:: mmap.PAGESIZE] = 0
        with self._lock:
            self._free += pieces
            self._idle += sum(len(piece) for piece in pieces)
            self._reserved += sum(len(piece) for piece in pieces)
            self._trim()

    def release(self) -> None:
        """Reset the reservation and the peak, and return memory that is no longer needed to the system."""
        with self._lock:
            self._reserved = 0
            self._owners.clear()
            self._forget()
            self._trim()

    def _forget(self) -> None:
        self._peak, self._earlier_peak, self._made = self._used, 0, 0

    def _fetch(self, size: int) -> mmap.mmap:
        """Allocate private memory, in complete huge pages if it is large."""
        huge = self.settings.huge_page_bytes
        page = huge if size > 2 * huge else self.settings.page_bytes
        flags = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
        piece = mmap.mmap(-1, -(-size // page) * page, **flags)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            piece.madvise(mmap.MADV_HUGEPAGE)
        return piece


pool = Pool()
empty = pool.empty


def zeros(shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> Array:
    """Return an array of zeros."""
    array = empty(shape, dtype)
    array.fill(0)
    return array
