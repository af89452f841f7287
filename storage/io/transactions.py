"""Make or replace folders atomically.

Hidden folders under construction, and their removal after their process has died.

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

from collapsium.storage.errors import CollapsiumError, OccupiedError, StoreError
from collapsium.storage.io.folder import Folder


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


def ensure_free(folder: Folder) -> None:
    """Raise an error for an output folder that exists."""
    if folder.exists():
        raise OccupiedError(f"{folder.url}: exists already; name a new folder or remove this one")


@contextmanager
def unfinished(folder: Folder) -> Iterator[Folder]:
    """Make a temporary folder to write in, and remove it at the end unless it was renamed.

    On a local disk it is a hidden folder beside the target; those of dead processes are removed first. On other stores
    it is the target itself, which is removed on failure.
    """
    if not folder.local:
        folder.make()
        try:
            yield folder
        except BaseException:
            # The first error is the one to report.
            with contextlib.suppress(CollapsiumError):
                folder.remove()
            raise
        return
    remove_abandoned(Path(folder.path))
    with contextlib.ExitStack() as held:
        while True:
            place = Folder(str(hidden_path(Path(folder.path))))
            place.make()
            held.callback(place.remove)
            try:
                held.enter_context(claimed(Path(place.path)))
                break
            # Another process may remove the folder before it is locked here.
            except (FileNotFoundError, BlockingIOError):
                continue
            except OSError as error:
                raise StoreError(f"{folder.url}: {error.strerror or error}") from error
        yield place


@contextmanager
def created(folder: Folder) -> Iterator[Folder]:
    """Make a folder that exists either complete or not at all.

    A local folder is written under a hidden name and renamed at the end; see `unfinished`. On other stores a rename is
    a copy, so files are written to the target and removed on failure. Readers begin at the manifest, which is written
    last.
    """
    ensure_free(folder)
    with unfinished(folder) as place:
        yield place
        if place is not folder:
            ensure_free(folder)
            try:
                place.rename(folder)
            except CollapsiumError:
                # The rename has happened, but could not be synced.
                if not place.exists():
                    folder.remove()
                raise


@contextmanager
def replaced(folder: Folder) -> Iterator[Folder]:
    """Make a folder that exists either complete or not at all, in place of an existing one."""
    if not folder.local:
        folder.remove()
    if not folder.exists():
        with created(folder) as place:
            yield place
        return
    old = Folder(str(hidden_path(Path(folder.path))))
    with unfinished(folder) as new:
        yield new
        with folder.guard():
            folder.rename(old)
            try:
                new.rename(folder)
            except BaseException:
                old.rename(folder)
                raise
    old.remove()


def remove_parts(folder: Folder) -> None:
    """Remove the temporary files and folders directly inside a folder; only the owner of its lock may."""
    for name in folder.names():
        if name.startswith(".") and name.endswith(".part"):
            (folder / name).remove()
