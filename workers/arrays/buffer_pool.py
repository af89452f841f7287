"""Memory for large arrays, used again: what one sweep frees, the next one takes.

The system hands out fresh memory page by page, at a cost near that of sweeping over it: on a virtual machine 2.5
microseconds a page were measured, as much as a sweep takes for 1800 of its 2048 responsibilities. Arrays made here are
like any other; when the last array that shows a piece of memory is gone, the piece is kept for the next that fits.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SMALL = 1 << 20  # bytes; smaller arrays come from the usual place
PAGE, HUGE = 1 << 16, 1 << 21
WASTE = 2.5  # a piece may be so many times as large as what it is taken for
IDLE = 1 << 25  # bytes that may be kept however little is in use


class Pool:
    """Pieces of memory that wait to be used again, at most as many bytes as are in use or were reserved.

    Attributes
    ----------
    lean : bool
        Whether few wait, whatever is in use: where memory is short.
    """

    def __init__(self) -> None:
        self.lean = False
        self._lock = threading.RLock()  # a piece may come back while one is taken: collection of garbage runs anywhere
        self._free: list[mmap.mmap] = []
        self._idle = self._used = self._reserved = 0

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Make an array that is not filled.

        Parameters
        ----------
        shape : int or tuple of int
            Its shape.
        dtype : numpy.dtype
            Its type.

        Returns
        -------
        numpy.ndarray
            C-contiguous.
        """
        kind = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        if count * kind.itemsize < SMALL:
            return np.empty(shape, dtype=kind)
        piece = self._take(count * kind.itemsize)
        array = np.frombuffer(memoryview(piece), dtype=kind, count=count)
        weakref.finalize(array, self._give, piece).atexit = False  # views of the array keep it alive
        return array.reshape(shape)

    def _take(self, size: int) -> mmap.mmap:
        with self._lock:
            fitting = [piece for piece in self._free if size <= len(piece) <= WASTE * size + PAGE]
            if fitting:
                piece = min(fitting, key=len)
                self._free = [one for one in self._free if one is not piece]
                self._idle = sum(len(one) for one in self._free)
            else:
                piece = _fetch(size)
            self._used += len(piece)
            return piece

    def _give(self, piece: mmap.mmap) -> None:
        with self._lock:
            self._used -= len(piece)
            self._free.append(piece)
            self._idle += len(piece)
            self._trim()

    def _trim(self) -> None:
        most = IDLE if self.lean else max(self._used, self._reserved, IDLE)
        while self._free and self._idle > most:  # those that have waited longest go
            self._idle -= len(self._free.pop(0))

    def reserve(self, sizes: Iterable[int]) -> None:
        """Fetch memory ahead, for further arrays of so many bytes: it waits as if they had been freed."""
        pieces = [_fetch(size) for size in sizes if size >= SMALL]
        for piece in pieces:
            np.frombuffer(memoryview(piece), dtype=np.uint8)[:: mmap.PAGESIZE] = 0
        with self._lock:
            self._free += pieces
            self._idle += sum(len(piece) for piece in pieces)
            self._reserved += sum(len(piece) for piece in pieces)
            self._trim()

    def release(self) -> None:
        """Forget what was reserved, and give the system what no longer needs to wait."""
        with self._lock:
            self._reserved = 0
            self._trim()


def _fetch(size: int) -> mmap.mmap:
    """Fetch memory from the system: private, and in whole huge pages where it is large, so that it lies in those."""
    page = HUGE if size > 2 * HUGE else PAGE
    flags = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    piece = mmap.mmap(-1, -(-size // page) * page, **flags)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        piece.madvise(mmap.MADV_HUGEPAGE)
    return piece


pool = Pool()
empty = pool.empty


def zeros(shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> Array:
    """Make an array of zeros."""
    array = empty(shape, dtype)
    array.fill(0)
    return array
