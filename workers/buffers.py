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
PAGE = 1 << 16
WASTE = 2.5  # a piece may be so many times as large as what it is taken for
IDLE = 1 << 26  # bytes that may be kept however little is in use


class Pool:
    """Pieces of memory that wait to be used again, at most as many bytes as are in use or were reserved."""

    def __init__(self) -> None:
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
                self._free.remove(piece)
                self._idle -= len(piece)
            else:
                piece = mmap.mmap(-1, -(-size // PAGE) * PAGE)
                if hasattr(mmap, "MADV_HUGEPAGE"):
                    piece.madvise(mmap.MADV_HUGEPAGE)
            self._used += len(piece)
            return piece

    def _give(self, piece: mmap.mmap) -> None:
        with self._lock:
            self._used -= len(piece)
            self._free.append(piece)
            self._idle += len(piece)
            while self._free and self._idle > max(
                self._used, self._reserved, IDLE
            ):  # those that have waited longest go
                self._idle -= len(self._free.pop(0))

    def reserve(self, sizes: Iterable[int]) -> None:
        """Fetch memory ahead, for arrays of so many bytes: it waits as if arrays of these sizes had been freed."""
        held = [self.empty(size, np.uint8) for size in sizes]
        for array in held:
            array[:: mmap.PAGESIZE] = 0
        with self._lock:
            self._reserved += sum(array.size for array in held if array.size >= SMALL)


pool = Pool()
empty = pool.empty


def zeros(shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> Array:
    """Make an array of zeros."""
    array = empty(shape, dtype)
    array.fill(0)
    return array
