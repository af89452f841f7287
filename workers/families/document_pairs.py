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
    """Return a shard whose tokens have the weights of their words.

    Parameters
    ----------
    shard : Shard
        All tokens of the documents.
    word_weight : numpy.ndarray of float32, shape (words of the shard,), or None
        The weights of its words; None where all tokens weigh one.
    log_counts : bool
        Whether the tokens of a pair weigh log(1 + c) times the weight of the word together, instead of c times. Each
        weighs the same part of it.

    Returns
    -------
    Shard
        The shard.
    """
    if word_weight is None:
        return shard
    weights = np.asarray(word_weight, dtype=np.float32)[shard.position]
    if log_counts:
        weights *= (special.log1p(shard.counts.astype(np.float64)) / np.maximum(shard.counts, 1)).astype(np.float32)
    return replace(shard, weights=weights)
