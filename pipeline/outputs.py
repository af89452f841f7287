"""Places of results: `overwrites` lets functions replace earlier ones, and `place_for` makes temporary ones."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from collapsium.pipeline.options import OverwriteOptions, with_parameter
from collapsium.storage.corpus.manifest import MANIFEST
from collapsium.storage.errors import OccupiedError, OptionError
from collapsium.storage.io.atomic import is_hidden
from collapsium.storage.io.folder import Folder

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

# Records that mark a folder as written by Collapsium
RECORDS = (MANIFEST, "run.json", "model.json", "compare.json", "journal.json")
TABLES = ("topics.csv", "words.csv", "documents.csv")  # Files of an exported folder, which has no record
ZARR = ("zarr.json", ".zgroup")
TEMPORARY = "collapsium-"  # Prefix of temporary folders


def overwrites(*parameters: str) -> Callable[[Callable[_Arguments, _Result]], Callable[..., _Result]]:
    """Return a decorator that gives a function ``overwrite``, which replaces the files or folders of some parameters.

    The function itself refuses outputs that exist. Existing files are set aside before, and restored if the function
    raises an error without having written anything in their place.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[..., _Result]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Any, overwrite: bool = False, **options: Any) -> _Result:
            if not isinstance(overwrite, bool):
                raise OptionError(f"expected true or false, found {overwrite!r}", "overwrite")
            if not overwrite:
                return function(*args, **options)
            named = dict(zip(signature.parameters, args, strict=False)) | options
            first = next(iter(signature.parameters))
            source = None if first in parameters else _place(named.get(first))
            if source is not None and source in {_place(named.get(name)) for name in parameters}:
                raise OptionError(f"{source}: is what the call reads; name another place", "overwrite")
            with contextlib.ExitStack() as aside:
                for name in parameters:
                    if named.get(name) is not None:
                        aside.enter_context(_set_aside(named[name]))
                return function(*args, **options)

        return with_parameter(
            call, "overwrite", bool, False, str(OverwriteOptions.model_fields["overwrite"].description)
        )

    return decorate


def _place(path: object) -> str | None:
    """Return the address of a path, and None for anything else."""
    return Folder(path).address if isinstance(path, (str, os.PathLike)) else None


@contextlib.contextmanager
def _set_aside(output: str | os.PathLike[str]) -> Iterator[None]:
    """Rename a file or a folder of ours, and remove it at the end; rename it back if nothing has taken its place."""
    folder = Folder(output)
    if not folder.exists():
        yield
        return
    if not folder.local:
        raise OptionError(f"{folder.url}: only local files and folders are replaced; remove it first", "overwrite")
    if folder.is_folder() and not _is_ours(folder):
        raise OccupiedError(f"{folder.url}: a folder that Collapsium did not write is not replaced; name a new one")
    place = Path(folder.path)
    before = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}.replaced")
    place.rename(before)
    try:
        yield
    except BaseException:
        if not place.exists():
            before.rename(place)
        raise
    finally:
        if before.is_dir():
            Folder(before).remove()
        else:
            before.unlink(missing_ok=True)


@contextlib.contextmanager
def table_file(out: str | os.PathLike[str] | None) -> Iterator[str | os.PathLike[str]]:
    """Provide the file that a table is written to: the one that is named, or a temporary Parquet file."""
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, ignore_cleanup_errors=True) as place:
        yield os.path.join(place, "table.parquet")  # noqa: PTH118


@dataclass(frozen=True)
class ResultPlace:
    """The place of a result: one that was named, or one in a separate temporary folder."""

    path: str
    temporary: str | None = None  # The temporary folder

    def with_temporary(self, result: _Result) -> _Result:
        """Return the result, with which a temporary folder disappears when it is collected or the process ends."""
        if self.temporary is not None:
            weakref.finalize(result, remove_here, self.temporary, os.getpid())
        return result


@contextlib.contextmanager
def place_for(out: str | os.PathLike[str] | None, name: str) -> Iterator[ResultPlace]:
    """Provide the place that is named, or a temporary one of this name, which an error removes."""
    if out is not None:
        yield ResultPlace(os.fspath(out))
        return
    temporary = tempfile.mkdtemp(prefix=TEMPORARY)
    try:
        yield ResultPlace(os.path.join(temporary, name), temporary)  # noqa: PTH118
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def remove_here(place: str, process: int) -> None:
    """Remove a folder, except from a forked process."""
    if os.getpid() == process:
        shutil.rmtree(place, ignore_errors=True)


def _is_ours(folder: Folder) -> bool:
    """Return True for a folder that Collapsium wrote, or that has no files."""
    names = {name for name in folder.names() if not is_hidden(name)}
    if not names or not names.isdisjoint(RECORDS) or names <= set(TABLES):
        return True
    return folder.path.endswith(".zarr") and not names.isdisjoint(ZARR)
