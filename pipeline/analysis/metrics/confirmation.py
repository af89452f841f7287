"""Coherence of topics' words by the confirmation measures of Röder, Both and Hinneburg (2015).

"Exploring the space of topic coherence measures", WSDM 2015. Probabilities are shares of windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.workers.ingest.windows import WindowCounts, WordPairs

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

EPSILON = 1e-12  # Added to joint probabilities, so that their logarithm is finite (Röder et al. 2015, section 3.3).


@dataclass(frozen=True)
class Probabilities:
    """Shares of windows that hold the words of each topic."""

    word: Floats  # p(w_i); float64 (topics, words)
    joint: Floats  # p(w_i, w_j), with p(w_i) on the diagonal; float64 (topics, words, words)

    @staticmethod
    def of(counts: WindowCounts, pairs: WordPairs, topics: Ints) -> Probabilities:
        """Take the shares for `topics`, numbers of counted words, shape (topics, words)."""
        windows = max(counts.windows, 1)
        first, second = np.broadcast_arrays(topics[:, :, np.newaxis], topics[:, np.newaxis, :])
        positions, there = pairs.positions(first.ravel(), second.ravel())
        joint = np.zeros(first.size, dtype=np.int64)
        joint[there] = counts.pair[positions[there]]
        joint = np.where(first == second, counts.word[first], joint.reshape(first.shape))
        return Probabilities(counts.word[topics] / windows, joint / windows)

    @staticmethod
    def of_documents(single: Ints, both: Ints, documents: int) -> Probabilities:
        """Take the shares from numbers of documents, as `collapsium.pipeline.analysis.coherence.count` returns them."""
        topics, words = single.shape
        first, second = np.triu_indices(words, 1)
        joint = np.zeros((topics, words, words))
        joint[:, first, second] = joint[:, second, first] = both / documents
        joint[:, np.arange(words), np.arange(words)] = single / documents
        return Probabilities(single / documents, joint)


def pmi(probabilities: Probabilities) -> Floats:
    """Return log((p_ij + epsilon) / (p_i p_j)) of each two words of a topic; 0 where a word never occurs."""
    product = probabilities.word[:, :, np.newaxis] * probabilities.word[:, np.newaxis, :]
    seen = product > 0
    ratio = (probabilities.joint + EPSILON) / np.where(seen, product, 1.0)
    return np.where(seen, np.log(np.where(seen, ratio, 1.0)), 0.0)


def npmi(probabilities: Probabilities) -> Floats:
    """Return `pmi` divided by -log(p_ij + epsilon)."""
    return pmi(probabilities) / -np.log(probabilities.joint + EPSILON)


def c_uci(probabilities: Probabilities) -> Floats:
    """Return the mean `pmi` over all pairs of different words of each topic, shape (topics,)."""
    return _mean_of_pairs(pmi(probabilities))


def c_npmi(probabilities: Probabilities) -> Floats:
    """Return the mean `npmi` over all pairs of different words of each topic, shape (topics,)."""
    return _mean_of_pairs(npmi(probabilities))


def u_mass(probabilities: Probabilities) -> Floats:
    """Return the mean of log((p_ij + epsilon) / p_j) over words i and more probable words j (Mimno et al. 2011)."""
    later, earlier = np.tril_indices(probabilities.word.shape[1], -1)
    given = probabilities.word[:, earlier]
    ratio = (probabilities.joint[:, later, earlier] + EPSILON) / np.where(given > 0, given, 1.0)
    mean: Floats = np.where(given > 0, np.log(ratio), 0.0).mean(axis=1)
    return mean


def c_v(probabilities: Probabilities) -> Floats:
    """Return the mean cosine of each word's NPMI vector with the sum of all words' vectors, shape (topics,)."""
    vectors = npmi(probabilities)
    total = vectors.sum(axis=1)
    norms = np.linalg.norm(vectors, axis=2) * np.linalg.norm(total, axis=1)[:, np.newaxis]
    products = np.einsum("kij,kj->ki", vectors, total)
    mean: Floats = np.divide(products, norms, out=np.zeros_like(norms), where=norms > 0).mean(axis=1)
    return mean


def _mean_of_pairs(values: Floats) -> Floats:
    first, second = np.triu_indices(values.shape[1], 1)
    mean: Floats = values[:, first, second].mean(axis=1)
    return mean
