"""Periods of time, from hours to decades and of any width, and sums of topic proportions by date.

Sums are made shard by shard; many dates are rounded to coarser units.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.storage.errors import OptionError, near
from collapsium.storage.readers.texts.fields import DAY_FIRST, DateTally, is_missing
from collapsium.workers.ingest.dates import DAY, EPOCH, FIRST, HOUR, MONTH, YEAR, Date, read_date, tally_of

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


Floats = npt.NDArray[np.float64]

MAX_CELLS = 200_000  # Most dates times topics, of each of three sums; more dates are made coarser
MAX_DAYS_OF_HOURS = 14  # Most days of a corpus whose dates stay exact to the hour
UNAMBIGUOUS = np.iinfo(np.int64).min  # Value in `DateSums.day_first` of dates whose day and month can be distinguished


@dataclass(frozen=True)
class DateSums:
    """Sums over the documents of each date: w, the tokens of a document, and theta, its proportions."""

    # Distinct dates, as in `Date`; ascending by exactness, then hour; int64 (dates,)
    hour: Ints
    exact: Ints
    day_first: Ints
    documents: Ints  # Number of documents of each date; int64 (dates,)
    # Sums of w and of w^2; float64 (dates,)
    tokens: Floats
    squares: Floats
    # Sums of w theta, w^2 theta and w^2 theta^2; float64 (dates, topics)
    shares: Floats
    weighted: Floats
    squared: Floats
    # Numbers of documents by the way in which their dates were read
    tally: DateTally = field(default_factory=DateTally)

    @property
    def topics(self) -> int:
        """Columns of the sums."""
        return int(self.shares.shape[1])

    def __add__(self, other: DateSums) -> DateSums:
        """Return the sums over both shards."""
        topics = max(self.topics, other.topics)
        joined = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in (*_DATE, *_SUMS)}
        tables = {}
        for name in _TABLES:
            wide = [np.pad(getattr(sums, name), ((0, 0), (0, topics - sums.topics))) for sums in (self, other)]
            tables[name] = np.concatenate(wide)
        both: dict[str, Any] = {**joined, **tables, "tally": self.tally + other.tally}
        return bounded(_merged(DateSums(**both)))


_DATE, _SUMS = ("hour", "exact", "day_first"), ("documents", "tokens", "squares")
_TABLES = ("shares", "weighted", "squared")


def date_sums(dates: pa.Array, theta: Floats, tokens: Floats, counted: npt.NDArray[np.bool_]) -> DateSums:
    """Return the sums over a shard's documents of each date."""
    coded = dates.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    place = np.asarray(coded.indices.fill_null(len(texts)), dtype=np.int64)
    counts = np.bincount(place[counted], minlength=len(texts) + 1).tolist()
    read = [
        None if is_missing(text) or not count else read_date(text) for text, count in zip(texts, counts, strict=False)
    ]
    tally = tally_of([*texts, None], [*read, None], counts)
    readable = np.array([*(date is not None for date in read), False], dtype=bool)
    rows = np.flatnonzero(counted & readable[place])
    keys = [read[index] or Date(0, YEAR) for index in place[rows].tolist()]
    hour = np.array([date.hour for date in keys], dtype=np.int64)
    exact = np.array([date.exact for date in keys], dtype=np.int64)
    day_first = [UNAMBIGUOUS if date.day_first is None else date.day_first for date in keys]
    day_first_hour = np.array(day_first, dtype=np.int64)
    order, starts = _groups(exact, hour, day_first_hour)
    first, w = order[starts[:-1]], tokens[rows[order]]

    def weighted_sums(weights: Floats, values: Floats) -> Floats:
        return _group_sums(weights, rows[order], starts, values)

    sums = DateSums(
        hour[first],
        exact[first],
        day_first_hour[first],
        np.diff(starts).astype(np.int64),
        weighted_sums(np.ones(w.size), tokens),
        weighted_sums(w, tokens),
        weighted_sums(w, theta),
        weighted_sums(w**2, theta),
        weighted_sums(w**2, theta**2),
        tally,
    )
    return bounded(sums)


