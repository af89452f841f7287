"""Read records from tables, separated values with a header or Parquet, as Python values of few types.

Arrow columns become texts, numbers and lists, or what the converters refuse. Dates and times become texts in ISO 8601,
with the offset of their zone. Extension types have the meaning of their specification
(https://arrow.apache.org/docs/format/CanonicalExtensions.html). Columns carry an extension type only in processes that
have registered it, and otherwise its name in the metadata of their field.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import json
import operator
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.parquet import FAULTS
from collapsium.storage.errors import InputError, reason_of
from collapsium.storage.io.encodings import NAME_IT
from collapsium.storage.io.file import ByteStream
from collapsium.storage.io.parquet import BoundedFile, SwollenError
from collapsium.storage.readers.base import head_of, open_input, open_text, reading
from collapsium.storage.readers.read_options import Guess, ReadOptions, separator_line, separator_of, shown
from collapsium.storage.readers.texts.fields import Fields, Unsupported
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


_NAME, _METADATA = b"ARROW:extension:name", b"ARROW:extension:metadata"
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
# Units of pandas' periods that are as long as NumPy's; aliases of releases before 2.2 are in capitals.
_UNITS = {
    "D": "D", "h": "h", "H": "h", "min": "m", "T": "m", "s": "s", "S": "s", "ms": "ms", "L": "ms", "us": "us",
    "U": "us", "ns": "ns", "N": "ns",
}  # fmt: skip

_MEANINGS: dict[str, Callable[[Any], Any]] = {
    "arrow.uuid": lambda value: str(uuid.UUID(bytes=value)),
    "arrow.bool8": bool,
    "arrow.json": json.loads,
}


def values_of(column: pa.Array, field: pa.Field) -> list[Any]:
    """Return the values of a column, None where they are missing.

    Raises an error of `collapsium.storage.corpus.parquet.FAULTS` if a value is damaged or out of range.
    """
    kind, described = column.type, field.metadata or {}
    if isinstance(kind, pa.BaseExtensionType):
        metadata = kind.__arrow_ext_serialize__() if isinstance(kind, pa.ExtensionType) else b""
        return _extension(kind.extension_name, metadata, column.storage)
    if _NAME in described:
        return _extension(described[_NAME].decode(), described.get(_METADATA, b""), column)
    if pa.types.is_dictionary(kind):
        return values_of(column.dictionary_decode(), field.with_type(kind.value_type))
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            column = pc.floor_temporal(column, unit="microsecond")
        return [
            None if time is None else time.isoformat() for time in column.cast(pa.timestamp("us", kind.tz)).to_pylist()
        ]
    if pa.types.is_duration(kind):
        return list(column.cast(pa.duration("us"), safe=kind.unit != "ns").to_pylist())
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        if pa.types.is_time64(kind):
            column = column.cast(pa.time64("us"), safe=False)
        return [None if time is None else time.isoformat() for time in column.to_pylist()]
    if pa.types.is_decimal(kind) and kind.scale <= 0:
        return [None if number is None else int(number) for number in column.to_pylist()]
    if pa.types.is_map(kind) or pa.types.is_struct(kind):
        return _unsupported(column, "a map" if pa.types.is_map(kind) else "an object")
    types = pa.types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if is_list or types.is_list_view(kind) or types.is_large_list_view(kind):
        item = kind.value_type
        is_plain = types.is_string(item) or types.is_large_string(item) or types.is_integer(item)
        if (is_plain or types.is_floating(item) or types.is_boolean(item)) and _NAME not in (
            kind.value_field.metadata or {}
        ):
            return list(column.to_pylist())
        inner = iter(values_of(column.flatten(), kind.value_field))
        lengths = pc.list_value_length(column).to_pylist()
        return [None if length is None else [next(inner) for _ in range(length)] for length in lengths]
    return list(column.to_pylist())


def _unsupported(column: pa.Array, name: str) -> list[Unsupported | None]:
    value = Unsupported(name[:100])
    return [value if is_valid else None for is_valid in column.is_valid().to_pylist()]


def _extension(name: str, metadata: bytes, storage: pa.Array) -> list[Any]:
    """Return the values of an extension type, whose Arrow values are `storage`."""
    if name == "pandas.period":
        convert = _beginning_of(metadata)
    elif name in _MEANINGS:
        convert = _MEANINGS[name]
    else:
        return _unsupported(storage, f"a value of type {name}")
    return [None if value is None else convert(value) for value in storage.to_pylist()]


def _beginning_of(metadata: bytes) -> Callable[[Any], Any]:
    """Return a function from the number of a pandas period to its beginning in ISO 8601."""
    try:
        described = json.loads(metadata)
    except ValueError:
        described = None
    freq = str(described.get("freq")) if isinstance(described, Mapping) else "None"
    # Periods of several units, such as 3M, are numbered in units too.
    unit, _, anchor = freq.lstrip("0123456789").partition("-")
    unsupported = Unsupported(f"a period of frequency {freq[:40]!r}")
    if unit in _UNITS:
        return lambda number: _iso(np.array(number, dtype=f"datetime64[{_UNITS[unit]}]"))
    if unit in ("M", "ME") and not anchor:
        return lambda number: _iso(np.array(number, dtype="datetime64[M]"))
    if unit in ("Y", "YE", "A") and (anchor or "DEC") in _MONTHS:
        # The year is named after the calendar year in which it ends.
        after = (_MONTHS.index(anchor or "DEC") + 1) % 12
        return lambda number: _iso(np.array(12 * (number - (after > 0)) + after, dtype="datetime64[M]"))
    if unit in ("Q", "QE") and (anchor or "DEC") in _MONTHS:
        after = (_MONTHS.index(anchor or "DEC") + 1) % 12
        return lambda number: _iso(np.array(3 * number - 12 * (after > 0) + after, dtype="datetime64[M]"))
    if unit == "W" and (anchor or "SUN") in _WEEKDAYS:
        # Week 1 contains 1970-01-01, a Thursday.
        last = _WEEKDAYS.index(anchor or "SUN")
        return lambda number: _iso(np.array(7 * (number - 1) - 3 + (last + 1) % 7, dtype="datetime64[D]"))
    if unit == "B":
        return lambda number: _iso(np.busday_offset("1970-01-01", number, roll="forward"))
    return lambda _: unsupported


def _iso(moment: Any) -> str:
    """Return a moment in ISO 8601, without a time where its unit is a day or longer; years have four digits."""
    unit = "D" if np.datetime_data(moment.dtype)[0] in ("M", "D") else "us"
    value = moment.astype(f"datetime64[{unit}]").item()
    if not isinstance(value, datetime.date):
        raise ValueError(f"date value out of range: {moment}")
    return value.isoformat()


LONGEST = 1 << 28  # bytes of a row

csv.field_size_limit(min(sys.maxsize, 2**31 - 1))


def gather_table(span: Span, options: ReadOptions, into: Into) -> Iterator[None]:
    """Read a table of separated values with a header into a collector.

    Values in quotes may contain line ends. An empty value is missing, except in the field of the text. Columns that are
    not asked for may have any names, or none.
    """
    with reading(span.path), open_text(span.path, options, into.guesses) as handle:
        table = _Table(handle, span, options, into)
        if span.last is None:
            yield from table.rows()
    if span.last is not None:
        with reading(span.path), open_text(span.path, options) as handle:
            yield from table.rows(_Part(handle, span.first, span.last))


class _Table:
    """A table of separated values whose header has been read."""

    def __init__(self, handle: IO[bytes], span: Span, options: ReadOptions, into: Into | None) -> None:
        self._span, self._options, self._into = span, options, into
        self._lenient = options.bad_bytes == "replace"
        self.separator, self.above = _begin(handle, span, options, into)
        self._reader = self._reader_of(handle)
        names = self._next(lambda: f"line {1 + (self.above > 0)}")
        if names is None and into is not None:
            raise InputError(span.path, "expected a header, the file is empty")
        self.names = [name.strip() for name in names or ()]

    def _reader_of(self, handle: Any) -> Any:
        text = io.TextIOWrapper(handle, "utf-8", "replace" if self._lenient else "strict", newline="")
        return csv.reader(text, delimiter=self.separator, strict=True)

    def rows(self, part: Any = None) -> Iterator[None]:
        """Add all rows below the header, or the rows of a part of the file, to the collector."""
        span, into, names = self._span, self._into, self.names
        if into is None:
            return
        constants = {field: value for field, value in span.constants if field not in names}
        used = into.requested(span.path, [*names, *constants])
        _require_once(span.path, used, names, "line 1")
        constants = {name: value for name, value in constants.items() if name in used}
        chosen = [name for name in used if name in names]
        places = [names.index(name) for name in chosen]
        # With one more place, a single column is a tuple too.
        pick = operator.itemgetter(*places, places[0]) if places else lambda _: ()
        lenient, count, add, following = self._lenient, len(names), into.add, self._next
        # Columns without a name at the end of the header, as spreadsheets write them, may be absent from rows.
        width = next((number for number in range(len(names), 0, -1) if names[number - 1]), 0)
        if part is not None:
            self._reader = self._reader_of(part)
        # The lines before the span are counted only if an error needs the line number.
        before: list[int] = []

        def where() -> str:
            if not before:
                before.append(lines_before(span, span.first, self._options) + (self.above > 0 and not span.first))
            return f"line {before[0] + self._reader.line_num}"

        while (row := following(where)) is not None:
            if not row:
                continue
            if len(row) != count and (len(row) < width or any(row[count:])):
                raise InputError(span.path, f"expected {len(names)} values as in the header, found {len(row)}", where())
            if lenient and any("\ufffd" in value for value in row):
                into.replaced += 1
            record = dict(zip(chosen, pick(row), strict=False))
            add(span.path, {**constants, **record} if constants else record, where)
            yield

    def _next(self, where: Callable[[], str]) -> list[str] | None:
        try:
            return next(self._reader, None)
        except csv.Error as error:
            named = {",": "comma", "\t": "tab", ";": "semicolon"}.get(self.separator, repr(self.separator))
            fault = f"expected {named}-separated values ({error})"
            if "expected after" in str(error):
                fault += "; a quote within quotes is written twice, not with a backslash"
            raise InputError(self._span.path, fault, where()) from None
        except UnicodeDecodeError as error:
            fault = not_of_encoding(self._options, error.reason)
            raise InputError(self._span.path, fault, f"after {where()}") from None


def _begin(handle: IO[bytes], span: Span, options: ReadOptions, into: Into | None) -> tuple[str, int]:
    """Return the separator of a table, and the bytes of Excel's line above the header, which is read."""
    side_file = into is not None and into.side_file
    head = head_of(handle)
    named, above = separator_line(head)
    handle.read(above)
    line = re.split(rb"[\r\n]", head[above:], maxsplit=1)[0].decode("utf-8", "replace")
    needed = Fields.of(options).flags
    separator, guess = separator_of(span.path, line, options.separator, needed, side_file=side_file)
    if named is not None and (guess is not None or options.separator is None):
        what = "separator of side files" if side_file else "separator"
        separator, guess = named, Guess(what, shown(named), "separator")
    if into is not None and guess is not None:
        into.guesses[guess] = None
    return separator, above


