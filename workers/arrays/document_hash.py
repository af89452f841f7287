"""Documents sampled by address: by a hash of what they hold and the run's seed, whatever shard they lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.random_streams import Stream

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard
    from collapsium.storage.corpus.vectors import VectorShard


def addresses(shard: Shard, stream: Stream) -> npt.NDArray[np.int64]:
    """Return a hash of each document's words and counts.

    Parameters
    ----------
    shard : Shard
        The documents.
    stream : Stream
        Its seed, purpose and iteration go into the hash; its place does not.

    Returns
    -------
    numpy.ndarray of int64, shape (documents,)
        Not negative. Documents that hold the same have the same.
    """
    from collapsium.storage.building.split import GOLDEN, mixed

    key = stream.at(place=-1).key()
    with np.errstate(over="ignore"):
        word = shard.words[shard.position].astype(np.uint64) * GOLDEN + shard.counts.astype(np.uint64)
        pair = mixed(word + key[0])
        running = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(pair, dtype=np.uint64)])
        total = running[shard.offsets[1:]] - running[shard.offsets[:-1]]
        return (mixed(total ^ key[1]) >> np.uint64(1)).astype(np.int64)


def vector_addresses(shard: VectorShard, stream: Stream) -> npt.NDArray[np.int64]:
    """Return a hash of each vector's values; see `addresses`.

    Parameters
    ----------
    shard : VectorShard
        The vectors.
    stream : Stream
        As for `addresses`.

    Returns
    -------
    numpy.ndarray of int64, shape (vectors,)
        Not negative. Vectors that are alike have the same.
    """
    from collapsium.storage.building.split import GOLDEN, mixed

    key = stream.at(place=-1).key()
    with np.errstate(over="ignore"):
        place = mixed(np.arange(shard.words.size, dtype=np.uint64) * GOLDEN + key[0])
        values = np.ascontiguousarray(shard.values + 0.0).view(np.uint64)  # zero has one sign
        total = mixed(values + place).sum(axis=1, dtype=np.uint64)
        return (mixed(total ^ key[1]) >> np.uint64(1)).astype(np.int64)


def smallest(own: npt.NDArray[np.int64], count: int, there: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the smallest of some addresses, ascending, each once: those of all shards together hold the corpus's.

    Parameters
    ----------
    own : numpy.ndarray of int64, shape (documents,)
        Addresses.
    count : int
        How many at most.
    there : numpy.ndarray of bool, shape (documents,)
        Which documents may be taken.

    Returns
    -------
    numpy.ndarray of int64
        At most `count`.
    """
    return np.unique(own[there])[:count]
