"""Named arrays on disk, as Zarr v3 groups: no pickles, one writer a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
import zarr.errors
from zarr.storage import FsspecStore

from collapsar.storage.errors import AbsentError, DamagedError
from collapsar.storage.folder import Folder

CHUNK_BYTES = 16 << 20


def _store(folder: Folder) -> Any:
    return folder.path if folder.local else FsspecStore.from_url(folder.url)


def write_arrays(folder: Folder, arrays: Mapping[str, npt.NDArray[Any]], *, compress: bool = True) -> None:
    """Write arrays as one Zarr group, replacing what was there.

    Parameters
    ----------
    folder : Folder
        The group's folder.
    arrays : mapping of str to numpy.ndarray
        What to write; chunks are cut along the first axis.
    compress : bool, optional
        Whether chunks are compressed: smaller, and several times slower to write.
    """
    group = zarr.open_group(_store(folder), mode="w", zarr_format=3)
    for name, values in arrays.items():
        options: dict[str, Any] = {} if compress else {"compressors": None}
        group.create_array(name, data=np.asarray(values, order="C"), chunks=_chunks(values), **options)


def _chunks(values: npt.NDArray[Any]) -> tuple[int, ...]:
    """Cut along the first axis, into chunks of bounded size."""
    if not values.ndim:
        return ()
    row = max(values.nbytes // max(values.shape[0], 1), 1)
    return (max(min(CHUNK_BYTES // row, values.shape[0]), 1), *(max(size, 1) for size in values.shape[1:]))


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
    if not folder.exists():
        raise AbsentError(f"{folder.url}: no such folder of arrays")
    try:
        group = zarr.open_group(_store(folder), mode="r", zarr_format=3)
        return {name: np.asarray(array[...]) for name, array in group.arrays()}
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise DamagedError(folder.url, f"expected a Zarr group of arrays ({error})") from None
