"""Find the files of sources, and cut them into blocks that are read in parallel.

Blocks depend only on the names and bytes of the files, so a corpus does not depend on the number of workers.
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
from collapsium.storage.readers.texts.tables import row_groups, row_spans

BLOCK = 1 << 24  # bytes
# Assumed bytes of text for each byte of a compressed file.
GROWTH = 4
# These formats are split at any line end: a line is a document, and quotes never contain line ends.
SPLITTABLE = ("jsonl", "mallet")
# In a file's path this separates the folder from the name of the file in the corpus.
BELOW = "/./"
_MAGIC = "*?["


Block = tuple[Span, ...]


def find_files(sources: Sequence[str], kind: str | None, ending_of: Any) -> list[Span]:
    """Return the files of sources in the order of the sources; the files of a folder are sorted by name.

    Parameters
    ----------
    sources : sequence of str
        Files, folders and globs, local or fsspec URLs. Names that begin with a dot are skipped. The file
        ``texts/./a/1.txt`` has the name ``a/1.txt``, as if the source were the folder ``texts``.
    kind : str or None
        The format. If any files of a folder have names of this format, the others are skipped; None for all files.
    ending_of : callable
        From a file's name to its format, or None.

    Returns
    -------
    list of Span
        A span for each file.

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
    """Return the part of a glob before the first folder with a pattern, as in `source` and as in its file system."""
    tail = source[min(source.index(letter) for letter in _MAGIC if letter in source) :]
    head = source[: len(source) - len(tail)].rpartition("/")[0]
    inner = path[: min(path.index(letter) for letter in _MAGIC if letter in path)].rpartition("/")[0]
    return head or ("/" if source.startswith("/") else ""), inner


def _constants(name: str) -> tuple[tuple[str, str], ...]:
    """Return the fields in the names of Hive-style folders."""
    pairs = (part.partition("=") for part in name.split("/")[:-1])
    return tuple((field, unquote(value)) for field, equals, value in pairs if equals and field)


def absolute(files: list[Span]) -> list[Span]:
    """Replace relative local paths by absolute ones, for processes with other working directories."""

    @functools.cache
    def folder_of(path: str) -> bool:
        return isinstance(url_to_fs(path)[0], LocalFileSystem) and "://" not in path

    return [replace(file, path=str(Path(file.path).absolute())) if folder_of(file.path) else file for file in files]


def cut_blocks(files: list[Span], kind: str, block: int = BLOCK) -> Iterator[Block]:
    """Yield blocks of about `block` bytes; small files share a block.

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
        Files and parts of files, in order.
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
        yield from row_groups(file, block)
    elif kind == "csv" and not file.packed and file.size > block:
        yield from row_spans(file, block)
    elif kind in SPLITTABLE and not file.packed and file.size > block:
        for first in range(0, file.size, block):
            yield replace(file, first=first, last=min(first + block, file.size))
    else:
        yield file
