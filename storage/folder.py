"""A folder at any fsspec URL, with the few operations that the formats on disk need."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from collapsar.storage.errors import AbsentError, DamagedError, OccupiedError


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
        fs, path = url_to_fs(self.url)
        self._fs: Any = fs
        self._path = str(path).rstrip("/")
        self.local = isinstance(fs, LocalFileSystem)

    def __repr__(self) -> str:
        return f"Folder({self.url!r})"

    def __reduce__(self) -> tuple[type[Folder], tuple[str]]:
        """Pickle by address: a worker opens the store itself, and may run in another folder."""
        return Folder, (self.address,)

    def __truediv__(self, name: str) -> Folder:
        """Return the folder `name` inside this one."""
        return Folder(f"{self.url}/{self._inside(name)}")

    def _inside(self, name: str) -> str:
        """Refuse a name that would leave the folder: names come out of manifests that anyone may have written."""
        parts = name.split("/")
        if not name or "\\" in name or ":" in name or any(part in ("", ".", "..") for part in parts):
            raise DamagedError(self.url, f"the name {name!r} would leave the folder", "manifest")
        return name

    def _at(self, name: str) -> str:
        return f"{self._path}/{self._inside(name)}"

    def exists(self, name: str = "") -> bool:
        """Tell whether the folder, or the file or folder `name` in it, is there."""
        return bool(self._fs.exists(self._at(name) if name else self._path))

    def read(self, name: str) -> bytes:
        """Return the bytes of a file.

        Parameters
        ----------
        name : str
            The file's name inside the folder.

        Returns
        -------
        bytes
            All of it.

        Raises
        ------
        AbsentError
            The file is not there.
        """
        try:
            return cast(bytes, self._fs.cat_file(self._at(name)))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise AbsentError(f"{self.url}/{name}: no such file") from None

    def write(self, name: str, data: bytes) -> str:
        """Write a file whole: a reader sees the old bytes or the new ones, never a part.

        Parameters
        ----------
        name : str
            The file's name inside the folder; folders on the way are made.
        data : bytes
            What the file shall hold.

        Returns
        -------
        str
            The SHA-256 of the data in hexadecimal.
        """
        target = self._at(name)
        if self.local:
            path = Path(target)
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
            try:
                with part.open("wb") as handle:
                    handle.write(data)
                    handle.flush()
                    os.fsync(handle.fileno())
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
        else:
            self._fs.pipe_file(target, data)
        return hashlib.sha256(data).hexdigest()

    def append(self, name: str, data: bytes) -> None:
        """Add to the end of a file; a store that cannot append gets the file put again."""
        target = self._at(name)
        if self.local:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            with Path(target).open("ab") as handle:
                handle.write(data)
        else:
            old = self._fs.cat_file(target) if self._fs.exists(target) else b""
            self._fs.pipe_file(target, old + data)

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""
        return cast(IO[bytes], self._fs.open(self._at(name), "rb"))

    def names(self) -> list[str]:
        """Return the sorted names of the files and folders directly inside; none where there is no such folder."""
        if not self.exists():
            return []
        return sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in self._fs.ls(self._path, detail=False))

    def is_folder(self) -> bool:
        """Tell whether this is a folder."""
        return bool(self._fs.isdir(self._path))

    def make(self) -> None:
        """Make the folder and those above it."""
        self._fs.makedirs(self._path, exist_ok=True)

    def remove(self) -> None:
        """Remove the folder with all that it holds; nothing happens where there is none."""
        if self.local:
            shutil.rmtree(self._path, ignore_errors=True)
        elif self._fs.exists(self._path):
            self._fs.rm(self._path, recursive=True)

    @property
    def address(self) -> str:
        """The folder as it is known wherever the same storage is: a local path is made absolute."""
        return self._path if self.local else self.url

    @property
    def path(self) -> str:
        """The folder's path in its own file system; for a local folder a plain path."""
        return self._path

    def _rename(self, target: Folder) -> None:
        Path(self._path).rename(target._path)


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
        return bool(self._fs.exists(self._path))

    def put(self, source: Path) -> None:
        """Copy a local file there, piece by piece; a local target is there whole or not at all."""
        if not isinstance(self._fs, LocalFileSystem):
            self._fs.put_file(str(source), self._path)
            return
        target = Path(self._path)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        try:
            shutil.copyfile(source, part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


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
def created(folder: Folder) -> Iterator[Folder]:
    """Make a folder that is there whole or not at all.

    A local folder is written beside its place, under a hidden name, and renamed at the end. On other stores a
    rename is a copy, so files are put in place and removed again on failure; readers start at a manifest, which
    is written last.

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
    if folder.local:
        path = Path(folder.path)
        place = Folder(str(path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")))
    else:
        place = folder
    place.make()
    try:
        yield place
        if place is not folder:
            ensure_free(folder)
            place._rename(folder)
    except BaseException:
        place.remove()
        raise
