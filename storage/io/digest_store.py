"""A Zarr store of files with digests, and all else for which our files need Zarr, whose import takes long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

import numpy as np
import zarr
import zarr.abc.store
from zarr.codecs import BytesCodec, ZstdCodec
from zarr.storage import MemoryStore

from collapsium.storage.io.digested_files import DigestedFiles, is_metadata
from collapsium.storage.io.folder import Folder

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype
    from zarr.core.metadata.v3 import ArrayV3Metadata


class DigestStore(DigestedFiles, zarr.abc.store.Store):
    """A Zarr store in a folder that records the SHA-256 of each of its files.

    Files without a digest do not exist for it. A file that does not match its digest is an error. Files that it
    writes replace existing ones, and their digests are added.
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, folder: Folder, files: dict[str, str], *, read_only: bool) -> None:
        zarr.abc.store.Store.__init__(self, read_only=read_only)
        DigestedFiles.__init__(self, folder, files)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DigestStore) and other.folder.url == self.folder.url

    __hash__ = None  # type: ignore[assignment]

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return the bytes of a file; None without a digest."""
        if key not in self.files:
            return None
        if byte_range is not None:
            raise NotImplementedError("a digest belongs to a complete file")
        data = self.metadata[key] if is_metadata(key) else await asyncio.to_thread(self.read, key)
        return prototype.buffer.from_bytes(data)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Read several files."""
        return [await self.get(key, prototype, span) for key, span in key_ranges]

    async def exists(self, key: str) -> bool:
        """Return True if a file has a digest."""
        return key in self.files

    async def set(self, key: str, value: Buffer) -> None:
        """Write a file."""
        data = np.asarray(value.as_numpy_array()).data.cast("B")
        if is_metadata(key):
            self.metadata[key], self.files[key] = bytes(data), ""
            return
        self.files[key] = await asyncio.to_thread(self.folder.write, key, data)

    async def delete(self, key: str) -> None:
        """Remove a file's digest."""
        self.files.pop(key, None)
        self.metadata.pop(key, None)

    async def list(self) -> AsyncIterator[str]:
        """Yield the names of all files."""
        for key in sorted(self.files):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of the files with a prefix."""
        for key in sorted(self.files):
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly inside a folder."""
        start = f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""
        for name in sorted({key[len(start) :].split("/")[0] for key in self.files if key.startswith(start)}):
            yield name


def open_group(folder: Folder, files: dict[str, str]) -> zarr.Group:
    """Open a group of arrays to read, whose files have these digests."""
    return zarr.open_group(DigestStore(folder, files, read_only=True), mode="r", zarr_format=3)


def open_array(folder: Folder, files: dict[str, str]) -> zarr.Array[ArrayV3Metadata]:
    """Open an array to read, whose files have these digests."""
    return zarr.open_array(DigestStore(folder, files, read_only=True), mode="r", zarr_format=3)


def empty_array(store: DigestStore, rows: int, columns: int) -> zarr.Array[ArrayV3Metadata]:
    """Create an array of float64 without rows, in chunks of complete rows."""
    return zarr.create_array(
        store,
        shape=(0, columns),
        chunks=(rows, columns),
        dtype="float64",
        zarr_format=3,
        # A missing chunk is damage, not zeros.
        config={"write_empty_chunks": True},
    )


def has_plain_codecs(array: zarr.Array[ArrayV3Metadata]) -> bool:
    """Return True if an array's codecs only store and compress numbers."""
    return all(isinstance(codec, (BytesCodec, ZstdCodec)) for codec in getattr(array.metadata, "codecs", ()))


def example_metadata(dtype: str, ndim: int, compress: bool) -> str:
    """Return Zarr's metadata of an array with one value."""
    files: dict[str, Buffer] = {}
    one = (1,) * ndim
    zarr.create_array(
        MemoryStore(files),
        shape=one,
        chunks=one,
        dtype=np.dtype(dtype),
        zarr_format=3,
        compressors="auto" if compress else None,
    )
    return files["zarr.json"].to_bytes().decode()
