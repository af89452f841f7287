"""Learn hyperparameters: Dirichlet parameters by Newton's method (Minka 2000), others by slice sampling (Neal 2003)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.special_functions import digamma, gammaln, polygamma

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NewtonRule:
    """Bounds and end of Newton's method for Dirichlet parameters."""

    smallest: float = 1e-8
    largest: float = 1e8  # Bounds of a parameter
    max_steps: int = 100
    tolerance: float = 1e-10  # Relative step at which the method ends


@dataclass(frozen=True)
class SliceRule:
    """Bounds and widening of a slice."""

    smallest: float = 1e-6
    largest: float = 1e6  # Bounds of a sampled parameter
    max_steps: int = 20  # Steps by which a slice is widened at most, each by a factor of e


NEWTON, SLICE = NewtonRule(), SliceRule()


def asymmetric(prior: Vector, log_proportions: Vector, count: float) -> Vector:
    """Return the a that maximises sum_d E[log p(theta_d | a)], theta_d ~ Dir(a_1..a_K).

    The objective, D log G(A) - D sum_k log G(a_k) + sum_k (a_k - 1) S_k with S_k = sum_d E[log theta_dk], is concave;
    its Hessian is a diagonal plus a constant, so that a step of Newton's takes K operations.
    """
    current = np.maximum(prior, NEWTON.smallest)
    value = _objective(current, log_proportions, count)
    for _ in range(NEWTON.max_steps):
        gradient = count * (digamma(current.sum()) - digamma(current)) + log_proportions
        diagonal = -count * polygamma(1, current)
        constant = count * polygamma(1, current.sum())
        shift = (gradient / diagonal).sum() / (1.0 / constant + (1.0 / diagonal).sum())
        step, scale = (gradient - shift) / diagonal, 1.0
        while True:
            # Half of the way to zero at most: where the maximum is small, a full step may lead below zero.
            smallest = np.maximum(0.5 * current, NEWTON.smallest)
            tried = np.clip(current - scale * step, smallest, NEWTON.largest)
            reached = _objective(tried, log_proportions, count)
            if reached >= value or scale < NEWTON.tolerance:
                break
            scale *= 0.5
        if reached < value:
            return current
        change, current, value = np.abs(tried / current - 1.0).max(), tried, reached
        if change < NEWTON.tolerance:
            break
    return current


def _objective(prior: Vector, log_proportions: Vector, count: float) -> float:
    return float(count * (gammaln(prior.sum()) - gammaln(prior).sum()) + ((prior - 1.0) * log_proportions).sum())


def symmetric(prior: float, size: int, log_proportions: float, count: float) -> float:
    """Return the a that maximises sum_d E[log p(theta_d | a, ..., a)], by Newton's method for log a."""
    if size < 2:
        return prior
    current = float(np.clip(prior, NEWTON.smallest, NEWTON.largest))
    for _ in range(NEWTON.max_steps):
        slope = count * size * (digamma(size * current) - digamma(current)) + log_proportions
        curvature = count * size * (size * polygamma(1, size * current) - polygamma(1, current))
        # The second derivative by log a; both derivatives lack a factor of a.
        second = current * curvature + slope
        step = -slope / second if second < 0 else np.sign(slope)
        after = float(np.clip(current * special.exp(np.clip(step, -1.0, 1.0)), NEWTON.smallest, NEWTON.largest))
        if abs(after / current - 1.0) < NEWTON.tolerance:
            return after
        current = after
    return current


def slice_sampled(
    log_density: Callable[[float], float], value: float, mean: float, generator: np.random.Generator
) -> float:
    """Draw a parameter's next value; the draws leave its posterior under an exponential prior invariant.

    The slice is one of the logarithm (Neal 2003): it is widened by steps of one from a random position, then shrunk.
    """

    def height(log: float) -> float:
        if not special.log(SLICE.smallest) <= log <= special.log(SLICE.largest):
            return -np.inf
        return log_density(float(special.exp(log))) - float(special.exp(log)) / mean + log

    now = float(special.log(np.clip(value, SLICE.smallest, SLICE.largest)))
    floor = height(now) - generator.standard_exponential()
    low = now - generator.random()
    high, left = low + 1.0, int(generator.integers(SLICE.max_steps))
    right = SLICE.max_steps - 1 - left
    while left > 0 and height(low) > floor:
        low, left = low - 1.0, left - 1
    while right > 0 and height(high) > floor:
        high, right = high + 1.0, right - 1
    while True:
        tried = low + (high - low) * generator.random()
        if height(tried) >= floor or high - low < 1e-12:
            return float(special.exp(tried))
        low, high = (tried, high) if tried < now else (low, tried)
