"""Arguments of the kernels of networks by expected tables, as named tuples; nodes are as in `records`."""

from __future__ import annotations

from typing import NamedTuple

from collapsium.workers.kernels.argument_types import (
    Float32Vector,
    Float64Matrix,
    Int64Vector,
    OutFloat32Matrix,
    OutFloat32Vector,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt64Vector,
    OutUInt8Vector,
    OutUInt16Vector,
    UInt8Vector,
    UInt16Vector,
)
from collapsium.workers.kernels.records import DocumentPairs


class NodeDocuments(NamedTuple):
    """Documents of nodes, each with the pairs of its own tokens.

    Attributes
    ----------
    nodes : int64, shape (documents + 1,)
        Index of each document's first node; the first is the number of shared nodes.
    pairs : DocumentPairs
        Pairs of each node of documents.
    """

    nodes: Int64Vector
    pairs: DocumentPairs


class OwnExpectedTopics(NamedTuple):
    """Expected counts of each node's own tokens.

    Attributes
    ----------
    offsets : int64, shape (nodes of documents + 1,)
        Index of each node's first entry.
    topic : uint16, shape (n,)
        Topics of a node, ascending.
    tokens : float32, shape (n,)
        E[n_jk], the sum of c q.
    log_absent : float32, shape (n,)
        Z[n_jk], the sum of c log(1 - q).
    """

    offsets: Int64Vector
    topic: UInt16Vector
    tokens: Float32Vector
    log_absent: Float32Vector


class NewOwnExpectedTopics(NamedTuple):
    """Expected counts that a kernel writes; as `OwnExpectedTopics`, with room for more entries than there are."""

    offsets: OutInt64Vector
    topic: OutUInt16Vector
    tokens: OutFloat32Vector
    log_absent: OutFloat32Vector


class Responsibilities(NamedTuple):
    """Sparse responsibilities of pairs, in steps of 1 / `UNIT`.

    Attributes
    ----------
    size : uint8, shape (pairs,)
        Topics of each pair.
    topic : uint16, shape (n,)
        These, pair by pair.
    share : uint16, shape (n,)
        Their responsibilities.
    """

    size: UInt8Vector
    topic: UInt16Vector
    share: UInt16Vector


class NewResponsibilities(NamedTuple):
    """Responsibilities that a kernel writes; as `Responsibilities`, with room for more entries than there are."""

    size: OutUInt8Vector
    topic: OutUInt16Vector
    share: OutUInt16Vector


class SharedVectors(NamedTuple):
    """Expected vectors of shared nodes.

    Attributes
    ----------
    mean : float64, shape (shared nodes, topics)
        E[nu].
    response : float64, shape (shared nodes, topics)
        By how much E[nu] would fall without a customer.
    """

    mean: Float64Matrix
    response: Float64Matrix


class ExpectedWordCounts(NamedTuple):
    """Expected counts of words that a sweep moves, or probabilities of words that are fixed.

    Attributes
    ----------
    word_topic : float32, shape (words, topics)
        b + E[n_kw]; moved, but for rounding as `change` is. phi_kw where words are fixed.
    topic : float64, shape (topics,)
        B + E[n_k]; moved.
    change : float64, shape (words, topics)
        Increased by the change of E[n_kw], in exact sums; (0, 0) where words are fixed.
    prior : float
        b.
    fold_in : int
        Whether words are fixed.
    """

    word_topic: OutFloat32Matrix
    topic: OutFloat64Vector
    change: OutFloat64Matrix
    prior: float
    fold_in: int


class ExpectedStatistics(NamedTuple):
    """Sums over nodes, for the hyperparameters' updates.

    Attributes
    ----------
    customers, tables : float64, shape (nodes,)
        Filled with E[M] and E[T] of each node.
    alpha_numerator : float64, shape (topics,) or (0,)
        Increased by the expected tables of the roots, whose strength is alpha_k.
    """

    customers: OutFloat64Vector
    tables: OutFloat64Vector
    alpha_numerator: OutFloat64Vector


class ExpectedSweepResults(NamedTuple):
    """Results of a sweep over responsibilities, besides the counts of words.

    Attributes
    ----------
    responsibilities : NewResponsibilities
        Of the pairs, after the sweep.
    statistics : ExpectedStatistics
        Of the nodes of documents.
    shared_customers, shared_log_absent : float64, shape (shared nodes, topics)
        Increased by the customers that documents are to shared nodes, and by their Z.
    sums : float64, shape (2,)
        Filled with sum c log sum_k E[nu_j]'(k) phi'_kw, and with the number of entries of `responsibilities`.
    """

    responsibilities: NewResponsibilities
    statistics: ExpectedStatistics
    shared_customers: OutFloat64Matrix
    shared_log_absent: OutFloat64Matrix
    sums: OutFloat64Vector
