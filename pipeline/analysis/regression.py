"""Effects of covariates on topic proportions, with errors that contain the uncertainty of the proportions.

The proportions theta_dk of a document have a posterior mean m_dk and a variance v_dk. Coefficients of a regression are
linear in theta, so that their mean and variance over draws of theta are sums over documents: the method of composition
(Treier and Jackman 2008) without draws. With M = (X'X)^-1, b_k = M X'm_k, e = m_k - X b_k and S = sum_d v_dk x_d x_d':

    between    M S M
    classical  M ( e'e + sum v - tr(M S) ) / (D - P)                      + between
    robust     M sum_d (e_d^2 + v_d) x_d x_d' M  D / (D - P)              + between
    cluster    M ( sum_c T_c T_c' + S ) M  C/(C - 1) (D - 1)/(D - P)      + between,  T_c = sum_{d in c} x_d e_d

Without posterior variances these are OLS, HC1 and CR1. All sums are taken shard by shard, in the order of the shards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.design import (
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
)
from collapsium.pipeline.analysis.options import EffectOptions
from collapsium.pipeline.analysis.posteriors import DocumentPriors, Posterior, polish_step, sample_posterior
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.pipeline.fitted_model import load_blocks, require_pandas
from collapsium.pipeline.models.model import Model
from collapsium.storage.corpus.corpus import ShardReference
from collapsium.storage.errors import OptionError, near
from collapsium.storage.printable import ShortRepr
from collapsium.storage.units import Counting
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import IntegratesProportions
from collapsium.workers.kernels.posteriors import weighted_squares, weighted_sums

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

FEW_CLUSTERS = 30  # Clusters below which errors are too small, so that a warning is due
CURVE = 25  # Points of a curve over a number
MAX_GRID = 1000  # Predictions of a call
POLISH_STEPS = 12  # Steps of the prior from one that all documents share; 6 leave effects on short texts 5% too small
MAX_LOGIT_STEPS = 60
LOGIT_TOLERANCE = 1e-9  # Largest change of a coefficient of the last step
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
        Estimates, standard errors, limits of the interval, and two-sided p-values, which are NaN for predictions.
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


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# ---- passes


@dataclass(frozen=True)
class _Pass:
    """The input of each pass over the documents."""

    source: Source
    design: Design
    change: Floats  # Change of basis, so that columns are nearly orthonormal; float64 (columns, rank)
    weigh: bool  # Whether documents weigh as much as they have tokens

    def rows(self, part: int, permuted: Mapping[str, Values] | None = None) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return the changed rows of the documents that are not empty."""
        fields, occupied, _ = self.source.fields(part, self.design.formula.names)
        fields = {**fields, **(permuted or {})}
        taken = _taken(fields, self.design, occupied)
        return np.ascontiguousarray(self.design.rows(taken) @ self.change), occupied

    def proportions(
        self, part: int, posterior: Posterior | None, occupied: npt.NDArray[np.bool_]
    ) -> tuple[Floats, Floats, Floats]:
        """Return means, variances and weights of the documents that are not empty."""
        if posterior is None:
            mean, tokens = self.source.proportions(part)
            moments = mean, np.zeros_like(mean)
        else:
            tokens = posterior.tokens
            moments = posterior.mean.astype(np.float64), posterior.variance.astype(np.float64)
        weights = tokens[occupied] if self.weigh else np.ones(int(occupied.sum()))
        return np.ascontiguousarray(moments[0][occupied]), np.ascontiguousarray(moments[1][occupied]), weights


def _taken(fields: Mapping[str, Values], design: Design, occupied: npt.NDArray[np.bool_]) -> dict[str, Values]:
    """Return the fields of some documents; those that no document of the part has are missing."""
    taken = {}
    for name in design.formula.names:
        if name in fields:
            taken[name] = fields[name][occupied]
        else:
            number = design.counts[name].is_number
            taken[name] = np.full(int(occupied.sum()), math.nan if number else None, dtype=None if number else object)
    return taken or {"": np.zeros(int(occupied.sum()))}


@dataclass(frozen=True)
class _Counted:
    """Values of the fields of a part."""

    counts: dict[str, FieldCounts]
    documents: int
    empty: int
    known: set[str]


