"""A single file at any fsspec URL."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from collapsium.storage.io import local
from collapsium.storage.io.retry import patiently


class File:
    """A single file at any fsspec URL, to be written.

    Parameters
    ----------
    url : str or path-like
        A local path or an fsspec URL.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        fs, path = url_to_fs(os.fspath(url))
        self._fs: Any = fs
        self._path = str(path)

    def exists(self) -> bool:
        """Tell whether there is something already."""
        return patiently(self._path, lambda: bool(self._fs.exists(self._path)))

    def remove(self) -> None:
        """Remove the file; nothing happens where there is none."""
        with contextlib.suppress(FileNotFoundError):
            patiently(self._path, lambda: self._fs.rm_file(self._path))

    def put(self, source: Path) -> None:
        """Copy a local file there, piece by piece; a local target is there whole or not at all."""
        if isinstance(self._fs, LocalFileSystem):
            patiently(self._path, lambda: local.copy_whole(source, Path(self._path)))
        else:
            patiently(self._path, lambda: self._fs.put_file(str(source), self._path))
