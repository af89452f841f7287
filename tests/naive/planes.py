"""Planes of bytes of whole numbers other than zero."""

import numpy as np


def fold(values):
    """-1, 1, -2, ... become 1, 2, 3, ...; as Python numbers, without zeros."""
    return [2 * value if value >= 0 else -2 * value - 1 for value in map(int, values) if value]


def mask(values):
    """A bit for each number, which is set where it is not zero."""
    return np.packbits(np.array(values) != 0, bitorder="little")


def split(folded, count):
    """Planes of bytes, the lowest bytes first."""
    return np.array([number >> 8 * plane & 255 for plane in range(count) for number in folded], np.uint8)


def add_rows(table, rows, values):
    """A table with values added to some rows."""
    after = table.copy()
    for row, more in zip(rows, values, strict=True):
        after[row] += more
    return after
