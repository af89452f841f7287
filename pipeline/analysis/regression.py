"""Effects of covariates on topic proportions, with errors that contain the uncertainty of the proportions.

The proportions theta_dk of a document have a posterior mean m_dk and a variance v_dk. Coefficients of a regression are
linear in theta, so that their mean and variance over draws of theta are sums over documents: the method of composition
(Treier and Jackman 2008) without draws. With M = (X'X)^-1, b_k = M X'm_k, e = m_k - X b_k and S = sum_d v_dk x_d x_d':

    between    M S M
    classical  M ( e'e + sum v - tr(M S) ) / (D - P)                      + between
    robust     M sum_d (e_d^2 + v_d) x_d x_d' M  D / (D - P)              + between
    cluster    M ( sum_c T_c T_c' + S ) M  C/(C - 1) (D - 1)/(D - P)      + between,  T_c = sum_{d in c} x_d e_d

Without posterior variances these are OLS, HC1 and CR1. All sums are taken shard by shard, in the order of the shards.
Memory does not depend on the number of documents: a task holds the fields of a shard and the proportions of some of its
documents, and the driver holds the scores T_c of clusters that are spread over several shards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product, repeat
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.options import EffectOptions
from collapsium.pipeline.analysis.posteriors import (
    CHUNK,
    DocumentPriors,
    polish_step,
    prior_of,
    read_posterior,
    sample_posterior,
    store_documents,
    store_posterior,
)
from collapsium.pipeline.executors.base import Executor, Future, in_order
from collapsium.pipeline.fitted_model import load_blocks, require_pandas
from collapsium.pipeline.models.model import Model
from collapsium.storage import html
from collapsium.storage.corpus.corpus import ShardReference
from collapsium.storage.errors import OptionError, near
from collapsium.storage.printable import ShortRepr
from collapsium.storage.runs.model import PosteriorRecord
from collapsium.storage.units import Counting
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.spill import SpillFiles, read_rows
from collapsium.workers.arrays.state import Array
from collapsium.workers.design import (
    MISSING,
    CheckedFormula,
    Design,
    FieldCounts,
    Floats,
    Values,
    basis,
    count_values,
    fit_design,
    level_text,
    split_values,
    taken_fields,
)
from collapsium.workers.families.family import IntegratesProportions
from collapsium.workers.kernels.prediction import weighted_squares, weighted_sums

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

SHOWN_TERMS = 6  # Terms that a notebook shows; the others are folded
FEW_CLUSTERS = 30  # Clusters below which errors are too small, so that a warning is due
CURVE = 25  # Points of a curve over a number
MAX_GRID = 1000  # Predictions of a call
POLISH_STEPS = 12  # Steps of the prior from one that all documents share; 6 leave effects on short texts 5% too small
MAX_LOGIT_STEPS = 60
ROUNDING = 1e-12  # Standard errors, relative to a topic's largest coefficient, that are rounding
LOGIT_TOLERANCE = 1e-9  # Largest change of a coefficient of the last step
LOGIT_ROUNDING = 1e-12  # Relative change of the likelihood that may be rounding
LOGIT_FLAT = 1e-14  # Least curvature, relative to the largest, of coefficients that have a limit
PRIOR_UNITS = 4.0  # Clusters, or documents without clusters, by which the variance of all groups weighs in each group's
SIGNIFICANT = 1.96  # |t| that permuted fields exceed in 5% of the cases


KNOWN = "the proportions are taken as known, so that intervals are too narrow."


class Source(Protocol):
    """Proportions and fields of documents, in parts that tasks read anew in each pass."""

    @property
    def parts(self) -> int:
        """Number of parts."""

    def fields(self, part: int, names: Sequence[str]) -> tuple[dict[str, Values], npt.NDArray[np.bool_], set[str]]:
        """Return fields of all documents of a part, which documents are not empty, and the names of all fields."""

    def proportions(self, part: int) -> tuple[Floats, Floats]:
        """Return the proportions and the tokens of all documents of a part."""


@dataclass(frozen=True, repr=False)
class Effects(ShortRepr):
    """Effects of covariates on topic proportions.

    Attributes
    ----------
    topics : numpy.ndarray of int64, shape (topics,)
        Permanent ids of the topics, or the numbers of a table's columns.
    words : list of str
        Name or first words of each topic.
    terms : list of str
        What each row estimates: a column of the formula, a value at which the proportions are predicted, or a
        difference of two predictions.
    kind : str
        ``coefficient``, ``prediction`` or ``difference``.
    estimate, se, low, high, p : numpy.ndarray of float64, shape (terms, topics)
        Estimates, standard errors, limits of the interval, and two-sided p-values, which are NaN for predictions and
        where the standard error is zero.
    link : str
        ``identity``: estimates are shares, between 0 and 1; ``logit``: coefficients and differences are log odds.
    errors : str
        ``robust``, ``classical`` or ``cluster``.
    df : float
        Degrees of freedom of the t distribution.
    documents : int
        Number of documents that are not empty.
    clusters : int
        Number of clusters; 0 without clusters.
    columns : list of str
        Columns of the design.
    coefficients : numpy.ndarray of float64, shape (columns, topics)
        Coefficients of all columns.
    covariances : numpy.ndarray of float64, shape (topics, columns, columns)
        Their covariances.
    values : list of dict
        Values of the fields at each prediction; empty dicts for coefficients.
    notes : list of str
        What limits the estimates, such as few clusters.
    """

    topics: npt.NDArray[np.int64]
    words: list[str]
    terms: list[str]
    kind: str
    estimate: Floats
    se: Floats
    low: Floats
    high: Floats
    p: Floats
    link: str
    errors: str
    df: float
    documents: int
    clusters: int
    columns: list[str]
    coefficients: Floats
    covariances: Floats
    values: list[dict[str, float | str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def p_adjusted(self) -> Floats:
        """P-values adjusted over the topics of each term by Holm's method, which holds for dependent topics too."""
        adjusted = np.full(self.p.shape, np.nan)
        for row, values in enumerate(self.p):
            known = np.flatnonzero(~np.isnan(values))
            order = known[np.argsort(values[known], kind="stable")]
            factors = np.arange(order.size, 0, -1)
            adjusted[row, order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1.0)
        return adjusted

    def records(self) -> list[dict[str, int | str | float | None]]:
        """Return a row for each topic and term: topic, words, term, estimate, se, low, high, p and p_adjusted."""
        adjusted = self.p_adjusted
        return [
            {
                "topic": int(topic),
                "words": self.words[column],
                "term": term,
                "estimate": float(self.estimate[row, column]),
                "se": float(self.se[row, column]),
                "low": float(self.low[row, column]),
                "high": float(self.high[row, column]),
                "p": _finite(self.p[row, column]),
                "p_adjusted": _finite(adjusted[row, column]),
            }
            for column, topic in enumerate(self.topics.tolist())
            for row, term in enumerate(self.terms)
        ]

    def frame(self) -> pd.DataFrame:
        """Return `records` as a pandas frame."""
        frame: pd.DataFrame = require_pandas().DataFrame(self.records())
        return frame

    def _repr_html_(self) -> str:
        """Return a table with a row for each topic and a column for each term, for notebooks."""
        shown, rest = self._table(range(SHOWN_TERMS)), range(SHOWN_TERMS, len(self.terms))
        parts = [shown, *([html.details(f"{len(rest):,} more terms", self._table(rest))] if rest else [])]
        notes = html.facts([("note", note) for note in self.notes])
        parts += [html.details(f"{len(self.notes)} notes", notes)] if self.notes else []
        by = f" by {self._field}" if self._field else ""
        title = f"{self.kind}s{by} with {self.errors} errors and intervals, {self.documents:,} documents"
        return html.block(title[:1].upper() + title[1:], *parts)

    @property
    def _field(self) -> str:
        """The field of predictions at values of a single one; else empty."""
        fields = {name for values in self.values for name in values}
        return fields.pop() if self.kind == "prediction" and len(fields) == 1 else ""

    def _table(self, chosen: Iterable[int]) -> html.Html:
        rows = [row for row in chosen if row < len(self.terms)]
        form = ".1%" if self.link == "identity" or self.kind == "prediction" else ".2f"
        cells = [
            [f"{self.estimate[row, k]:{form}} [{self.low[row, k]:{form}}, {self.high[row, k]:{form}}]" for row in rows]
            for k in range(len(self.words))
        ]
        columns = ["topic", "words", *(self.terms[row].removeprefix(f"{self._field}=") for row in rows)]
        topics = zip(self.topics.tolist(), self.words, cells, strict=True)
        return html.table(columns, [(html.Html(str(topic)), words, *values) for topic, words, values in topics])


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# ---- passes


