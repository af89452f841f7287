"""Compare the topics of several models with their means, by words and by documents.

Values are rounded to whole steps, so that sums of products are exact in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.consensus.joined_models import JoinedModel, mean_of
from collapsium.pipeline.families.model import Model
from collapsium.storage.corpus.corpus import ShardReference

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class OverlapUnits:
    """Steps to which values are rounded, so that sums of products are whole numbers below 2^53, which add exactly."""

    word: float = 2.0**20  # Steps of 1 in the root of a word's probability; the squares of a topic's words add up to 1
    # Steps of 1 in a proportion; products are weighted by the documents' tokens, up to 2^29 in a shard
    document: float = 2.0**12


UNITS = OverlapUnits()


@dataclass(frozen=True)
class Overlaps:
    """Sums of products of joined topics and a model's topics, in steps, which add exactly."""

    products: Ints  # Sums over words or documents; int64 (joined topics, topics of the model)
    # Sums of the squares of each; int64 (joined topics,)
    joined: Ints
    own: Ints

    def __add__(self, other: Overlaps) -> Overlaps:
        """Return the sum over the words or documents of both."""
        return Overlaps(self.products + other.products, self.joined + other.joined, self.own + other.own)

    @staticmethod
    def of(joined: Floats, own: Floats, weights: Floats) -> Overlaps:
        """Return the overlaps of values in whole steps; every sum is below 2^53, so that any order gives its bits."""
        weighted = joined * weights[:, np.newaxis]
        return Overlaps(
            (weighted.T @ own).astype(np.int64),
            (weighted * joined).sum(axis=0).astype(np.int64),
            (own * own * weights[:, np.newaxis]).sum(axis=0).astype(np.int64),
        )

    @property
    def coefficients(self) -> Floats:
        """Bhattacharyya coefficients of topics, from the roots of their words' probabilities."""
        return self.products / UNITS.word**2

    @property
    def cosines(self) -> Floats:
        """Cosines of proportions; 0 where all of a topic's are rounded to 0."""
        joined, own = (np.sqrt(np.maximum(sums, 1).astype(np.float64)) for sums in (self.joined, self.own))
        return self.products / joined[:, np.newaxis] / own


def total_overlaps(parts: Sequence[list[Overlaps]]) -> list[Overlaps]:
    """Return the sum over blocks or shards for each model."""
    total = parts[0]
    for part in parts[1:]:
        total = [one + other for one, other in zip(total, part, strict=True)]
    return total


def word_overlaps(mean: Sequence[JoinedModel], models: Sequence[JoinedModel], block: int) -> list[Overlaps]:
    """Compare the topics of models with the mean of matched ones over a block of the vocabulary."""
    sums, having = mean_of(mean, lambda model: _word_topic(model, block))
    joined = np.rint(np.sqrt(sums / np.maximum(having, 1.0)) * UNITS.word)
    weights = np.ones(len(joined))
    results = []
    for model in models:
        own = np.rint(np.sqrt(_word_topic(model, block)[:, list(model.topics)]) * UNITS.word)
        results.append(Overlaps.of(joined, own, weights))
    return results


def document_overlaps(
    mean: Sequence[JoinedModel], models: Sequence[JoinedModel], shard: ShardReference, every: int
) -> list[Overlaps]:
    """Compare the topics of models with the mean of matched ones over a shard's documents."""
    lengths = np.asarray(shard.load().lengths[::every], dtype=np.float64)
    sums, _ = mean_of(mean, lambda model: _document_topic(model, shard.number, every))
    joined = np.rint(sums / len(mean) * UNITS.document)
    results = []
    for model in models:
        own = np.rint(_document_topic(model, shard.number, every)[:, list(model.topics)] * UNITS.document)
        results.append(Overlaps.of(joined, own, lengths))
    return results


def _word_topic(joined: JoinedModel, block: int) -> Floats:
    """Return the probabilities of a block's words, shape (words, columns of the model)."""
    model = Model(joined.url)
    phi = model.shard_model.probabilities(model.rows(block), model.global_state)["word_topic"]
    return np.maximum(np.asarray(phi, dtype=np.float64), 0.0)


def _document_topic(joined: JoinedModel, shard: int, every: int) -> Floats:
    """Return the proportions of one document in `every` of a shard, shape (documents, columns of the model)."""
    model = Model(joined.url)
    theta = model.shard_model.infer(model.documents(shard), model.global_state)["document_topic"][::every]
    return np.asarray(theta, dtype=np.float64)
