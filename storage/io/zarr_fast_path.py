"""Zarr v3 arrays of plain numbers: the bytes that Zarr writes, without the loop and threads it takes them through.

For arrays as small as those of a shard's checkpoint these take ten times as long as all the rest. What a file says of
an array is Zarr's own text, asked of it once for each type; arrays that are described in any other way are left to it.
To read what Zarr 3 usually writes, Zarr is not even imported (`usual_text`).
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from collapsium.storage.data_types import AnyArray, DType

SAID = "zarr.json"
KINDS = "biuf"
READERS = 4  # of chunks side by side, where an array has several


class Rows(Protocol):
    """An array, or what stands for one that lies elsewhere and gives its rows piece by piece."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def dtype(self) -> DType:
        """Its type."""

    def __getitem__(self, rows: Any, /) -> Any:
        """Return rows, given a slice; the whole, given an ellipsis."""


@functools.lru_cache(maxsize=256)
def _example(dtype: str, ndim: int, compress: bool) -> str:
    """Return what Zarr says of an array of a type."""
    import zarr
    from zarr.storage import MemoryStore

    options: dict[str, Any] = {} if compress else {"compressors": None}
    files: dict[str, Any] = {}
    one = (1,) * ndim
    zarr.create_array(MemoryStore(files), shape=one, chunks=one, dtype=np.dtype(dtype), zarr_format=3, **options)
    return str(files[SAID].to_bytes().decode())


@functools.lru_cache(maxsize=1024)
def described(shape: tuple[int, ...], dtype: DType, chunks: tuple[int, ...], *, compress: bool) -> bytes:
    """Write what Zarr says of an array.

    Parameters
    ----------
    shape : tuple of int
        Of the array.
    dtype : numpy.dtype
        Of its numbers.
    chunks : tuple of int
        Of each of its chunks.
    compress : bool
        Whether chunks are compressed.

    Returns
    -------
    bytes
        The file ``zarr.json``.
    """
    said = json.loads(_example(dtype.newbyteorder("<").str, len(shape), compress))
    said["shape"] = list(shape)
    said["chunk_grid"]["configuration"]["chunk_shape"] = list(chunks)
    return json.dumps(said, indent=2).encode()


