"""Deltas: what a sweep changed, as named arrays with named dims, that add without anyone knowing what they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.state import State

Arrays = Mapping[str, npt.NDArray[Any]]
S = TypeVar("S", bound=State)
Kind = Literal["change", "fresh"]

PACKED, MANY = 1 << 20, 129  # bytes and columns of a table that may be sent without its zeros
ROWS = 4096  # of it that are looked at together


def held(arrays: Arrays) -> int:
    """Return the bytes that arrays hold in memory; those on a shelf hold none."""
    return sum(one.nbytes for one in arrays.values()) if isinstance(arrays, dict) else 0


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
        A change is added to the state for ever (expected counts); what is fresh is a total over the shards just
        swept (sums for the next update).
    """

    values: npt.NDArray[Any]
    dims: tuple[str, ...] = ()
    kind: Kind = "fresh"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle, to go to another process, only what is not zero where that is less: with many topics few change."""
        packed = _packed(self.values)
        if packed is None:
            return Part, (self.values, self.dims, self.kind)
        return _unpacked, (*packed, self.values.shape, self.dims, self.kind)


@dataclass(frozen=True, slots=True)
class Delta:
    """A bag of named arrays with a zero, ``Delta()``, and an addition that aligns by id.

    Attributes
    ----------
    parts : mapping of str to Part
        The arrays. One that a delta does not have counts as zero.
    ids : mapping of str to numpy.ndarray of int
        Sorted permanent ids along a dim, such as the words that a shard holds. A dim that is not named here is
        whole: its ids are 0, 1, 2, ...
    seconds : mapping of str to float
        Processor time that went into it, by what it was spent on; adds like the rest.
    """

    parts: Mapping[str, Part] = field(default_factory=dict)
    ids: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: Delta) -> Delta:
        return total([self, other])

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays, by which Dask decides where to bring what."""
        return sum(part.values.nbytes for part in self.parts.values()) + held(self.ids)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.parts[name].values

    def __contains__(self, name: str) -> bool:
        return name in self.parts

    def number(self, name: str) -> float:
        """Return an array without dims as a float; zero where there is none."""
        return float(self.parts[name].values) if name in self.parts else 0.0

    def read(self, kind: type[S]) -> S | None:
        """Return the arrays as a state of some kind; None where one is missing that it cannot be without."""
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
        first, last = (int(place) for place in np.searchsorted(ids, [low, high]))
        parts = {}
        for name, part in chosen.parts.items():
            cut = (slice(None),) * part.dims.index(dim) + (slice(first, last),)
            parts[name] = Part(part.values[cut], part.dims, part.kind)
        return Delta(parts, {**chosen.ids, dim: ids[first:last]})

    def then(self, later: Delta) -> Delta:
        """Return the delta of two sweeps over the same shard: changes add, of what is fresh the later counts."""
        return total([self._only({name for name, part in self.parts.items() if part.kind == "change"}), later])

    def _only(self, names: set[str]) -> Delta:
        parts = {name: part for name, part in self.parts.items() if name in names}
        dims = {dim for part in parts.values() for dim in part.dims}
        return Delta(parts, {dim: ids for dim, ids in self.ids.items() if dim in dims}, self.seconds)


def total(deltas: Iterable[Delta]) -> Delta:
    """Add deltas, always from left to right, aligning what they hold by its ids.

    Parameters
    ----------
    deltas : iterable of Delta
        Any number; none give the zero.

    Returns
    -------
    Delta
        Their sum, over the union of their ids.

    Raises
    ------
    ValueError
        Arrays of one name have other dims, kinds or shapes, or one names the ids of a dim that another has whole.
    """
    given = [delta for delta in deltas if delta.parts or delta.seconds]
    if len(given) < 2:
        return given[0] if given else Delta()
    ids: dict[str, npt.NDArray[Any]] = {}
    for delta in given:
        for dim, own in delta.ids.items():
            ids[dim] = own if dim not in ids else _union(ids[dim], own)
    parts: dict[str, Part] = {}
    seconds: dict[str, float] = {}
    owned: set[str] = set()  # sums made here; what one delta alone has stays as it is
    for delta in given:
        for name, part in delta.parts.items():
            parts[name] = _added(name, parts.get(name), part, delta.ids, ids, owned)
        for key, spent in delta.seconds.items():
            seconds[key] = seconds.get(key, 0.0) + spent
    return Delta(parts, ids, seconds)


