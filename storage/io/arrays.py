"""Write and read named arrays as Zarr v3 groups, with a digest of each file and without pickles."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from collapsium.storage.data_types import AnyArray, DType, Json
from collapsium.storage.errors import AbsentError, CollapsiumError, DamagedError
from collapsium.storage.io.digested_files import DigestedFiles, is_metadata
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.local import Put
from collapsium.storage.io.records import MAX_BYTES, checked, dump, parse_record
from collapsium.storage.io.zarr_fast_path import (
    METADATA,
    RowIndex,
    Rows,
    described_group,
    plain_array,
    plain_group,
    write_array,
)
from collapsium.storage.units import size as size_text

if TYPE_CHECKING:
    from types import EllipsisType

    import zarr


CHUNK_BYTES = 16 << 20  # Size of a chunk, uncompressed
MOST_CHUNK_BYTES = 1 << 30  # Largest chunk that is read, as anyone may have written a group

# Tables of counts are nearly all zeros and compress to a thousandth.
# Bounds of the uncompressed bytes of a group: a multiple of the files' size, and at least 256 MB
RATIO, LEAST_LIMIT = 2000, 1 << 28

DIGESTS, NUMBERS = "digests.json", "numbers-"
KIND = "collapsium-arrays"
VERSION = 2
# Exceptions that Zarr raises for damaged files
FAULTS = (OSError, ValueError, LookupError, TypeError, RuntimeError, AttributeError, ArithmeticError)


class ZarrArray(Rows, Protocol):
    """An array of a Zarr group: a `PlainArray` or a `zarr.Array`."""

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of a chunk."""


def write_arrays(folder: Folder, arrays: Mapping[str, Rows], *, compress: bool = True) -> str:
    """Write arrays as one Zarr group, chunk by chunk, replacing an existing one.

    Single numbers are packed into one array for each dtype, and their names into an attribute of the group. A file for
    each number would take longer than the rest of a small checkpoint.
    """
    numbers: dict[str, list[str]] = {}
    # Sorted, as the order of the arrays depends on the executor and the bytes must not.
    for name, values in sorted(arrays.items()):
        if not values.shape:
            numbers.setdefault(values.dtype.str[1:], []).append(name)
    packed = {f"{NUMBERS}{kind}": np.array([arrays[name][...] for name in names]) for kind, names in numbers.items()}
    rows = {**packed, **{name: values for name, values in arrays.items() if values.shape}}

    def fill(write: Put) -> str:
        files: dict[str, str] = {}

        def put(key: str, data: bytes | memoryview) -> None:
            write(key, data)
            files[key] = hashlib.sha256(data).hexdigest()

        for name, values in rows.items():
            write_array(put, name, values, _chunks(values.shape, values.dtype), compress=compress)
        put(METADATA, described_group({NUMBERS: numbers} if numbers else {}))
        digests = dump({"format": KIND, "version": VERSION, "files": files})
        write(DIGESTS, digests)
        return hashlib.sha256(digests).hexdigest()

    return folder.write_all(fill)


