"""Places of results: `overwrites` lets functions replace earlier ones, and `place_for` makes temporary ones."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import json
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from collapsium.pipeline.options import OverwriteOptions, with_parameter
from collapsium.storage.corpus.manifest import MANIFEST
from collapsium.storage.errors import CollapsiumError, OccupiedError, OptionError
from collapsium.storage.io.atomic import is_hidden
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import MAX_BYTES
from collapsium.storage.io.run_lock import LockWatch
from collapsium.storage.runs.run import LOCK

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

# Records that mark a folder as written by Collapsium
RECORDS = (MANIFEST, "run.json", "model.json", "compare.json")
TABLES = ("topics.csv", "words.csv", "documents.csv")  # Files of an exported folder, which has no record
ZARR = ("zarr.json", ".zgroup")
TEMPORARY = "collapsium-"  # Prefix of temporary folders

_warned = logging.getLogger("collapsium").warning


def overwrites(
    *parameters: str,
    files: bool = False,
    companion: Callable[[str | os.PathLike[str]], str | None] | None = None,
) -> Callable[[Callable[_Arguments, _Result]], Callable[..., _Result]]:
    """Return a decorator that gives a function ``overwrite``, which replaces the outputs that some parameters name.

    A function of `files` replaces a file or an exported folder, and any other function a folder with a record of ours,
    so that a name given by mistake costs no other result and no file of the user. `companion` returns the path of a
    second file that is written beside an output. The function itself refuses outputs that exist. Existing ones are
    renamed before, and renamed back if the function raises an error without having written anything in their place; if
    it has, as an interrupted fit has, both are kept.
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
                outputs = [named[name] for name in parameters if named.get(name) is not None]
                if companion is not None:
                    outputs += filter(None, [companion(output) for output in outputs])
                for output in outputs:
                    aside.enter_context(_set_aside(output, files=files))
                return function(*args, **options)

        return with_parameter(
            call, "overwrite", bool, False, str(OverwriteOptions.model_fields["overwrite"].description)
        )

    return decorate


def _place(path: object) -> str | None:
    """Return the address of a path, and None for anything else."""
    return Folder(path).address if isinstance(path, (str, os.PathLike)) else None


@contextlib.contextmanager
def _set_aside(output: str | os.PathLike[str], *, files: bool) -> Iterator[None]:
    """Rename an output, and remove it at the end; rename it back, or keep it, if the call fails."""
    folder = Folder(output)
    if not folder.exists():
        yield
        return
    if not folder.local:
        raise OptionError(f"{folder.url}: only local files and folders are replaced; remove it first", "overwrite")
    _require_replaceable(folder, files=files)
    place = Path(folder.path)
    # Its user finds the output beside its place should the process be killed.
    names = (place.with_name(f"{place.name}.replaced{number or ''}") for number in itertools.count())
    before = next(path for path in names if not os.path.lexists(path))
    place.rename(before)
    try:
        yield
    except BaseException:
        if os.path.lexists(place):
            _warned("%s: not complete; the earlier output is kept as %s", folder.url, before)
        else:
            before.rename(place)
        raise
    if before.is_dir() and not before.is_symlink():
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


def _require_replaceable(folder: Folder, *, files: bool) -> None:
    """Raise `OccupiedError` for an output that a function of files, or of folders, must not replace."""
    if not folder.is_folder():
        if not Path(folder.path).is_file():
            raise OccupiedError(f"{folder.url}: a pipe or a device is not replaced; name a file")
        if not files:
            raise OccupiedError(f"{folder.url}: a file is not replaced by a folder; name a new folder")
        return
    names = {name for name in folder.names() if not is_hidden(name)}
    if files:
        replaceable = names <= set(TABLES) or (folder.path.endswith(".zarr") and not names.isdisjoint(ZARR))
    else:
        replaceable = not names or any(_is_record(folder, name) for name in RECORDS if name in names)
    if not replaceable and any(_is_record(folder, name) for name in RECORDS if name in names):
        raise OccupiedError(f"{folder.url}: a corpus, run or comparison is not replaced by a file; name a new one")
    if not replaceable:
        raise OccupiedError(f"{folder.url}: a folder that Collapsium did not write is not replaced; name a new one")
    # Another process may be working on it.
    LockWatch(folder / LOCK).wait()


def _is_record(folder: Folder, name: str) -> bool:
    """Return True for a record of ours; other programs write files of such names too."""
    try:
        record = json.loads(folder.read(name, MAX_BYTES))
    except (CollapsiumError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and str(record.get("format")).startswith("collapsium-")
