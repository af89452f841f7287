"""Planes of bytes of whole numbers: small numbers of either sign leave most planes empty, and compress well.

Numbers are folded so that small magnitudes have few bits: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
"""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Array,
    Int32Vector,
    Int64Vector,
    OutInt32Vector,
    OutInt64Vector,
    OutUInt8Vector,
    UInt8Vector,
)
from collapsium.workers.kernels.jit import helper, kernel

HIGH_BITS = np.int64(2**63 - 1)


@kernel
def bits_32(values: Int32Vector) -> int:
    """Return the bits that any of the folded numbers has; twin: `naive.planes`."""
    return _bits(values)


@kernel
def bits_64(values: Int64Vector) -> int:
    """Return the bits that any of the folded numbers has, as a number with a sign; twin: `naive.planes`."""
    return _bits(values)


@kernel
def split_32(values: Int32Vector, planes: OutUInt8Vector) -> None:
    """Fill as many planes as there is room for, the lowest bytes first; twin: `naive.planes`."""
    _split(values, planes)


@kernel
def split_64(values: Int64Vector, planes: OutUInt8Vector) -> None:
    """Fill as many planes as there is room for, the lowest bytes first; twin: `naive.planes`."""
    _split(values, planes)


@kernel
def add_32(planes: UInt8Vector, values: OutInt32Vector) -> None:
    """Add the numbers of planes to values; twin: `naive.planes`."""
    _add(planes, values)


@kernel
def add_64(planes: UInt8Vector, values: OutInt64Vector) -> None:
    """Add the numbers of planes to values; twin: `naive.planes`."""
    _add(planes, values)


KERNELS = (bits_32, bits_64, split_32, split_64, add_32, add_64)


@helper
def _bits(values: Array) -> int:
    bits = np.int64(0)
    for number in range(values.size):
        value = np.int64(values[number])
        bits |= (value << 1) ^ (value >> 63)
    return int(bits)


@helper
def _split(values: Array, planes: Array) -> None:
    size = values.size
    for plane in range(planes.size // max(size, 1)):
        shift, filled = np.int64(8 * plane), planes[plane * size : (plane + 1) * size]
        for number in range(size):
            value = np.int64(values[number])
            filled[number] = (((value << 1) ^ (value >> 63)) >> shift) & 255


@helper
def _add(planes: Array, values: Array) -> None:
    size = values.size
    count = planes.size // max(size, 1)
    low, middle = planes[:size], planes[size : 2 * size]
    # Loops of a fixed number of planes are vectorised.
    if count == 1:
        for number in range(size):
            values[number] += _unfolded(np.int64(low[number]))
    elif count == 2:
        for number in range(size):
            values[number] += _unfolded(np.int64(low[number]) | np.int64(middle[number]) << 8)
    elif count == 3:
        high = planes[2 * size :]
        for number in range(size):
            folded = np.int64(low[number]) | np.int64(middle[number]) << 8 | np.int64(high[number]) << 16
            values[number] += _unfolded(folded)
    else:
        for number in range(size):
            folded = np.int64(0)
            for plane in range(count):
                folded |= np.int64(planes[plane * size + number]) << np.int64(8 * plane)
            values[number] += _unfolded(folded)


@helper
def _unfolded(folded: np.int64) -> np.int64:
    return ((folded >> 1) & HIGH_BITS) ^ -(folded & 1)
