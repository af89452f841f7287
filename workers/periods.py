"""Periods of time, from hours to decades and of any width: their starts and their names."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import OptionError, near
from collapsium.workers.ingest.dates import DAY, EPOCH, FIRST, HOUR, MONTH, YEAR, read_date

Ints = npt.NDArray[np.int64]

_HOURS = {"hour": 1, "day": 24, "week": 24 * 7}
_MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120}
NAMES = (*_HOURS, *_MONTHS)
EXPECTED = f"{', '.join(NAMES)}, or a width such as '5 years' or '4 years from 1789'"
_WIDTH = re.compile(rf"(?:([1-9][0-9]{{0,5}})\s+)?({'|'.join(NAMES)})s?(?:\s+from\s+(\S.*))?")
_MONDAY = -3 * 24  # 1970-01-01 was a Thursday


@dataclass(frozen=True)
class Period:
    """Consecutive spans of equally many hours or months, one of which starts at the origin."""

    text: str  # As it was written
    unit: str  # One of `NAMES`
    count: int  # Units
    origin: (
        int  # Hours since 1970; of months the time since the beginning of 1970-01, less than 28 days after a month's
    )
    months: int  # Months of a period; 0 if it is one of hours
    hours: int

    @property
    def precision(self) -> int:
        """The unit, by its index in `dates.UNITS`, to which a date must be exact."""
        if not self.months:
            return DAY if self.hours % 24 == 0 and self.origin % 24 == 0 else HOUR
        month, rest = self._phase
        if rest:
            return DAY if rest % 24 == 0 else HOUR
        return YEAR if self.months % 12 == 0 and month % 12 == 0 else MONTH

    @property
    def _phase(self) -> tuple[int, int]:
        """The month of the origin, since 1970, and the hours after its beginning."""
        month = int(_months(np.array([self.origin]))[0])
        return month, self.origin - int(_hours(np.array([month]))[0])

    def starts(self, hour: Ints) -> Ints:
        """Return the starts of the periods that contain some times, both in hours since 1970."""
        if not self.months:
            start = (hour - self.origin) // self.hours * self.hours + self.origin
        else:
            month, rest = self._phase
            # A time is in the month that begins `rest` hours late if the time `rest` hours earlier is in the month.
            start = _hours((_months(hour - rest) - month) // self.months * self.months + month) + rest
        return np.maximum(start, FIRST)

    def following(self, start: datetime.datetime) -> datetime.datetime:
        """Return the start of the next period."""
        if not self.months:
            return start + datetime.timedelta(hours=self.hours)
        months = start.year * 12 + start.month - 1 + self.months
        return start.replace(year=min(months // 12, 9999), month=months % 12 + 1)

    def name(self, start: datetime.datetime) -> str:
        """Return the name of a period; the order of the names is the order of the periods."""
        year = f"{start.year:04d}"
        if self.hours % 24:
            return f"{year}-{start:%m-%dT%H}"
        if not self.months or start.day > 1 or start.hour:
            week = start.isocalendar()
            is_week = self.unit == "week" and self.count == 1
            return f"{week.year:04d}-W{week.week:02d}" if is_week else start.date().isoformat()
        if self.unit == "decade" and self.count == 1 and start.year % 10 == 0 and start.month == 1:
            return f"{year}s"
        last = self.following(start) - datetime.timedelta(days=1)
        if self.months % 12 == 0 and start.month == 1:
            return year if self.months == 12 else f"{year}-{last.year:04d}"
        if self.months == 3 and start.month % 3 == 1:
            return f"{year}-Q{(start.month + 2) // 3}"
        month = f"{year}-{start.month:02d}"
        return month if self.months == 1 else f"{month} to {last.year:04d}-{last.month:02d}"

    def counted(self, number: int) -> str:
        """Return a number of periods in words."""
        return f"{number:,} {self.text}s" if self.text in NAMES else f"{number:,} periods of {self.text}"


@lru_cache(maxsize=256)
def period_of(text: str) -> Period:
    """Return the period that a text names; `OptionError` for any other text."""
    match = _WIDTH.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise OptionError(f"expected {EXPECTED}; found {text!r}{near(str(text), NAMES)}", "period")
    count, unit, since = int(match[1] or 1), match[2], match[3]
    hours, months = count * _HOURS.get(unit, 0), count * _MONTHS.get(unit, 0)
    if months > 12 * 1000:
        raise OptionError(f"expected at most 1,000 years, found {text!r}", "period")
    if since is None:
        # Without an origin years are multiples of the width, such as 1995 to 1999, as are months within a year.
        origin = _MONDAY if unit == "week" else 0 if hours else int(_hours(np.array([30 * 12]))[0])
        return Period(text.strip(), unit, count, origin, months, hours)
    date = read_date(since)
    if date is None or date.day_first is not None:
        raise OptionError(f"expected a year or a date such as 1789-03-04 after 'from', found {since!r}", "period")
    period = Period(text.strip(), unit, count, date.hour, months, hours)
    if months and (EPOCH + datetime.timedelta(hours=date.hour)).day > 28:
        raise OptionError(
            f"expected a date before the 29th of a month, which all months have, found {since!r}", "period"
        )
    return period


def is_period(text: str) -> bool:
    """Return True if a text names a period."""
    try:
        period_of(text)
    except OptionError:
        return False
    return True


def _months(hour: Ints) -> Ints:
    """Return the months since 1970-01 that times are in."""
    months: Ints = (hour // 24).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return months


def _hours(month: Ints) -> Ints:
    """Return the starts of months since 1970-01."""
    days: Ints = month.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return days * 24
