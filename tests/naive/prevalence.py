"""Priors of documents that follow a design: the formulas with NumPy and SciPy, given the moments of the counts."""

import numpy as np
from scipy.special import gammaln, polygamma, psi

from tests.naive.active import documents


def design_priors(design, coefficients, concentration, places=None, effects=None):
    """Return a_dk of the rows of a design, and log sum_k exp(x.lambda_k); with concentration 0, exp(x.lambda_k) is not
    normalised.

    `places` are the indices of the rows' levels in `effects`, -1 for none.
    """
    linear = design.astype(np.float64) @ coefficients
    if places is not None:
        for row, levels in enumerate(places):
            linear[row] += sum(effects[level] for level in levels if level >= 0) / max(len(levels), 1)
    sizes = np.exp(linear)
    total = sizes.sum(axis=1, keepdims=True)
    return (concentration * sizes / total if concentration else sizes), np.log(total[:, 0])


def count_moments(offsets, counts, lists, topic, starts, share, rest, priors):
    """Return E, V and Z of the documents' counts, and their response to the tokens; `priors` has a row for each
    document."""
    mean, variance, absent = np.zeros((3, *priors.shape))
    for d, (pairs, active, q) in enumerate(documents(offsets, lists, topic, starts, share)):
        c, mean[d, active] = counts[pairs], counts[pairs] @ q
        inactive = np.delete(np.arange(priors.shape[1]), active)
        if inactive.size:
            mean[d, inactive] = variance[d, inactive] = rest[d] * priors[d, inactive] / priors[d, inactive].sum()
            absent[d, inactive] = -mean[d, inactive]
        variance[d, active] = c @ (q * (1 - q))
        absent[d, active] = np.log(np.maximum(np.prod((1 - q) ** c[:, np.newaxis], axis=0), 1e-37))
    response = np.clip(variance / np.maximum(priors + mean, 1e-300), 0.0, 0.95)
    r = 1 / (1 - response)
    factor = np.where(response > 1e-6, np.log(r) / np.maximum(r - 1, 1e-12), 1.0)
    return mean, variance * r, absent * factor


def _positive(mean, variance, absent):
    present = -np.expm1(absent)
    above = np.maximum(np.divide(mean, present, out=np.ones_like(mean), where=present > 0), 1.0)
    spread = np.divide(variance, present, out=np.zeros_like(mean), where=present > 0) - np.exp(absent) * above**2
    return present, above, np.maximum(spread, 0.0)


def tables(priors, moments):
    """Return the expected tables s, (documents, topics)."""
    present, mean, variance = _positive(*moments)
    return priors * present * (psi(priors + mean) - psi(priors) + 0.5 * variance * polygamma(2, priors + mean))


def objective(design, coefficients, concentration, lengths, moments):
    """Return L given the moments, without the prior of the coefficients; `design` has a row for each document."""
    return objective_of(design_priors(design, coefficients, concentration)[0], lengths, moments)


def objective_of(a, lengths, moments):
    """Return L of the documents' own priors, given the moments."""
    present, mean, variance = _positive(*moments)
    rising = present * (gammaln(a + mean) - gammaln(a) + 0.5 * variance * polygamma(1, a + mean))
    total = a.sum(axis=1)
    return (gammaln(total) - gammaln(total + lengths)).sum() + rising.sum()


def coefficient_sums(design, coefficients, concentration, lengths, moments, least, rest=0.0):
    """Return the gradient (columns, topics) and the curvatures (topics, columns, columns)."""
    a = design_priors(design, coefficients, concentration)[0]
    present, mean, variance = _positive(*moments)
    s = tables(a, moments)
    v = polygamma(1, a + mean) - polygamma(1, a) + 0.5 * variance * polygamma(3, a + mean)
    v = s + a**2 * present * v
    total = a.sum(axis=1, keepdims=True) + rest
    n = np.asarray(lengths)[:, np.newaxis]
    if concentration:
        h, t = s.sum(axis=1, keepdims=True) / total, a / total
        w = s.sum(axis=1, keepdims=True) * t * (1 - t) - v * (1 - 2 * t) - v.sum(axis=1, keepdims=True) * t**2
    else:
        h = psi(total + n) - psi(total)
        w = h * a - v - a**2 * (polygamma(1, total) - polygamma(1, total + n))
    w = np.maximum(w, least * h * a) if least < 1 else h * a
    x = design.astype(np.float64)
    return x.T @ (s - h * a), np.einsum("dp,dq,dk->kpq", x, x, w)


def level_sums(places, tables, expected, levels):
    """Return the sums of s and of h a over the documents of each level, each (levels, topics)."""
    sums = np.zeros((2, levels, tables.shape[1]))
    for row, row_levels in enumerate(places):
        for level in row_levels:
            if level >= 0:
                sums[:, level] += tables[row], expected[row]
    return sums


def level_steps(effects, tables, growth, variance, weight):
    """Return the roots of S - H e^y - (u + y) / tau^2, by bisection; `variance` is tau^2 of each level."""
    low, high = np.full_like(effects, -20.0), np.full_like(effects, 20.0)
    for _ in range(100):
        y = (low + high) / 2
        above = weight * tables - weight * growth * np.exp(y) - (effects + y) / variance[:, np.newaxis] > 0
        low, high = np.where(above, y, low), np.where(above, high, y)
    return (low + high) / 2


def share_objective(design, coefficients, tables, growth):
    """Return sum s x.lambda - sum_k s_k log sum_d h_d exp(x_d.lambda_k) - |lambda|^2 / 2 without intercepts.

    `tables` is s, (documents, topics), and `growth` h, (documents,).
    """
    linear = design.astype(np.float64) @ coefficients
    totals = np.log((growth[:, np.newaxis] * np.exp(linear)).sum(axis=0))
    return (tables * linear).sum() - (tables.sum(axis=0) * totals).sum() - 0.5 * (coefficients**2).sum()


def share_steps(design, coefficients, tables, growth):
    """Return Newton steps of `share_objective`."""
    x, steps = design.astype(np.float64), np.empty_like(coefficients)
    for k, s in enumerate(tables.T):
        w = growth * np.exp(x @ coefficients[:, k])
        w /= w.sum()
        mean = w @ x
        curvature = s.sum() * ((x - mean).T @ (w[:, np.newaxis] * (x - mean))) + np.eye(x.shape[1])
        steps[:, k] = np.linalg.solve(curvature, s @ (x - mean) - coefficients[:, k])
    return steps


def newton_steps(gradient, curvature, precision):
    """Return (H_k + diag rho)^-1 g_k of each topic; curvatures are matrices."""
    return np.stack([np.linalg.solve(h + np.diag(precision), g) for h, g in zip(curvature, gradient.T, strict=True)], 1)
