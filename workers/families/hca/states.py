"""Options, states and sums of hierarchical component analysis, and probes of leaves, by which they are split.

A *probe* of each leaf is the direction along which most remains of its vectors, by power iteration, one step a sweep.
Vectors along two lines of which a leaf has the bisector lie on opposite sides of x_leaf times the residual along the
probe; clusters lie on opposite sides of the residual alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.annotations import indices, non_negative, numbers, presence_faults, size, sizes
from collapsium.workers.arrays.delta import Part, fresh
from collapsium.workers.arrays.random_streams import Stream, vector_hashes
from collapsium.workers.arrays.state import CheckContext, GlobalState, LocalState, Rows, State
from collapsium.workers.families.document_entries import MIN_POSITIVE
from collapsium.workers.families.family import FamilyOptions
from collapsium.workers.families.ncrp.tree import (
    FREE,
    MAX_DEPTH,
    DocumentEnds,
    FittedTree,
    Ints,
    MoveTable,
    Tree,
    UpcomingTree,
    Vector,
    size_faults,
    tree_faults,
)

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import VectorShard


# A probe is a sum over vectors of squares, and its scale the reciprocal of its length. Neither is limited like the sums
# of a model, whatever the unit of the vectors is; their product is finite.
MAX_PROBE, MAX_PROBE_SCALE = 1e100, 1e200

PARENTS_PER_NODE = 0.35  # Nodes of a level for each node of the level below, by default


@dataclass(frozen=True)
class Prior:
    """Variance s0 of loadings, and shape and rate of tau's Gamma distribution."""

    variance: float
    shape: float
    rate: float


