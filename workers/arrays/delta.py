"""Deltas: the changes and sums of a sweep, as arrays with named dimensions that add without knowledge of the family."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.state import Array, Arrays, State

S = TypeVar("S", bound=State)
Kind = Literal["change", "fresh"]


# Tables are sent to other processes without their zeros, because few of many topics change in a sweep.
MIN_PACKED_BYTES = 1 << 20  # Least size of such a table
# Number of its columns; 16 bits name one
MIN_PACKED_COLUMNS = 129
MAX_PACKED_COLUMNS = 1 << 16
MAX_PACKED_SHARE = 0.75  # Most bytes of the packed table, as a share of the table's
PACKED_ROWS_AT_ONCE = 4096  # Rows that are packed at a time, as indices take more memory than the numbers

# Bytes of the rows that are added at a time: they stay in a cache. (With a quarter of it, tables of 120 topics took
# about 1.3 times as long on Zen 3.)
ADDED_BYTES = 1 << 20


def bytes_in_memory(arrays: Arrays) -> int:
    """Return the bytes that arrays take in memory; spilled ones take none."""
    return sum(values.nbytes for values in arrays.values()) if isinstance(arrays, dict) else 0


@dataclass(frozen=True, slots=True)
class Part:
    """One array of a delta."""

    values: Array  # The numbers; the last axes may have no name
    dims: tuple[str, ...] = ()  # Names of the leading axes, such as ``("word", "topic")``; empty for a number
    # A change is added to the state, such as a change of expected counts. A fresh array is a total over the shards just
    # swept, such as a sum for the next update.
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
        """Return the delta of two sweeps over the same shard: changes add up, later fresh arrays replace earlier."""
        names = {name for name, part in self.parts.items() if part.kind == "change" or name not in later.parts}
        return total([self._only(names), later])

    def _only(self, names: set[str]) -> Delta:
        parts = {name: part for name, part in self.parts.items() if name in names}
        dims = {dim for part in parts.values() for dim in part.dims}
        return Delta(parts, {dim: ids for dim, ids in self.ids.items() if dim in dims}, self.seconds)


def total(deltas: Iterable[Delta]) -> Delta:
    """Return the sum of deltas, added from left to right and aligned by ids."""
    summands = [delta for delta in deltas if delta.parts or delta.seconds]
    if len(summands) < 2:
        return summands[0] if summands else Delta()
    ids: dict[str, Array] = {}
    for delta in summands:
        for dim, part_ids in delta.ids.items():
            before = ids.setdefault(dim, part_ids)
            if before is not part_ids and not np.array_equal(before, part_ids):
                both = np.concatenate([before, part_ids])
                # A stable sort merges two sorted halves, in a tenth of the time of `numpy.union1d`.
                both.sort(kind="stable")
                ids[dim] = both[np.concatenate([[True], both[1:] != both[:-1]])]
    seconds: dict[str, float] = {}
    for delta in summands:
        for activity, spent in delta.seconds.items():
            seconds[activity] = seconds.get(activity, 0.0) + spent
    names = dict.fromkeys(name for delta in summands for name in delta.parts)
    parts = {name: _sum(name, [delta for delta in summands if name in delta.parts], ids) for name in names}
    return Delta(parts, ids, seconds)


def _sum(name: str, summands: Sequence[Delta], ids: Arrays) -> Part:
    """Return the sum of the arrays of one name over all ids, added from left to right; no summand is changed."""
    first, shape = summands[0].parts[name], _aligned_shape(name, summands[0], ids)
    for delta in summands[1:]:
        part, part_shape = delta.parts[name], _aligned_shape(name, delta, ids)
        if (first.dims, first.kind, shape) != (part.dims, part.kind, part_shape):
            raise ValueError(
                f"{name!r} cannot be added: {first.kind} {first.dims} of shape {shape}, "
                f"{part.kind} {part.dims} of shape {part_shape}"
            )
    arrays = [delta.parts[name].values for delta in summands]
    if len(arrays) == 1 and arrays[0].shape == shape:
        return first
    if not shape:
        number = np.array(arrays[0])
        for array in arrays[1:]:
            np.add(number, array, out=number, casting="same_kind")
        return Part(number, first.dims, first.kind)
    values = buffers.empty(shape, arrays[0].dtype)
    if all(array.shape[1:] == shape[1:] for array in arrays):
        _fill_with_sum(values, arrays, [_rows(first.dims, delta.ids, ids) for delta in summands])
    else:
        values.fill(0)
        for delta, array in zip(summands, arrays, strict=True):
            places = [
                np.searchsorted(ids[dim], delta.ids[dim]) if dim in ids else np.arange(size)
                for dim, size in zip(first.dims, shape, strict=False)
            ]
            values[np.ix_(*places)] += array
    return Part(values, first.dims, first.kind)


def _aligned_shape(name: str, delta: Delta, ids: Arrays) -> tuple[int, ...]:
    """Return the shape that an array of a delta has over all ids."""
    part = delta.parts[name]
    shape = list(part.values.shape)
    for axis, dim in enumerate(part.dims):
        if dim in ids and dim not in delta.ids:
            raise ValueError(
                f"{name!r} has all of the dim {dim!r}, another delta has it by ids; name the ids in both or in none"
            )
        if dim in ids and shape[axis] != delta.ids[dim].size:
            raise ValueError(f"{name!r} has {shape[axis]} of the dim {dim!r}, which has {delta.ids[dim].size} ids")
        shape[axis] = ids[dim].size if dim in ids else shape[axis]
    return tuple(shape)


def _rows(dims: tuple[str, ...], array_ids: Arrays, ids: Arrays) -> npt.NDArray[np.int64] | None:
    """Return the row of an array for each id of its first dim, -1 for none; None where it has all of them."""
    if not dims or dims[0] not in ids or array_ids[dims[0]].size == ids[dims[0]].size:
        return None
    present, every = array_ids[dims[0]], ids[dims[0]]
    rows = np.full(every.size, -1, dtype=np.int64)
    rows[np.searchsorted(every, present)] = np.arange(present.size)
    return rows


def _fill_with_sum(values: Array, arrays: Sequence[Array], rows: Sequence[npt.NDArray[np.int64] | None]) -> None:
    """Fill `values` with the sum of arrays, some rows at a time: these stay in the cache until all are added."""
    size = max(ADDED_BYTES * len(values) // max(values.nbytes, 1), 1)
    room = {array.dtype: np.empty((min(size, len(values)), *array.shape[1:]), array.dtype) for array in arrays}
    # NumPy would copy an array of another layout as a whole to take some of its rows.
    arrays = [array if row is None else np.ascontiguousarray(array) for array, row in zip(arrays, rows, strict=True)]
    for low in range(0, len(values), size):
        chunk = total = values[low : low + size]
        for number, (array, row) in enumerate(zip(arrays, rows, strict=True)):
            rows_of_array = array[low : low + size]
            if row is not None:
                # Adding rows by number, and zeros for -1, is faster than adding to rows by number.
                places = row[low : low + size]
                rows_of_array = (room[array.dtype] if number else chunk)[: places.size]
                if len(array):
                    array.take(places, axis=0, out=rows_of_array, mode="clip")
                    rows_of_array[places < 0] = 0
                else:
                    rows_of_array.fill(0)
            total = np.add(total, rows_of_array, out=chunk, casting="same_kind") if number else rows_of_array


def _packed(values: Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint16], Array] | None:
    """Return each row's number of non-zero cells, their columns and values; None if that saves little."""
    if values.ndim != 2 or not values.size or values.nbytes < MIN_PACKED_BYTES:
        return None
    columns = values.shape[1]
    packed_bytes = np.count_nonzero(values) * (values.itemsize + 2)
    if not MIN_PACKED_COLUMNS <= columns <= MAX_PACKED_COLUMNS or packed_bytes > MAX_PACKED_SHARE * values.nbytes:
        return None
    row_counts, cell_columns, numbers = [], [], []
    for first in range(0, len(values), PACKED_ROWS_AT_ONCE):
        rows = values[first : first + PACKED_ROWS_AT_ONCE]
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
    for first in range(0, shape[0], PACKED_ROWS_AT_ONCE):
        last = min(first + PACKED_ROWS_AT_ONCE, shape[0])
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


BAND = "band"  # Name of the dim of sums of bands; ids are the first words of the bands
MOST_BANDS = 64  # Bands of a block: enough to spread over hosts
MIN_BAND_WORDS = 64  # Words of a band, at least, unless the block has fewer


def band_bounds(words: int) -> npt.NDArray[np.int64]:
    """Return the first word of each band of a block and, last, the block's number of words."""
    bands = min(MOST_BANDS, max(words // MIN_BAND_WORDS, 1))
    return np.arange(bands + 1, dtype=np.int64) * words // bands
