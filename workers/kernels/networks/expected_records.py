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
    """Documents of nodes, each with the pairs of its own tokens."""

    nodes: Int64Vector  # Index of each document's first node; the first is the number of shared nodes; (documents + 1,)
    pairs: DocumentPairs  # Pairs of each node of documents


class OwnExpectedTopics(NamedTuple):
    """Expected counts of each node's own tokens."""

    offsets: Int64Vector  # Index of each node's first entry; (nodes of documents + 1,)
    topic: UInt16Vector  # Topics of a node, ascending; (n,)
    tokens: Float32Vector  # E[n_jk], the sum of c q; (n,)
    log_absent: Float32Vector  # Z[n_jk], the sum of c log(1 - q); (n,)


class NewOwnExpectedTopics(NamedTuple):
    """Expected counts that a kernel writes; as `OwnExpectedTopics`, with room for more entries than there are."""

    offsets: OutInt64Vector
    topic: OutUInt16Vector
    tokens: OutFloat32Vector
    log_absent: OutFloat32Vector


class Responsibilities(NamedTuple):
    """Sparse responsibilities of pairs, in steps of 1 / `UNIT`."""

    size: UInt8Vector  # Topics of each pair; (pairs,)
    topic: UInt16Vector  # These, pair by pair; (n,)
    share: UInt16Vector  # Their responsibilities; (n,)


class NewResponsibilities(NamedTuple):
    """Responsibilities that a kernel writes; as `Responsibilities`, with room for more entries than there are."""

    size: OutUInt8Vector
    topic: OutUInt16Vector
    share: OutUInt16Vector


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
