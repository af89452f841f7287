"""Sweeps over all topics, one pair at a time in float64."""

from itertools import pairwise

import numpy as np

from tests.naive.moments import moments


def document_topic(offsets, counts, q):
    """Return E[n_dk]."""
    return np.array([moments(q[a:b], counts[a:b])[0] for a, b in pairwise(offsets)])


def word_topic(rows, position, counts, q):
    """Return E[n_kw] by rows of words."""
    result = np.zeros((rows, q.shape[1]))
    np.add.at(result, position, np.asarray(counts)[:, np.newaxis] * np.asarray(q, dtype=np.float64))
    return result


def word_variance(rows, position, counts, q):
    """Return V[n_kw] by rows of words."""
    q = np.asarray(q, dtype=np.float64)
    result = np.zeros((rows, q.shape[1]))
    np.add.at(result, position, np.asarray(counts)[:, np.newaxis] * q * (1 - q))
    return result


def sweep(order, offsets, position, counts, word, word_var, a, b, totals, q, weights=None):
    """Sweep once over the pairs by the update of the given order; return the new responsibilities.

    `word` and `word_var` are E[n_kw] and V[n_kw] of all shards, `totals` B + E[n_k] and V[n_k]. `counts` are the
    weights of all tokens of the pairs, and `weights` the weight of one token, which is excluded.
    """
    weights = np.ones(len(position)) if weights is None else weights
    q = np.array(q, dtype=np.float64)
    word, word_var = np.array(word, dtype=np.float64), np.array(word_var, dtype=np.float64)
    total, total_var = np.array(totals[0]), np.array(totals[1])
    for first, last in pairwise(offsets):
        before, before_var, _ = moments(q[first:last], counts[first:last])
        mean, var = before.copy(), before_var.copy()
        for pair in range(first, last):
            old, row, c = q[pair].copy(), position[pair], counts[pair]
            token_weight = float(weights[pair])
            token_variance = token_weight * old * (1 - old)
            n_dk, n_kw, n_k = mean - token_weight * old, word[row] - token_weight * old, total - token_weight * old
            documents = np.maximum(n_dk, 0) + np.maximum(a, 1e-12)
            words = np.maximum(n_kw, 0) + np.maximum(b[row], 1e-12)
            new = documents * words / n_k
            if order == 2:
                exponent = (
                    -np.maximum(var - token_variance, 0) / (2 * documents**2)
                    - np.maximum(word_var[row] - token_variance, 0) / (2 * words**2)
                    + np.maximum(total_var - token_variance, 0) / (2 * n_k**2)
                )
                new = np.maximum(new * np.exp(np.clip(exponent, -60, 60)), 1e-30)
            new /= new.sum()
            mean += c * (new - old)
            word[row] += c * (new - old)
            moved = c * (new * (1 - new) - old * (1 - old))
            var += moved
            word_var[row] += moved
            q[pair] = new
        total += moments(q[first:last], counts[first:last])[0] - before
        total_var += var - before_var
    return q
