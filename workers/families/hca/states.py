"""States and sums of hierarchical component analysis.

Probes of leaves, by which they are split.

A *probe* of each leaf is the direction along which most remains of its vectors, by power iteration, one step a sweep.
Vectors along two lines of which a leaf has the bisector lie on opposite sides of x_leaf times the residual along the
probe; clusters lie on opposite sides of the residual alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray
from collapsium.workers.arrays.delta import Part, fresh
from collapsium.workers.arrays.document_hash import vector_hashes
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import GlobalState, LocalState, Rows, State
from collapsium.workers.families.ncrp.tree import DocumentEnds, FittedTree, Ints, MoveTable, Tree, UpcomingTree, Vector

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import VectorShard


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


# Stages of a fit: candidates for the first clusters, clusters of one vector each, clusters, and a tree
CANDIDATES, SEEDING, CLUSTERS, TREE = range(4)

TRIAL_ROUNDS = 5  # Rounds of one iteration for which a split is on trial

SAVED = "saved_"


@dataclass(frozen=True)
class Loadings(State):
    """Loadings and mean as sweeps see them."""

    solve: Vector  # H: loadings are B H; float64 (columns + 1, columns + 1)
    gram: Vector  # m_i'm_j; float64 (columns + 1, columns + 1)
    spread: Vector  # s_i; float64 (columns + 1,)


@dataclass(frozen=True)
class NextLoadings(State):
    """Loadings and mean of the tree of the next sweep, with the attributes of `Loadings`."""

    next_solve: Vector
    next_gram: Vector
    next_spread: Vector

    @property
    def loadings(self) -> Loadings:
        """The same, whatever the tree."""
        return Loadings(self.next_solve, self.next_gram, self.next_spread)


@dataclass(frozen=True)
class NextSweep(State):
    """The model with which the next sweep is made."""

    upcoming: UpcomingTree  # The tree
    moves: MoveTable  # Moves that bring the rows to it
    next_loadings: NextLoadings  # Its loadings
    # E[tau] and E[log tau]
    tau: float
    log_tau: float
    kl: float  # KL(q | p) of the loadings, the mean, tau and the sticks


@dataclass(frozen=True)
class NodeMasses(State):
    """Vectors of the tree of the last sweep."""

    # Expected vectors that pass each node, and that end at it; float64 (columns,)
    node_passes: Vector
    node_ends: Vector


@dataclass(frozen=True)
class SavedTree(State):
    """State to which a rejected split goes back; its arrays have the names of its fields with the prefix ``saved_``."""

    next_sweep: NextSweep  # The next sweep as it would have been without the trial
    masses: NodeMasses  # Vectors of the tree before the trial
    node_parent: Ints  # The tree before the trial; int64 (columns,)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays by name."""
        return {f"{SAVED}{name}": values for name, values in super().to_arrays().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        """Return the state that named arrays hold."""
        return super().from_arrays(_saved(arrays))

    @classmethod
    def is_in(cls, arrays: Mapping[str, Any]) -> bool:
        """Return whether named arrays hold all of the state."""
        return super().is_in(_saved(arrays))

    @classmethod
    def array_names(cls) -> frozenset[str]:
        """Return the names of all arrays that the state may have."""
        return frozenset(f"{SAVED}{name}" for name in super().array_names())


def _saved(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(SAVED): arrays[name] for name in arrays if name.startswith(SAVED)}


@dataclass(frozen=True)
class Splits(State):
    """Splits of leaves."""

    # The leaf that the next sweep splits, the column of its other side, and whether by lines; all -1 for none; int64
    # (3,)
    split: Ints
    probe_scale: Vector  # By which the probes of the rows are scaled to length one; float64 (columns,)
    tried: Ints  # Rejected splits of each leaf; int64 (columns,)
    # Leaf whose split is on trial, -1 for none, and rounds of the trial still to come
    trial_leaf: int = -1
    trial_left: int = 0
    restoring: bool = False  # Whether the next sweep goes back to the rows and local states of before a trial
    # Bound before the trial, and before the last iteration
    trial_bound: float = 0.0
    last_bound: float = 0.0
    calm: int = 0  # Iterations since the tree has changed

    @classmethod
    def none(cls, columns: int) -> Self:
        """Return the state before any split."""
        return cls(np.full(3, -1), np.ones(columns), np.zeros(columns, dtype=np.int64))

    @property
    def begins_trial(self) -> bool:
        """True if the next sweep is the first of a trial."""
        return self.trial_left == TRIAL_ROUNDS


@dataclass(frozen=True)
class Clustering(State):
    """Progress of the clustering by which a fit starts."""

    stage: int  # `CANDIDATES`, `SEEDING`, `CLUSTERS` or `TREE`
    max_seeds: int  # Most vectors that start clusters
    seeds: Ints  # Stable hashes of the vectors that start clusters, ascending; int64 (seeds,)
    cluster_counts: Vector  # Vectors of each cluster; float64 (columns,)


@dataclass(frozen=True)
class TreeModel:
    """A tree with its loadings, to which vectors are fitted."""

    tree: Tree  # The nodes
    loadings: Loadings  # The loadings
    end_log: Vector  # Log prior mass of each end; float64 (columns,)
    without_root: bool  # Whether the tree is of chains under a root that no vector has


@dataclass(frozen=True)
class HcaGlobalState(GlobalState):
    """The trees of the last and the next sweep, with their loadings."""

    vocabulary: float  # D, the number of columns of the vectors
    documents: float  # Number of vectors
    full_depth: int  # Levels of the tree
    factorised: bool  # Whether the form is q(c) q(x), and local states have q(x)
    # Whether q(x) is updated separately by now: the factorised form begins after some sweeps with q(x | c)
    separate_factors: bool
    rounds: int  # Sweeps so far
    chain_sweeps_left: int  # Sweeps until chains are joined to a tree
    clustering: Clustering  # Progress of the start
    # The tree of the last sweep
    fitted: FittedTree
    masses: NodeMasses
    loadings: Loadings
    next_sweep: NextSweep  # The tree of the next sweep
    splits: Splits  # Splits of leaves
    another_round: bool = False  # Whether the iteration goes on with one more sweep
    saved: SavedTree | None = None  # State to which a rejected split would go back; None if no split is on trial

    @property
    def fitted_model(self) -> TreeModel:
        """The tree of the last sweep, to which rows, local states and models belong."""
        return TreeModel(self.fitted.tree, self.loadings, self.fitted.end_log, without_root=False)

    @property
    def next_model(self) -> TreeModel:
        """The tree of the next sweep."""
        upcoming, chained = self.next_sweep.upcoming, self.chain_sweeps_left > 0
        return TreeModel(upcoming.tree, self.next_sweep.next_loadings.loadings, upcoming.next_end_log, chained)


@dataclass(frozen=True)
class HcaRows(Rows):
    """Sums over vectors, with a row for each of their columns."""

    word_node: Vector  # B: sum_n q(c_n through i) E[x_i] t_n, and last sum_n t_n; float64 (words, columns + 1)
    word_saved: Vector | None = None  # The same before a trial; None in a finished model; float64 (words, columns + 1)
    word_probe: Vector | None = None  # Probes of the leaves; None in a finished model; float64 (words, columns)

    @property
    def saved(self) -> Vector:
        """Sums before a trial."""
        return _present(self.word_saved)

    @property
    def probes(self) -> Vector:
        """Probes of the leaves."""
        return _present(self.word_probe)

    def loadings(self, global_state: HcaGlobalState) -> Vector:
        """Return E[w_i] by column and, last, E[mu], shape (words, columns + 1)."""
        loadings: Vector = np.einsum("wi,ij->wj", self.word_node, global_state.loadings.solve)
        return loadings


def _present(values: Vector | None) -> Vector:
    if values is None:
        raise ValueError("expected rows of a fit, found those of a finished model")
    return values


@dataclass(frozen=True)
class VectorFactors(LocalState):
    """Paths and factors of vectors."""

    ends: DocumentEnds  # The most probable ends
    document_best: npt.NDArray[np.int32]  # Column of the most probable full path's end; int32 (vectors,)
    document_factors: Vector  # E[x | best]; float64 (vectors, depth)
    document_spread: Vector | None = None  # Covariance of q(x), in the factorised form; float64 (vectors, depth, depth)
    # The same before a trial
    document_factors_saved: Vector | None = None
    document_spread_saved: Vector | None = None


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
