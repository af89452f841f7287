"""Vectors of a leaf, on two sides of it: what a split of the leaf begins from.

A *probe* of each leaf is the direction along which most is left of its vectors, by power iteration, one step a sweep.
Vectors along two lines of which a leaf has the bisector lie on opposite sides of x_leaf times what is left along the
probe; clusters lie on opposite sides of what is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.delta import Arrays, Part, fresh
from collapsium.workers.arrays.document_hash import vector_addresses
from collapsium.workers.arrays.random_streams import Stream

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import VectorShard

Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]

ROUNDS = 5  # that a split is on trial


def left_over(values: Vector, mean: Vector, loadings: Vector, factors: Vector) -> Vector:
    """Return what a leaf's components leave of its vectors, t - mu - W x, shape (vectors, columns)."""
    found: Vector = values - mean - np.einsum("nk,kw->nw", factors, loadings)
    return found


def along(left: Vector, probe: Vector, address: Ints) -> Vector:
    """Return what is left of each vector along a probe; a sign by its address, where there is no probe yet."""
    if not probe.any():
        return np.where(address & 1, 1.0, -1.0)
    found: Vector = np.einsum("nw,w->n", left, probe)
    return found


def sides(factor: Vector, projected: Vector, *, lines: bool) -> npt.NDArray[np.bool_]:
    """Say which vectors are on the other side: of two lines, or of two clusters."""
    return (factor * projected if lines else projected) < 0.0


class Parting:
    """Steps of the probes of all leaves, and the part of one leaf that is on its other side.

    Parameters
    ----------
    shard : VectorShard
        The vectors.
    stream : Stream
        Addressed to the shard.
    probe : numpy.ndarray of float64, shape (columns of the vectors, columns)
        The probes so far.
    globals : Arrays
        With ``probe_scale`` and ``split``: the leaf to part, the column that takes up its other side, and how.
    """

    def __init__(self, shard: VectorShard, stream: Stream, probe: npt.NDArray[Any], globals: Arrays) -> None:
        self._shard, self._probe = shard, probe * globals["probe_scale"]
        self._address = vector_addresses(shard, stream.at(purpose="probe", iteration=0))
        self._split, self._lines = np.asarray(globals["split"], dtype=np.int64)[:2], bool(globals["split"][2])
        self.probes, self.gain = np.zeros(probe.shape), np.zeros(probe.shape[1])
        self.other: tuple[int, Ints] | None = None  # the column, and the vectors

    def leaf(self, column: int, mean: Vector, loadings: Vector, chosen: Ints, factors: Vector) -> None:
        """Step one leaf's probe, and part its vectors if they shall be.

        Parameters
        ----------
        column : int
            The leaf's.
        mean, loadings : numpy.ndarray of float64, shape (columns,) and (depth, columns)
            E[mu], and E[w] along the path.
        chosen : numpy.ndarray of int64
            The vectors whose best path it is.
        factors : numpy.ndarray of float64, shape (chosen, depth)
            E[x] of these.
        """
        left = left_over(self._shard.values[chosen], mean, loadings, factors)
        projected = along(left, self._probe[:, column], self._address[chosen])
        self.probes[:, column] = np.einsum("nw,n->w", left, projected)
        self.gain[column] = float((projected**2).sum())
        if column == self._split[0]:
            other = sides(factors[:, -1], projected, lines=self._lines)
            self.other = int(self._split[1]), chosen[other]

    def parts(self) -> dict[str, Part]:
        """Return what is told of the probes."""
        return {"word_probe": fresh(self.probes, "word", "node"), "probe_gain": fresh(self.gain, "end")}
