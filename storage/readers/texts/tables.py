"""Read records from tables: comma-separated values with a header, and Parquet."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import IO, Any

import pyarrow as pa

from collapsium.storage.corpus.parquet import FAULTS
from collapsium.storage.errors import InputError
from collapsium.storage.io.parquet.bounded_file import BoundedFile, SwollenError
from collapsium.storage.readers.base import open_input, reading
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.fields import Fields
from collapsium.storage.readers.texts.gathering import Into
from collapsium.storage.readers.texts.lines import lines_before
from collapsium.storage.readers.texts.spans import Span

_TABS = (".tsv", ".tab")
_BOM = b"\xef\xbb\xbf"
LONGEST = 1 << 28  # bytes of a row

csv.field_size_limit(min(sys.maxsize, 2**31 - 1))


def gather_table(span: Span, options: ReadOptions, into: Into) -> Iterator[None]:
    """Read comma-separated values with a header, or tab-separated values of ``.tsv`` files, into a collector.

    Values in quotes may contain line ends. An empty value is missing, except in the field of the text.

    Parameters
    ----------
    span, options, into
        As for `collapsium.storage.readers.texts.lines.gather_json`.

    Yields
    ------
    None
        None after each row.

    Raises
    ------
    InputError
        A row has more or fewer values than the header, a quote is not closed, or a column does not exist.
    """
    lenient = options.bad_bytes == "replace"
    header = _header(span, options)
    constants = {field: value for field, value in span.constants if field not in header}
    into.requested(span.path, [*header, *constants])
    with reading(span.path), open_input(span.path, options.max_decompressed) as handle:
        part: Any = handle if span.last is None else _Part(handle, span.first, span.last)
        rows = _rows(part, span, "replace" if lenient else "strict")
        # The lines before the span are counted only if an error needs the line number.
        before: list[int] = []

        def where() -> str:
            if not before:
                before.append(lines_before(span, span.first, options))
            return f"line {before[0] + rows.line_num}"

        if span.last is None:
            next(rows)  # the header
        while (row := _next(rows, span, where)) is not None:
            if not row:
                continue
            if len(row) != len(header):
                raise InputError(
                    span.path, f"expected {len(header)} values as in the header, found {len(row)}", where()
                )
            if lenient and any("\ufffd" in value for value in row):
                into.replaced += 1
            into.add(span.path, {**constants, **dict(zip(header, row, strict=True))}, where)
            yield


def _header(span: Span, options: ReadOptions) -> list[str]:
    """Return the names of a table's columns."""
    with reading(span.path), open_input(span.path, options.max_decompressed) as handle:
        rows = _rows(handle, span, "replace" if options.bad_bytes == "replace" else "strict")
        header = _next(rows, span, lambda: "line 1")
    if header is None:
        raise InputError(span.path, "expected a header, the file is empty")
    header = [name.strip() for name in header]
    again = next((name for number, name in enumerate(header) if name in header[:number]), None)
    if again is not None:
        raise InputError(span.path, f"the column {again!r} is there twice", "line 1")
    return header


def _rows(handle: Any, span: Span, errors: str) -> Any:
    text = io.TextIOWrapper(handle, "utf-8-sig", errors, newline="")
    return csv.reader(text, delimiter=_delimiter(span), strict=True)


def _delimiter(span: Span) -> str:
    name = span.path.lower()
    return "\t" if any(ending in name.rsplit("/", 1)[-1] for ending in _TABS) else ","


def _next(rows: Any, span: Span, where: Callable[[], str]) -> list[str] | None:
    try:
        return next(rows, None)
    except csv.Error as error:
        raise InputError(span.path, f"expected comma-separated values ({error})", where()) from None
    except UnicodeDecodeError as error:
        raise InputError(
            span.path, f"expected UTF-8 text ({error.reason}); `bad_bytes` replace goes on", f"after {where()}"
        ) from None


class _Part(io.RawIOBase):
    """A range of a file's bytes as a file; closing it leaves the underlying file open."""

    def __init__(self, handle: IO[bytes], first: int, last: int) -> None:
        self._handle, self._left = handle, last - first
        handle.seek(first)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._handle.read(min(len(buffer), self._left))
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)


def row_spans(file: Span, block: int) -> Iterator[Span]:
    """Yield spans of a table of comma-separated values that end between rows, also if values contain line ends.

    If quotes are misplaced, a span may end within a row, and the rest is one span; reading the rows raises the error.

    Parameters
    ----------
    file : Span
        An uncompressed file.
    block : int
        Approximate bytes of a span.

    Yields
    ------
    Span
        Some of the rows below the header; the entire file if it fits in one span.
    """
    delimiter = _delimiter(file).encode()
    rows, row = _pattern(delimiter, b"*+"), _pattern(delimiter, b"")
    with reading(file.path), open_input(file.path) as handle:
        waiting = handle.read(block)
        header = row.match(waiting, len(_BOM) if waiting.startswith(_BOM) else 0)
        if header is None:
            yield file
            return
        first, waiting = header.end(), waiting[header.end() :]
        while len(waiting) <= LONGEST:
            end = rows.match(waiting).end()  # type: ignore[union-attr]
            if end:
                yield replace(file, first=first, last=first + end)
                first, waiting = first + end, waiting[end:]
            piece = handle.read(max(block - len(waiting), len(waiting)))
            if not piece:
                break
            waiting += piece
    if first < file.size:
        yield replace(file, first=first, last=file.size)


