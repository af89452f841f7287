"""Named tuples of arrays that the samplers of trees share.

A node is a slot of the arrays. The root is slot 0; free slots are not in the tree.
"""

from __future__ import annotations

from typing import NamedTuple

from collapsium.workers.kernels.argument_types import (
    Array,
    Float64Matrix,
    Float64Vector,
    Int64Matrix,
    Int64Vector,
    OutInt32Matrix,
    OutInt64Vector,
    OutUInt8Vector,
)

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
