"""Dirichlet-multinomial regression (Mimno and McCallum 2008): priors of documents that follow fields of these.

In LDA, log a_dk = x_d.lambda_k, lambda_kp ~ N(mu_p, 1/rho_p), mu = (log alpha, 0, ..) and rho = (0.1, 1, 1, ..), so
that lambda = mu is LDA. Every few sweeps, lambda takes a damped Newton step, from sums over the documents. Tempered
responsibilities spread over topics, which would let concentrations grow: A_d is held at A while they are tempered.

Levels of a field of many, such as authors, have effects u_lk ~ N(0, tau^2), whose mean over the fields is added to
x_d.lambda_k. They take turns with lambda.

In the HDP, the design multiplies the shares of topics, and an intercept keeps the means of these factors at one:

    a_dk = G[alpha] G[pi_k] exp(x_d.lambda_k) / m_k,  m_k = sum_d h_d exp(x_d.lambda_k) / sum_d h_d

with h_d = psi(A_d + n_d) - psi(A_d). Then sum_d h_d a_dk does not depend on lambda, and alpha, gamma and the sticks
keep the updates of CV-HDP. Covariates move documents around the shares of the corpus.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import DamagedError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta, Part, fresh
from collapsium.workers.families.cvb import schedule
from collapsium.workers.families.cvb.global_state import (
    HdpGlobalState,
    LdaGlobalState,
    LevelState,
    PrevalenceState,
    PrevalenceSums,
    SweepSums,
)
from collapsium.workers.families.cvb.parameters import DesignPriors, Parameters
from collapsium.workers.families.family import DesignTable
from collapsium.workers.kernels.cvb import prevalence as kernels
from collapsium.workers.special_functions import digamma

if TYPE_CHECKING:
    from collapsium.storage.corpus.labels import DocumentRows
    from collapsium.workers.families.cvb.active_topics import DocumentChunk

Vector = npt.NDArray[np.float64]

KERNELS = (kernels.design_priors, kernels.count_moments, kernels.coefficient_sums, kernels.newton_steps)
INTERCEPT_PRECISION, PRECISION = 0.1, 1.0  # rho of the intercepts, and of all other coefficients
FIRST_VARIANCE, LEAST_VARIANCE = 0.25, 1e-4  # tau^2 at first, and at least
LEVEL_STEPS = 20  # Newton steps to the effects of levels, at most; they converge from above
LEVEL_TOLERANCE = 1e-8  # Largest of these that is the last
MAX_LEVEL_STEP = 20.0  # Bound on |y|
MIN_PRIOR = 1e-8  # Smallest mean prior of a topic
CELLS = 1 << 18  # Moments of documents and topics that are summed together, in each of three arrays of 2 MB


def begin(design: DesignTable, topics: int, alpha: Vector | None, iterations: int) -> PrevalenceState:
    """Return the state with which a fit begins: all documents have the same prior.

    This is `alpha` or, where it is None, the prior that the design multiplies.
    """
    coefficients, levels = np.zeros((design.terms.size, topics)), None
    if design.level_field.size:
        fields = int(design.level_field.max()) + 1
        levels = LevelState(
            level_effects=np.zeros((design.level_field.size, topics)),
            level_field=design.level_field,
            level_variance=np.full(fields, FIRST_VARIANCE),
        )
    if alpha is not None:
        coefficients[0] = special.log(alpha)
    first = min(schedule.PREVALENCE_FIRST, iterations // 3) if iterations else schedule.PREVALENCE_FIRST
    return PrevalenceState(
        prevalence_design=design.packed,
        prevalence_reach=design.reach,
        prevalence_terms=design.terms,
        prevalence_coefficients=coefficients,
        prevalence_concentration=1.0 if alpha is None else float(alpha.sum()),
        prevalence_multiplies=alpha is None,
        prevalence_first=first,
        levels=levels,
    )


def carried(state: PrevalenceState, known: PrevalenceState) -> PrevalenceState:
    """Return the first state with the coefficients of another run, if both have the same columns and topics."""
    columns = [_columns(design) for design in (state.prevalence_design, known.prevalence_design)]
    coefficients = known.prevalence_coefficients
    if columns[0] is None or columns[0] != columns[1] or coefficients.shape != state.prevalence_coefficients.shape:
        return state
    shapes = [None if side.levels is None else side.levels.level_effects.shape for side in (state, known)]
    if shapes[0] != shapes[1]:
        return state
    return replace(
        state,
        prevalence_coefficients=coefficients,
        prevalence_free=known.prevalence_free,
        prevalence_sweeps=max(known.prevalence_sweeps, schedule.PREVALENCE_FIRST),
        prevalence_first=0,
        levels=known.levels,
    )


def _columns(design: npt.NDArray[np.uint8]) -> object:
    """Return the names of the columns of a packed design; None if it is damaged or forged."""
    try:
        record = json.loads(design.tobytes())
    except ValueError:
        return None
    return record.get("columns") if isinstance(record, dict) else None


def design_priors(design: DocumentRows, state: PrevalenceState, parameters: Parameters) -> DesignPriors:
    """Return the priors of documents with rows of the design."""
    coefficients = state.prevalence_coefficients
    if design.rows.shape[1] != state.row_size:
        raise DamagedError("prevalence_design", f"expected {state.row_size} columns, found {design.rows.shape[1]}")
    rows, places = np.ascontiguousarray(design.rows[:, : len(coefficients)]), design.rows[:, len(coefficients) :]
    effects = np.zeros((0, coefficients.shape[1])) if state.levels is None else state.levels.level_effects
    if places.size and not (places.min() >= -1 and places.max() < len(effects)):
        raise DamagedError("prevalence_design", f"expected levels below {len(effects)}, found {places.max():.0f}")
    levels = kernels.Levels(np.ascontiguousarray(places, dtype=np.int32), effects)
    priors, log_total = np.empty((len(rows), coefficients.shape[1])), np.empty(len(rows))
    kernels.design_priors(rows, coefficients, levels, state.held, priors, log_total)
    rest = 0.0
    if state.prevalence_multiplies:
        priors, rest = priors * parameters.topics, parameters.rest
    place, multiplies = np.ascontiguousarray(design.place), state.prevalence_multiplies
    return DesignPriors(
        rows, levels.places, len(effects), place, priors, log_total, state.held, state.learns, multiplies, rest
    )


class Learning:
    """Sums over a shard's documents from which coefficients are learned; none where all have the same prior."""

    def __init__(self, priors: DesignPriors | None) -> None:
        columns, topics = (0, 0) if priors is None else (priors.design.shape[1], priors.priors.shape[1])
        self._priors = priors
        self._weight = np.zeros(0 if priors is None else len(priors.design))
        levels = 0 if priors is None else priors.level_count
        self._sums = kernels.CoefficientSums(
            np.zeros((columns, topics)), np.zeros((columns * (columns + 1) // 2, topics)),
            *np.zeros((2, levels, topics)),
        )  # fmt: skip

    def add(self, chunk: DocumentChunk) -> None:
        """Add the sums of a chunk after its sweep."""
        priors = self._priors
        if priors is None:
            return
        places = priors.place[chunk.document : chunk.document + chunk.documents]
        pairs, topics, weight = chunk.pairs, priors.priors.shape[1], None
        if not (priors.learned or priors.multiplies):
            self._weight += np.bincount(places, weight, self._weight.size)
            return
        weighted = bool(pairs.weights.size)
        tokens = pairs.counts * pairs.weights.astype(np.float64) if weighted else pairs.counts
        running = np.concatenate([[0], np.cumsum(tokens, dtype=np.float64 if weighted else np.int64)])
        lengths = (running[pairs.offsets[1:]] - running[pairs.offsets[:-1]]).astype(np.float64)
        if priors.multiplies:
            total = priors.priors.sum(axis=1)[places] + priors.rest
            weight = np.asarray(digamma(total + lengths) - digamma(total))
        self._weight += np.bincount(places, weight, self._weight.size)
        if not priors.learned:
            return
        step = max(CELLS // topics, 1)
        moments = kernels.CountMoments(*np.empty((3, min(step, chunk.documents), topics)))
        least = 1.0 if priors.multiplies else kernels.LEAST_CURVATURE
        for first in range(0, chunk.documents, step):
            last = min(first + step, chunk.documents)
            offsets, lists = pairs.offsets[first : last + 1], chunk.active.offsets[first : last + 1]
            documents = kernels.DocumentPriors(
                priors.design,
                priors.priors,
                np.ascontiguousarray(places[first:last]),
                np.ascontiguousarray(lengths[first:last]),
            )
            part = chunk.state._replace(
                starts=chunk.state.starts[first : last + 1], background=chunk.state.background[first:last]
            )
            kernels.count_moments(
                pairs._replace(offsets=offsets), chunk.active._replace(offsets=lists), part, documents, moments
            )
            kernels.coefficient_sums(documents, priors.levels, moments, priors.held, priors.rest, least, self._sums)

    def parts(self) -> dict[str, Part]:
        """Return `PrevalenceSums`."""
        priors, weight = self._priors, self._weight
        if priors is None:
            return {}
        parts = {
            "prior_total": fresh((weight[:, np.newaxis] * priors.priors).sum(axis=0)),
            "prior_weight": fresh(weight.sum()),
            "log_prior_total": fresh((weight * priors.log_total).sum()),
        }
        if priors.learned:
            parts["prevalence_gradient"] = fresh(self._sums.gradient)
            parts["prevalence_curvature"] = fresh(self._sums.curvature)
            if priors.level_count:
                parts["level_tables"] = fresh(self._sums.level_tables)
                parts["level_growth"] = fresh(self._sums.level_growth)
        return parts


def updated(global_state: LdaGlobalState, delta: Delta, inverse_temperature: float | None) -> LdaGlobalState:
    """Return the global state after a sweep: the mean prior and, if they are due, other coefficients."""
    state, sums = global_state.prevalence, delta.read(PrevalenceSums)
    if state is None or sums is None:
        return global_state
    alpha = np.maximum(sums.prior_total / max(sums.prior_weight, 1.0), MIN_PRIOR)
    coefficients = state.prevalence_coefficients
    if state.learns_levels:
        state = replace(state, levels=stepped_levels(state, sums))
    elif sums.prevalence_gradient is not None and sums.prevalence_curvature is not None:
        coefficients = stepped(state, sums.prevalence_gradient, sums.prevalence_curvature)
    sweeps = state.prevalence_sweeps + 1
    inverse = inverse_temperature or 1.0
    if global_state.temperature_search is not None:
        inverse = global_state.temperature_search.inverse_temperature
    free = inverse == 1.0 and not global_state.searching and sweeps >= schedule.PREVALENCE_FIRST
    if free and not state.prevalence_free:
        # Held concentrations leave the size of exp(x.lambda) open.
        excess = sums.log_prior_total / max(sums.prior_weight, 1.0) - special.log(state.prevalence_concentration)
        coefficients = np.array(coefficients)
        coefficients[0] -= excess
    after = replace(state, prevalence_coefficients=coefficients, prevalence_free=free, prevalence_sweeps=sweeps)
    return replace(global_state, alpha=alpha, prevalence=after)


def updated_shares(global_state: HdpGlobalState, delta: Delta, topics: Vector) -> HdpGlobalState:
    """Return the global state after a sweep in which the design multiplied `topics`, shape (topics,)."""
    state, sums = global_state.prevalence, delta.read(PrevalenceSums)
    if state is None or delta.read(SweepSums) is None:
        return global_state
    if sums is not None:
        coefficients = np.array(state.prevalence_coefficients)
        expected = sums.prior_weight * topics
        mean = np.divide(sums.prior_total, expected, out=np.ones_like(topics), where=expected > 0.0)
        coefficients[0] -= np.asarray(special.log(np.where(mean > 0.0, mean, 1.0)))
        if state.learns_levels:
            state = replace(state, levels=stepped_levels(state, sums))
        elif sums.prevalence_gradient is not None and sums.prevalence_curvature is not None:
            coefficients += _share_steps(state, sums.prevalence_gradient, sums.prevalence_curvature)
        state = replace(state, prevalence_coefficients=coefficients)
    return replace(global_state, prevalence=replace(state, prevalence_sweeps=state.prevalence_sweeps + 1))


def stepped_levels(state: PrevalenceState, sums: PrevalenceSums) -> LevelState | None:
    """Return the effects of levels after a step, and tau^2 after one of the EM algorithm.

    By Jensen's inequality, exp of a mean of changes y is at most the mean of their exp, so that levels separate:
    each y maximises S y - H (e^y - 1) - (u + y)^2 / (2 tau^2), with S and H the sums of w s_dk and w h_d a_dk over the
    documents of the level, w = 1 / fields. tau^2 is the mean of u^2 + 1 / (w H + 1 / tau^2).
    """
    levels, tables, growth = state.levels, sums.level_tables, sums.level_growth
    if levels is None or tables is None or growth is None:
        return levels
    weight = 1.0 / levels.level_variance.size
    tables, growth, before = weight * tables, weight * growth, levels.level_effects
    precision = 1.0 / levels.level_variance[levels.level_field][:, np.newaxis]
    # Above the root, from where Newton's steps fall to it.
    above = np.asarray(special.log(np.maximum(tables, 1e-12) / np.maximum(growth, 1e-300)))
    change = np.clip(np.maximum(above, -before), -MAX_LEVEL_STEP, MAX_LEVEL_STEP)
    for _ in range(LEVEL_STEPS):
        expected = growth * np.asarray(special.exp(change))
        step = (tables - expected - precision * (before + change)) / (expected + precision)
        change = np.clip(change + step, -MAX_LEVEL_STEP, MAX_LEVEL_STEP)
        if np.abs(step).max() < LEVEL_TOLERANCE:
            break
    after = before + change
    spread = after**2 + 1.0 / (weight * growth + precision)
    fields = levels.level_variance.size
    # A field is a run of levels; libraries of linear algebra add in an order that depends on the processor.
    variance = np.array([spread[levels.level_field == number].mean() for number in range(fields)])
    return replace(levels, level_effects=after, level_variance=np.maximum(variance, LEAST_VARIANCE))


def _share_steps(state: PrevalenceState, gradient: Vector, curvature: Vector) -> Vector:
    """Return damped Newton steps of coefficients that multiply shares, shape (columns, topics).

    They climb sum_dk s_dk x_d.lambda_k - sum_k s_k log sum_d h_d exp(x_d.lambda_k) - |lambda|^2 / 2, with gradient
    X's_k - s_k xbar_k - lambda_k and curvature s_k Cov_k(x) + 1, weighted by h_d a_dk. All these are in the sums: with
    g = X'(s - h a) and H = X' diag(h a) X, whose first rows are the intercept's: s_k = g_0 + H_00, xbar = H_0 / H_00,
    and X's - s_k xbar = g - xbar g_0. The intercept makes up for the change of log m_k, to the second order.
    """
    columns, topics = gradient.shape
    rows, places = np.triu_indices(columns)
    total = np.maximum(curvature[0], 1e-300)
    mean = curvature[:columns] / total
    inner = rows > 0
    spread = curvature[inner] / total - mean[rows[inner]] * mean[places[inner]]
    tables = np.maximum(gradient[0] + curvature[0], 0.0)
    before = state.prevalence_coefficients[1:]
    climbing = gradient[1:] - mean[1:] * gradient[0] - PRECISION * before
    steps, precision = np.zeros((columns - 1, topics)), np.full(columns - 1, PRECISION)
    kernels.newton_steps(np.ascontiguousarray(climbing), np.ascontiguousarray(tables * spread), precision, steps)
    # x_d.step may differ from its mean by the bound, in both directions.
    steps *= _shortened(2.0 * _reached(state, steps, state.prevalence_terms[1:]))
    halves = np.where(rows == places, 0.5, 1.0)[inner][:, np.newaxis]
    change = (mean[1:] * steps).sum(axis=0)
    change += (halves * spread * steps[rows[inner] - 1] * steps[places[inner] - 1]).sum(axis=0)
    return np.concatenate([-change[np.newaxis], steps])


def prior_means(state: PrevalenceState) -> Vector:
    """Return mu, shape (columns,)."""
    means = np.zeros(len(state.prevalence_coefficients))
    means[0] = special.log(state.prevalence_concentration / state.prevalence_coefficients.shape[1])
    return means


def stepped(state: PrevalenceState, gradient: Vector, curvature: Vector) -> Vector:
    """Return lambda after a step (H_k + diag rho)^-1 g_k, shortened to log(1 + D) / D of it.

    D bounds |x_d.step| over all documents. With a curvature of h a, such a step never lowers the objective.
    """
    before, means = state.prevalence_coefficients, prior_means(state)[:, np.newaxis]
    precision = np.full(len(before), PRECISION)
    precision[0] = INTERCEPT_PRECISION
    steps = np.empty_like(before)
    gradient = gradient - precision[:, np.newaxis] * (before - means)
    kernels.newton_steps(np.ascontiguousarray(gradient), np.ascontiguousarray(curvature), precision, steps)
    after: Vector = before + _shortened(_reached(state, steps, state.prevalence_terms)) * steps
    if state.held:
        # What all topics have in common cancels, and its prior wants it at its mean.
        after -= (after - means).mean(axis=1, keepdims=True)
    return after


def _reached(state: PrevalenceState, steps: Vector, terms: npt.NDArray[np.int64]) -> Vector:
    """Return a bound on |x_d.step| over all documents, shape (topics,); `terms` has the term of each row of `steps`."""
    reached = np.zeros(steps.shape[1])
    for term, reach in enumerate(state.prevalence_reach.tolist()):
        reached += reach * np.abs(steps[terms == term]).max(axis=0, initial=0.0)
    return reached


def _shortened(reached: Vector) -> Vector:
    """Return log(1 + D) / D, shape (topics,)."""
    factors: Vector = np.asarray(special.log1p(reached)) / np.maximum(reached, 1e-300)
    return np.where(reached > 0.0, factors, 1.0)
