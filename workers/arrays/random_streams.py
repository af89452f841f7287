"""Counter-based random streams: an address gives the same numbers on any worker and in any order.

An address has the run's seed, a purpose, the iteration, and a shard, document or node. Documents are sampled by hashes
of their content and the stream's key, which do not depend on the shard that has the document.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.building.splitmix import GOLDEN, mixed

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard
    from collapsium.storage.corpus.vectors import VectorShard


@dataclass(frozen=True, slots=True)
class Stream:
    """The address of a random stream."""

    seed: int  # The run's seed
    purpose: str = ""  # Use of the numbers, such as ``start``
    iteration: int = 0  # Iteration in which they are drawn
    place: int = -1  # Shard, document or node; -1 for none

    def at(self, *, purpose: str | None = None, iteration: int | None = None, place: int | None = None) -> Stream:
        """Return the stream at another address of the same seed."""
        return replace(
            self,
            purpose=self.purpose if purpose is None else purpose,
            iteration=self.iteration if iteration is None else iteration,
            place=self.place if place is None else place,
        )

    def generator(self) -> np.random.Generator:
        """Return the stream's numbers from their beginning."""
        return np.random.Generator(np.random.Philox(key=int.from_bytes(self._digest(), "little")))

    def key(self) -> npt.NDArray[np.uint64]:
        """Return the key from which kernels generate the stream's numbers (`kernels.random`)."""
        return np.frombuffer(self._digest(), dtype="<u8").astype(np.uint64)

    def _digest(self) -> bytes:
        address = repr((self.seed, self.purpose, self.iteration, self.place)).encode()
        return hashlib.blake2b(address, digest_size=16).digest()


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
