"""Partition of the vocabulary into blocks, and of shards into groups whose deltas are added in turn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from collapsium.workers.families.family import Footprint


@dataclass(frozen=True)
class Partition:
    """Sizes by which work is divided. Results depend on them, so that they never follow the cluster."""

    block_bytes: int = 64_000_000  # Bytes of a block's rows, of those that sweeps see
    group_shards: int = 8  # Shards whose deltas are added one after another; the groups' sums are added over a tree
    # Deltas of a group that one task adds to its sum, at most: the sum is read and written once for all of them
    most_waiting: int = 3
    waiting_bytes: int = 64_000_000  # Bytes of their rows of words, at most, unless one alone has more
    unsummed_shards: int = 2  # Up to so many shards, deltas are folded in without sums before


PARTITION = Partition()


def block_bounds(words: int, footprint: Footprint) -> tuple[int, ...]:
    """Divide the vocabulary into blocks of bounded size."""
    blocks = max(math.ceil(words * footprint.shown / PARTITION.block_bytes), 1)
    return tuple(words * block // blocks for block in range(blocks + 1))


def waiting_deltas(words: int, footprint: Footprint) -> int:
    """Return the number of deltas that one task adds to the sum of a group, at least one."""
    return min(max(int(PARTITION.waiting_bytes // max(words * footprint.delta, 1)), 1), PARTITION.most_waiting)


def most_from_elsewhere(shards: int, homes: int) -> int:
    """Return the most deltas of a home that wait for the sum of their group, which comes from the home before."""
    # Home h begins with shard ceil(h shards / homes); see `Problem.home`.
    firsts = [-(-home * shards // homes) for home in range(1, homes + 1)]
    waiting = (min(-first % PARTITION.group_shards, after - first) for first, after in pairwise(firsts))
    return max(waiting, default=0)
