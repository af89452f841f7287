"""Write and read named arrays as Zarr v3 groups, with a digest of each file and without pickles.

Any program reads the groups with Zarr, but Zarr does not write or read them here. Its import takes 0.3 s, more than
half of what `topics` may take, and its event loop takes longer than the rest of a small checkpoint: a group of 12
arrays of 8 KB is read in 36 ms by `zarr.open_group` and in 9 ms here, and written in 290 ms instead of 170 ms, most of
which is the sync. Arrays with other metadata than `write_array` writes are refused.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np

from collapsium.storage.data_types import AnyArray, DType, Json
from collapsium.storage.errors import AbsentError, CollapsiumError, DamagedError
from collapsium.storage.io.atomic import Put
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import MAX_BYTES, checked, dump, parse_record
from collapsium.storage.units import size as size_text

if TYPE_CHECKING:
    from types import EllipsisType

    from numcodecs import zstd

CHUNK_BYTES = 16 << 20  # Size of a chunk, uncompressed
MOST_CHUNK_BYTES = 1 << 30  # Largest chunk that is read, because a group may be untrusted

# Tables of counts are nearly all zeros and compress to a thousandth.
# Bounds of the uncompressed bytes of a group: a multiple of the files' size, and at least 256 MB
RATIO, LEAST_LIMIT = 2000, 1 << 28

DIGESTS, METADATA, NUMBERS = "digests.json", "zarr.json", "numbers-"
KIND = "collapsium-arrays"
VERSION = 2

ZSTD = {"level": 0, "checksum": False}  # Configuration of the codec, the one that Zarr uses by default
# Separators of the numbers in the name of a chunk's file. Without folders for chunks, a group has half as many names to
# sync; up to release 0.1 groups had folders, and arrays of vectors still have them.
FLAT, NESTED = ".", "/"
READER_THREADS = 4  # Threads that read the chunks of one array
# Exceptions of damaged chunks: `zstd`'s are RuntimeErrors
FAULTS = (OSError, ValueError, TypeError, RuntimeError)

RowIndex: TypeAlias = "slice | EllipsisType"


class Rows(Protocol):
    """An array, or one on disk whose rows are read in pieces."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the array."""

    @property
    def dtype(self) -> DType:
        """Return the dtype of the array."""

    def __getitem__(self, rows: RowIndex, /) -> AnyArray:
        """Return the rows of a slice, or all rows for an ellipsis."""


