"""Byte planes of nonzero integers."""

import numpy as np


def fold(values):
    """Map -1, 1, -2, ... to 1, 2, 3, ..., as Python integers, without zeros."""
    return [2 * value if value >= 0 else -2 * value - 1 for value in map(int, values) if value]


def mask(values):
    """Return one bit per number, which is set if the number is not zero."""
    return np.packbits(np.array(values) != 0, bitorder="little")


def split(folded, count):
    """Return the byte planes, lowest bytes first."""
    return np.array([number >> 8 * plane & 255 for plane in range(count) for number in folded], np.uint8)


def add_rows(table, rows, values):
    """Return a table after adding values to some rows."""
    after = table.copy()
    for row, more in zip(rows, values, strict=True):
        after[row] += more
    return after
