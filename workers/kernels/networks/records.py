"""Arguments of the kernels of networks of probability vectors, as named tuples.

A node is a probability vector. Nodes that documents share, such as the corpus's or labels' nodes, come first;
after them come the nodes of each document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

from collapsium.workers.kernels.jit import (
    DocumentPairs,
    Filled,
    Float32Vector,
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    OutFloat32Matrix,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt32Matrix,
    OutInt64Vector,
    OutUInt16Vector,
    UInt8Vector,
    UInt16Vector,
    UInt64Vector,
)

if TYPE_CHECKING:
    from collapsium.workers.kernels.jit import Float64Cube, Int32Matrix


class NodeDocuments(NamedTuple):
    """Documents of nodes, each with the pairs of its own tokens."""

    nodes: Int64Vector  # Index of each document's first node; the first is the number of shared nodes; (documents + 1,)
    pairs: DocumentPairs  # Pairs of each node of documents


class ExpectedTopicCounts(NamedTuple):
    """Expected counts of each node's own tokens."""

    offsets: Int64Vector  # Index of each node's first entry; (nodes of documents + 1,)
    topic: UInt16Vector  # Topics of a node, ascending; (n,)
    tokens: Float32Vector  # E[n_jk], the sum of c q; (n,)
    log_absent: Float32Vector  # Z[n_jk], the sum of c log(1 - q); (n,)


# `ExpectedTopicCounts` that a kernel writes, with room for more entries than there are
NewExpectedTopicCounts: TypeAlias = Annotated[ExpectedTopicCounts, Filled()]


class Responsibilities(NamedTuple):
    """Sparse responsibilities of pairs, in steps of 1 / `UNIT`."""

    size: UInt8Vector  # Topics of each pair; (pairs,)
    topic: UInt16Vector  # These, pair by pair; (n,)
    share: UInt16Vector  # Their responsibilities; (n,)


# `Responsibilities` that a kernel writes, with room for more entries than there are
NewResponsibilities: TypeAlias = Annotated[Responsibilities, Filled()]


class SharedVectors(NamedTuple):
    """Expected vectors of shared nodes."""

    mean: Float64Matrix  # E[nu]; (shared nodes, topics)
    response: Float64Matrix  # By how much E[nu] would fall without a customer; (shared nodes, topics)


class ExpectedWordCounts(NamedTuple):
    """Expected counts of words that a sweep moves, or probabilities of words that are fixed."""

    # b + E[n_kw]; moved, but for rounding as `change` is. phi_kw where words are fixed.; (words, topics)
    word_topic: OutFloat32Matrix
    topic: OutFloat64Vector  # B + E[n_k]; moved; (topics,)
    # Increased by the change of E[n_kw], in exact sums; (0, 0) where words are fixed; (words, topics)
    change: OutFloat64Matrix
    prior: float  # b
    fold_in: int  # Whether words are fixed


class ExpectedStatistics(NamedTuple):
    """Sums over nodes, for the hyperparameters' updates."""

    # Filled with E[M] and E[T] of each node; (nodes,)
    customers: OutFloat64Vector
    tables: OutFloat64Vector
    # Increased by the expected tables of the roots, whose strength is alpha_k; (topics,)
    alpha_numerator: OutFloat64Vector


class ExpectedSweepResults(NamedTuple):
    """Results of a sweep over responsibilities, besides the counts of words."""

    responsibilities: NewResponsibilities  # Of the pairs, after the sweep
    statistics: ExpectedStatistics  # Of the nodes of documents
    # Increased by the customers that documents are to shared nodes, and by their Z; (shared nodes, topics)
    shared_customers: OutFloat64Matrix
    shared_log_absent: OutFloat64Matrix
    # Filled with sum c log sum_k E[nu_j]'(k) phi'_kw, and with the number of entries of `responsibilities`; (2,)
    sums: OutFloat64Vector