class _Part(ByteStream):
    """A range of a file's bytes as a file; closing it leaves the underlying file open."""

    def __init__(self, handle: IO[bytes], first: int, last: int) -> None:
        self._handle, self._left = handle, last - first
        handle.seek(first)

    def take(self, count: int) -> bytes:
        data = self._handle.read(min(count, self._left))
        self._left -= len(data)
        return data


def row_spans(file: Span, block: int, options: ReadOptions) -> Iterator[Span]:
    """Yield spans of a table of separated values that end between rows, also if values contain line ends.

    If quotes are misplaced, a span may end within a row, and the rest is one span; reading the rows raises the error.
    """
    with reading(file.path), open_text(file.path, options) as handle:
        delimiter = _begin(handle, file, options, None)[0].encode()
        rows, row = _pattern(delimiter, b"*+"), _pattern(delimiter, b"")
        first = handle.tell()
        waiting = handle.read(block)
        header = row.match(waiting)
        if header is None:
            yield file
            return
        first, waiting = first + header.end(), waiting[header.end() :]
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
    sign = re.escape(delimiter)
    quoted = rb'"[^"]*+(?:""[^"]*+)*+"[^%b\r\n]*+' % sign
    plain = rb'[^"%b\r\n][^%b\r\n]*+' % (sign, sign)
    value = rb"(?:%b|%b|)" % (quoted, plain)
    return re.compile(rb"(?:%b(?:%b%b)*+(?:\r\n?|\n))%b" % (value, sign, value, times))


