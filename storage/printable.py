"""Make text safe for terminals, JSON lines and spreadsheets, as anyone may have written it."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from typing import IO

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
    """Return a value as JSON with control characters escaped.

    Parameters
    ----------
    value : object
        A value for `json.dumps`; objects of other types are written as text.
    indent : int, optional
        As for `json.dumps`.

    Returns
    -------
    str
        The JSON.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def csv_cell(text: str) -> str:
    """Return a text for a cell of CSV, with an apostrophe before formulas.

    Parameters
    ----------
    text : str
        The cell; numbers, including negative ones, are not changed.

    Returns
    -------
    str
        The text, with an apostrophe if it begins with ``=``, ``+``, ``-`` or ``@``, after blanks and control
        characters, or with a tab or line end.
    """
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text


class CsvRows:
    """Writes rows of CSV with cells as `csv_cell` returns them.

    Parameters
    ----------
    sink : file
        A text file opened with ``newline=""``.
    line_end : str, optional
        End of each row.
    """

    def __init__(self, sink: IO[str], line_end: str = "\r\n") -> None:
        self._rows = csv.writer(sink, lineterminator=line_end)

    def writerow(self, row: Iterable[object]) -> None:
        """Write a row."""
        self._rows.writerow([csv_cell(cell) if isinstance(cell, str) else cell for cell in row])

    def writerows(self, rows: Iterable[Iterable[object]]) -> None:
        """Write rows."""
        for row in rows:
            self.writerow(row)
