"""Compute topic shares by period, from hours to decades, from the sums by date of a model's document summary."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.analysis.effects import field_of_period, open_training, shares_over
from collapsium.pipeline.engine.summary import summary_of
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import Scheduling
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.options import keywords
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.errors import AbsentError, ClusterError, CollapsiumError, OptionError, near
from collapsium.storage.io.folder import Folder, recorded_url
from collapsium.storage.printable import ShortRepr
from collapsium.storage.readers.texts.fields import is_missing
from collapsium.storage.runs.run import RECORD, Run
from collapsium.storage.runs.summary import DatesSummary, SummaryRecord, read_summary
from collapsium.storage.units import Counting, silent
from collapsium.workers.design import DATE, fields_of
from collapsium.workers.ingest.dates import UNITS, read_date
from collapsium.workers.periods import EXPECTED, NAMES, is_period, moment, period_of


@dataclass(frozen=True)
class SummarySource:
    """Corpus and executor that make a document summary if the model has none."""

    corpus: str | os.PathLike[str] | None = None
    scheduling: Scheduling = field(default_factory=lambda: Scheduling(scheduler="threads"))
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
        executor = open_executor(**dict(source.scheduling))
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

# The default period is one that gives about this many periods with documents; else decades are taken
MIN_PERIODS, MAX_PERIODS = 10, 40
DEFAULTS = (*NAMES, "2 years", "5 years", "20 years", "50 years")  # Periods from which the default is chosen
SAMPLED = 100_000  # Documents up to which posteriors are sampled for the intervals; beyond it takes minutes
MIN_CLUSTERS, MEMBERS = 30, 2.0  # Fewest values and mean documents of a field that may hold clusters
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
        Width of the periods, such as ``year`` or ``5 years``, or the field whose values they are.
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
        Standard errors of the shares. Without the corpus they follow from sums of the fit's proportions: a period's
        variance is shrunk towards the overall variance, which has the weight of four documents.
    inexact : int
        Documents that are left out because their dates are not precise enough, such as a year alone for months.
    summary : DatesSummary
        Sums by date, and counts of unreadable and ambiguous dates.
    ends : list of datetime.datetime
        Ends of the periods.
    cluster : str or None
        Field whose values are clusters.
    remarks : list of str
        Sentences on where the errors come from.
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
    ends: list[datetime.datetime]
    cluster: str | None = None
    remarks: list[str] = field(default_factory=list)

    @property
    def counted(self) -> str:
        """The number of periods in words."""
        if is_period(self.period):
            return period_of(self.period).counted(len(self.names))
        return f"{len(self.names):,} values of {self.period}"

    @property
    def notes(self) -> list[str]:
        """Sentences on documents that are left out, and on the reading of ambiguous dates."""
        dates = self.summary
        example = f" (such as {dates.examples[0]!r})" if dates.examples else ""
        reasons = [
            (dates.missing, "without a date"),
            (dates.unreadable, f"with a date that cannot be read{example}"),
            (self.inexact, f"with a date less precise than a {self.period}"),
        ]
        left = [f"{count:,} {reason}" for count, reason in reasons if count]
        notes = [f"Documents left out: {', '.join(left)}."] if left else []
        notes += self.remarks
        if self.cluster is not None:
            notes.append(f"Intervals allow for documents of the same {self.cluster} that resemble each other.")
        if dates.ordered:
            first = "day" if dates.order == "day first" else "month"
            notes.append(
                f"{dates.ordered:,} dates such as 03/04/2020 are read with the {first} first, as other dates are."
            )
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
        remaining = [column for column in np.argsort(-change, kind="stable").tolist() if column not in largest]
        return [*largest, *remaining[: count - len(largest)]]


@keywords(scheduling=Scheduling)
def topic_shares(
    run: str | os.PathLike[str],
    *,
    period: str | None = None,
    cluster: str | None = None,
    corpus: str | os.PathLike[str] | None = None,
    scheduling: Scheduling,
    progress: Counting = silent,
) -> TimeShares:
    """Return the topics' shares by period: means of the documents' proportions, weighted by document length.

    Shares and errors come from `shares_over`, which reads the training corpus. If there is none any more, they come
    from the document summary of the model, and a remark says that the errors are too small.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or a model whose corpus has dates (`ingest` with ``date``).
    period : str, optional
        ``hour``, ``day``, ``week``, ``month``, ``quarter``, ``year`` or ``decade``; a width such as ``5 years`` or
        ``4 years from 1789``; or a field of labels such as the term of office, whose values are ordered by their first
        dates. By default one that gives about 10 to 40 periods.
    cluster : str, optional
        Field whose values are clusters, such as the speech that paragraphs are from. The errors then allow for
        documents of a cluster that resemble each other.
    corpus : str or path-like, optional
        Present location of the training corpus.
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
    model = Model(run)
    record = Run(run).record() if Folder(run).exists(RECORD) else {}
    notes: list[str] = []
    source = SummarySource(corpus, scheduling, progress)
    summary = documents_summary(model, (record.get("corpus") or {}).get("url"), source, notes)
    if summary is None:
        raise AbsentError(f"{os.fspath(run)}: {' '.join(notes)} Name the training corpus (`corpus`)")
    if summary.dates is None:
        raise OptionError(f"{os.fspath(run)}: its documents have no dates; ingest them with `date`")
    if period is None or is_period(period):
        return with_errors(by_period(summary.dates, period), run, summary, cluster, source)
    known = [labels.field for labels in summary.fields]
    if period not in known:
        raise OptionError(f"expected {EXPECTED}, or a field of labels; found {period!r}{near(period, known)}", "period")
    # The periods are the values of a field of labels, in the order of their first dates.
    _, training = open_training(run, source.corpus)
    spans: dict[str, list[float]] = {}  # First and last hour, documents and tokens of each value
    with contextlib.closing(open_executor(**dict(source.scheduling))) as executor:
        for part in executor.collect([executor.submit(_spans, reference, period) for reference in training.references]):
            for value, span in part.items():
                total = spans.get(value, [*span[:2], 0.0, 0.0])
                spans[value] = [min(span[0], total[0]), max(span[1], total[1]), span[2] + total[2], span[3] + total[3]]
    if not spans:
        raise OptionError(f"no document has both a date and a value of {period!r}", "period")
    values = sorted(spans, key=lambda value: (spans[value][0], value))
    starts = [moment(int(spans[value][0])) for value in values]
    end_of_last = moment(int(max(span[1] for span in spans.values())) + 24)
    ids = np.array(summary.dates.topics, dtype=np.int64)
    nothing = np.zeros((len(values), ids.size))
    shares = TimeShares(
        period, values, starts, np.array([spans[value][2] for value in values], dtype=np.int64),
        np.array([spans[value][3] for value in values]), ids, nothing, nothing, 0, summary.dates,
        [*starts[1:], max(end_of_last, starts[-1] + datetime.timedelta(days=1))],
    )  # fmt: skip
    return with_errors(shares, run, summary, cluster, source, required=True)


