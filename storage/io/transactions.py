"""Transactions: folders that are made or replaced as a whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collapsium.storage.errors import CollapsiumError, OccupiedError, StoreError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.unfinished import claimed, hidden_path, remove_abandoned


def ensure_free(folder: Folder) -> None:
    """Refuse an output folder that exists.

    Parameters
    ----------
    folder : Folder
        Where something is to be written.

    Raises
    ------
    OccupiedError
        There is something already.
    """
    if folder.exists():
        raise OccupiedError(f"{folder.url}: exists already; name a new folder or remove this one")


@contextmanager
def unfinished(folder: Folder) -> Iterator[Folder]:
    """Make a place to write a folder in, and remove it at the end unless it was renamed.

    A local one is hidden beside its folder; what processes that died have left there is removed first. On other stores
    it is the folder itself, which is removed on failure.

    Parameters
    ----------
    folder : Folder
        The folder that is to be made.

    Yields
    ------
    Folder
        Where to write.
    """
    if not folder.local:
        folder.make()
        try:
            yield folder
        except BaseException:
            with contextlib.suppress(CollapsiumError):  # the first error is the one to tell
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
            except (FileNotFoundError, BlockingIOError):  # a process that cleans up met it before it was locked
                continue
            except OSError as error:
                raise StoreError(f"{folder.url}: {error.strerror or error}") from error
        yield place


@contextmanager
def created(folder: Folder) -> Iterator[Folder]:
    """Make a folder that is there whole or not at all.

    A local folder is written beside its place, under a hidden name, and renamed at the end; see `unfinished`. On other
    stores a rename is a copy, so files are put in place and removed again on failure; readers start at a manifest,
    which is written last.

    Parameters
    ----------
    folder : Folder
        The folder to make.

    Yields
    ------
    Folder
        Where to write.

    Raises
    ------
    OccupiedError
        The folder exists.
    """
    ensure_free(folder)
    with unfinished(folder) as place:
        yield place
        if place is not folder:
            ensure_free(folder)
            try:
                place.rename(folder)
            except CollapsiumError:
                if not place.exists():  # it has its name, which may not be on the disk yet
                    folder.remove()
                raise


@contextmanager
def replaced(folder: Folder) -> Iterator[Folder]:
    """Make a folder that is there whole or not at all, in place of the one that may be there.

    Parameters
    ----------
    folder : Folder
        The folder to make; see `created`. On stores other than local ones, what was there goes first.

    Yields
    ------
    Folder
        Where to write.
    """
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
