"""A store for Zarr that reads and writes files with digests; apart from `arrays`, as Zarr takes long to import."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import zarr.abc.store

from collapsium.storage.io.digested_files import DigestedFiles, is_said
from collapsium.storage.io.folder import Folder


class DigestStore(DigestedFiles, zarr.abc.store.Store):
    """A Zarr store in a folder that knows the SHA-256 of each of its files.

    What it reads is what the digests say, or an error; what is not among them is not there. What it writes it adds to
    them, over whatever lay there before.

    Parameters
    ----------
    folder : Folder
        Where the files lie.
    files : dict of str to str
        Digest of each file.
    read_only : bool
        Whether nothing can be written.
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

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Read a file; none that has no digest."""
        if key not in self.files:
            return None
        if byte_range is not None:
            raise NotImplementedError("digests are of whole files")
        data = self.said[key] if is_said(key) else await asyncio.to_thread(self.read, key)
        return prototype.buffer.from_bytes(data)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """Read several files."""
        return [await self.get(key, prototype, span) for key, span in key_ranges]

    async def exists(self, key: str) -> bool:
        """Tell whether a file has a digest."""
        return key in self.files

    async def set(self, key: str, value: Any) -> None:
        """Write a file."""
        data = memoryview(value.as_numpy_array()).cast("B")
        if is_said(key):
            self.said[key], self.files[key] = bytes(data), ""
            return
        self.files[key] = await asyncio.to_thread(self.folder.write, key, data)

    async def delete(self, key: str) -> None:
        """Forget a file."""
        self.files.pop(key, None)
        self.said.pop(key, None)

    async def list(self) -> AsyncIterator[str]:
        """Name all files."""
        for key in sorted(self.files):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Name the files that begin so."""
        for key in sorted(self.files):
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Name what lies directly in a folder."""
        start = f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""
        for name in sorted({key[len(start) :].split("/")[0] for key in self.files if key.startswith(start)}):
            yield name
