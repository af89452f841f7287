"""Learn hyperparameters: Dirichlet parameters by Newton's method (Minka 2000), others by slice sampling (Neal 2003)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.special_functions import digamma, gammaln, polygamma

SLICE_LEAST, SLICE_MOST = 1e-6, 1e6  # of a parameter that is sampled
SLICE_STEPS = 20  # by which a slice is widened at most, each of a factor of e

Vector = npt.NDArray[np.float64]

LEAST, MOST = 1e-8, 1e8  # of a Dirichlet parameter
STEPS, SETTLED = 100, 1e-10  # of Newton's method, and the relative step at which it ends


def asymmetric(prior: Vector, log_proportions: Vector, count: float) -> Vector:
    """Return the a that maximises sum_d E[log p(theta_d | a)], theta_d ~ Dir(a_1..a_K).

    The objective, D log G(A) - D sum_k log G(a_k) + sum_k (a_k - 1) S_k with S_k = sum_d E[log theta_dk], is concave;
    its Hessian is a diagonal plus a constant, so that a step of Newton's takes K operations.

    Parameters
    ----------
    prior : numpy.ndarray of float64, shape (topics,)
        Where to begin; above zero.
    log_proportions : numpy.ndarray of float64, shape (topics,)
        S_k.
    count : float
        D, how many theta_d there are.

    Returns
    -------
    numpy.ndarray of float64, shape (topics,)
        At least as good as `prior`, none below 1e-8.
    """
    found = np.maximum(prior, LEAST)
    value = _objective(found, log_proportions, count)
    for _ in range(STEPS):
        gradient = count * (digamma(found.sum()) - digamma(found)) + log_proportions
        diagonal = -count * polygamma(1, found)
        constant = count * polygamma(1, found.sum())
        shift = (gradient / diagonal).sum() / (1.0 / constant + (1.0 / diagonal).sum())
        step, scale = (gradient - shift) / diagonal, 1.0
        while True:
            # Halfway to zero at most: where the maximum is small, a whole step may lead below it.
            tried = np.clip(found - scale * step, np.maximum(0.5 * found, LEAST), MOST)
            reached = _objective(tried, log_proportions, count)
            if reached >= value or scale < SETTLED:
                break
            scale *= 0.5
        if reached < value:
            return found
        change, found, value = np.abs(tried / found - 1.0).max(), tried, reached
        if change < SETTLED:
            break
    return found


def _objective(prior: Vector, log_proportions: Vector, count: float) -> float:
    return float(count * (gammaln(prior.sum()) - gammaln(prior).sum()) + ((prior - 1.0) * log_proportions).sum())


def symmetric(prior: float, size: int, log_proportions: float, count: float) -> float:
    """Return the a that maximises sum_d E[log p(theta_d | a, ..., a)], by Newton's method for log a.

    Parameters
    ----------
    prior : float
        Where to begin; above zero.
    size : int
        K, how many parameters are alike.
    log_proportions : float
        sum_dk E[log theta_dk].
    count : float
        D.

    Returns
    -------
    float
        The maximum, between 1e-8 and 1e8; `prior` where one parameter has no maximum.
    """
    if size < 2:
        return prior
    found = float(np.clip(prior, LEAST, MOST))
    for _ in range(STEPS):
        slope = count * size * (digamma(size * found) - digamma(found)) + log_proportions
        bend = count * size * (size * polygamma(1, size * found) - polygamma(1, found))
        second = found * bend + slope  # of the objective by log a, as is the slope but for a factor of a
        step = -slope / second if second < 0 else np.sign(slope)
        after = float(np.clip(found * special.exp(np.clip(step, -1.0, 1.0)), LEAST, MOST))
        if abs(after / found - 1.0) < SETTLED:
            return after
        found = after
    return found


def slice_sampled(
    log_density: Callable[[float], float], value: float, mean: float, generator: np.random.Generator
) -> float:
    """Draw a parameter's next value; the draws leave its posterior under an exponential prior as it is.

    The logarithm is moved: stepping out by ones from a place drawn at random, then shrinking to what lies in the slice.

    Parameters
    ----------
    log_density : callable
        Of the parameter, but for a constant: what the data say, without the prior.
    value : float
        The value so far.
    mean : float
        The prior's.
    generator : numpy.random.Generator
        Where the numbers come from.

    Returns
    -------
    float
        Between 1e-6 and 1e6.
    """

    def height(log: float) -> float:
        if not special.log(SLICE_LEAST) <= log <= special.log(SLICE_MOST):
            return -np.inf
        return log_density(float(special.exp(log))) - float(special.exp(log)) / mean + log

    now = float(special.log(np.clip(value, SLICE_LEAST, SLICE_MOST)))
    floor = height(now) - generator.standard_exponential()
    low = now - generator.random()
    high, left = low + 1.0, int(generator.integers(SLICE_STEPS))
    right = SLICE_STEPS - 1 - left
    while left > 0 and height(low) > floor:
        low, left = low - 1.0, left - 1
    while right > 0 and height(high) > floor:
        high, right = high + 1.0, right - 1
    while True:
        tried = low + (high - low) * generator.random()
        if height(tried) >= floor or high - low < 1e-12:
            return float(special.exp(tried))
        low, high = (tried, high) if tried < now else (low, tried)
