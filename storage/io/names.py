"""Names of files and folders inside a folder: records and manifests hold them, and anyone may have written those."""

from __future__ import annotations

import os
from pathlib import Path

from collapsium.storage.errors import DamagedError


def is_name(name: str) -> bool:
    """Return True if file systems and stores can have a file of this name; JSON and TOML can contain others."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return "\0" not in name


def require_inside(url: str, name: str) -> str:
    """Return a name inside the folder of a URL; raise `DamagedError` if it would leave the folder."""
    if not is_name(name):
        expected = f"the name {name[:200]!r} holds NUL or half of a surrogate pair"
        raise DamagedError(url, expected, "manifest")
    parts = name.split("/")
    if not name or "\\" in name or ":" in name or any(part in ("", ".", "..") for part in parts):
        raise DamagedError(url, f"the name {name!r} would leave the folder", "manifest")
    return name


def require_unlinked(url: str, path: str, name: str) -> None:
    """Raise an error for a name inside a local folder that is a symbolic link, or lies behind one.

    The folder itself may be a link, because its user has named it. Its contents may come from anyone, and a link there
    would have files outside read, overwritten or deleted.
    """
    parts = name.split("/")
    for end in range(1, len(parts) + 1):
        inner = "/".join(parts[:end])
        if Path(f"{path}/{inner}").is_symlink():
            raise DamagedError(
                url,
                f"{inner} is a symbolic link, which may lead anywhere; put what it leads to in its place",
            )
