"""Find the separator of a table in its first line."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection

from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.readers.guesses import Guess

SEPARATORS = (",", "\t", ";", "|")
TAB_AND_SEMICOLON = "tab and ;"  # Separators of labels in a line of a side file, where it has any of the two

NAMES = {"tab": "\t", "comma": ",", "semicolon": ";", "bar": "|"}
_TABS = (".tsv", ".tab")
# The line in which Excel writes the separator, above the header
_LINE = re.compile(rb'"?sep=(\\t|[^\r\n])"?[,;\t ]*(?:\r\n?|\n)', re.IGNORECASE)


def checked_separator(value: str | None, option: str = "separator") -> str | None:
    """Return a separator as it is recorded: a character, ``tab`` or ``space``; raise `OptionError` for others."""
    if value is None:
        return None
    sign = {"\\t": "\t", **NAMES}.get(value, value)
    if option == "label_separator" and sign in (" ", "space", TAB_AND_SEMICOLON):
        return "space" if sign == " " else sign
    if len(sign) != 1 or sign in '"\r\n' or sign.isalnum():
        raise OptionError(f"expected a character such as ; or |, or tab, found {value!r}", option)
    return shown(sign)


def shown(separator: str) -> str:
    """Return a separator as people write it."""
    return "tab" if separator == "\t" else separator


def separator_line(head: bytes) -> tuple[str | None, int]:
    """Return the separator in Excel's line ``sep=;``, and the length of that line; None and 0 without it."""
    match = _LINE.match(head)
    if match is None:
        return None, 0
    sign = match[1].decode("latin-1")
    return ("\t" if sign == "\\t" else sign), match.end()


def separator_of(
    path: str, line: str, option: str | None, needed: Collection[str] = (), *, side_file: bool = False
) -> tuple[str, Guess | None]:
    """Return the separator of a table, and the guess if it follows neither from the option nor from the name."""
    if "\t" in line and any(ending in path.lower().rpartition("/")[2] for ending in _TABS):
        return "\t", None
    named = None if option is None else NAMES.get(option, option)

    def worth(separator: str) -> tuple[int, bool, int]:
        try:
            names = [name.strip() for name in next(csv.reader([line], delimiter=separator), [])]
        except csv.Error:
            return -1, False, 0
        return len({*names} & {*needed}), separator == named, len(names)

    # The first of equals is taken, which is the comma.
    sign = max(dict.fromkeys([*SEPARATORS, *([] if named is None else [named])]), key=worth)
    if named is not None and not side_file:
        if not worth(named)[0] and worth(sign)[0]:
            raise InputError(
                path, f"expected {shown(named)} between columns, found {shown(sign)} (`separator` {shown(sign)!r})"
            )
        return named, None
    return sign, Guess("separator of side files" if side_file else "separator", shown(sign), "separator")
