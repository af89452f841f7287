"""Declare what named arrays must hold, and check arrays that come from disk against it.

Kernels index with what states hold and check nothing, so a state from disk is checked once, as it is read. A field has
an array's number types, its shape by the names of its sizes, and the range of its numbers. A size is bound by the first
array that has it, unless the caller knows it; all others must agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import DamagedError

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard
    from collapsium.storage.corpus.vectors import AnyShard

Arrays = Mapping[str, Any]

LARGEST = 1e15
"""Largest number of a state by default. Its square is far from infinity, also in single precision."""

ROUNDING = 1e-6
"""By how much rounding may leave an expected count below nothing."""

PIECE = 1 << 16
"""Numbers that are looked at together: they stay in the processor's cache between the least and the largest."""

Sizes = dict[str, int]


@dataclass(frozen=True)
class Field:
    """What an array must hold.

    Attributes
    ----------
    dtypes : tuple of str
        Types of numbers that it may have, such as ``f8``.
    dims : tuple of str
        Each a number, the name of a size, such a name and what is added to it (``document+1``), or a name that is
        bound already and the most that there may be of it (``<topic``).
    low, high : float
        Least and largest number. Floats must be finite.
    below : str
        A size, named as in `dims`, that all numbers are below: they are indices.
    into : str
        Name of a size of which these are the offsets: they begin with 0, never fall, and end with it.
    optional : bool
        Whether the array may be missing.
    """

    dtypes: tuple[str, ...]
    dims: tuple[str, ...] = ()
    low: float = -LARGEST
    high: float = LARGEST
    below: str = ""
    into: str = ""
    optional: bool = False


Fields = Mapping[str, Field]


@dataclass(frozen=True)
class Known:
    """What is known of arrays before they are read.

    Attributes
    ----------
    sizes : dict of str to int
        Sizes by name; those that arrays bind are added.
    global_state : Arrays
        The model's global state; none while they are checked themselves.
    shard : Shard or VectorShard or None
        The documents of a local state, where they are at hand.
    """

    sizes: Sizes
    global_state: Arrays = field(default_factory=dict)
    shard: AnyShard | None = None


Rule = Callable[[Arrays, Known], str | None]


@dataclass(frozen=True)
class Part:
    """What a group of arrays must hold.

    Attributes
    ----------
    fields : mapping of str to Field
        What each array must hold. The first that has a size binds it.
    rules : tuple of callable
        What must hold of several arrays, checked once each is sound by itself: each returns what is wrong, or None.
    """

    fields: Fields
    rules: tuple[Rule, ...] = ()

    def only(self, names: Container[str]) -> Part:
        """Return the same of the arrays of some names alone."""
        return Part({name: one for name, one in self.fields.items() if name in names}, self.rules)


def numbers(dtypes: str, dims: str = "", low: float = -LARGEST, high: float = LARGEST) -> Field:
    """Return a field of numbers within a range; types and dims are separated by spaces."""
    return Field(tuple(dtypes.split()), tuple(dims.split()), low, high)


def counts(dtypes: str, dims: str = "") -> Field:
    """Return a field of numbers that are not negative, but for what rounding leaves of a sum that should be nothing."""
    return numbers(dtypes, dims, -ROUNDING if "f" in dtypes else 0)


def indices(dtypes: str, dims: str, below: str, low: float = 0) -> Field:
    """Return a field of indices, from `low` to one less than a size."""
    return replace(numbers(dtypes, dims, low), below=below)


def offsets(of: str, into: str) -> Field:
    """Return a field of offsets: where the entries of each begin, and their number."""
    return Field(("i8",), (f"{of}+1",), 0, into=into)


def flags(names: str) -> dict[str, Field]:
    """Return fields of single truths, by name."""
    return dict.fromkeys(names.split(), Field(("b1",), (), 0, 1))


def singles(dtypes: str, names: str, low: float = -LARGEST, high: float = LARGEST) -> dict[str, Field]:
    """Return fields of single numbers, by name."""
    return dict.fromkeys(names.split(), numbers(dtypes, "", low, high))


def each(names: str, field: Field) -> dict[str, Field]:
    """Return the same field for several names."""
    return dict.fromkeys(names.split(), field)


def optional(fields: Fields) -> dict[str, Field]:
    """Return the same fields, which may be missing."""
    return {name: replace(field, optional=True) for name, field in fields.items()}


def check_arrays(arrays: Arrays, part: Part, known: Known, where: str) -> None:
    """Refuse arrays that do not hold what they must.

    Parameters
    ----------
    arrays : Arrays
        The arrays.
    part : Part
        What they must hold.
    known : Known
        What is known of them; sizes that they bind are added.
    where : str
        Folder of the arrays, for the error.

    Raises
    ------
    DamagedError
        An array is missing, unknown, or does not hold what it must.
    """
    for name in arrays:
        if name not in part.fields:
            raise DamagedError(f"{where}/{name}", "expected no array of this name; it is of another model")
    for name, declared in part.fields.items():
        if name in arrays:
            fault = _fault(arrays[name], declared, known.sizes)
            if fault:
                raise DamagedError(f"{where}/{name}", fault)
        elif not declared.optional:
            raise DamagedError(f"{where}/{name}", "the array is missing")
    for rule in part.rules:
        fault = rule(arrays, known)
        if fault:
            raise DamagedError(where, fault)