def _count(source: Source, part: int, names: Sequence[str]) -> _Counted:
    fields, occupied, known = source.fields(part, names)
    documents = int(occupied.sum())
    counts = {}
    for name in names:
        if name in fields:
            counts[name] = count_values(fields[name][occupied])
        else:
            counts[name] = FieldCounts(np.zeros(0), np.zeros(0, dtype=np.int64), documents)
    return _Counted(counts, documents, occupied.size - documents, known)


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
    run: _Pass, part: int, posterior: Posterior | None, permuted: Mapping[str, Values] | None
) -> tuple[Floats, ...]:
    """Return X'WX, X'Wm, S and X'W1."""
    rows, occupied = run.rows(part, permuted)
    mean, variance, weights = run.proportions(part, posterior, occupied)
    column = weights[:, np.newaxis]
    some = bool(variance.any())
    return (
        _squares(rows, column),
        _products(rows, mean * column),
        _squares(rows, variance * column**2)
        if some
        else np.zeros((rows.shape[1] * (rows.shape[1] + 1) // 2, mean.shape[1])),
        _products(rows, column),
    )


def _logit_moments(
    run: _Pass, part: int, posterior: Posterior | None, permuted: Mapping[str, Values] | None, beta: Floats
) -> tuple[Floats, ...]:
    """Return the score X'W(m - p) and the information sum w p (1 - p) x x' of a fractional logit."""
    rows, occupied = run.rows(part, permuted)
    mean, _, weights = run.proportions(part, posterior, occupied)
    p = _logistic(rows @ beta)
    column = weights[:, np.newaxis]
    return _products(rows, (mean - p) * column), _squares(rows, p * (1.0 - p) * column)


def _logistic(x: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(x, -700.0, 700.0))), dtype=np.float64)


@dataclass(frozen=True)
class _Residuals:
    """Sums of a second pass."""

    meat: Floats  # sum w^2 (e^2 + v) x x'; of clustered errors over documents without a cluster alone
    squares: Floats  # sum w e^2 and sum w v; (2, topics)
    clusters: dict[str, Floats]  # T_c of each cluster; (rank, topics)
    single: int  # Documents without a cluster


def _residuals(
    run: _Pass,
    part: int,
    posterior: Posterior | None,
    permuted: Mapping[str, Values] | None,
    beta: Floats,
    link: str,
    cluster: str | None,
) -> _Residuals:
    rows, occupied = run.rows(part, permuted)
    mean, variance, weights = run.proportions(part, posterior, occupied)
    fitted = rows @ beta
    error = mean - (_logistic(fitted) if link == "logit" else fitted)
    column = weights[:, np.newaxis]
    squares = np.stack([(error**2 * column).sum(axis=0), (variance * column).sum(axis=0)])
    if cluster is None:
        return _Residuals(_squares(rows, (error**2 + variance) * column**2), squares, {}, 0)
    keys = _keys(run.source, part, cluster, occupied)
    scores, clusters = error * column, dict[str, Floats]()
    members: dict[str, list[int]] = {}
    for document, key in enumerate(keys):
        if key is not None:
            members.setdefault(key, []).append(document)
    for key, chosen in members.items():
        clusters[key] = _products(np.ascontiguousarray(rows[chosen]), scores[chosen])
    alone = np.array([key is None for key in keys], dtype=bool)
    meat = _squares(np.ascontiguousarray(rows[alone]), scores[alone] ** 2)
    return _Residuals(meat, squares, clusters, int(alone.sum()))


def _keys(source: Source, part: int, cluster: str, occupied: npt.NDArray[np.bool_]) -> list[str | None]:
    """Return the cluster of each document that is not empty."""
    fields, _, _ = source.fields(part, [cluster])
    if cluster not in fields:
        return [None] * int(occupied.sum())
    values = fields[cluster][occupied].tolist()
    return [None if value is None or value != value else level_text(value) for value in values]


def _settings(run: _Pass, part: int, settings: Sequence[Mapping[str, float | str]]) -> Floats:
    """Return the sums of the documents' rows with fields set to given values; (settings, columns)."""
    fields, occupied, _ = run.source.fields(part, run.design.formula.names)
    taken = _taken(fields, run.design, occupied)
    return np.stack([run.design.rows(_set(taken, values, run.design)).sum(axis=0) for values in settings])


def _set(fields: Mapping[str, Values], values: Mapping[str, float | str], design: Design) -> dict[str, Values]:
    size = next(iter(fields.values())).size
    changed = dict(fields)
    for name, value in values.items():
        if design.counts[name].is_number:
            changed[name] = np.full(size, float(value))
        else:
            changed[name] = np.full(size, None if value == MISSING else value, dtype=object)
    return changed


