"""Spill named arrays to scratch files: written once, never changed, removed with the last reference to them.

Each array is a file of plain numbers, so that its rows are read, and appended, without the rest. Dask's spilling
pickles complete objects; this does not.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import EllipsisType

import numpy as np

from collapsium.storage.io.atomic import append
from collapsium.storage.io.file import with_retries
from collapsium.workers.arrays.state import Array


class SpillFiles(Mapping[str, Array]):
    """Named arrays on disk, each read when it is looked up.

    Pickled, to go to another process, it becomes a plain dict of its arrays: scratch files belong to one machine.
    """

    def __init__(self, folder: Path, shapes: dict[str, tuple[str, tuple[int, ...]]]) -> None:
        self._folder, self._shapes = folder, shapes
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def __getitem__(self, name: str) -> Array:
        return self.read_rows(name, 0, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def __reduce__(self) -> tuple[type, tuple[dict[str, Array]]]:
        return (dict, (dict(self),))

    def read_rows(self, name: str, first: int, last: int | None) -> Array:
        """Read the rows `first` to `last` - 1 of an array, by default to its end."""
        dtype, shape = self._shapes[name]
        if not shape:
            return np.fromfile(self._folder / name, dtype=dtype).reshape(())
        last = shape[0] if last is None else last
        width = int(np.prod(shape[1:], dtype=np.int64))
        count = (last - first) * width
        offset = first * width * np.dtype(dtype).itemsize
        values = np.fromfile(self._folder / name, dtype=dtype, count=count, offset=offset)
        return values.reshape(last - first, *shape[1:])

    def lazy_arrays(self) -> dict[str, SpilledArray]:
        """Return the arrays without reading them."""
        return {name: SpilledArray(self, name, *self._shapes[name]) for name in self}

    def writer(self) -> SpillWriter:
        """Return a writer of further spill files in the same scratch folder."""
        return SpillWriter(str(self._folder.parent))

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return sum(
            int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize for dtype, shape in self._shapes.values()
        )


class SpilledArray:
    """An array in spill files, whose rows are read when they are indexed."""

    def __init__(self, files: SpillFiles, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        self._files, self._name = files, name
        self.dtype, self.shape = np.dtype(dtype), shape

    def __getitem__(self, rows: slice | EllipsisType, /) -> Array:
        """Read the rows of a slice, or all of them for an ellipsis."""
        if rows is ...:
            return self._files[self._name]
        first, last, step = rows.indices(self.shape[0])
        return self._files.read_rows(self._name, first, max(first, last))[::step]


class SpillWriter:
    """Writes named arrays to spill files, chunk of rows by chunk of rows."""

    def __init__(self, scratch: str) -> None:
        self._folder = with_retries(scratch, lambda: _new_folder(scratch))
        self._shapes: dict[str, tuple[str, tuple[int, ...]]] = {}

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Append the rows of arrays to those written so far."""
        for name, values in arrays.items():
            data = np.ascontiguousarray(values).view(np.uint8).data if values.ndim and values.size else values.tobytes()
            with_retries(str(self._folder / name), partial(append, self._folder / name, data))
            _, before = self._shapes.get(name, ("", (0,)))
            shape = (before[0] + values.shape[0], *values.shape[1:]) if values.ndim else ()
            self._shapes[name] = (values.dtype.str, shape)

    def finish(self) -> SpillFiles:
        """Return the files that were written."""
        return SpillFiles(self._folder, self._shapes)


def _new_folder(scratch: str) -> Path:
    Path(scratch).mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="spill-", dir=scratch))


def read_rows(arrays: Mapping[str, Array], name: str, first: int, last: int) -> Array:
    """Return the rows `first` to `last` - 1 of an array, from memory or from spill files."""
    return arrays.read_rows(name, first, last) if isinstance(arrays, SpillFiles) else arrays[name][first:last]


def spill(arrays: Mapping[str, Array], scratch: str) -> SpillFiles:
    """Write arrays to spill files; those that are there already stay."""
    if isinstance(arrays, SpillFiles):
        return arrays
    writer = SpillWriter(scratch)
    writer.add(arrays)
    return writer.finish()
