"""Vectors of eight float32 numbers in kernels, processed together.

The compiler turns a loop into vector code only where it can prove that arrays do not overlap, and leaves up to 31 cells
of a short list to scalar code. Kernels that process lists of tens of cells are therefore written in vectors. Any
processor runs them: the compiler splits a vector into as many registers as it takes. Sums have one order.

This module defines each operation in NumPy, for kernels that run without the compiler; `lane_code` defines it for the
compiler. Compiled code does not check indices: callers guarantee that all eight numbers exist.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from collapsium.workers.kernels.jit import INTERPRETED, LANES, ONE_BITS, Array, Number

R = TypeVar("R")

Lanes: TypeAlias = Any  # Eight float32 numbers; +, - and * work number by number


class LaneOperation(Generic[R]):
    """An operation that the compiler takes from `lane_code`, by its name."""

    def __init__(self, function: Callable[..., R]) -> None:
        functools.update_wrapper(self, function)
        self.python = function

    def __call__(self, *args: object) -> R:
        """Run the operation in NumPy."""
        return self.python(*args)

    @property
    def _numba_type_(self) -> object:
        from collapsium.workers.kernels import lane_code

        return lane_code.operations()[self.python.__name__]


def _operation(function: Callable[..., R]) -> Callable[..., R]:
    return function if INTERPRETED else LaneOperation(function)


@_operation
def load(values: Array, first: int) -> Lanes:
    """Return eight numbers of a float32 array."""
    return values[first : first + LANES].copy()


@_operation
def store(values: Array, first: int, lanes: Lanes) -> None:
    """Write eight numbers to a float32 array."""
    values[first : first + LANES] = lanes


@_operation
def load_steps(values: Array, first: int) -> Lanes:
    """Return eight numbers of a uint16 array."""
    return values[first : first + LANES].astype(np.float32)


@_operation
def store_steps(values: Array, first: int, lanes: Lanes) -> None:
    """Write whole numbers below 2^16 to a uint16 array."""
    values[first : first + LANES] = lanes.astype(np.int32).astype(np.uint16)


@_operation
def load_counts(values: Array, first: int) -> Lanes:
    """Return eight numbers of an int32 array."""
    return values[first : first + LANES].astype(np.float32)


@_operation
def gather_counts(values: Array, first: int, places: Array, at: int) -> Lanes:
    """Return the numbers of an int32 array at `first` plus each of eight places: int32, or the bits of float32."""
    return values[first + places[at : at + LANES].view(np.int32)].astype(np.float32)


@_operation
def replace_counts(values: Array, first: int, old: Lanes, new: Lanes) -> None:
    """Add to eight numbers of an int32 array the whole parts of new numbers, minus the whole parts of old ones."""
    values[first : first + LANES] += new.astype(np.int32) - old.astype(np.int32)


@_operation
def scatter_counts(values: Array, first: int, places: Array, at: int, old: Lanes, new: Lanes) -> None:
    """Do the same to numbers at the places of `gather_counts`, one after another."""
    added = new.astype(np.int32) - old.astype(np.int32)
    for place, number in zip(places[at : at + LANES].view(np.int32), added, strict=True):
        values[first + place] += number


@_operation
def spread_evenly(number: Number) -> Lanes:
    """Return a float32 number eight times."""
    return np.full(LANES, number, dtype=np.float32)


@_operation
def larger(left: Lanes, right: Lanes) -> Lanes:
    """Return the larger of each two numbers."""
    return np.where(left > right, left, right)


@_operation
def truncate(lanes: Lanes) -> Lanes:
    """Return the whole parts of numbers below 2^31."""
    return lanes.astype(np.int32).astype(np.float32)


@_operation
def to_power(lanes: Lanes, power: Number) -> Lanes:
    """Return numbers to a power, approximately, up to a factor.

    The bits of a float, read as an integer, are its logarithm to within 0.09 of a factor of two. A power is therefore a
    product of bits, and more exact the nearer it is to 1.
    """
    one = np.float32(ONE_BITS)
    bits = (lanes.view(np.int32).astype(np.float32) - one) * power + one
    return bits.astype(np.int32).view(np.float32)


@_operation
def sum_of(lanes: Lanes) -> Number:
    """Return the sum: of halves, of quarters, and of the last two."""
    while lanes.size > 1:
        lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
    return lanes[0]


@_operation
def first_of(lanes: Lanes) -> Number:
    """Return the first number."""
    return lanes[0]


@_operation
def prefetch(values: Array, at: int) -> None:
    """Load the cache line of a number, which need not exist, before it is read."""