class GraphArrays(NamedTuple):
    """Nodes and their edges to their parents."""

    # Kind of each node; parents before children, shared nodes first, then each document's; (nodes,)
    node_kind: Int32Vector
    node_edges: Int64Vector  # Index of each node's first edge; a root has none; (nodes + 1,)
    edge_parent: Int64Vector  # Parent that each edge leads to; (edges,)
    # Dirichlet parameter g of the mixing proportions, where a node has several parents; (edges,)
    edge_mixing: Float64Vector


class DocumentNodes(NamedTuple):
    """Nodes of each document and of its segments."""

    # Index of each document's first node and segment; (documents + 1,)
    nodes: Int64Vector
    segments: Int64Vector
    segment_node: Int64Vector  # Node from whose vector a segment's words are drawn; (segments,)
    document_node: Int64Vector  # Node of the document as a whole; -1 where there is none; (documents,)


class Hyperparameters(NamedTuple):
    """Parameters of the vectors."""

    strength: Float64Vector  # b of each kind; (kinds,)
    discount: Float64Vector  # a of each kind; (kinds,)
    alpha: Float64Vector  # Dirichlet parameters of roots; 0 in padding; (topics,)


class SamplingHyperparameters(NamedTuple):
    """Parameters of the vectors, with the Stirling ratios that sampling needs."""

    # As in `Hyperparameters`
    strength: Float64Vector
    discount: Float64Vector
    alpha: Float64Vector
    # Table of Stirling ratios of each kind's discount (`kernels.networks.stirling`); (kinds, n)
    stirling_ratios: Float64Matrix


class SegmentedDocuments(NamedTuple):
    """Documents of segments, as pairs of a word and its count."""

    nodes: Int64Vector  # Index of each document's first node; the first is the number of shared nodes; (documents + 1,)
    segments: Int64Vector  # Index of each document's first segment; (documents + 1,)
    segment_pairs: Int64Vector  # Index of each segment's first pair; (segments + 1,)
    # Node that each segment's tokens are drawn from; segments of a node are neighbours; (segments,)
    segment_node: Int64Vector
    # As in `DocumentPairs`; (pairs,)
    position: Int32Vector
    counts: Int32Vector


class TokenDraws(NamedTuple):
    """Options and random stream for drawing the topics and table paths of tokens."""

    key: UInt64Vector  # Key of the random stream; (2,)
    initialise: int  # Whether tokens have topics but no tables yet
    fold_in: int  # Whether topics and shared nodes are fixed
    levels: int  # Nodes on the longest path from a node to a root


class TableDraws(NamedTuple):
    """Options and random streams for drawing table counts, and sums for the discount's update."""

    move: int  # Whether table counts are drawn
    key: UInt64Vector  # Key of the random stream of table counts; (2,)
    count_joins: int  # Whether the customers that speak for 1 - a are drawn
    join_key: UInt64Vector  # Key of their random stream; (2,)


class TableEntries(NamedTuple):
    """Table counts of edges, one entry for each edge and topic that has tables."""

    start: Int64Vector  # Index of each edge's first entry; (edges,)
    entries: Int32Vector  # Entries of each edge; (edges,)
    topic: UInt16Vector  # Topic of each entry; (n,)
    number: Int32Vector  # Its tables; (n,)


NewTableEntries: TypeAlias = Annotated[TableEntries, Filled()]


class SampledCounts(NamedTuple):
    """Counts that a sweep moves."""

    token_topic: OutUInt16Vector  # Topic of each token; the tokens of a pair are neighbours; (tokens,)
    word_topic: OutInt32Matrix  # n_kw; (words, topics)
    topic: OutFloat64Vector  # n_k; (topics,)
    # b of a word, and B
    word_prior: float
    total_prior: float
    shared_customers: OutInt32Matrix  # m of shared nodes; (shared nodes, topics)
    shared_tables: OutInt32Matrix  # s of their edges; (edges of shared nodes, topics)


