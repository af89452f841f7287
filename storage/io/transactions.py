"""Make or replace folders atomically."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collapsium.storage.errors import CollapsiumError, OccupiedError, StoreError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.unfinished import claimed, hidden_path, remove_abandoned


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