def with_errors(
    shares: TimeShares,
    run: str | os.PathLike[str],
    summary: SummaryRecord,
    cluster: str | None,
    source: SummarySource,
    *,
    required: bool = False,
) -> TimeShares:
    """Return the shares and errors of `shares_over` in the same periods.

    Without clusters, and unless they are `required`, shares are left as they are if the corpus cannot be read.
    """
    remarks: list[str] = []
    uncertain = bool(shares.summary.ordered or shares.summary.ambiguous)
    if uncertain and (cluster is not None or required):
        raise OptionError(
            "clusters and periods of a field need dates that can be read in one way only, such as 2020-04-03; some do "
            "not show whether the day or the month is first",
            "cluster" if cluster is not None else "period",
        )
    documents = int(shares.documents.sum())
    try:
        if uncertain:
            raise OptionError("some dates do not show whether the day or the month is first")
        estimates = shares_over(
            run, shares.period, cluster=cluster, posteriors="sampled" if documents <= SAMPLED else "fit",
            corpus=source.corpus, progress=source.progress, **dict(source.scheduling),
        )  # fmt: skip
    except ClusterError:
        raise
    except CollapsiumError as error:
        if cluster is not None or required:
            raise
        known = f"Intervals take the fit's proportions as known, and are too narrow: {error}."
        return replace(shares, remarks=[known, *_candidate(summary)])
    rows = {values[field_of_period(shares.period)]: row for row, values in enumerate(estimates.values)}
    column_of = {topic: column for column, topic in enumerate(estimates.topics.tolist())}
    known_columns = [column for column, topic in enumerate(shares.topics.tolist()) if topic in column_of]
    columns = [column_of[topic] for topic in shares.topics[known_columns].tolist()]
    chosen = np.ix_([rows[name] for name in shares.names], columns)
    values, errors = np.zeros_like(shares.shares), np.zeros_like(shares.errors)  # of topics without tokens
    values[:, known_columns], errors[:, known_columns] = estimates.estimate[chosen], estimates.se[chosen]
    if cluster is None:
        remarks += _candidate(summary)
    return replace(shares, shares=values, errors=errors, cluster=cluster, remarks=remarks)