class NodeStatistics(NamedTuple):
    """Sums over nodes, for the objective and the hyperparameters' updates."""

    # Filled with M and T of each node; (nodes,)
    customers: OutInt64Vector
    tables: OutInt64Vector
    # Increased by the sums of log S^m_t and the other terms of p(n, s) of single topics, and by the customers that
    # speak for 1 - a; (kinds, 2)
    kind_sums: OutFloat64Matrix
    # Increased by the sums over roots of alpha_k (psi(alpha_k + m_k) - psi(alpha_k)); (topics,)
    alpha_numerator: OutFloat64Vector


class SweepResults(NamedTuple):
    """Results of a sweep over documents, besides the counts."""

    tables: NewTableEntries  # Tables after the sweep
    statistics: NodeStatistics  # Of the nodes of documents
    # Next document, its first token, entries of `tables` that are filled, and numbers drawn of the stream of joins;
    # (4,)
    progress: OutInt64Vector


class NodeTopicCounts(NamedTuple):
    """Topics of each node's own tokens."""

    offsets: Int64Vector  # Index of each node's first entry; (nodes of documents + 1,)
    topic: UInt16Vector  # Topics of a node, ascending; (n,)
    tokens: Int32Vector  # Tokens of each; (n,)


class Priors(NamedTuple):
    """Parameters of the vectors; see `SamplingHyperparameters`."""

    # b and a; (kinds,)
    strength: Float64Vector
    discount: Float64Vector
    alpha: Float64Vector  # Dirichlet parameters of roots; (topics,)
    concentration: float  # Their sum
    stirling_ratios: Float64Matrix  # Table of each kind; empty where nothing is sampled; (kinds, n)


class RowMap(NamedTuple):
    """Rows of counts that nodes and edges have while their document is swept.

    Shared nodes have the rows of their numbers. Nodes of the document that have children have a row each. All others,
    such as the segments of a segmented model, share one, so that a document's counts stay in the processor's nearest
    memory.
    """

    has_children: Int64Vector  # Whether a node has children, and thus a row of its own; (nodes,)
    shared: int  # Number of shared nodes
    first_node: int  # First node of the document
    # Row of each node's counts, and of its first edge's tables; (nodes of a document,)
    node_row: Int64Vector
    edge_row: Int64Vector
    # Rows of the nodes without children
    leaf_row: int
    leaf_edge_row: int


class NodeCounts(NamedTuple):
    """Counts of nodes by topic, and the weights that follow from them."""

    # m_ik and t_ik; (rows, topics)
    customers: Int32Matrix
    tables: Int32Matrix
    join_weight: Float64Matrix  # A_ik, the weight of joining a table; alpha_k + m_ik at a root; (rows, topics)
    open_weight: Float64Matrix  # B_ik, the factor of opening a table; (rows, topics)
    weight: Float64Matrix  # Z_ik, the weight of one more customer; (rows, topics)
    edge_tables: Int32Matrix  # s_ek; (rows of edges, topics)


class NodeTotals(NamedTuple):
    """Counts of nodes over all topics."""

    # M_i and T_i; (rows,)
    customers: Int64Vector
    tables: Int64Vector
    edge_tables: Int64Vector  # s_e; (rows of edges,)


class Clock(NamedTuple):
    """Times of changes, by which out-of-date weights are recognised."""

    changed: Int64Vector  # Time of the last change of each row's counts or weights; (rows,)
    # Time of the last computation of its weights; -1 where they have to be computed anew; (rows,)
    computed: Int64Vector
    now: Int64Vector  # Time of the last change of all; (1,)


class AncestorLine(NamedTuple):
    """The node whose tokens are sampled and its ancestors, descending, listed as far as their weights change."""

    nodes: Int64Vector  # The node, and the ancestors that are listed; (n,)
    size: Int64Vector  # Their number; (1,)
    waiting: Int64Vector  # Heap of the ancestors to be listed next, the greatest first; (n,)
    waiting_size: Int64Vector  # Their number; (1,)
    visited: Int64Vector  # Epoch in which each node was last put into the heap; (n,)
    epoch: Int64Vector  # Number of lines that were begun; (1,)
    # Time at which the weights of each node and of all its ancestors were up to date; -1 for never; (n,)
    verified: Int64Vector


