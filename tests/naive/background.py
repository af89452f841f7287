"""Rows of words whose background is spread over the topics."""

import numpy as np


def parts(active, rest, even, weight):
    """Return a word's background tokens by topic, in proportion to weight_k (even + active_kw)."""
    share = weight * (even + np.asarray(active, dtype=np.float64))
    return rest[:, np.newaxis] * share / share.sum(axis=1, keepdims=True)


def spread(active, rest, even, b, weight, ratio):
    """Return E[n_kw], and S_w = sum_k ratio_k (b_w + E[n_kw])."""
    row_topic = active + parts(active, rest, even, weight)
    return row_topic, (b[:, np.newaxis] + row_topic) @ ratio


def fold_rows(active, rest, even, weight, change, place, momentum):
    """Return a block after the change of some rows, the block extrapolated by `momentum` times the change, and sums by
    topic."""
    moved = np.zeros(active.shape)
    moved[place >= 0] = change[place[place >= 0]]
    new = active + moved
    ahead = np.maximum(new + momentum * moved, 0.0)
    return new, ahead, [(counts + parts(counts, rest, even, weight)).sum(axis=0) for counts in (new, ahead)]


def fold_steps(before, rest, even, weight, change, place, momentum, bands):
    """Return the same for counts in steps of a responsibility, with sums by band and topic."""
    moved = np.zeros(before.shape, before.dtype)
    moved[place >= 0] = change[place[place >= 0]]
    new, unit = before + moved, 2.0**-15
    ahead = np.maximum(new * unit + momentum * (moved * unit), 0.0)
    totals = [
        [(counts[band] + parts(counts[band], rest[band], even, weight)).sum(axis=0) for band in bands]
        for counts in (new * unit, ahead)
    ]
    return new, ahead, totals, sum(np.abs(moved[band]).sum() for band in bands) * unit