def _fault(values: npt.NDArray[Any], declared: Field, sizes: Sizes) -> str | None:
    """Return what is wrong with an array, and bind the sizes that it has first."""
    dtypes, dims = [np.dtype(one) for one in declared.dtypes], declared.dims
    if values.dtype not in dtypes:
        return f"expected numbers of type {' or '.join(one.name for one in dtypes)}, found {values.dtype}"
    if values.ndim != len(dims) or not all(_agrees(*one, sizes) for one in zip(values.shape, dims, strict=True)):
        return f"expected the shape ({', '.join(_shown(one, sizes) for one in dims)}), found {values.shape}"
    if declared.into:
        return _offsets_fault(values, declared.into, sizes)
    # Of unsigned numbers, which the largest arrays hold, none is below 0: one pass is enough.
    low, high = (0, int(values.max())) if values.dtype.kind == "u" and values.size else bounds(values)
    most = min(declared.high, _size(declared.below, sizes) - 1) if declared.below else declared.high
    if low is None or (low >= declared.low and high <= most):
        return None
    if math.isnan(low) or math.isinf(low) or math.isinf(high):
        return "expected finite numbers"
    return f"expected numbers from {declared.low:g} to {most:g}, found {low if low < declared.low else high:g}"


def _agrees(size: int, dim: str, sizes: Sizes) -> bool:
    """Say whether a size is the one that its name stands for; a name that stands for none yet is bound."""
    if dim.startswith("<"):
        return size <= sizes[dim[1:]]
    name, _, more = dim.partition("+")
    if name.isdigit():
        return size == int(name)
    own = size - int(more or 0)
    return own >= 0 and sizes.setdefault(name, own) == own


def _size(dim: str, sizes: Sizes) -> int:
    """Return the size that a name and what is added to it stand for."""
    name, _, more = dim.partition("+")
    return sizes[name] + int(more or 0)


def _shown(dim: str, sizes: Sizes) -> str:
    if dim.startswith("<"):
        return f"at most {sizes[dim[1:]]}"
    name = dim.partition("+")[0]
    return str(_size(dim, sizes)) if name in sizes else dim


def bounds(values: npt.NDArray[Any]) -> tuple[float, float] | tuple[None, float]:
    """Return the least and the largest number, NaN if any is; None and 0 where there are no numbers."""
    if not values.size:
        return None, 0.0
    flat = values.reshape(-1)
    pieces = [flat[first : first + PIECE] for first in range(0, flat.size, PIECE)]
    lows, highs = np.array([(one.min(), one.max()) for one in pieces]).T
    low, high = lows.min(), highs.max()
    return (low.item(), high.item()) if low.dtype.kind in "iub" else (float(low), float(high))


def _offsets_fault(values: npt.NDArray[Any], into: str, sizes: Sizes) -> str | None:
    if values[0] != 0:
        return f"expected offsets from 0, found {values[0]}"
    last = int(values[-1])
    if not rises(values):
        return "expected offsets that never fall"
    if sizes.setdefault(into, last) != last:
        return f"expected offsets up to {sizes[into]}, found {last}"
    return None


def rises(values: npt.NDArray[Any]) -> bool:
    """Say whether numbers never fall; looked at in pieces, so that little memory is taken."""
    return all(
        bool((values[first + 1 : first + PIECE + 1] >= values[first : first + PIECE][: values.size - first - 1]).all())
        for first in range(0, values.size - 1, PIECE)
    )


def ascending(lists: str, entries: str) -> Rule:
    """Return the rule that entries ascend strictly within each list."""

    def rule(arrays: Arrays, known: Known) -> str | None:  # noqa: ARG001
        values, begins = arrays[entries], np.asarray(arrays[lists])
        later = np.asarray(values[1:]) > np.asarray(values[:-1])
        inner = begins[(begins > 0) & (begins < len(values))]
        later[inner - 1] = True
        return None if later.all() else f"expected '{entries}' that ascend within each list of '{lists}'"

    return rule


def at_most(lists: str, size: str) -> Rule:
    """Return the rule that no list has more entries than a size."""

    def rule(arrays: Arrays, known: Known) -> str | None:
        longest = int(np.diff(arrays[lists]).max(initial=0))
        most = known.sizes[size]
        return None if longest <= most else f"expected lists of at most {most} in '{lists}', found one of {longest}"

    return rule


def together(*names: str) -> Rule:
    """Return the rule that of some arrays that may be missing all are there, or none."""

    def rule(arrays: Arrays, known: Known) -> str | None:  # noqa: ARG001
        missing = [name for name in names if name not in arrays]
        return f"the array '{missing[0]}' is missing" if 0 < len(missing) < len(names) else None

    return rule


@dataclass(frozen=True)
class FamilyArrays:
    """What the arrays of a family's states must hold.

    Attributes
    ----------
    global_state : Part
        What every shard needs. It binds the sizes that the other parts have, such as ``topic``.
    rows : callable
        From the global state to what a block of the vocabulary holds in a finished model.
    blocks : callable
        The same of a checkpoint.
    local : callable
        The same of a shard's local state.
    tokens : callable, optional
        Of a family whose sweeps take tokens from whole counts: from a local state and its shard to the column
        that each token counts for, of which rows must have as many tokens as the shard.
    totals : tuple of str, optional
        Names of the global and of the local array that say the same of other columns: of the tree's nodes and of the
        documents that pass them.
    """

    global_state: Part
    rows: Callable[[Arrays], Part]
    blocks: Callable[[Arrays], Part]
    local: Callable[[Arrays], Part]
    tokens: Callable[[Arrays, Shard], npt.NDArray[np.integer]] | None = None
    totals: tuple[str, str] | None = None
