"""The gate: a file that the operating system locks during a write, on file systems that support this."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

GATE = "gate"

# Errors of file systems without locks
NO_LOCKS = {errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS, errno.EBADF, errno.EINVAL}


class Gate:
    """A file that is locked during writes; the operating system unlocks it when its holder dies.

    An interrupt may come between any two steps, so that a file is noted before it is locked: `unlock` then finds it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    @property
    def is_open(self) -> bool:
        """True if the file is open; once `lock` has returned, it is on file systems that have locks."""
        return self._handle is not None

    def lock(self) -> None:
        """Open and lock the file; raise `BlockingIOError` if another process holds it."""
        # What an interrupt left open would keep this process itself out.
        self.unlock()
        flags = os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | flags, 0o666)
        # Another user may have made the file.
        except PermissionError:
            self._handle = os.open(self._path, os.O_RDONLY | flags)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.unlock()
            if error.errno not in NO_LOCKS:
                raise

    def unlock(self) -> None:
        """Close the file, which unlocks it; nothing happens if it is not open."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def is_at(self) -> bool:
        """Return whether the open file is still the one of its name."""
        try:
            return self._handle is not None and os.path.samestat(self._path.lstat(), os.fstat(self._handle))
        except FileNotFoundError:
            return False