def _pattern(delimiter: bytes, times: bytes) -> re.Pattern[bytes]:
    """Return a pattern of complete rows; it never backtracks, so matching takes linear time."""
    quoted = rb'"[^"]*+(?:""[^"]*+)*+"[^%b\r\n]*+' % delimiter
    plain = rb'[^"%b\r\n][^%b\r\n]*+' % (delimiter, delimiter)
    value = rb"(?:%b|%b|)" % (quoted, plain)
    return re.compile(rb"(?:%b(?:%b%b)*+(?:\r\n?|\n))%b" % (value, delimiter, value, times))


def is_numbered(names: list[str], fields: Fields) -> bool:
    """Return True if a table's documents are numbered: no field of ids is set, and no column has its default name."""
    return not fields.id_is_set and fields.id not in names


def columns_of(span: Span, kind: str, options: ReadOptions) -> list[str]:
    """Return the names of a table's columns.

    Parameters
    ----------
    span : Span
        A file.
    kind : str
        ``csv`` or ``parquet``.
    options : ReadOptions
        Limit of decompressed bytes.

    Returns
    -------
    list of str
        Names of the columns, and of the fields of folders such as ``year=1987``.

    Raises
    ------
    InputError
        The file is not a table of this kind.
    """
    further = [field for field, _ in span.constants]
    with reading(span.path), open_input(span.path, options.max_decompressed) as handle:
        if kind == "parquet":
            return [*_opened(handle, span, options).schema.names, *further]
        header = _next(_rows(handle, span, "replace"), span, lambda: "line 1")
        return [*(name.strip() for name in header or ()), *further]


def _opened(handle: IO[bytes], span: Span, options: ReadOptions | None = None) -> BoundedFile:
    try:
        file = BoundedFile(handle, None if options is None else options.max_decompressed)
        _ = file.schema
        return file
    except FAULTS as error:
        raise InputError(span.path, f"expected a Parquet file ({_first_line(error)})") from None


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def row_groups(span: Span, block: int) -> Iterator[Span]:
    """Yield spans of a Parquet file that end between row groups.

    Parameters
    ----------
    span : Span
        The file.
    block : int
        Approximate bytes of a span.

    Yields
    ------
    Span
        Some of the row groups.
    """
    with reading(span.path), open_input(span.path) as handle:
        sizes = _opened(handle, span).footer.sizes
    first, weight = 0, 0
    for group, size in enumerate(sizes):
        weight += size
        if weight >= block or group == len(sizes) - 1:
            yield replace(span, first=first, last=group + 1, size=weight)
            first, weight = group + 1, 0


def gather_parquet(span: Span, options: ReadOptions, into: Into) -> Iterator[None]:
    """Read rows of Parquet into a collector.

    Parameters
    ----------
    span, options, into
        As for `collapsium.storage.readers.texts.lines.gather_json`.

    Yields
    ------
    None
        None after each row.

    Raises
    ------
    InputError
        The file is damaged, or a column does not exist.
    """
    with reading(span.path), open_input(span.path) as handle:
        file = _opened(handle, span, options)
        there = file.schema.names
        constants = {field: value for field, value in span.constants if field not in there}
        columns_read = [name for name in into.requested(span.path, [*there, *constants]) if name in there]
        row = 0
        for batch in _batches(file, span, columns_read):
            columns = [_values(span, name, batch.column(name), row) for name in columns_read]
            for values in zip(*columns, strict=True):
                row += 1
                into.add(span.path, {**constants, **dict(zip(columns_read, values, strict=True))}, lambda: f"row {row}")  # noqa: B023
                yield


def _values(span: Span, name: str, column: Any, before: int) -> list[Any]:
    """Return the values of a column of a batch; raise `InputError` with the row if one cannot be read."""
    try:
        column.validate(full=True)
        return _as_lists(column)
    except FAULTS as error:
        for row in range(len(column)):
            try:
                _as_lists(column.slice(row, 1))
            except FAULTS as cause:
                expected = f"expected UTF-8 text in field {name[:100]!r} ({_first_line(cause)})"
                raise InputError(span.path, expected, f"row {before + row + 1}") from None
        raise InputError(span.path, f"field {name[:100]!r} is damaged ({_first_line(error)})") from None


def _as_lists(column: Any) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_timestamp(column.type):
        return [
            None if one is None else one.isoformat()
            for one in column.cast(pa.timestamp("us", column.type.tz)).to_pylist()
        ]
    return list(column.to_pylist())


def _batches(file: BoundedFile, span: Span, columns: list[str]) -> Iterator[Any]:
    groups = range(span.first, file.groups if span.last is None else span.last)
    try:
        yield from file.batches(columns, groups)
    except SwollenError as error:
        raise InputError(
            span.path, f"{error} and disk; if it is to be trusted, raise the limit (`max_decompressed`)"
        ) from None
    except FAULTS as error:
        if isinstance(error, InputError):
            raise
        raise InputError(span.path, f"the Parquet file is damaged ({_first_line(error)})") from None
