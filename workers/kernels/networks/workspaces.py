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
    from collapsium.workers.kernels.networks.expected_records import NewResponsibilities, Responsibilities
    from collapsium.workers.kernels.networks.records import GraphArrays
    from collapsium.workers.kernels.records import DocumentPairs


class Priors(NamedTuple):
    """Parameters of the vectors; see `SamplingHyperparameters`.

    Attributes
    ----------
    strength, discount : float64, shape (kinds,)
        b and a.
    alpha : float64, shape (topics,)
        Dirichlet parameters of roots.
    concentration : float
        Their sum.
    stirling_ratios : float64, shape (kinds, n)
        Table of each kind; empty where nothing is sampled.
    """

    strength: Float64Vector
    discount: Float64Vector
    alpha: Float64Vector
    concentration: float
    stirling_ratios: Float64Matrix


class RowMap(NamedTuple):
    """Rows of counts that nodes and edges have while their document is swept.

    Shared nodes have the rows of their numbers. Nodes of the document that have children have a row each. All others,
    such as the segments of a segmented model, share one, so that a document's counts stay in the processor's nearest
    memory.

    Attributes
    ----------
    has_children : int64, shape (nodes,)
        Whether a node has children, and thus a row of its own.
    shared : int
        Number of shared nodes.
    first_node : int
        First node of the document.
    node_row, edge_row : int64, shape (nodes of a document,)
        Row of each node's counts, and of its first edge's tables.
    leaf_row, leaf_edge_row : int
        Rows of the nodes without children.
    """

    has_children: Int64Vector
    shared: int
    first_node: int
    node_row: Int64Vector
    edge_row: Int64Vector
    leaf_row: int
    leaf_edge_row: int


class NodeCounts(NamedTuple):
    """Counts of nodes by topic, and the weights that follow from them.

    Attributes
    ----------
    customers, tables : int32, shape (rows, topics)
        m_ik and t_ik.
    join_weight : float64, shape (rows, topics)
        A_ik, the weight of joining a table; alpha_k + m_ik at a root.
    open_weight : float64, shape (rows, topics)
        B_ik, the factor of opening a table.
    weight : float64, shape (rows, topics)
        Z_ik, the weight of one more customer.
    edge_tables : int32, shape (rows of edges, topics)
        s_ek.
    """

    customers: Int32Matrix
    tables: Int32Matrix
    join_weight: Float64Matrix
    open_weight: Float64Matrix
    weight: Float64Matrix
    edge_tables: Int32Matrix


class NodeTotals(NamedTuple):
    """Counts of nodes over all topics.

    Attributes
    ----------
    customers, tables : int64, shape (rows,)
        M_i and T_i.
    edge_tables : int64, shape (rows of edges,)
        s_e.
    """

    customers: Int64Vector
    tables: Int64Vector
    edge_tables: Int64Vector


class Clock(NamedTuple):
    """Times of changes, by which out-of-date weights are recognised.

    Attributes
    ----------
    changed : int64, shape (rows,)
        Time of the last change of each row's counts or weights.
    computed : int64, shape (rows,)
        Time of the last computation of its weights; -1 where they have to be computed anew.
    now : int64, shape (1,)
        Time of the last change of all.
    """

    changed: Int64Vector
    computed: Int64Vector
    now: Int64Vector


class AncestorLine(NamedTuple):
    """The node whose tokens are sampled and its ancestors in descending order, listed as far as their weights change.

    Attributes
    ----------
    nodes : int64, shape (n,)
        The node, and the ancestors that are listed.
    size : int64, shape (1,)
        Their number.
    waiting : int64, shape (n,)
        Heap of the ancestors to be listed next, the greatest first.
    waiting_size : int64, shape (1,)
        Their number.
    visited : int64, shape (n,)
        Epoch in which each node was last put into the heap.
    epoch : int64, shape (1,)
        Number of lines that were begun.
    verified : int64, shape (n,)
        Time at which the weights of each node and of all its ancestors were up to date; -1 for never.
    """

    nodes: Int64Vector
    size: Int64Vector
    waiting: Int64Vector
    waiting_size: Int64Vector
    visited: Int64Vector
    epoch: Int64Vector
    verified: Int64Vector


class ChangeLog(NamedTuple):
    """Times of changes and the nodes that were changed, both ascending: a change hides those of greater nodes before.

    Attributes
    ----------
    times, nodes : int64, shape (n,)
        Time of each change, and the topmost node that it changed.
    size : int64, shape (1,)
        Number of changes.
    """

    times: Int64Vector
    nodes: Int64Vector
    size: Int64Vector


