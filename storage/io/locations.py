"""Tell local paths from URLs, and open the file system of either."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


LOCAL = ("file://", "local://")
# Protocols of fsspec that stand before another URL, with `::` between
CHAINS = ("zip", "tar", "libarchive", "dir", "simplecache", "filecache", "blockcache", "cached", "asynclocal")


def is_url(name: str) -> bool:
    """Return True for an fsspec URL; any name without ``://`` is a local path, whatever other signs it holds."""
    return "://" in name and not name.startswith(LOCAL)


def locate(name: str) -> tuple[AbstractFileSystem, str]:
    """Return the file system of a local path or fsspec URL, and the path in it.

    fsspec itself would read ``std::vector.txt`` as a chain of URLs and ``data:2020.csv`` as data.
    """
    from fsspec import core

    if not is_url(name):
        name = next((name.removeprefix(prefix) for prefix in LOCAL if name.startswith(prefix)), name)
        if name.startswith("~") and os.path.lexists(name):
            name = f"./{name}"
        import fsspec
        from fsspec.implementations import local as local_files

        return fsspec.filesystem("file"), local_files.make_path_posix(name).rstrip("/") or "/"
    head, chained, rest = name.partition("::")
    if not chained or head.partition("://")[0] in CHAINS:
        fs, path = core.url_to_fs(name)
        return fs, str(path)
    # Further colons belong to the name of an object, unless a protocol stands before them.
    fs, path = core.url_to_fs(head)
    return fs, f"{path}{chained}{rest}"
