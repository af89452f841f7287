"""Compute topic shares by period, from hours to decades, from the sums by date of a model's document summary."""

from __future__ import annotations

import datetime
import math
import os
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.analysis.effects import shares_over
from collapsium.pipeline.engine.summary import summary_of
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import Scheduler, SchedulerOptions
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.options import keywords
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import AbsentError, ClusterError, CollapsiumError, OptionError, near
from collapsium.storage.io.folder import Folder, recorded_url
from collapsium.storage.printable import ShortRepr
from collapsium.storage.runs.run import RECORD, Run
from collapsium.storage.runs.summary import DatesSummary, SummaryRecord, read_summary
from collapsium.storage.units import Counting, silent
from collapsium.workers.date_sums import moment
from collapsium.workers.design import DATE
from collapsium.workers.ingest.dates import UNITS
from collapsium.workers.periods import PERIODS, following, name_of_period, starts_of


@dataclass(frozen=True)
class SummarySource:
    """Corpus and executor that make a document summary if the model has none."""

    corpus: str | os.PathLike[str] | None = None
    scheduler: Scheduler = "threads"
    workers: int | None = None
    tls: TLS | None = None
    progress: Counting = silent


def documents_summary(
    model: Model, corpus_url: object, source: SummarySource, notes: list[str]
) -> SummaryRecord | None:
    """Return a model's document summary, read or made from the corpus."""
    try:
        summary = read_summary(model.folder, model.record)
    except CollapsiumError as error:
        notes.append(f"The summary of the documents cannot be read: {error}.")
        summary = None
    if summary is not None:
        return summary
    if (source.corpus is None and corpus_url is None) or not model.fitted:
        notes.append("There is no summary of the documents, so examples and labels are not shown.")
        return None
    executor = None
    try:
        corpus = Corpus(recorded_url(model.folder, corpus_url) if source.corpus is None else source.corpus)
        executor = open_executor(source.scheduler, source.workers, tls=source.tls)
        return summary_of(model, corpus, executor, source.progress)
    except ClusterError:
        raise
    except CollapsiumError as error:
        if source.corpus is not None:
            raise
        notes.append(f"There is no summary of the documents, and none could be made from the corpus: {error}.")
        return None
    finally:
        if executor is not None:
            executor.close()


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MIN_PERIODS = 10
# The default period is one that gives about this many periods with documents; else decades are taken
MAX_PERIODS = 60
PRECISE_SHARE = 0.9  # Share of the documents whose dates must be precise enough for the default period
# Weight, in documents, of the overall variance in a period's variance, as few documents may agree by chance
PRIOR_DOCUMENTS = 4.0
SHOWN_TOPICS = 8  # Topics shown by default: half are the largest, half those that change most