class ChangeLog(NamedTuple):
    """Times of changes and their nodes, both ascending: a change hides earlier changes of greater nodes."""

    # Time of each change, and the topmost node that it changed; (n,)
    times: Int64Vector
    nodes: Int64Vector
    size: Int64Vector  # Number of changes; (1,)


class TablePath(NamedTuple):
    """Nodes at which a token is a customer, from its own upwards."""

    nodes: Int64Vector  # The nodes; (levels,)
    # Edge by which a table of each leads to the next; -1 where the customer sits at a table that is not opened by it,
    # or at a root; (levels,)
    edges: Int64Vector
    length: Int64Vector  # Number of nodes; (1,)


class Sampler(NamedTuple):
    """Everything that moves of tokens and tables work on."""

    graph: GraphArrays
    priors: Priors
    rows: RowMap
    counts: NodeCounts
    totals: NodeTotals
    clock: Clock
    line: AncestorLine
    log: ChangeLog
    path: TablePath


class WordWorkspace(NamedTuple):
    """Counts of words while tokens are sampled."""

    # As in `SampledCounts`
    token_topic: Int64Vector
    word_topic: Int32Matrix
    topic: Float64Vector
    word_prior: float
    total_prior: float
    inverse: Float64Vector  # 1 / (n_k + B); (topics,)
    weight: Float64Vector  # Weights of a token's topics; (topics,)
    chunk_sums: Float64Vector  # Their sums over chunks of topics; (topics / CHUNK,)


class TableCell(NamedTuple):
    """An edge whose tables of one topic are drawn."""

    # The node, and its edge to a parent
    node: int
    edge: int
    row: int  # Row of the edge's tables
    fold_in: int  # Whether shared nodes are fixed
    topic: int  # The topic


class ExpectedPriors(NamedTuple):
    """Parameters of the vectors; see `Hyperparameters`."""

    # b and a; (kinds,)
    strength: Float64Vector
    discount: Float64Vector
    alpha: Float64Vector  # Dirichlet parameters of roots; (topics,)
    concentration: float  # Their sum
    learn_alpha: int  # Positive if alpha is learned


class EdgeShares(NamedTuple):
    """Edges of a document."""

    share: Float64Vector  # rho, the expected share of a node's tables that goes to the edge's parent; (edges,)
    tables: Float64Vector  # Expected tables; (edges,)


class ExpectedTotals(NamedTuple):
    """Expected counts of nodes over all topics."""

    # E[M] and E[T]; (rows,)
    customers: Float64Vector
    tables: Float64Vector


class ExpectedDocument(NamedTuple):
    """Expected counts and vectors of the nodes of a document, and of shared nodes."""

    graph: GraphArrays  # The network
    priors: ExpectedPriors  # Parameters of the vectors
    # Arrays by node and topic (`updates.OWN` and the other names there); shared nodes come first; (9, rows,
    # topics)
    values: Float64Cube
    totals: ExpectedTotals  # Counts by node
    edges: EdgeShares  # Counts by edge
    shared: int  # Number of shared nodes
    # Nodes of the document
    first_node: int
    end_node: int


class PairWorkspace(NamedTuple):
    """Pairs whose responsibilities are updated, and arrays for it."""

    pairs: DocumentPairs  # Pairs of each node of documents
    before: Responsibilities  # The pairs' own, and below their new ones
    after: NewResponsibilities
    place: Int64Vector  # Next entry of `before`, and of `after`; (2,)
    logs: Float64Vector  # log(1 - q) of each responsibility; (UNIT + 1,)
    # E[nu_jk] of the pair's node, but for its divisor, and the weights of the pair's topics; (topics,)
    mean: Float32Vector
    weight: Float32Vector
    inverse: Float32Vector  # 1 / (B + E[n_k]); (topics,)


class NodeScale(NamedTuple):
    """Numbers of a node from which E[nu_jk] follows."""

    factor: float  # b + a T, or 1 at a root
    discount: float  # a, or 0 at a root
