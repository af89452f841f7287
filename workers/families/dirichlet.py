"""Dirichlet priors of documents and topics: the probabilities that follow from counts, fold-in and prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels import prediction
from collapsium.workers.kernels.likelihood import DirichletTopics

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard
    from collapsium.workers.arrays.state import Arrays

FloatT = TypeVar("FloatT", np.float32, np.float64)
Vector = npt.NDArray[np.float64]

SAME_PRIOR = np.zeros(0, dtype=np.int32)  # Places of documents' priors where all have the same
FOLD_IN_SWEEPS = 100  # Most zeroth-order sweeps over a document; nearly all documents converge earlier
FOLD_IN_KERNELS = (prediction.fold_in, prediction.pair_probability)
MIN_REST = 1e-9  # Share of the concentration below which a rest of it is taken for rounding


@dataclass(frozen=True)
class DirichletPriors:
    """Dirichlet prior of documents over topics, and symmetric Dirichlet prior of topics over words."""

    topics: Vector  # a_k; 0 of a topic that does not exist; float64 (topics,)
    concentration: float  # A; by how much it exceeds the sum of a_k is for topics that do not exist yet
    # b of each word, and B, its sum over the vocabulary
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


def dirichlet_topics(word_topic: Vector, prior: Vector, concentration: float, rest_word: Vector) -> DirichletTopics:
    """Return topics with their prior, and those that do not exist yet as one further topic."""
    some, rest = prior > 0, max(concentration - float(prior.sum()), 0.0)
    phi, prior = np.asarray(word_topic[:, some], dtype=np.float64), np.asarray(prior[some], dtype=np.float64)
    if rest > MIN_REST * concentration:
        phi, prior = np.column_stack([phi, rest_word]), np.append(prior, rest)
    return DirichletTopics(np.ascontiguousarray(phi), prior)


def fold_in_counts(
    shard: Shard, word_probability: Vector, prior: Vector, place: npt.NDArray[np.int32] = SAME_PRIOR
) -> npt.NDArray[np.float32]:
    """Return the expected counts of unseen documents, fitted by zeroth-order sweeps (CVB0).

    `prior` is a_k of all documents or, with the `place` of each document's, rows of priors.
    """
    counts = np.zeros((shard.documents, prior.shape[-1]))
    prediction.fold_in(document_pairs(shard), word_probability, np.atleast_2d(prior), place, FOLD_IN_SWEEPS, counts)
    return counts.astype(np.float32)


def pair_probability(heldout: Shard, theta: Vector, phi: Vector, rest_word: float) -> Vector:
    """Return the predictive probability of each held-out pair: sum_k theta_dk phi_kw, plus new topics' probability."""
    probability, rest = np.empty(heldout.pairs), np.maximum(1.0 - theta.sum(axis=1), 0.0)
    rest_words = np.full(len(phi), rest_word)
    prediction.pair_probability(heldout.offsets, heldout.position, theta, phi, rest, rest_words, probability)
    return probability


def proportions_and_topics(
    warm: Arrays, words: int, dtype: type[FloatT]
) -> tuple[npt.NDArray[FloatT], npt.NDArray[FloatT]]:
    """Return the proportions of a shard's documents, and the probabilities of its words, from which a fit begins."""
    theta = np.ascontiguousarray(warm["document_topic"], dtype=dtype)
    if "word_topic" not in warm:
        return theta, np.ones((words, theta.shape[1]), dtype=dtype)
    return theta, np.ascontiguousarray(warm["word_topic"], dtype=dtype)
