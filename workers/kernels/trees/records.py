"""Named tuples of arrays that kernels of trees share.

In variational trees, nodes are ordered level by level, parents first, and each node is also an end: the paths that
leave the tree below it (see `collapsium.workers.families.ncrp.tree`). In samplers, a node is a slot of the arrays. The
root is slot 0; free slots are not in the tree.
"""

from __future__ import annotations

from typing import NamedTuple

from collapsium.workers.kernels.jit import (
    Array,
    Float32Vector,
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Matrix,
    Int64Vector,
    OutFloat32Matrix,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt32Matrix,
    OutInt64Vector,
    OutUInt8Vector,
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


FREE = -2  # parent of a free slot; the root's is -1


class TreePriors(NamedTuple):
    """Hyperparameters of a tree."""

    # Dirichlet parameters of the levels in a document, and of each word at the nodes of a level; (levels,)
    alpha: Float64Vector
    eta: Float64Vector
    eta_total: Float64Vector  # W eta; (levels,)
    gamma: float  # Concentration of the nested Chinese restaurant process


class FreeSlots(NamedTuple):
    """Slots that new nodes take."""

    can_grow: int  # Whether there may be new nodes. If not, a document that has nodes to itself stays where it is.
    reusable: Int64Vector  # Not 0 for slots that become free again when no document passes them; (slots,)
    free: OutInt64Vector  # Free slots, of which the last is taken next; changed; (slots,)
    free_count: OutInt64Vector  # Number of free slots; changed; (1,)


class SampledTree(NamedTuple):
    """A tree and its counts, which a sweep changes."""

    # -1 and 0 of the root; -2 and -1 of free slots; (slots,)
    parent: OutInt64Vector
    level: OutInt64Vector
    # Documents that pass each node, and its tokens; (slots,)
    documents: OutInt64Vector
    totals: OutInt64Vector
    row: OutInt32Matrix  # Tokens of each word at each node; (rows, slots)
    slots: FreeSlots  # Slots that new nodes take


class Assignments(NamedTuple):
    """Paths of documents and levels of tokens, which a sweep changes."""

    path: OutInt32Matrix  # c; -1 of a document outside the tree; (documents, levels)
    token_level: OutUInt8Vector  # z of each token; the tokens of a pair are neighbours; (tokens,)


class SweepOptions(NamedTuple):
    """Options of one sweep."""

    separate: int  # Whether a document joins the tree on a path of its own
    iteration: int  # Number of the sweep, by which documents take turns in path proposals


class CandidatePaths(NamedTuple):
    """The full paths of a tree."""

    nodes: Int64Matrix  # Nodes of each path; there is one path at least; (paths, levels)
    log_prior: Float64Vector  # log p(c); (paths,)
    phi: Float64Matrix  # Probabilities of words; (rows, nodes)


class TreeDocument(NamedTuple):
    """A document of a shard."""

    number: int  # Its number in the shard
    # Its pairs are `first` to `last` - 1
    first: int
    last: int
    token: int  # Its first token
    # Row and count of each pair of the shard; (pairs,)
    position: Array
    counts: Array


class DocumentState(NamedTuple):
    """Path and levels of a document."""

    path: Array  # Its nodes; (levels,)
    pair_level: Array  # Tokens of each pair at each level; (pairs of the document or more, levels)
    level_tokens: Array  # Its tokens at each level; (levels,)
    token_level: Array  # Levels of all tokens of the shard; (tokens,)


class Workspace(NamedTuple):
    """Working space of a sweep.

    A document's choices are places in a list of all nodes: the path to a leaf, or all paths that leave the tree below
    an inner node.
    """

    # Nodes level by level, and where each level starts; (slots,)
    nodes: Array
    starts: Array
    # By node: log probability of the words and path down to it. By place: mixture weight down to it.; (slots,)
    score: Array
    weight: Array  # By place: log weight of a choice, or what counts of its node are multiplied by; (slots,)
    # By place: product of factors whose logarithm is pending; log probability of the document by its path's mixture;
    # (slots,)
    product: Array
    log_mixture: Array
    new_score: Array  # Log probability of the words of each level and those below at new nodes; (levels + 1,)
    level_weight: Array  # Weights of a token's levels; (levels,)
    saved_levels: Array  # Levels before a proposal; (tokens of the longest document,)
    # Place of the parent of each place's node, and place of each node; (slots,)
    parent_place: Array
    place_of: Array
