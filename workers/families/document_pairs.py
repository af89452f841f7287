"""Convert shards to the arguments of kernels, and weigh their tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.kernels.records import UNWEIGHTED, DocumentPairs

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Floats = npt.NDArray[np.float32]


def document_pairs(shard: Shard) -> DocumentPairs:
    """Return the documents of a shard as word-count pairs."""
    return DocumentPairs(shard.offsets, shard.position, shard.counts, pair_weights(shard))


def pair_weights(shard: Shard) -> Floats:
    """Return the weights of a shard's tokens as kernels take them."""
    return UNWEIGHTED if shard.weights is None else shard.weights


def weighed(shard: Shard, word_weight: Floats | None, *, log_counts: bool) -> Shard:
    """Return a shard whose tokens have the weights of their words."""
    if word_weight is None:
        return shard
    weights = np.asarray(word_weight, dtype=np.float32)[shard.position]
    if log_counts:
        weights *= (special.log1p(shard.counts.astype(np.float64)) / np.maximum(shard.counts, 1)).astype(np.float32)
    return replace(shard, weights=weights)
