"""The validation of options wherever they are declared: what comes out of a record, and complaints in plain English."""

from __future__ import annotations

import re
import reprlib

from pydantic import ValidationInfo
from pydantic_core import ErrorDetails

RECORDED = "recorded"  # Context of the validation of options that come out of a record
_BOUNDS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")

# Plain English for the phrases of pydantic
_PLAIN = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "a string",
    "a valid boolean": "true or false",
    "a valid tuple": "a list",
    "a valid dictionary( or instance of .*)?": "a table",
}


def require_named(info: ValidationInfo) -> None:
    """Raise `ValueError` for the name of a file that comes out of a record.

    Only users name files of options. Records have the contents, and anyone may have written them.
    """
    if info.context == RECORDED:
        raise ValueError("expected a table, as a record names no file")


def complaint(error: ErrorDetails) -> str:
    """Return a validation error in plain English, with the value: ``expected a whole number, found 'x'``."""
    if error["type"] == "value_error":
        # Our own validators name the value where it helps; a table could fill a page.
        return str(error["msg"]).removeprefix("Value error, ")
    return f"expected {plain(error)}, found {reprlib.repr(error['input'])}"


def plain(error: ErrorDetails) -> str:
    """Return what a validation error expected, in plain English."""
    text = str(error["msg"]).removeprefix("Input should be ")
    for theirs, ours in _PLAIN.items():
        text = re.sub(theirs, ours, text)
    return f"a value {text}" if error["type"] in _BOUNDS else text
