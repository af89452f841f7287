"""Digamma and its derivatives, for the compiler, and second-order expectations.

Each function climbs to x >= 10 by its recurrence, where the asymptotic series (Abramowitz and Stegun 6.3.18, 6.4.11 to
6.4.14) has an error below 2e-15. Relative or absolute error, whichever is kinder, is below 1e-12 for 1e-8 <= x <=
1e12.

Expectations are under sums of independent Bernoulli variables. Formulas and notation follow Teh, Kurihara and Welling
(2007): E, V and Z of a count, P+ = 1 - exp(Z), E+ = E / P+, V+ = V / P+ - exp(Z) E+^2, F[f] = P+ ( f(E+) + V+ f''(E+)
/ 2 ).
"""

from __future__ import annotations

import math

from collapsium.workers.kernels.jit import Array, DocumentPairs, OutFloat64Vector, helper, kernel, token_weight

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


LARGEST = 1.0 - 1e-7  # a responsibility of exactly 1 would make log(1 - q) infinite
SINGLE = 1e-9  # E+ - 1 below which a positive count is as good as always 1


@helper
def positive(mean: float, variance: float, absent: float, present: float) -> tuple[float, float, float]:
    """Return P+, E+ >= 1 and V+ >= 0 from E, V, P(n = 0) and P(n > 0), the last two being exact by themselves."""
    if present <= 0.0:
        return 0.0, 1.0, 0.0
    mean_positive = max(mean / present, 1.0)
    return present, mean_positive, max(variance / present - absent * mean_positive * mean_positive, 0.0)


@helper
def expected_tables(prior: float, below: float, present: float, mean: float, variance: float) -> float:
    """Return E[s] = g P+ ( psi(g + E+) - psi(g) + V+ psi''(g + E+) / 2 ); a count that is always 1 has one table."""
    if mean - 1.0 < SINGLE:
        return present
    above, curvature = digamma_and_tetragamma(prior + mean)
    return prior * present * (above - below + 0.5 * variance * curvature)


@helper
def expected_log_rising(prior: float, present: float, mean: float, variance: float) -> float:
    """Return F[log Gamma(g + n) / Gamma(g)]."""
    if mean - 1.0 < SINGLE:
        return present * math.log(prior)
    value = math.lgamma(prior + mean) - math.lgamma(prior) + 0.5 * variance * trigamma(prior + mean)
    return present * value


@helper
def expected_log_beta(prior: float, present: float, mean: float, variance: float) -> float:
    """Return E[log xi] = P+ ( psi(b) - psi(b + E+) - V+ psi''(b + E+) / 2 )."""
    if present <= 0.0:
        return 0.0
    value = digamma(prior) - digamma(prior + mean) - 0.5 * variance * tetragamma(prior + mean)
    return present * value


@helper
def power(base: float, exponent: int) -> float:
    """Return base ** exponent for a positive whole exponent, by squaring: a product instead of a logarithm."""
    result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        exponent >>= 1
        if exponent > 0:
            base *= base
    return result


@helper
def absence(absent: float, count: int, weight: float) -> float:
    """Return the probability that no token of a pair has a topic, from the probability for one token of weight one."""
    # Tokens of another weight stand for so many of weight one, which need not be a whole number.
    return power(absent, count) if weight == 1.0 else math.exp(weight * count * math.log(absent))


@helper
def document_moments(
    first: int, last: int, pairs: DocumentPairs, pair_topic: Array, variance: Array, absent: Array
) -> None:
    """Fill V[n_dk] and P(n_dk = 0) of the document whose pairs are `first` to `last` - 1."""
    counts = pairs.counts
    variance[:] = 0.0
    absent[:] = 1.0
    topics = variance.size
    for pair in range(first, last):
        count, weight = counts[pair], token_weight(pairs.weights, pair)
        if count == 1 and weight == 1.0:
            for k in range(topics):
                q = min(float(pair_topic[pair, k]), LARGEST)
                absent[k] *= 1.0 - q
                variance[k] += q * (1.0 - q)
        else:
            for k in range(topics):
                q = min(float(pair_topic[pair, k]), LARGEST)
                absent[k] *= absence(1.0 - q, count, weight)
                variance[k] += count * weight * q * (1.0 - q)