def _require_once(path: str, used: list[str], names: list[str], where: str = "") -> None:
    """Raise `InputError` if several columns have the name of a column that is read."""
    again = next((name for name in used if names.count(name) > 1), None)
    if again is not None:
        raise InputError(path, f"the column {again!r} occurs twice", where)


def columns_of(span: Span, kind: str, options: ReadOptions) -> list[str]:
    """Return the names of a table's columns."""
    further = [field for field, _ in span.constants]
    if kind == "parquet":
        with reading(span.path), open_input(span.path, options.max_decompressed) as handle:
            return [*_opened(handle, span, options).schema.names, *further]
    with reading(span.path), open_text(span.path, options) as handle:
        # Unlike a temporary, it lives until the file is closed, which its reader would otherwise close with a warning.
        table = _Table(handle, span, options, None)
    return [*table.names, *further]


def _opened(handle: IO[bytes], span: Span, options: ReadOptions | None = None) -> BoundedFile:
    if not handle.seekable():
        raise InputError(span.path, "expected a Parquet file, found a compressed one; unpack it")
    try:
        file = BoundedFile(handle, None if options is None else options.max_decompressed)
        _ = file.schema
        return file
    except FAULTS as error:
        raise InputError(span.path, f"expected a Parquet file ({reason_of(error)})") from None


