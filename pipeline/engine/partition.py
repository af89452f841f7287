"""Partition of the vocabulary into blocks, and of shards into groups whose deltas are added in turn."""

from __future__ import annotations

import math
from itertools import pairwise

from collapsium.workers.families.family import Footprint

# Sizes by which work is divided. Results depend on them, so that they never follow the cluster.
BLOCK_BYTES = 64_000_000  # Bytes of a block's rows, of those that sweeps see
GROUP_SHARDS = 8  # Shards whose deltas are added one after another; the groups' sums are added over a tree
# Deltas of a group that one task adds to its sum, at most: the sum is read and written once for all of them
MOST_WAITING = 3
WAITING_BYTES = 64_000_000  # Bytes of their rows of words, at most, unless one alone has more
UNSUMMED_SHARDS = 2  # Up to so many shards, deltas are folded in without sums before


def block_bounds(words: int, footprint: Footprint) -> tuple[int, ...]:
    """Divide the vocabulary into blocks of bounded size."""
    blocks = max(math.ceil(words * footprint.shown / BLOCK_BYTES), 1)
    return tuple(words * block // blocks for block in range(blocks + 1))


def waiting_deltas(words: int, footprint: Footprint) -> int:
    """Return the number of deltas that one task adds to the sum of a group, at least one."""
    return min(max(int(WAITING_BYTES // max(words * footprint.delta, 1)), 1), MOST_WAITING)


def most_from_elsewhere(shards: int, homes: int) -> int:
    """Return the most deltas of a home that wait for the sum of their group, which comes from the home before."""
    # Home h begins with shard ceil(h shards / homes); see `Problem.home`.
    firsts = [-(-home * shards // homes) for home in range(1, homes + 1)]
    waiting = (min(-first % GROUP_SHARDS, after - first) for first, after in pairwise(firsts))
    return max(waiting, default=0)
