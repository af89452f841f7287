"""Probes of leaves, by which they are split.

A *probe* of each leaf is the direction along which most remains of its vectors, by power iteration, one step a sweep.
Vectors along two lines of which a leaf has the bisector lie on opposite sides of x_leaf times the residual along the
probe; clusters lie on opposite sides of the residual alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray
from collapsium.workers.arrays.delta import Part, fresh
from collapsium.workers.arrays.document_hash import vector_hashes
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.hca.states import Splits

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import VectorShard

Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]


def residuals(values: Vector, mean: Vector, loadings: Vector, factors: Vector) -> Vector:
    """Return the residuals of a leaf's vectors, t - mu - W x, shape (vectors, columns)."""
    left: Vector = values - mean - np.einsum("nk,kw->nw", factors, loadings)
    return left


def projections(left: Vector, probe: Vector, address: Ints) -> Vector:
    """Return the residuals of vectors along a probe; a sign by stable hash, where there is no probe yet."""
    if not probe.any():
        return np.where(address & 1, 1.0, -1.0)
    projected: Vector = np.einsum("nw,w->n", left, probe)
    return projected


def other_side(factor: Vector, projected: Vector, *, lines: bool) -> npt.NDArray[np.bool_]:
    """Return which vectors are on the other side: of two lines, or of two clusters."""
    return (factor * projected if lines else projected) < 0.0


class LeafProbes:
    """Steps of the probes of all leaves, and the vectors of one leaf that are on its other side."""

    def __init__(self, shard: VectorShard, stream: Stream, probe: AnyArray, splits: Splits) -> None:
        self._shard, self._probe = shard, probe * splits.probe_scale
        self._address = vector_hashes(shard, stream.at(purpose="probe", iteration=0))
        self._split, self._lines = np.asarray(splits.split, dtype=np.int64)[:2], bool(splits.split[2])
        self.probes, self.gain = np.zeros(probe.shape), np.zeros(probe.shape[1])
        self.other: tuple[int, Ints] | None = None  # the column, and the vectors

    def step(self, column: int, mean: Vector, loadings: Vector, chosen: Ints, factors: Vector) -> None:
        """Step one leaf's probe, and find the vectors on its other side if it is to be split."""
        left = residuals(self._shard.values[chosen], mean, loadings, factors)
        projected = projections(left, self._probe[:, column], self._address[chosen])
        self.probes[:, column] = np.einsum("nw,n->w", left, projected)
        self.gain[column] = float((projected**2).sum())
        if column == self._split[0]:
            other = other_side(factors[:, -1], projected, lines=self._lines)
            self.other = int(self._split[1]), chosen[other]

    def parts(self) -> dict[str, Part]:
        """Return the sums of the probes."""
        return {"word_probe": fresh(self.probes, "word", "node"), "probe_gain": fresh(self.gain, "end")}