def _groups(exact: Ints, hour: Ints, day_first: Ints) -> tuple[Ints, Ints]:
    """Return a stable order of rows by date, and the offsets of the dates in it."""
    order = np.lexsort((day_first, hour, exact))
    keys = np.stack([values[order] for values in (exact, hour, day_first)])
    first = np.ones(order.size, dtype=bool)
    first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    return order, np.concatenate([np.flatnonzero(first), [order.size]]).astype(np.int64)


def _group_sums(weights: Floats, rows: Ints, starts: Ints, values: Floats) -> Floats:
    """Return the weighted sum of the rows of each group, which are added in their order."""
    from scipy import sparse

    shape = starts.size - 1, len(values)
    if not rows.size:
        return np.zeros((shape[0], *values.shape[1:]))
    return np.asarray(sparse.csr_array((weights, rows, starts), shape=shape) @ values)


def _merged(sums: DateSums) -> DateSums:
    """Return the sums with one row for each date, added in their order."""
    order, starts = _groups(sums.exact, sums.hour, sums.day_first)
    first = order[starts[:-1]]
    ones = np.ones(order.size)
    totals: dict[str, Any] = {
        name: _group_sums(ones, order, starts, getattr(sums, name)) for name in (*_SUMS, *_TABLES)
    }
    totals["documents"] = np.rint(totals["documents"]).astype(np.int64)
    return replace(sums, **totals, **{name: getattr(sums, name)[first] for name in _DATE})


def bounded(sums: DateSums, cells: int = MAX_CELLS) -> DateSums:
    """Return the sums with dates rounded to days, months or years until they are few enough."""
    if np.unique(sums.hour // 24).size > MAX_DAYS_OF_HOURS:
        sums = coarsened(sums, DAY)
    for unit in (DAY, MONTH, YEAR):
        if sums.hour.size * sums.topics <= cells:
            break
        sums = coarsened(sums, unit)
    return sums


def coarsened(sums: DateSums, unit: int) -> DateSums:
    """Return the sums with finer dates rounded down to a unit, given by its index in `dates.UNITS`."""
    finer = sums.exact < unit
    if not finer.any():
        return sums
    hour, day_first = floored(sums.hour, unit), sums.day_first.copy()
    ambiguous = day_first != UNAMBIGUOUS
    day_first[ambiguous] = floored(day_first[ambiguous], unit)
    # Both readings of a date may lie in the same year.
    day_first[day_first == hour] = UNAMBIGUOUS
    return _merged(
        replace(
            sums,
            hour=np.where(finer, hour, sums.hour),
            day_first=np.where(finer, day_first, sums.day_first),
            exact=np.where(finer, unit, sums.exact),
        )
    )


def floored(hour: Ints, unit: int) -> Ints:
    """Return moments rounded down to a unit, in hours since 1970."""
    if unit == HOUR:
        return hour
    days = (hour // 24).astype("datetime64[D]")
    if unit > DAY:
        days = days.astype("datetime64[M]" if unit == MONTH else "datetime64[Y]").astype("datetime64[D]")
    hours: Ints = days.astype(np.int64) * 24
    return hours


def resolved(sums: DateSums) -> DateSums:
    """Return the sums with the order of day and month of ambiguous dates decided by the other dates."""
    ambiguous, tally = sums.day_first != UNAMBIGUOUS, sums.tally
    if not ambiguous.any():
        return sums
    hour, exact = sums.hour.copy(), sums.exact.copy()
    if tally.order == DAY_FIRST:
        hour[ambiguous] = sums.day_first[ambiguous]
    elif not tally.order:
        hour[ambiguous], exact[ambiguous] = floored(hour[ambiguous], YEAR), YEAR
    return _merged(replace(sums, hour=hour, exact=exact, day_first=np.full(hour.size, UNAMBIGUOUS)))


def moment(hour: int) -> datetime.datetime:
    """Return the moment of a number of hours since 1970, without a zone."""
    return (EPOCH + datetime.timedelta(hours=int(hour))).replace(tzinfo=None)