def row_groups(span: Span, block: int) -> Iterator[Span]:
    """Yield spans of a Parquet file that end between row groups."""
    with reading(span.path), open_input(span.path) as handle:
        sizes = _opened(handle, span).footer.sizes
    first, weight = 0, 0
    for group, size in enumerate(sizes):
        weight += size
        if weight >= block or group == len(sizes) - 1:
            yield replace(span, first=first, last=group + 1, size=weight)
            first, weight = group + 1, 0


def gather_parquet(span: Span, options: ReadOptions, into: Into) -> Iterator[None]:
    """Read rows of Parquet into a collector."""
    with reading(span.path), open_input(span.path) as handle:
        file = _opened(handle, span, options)
        yield from _gather_batches(span, file.schema, lambda columns: _batches(file, span, columns), into)


def gather_arrow(span: Span, table: pa.Table, into: Into) -> Iterator[None]:
    """Read rows of a table in memory, which the path of `span` names in errors, into a collector."""
    yield from _gather_batches(span, table.schema, lambda columns: table.select(columns).to_batches(), into)


def _gather_batches(
    span: Span, schema: pa.Schema, batches: Callable[[list[str]], Iterable[pa.RecordBatch]], into: Into
) -> Iterator[None]:
    """Read the columns that a collector requests, from the batches that a function returns for their names."""
    present = schema.names
    constants = {field: value for field, value in span.constants if field not in present}
    columns_read = [name for name in into.requested(span.path, [*present, *constants]) if name in present]
    _require_once(span.path, columns_read, present)
    row = 0
    for batch in batches(columns_read):
        columns = [_values(span, schema.field(name), batch.column(name), row) for name in columns_read]
        for values in zip(*columns, strict=True):
            row += 1
            into.add(span.path, {**constants, **dict(zip(columns_read, values, strict=True))}, lambda: f"row {row}")  # noqa: B023
            yield


def _values(span: Span, field: pa.Field, column: pa.Array, before: int) -> list[Any]:
    """Return the values of a column of a batch; raise `InputError` with the row if one cannot be read."""
    try:
        column.validate(full=True)
        return values_of(column, field)
    except FAULTS as error:
        name = field.name[:100]
        for row in range(len(column)):
            try:
                values_of(column.slice(row, 1), field)
            except FAULTS as cause:
                kind = "UTF-8 text" if pa.types.is_large_string(field.type) or pa.types.is_string(field.type) else None
                kind = kind or f"a value of type {str(field.type)[:100]}"
                expected = f"expected {kind} in field {name!r} ({reason_of(cause)})"
                raise InputError(span.path, expected, f"row {before + row + 1}") from None
        raise InputError(span.path, f"field {name!r} is damaged ({reason_of(error)})") from None


def _batches(file: BoundedFile, span: Span, columns: list[str]) -> Iterator[Any]:
    groups = range(span.first, file.groups if span.last is None else span.last)
    try:
        yield from file.batches(columns, groups)
    except SwollenError as error:
        raise InputError(span.path, f"{error}. If you trust the file, raise the limit (`max_decompressed`)") from None
    except FAULTS as error:
        if isinstance(error, InputError):
            raise
        raise InputError(span.path, f"the Parquet file is damaged ({reason_of(error)})") from None
