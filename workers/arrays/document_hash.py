"""Stable hashes of documents, by which they are sampled.

A hash depends on the document's content and on the run's seed, not on the shard that has the document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.building.splitmix import GOLDEN, mixed
from collapsium.workers.arrays.random_streams import Stream

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard
    from collapsium.storage.corpus.vectors import VectorShard


def document_hashes(shard: Shard, stream: Stream) -> npt.NDArray[np.int64]:
    """Return a stable hash of each document's words and counts."""
    key = stream.at(place=-1).key()
    with np.errstate(over="ignore"):
        word = shard.words[shard.position].astype(np.uint64) * GOLDEN + shard.counts.astype(np.uint64)
        pair = mixed(word + key[0])
        cumulative = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(pair, dtype=np.uint64)])
        total = cumulative[shard.offsets[1:]] - cumulative[shard.offsets[:-1]]
        return (mixed(total ^ key[1]) >> np.uint64(1)).astype(np.int64)


def vector_hashes(shard: VectorShard, stream: Stream) -> npt.NDArray[np.int64]:
    """Return a stable hash of each vector's values; see `document_hashes`."""
    key = stream.at(place=-1).key()
    with np.errstate(over="ignore"):
        column = mixed(np.arange(shard.words.size, dtype=np.uint64) * GOLDEN + key[0])
        # The sum makes -0.0 to 0.0.
        values = np.ascontiguousarray(shard.values + 0.0).view(np.uint64)
        total = mixed(values + column).sum(axis=1, dtype=np.uint64)
        return (mixed(total ^ key[1]) >> np.uint64(1)).astype(np.int64)


def smallest_hashes(
    hashes: npt.NDArray[np.int64], count: int, eligible: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return the smallest distinct hashes of a shard, ascending.

    The smallest of a corpus are among the smallest of its shards.
    """
    return np.unique(hashes[eligible])[:count]
