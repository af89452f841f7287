"""Counter-based random streams: an address gives the same numbers on any worker and in any order.

An address has the run's seed, a purpose, the iteration, and a shard, document or node.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt


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