_Units = tuple[
    dict[str, Floats], Floats
]  # Tokens of clusters by column; counts, sums and squares of the documents' tokens
_Difference: TypeAlias = tuple[str, dict[str, float | str], dict[str, float | str]]  # Name, values of both sides
Permuted = tuple[str, Mapping[str | None, Values]]  # A field, and its permuted values in each cluster of a part


@dataclass(frozen=True)
class _Chunk:
    """Documents that are not empty; a task goes through the documents of a part chunk by chunk."""

    rows: Floats  # Design rows, (documents, columns)
    mean: Floats  # Posterior means, (documents, topics)
    variance: Floats  # Posterior variances, (documents, topics)
    weights: Floats  # (documents, 1)
    keys: list[str | None]  # Cluster of each document; empty without clusters


@dataclass(frozen=True)
class _Pass:
    """The input of each pass over the documents."""

    source: Source
    design: Design
    change: Floats  # Change of basis, so that columns are nearly orthonormal; float64 (columns, rank)
    weigh: bool  # Whether documents weigh as much as they have tokens
    cluster: str | None  # Field of clusters

    def rows(self, part: int, permuted: Permuted | None = None) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return the changed rows of the documents that are not empty."""
        fields, occupied, _ = self.source.fields(part, self.design.formula.names)
        taken = taken_fields(fields, self.design, occupied)
        if permuted is not None:
            name, values = permuted
            taken[name] = taken[name].copy()
            for key, places in _members(self.keys(part, occupied)).items():
                if key in values:
                    taken[name][places] = values[key]
        return np.ascontiguousarray(self.design.rows(taken) @ self.change), occupied

    def keys(self, part: int, occupied: npt.NDArray[np.bool_]) -> list[str | None]:
        """Return the cluster of each document that is not empty."""
        return _keys(self.source, part, self.cluster, occupied)

    def chunks(
        self, part: int, posterior: Mapping[str, Array] | None, permuted: Permuted | None, *, keys: bool = False
    ) -> Iterator[_Chunk]:
        """Read the documents of a part; a part without documents has one empty chunk."""
        rows, occupied = self.rows(part, permuted)
        if posterior is None:
            theta, tokens = self.source.proportions(part)
            posterior = {"mean": theta[occupied], "tokens": tokens[occupied]}
        clusters = self.keys(part, occupied) if keys else []
        for first in range(0, max(len(rows), 1), CHUNK):
            last = min(first + CHUNK, len(rows))
            mean, weights = (read_rows(posterior, name, first, last).astype(np.float64) for name in ("mean", "tokens"))
            known = "variance" not in posterior
            variance = np.zeros_like(mean) if known else read_rows(posterior, "variance", first, last)
            weights = weights if self.weigh else np.ones_like(weights)
            yield _Chunk(
                np.ascontiguousarray(rows[first:last]), mean, variance.astype(np.float64), weights[:, np.newaxis],
                clusters[first:last],
            )  # fmt: skip


def _members(keys: Sequence[str | None]) -> dict[str | None, list[int]]:
    """Return the documents of each cluster."""
    members: dict[str | None, list[int]] = {}
    for document, key in enumerate(keys):
        members.setdefault(key, []).append(document)
    return members


@dataclass(frozen=True)
class _Counted:
    """Values of the fields of a part."""

    counts: dict[str, FieldCounts]
    documents: int
    empty: int
    known: set[str]
    clusters: set[str]  # Clusters of the part
    alone: int  # Documents without a cluster


def _count(source: Source, part: int, names: Sequence[str], cluster: str | None) -> _Counted:
    fields, occupied, known = source.fields(part, names)
    documents = int(occupied.sum())
    counts = {}
    for name in names:
        if name in fields:
            counts[name] = count_values(fields[name][occupied])
        else:
            counts[name] = FieldCounts(np.zeros(0), np.zeros(0, dtype=np.int64), documents)
    keys = _keys(source, part, cluster, occupied)
    alone = sum(key is None for key in keys)
    clusters = {key for key in keys if key is not None}
    return _Counted(counts, documents, occupied.size - documents, known, clusters, alone)


def _gram(run: _Pass, part: int) -> Floats:
    rows, _ = run.rows(part)
    return _squares(rows, np.ones((len(rows), 1)))


def _squares(rows: Floats, weights: Floats) -> Floats:
    """Return sum_d w_dk x_d x_d' as pairs of columns by k."""
    sums = np.zeros((rows.shape[1] * (rows.shape[1] + 1) // 2, weights.shape[1]))
    weighted_squares(rows, np.ascontiguousarray(weights), sums)
    return sums


def _products(rows: Floats, values: Floats) -> Floats:
    """Return X'Y."""
    sums = np.zeros((rows.shape[1], values.shape[1]))
    weighted_sums(rows, np.ascontiguousarray(values), sums)
    return sums


def symmetric(pairs: Floats, columns: int) -> Floats:
    """Return matrices (n, columns, columns) from their pairs of columns, (pairs, n)."""
    matrices = np.zeros((pairs.shape[1], columns, columns))
    first, second = np.triu_indices(columns)
    matrices[:, first, second] = pairs.T
    matrices[:, second, first] = pairs.T
    return matrices


def _moments(
    run: _Pass, part: int, posterior: Mapping[str, Array] | None, permuted: Permuted | None
) -> tuple[Floats, ...]:
    """Return X'WX, X'Wm, S and X'W1."""
    return _summed(
        (
            _squares(chunk.rows, chunk.weights),
            _products(chunk.rows, chunk.mean * chunk.weights),
            _squares(chunk.rows, chunk.variance * chunk.weights**2),
            _products(chunk.rows, chunk.weights),
        )
        for chunk in run.chunks(part, posterior, permuted)
    )


def _logit_moments(
    run: _Pass, part: int, posterior: Mapping[str, Array] | None, permuted: Permuted | None, beta: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the score X'W(m - p), the information sum w p (1 - p) x x' and the likelihood of a fractional logit."""
    sums = []
    for chunk in run.chunks(part, posterior, permuted):
        predictor = chunk.rows @ beta
        p = _logistic(predictor)
        scores = _products(chunk.rows, (chunk.mean - p) * chunk.weights)
        logs = ((chunk.mean * predictor - np.logaddexp(0.0, predictor)) * chunk.weights).sum(axis=0)
        sums.append((scores, _squares(chunk.rows, p * (1.0 - p) * chunk.weights), logs))
    scores, information, likelihood = _summed(sums)
    return scores, information, likelihood


def _logistic(x: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(x, -700.0, 700.0))), dtype=np.float64)


def _residuals(
    run: _Pass,
    part: int,
    posterior: Mapping[str, Array] | None,
    permuted: Permuted | None,
    beta: Floats,
    link: str,
    spread: frozenset[str],
) -> tuple[Floats, Floats, dict[str, Floats]]:
    """Return sum w^2 (e^2 + v) x x', both sums of squares (w e^2 and w v), and scores T_c of clusters in `spread`.

    With clusters the first sum has T_c T_c' of the others instead, and w^2 e^2 x x' of documents without a cluster.
    """
    sums: list[tuple[Floats, Floats]] = []
    clusters: dict[str, Floats] = {}
    for chunk in run.chunks(part, posterior, permuted, keys=run.cluster is not None):
        fitted = chunk.rows @ beta
        error = chunk.mean - (_logistic(fitted) if link == "logit" else fitted)
        squares = np.stack([(moment * chunk.weights).sum(axis=0) for moment in (error**2, chunk.variance)])
        if run.cluster is None:
            sums.append((_squares(chunk.rows, (error**2 + chunk.variance) * chunk.weights**2), squares))
            continue
        scores = error * chunk.weights
        members = _members(chunk.keys)
        alone = members.pop(None, [])
        sums.append((_squares(chunk.rows[alone], scores[alone] ** 2), squares))
        for key, places in members.items():
            score = _products(chunk.rows[places], scores[places])
            clusters[str(key)] = clusters[str(key)] + score if key in clusters else score
    meat, squares = _summed(sums)
    first, second = np.triu_indices(beta.shape[0])
    for key in [key for key in clusters if key not in spread]:
        score = clusters.pop(key)
        meat += score[first] * score[second]
    return meat, squares, clusters


def _keys(source: Source, part: int, cluster: str | None, occupied: npt.NDArray[np.bool_]) -> list[str | None]:
    """Return the cluster of each document that is not empty."""
    fields = {} if cluster is None else source.fields(part, [cluster])[0]
    if cluster is None or cluster not in fields:
        return [None] * int(occupied.sum())
    values = fields[cluster][occupied].tolist()
    return [None if value is None or value != value else level_text(value) for value in values]


def _units(run: _Pass, part: int, posterior: Mapping[str, Array] | None, permuted: Permuted | None) -> _Units:
    """Return the tokens that each cluster of a part has in each column, and sums over documents without a cluster."""
    clusters: dict[str, Floats] = {}
    alone = np.zeros((3, run.change.shape[1]))
    for chunk in run.chunks(part, posterior, permuted, keys=run.cluster is not None):
        tokens = (chunk.rows > 0.0) * chunk.weights  # The rows are indicators
        members = _members(chunk.keys) if run.cluster is not None else {None: list(range(len(tokens)))}
        for key, places in members.items():
            if key is None:
                unclustered = tokens[places]
                alone += np.stack(
                    [(unclustered > 0.0).sum(axis=0), unclustered.sum(axis=0), (unclustered**2).sum(axis=0)]
                )
            else:
                clusters[key] = clusters.get(key, np.zeros(tokens.shape[1])) + tokens[places].sum(axis=0)
    return clusters, alone


def _settings(run: _Pass, part: int, settings: Sequence[Mapping[str, float | str]]) -> Floats:
    """Return the sums of the documents' rows with fields set to given values; (settings, columns)."""
    return np.stack([rows.sum(axis=0) for rows in _rows_by_setting(run, part, settings)])


def _setting_shares(
    run: _Pass, part: int, settings: Sequence[Mapping[str, float | str]], coefficients: Floats
) -> tuple[Floats, Floats]:
    """Return sums over the documents of a logit's shares p and of p (1 - p) x, with fields set to given values."""
    shares, gradients = [], []
    for rows in _rows_by_setting(run, part, settings):
        p = _logistic(rows @ coefficients)
        shares.append(p.sum(axis=0))
        gradients.append(_products(rows, p * (1.0 - p)))
    return np.stack(shares), np.stack(gradients)


def _rows_by_setting(run: _Pass, part: int, settings: Sequence[Mapping[str, float | str]]) -> Iterator[Floats]:
    """Yield the rows of a part's documents with the fields set to each setting's values, as many as fit in memory."""
    fields, occupied, _ = run.source.fields(part, run.design.formula.names)
    taken = taken_fields(fields, run.design, occupied)
    together = max(CHUNK // max(next(iter(taken.values())).size, 1), 1)
    for first in range(0, len(settings), together):
        yield from _rows_of_settings(taken, settings[first : first + together], run.design)


def _rows_of_settings(
    fields: Mapping[str, Values], settings: Sequence[Mapping[str, float | str]], design: Design
) -> Floats:
    """Return the documents' rows with fields set to given values; (settings, documents, columns).

    A formula is evaluated once for all settings: that takes milliseconds, however few rows there are.
    """
    size = next(iter(fields.values())).size
    changed = {name: np.concatenate([values] * len(settings)) for name, values in fields.items()}
    for name in {name for setting in settings for name in setting}:
        is_number = design.counts[name].is_number
        changed[name] = changed[name].astype(np.float64 if is_number else object)
        for place, setting in enumerate(settings):
            if name in setting:
                value = setting[name] if setting[name] != MISSING else math.nan if is_number else None
                changed[name][place * size : (place + 1) * size] = value
    return design.rows(changed).reshape(len(settings), size, len(design.columns))


class Regression:
    """A regression of proportions on a design: sums over the parts of a source, and what follows from them."""

    def __init__(
        self, source: Source, executor: Executor, options: EffectOptions, progress: Counting, *, weigh: bool = False
    ) -> None:
        self.source, self.executor, self.options, self.progress = source, executor, options, progress
        self.notes: list[str] = []
        self.posteriors: Sequence[Future[SpillFiles]] | None = None  # By `sample_posterior`
        self.weigh = weigh

    def _each(self, task: Callable[..., T], first: object, *arguments: object) -> Iterator[T]:
        """Yield the results of a task for each part, in their order, with few of them in memory."""
        parts = range(self.source.parts)
        submitted = (self.executor.submit(task, first, part, *arguments) for part in parts)
        return in_order(self.executor, submitted, 2 * self.executor.workers)

    def _documents(
        self, task: Callable[..., T], permuted: Callable[[], Iterator[Permuted]] | None, *arguments: object
    ) -> Iterator[T]:
        """Yield the results of a pass over the documents, with their posteriors and permuted fields."""
        posteriors: Iterable[Future[SpillFiles] | None] = repeat(None) if self.posteriors is None else self.posteriors
        fields: Iterable[Permuted | None] = repeat(None) if permuted is None else permuted()
        inputs = zip(range(self.source.parts), posteriors, fields, strict=False)
        submitted = (self.executor.submit(task, self.run, *part_inputs, *arguments) for part_inputs in inputs)
        return in_order(self.executor, submitted, 2 * self.executor.workers)

    def prepare(self, formula: CheckedFormula) -> None:
        """Fit the design to the fields, and refuse columns that say nothing."""
        cluster = self.options.cluster
        names = formula.names
        total: _Counted | None = None
        spread: set[str] = set()
        self.sizes: list[int] = []
        for number, part in enumerate(self._each(_count, self.source, names, cluster), start=1):
            self.sizes.append(part.documents)
            if total is not None:
                spread |= total.clusters & part.clusters
                total.clusters.update(part.clusters)
                counts = {name: total.counts[name] + part.counts[name] for name in names}
                part = _Counted(
                    counts, total.documents + part.documents, total.empty + part.empty, total.known | part.known,
                    total.clusters, total.alone + part.alone,
                )  # fmt: skip
            total = part
            self.progress(number)
        if total is None or not total.documents:
            raise OptionError("all documents are empty", "formula")
        self.documents, self.counts = total.documents, total.counts
        if total.empty:
            self.notes.append(f"{total.empty:,} empty documents are left out.")
        if cluster is not None and cluster not in total.known:
            raise OptionError(f"no field {cluster!r}{near(cluster, total.known)}", "cluster")
        self.clusters = 0 if cluster is None else len(total.clusters) + total.alone
        if cluster is not None and self.clusters < 2:
            raise OptionError("expected two clusters or more, found one", "cluster")
        self.spread: Future[frozenset[str]] = self.executor.submit(frozenset, spread)
        self.design = fit_design(formula, self.counts, total.documents, total.known)
        for name in formula.names:
            field_counts = self.counts[name]
            if not field_counts.is_number and (field_counts.counts == 1).any():
                level = level_text(field_counts.values[int((field_counts.counts == 1).argmax())])
                self.notes.append(f"{name}: {level!r} has a single document, whose interval is too narrow.")
        columns = len(self.design.columns)
        self.run = _Pass(self.source, self.design, np.eye(columns), self.weigh, cluster)
        self.gram = symmetric(_summed((part,) for part in self._each(_gram, self.run))[0], columns)[0]
        indicators = range(columns - len(self.design.indicators), columns)
        varying = [name for name, field in self.counts.items() if field.is_number and field.values.size > 1]
        change, used = basis(self.design.columns, self.gram, self.documents, list(indicators), varying)
        if self.documents <= len(used):
            raise OptionError(
                f"{self.documents:,} documents are too few for {len(used):,} columns; expected more documents",
                "formula",
            )
        self.used, self.run = used, replace(self.run, change=change)
        self._require_views()

    def _require_views(self) -> None:
        """Refuse options that do not fit the formula, before posteriors are sampled."""
        options = self.options
        predicted = {name for values in self._grid(options.at) for name in values}
        compared = {name for _, left, _ in self._contrasts(options.contrast) for name in left}
        if both := sorted(predicted & compared):
            raise OptionError(f"{both[0]!r} is also the field of a `contrast`, which sets its values", "at")
        if options.cluster is None and options.errors == "classical" and (options.link == "logit" or self.weigh):
            raise OptionError("classical errors need the identity link", "errors")
        if options.permutations and not self._permuted_columns(self._permuted_field):
            name, known = self._permuted_field, self.design.formula.names
            raise OptionError(f"{name!r} is not a field of the formula{near(name, known)}", "permute")

    @property
    def _permuted_field(self) -> str:
        """Field whose values a check permutes."""
        return self.options.permute or self.design.formula.names[0]

    def _permuted_columns(self, name: str) -> list[int]:
        """Return the coefficients of terms that contain a field."""
        return [self.used.index(column) for column in self.design.term_columns(name) if column in self.used]

    def sample(
        self,
        model: Model,
        references: Sequence[ShardReference],
        ids: npt.NDArray[np.int64],
        seed: int,
        scratch: str,
        request: PosteriorRecord,
        *,
        store: bool,
    ) -> None:
        """Sample the posteriors of the documents with a prior that depends on the formula, if the family allows it.

        Those that the model has stored are read instead; `store` stores others.
        """
        known = request.stored(model.folder)
        if known is not None and len(known.digests) == self.source.parts:
            url = known.folder(model.folder).address
            self.posteriors = [
                self.executor.submit(read_posterior, url, part, digest, size, ids.size, scratch)
                for part, (digest, size) in enumerate(zip(known.digests, self.sizes, strict=True))
            ]
            return
        if not isinstance(model.family, IntegratesProportions):
            whose = "Averaged models have" if model.members else f"The family {model.record.family} has"
            self.notes.append(f"{whose} no posteriors of documents: {KNOWN}")
            return
        blocks = load_blocks(model, self.executor)
        address = model.folder.address
        [(prior, columns)] = self.executor.collect([self.executor.submit(prior_of, address, blocks)])
        priors = DocumentPriors(address, references, prior, columns, ids)
        centre = self._centre()
        mu = np.outer(centre, np.log(priors.prior))
        coefficients = mu
        stored = [
            self.executor.submit(store_documents, self.run.rows, part, priors, scratch)
            for part in range(self.source.parts)
        ]
        for step in range(POLISH_STEPS):
            arguments = (priors, blocks, Stream(seed, "polish", iteration=step), coefficients)
            reach = np.zeros(centre.size)
            sums: tuple[Floats, ...] = (np.zeros(1), np.zeros(1))
            steps = (self.executor.submit(polish_step, arrays, part, *arguments) for part, arrays in enumerate(stored))
            for *part, extent in in_order(self.executor, steps, 2 * self.executor.workers):
                sums, reach = _summed([sums, tuple(part)]), np.maximum(reach, extent)
            gradient, pairs = sums
            matrices = symmetric(pairs, centre.size) + np.eye(centre.size)
            right = gradient - (coefficients - mu)
            change = np.linalg.solve(matrices, right.T[:, :, np.newaxis])[:, :, 0].T
            distance = reach @ np.abs(change)
            coefficients = coefficients + change * np.where(
                distance > 0, np.log1p(distance) / np.maximum(distance, 1e-300), 1.0
            )
        arguments = (priors, blocks, Stream(seed, "posteriors"), coefficients)
        self.posteriors = [
            self.executor.submit(sample_posterior, arrays, part, *arguments, scratch)
            for part, arrays in enumerate(stored)
        ]
        if store:
            url = request.folder(model.folder).address
            writing = [
                self.executor.submit(store_posterior, arrays, url, part) for part, arrays in enumerate(self.posteriors)
            ]
            request.model_copy(update={"digests": tuple(self.executor.collect(writing))}).write(model.folder)

    def _centre(self) -> Floats:
        """Return the coefficients for which the rows give one, or the closest value to it."""
        rank = len(self.used)
        squares, _, _, ones = _summed(self._documents(_moments, None))
        return np.asarray(np.linalg.solve(symmetric(squares, rank)[0], ones[:, 0]), dtype=np.float64)

    def solve(self, permuted: Callable[[], Iterator[Permuted]] | None = None) -> tuple[Floats, Floats, float]:
        """Return coefficients, covariances and degrees of freedom, in the changed basis."""
        options, rank = self.options, len(self.used)
        squares, products, between, _ = _summed(self._documents(_moments, permuted))
        bread = np.linalg.inv(symmetric(squares, rank))
        beta = bread[0] @ products
        if options.link == "logit":
            beta, bread = self._logit(products, squares, permuted)
        spread = symmetric(between, rank)
        meat = totals = np.zeros(1)
        clusters: dict[str, Floats] = {}
        for within, squared, scores in self._documents(_residuals, permuted, beta, options.link, self.spread):
            meat, totals = meat + within, totals + squared
            for key, score in scores.items():
                clusters[key] = clusters[key] + score if key in clusters else score
        first, second = np.triu_indices(rank)
        for score in clusters.values():
            meat = meat + score[first] * score[second]
        documents, df = self.documents, float(self.documents - rank)
        between_covariance = bread @ spread @ bread
        if options.cluster is not None:
            df = float(self.clusters - 1)
            factor = self.clusters / (self.clusters - 1) * (documents - 1) / (documents - rank)
            within = bread @ (symmetric(meat, rank) + spread) @ bread * factor
        elif options.errors == "classical":
            residual = totals.sum(axis=0) - np.einsum("kpq,kqp->k", np.broadcast_to(bread, spread.shape), spread)
            within = bread * (residual / (documents - rank))[:, np.newaxis, np.newaxis]
        else:
            within = bread @ symmetric(meat, rank) @ bread * (documents / (documents - rank))
        covariance = within + between_covariance
        # The residuals of a topic whose proportions are constant, or follow from the fields, are rounding.
        largest = np.abs(beta).max(axis=0)
        exact = np.sqrt(np.maximum(np.einsum("kpp->kp", covariance), 0.0).max(axis=1)) <= ROUNDING * largest
        beta = np.where(exact & (np.abs(beta) <= ROUNDING * largest), 0.0, beta)
        return beta, np.where(exact[:, np.newaxis, np.newaxis], 0.0, covariance), df

    def _logit(
        self, products: Floats, squares: Floats, permuted: Callable[[], Iterator[Permuted]] | None
    ) -> tuple[Floats, Floats]:
        """Return the coefficients of a fractional logit (Papke and Wooldridge 1996), and the inverse information."""
        rank = len(self.used)
        total = symmetric(squares, rank)[0]
        beta: npt.NDArray[np.floating] = np.zeros(products.shape)
        if self.design.intercept:
            share = np.clip(products[0] / total[0, 0], 1e-9, 1.0 - 1e-9)
            beta[0] = np.log(share / (1.0 - share))
        matrices = symmetric(np.zeros((squares.shape[0], products.shape[1])), rank)
        before, step, reached = beta, np.zeros(beta.shape), np.full(products.shape[1], -np.inf)
        endless = np.zeros(products.shape[1], dtype=bool)
        for _ in range(MAX_LOGIT_STEPS):
            score, information, likelihood = _summed(self._documents(_logit_moments, permuted, beta))
            matrices = symmetric(information, rank)
            # Without a curvature, for example of topics that no document has, there is no step.
            matrices += np.eye(rank) * (matrices[:, :1, :1] < 1e-12)
            # A step that goes too far, for example of levels with few documents, is halved. Coefficients have no limit
            # where the curvature vanishes and the likelihood no longer rises.
            rounding = LOGIT_ROUNDING * np.abs(likelihood)
            roots = np.linalg.eigvalsh(matrices)
            too_far = likelihood < reached - rounding
            endless |= ~too_far & (likelihood <= reached + rounding) & (roots[:, 0] <= LOGIT_FLAT * roots[:, -1])
            before, reached = np.where(too_far, before, beta), np.where(too_far, reached, likelihood)
            solvable = np.where((too_far | endless)[:, np.newaxis, np.newaxis], np.eye(rank), matrices)
            newton = np.linalg.solve(solvable, score.T[:, :, np.newaxis])[:, :, 0].T
            step = np.where(endless, 0.0, np.where(too_far, step / 2.0, np.clip(newton, -2.0, 2.0)))
            beta = before + step
            if np.abs(step).max() < LOGIT_TOLERANCE:
                break
        else:
            endless[:] = True
        if permuted is None and endless.any():
            self.notes.append("The logit did not converge; a topic may be absent at some values.")
        return np.asarray(beta, dtype=np.float64), np.asarray(np.linalg.inv(matrices), dtype=np.float64)

    def estimates(self, ids: npt.NDArray[np.int64], words: list[str], *, by_field: bool = False) -> list[Effects]:
        """Return the estimates that the options ask for.

        With `by_field` they are a curve along each number of the formula, and differences of labels to the most
        frequent one, of the same coefficients.
        """
        views: list[tuple[Sequence[str], Sequence[str]]] = [(self.options.at, self.options.contrast)]
        if by_field:
            names = self.design.formula.names
            curves = {name: self.counts[name].is_number and not self.design.has_levels(name) for name in names}
            views = [((name,), ()) if curve else ((), (name,)) for name, curve in curves.items()]
        requests = [(self._grid(at), self._contrasts(contrast)) for at, contrast in views]
        beta, covariance, df = self.solve()
        if 0 < self.clusters < FEW_CLUSTERS:
            self.notes.append(f"{self.clusters} clusters are few (below {FEW_CLUSTERS}): intervals are too narrow.")
        if self.options.permutations:
            self._permute(beta, covariance)
        return [self._viewed(ids, words, *request, beta, covariance, df) for request in requests]

    def _viewed(
        self,
        ids: npt.NDArray[np.int64],
        words: list[str],
        grid: Sequence[Mapping[str, float | str]],
        contrasts: Sequence[_Difference],
        beta: Floats,
        covariance: Floats,
        df: float,
    ) -> Effects:
        """Return predictions at the values of a grid, differences, or else the coefficients."""
        options, design, change = self.options, self.design, self.run.change
        coefficients = change @ beta
        covariances = change @ covariance @ change.T
        if contrasts:
            settings = [{**values, **side} for values in (grid or [{}]) for _, *pair in contrasts for side in pair]
            rows = self._mean_rows(settings)
            vectors = rows[0::2] - rows[1::2]
            places = [f" at {text}" if text else "" for text in self._setting_texts(grid or [{}])]
            terms = [f"{name}{place}" for place in places for name, *_ in contrasts]
            kind, values_of = "difference", [dict(values) for values in settings[0::2]]
        elif grid:
            vectors, terms = self._mean_rows(grid), self._setting_texts(grid)
            kind, values_of = "prediction", [dict(values) for values in grid]
        else:
            vectors, terms = np.eye(len(design.columns))[self.used], [design.columns[column] for column in self.used]
            kind, values_of = "coefficient", [{} for _ in terms]
        at = vectors @ coefficients
        se = np.sqrt(np.maximum(np.einsum("rp,kpq,rq->rk", vectors, covariances, vectors), 0.0))
        if kind == "prediction" and options.link == "logit" and self._rows_differ(grid):
            at, se = self._mean_shares(grid, coefficients, covariances)
        if self.weigh:
            se = self._steadied(at, se, vectors.argmax(axis=1))
        estimate, se, low, high, p = _intervals(at, se, df, options, kind)
        notes = [*self.notes]
        outside = int(((estimate < 0.0) | (estimate > 1.0)).sum()) if kind == "prediction" else 0
        if outside:
            notes.append(f"{outside:,} predictions lie outside of 0 to 1; `link` logit keeps them inside.")
        return Effects(
            ids, words, terms, kind, estimate, se, low, high, p, options.link,
            "cluster" if options.cluster is not None else options.errors, df, self.documents, self.clusters,
            list(design.columns), coefficients, covariances, values_of, notes,
        )  # fmt: skip

    def _steadied(self, shares: Floats, se: Floats, columns: npt.NDArray[np.int64]) -> Floats:
        """Return errors of groups' shares that do not vanish where a group has few clusters, or documents.

        The variance between a group's C clusters, zero for a single cluster, is joined by the variance of all groups,
        relative to p (1 - p), with a weight of `PRIOR_UNITS` clusters.
        """
        units, tokens, squares = np.zeros((3, len(self.used)))
        clusters: dict[str, Floats] = {}
        for part, alone in self._documents(_units, None):
            units, tokens, squares = units + alone[0], tokens + alone[1], squares + alone[2]
            for key, counts in part.items():
                clusters[key] = clusters[key] + counts if key in clusters else counts
        for counts in clusters.values():
            units, tokens, squares = units + (counts > 0.0), tokens + counts, squares + counts**2
        spread = (squares / tokens**2)[columns, np.newaxis]  # Variance of a mean, relative to a cluster's
        count = units[columns, np.newaxis]
        variance = se**2 / spread
        shrunk = (count * shares + PRIOR_UNITS * shares.mean(axis=0)) / (count + PRIOR_UNITS)
        scale = np.maximum(shrunk * (1.0 - shrunk), 1e-12)
        pooled = (count * variance).sum(axis=0) / np.maximum(((count - 1.0) * scale).sum(axis=0), 1e-300)
        if (units <= 1.0).all():
            self.notes.append("No group has two clusters or documents, so that intervals are too narrow.")
            return se
        steadied = (count * variance + PRIOR_UNITS * pooled * scale) / (count - 1.0 + PRIOR_UNITS)
        return np.asarray(np.sqrt(steadied * spread), dtype=np.float64)

    # -- predictions

    def _grid(self, at: Sequence[str]) -> list[dict[str, float | str]]:
        """Return the combinations of values at which proportions are predicted."""
        choices = [self._choices(text, "at") for text in at]
        names = [name for name, _ in choices]
        if len({*names}) < len(names):
            raise OptionError("a field is named twice", "at")
        if math.prod(len(values) for _, values in choices) > MAX_GRID:
            raise OptionError(f"expected at most {MAX_GRID:,} combinations of values", "at")
        combinations = product(*(values for _, values in choices)) if choices else ()
        return [dict(zip(names, values, strict=True)) for values in combinations]

    def _choices(self, text: str, option: str) -> tuple[str, list[float | str]]:
        """Return a field and its values: those named, all levels, or points of a curve."""
        name, equals, rest = text.partition("=")
        name = name.strip().strip("`")
        try:
            if not equals:
                self.design.require(name)
                counts = self.counts[name]
                if not counts.is_number or self.design.has_levels(name):
                    return name, [*counts.values.tolist(), *([MISSING] if counts.missing else [])]
                if counts.values.size <= CURVE:
                    return name, [float(value) for value in counts.values]
                return name, np.linspace(float(counts.values[0]), float(counts.values[-1]), CURVE).tolist()
            known = self.counts.get(name)
            levels = known.values.tolist() if known is not None and not known.is_number else []
            texts = split_values(rest, levels)
            if not texts:
                raise OptionError(f"expected {name}=VALUE,..., found {text!r}")
            return name, [self.design.value(name, value) for value in texts]
        except OptionError as error:
            raise OptionError(error.message, option) from None

    def _contrasts(self, contrasts: Sequence[str]) -> list[_Difference]:
        """Return differences: their names, and the values of both sides."""
        differences: list[_Difference] = []
        for text in contrasts:
            name, values = self._choices(text, "contrast")
            if "=" in text:
                if len(values) != 2:
                    raise OptionError(
                        f"expected two values, such as {name}=A,B for A minus B; found {text!r}", "contrast"
                    )
                pairs = [(values[0], values[1])]
            elif self.counts[name].is_number and not self.design.has_levels(name):
                ends = self.counts[name].values
                pairs = [(float(ends[-1]), float(ends[0]))]
            else:
                texts = [level_text(value) for value in values]
                reference = values[texts.index(self.design.levels_of(name)[0])]
                pairs = [(value, reference) for value in values if value != reference]
            for left, right in pairs:
                shown = self._texts(name, [left, right])
                differences.append((f"{name}: {shown[left]} - {shown[right]}", {name: left}, {name: right}))
        return differences

    def _texts(self, name: str, values: Iterable[float | str]) -> dict[float | str, str]:
        """Return values of a field as texts that differ: levels as they are, numbers to six digits or more."""
        distinct = list(dict.fromkeys(values))
        numbers = [value for value in distinct if isinstance(value, float)]
        if name in self.design.formula.names and self.design.has_levels(name):
            return {value: level_text(value) for value in distinct}
        digits = next((n for n in range(6, 17) if len({f"{value:.{n}g}" for value in numbers}) == len(numbers)), 17)
        return {value: _shown(value, digits) for value in distinct}

    def _setting_texts(self, settings: Sequence[Mapping[str, float | str]]) -> list[str]:
        """Return the values of each setting as a text."""
        names = dict.fromkeys(name for values in settings for name in values)
        texts = {name: self._texts(name, [values[name] for values in settings]) for name in names}
        return [", ".join(f"{name}={texts[name][value]}" for name, value in values.items()) for values in settings]

    def _rows_differ(self, settings: Sequence[Mapping[str, float | str]]) -> bool:
        """Return True if documents have different rows although fields are set to values."""
        varied = {name for values in settings for name in values}
        return not varied.issuperset(self.design.formula.names)

    def _mean_shares(
        self, settings: Sequence[Mapping[str, float | str]], coefficients: Floats, covariances: Floats
    ) -> tuple[Floats, Floats]:
        """Return the logits of mean shares with fields set to values, and their errors by the delta method.

        A mean of shares is not the share at the mean row, as the logit is not linear.
        """
        totals = _summed(self._each(_setting_shares, self.run, list(settings), coefficients))
        shares, gradients = (total / self.documents for total in totals)
        shares = np.clip(shares, 1e-300, 1.0 - 1e-16)
        variance = np.einsum("rpk,kpq,rqk->rk", gradients, covariances, gradients)
        logits = np.log(shares) - np.log1p(-shares)
        return logits, np.sqrt(np.maximum(variance, 0.0)) / (shares * (1.0 - shares))

    def _mean_rows(self, settings: Sequence[Mapping[str, float | str]]) -> Floats:
        """Return the mean design row of the documents with fields set to values; (settings, columns)."""
        rows = np.zeros((len(settings), len(self.design.columns)))
        for varied in dict.fromkeys(frozenset(values) for values in settings):
            places = [place for place, values in enumerate(settings) if values.keys() == varied]
            rows[places] = self._mean_rows_of(varied, [settings[place] for place in places])
        return rows

    def _mean_rows_of(self, varied: frozenset[str], settings: Sequence[Mapping[str, float | str]]) -> Floats:
        """Return `_mean_rows` for settings of the same fields."""
        design = self.design
        mixed = any(fields & varied and not fields <= varied for fields, _ in design.terms)
        complete = all(fields <= varied for fields, _ in design.terms)
        if mixed or not (design.intercept or complete):
            [sums] = _summed((part,) for part in self._each(_settings, self.run, list(settings)))
            return sums / self.documents
        # Without an intercept, all columns depend on the values alone, as with the indicators of periods.
        means = self.gram[0] / self.documents if design.intercept else np.zeros(len(design.columns))
        rows = np.tile(means, (len(settings), 1))
        # The values of other fields do not matter, but a level must exist.
        single = {
            name: np.full(1, counts.mean) if counts.is_number and not design.has_levels(name) else counts.values[:1]
            for name, counts in design.counts.items()
            if name in design.formula.names
        }
        columns = sorted({column for name in varied for column in design.term_columns(name)})
        rows[:, columns] = _rows_of_settings(single, settings, design)[:, 0, columns]
        return rows

    # -- permutations

    def _permute(self, beta: Floats, covariance: Floats) -> None:
        """Compare the share of significant coefficients with their share where a field is permuted."""
        options, name = self.options, self._permuted_field
        columns = self._permuted_columns(name)
        permutations = self._permutations(name)
        shares = []
        for number in range(options.permutations):
            permuted = partial(permutations.parts, Stream(options.seed, "permutations", place=number))
            shares.append(self._significant(*self.solve(permuted)[:2], columns))
        observed = self._significant(beta, covariance, columns)
        self.notes.append(
            f"Permutation check of {name}: |t| > {SIGNIFICANT} in {np.mean(shares):.1%} of the coefficients of "
            f"{options.permutations} permutations (5% are expected), and in {observed:.1%} unpermuted."
        )

    def _permutations(self, name: str) -> _Permutations:
        """Count a field's values: in all documents, or in each cluster."""
        field = self.counts[name]
        values = np.concatenate([field.values, np.array([math.nan] if field.is_number else [None])])
        if self.options.cluster is None:
            pool = np.arange(values.size), np.append(field.counts, field.missing)
            return _Permutations(name, values, [{None: size} for size in self.sizes], {None: pool})
        sizes: list[dict[str | None, int]] = []
        pools: dict[str | None, _Pool] = {}
        nothing = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        for part in self._each(_codes, self.run, name, field):
            sizes.append({key: int(counts.sum()) for key, (_, counts) in part.items()})
            for key, pool in part.items():
                codes, counts = map(np.concatenate, zip(pools.get(key, nothing), pool, strict=True))
                distinct, place = np.unique(codes, return_inverse=True)
                pools[key] = distinct, np.zeros(distinct.size, dtype=np.int64)
                np.add.at(pools[key][1], place, counts)
        return _Permutations(name, values, sizes, pools)

    def _significant(self, beta: Floats, covariance: Floats, columns: Sequence[int]) -> float:
        change = self.run.change
        rows = [self.used[column] for column in columns]
        estimate = (change @ beta)[rows]
        variance = np.einsum("rp,kpq,rq->rk", change[rows], covariance, change[rows])
        return float((np.abs(estimate) > SIGNIFICANT * np.sqrt(np.maximum(variance, 1e-300))).mean())


_Pool: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # Codes of values, and the documents of each


def _codes(run: _Pass, part: int, name: str, field: FieldCounts) -> dict[str | None, _Pool]:
    """Return the values of a field in each cluster of a part, as codes; missing values have the last one."""
    fields, occupied, _ = run.source.fields(part, run.design.formula.names)
    column = taken_fields(fields, run.design, occupied)[name]
    if field.is_number:
        numbers = column.astype(np.float64)
        codes = np.minimum(np.searchsorted(field.values, numbers), field.values.size - 1)
        codes[np.isnan(numbers)] = field.values.size
    else:
        place = {value: code for code, value in enumerate(field.values.tolist())}
        codes = np.array([place.get(value, field.values.size) for value in column.tolist()], dtype=np.int64)
    return {
        key: np.unique(codes[places], return_counts=True) for key, places in _members(run.keys(part, occupied)).items()
    }


@dataclass(frozen=True)
class _Permutations:
    """Random permutations of a field: parts get values from pools in turn, so that no list of documents is needed.

    Each cluster gets the values of another one, in random order and repeated if it is larger, so that values remain as
    alike within clusters as they are. Documents without a cluster exchange theirs.
    """

    name: str
    values: Values  # The value of each code
    sizes: Sequence[Mapping[str | None, int]]  # Documents of each cluster in each part
    pools: Mapping[str | None, _Pool]

    def parts(self, stream: Stream) -> Iterator[Permuted]:
        """Yield the values of each part; the same ones for the same stream."""
        generator = stream.generator()
        clusters = [key for key in self.pools if key is not None]
        permuted = [clusters[place] for place in generator.permutation(len(clusters)).tolist()]
        source: dict[str | None, str | None] = {None: None, **dict(zip(clusters, permuted, strict=True))}
        left = {key: self.pools[donor][1].copy() for key, donor in source.items() if donor in self.pools}
        for sizes in self.sizes:
            values = {}
            for key, size in sizes.items():
                codes, counts = self.pools[source[key]]
                values[key] = self.values[_draw(generator, codes, counts, left[key], size)]
            yield self.name, values


def _draw(
    generator: np.random.Generator,
    codes: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    left: npt.NDArray[np.int64],
    size: int,
) -> npt.NDArray[np.int64]:
    """Take codes from those that are left, in random order; all of them are back when none is left."""
    drawn = []
    while size:
        if not left.any():
            left += counts
        taken = generator.multivariate_hypergeometric(left, min(size, int(left.sum())), method="marginals")
        left -= taken
        size -= int(taken.sum())
        drawn.append(generator.permutation(np.repeat(codes, taken)))
    return np.concatenate([np.zeros(0, dtype=np.int64), *drawn])


def _summed(parts: Iterable[tuple[Floats, ...]]) -> tuple[Floats, ...]:
    """Return the sums of arrays in their order."""
    total: tuple[Floats, ...] | None = None
    for part in parts:
        total = part if total is None else tuple(left + right for left, right in zip(total, part, strict=True))
    return () if total is None else total


def _shown(value: float | str, digits: int) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.{digits}g}"


def _intervals(
    at: Floats, se: Floats, df: float, options: EffectOptions, kind: str
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return estimates, errors, limits and p-values of linear predictors.

    Limits of predicted shares are computed on the logit scale, where the plain interval lies between 0 and 1.
    """
    from scipy import stats

    t = float(stats.t.ppf(0.5 + options.level / 2, df))
    if kind != "prediction":
        with np.errstate(divide="ignore", invalid="ignore"):
            p = np.where(se > 0.0, 2.0 * stats.t.sf(np.abs(at / se), df), np.nan)
        return at, se, at - t * se, at + t * se, np.asarray(p, dtype=np.float64)
    nothing = np.full(at.shape, np.nan)
    if options.link == "logit":
        estimate = _logistic(at)
        return estimate, se * estimate * (1.0 - estimate), _logistic(at - t * se), _logistic(at + t * se), nothing
    low, high = at - t * se, at + t * se
    inside = (low > 0.0) & (high < 1.0)
    share = np.where(inside, at, 0.5)
    logit, spread = np.log(share / (1.0 - share)), se / (share * (1.0 - share))
    low = np.where(inside, _logistic(logit - t * spread), np.clip(low, 0.0, 1.0))
    high = np.where(inside, _logistic(logit + t * spread), np.clip(high, 0.0, 1.0))
    return at, se, low, high, nothing
