"""Rank the largest values of each row of a matrix without sorting all of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

CELLS = 1 << 18  # Numbers that are ranked at a time: where many are equal, each takes some index arrays

# Groups of columns for each column to return: with more, fewer numbers pass the threshold that the maxima give
GROUPS = 16

MIN_GROUP = 4  # Least columns of a group: of smaller ones the maxima are hardly fewer than the numbers themselves


def largest(values: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int64]:
    """Return the columns of the largest values of each row."""
    rows, columns = values.shape
    count = min(count, columns)
    ranked = np.zeros((rows, count), dtype=np.int64)
    if count == 0:
        return ranked
    step = max(CELLS // columns, 1)
    for low in range(0, rows, step):
        some = values[low : low + step]
        threshold = _lower_bound(some, count)
        # `nonzero` of a matrix takes several times as long.
        row, column = np.divmod(np.flatnonzero(some >= threshold[:, np.newaxis]), columns)
        order = np.lexsort((-some[row, column], row))
        first = np.searchsorted(row, np.arange(len(some)))
        ranked[low : low + step] = column[order[first[:, np.newaxis] + np.arange(count)]]
    return ranked


def _lower_bound(values: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """Return at most the count-th largest value of each row, and hardly less."""
    # At least as many values as maxima exceed a number. Maxima of groups are fast to find.
    rows, columns = values.shape
    groups = GROUPS * count
    size = columns // groups
    if size >= MIN_GROUP:
        values = values[:, : size * groups].reshape(rows, size, groups).max(axis=1)
    place = values.shape[1] - count
    bound: npt.NDArray[np.float64] = np.partition(values, place, axis=1)[:, place]
    return bound
