"""Convert values of a record's fields to titles, dates, labels and covariates."""

from __future__ import annotations

import datetime
import decimal
import math
import re
import uuid
from collections.abc import Iterator

# Texts that stand for a missing label, number or date, in every format; case matters, because ``none`` may be a label
MISSING = frozenset({
    # pandas' signs of missing values (`STR_NA_VALUES` of its parsers, release 3.0)
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
    # pandas' and NumPy's missing time
    "NaT",
    # SAS and Stata; ARFF and the UCI repository; tables made for people
    ".", "?", "-",
    # MySQL, PostgreSQL and Hive in text files; Hive and Spark in names of folders
    "\\N", "__HIVE_DEFAULT_PARTITION__",
})  # fmt: skip

MAX_INTEGER = 1 << 53  # Largest magnitude up to which a float64 can represent every whole number

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?inf(?:inity)?", re.IGNORECASE)
# Most numbers, which are never codes; all of them have at most 15 digits before the point.
_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]*)?")
_INTEGER = re.compile(r"-?[0-9]+")
# Codes that a number would not preserve: 0123 (post), +31 (telephone), 12e5 (hexadecimal).
_CODE = re.compile(r"-?0[0-9][0-9.e]*|\+[0-9]+|[0-9]+e[0-9]+", re.IGNORECASE)
_MAX_SHOWN = 40  # characters of a value in an error


class Unsupported:
    """A value whose type has no meaning as a text, label, number or date; every converter refuses it by its name."""

    def __init__(self, name: str) -> None:
        self.name = name


def clean(text: str) -> str:
    """Return a text that UTF-8 can encode, with question marks for lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def is_missing(value: object) -> bool:
    """Return True for None, NaN and the texts of `MISSING`, also between white space."""
    if isinstance(value, str):
        return value.strip() in MISSING
    return value is None or (isinstance(value, float) and math.isnan(value))


def signs_in(value: object) -> Iterator[str]:
    """Yield the texts in a value that stand for missing values, and the nulls of a list, to be reported to the user."""
    if isinstance(value, list):
        for item in value:
            yield from ("null",) if item is None else signs_in(item)
    elif isinstance(value, str) and is_missing(value) and value.strip():
        yield repr(value.strip())


def described(value: object) -> str:
    """Return a value as errors show it."""
    if isinstance(value, Unsupported):
        return value.name
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float, decimal.Decimal)):
        text = repr(value) if isinstance(value, str) else str(value)
        return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
    names = {
        list: "a list", tuple: "a pair of a map", dict: "an object", bytes: "bytes", datetime.timedelta: "a duration"
    }  # fmt: skip
    return names.get(type(value), f"a value of type {type(value).__name__}")


def _fault(expected: str, value: object) -> ValueError:
    return ValueError(f"{expected}, found {described(value)},")


def as_text(value: object, expected: str = "a string") -> str | None:
    """Return a title as text; raise `ValueError` for values other than texts, whole numbers, dates and UUIDs."""
    if value is None or isinstance(value, str):
        return None if value is None else clean(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (int, uuid.UUID)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and math.isnan(value):
        return None
    raise _fault(expected, value)


def as_date(value: object) -> str | None:
    """Return a date as text; integral floats lose their point, because columns with missing years are floats."""
    if isinstance(value, str):
        return None if value.strip() in MISSING else clean(value)
    if is_missing(value):
        return None
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value == int(value) else repr(value)
    return as_text(value, "a date")


def as_labels(value: object) -> list[str]:
    """Return the labels of a field; raise `ValueError` for values other than texts, whole numbers and lists of them.

    Missing values are no labels, also in lists. Integral floats lose their point, as in `as_date`.
    """
    if isinstance(value, str):
        return [] if value.strip() in MISSING else [clean(value)]
    if is_missing(value):
        return []
    if isinstance(value, bool):
        return [str(value).lower()]
    if isinstance(value, list):
        nested = next((item for item in value if isinstance(item, (list, tuple, dict, Unsupported))), None)
        if nested is not None:
            raise ValueError(f"a string or a list of strings, found a list with {described(nested)} in it,")
        return [label for item in value for label in as_labels(item)]
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return [str(value)]
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_INTEGER:
        return [str(int(value))]
    text = as_text(value, "a string or a list of strings")
    return [] if text is None else [text]


def as_number(value: object) -> float | None:
    """Return a covariate, None if missing; raise `ValueError` for values that are not finite numbers.

    A duration is a number of seconds.
    """
    if value is None or (isinstance(value, str) and value.strip() in MISSING):
        return None
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float, str, decimal.Decimal)):
        raise _fault("a number or nothing", value)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise _fault("a number or nothing", value) from None
    if math.isinf(number):
        raise _fault("a finite number", value)
    return None if math.isnan(number) else number


def is_code(value: object) -> bool:
    """Return True for a whole number beyond `MAX_INTEGER` and for a text of digits that a number would not preserve."""
    if isinstance(value, str):
        text = value.strip()
        long = len(text) > 15 and _INTEGER.fullmatch(text) is not None and abs(int(text[:40])) > MAX_INTEGER
        return long or _CODE.fullmatch(text) is not None
    return isinstance(value, int) and abs(value) > MAX_INTEGER


def is_number(value: object, *, written: bool) -> bool:
    """Return True if a value that is not missing is a number, in a field whose type no option sets.

    Codes such as ``0123`` are not numbers. With ``written``, numbers are texts, as in comma-separated values; otherwise
    texts are labels.
    """
    if isinstance(value, str):
        if not written or _PLAIN.fullmatch(value) is not None:
            return written
        return _NUMBER.fullmatch(value.strip()) is not None and not is_code(value)
    if isinstance(value, bool) or is_code(value):
        return False
    return isinstance(value, (int, float, decimal.Decimal, datetime.timedelta))