class HcaOptions(FamilyOptions, title="hierarchical component analysis: a Gaussian tree on vectors, variational"):
    """Options of the family."""

    drawn = ("branching", "loading_scale", "noise_scale")
    depth: int = Field(
        2,
        ge=1,
        le=8,
        description="number of levels L of the tree; a vector is explained by one component of each level",
    )
    max_nodes: int = Field(30, ge=1, le=1024, description="largest number of nodes of the tree")
    gamma: float = Field(
        1.0,
        gt=0,
        description="concentration of the nested Chinese restaurant process: larger values give a node more children",
    )
    form: Literal["conditional", "factorised"] = Field(
        "conditional",
        description="variational family: conditional, q(c) q(x | c), the tighter bound; factorised, q(c) "
        "q(x), as in Wang and Blei",
    )
    prior_variance: float = Field(1000.0, gt=0, description="prior variance s0 of each loading, and of the mean")
    tau_shape: float = Field(0.001, gt=0, description="shape of the Gamma prior of tau, the precision of the noise")
    tau_rate: float = Field(0.001, gt=0, description="rate of the Gamma prior of tau")
    prune: float = Field(1e-6, ge=0, description="remove a node whose expected number of vectors is smaller")
    merge: float = Field(
        0.95, gt=0, le=1, description="merge two sibling leaves if the cosine of their vectors is larger; 1: never"
    )
    split: bool = Field(True, description="try to split leaves; in a full tree, together with a merge elsewhere (SMEM)")
    compare: bool = Field(True, description="merge siblings if that raises the bound")
    branching: tuple[int, ...] = Field(
        (3,),
        description="simulate: children of each node, one number for all levels but the last, or a list with "
        "one number for each",
    )
    loading_scale: float = Field(3.0, gt=0, description="simulate: standard deviation of the loadings and the mean")
    noise_scale: float = Field(0.3, gt=0, description="simulate: standard deviation of the noise")

    @field_validator("branching")
    @classmethod
    def _above_zero(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 1:
            raise ValueError(f"expected numbers above zero, found {list(value)}")
        return value

    @model_validator(mode="after")
    def _a_node_a_level(self) -> HcaOptions:
        if self.max_nodes < self.depth:
            raise OptionError(f"expected at least {self.depth}, one per level, found {self.max_nodes}", "max_nodes")
        if len(self.branching) not in (1, self.depth - 1):
            raise OptionError(f"expected 1 value or {self.depth - 1}, found {len(self.branching)}", "branching")
        return self

    def prior(self) -> Prior:
        """Return the priors."""
        return Prior(self.prior_variance, self.tau_shape, self.tau_rate)

    def sizes(self) -> list[int]:
        """Return the initial number of nodes of each level: a root, and as many leaves as leave room for the others."""
        for leaves in range(self.max_nodes, 0, -1):
            above = [
                max(1, round(leaves * PARENTS_PER_NODE ** (self.depth - 1 - level)))
                for level in range(1, self.depth - 1)
            ]
            sizes = [1, *above, leaves][-self.depth :] if self.depth > 1 else [1]
            if sum(sizes) <= self.max_nodes:
                return [*sizes[:-1], sizes[-1] + self.max_nodes - sum(sizes)] if self.depth > 1 else sizes
        return [1] * self.depth


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


@dataclass(frozen=True)
class Loadings(State):
    """Loadings and mean as sweeps see them."""

    solve: Annotated[Vector, numbers("topic+1 topic+1")]  # H: loadings are B H
    gram: Annotated[Vector, numbers("topic+1 topic+1")]  # m_i'm_j
    spread: Annotated[Vector, non_negative("topic+1")]  # s_i


class NextLoadings(Loadings):
    """Loadings and mean of the tree of the next sweep; its arrays have the names of its fields with a prefix."""

    PREFIX = "next_"


@dataclass(frozen=True)
class NextSweep(State):
    """The model with which the next sweep is made."""

    upcoming: Annotated[UpcomingTree, sizes(next_end="end")]  # The tree
    moves: Annotated[MoveTable, sizes(column="next+1")]  # Moves that bring the rows to it
    next_loadings: NextLoadings  # Its loadings
    # E[tau] and E[log tau]
    tau: Annotated[float, numbers(low=MIN_POSITIVE)]
    log_tau: float
    kl: float  # KL(q | p) of the loadings, the mean, tau and the sticks


@dataclass(frozen=True)
class NodeMasses(State):
    """Vectors of the tree of the last sweep."""

    # Expected vectors that pass each node, and that end at it
    node_passes: Annotated[Vector, numbers("topic")]
    node_ends: Annotated[Vector, numbers("topic")]


@dataclass(frozen=True)
class SavedTree(State):
    """State that is restored if a split is rejected; its arrays have the names of its fields with a prefix."""

    PREFIX = "saved_"

    next_sweep: NextSweep  # The next sweep as it would have been without the trial
    masses: NodeMasses  # Vectors of the tree before the trial
    # The tree before the trial
    node_parent: Annotated[Ints, indices("topic", below="topic", low=FREE)]

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of parents that do not form a tree."""
        yield from super().faults(context)
        yield from tree_faults(self.node_parent, context.sizes["full_depth"], "node_parent")


@dataclass(frozen=True)
class Splits(State):
    """Splits of leaves."""

    # The leaf that the next sweep splits, the column of its other side, and whether by lines; all -1 for none
    split: Annotated[Ints, indices("3", below="next", low=-1)]
    # By which the probes of the rows are scaled to length one
    probe_scale: Annotated[Vector, numbers("cluster", 0, MAX_PROBE_SCALE)]
    tried: Annotated[Ints, non_negative("cluster")]  # Rejected splits of each leaf
    # Leaf whose split is on trial, -1 for none, and rounds of the trial still to come
    trial_leaf: Annotated[int, indices("", below="next", low=-1)] = -1
    trial_left: Annotated[int, numbers(low=0)] = 0
    restoring: bool = False  # Whether the next sweep restores the rows and local states from before a trial
    # Bound before the trial, and before the last iteration
    trial_bound: float = 0.0
    last_bound: float = 0.0
    calm: Annotated[int, numbers(low=0)] = 0  # Iterations since the tree has changed

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

    stage: Annotated[int, numbers("", CANDIDATES, TREE)]  # `CANDIDATES`, `SEEDING`, `CLUSTERS` or `TREE`
    max_seeds: Annotated[int, numbers(low=0)]  # Most vectors that start clusters
    # Stable hashes of the vectors that start clusters, ascending
    seeds: Annotated[Ints, numbers("seed", -np.inf, np.inf, dtypes="i8 u8")]
    cluster_counts: Annotated[Vector, numbers("cluster")]  # Vectors of each cluster


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

    vocabulary: Annotated[float, numbers(low=MIN_POSITIVE)]  # D, the number of columns of the vectors
    documents: float  # Number of vectors
    full_depth: Annotated[int, size("full_depth", 1, MAX_DEPTH)]  # Levels of the tree
    factorised: bool  # Whether the form is q(c) q(x), and local states have q(x)
    # Whether q(x) is updated separately by now: the factorised form begins after some sweeps with q(x | c)
    separate_factors: bool
    rounds: Annotated[int, numbers(low=0)]  # Sweeps so far
    chain_sweeps_left: Annotated[int, numbers(low=0)]  # Sweeps until chains are joined to a tree
    clustering: Clustering  # Progress of the start
    # The tree of the last sweep
    fitted: FittedTree
    masses: NodeMasses
    loadings: Loadings
    next_sweep: NextSweep  # The tree of the next sweep
    splits: Splits  # Splits of leaves
    another_round: bool = False  # Whether the iteration continues with one more sweep
    # State that is restored if the split is rejected; None if no split is on trial
    saved: Annotated[SavedTree | None, sizes(move="saved_move")] = None

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield a fault unless each node has the prior mass of its end; a simulated tree has room for more."""
        yield from super().faults(context)
        ends, nodes = self.fitted.end_log.size, self.fitted.node_parent.size
        if ends < nodes:
            yield f"expected {nodes} numbers in 'end_log', found {ends}"


@dataclass(frozen=True)
class HcaRows(Rows):
    """Sums over vectors, with a row for each of their columns."""

    # B: sum_n q(c_n through i) E[x_i] t_n, and last sum_n t_n
    word_node: Annotated[Vector, numbers("word topic+1")]
    # The same before a trial; None in a finished model
    word_saved: Annotated[Vector | None, numbers("word topic+1")] = None
    # Probes of the leaves; None in a finished model
    word_probe: Annotated[Vector | None, numbers("word topic", -MAX_PROBE, MAX_PROBE)] = None

    @classmethod
    def stored(cls, context: CheckContext) -> set[str]:
        """Return the arrays on disk."""
        return {"word_node"} if context.finished else {"word_node", "word_saved", "word_probe"}

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of the trees of a fit, which have the same columns."""
        yield from super().faults(context)
        if context.finished:
            return
        global_state = context.global_state
        yield from size_faults(global_state.fitted, global_state.next_sweep.upcoming)
        columns, clusters = global_state.fitted.node_parent.size, global_state.clustering.cluster_counts.size
        if clusters != columns:
            yield f"expected {columns} columns in 'cluster_counts' of the global state"

    def loadings(self, global_state: HcaGlobalState) -> Vector:
        """Return E[w_i] by column and, last, E[mu], shape (words, columns + 1)."""
        loadings: Vector = np.einsum("wi,ij->wj", self.word_node, global_state.loadings.solve)
        return loadings


@dataclass(frozen=True)
class VectorFactors(LocalState):
    """Paths and factors of vectors."""

    ends: DocumentEnds  # The most probable ends
    # Column of the most probable full path's end
    document_best: Annotated[npt.NDArray[np.int32], indices("document", below="topic")]
    document_factors: Annotated[Vector, numbers("document full_depth")]  # E[x | best]
    # Covariance of q(x), in the factorised form
    document_spread: Annotated[Vector | None, numbers("document full_depth full_depth")] = None
    # The same before a trial
    document_factors_saved: Annotated[Vector | None, numbers("document full_depth")] = None
    document_spread_saved: Annotated[Vector | None, numbers("document full_depth full_depth")] = None

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of paths to columns that are no nodes, and of covariances without the factorised form."""
        yield from super().faults(context)
        if (context.global_state.fitted.node_parent[self.document_best] == FREE).any():
            yield "expected columns of nodes in 'document_best'"
        factorised = context.global_state.factorised
        yield from presence_faults(self.document_spread, "document_spread", expected=factorised)
        if self.document_spread_saved is not None:
            yield from presence_faults(self.document_spread_saved, "document_spread_saved", expected=factorised)


def residuals(values: Vector, mean: Vector, loadings: Vector, factors: Vector) -> Vector:
    """Return the residuals of a leaf's vectors, t - mu - W x, shape (vectors, columns)."""
    left: Vector = values - mean - np.einsum("nk,kw->nw", factors, loadings)
    return left


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
        self.other_side: tuple[int, Ints] | None = None  # the column, and the vectors

    def step(self, column: int, mean: Vector, loadings: Vector, chosen: Ints, factors: Vector) -> None:
        """Step one leaf's probe, and find the vectors on its other side if it is to be split."""
        left, probe = residuals(self._shard.values[chosen], mean, loadings, factors), self._probe[:, column]
        # Where there is no probe yet, the projection is a sign by stable hash.
        projected = np.einsum("nw,w->n", left, probe) if probe.any() else np.where(self._address[chosen] & 1, 1.0, -1.0)
        self.probes[:, column] = np.einsum("nw,n->w", left, projected)
        self.gain[column] = float((projected**2).sum())
        if column == self._split[0]:
            is_other = other_side(factors[:, -1], projected, lines=self._lines)
            self.other_side = int(self._split[1]), chosen[is_other]

    def parts(self) -> dict[str, Part]:
        """Return the sums of the probes."""
        return {"word_probe": fresh(self.probes, "word", "node"), "probe_gain": fresh(self.gain, "end")}
