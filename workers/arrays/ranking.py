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
    # At most the count-th largest value of each row, and hardly less, is a threshold: at least as many values as maxima
    # exceed a number, and maxima of groups are fast to find.
    groups = GROUPS * count
    size = columns // groups
    for low in range(0, rows, step):
        some = maxima = values[low : low + step]
        if size >= MIN_GROUP:
            maxima = some[:, : size * groups].reshape(len(some), size, groups).max(axis=1)
        place = maxima.shape[1] - count
        threshold = np.partition(maxima, place, axis=1)[:, place]
        # `nonzero` of a matrix takes several times as long.
        row, column = np.divmod(np.flatnonzero(some >= threshold[:, np.newaxis]), columns)
        order = np.lexsort((-some[row, column], row))
        first = np.searchsorted(row, np.arange(len(some)))
        ranked[low : low + step] = column[order[first[:, np.newaxis] + np.arange(count)]]
    return ranked
