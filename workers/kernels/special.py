"""Digamma and its derivatives, for the compiler.

Each climbs to x >= 10 by its recurrence, where the asymptotic series (Abramowitz and Stegun 6.3.18, 6.4.11 to 6.4.14)
has an error below 2e-15. Relative or absolute error, whichever is kinder, is below 1e-12 for 1e-8 <= x <= 1e12.
"""

from __future__ import annotations

import math

from collapsium.workers.kernels.argument_types import OutFloat64Vector
from collapsium.workers.kernels.jit import helper, kernel

_ENOUGH = 10.0


@helper
def digamma(x: float) -> float:
    """Return the derivative of log Gamma at x > 0."""
    below = 0.0
    while x < _ENOUGH:
        below += 1.0 / x
        x += 1.0
    return _far_digamma(x) - below


@helper
def trigamma(x: float) -> float:
    """Return the second derivative of log Gamma at x > 0."""
    below = 0.0
    while x < _ENOUGH:
        below += 1.0 / (x * x)
        x += 1.0
    r = 1.0 / (x * x)
    series = 1 / 6 - r * (1 / 30 - r * (1 / 42 - r * (1 / 30 - r * (5 / 66 - r * (691 / 2730)))))
    return (1.0 + 0.5 / x + r * series) / x + below


@helper
def tetragamma(x: float) -> float:
    """Return the third derivative of log Gamma at x > 0, psi'' of the formulas; it is negative."""
    below = 0.0
    while x < _ENOUGH:
        below += 2.0 / (x * x * x)
        x += 1.0
    return _far_tetragamma(x) - below


@helper
def digamma_and_tetragamma(x: float) -> tuple[float, float]:
    """Return digamma and tetragamma at x > 0, which share the divisions that take most of the time."""
    first, third = 0.0, 0.0
    while x < _ENOUGH:
        inverse = 1.0 / x
        first += inverse
        third += 2.0 * inverse * inverse * inverse
        x += 1.0
    return _far_digamma(x) - first, _far_tetragamma(x) - third


@helper
def _far_digamma(x: float) -> float:
    """Return digamma by its asymptotic series."""
    r = 1.0 / (x * x)
    series = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132 - r * (691 / 32760))))))
    return math.log(x) - 0.5 / x - series


@helper
def _far_tetragamma(x: float) -> float:
    """Return tetragamma by its asymptotic series."""
    r = 1.0 / (x * x)
    series = 1 / 2 - r * (1 / 6 - r * (1 / 6 - r * (3 / 10 - r * (5 / 6 - r * (691 / 210)))))
    return -r * (1.0 + 1.0 / x + r * series)


@helper
def derivatives(x: float) -> tuple[float, float, float, float]:
    """Return digamma and its first three derivatives at x > 0, which share their divisions."""
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    while x < _ENOUGH:
        r = 1.0 / x
        square = r * r
        first += r
        second += square
        third += 2.0 * square * r
        fourth += 6.0 * square * square
        x += 1.0
    r = 1.0 / x
    t = r * r
    series = 1 / 6 - t * (1 / 30 - t * (1 / 42 - t * (1 / 30 - t * (5 / 66 - t * (691 / 2730)))))
    bend = 2.0 - t * (1.0 - t * (4 / 3 - t * (3.0 - t * (10.0 - t * (691 / 15)))))
    return (
        _far_digamma(x) - first,
        r + 0.5 * t + r * t * series + second,
        _far_tetragamma(x) - third,
        2.0 * r * t + 3.0 * t * t + r * t * t * bend + fourth,
    )


@kernel
def elementary(which: int, values: OutFloat64Vector) -> None:
    """Replace numbers by a function of them.

    Shapes: `values` (n,).
    """
    for i in range(values.size):
        if which == 0:
            values[i] = math.log(values[i])
        elif which == 1:
            values[i] = math.exp(values[i])
        elif which == 2:
            values[i] = math.log1p(values[i])
        else:
            values[i] = math.expm1(values[i])
