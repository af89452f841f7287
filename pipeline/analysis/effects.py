"""Effects of documents' fields on the topics of a model, or on proportions in a table."""

from __future__ import annotations

import contextlib
import datetime
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.infer import THETA
from collapsium.pipeline.analysis.options import EffectOptions, PosteriorOptions, ShareOptions
from collapsium.pipeline.analysis.regression import KNOWN, Effects, Regression
from collapsium.pipeline.engine.plan import temporary_folder
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import Scheduling
from collapsium.pipeline.fitted_model import require_pandas
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.models.model import Model, training_corpus_of
from collapsium.pipeline.models.topics import topics
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords, python_value
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.errors import AbsentError, OptionError, near
from collapsium.storage.readers.texts.fields import as_date, is_code
from collapsium.storage.runs.model import PosteriorRecord
from collapsium.storage.units import Counting, silent
from collapsium.workers.design import (
    DATE,
    Floats,
    Values,
    check_formula,
    date_values,
    fields_of,
    level_text,
    names_in,
    require_formulaic,
)
from collapsium.workers.periods import EXPECTED, NAMES, is_period

if TYPE_CHECKING:
    import pandas as pd

WORDS = 5  # Words that name a topic
ROUNDING = 1e-6  # Rounding of proportions that are read from files
COMPLETE = 0.9  # Least sum of a document's proportions, of which files leave out small ones, if a table has all topics


@dataclass(frozen=True)
class RunSource:
    """The training documents of a model."""

    url: str
    references: Sequence[ShardReference]
    topics: npt.NDArray[np.int64]  # Columns of the proportions that are reported

    @property
    def parts(self) -> int:
        """Number of shards."""
        return len(self.references)

    def fields(self, part: int, names: Sequence[str]) -> tuple[dict[str, Values], npt.NDArray[np.bool_], set[str]]:
        """Read fields of a shard's documents."""
        reference = self.references[part]
        documents = reference.documents()
        place = f"{reference.folder.url}/{reference.record.file}"
        occupied = documents.tokens > 0 if reference.dense is None else np.ones(len(documents), dtype=bool)
        known = names_in(documents.extras, len(documents))
        return fields_of(documents.extras, len(documents), names, place), occupied, known

    def proportions(self, part: int) -> tuple[Floats, Floats]:
        """Read the proportions of the fit."""
        model = Model(self.url)
        local = model.local_state(part)
        theta = np.asarray(model.family.infer(local, model.global_state)[THETA], dtype=np.float64)
        lengths = np.asarray(model.family.document_lengths(local), dtype=np.float64)
        return np.ascontiguousarray(theta[:, self.topics]), lengths


