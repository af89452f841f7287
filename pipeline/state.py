"""What a run works on, and what it holds between iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from collapsar.pipeline.contract import Family, FamilyConfig
from collapsar.workers.delta import Arrays
from collapsar.workers.streams import Stream


@dataclass(frozen=True)
class Problem:
    """What a run works on; fixed before the first sweep.

    Attributes
    ----------
    name : str
        The family's name.
    family : Family
        Its half on the driver.
    config : FamilyConfig
        Its options.
    shards, heldout : sequence of futures
        The shards, and the held-out pairs of their documents; no held-out ones where there is no such corpus.
    cuts : tuple of int
        First words of the blocks of the vocabulary and, last, its size.
    stream : Stream
        The run's seed.
    scratch : str or None
        Folder, of each machine its own, where local states lie on disk; None where they stay in memory.
    local_sweeps : int
        How often a shard is swept before its delta is reduced.
    """

    name: str
    family: Family
    config: FamilyConfig
    shards: Sequence[Any]
    heldout: Sequence[Any]
    cuts: tuple[int, ...]
    stream: Stream
    scratch: str | None = None
    local_sweeps: int = 1

    def home(self, shard: int, homes: int) -> int:
        """Return which of some homes a shard lives in: neighbours live together, as they are added first."""
        return shard * homes // len(self.shards)

    def block_home(self, block: int, homes: int) -> int:
        """Return which of some homes a block of the vocabulary lives in: one alone, where the sum of all deltas is."""
        return ((block + 1) * homes - 1) // (len(self.cuts) - 1)


@dataclass(frozen=True)
class State:
    """What the loop holds between iterations: globals here, all else as futures.

    Attributes
    ----------
    iteration : int
        How many there were; -1 before the start.
    globals : Arrays
        The family's.
    blocks : list of futures
        Blocks of the vocabulary.
    swept : list of futures
        What the shards' last sweeps left; none before the start.
    """

    iteration: int
    globals: Arrays
    blocks: list[Any]
    swept: list[Any] = field(default_factory=list)
