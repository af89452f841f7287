"""Rows of words whose background is spread over the topics."""

import numpy as np


def parts(active, rest, even, weight):
    """What of a word's background tokens falls to each topic, in proportion to weight_k (even + active_kw)."""
    share = weight * (even + np.asarray(active, dtype=np.float64))
    return rest[:, np.newaxis] * share / share.sum(axis=1, keepdims=True)


def spread(active, rest, even, b, weight, ratio):
    """E[n_kw], S_w = sum_k ratio_k (b_w + E[n_kw]), and the factor of weight_k (even + active_kw)."""
    row_topic = active + parts(active, rest, even, weight)
    factor = rest / (weight * (even + active.astype(np.float64))).sum(axis=1)
    return row_topic, (b[:, np.newaxis] + row_topic) @ ratio, factor


def changes(active, rest, even, weight, row_topic):
    """How far rows have moved from what `spread` gave, in whole steps of 2^-15."""
    return np.round((row_topic - active - parts(active, rest, even, weight)) * 2**15) / 2**15


def fold(active, rest, even, weight, change, place):
    """A block with the change of some rows, and its sums by topic: of E[n_kw], and of the background in it."""
    new = np.array(active, dtype=np.float64)
    new[place >= 0] += change[place[place >= 0]]
    background = parts(new, rest, even, weight)
    return new, (new + background).sum(axis=0), background.sum(axis=0)
