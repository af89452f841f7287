"""Make untrusted text safe for terminals, JSON lines and spreadsheets; short `repr` of results."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import reprlib
from collections.abc import Sequence
from typing import IO, Any, cast


class _Short(reprlib.Repr):
    """Representations with a few items each, and of arrays the dtype and shape."""

    def __init__(self) -> None:
        super().__init__()
        self.maxtuple = self.maxlist = self.maxset = self.maxfrozenset = 4
        self.maxdict, self.maxlevel = 6, 3
        self.maxstring, self.maxother = 60, 200

    def repr1(self, x: Any, level: int) -> str:  # an array of any library
        """Return the representation of a value."""
        library = type(x).__module__.partition(".")[0]
        if library == "numpy" and hasattr(x, "dtype") and x.shape:
            return f"<{x.dtype}, {' x '.join(map(str, x.shape))}>"
        if library == "pyarrow" and hasattr(x, "num_rows"):
            return f"<table, {x.num_rows} x {x.num_columns}>"
        if library == "pyarrow" and hasattr(x, "__len__"):
            return f"<{x.type}, {len(x)}>"
        return super().repr1(x, level)


def short(value: object) -> str:
    """Return the representation of a value, shortened to a few items."""
    return _Short().repr(value)


class ShortRepr:
    """A base of dataclasses, made with ``repr=False``, whose representation is a few lines at most."""

    def __repr__(self) -> str:
        named = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(cast(Any, self)) if field.repr)
        return f"{type(self).__name__}({', '.join(f'{name}={short(value)}' for name, value in named)})"


# C0 and C1 controls except tab and line feed, line and paragraph separators, bidirectional controls, and surrogates.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
REPLACEMENT = "\ufffd"
# Beginnings of formulas in spreadsheets (OWASP, "CSV injection"), also behind blanks and in full-width forms.
FORMULA = re.compile("[\\s\x00-\x1f\ufeff]*[=+\\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def printable(text: str) -> str:
    """Return a text with control characters replaced, except tabs and line feeds."""
    return CONTROLS.sub(REPLACEMENT, text)


def json_text(value: object, indent: int | None = None) -> str:
    """Return a value as JSON with control characters escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def csv_cell(text: str) -> str:
    """Return a text for a cell of CSV, with an apostrophe before formulas."""
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text


class CsvRows:
    """Writes rows of CSV under a header, to a text file opened with ``newline=""``.

    Ids and labels are keys, by which other programs join tables, and are written unchanged. Texts for people (words and
    names of topics) pass through `text`, and `guarded` is the number of those with an apostrophe so far.
    """

    def __init__(self, sink: IO[str], columns: Sequence[str], line_end: str = "\r\n") -> None:
        self._rows = csv.writer(sink, lineterminator=line_end)
        self._rows.writerow(columns)
        self.writerow, self.writerows = self._rows.writerow, self._rows.writerows
        self.guarded = 0

    def text(self, text: str) -> str:
        """Return a text for people as a cell, with an apostrophe before a formula."""
        cell = csv_cell(text)
        self.guarded += cell is not text
        return cell


def guarded_note(cells: int) -> list[str]:
    """Return a line for the user on cells that `CsvRows` guarded; none without such cells."""
    if not cells:
        return []
    which = (
        "1 word or name begins as a formula does and has"
        if cells == 1
        else f"{cells:,} words and names begin as formulas do and have"
    )
    return [f"{which} an apostrophe in front, against spreadsheets that would run {'it' if cells == 1 else 'them'}"]
