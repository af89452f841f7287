"""Read and write Zarr v3 arrays of plain numbers without Zarr, byte for byte as Zarr does.

For arrays as small as those of a shard's checkpoint, Zarr's event loop and threads take ten times as long as the
rest. The metadata of an array is `usual_text`, which is what Zarr 3 writes; Zarr, which takes 0.3 s, is not imported.
Arrays with any other metadata are left to Zarr.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from collapsium.storage.data_types import AnyArray, DType, Json

if TYPE_CHECKING:
    from types import EllipsisType

    from numcodecs import zstd


METADATA = "zarr.json"
DTYPE_KINDS = "biuf"
ZSTD = {"level": 0, "checksum": False}  # Configuration of the codec by which Zarr compresses arrays
# Separator of the numbers in the name of a chunk's file; up to release 0.1 it was a slash. Without folders for chunks,
# a group has half as many names to sync.
SEPARATOR = "."
READER_THREADS = 4  # Threads that read the chunks of one array


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


@functools.lru_cache(maxsize=256)
def _example(dtype: str, ndim: int, compress: bool) -> str:
    """Return Zarr's metadata of an array of a dtype."""
    from collapsium.storage.io import digest_store

    return digest_store.example_metadata(dtype, ndim, compress)


@functools.lru_cache(maxsize=1024)
def described(
    shape: tuple[int, ...], dtype: DType, chunks: tuple[int, ...], *, compress: bool, separator: str = SEPARATOR
) -> bytes:
    """Return the metadata of an array, as Zarr writes it."""
    fields = json.loads(_example(dtype.newbyteorder("<").str, len(shape), compress))
    fields["shape"] = list(shape)
    fields["chunk_grid"]["configuration"]["chunk_shape"] = list(chunks)
    fields["chunk_key_encoding"]["configuration"]["separator"] = separator
    return json.dumps(fields, indent=2).encode()


