"""Topic shares by period: years to hours, from the sums by date that lie with a model."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.analysis.document_summary import Where, documents_summary
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.options import SchedulerOptions
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.options import keywords
from collapsium.storage.errors import AbsentError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.run import RECORD, Run
from collapsium.storage.runs.summary import DatesSummary
from collapsium.storage.short_repr import ShortRepr
from collapsium.storage.units import Counting, silent
from collapsium.workers.date_sums import floored, moment
from collapsium.workers.ingest.dates import DAY, HOUR, MONTH, UNITS, YEAR

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Each period, and how exact a date must be to lie in one.
PERIODS = {"hour": HOUR, "day": DAY, "week": DAY, "month": MONTH, "quarter": MONTH, "year": YEAR, "decade": YEAR}
MOST_PERIODS = 60  # of a period that is chosen by itself; if there is none of so few, the coarsest is taken
FEW_PERIODS = 10
ENOUGH = 0.9  # share of the documents whose dates must be exact enough for a period that is chosen by itself
PRIOR = 4.0  # documents of the overall variance that are added to that of a period: two documents may agree by chance
CHANGED = 4  # topics that are shown because they change most, beside as many of the largest


@dataclass(frozen=True, repr=False)
class TimeShares(ShortRepr):
    """Shares of topics by period.

    Attributes
    ----------
    period : str
        ``hour``, ``day``, ``week``, ``month``, ``quarter``, ``year`` or ``decade``.
    names : list of str
        Names of the periods that have documents, in their order, such as ``1987-03`` or ``1987-W09``.
    starts : list of datetime.datetime
        Their beginnings, in UTC where dates name time zones; weeks begin on Mondays.
    documents : numpy.ndarray of int64, shape (periods,)
        Documents of each.
    tokens : numpy.ndarray of float64, shape (periods,)
        Their tokens.
    topics : numpy.ndarray of int64, shape (topics,)
        Permanent ids.
    shares : numpy.ndarray of float64, shape (periods, topics)
        Mean proportions of a period's documents, weighted by their tokens.
    errors : numpy.ndarray of float64, shape (periods, topics)
        Their standard errors: how far they would differ among other documents of the same kind. The variance among few
        documents is drawn to that among all, with the weight of four documents.
    inexact : int
        Documents with dates that are too inexact for the period, such as a year alone for months; left out.
    summary : DatesSummary
        How dates were read.
    """

    period: str
    names: list[str]
    starts: list[datetime.datetime]
    documents: Ints
    tokens: Floats
    topics: Ints
    shares: Floats
    errors: Floats
    inexact: int
    summary: DatesSummary

    @property
    def ends(self) -> list[datetime.datetime]:
        """Where the next periods begin."""
        return [_following(start, self.period) for start in self.starts]

    @property
    def notes(self) -> list[str]:
        """What is left out, and how dates were read where there was more than one way; a sentence each."""
        return _notes(self)

    def table(self) -> pa.Table:
        """Return a row for each period and topic: period, start, documents, tokens, topic, share, error."""
        periods, topics = self.shares.shape
        return pa.table(
            {
                "period": np.repeat(self.names, topics) if periods else pa.array([], pa.string()),
                "start": pa.array([start for start in self.starts for _ in range(topics)], pa.timestamp("s")),
                "documents": np.repeat(self.documents, topics),
                "tokens": np.repeat(self.tokens, topics),
                "topic": np.tile(self.topics, periods),
                "share": self.shares.ravel(),
                "error": self.errors.ravel(),
            }
        )

    def foremost(self, count: int = 2 * CHANGED) -> list[int]:
        """Return the columns of topics to show: half are the largest, half those that change most.

        How much a topic changes is the variance of its shares over the periods, weighted by tokens, beyond what
        their standard errors explain.

        Parameters
        ----------
        count : int, optional
            How many.

        Returns
        -------
        list of int
            Columns of `shares`.
        """
        weight = self.tokens / max(float(self.tokens.sum()), 1e-300)
        mean = weight @ self.shares
        change = weight @ ((self.shares - mean) ** 2 - self.errors**2)
        largest = np.argsort(-mean, kind="stable")[: -(-count // 2)].tolist()
        others = [one for one in np.argsort(-change, kind="stable").tolist() if one not in largest]
        return [*largest, *others[: count - len(largest)]]


@keywords(scheduling=SchedulerOptions)
def topic_shares(
    run: str | os.PathLike[str],
    *,
    period: str | None = None,
    corpus: str | os.PathLike[str] | None = None,
    scheduling: SchedulerOptions,
    tls: TLS | None = None,
    progress: Counting = silent,
) -> TimeShares:
    """Return the topics' shares by period: means of the documents' proportions, weighted by tokens.

    They come from the summary of the documents that lies with a finished model; where there is none, from the corpus.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or a model whose corpus has dates (`ingest` with ``date``).
    period : str, optional
        ``hour``, ``day``, ``week``, ``month``, ``quarter``, ``year`` or ``decade``; by default one of which there are
        about 10 to 60.
    corpus : str or path-like, optional
        Where the training corpus lies by now; it is read only if there is no summary.
    scheduling : SchedulerOptions
        Which executor runs the tasks.
    tls : optional
        Who reads it then, as for `fit`.
    progress : callable, optional
        Called with the number of shards read so far.

    Returns
    -------
    TimeShares
        Of periods that have documents.

    Raises
    ------
    OptionError
        There is no such period, or the sums are not kept as exactly; or the documents have no dates that can be read.
    AbsentError
        There is no model, or neither a summary nor the corpus.
    """
    if period is not None and period not in PERIODS:
        raise OptionError(f"`period` {period}: expected {', '.join(PERIODS)}")
    model = Model(run)
    record = Run(run).record() if Folder(run).exists(RECORD) else {}
    notes: list[str] = []
    summary = documents_summary(
        model, record, Where(corpus, scheduling.scheduler, scheduling.workers, tls, progress), notes
    )
    if summary is None:
        raise AbsentError(f"{os.fspath(run)}: {' '.join(notes)} Name the training corpus (`corpus`)")
    if summary.dates is None:
        raise OptionError(f"{os.fspath(run)}: its documents have no dates; `ingest` with `date` keeps them")
    return by_period(summary.dates, period)


def by_period(dates: DatesSummary, period: str | None = None) -> TimeShares:
    """Return the topics' shares by period, from sums by date; see `topic_shares`.

    Parameters
    ----------
    dates : DatesSummary
        The sums.
    period : str, optional
        The period.

    Returns
    -------
    TimeShares
        Of periods that have documents.

    Raises
    ------
    OptionError
        No date is exact enough.
    """
    hour = np.array(dates.hour, dtype=np.int64)
    exact = np.array([UNITS.index(unit) for unit in dates.unit], dtype=np.int64)
    documents = np.array(dates.documents, dtype=np.int64)
    if not documents.sum():
        such = f", such as {dates.examples[0]!r}" if dates.examples else ""
        raise OptionError(
            f"no document has a date that can be read ({dates.missing:,} have none, {dates.unreadable:,} an unreadable "
            f"one{such}); expected ISO dates or years"
        )
    chosen = period or _chosen(hour, exact, documents)
    usable = exact <= PERIODS[chosen]
    if not usable.any():
        possible = ", ".join(name for name, unit in PERIODS.items() if unit >= exact.min())
        raise OptionError(
            f"`period` {chosen}: the dates, or the sums that are kept of many dates, are exact to the "
            f"{UNITS[int(exact.min())]}; expected {possible}"
        )
    starts, place = np.unique(starts_of(hour[usable], chosen), return_inverse=True)
    tables = [dates.table(name) for name in ("shares", "weighted", "squared")]
    columns = [documents, np.array(dates.tokens), np.array(dates.squares), *tables]
    each = [_summed(place, one[usable], starts.size) for one in columns]
    shares = each[3] / np.maximum(each[1], 1e-300)[:, None]
    beginnings = [moment(start) for start in starts.tolist()]
    return TimeShares(
        chosen,
        [_name(start, chosen) for start in beginnings],
        beginnings,
        np.rint(each[0]).astype(np.int64),
        each[1],
        np.array(dates.topics, dtype=np.int64),
        shares,
        _errors(shares, *each),
        int(documents[~usable].sum()),
        dates,
    )


def _summed(place: Ints, values: npt.NDArray[np.generic], count: int) -> Floats:
    found = np.zeros((count, *values.shape[1:]))
    np.add.at(found, place, values)
    return found


def _errors(
    shares: Floats, documents: Floats, tokens: Floats, squares: Floats, sums: Floats, weighted: Floats, squared: Floats
) -> Floats:
    """Return standard errors of weighted means: sqrt(v sum w^2) / sum w, v the variance among documents."""
    overall = sums.sum(axis=0) / max(float(tokens.sum()), 1e-300)
    spread = squared.sum(axis=0) - 2 * overall * weighted.sum(axis=0) + overall**2 * squares.sum()
    prior = np.maximum(spread, 0.0) / max(float(squares.sum()), 1e-300)
    within = np.maximum(squared - 2 * shares * weighted + shares**2 * squares[:, None], 0.0)
    own = within / np.maximum(squares, 1e-300)[:, None]
    variance = (documents[:, None] * own + PRIOR * prior) / (documents[:, None] + PRIOR)
    errors: Floats = np.sqrt(variance * squares[:, None]) / np.maximum(tokens, 1e-300)[:, None]
    return errors


def starts_of(hour: Ints, period: str) -> Ints:
    """Return the beginnings of the periods that moments lie in, both in hours since 1970."""
    if period == "week":  # 1970-01-01 was a Thursday
        return (((hour // 24) + 3) // 7 * 7 - 3) * 24
    found = floored(hour, PERIODS[period])
    if period not in ("quarter", "decade"):
        return found
    months = (found // 24).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    size = 3 if period == "quarter" else 120  # months; both 1970-01 and the year 1970 begin one
    days: Ints = (months // size * size).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return days * 24


def _chosen(hour: Ints, exact: Ints, documents: Ints) -> str:
    """Choose a period of which about 10 to 60 have documents, and for which nearly all dates are exact enough."""
    total = documents.sum()
    counts = {}
    for name, unit in PERIODS.items():
        usable = exact <= unit
        if documents[usable].sum() >= ENOUGH * total:
            counts[name] = np.unique(starts_of(hour[usable], name)).size
    if (hour % 24 == 0).all():
        counts.pop("hour", None)
    few = [name for name, count in counts.items() if count <= MOST_PERIODS]
    # Between periods that are few enough, that of which there are about 25: neither noise nor a handful of points.
    middle = math.sqrt(FEW_PERIODS * MOST_PERIODS)
    return min(few or ["decade"], key=lambda name: abs(math.log(max(counts.get(name, 1), 1) / middle)))


def _name(start: datetime.datetime, period: str) -> str:
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


def _following(start: datetime.datetime, period: str) -> datetime.datetime:
    """Return the beginning of the next period."""
    if period in ("hour", "day", "week"):
        step = {"hour": datetime.timedelta(hours=1), "day": datetime.timedelta(days=1)}.get(period)
        return start + (step or datetime.timedelta(days=7))
    months = start.year * 12 + start.month - 1 + {"month": 1, "quarter": 3, "year": 12, "decade": 120}[period]
    return start.replace(year=min(months // 12, 9999), month=months % 12 + 1)


def _notes(found: TimeShares) -> list[str]:
    dates = found.summary
    told = [
        (dates.missing, "have no date"),
        (dates.unreadable, "have a date that cannot be read" + _such(dates.examples)),
        (found.inexact, f"have a date that is not exact to the {found.period}"),
    ]
    left = [f"{count:,} {text}" for count, text in told if count]
    notes = [f"Left out are documents: {', '.join(left)}."] if left else []
    if dates.ordered:
        first = "day" if dates.order == "day first" else "month"
        notes.append(
            f"Of {dates.ordered:,} dates such as 03/04/2020 the {first} is taken to stand first, as others show."
        )
    if dates.ambiguous:
        notes.append(
            f"Of {dates.ambiguous:,} dates such as 03/04/2020 nothing shows whether day or month stands first; their "
            "years alone are used."
        )
    if dates.unix:
        notes.append(f"{dates.unix:,} numbers are read as Unix times.")
    if dates.short_years:
        notes.append(f"Years of two digits, of {dates.short_years:,} documents, are read as 1969 to 2068.")
    return notes


def _such(examples: Sequence[str]) -> str:
    return f" (such as {examples[0]!r})" if examples else ""
