"""Named arrays on disk, as Zarr v3 groups with the digest of each file: no pickles, one writer a group."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from collapsium.storage.data_types import AnyArray, DType
from collapsium.storage.errors import AbsentError, CollapsiumError, DamagedError
from collapsium.storage.io.digested_files import DigestedFiles, is_said
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import MAX_BYTES, checked, dump, parse_record
from collapsium.storage.io.zarr_fast_path import (
    SAID,
    PlainArray,
    Rows,
    described_group,
    plain_array,
    plain_group,
    write_array,
)
from collapsium.storage.units import size as size_text

CHUNK_BYTES = 16 << 20
MOST_CHUNK_BYTES = 1 << 30  # of a group that another program may have written
# What may come out of a group: tables of counts are nearly all zeros, and shrink to a thousandth.
RATIO, LEAST_LIMIT = 2000, 1 << 28
DIGESTS, NUMBERS = "digests.json", "numbers-"
KIND = "collapsium-arrays"
VERSION = 2
# What Zarr raises for what is no array, or a damaged one.
FAULTS = (OSError, ValueError, LookupError, TypeError, RuntimeError, AttributeError, ArithmeticError)


def write_arrays(folder: Folder, arrays: Mapping[str, Rows], *, compress: bool = True) -> str:
    """Write arrays as one Zarr group, over what was there; a piece of `CHUNK_BYTES` at a time.

    Arrays of no dims, single numbers, lie together, an array for each type, whose names are an attribute of the group:
    a file for each would take longer than all the rest of a small checkpoint.

    Parameters
    ----------
    folder : Folder
        The group's folder.
    arrays : mapping of str to numpy.ndarray or Rows
        What to write; chunks are cut along the first axis.
    compress : bool, optional
        Whether chunks are compressed: smaller, and several times slower to write.

    Returns
    -------
    str
        The digest of all that was written: by it, `read_arrays` finds any damage.

    Raises
    ------
    StoreError
        The disk is full, or the store fails.
    """
    files: dict[str, str] = {}

    def put(key: str, data: Any) -> None:
        files[key] = folder.write(key, data)

    numbers: dict[str, list[str]] = {}
    for name, values in sorted(arrays.items()):  # in an order that no executor changes: the file's bytes follow from it
        if not values.shape:
            numbers.setdefault(values.dtype.str[1:], []).append(name)
    packed = {f"{NUMBERS}{kind}": np.array([arrays[name][...] for name in names]) for kind, names in numbers.items()}
    for name, values in {**packed, **{name: values for name, values in arrays.items() if values.shape}}.items():
        write_array(put, name, values, _chunks(values.shape, values.dtype), compress=compress)
    put(SAID, described_group({NUMBERS: numbers} if numbers else {}))
    return folder.write(DIGESTS, dump({"format": KIND, "version": VERSION, "files": files}))


def _chunks(shape: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
    """Cut along the first axis, into chunks of bounded size."""
    if not shape:
        return ()
    row = max(int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize, 1)
    return (max(min(CHUNK_BYTES // row, shape[0]), 1), *(max(size, 1) for size in shape[1:]))


def _pieces(shape: tuple[int, ...], chunks: tuple[int, ...]) -> list[Any]:
    """Return slices of the first axis, a chunk each; an ellipsis for a single number."""
    return [slice(first, first + chunks[0]) for first in range(0, shape[0], chunks[0])] if shape else [...]


def read_arrays(folder: Folder, digest: str | None = None) -> dict[str, AnyArray]:
    """Read all arrays of a Zarr group.

    Parameters
    ----------
    folder : Folder
        The group's folder.
    digest : str, optional
        As `write_arrays` returned it; by default what lies there is checked only against what lies beside it.

    Returns
    -------
    dict of str to numpy.ndarray
        Its arrays by name.

    Raises
    ------
    AbsentError
        There is no such folder.
    DamagedError
        It is not such a group, or a file of it is missing or damaged.
    """
    return {name: pieces[...] for name, pieces in open_arrays(folder, digest).items()}


def open_arrays(folder: Folder, digest: str | None = None) -> dict[str, StoredRows]:
    """Open all arrays of a Zarr group, to be read piece by piece.

    Parameters
    ----------
    folder, digest
        As for `read_arrays`.

    Returns
    -------
    dict of str to StoredRows
        Its arrays by name.

    Raises
    ------
    AbsentError
        There is no such folder.
    DamagedError
        It is not such a group.
    """
    store = _opened(folder, digest)
    found, attributes = _plain_arrays(store) or _zarr_arrays(store)
    named = attributes.get(NUMBERS, {})
    for name, array in found.items():
        _require_whole(store, name, array)
    _require_bounded(store, found)
    opened = {name: StoredRows(folder, array) for name, array in found.items()}
    numbers: dict[str, StoredRows] = {}
    for name in [name for name in opened if name.startswith(NUMBERS)]:
        rows, names = opened.pop(name), _names(folder, named, name.removeprefix(NUMBERS))
        if rows.shape != (len(names),):
            raise DamagedError(f"{folder.url}/{name}", f"expected {len(names)} numbers, found {rows.shape}")
        values = rows[...]
        numbers.update({one: StoredRows(folder, values[place]) for place, one in enumerate(names)})
    return {**opened, **numbers}


def _plain_arrays(store: DigestedFiles) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Open arrays that are as we write them, and the group's attributes; None where any is not."""
    attributes = plain_group(store.said.get(SAID, b""))
    found = {
        key.removesuffix(f"/{SAID}"): plain_array(store.read, key.removesuffix(f"/{SAID}"), said)
        for key, said in store.said.items()
        if key != SAID
    }
    if attributes is None or not all(isinstance(one, PlainArray) and "/" not in name for name, one in found.items()):
        return None
    return found, attributes


