"""Read dates as people write them: ISO 8601, years, Unix times, and the forms of `dateutil`, without silent guesses.

A date is the day that is written: the offset of its zone is not added, because people refer to the day in a place.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from dateutil import parser

from collapsium.storage.readers.texts.fields import DAY_FIRST, DateTally, is_missing

# Units of time, from fine to coarse; a date that names its month alone is exact to the month
UNITS = ("hour", "day", "month", "year")

HOUR, DAY, MONTH, YEAR = range(len(UNITS))
MAX_LETTERS = 64  # Most characters of a date
MAX_SHOWN = 40  # Most characters of a date that is shown as an example

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_HOUR = datetime.timedelta(hours=1)
FIRST = (datetime.datetime(1, 1, 1, tzinfo=datetime.UTC) - EPOCH) // _HOUR
END = (datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC) - EPOCH) // _HOUR + 24

_YEAR = re.compile(r"[0-9]{4}(\.0+)?")
_DIGITS = re.compile(r"-?([0-9]{6,19})(\.[0-9]+)?")
_NEGATIVE = re.compile(r"-[0-9]")
_YEAR_FIRST = re.compile(r"([0-9]{4})([-/.:])([0-9]{1,2})(?:\2([0-9]{1,2}))?(?![0-9])")
# A day without separators and what follows it, such as 20240229T1200Z
_COMPACT = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?=[T\s])")
_ISO_WEEK = re.compile(r"[0-9]{4}-?W[0-9]{2}-?[0-9]")
_MAIL = re.compile(r"([A-Za-z]{3}, )?[0-9]{1,2} [A-Za-z]{3} [0-9]{4} [0-9]{2}:[0-9]{2}(:[0-9]{2})? ([-+][0-9]{4}|GMT)")
_NUMERIC = re.compile(r"([0-9]{1,2})[-/.]([0-9]{1,2})[-/.](?:[0-9]{4}|[0-9]{2})(?![0-9])")
_TIME = re.compile(r"(.*[^\s,T])[\sT,]\s*([0-9]{1,2}):[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?")
_LEAP_SECOND = re.compile(r"(:[0-5][0-9]):60(?![0-9])")
# Dates in ISO 8601, followed by a time or not, which are read if their first ten characters are a date.
_ISO = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?"
    r"(Z|[-+]([01][0-9]|2[0-3]):?[0-5][0-9])?)?$"
)
_ISO_DAY = len("2024-02-29")
# Digits of a Unix time, and its ticks a second. Without a sign, twelve digits may be a day with hours and minutes.
_UNIX = {9: 1, 10: 1, 13: 10**3, 15: 10**6, 16: 10**6, 18: 10**9, 19: 10**9}
_NEGATIVE_UNIX = {**_UNIX, 12: 10**3}
_FAULTS = (ValueError, OverflowError, TypeError, ArithmeticError, LookupError, AttributeError)


@dataclass(frozen=True)
class Date:
    """A date that was read."""

    hour: int  # Hours from 1970-01-01 00:00 to its beginning, by the clock of the zone that it was written in
    exact: int  # Index of its unit in `UNITS`
    # Where day and month cannot be distinguished, the hour if the day stands first; `hour` has the month first
    day_first: int | None = None
    order: int = 0  # 1 if the text shows that the day stands before the month, -1 if it shows the contrary, else 0
    unix: bool = False  # Whether a number was read as a Unix time
    short_year: bool = False  # Whether the year has two digits, which stand for 1969 to 2068


class _Parserinfo(parser.parserinfo):  # type: ignore[misc]
    """Parser that reads years of two digits by POSIX: the library's range moves with the clock."""

    def convertyear(self, year: int, century_specified: bool = False) -> int:
        if year >= 100 or century_specified:
            return year
        return year + (1900 if year >= 69 else 2000)


_PARSER = parser.parser(_Parserinfo())
# Parts that a text leaves open differ between readings by two defaults.
_DEFAULTS = (datetime.datetime(1604, 1, 1, 0), datetime.datetime(2008, 2, 2, 1))


@lru_cache(maxsize=1 << 16)
def read_date(text: str) -> Date | None:
    """Return the date that a text of a corpus means; None if it cannot be read."""
    text = text.strip()
    if len(text) > MAX_LETTERS:
        return None
    # Python has no leap seconds.
    text = _LEAP_SECOND.sub(r"\1:59", text)
    try:
        date = _number(text) or _standard(text) or _with_time(text) or _other(text)
    except _FAULTS:
        return None
    return date if date is not None and FIRST <= date.hour < END else None


def hours_of(moment: datetime.datetime) -> int:
    """Return the full hours from 1970 to a moment, by the clock of its zone."""
    return (moment.replace(tzinfo=datetime.UTC) - EPOCH) // _HOUR