@dataclass(frozen=True)
class TableSource:
    """Proportions and fields in memory."""

    theta: Floats
    columns: Mapping[str, Values]
    rows: int = 10_000  # Rows of a part

    @cached_property
    def has_all_topics(self) -> bool:
        """True if rows of zeros are empty documents; some of the topics may be zero in other documents, too."""
        sums = self.theta.sum(axis=1)
        return self.theta.shape[1] > 1 and bool((sums[sums > 0.0] >= COMPLETE).all())

    @property
    def parts(self) -> int:
        """Number of parts."""
        return max(-(-len(self.theta) // self.rows), 1)

    def fields(self, part: int, names: Sequence[str]) -> tuple[dict[str, Values], npt.NDArray[np.bool_], set[str]]:
        """Return fields of a part's rows, and which are documents that are not empty."""
        rows = slice(part * self.rows, (part + 1) * self.rows)
        fields = {name: self.columns[name][rows] for name in names if name in self.columns}
        occupied = self.theta[rows].sum(axis=1) > 0.0
        return fields, occupied if self.has_all_topics else np.ones_like(occupied), set(self.columns)

    def proportions(self, part: int) -> tuple[Floats, Floats]:
        """Return the proportions of a part."""
        theta = np.ascontiguousarray(self.theta[part * self.rows : (part + 1) * self.rows])
        return theta, np.ones(len(theta))


@shows("reading documents", "parts")
@keywords(options=EffectOptions, posterior=PosteriorOptions, scheduling=Scheduling)
def effects(
    run: str | os.PathLike[str],
    formula: str,
    *,
    options: EffectOptions,
    posterior: PosteriorOptions,
    scheduling: Scheduling,
    progress: Counting = silent,
) -> Effects:
    """Estimate the effects of documents' fields on their topic proportions, with intervals.

    The topics of the training documents are regressed on fields that are stored with the corpus: labels, covariates and
    dates (as years with fractions). The model may be of any family and need not know the fields.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or a model.
    formula : str
        Fields and how they enter, such as ``~ party + bs(year, df=5)``: ``+ - * : ^ ( )``, ``bs``, ``cr``, ``cs``,
        ``poly``, ``C``, ``I``, ``scale``, ``center``, ``exp``, ``log``, ``log2``, ``log10`` and ``sqrt``. Other names
        than words are written in backquotes.
    options : EffectOptions
        What is estimated, and with which errors.
    posterior : PosteriorOptions
        Where the proportions come from.

    Returns
    -------
    Effects
        Estimates with errors and intervals by topic and term.

    Raises
    ------
    OptionError
        The formula is not allowed, names an unknown field, or has a constant or collinear column; or a value is
        unseen.
    AbsentError
        There is no model with proportions, or no corpus.
    """
    return estimated(run, formula, options, posterior, scheduling, progress)[0]


@shows("reading documents", "parts")
@keywords(options=ShareOptions, posterior=PosteriorOptions, scheduling=Scheduling)
def shares_by(
    run: str | os.PathLike[str],
    field: str,
    *,
    options: ShareOptions,
    posterior: PosteriorOptions,
    scheduling: Scheduling,
    progress: Counting = silent,
) -> Effects:
    """Return the topics' shares of the tokens by the values of a field, with intervals.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or a model.
    field : str
        Labels, or numbers of few values; documents without a value are a group of their own.
    options : ShareOptions
        Errors of the shares.
    posterior : PosteriorOptions
        Where the proportions come from.

    Returns
    -------
    Effects
        A term for each group: means of the documents' proportions, weighted by document length.

    Raises
    ------
    OptionError
        The field does not exist, or has a single value, or too many.
    AbsentError
        There is no model with proportions, or no corpus.
    """
    if not isinstance(field, str) or "`" in field:
        raise OptionError(f"expected the name of a field, found {field!r}", "field")
    named = {name: value for name, value in options if name in options.model_fields_set}
    every = EffectOptions(at=(field,), **named)
    formula = f"~ 0 + C(`{field}`)"
    return estimated(run, formula, every, posterior, scheduling, progress, weigh=True)[0]


@shows("reading documents", "parts")
@keywords(options=ShareOptions, posterior=PosteriorOptions, scheduling=Scheduling)
def shares_over(
    run: str | os.PathLike[str],
    period: str = "year",
    *,
    options: ShareOptions,
    posterior: PosteriorOptions,
    scheduling: Scheduling,
    progress: Counting = silent,
) -> Effects:
    """Return the topics' shares of the tokens by period, with intervals.

    The shares are means over the documents' posteriors, and the errors contain the variance of these posteriors.
    `topic_shares` returns the same shares together with the periods' dates and numbers of documents, and also works
    without the training corpus.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or a model whose corpus has dates (`ingest` with ``date``).
    period : str, optional
        ``hour``, ``day``, ``week``, ``month``, ``quarter``, ``year`` or ``decade``; a width such as ``5 years`` or
        ``4 years from 1789``; or a field of labels such as the term of office.
    options : ShareOptions
        Errors of the shares.
    posterior : PosteriorOptions
        Where the proportions come from.

    Returns
    -------
    Effects
        A term for each period with documents, and one for documents without a date that is precise enough.

    Raises
    ------
    OptionError
        The period is unknown, or no document has a readable date.
    AbsentError
        There is no model with proportions, or no corpus.
    """
    named = {name: value for name, value in options if name in options.model_fields_set}
    field = field_of_period(period)
    every = EffectOptions(at=(field,), **named)
    try:
        return estimated(run, f"~ 0 + C(`{field}`)", every, posterior, scheduling, progress, weigh=True)[0]
    except OptionError as error:
        if error.parameter != "formula":
            raise
        hint = "" if is_period(period) else f"; periods are {EXPECTED}{near(str(period), NAMES)}"
        raise OptionError(f"{error.message}{hint}", "period") from None


def field_of_period(period: str) -> str:
    """Return the field whose values are periods: of the date, or a column such as a term of office."""
    if is_period(period):
        return f"{DATE}:{period}"
    if not isinstance(period, str) or "`" in period:
        raise OptionError(f"expected a period or the name of a field, found {period!r}", "period")
    return period


def estimated(
    run: str | os.PathLike[str],
    formula: str,
    options: EffectOptions,
    posterior: PosteriorOptions,
    scheduling: Scheduling,
    progress: Counting,
    *,
    weigh: bool = False,
    by_field: bool = False,
) -> list[Effects]:
    """Return the estimates of a run, or for each field of the formula; `weigh` documents by their tokens."""
    checked = check_formula(formula)
    require_formulaic()
    if posterior.store and posterior.posteriors != "sampled":
        raise OptionError("applies only to sampled `posteriors`", "store")
    model, corpus = open_training(run, posterior.corpus)
    executor = open_executor(**dict(scheduling))
    with contextlib.ExitStack() as closing:
        closing.callback(executor.close)
        all_topics = topics(model.folder.url, WORDS)
        ids = np.array(
            sorted(topic.id for topic in all_topics if topic.share > 0.0 or topic.level is not None), dtype=int
        )
        if not ids.size:
            raise AbsentError(f"{model.folder.url}: no topic has tokens")
        named = {topic.id: plain(topic.title or " ".join(topic.names)) for topic in all_topics}
        source = RunSource(model.folder.address, corpus.references, ids)
        regression = Regression(source, executor, options, progress, weigh=weigh)
        regression.prepare(checked)
        if posterior.posteriors == "sampled":
            scratch = closing.enter_context(
                temporary_folder(tempfile.gettempdir(), str(scheduling.scheduler), executor)
            )
            request = PosteriorRecord(
                model=model.record.digest,
                corpus=corpus.manifest.digest,
                formula=checked.text,
                seed=options.seed,
                topics=ids.tolist(),
            )
            regression.sample(model, corpus.references, ids, options.seed, scratch, request, store=posterior.store)
        else:
            regression.notes.append(f"By request, {KNOWN}")
        words = [named[topic] for topic in ids.tolist()]
        return regression.estimates(ids, words, by_field=by_field)


@keywords(options=EffectOptions)
def table_effects(proportions: object, data: object, formula: str, *, options: EffectOptions) -> Effects:
    """Estimate the effects of fields on proportions in a table, from any tool.

    Proportions in a table have no variances, so that intervals hold as if the proportions were known.

    Parameters
    ----------
    proportions : str, path-like, array or frame
        A row for each document and a column for each topic: a CSV file with a header, a matrix or a frame. If its first
        column has the name of a column of `data`, it has ids, and the rows are matched by them.
    data : str, path-like or frame
        A row for each document, in the same order or with ids, and a column for each field: a CSV file or a frame.
    formula : str
        As for `effects`.
    options : EffectOptions
        What is estimated, and with which errors.

    Returns
    -------
    Effects
        Estimates with errors and intervals by topic and term.

    Raises
    ------
    OptionError
        As for `effects`; or the tables do not match.

    Examples
    --------
    >>> import numpy as np
    >>> from collapsium.pipeline import table_effects
    >>> theta = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.4, 0.6]])
    >>> result = table_effects(theta, {"treated": [0, 0, 1, 1]}, "~ treated")
    >>> result.terms, result.estimate.round(2).tolist()
    (['Intercept', 'treated'], [[0.8, 0.2], [-0.5, 0.5]])
    """
    checked = check_formula(formula)
    require_formulaic()
    theta, names, columns = _matched(proportions, data, checked.names)
    regression = Regression(TableSource(theta, columns), SerialExecutor(), options, silent)
    regression.prepare(checked)
    return regression.estimates(np.arange(theta.shape[1]), names)[0]


# ---- sources


def open_training(run: str | os.PathLike[str], corpus: str | os.PathLike[str] | None) -> tuple[Model, Corpus]:
    """Open a model with proportions, and its training corpus."""
    model = Model(run)
    if not model.fitted:
        raise AbsentError(f"{os.fspath(run)}: the run has not finished; it has no document proportions yet")
    return model, training_corpus_of(run, model, corpus)


def _matched(proportions: object, data: object, names: Sequence[str]) -> tuple[Floats, list[str], dict[str, Values]]:
    """Return proportions, names of the topics, and fields, in the order of the proportions.

    `names` are the fields of the formula, among which are periods of the date.
    """
    pd = require_pandas()
    fields = _frame(pd, data, "data")
    shares = _frame(pd, proportions, "proportions")
    first = shares.columns[0] if len(shares.columns) else None
    if isinstance(first, str) and first in fields.columns:
        ids, known = shares[first].map(level_text).astype(str), fields[first].map(level_text).astype(str)
        shares = shares.drop(columns=[first])
        for name, values in (("proportions", ids), ("data", known)):
            if values.duplicated().any():
                raise OptionError(f"the id {values[values.duplicated()].iloc[0]!r} occurs twice in {first!r}", name)
        missing = ids[~ids.isin(known)]
        if len(missing):
            raise OptionError(
                f"{len(missing):,} ids of the proportions are missing, such as {missing.iloc[0]!r}", "data"
            )
        fields = fields.set_axis(known, axis=0).loc[ids]
    elif len(shares) != len(fields):
        raise OptionError(
            f"expected as many rows as the proportions, {len(shares):,}, or a first column of the same name with ids; "
            f"found {len(fields):,} rows",
            "data",
        )
    elif (
        not isinstance(shares.index, pd.RangeIndex)
        and not shares.index.equals(fields.index)
        and shares.index.is_unique
        and fields.index.isin(shares.index).all()
    ):
        raise OptionError(
            "has the index of the proportions in another order; sort its rows, as in data.loc[proportions.index], or "
            "match rows by their order with proportions.reset_index(drop=True)",
            "data",
        )
    try:
        theta = np.ascontiguousarray(shares.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        wrong = next(name for name in shares.columns if not pd.api.types.is_numeric_dtype(shares[name]))
        raise OptionError(
            f"the column {str(wrong)!r} has no numbers, and `data` has no column of this name with ids", "proportions"
        ) from None
    if not theta.size:
        raise OptionError("expected a row for each document and a column for each topic, found none", "proportions")
    if not np.isfinite(theta).all() or theta.min() < -ROUNDING or theta.max() > 1.0 + ROUNDING:
        row, column = np.argwhere(~((theta >= -ROUNDING) & (theta <= 1.0 + ROUNDING)))[0].tolist()
        raise OptionError(
            f"expected proportions from 0 to 1, found {theta[row, column]:g} in row {row + 1} of "
            f"{str(shares.columns[column])!r}",
            "proportions",
        )
    columns = {str(name): _column(pd, fields[name], "data") for name in fields}
    if DATE in columns and any(name.partition(":")[0] == DATE for name in names):
        columns |= _dates(pd, fields[DATE], columns[DATE], names)
    return theta, [str(name) for name in shares.columns], columns


def _dates(pd: Any, column: pd.Series, read: Values, names: Sequence[str]) -> dict[str, Values]:
    """Return the dates of a table as years with fractions, also if they are texts, and their periods in a formula."""
    texts = _date_texts(pd, column)
    years = date_values(texts) if read.dtype == object else read
    if np.isnan(years.astype(np.float64)).all():
        return {}  # Seasons, for example, are labels.
    periods = {name: name.partition(":")[2] for name in names if name.startswith(f"{DATE}:")}
    return {DATE: years} | {name: date_values(texts, period) for name, period in periods.items() if is_period(period)}


def _date_texts(pd: Any, column: pd.Series) -> list[str | None]:
    """Return dates as texts, as a corpus stores them."""
    if pd.api.types.infer_dtype(column, skipna=True) == "period":
        column = pd.Series(pd.PeriodIndex(column)).dt.start_time
    return [None if pd.isna(value) else as_date(_written(value)) for value in column]


def _written(value: object) -> object:
    """Return a number, such as a year, as Python has it, and other dates as text."""
    value = python_value(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def columns_of_frame(frame: object, option: str) -> dict[str, Values]:
    """Return the columns of a frame of any library, or of a mapping: numbers, dates as years, and labels."""
    pd = require_pandas()
    columns = _frame(pd, frame, option)
    return {str(name): _column(pd, columns[name], option) for name in columns}


def dates_of_frame(frame: object, option: str) -> list[str | None]:
    """Return the column ``date`` of a frame of any library as texts."""
    pd = require_pandas()
    return _date_texts(pd, _frame(pd, frame, option)[DATE])


def _frame(pd: Any, table: object, option: str) -> pd.DataFrame:
    if isinstance(table, (str, os.PathLike)):
        try:
            frame = pd.read_csv(table)
            return _with_codes(
                frame, pd.read_csv(table, dtype=str), frame.columns[: 1 if option == "proportions" else None]
            )
        except FileNotFoundError:
            raise AbsentError(f"`{option}` {os.fspath(table)}: no such file") from None
        except (OSError, ValueError) as error:
            raise OptionError(f"{os.fspath(table)}: not a CSV file: {' '.join(str(error).split())}", option) from None
    if isinstance(table, np.ndarray) and table.ndim != 2:
        raise OptionError(f"expected a matrix, found {table.ndim} dimensions", option)
    # Frames of polars and Arrow
    to_pandas = getattr(table, "to_pandas", None)
    try:
        return pd.DataFrame(table if to_pandas is None else to_pandas())
    except (TypeError, ValueError):
        raise OptionError(f"expected a CSV file, a frame or a matrix, found {type(table).__name__}", option) from None


def _with_codes(frame: pd.DataFrame, texts: pd.DataFrame, columns: Iterable[object]) -> pd.DataFrame:
    """Return a table whose codes, such as 0123, are texts as in the file, where pandas made them numbers."""
    for name in columns:
        if frame[name].dtype.kind in "iuf" and any(is_code(text) for text in texts[name].dropna()):
            frame[name] = texts[name]
    return frame


def _column(pd: Any, column: pd.Series, option: str) -> Values:
    """Return a field of a table: numbers, dates as years, or labels."""
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind == "decimal":
        column = column.astype(np.float64)
    elif kind in ("floating", "integer", "mixed-integer-float", "boolean") and column.dtype == object:
        column = pd.to_numeric(column)  # Numbers beside missing values, or from a frame of objects
    elif kind in ("timedelta", "timedelta64"):
        column = pd.to_timedelta(column).dt.total_seconds()
    elif kind in ("date", "datetime") and column.dtype == object:
        column = pd.to_datetime(column, errors="coerce")
    elif kind == "period":
        column = pd.Series(pd.PeriodIndex(column)).dt.start_time
    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_numeric_dtype(column):
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if np.isinf(numbers).any():
            raise OptionError(f"{column.name}: expected finite numbers", option)
        return np.asarray(numbers)
    if pd.api.types.is_datetime64_any_dtype(column):
        starts = column.dt.year
        length = np.where(column.dt.is_leap_year, 366.0, 365.0)
        # To the hour, as dates of a corpus and dates that are texts
        days = column.dt.day_of_year - 1 + column.dt.hour / 24.0
        return np.asarray(starts + days / length, dtype=np.float64)
    return np.array([None if pd.isna(value) else str(value) for value in column], dtype=object)