@dataclass(frozen=True, repr=False)
class TimeShares(ShortRepr):
    """Topic shares by period.

    Attributes
    ----------
    period : str
        ``hour``, ``day``, ``week``, ``month``, ``quarter``, ``year`` or ``decade``.
    names : list of str
        Names of the periods that have documents, in order, such as ``1987-03`` or ``1987-W09``.
    starts : list of datetime.datetime
        Starts of the periods, by the clocks of the dates' time zones; weeks start on Mondays.
    documents : numpy.ndarray of int64, shape (periods,)
        Number of documents of each period.
    tokens : numpy.ndarray of float64, shape (periods,)
        Number of their tokens.
    topics : numpy.ndarray of int64, shape (topics,)
        Permanent ids of the topics.
    shares : numpy.ndarray of float64, shape (periods, topics)
        Mean proportions of each period's documents, weighted by document length.
    errors : numpy.ndarray of float64, shape (periods, topics)
        Standard errors of the shares. Without clusters a period's variance is shrunk towards the overall variance,
        which has the weight of four documents.
    inexact : int
        Documents that are left out because their dates are not precise enough, such as a year alone for months.
    summary : DatesSummary
        Sums by date, and counts of unreadable and ambiguous dates.
    cluster : str or None
        Field whose values are clusters; the shares and errors then are those of `shares_over`.
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
    cluster: str | None = None

    @property
    def ends(self) -> list[datetime.datetime]:
        """Ends of the periods."""
        return [following(start, self.period) for start in self.starts]

    @property
    def notes(self) -> list[str]:
        """Sentences on documents that are left out, and on the reading of ambiguous dates."""
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

    def foremost(self, count: int = SHOWN_TOPICS) -> list[int]:
        """Return the columns of topics to show: half are the largest, half those that change most.

        A topic's change is the variance of its shares over the periods, weighted by tokens, minus the variance that
        their standard errors explain.

        Parameters
        ----------
        count : int, optional
            Number of topics.

        Returns
        -------
        list of int
            Columns of `shares`.
        """
        weight = self.tokens / max(float(self.tokens.sum()), 1e-300)
        mean = weight @ self.shares
        change = weight @ ((self.shares - mean) ** 2 - self.errors**2)
        largest = np.argsort(-mean, kind="stable")[: -(-count // 2)].tolist()
        others = [column for column in np.argsort(-change, kind="stable").tolist() if column not in largest]
        return [*largest, *others[: count - len(largest)]]


@keywords(scheduling=SchedulerOptions)
def topic_shares(
    run: str | os.PathLike[str],
    *,
    period: str | None = None,
    cluster: str | None = None,
    corpus: str | os.PathLike[str] | None = None,
    scheduling: SchedulerOptions,
    tls: TLS | None = None,
    progress: Counting = silent,
) -> TimeShares:
    """Return the topics' shares by period: means of the documents' proportions, weighted by document length.

    The shares come from the document summary of a finished model or, if there is none, from the corpus.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or a model whose corpus has dates (`ingest` with ``date``).
    period : str, optional
        ``hour``, ``day``, ``week``, ``month``, ``quarter``, ``year`` or ``decade``; by default the one that gives about
        10 to 60 periods.
    cluster : str, optional
        Field whose values are clusters, such as the speech that paragraphs are from. Shares and errors then are those
        of `shares_over`, whose errors allow for documents of a cluster that resemble each other; this needs the corpus.
    corpus : str or path-like, optional
        Present location of the training corpus, which is read only for clusters, or if there is no summary.
    scheduling : SchedulerOptions
        Executor of the tasks that read the corpus.
    tls : optional
        Certificates for a Dask cluster, as for `fit`.
    progress : callable, optional
        Called with the number of shards read so far.

    Returns
    -------
    TimeShares
        The shares in all periods that have documents.

    Raises
    ------
    OptionError
        The period is unknown, or the dates are not precise enough for it; or no document has a readable date.
    AbsentError
        There is no model, or neither a summary nor the corpus.
    """
    if period is not None and period not in PERIODS:
        raise OptionError(f"expected {', '.join(PERIODS)}, found {period!r}{near(str(period), PERIODS)}", "period")
    model = Model(run)
    record = Run(run).record() if Folder(run).exists(RECORD) else {}
    notes: list[str] = []
    source = SummarySource(corpus, scheduling.scheduler, scheduling.workers, tls, progress)
    summary = documents_summary(model, (record.get("corpus") or {}).get("url"), source, notes)
    if summary is None:
        raise AbsentError(f"{os.fspath(run)}: {' '.join(notes)} Name the training corpus (`corpus`)")
    if summary.dates is None:
        raise OptionError(f"{os.fspath(run)}: its documents have no dates; ingest them with `date`")
    shares = by_period(summary.dates, period)
    return shares if cluster is None else clustered(shares, run, cluster, source)


def clustered(shares: TimeShares, run: str | os.PathLike[str], cluster: str, source: SummarySource) -> TimeShares:
    """Return the shares and errors of `shares_over`, in the same periods."""
    if shares.summary.ordered or shares.summary.ambiguous:
        raise OptionError(
            "clustered errors need dates that can be read in one way only, such as 2020-04-03; some do not show "
            "whether the day or the month is first",
            "cluster",
        )
    by_clusters = shares_over(
        run, shares.period, cluster=cluster, corpus=source.corpus, scheduler=source.scheduler, workers=source.workers,
        tls=source.tls, progress=source.progress,
    )  # fmt: skip
    rows = {values[f"{DATE}:{shares.period}"]: row for row, values in enumerate(by_clusters.values)}
    column_of = {topic: column for column, topic in enumerate(by_clusters.topics.tolist())}
    own = [column for column, topic in enumerate(shares.topics.tolist()) if topic in column_of]
    columns = [column_of[topic] for topic in shares.topics[own].tolist()]
    chosen = np.ix_([rows[name] for name in shares.names], columns)
    estimates, errors = np.zeros_like(shares.shares), np.zeros_like(shares.errors)  # of topics without tokens
    estimates[:, own], errors[:, own] = by_clusters.estimate[chosen], by_clusters.se[chosen]
    return replace(shares, shares=estimates, errors=errors, cluster=cluster)


def by_period(dates: DatesSummary, period: str | None = None) -> TimeShares:
    """Return the topics' shares by period, from sums by date; see `topic_shares`."""
    hour = np.array(dates.hour, dtype=np.int64)
    precision = np.array([UNITS.index(unit) for unit in dates.unit], dtype=np.int64)
    documents = np.array(dates.documents, dtype=np.int64)
    if not documents.sum():
        raise OptionError(
            f"no document has a readable date ({dates.missing:,} have none, {dates.unreadable:,} an unreadable one"
            f"{f', such as {dates.examples[0]!r}' if dates.examples else ''}); expected ISO dates or years"
        )
    chosen = period or _default_period(hour, precision, documents)
    usable = precision <= PERIODS[chosen]
    if not usable.any():
        possible = ", ".join(name for name, unit in PERIODS.items() if unit >= precision.min())
        raise OptionError(
            f"expected {possible}, found {chosen}: the dates, or the sums that are stored where there are many dates, "
            f"have the precision of a {UNITS[int(precision.min())]}",
            "period",
        )
    starts, row = np.unique(starts_of(hour[usable], chosen), return_inverse=True)
    tables = [dates.table(name) for name in ("shares", "weighted", "squared")]
    columns = [documents, np.array(dates.tokens), np.array(dates.squares), *tables]
    sums = [_summed(row, column[usable], starts.size) for column in columns]
    shares = sums[3] / np.maximum(sums[1], 1e-300)[:, None]
    beginnings = [moment(start) for start in starts.tolist()]
    return TimeShares(
        chosen,
        [name_of_period(start, chosen) for start in beginnings],
        beginnings,
        np.rint(sums[0]).astype(np.int64),
        sums[1],
        np.array(dates.topics, dtype=np.int64),
        shares,
        _errors(shares, *sums),
        int(documents[~usable].sum()),
        dates,
    )


