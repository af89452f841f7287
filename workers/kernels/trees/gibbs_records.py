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
    """Hyperparameters of a tree.

    Attributes
    ----------
    alpha, eta : float64, shape (levels,)
        Dirichlet parameters of the levels in a document, and of each word at the nodes of a level.
    eta_total : float64, shape (levels,)
        W eta.
    gamma : float
        Concentration of the nested Chinese restaurant process.
    """

    alpha: Float64Vector
    eta: Float64Vector
    eta_total: Float64Vector
    gamma: float


class FreeSlots(NamedTuple):
    """Slots that new nodes take.

    Attributes
    ----------
    can_grow : int
        Whether there may be new nodes. If not, a document that has nodes to itself stays where it is.
    reusable : int64, shape (slots,)
        Not 0 for slots that become free again when no document passes them.
    free : int64, shape (slots,)
        Free slots, of which the last is taken next; changed.
    free_count : int64, shape (1,)
        Number of free slots; changed.
    """

    can_grow: int
    reusable: Int64Vector
    free: OutInt64Vector
    free_count: OutInt64Vector


class SampledTree(NamedTuple):
    """A tree and its counts, which a sweep changes.

    Attributes
    ----------
    parent, level : int64, shape (slots,)
        -1 and 0 of the root; -2 and -1 of free slots.
    documents, totals : int64, shape (slots,)
        Documents that pass each node, and its tokens.
    row : int32, shape (rows, slots)
        Tokens of each word at each node.
    slots : FreeSlots
        Slots that new nodes take.
    """

    parent: OutInt64Vector
    level: OutInt64Vector
    documents: OutInt64Vector
    totals: OutInt64Vector
    row: OutInt32Matrix
    slots: FreeSlots


class Assignments(NamedTuple):
    """Paths of documents and levels of tokens, which a sweep changes.

    Attributes
    ----------
    path : int32, shape (documents, levels)
        c; -1 of a document outside the tree.
    token_level : uint8, shape (tokens,)
        z of each token; those of a pair are neighbours.
    """

    path: OutInt32Matrix
    token_level: OutUInt8Vector


class SweepOptions(NamedTuple):
    """Options of one sweep.

    Attributes
    ----------
    separate : int
        Whether a document joins the tree on a path of its own.
    iteration : int
        Number of the sweep, by which documents take turns in path proposals.
    """

    separate: int
    iteration: int


class CandidatePaths(NamedTuple):
    """The full paths of a tree.

    Attributes
    ----------
    nodes : int64, shape (paths, levels)
        Nodes of each path; there is one path at least.
    log_prior : float64, shape (paths,)
        log p(c).
    phi : float64, shape (rows, nodes)
        Probabilities of words.
    """

    nodes: Int64Matrix
    log_prior: Float64Vector
    phi: Float64Matrix


class TreeDocument(NamedTuple):
    """A document of a shard.

    Attributes
    ----------
    number : int
        Its number in the shard.
    first, last : int
        Its pairs are `first` to `last` - 1.
    token : int
        Its first token.
    position, counts : int32, shape (pairs,)
        Row and count of each pair of the shard.
    """

    number: int
    first: int
    last: int
    token: int
    position: Array
    counts: Array


class DocumentState(NamedTuple):
    """Path and levels of a document.

    Attributes
    ----------
    path : int32, shape (levels,)
        Its nodes.
    pair_level : int64, shape (pairs of the document or more, levels)
        Tokens of each pair at each level.
    level_tokens : int64, shape (levels,)
        Its tokens at each level.
    token_level : uint8, shape (tokens,)
        Levels of all tokens of the shard.
    """

    path: Array
    pair_level: Array
    level_tokens: Array
    token_level: Array


class Workspace(NamedTuple):
    """Working space of a sweep.

    A document's choices are places in a list of all nodes: the path to a leaf, or all paths that leave the tree below
    an inner node.

    Attributes
    ----------
    nodes, starts : int64, shape (slots,) and (levels + 1,)
        Nodes level by level, and where each level starts.
    score : float64, shape (slots,)
        By node: log probability of the words and path down to it. By place: mixture weight down to it.
    weight : float64, shape (slots,)
        By place: log weight of a choice, or what counts of its node are multiplied by.
    product, log_mixture : float64, shape (slots,)
        By place: product of factors whose logarithm is pending; log probability of the document by its path's mixture.
    new_score : float64, shape (levels + 1,)
        Log probability of the words of each level and those below at new nodes.
    level_weight : float64, shape (levels,)
        Weights of a token's levels.
    saved_levels : uint8, shape (tokens of the longest document,)
        Levels before a proposal.
    parent_place, place_of : int64, shape (slots,)
        Place of the parent of each place's node, and place of each node.
    """

    nodes: Array
    starts: Array
    score: Array
    weight: Array
    product: Array
    log_mixture: Array
    new_score: Array
    level_weight: Array
    saved_levels: Array
    parent_place: Array
    place_of: Array
