"""Texts that anyone may have written, without what would steer a terminal, break JSON lines or run in a spreadsheet."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from typing import IO, Any

# Control characters but for tab and line end, C1 as well, what turns the direction of text, and halves of pairs.
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
SHOWN = "\ufffd"
"""What stands in the place of such a character."""
# What spreadsheets take for the beginning of a formula (OWASP, "CSV injection"), also behind blanks and in wide forms.
FORMULA = re.compile("[\\s\x00-\x1f\ufeff]*[=+\\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def printable(text: str) -> str:
    """Return a text without the characters that would steer a terminal; tabs and line ends stay."""
    return STEERING.sub(SHOWN, text)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON that can be printed: what would steer a terminal is escaped as JSON does it.

    Parameters
    ----------
    value : object
        What `json.dumps` takes; anything else in it is written as its text.
    indent : int, optional
        As for `json.dumps`.

    Returns
    -------
    str
        The JSON; a program reads the same value from it.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    return STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def csv_cell(text: str) -> str:
    """Return a text for a cell of CSV; before what a spreadsheet would run as a formula stands an apostrophe.

    Parameters
    ----------
    text : str
        The cell. Numbers, negative ones too, stay as they are.

    Returns
    -------
    str
        The text, behind an apostrophe if it begins with ``=``, ``+``, ``-`` or ``@``, blanks and control characters
        left aside, or with a tab or line end.
    """
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text


class CsvRows:
    """Write rows of CSV; texts as `csv_cell` returns them.

    Parameters
    ----------
    sink : file
        Opened for text with ``newline=""``.
    line_end : str, optional
        Behind each row.
    """

    def __init__(self, sink: IO[str], line_end: str = "\r\n") -> None:
        self._rows = csv.writer(sink, lineterminator=line_end)

    def writerow(self, row: Iterable[Any]) -> None:
        """Write a row."""
        self._rows.writerow([csv_cell(cell) if isinstance(cell, str) else cell for cell in row])

    def writerows(self, rows: Iterable[Iterable[Any]]) -> None:
        """Write rows."""
        for row in rows:
            self.writerow(row)