def usual_text(shape: tuple[int, ...], dtype: DType, chunks: tuple[int, ...], *, compress: bool) -> bytes:
    """Return what Zarr 3 says of an array, without importing it; arguments as of `described`."""
    order = {"configuration": {"endian": "little"}} if dtype.itemsize > 1 else {}
    zstd = [{"name": "zstd", "configuration": {"level": 0, "checksum": False}}]
    said = {
        "shape": list(shape),
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": {"b": False, "f": 0.0}.get(dtype.kind, 0),
        "codecs": [{"name": "bytes", **order}, *(zstd if compress else [])],
        "attributes": {},
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
    return json.dumps(said, indent=2).encode()


def described_group(attributes: dict[str, Any]) -> bytes:
    """Write what Zarr says of a group with attributes."""
    return json.dumps({"attributes": attributes, "zarr_format": 3, "node_type": "group"}, indent=2).encode()


def _codec(dtype: DType) -> Any:
    import numcodecs.zstd

    said = json.loads(_example(dtype.newbyteorder("<").str, 1, True))["codecs"][-1]
    if said["name"] != "zstd":
        raise NotImplementedError(f"Zarr compresses {dtype} by {said['name']}")
    return numcodecs.zstd.Zstd(**said["configuration"])


@functools.lru_cache(maxsize=1)
def _decoder() -> Any:
    import numcodecs.zstd

    return numcodecs.zstd.Zstd()  # the level is of no account where nothing is compressed


def write_array(
    put: Callable[[str, Any], None], name: str, values: Rows, chunks: tuple[int, ...], *, compress: bool
) -> None:
    """Write an array, a chunk at a time, and last what is said of it.

    Parameters
    ----------
    put : callable
        Takes a file's name in the group and its bytes.
    name : str
        The array's.
    values : numpy.ndarray or Rows
        What to write; it has dims.
    chunks : tuple of int
        Of a chunk, which holds whole rows.
    compress : bool
        Whether chunks are compressed.
    """
    little = values.dtype.newbyteorder("<")
    codec = _codec(little) if compress else None
    for number in range(-(-values.shape[0] // chunks[0]) if math.prod(values.shape) else 0):
        piece = np.asarray(values[number * chunks[0] : (number + 1) * chunks[0]], dtype=little, order="C")
        if len(piece) < chunks[0]:  # the last chunk is as large as all others
            piece = np.concatenate([piece, np.zeros((chunks[0] - len(piece), *piece.shape[1:]), dtype=little)])
        data: Any = piece.reshape(-1).view(np.uint8)
        put(_key(name, number, len(chunks)), memoryview(data) if codec is None else codec.encode(data))
    put(f"{name}/{SAID}", described(values.shape, little, chunks, compress=compress))


def _key(name: str, number: int, ndim: int) -> str:
    return f"{name}/c/{number}" + "/0" * (ndim - 1)


class PlainArray:
    """An array as `write_array` writes it, whose rows are read when they are asked for.

    Parameters
    ----------
    read : callable
        Gives the bytes of a file of the group.
    name : str
        The array's.
    shape, chunks : tuple of int
        Of the array and its chunks.
    dtype : numpy.dtype
        Of its numbers.
    compressed : bool
        Whether chunks are compressed.
    """

    def __init__(
        self,
        read: Callable[[str], bytes],
        name: str,
        shape: tuple[int, ...],
        chunks: tuple[int, ...],
        dtype: DType,
        *,
        compressed: bool,
    ) -> None:
        self._read, self._name, self._compressed = read, name, compressed
        self.shape, self.chunks, self.dtype = shape, chunks, dtype

    def _chunk(self, number: int) -> AnyArray:
        data: Any = self._read(_key(self._name, number, len(self.chunks)))
        if self._compressed:
            place = np.empty(math.prod(self.chunks) * self.dtype.itemsize, dtype=np.uint8)
            data = _decoder().decode(data, out=place)
        return np.frombuffer(data, dtype=self.dtype).reshape(self.chunks)

    def __getitem__(self, rows: Any, /) -> AnyArray:
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            whole = self[:]
            return whole if rows is Ellipsis else np.asarray(whole[rows])
        first, last, _ = rows.indices(self.shape[0])
        found = np.empty((max(last - first, 0), *self.shape[1:]), dtype=self.dtype)
        if not found.size:
            return found
        size = self.chunks[0]
        numbers = range(first // size, -(-last // size))
        for number, piece in zip(numbers, self._chunks(numbers), strict=True):
            low, high = max(number * size, first), min((number + 1) * size, last)
            found[low - first : high - first] = piece[low - number * size : high - number * size]
        return found

    def _chunks(self, numbers: range) -> Iterator[AnyArray]:
        if len(numbers) == 1:
            yield self._chunk(numbers[0])
            return
        with ThreadPoolExecutor(READERS) as pool:
            for low in range(numbers.start, numbers.stop, READERS):  # no more chunks are held than are read
                yield from pool.map(self._chunk, range(low, min(low + READERS, numbers.stop)))


def plain_array(read: Callable[[str], bytes], name: str, said: bytes) -> PlainArray | None:
    """Open an array, if what is said of it is what `write_array` says.

    Parameters
    ----------
    read : callable
        Gives the bytes of a file of the group.
    name : str
        The array's.
    said : bytes
        Its ``zarr.json``.

    Returns
    -------
    PlainArray or None
        None for any other array.
    """
    try:
        found = json.loads(said)
        shape, chunks = tuple(found["shape"]), tuple(found["chunk_grid"]["configuration"]["chunk_shape"])
        dtype = np.dtype(str(found["data_type"])).newbyteorder("<")
        compressed = len(found["codecs"]) == 2
        if compressed and found["codecs"][1]["name"] != "zstd":
            return None
        whole = all(type(size) is int and size >= low for sizes, low in ((shape, 0), (chunks, 1)) for size in sizes)
        ours = whole and shape and len(shape) == len(chunks) and dtype.kind in KINDS and dtype.itemsize <= 8
        if not ours or chunks[1:] != tuple(max(size, 1) for size in shape[1:]):
            return None
        if all(text(shape, dtype, chunks, compress=compressed) != said for text in (usual_text, described)):
            return None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return PlainArray(read, name, shape, chunks, dtype, compressed=compressed)


def plain_group(said: bytes) -> dict[str, Any] | None:
    """Return a group's attributes, if what is said of it is what `described_group` says."""
    try:
        attributes = json.loads(said)["attributes"]
        return attributes if described_group(attributes) == said else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
