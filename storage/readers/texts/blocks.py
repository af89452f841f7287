"""Find the files of sources, cut them into blocks that are read in parallel, and read blocks as batches of documents.

Blocks depend only on the names and bytes of the files, so a corpus does not depend on the number of workers.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from collapsium.storage.data_types import is_annotated
from collapsium.storage.errors import AbsentError, InputError, OptionError
from collapsium.storage.io.file import is_there, is_url, locate, with_retries
from collapsium.storage.readers.base import may_be_cut
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.fields import DAY_FIRST, MONTH_FIRST, Fields, require_columns
from collapsium.storage.readers.texts.gathering import CHUNK_BYTES, Batch, Gathering, Into
from collapsium.storage.readers.texts.segment import ENTRIES, LeftOut, Span, cutter_of
from collapsium.storage.readers.texts.tables import (
    columns_of,
    gather_arrow,
    gather_file,
    gather_json,
    gather_mallet,
    gather_parquet,
    gather_table,
    row_groups,
    row_spans,
)

BLOCK = 1 << 24  # bytes
# Assumed bytes of text for each byte of a compressed file.
GROWTH = 4
# These formats are split at any line end: a line is a document, and quotes never contain line ends.
SPLITTABLE = ("jsonl", "mallet")
# In a file's path this separates the folder from the name of the file in the corpus.
BELOW = "/./"
HIDDEN = "_."  # Names that begin so are not data: Spark, Hive and others write such files beside it
MAX_NAMED = 3  # Files left out that a report names

_MAGIC = "*?["


Block = tuple[Span, ...]


def find_files(sources: Sequence[str], kind: str | None, ending_of: Any) -> list[Span]:
    """Return the files of sources; see `chosen_files`."""
    return chosen_files(sources, kind, ending_of)[0]


def chosen_files(sources: Sequence[str], kind: str | None, ending_of: Any) -> tuple[list[Span], tuple[LeftOut, ...]]:
    """Return the files of sources in the order of the sources; the files of a folder are sorted by name."""
    spans: list[Span] = []
    excluded: list[str] = []
    hidden: list[str] = []
    may_repeat = len(sources) > 1
    for number, source in enumerate(sources):
        files, skipped, linked = _files_of(source, number)
        may_repeat |= linked
        matching = [file for file in files if kind is not None and ending_of(file.name) == kind]
        excluded += [file.name for file in files if matching and ending_of(file.name) != kind]
        hidden += skipped
        spans += matching or files
    if may_repeat:
        require_once([span.path for span in spans], linked=kind in (None, "text"))
    left_out = (
        LeftOut(f"by name not of the format {kind}", len(excluded), tuple(excluded[:MAX_NAMED])),
        LeftOut("as hidden by an underscore", len(hidden), tuple(hidden[:MAX_NAMED])),
    )
    return spans, tuple(group for group in left_out if group.files)


def _files_of(source: str, number: int) -> tuple[list[Span], list[str], bool]:
    """Return the files of a source, the names that begin with an underscore, and whether any file is a link."""
    called = source.rpartition(BELOW)[2] if BELOW in source else source.rstrip("/").rpartition("/")[2]
    source = source.replace(BELOW, "/")
    fs, path = locate(source)
    if not isinstance(fs, LocalFileSystem):
        fs.invalidate_cache()
    exists = with_retries(source, lambda: is_there(fs, path))
    if exists and not with_retries(source, lambda: bool(fs.isdir(path))):
        size = with_retries(source, lambda: fs.size(path))
        return [Span(source, called, int(size or 0), number, constants=_constants(source))], [], False
    if not exists and not any(letter in source for letter in _MAGIC):
        raise AbsentError(f"{source}: no such file or folder")
    root, inner, pattern = source.rstrip("/"), path.rstrip("/"), ""
    if not exists:
        root, inner, pattern = _root(root, inner, isinstance(fs, LocalFileSystem))
    list_files = (lambda: fs.find(path, detail=True)) if exists else (lambda: fs.glob(pattern, detail=True))
    files = {
        str(name)[len(inner) :].lstrip("/"): info
        for name, info in with_retries(source, list_files).items()
        if info.get("type") != "directory"
    }
    # A glob may ask for such names.
    signs = {sign for sign in HIDDEN if not any(part.startswith(sign) for part in pattern.split("/"))}
    parts_of = sorted(name.split("/") for name in files)
    visible = [parts for parts in parts_of if not any(part[:1] in signs for part in parts)]
    skipped = ["/".join(parts) for parts in parts_of if any(part[:1] == "_" for part in parts)] if "_" in signs else []
    if not visible:
        raise AbsentError(f"{source}: {'the folder holds' if exists else 'the pattern matches'} no file")
    spans = []
    for parts in visible:
        name = "/".join(parts)
        url = f"{root.rstrip('/')}/{name}" if root else name
        spans.append(Span(url, name, int(files[name].get("size") or 0), number, constants=_constants(name)))
    linked = any(info.get("islink") or info.get("nlink", 1) > 1 for info in files.values())
    return spans, skipped, linked


def _root(source: str, path: str, local: bool) -> tuple[str, str, str]:
    """Return the folder of a glob as in `source` and as in its file system, and the pattern within that folder.

    The folder ends before the first part with a wildcard that is not the name of a folder that exists.
    """
    parts, fixed = path.split("/"), 0
    while fixed < len(parts) - 1:
        wild = any(letter in parts[fixed] for letter in _MAGIC)
        if wild and not (local and os.path.lexists("/".join(parts[: fixed + 1]))):
            break
        fixed += 1
    inner, tail = "/".join(parts[:fixed]), parts[fixed:]
    of_source = source.split("/")
    head = "/".join(of_source[: len(of_source) - len(tail)])
    pattern = "/".join([glob.escape(inner), *tail]) if fixed else "/".join(tail)
    return head or ("/" if source.startswith("/") else ""), inner, pattern


def require_once(paths: Sequence[str], *, linked: bool = False) -> None:
    """Refuse a file that is given twice, even by different paths."""
    if len(paths) < 2:
        return
    seen: dict[object, str] = {}
    for path in paths:
        if is_annotated(path):  # The ids of its cells tell whether it is given twice.
            continue
        fs, place = locate(path)
        key: object = (type(fs), place)
        if isinstance(fs, LocalFileSystem):
            with contextlib.suppress(OSError):
                status = Path(place).stat()
                two_names = linked and status.st_nlink > 1
                key = os.path.realpath(place) if two_names else (status.st_dev, status.st_ino)
        if key in seen:
            again = "" if path == seen[key] else f" (as {seen[key]} too)"
            raise InputError(path, f"the same file is given twice{again}")
        seen[key] = path


def _constants(name: str) -> tuple[tuple[str, str], ...]:
    """Return the fields in the names of Hive-style folders."""
    pairs = (part.partition("=") for part in name.split("/")[:-1])
    return tuple((field, unquote(value)) for field, equals, value in pairs if equals and field)


def absolute(files: list[Span]) -> list[Span]:
    """Replace relative local paths by absolute ones, for processes with other working directories."""
    return [file if is_url(file.path) else replace(file, path=locate(file.path)[1]) for file in files]


def cut_blocks(files: list[Span], kind: str, options: ReadOptions, block: int = BLOCK) -> Iterator[Block]:
    """Yield blocks of about `block` bytes; small files share a block."""
    waiting: list[Span] = []
    weight = 0
    for file in files:
        for span in _spans_of(file, kind, options, block):
            size = span.size if span.last is None or kind == "parquet" else span.last - span.first
            weight += size * (GROWTH if span.packed else 1) + 256
            waiting.append(span)
            if weight >= block:
                yield tuple(waiting)
                waiting, weight = [], 0
    if waiting:
        yield tuple(waiting)


def _spans_of(file: Span, kind: str, options: ReadOptions, block: int) -> Iterator[Span]:
    if kind == "parquet":
        yield from row_groups(file, block)
    elif kind not in (*SPLITTABLE, "csv") or file.size <= block or not may_be_cut(file.path, options):
        yield file
    elif kind == "csv":
        yield from row_spans(file, block, options)
    else:
        for first in range(0, file.size, block):
            yield replace(file, first=first, last=min(first + block, file.size))


GATHER: dict[str, Callable[[Span, ReadOptions, Into], Iterator[None]]] = {
    "csv": gather_table,
    "jsonl": gather_json,
    "mallet": gather_mallet,
    "parquet": gather_parquet,
    "text": gather_file,
}
TEXTS = tuple(GATHER)  # formats of texts
# Formats whose fields have fixed names, with their labels.
FIXED = {"mallet": ("label=label",), "text": ()}


def fields_of(options: ReadOptions, kind: str) -> ReadOptions:
    """Return the options with the fixed fields of a format."""
    if kind in FIXED:
        for flag, value in (
            ("id", options.id),
            ("text", options.text),
            ("title", options.title),
            ("date", options.date),
            ("date_order", options.date_order),
            ("labels", options.labels not in ((), FIXED[kind])),
            ("covariates", options.covariates),
        ):
            if value:
                raise OptionError(f"documents of the format {kind} have no fields to name", flag)
        if options.segments == ENTRIES:
            raise OptionError(f"`segments` {ENTRIES}: documents of the format {kind} have no fields, and so no lists")
        options = replace(options, labels=FIXED[kind])
    Fields.of(options)
    if options.date_order not in (None, DAY_FIRST, MONTH_FIRST):
        raise OptionError(f"expected {DAY_FIRST} or {MONTH_FIRST}, found {options.date_order!r}", "date_order")
    if options.date_order is not None and options.date is None:
        raise OptionError("requires the field of the dates (`date`)", "date_order")
    if options.segments is not None:
        cutter_of(options.segments)
    return options


def read_batches(block: Block, kind: str, options: ReadOptions, numbered: bool = False) -> Iterator[Batch]:
    """Yield the documents of a block in batches."""
    gathering = Gathering(Fields.of(options), numbered)
    rows = (row for span in block for row in GATHER[kind](span, options, gathering))
    yield from _batches(gathering, rows)


def batches_of_table(table: pa.Table, name: str, options: ReadOptions) -> Iterator[Batch]:
    """Yield the documents of a table in memory, which errors call `name`, in batches."""
    gathering = Gathering(Fields.of(options))
    yield from _batches(gathering, gather_arrow(Span(name, name, table.nbytes), table, gathering))


def _batches(gathering: Gathering, rows: Iterator[None]) -> Iterator[Batch]:
    for _ in rows:
        if gathering.bytes >= CHUNK_BYTES:
            yield gathering.batch()
    if len(gathering):
        yield gathering.batch()


def are_numbered(files: list[Span], kind: str, options: ReadOptions) -> bool:
    """Return True if the first file has no column of ids, and none is named, so that documents are numbered."""
    if kind not in ("csv", "parquet"):
        return False
    names, fields = columns_of(files[0], kind, options), Fields.of(options)
    require_columns(files[0].path, names, fields)
    return not fields.id_is_set and fields.id not in names
