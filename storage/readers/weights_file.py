"""Read weights of words from files, in bounded memory, as anyone may have written them."""

from __future__ import annotations

import csv
import io
import stat
from collections.abc import Iterator
from pathlib import Path

from collapsium.storage.io.encodings import SAVE_AS_UTF8, decode_text

MAX_BYTES = 1 << 28  # Largest file: some ten million words


def read_weights(path: str) -> Iterator[tuple[object, object]]:
    """Yield the words and weights of a file."""
    try:
        file = Path(path)
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("expected a file (it is a folder, a pipe or a device)")
        if status.st_size > MAX_BYTES:
            raise ValueError(f"expected a file of at most {MAX_BYTES:,} bytes ({status.st_size:,} bytes)")
        with file.open("rb") as handle:
            yield from _parquet_rows(handle) if path.endswith(".parquet") else _text_rows(handle.read())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"expected a file that can be read ({error.strerror})") from None


def _parquet_rows(handle: io.BufferedReader) -> Iterator[tuple[object, object]]:
    from collapsium.storage.corpus.parquet import FAULTS
    from collapsium.storage.io.parquet import BoundedFile

    try:
        table = BoundedFile(handle).table()
        columns = [column.to_pylist() for column in table.columns]
    except FAULTS as error:
        raise ValueError(f"expected a Parquet file ({(str(error) or type(error).__name__).splitlines()[0]})") from None
    if len(columns) != 2:
        raise ValueError(f"expected two columns, a word and its weight ({len(columns)} in the file)")
    yield from zip(*columns, strict=True)


def _text_rows(content: bytes) -> Iterator[tuple[object, object]]:
    try:
        text = decode_text(content)
    except UnicodeDecodeError as error:
        fault = f"expected UTF-8 ({error.reason} at byte {error.start}); {SAVE_AS_UTF8}"
        raise ValueError(fault) from None
    first = text.partition("\n")[0]
    delimiter = next((sign for sign in "\t;|" if sign in first), ",")
    try:
        for number, row in enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), 1):
            if not row:
                continue
            if len(row) != 2:
                raise ValueError(f"expected a word and its weight in each line ({len(row)} columns in line {number})")
            weight = _number(row[1])
            if weight is not None:
                yield row[0], weight
            elif number > 1:
                raise ValueError(f"expected a number behind each word ({row[1]!r} in line {number})")
    except csv.Error as error:
        raise ValueError(f"expected a word and its weight in each line ({error})") from None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
