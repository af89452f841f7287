"""Records of tables: comma-separated values with a header, and Parquet."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from collapsar.storage.errors import InputError
from collapsar.storage.parts import FAULTS
from collapsar.storage.readers.blocks import Span
from collapsar.storage.readers.fields import Fields, Gathering, named
from collapsar.storage.readers.source import ReadOptions, open_input, reading

ROWS = 1024  # of Parquet that are read at once
_TABS = (".tsv", ".tab")

csv.field_size_limit(min(sys.maxsize, 2**31 - 1))


def gather_table(span: Span, options: ReadOptions, into: Gathering) -> Iterator[None]:
    """Gather comma-separated values with a header; of files whose name ends in ``.tsv``, with tabs between.

    Values may stand in quotes, and then hold line ends. An empty value is a missing one, but of the text.

    Parameters
    ----------
    span, options, into
        As for `collapsar.storage.readers.lines.gather_json`.

    Yields
    ------
    None
        After each row.

    Raises
    ------
    InputError
        A row has another number of values than the header, a quote is not closed, or a column is not there.
    """
    lenient = options.bad_bytes == "replace"
    with reading(span.path), open_input(span.path, options.max_decompressed) as handle:
        text = io.TextIOWrapper(handle, "utf-8-sig", "replace" if lenient else "strict", newline="")
        rows = csv.reader(text, delimiter="\t" if _is_tabbed(span.path) else ",", strict=True)

        def where() -> str:
            return f"line {rows.line_num}"

        header = _next(rows, span.path)
        if header is None:
            raise InputError(span.path, "expected a header, the file is empty")
        header = [name.strip() for name in header]
        again = next((name for number, name in enumerate(header) if name in header[:number]), None)
        if again is not None:
            raise InputError(span.path, f"the column {again!r} is there twice", "line 1")
        constants = {field: value for field, value in span.constants if field not in header}
        fields = Fields.of(options)
        require_columns(span.path, [*header, *constants], fields)
        while (row := _next(rows, span.path)) is not None:
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


def _is_tabbed(path: str) -> bool:
    name = path.lower()
    return any(ending in name.rsplit("/", 1)[-1] for ending in _TABS)


def _next(rows: Any, path: str) -> list[str] | None:
    try:
        return next(rows, None)
    except csv.Error as error:
        raise InputError(path, f"expected comma-separated values ({error})", f"line {rows.line_num}") from None
    except UnicodeDecodeError as error:
        raise InputError(
            path, f"expected UTF-8 text ({error.reason}); --bad-bytes replace goes on", f"after line {rows.line_num}"
        ) from None


def is_numbered(names: list[str], fields: Fields) -> bool:
    """Say whether a table's documents are numbered: no column is said to hold ids, and none is called so."""
    return not fields.id_said and fields.id not in names


def require_columns(path: str, names: list[str], fields: Fields) -> None:
    """Refuse a table that lacks a column.

    Parameters
    ----------
    path : str
        The file.
    names : list of str
        Its columns.
    fields : Fields
        What is asked for.

    Raises
    ------
    InputError
        One is not there; the error names those that are.
    """
    for field, flag in fields.flags.items():
        if field not in names and not (flag == "--id" and not fields.id_said):
            raise InputError(path, f"no column {field!r} ({flag}); there are {named(names)}")


def columns_of(span: Span, kind: str, options: ReadOptions) -> list[str]:
    """Return the names of a table's columns.

    Parameters
    ----------
    span : Span
        A file.
    kind : str
        ``csv`` or ``parquet``.
    options : ReadOptions
        How much may come out of a compressed file.

    Returns
    -------
    list of str
        Those of folders such as ``year=1987`` too.

    Raises
    ------
    InputError
        It is no such table.
    """
    further = [field for field, _ in span.constants]
    with reading(span.path), open_input(span.path, options.max_decompressed) as handle:
        if kind == "parquet":
            return [*_opened(handle, span).schema_arrow.names, *further]
        text = io.TextIOWrapper(handle, "utf-8-sig", "replace", newline="")
        header = _next(csv.reader(text, delimiter="\t" if _is_tabbed(span.path) else ",", strict=True), span.path)
        return [*(name.strip() for name in header or ()), *further]


def _opened(handle: IO[bytes], span: Span) -> Any:
    try:
        return pq.ParquetFile(handle)
    except FAULTS as error:
        raise InputError(span.path, f"expected a Parquet file ({_first_line(error)})") from None


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def row_groups(span: Span, block: int) -> Iterator[Span]:
    """Cut a Parquet file between its groups of rows.

    Parameters
    ----------
    span : Span
        The file.
    block : int
        Bytes of a part, about.

    Yields
    ------
    Span
        Some of the groups.
    """
    with reading(span.path), open_input(span.path) as handle:
        metadata = _opened(handle, span).metadata
        try:
            sizes = [metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)]
        except FAULTS as error:
            raise InputError(span.path, f"expected a Parquet file ({_first_line(error)})") from None
    first, weight = 0, 0
    for group, size in enumerate(sizes):
        weight += max(int(size), 0)
        if weight >= block or group == len(sizes) - 1:
            yield replace(span, first=first, last=group + 1, size=weight)
            first, weight = group + 1, 0


def gather_parquet(span: Span, options: ReadOptions, into: Gathering) -> Iterator[None]:
    """Gather rows of Parquet.

    Parameters
    ----------
    span, options, into
        As for `collapsar.storage.readers.lines.gather_json`.

    Yields
    ------
    None
        After each row.

    Raises
    ------
    InputError
        The file is damaged, or a column is not there.
    """
    fields = Fields.of(options)
    with reading(span.path), open_input(span.path) as handle:
        file = _opened(handle, span)
        there = file.schema_arrow.names
        constants = {field: value for field, value in span.constants if field not in there}
        require_columns(span.path, [*there, *constants], fields)
        wanted = [name for name in fields.flags if name in there]
        row = 0
        for batch in _batches(file, span, wanted):
            columns = [_listed(batch.column(name)) for name in wanted]
            for values in zip(*columns, strict=True):
                row += 1
                into.add(span.path, {**constants, **dict(zip(wanted, values, strict=True))}, lambda: f"row {row}")  # noqa: B023
                yield


def _listed(column: Any) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_timestamp(column.type):
        return [
            None if one is None else one.isoformat()
            for one in column.cast(pa.timestamp("us", column.type.tz)).to_pylist()
        ]
    return list(column.to_pylist())


def _batches(file: Any, span: Span, wanted: list[str]) -> Iterator[Any]:
    groups = list(range(span.first, file.metadata.num_row_groups if span.last is None else span.last))
    try:
        yield from file.iter_batches(batch_size=ROWS, row_groups=groups, columns=wanted)
    except FAULTS as error:
        if isinstance(error, InputError):
            raise
        raise InputError(span.path, f"the Parquet file is damaged ({_first_line(error)})") from None
