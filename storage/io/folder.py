"""A folder at any fsspec URL, with the operations that the formats need, and its creation or replacement as a whole."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, TypeVar, cast

from collapsium.storage.errors import AbsentError, CollapsiumError, DamagedError, OccupiedError, StoreError
from collapsium.storage.io import atomic
from collapsium.storage.io.file import is_there, locate, path_of, require_place, with_retries

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


def is_name(name: str) -> bool:
    """Return True if file systems and stores can have a file of this name; JSON and TOML can contain others."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return "\0" not in name


def require_inside(url: str, name: str) -> str:
    """Return a name inside the folder of a URL; raise `DamagedError` if it would leave the folder."""
    if not is_name(name):
        expected = f"the name {name[:200]!r} holds NUL or half of a surrogate pair"
        raise DamagedError(url, expected, "manifest")
    parts = name.split("/")
    if not name or "\\" in name or ":" in name or any(part in ("", ".", "..") for part in parts):
        raise DamagedError(url, f"the name {name!r} would leave the folder", "manifest")
    return name


T = TypeVar("T")


def _read(path: str) -> bytes:
    """Return the bytes of a local file."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - `pathlib` takes twice as long
        return file.read()


class Fence(Protocol):
    """Lets only its owner write; see `collapsium.storage.io.run_lock`."""

    def hold(self) -> AbstractContextManager[None]:
        """Return a context for a write; entering it raises `TakenOverError` if another process owns the lock."""


class Folder:
    """A folder, local or on any store that fsspec knows."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        from fsspec.implementations import local as local_files

        path = path_of(url)
        self.url = path.rstrip("/") or path[:1]
        if not is_name(self.url):
            raise AbsentError(f"{self.url[:200]!r}: no folder can have a name with NUL or half of a surrogate pair")
        fs, path = locate(self.url)
        self._fs: AbstractFileSystem = fs
        self.path = path.rstrip("/")  # Within its file system
        self.local = isinstance(fs, local_files.LocalFileSystem)
        # Valid on every machine with the same storage: a local path is made absolute
        self.address = self.path if self.local else self.url
        self._guards: tuple[atomic.Guard, ...] = ()

    def __repr__(self) -> str:
        return f"Folder({self.url!r})"

    def __reduce__(self) -> tuple[type[Folder], tuple[str]]:
        """Pickle the absolute address, because a worker may run in another folder; locks are not pickled."""
        return Folder, (self.address,)

    def __truediv__(self, name: str) -> Folder:
        """Return the folder `name` inside this one; see `collapsium.storage.io.folder` for valid names."""
        inner = Folder(f"{self.url}/{self._checked(name)}")
        inner._guards = self._guards
        return inner

    def fenced(self, fence: Fence) -> Folder:
        """Return the same folder with a fence, which every change in it and inside it must pass."""
        folder = Folder(self.url)
        folder._guards = (*self._guards, fence.hold)
        return folder

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Hold all locks during a change; raises `TakenOverError` if another process owns one."""
        with contextlib.ExitStack() as stack:
            for guard in self._guards:
                stack.enter_context(guard())
            yield

    def _checked(self, name: str) -> str:
        """Raise an error for a name that leaves the folder or, in a local folder, leads through a symbolic link.

        The folder itself may be a link, because its user has named it. Its contents may come from anyone, and a link
        there would have files outside read, overwritten or deleted.
        """
        require_inside(self.url, name)
        if self.local:
            self._status(name)
        return name

    def _status(self, name: str) -> os.stat_result | None:
        """Return the status of a local file, None if there is none; raise an error if a link leads to it."""
        status, end = None, 0
        while end >= 0:
            end = name.find("/", end + 1)
            inner = name if end < 0 else name[:end]
            try:
                status = os.lstat(f"{self.path}/{inner}")  # `pathlib` takes five times as long
            except OSError:
                return None
            if stat.S_ISLNK(status.st_mode):
                expected = f"{inner} is a symbolic link, which is not followed; replace it by a copy of its target"
                raise DamagedError(self.url, expected)
        return status

    def _at(self, name: str) -> str:
        return f"{self.path}/{self._checked(name)}"

    def _do(self, name: str, operation: Callable[[], T]) -> T:
        return with_retries(f"{self.url}/{name}" if name else self.url, operation)

    def exists(self, name: str = "") -> bool:
        """Return True if the folder, or the file or folder `name` in it, exists."""
        path = self._at(name) if name else self.path
        self._refresh()
        return self._do(name, lambda: is_there(self._fs, path))

    def _refresh(self) -> None:
        """Drop cached listings, because other processes write to the same store."""
        if not self.local:
            self._fs.invalidate_cache()

    def _require_plain(self, name: str, max_bytes: int | None = None) -> str:
        """Return a file's path; raise an error if it is too large, or a pipe or device, whose bytes may never end."""
        path = f"{self.path}/{require_inside(self.url, name)}"
        if not self.local:
            size = None if max_bytes is None else self._do(name, lambda: self._fs.size(path))
        else:
            status = self._status(name) or os.lstat(path)
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                raise DamagedError(f"{self.url}/{name}", "expected a file, found a pipe or device")
            size = status.st_size
        if max_bytes is not None and size is not None and size > max_bytes:
            raise DamagedError(f"{self.url}/{name}", f"expected at most {max_bytes:,} bytes, found {size:,}")
        return path

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        """Return the bytes of a file."""
        try:
            path = self._require_plain(name, max_bytes)
            if self.local:
                return self._do(name, lambda: _read(path))  # fsspec takes twice as long for a small file
            return cast(bytes, self._do(name, lambda: self._fs.cat_file(path)))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise AbsentError(f"{self.url}/{name}: no such file") from None

    def read_from(self, name: str, start: int) -> tuple[bytes, int]:
        """Return the bytes of a file from an offset on, and its size."""
        path = self._at(name)
        self._refresh()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._require_plain(name)

        def read() -> tuple[bytes, int]:
            size = int(self._fs.size(path) or 0)
            return (cast(bytes, self._fs.cat_file(path, start=start, end=size)) if size > start else b""), size

        try:
            return self._do(name, read)
        except (FileNotFoundError, NotADirectoryError):
            return b"", 0

    def write(self, name: str, data: bytes | memoryview) -> str:
        """Write a file atomically: a reader sees the old contents or the new ones."""
        target = self._at(name)
        if self.local:
            self._do(
                name,
                lambda: atomic.write_atomically(Path(target), data, replace=True, guard=self.guard),
            )
        else:
            try:
                with self.guard():
                    self._do(name, lambda: self._fs.pipe_file(target, bytes(data)))
            except FileNotFoundError as error:
                raise StoreError(f"{self.url}/{name}: cannot be written ({error})") from None
        return hashlib.sha256(data).hexdigest()

    def write_all(self, fill: Callable[[atomic.Put], T]) -> T:
        """Write all files of this folder; a local folder replaces an existing one when all of them are synced."""
        if self.local:
            return self._do("", lambda: atomic.write_folder(Path(self.path), fill, self.guard))
        return fill(self.write)

    def create(self, name: str, data: bytes) -> bool:
        """Write a new file; of several writers one succeeds (on object stores by a conditional put)."""
        target = self._at(name)
        try:
            if self.local:
                self._do(name, lambda: atomic.write_atomically(Path(target), data, replace=False, guard=self.guard))
            else:
                with self.guard():
                    self._do(name, lambda: self._put_new(target, data))
        except FileExistsError:
            # A retried put may meet the file that its first attempt wrote.
            return self.read(name) == data
        return True

    def _put_new(self, target: str, data: bytes) -> None:
        try:
            self._fs.pipe_file(target, data, mode="create")
        except OSError as error:
            if "PreconditionFailed" in str(error) or "pre-conditions" in str(error):
                raise FileExistsError(target) from None
            raise

    def append(self, name: str, data: bytes) -> None:
        """Append to a file; on a store that cannot append, the file is written again."""
        target = self._at(name)
        if self.local:
            self._do(name, lambda: atomic.append(Path(target), data, self.guard))
        else:
            old = self.read(name) if self.exists(name) else b""
            self.write(name, old + data)

    def truncate(self, name: str, size: int) -> None:
        """Truncate a file to at most `size` bytes."""
        if not self.exists(name):
            return
        if self.local:
            self._do(name, lambda: atomic.truncate(Path(self._at(name)), size, self.guard))
        elif len(data := self.read(name)) > size:
            self.write(name, data[:size])

    def delete(self, name: str) -> None:
        """Remove a file if it exists."""
        folder, _, _ = name.rpartition("/")
        if folder:
            self._checked(folder)
        # The name may be a link, which is removed without following it.
        path = f"{self.path}/{require_inside(self.url, name)}"
        with contextlib.suppress(FileNotFoundError), self.guard():
            self._do(name, lambda: self._fs.rm_file(path))

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""
        return cast(IO[bytes], self._fs.open(self._require_plain(name), "rb"))

    def names(self) -> list[str]:
        """Return the sorted names directly inside; empty if the folder does not exist."""
        self._refresh()
        try:
            paths = self._do("", lambda: list(self._fs.ls(self.path, detail=False)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted({str(path).rstrip("/").rsplit("/", 1)[-1] for path in paths} - {self.path.rsplit("/", 1)[-1], ""})

    def files(self) -> list[str]:
        """Return the sorted names of all files at any depth; empty if the folder does not exist."""
        self._refresh()
        paths = self._do("", lambda: list(self._fs.find(self.path)))
        return sorted(str(path)[len(self.path) :].lstrip("/") for path in paths)

    def size(self) -> int:
        """Return the total size of all files at any depth, in bytes."""
        self._refresh()
        files = self._do("", lambda: self._fs.find(self.path, detail=True))
        return sum(int(info.get("size") or 0) for info in files.values())

    def is_folder(self) -> bool:
        """Return True if this is a folder."""
        return self._do("", lambda: bool(self._fs.isdir(self.path)))

    def make(self) -> None:
        """Make the folder and its parents; their names are synced."""
        store = functools.partial(self._fs.makedirs, self.path, exist_ok=True)
        self._do("", functools.partial(atomic.make_folder, Path(self.path)) if self.local else store)

    def remove(self, known: Collection[str] | None = None) -> None:
        """Remove the folder and its contents if it exists."""
        if known is not None:
            # Temporary files are left over from processes that were killed.
            names = {name for name in self.names() if not atomic.is_hidden(name)}
            if not names <= set(known):
                return
        if self.local:
            atomic.remove_folder(Path(self.path), self.guard if self._guards else None)
        elif self.exists():
            with contextlib.suppress(FileNotFoundError), self.guard():
                self._do("", lambda: self._fs.rm(self.path, recursive=True))

    def rename(self, target: Folder) -> None:
        """Rename a local folder to a name that is free."""
        guard = self.guard if self._guards else target.guard
        try:
            atomic.rename(Path(self.path), Path(target.path), guard)
        except OSError as error:
            raise StoreError(f"{self.url}: cannot be renamed to {target.url} ({error.strerror or error})") from error


def ensure_free(folder: Folder) -> None:
    """Raise `OccupiedError` for an output folder that exists, and `StoreError` for one that cannot be made."""
    if folder.exists():
        raise OccupiedError(f"{folder.url}: exists already; name a new folder, or replace it with `overwrite`")
    # A folder cannot replace a link.
    if folder.local and os.path.islink(folder.path):  # noqa: PTH114
        target = os.readlink(folder.path)  # noqa: PTH115
        raise OccupiedError(f"{folder.url}: is a link to {target}, which does not exist; remove the link")
    require_place(folder.url)


@contextmanager
def unfinished(folder: Folder) -> Iterator[Folder]:
    """Make a temporary folder to write in, and remove it at the end unless it was renamed.

    On a local disk it is a hidden folder beside the target; dead processes' folders are removed first. On other stores
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
    with atomic.abandoned(Path(folder.path)) as places:
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
    with contextlib.ExitStack() as held:
        while True:
            part = Folder(str(atomic.hidden_path(Path(folder.path))))
            part.make()
            held.callback(part.remove)
            try:
                held.enter_context(atomic.claimed(Path(part.path)))
                break
            # Another process may remove the folder before it is locked here.
            except (FileNotFoundError, BlockingIOError):
                continue
            except OSError as error:
                raise StoreError(f"{folder.url}: {error.strerror or error}") from error
        yield part


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
    old = Folder(str(atomic.hidden_path(Path(folder.path))))
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


def remove_parts(folder: Folder, *, folders: bool = True) -> None:
    """Remove what dead processes have left unfinished directly inside a folder; only the owner of its lock may.

    Without `folders`, hidden folders are kept, because another program may be making them.
    """
    for name in filter(atomic.is_hidden, folder.names()):
        path = Path(f"{folder.path}/{name}")
        if not folder.local or (path.is_dir() and not path.is_symlink()):
            if folders:
                (folder / name).remove()
        else:
            # A leftover file does no harm and may be removed the next time.
            with contextlib.suppress(StoreError):
                folder.delete(name)


# Protocols of stores whose address comes from the user's configuration: the URL names a bucket, not a host to connect
# to
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "memory"})


def recorded_url(folder: Folder, url: object) -> str:
    """Return a URL from a record, unless it leads to another store than the store of the record.

    Opening a URL connects to its host, or runs the code of a chained protocol. A record may therefore refer only
    to local paths and to its store.
    """
    if isinstance(url, str) and not ("::" in url and "://" in url):
        scheme, host, record_scheme, record_host = *_store_of(url), *_store_of(folder.address)
        if scheme == "" or (scheme == record_scheme and (host == record_host or scheme in OBJECT_STORES)):
            return url
    raise AbsentError(
        f"{folder.url}: its record names {str(url)[:200]!r}, which is opened only if you name it yourself, because "
        "the record may be untrusted"
    )


def _store_of(url: str) -> tuple[str, str]:
    """Return the protocol and the host or bucket of a URL; both are empty for a local path."""
    protocol, separator, rest = url.partition("://")
    if not separator or protocol in ("file", "local"):
        return "", ""
    return protocol, rest.partition("/")[0]
