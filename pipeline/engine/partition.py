"""Partition of the vocabulary into blocks, and of shards into groups whose deltas are added in turn."""

from __future__ import annotations

import math

from collapsium.pipeline.families.base import Footprint

BLOCK_BYTES = 64_000_000  # of the rows that sweeps see
GROUP = 8  # shards whose deltas are added one after another; above, over a tree


def _blocks(words: int, footprint: Footprint) -> tuple[int, ...]:
    return cuts(words, footprint)[:-1]


def cuts(words: int, footprint: Footprint) -> tuple[int, ...]:
    """Cut the vocabulary into blocks of bounded size; the cuts depend on the sizes alone, never on the cluster.

    Parameters
    ----------
    words : int
        W.
    footprint : Footprint
        The family's.

    Returns
    -------
    tuple of int
        First words of the blocks and, last, the number of words.
    """
    blocks = max(math.ceil(words * footprint.shown / BLOCK_BYTES), 1)
    return tuple(words * block // blocks for block in range(blocks + 1))
