"""Sums over vectors of hierarchical component analysis."""

from __future__ import annotations

from dataclasses import dataclass

from collapsium.workers.arrays.state import State
from collapsium.workers.families.ncrp.tree import Vector


@dataclass(frozen=True)
class Candidates(State):
    """Candidates for the first clusters, by stable hash.

    Attributes
    ----------
    candidates : numpy.ndarray of float64, shape (candidates,)
        Vectors of each hash.
    """

    candidates: Vector


@dataclass(frozen=True)
class NodeSums(State):
    """Sums by column of the vectors.

    Attributes
    ----------
    word_node : numpy.ndarray of float64, shape (words, columns + 1)
        B of the next rows.
    word_probe : numpy.ndarray of float64, shape (words, columns), or None
        Probes; None while there are clusters.
    """

    word_node: Vector
    word_probe: Vector | None = None


@dataclass(frozen=True)
class ClusterSums(State):
    """Sums of a round of clustering.

    Attributes
    ----------
    cluster_counts : numpy.ndarray of float64, shape (columns,)
        Vectors of each cluster.
    products : numpy.ndarray of float64, shape (columns + 1, columns + 1)
        B'B.
    square, documents : float
        sum |t|^2, and the number of vectors.
    """

    cluster_counts: Vector
    products: Vector
    square: float
    documents: float


@dataclass(frozen=True)
class TreeSums(State):
    """Sums of a sweep of a tree, and of folding its rows.

    Attributes
    ----------
    second, products : numpy.ndarray of float64, shape (columns + 1, columns + 1)
        A = sum_n q E[x x'], and B'B.
    ends : numpy.ndarray of float64, shape (columns,)
        sum_n q(c_n = c).
    end_products : numpy.ndarray of float64, shape (columns, columns)
        sum_n q(c_n = i) q(c_n = j).
    bound, square, beyond : float
        sum_n log sum_c S_nc but for constants, sum |t|^2, and sum E[x^2] outside the tree.
    documents, tokens : float
        Number of vectors, and of their values.
    probe_gain, probe_square : numpy.ndarray of float64, shape (columns,)
        Sums of squares of the vectors along the probes, and of the new probes.
    """

    second: Vector
    products: Vector
    ends: Vector
    end_products: Vector
    bound: float
    square: float
    beyond: float
    documents: float
    tokens: float
    probe_gain: Vector
    probe_square: Vector
