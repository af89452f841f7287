"""Sums over words, one cell at a time."""

import numpy as np
from scipy.special import digamma, gammaln

from tests.naive.moments import LARGEST


def log_absent(rows, position, counts, q):
    """Return Z[n_kw] = sum c log(1 - q), at least log(1e-300)."""
    result = np.zeros((rows, q.shape[1]))
    clipped = np.minimum(np.asarray(q, dtype=np.float64), LARGEST)
    np.add.at(result, position, np.asarray(counts)[:, np.newaxis] * np.log1p(-clipped))
    return np.maximum(result, np.log(1e-300))


def log_eta(lengths, prior):
    """Return sum_d psi(A) - psi(A + n_d) and sum_d log G(A) - log G(A + n_d) over non-empty documents."""
    n = np.asarray(lengths, dtype=np.float64)
    n = n[n > 0]
    return (digamma(prior) - digamma(prior + n)).sum(), (gammaln(prior) - gammaln(prior + n)).sum()
