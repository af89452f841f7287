"""Finding the files of sources, and cutting them into blocks that are read side by side.

Blocks follow from the files' names and bytes alone, so that a corpus is the same however many read them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from collapsium.storage.errors import AbsentError
from collapsium.storage.io.retry import with_retries
from collapsium.storage.readers.texts.spans import Span

BLOCK = 1 << 24  # bytes
GROWTH = 4  # what text of a byte of a compressed file is taken to be
SPLITTABLE = ("jsonl", "mallet")  # at any byte: a line is a document, and no quotes are around lines' ends
BELOW = "/./"  # in a file's path, before what it is called
_MAGIC = "*?["


Block = tuple[Span, ...]


def find_files(sources: Sequence[str], kind: str | None, ending_of: Any) -> list[Span]:
    """List the files of sources, in the order of the sources and, below a folder, of their names.

    Parameters
    ----------
    sources : sequence of str
        Files, folders and globs, local or fsspec URLs. Names that begin with a dot are left out. A file that is named
        ``texts/./a/1.txt`` is called ``a/1.txt``, as below the folder ``texts``.
    kind : str or None
        The format; of a folder only files that are named as such are taken, where there are any. None for all.
    ending_of : callable
        From a file's name to its format, or None.

    Returns
    -------
    list of Span
        Each a whole file.

    Raises
    ------
    AbsentError
        A source does not exist, or matches nothing.
    """
    spans: list[Span] = []
    for number, source in enumerate(sources):
        files = list(_files_of(source, number))
        ours = [file for file in files if kind is not None and ending_of(file.name) == kind]
        spans += ours or files
    return spans


def _files_of(source: str, number: int) -> Iterator[Span]:
    called = source.rpartition(BELOW)[2] if BELOW in source else source.rstrip("/").rpartition("/")[2]
    source = source.replace(BELOW, "/")
    fs, path = url_to_fs(source)
    if not isinstance(fs, LocalFileSystem):
        fs.invalidate_cache()
    exists = with_retries(source, lambda: bool(fs.exists(path)))
    if exists and not with_retries(source, lambda: bool(fs.isdir(path))):
        size = with_retries(source, lambda: fs.size(path))
        yield Span(source, called, int(size or 0), number, constants=_constants(source))
        return
    if not exists and not any(letter in source for letter in _MAGIC):
        raise AbsentError(f"{source}: no such file or folder")
    root, inner = _root(source, path) if not exists else (source.rstrip("/"), str(path).rstrip("/"))
    list_files = (lambda: fs.find(path, detail=True)) if exists else (lambda: fs.glob(path, detail=True))
    files = {
        str(name)[len(inner) :].lstrip("/"): info
        for name, info in with_retries(source, list_files).items()
        if info.get("type") != "directory"
    }
    visible = sorted(name.split("/") for name in files if not any(part.startswith(".") for part in name.split("/")))
    if not visible:
        raise AbsentError(f"{source}: {'the folder holds' if exists else 'the pattern matches'} no file")
    for parts in visible:
        name = "/".join(parts)
        url = f"{root}/{name}" if root else name
        yield Span(url, name, int(files[name].get("size") or 0), number, constants=_constants(name))


def _root(source: str, path: str) -> tuple[str, str]:
    """Return the part of a glob before the first folder with a pattern, as it was given and in its file system."""
    tail = source[min(source.index(letter) for letter in _MAGIC if letter in source) :]
    head = source[: len(source) - len(tail)].rpartition("/")[0]
    inner = path[: min(path.index(letter) for letter in _MAGIC if letter in path)].rpartition("/")[0]
    return head or ("/" if source.startswith("/") else ""), inner


def _constants(name: str) -> tuple[tuple[str, str], ...]:
    """Read fields off folders named as Hive names them."""
    pairs = (part.partition("=") for part in name.split("/")[:-1])
    return tuple((field, unquote(value)) for field, equals, value in pairs if equals and field)


def absolute(files: list[Span]) -> list[Span]:
    """Name local files so that processes in other folders find them."""

    @functools.cache
    def folder_of(path: str) -> bool:
        return isinstance(url_to_fs(path)[0], LocalFileSystem) and "://" not in path

    return [replace(file, path=str(Path(file.path).absolute())) if folder_of(file.path) else file for file in files]


def cut_blocks(files: list[Span], kind: str, block: int = BLOCK) -> Iterator[Block]:
    """Cut files into blocks of about as many bytes; small ones share a block.

    Parameters
    ----------
    files : list of Span
        Whole files.
    kind : str
        Their format.
    block : int, optional
        Bytes of a block.

    Yields
    ------
    tuple of Span
        Files and parts of them, in order.
    """
    waiting: list[Span] = []
    weight = 0
    for file in files:
        for span in _spans_of(file, kind, block):
            size = span.size if span.last is None or kind == "parquet" else span.last - span.first
            weight += size * (GROWTH if span.packed else 1) + 256
            waiting.append(span)
            if weight >= block:
                yield tuple(waiting)
                waiting, weight = [], 0
    if waiting:
        yield tuple(waiting)


def _spans_of(file: Span, kind: str, block: int) -> Iterator[Span]:
    if kind == "parquet":
        from collapsium.storage.readers.texts.tables import row_groups

        yield from row_groups(file, block)
    elif kind == "csv" and not file.packed and file.size > block:
        from collapsium.storage.readers.texts.tables import row_spans

        yield from row_spans(file, block)
    elif kind in SPLITTABLE and not file.packed and file.size > block:
        for first in range(0, file.size, block):
            yield replace(file, first=first, last=min(first + block, file.size))
    else:
        yield file
