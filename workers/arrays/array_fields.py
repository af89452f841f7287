"""Declare the types, shapes and ranges of named arrays, and check arrays that come from disk.

Kernels index by the numbers in states without checks, so a state from disk is checked once, as it is read. A field
declares an array's number types, its shape by the names of its sizes, and the range of its numbers. A size is bound by
the first array that has it, unless the caller knows it; all other arrays must agree.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import DType
from collapsium.storage.errors import DamagedError
from collapsium.workers.arrays.state import Array, Arrays

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard
    from collapsium.storage.corpus.vectors import AnyShard

MAX_MAGNITUDE = 1e15  # Largest number of a state by default. Its square is far from infinity, also in single precision.
ROUNDING_TOLERANCE = 1e-6  # Expected counts may be this far below zero by rounding

# Numbers that are checked together: they stay in the processor's cache between minimum and maximum
CHUNK_SIZE = 1 << 16

Sizes = dict[str, int]
Keys = npt.NDArray[np.uint64]  # Random keys of words, or of columns of rows


@dataclass(frozen=True)
class ArrayField:
    """Declaration of an array."""

    dtypes: tuple[str, ...]  # Allowed number types, such as ``f8``
    # Sizes. Each is a number, the name of a size, a name plus a number (``document+1``), or ``<`` and the name of a
    # bound size that is an upper limit (``<topic``).
    dims: tuple[str, ...] = ()
    # Smallest and largest number allowed. Floats must be finite.
    low: float = -MAX_MAGNITUDE
    high: float = MAX_MAGNITUDE
    below: str = ""  # Size that bounds indices, named as in `dims`; empty for numbers that are no indices
    into: str = ""  # Size that bounds offsets, which begin with 0, never fall and end with it; empty for other numbers
    optional: bool = False  # Whether the array may be missing


Fields = Mapping[str, ArrayField]


@dataclass(frozen=True)
class CheckContext:
    """Knowledge about arrays from outside of them, against which they are checked."""

    sizes: Sizes  # Sizes by name; those that arrays bind are added
    global_state: Arrays = field(default_factory=dict)  # The model's global state; empty while it is checked itself
    shard: AnyShard | None = None  # The documents of a local state; None where they are not at hand


Rule = Callable[[Arrays, CheckContext], str | None]


@dataclass(frozen=True)
class ArrayGroup:
    """Declaration of a group of arrays, such as a family's local state."""

    fields: Fields  # The arrays by name. The first that has a size binds it.
    # Conditions on several arrays, checked after the fields. Each returns a description of the fault, or None.
    rules: tuple[Rule, ...] = ()

    def only(self, names: Container[str]) -> ArrayGroup:
        """Return the declaration of the arrays of some names alone."""
        return ArrayGroup({name: declared for name, declared in self.fields.items() if name in names}, self.rules)


def numbers(dtypes: str, dims: str = "", low: float = -MAX_MAGNITUDE, high: float = MAX_MAGNITUDE) -> ArrayField:
    """Return a field of numbers within a range; types and dims are separated by spaces."""
    return ArrayField(tuple(dtypes.split()), tuple(dims.split()), low, high)


def counts(dtypes: str, dims: str = "") -> ArrayField:
    """Return a field of counts: numbers that are not negative, apart from rounding."""
    return numbers(dtypes, dims, -ROUNDING_TOLERANCE if "f" in dtypes else 0)


def indices(dtypes: str, dims: str, below: str, low: float = 0) -> ArrayField:
    """Return a field of indices, from `low` to one less than a size."""
    return replace(numbers(dtypes, dims, low), below=below)


def offsets(of: str, into: str) -> ArrayField:
    """Return a field of offsets: the index of the first entry of each item and, last, the number of entries."""
    return ArrayField(("i8",), (f"{of}+1",), 0, into=into)


def flags(names: str) -> dict[str, ArrayField]:
    """Return fields of single truth values, by name."""
    return dict.fromkeys(names.split(), ArrayField(("b1",), (), 0, 1))