def _zarr_arrays(store: DigestedFiles) -> tuple[dict[str, Any], dict[str, Any]]:
    """Open arrays as whatever has written them says, and the group's attributes."""
    import zarr

    from collapsium.storage.io.digest_store import DigestStore

    with damage(store.folder):
        group = zarr.open_group(DigestStore(store.folder, store.files, read_only=True), mode="r", zarr_format=3)
        found, attributes = dict(group.arrays()), dict(group.attrs)
    for name, array in found.items():
        require_plain(f"{store.folder.url}/{name}", array)
    return found, attributes


def _names(folder: Folder, named: Any, kind: str) -> list[str]:
    names = named.get(kind) if isinstance(named, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DamagedError(f"{folder.url}/zarr.json", "expected the names of the numbers", f"attribute '{NUMBERS}'")
    return names


def check_arrays(folder: Folder, digest: str | None = None) -> list[str]:
    """Read all files of a group, but make nothing of them.

    Parameters
    ----------
    folder, digest
        As for `read_arrays`.

    Returns
    -------
    list of str
        What is broken, each beginning with the file; empty where all is well.
    """
    try:
        store = _opened(folder, digest)
    except (AbsentError, DamagedError) as error:
        return [str(error)]
    broken = []
    for key in store.files:
        if is_said(key):
            continue  # was read as it was opened
        try:
            store.read(key)
        except (AbsentError, DamagedError) as error:
            broken.append(str(error))
    return broken


def _opened(folder: Folder, digest: str | None) -> DigestedFiles:
    path = f"{folder.url}/{DIGESTS}"
    try:
        data = folder.read(DIGESTS, MAX_BYTES)
    except AbsentError:
        if digest is None and not folder.exists():
            raise AbsentError(f"{folder.url}: no such folder of arrays") from None
        raise DamagedError(path, "the file is missing") from None
    if digest is not None and hashlib.sha256(data).hexdigest() != digest:
        raise DamagedError(path, "the bytes do not have their digest; the file is damaged")
    files = checked(parse_record(data, path, KIND, VERSION, oldest=2), path).get("files")
    if not isinstance(files, dict) or not all(isinstance(value, str) for value in files.values()):
        raise DamagedError(path, "expected a digest for each file", "field 'files'")
    return DigestedFiles(folder, files)


def require_plain(path: str, array: Any) -> None:
    """Refuse an array that we do not write: of types that are pickled, or with chunks that are too large.

    Parameters
    ----------
    path : str
        Where it lies, for the error.
    array : zarr.Array
        The array.

    Raises
    ------
    DamagedError
        It may not be read.
    """
    from zarr.codecs import BytesCodec, ZstdCodec  # plain numbers, and their compression

    codecs = getattr(array.metadata, "codecs", ())
    if array.dtype.kind not in "biuf" or not all(isinstance(codec, (BytesCodec, ZstdCodec)) for codec in codecs):
        raise DamagedError(path, "expected an array of plain numbers")
    if math.prod(array.chunks) * array.dtype.itemsize > MOST_CHUNK_BYTES:
        raise DamagedError(path, f"expected chunks of at most {MOST_CHUNK_BYTES} bytes")


def _require_whole(store: DigestedFiles, name: str, array: Any) -> None:
    """Refuse an array of which chunks are missing."""
    path = f"{store.folder.url}/{name}"
    if math.prod(array.chunks) * array.dtype.itemsize > MOST_CHUNK_BYTES:
        raise DamagedError(path, f"expected chunks of at most {MOST_CHUNK_BYTES} bytes")
    wanted = math.prod(-(-size // chunk) for size, chunk in zip(array.shape, array.chunks, strict=True))
    found = sum(key.startswith(f"{name}/c") for key in store.files)
    if found != wanted:
        raise DamagedError(path, f"expected {wanted} chunks, found {found}")


def _require_bounded(store: DigestedFiles, found: Mapping[str, Any]) -> None:
    """Refuse a small group of which a great deal would come out."""
    chunks = (
        math.prod(-(-size // chunk) for size, chunk in zip(one.shape, one.chunks, strict=True))
        for one in found.values()
    )
    each = (math.prod(one.chunks) * one.dtype.itemsize for one in found.values())
    total = sum(count * size for count, size in zip(chunks, each, strict=True))
    if total <= LEAST_LIMIT:
        return
    limit = max(LEAST_LIMIT, RATIO * store.folder.size())
    if total > limit:
        raise DamagedError(
            store.folder.url, f"more than {size_text(limit)} come out of it, as of arrays that are made to fill memory"
        )


class StoredRows:
    """An array in a Zarr group, whose rows are read when they are asked for.

    Parameters
    ----------
    folder : Folder
        The group's folder.
    array : PlainArray, zarr.Array or numpy scalar
        The array, or a single number.
    """

    def __init__(self, folder: Folder, array: Any) -> None:
        self._folder, self._array = folder, array
        self.shape: tuple[int, ...] = array.shape
        self.dtype: DType = array.dtype

    def __getitem__(self, rows: Any, /) -> AnyArray:
        with damage(self._folder):
            return np.asarray(self._array[rows])

    def pieces(self) -> Iterator[AnyArray]:
        """Read it a chunk at a time; an array of no rows is one piece."""
        yield from (self[piece] for piece in (_pieces(self.shape, self._array.chunks) if self.shape else []) or [...])


@contextlib.contextmanager
def damage(folder: Folder) -> Iterator[None]:
    """Tell what Zarr raises for a folder that is damaged as `DamagedError`.

    Parameters
    ----------
    folder : Folder
        The folder that is read.
    """
    try:
        yield
    except CollapsiumError:
        raise
    except FAULTS as error:
        raise DamagedError(folder.url, f"expected a Zarr group of arrays ({error})") from None