def _candidate(summary: SummaryRecord) -> list[str]:
    """Return a hint at a field that may hold clusters: one of many values, each of several documents."""
    for labels in summary.fields:
        documents = sum(value.documents for value in labels.values)
        values = len(labels.values) + (labels.left_out or 0)
        if values >= MIN_CLUSTERS and documents >= MEMBERS * len(labels.values):
            hint = (
                f"Intervals take documents as independent, and are too narrow if documents of the same {labels.field} "
                "belong together, as paragraphs of a speech do; then name it (`cluster`)."
            )
            return [hint]
    return []


def _spans(reference: ShardReference, name: str) -> dict[str, list[float]]:
    """Return the first hour, the last hour, documents and tokens of each value of a field in a shard."""
    documents = reference.documents()
    fields = fields_of(documents.extras, len(documents), [name], f"{reference.folder.url}/{reference.record.file}")
    spans: dict[str, list[float]] = {}
    if name not in fields or DATE not in documents.extras:
        return spans
    texts = documents.extras[DATE].to_pylist()
    read = {text: None if is_missing(text) else read_date(str(text)) for text in {*texts}}
    for value, text, tokens in zip(fields[name].tolist(), texts, documents.tokens.tolist(), strict=True):
        date = read[text]
        if date is None or value is None or not tokens:
            continue
        span = spans.setdefault(value, [date.hour, date.hour, 0.0, 0.0])
        span[:] = [min(span[0], date.hour), max(span[1], date.hour), span[2] + 1, span[3] + tokens]
    return spans


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
    width = period_of(chosen)
    usable = precision <= width.precision
    if not usable.any():
        possible = ", ".join(name for name in NAMES if period_of(name).precision >= precision.min())
        raise OptionError(
            f"expected {possible}, found {chosen}: the dates, or the sums that are stored where there are many dates, "
            f"have the precision of a {UNITS[int(precision.min())]}",
            "period",
        )
    starts, row = np.unique(width.starts(hour[usable]), return_inverse=True)
    tables = [dates.table(name) for name in ("shares", "weighted", "squared")]
    columns = [documents, np.array(dates.tokens), np.array(dates.squares), *tables]
    sums = [np.zeros((starts.size, *column.shape[1:])) for column in columns]
    for total, column in zip(sums, columns, strict=True):
        np.add.at(total, row, column[usable])
    shares = sums[3] / np.maximum(sums[1], 1e-300)[:, None]
    beginnings = [moment(start) for start in starts.tolist()]
    return TimeShares(
        chosen,
        [width.name(start) for start in beginnings],
        beginnings,
        np.rint(sums[0]).astype(np.int64),
        sums[1],
        np.array(dates.topics, dtype=np.int64),
        shares,
        _errors(shares, *sums),
        int(documents[~usable].sum()),
        dates,
        [width.following(start) for start in beginnings],
    )


def _errors(
    shares: Floats, documents: Floats, tokens: Floats, squares: Floats, sums: Floats, weighted: Floats, squared: Floats
) -> Floats:
    """Return standard errors of weighted means, sqrt(v sum w^2) / sum w, with v the variance between documents."""
    overall = sums.sum(axis=0) / max(float(tokens.sum()), 1e-300)
    spread = squared.sum(axis=0) - 2 * overall * weighted.sum(axis=0) + overall**2 * squares.sum()
    prior = np.maximum(spread, 0.0) / max(float(squares.sum()), 1e-300)
    within = np.maximum(squared - 2 * shares * weighted + shares**2 * squares[:, None], 0.0)
    measured = within / np.maximum(squares, 1e-300)[:, None]
    weight = PRIOR_DOCUMENTS
    variance = (documents[:, None] * measured + weight * prior) / (documents[:, None] + weight)
    errors: Floats = np.sqrt(variance * squares[:, None]) / np.maximum(tokens, 1e-300)[:, None]
    return errors


def _default_period(hour: Ints, precision: Ints, documents: Ints) -> str:
    """Return a period that gives about 10 to 40 periods with documents, and for which most dates are precise enough."""
    total = documents.sum()
    counts = {}
    for name in DEFAULTS:
        period = period_of(name)
        usable = precision <= period.precision
        if documents[usable].sum() >= PRECISE_SHARE * total:
            counts[name] = np.unique(period.starts(hour[usable])).size
    if (hour % 24 == 0).all():
        counts.pop("hour", None)
    candidates = [name for name, count in counts.items() if count <= MAX_PERIODS]
    # About 25 periods are neither noise nor a handful of points.
    middle = math.sqrt(MIN_PERIODS * MAX_PERIODS)
    return min(candidates or ["decade"], key=lambda name: abs(math.log(max(counts.get(name, 1), 1) / middle)))
