"""Arrays that the helpers of sweeps over networks share, as named tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collapsium.workers.kernels.argument_types import (
        Float32Vector,
        Float64Cube,
        Float64Matrix,
        Float64Vector,
        Int32Matrix,
        Int64Vector,
    )
    from collapsium.workers.kernels.networks.records import GraphArrays, NewResponsibilities, Responsibilities
    from collapsium.workers.kernels.records import DocumentPairs


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
    # Arrays by node and topic (`expected_tables.OWN` and the other names there); shared nodes come first; (9, rows,
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