def _chunks(shape: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
    """Return the shape of a chunk, which holds complete rows and has bounded size; all chunks have about as many rows.

    Zarr pads the last chunk to full size: with rows left over for it, up to half of a file would be zeros.
    """
    if not shape:
        return ()
    row = max(int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize, 1)
    number = math.ceil(shape[0] / max(CHUNK_BYTES // row, 1))
    return (math.ceil(shape[0] / max(number, 1)) or 1, *(max(size, 1) for size in shape[1:]))


def _pieces(shape: tuple[int, ...], chunks: tuple[int, ...]) -> list[slice] | list[EllipsisType]:
    """Return slices of the first axis, a chunk each; an ellipsis for a single number."""
    return [slice(first, first + chunks[0]) for first in range(0, shape[0], chunks[0])] if shape else [...]


def read_arrays(folder: Folder, digest: str | None = None) -> dict[str, AnyArray]:
    """Read all arrays of a Zarr group."""
    return {name: pieces[...] for name, pieces in open_arrays(folder, digest).items()}


def open_arrays(folder: Folder, digest: str | None = None) -> dict[str, StoredRows]:
    """Open all arrays of a Zarr group, whose rows are then read in pieces."""
    store = _open_files(folder, digest)
    arrays, attributes = _plain_arrays(store) or _zarr_arrays(store)
    packed = attributes.get(NUMBERS, {})
    for name, array in arrays.items():
        _require_complete(store, name, array)
    _require_bounded(store, arrays)
    rows = {name: StoredRows(folder, array) for name, array in arrays.items()}
    numbers: dict[str, StoredRows] = {}
    for name in [name for name in rows if name.startswith(NUMBERS)]:
        values, names = rows.pop(name)[...], _names(folder, packed, name.removeprefix(NUMBERS))
        if values.shape != (len(names),):
            raise DamagedError(f"{folder.url}/{name}", f"expected {len(names)} numbers, found {values.shape}")
        numbers.update({number: StoredRows(folder, values[place]) for place, number in enumerate(names)})
    return {**rows, **numbers}


def _plain_arrays(store: DigestedFiles) -> tuple[dict[str, ZarrArray], Mapping[str, Json]] | None:
    """Open the arrays and the group's attributes without Zarr; None unless all are as `write_array` writes them."""
    attributes = plain_group(store.metadata.get(METADATA, b""))
    arrays: dict[str, ZarrArray] = {}
    for key, metadata in store.metadata.items():
        name = key.removesuffix(f"/{METADATA}")
        if key != METADATA:
            array = plain_array(store.read, name, metadata)
            if array is None or "/" in name:
                return None
            arrays[name] = array
    return None if attributes is None else (arrays, attributes)


def _zarr_arrays(store: DigestedFiles) -> tuple[dict[str, ZarrArray], Mapping[str, Json]]:
    """Open the arrays and the group's attributes with Zarr."""
    with damage(store.folder):
        from collapsium.storage.io import digest_store

        group = digest_store.open_group(store.folder, store.files)
        arrays, attributes = dict(group.arrays()), dict(group.attrs)
    for name, array in arrays.items():
        require_plain(f"{store.folder.url}/{name}", array)
    return cast(dict[str, ZarrArray], arrays), attributes


def _names(folder: Folder, packed: Json, kind: str) -> list[str]:
    """Return the names of the single numbers of a dtype."""
    names = packed.get(kind) if isinstance(packed, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DamagedError(f"{folder.url}/zarr.json", "expected the names of the numbers", f"attribute '{NUMBERS}'")
    return cast(list[str], names)


def check_arrays(folder: Folder, digest: str | None = None) -> list[str]:
    """Return the faults of a group's files, without decoding them."""
    try:
        store = _open_files(folder, digest)
    except (AbsentError, DamagedError) as error:
        return [str(error)]
    broken = []
    for key in store.files:
        # `_open_files` reads the metadata.
        if is_metadata(key):
            continue
        try:
            store.read(key)
        except (AbsentError, DamagedError) as error:
            broken.append(str(error))
    return broken


def _open_files(folder: Folder, digest: str | None) -> DigestedFiles:
    """Read `digests.json` and the metadata of a group."""
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


def require_plain(path: str, array: zarr.Array[zarr.core.metadata.v3.ArrayV3Metadata]) -> None:
    """Raise an error for arrays of other dtypes than plain numbers, or with large chunks."""
    from collapsium.storage.io import digest_store

    if array.dtype.kind not in "biuf" or not digest_store.has_plain_codecs(array):
        raise DamagedError(path, "expected an array of plain numbers")
    if math.prod(array.chunks) * array.dtype.itemsize > MOST_CHUNK_BYTES:
        raise DamagedError(path, f"expected chunks of at most {MOST_CHUNK_BYTES} bytes")


def _require_complete(store: DigestedFiles, name: str, array: ZarrArray) -> None:
    """Raise an error for an array with missing chunks."""
    path = f"{store.folder.url}/{name}"
    if math.prod(array.chunks) * array.dtype.itemsize > MOST_CHUNK_BYTES:
        raise DamagedError(path, f"expected chunks of at most {MOST_CHUNK_BYTES} bytes")
    expected = _chunk_count(array)
    present = sum(key.startswith(f"{name}/c") for key in store.files)
    if present != expected:
        raise DamagedError(path, f"expected {expected} chunks, found {present}")


def _chunk_count(array: ZarrArray) -> int:
    return math.prod(-(-size // chunk) for size, chunk in zip(array.shape, array.chunks, strict=True))


def _require_bounded(store: DigestedFiles, arrays: Mapping[str, ZarrArray]) -> None:
    """Raise an error for a group whose small files decompress to large arrays."""
    total = sum(_chunk_count(array) * math.prod(array.chunks) * array.dtype.itemsize for array in arrays.values())
    if total <= LEAST_LIMIT:
        return
    limit = max(LEAST_LIMIT, RATIO * store.folder.size())
    if total > limit:
        raise DamagedError(
            store.folder.url, f"more than {size_text(limit)} come out of it, as of arrays that are made to fill memory"
        )


class StoredRows:
    """An array in a Zarr group, whose rows are read on access."""

    def __init__(self, folder: Folder, array: ZarrArray | AnyArray) -> None:
        self._folder, self._array = folder, array
        self.shape: tuple[int, ...] = array.shape
        self.dtype: DType = array.dtype

    def __getitem__(self, rows: RowIndex, /) -> AnyArray:
        with damage(self._folder):
            return np.asarray(self._array[rows])

    def pieces(self) -> Iterator[AnyArray]:
        """Yield the rows chunk by chunk; an array without rows is one piece."""
        chunks = () if isinstance(self._array, (np.ndarray, np.generic)) else self._array.chunks
        yield from (self[piece] for piece in (_pieces(self.shape, chunks) if chunks else []) or [...])


@contextlib.contextmanager
def damage(folder: Folder) -> Iterator[None]:
    """Raise `DamagedError` in place of Zarr's errors about a damaged folder."""
    try:
        yield
    except CollapsiumError:
        raise
    except FAULTS as error:
        raise DamagedError(folder.url, f"expected a Zarr group of arrays ({error})") from None
