"""Sums of topic proportions by date: made shard by shard, bounded by coarser dates where there are many."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csr_array

from collapsium.workers.ingest.dates import DAY, EPOCH, HOUR, MONTH, YEAR, Date, is_absent, read_date

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_CELLS = 200_000  # dates times topics, of each of three sums; more dates are made coarser
MAX_DAYS_OF_HOURS = 14  # days up to which hours are kept
NAMED = 3  # texts that could not be read, and that are named
KNOWN = np.iinfo(np.int64).min  # in `day_first`: day and month can be told apart


@dataclass(frozen=True)
class DateTally:
    """How many dates were read, and how.

    Attributes
    ----------
    missing, unreadable, ambiguous, unix, short_years : int
        Documents without a date; with one that could not be read; whose day and month cannot be told apart; with a
        number that was read as a Unix time; and with a year of two digits.
    day_first, month_first : int
        Documents whose dates show which of the two stands first.
    examples : tuple of str
        Some of the unreadable ones.
    """

    missing: int = 0
    unreadable: int = 0
    ambiguous: int = 0
    unix: int = 0
    short_years: int = 0
    day_first: int = 0
    month_first: int = 0
    examples: tuple[str, ...] = ()

    def __add__(self, other: DateTally) -> DateTally:
        """Add the documents of another shard."""
        names = ("missing", "unreadable", "ambiguous", "unix", "short_years", "day_first", "month_first")
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return DateTally(**sums, examples=tuple(dict.fromkeys((*self.examples, *other.examples)))[:NAMED])


@dataclass(frozen=True)
class DateSums:
    """Sums over the documents of each date: w, the tokens of a document, and theta, its proportions.

    Attributes
    ----------
    hour, exact, day_first : numpy.ndarray of int64, shape (dates,)
        The dates, as `Date` has them, without two that are the same; ascending by exactness, then hour.
    documents : numpy.ndarray of int64, shape (dates,)
        How many documents have each.
    tokens, squares : numpy.ndarray of float64, shape (dates,)
        Sums of w and of w^2.
    shares, weighted, squared : numpy.ndarray of float64, shape (dates, topics)
        Sums of w theta, w^2 theta and w^2 theta^2.
    tally : DateTally
        How the dates were read.
    """

    hour: Ints
    exact: Ints
    day_first: Ints
    documents: Ints
    tokens: Floats
    squares: Floats
    shares: Floats
    weighted: Floats
    squared: Floats
    tally: DateTally = field(default_factory=DateTally)

    @property
    def topics(self) -> int:
        """Columns of the sums."""
        return int(self.shares.shape[1])

    def __add__(self, other: DateSums) -> DateSums:
        """Add the documents of another shard."""
        topics = max(self.topics, other.topics)
        joined = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in (*_DATE, *_SUMS)}
        tables = {
            name: np.concatenate([_wide(getattr(one, name), topics) for one in (self, other)]) for name in _TABLES
        }
        both: dict[str, Any] = {**joined, **tables, "tally": self.tally + other.tally}
        return bounded(_merged(DateSums(**both)))


_DATE, _SUMS = ("hour", "exact", "day_first"), ("documents", "tokens", "squares")
_TABLES = ("shares", "weighted", "squared")


def _wide(table: Floats, topics: int) -> Floats:
    return np.pad(table, ((0, 0), (0, topics - table.shape[1])))


def date_sums(dates: pa.Array, theta: Floats, tokens: Floats, held: npt.NDArray[np.bool_]) -> DateSums:
    """Add up the documents of a shard by their dates.

    Parameters
    ----------
    dates : pyarrow.Array of string, shape (documents,)
        As the corpus has them.
    theta : numpy.ndarray of float64, shape (documents, topics)
        Proportions.
    tokens : numpy.ndarray of float64, shape (documents,)
        Tokens of each document.
    held : numpy.ndarray of bool, shape (documents,)
        Which documents take part.

    Returns
    -------
    DateSums
        Each distinct text is read once.
    """
    coded = dates.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    place = np.asarray(coded.indices.fill_null(len(texts)), dtype=np.int64)
    counts = np.bincount(place[held], minlength=len(texts) + 1).tolist()
    read = [
        None if is_absent(text) or not count else read_date(text) for text, count in zip(texts, counts, strict=False)
    ]
    tally = _tally([*texts, None], [*read, None], counts)
    known = np.array([*(one is not None for one in read), False], dtype=bool)
    rows = np.flatnonzero(held & known[place])
    keys = [read[one] or Date(0, YEAR) for one in place[rows].tolist()]
    hour = np.array([one.hour for one in keys], dtype=np.int64)
    exact = np.array([one.exact for one in keys], dtype=np.int64)
    day_first = np.array([KNOWN if one.day_first is None else one.day_first for one in keys], dtype=np.int64)
    order, starts = _groups(exact, hour, day_first)
    first, w = order[starts[:-1]], tokens[rows[order]]

    def added(weights: Floats, values: Floats) -> Floats:
        return np.asarray(csr_array((weights, rows[order], starts), shape=(starts.size - 1, tokens.size)) @ values)

    made = DateSums(
        hour[first],
        exact[first],
        day_first[first],
        np.diff(starts).astype(np.int64),
        added(np.ones(w.size), tokens),
        added(w, tokens),
        added(w, theta),
        added(w**2, theta),
        added(w**2, theta**2),
        tally,
    )
    return bounded(made)


def _groups(exact: Ints, hour: Ints, day_first: Ints) -> tuple[Ints, Ints]:
    """Return an order of rows by date, stable, and where each date begins in it, with the end."""
    order = np.lexsort((day_first, hour, exact))
    keys = np.stack([one[order] for one in (exact, hour, day_first)])
    first = np.ones(order.size, dtype=bool)
    first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    return order, np.concatenate([np.flatnonzero(first), [order.size]]).astype(np.int64)


def _tally(texts: Sequence[str | None], read: Sequence[Date | None], counts: Sequence[int]) -> DateTally:
    missing = unreadable = ambiguous = unix = short_years = day_first = month_first = 0
    examples: list[str] = []
    for text, date, count in zip(texts, read, counts, strict=True):
        if is_absent(text):
            missing += count
        elif date is None:
            unreadable += count
            if count and len(examples) < NAMED:
                examples.append(str(text)[:40])
        else:
            ambiguous += count * (date.day_first is not None)
            unix += count * date.unix
            short_years += count * date.short_year
            day_first += count * (date.order > 0)
            month_first += count * (date.order < 0)
    return DateTally(missing, unreadable, ambiguous, unix, short_years, day_first, month_first, tuple(examples))


def _merged(one: DateSums) -> DateSums:
    """Add up rows of the same date, in their order."""
    order, starts = _groups(one.exact, one.hour, one.day_first)
    first = order[starts[:-1]]
    members = csr_array((np.ones(order.size), order, starts), shape=(first.size, order.size))
    made: dict[str, Any] = {name: np.asarray(members @ getattr(one, name)) for name in (*_SUMS, *_TABLES)}
    made["documents"] = np.rint(made["documents"]).astype(np.int64)
    return replace(one, **made, **{name: getattr(one, name)[first] for name in _DATE})


def bounded(one: DateSums, cells: int = MAX_CELLS) -> DateSums:
    """Make dates coarser until they are few enough: days of hours, months of days, years of months."""
    if np.unique(one.hour // 24).size > MAX_DAYS_OF_HOURS:
        one = coarsened(one, DAY)
    for unit in (DAY, MONTH, YEAR):
        if one.hour.size * one.topics <= cells:
            break
        one = coarsened(one, unit)
    return one


def coarsened(one: DateSums, unit: int) -> DateSums:
    """Take dates that are more exact than a unit as that; the unit is a place in `dates.UNITS`."""
    finer = one.exact < unit
    if not finer.any():
        return one
    hour, day_first = floored(one.hour, unit), one.day_first.copy()
    known = day_first == KNOWN
    day_first[~known] = floored(day_first[~known], unit)
    day_first[day_first == hour] = KNOWN  # of years they are the same
    return _merged(
        replace(
            one,
            hour=np.where(finer, hour, one.hour),
            day_first=np.where(finer, day_first, one.day_first),
            exact=np.where(finer, unit, one.exact),
        )
    )


def floored(hour: Ints, unit: int) -> Ints:
    """Return the beginnings of the units, in hours since 1970, in which moments lie."""
    if unit == HOUR:
        return hour
    days = (hour // 24).astype("datetime64[D]")
    if unit > DAY:
        days = days.astype("datetime64[M]" if unit == MONTH else "datetime64[Y]").astype("datetime64[D]")
    found: Ints = days.astype(np.int64) * 24
    return found


def resolved(one: DateSums) -> DateSums:
    """Decide which of day and month stands first where a date does not say so, if other dates do.

    Parameters
    ----------
    one : DateSums
        Of all documents.

    Returns
    -------
    DateSums
        Where others say nothing, or contradict one another, such dates are exact to the year alone.
    """
    open_, tally = one.day_first != KNOWN, one.tally
    if not open_.any():
        return one
    hour, exact = one.hour.copy(), one.exact.copy()
    if tally.day_first and not tally.month_first:
        hour[open_] = one.day_first[open_]
    elif not tally.month_first or tally.day_first:
        hour[open_], exact[open_] = floored(hour[open_], YEAR), YEAR
    return _merged(replace(one, hour=hour, exact=exact, day_first=np.full(hour.size, KNOWN)))


def moment(hour: int) -> datetime.datetime:
    """Return the moment that lies so many hours after 1970, in UTC and without a zone."""
    return (EPOCH + datetime.timedelta(hours=int(hour))).replace(tzinfo=None)
