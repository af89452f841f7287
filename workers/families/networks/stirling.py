"""Tables of generalised Stirling numbers' ratios: a row a discount, kept in the process and shared by its threads.

A table holds all V^m_t with m up to a power of two, no more than `LARGEST`, where it takes 16.8 MB. Beyond, kernels
integrate. What a kernel finds does not depend on what else the process has done: rows that are longer than asked for,
because they have grown, hold the numbers that all others hold, and m beyond `LARGEST` is always integrated.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from collapsium.workers.kernels.networks.stirling import fill_ratios

SMALLEST, LARGEST = 64, 2048  # m that a table goes to
HELD = 2**27  # bytes that are kept in a process at most; of the tables asked for last

_tables: OrderedDict[tuple[float, ...], NDArray[np.float64]] = OrderedDict()  # by use, the last one last
_lock = threading.Lock()


def tables_for(discounts: Iterable[float], most: int) -> NDArray[np.float64]:
    """Return the tables of V^m_t = S^m_t / S^m_{t-1} for several discounts.

    Parameters
    ----------
    discounts : sequence of float
        Discounts, 0 <= a < 1, in the order in which the rows shall be.
    most : int
        The largest count m that will be asked for. To have the same numbers everywhere it must not be
        less than that, unless it is `LARGEST` or more.

    Returns
    -------
    float64, shape (discounts, M (M - 1) / 2), read-only
        A row a discount, with the V^m_t of m = 2 ... M one behind the other, each with t = 2 ... m; M is a power of
        two and at least `most` or `LARGEST`. `kernels.stirling.stirling_ratio` takes a row.

    Raises
    ------
    ValueError
        If a discount is not in [0, 1).
    """
    key = tuple(float(a) for a in discounts)
    if not all(0.0 <= a < 1.0 for a in key):
        raise ValueError(f"discounts are {key}; each must be at least 0 and less than 1")
    end = max(SMALLEST, 1 << (min(most, LARGEST) - 1).bit_length()) if most > 0 else SMALLEST
    with _lock:
        found = _tables.pop(key, None)
        if found is None or found.shape[1] < _size(end):
            found = _grown(key, found, end)
        _tables[key] = found
        while len(_tables) > 1 and sum(table.nbytes for table in _tables.values()) > HELD:
            _tables.popitem(last=False)
    return found


def _size(end: int) -> int:
    """Return how many ratios a table to m = `end` has."""
    return end * (end - 1) // 2


def _grown(key: tuple[float, ...], before: NDArray[np.float64] | None, end: int) -> NDArray[np.float64]:
    """Return tables to m = `end` that go on from those before, if there are any."""
    tables = np.empty((len(key), _size(end)))
    begin = 1
    if before is not None:
        tables[:, : before.shape[1]] = before
        begin = next(m for m in (end >> i for i in range(1, 64)) if _size(m) == before.shape[1])
    for a, row in zip(key, tables, strict=True):
        fill_ratios(a, begin, end, row)
    tables.setflags(write=False)
    return tables
