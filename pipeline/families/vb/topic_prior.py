"""The topics' shares g_k = alpha p_k of all documents: their best values, and the bound's gradient."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.families.vb.states import HdspGlobalState, HdspSums

Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]

MIN_SHARE = 1e-8  # Smallest g_k: from 0 a topic could not recover


def with_prior_by_size(global_state: HdspGlobalState, total: Vector) -> HdspGlobalState:
    """Return the topics' shares by their sizes; the smallest is the last, which takes the rest of all sticks."""
    share = (total + 1.0) / (total + 1.0).sum()
    return replace(global_state, prior=global_state.prior.sum() * share, last=int(np.argmin(share)))


def log_rate_rest(global_state: HdspGlobalState, sums: HdspSums, present: Ints) -> Vector:
    """Return sum_m (E[log R_mk] - log b_mk), shape (topics,); the labels' sums are of those `present`."""
    if sums.labels is None:
        return sums.minus_log_rate
    rates = global_state.rates.label_mean_log[present]
    rest: Vector = sums.minus_log_rate + np.einsum("j,jk->k", sums.labels.label_total, rates)
    return rest


def gradient(global_state: HdspGlobalState, sums: HdspSums, present: Ints) -> Vector:
    """Return the bound's gradient along g_k = alpha p_k, with all else at its best or fixed, shape (topics,)."""
    before, last, gamma = global_state.prior, global_state.last, global_state.gamma
    slope: Vector = sums.tables / before + log_rate_rest(global_state, sums, present) - (gamma - 1.0) / before.sum()
    slope[last] += (gamma - 1.0) / before[last]
    return slope


def next_prior(global_state: HdspGlobalState, sums: HdspSums, present: Ints, *, learn_alpha: bool) -> Vector:
    """Return the next g_k = alpha p_k, (tables_k + [k last] (gamma - 1)) / ((gamma - 1) / alpha - rest_k)."""
    before, gamma = global_state.prior, global_state.gamma
    tables = np.array(sums.tables)
    tables[global_state.last] += gamma - 1.0
    fall = (gamma - 1.0) / before.sum() - log_rate_rest(global_state, sums, present)
    if not learn_alpha:
        return np.maximum(_with_sum(tables, fall, float(before.sum())), MIN_SHARE)
    after: Vector = np.where(fall > 0.0, tables / np.where(fall > 0.0, fall, 1.0), before)
    return np.maximum(after, MIN_SHARE)


def _with_sum(tables: Vector, fall: Vector, alpha: float) -> Vector:
    """Return the g_k, whose sum is alpha, that maximise sum_k (tables_k log g_k - fall_k g_k): tables / (fall + x)."""
    from scipy import optimize

    some = tables > 0.0
    low = -float(fall[some].min(initial=np.inf)) if some.any() else np.inf
    if not np.isfinite(low):
        return np.full(tables.size, alpha / tables.size)

    def excess(step: float) -> float:
        return float((tables[some] / (fall[some] + low + special.exp(step))).sum()) - alpha

    # An upper bound of the root, as each denominator is at least exp(step).
    span = special.log(tables[some].sum() / alpha)
    x = low + special.exp(optimize.brentq(excess, special.log(tables[some].min() / alpha) - 50.0, span + 50.0))
    after: Vector = np.where(some, tables / np.where(some, fall + x, 1.0), 0.0)
    return after
