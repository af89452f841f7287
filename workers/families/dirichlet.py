"""Dirichlet priors of documents and topics, and the probabilities that follow from counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DirichletPriors:
    """Dirichlet prior of documents over topics, and symmetric one of topics over words.

    Attributes
    ----------
    topics : numpy.ndarray of float64, shape (topics,)
        a_k; 0 of a topic that does not exist.
    concentration : float
        A; by how much it exceeds the sum of a_k is for topics that do not exist yet.
    word, total : float
        b of each word, and B, its sum over the vocabulary.
    """

    topics: Vector
    concentration: float
    word: float
    total: float

    def proportions(self, document_topic: Vector) -> Vector:
        """Return theta_dk = (a_k + n_dk) / (A + n_d), shape (documents, topics)."""
        theta: Vector = (document_topic + self.topics) / (
            self.concentration + document_topic.sum(axis=1, keepdims=True)
        )
        return theta

    def word_probability(self, word_topic: npt.NDArray[np.generic], topic: npt.NDArray[np.generic]) -> Vector:
        """Return phi_kw = (b + n_kw) / (B + n_k), shape (words, topics)."""
        smoothed = np.maximum(np.asarray(word_topic, dtype=np.float64), 0.0) + self.word
        probability: Vector = smoothed / (self.total + np.asarray(topic, dtype=np.float64))
        return probability
