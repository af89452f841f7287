"""Single files at any fsspec URL, and what folders share with them: parsing of URLs, retries of failed operations."""

from __future__ import annotations

import abc
import contextlib
import errno
import functools
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from collapsium.storage.errors import AbsentError, CollapsiumError, MissingError, OccupiedError, OptionError, StoreError
from collapsium.storage.io import atomic

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


TRIES = 6
PAUSE = 0.1  # Seconds before the second attempt; each further pause is twice as long

FULL = (errno.ENOSPC, errno.EDQUOT)
# Errors that would recur in a retry
LASTING = {
    *FULL,
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EFBIG, errno.ELOOP, errno.EINVAL),
    *(errno.EXDEV, errno.ENOTEMPTY, errno.EMFILE, errno.ENFILE, errno.ENOTSUP),
}
_PRESENCE_ERRORS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)

T = TypeVar("T")
pause: Callable[[float], None] = time.sleep


def with_retries(url: str, operation: Callable[[], T]) -> T:
    """Return the result of an operation on a store, retried after errors that may pass."""
    for number in range(1, TRIES + 1):
        try:
            return operation()
        except (*_PRESENCE_ERRORS, CollapsiumError):
            raise
        # Clients of stores raise different exceptions, which have no common base class.
        except Exception as error:
            # Other built-in errors are defects of this program.
            if not isinstance(error, OSError) and type(error).__module__ in ("builtins", "numpy"):
                raise
            text = getattr(error, "strerror", None) or str(error)
            reason = text.splitlines()[0] if text else type(error).__name__
            if getattr(error, "errno", None) in FULL:
                reason = "no space is left on the disk"
            if getattr(error, "errno", None) in LASTING or isinstance(error, PermissionError):
                raise StoreError(f"{url}: {reason}") from error
            if number == TRIES:
                raise StoreError(f"{url}: the store failed {TRIES} times, last with: {reason}") from error
            pause(PAUSE * 2 ** (number - 1))
    raise AssertionError("unreachable")


class ByteStream(io.RawIOBase):
    """A base of readable streams that define `take`."""

    def readable(self) -> bool:
        """Return True."""
        return True

    @abc.abstractmethod
    def take(self, count: int) -> bytes:
        """Return at most `count` bytes; none at the end of the stream."""

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Fill a buffer from `take`; return the number of bytes."""
        data = self.take(len(buffer))
        buffer[: len(data)] = data
        return len(data)


LOCAL = ("file://", "local://")
# Protocols of fsspec that stand before another URL, with `::` between
CHAINS = ("zip", "tar", "libarchive", "dir", "simplecache", "filecache", "blockcache", "cached", "asynclocal")


def path_of(value: object) -> str:
    """Return a path or URL as text."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(path, str):
        raise OptionError(f"expected a path, found {type(value).__name__}")
    return path


def is_url(name: str) -> bool:
    """Return True for an fsspec URL; any name without ``://`` is a local path, whatever else it contains."""
    return "://" in name and not name.startswith(LOCAL)


def locate(name: str) -> tuple[AbstractFileSystem, str]:
    """Return the file system of a local path or fsspec URL, and the path in it.

    fsspec itself would read ``std::vector.txt`` as a chain of URLs and ``data:2020.csv`` as data.
    """
    if not name:
        raise AbsentError("expected the name of a file or folder, found an empty text")
    if not is_url(name):
        name = next((name.removeprefix(prefix) for prefix in LOCAL if name.startswith(prefix)), name)
        if name.startswith("~") and os.path.lexists(name):
            name = f"./{name}"
        from fsspec.implementations import local as local_files

        return _local_store(), local_files.make_path_posix(name).rstrip("/") or "/"
    head, chained, rest = name.partition("::")
    if not chained or head.partition("://")[0] in CHAINS:
        return _located(name)
    # Further colons belong to the name of an object, unless a protocol stands before them.
    fs, path = _located(head)
    return fs, f"{path}{chained}{rest}"


