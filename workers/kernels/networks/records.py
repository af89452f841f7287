"""Arguments of the kernels of networks of probability vectors, as named tuples.

A node is a probability vector. Nodes that documents share, such as those of the corpus or of labels, come first;
behind them come the nodes of each document.
"""

from __future__ import annotations

from typing import NamedTuple

from collapsium.workers.kernels.argument_types import (
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt32Matrix,
    OutInt32Vector,
    OutInt64Vector,
    OutUInt16Vector,
    UInt16Vector,
    UInt64Vector,
)


class GraphArrays(NamedTuple):
    """Nodes and their edges to their parents.

    Attributes
    ----------
    node_kind : int32, shape (nodes,)
        Kind of each node; parents before children, shared nodes first, then each document's.
    node_edges : int64, shape (nodes + 1,)
        Index of each node's first edge; a root has none.
    edge_parent : int64, shape (edges,)
        Parent that each edge leads to.
    edge_mixing : float64, shape (edges,)
        Dirichlet parameter g of the mixing proportions, where a node has several parents.
    """

    node_kind: Int32Vector
    node_edges: Int64Vector
    edge_parent: Int64Vector
    edge_mixing: Float64Vector


class DocumentNodes(NamedTuple):
    """Nodes of each document, and those of its segments.

    Attributes
    ----------
    nodes, segments : int64, shape (documents + 1,)
        Index of each document's first node and segment.
    segment_node : int64, shape (segments,)
        Node from whose vector a segment's words are drawn.
    document_node : int64, shape (documents,)
        Node of the document as a whole; -1 where there is none.
    """

    nodes: Int64Vector
    segments: Int64Vector
    segment_node: Int64Vector
    document_node: Int64Vector


class Hyperparameters(NamedTuple):
    """Parameters of the vectors.

    Attributes
    ----------
    strength : float64, shape (kinds,)
        b of each kind.
    discount : float64, shape (kinds,)
        a of each kind.
    alpha : float64, shape (topics,)
        Dirichlet parameters of roots; 0 in padding.
    """

    strength: Float64Vector
    discount: Float64Vector
    alpha: Float64Vector


class SamplingHyperparameters(NamedTuple):
    """Parameters of the vectors, with the Stirling ratios that sampling needs.

    Attributes
    ----------
    strength, discount, alpha
        As in `Hyperparameters`.
    stirling_ratios : float64, shape (kinds, n)
        Table of Stirling ratios of each kind's discount (`kernels.networks.stirling`).
    """

    strength: Float64Vector
    discount: Float64Vector
    alpha: Float64Vector
    stirling_ratios: Float64Matrix


class SegmentedDocuments(NamedTuple):
    """Documents of segments, as pairs of a word and its count.

    Attributes
    ----------
    nodes : int64, shape (documents + 1,)
        Index of each document's first node; the first is the number of shared nodes.
    segments : int64, shape (documents + 1,)
        Index of each document's first segment.
    segment_pairs : int64, shape (segments + 1,)
        Index of each segment's first pair.
    segment_node : int64, shape (segments,)
        Node that each segment's tokens are drawn from; segments of a node are neighbours.
    position, counts : int32, shape (pairs,)
        As in `DocumentPairs`.
    """

    nodes: Int64Vector
    segments: Int64Vector
    segment_pairs: Int64Vector
    segment_node: Int64Vector
    position: Int32Vector
    counts: Int32Vector


class TokenDraws(NamedTuple):
    """Options and random stream for drawing the topics and table paths of tokens.

    Attributes
    ----------
    key : uint64, shape (2,)
        Key of the random stream.
    initialise : int
        Whether tokens have topics but no tables yet.
    fold_in : int
        Whether topics and shared nodes are fixed.
    levels : int
        Nodes on the longest path from a node to a root.
    """

    key: UInt64Vector
    initialise: int
    fold_in: int
    levels: int


class TableDraws(NamedTuple):
    """Options and random streams for drawing table counts, and sums for the discount's update.

    Attributes
    ----------
    move : int
        Whether table counts are drawn.
    key : uint64, shape (2,)
        Key of the random stream of table counts.
    count_joins : int
        Whether the customers that speak for 1 - a are drawn.
    join_key : uint64, shape (2,)
        Key of their random stream.
    """

    move: int
    key: UInt64Vector
    count_joins: int
    join_key: UInt64Vector


class TableEntries(NamedTuple):
    """Table counts of edges, one entry for each edge and topic that has tables.

    Attributes
    ----------
    start : int64, shape (edges,)
        Index of each edge's first entry.
    entries : int32, shape (edges,)
        Entries of each edge.
    topic : uint16, shape (n,)
        Topic of each entry.
    number : int32, shape (n,)
        Its tables.
    """

    start: Int64Vector
    entries: Int32Vector
    topic: UInt16Vector
    number: Int32Vector


class NewTableEntries(NamedTuple):
    """Table counts that a kernel writes; as `TableEntries`."""

    start: OutInt64Vector
    entries: OutInt32Vector
    topic: OutUInt16Vector
    number: OutInt32Vector


class SampledCounts(NamedTuple):
    """Counts that a sweep moves.

    Attributes
    ----------
    token_topic : uint16, shape (tokens,)
        Topic of each token; those of a pair are neighbours.
    word_topic : int32, shape (words, topics)
        n_kw.
    topic : float64, shape (topics,)
        n_k.
    word_prior, total_prior : float
        b of a word, and B.
    shared_customers : int32, shape (shared nodes, topics)
        m of shared nodes.
    shared_tables : int32, shape (edges of shared nodes, topics)
        s of their edges.
    """

    token_topic: OutUInt16Vector
    word_topic: OutInt32Matrix
    topic: OutFloat64Vector
    word_prior: float
    total_prior: float
    shared_customers: OutInt32Matrix
    shared_tables: OutInt32Matrix


class NodeStatistics(NamedTuple):
    """Sums over nodes, for the objective and the hyperparameters' updates.

    Attributes
    ----------
    customers, tables : int64, shape (nodes,)
        Filled with M and T of each node.
    kind_sums : float64, shape (kinds, 2)
        Increased by the sums of log S^m_t and the other terms of p(n, s) of single topics, and by the customers that
        speak for 1 - a.
    alpha_numerator : float64, shape (topics,) or (0,)
        Increased by the sums over roots of alpha_k (psi(alpha_k + m_k) - psi(alpha_k)).
    """

    customers: OutInt64Vector
    tables: OutInt64Vector
    kind_sums: OutFloat64Matrix
    alpha_numerator: OutFloat64Vector


class SweepResults(NamedTuple):
    """Results of a sweep over documents, besides the counts.

    Attributes
    ----------
    tables : NewTableEntries
        Tables after the sweep.
    statistics : NodeStatistics
        Of the nodes of documents.
    progress : int64, shape (4,)
        Next document, its first token, entries of `tables` that are filled, and numbers drawn of the stream of joins.
    """

    tables: NewTableEntries
    statistics: NodeStatistics
    progress: OutInt64Vector


class OwnTopics(NamedTuple):
    """Topics of each node's own tokens.

    Attributes
    ----------
    offsets : int64, shape (nodes of documents + 1,)
        Index of each node's first entry.
    topic : uint16, shape (n,)
        Topics of a node, ascending.
    tokens : int32, shape (n,)
        Tokens of each.
    """

    offsets: Int64Vector
    topic: UInt16Vector
    tokens: Int32Vector
