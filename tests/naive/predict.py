"""Prediction, a document at a time."""

from itertools import pairwise

import numpy as np


def pair_probability(offsets, position, theta, phi, rest, rest_word):
    """sum_k theta_dk phi_kw + theta_rest tau_w of each pair."""
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return np.array([theta[d] @ phi[w] + rest[d] * rest_word[w] for d, w in zip(owner, position, strict=True)]).reshape(
        len(position)
    )


def fold_in(offsets, position, counts, phi, prior, sweeps):
    """E[n_dk] of unseen documents by zeroth-order sweeps with phi held fixed."""
    result = np.zeros((len(offsets) - 1, prior.size))
    for d, (first, last) in enumerate(pairwise(offsets)):
        q = np.zeros((last - first, prior.size))
        here = np.zeros(prior.size)
        for sweep in range(sweeps):
            before = here.copy()
            for i in range(last - first):
                own = 0.0 if sweep == 0 else np.maximum(here - q[i], 0.0)
                new = (prior + own) * phi[position[first + i]] + 1e-300
                new = new / new.sum()
                here = here + counts[first + i] * (new - q[i])
                q[i] = new
            if np.abs(here - before).max() < 1e-4:
                break
        result[d] = here
    return result
