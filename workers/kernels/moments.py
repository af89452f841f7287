"""Second-order expectations under sums of independent Bernoulli variables, and the sums of a document that they need.

Formulas and notation follow Teh, Kurihara and Welling (2007): E, V and Z of a count, P+ = 1 - exp(Z),
E+ = E / P+, V+ = V / P+ - exp(Z) E+^2, F[f] = P+ ( f(E+) + V+ f''(E+) / 2 ).
"""

from __future__ import annotations

import math

from collapsium.workers.kernels.argument_types import Array
from collapsium.workers.kernels.jit import helper
from collapsium.workers.kernels.records import DocumentPairs, token_weight
from collapsium.workers.kernels.special import digamma, digamma_and_tetragamma, tetragamma, trigamma

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