class Regression:
    """A regression of proportions on a design: sums over the parts of a source, and what follows from them."""

    def __init__(
        self, source: Source, executor: Executor, options: EffectOptions, progress: Counting, *, weigh: bool = False
    ) -> None:
        self.source, self.executor, self.options, self.progress = source, executor, options, progress
        self.notes: list[str] = []
        self.posteriors: list[Future[Posterior]] | None = None
        self.weigh = weigh

    def _each(
        self,
        task: Callable[..., T],
        *arguments: object,
        by_document: bool = False,
        permuted: Sequence[Mapping[str, Values]] | None = None,
    ) -> Iterator[T]:
        """Yield the results of a task for each part, in their order; with posteriors and permuted fields on request."""
        window = 2 * self.executor.workers
        for first in range(0, self.source.parts, window):
            futures = []
            for part in range(first, min(first + window, self.source.parts)):
                own: list[object] = []
                if by_document:
                    own.append(None if self.posteriors is None else self.posteriors[part])
                    own.append(None if permuted is None else permuted[part])
                futures.append(self.executor.submit(task, arguments[0], part, *own, *arguments[1:]))
            yield from self.executor.collect(futures)

    def prepare(self, formula: CheckedFormula) -> None:
        """Fit the design to the fields, and refuse columns that say nothing."""
        cluster = self.options.cluster
        names = list(dict.fromkeys([*formula.names, *([cluster] if cluster is not None else [])]))
        total: _Counted | None = None
        for number, part in enumerate(self._each(_count, self.source, names), start=1):
            if total is not None:
                counts = {name: total.counts[name] + part.counts[name] for name in names}
                part = _Counted(
                    counts, total.documents + part.documents, total.empty + part.empty, total.known | part.known
                )
            total = part
            self.progress(number)
        if total is None or not total.documents:
            raise OptionError("all documents are empty", "formula")
        self.documents, self.counts = total.documents, total.counts
        if total.empty:
            self.notes.append(f"{total.empty:,} empty documents are left out.")
        if cluster is not None and cluster not in total.known:
            raise OptionError(f"no field {cluster!r}{near(cluster, total.known)}", "cluster")
        self.design = fit_design(formula, self.counts, total.documents, total.known)
        for name in formula.names:
            own = self.counts[name]
            if not own.is_number and (own.counts == 1).any():
                level = level_text(own.values[int((own.counts == 1).argmax())])
                self.notes.append(f"{name}: {level!r} has a single document, whose interval is too narrow.")
        columns = len(self.design.columns)
        self.run = _Pass(self.source, self.design, np.eye(columns), self.weigh)
        self.gram = symmetric(_added(self._each(_gram, self.run)), columns)[0]
        indicators = range(columns - len(self.design.indicators), columns)
        change, used = basis(self.design.columns, self.gram, self.documents, list(indicators))
        if self.documents <= len(used):
            raise OptionError(
                f"{self.documents:,} documents are too few for {len(used):,} columns; expected more documents",
                "formula",
            )
        self.used, self.run = used, replace(self.run, change=change)

    def sample(self, model: Model, references: Sequence[ShardReference], ids: npt.NDArray[np.int64], seed: int) -> None:
        """Sample the posteriors of the documents with a prior that depends on the formula, if the family allows it."""
        if not isinstance(model.family, IntegratesProportions):
            whose = "Averaged models have" if model.members else f"The family {model.record.family} has"
            self.notes.append(f"{whose} no posteriors of documents: {KNOWN}")
            return
        blocks = load_blocks(model, self.executor)
        priors = DocumentPriors.of(model, self.executor, blocks, references, ids)
        centre = self._centre()
        mu = np.outer(centre, np.log(priors.prior))
        coefficients = mu
        for step in range(POLISH_STEPS):
            stream = Stream(seed, "polish", iteration=step)
            sums = self._tasks(polish_step, priors, blocks, stream, coefficients)
            gradient, pairs = _added(part[0] for part in sums), _added(part[1] for part in sums)
            reach = np.max(np.stack([part[2] for part in sums]), axis=0)
            matrices = symmetric(pairs, centre.size) + np.eye(centre.size)
            right = gradient - (coefficients - mu)
            change = np.linalg.solve(matrices, right.T[:, :, np.newaxis])[:, :, 0].T
            distance = reach @ np.abs(change)
            coefficients = coefficients + change * np.where(
                distance > 0, np.log1p(distance) / np.maximum(distance, 1e-300), 1.0
            )
        stream = Stream(seed, "posteriors")
        self.posteriors = [
            self.executor.submit(sample_posterior, self.run, part, priors, blocks, stream, coefficients)
            for part in range(self.source.parts)
        ]

    def _tasks(self, task: Callable[..., T], priors: DocumentPriors, blocks: list[Any], *arguments: object) -> list[T]:
        return self.executor.collect(
            [
                self.executor.submit(task, self.run, part, priors, blocks, *arguments)
                for part in range(self.source.parts)
            ]
        )

    def _centre(self) -> Floats:
        """Return the coefficients of which the rows give one, or come closest to it."""
        rank = len(self.used)
        squares, _, _, ones = self._moments(None)
        return np.asarray(np.linalg.solve(symmetric(squares, rank)[0], ones[:, 0]), dtype=np.float64)

    def _moments(self, permuted: Sequence[Mapping[str, Values]] | None) -> list[Floats]:
        parts = list(self._each(_moments, self.run, by_document=True, permuted=permuted))
        return [_added(column) for column in zip(*parts, strict=True)]

    def solve(self, permuted: Sequence[Mapping[str, Values]] | None = None) -> tuple[Floats, Floats, float, int]:
        """Return coefficients, covariances, degrees of freedom and clusters in the changed basis."""
        options, rank = self.options, len(self.used)
        squares, products, between, _ = self._moments(permuted)
        bread = np.linalg.inv(symmetric(squares, rank))
        beta = bread[0] @ products
        if options.link == "logit":
            beta, bread = self._logit(products, squares, permuted)
        spread = symmetric(between, rank)
        arguments = (self.run, beta, options.link, options.cluster)
        residuals = list(self._each(_residuals, *arguments, by_document=True, permuted=permuted))
        meat = symmetric(_added(part.meat for part in residuals), rank)
        documents, df, clusters = self.documents, float(self.documents - rank), 0
        between_covariance = bread @ spread @ bread
        if options.cluster is not None:
            totals: dict[str, Floats] = {}
            for part in residuals:
                for key, sums in part.clusters.items():
                    totals[key] = totals[key] + sums if key in totals else sums
            for key in sorted(totals):
                meat = meat + np.einsum("pk,qk->kpq", totals[key], totals[key])
            clusters = len(totals) + sum(part.single for part in residuals)
            if clusters < 2:
                raise OptionError("expected two clusters or more, found one", "cluster")
            df = float(clusters - 1)
            factor = clusters / (clusters - 1) * (documents - 1) / (documents - rank)
            within = bread @ (meat + spread) @ bread * factor
        elif options.errors == "classical":
            if options.link == "logit" or self.weigh:
                raise OptionError("classical errors need the identity link", "errors")
            total = _added(part.squares for part in residuals)
            residual = total.sum(axis=0) - np.einsum("kpq,kqp->k", np.broadcast_to(bread, spread.shape), spread)
            within = bread * (residual / (documents - rank))[:, np.newaxis, np.newaxis]
        else:
            within = bread @ meat @ bread * (documents / (documents - rank))
        return beta, within + between_covariance, df, clusters

    def _logit(
        self, products: Floats, squares: Floats, permuted: Sequence[Mapping[str, Values]] | None
    ) -> tuple[Floats, Floats]:
        """Return the coefficients of a fractional logit (Papke and Wooldridge 1996), and the inverse information."""
        rank = len(self.used)
        total = symmetric(squares, rank)[0]
        beta: npt.NDArray[np.floating] = np.zeros(products.shape)
        if self.design.intercept:
            share = np.clip(products[0] / total[0, 0], 1e-9, 1.0 - 1e-9)
            beta[0] = np.log(share / (1.0 - share))
        matrices = symmetric(np.zeros((squares.shape[0], products.shape[1])), rank)
        for _ in range(MAX_LOGIT_STEPS):
            sums = list(
                zip(*self._each(_logit_moments, self.run, beta, by_document=True, permuted=permuted), strict=True)
            )
            matrices = symmetric(_added(sums[1]), rank)
            # Without a curvature, as of topics that no document has, there is no step.
            matrices += np.eye(rank) * (matrices[:, :1, :1] < 1e-12)
            step = np.linalg.solve(matrices, _added(sums[0]).T[:, :, np.newaxis])[:, :, 0].T
            beta += np.clip(step, -2.0, 2.0)
            if np.abs(step).max() < LOGIT_TOLERANCE:
                break
        else:
            if permuted is None:
                self.notes.append("The logit did not converge; a topic may be absent at some values.")
        return np.asarray(beta, dtype=np.float64), np.asarray(np.linalg.inv(matrices), dtype=np.float64)

    def estimate(self, ids: npt.NDArray[np.int64], words: list[str]) -> Effects:
        """Return the estimates that the options ask for."""
        options, design = self.options, self.design
        grid = self._grid(options.at)
        contrasts = self._contrasts(options.contrast)
        beta, covariance, df, clusters = self.solve()
        if 0 < clusters < FEW_CLUSTERS:
            self.notes.append(f"{clusters} clusters are few (below {FEW_CLUSTERS}): intervals are too narrow.")
        change = self.run.change
        coefficients = change @ beta
        covariances = change @ covariance @ change.T
        if contrasts:
            settings = [{**values, **side} for values in (grid or [{}]) for _, *pair in contrasts for side in pair]
            rows = self._mean_rows(settings)
            vectors = rows[0::2] - rows[1::2]
            terms = [f"{name}{_setting_text(values, ' at ')}" for values in (grid or [{}]) for name, *_ in contrasts]
            kind, values_of = "difference", [dict(values) for values in settings[0::2]]
        elif grid:
            vectors, terms = self._mean_rows(grid), [_setting_text(values) for values in grid]
            kind, values_of = "prediction", [dict(values) for values in grid]
        else:
            vectors, terms = np.eye(len(design.columns))[self.used], [design.columns[column] for column in self.used]
            kind, values_of = "coefficient", [{} for _ in terms]
        if options.permutations:
            self._permute(beta, covariance)
        at = vectors @ coefficients
        se = np.sqrt(np.maximum(np.einsum("rp,kpq,rq->rk", vectors, covariances, vectors), 0.0))
        estimate, se, low, high, p = _intervals(at, se, df, options, kind)
        outside = int(((estimate < 0.0) | (estimate > 1.0)).sum()) if kind == "prediction" else 0
        if outside:
            self.notes.append(f"{outside:,} predictions lie outside of 0 to 1; `link` logit keeps them inside.")
        return Effects(
            ids, words, terms, kind, estimate, se, low, high, p, options.link,
            "cluster" if options.cluster is not None else options.errors, df, self.documents, clusters,
            list(design.columns), coefficients, covariances, values_of, self.notes,
        )  # fmt: skip

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
            complete = rest.strip()
            known = self.counts.get(name)
            alone = known is not None and not known.is_number and complete in known.values.tolist()
            texts = [complete] if alone else [value.strip() for value in rest.split(",") if value.strip()]
            if not texts:
                raise OptionError(f"expected {name}=VALUE,..., found {text!r}")
            return name, [self.design.value(name, value) for value in texts]
        except OptionError as error:
            raise OptionError(error.message, option) from None

    def _contrasts(self, contrasts: Sequence[str]) -> list[tuple[str, dict[str, float | str], dict[str, float | str]]]:
        """Return differences: their names, and the values of both sides."""
        differences: list[tuple[str, dict[str, float | str], dict[str, float | str]]] = []
        for text in contrasts:
            name, values = self._choices(text, "contrast")
            if "=" in text:
                if len(values) != 2:
                    raise OptionError(
                        f"expected two values, such as {name}=A,B for A minus B; found {text!r}", "contrast"
                    )
                pairs = [(values[0], values[1])]
            elif self.counts[name].is_number:
                ends = self.counts[name].values
                pairs = [(float(ends[-1]), float(ends[0]))]
            else:
                reference = self.design.levels_of(name)[0]
                pairs = [(value, reference) for value in values if value != reference]
            for left, right in pairs:
                differences.append((f"{name}: {_shown(left)} - {_shown(right)}", {name: left}, {name: right}))
        return differences

    def _mean_rows(self, settings: Sequence[Mapping[str, float | str]]) -> Floats:
        """Return the mean design row of the documents with fields set to values; (settings, columns)."""
        design = self.design
        varied = {name for values in settings for name in values}
        mixed = any(fields & varied and not fields <= varied for fields, _ in design.terms)
        if mixed or not design.intercept:
            sums = _added(self._each(_settings, self.run, list(settings)))
            return sums / self.documents
        means = self.gram[0] / self.documents
        rows = np.tile(means, (len(settings), 1))
        single = {
            name: np.full(1, counts.mean) if counts.is_number else counts.values[:1]
            for name, counts in design.counts.items()
            if name in design.formula.names
        }
        columns = sorted({column for name in varied for column in design.term_columns(name)})
        for place, values in enumerate(settings):
            rows[place, columns] = design.rows(_set(single, values, design))[0, columns]
        return rows

    # -- permutations

    def _permute(self, beta: Floats, covariance: Floats) -> None:
        """Compare the share of significant coefficients with their share where a field is permuted."""
        options, design = self.options, self.design
        name = options.permute or design.formula.names[0]
        columns = [self.used.index(column) for column in design.term_columns(name) if column in self.used]
        if not columns:
            raise OptionError(f"{name!r} is not a field of the formula{near(name, design.formula.names)}", "permute")
        parts = [
            self.source.fields(part, [name, *([options.cluster] if options.cluster else [])])
            for part in range(self.source.parts)
        ]
        values = np.concatenate([_taken(fields, _only(design, name), occupied)[name] for fields, occupied, _ in parts])
        keys = (
            [
                key
                for part, (_, occupied, _) in enumerate(parts)
                for key in _keys(self.source, part, options.cluster, occupied)
            ]
            if options.cluster
            else []
        )
        masks, shares = [occupied for _, occupied, _ in parts], []
        for number in range(options.permutations):
            generator = Stream(options.seed, "permutations", place=number).generator()
            shuffled = _permuted(values, keys, generator)
            pieces, first = [], 0
            for occupied in masks:
                count = int(occupied.sum())
                piece = np.full(occupied.size, math.nan if values.dtype == np.float64 else None, dtype=values.dtype)
                piece[occupied] = shuffled[first : first + count]
                pieces.append({name: piece})
                first += count
            shares.append(self._significant(*self.solve(pieces)[:2], columns))
        observed = self._significant(beta, covariance, columns)
        self.notes.append(
            f"Permutation check of {name}: |t| > {SIGNIFICANT} in {np.mean(shares):.1%} of the coefficients of "
            f"{options.permutations} permutations (5% are expected), and in {observed:.1%} unpermuted."
        )

    def _significant(self, beta: Floats, covariance: Floats, columns: Sequence[int]) -> float:
        change = self.run.change
        rows = [self.used[column] for column in columns]
        estimate = (change @ beta)[rows]
        variance = np.einsum("rp,kpq,rq->rk", change[rows], covariance, change[rows])
        return float((np.abs(estimate) > SIGNIFICANT * np.sqrt(np.maximum(variance, 1e-300))).mean())


