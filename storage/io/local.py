"""Files on this machine, written whole or not at all, and on the disk once a record may rely on them."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

Guard = Callable[[], AbstractContextManager[None]]  # entered for the moment in which names or contents change
UNSYNCED = {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EBADF, errno.EISDIR, errno.ENOSYS}


def unguarded() -> AbstractContextManager[None]:
    """Return a guard's moment that asks nobody."""
    return contextlib.nullcontext()


def sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk: after a power cut a renamed or new file is there only then."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        if error.errno in UNSYNCED:  # systems where a folder cannot be opened
            return
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in UNSYNCED:
            raise
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, with their names on the disk."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        if path.parent == path:
            break
        path = path.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_folder(one.parent)


def _make_ready(folder: Path, guard: Guard) -> None:
    """Make a folder to write into; one that is not there may belong to others by now."""
    if not folder.is_dir():
        with guard():
            make_folder(folder)


def _sync_file(path: Path) -> None:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def write_whole(path: Path, data: bytes | memoryview, *, replace: bool, guard: Guard = unguarded) -> None:
    """Write a local file beside its place and move it there; `FileExistsError` if it shall not replace another."""
    _make_ready(path.parent, guard)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        with guard():
            if replace:
                part.replace(path)
            else:
                os.link(part, path)
        sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def append(path: Path, data: bytes | memoryview, guard: Guard = unguarded) -> None:
    """Append to a local file, all or nothing."""
    _make_ready(path.parent, guard)
    # Without a buffer: closing a file writes what is left in its buffer, after the part before it was cut off again.
    with guard(), path.open("ab", buffering=0) as handle:
        before, rest = handle.seek(0, os.SEEK_END), memoryview(data)
        try:
            while rest:
                rest = rest[handle.write(rest) :]
        except OSError:
            handle.truncate(before)
            raise


def truncate(path: Path, size: int, guard: Guard = unguarded) -> None:
    """Leave the first bytes of a local file; one that is not longer stays as it is."""
    with guard():
        if path.stat().st_size > size:
            os.truncate(path, size)


def copy_whole(source: Path, target: Path, guard: Guard = unguarded) -> None:
    """Copy a file, whole or not at all."""
    _make_ready(target.parent, guard)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        shutil.copyfile(source, part)
        _sync_file(part)
        with guard():
            part.replace(target)
        sync_folder(target.parent)
    finally:
        part.unlink(missing_ok=True)


def rename(source: Path, target: Path, guard: Guard = unguarded) -> None:
    """Give a file, folder or link another name."""
    with guard():
        source.replace(target)
    sync_folder(target.parent)
    if source.parent != target.parent:
        sync_folder(source.parent)


def remove_folder(path: Path, guard: Guard | None = None) -> None:
    """Remove a folder with all that it holds; under a guard, it goes from its place at once."""
    if guard is None:
        shutil.rmtree(path, ignore_errors=True)
        return
    gone = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    with guard():
        try:
            path.rename(gone)
        except FileNotFoundError:
            return
        except OSError:  # such as a place where a disk is mounted
            shutil.rmtree(path, ignore_errors=True)
            return
    shutil.rmtree(gone, ignore_errors=True)
