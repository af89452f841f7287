"""Named tuples of arrays that kernels of variational trees share.

Nodes are ordered level by level, parents first. Each node is also an end: the paths that leave the tree below it
(see `collapsium.workers.families.ncrp.tree`).
"""

from __future__ import annotations

from typing import NamedTuple

from collapsium.workers.kernels.argument_types import (
    Float32Vector,
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    OutFloat32Matrix,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt32Matrix,
)


class TreeTopics(NamedTuple):
    """The topics of a tree's nodes over the words at hand."""

    # Index of each node's parent, -1 of the root, and its level; (nodes,)
    parent: Int64Vector
    level: Int64Vector
    word_node: Float64Matrix  # Weight or log weight of each word at each node; see the kernel; (words, nodes)
    outside: Float64Vector  # The same of a word at nodes outside the tree, by level; (depth,)


class DocumentPrior(NamedTuple):
    """Prior of a document's path and of its level proportions."""

    end_log: Float64Vector  # Log prior mass of each end; (nodes,)
    alpha: Float64Vector  # Dirichlet parameters of the level proportions; (depth,)


class StoppingRule(NamedTuple):
    """Limits of the updates of a document's local state."""

    passes: int  # Maximal passes over a document
    tolerance: float  # Expected tokens that change their level in a pass below which there is no further pass


class TreeStatistics(NamedTuple):
    """Sums over the documents of a shard."""

    word_node: OutFloat64Matrix  # Filled with the expected counts; (words, nodes)
    ends: OutFloat64Vector  # Increased by q(c) at each end; (nodes,)
    log_theta: OutFloat64Vector  # Increased by E[log theta] of the documents that have tokens; (depth,)
    bound: OutFloat64Vector  # Increased by the documents' part of the evidence lower bound; see the kernel; (1,)


class LargestEnds(NamedTuple):
    """The most probable ends of each document."""

    # Filled with the ends of largest q(c), and q(c); -1 and 0 where there are no more; (documents, most)
    ends: OutInt32Matrix
    masses: OutFloat32Matrix
    min_share: float  # Least q(c) of an end that is stored, behind the largest


class StoredEnds(NamedTuple):
    """The most probable ends of each document, as a local state has them."""

    offsets: Int64Vector  # Index of each document's first end; the last is the number of ends; (documents + 1,)
    # Index of the end's node, and its q(c); normalised per document where they are used; (ends,)
    ends: Int32Vector
    masses: Float32Vector
