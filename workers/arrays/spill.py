"""Arrays that lie in scratch files instead of memory: written once, never changed, removed when nobody holds them.

Each array is a file of plain numbers, so that parts of it are read, and appended, without the rest. Dask's own spilling
pickles whole objects; this does not.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.io.local import append
from collapsium.storage.io.retry import patiently

Array = npt.NDArray[Any]


class Shelf(Mapping[str, Array]):
    """Named arrays on disk, read whenever they are asked for.

    A shelf that is pickled, to go to another process, becomes a plain dict of its arrays: scratch files are of one
    machine.

    Parameters
    ----------
    folder : Path
        Where the files lie; removed with the shelf.
    shapes : dict of str to (str, tuple of int)
        Type and shape of each array.
    """

    def __init__(self, folder: Path, shapes: dict[str, tuple[str, tuple[int, ...]]]) -> None:
        self._folder, self._shapes = folder, shapes
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def __getitem__(self, name: str) -> Array:
        return self.part(name, 0, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (dict(self),))

    def part(self, name: str, first: int, last: int | None) -> Array:
        """Read the rows `first` to `last` - 1 of an array, by default to its end."""
        kind, shape = self._shapes[name]
        if not shape:
            return np.fromfile(self._folder / name, dtype=kind).reshape(())
        last = shape[0] if last is None else last
        width = int(np.prod(shape[1:], dtype=np.int64))
        count = (last - first) * width
        offset = first * width * np.dtype(kind).itemsize
        return np.fromfile(self._folder / name, dtype=kind, count=count, offset=offset).reshape(
            last - first, *shape[1:]
        )

    def lying(self) -> dict[str, Lying]:
        """Return the arrays without reading them."""
        return {name: Lying(self, name, *self._shapes[name]) for name in self}

    def writer(self) -> ShelfWriter:
        """Begin another shelf beside this one."""
        return ShelfWriter(str(self._folder.parent))

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return sum(
            int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize for kind, shape in self._shapes.values()
        )


class Lying:
    """An array on a shelf, whose rows are read when they are asked for.

    Parameters
    ----------
    shelf : Shelf
        The shelf.
    name, kind, shape : str, str and tuple of int
        The array's name, type and shape.
    """

    def __init__(self, shelf: Shelf, name: str, kind: str, shape: tuple[int, ...]) -> None:
        self._shelf, self._name = shelf, name
        self.dtype, self.shape = np.dtype(kind), shape

    def __getitem__(self, rows: Any, /) -> Array:
        """Read rows, given a slice; the whole, given an ellipsis."""
        if rows is ...:
            return self._shelf[self._name]
        first, last, step = rows.indices(self.shape[0])
        return self._shelf.part(self._name, first, max(first, last))[::step]


class ShelfWriter:
    """Writes a shelf, array by array, each in as many portions as there are.

    Parameters
    ----------
    scratch : str
        Folder for scratch files; the shelf gets one of its own in it.
    """

    def __init__(self, scratch: str) -> None:
        self._folder = patiently(scratch, lambda: _made(scratch))
        self._shapes: dict[str, tuple[str, tuple[int, ...]]] = {}

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Append the rows of arrays to those written so far."""
        for name, values in arrays.items():
            data = np.ascontiguousarray(values).view(np.uint8).data if values.ndim and values.size else values.tobytes()
            patiently(str(self._folder / name), partial(append, self._folder / name, data))
            _, before = self._shapes.get(name, ("", (0,)))
            shape = (before[0] + values.shape[0], *values.shape[1:]) if values.ndim else ()
            self._shapes[name] = (values.dtype.str, shape)

    def finish(self) -> Shelf:
        """Return the shelf."""
        return Shelf(self._folder, self._shapes)


def _made(scratch: str) -> Path:
    Path(scratch).mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="shelf-", dir=scratch))


def part(arrays: Mapping[str, Array], name: str, first: int, last: int) -> Array:
    """Take the rows `first` to `last` - 1 of an array, from memory or from a shelf."""
    return arrays.part(name, first, last) if isinstance(arrays, Shelf) else arrays[name][first:last]


def shelve(arrays: Mapping[str, Array], scratch: str) -> Shelf:
    """Put arrays on a shelf; one that lies there already stays."""
    if isinstance(arrays, Shelf):
        return arrays
    writer = ShelfWriter(scratch)
    writer.add(arrays)
    return writer.finish()