@functools.lru_cache(maxsize=1024)
def usual_text(
    shape: tuple[int, ...], dtype: DType, chunks: tuple[int, ...], *, compress: bool, separator: str = SEPARATOR
) -> bytes:
    """Return the metadata that Zarr 3 usually writes, without importing it; arguments as of `described`."""
    if dtype.kind not in DTYPE_KINDS:
        raise ValueError(f"expected numbers, found {dtype}")
    order = {"configuration": {"endian": "little"}} if dtype.itemsize > 1 else {}
    codec = [{"name": "zstd", "configuration": ZSTD}]
    fields = {
        "shape": list(shape),
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": separator}},
        "fill_value": {"b": False, "f": 0.0}.get(dtype.kind, 0),
        "codecs": [{"name": "bytes", **order}, *(codec if compress else [])],
        "attributes": {},
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
    return json.dumps(fields, indent=2).encode()


def described_group(attributes: Mapping[str, Json]) -> bytes:
    """Return the metadata of a group with attributes, as Zarr writes it."""
    return json.dumps({"attributes": attributes, "zarr_format": 3, "node_type": "group"}, indent=2).encode()


@functools.lru_cache(maxsize=1)
def _encoder() -> zstd.Zstd:
    """Return the codec that `usual_text` names."""
    from numcodecs import zstd

    return zstd.Zstd(**ZSTD)


@functools.lru_cache(maxsize=1)
def _decoder() -> zstd.Zstd:
    """Return a codec for decompression, for which the level does not matter."""
    from numcodecs import zstd

    return zstd.Zstd()


def write_array(
    put: Callable[[str, bytes | memoryview], None],
    name: str,
    values: Rows,
    chunks: tuple[int, ...],
    *,
    compress: bool,
) -> None:
    """Write an array chunk by chunk, and its metadata last."""
    little = values.dtype.newbyteorder("<")
    codec = _encoder() if compress else None
    for number in range(-(-values.shape[0] // chunks[0]) if math.prod(values.shape) else 0):
        piece = np.asarray(values[number * chunks[0] : (number + 1) * chunks[0]], dtype=little, order="C")
        # Zarr pads the last chunk to full size.
        if len(piece) < chunks[0]:
            piece = np.concatenate([piece, np.zeros((chunks[0] - len(piece), *piece.shape[1:]), dtype=little)])
        data = piece.reshape(-1).view(np.uint8).data
        put(_key(name, number, len(chunks), SEPARATOR), data if codec is None else codec.encode(data))
    put(f"{name}/{METADATA}", usual_text(values.shape, little, chunks, compress=compress, separator=SEPARATOR))


def _key(name: str, number: int, ndim: int, separator: str) -> str:
    return f"{name}/c{separator}{number}" + f"{separator}0" * (ndim - 1)


class PlainArray:
    """An array as `write_array` writes it, whose rows are read on access."""

    def __init__(
        self,
        read: Callable[[str], bytes],
        name: str,
        shape: tuple[int, ...],
        chunks: tuple[int, ...],
        dtype: DType,
        *,
        compressed: bool,
        separator: str,
    ) -> None:
        self._read, self._name, self._compressed, self._separator = read, name, compressed, separator
        self.shape, self.chunks, self.dtype = shape, chunks, dtype

    def _chunk(self, number: int) -> AnyArray:
        data = self._read(_key(self._name, number, len(self.chunks), self._separator))
        if self._compressed:
            data = _decoder().decode(data, out=np.empty(math.prod(self.chunks) * self.dtype.itemsize, dtype=np.uint8))
        return np.frombuffer(data, dtype=self.dtype).reshape(self.chunks)

    def __getitem__(self, rows: RowIndex, /) -> AnyArray:
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            values = self[:]
            return values if rows is Ellipsis else np.asarray(values[rows])
        first, last, _ = rows.indices(self.shape[0])
        values = np.empty((max(last - first, 0), *self.shape[1:]), dtype=self.dtype)
        if not values.size:
            return values
        size = self.chunks[0]
        if (first, last, self.shape) == (0, size, self.chunks) and self._compressed:
            # Nobody else has the array that it was decompressed into.
            return self._chunk(0)
        numbers = range(first // size, -(-last // size))
        for number, piece in zip(numbers, self._chunks(numbers), strict=True):
            low, high = max(number * size, first), min((number + 1) * size, last)
            values[low - first : high - first] = piece[low - number * size : high - number * size]
        return values

    def _chunks(self, numbers: range) -> Iterator[AnyArray]:
        if len(numbers) == 1:
            yield self._chunk(numbers[0])
            return
        with ThreadPoolExecutor(READER_THREADS) as pool:
            # `pool.map` over all numbers would hold all chunks in memory.
            for low in range(numbers.start, numbers.stop, READER_THREADS):
                yield from pool.map(self._chunk, range(low, min(low + READER_THREADS, numbers.stop)))


def plain_array(read: Callable[[str], bytes], name: str, metadata: bytes) -> PlainArray | None:
    """Open an array if its metadata is as `write_array` writes it."""
    try:
        fields = json.loads(metadata)
        shape, chunks = tuple(fields["shape"]), tuple(fields["chunk_grid"]["configuration"]["chunk_shape"])
        dtype = np.dtype(str(fields["data_type"])).newbyteorder("<")
        compressed = len(fields["codecs"]) == 2
        if compressed and fields["codecs"][1]["name"] != "zstd":
            return None
        sizes = all(type(size) is int and size >= low for row, low in ((shape, 0), (chunks, 1)) for size in row)
        ours = sizes and shape and len(shape) == len(chunks) and dtype.kind in DTYPE_KINDS and dtype.itemsize <= 8
        if not ours or chunks[1:] != tuple(max(size, 1) for size in shape[1:]):
            return None
        separator = str(fields["chunk_key_encoding"]["configuration"]["separator"])
        if separator not in (SEPARATOR, "/"):
            return None
        options = {"compress": compressed, "separator": separator}
        if all(text(shape, dtype, chunks, **options) != metadata for text in (usual_text, described)):
            return None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return PlainArray(read, name, shape, chunks, dtype, compressed=compressed, separator=separator)


def plain_group(metadata: bytes) -> Mapping[str, Json] | None:
    """Return a group's attributes if its metadata is as `described_group` writes it, else None."""
    try:
        attributes: Mapping[str, Json] = json.loads(metadata)["attributes"]
        return attributes if described_group(attributes) == metadata else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
