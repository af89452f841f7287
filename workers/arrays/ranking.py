"""Rank the largest values of each row of a matrix without sorting all of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def largest(values: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int64]:
    """Return the columns of the largest values of each row.

    Parameters
    ----------
    values : numpy.ndarray of float64, shape (rows, columns)
        Finite numbers.
    count : int
        Columns to return of each row; all where there are fewer.

    Returns
    -------
    numpy.ndarray of int64, shape (rows, count)
        In the order of a stable sort of the row by falling value.
    """
    rows, columns = values.shape
    count = min(count, columns)
    if count == 0:
        return np.zeros((rows, 0), dtype=np.int64)
    threshold = np.partition(values, columns - count, axis=1)[:, columns - count]
    ranked = np.empty((rows, count), dtype=np.int64)
    for row in range(rows):
        candidates = np.flatnonzero(values[row] >= threshold[row])
        order = np.argsort(-values[row, candidates], kind="stable")[:count]
        ranked[row] = candidates[order]
    return ranked
