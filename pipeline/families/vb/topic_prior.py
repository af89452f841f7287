"""The topics' shares g_k = alpha p_k of all documents: their best values, and the bound's gradient."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta

Vector = npt.NDArray[np.float64]

LEAST = 1e-8  # smallest g_k: at 0 a topic could never come back


def prior_by_size(globals: Arrays, total: Vector) -> dict[str, npt.NDArray[np.generic]]:
    """Give topics proportions by their sizes; the smallest is the last, which takes what all sticks have left."""
    share = (total + 1.0) / (total + 1.0).sum()
    return {"prior": globals["prior"].sum() * share, "last": np.array(int(np.argmin(share)))}


def log_rate_rest(globals: Arrays, delta: Delta) -> Vector:
    """Return sum_m (E[log R_mk] - log b_mk), shape (topics,)."""
    rest = delta["minus_log_rate"]
    if "label_total" in delta:
        rest = rest + np.einsum("j,jk->k", delta["label_total"], globals["label_mean_log"][delta.ids["label"]])
    return np.asarray(rest, dtype=np.float64)


def gradient(globals: Arrays, delta: Delta) -> Vector:
    """Return the bound's gradient along g_k = alpha p_k, all else being at its best or held, shape (topics,)."""
    before, last, gamma = globals["prior"], int(globals["last"]), float(globals["gamma"])
    found: Vector = delta["tables"] / before + log_rate_rest(globals, delta) - (gamma - 1.0) / before.sum()
    found[last] += (gamma - 1.0) / before[last]
    return found


def next_prior(globals: Arrays, delta: Delta, *, learn_alpha: bool) -> Vector:
    """Return the next g_k = alpha p_k, (tables_k + [k last] (gamma - 1)) / ((gamma - 1) / alpha - rest_k)."""
    before, gamma = globals["prior"], float(globals["gamma"])
    tables = np.array(delta["tables"])
    tables[int(globals["last"])] += gamma - 1.0
    fall = (gamma - 1.0) / before.sum() - log_rate_rest(globals, delta)
    if not learn_alpha:
        return np.maximum(_held(tables, fall, float(before.sum())), LEAST)
    after: Vector = np.where(fall > 0.0, tables / np.where(fall > 0.0, fall, 1.0), before)
    return np.maximum(after, LEAST)


def _held(tables: Vector, fall: Vector, alpha: float) -> Vector:
    """Return the g_k, whose sum is held, that maximise sum_k (tables_k log g_k - fall_k g_k): tables / (fall + x)."""
    from scipy.optimize import brentq

    some = tables > 0.0
    low = -float(fall[some].min(initial=np.inf)) if some.any() else np.inf
    if not np.isfinite(low):
        return np.full(tables.size, alpha / tables.size)

    def beyond(step: float) -> float:
        return float((tables[some] / (fall[some] + low + special.exp(step))).sum()) - alpha

    span = special.log(tables[some].sum() / alpha)  # where the least of the terms alone would be all
    x = low + special.exp(brentq(beyond, special.log(tables[some].min() / alpha) - 50.0, span + 50.0))
    after: Vector = np.where(some, tables / np.where(some, fall + x, 1.0), 0.0)
    return after
