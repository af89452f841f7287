"""Write files on this machine atomically, and sync them before a record may refer to them."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

Guard = Callable[[], AbstractContextManager[None]]
"""A context that is entered while names or contents change."""

UNSYNCED = {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EBADF, errno.EISDIR, errno.ENOSYS}


def unguarded() -> AbstractContextManager[None]:
    """Return a guard that checks nothing."""
    return contextlib.nullcontext()


def sync_folder(path: Path) -> None:
    """Sync the names in a folder to the disk; without this a power cut loses new and renamed files."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        # Some systems cannot open a folder.
        if error.errno in UNSYNCED:
            return
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in UNSYNCED:
            raise
    finally:
        os.close(handle)


def make_folder(path: Path, unsynced: set[Path] | None = None) -> None:
    """Make a folder and its parents, and sync their names to the disk, or add the folders that must be synced."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        if path.parent == path:
            break
        path = path.parent
    for parent in reversed(missing):
        parent.mkdir(exist_ok=True)
        _sync_names(parent.parent, unsynced)


def _sync_names(folder: Path, unsynced: set[Path] | None) -> None:
    """Sync the names in a folder, or add it to the folders that must be synced."""
    if unsynced is None:
        sync_folder(folder)
    else:
        unsynced.add(folder)


def _make_ready(folder: Path, guard: Guard, unsynced: set[Path] | None = None) -> None:
    """Make a folder to write into, under the guard if it is new, as it may belong to another process by now."""
    if not folder.is_dir():
        with guard():
            make_folder(folder, unsynced)


def _sync_file(path: Path) -> None:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def write_atomically(
    path: Path,
    data: bytes | memoryview,
    *,
    replace: bool,
    guard: Guard = unguarded,
    unsynced: set[Path] | None = None,
) -> None:
    """Write a file atomically by renaming a temporary one.

    Parameters
    ----------
    path : Path
        The file; missing folders are made.
    data : bytes or memoryview
        The contents.
    replace : bool
        Whether it may replace another file.
    guard : callable, optional
        Context that is entered while names change.
    unsynced : set of Path, optional
        Gets the folders with new names, which the caller syncs before a record refers to the file. Otherwise they are
        synced at once.

    Raises
    ------
    FileExistsError
        The file exists, and may not be replaced.
    """
    _make_ready(path.parent, guard, unsynced)
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
        _sync_names(path.parent, unsynced)
    finally:
        part.unlink(missing_ok=True)


def append(path: Path, data: bytes | memoryview, guard: Guard = unguarded) -> None:
    """Append to a file, all or nothing."""
    _make_ready(path.parent, guard)
    # Without a buffer, as closing the file would write the rest of its buffer after the truncation below.
    with guard(), path.open("ab", buffering=0) as handle:
        before, rest = handle.seek(0, os.SEEK_END), memoryview(data)
        try:
            while rest:
                rest = rest[handle.write(rest) :]
        except OSError:
            handle.truncate(before)
            raise


def truncate(path: Path, size: int, guard: Guard = unguarded) -> None:
    """Truncate a file to at most `size` bytes."""
    with guard():
        if path.stat().st_size > size:
            os.truncate(path, size)


def copy_atomically(source: Path, target: Path, guard: Guard = unguarded) -> None:
    """Copy a file atomically."""
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
    """Rename a file, folder or link."""
    with guard():
        source.replace(target)
    sync_folder(target.parent)
    if source.parent != target.parent:
        sync_folder(source.parent)


def remove_folder(path: Path, guard: Guard | None = None) -> None:
    """Remove a folder and its contents, or a file; under a guard, its name disappears at once."""
    if guard is None:
        _remove(path)
        return
    gone = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    with guard():
        try:
            path.rename(gone)
        except FileNotFoundError:
            return
        # For example, a mount point cannot be renamed.
        except OSError:
            _remove(path)
            return
    _remove(gone)


def _remove(path: Path) -> None:
    if path.is_symlink():
        return
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