def _number(text: str) -> Date | None:
    """Read years, dates without separators and Unix times, which are negative before 1970."""
    if _YEAR.fullmatch(text):
        return Date(hours_of(datetime.datetime(int(text[:4]), 1, 1)), YEAR)
    match, negative = _DIGITS.fullmatch(text), _NEGATIVE.match(text) is not None
    if match is None:
        if negative:
            raise ValueError(text)  # A year before the first one
        return None
    digits, ticks = match[1], _NEGATIVE_UNIX if negative else _UNIX
    if len(digits) in ticks:
        return Date(math.floor(decimal.Decimal(text)) // ticks[len(digits)] // 3600, HOUR, unix=True)
    if len(digits) == 8 and not negative:
        return Date(hours_of(datetime.datetime.strptime(digits, "%Y%m%d")), DAY)
    if len(digits) == 14 and not negative:
        return Date(hours_of(datetime.datetime.strptime(digits, "%Y%m%d%H%M%S")), HOUR)
    # A number such as 198702 may be a month or a day.
    raise ValueError(text)


def _standard(text: str) -> Date | None:
    """Read dates of mails, for which `dateutil` is slow, and dates that begin with a year of four digits."""
    if _MAIL.fullmatch(text):
        return Date(hours_of(parsedate_to_datetime(text)), HOUR)
    if _ISO_WEEK.fullmatch(text):
        return Date(hours_of(datetime.datetime.fromisoformat(text)), DAY)
    match = _COMPACT.match(text) or _YEAR_FIRST.match(text)
    if match is None:
        return None
    if match.re is _COMPACT:
        return _with_day(datetime.date(*map(int, match.groups())), text[match.end() :])
    year, month = int(match[1]), int(match[3])
    if match[4] is None:
        if match.end() < len(text):
            return None
        return Date(hours_of(datetime.datetime(year, month, 1)), MONTH)
    return _with_day(datetime.date(year, month, int(match[4])), text[match.end() :])


def _with_day(day: datetime.date, rest: str) -> Date | None:
    """Read what follows a day as a time in ISO 8601; return None if it is none."""
    if not rest.strip():
        return Date(hours_of(datetime.datetime.fromisoformat(day.isoformat())), DAY)
    try:
        return Date(hours_of(datetime.datetime.fromisoformat(day.isoformat() + rest.replace(",", ".").rstrip())), HOUR)
    except ValueError:
        return None


def _with_time(text: str) -> Date | None:
    """Read a date followed by a time; distinct dates are far fewer than times, and are cached."""
    match = _TIME.fullmatch(text)
    if match is None or int(match[2]) > 23:
        return None
    date = read_date(match[1])
    if date is None or date.exact != DAY:
        return None
    hour = int(match[2])
    day_first = None if date.day_first is None else date.day_first + hour
    return replace(date, hour=date.hour + hour, exact=HOUR, day_first=day_first)


def _parse(text: str, default: datetime.datetime, day_first: bool) -> datetime.datetime:
    # The library would look up names of zones on this machine.
    options = {"default": default, "dayfirst": day_first, "tzinfos": lambda _name, offset: offset}
    moment: datetime.datetime = _PARSER.parse(text, **options)
    return moment


def _other(text: str) -> Date | None:
    """Read a date with `dateutil`, and determine its unit and whether day and month may be swapped."""
    first, second = (_parse(text, default, False) for default in _DEFAULTS)
    if first.year != second.year:
        return None
    exact = next((unit for unit, part in ((YEAR, "month"), (MONTH, "day"), (DAY, "hour"))
                  if getattr(first, part) != getattr(second, part)), HOUR)  # fmt: skip
    hour, order, day_first = hours_of(first), 0, None
    numeric = _NUMERIC.match(text)
    if numeric is not None and int(numeric[1]) > 12:
        order = 1
    elif numeric is not None and int(numeric[2]) > 12:
        order = -1
    elif (
        exact <= DAY
        and _YEAR_FIRST.match(text) is None
        and _COMPACT.match(text) is None
        and (swapped := hours_of(_parse(text, _DEFAULTS[0], True))) != hour
    ):
        day_first = swapped
    return Date(hour, exact, day_first, order, short_year=re.search(r"[0-9]{4}", text) is None)


def tally_of(texts: Sequence[str | None], read: Sequence[Date | None], counts: Sequence[int]) -> DateTally:
    """Return the tally of distinct texts, each read as a date or not, and with its number of documents."""
    tally = DateTally()
    for text, date, count in zip(texts, read, counts, strict=True):
        if not count:
            continue
        shown = str(text)[:MAX_SHOWN]
        if is_missing(text):
            tally += DateTally(missing=count)
        elif date is None:
            tally += DateTally(unreadable=count, examples=(shown,))
        elif date.day_first is not None or date.order or date.unix or date.short_year:
            tally += DateTally(
                ambiguous=count * (date.day_first is not None),
                unix=count * date.unix,
                short_years=count * date.short_year,
                day_first=count * (date.order > 0),
                month_first=count * (date.order < 0),
                example=shown if date.day_first is not None else "",
                day_first_example=shown if date.order > 0 else "",
                month_first_example=shown if date.order < 0 else "",
            )
    return tally


def counted_dates(dates: pa.Array) -> DateTally:
    """Return the tally of a column of dates; times of one day are read as one date, which is faster."""
    days = pc.if_else(pc.match_substring_regex(dates, _ISO), pc.utf8_slice_codeunits(dates, 0, _ISO_DAY), dates)
    counts = pc.value_counts(days)
    texts = counts.field("values").to_pylist()
    read = [None if is_missing(text) else read_date(text) for text in texts]
    return tally_of(texts, read, counts.field("counts").to_pylist())


def ordered_dates(dates: pa.Array, order: str) -> pa.Array:
    """Return a column of dates in which those whose day and month may be swapped are written in ISO 8601."""
    coded = dates.dictionary_encode()
    texts: list[str | None] = []
    for text in coded.dictionary.to_pylist():
        date = None if is_missing(text) else read_date(text)
        if date is None or date.day_first is None:
            texts.append(text if is_missing(text) else text.strip())
            continue
        begin = EPOCH + datetime.timedelta(hours=date.day_first if order == DAY_FIRST else date.hour)
        numeric = _NUMERIC.match(text.strip())
        rest = begin.strftime("T%H:00") if date.exact == HOUR else ""
        texts.append(begin.date().isoformat() + (rest if numeric is None else text.strip()[numeric.end() :]))
    return pa.array(texts, dates.type).take(coded.indices)
