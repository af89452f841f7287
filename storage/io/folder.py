"""A folder at any fsspec URL, with the few operations that the formats on disk need."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar, cast

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from collapsium.storage.errors import AbsentError, CollapsiumError, DamagedError, OccupiedError, StoreError
from collapsium.storage.io import local
from collapsium.storage.io.retry import patiently
from collapsium.storage.io.unfinished import claimed, hidden_path, remove_abandoned

T = TypeVar("T")

# Protocols of stores whose address is the user's own configuration: what follows is a bucket, no host to connect to.
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "memory"})


def is_name(name: str) -> bool:
    """Tell whether a file system or a store can have a file of this name; JSON and TOML can hold others."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return "\0" not in name


class Fence(Protocol):
    """Lets its owner alone write; see `collapsium.storage.io.lock`."""

    def hold(self) -> AbstractContextManager[None]:
        """Return the moment of a write; entering it raises `TakenOverError` where somebody else is the owner by now."""


class Folder:
    """A folder, local or on any store that fsspec knows.

    Parameters
    ----------
    url : str or path-like
        A local path or an fsspec URL such as ``s3://bucket/corpus`` or ``memory://corpus``.

    Attributes
    ----------
    url : str
        The folder as it was given, without a trailing slash.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.url = os.fspath(url).rstrip("/") or "/"
        if not is_name(self.url):
            raise AbsentError(f"{self.url[:200]!r}: no folder can have a name with NUL or half of a surrogate pair")
        fs, path = url_to_fs(self.url)
        self._fs: Any = fs
        self._path = str(path).rstrip("/")
        self.local = isinstance(fs, LocalFileSystem)
        self._fences: tuple[Fence, ...] = ()

    def __repr__(self) -> str:
        return f"Folder({self.url!r})"

    def __reduce__(self) -> tuple[type[Folder], tuple[str]]:
        """Pickle by address: a worker opens the store itself, and may run in another folder. Fences stay here."""
        return Folder, (self.address,)

    def __truediv__(self, name: str) -> Folder:
        """Return the folder `name` inside this one, which is no link; see `unlinked`."""
        inner = Folder(f"{self.url}/{self.unlinked(name)}")
        inner._fences = self._fences
        return inner

    def fenced(self, fence: Fence) -> Folder:
        """Return the same folder, in which, and in those inside, nothing is changed that the fence does not let.

        Parameters
        ----------
        fence : Fence
            The lock of whoever works on the folder; it comes after those that the folder has already.

        Returns
        -------
        Folder
            The folder.
        """
        other = Folder(self.url)
        other._fences = (*self._fences, fence)
        return other

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Hold the folder's fences for the moment of a change."""
        with contextlib.ExitStack() as stack:
            for fence in self._fences:
                stack.enter_context(fence.hold())
            yield

    def inside(self, name: str) -> str:
        """Refuse a name that would leave the folder: names come out of manifests that anyone may have written."""
        if not is_name(name):
            expected = f"the name {name[:200]!r} holds NUL or half of a surrogate pair"
            raise DamagedError(self.url, expected, "manifest")
        parts = name.split("/")
        if not name or "\\" in name or ":" in name or any(part in ("", ".", "..") for part in parts):
            raise DamagedError(self.url, f"the name {name!r} would leave the folder", "manifest")
        return name

    def unlinked(self, name: str) -> str:
        """Refuse a name inside a local folder that is a symbolic link, or lies behind one.

        The folder itself may be a link: its user has named it. What lies inside may come from anybody, and a link there
        would have files outside read, overwritten or deleted.

        Parameters
        ----------
        name : str
            A file or folder inside, whether it is there or not.

        Returns
        -------
        str
            The name.

        Raises
        ------
        DamagedError
            It leads out of the folder.
        """
        parts = self.inside(name).split("/")
        if self.local:
            for end in range(1, len(parts) + 1):
                inner = "/".join(parts[:end])
                if Path(f"{self._path}/{inner}").is_symlink():
                    raise DamagedError(
                        self.url,
                        f"{inner} is a symbolic link, which may lead anywhere; put what it leads to in its place",
                    )
        return name

    def recorded(self, url: object) -> str:
        """Return a URL that a record in this folder names, unless it leads to another store.

        Anyone may have written a record, and to open a URL is to connect to its host, or to run what a chained protocol
        makes of it. So a record may name local paths, and places in the store that it came from itself.

        Parameters
        ----------
        url : object
            What the record says.

        Returns
        -------
        str
            The URL.

        Raises
        ------
        AbsentError
            It names another store, or is no URL.
        """
        if isinstance(url, str) and "::" not in url:
            scheme, host, own_scheme, own_host = *_store_of(url), *_store_of(self.address)
            if scheme == "" or (scheme == own_scheme and (host == own_host or scheme in OBJECT_STORES)):
                return url
        raise AbsentError(
            f"{self.url}: its record names {str(url)[:200]!r}, which is opened only where you name it yourself, as "
            "anyone may have written the record"
        )

    def _at(self, name: str) -> str:
        return f"{self._path}/{self.unlinked(name)}"

    def _do(self, name: str, operation: Callable[[], T]) -> T:
        return patiently(f"{self.url}/{name}" if name else self.url, operation)

    def exists(self, name: str = "") -> bool:
        """Tell whether the folder, or the file or folder `name` in it, is there."""
        path = self._at(name) if name else self._path
        self._refresh()
        return self._do(name, lambda: bool(self._fs.exists(path)))

    def _refresh(self) -> None:
        """Forget listings: other processes write to the same store."""
        if not self.local:
            self._fs.invalidate_cache()

    def _require_plain(self, name: str, most: int | None = None) -> None:
        """Refuse a file that is too large, or is a pipe or device, of which nothing may ever come."""
        if not self.local:
            size = None if most is None else self._do(name, lambda: self._fs.size(self._at(name)))
        else:
            found = Path(self._at(name)).stat()
            if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
                raise DamagedError(f"{self.url}/{name}", "expected a file, found a pipe or device")
            size = found.st_size
        if most is not None and size is not None and size > most:
            raise DamagedError(f"{self.url}/{name}", f"expected at most {most:,} bytes, found {size:,}")

    def read(self, name: str, most: int | None = None) -> bytes:
        """Return the bytes of a file.

        Parameters
        ----------
        name : str
            The file's name inside the folder.
        most : int, optional
            How many bytes it may have.

        Returns
        -------
        bytes
            All of it.

        Raises
        ------
        AbsentError
            The file is not there.
        DamagedError
            It is too large, or no file.
        StoreError
            The store fails.
        """
        path = self._at(name)
        try:
            self._require_plain(name, most)
            return self._do(name, lambda: cast(bytes, self._fs.cat_file(path)))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise AbsentError(f"{self.url}/{name}: no such file") from None

    def read_from(self, name: str, start: int) -> tuple[bytes, int]:
        """Return the bytes of a file from a place on, and its size.

        Parameters
        ----------
        name : str
            The file's name inside the folder.
        start : int
            The place, in bytes.

        Returns
        -------
        data : bytes
            Empty where the file is not longer.
        size : int
            0 where there is no such file.

        Raises
        ------
        StoreError
            The store fails.
        """
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
        """Write a file whole: a reader sees the old bytes or the new ones, never a part.

        Parameters
        ----------
        name : str
            The file's name inside the folder; folders on the way are made.
        data : bytes or memoryview
            What the file shall hold.

        Returns
        -------
        str
            The SHA-256 of the data in hexadecimal.

        Raises
        ------
        StoreError
            The disk is full, or the store fails.
        """
        target = self._at(name)
        if self.local:
            self._do(name, lambda: local.write_whole(Path(target), data, replace=True, guard=self.guard))
        else:
            try:
                with self.guard():
                    self._do(name, lambda: self._fs.pipe_file(target, bytes(data)))
            except FileNotFoundError as error:
                raise StoreError(f"{self.url}/{name}: cannot be written ({error})") from None
        return hashlib.sha256(data).hexdigest()

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that is not there yet; of several writers one succeeds (on object stores a conditional put).

        Parameters
        ----------
        name : str
            The file's name inside the folder; folders on the way are made.
        data : bytes
            What the file shall hold.

        Returns
        -------
        bool
            Whether it was written; if not, there is one already.

        Raises
        ------
        StoreError
            The disk is full, or the store fails.
        """
        target = self._at(name)
        try:
            if self.local:
                self._do(name, lambda: local.write_whole(Path(target), data, replace=False, guard=self.guard))
            else:
                with self.guard():
                    self._do(name, lambda: self._put_new(target, data))
        except FileExistsError:
            # A put that was tried again may have met itself.
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
        """Add to the end of a file; a store that cannot append gets the file put again."""
        target = self._at(name)
        if self.local:
            self._do(name, lambda: local.append(Path(target), data, self.guard))
        else:
            old = self.read(name) if self.exists(name) else b""
            self.write(name, old + data)

    def cut(self, name: str, size: int) -> None:
        """Leave the first `size` bytes of a file; one that is not longer stays as it is."""
        if not self.exists(name):
            return
        if self.local:
            self._do(name, lambda: local.cut(Path(self._at(name)), size, self.guard))
        elif len(data := self.read(name)) > size:
            self.write(name, data[:size])

    def delete(self, name: str) -> None:
        """Remove a file; nothing happens where there is none."""
        folder, _, _ = name.rpartition("/")
        if folder:
            self.unlinked(folder)
        path = f"{self._path}/{self.inside(name)}"  # of a link, the link
        with contextlib.suppress(FileNotFoundError), self.guard():
            self._do(name, lambda: self._fs.rm_file(path))

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""
        self._require_plain(name)
        return cast(IO[bytes], self._fs.open(self._at(name), "rb"))

    def names(self) -> list[str]:
        """Return the sorted names of the files and folders directly inside; none where there is no such folder."""
        self._refresh()
        try:
            found = self._do("", lambda: list(self._fs.ls(self._path, detail=False)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(
            {str(path).rstrip("/").rsplit("/", 1)[-1] for path in found} - {self._path.rsplit("/", 1)[-1], ""}
        )

    def files(self) -> list[str]:
        """Return the sorted names of all files inside, at any depth; none where there is no such folder."""
        self._refresh()
        found = self._do("", lambda: list(self._fs.find(self._path)))
        return sorted(str(path)[len(self._path) :].lstrip("/") for path in found)

    def size(self) -> int:
        """Return the bytes of all files inside, at any depth."""
        self._refresh()
        found = self._do("", lambda: self._fs.find(self._path, detail=True))
        return sum(int(info.get("size") or 0) for info in found.values())

    def is_folder(self) -> bool:
        """Tell whether this is a folder."""
        return self._do("", lambda: bool(self._fs.isdir(self._path)))

    def make(self) -> None:
        """Make the folder and those above it."""
        self._do("", lambda: self._fs.makedirs(self._path, exist_ok=True))

    def remove(self, known: Collection[str] | None = None) -> None:
        """Remove the folder with all that it holds; nothing happens where there is none.

        Parameters
        ----------
        known : collection of str, optional
            Names that such a folder of ours has directly inside. One that holds anything else is somebody's, and stays;
            by default whatever is there goes.
        """
        if known is not None:
            # What a process that was killed has left half written is ours too.
            whole = {name for name in self.names() if not (name.startswith(".") and name.endswith(".part"))}
            if not whole <= set(known):
                return
        if self.local:
            local.remove_folder(Path(self._path), self.guard if self._fences else None)
        elif self.exists():
            with contextlib.suppress(FileNotFoundError), self.guard():
                self._do("", lambda: self._fs.rm(self._path, recursive=True))

    @property
    def address(self) -> str:
        """The folder as it is known wherever the same storage is: a local path is made absolute."""
        return self._path if self.local else self.url

    @property
    def path(self) -> str:
        """The folder's path in its own file system; for a local folder a plain path."""
        return self._path

    def rename(self, target: Folder) -> None:
        """Give a local folder another name; nothing may have that one."""
        guard = self.guard if self._fences else target.guard
        try:
            local.rename(Path(self._path), Path(target._path), guard)
        except OSError as error:
            raise StoreError(f"{self.url}: cannot be renamed to {target.url} ({error.strerror or error})") from error


def _store_of(url: str) -> tuple[str, str]:
    """Return the protocol and the host or bucket of a URL; both are empty for a local path."""
    protocol, separator, rest = url.partition("://")
    if not separator or protocol in ("file", "local"):
        return "", ""
    return protocol, rest.partition("/")[0]


class File:
    """A single file at any fsspec URL, to be written.

    Parameters
    ----------
    url : str or path-like
        A local path or an fsspec URL.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        fs, path = url_to_fs(os.fspath(url))
        self._fs: Any = fs
        self._path = str(path)

    def exists(self) -> bool:
        """Tell whether there is something already."""
        return patiently(self._path, lambda: bool(self._fs.exists(self._path)))

    def remove(self) -> None:
        """Remove the file; nothing happens where there is none."""
        with contextlib.suppress(FileNotFoundError):
            patiently(self._path, lambda: self._fs.rm_file(self._path))

    def put(self, source: Path) -> None:
        """Copy a local file there, piece by piece; a local target is there whole or not at all."""
        if isinstance(self._fs, LocalFileSystem):
            patiently(self._path, lambda: local.copy_whole(source, Path(self._path)))
        else:
            patiently(self._path, lambda: self._fs.put_file(str(source), self._path))


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