def scalars(dtypes: str, names: str, low: float = -MAX_MAGNITUDE, high: float = MAX_MAGNITUDE) -> dict[str, ArrayField]:
    """Return fields of single numbers, by name."""
    return dict.fromkeys(names.split(), numbers(dtypes, "", low, high))


def same_field(names: str, field: ArrayField) -> dict[str, ArrayField]:
    """Return the same field for several names."""
    return dict.fromkeys(names.split(), field)


def optional(fields: Fields) -> dict[str, ArrayField]:
    """Return the same fields, which may be missing."""
    return {name: replace(field, optional=True) for name, field in fields.items()}


def check_arrays(arrays: Arrays, group: ArrayGroup, context: CheckContext, where: str) -> None:
    """Refuse arrays that differ from their declaration."""
    for name in arrays:
        if name not in group.fields:
            raise DamagedError(f"{where}/{name}", "expected no array of this name; it is of another model")
    for name, declared in group.fields.items():
        if name in arrays:
            fault = _fault(arrays[name], declared, context.sizes)
            if fault:
                raise DamagedError(f"{where}/{name}", fault)
        elif not declared.optional:
            raise DamagedError(f"{where}/{name}", "the array is missing")
    for rule in group.rules:
        fault = rule(arrays, context)
        if fault:
            raise DamagedError(where, fault)


def _fault(values: Array, declared: ArrayField, sizes: Sizes) -> str | None:
    """Return a description of an array's fault, or None; sizes that it is the first to have are bound."""
    dtypes, dims = _dtypes(declared.dtypes), declared.dims
    if values.dtype not in dtypes:
        return f"expected numbers of type {' or '.join(dtype.name for dtype in dtypes)}, found {values.dtype}"
    if values.ndim != len(dims) or not all(
        _agrees(size, dim, sizes) for size, dim in zip(values.shape, dims, strict=True)
    ):
        return f"expected the shape ({', '.join(_described(dim, sizes) for dim in dims)}), found {values.shape}"
    if declared.into:
        return _offsets_fault(values, declared.into, sizes)
    limit = min(declared.high, _size(declared.below, sizes) - 1) if declared.below else declared.high
    if declared.low <= 0 and is_from_zero_to(values, limit):
        return None
    low, high = value_range(values)
    if low is None or (low >= declared.low and high <= limit):
        return None
    if math.isnan(low) or math.isinf(low) or math.isinf(high):
        return "expected finite numbers"
    return f"expected numbers from {declared.low:g} to {limit:g}, found {low if low < declared.low else high:g}"


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


def is_from_zero_to(values: Array, limit: float) -> bool:
    """Return whether all numbers are from 0 to a limit, by one pass over their bits as unsigned integers.

    Bits of numbers that are not negative have the order of the numbers. Those of negative numbers (also of -0.0), of
    infinities and of NaN are greater than those of any finite number.
    """
    if not values.size or limit < 0 or not values.flags.c_contiguous:
        return False
    bits, most = values.reshape(-1).view(f"u{values.dtype.itemsize}"), _largest_bits(values.dtype, limit)
    # In chunks, as numbers that may be negative are passed over once more from the first of them.
    return all(int(bits[first : first + CHUNK_SIZE].max()) <= most for first in range(0, bits.size, CHUNK_SIZE))


@functools.lru_cache(maxsize=1024)
def _largest_bits(dtype: DType, limit: float) -> int:
    """Return the bits, as an unsigned integer, of the largest finite number of a type up to a limit from 0 on."""
    size = dtype.itemsize
    if dtype.kind == "f":
        return int(np.array(min(limit, np.finfo(dtype).max), dtype).view(f"u{size}"))
    return int(min(limit, (1 << (8 * size - (dtype.kind != "u"))) - 1))


@functools.cache
def _dtypes(names: tuple[str, ...]) -> tuple[DType, ...]:
    """Return the types of numbers of some names."""
    return tuple(np.dtype(name) for name in names)


