"""Second-order expectations, straight from the formulas."""

import numpy as np
from scipy.special import digamma, gammaln, polygamma

LARGEST = 1.0 - 1e-7


def moments(q, counts):
    """Return E, V and Z of a sum over tokens, from responsibilities q (pairs, topics) and the counts of the pairs."""
    q = np.asarray(q, dtype=np.float64)
    c = np.asarray(counts, dtype=np.float64)[:, np.newaxis]
    clipped = np.minimum(q, LARGEST)
    return (c * q).sum(axis=0), (c * clipped * (1 - clipped)).sum(axis=0), (c * np.log1p(-clipped)).sum(axis=0)


def positive(mean, variance, log_absent):
    """Return P+, E+ and V+."""
    present = -np.expm1(log_absent)
    safe = np.where(present > 0, present, 1.0)
    mean_positive = np.where(present > 0, np.maximum(mean / safe, 1.0), 1.0)
    spread = np.maximum(variance / safe - np.exp(log_absent) * mean_positive**2, 0.0)
    return present, mean_positive, np.where(present > 0, spread, 0.0)


def tables(prior, mean, variance, log_absent):
    """Return E[s] = g P+ ( psi(g + E+) - psi(g) + V+ psi''(g + E+) / 2 )."""
    present, m, v = positive(mean, variance, log_absent)
    return prior * present * (digamma(prior + m) - digamma(prior) + v * polygamma(2, prior + m) / 2)


def log_rising(prior, mean, variance, log_absent):
    """Return F[log Gamma(g + n) / Gamma(g)]."""
    present, m, v = positive(mean, variance, log_absent)
    return present * (gammaln(prior + m) - gammaln(prior) + v * polygamma(1, prior + m) / 2)


def log_xi(prior, mean, variance, log_absent):
    """Return E[log xi] = P+ ( psi(b) - psi(b + E+) - V+ psi''(b + E+) / 2 )."""
    present, m, v = positive(mean, variance, log_absent)
    return present * (digamma(prior) - digamma(prior + m) - v * polygamma(2, prior + m) / 2)
