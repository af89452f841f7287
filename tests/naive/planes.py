"""Planes of bytes of whole numbers."""

import numpy as np


def fold(values):
    """0, -1, 1, -2, ... become 0, 1, 2, 3, ...; as Python numbers."""
    return [2 * value if value >= 0 else -2 * value - 1 for value in map(int, values)]


def split(values, count):
    """So many planes, the lowest bytes first."""
    return np.array([value >> 8 * plane & 255 for plane in range(count) for value in fold(values)], np.uint8)