def _only(design: Design, name: str) -> Design:
    """Return a design whose formula names a single field, to fill in where it is missing."""
    return replace(design, formula=CheckedFormula(name, "", ((name, None),)))


def _permuted(values: Values, keys: Sequence[str | None], generator: np.random.Generator) -> Values:
    """Return the values in another order: complete clusters where their values are equal, else within them."""
    if not keys:
        return values[generator.permutation(values.size)]
    groups: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        groups.setdefault(f"{place} alone" if key is None else f"in {key}", []).append(place)
    members = [np.array(places) for places in groups.values()]
    texts = np.array([level_text(value) for value in values.tolist()], dtype=object)
    shuffled = values.copy()
    if all((texts[places] == texts[places[0]]).all() for places in members):
        for places, other in zip(members, generator.permutation(len(members)).tolist(), strict=True):
            shuffled[places] = values[members[other][0]]
    else:
        for places in members:
            shuffled[places] = values[generator.permutation(places)]
    return shuffled


def _added(parts: Any) -> Floats:
    """Return the sum of arrays in their order."""
    total: Floats | None = None
    for part in parts:
        total = part if total is None else total + part
    return np.zeros(0) if total is None else total


def _setting_text(values: Mapping[str, float | str], before: str = "") -> str:
    return before * bool(values) + ", ".join(f"{name}={_shown(value)}" for name, value in values.items())


def _shown(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else value


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
            p = 2.0 * stats.t.sf(np.abs(at / se), df)
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
