"""Hidden folders under construction, and their removal after their process has died.

The process holds a lock of the operating system on its folder. The lock ends with the process, however that ends, so
that an unlocked folder is abandoned. On file systems without such locks, as some network mounts, no folder counts as
abandoned.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def hidden_path(path: Path) -> Path:
    """Return a new hidden name beside a path, under which the folder of that path can be made."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Hold the lock on a folder."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _lock(handle)
        if not os.path.samestat(os.fstat(handle), path.lstat()):
            raise FileNotFoundError(path)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    """Lock an open folder and return True; return False if the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


@contextmanager
def abandoned(path: Path) -> Iterator[list[Path]]:
    """Find and lock the user's hidden folders of a path whose processes are dead."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.part")
    handles, paths = [], []
    try:
        with contextlib.suppress(OSError):
            for place in sorted(place for place in path.parent.iterdir() if pattern.fullmatch(place.name)):
                with contextlib.suppress(OSError):
                    handles.append(os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
                    if os.fstat(handles[-1]).st_uid == os.geteuid() and _lock(handles[-1]):
                        paths.append(place)
        yield paths
    finally:
        for handle in handles:
            os.close(handle)


def remove_abandoned(path: Path) -> None:
    """Remove the folders that dead processes have left under hidden names."""
    with abandoned(path) as places:
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
