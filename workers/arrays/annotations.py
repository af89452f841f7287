"""Annotations by which states declare their arrays, and the check of arrays from disk.

Each field of a state is annotated once: `topics: Annotated[Topics, indices("entry", below="topic")]`. The type names
the type of the numbers, the annotation names the sizes of the array and the range of its numbers. A size is bound by
the first array that has it, unless the caller knows it; all other arrays must agree. Kernels index by the numbers in
states without checks, so `State.checked` checks each state from disk once, when it is read.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, get_args

import numpy as np

from collapsium.storage.data_types import AnyArray, DType

MAX_MAGNITUDE = 1e15  # Largest number of a state by default. Its square is far from infinity, also in single precision.
ROUNDING_TOLERANCE = 1e-6  # Expected counts may be this far below zero by rounding

# Numbers that are checked together: they stay in the processor's cache between minimum and maximum
CHUNK_SIZE = 1 << 16

Sizes = dict[str, int]


@dataclass(frozen=True)
class Declared:
    """Declaration of an array."""

    # Sizes. Each is a number, the name of a size, a name plus a number (`document+1`), or `<` and the name of a bound
    # size that is an upper limit (`<topic`).
    dims: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()  # Allowed number types, such as `f8`; empty for the field's type
    # Smallest and largest number allowed. Floats must be finite.
    low: float = -MAX_MAGNITUDE
    high: float = MAX_MAGNITUDE
    below: str = ""  # Size that bounds indices, named as in `dims`; empty for numbers that are no indices
    into: str = ""  # Size that bounds offsets, which begin with 0, never fall and end with it; empty for other numbers
    size: str = ""  # Size that a single number is; empty for other numbers
    optional: bool = False  # Whether the array may be missing, as in what earlier releases have written

    def resized(self, names: Mapping[str, str]) -> Declared:
        """Return the declaration with other names of sizes."""
        dims, below, into = (
            tuple(_renamed(dim, names) for dim in part) for part in (self.dims, [self.below], [self.into])
        )
        return replace(self, dims=dims, below=below[0], into=into[0])


@dataclass(frozen=True)
class SizeNames:
    """Other names of the sizes of a nested state's arrays."""

    names: Mapping[str, str]


@dataclass(frozen=True)
class SavedAs:
    """Name of a field's array in models and checkpoints, where it differs from the field's."""

    name: str


class Presence(Enum):
    """Mark of a field that may be None, but whose arrays are not optional in models and checkpoints."""

    SAVED = "always there"  # Such as the topics of tokens, which only documents that were folded in lack
    UNSAVED = "never there"


SAVED, UNSAVED = Presence.SAVED, Presence.UNSAVED


def numbers(
    dims: str = "",
    low: float = -MAX_MAGNITUDE,
    high: float = MAX_MAGNITUDE,
    *,
    dtypes: str = "",
    optional: bool = False,
) -> Declared:
    """Declare numbers within a range; dims and number types are separated by spaces."""
    return Declared(tuple(dims.split()), tuple(dtypes.split()), low, high, optional=optional)


def non_negative(dims: str = "", *, dtypes: str = "") -> Declared:
    """Declare counts and the like: numbers that are not negative, apart from rounding."""
    return numbers(dims, -ROUNDING_TOLERANCE, dtypes=dtypes)


def indices(dims: str, below: str, low: float = 0) -> Declared:
    """Declare indices, from `low` to one less than a size."""
    return replace(numbers(dims, low), below=below)


def offsets(of: str, into: str) -> Declared:
    """Declare offsets: the index of the first entry of each item and, last, the number of entries."""
    return Declared((f"{of}+1",), low=0, into=into)


def size(name: str, low: int, high: float) -> Declared:
    """Declare a single number that is a size of other arrays."""
    return replace(numbers("", low, high), size=name)


def sizes(**names: str) -> SizeNames:
    """Rename the sizes of a nested state's arrays."""
    return SizeNames(names)


def number_types(hint: Any) -> tuple[str, ...]:
    """Return the number type that an array's type names; none if it names several, such as all floats."""
    members = get_args(hint)
    number = get_args(members[1])[0] if len(members) == 2 else None
    return (np.dtype(number).str[1:],) if isinstance(number, type) and not number.__subclasses__() else ()


def fault_of(values: AnyArray, declared: Declared, sizes: Sizes) -> str | None:
    """Return a description of an array's fault, or None; sizes that it is the first to have are bound."""
    dtypes, dims = _dtypes(declared.dtypes), declared.dims
    if values.dtype not in dtypes:
        return f"expected numbers of type {' or '.join(dtype.name for dtype in dtypes)}, found {values.dtype}"
    if values.ndim != len(dims) or not all(
        _agrees(size, dim, sizes) for size, dim in zip(values.shape, dims, strict=True)
    ):
        return f"expected the shape ({', '.join(_described(dim, sizes) for dim in dims)}), found {values.shape}"
    if declared.into:
        last = int(values[-1])
        if values[0] != 0:
            return f"expected offsets from 0, found {values[0]}"
        if not never_falls(values):
            return "expected offsets that never fall"
        expected = sizes.setdefault(declared.into, last)
        return None if last == expected else f"expected offsets up to {expected}, found {last}"
    fault = _range_fault(values, declared, sizes)
    if fault or not declared.size:
        return fault
    number = int(values)
    expected = sizes.setdefault(declared.size, number)
    return None if number == expected else f"expected {expected}, found {number}"


