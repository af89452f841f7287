"""The gate: a file that the operating system locks during a write, on file systems that support this."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

GATE = "gate"

NO_LOCKS = {errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS, errno.EBADF, errno.EINVAL}
"""Errors of file systems without locks."""


def open_gate(path: Path) -> int | None:
    """Open and lock a file, or return None without file locks; raise `BlockingIOError` if another process holds it."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
    # Another user may have made the file.
    except PermissionError:
        handle = os.open(path, os.O_RDONLY | flags)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno in NO_LOCKS:
            return None
        raise
    return handle


def is_at(path: Path, handle: int) -> bool:
    """Return whether an open file is still the one of its name."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False
