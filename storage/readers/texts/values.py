"""Convert values of a record's fields to titles, dates, labels and covariates."""

from __future__ import annotations

import datetime
import decimal
import math


def clean(text: str) -> str:
    """Return a text that UTF-8 can encode, with question marks for lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def as_text(value: object) -> str | None:
    """Return a title as text; raise `ValueError` for values other than texts, integers and dates."""
    if value is None or isinstance(value, str):
        return None if value is None else clean(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError("a string")


def as_date(value: object) -> str | None:
    """Return a date as text; integral floats lose their point, because columns with missing years are floats."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return str(int(value)) if value == int(value) else repr(value)
    return as_text(value)


def as_labels(value: object) -> list[str]:
    """Return the labels of a field; raise `ValueError` for values other than texts, integers and lists of them."""
    if value is None or value == "":
        return []
    if isinstance(value, (list, tuple)):
        return [label for one in value for label in as_labels(one) if not isinstance(one, (list, tuple))]
    if isinstance(value, bool):
        return [str(value).lower()]
    if isinstance(value, (str, int)):
        return [clean(str(value))]
    raise ValueError("a string or a list of strings")


def as_number(value: object) -> float | None:
    """Return a covariate, None if missing; raise `ValueError` for values that are not finite numbers."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float, str, decimal.Decimal)):
        raise ValueError("a number or nothing")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"a number or nothing, found {str(value)[:40]!r},") from None
    if math.isinf(number):
        raise ValueError("a finite number")
    return None if math.isnan(number) else number
