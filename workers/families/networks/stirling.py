"""Tables of ratios of generalised Stirling numbers: a row a discount, cached in the process and shared by its threads.

A table has all V^m_t with m up to a power of two, at most `MAX_COUNT`, where it takes 16.8 MB. Beyond, kernels
integrate. Results do not depend on what else the process has computed: a longer table has the same numbers, and m
beyond `MAX_COUNT` is always integrated.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from collapsium.workers.kernels.networks.stirling import fill_ratios

MIN_COUNT, MAX_COUNT = 64, 2048  # Range of the largest m of a table
MAX_CACHED_BYTES = 2**27  # Most bytes of the tables in a process, of which the last used stay

# By use, the last used one last.
_tables: OrderedDict[tuple[float, ...], NDArray[np.float64]] = OrderedDict()
_lock = threading.Lock()


def tables_for(discounts: Iterable[float], most: int) -> NDArray[np.float64]:
    """Return the tables of V^m_t = S^m_t / S^m_{t-1} for several discounts."""
    key = tuple(float(a) for a in discounts)
    if not all(0.0 <= a < 1.0 for a in key):
        raise ValueError(f"discounts are {key}; each must be at least 0 and less than 1")
    end = max(MIN_COUNT, 1 << (min(most, MAX_COUNT) - 1).bit_length()) if most > 0 else MIN_COUNT
    with _lock:
        ratios = _tables.pop(key, None)
        if ratios is None or ratios.shape[1] < _size(end):
            ratios = _grown(key, ratios, end)
        _tables[key] = ratios
        while len(_tables) > 1 and sum(table.nbytes for table in _tables.values()) > MAX_CACHED_BYTES:
            _tables.popitem(last=False)
    return ratios


def _size(end: int) -> int:
    """Return the number of ratios in a table to m = `end`."""
    return end * (end - 1) // 2


def _grown(key: tuple[float, ...], before: NDArray[np.float64] | None, end: int) -> NDArray[np.float64]:
    """Return tables to m = `end`, which extend those before if there are any."""
    tables = np.empty((len(key), _size(end)))
    begin = 1
    if before is not None:
        tables[:, : before.shape[1]] = before
        begin = next(m for m in (end >> i for i in range(1, 64)) if _size(m) == before.shape[1])
    for a, row in zip(key, tables, strict=True):
        fill_ratios(a, begin, end, row)
    tables.setflags(write=False)
    return tables
