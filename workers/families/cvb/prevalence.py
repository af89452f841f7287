"""Dirichlet-multinomial regression (Mimno and McCallum 2008): priors of documents that follow fields of these.

log a_dk = x_d.lambda_k, lambda_kp ~ N(mu_p, 1/rho_p), mu = (log alpha, 0, ..) and rho = (0.1, 1, 1, ..), so that
lambda = mu is LDA. Every few sweeps, lambda takes a damped Newton step, from sums over the documents. Tempered
responsibilities spread over topics, which would let concentrations grow: A_d is held at A while they are tempered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import DamagedError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta, Part, fresh
from collapsium.workers.families.cvb import schedule
from collapsium.workers.families.cvb.global_state import LdaGlobalState, PrevalenceState
from collapsium.workers.families.cvb.parameters import OwnPriors
from collapsium.workers.families.cvb.sums import PrevalenceSums, SweepSums
from collapsium.workers.families.family import DesignTable
from collapsium.workers.kernels.cvb import prevalence as kernels

if TYPE_CHECKING:
    from collapsium.storage.corpus.labels import DocumentRows
    from collapsium.workers.families.cvb.active_topics import DocumentChunk

Vector = npt.NDArray[np.float64]

KERNELS = (kernels.design_priors, kernels.count_moments, kernels.coefficient_sums, kernels.newton_steps)
INTERCEPT_PRECISION, PRECISION = 0.1, 1.0  # rho of the intercepts, and of all other coefficients
MIN_PRIOR = 1e-8  # Smallest mean prior of a topic
CELLS = 1 << 18  # Moments of documents and topics that are summed together, in each of three arrays of 2 MB


def begin(design: DesignTable, alpha: Vector, iterations: int) -> PrevalenceState:
    """Return the state with which a fit of so many iterations begins: all documents have the prior `alpha`."""
    coefficients = np.zeros((design.terms.size, alpha.size))
    coefficients[0] = special.log(alpha)
    first = min(schedule.PREVALENCE_FIRST, iterations // 3) if iterations else schedule.PREVALENCE_FIRST
    return PrevalenceState(
        prevalence_design=design.packed,
        prevalence_reach=design.reach,
        prevalence_terms=design.terms,
        prevalence_coefficients=coefficients,
        prevalence_concentration=float(alpha.sum()),
        prevalence_first=first,
    )


def own_priors(design: DocumentRows, state: PrevalenceState) -> OwnPriors:
    """Return the priors of documents with rows of the design."""
    rows, coefficients = np.ascontiguousarray(design.rows), state.prevalence_coefficients
    if rows.shape[1] != len(coefficients):
        raise DamagedError("prevalence_design", f"expected {len(coefficients)} columns, found {rows.shape[1]}")
    priors, log_total = np.empty((len(rows), coefficients.shape[1])), np.empty(len(rows))
    kernels.design_priors(rows, coefficients, state.held, priors, log_total)
    return OwnPriors(rows, np.ascontiguousarray(design.place), priors, log_total, state.held, state.learns)


class Learning:
    """Sums over a shard's documents from which coefficients are learned; none where all have the same prior."""

    def __init__(self, own: OwnPriors | None) -> None:
        columns, topics = (0, 0) if own is None else (own.design.shape[1], own.priors.shape[1])
        self._own = own
        self._sums = kernels.CoefficientSums(
            np.zeros((columns, topics)), np.zeros((columns * (columns + 1) // 2, topics))
        )

    def add(self, chunk: DocumentChunk) -> None:
        """Add the sums of a chunk after its sweep."""
        own, pairs = self._own, chunk.pairs
        if own is None or not own.learned:
            return
        running = np.concatenate([[0], np.cumsum(pairs.counts, dtype=np.int64)])
        lengths = (running[pairs.offsets[1:]] - running[pairs.offsets[:-1]]).astype(np.float64)
        topics = own.priors.shape[1]
        step = max(CELLS // topics, 1)
        moments = kernels.CountMoments(*np.empty((3, min(step, chunk.documents), topics)))
        for first in range(0, chunk.documents, step):
            last = min(first + step, chunk.documents)
            offsets, lists = pairs.offsets[first : last + 1], chunk.active.offsets[first : last + 1]
            place = own.place[chunk.document + first : chunk.document + last]
            documents = kernels.DocumentPriors(
                own.design, own.priors, np.ascontiguousarray(place), np.ascontiguousarray(lengths[first:last])
            )
            part = chunk.state._replace(
                starts=chunk.state.starts[first : last + 1], background=chunk.state.background[first:last]
            )
            kernels.count_moments(
                pairs._replace(offsets=offsets), chunk.active._replace(offsets=lists), part, documents, moments
            )
            kernels.coefficient_sums(documents, moments, own.held, kernels.LEAST_CURVATURE, self._sums)

    def parts(self) -> dict[str, Part]:
        """Return `PrevalenceSums`."""
        own = self._own
        if own is None:
            return {}
        documents = np.bincount(own.place, minlength=len(own.design)).astype(np.float64)
        parts = {
            "prior_total": fresh((documents[:, np.newaxis] * own.priors).sum(axis=0)),
            "log_prior_total": fresh((documents * own.log_total).sum()),
        }
        if own.learned:
            parts["prevalence_gradient"] = fresh(self._sums.gradient)
            parts["prevalence_curvature"] = fresh(self._sums.curvature)
        return parts


def updated(global_state: LdaGlobalState, delta: Delta, inverse_temperature: float | None) -> LdaGlobalState:
    """Return the global state after a sweep: the mean prior and, if they are due, other coefficients."""
    state, sums, swept = global_state.prevalence, delta.read(PrevalenceSums), delta.read(SweepSums)
    if state is None or sums is None or swept is None:
        return global_state
    alpha = np.maximum(sums.prior_total / max(swept.documents, 1.0), MIN_PRIOR)
    coefficients = state.prevalence_coefficients
    if sums.prevalence_gradient is not None and sums.prevalence_curvature is not None:
        coefficients = stepped(state, sums.prevalence_gradient, sums.prevalence_curvature)
    sweeps = state.prevalence_sweeps + 1
    power = inverse_temperature or 1.0
    if global_state.cooling is not None:
        power = global_state.cooling.cooling_power
    free = power == 1.0 and not global_state.searching and sweeps >= schedule.PREVALENCE_FIRST
    if free and not state.prevalence_free:
        # Held concentrations leave the size of exp(x.lambda) open.
        excess = sums.log_prior_total / max(swept.documents, 1.0) - special.log(state.prevalence_concentration)
        coefficients = np.array(coefficients)
        coefficients[0] -= excess
    after = replace(state, prevalence_coefficients=coefficients, prevalence_free=free, prevalence_sweeps=sweeps)
    return replace(global_state, alpha=alpha, prevalence=after)


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
    reached = np.zeros(before.shape[1])
    for term, reach in enumerate(state.prevalence_reach.tolist()):
        reached += reach * np.abs(steps[state.prevalence_terms == term]).max(axis=0)
    factors = np.asarray(special.log1p(reached)) / np.maximum(reached, 1e-300)
    after: Vector = before + np.where(reached > 0.0, factors, 1.0) * steps
    if state.held:
        # What all topics have in common cancels, and its prior wants it at its mean.
        after -= (after - means).mean(axis=1, keepdims=True)
    return after
