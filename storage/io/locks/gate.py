"""The gate: a file that is locked by the operating system for the moment of a write, where its file system can."""

from __future__ import annotations

import errno
import os
from pathlib import Path

GATE = "gate"

NO_LOCKS = {errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS, errno.EBADF, errno.EINVAL}  # of file systems without them


def open_gate(path: Path) -> int | None:
    """Open and lock a file; None where the file system has no locks, `BlockingIOError` where another has it."""
    try:
        import fcntl
    except ImportError:
        return None
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
    except PermissionError:  # made by another user
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