def _summed(row: Ints, values: npt.NDArray[np.generic], count: int) -> Floats:
    sums = np.zeros((count, *values.shape[1:]))
    np.add.at(sums, row, values)
    return sums


def _errors(
    shares: Floats, documents: Floats, tokens: Floats, squares: Floats, sums: Floats, weighted: Floats, squared: Floats
) -> Floats:
    """Return standard errors of weighted means, sqrt(v sum w^2) / sum w, with v the variance between documents."""
    overall = sums.sum(axis=0) / max(float(tokens.sum()), 1e-300)
    spread = squared.sum(axis=0) - 2 * overall * weighted.sum(axis=0) + overall**2 * squares.sum()
    prior = np.maximum(spread, 0.0) / max(float(squares.sum()), 1e-300)
    within = np.maximum(squared - 2 * shares * weighted + shares**2 * squares[:, None], 0.0)
    own = within / np.maximum(squares, 1e-300)[:, None]
    weight = PRIOR_DOCUMENTS
    variance = (documents[:, None] * own + weight * prior) / (documents[:, None] + weight)
    errors: Floats = np.sqrt(variance * squares[:, None]) / np.maximum(tokens, 1e-300)[:, None]
    return errors


def _default_period(hour: Ints, precision: Ints, documents: Ints) -> str:
    """Return a period of which about 10 to 60 have documents, and for which nearly all dates are precise enough."""
    total = documents.sum()
    counts = {}
    for name, unit in PERIODS.items():
        usable = precision <= unit
        if documents[usable].sum() >= PRECISE_SHARE * total:
            counts[name] = np.unique(starts_of(hour[usable], name)).size
    if (hour % 24 == 0).all():
        counts.pop("hour", None)
    few = [name for name, count in counts.items() if count <= MAX_PERIODS]
    # About 25 periods are neither noise nor a handful of points.
    middle = math.sqrt(MIN_PERIODS * MAX_PERIODS)
    return min(few or ["decade"], key=lambda name: abs(math.log(max(counts.get(name, 1), 1) / middle)))


def _notes(shares: TimeShares) -> list[str]:
    dates = shares.summary
    example = f" (such as {dates.examples[0]!r})" if dates.examples else ""
    reasons = [
        (dates.missing, "without a date"),
        (dates.unreadable, f"with a date that cannot be read{example}"),
        (shares.inexact, f"with a date less precise than a {shares.period}"),
    ]
    left = [f"{count:,} {reason}" for count, reason in reasons if count]
    notes = [f"Documents left out: {', '.join(left)}."] if left else []
    if shares.cluster is not None:
        notes.append(f"Intervals allow for documents of the same {shares.cluster} that resemble each other.")
    if dates.ordered:
        first = "day" if dates.order == "day first" else "month"
        notes.append(f"{dates.ordered:,} dates such as 03/04/2020 are read with the {first} first, as other dates are.")
    if dates.ambiguous:
        notes.append(
            f"{dates.ambiguous:,} dates such as 03/04/2020 do not show whether the day or the month is first; only "
            "their year is used."
        )
    if dates.unix:
        notes.append(f"{dates.unix:,} numbers are read as Unix times.")
    if dates.short_years:
        notes.append(f"Two-digit years, in {dates.short_years:,} documents, are read as 1969 to 2068.")
    return notes
