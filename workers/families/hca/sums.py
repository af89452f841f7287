"""Sums over vectors of hierarchical component analysis."""

from __future__ import annotations

from dataclasses import dataclass

from collapsium.workers.arrays.state import State
from collapsium.workers.families.ncrp.tree import Vector


@dataclass(frozen=True)
class Candidates(State):
    """Candidates for the first clusters, by stable hash."""

    candidates: Vector  # Vectors of each hash; float64 (candidates,)


@dataclass(frozen=True)
class NodeSums(State):
    """Sums by column of the vectors."""

    word_node: Vector  # B of the next rows; float64 (words, columns + 1)
    word_probe: Vector | None = None  # Probes; None while there are clusters; float64 (words, columns)


@dataclass(frozen=True)
class ClusterSums(State):
    """Sums of a round of clustering."""

    cluster_counts: Vector  # Vectors of each cluster; float64 (columns,)
    products: Vector  # B'B; float64 (columns + 1, columns + 1)
    # sum |t|^2, and the number of vectors
    square: float
    documents: float


@dataclass(frozen=True)
class TreeSums(State):
    """Sums of a sweep of a tree, and of folding its rows."""

    # A = sum_n q E[x x'], and B'B; float64 (columns + 1, columns + 1)
    second: Vector
    products: Vector
    ends: Vector  # sum_n q(c_n = c); float64 (columns,)
    end_products: Vector  # sum_n q(c_n = i) q(c_n = j); float64 (columns, columns)
    # sum_n log sum_c S_nc but for constants, sum |t|^2, and sum E[x^2] outside the tree
    bound: float
    square: float
    beyond: float
    # Number of vectors, and of their values
    documents: float
    tokens: float
    # Sums of squares of the vectors along the probes, and of the new probes; float64 (columns,)
    probe_gain: Vector
    probe_square: Vector
