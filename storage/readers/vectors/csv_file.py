"""Reader of separated values, a vector a line, with or without a header."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from collapsium.storage.errors import InputError
from collapsium.storage.readers.base import head_of, open_text, reading
from collapsium.storage.readers.read_options import Guess, ReadOptions, separator_line, separator_of, shown
from collapsium.storage.readers.vectors.base import VectorChunk, layout_of

BLOCK = 1 << 23
MOST_LINE = 1 << 28  # bytes
HEADERS = ("yes", "no")
MIN_NUMBERED = 3  # Fewest columns whose numbers are a header, since 0 and 1 alone are as likely to be values

_INTEGER = re.compile(r"[0-9]{1,9}")
_CONVERSION = re.compile(
    r"column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): invalid (?:value )?(.*)", re.S
)
_LENGTH = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")


class TableFile:
    """One file of separated values, plain or compressed."""

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.name, self._options = path, options
        guesses: dict[Guess, None] = {}
        with reading(path), open_text(path, options, guesses) as handle:
            named, self._above = separator_line(head_of(handle))
            handle.read(self._above)
            line = self._first_line(handle)
            second = next(self._lines(handle), b"")
        columns = {text.partition("=")[2] or text for text in (*options.labels, options.id or "")}
        self._separator, guess = separator_of(path, line.decode("utf-8", "replace"), options.separator, columns)
        if named is not None and options.separator is None:
            self._separator, guess = named, Guess("separator", shown(named), "separator")
        if guess is not None:
            guesses[guess] = None
        first = self._fields(line)
        self._header = self._is_header(first, second, options)
        if options.header is None and not _named(first, options):
            guesses[Guess("header", HEADERS[not self._header], "header")] = None
        self.guesses = tuple(guesses)
        self._width = len(first)
        self.layout = layout_of(options, first if self._header else (), self._width, path)
        self.fields = tuple(field for field, _ in self.layout.labels)
        text = {self.layout.id, *(place for _, place in self.layout.labels)}
        self._types = {str(n): pa.string() if n in text else pa.float64() for n in range(self._width)}

    def _first_line(self, handle: IO[bytes]) -> bytes:
        """Return the first line that is not empty."""
        for line in self._lines(handle):
            return line
        raise InputError(self.name, "expected lines of numbers, the file is empty")

    def _lines(self, handle: IO[bytes]) -> Iterator[bytes]:
        """Yield the lines that are not empty."""
        while line := handle.readline(MOST_LINE):
            if line.strip():
                self._require_line(line)
                yield line

    def _require_line(self, line: bytes) -> None:
        if len(line) >= MOST_LINE and not line.endswith(b"\n"):
            raise InputError(self.name, f"expected lines of at most {MOST_LINE} bytes")

    def _fields(self, line: bytes) -> list[str]:
        try:
            return [field.strip() for field in next(csv.reader([line.decode()], delimiter=self._separator))]
        except (UnicodeDecodeError, csv.Error, StopIteration) as error:
            raise InputError(
                self.name, f"expected UTF-8 text with {self._separator!r} between values ({error})"
            ) from None

    def _is_header(self, first: list[str], second: bytes, options: ReadOptions) -> bool:
        if options.header is not None:
            return options.header == "yes"
        if _named(first, options):
            return True
        layout = layout_of(options, (), len(first), self.name)
        if not any(_is_number(first[place]) for place in layout.values):
            return True
        # Invalid lines are refused when they are read.
        fields = next(csv.reader([second.decode("utf-8", "replace")], delimiter=self._separator), [])
        return len(fields) == len(first) and _number_columns(first, fields, layout.values)

    def chunks(self) -> Iterator[VectorChunk]:
        """Yield the vectors in chunks of some megabytes of text."""
        rows = 0
        with reading(self.name), open_text(self.name, self._options) as handle:
            handle.read(self._above)
            rest = b"" if self._header else self._first_line(handle)
            if self._header:
                self._first_line(handle)
            while block := rest + handle.read(BLOCK):
                if not block.endswith(b"\n"):
                    line = handle.readline(MOST_LINE)
                    self._require_line(line)
                    block += line
                rest = b""
                if block.strip():
                    chunk = self._parsed(block, rows)
                    rows += len(chunk.values)
                    yield chunk

    def _parsed(self, block: bytes, rows: int) -> VectorChunk:
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(block),
                # Arrow's errors name the row only if one thread reads.
                pyarrow.csv.ReadOptions(
                    use_threads=False, block_size=len(block) + 1, column_names=[str(n) for n in range(self._width)]
                ),
                pyarrow.csv.ParseOptions(delimiter=self._separator),
                pyarrow.csv.ConvertOptions(column_types=self._types, null_values=[], strings_can_be_null=False),
            )
        except (pa.ArrowException, ValueError) as error:
            raise self._fault(str(error), rows) from None
        values = np.empty((table.num_rows, len(self.layout.values)))
        for number, place in enumerate(self.layout.values):
            values[:, number] = table.column(place).to_numpy()
        ids = None if self.layout.id is None else _text(table, self.layout.id)
        return VectorChunk(values, ids, tuple(_text(table, place) for _, place in self.layout.labels))

    def _fault(self, message: str, rows: int) -> InputError:
        """Return the error for Arrow's message about a block that begins after `rows` rows."""
        if match := _LENGTH.search(message):
            row, expected, actual = match.groups()
            where = f"row {rows + int(row)}" if row else ""
            return InputError(self.name, f"expected {expected} columns as in the first line, found {actual}", where)
        if match := _CONVERSION.search(message):
            column, row, kind, value = match.groups()
            where = f"row {rows + int(row)}, " if row else ""
            expected = "a number" if kind == "double" else "UTF-8 text"
            value = " ".join(value[:60].split())
            return InputError(self.name, f"expected {expected}, found {value}", f"{where}column {int(column) + 1}")
        return InputError(
            self.name, f"expected lines of numbers with {self._separator!r} between ({' '.join(message[:200].split())})"
        )


def _text(table: pa.Table, place: int) -> pa.Array:
    chunks = pc.utf8_trim_whitespace(table.column(place)).combine_chunks()
    return chunks.chunk(0) if isinstance(chunks, pa.ChunkedArray) else chunks


def _named(first: list[str], options: ReadOptions) -> bool:
    """Return True if an option refers to a column by name, which requires a header."""
    columns = [text if text in first else text.partition("=")[2] or text for text in options.labels]
    return any(not text.lstrip("-").isdigit() for text in [*columns, options.id or "1"])


def _number_columns(first: list[str], second: list[str], places: tuple[int, ...]) -> bool:
    """Return True if the first line numbers the columns from 0 or 1, as pandas and R do, and the second has fractions.

    An index of rows before the columns is not counted, and its own name may be empty.
    """
    named = [place for place in places if first[place]]
    if len(named) < MIN_NUMBERED or not all(_INTEGER.fullmatch(first[place]) for place in named):
        return False
    shifts = {int(first[place]) - place for place in named}
    fractions = any(_is_number(second[place]) and not _INTEGER.fullmatch(second[place].strip()) for place in named)
    return len(shifts) == 1 and shifts <= {-1, 0, 1} and fractions


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
