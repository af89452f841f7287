"""Slice sampling of one positive parameter (Neal 2003)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from collapsar.workers import special

LEAST, MOST = 1e-6, 1e6  # of a parameter
STEPS = 20  # by which a slice is widened at most, each of a factor of e


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
        if not special.log(LEAST) <= log <= special.log(MOST):
            return -np.inf
        return log_density(float(special.exp(log))) - float(special.exp(log)) / mean + log

    now = float(special.log(np.clip(value, LEAST, MOST)))
    floor = height(now) - generator.standard_exponential()
    low = now - generator.random()
    high, left = low + 1.0, int(generator.integers(STEPS))
    right = STEPS - 1 - left
    while left > 0 and height(low) > floor:
        low, left = low - 1.0, left - 1
    while right > 0 and height(high) > floor:
        high, right = high + 1.0, right - 1
    while True:
        tried = low + (high - low) * generator.random()
        if height(tried) >= floor or high - low < 1e-12:
            return float(special.exp(tried))
        low, high = (tried, high) if tried < now else (low, tried)