@functools.cache
def _local_store() -> AbstractFileSystem:
    """Return the store of this machine's files; `fsspec` takes longer to look it up than to read a small file."""
    import fsspec

    return fsspec.filesystem("file")


def _located(url: str) -> tuple[AbstractFileSystem, str]:
    """Return the store of an fsspec URL and the path in it; raise an error of ours if the store is unknown."""
    from fsspec import core

    try:
        fs, path = core.url_to_fs(url)
    except ImportError as error:
        raise MissingError(f"{url}: its store needs another package ({error})") from None
    except ValueError as error:
        raise AbsentError(f"{url}: no store can be opened at this URL ({error})") from None
    return fs, str(path)


def is_there(fs: AbstractFileSystem, path: str) -> bool:
    """Return True if a file or folder exists.

    `exists` of fsspec's local files catches all exceptions: an interrupt is lost, and the file seems to be absent.
    """
    from fsspec.implementations import local as local_files

    if isinstance(fs, local_files.LocalFileSystem):
        # False, and not an error, for a file in a folder that may not be searched.
        return os.path.exists(path)  # noqa: PTH110
    return bool(fs.exists(path))


class File:
    """A single file at any fsspec URL, to be written."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        from fsspec.implementations import local as local_files

        fs, path = locate(path_of(url))
        self._fs: AbstractFileSystem = fs
        self._path, self._local = path, isinstance(fs, local_files.LocalFileSystem)

    def exists(self) -> bool:
        """Return True if the file exists."""
        return with_retries(self._path, lambda: is_there(self._fs, self._path))

    def remove(self) -> None:
        """Remove the file if it exists."""
        with contextlib.suppress(FileNotFoundError):
            with_retries(self._path, lambda: self._fs.rm_file(self._path))

    def write(self, content: bytes) -> None:
        """Write the file; a local one is written atomically."""
        if self._local:
            place = Path(self._path)
            with_retries(self._path, lambda: atomic.write_atomically(place, content, replace=True))
        else:
            with_retries(self._path, lambda: self._fs.pipe_file(self._path, content))

    def put(self, source: Path) -> None:
        """Copy a local file here; a local target is written atomically."""
        if self._local:
            with_retries(self._path, lambda: atomic.copy_atomically(source, Path(self._path)))
        else:
            with_retries(self._path, lambda: self._fs.put_file(str(source), self._path))


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """Provide a temporary folder for files that are copied when they are complete."""
    with tempfile.TemporaryDirectory(prefix="collapsium-", ignore_cleanup_errors=True) as place:
        try:
            yield place
        except (OSError, RuntimeError) as error:
            # HDF5 raises errors without a number.
            full = getattr(error, "errno", None) in FULL or os.strerror(errno.ENOSPC) in str(error)
            if isinstance(error, CollapsiumError) or not full:
                raise
            raise StoreError(
                f"{place}: no space is left on the disk; the variable TMPDIR names another folder for temporary files"
            ) from error


def require_free(*paths: str | os.PathLike[str] | None) -> None:
    """Raise `OccupiedError` if an output file exists, and `StoreError` if it cannot be made."""
    for path in paths:
        if path is None:
            continue
        if File(path).exists():
            raise OccupiedError(f"{os.fspath(path)}: exists already; name a new file, or replace it with `overwrite`")
        require_place(os.fspath(path))


def require_place(url: str) -> None:
    """Raise `StoreError` if a local output cannot be made, before the work whose result it is to have."""
    if is_url(url):
        return
    place = os.path.dirname(locate(url)[1])  # noqa: PTH120
    while not os.path.lexists(place):
        place = os.path.dirname(place)  # noqa: PTH120
    if not os.path.isdir(place):  # noqa: PTH112
        raise StoreError(f"{url}: {place} is not a folder; name another place")
    if not os.access(place, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise StoreError(f"{url}: {place} is read-only; name another place")
