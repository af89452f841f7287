"""Read records from JSON lines, from MALLET lines (name, label and text), and from files with one text each."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import IO

from collapsium.storage.errors import InputError
from collapsium.storage.io.encodings import NAME_IT
from collapsium.storage.readers.base import open_text, reading
from collapsium.storage.readers.read_options import Guess, ReadOptions
from collapsium.storage.readers.texts.gathering import Into
from collapsium.storage.readers.texts.segment import Span

FIRST_BYTES = 1 << 16  # bytes whose documents name the known fields in an error
PIECE = 1 << 24  # bytes that are read at once
# The default pattern of MALLET's import-file.
_MALLET = re.compile(r"(\S*)[\s,]*(\S*)[\s,]*(.*)", re.DOTALL)
_BOM = b"\xef\xbb\xbf"


def lines_of(
    span: Span, options: ReadOptions, guesses: dict[Guess, None] | None = None
) -> Iterator[tuple[bytes, Callable[[], str]]]:
    """Yield the lines that begin in a span."""
    # The lines before the span are counted only if an error needs the line number.
    before: list[int] = []

    def numbered(number: int) -> Callable[[], str]:
        def where() -> str:
            if not before:
                before.append(lines_before(span, span.first - 1, options) + 1 if span.first else 0)
            return f"line {before[0] + number}"

        return where

    number = 0
    with reading(span.path), open_text(span.path, options, guesses) as handle:
        for piece in _pieces(handle, span):
            lines = piece.split(b"\n")
            if not lines[-1]:
                lines.pop()
            for line in lines:
                number += 1
                yield line, numbered(number)


def _pieces(handle: IO[bytes], span: Span) -> Iterator[bytes]:
    """Yield complete lines, some megabytes at a time."""
    place, last = span.first, span.last
    if place:
        handle.seek(place - 1)
        place += len(handle.readline()) - 1
    elif last is not None:
        place = handle.tell()  # a byte order mark may come first
    while last is None or place < last:
        piece = handle.read(PIECE if last is None else min(PIECE, last - place))
        if not piece:
            return
        if not piece.endswith(b"\n"):
            piece += handle.readline()
        place += len(piece)
        yield piece


def lines_before(span: Span, place: int, options: ReadOptions) -> int:
    """Return the number of lines of a file that end before a byte."""
    if not place:
        return 0
    count = 0
    with open_text(span.path, options) as handle:
        left = place - handle.tell()
        while left > 0 and (piece := handle.read(min(PIECE, left))):
            count += piece.count(b"\n")
            left -= len(piece)
    return count


def first_fields(span: Span, options: ReadOptions) -> set[str]:
    """Return the fields of the first documents of a file of JSON lines, to name the nearest to an unknown one."""
    with reading(span.path), open_text(span.path, options) as handle:
        lines = handle.readlines(FIRST_BYTES)
    fields: set[str] = set()
    for line in lines:
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            fields.update(record if isinstance(record, dict) else ())
    return fields


def gather_json(span: Span, options: ReadOptions, into: Into) -> Iterator[None]:
    """Read JSON lines, an object a line, into a collector."""
    constants = dict(span.constants)
    for line, where in lines_of(span, options, into.guesses):
        if not line.strip():
            continue
        try:
            try:
                # Text, unlike bytes, spares the parser the detection of the encoding.
                record = json.loads(line.decode("utf-8-sig"))
            except UnicodeDecodeError:
                if options.bad_bytes != "replace":
                    raise
                into.replaced += 1
                record = json.loads(line.decode("utf-8-sig", "replace"))
        except UnicodeDecodeError as error:
            raise InputError(span.path, not_of_encoding(options, str(error)), where()) from None
        except (ValueError, RecursionError) as error:
            refuse_array(span.path, line, where)
            raise InputError(span.path, f"expected a JSON object ({error})", where()) from None
        if not isinstance(record, dict):
            refuse_array(span.path, line, where)
            raise InputError(span.path, f"expected a JSON object, found {type(record).__name__}", where())
        into.add(span.path, {**constants, **record} if constants else record, where)
        yield


def refuse_array(path: str, line: bytes, where: Callable[[], str]) -> None:
    """Raise an error with instructions for conversion if a line begins a JSON array."""
    if not line.removeprefix(_BOM).lstrip().startswith(b"["):
        return
    raise InputError(
        path,
        "expected JSON lines, an object a line, found an array; make them with "
        f"`jq -c '.[]' {path.rpartition('/')[2]} > lines.jsonl`",
        where(),
    )


def gather_mallet(span: Span, options: ReadOptions, into: Into) -> Iterator[None]:
    """Read lines of a name, a label and a text into a collector, by the rules of MALLET's ``import-file``."""
    for line, where in lines_of(span, options, into.guesses):
        if not line.strip():
            continue
        text = decoded(line.removeprefix(_BOM), span.path, options, into, where)
        name, label, rest = _MALLET.match(text.strip()).groups()  # type: ignore[union-attr]
        into.add(span.path, {"id": name, "label": label, "text": rest}, where)
        yield


def gather_file(span: Span, options: ReadOptions, into: Into) -> Iterator[None]:
    """Read a file with one text into a collector."""
    with reading(span.path), open_text(span.path, options, into.guesses) as handle:
        data = handle.read()
    text = decoded(data, span.path, options, into, lambda: "")
    into.add(span.path, {"id": span.name, "text": text}, lambda: "")
    yield


def not_of_encoding(options: ReadOptions, fault: str) -> str:
    """Return the message about bytes that are invalid in the encoding of a text file."""
    if options.encoding is None:
        return f"expected UTF-8 text ({fault}); {NAME_IT}, or continue with `bad_bytes` replace"
    return f"expected text in {options.encoding} (`encoding`), found other bytes; or continue with `bad_bytes` replace"


def decoded(data: bytes, path: str, options: ReadOptions, into: Into, where: Callable[[], str]) -> str:
    """Return decoded UTF-8; invalid bytes are replaced if `bad_bytes` is ``replace``."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if options.bad_bytes != "replace":
            raise InputError(path, not_of_encoding(options, str(error)), where()) from None
        into.replaced += 1
        return data.decode(errors="replace")
