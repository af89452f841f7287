"""A single file at any fsspec URL."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from collapsium.storage.io import local
from collapsium.storage.io.locations import locate
from collapsium.storage.io.retry import with_retries

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


class File:
    """A single file at any fsspec URL, to be written."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        fs, path = locate(os.fspath(url))
        self._fs: AbstractFileSystem = fs
        self._path = path

    def exists(self) -> bool:
        """Return True if the file exists."""
        return with_retries(self._path, lambda: bool(self._fs.exists(self._path)))

    def remove(self) -> None:
        """Remove the file if it exists."""
        with contextlib.suppress(FileNotFoundError):
            with_retries(self._path, lambda: self._fs.rm_file(self._path))

    def write(self, content: bytes) -> None:
        """Write the file; a local one is written atomically."""
        with tempfile.TemporaryDirectory(prefix="collapsium-") as place:
            part = Path(place) / "part"
            part.write_bytes(content)
            self.put(part)

    def put(self, source: Path) -> None:
        """Copy a local file here; a local target is written atomically."""
        from fsspec.implementations import local as local_files

        if isinstance(self._fs, local_files.LocalFileSystem):
            with_retries(self._path, lambda: local.copy_atomically(source, Path(self._path)))
        else:
            with_retries(self._path, lambda: self._fs.put_file(str(source), self._path))
