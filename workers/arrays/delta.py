"""Deltas: the changes and sums of a sweep, as arrays with named dimensions that add without knowledge of the family."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.state import Array, Arrays, State

S = TypeVar("S", bound=State)
Kind = Literal["change", "fresh"]


@dataclass(frozen=True)
class PackingRule:
    """Tables that go to another process without their zeros: of many topics, few change in a sweep.

    Attributes
    ----------
    min_bytes : int
        Least size of such a table.
    min_columns, max_columns : int
        Number of its columns; 16 bits name one.
    max_share : float
        Most bytes of the packed table, as a share of the table's.
    chunk_rows : int
        Rows that are packed at a time, as indices take more memory than the numbers.
    """

    min_bytes: int = 1 << 20
    min_columns: int = 129
    max_columns: int = 1 << 16
    max_share: float = 0.75
    chunk_rows: int = 4096


PACKING = PackingRule()

ADDED_BYTES = 1 << 18
"""Bytes of the rows that are added at a time: they stay in a core's cache, and their copy needs no fresh memory."""


def bytes_in_memory(arrays: Arrays) -> int:
    """Return the bytes that arrays take in memory; spilled ones take none."""
    return sum(values.nbytes for values in arrays.values()) if isinstance(arrays, dict) else 0


@dataclass(frozen=True, slots=True)
class Part:
    """One array of a delta.

    Attributes
    ----------
    values : numpy.ndarray
        The numbers; the last axes may have no name.
    dims : tuple of str
        Names of the leading axes, such as ``("word", "topic")``; empty for a number.
    kind : {"change", "fresh"}
        A change is added to the state, such as that of expected counts. A fresh array is a total over the shards just
        swept, such as a sum for the next update.
    """

    values: Array
    dims: tuple[str, ...] = ()
    kind: Kind = "fresh"

    def __reduce__(self) -> tuple[Callable[..., Part], tuple[object, ...]]:
        """Pickle a large table without its zeros, where that takes fewer bytes."""
        packed = _packed(self.values)
        if packed is None:
            return Part, (self.values, self.dims, self.kind)
        return _unpacked, (*packed, self.values.shape, self.dims, self.kind)