class TablePath(NamedTuple):
    """Nodes at which a token is a customer, from its own upwards.

    Attributes
    ----------
    nodes : int64, shape (levels,)
        The nodes.
    edges : int64, shape (levels,)
        Edge by which a table of each leads to the next; -1 where the customer sits at a table that is not opened by
        it, or at a root.
    length : int64, shape (1,)
        Number of nodes.
    """

    nodes: Int64Vector
    edges: Int64Vector
    length: Int64Vector


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
    """Counts of words while tokens are sampled.

    Attributes
    ----------
    token_topic, word_topic, topic, word_prior, total_prior
        As in `SampledCounts`.
    inverse : float64, shape (topics,)
        1 / (n_k + B).
    weight : float64, shape (topics,)
        Weights of a token's topics.
    chunk_sums : float64, shape (topics / CHUNK,)
        Their sums over chunks of topics.
    """

    token_topic: Int64Vector
    word_topic: Int32Matrix
    topic: Float64Vector
    word_prior: float
    total_prior: float
    inverse: Float64Vector
    weight: Float64Vector
    chunk_sums: Float64Vector


class TableCell(NamedTuple):
    """An edge whose tables of one topic are drawn.

    Attributes
    ----------
    node, edge : int
        The node, and its edge to a parent.
    row : int
        Row of the edge's tables.
    fold_in : int
        Whether shared nodes are fixed.
    topic : int
        The topic.
    """

    node: int
    edge: int
    row: int
    fold_in: int
    topic: int


class ExpectedPriors(NamedTuple):
    """Parameters of the vectors; see `Hyperparameters`.

    Attributes
    ----------
    strength, discount : float64, shape (kinds,)
        b and a.
    alpha : float64, shape (topics,)
        Dirichlet parameters of roots.
    concentration : float
        Their sum.
    learn_alpha : int
        Positive if alpha is learned.
    """

    strength: Float64Vector
    discount: Float64Vector
    alpha: Float64Vector
    concentration: float
    learn_alpha: int


class EdgeShares(NamedTuple):
    """Edges of a document.

    Attributes
    ----------
    share : float64, shape (edges,)
        rho, the expected share of a node's tables that goes to the edge's parent.
    tables : float64, shape (edges,)
        Expected tables.
    """

    share: Float64Vector
    tables: Float64Vector


class ExpectedTotals(NamedTuple):
    """Expected counts of nodes over all topics.

    Attributes
    ----------
    customers, tables : float64, shape (rows,)
        E[M] and E[T].
    """

    customers: Float64Vector
    tables: Float64Vector


class ExpectedDocument(NamedTuple):
    """Expected counts and vectors of the nodes of a document, and of shared nodes.

    Attributes
    ----------
    graph : GraphArrays
        The network.
    priors : ExpectedPriors
        Parameters of the vectors.
    values : float64, shape (9, rows, topics)
        Arrays by node and topic (`expected_tables.OWN` and the other names there); shared nodes come first.
    totals : ExpectedTotals
        Counts by node.
    edges : EdgeShares
        Counts by edge.
    shared : int
        Number of shared nodes.
    first_node, end_node : int
        Nodes of the document.
    """

    graph: GraphArrays
    priors: ExpectedPriors
    values: Float64Cube
    totals: ExpectedTotals
    edges: EdgeShares
    shared: int
    first_node: int
    end_node: int


class PairWorkspace(NamedTuple):
    """Pairs whose responsibilities are updated, and arrays for it.

    Attributes
    ----------
    pairs : DocumentPairs
        Pairs of each node of documents.
    before, after : Responsibilities and NewResponsibilities
        Of the pairs.
    place : int64, shape (2,)
        Next entry of `before`, and of `after`.
    logs : float64, shape (UNIT + 1,)
        log(1 - q) of each responsibility.
    mean, weight : float32, shape (topics,)
        E[nu_jk] of the pair's node, but for its divisor, and the weights of the pair's topics.
    inverse : float32, shape (topics,)
        1 / (B + E[n_k]).
    """

    pairs: DocumentPairs
    before: Responsibilities
    after: NewResponsibilities
    place: Int64Vector
    logs: Float64Vector
    mean: Float32Vector
    weight: Float32Vector
    inverse: Float32Vector


class NodeScale(NamedTuple):
    """Numbers of a node from which E[nu_jk] follows.

    Attributes
    ----------
    factor : float
        b + a T, or 1 at a root.
    discount : float
        a, or 0 at a root.
    """

    factor: float
    discount: float
