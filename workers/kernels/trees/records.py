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
    """The topics of a tree's nodes over the words at hand.

    Attributes
    ----------
    parent, level : int64, shape (nodes,)
        Index of each node's parent, -1 of the root, and its level.
    word_node : float64, shape (words, nodes)
        Weight or log weight of each word at each node; see the kernel.
    outside : float64, shape (depth,)
        The same of a word at nodes outside the tree, by level.
    """

    parent: Int64Vector
    level: Int64Vector
    word_node: Float64Matrix
    outside: Float64Vector


class DocumentPrior(NamedTuple):
    """Prior of a document's path and of its level proportions.

    Attributes
    ----------
    end_log : float64, shape (nodes,)
        Log prior mass of each end.
    alpha : float64, shape (depth,)
        Dirichlet parameters of the level proportions.
    """

    end_log: Float64Vector
    alpha: Float64Vector


class StoppingRule(NamedTuple):
    """Limits of the updates of a document's local state.

    Attributes
    ----------
    passes : int
        Maximal passes over a document.
    tolerance : float
        Expected tokens that change their level in a pass below which there is no further pass.
    """

    passes: int
    tolerance: float


class TreeStatistics(NamedTuple):
    """Sums over the documents of a shard.

    Attributes
    ----------
    word_node : float64, shape (words, nodes)
        Filled with the expected counts.
    ends : float64, shape (nodes,)
        Increased by q(c) at each end.
    log_theta : float64, shape (depth,)
        Increased by E[log theta] of the documents that have tokens.
    bound : float64, shape (1,)
        Increased by the documents' part of the evidence lower bound; see the kernel.
    """

    word_node: OutFloat64Matrix
    ends: OutFloat64Vector
    log_theta: OutFloat64Vector
    bound: OutFloat64Vector


class LargestEnds(NamedTuple):
    """The most probable ends of each document.

    Attributes
    ----------
    ends, masses : int32 and float32, shape (documents, most)
        Filled with the ends of largest q(c), and q(c); -1 and 0 where there are no more.
    min_share : float
        Least q(c) of an end that is stored, behind the largest.
    """

    ends: OutInt32Matrix
    masses: OutFloat32Matrix
    min_share: float


class StoredEnds(NamedTuple):
    """The most probable ends of each document, as a local state has them.

    Attributes
    ----------
    offsets : int64, shape (documents + 1,)
        Index of each document's first end; the last is the number of ends.
    ends, masses : int32 and float32, shape (ends,)
        Index of the end's node, and its q(c); those of a document are normalised where they are used.
    """

    offsets: Int64Vector
    ends: Int32Vector
    masses: Float32Vector