def _union(mine: npt.NDArray[Any], its: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return mine if mine is its or np.array_equal(mine, its) else np.union1d(mine, its)


def _added(
    name: str,
    so_far: Part | None,
    part: Part,
    own: Mapping[str, npt.NDArray[Any]],
    ids: Mapping[str, npt.NDArray[Any]],
    owned: set[str],
) -> Part:
    """Add an array to a sum, at the places of its ids; a sum that is owned is changed in place."""
    places: list[Any] = []
    shape = list(part.values.shape)
    for axis, dim in enumerate(part.dims):
        if dim in ids and dim not in own:
            raise ValueError(
                f"{name!r} has the dim {dim!r} whole, another delta by ids; name the ids in both or in none"
            )
        all_of_it = dim not in ids or own[dim].size == ids[dim].size
        places.append(slice(None) if all_of_it else np.searchsorted(ids[dim], own[dim]))
        shape[axis] = shape[axis] if all_of_it else ids[dim].size
    some = sum(isinstance(place, np.ndarray) for place in places)
    if some > 1:  # each row's place with each column's
        sizes = zip(places, part.values.shape, strict=False)
        places = list(np.ix_(*(np.arange(n) if isinstance(place, slice) else place for place, n in sizes)))
    if so_far is None:
        if not some:
            return part
        so_far = Part(buffers.zeros(tuple(shape), part.values.dtype), part.dims, part.kind)
        owned.add(name)
    elif (so_far.dims, so_far.kind, list(so_far.values.shape)) != (part.dims, part.kind, shape):
        raise ValueError(
            f"{name!r} cannot be added: {so_far.kind} {so_far.dims} of shape {so_far.values.shape}, "
            f"{part.kind} {part.dims} of shape {tuple(shape)}"
        )
    if name not in owned:
        owned.add(name)
        values = buffers.empty(tuple(shape), so_far.values.dtype)
        if not some:
            np.add(so_far.values, part.values, out=values, casting="same_kind")
            return Part(values, part.dims, part.kind)
        values[...] = so_far.values
        so_far = Part(values, part.dims, part.kind)
    so_far.values[tuple(places)] += part.values
    return so_far


def _packed(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]] | None:
    """Return how many cells of each row are not zero, their columns and numbers; None where that saves little."""
    if values.ndim != 2 or not values.size or values.nbytes < PACKED or not MANY <= values.shape[1] <= 1 << 16:
        return None
    if np.count_nonzero(values) * (values.itemsize + 2) > 0.75 * values.nbytes:
        return None
    each, columns, numbers = [], [], []
    for first in range(0, len(values), ROWS):  # in pieces, as places take more memory than the numbers there
        piece = values[first : first + ROWS]
        changed = piece != 0
        places = np.flatnonzero(changed)
        each.append(np.count_nonzero(changed, axis=1).astype(np.int32))
        columns.append((places % values.shape[1]).astype(np.uint16))
        numbers.append(piece.ravel()[places])
    return np.concatenate(each), np.concatenate(columns), np.concatenate(numbers)


def _unpacked(
    each: npt.NDArray[Any],
    columns: npt.NDArray[Any],
    numbers: npt.NDArray[Any],
    shape: tuple[int, int],
    dims: tuple[str, ...],
    kind: Kind,
) -> Part:
    values = buffers.zeros(shape, numbers.dtype)
    ends = np.concatenate([[0], np.cumsum(each, dtype=np.int64)])
    for first in range(0, shape[0], ROWS):
        last = min(first + ROWS, shape[0])
        rows = np.repeat(np.arange(first, last), each[first:last])
        run = slice(ends[first], ends[last])
        values[rows, columns[run]] = numbers[run]
    return Part(values, dims, kind)


def fresh(values: Any, *dims: str) -> Part:
    """Make a part that is a total over the shards just swept."""
    return Part(np.asarray(values), dims, "fresh")


def change(values: Any, *dims: str) -> Part:
    """Make a part that is added to the state for ever."""
    return Part(np.asarray(values), dims, "change")