class Layout(NamedTuple):
    """Shape, dtype, chunks and file names of an array: everything that its metadata states."""

    shape: tuple[int, ...]
    dtype: DType
    chunks: tuple[int, ...]  # Shape of a chunk, which holds complete rows
    compressed: bool
    separator: str = FLAT

    @property
    def chunk_count(self) -> int:
        """Number of chunks."""
        return -(-self.shape[0] // self.chunks[0]) if math.prod(self.shape) else 0

    @property
    def chunk_bytes(self) -> int:
        """Size of an uncompressed chunk."""
        return math.prod(self.chunks) * self.dtype.itemsize

    def key(self, number: int) -> str:
        """Return the name of a chunk's file within the folder of its array."""
        return f"c{self.separator}{number}" + f"{self.separator}0" * (len(self.chunks) - 1)


@functools.lru_cache(maxsize=1024)
def metadata_of(layout: Layout) -> bytes:
    """Return the metadata of an array, byte for byte as Zarr 3 writes it."""
    dtype = layout.dtype
    order = {"configuration": {"endian": "little"}} if dtype.itemsize > 1 else {}
    fields = {
        "shape": list(layout.shape),
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(layout.chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": layout.separator}},
        "fill_value": {"b": False, "f": 0.0}.get(dtype.kind, 0),
        "codecs": [
            {"name": "bytes", **order},
            *([{"name": "zstd", "configuration": ZSTD}] if layout.compressed else []),
        ],
        "attributes": {},
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
    return json.dumps(fields, indent=2).encode()


def parse_metadata(metadata: bytes, path: str) -> Layout:
    """Return the layout that metadata describes; raise `DamagedError` unless `metadata_of` writes the same bytes."""
    try:
        fields = json.loads(metadata)
        layout = Layout(
            tuple(fields["shape"]),
            np.dtype(str(fields["data_type"])).newbyteorder("<"),
            tuple(fields["chunk_grid"]["configuration"]["chunk_shape"]),
            len(fields["codecs"]) == 2,
            str(fields["chunk_key_encoding"]["configuration"]["separator"]),
        )
        shape, chunks = layout.shape, layout.chunks
        sizes = all(type(size) is int and size >= low for row, low in ((shape, 0), (chunks, 1)) for size in row)
        plain = layout.dtype.kind in "biuf" and layout.dtype.itemsize <= 8 and layout.separator in (FLAT, NESTED)
        complete = sizes and shape and chunks == (chunks[0], *(max(size, 1) for size in shape[1:]))
        is_known = plain and complete and metadata_of(layout) == metadata
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        is_known = False
    if not is_known:
        raise DamagedError(path, "expected a Zarr array of plain numbers in chunks of complete rows")
    if layout.chunk_bytes > MOST_CHUNK_BYTES:
        raise DamagedError(path, f"expected chunks of at most {MOST_CHUNK_BYTES} bytes")
    return layout


def group_metadata(attributes: Mapping[str, Json]) -> bytes:
    """Return the metadata of a group with attributes, byte for byte as Zarr 3 writes it."""
    return json.dumps({"attributes": attributes, "zarr_format": 3, "node_type": "group"}, indent=2).encode()


def parse_group(metadata: bytes, path: str) -> Mapping[str, Json]:
    """Return a group's attributes; raise `DamagedError` unless `group_metadata` writes the same bytes."""
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        attributes: Mapping[str, Json] = json.loads(metadata)["attributes"]
        if group_metadata(attributes) == metadata:
            return attributes
    raise DamagedError(path, "expected a Zarr group of arrays")


@functools.cache
def _codec() -> zstd.Zstd:
    """Return the codec of compressed chunks."""
    from numcodecs import zstd

    return zstd.Zstd(**ZSTD)


def encode_chunk(layout: Layout, rows: AnyArray) -> bytes | memoryview:
    """Return the bytes of a chunk; rows are padded to a full chunk, as Zarr does."""
    piece = np.asarray(rows, dtype=layout.dtype, order="C")
    if len(piece) < layout.chunks[0]:
        padding = np.zeros((layout.chunks[0] - len(piece), *piece.shape[1:]), dtype=layout.dtype)
        piece = np.concatenate([piece, padding])
    data = piece.reshape(-1).view(np.uint8).data
    return _codec().encode(data) if layout.compressed else data


def write_arrays(folder: Folder, arrays: Mapping[str, Rows], *, compress: bool = True) -> str:
    """Write arrays as one Zarr group, chunk by chunk, replacing an existing one.

    Single numbers are packed into one array for each dtype, and their names into an attribute of the group. A file for
    each number would take longer than the rest of a small checkpoint.
    """
    numbers: dict[str, list[str]] = {}
    # Sorted, because the order of the arrays depends on the executor and the bytes must not.
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
            write_array(put, name, values, compress=compress)
        put(METADATA, group_metadata({NUMBERS: numbers} if numbers else {}))
        digests = dump({"format": KIND, "version": VERSION, "files": files})
        write(DIGESTS, digests)
        return hashlib.sha256(digests).hexdigest()

    return folder.write_all(fill)


def write_array(put: Put, name: str, values: Rows, *, compress: bool) -> None:
    """Write an array chunk by chunk, and its metadata last."""
    dtype = values.dtype.newbyteorder("<")
    if dtype.kind not in "biuf":
        raise ValueError(f"expected numbers, found {dtype}")
    # Zarr pads the last chunk to full size. With rows left over for it, up to half of a file would be zeros; so chunks
    # have bounded size, and all have about as many rows.
    row_bytes = max(int(np.prod(values.shape[1:], dtype=np.int64)) * dtype.itemsize, 1)
    count = max(math.ceil(values.shape[0] / max(CHUNK_BYTES // row_bytes, 1)), 1)
    chunks = (math.ceil(values.shape[0] / count) or 1, *(max(size, 1) for size in values.shape[1:]))
    layout = Layout(values.shape, dtype, chunks, compress)
    for number in range(layout.chunk_count):
        put(f"{name}/{layout.key(number)}", encode_chunk(layout, values[number * chunks[0] : (number + 1) * chunks[0]]))
    put(f"{name}/{METADATA}", metadata_of(layout))


def read_digested(folder: Folder, key: str, digest: str) -> bytes:
    """Return the bytes of a file; raise `DamagedError` if they do not have their digest."""
    try:
        data = folder.read(key)
    except AbsentError:
        raise DamagedError(f"{folder.url}/{key}", "the file is missing") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise DamagedError(f"{folder.url}/{key}", "the bytes do not have their digest; the file is damaged")
    return data


class StoredRows:
    """An array on disk, whose rows are read on access."""

    def __init__(self, url: str, layout: Layout, read: Callable[[str], bytes]) -> None:
        self._url, self._layout, self._read = url, layout, read
        self.shape: tuple[int, ...] = layout.shape
        self.dtype: DType = layout.dtype

    def __getitem__(self, rows: RowIndex, /) -> AnyArray:
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            values = self[:]
            return values if rows is Ellipsis else np.asarray(values[rows])
        first, last, _ = rows.indices(self.shape[0])
        size = self._layout.chunks[0]
        if (first, last, self.shape) == (0, size, self._layout.chunks) and self._layout.compressed:
            # The array that it was decompressed into has no other owner.
            return self._chunk(0)
        values = np.empty((max(last - first, 0), *self.shape[1:]), dtype=self.dtype)
        if not values.size:
            return values
        numbers = range(first // size, -(-last // size))
        for number, piece in zip(numbers, self._chunks(numbers), strict=True):
            low, high = max(number * size, first), min((number + 1) * size, last)
            values[low - first : high - first] = piece[low - number * size : high - number * size]
        return values

    def _chunk(self, number: int) -> AnyArray:
        layout, key = self._layout, self._layout.key(number)
        try:
            data = self._read(key)
            if layout.compressed:
                data = _codec().decode(data, out=np.empty(layout.chunk_bytes, dtype=np.uint8))
            return np.frombuffer(data, dtype=layout.dtype).reshape(layout.chunks)
        except CollapsiumError:
            raise
        except FAULTS as error:
            raise DamagedError(f"{self._url}/{key}", f"expected a chunk of a Zarr array ({error})") from None

    def _chunks(self, numbers: range) -> Iterator[AnyArray]:
        if len(numbers) == 1:
            yield self._chunk(numbers[0])
            return
        with ThreadPoolExecutor(READER_THREADS) as pool:
            # `pool.map` over all numbers would hold all chunks in memory.
            for low in range(numbers.start, numbers.stop, READER_THREADS):
                yield from pool.map(self._chunk, range(low, min(low + READER_THREADS, numbers.stop)))

    def pieces(self) -> Iterator[AnyArray]:
        """Yield the rows chunk by chunk; an array without rows is one piece."""
        size = self._layout.chunks[0]
        yield from (self[first : first + size] for first in range(0, max(self.shape[0], 1), size))


class StoredNumber:
    """A number of a group, which is stored in an array of such numbers; it has the interface of `StoredRows`."""

    def __init__(self, value: AnyArray) -> None:
        self._value = value
        self.shape, self.dtype = value.shape, value.dtype

    def __getitem__(self, rows: RowIndex, /) -> AnyArray:
        return np.asarray(self._value[rows])

    def pieces(self) -> Iterator[AnyArray]:
        """Yield the number."""
        yield self[...]


def read_arrays(folder: Folder, digest: str | None = None) -> dict[str, AnyArray]:
    """Read all arrays of a Zarr group."""
    return {name: rows[...] for name, rows in open_arrays(folder, digest).items()}


def open_arrays(folder: Folder, digest: str | None = None) -> dict[str, StoredRows | StoredNumber]:
    """Open all arrays of a Zarr group, whose rows are then read in pieces."""
    files = _read_digests(folder, digest)
    metadata = {key: read_digested(folder, key, files[key]) for key in files if key.rpartition("/")[2] == METADATA}
    attributes = parse_group(metadata.pop(METADATA, b""), f"{folder.url}/{METADATA}")
    layouts = {
        key.removesuffix(f"/{METADATA}"): parse_metadata(data, f"{folder.url}/{key}") for key, data in metadata.items()
    }
    for name, layout in layouts.items():
        present = sum(key.startswith(f"{name}/c") for key in files)
        if "/" in name or present != layout.chunk_count:
            raise DamagedError(f"{folder.url}/{name}", f"expected {layout.chunk_count} chunks, found {present}")
    # Small files may decompress to large arrays.
    total = sum(layout.chunk_count * layout.chunk_bytes for layout in layouts.values())
    if total > LEAST_LIMIT and total > (limit := max(LEAST_LIMIT, RATIO * folder.size())):
        raise DamagedError(
            folder.url, f"decompresses to more than {size_text(limit)}; refusing a possible decompression bomb"
        )

    def read(name: str, key: str) -> bytes:
        if f"{name}/{key}" not in files:
            raise DamagedError(f"{folder.url}/{name}/{key}", "the chunk has no digest")
        return read_digested(folder, f"{name}/{key}", files[f"{name}/{key}"])

    rows = {
        name: StoredRows(f"{folder.url}/{name}", layout, functools.partial(read, name))
        for name, layout in layouts.items()
    }
    arrays: dict[str, StoredRows | StoredNumber] = {
        name: stored for name, stored in rows.items() if not name.startswith(NUMBERS)
    }
    packed = attributes.get(NUMBERS, {})
    for name in rows.keys() - arrays.keys():
        values = rows[name][...]
        names = packed.get(name.removeprefix(NUMBERS)) if isinstance(packed, dict) else None
        if not isinstance(names, list) or not all(isinstance(number, str) for number in names):
            expected, where = "expected the names of the numbers", f"attribute '{NUMBERS}'"
            raise DamagedError(f"{folder.url}/{METADATA}", expected, where)
        if values.shape != (len(names),):
            raise DamagedError(f"{folder.url}/{name}", f"expected {len(names)} numbers, found {values.shape}")
        arrays.update({number: StoredNumber(values[place]) for place, number in enumerate(names)})
    return arrays


def check_arrays(folder: Folder, digest: str | None = None) -> list[str]:
    """Return the faults of a group's files, without decoding them."""
    broken = []
    try:
        files = _read_digests(folder, digest)
    except (AbsentError, DamagedError) as error:
        return [str(error)]
    for key, expected in files.items():
        try:
            read_digested(folder, key, expected)
        except (AbsentError, DamagedError) as error:
            broken.append(str(error))
    return broken


def _read_digests(folder: Folder, digest: str | None) -> dict[str, str]:
    """Read `digests.json` of a group: the digest of each file."""
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
    return files
