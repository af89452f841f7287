"""Named arrays on disk, as Zarr v3 groups: no pickles, one writer a group."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import zarr
import zarr.errors
from zarr.storage import FsspecStore

from collapsar.storage.errors import AbsentError, DamagedError
from collapsar.storage.folder import Folder

CHUNK_BYTES = 16 << 20


class Rows(Protocol):
    """An array, or what stands for one that lies elsewhere and gives its rows piece by piece."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type."""

    def __getitem__(self, rows: Any, /) -> Any:
        """Return rows, given a slice; the whole, given an ellipsis."""


def _store(folder: Folder) -> Any:
    return folder.path if folder.local else FsspecStore.from_url(folder.url)


def write_arrays(folder: Folder, arrays: Mapping[str, Rows], *, compress: bool = True) -> None:
    """Write arrays as one Zarr group, replacing what was there; a piece of `CHUNK_BYTES` at a time.

    Parameters
    ----------
    folder : Folder
        The group's folder.
    arrays : mapping of str to numpy.ndarray or Rows
        What to write; chunks are cut along the first axis.
    compress : bool, optional
        Whether chunks are compressed: smaller, and several times slower to write.
    """
    group = zarr.open_group(_store(folder), mode="w", zarr_format=3)
    for name, values in arrays.items():
        options: dict[str, Any] = {} if compress else {"compressors": None}
        chunks = _chunks(values.shape, values.dtype)
        array = group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=chunks, **options)
        for piece in _pieces(values.shape, chunks):
            array[piece] = np.asarray(values[piece], order="C")


def _chunks(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Cut along the first axis, into chunks of bounded size."""
    if not shape:
        return ()
    row = max(int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize, 1)
    return (max(min(CHUNK_BYTES // row, shape[0]), 1), *(max(size, 1) for size in shape[1:]))


def _pieces(shape: tuple[int, ...], chunks: tuple[int, ...]) -> list[Any]:
    """Return slices of the first axis, a chunk each; an ellipsis for a single number."""
    return [slice(first, first + chunks[0]) for first in range(0, shape[0], chunks[0])] if shape else [...]


def read_arrays(folder: Folder) -> dict[str, npt.NDArray[Any]]:
    """Read all arrays of a Zarr group.

    Parameters
    ----------
    folder : Folder
        The group's folder.

    Returns
    -------
    dict of str to numpy.ndarray
        Its arrays by name.

    Raises
    ------
    AbsentError
        There is no such folder.
    DamagedError
        It is not a Zarr group, or an array cannot be read.
    """
    return {name: pieces[...] for name, pieces in open_arrays(folder).items()}


def open_arrays(folder: Folder) -> dict[str, StoredRows]:
    """Open all arrays of a Zarr group, to be read piece by piece.

    Parameters
    ----------
    folder : Folder
        The group's folder.

    Returns
    -------
    dict of str to StoredRows
        Its arrays by name.

    Raises
    ------
    AbsentError
        There is no such folder.
    DamagedError
        It is not a Zarr group.
    """
    if not folder.exists():
        raise AbsentError(f"{folder.url}: no such folder of arrays")
    with _damage(folder):
        group = zarr.open_group(_store(folder), mode="r", zarr_format=3)
        return {name: StoredRows(folder, array) for name, array in group.arrays()}


class StoredRows:
    """An array in a Zarr group, whose rows are read when they are asked for.

    Parameters
    ----------
    folder : Folder
        The group's folder.
    array : zarr.Array
        The array.
    """

    def __init__(self, folder: Folder, array: Any) -> None:
        self._folder, self._array = folder, array
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype

    def __getitem__(self, rows: Any, /) -> npt.NDArray[Any]:
        with _damage(self._folder):
            return np.asarray(self._array[rows])

    def pieces(self) -> Iterator[npt.NDArray[Any]]:
        """Read it a chunk at a time; an array of no rows is one piece."""
        yield from (self[piece] for piece in _pieces(self.shape, self._array.chunks) or [...])


@contextlib.contextmanager
def _damage(folder: Folder) -> Iterator[None]:
    """Tell what Zarr raises for a folder that is damaged as `DamagedError`."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise DamagedError(folder.url, f"expected a Zarr group of arrays ({error})") from None
