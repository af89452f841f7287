"""Dirichlet priors of documents and topics: the probabilities that follow from counts, fold-in and prediction.

Dirichlet parameters are learned by Newton's method (Minka 2000), other hyperparameters by slice sampling (Neal 2003).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels import prediction
from collapsium.workers.kernels.prediction import DirichletTopics
from collapsium.workers.special_functions import digamma, gammaln, polygamma

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


@dataclass(frozen=True)
class NewtonRule:
    """Bounds and end of Newton's method for Dirichlet parameters."""

    smallest: float = 1e-8
    largest: float = 1e8  # Bounds of a parameter
    max_steps: int = 100
    tolerance: float = 1e-10  # Relative step at which the method ends


@dataclass(frozen=True)
class SliceRule:
    """Bounds and widening of a slice."""

    smallest: float = 1e-6
    largest: float = 1e6  # Bounds of a sampled parameter
    max_steps: int = 20  # Steps by which a slice is widened at most, each by a factor of e


NEWTON, SLICE = NewtonRule(), SliceRule()


def asymmetric(prior: Vector, log_proportions: Vector, count: float) -> Vector:
    """Return the a that maximises sum_d E[log p(theta_d | a)], theta_d ~ Dir(a_1..a_K).

    The objective, D log G(A) - D sum_k log G(a_k) + sum_k (a_k - 1) S_k with S_k = sum_d E[log theta_dk], is concave;
    its Hessian is a diagonal plus a constant, so that a step of Newton's takes K operations.
    """
    current = np.maximum(prior, NEWTON.smallest)
    value = _objective(current, log_proportions, count)
    for _ in range(NEWTON.max_steps):
        gradient = count * (digamma(current.sum()) - digamma(current)) + log_proportions
        diagonal = -count * polygamma(1, current)
        constant = count * polygamma(1, current.sum())
        shift = (gradient / diagonal).sum() / (1.0 / constant + (1.0 / diagonal).sum())
        step, scale = (gradient - shift) / diagonal, 1.0
        while True:
            # Half of the way to zero at most: where the maximum is small, a full step may lead below zero.
            smallest = np.maximum(0.5 * current, NEWTON.smallest)
            tried = np.clip(current - scale * step, smallest, NEWTON.largest)
            reached = _objective(tried, log_proportions, count)
            if reached >= value or scale < NEWTON.tolerance:
                break
            scale *= 0.5
        if reached < value:
            return current
        change, current, value = np.abs(tried / current - 1.0).max(), tried, reached
        if change < NEWTON.tolerance:
            break
    return current


def _objective(prior: Vector, log_proportions: Vector, count: float) -> float:
    return float(count * (gammaln(prior.sum()) - gammaln(prior).sum()) + ((prior - 1.0) * log_proportions).sum())


def symmetric(prior: float, size: int, log_proportions: float, count: float) -> float:
    """Return the a that maximises sum_d E[log p(theta_d | a, ..., a)], by Newton's method for log a."""
    if size < 2:
        return prior
    current = float(np.clip(prior, NEWTON.smallest, NEWTON.largest))
    for _ in range(NEWTON.max_steps):
        slope = count * size * (digamma(size * current) - digamma(current)) + log_proportions
        curvature = count * size * (size * polygamma(1, size * current) - polygamma(1, current))
        # The second derivative by log a; both derivatives lack a factor of a.
        second = current * curvature + slope
        step = -slope / second if second < 0 else np.sign(slope)
        after = float(np.clip(current * special.exp(np.clip(step, -1.0, 1.0)), NEWTON.smallest, NEWTON.largest))
        if abs(after / current - 1.0) < NEWTON.tolerance:
            return after
        current = after
    return current


def slice_sampled(
    log_density: Callable[[float], float], value: float, mean: float, generator: np.random.Generator
) -> float:
    """Draw a parameter's next value; the draws leave its posterior under an exponential prior invariant.

    The slice is one of the logarithm (Neal 2003): it is widened by steps of one from a random position, then shrunk.
    """

    def height(log: float) -> float:
        if not special.log(SLICE.smallest) <= log <= special.log(SLICE.largest):
            return -np.inf
        return log_density(float(special.exp(log))) - float(special.exp(log)) / mean + log

    now = float(special.log(np.clip(value, SLICE.smallest, SLICE.largest)))
    floor = height(now) - generator.standard_exponential()
    low = now - generator.random()
    high, left = low + 1.0, int(generator.integers(SLICE.max_steps))
    right = SLICE.max_steps - 1 - left
    while left > 0 and height(low) > floor:
        low, left = low - 1.0, left - 1
    while right > 0 and height(high) > floor:
        high, right = high + 1.0, right - 1
    while True:
        tried = low + (high - low) * generator.random()
        if height(tried) >= floor or high - low < 1e-12:
            return float(special.exp(tried))
        low, high = (tried, high) if tried < now else (low, tried)