@dataclass(frozen=True, slots=True)
class Delta:
    """Named arrays with a zero, ``Delta()``, and an addition that aligns by id.

    Attributes
    ----------
    parts : mapping of str to Part
        The arrays. One that is missing counts as zero.
    ids : mapping of str to numpy.ndarray of int
        Sorted permanent ids along a dim, such as the words of a shard. A dim without ids is complete: its ids are
        0, 1, 2, ...
    seconds : mapping of str to float
        Processor time that went into the delta, by activity; adds like the rest.
    """

    parts: Mapping[str, Part] = field(default_factory=dict)
    ids: Arrays = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: Delta) -> Delta:
        return total([self, other])

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays, by which Dask decides what to move where."""
        return sum(part.values.nbytes for part in self.parts.values()) + bytes_in_memory(self.ids)

    def __getitem__(self, name: str) -> Array:
        return self.parts[name].values

    def __contains__(self, name: str) -> bool:
        return name in self.parts

    def number(self, name: str) -> float:
        """Return an array without dims as a float; zero where there is none."""
        return float(self.parts[name].values) if name in self.parts else 0.0

    def read(self, kind: type[S]) -> S | None:
        """Return the arrays as a state of some class; None if a required field is missing."""
        arrays = {name: part.values for name, part in self.parts.items()}
        return kind.from_arrays(arrays) if kind.is_in(arrays) else None

    def with_dim(self, dim: str) -> Delta:
        """Return only the arrays that have the dim."""
        return self._only({name for name, part in self.parts.items() if dim in part.dims})

    def without_dim(self, dim: str) -> Delta:
        """Return only the arrays that do not have the dim."""
        return self._only({name for name, part in self.parts.items() if dim not in part.dims})

    def between(self, dim: str, low: int, high: int) -> Delta:
        """Return the arrays that have the dim, for the ids `low` to `high` - 1 along it."""
        chosen = self.with_dim(dim)
        ids = chosen.ids.get(dim)
        if ids is None:
            size = next((p.values.shape[p.dims.index(dim)] for p in chosen.parts.values()), 0)
            ids = np.arange(size)
        first, last = (int(index) for index in np.searchsorted(ids, [low, high]))
        parts = {}
        for name, part in chosen.parts.items():
            selection = (slice(None),) * part.dims.index(dim) + (slice(first, last),)
            parts[name] = Part(part.values[selection], part.dims, part.kind)
        return Delta(parts, {**chosen.ids, dim: ids[first:last]})

    def then(self, later: Delta) -> Delta:
        """Return the delta of two sweeps over the same shard: changes add up, fresh arrays are those of the later."""
        return total([self._only({name for name, part in self.parts.items() if part.kind == "change"}), later])

    def _only(self, names: set[str]) -> Delta:
        parts = {name: part for name, part in self.parts.items() if name in names}
        dims = {dim for part in parts.values() for dim in part.dims}
        return Delta(parts, {dim: ids for dim, ids in self.ids.items() if dim in dims}, self.seconds)


def total(deltas: Iterable[Delta]) -> Delta:
    """Return the sum of deltas, added from left to right and aligned by ids.

    Parameters
    ----------
    deltas : iterable of Delta
        Any number; without one, the sum is zero.

    Returns
    -------
    Delta
        Their sum, over the union of their ids.

    Raises
    ------
    ValueError
        Arrays of one name differ in dims, kinds or shapes, or a dim has ids in one and none in another.
    """
    summands = [delta for delta in deltas if delta.parts or delta.seconds]
    if len(summands) < 2:
        return summands[0] if summands else Delta()
    ids: dict[str, Array] = {}
    for delta in summands:
        for dim, own_ids in delta.ids.items():
            ids[dim] = own_ids if dim not in ids else _union(ids[dim], own_ids)
    parts: dict[str, Part] = {}
    seconds: dict[str, float] = {}
    # Arrays allocated here may be changed in place, those of a summand may not.
    allocated: set[str] = set()
    for delta in summands:
        for name, part in delta.parts.items():
            parts[name] = _add_part(name, parts.get(name), part, delta.ids, ids, allocated)
        for activity, spent in delta.seconds.items():
            seconds[activity] = seconds.get(activity, 0.0) + spent
    return Delta(parts, ids, seconds)


def _union(left: Array, right: Array) -> Array:
    return left if left is right or np.array_equal(left, right) else np.union1d(left, right)


def _add_part(
    name: str, total_so_far: Part | None, part: Part, own_ids: Arrays, ids: Arrays, allocated: set[str]
) -> Part:
    """Return the sum of an array and the total so far, aligned by ids; an allocated total is changed in place."""
    indices: list[slice | Array] = []
    shape = list(part.values.shape)
    for axis, dim in enumerate(part.dims):
        if dim in ids and dim not in own_ids:
            raise ValueError(
                f"{name!r} has all of the dim {dim!r}, another delta has it by ids; name the ids in both or in none"
            )
        complete = dim not in ids or own_ids[dim].size == ids[dim].size
        indices.append(slice(None) if complete else np.searchsorted(ids[dim], own_ids[dim]))
        shape[axis] = shape[axis] if complete else ids[dim].size
    aligned = sum(isinstance(index, np.ndarray) for index in indices)
    if aligned > 1:
        sizes = zip(indices, part.values.shape, strict=False)
        indices = list(np.ix_(*(np.arange(n) if isinstance(index, slice) else index for index, n in sizes)))
    if total_so_far is None:
        if not aligned:
            return part
        total_so_far = Part(buffers.zeros(tuple(shape), part.values.dtype), part.dims, part.kind)
        allocated.add(name)
    elif (total_so_far.dims, total_so_far.kind, list(total_so_far.values.shape)) != (part.dims, part.kind, shape):
        raise ValueError(
            f"{name!r} cannot be added: {total_so_far.kind} {total_so_far.dims} of shape {total_so_far.values.shape}, "
            f"{part.kind} {part.dims} of shape {tuple(shape)}"
        )
    if name not in allocated:
        allocated.add(name)
        values = buffers.empty(tuple(shape), total_so_far.values.dtype)
        if not aligned:
            np.add(total_so_far.values, part.values, out=values, casting="same_kind")
            return Part(values, part.dims, part.kind)
        values[...] = total_so_far.values
        total_so_far = Part(values, part.dims, part.kind)
    if aligned and isinstance(indices[0], np.ndarray):
        _add_rows(total_so_far.values, indices[0], indices[1:], part.values)
    else:
        total_so_far.values[tuple(indices)] += part.values
    return total_so_far


def _add_rows(values: Array, index: Array, others: list[slice | Array], more: Array) -> None:
    """Add numbers in place, some rows at a time, as NumPy makes a copy of the rows that an index names."""
    rows = max(ADDED_BYTES * len(more) // max(more.nbytes, 1), 1)
    for first in range(0, len(more), rows):
        chunk: tuple[slice | Array, ...] = (index[first : first + rows], *others)
        values[chunk] += more[first : first + rows]


def _packed(values: Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint16], Array] | None:
    """Return each row's number of cells that are not zero, their columns and numbers; None where that saves little."""
    if values.ndim != 2 or not values.size or values.nbytes < PACKING.min_bytes:
        return None
    columns = values.shape[1]
    packed_bytes = np.count_nonzero(values) * (values.itemsize + 2)
    if not PACKING.min_columns <= columns <= PACKING.max_columns or packed_bytes > PACKING.max_share * values.nbytes:
        return None
    row_counts, cell_columns, numbers = [], [], []
    for first in range(0, len(values), PACKING.chunk_rows):
        rows = values[first : first + PACKING.chunk_rows]
        changed = rows != 0
        cells = np.flatnonzero(changed)
        row_counts.append(np.count_nonzero(changed, axis=1).astype(np.int32))
        cell_columns.append((cells % columns).astype(np.uint16))
        numbers.append(rows.ravel()[cells])
    return np.concatenate(row_counts), np.concatenate(cell_columns), np.concatenate(numbers)


def _unpacked(
    row_counts: npt.NDArray[np.int32],
    cell_columns: npt.NDArray[np.uint16],
    numbers: Array,
    shape: tuple[int, int],
    dims: tuple[str, ...],
    kind: Kind,
) -> Part:
    values = buffers.zeros(shape, numbers.dtype)
    ends = np.concatenate([[0], np.cumsum(row_counts, dtype=np.int64)])
    for first in range(0, shape[0], PACKING.chunk_rows):
        last = min(first + PACKING.chunk_rows, shape[0])
        rows = np.repeat(np.arange(first, last), row_counts[first:last])
        cells = slice(ends[first], ends[last])
        values[rows, cell_columns[cells]] = numbers[cells]
    return Part(values, dims, kind)


def fresh(values: npt.ArrayLike, *dims: str) -> Part:
    """Return a part that is a total over the shards just swept."""
    return Part(np.asarray(values), dims, "fresh")


def change(values: npt.ArrayLike, *dims: str) -> Part:
    """Return a part that is added to the state."""
    return Part(np.asarray(values), dims, "change")
