"""Write, replace, sync and remove files and folders on this machine, so that each is complete or does not exist.

A file or folder is made under a hidden name beside its final name (`hidden_path`), synced, and then renamed. The
process holds a lock of the operating system on a hidden folder. The lock ends with the process, so an unlocked folder
is abandoned and may be removed. On file systems without such locks, such as some network mounts, no folder counts as
abandoned.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, TypeVar

T = TypeVar("T")
Guard = Callable[[], AbstractContextManager[None]]  # A context that is entered while names or contents change
Put = Callable[[str, "bytes | memoryview"], object]  # Writes a file, from its name within a folder and its bytes

UNSYNCED = {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EBADF, errno.EISDIR, errno.ENOSYS}


# Many files are synced at the same time, because disks combine requests that wait together.
# Threads that sync: 60 files of 72 MB took 0.05 s instead of 0.2 s one by one, and no less with 16 threads
SYNC_THREADS = 8
MAX_UNSYNCED_FILES = 64  # Files that stay open until they are synced together


def hidden_path(path: Path) -> Path:
    """Return a new hidden name beside a path, under which its file or folder can be made."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")


def is_hidden(name: str) -> bool:
    """Return True if a file or folder of this name was never finished, or is being removed."""
    return name.startswith(".") and name.endswith(".part")


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


def sync_folder(path: Path | str) -> None:
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


def make_folder(path: Path) -> None:
    """Make a folder and its parents, and sync their names to the disk."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        if path.parent == path:
            break
        path = path.parent
    for parent in reversed(missing):
        parent.mkdir(exist_ok=True)
        sync_folder(parent.parent)


def _make_ready(folder: Path, guard: Guard) -> None:
    """Make a folder to write into, under the guard if it is new, because it may belong to another process by now."""
    if not folder.is_dir():
        with guard():
            make_folder(folder)


def write_atomically(
    path: Path,
    data: bytes | memoryview,
    *,
    replace: bool,
    guard: Guard = contextlib.nullcontext,
) -> None:
    """Write a file atomically by renaming a temporary one."""
    _make_ready(path.parent, guard)
    part = hidden_path(path)
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


def write_folder(path: Path, fill: Callable[[Put], T], guard: Guard = contextlib.nullcontext) -> T:
    """Write all files of a folder, which replaces an existing one when all of them are synced."""
    _make_ready(path.parent, guard)
    part = hidden_path(path)
    folders, handles = {""}, list[IO[bytes]]()

    def put(name: str, data: bytes | memoryview) -> None:
        folder = name.rpartition("/")[0]
        if folder not in folders:
            os.makedirs(f"{part}/{folder}", exist_ok=True)  # noqa: PTH103
        while folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
        handles.append(open(f"{part}/{name}", "xb", buffering=0))  # noqa: PTH123, SIM115
        _write(handles[-1], data)
        if len(handles) == MAX_UNSYNCED_FILES:
            _sync_all(handles)

    try:
        part.mkdir()
        with claimed(part):
            result = fill(put)
            _sync_all(handles, [f"{part}/{folder}" for folder in folders])
            with guard():
                try:
                    part.rename(path)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                    old = hidden_path(path)
                    path.rename(old)
                    try:
                        part.rename(path)
                    except BaseException:
                        old.rename(path)
                        raise
                    _remove(old)
        sync_folder(path.parent)
    finally:
        for handle in handles:
            handle.close()
        _remove(part)
    return result


def _write(handle: IO[bytes], data: bytes | memoryview) -> None:
    """Write all bytes to an unbuffered file, which may accept only a part of them at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[handle.write(rest) :]


def _sync_all(handles: list[IO[bytes]], paths: Sequence[str] = ()) -> None:
    """Sync files and close them, and sync the names in folders, several at a time; the list is empty afterwards."""

    def sync(first: int) -> None:
        for handle in handles[first::SYNC_THREADS]:
            os.fsync(handle.fileno())
            handle.close()
        for path in paths[first::SYNC_THREADS]:
            sync_folder(path)

    shares = min(SYNC_THREADS, max(len(handles), len(paths)))
    waiting = [_sync_threads().submit(sync, first) for first in range(shares)]
    try:
        for future in waiting:
            future.result()
    finally:
        # No thread may still sync a file that the caller closes.
        wait(waiting)
    handles.clear()


@functools.cache
def _sync_threads() -> ThreadPoolExecutor:
    """Return the threads that sync files for all threads of this process."""
    return ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="collapsium-sync")


# A forked process has none of the threads.
os.register_at_fork(after_in_child=_sync_threads.cache_clear)


def append(path: Path, data: bytes | memoryview, guard: Guard = contextlib.nullcontext) -> None:
    """Append to a file, all or nothing."""
    _make_ready(path.parent, guard)
    # Without a buffer, because closing the file would write the rest of its buffer after the truncation below.
    with guard(), path.open("ab", buffering=0) as handle:
        before = handle.seek(0, os.SEEK_END)
        try:
            _write(handle, data)
        except OSError:
            handle.truncate(before)
            raise


def truncate(path: Path, size: int, guard: Guard = contextlib.nullcontext) -> None:
    """Truncate a file to at most `size` bytes."""
    with guard():
        if path.stat().st_size > size:
            os.truncate(path, size)


def copy_atomically(source: Path, target: Path, guard: Guard = contextlib.nullcontext) -> None:
    """Copy a file atomically."""
    _make_ready(target.parent, guard)
    part = hidden_path(target)
    try:
        shutil.copyfile(source, part)
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        with guard():
            part.replace(target)
        sync_folder(target.parent)
    finally:
        part.unlink(missing_ok=True)


def share_atomically(source: Path, target: Path, guard: Guard = contextlib.nullcontext) -> None:
    """Give a file a second name, or copy it where file systems have no hard links or two file systems meet."""
    _make_ready(target.parent, guard)
    try:
        with guard():
            os.link(source, target)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in {*UNSYNCED, errno.EXDEV, errno.EMLINK}:
            raise
        copy_atomically(source, target, guard)
    else:
        sync_folder(target.parent)


def rename(source: Path, target: Path, guard: Guard = contextlib.nullcontext) -> None:
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
    hidden = hidden_path(path)
    with guard():
        try:
            path.rename(hidden)
        except FileNotFoundError:
            return
        # For example, a mount point cannot be renamed.
        except OSError:
            _remove(path)
            return
    _remove(hidden)


def _remove(path: Path) -> None:
    if path.is_symlink():
        return
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