def _range_fault(values: AnyArray, declared: Declared, sizes: Sizes) -> str | None:
    limit = min(declared.high, _size(declared.below, sizes) - 1) if declared.below else declared.high
    if declared.low <= 0 and is_from_zero_to(values, limit):
        return None
    low, high = value_range(values)
    if low is None or (low >= declared.low and high <= limit):
        return None
    if math.isnan(low) or math.isinf(low) or math.isinf(high):
        return "expected finite numbers"
    least = math.ceil(declared.low) if values.dtype.kind != "f" and math.isfinite(declared.low) else declared.low
    return f"expected numbers from {least:g} to {limit:g}, found {low if low < declared.low else high:g}"


def _renamed(dim: str, names: Mapping[str, str]) -> str:
    name, plus, added = dim.partition("+")
    limit = "<" if name.startswith("<") else ""
    return f"{limit}{names.get(name.removeprefix('<'), name.removeprefix('<'))}{plus}{added}"


def _agrees(size: int, dim: str, sizes: Sizes) -> bool:
    """Return whether a size agrees with its dim; the size of a name without one is bound."""
    if dim.startswith("<"):
        return size <= sizes[dim[1:]]
    name, _, added = dim.partition("+")
    if name.isdigit():
        return size == int(name)
    named_size = size - int(added or 0)
    return named_size >= 0 and sizes.setdefault(name, named_size) == named_size


def _size(dim: str, sizes: Sizes) -> int:
    """Return the size of a dim, whose name is bound."""
    name, _, added = dim.partition("+")
    return sizes[name] + int(added or 0)


def _described(dim: str, sizes: Sizes) -> str:
    if dim.startswith("<"):
        return f"at most {sizes[dim[1:]]}"
    name = dim.partition("+")[0]
    return str(_size(dim, sizes)) if name in sizes else dim


def is_from_zero_to(values: AnyArray, limit: float) -> bool:
    """Return whether all numbers are from 0 to a limit, by one pass over their bits as unsigned integers.

    Bits of numbers that are not negative have the order of the numbers. The bits of negative numbers (also of -0.0), of
    infinities and of NaN are greater than the bits of any finite number.
    """
    if not values.size or limit < 0 or not values.flags.c_contiguous:
        return False
    bits, limit_bits = values.reshape(-1).view(f"u{values.dtype.itemsize}"), _largest_bits(values.dtype, limit)
    # In chunks, as numbers that may be negative are passed over once more from the first of them.
    return all(int(bits[first : first + CHUNK_SIZE].max()) <= limit_bits for first in range(0, bits.size, CHUNK_SIZE))


@functools.lru_cache(maxsize=1024)
def _largest_bits(dtype: DType, limit: float) -> int:
    """Return the bits, as an unsigned integer, of the largest finite number of a type up to a limit from 0 on."""
    size = dtype.itemsize
    if dtype.kind == "f":
        return int(np.array(min(limit, np.finfo(dtype).max), dtype).view(f"u{size}"))
    return int(min(limit, (1 << (8 * size - (dtype.kind != "u"))) - 1))


@functools.cache
def _dtypes(names: tuple[str, ...]) -> tuple[DType, ...]:
    """Return the number types that have these names."""
    return tuple(np.dtype(name) for name in names)


def value_range(values: AnyArray) -> tuple[float, float] | tuple[None, float]:
    """Return the minimum and the maximum, both NaN if any number is; None and 0 for an empty array."""
    if not values.size:
        return None, 0.0
    flat = values.reshape(-1)
    chunks = [flat[first : first + CHUNK_SIZE] for first in range(0, flat.size, CHUNK_SIZE)]
    lows, highs = np.array([(chunk.min(), chunk.max()) for chunk in chunks]).T
    low, high = lows.min(), highs.max()
    return (low.item(), high.item()) if low.dtype.kind in "iub" else (float(low), float(high))


def never_falls(values: AnyArray) -> bool:
    """Return whether no number is less than the one before; compared in chunks, to take little memory."""
    return all(
        bool(
            (
                values[first + 1 : first + CHUNK_SIZE + 1]
                >= values[first : first + CHUNK_SIZE][: values.size - first - 1]
            ).all()
        )
        for first in range(0, values.size - 1, CHUNK_SIZE)
    )


def ascending(state: Any, lists: str, entries: str) -> Iterator[str]:
    """Yield the fault of a state's entries that do not ascend strictly within each list."""
    values, starts = np.asarray(getattr(state, entries)), np.asarray(getattr(state, lists))
    descents = 0
    for first in range(0, values.size - 1, CHUNK_SIZE):
        chunk = values[first : first + CHUNK_SIZE + 1]
        descents += int(np.count_nonzero(chunk[1:] <= chunk[:-1]))
    # Entries may decrease from the end of one list to the start of the next; an empty list begins where the next does.
    firsts = starts[:-1][starts[1:] > starts[:-1]]
    firsts = firsts[firsts > 0]
    if descents != np.count_nonzero(values[firsts] <= values[firsts - 1]):
        yield f"expected '{entries}' that ascend within each list of '{lists}'"


def presence_faults(values: AnyArray | None, name: str, *, expected: bool) -> Iterator[str]:
    """Yield the fault of an array that is there where none is expected, or missing where one is."""
    if (values is not None) != expected:
        yield f"the array '{name}' is missing" if expected else f"expected no array '{name}'; it is of another model"
