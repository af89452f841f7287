"""Planes of bytes of whole numbers other than zero: small numbers of either sign leave most planes empty.

Most changes are zero. A mask has a bit for each number, and only those that are not zero follow in planes. They are
folded so that small magnitudes have few bits: -1, 1, -2, ... become 1, 2, 3, ...
"""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.jit import (
    Array,
    Int32Matrix,
    Int32Vector,
    Int64Matrix,
    Int64Vector,
    OutInt32Matrix,
    OutInt32Vector,
    OutInt64Matrix,
    OutInt64Vector,
    OutUInt8Vector,
    UInt8Vector,
    helper,
    kernel,
)

HIGH_BITS = np.int64(2**63 - 1)


@kernel
def fold_32(values: Int32Vector, mask: OutUInt8Vector, folded: OutInt32Vector, sums: OutInt64Vector) -> None:
    """Fill the mask and, in their order, the folded numbers other than zero; twin: `naive.planes`.

    `folded` has room for one number more than there are values. `sums` gets how many there are, and the bits that any
    of them has, as a number with a sign.

    Shapes: `mask` (an eighth of the values, rounded up,); `sums` (2,).
    """
    _fold(values, mask, folded, sums)


@kernel
def fold_64(values: Int64Vector, mask: OutUInt8Vector, folded: OutInt64Vector, sums: OutInt64Vector) -> None:
    """Fill the mask and, in their order, the folded numbers other than zero, as `fold_32`; twin: `naive.planes`."""
    _fold(values, mask, folded, sums)


@kernel
def split_32(folded: Int32Vector, planes: OutUInt8Vector) -> None:
    """Fill as many planes as there is room for, the lowest bytes first; twin: `naive.planes`."""
    _split(folded, planes)


@kernel
def split_64(folded: Int64Vector, planes: OutUInt8Vector) -> None:
    """Fill as many planes as there is room for, the lowest bytes first; twin: `naive.planes`."""
    _split(folded, planes)


@kernel
def add_32(mask: UInt8Vector, planes: UInt8Vector, count: int, values: OutInt32Vector) -> None:
    """Add the numbers of so many planes to the values whose bits the mask has; twin: `naive.planes`.

    The mask has as many bits as a plane has bytes.
    """
    _add(mask, planes, count, values)


@kernel
def add_64(mask: UInt8Vector, planes: UInt8Vector, count: int, values: OutInt64Vector) -> None:
    """Add the numbers of so many planes to values, as `add_32`; twin: `naive.planes`."""
    _add(mask, planes, count, values)


@kernel
def add_rows_32(table: OutInt32Matrix, rows: Int64Vector, values: Int32Matrix) -> None:
    """Add values to rows of a table; twin: `naive.planes`."""
    _add_rows(table, rows, values)


@kernel
def add_rows_64(table: OutInt64Matrix, rows: Int64Vector, values: Int64Matrix) -> None:
    """Add values to rows of a table; twin: `naive.planes`."""
    _add_rows(table, rows, values)


KERNELS = (fold_32, fold_64, split_32, split_64, add_32, add_64, add_rows_32, add_rows_64)


@helper
def _fold(values: Array, mask: Array, folded: Array, sums: Array) -> None:
    complete, sums[:] = values.size // 8, 0
    for byte in range(complete):
        mask[byte] = _fold_some(values, 8 * byte, 8, folded, sums)
    for byte in range(complete, mask.size):
        mask[byte] = _fold_some(values, 8 * byte, values.size - 8 * byte, folded, sums)


@helper
def _fold_some(values: Array, first: int, count: int, folded: Array, sums: Array) -> int:
    """Return the bits of up to eight numbers."""
    position, bits, mask = sums[0], sums[1], 0
    # All numbers are written, and those that are zero overwritten: a loop without branches.
    for place in range(count):
        value = np.int64(values[first + place])
        number = (value << 1) ^ (value >> 63)
        folded[position] = number
        bits |= number
        is_nonzero = int(value != 0)
        position += is_nonzero
        mask |= is_nonzero << place
    sums[0], sums[1] = position, bits
    return mask


@helper
def _split(folded: Array, planes: Array) -> None:
    size = folded.size
    for plane in range(planes.size // max(size, 1)):
        shift, filled = 8 * plane, planes[plane * size : (plane + 1) * size]
        for number in range(size):
            filled[number] = (folded[number] >> shift) & 255


@helper
def _add(mask: Array, planes: Array, count: int, values: Array) -> None:
    size = planes.size // max(count, 1)
    # One more, as the number after the last is read where the mask has no bit.
    numbers, low, middle = np.zeros(size + 1, values.dtype), planes[:size], planes[size : 2 * size]
    # Loops of a fixed number of planes are vectorised.
    if count == 1:
        for number in range(size):
            numbers[number] = _unfolded(np.int64(low[number]))
    elif count == 2:
        for number in range(size):
            numbers[number] = _unfolded(np.int64(low[number]) | np.int64(middle[number]) << 8)
    elif count == 3:
        high = planes[2 * size :]
        for number in range(size):
            folded = np.int64(low[number]) | np.int64(middle[number]) << 8 | np.int64(high[number]) << 16
            numbers[number] = _unfolded(folded)
    else:
        for number in range(size):
            folded = np.int64(0)
            for plane in range(count):
                folded |= np.int64(planes[plane * size + number]) << np.int64(8 * plane)
            numbers[number] = _unfolded(folded)
    added, complete = np.int64(0), values.size // 8
    for byte in range(mask.size):
        eight, first = np.int64(mask[byte]), 8 * byte
        if eight == 0:
            continue
        for place in range(8 if byte < complete else values.size - first):
            present = (eight >> place) & 1
            values[first + place] += numbers[added] * present
            added += present


@helper
def _unfolded(folded: np.int64) -> np.int64:
    return ((folded >> 1) & HIGH_BITS) ^ -(folded & 1)


@helper
def _add_rows(table: Array, rows: Array, values: Array) -> None:
    for number in range(rows.size):
        row = rows[number]
        for column in range(table.shape[1]):
            table[row, column] += values[number, column]