def value_range(values: Array) -> tuple[float, float] | tuple[None, float]:
    """Return the minimum and the maximum, both NaN if any number is; None and 0 for an empty array."""
    if not values.size:
        return None, 0.0
    flat = values.reshape(-1)
    chunks = [flat[first : first + CHUNK_SIZE] for first in range(0, flat.size, CHUNK_SIZE)]
    lows, highs = np.array([(chunk.min(), chunk.max()) for chunk in chunks]).T
    low, high = lows.min(), highs.max()
    return (low.item(), high.item()) if low.dtype.kind in "iub" else (float(low), float(high))


def _offsets_fault(values: Array, into: str, sizes: Sizes) -> str | None:
    if values[0] != 0:
        return f"expected offsets from 0, found {values[0]}"
    last = int(values[-1])
    if not never_falls(values):
        return "expected offsets that never fall"
    if sizes.setdefault(into, last) != last:
        return f"expected offsets up to {sizes[into]}, found {last}"
    return None


def never_falls(values: Array) -> bool:
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


def ascending(lists: str, entries: str) -> Rule:
    """Return the rule that entries ascend strictly within each list."""

    def rule(arrays: Arrays, context: CheckContext) -> str | None:  # noqa: ARG001
        values, starts = np.asarray(arrays[entries]), np.asarray(arrays[lists])
        descents = 0
        for first in range(0, values.size - 1, CHUNK_SIZE):
            chunk = values[first : first + CHUNK_SIZE + 1]
            descents += int(np.count_nonzero(chunk[1:] <= chunk[:-1]))
        # From the last entry of one list to the first of the next they may fall; empty lists begin where the next does.
        firsts = starts[:-1][starts[1:] > starts[:-1]]
        firsts = firsts[firsts > 0]
        allowed = np.count_nonzero(values[firsts] <= values[firsts - 1])
        return None if descents == allowed else f"expected '{entries}' that ascend within each list of '{lists}'"

    return rule


def at_most(lists: str, size: str) -> Rule:
    """Return the rule that no list has more entries than a size."""

    def rule(arrays: Arrays, context: CheckContext) -> str | None:
        longest = int(np.diff(arrays[lists]).max(initial=0))
        limit = context.sizes[size]
        return None if longest <= limit else f"expected lists of at most {limit} in '{lists}', found one of {longest}"

    return rule


def all_or_none(*names: str) -> Rule:
    """Return the rule that optional arrays are either all there or all missing."""

    def rule(arrays: Arrays, context: CheckContext) -> str | None:  # noqa: ARG001
        missing = [name for name in names if name not in arrays]
        return f"the array '{missing[0]}' is missing" if 0 < len(missing) < len(names) else None

    return rule


class CountedTokens(Protocol):
    """The columns of the rows that count the tokens of a sampler's local state."""

    def columns(self, local: Arrays, shard: Shard) -> npt.NDArray[np.int64]:
        """Return the column of each token; -1 of tokens that none counts."""

    def fingerprint(self, local: Arrays, shard: Shard, words: Keys, columns: Keys) -> int:
        """Return the sum of the products of the keys of each token's word and column, modulo 2^64."""


@dataclass(frozen=True)
class FamilyArrays:
    """Declaration of the arrays of a family's states."""

    global_state: ArrayGroup  # The global state. It binds the sizes that the other groups have, such as ``topic``.
    rows: Callable[[Arrays], ArrayGroup]  # Returns, by the global state, the declaration of a finished model's rows
    blocks: Callable[[Arrays], ArrayGroup]  # The same of the rows in a checkpoint
    local: Callable[[Arrays], ArrayGroup]  # The same of a shard's local state
    # The columns that count each token; for samplers, which take tokens out of integer counts
    tokens: CountedTokens | None = None
    # Names of an array of counts in the global state and of the array of columns in the local state that it counts,
    # such as the documents that pass a tree's nodes
    totals: tuple[str, str] | None = None
