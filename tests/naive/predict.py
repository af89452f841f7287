"""Prediction, one document at a time."""

from itertools import pairwise

import numpy as np


def pair_probability(offsets, position, theta, phi, rest, rest_word):
    """Return sum_k theta_dk phi_kw + theta_rest tau_w of each pair."""
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return np.array([theta[d] @ phi[w] + rest[d] * rest_word[w] for d, w in zip(owner, position, strict=True)]).reshape(
        len(position)
    )


def fold_in(offsets, position, counts, phi, prior, sweeps, weights=None):
    """Return E[n_dk] of unseen documents by over-relaxed zeroth-order sweeps with phi fixed.

    `counts` are the weights of all tokens of the pairs, and `weights` the weight of one token, which is excluded.
    """
    weights = np.ones(len(position)) if weights is None else weights
    result = np.zeros((len(offsets) - 1, prior.size))
    for d, (first, last) in enumerate(pairwise(offsets)):
        q = np.zeros((last - first, prior.size))
        document_counts = np.zeros(prior.size)
        moving = False
        for sweep in range(sweeps):
            before = document_counts.copy()
            relaxation = (1.5 if sweep < 16 else 1.7) if moving and sweep < sweeps - 1 else 1.0
            for i in range(last - first):
                remaining = 0.0 if sweep == 0 else np.maximum(document_counts - weights[first + i] * q[i], 0.0)
                new = (prior + remaining) * np.maximum(phi[position[first + i]], 1e-30)
                new = np.maximum(q[i] + relaxation * (new / new.sum() - q[i]), 0.0)
                document_counts = document_counts + counts[first + i] * (new - q[i])
                q[i] = new
            moving = np.abs(document_counts - before).max() >= 1e-4
            if not moving and relaxation == 1.0:
                break
        result[d] = document_counts
    return result
