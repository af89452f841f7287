"""Reader of Zarr arrays of vectors x columns from any program, a few chunks at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import zarr
import zarr.codecs
import zarr.storage

from collapsium.storage.errors import InputError, OptionError, suggestion
from collapsium.storage.io.arrays import MOST_CHUNK_BYTES
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.parquet import LEAST_LIMIT, RATIO
from collapsium.storage.readers.read_options import Guess, ReadOptions
from collapsium.storage.readers.vectors.base import CHUNK_VALUES, VectorChunk, layout_of
from collapsium.storage.readers.vectors.numpy_file import chunk_of, chunks_of, width_of
from collapsium.storage.units import size

# An array may claim `MISSING` chunks for each existing chunk, after `FEW_CHUNKS` is added to the existing ones.
FEW_CHUNKS, MISSING = 1000, 20
# Only codecs that move and compress numbers are accepted, because others could unpickle objects.
_CODECS = ("BytesCodec", "ZstdCodec", "GzipCodec", "BloscCodec", "Crc32cCodec", "TransposeCodec")  # of zarr.codecs
_OLD_CODECS = ("zstd", "blosc", "gzip", "zlib", "lz4", "bz2", "lzma")  # of Zarr's format 2

# Exceptions that Zarr raises for damaged files
FAULTS = (OSError, ValueError, LookupError, TypeError, RuntimeError, AttributeError, ArithmeticError)


class ZarrFile:
    """A Zarr array of vectors x columns, of format 2 or 3."""

    guesses: tuple[Guess, ...] = ()

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.name = path
        with _fault(path):
            self._array = self._opened(options.values)
            _require_plain(path, self._array)
            _require_there(path, self._array, options.max_decompressed)
        self.layout = layout_of(options, (), width_of(path, self._array.shape, self._array.dtype), path)
        self.fields = tuple(field for field, _ in self.layout.labels)

    def _opened(self, name: str | None) -> Any:
        folder = Folder(self.name)
        store: Any = (
            zarr.storage.LocalStore(folder.path, read_only=True)
            if folder.local
            else zarr.storage.FsspecStore.from_url(self.name, read_only=True)
        )
        node = zarr.open(store, mode="r")
        if not isinstance(node, zarr.Group):
            if name is not None:
                raise OptionError(f"`values` {name}: {self.name} is one array, which has no name")
            return node
        arrays = dict(node.arrays())
        if name is not None and name not in arrays:
            raise OptionError(f"`values` {name}: {self.name} has no such array{suggestion(name, arrays)}")
        if name is None and len(arrays) != 1:
            raise InputError(
                self.name, f"expected one array, found {', '.join(sorted(arrays)) or 'none'} (`values` NAME)"
            )
        return arrays[name if name is not None else next(iter(arrays))]

    def chunks(self) -> Iterator[VectorChunk]:
        """Yield the vectors in complete Zarr chunks, about 4 million values at a time."""
        count, width = self._array.shape
        chunk = self._array.chunks[0]
        step = max(CHUNK_VALUES // (width * chunk), 1) * chunk
        for first in range(0, count, step):
            with _fault(self.name):
                rows = np.asarray(self._array[first : first + step])
            for part in chunks_of(rows):
                yield chunk_of(self, part)


def _require_plain(path: str, array: Any) -> None:
    """Raise an error if reading an array could execute code or exhaust memory."""
    metadata = array.metadata
    if metadata.zarr_format == 2:
        compressor = metadata.compressor
        plain = not metadata.filters and (compressor is None or compressor.codec_id in _OLD_CODECS)
    else:
        plain = all(_is_plain(codec) for codec in metadata.codecs)
    if not plain:
        raise InputError(path, "expected an array of plain numbers, compressed at most")
    if len(array.shape) != 2:
        return
    if min(array.chunks) < 1:
        raise InputError(path, f"expected chunks of one value or more, found {array.chunks}")
    if math.prod(array.chunks) * array.dtype.itemsize > MOST_CHUNK_BYTES:
        raise InputError(path, f"expected chunks of at most {size(MOST_CHUNK_BYTES)}")


def _require_there(path: str, array: Any, limit: int | None) -> None:
    """Raise an error if an array expands to far more than its files, or if most of its chunks are missing.

    Zarr reads missing chunks as zeros, so an empty folder could claim any size.
    """
    expected = math.prod(-(-length // chunk) for length, chunk in zip(array.shape, array.chunks, strict=True))
    folder = Folder(path) / array.path if array.path else Folder(path)
    if expected > FEW_CHUNKS:
        # Zarr would look up each chunk, for minutes if the metadata claims millions, so files are counted instead.
        names = (name.rsplit("/", 1)[-1] for name in folder.files())
        each = math.prod(array.shards) // math.prod(array.chunks) if array.shards else 1
        present = each * sum(not name.startswith(".") and name != "zarr.json" for name in names)
        if expected > MISSING * (present + FEW_CHUNKS):
            raise InputError(path, f"expected most of its {expected} chunks, found {present}")
    total = expected * math.prod(array.chunks) * array.dtype.itemsize
    if total <= LEAST_LIMIT and limit is None:
        return
    allowed = max(LEAST_LIMIT, RATIO * folder.size()) if limit is None else limit
    if total > allowed:
        raise InputError(
            path,
            f"more than {size(allowed)} come out of it, as of an array that is made to fill memory and disk; if it is "
            "to be trusted, raise the limit (`max_decompressed`)",
        )


def _is_plain(codec: Any) -> bool:
    if isinstance(codec, zarr.codecs.ShardingCodec):
        return all(_is_plain(codec_record) for codec_record in (*codec.codecs, *codec.index_codecs))
    return isinstance(codec, tuple(getattr(zarr.codecs, name) for name in _CODECS))


class _fault:  # noqa: N801 - used as a statement
    """Replace Zarr's exceptions about a damaged array by an error that names the array."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Enter the block; nothing is opened."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FAULTS) and not isinstance(error, (InputError, OptionError)):
            raise InputError(self._path, f"expected a Zarr array ({str(error)[:200]})") from None
