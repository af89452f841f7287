"""Periods of time, from hours to decades: their starts and their names."""

from __future__ import annotations

import datetime

import numpy as np
import numpy.typing as npt

from collapsium.workers.date_sums import floored
from collapsium.workers.ingest.dates import DAY, HOUR, MONTH, YEAR

Ints = npt.NDArray[np.int64]

# Each period, with the precision that a date needs for it.
PERIODS = {"hour": HOUR, "day": DAY, "week": DAY, "month": MONTH, "quarter": MONTH, "year": YEAR, "decade": YEAR}


def starts_of(hour: Ints, period: str) -> Ints:
    """Return the starts of the periods that contain some times, both in hours since 1970."""
    if period == "week":
        # 1970-01-01 was a Thursday.
        return (((hour // 24) + 3) // 7 * 7 - 3) * 24
    start = floored(hour, PERIODS[period])
    if period not in ("quarter", "decade"):
        return start
    months = (start // 24).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    # In months; both a quarter and a decade start with 1970-01.
    size = 3 if period == "quarter" else 120
    days: Ints = (months // size * size).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return days * 24


def name_of_period(start: datetime.datetime, period: str) -> str:
    """Return the name of a period."""
    if period == "hour":
        return f"{start:%Y-%m-%dT%H}".rjust(13, "0")
    if period == "week":
        year, week, _ = start.isocalendar()
        return f"{year:04d}-W{week:02d}"
    year_of = f"{start.year:04d}"
    return {
        "day": start.date().isoformat(),
        "month": f"{year_of}-{start.month:02d}",
        "quarter": f"{year_of}-Q{(start.month + 2) // 3}",
        "year": year_of,
        "decade": f"{year_of}s",
    }[period]


def following(start: datetime.datetime, period: str) -> datetime.datetime:
    """Return the start of the next period."""
    if period in ("hour", "day", "week"):
        step = {"hour": datetime.timedelta(hours=1), "day": datetime.timedelta(days=1)}.get(period)
        return start + (step or datetime.timedelta(days=7))
    months = start.year * 12 + start.month - 1 + {"month": 1, "quarter": 3, "year": 12, "decade": 120}[period]
    return start.replace(year=min(months // 12, 9999), month=months % 12 + 1)
