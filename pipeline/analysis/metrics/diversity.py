"""Measures of how far topics' words differ from one another."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt

Words = npt.ArrayLike  # Words as ids or as texts

# Probability of looking at the next rank in rank-biased overlap (Webber, Moffat and Zobel 2010, p = 0.9)
PERSISTENCE = 0.9


def topic_diversity(words: Words) -> float:
    """Return the share of different words among the words of all topics (Dieng, Ruiz and Blei 2020).

    Parameters
    ----------
    words : array-like of int or str, shape (topics, words)
        The most probable words of each topic.

    Returns
    -------
    float
        From 1 / topics to 1.
    """
    words = np.asarray(words)
    return float(np.unique(words).size / words.size)


def strict_diversity(words: Words) -> float:
    """Return the share of the words of all topics that no other topic has (Wu et al. 2023).

    Parameters
    ----------
    words : array-like of int or str, shape (topics, words)
        The most probable words of each topic.

    Returns
    -------
    float
        From 0 to 1.
    """
    words = np.asarray(words)
    _, topics = np.unique(words, return_counts=True)
    return float((topics == 1).sum() / words.size)


def inverted_rbo(words: Words, persistence: float = PERSISTENCE) -> float:
    """Return 1 minus the mean rank-biased overlap of two topics' words (Bianchi, Terragni and Hovy 2021).

    Parameters
    ----------
    words : array-like of int or str, shape (topics, words)
        The most probable words of each topic, the most probable first.
    persistence : float, optional
        Probability p of looking at the next rank.

    Returns
    -------
    float
        0 if all topics have the same words in the same order, 1 if no two topics share a word.
    """
    words = np.asarray(words)
    if len(words) < 2:
        return 1.0
    overlaps = [rank_biased_overlap(first, second, persistence) for first, second in combinations(words, 2)]
    return 1.0 - float(np.mean(overlaps))


def rank_biased_overlap(first: Words, second: Words, persistence: float = PERSISTENCE) -> float:
    """Return the extrapolated rank-biased overlap of two rankings: (32) of Webber et al. (2010).

    With X_d the number of words among the first d of both: X_k / k p^k + (1 - p) / p sum_d X_d / d p^d.
    """
    first, second = np.asarray(first), np.asarray(second)
    depth = np.arange(1, first.size + 1)
    rank = {word: position for position, word in enumerate(second.tolist(), 1)}
    both = np.array([max(position, rank.get(word, first.size + 1)) for position, word in enumerate(first.tolist(), 1)])
    shared = np.cumsum(np.bincount(both, minlength=first.size + 2)[1 : first.size + 1]) / depth
    weight = persistence**depth
    return float(shared[-1] * weight[-1] + (1 - persistence) / persistence * (shared * weight).sum())
