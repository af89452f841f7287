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

from collapsium.storage.errors import AbsentError, DamagedError, StoreError
from collapsium.storage.io import local
from collapsium.storage.io.names import is_name, require_inside, require_unlinked
from collapsium.storage.io.retry import patiently

T = TypeVar("T")


class Fence(Protocol):
    """Lets its owner alone write; see `collapsium.storage.io.locks.run_lock`."""

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
        """Return the folder `name` inside this one, which is no link; see `collapsium.storage.io.names`."""
        inner = Folder(f"{self.url}/{self._checked(name)}")
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

    def _checked(self, name: str) -> str:
        """Refuse a name that leaves the folder, or in a local folder a symbolic link, or a name behind one."""
        require_inside(self.url, name)
        if self.local:
            require_unlinked(self.url, self._path, name)
        return name

    def _at(self, name: str) -> str:
        return f"{self._path}/{self._checked(name)}"

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

    def truncate(self, name: str, size: int) -> None:
        """Leave the first `size` bytes of a file; one that is not longer stays as it is."""
        if not self.exists(name):
            return
        if self.local:
            self._do(name, lambda: local.truncate(Path(self._at(name)), size, self.guard))
        elif len(data := self.read(name)) > size:
            self.write(name, data[:size])

    def delete(self, name: str) -> None:
        """Remove a file; nothing happens where there is none."""
        folder, _, _ = name.rpartition("/")
        if folder:
            self._checked(folder)
        # The name itself may be a link, which is removed, and not what it leads to.
        path = f"{self._path}/{require_inside(self.url, name)}"
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
