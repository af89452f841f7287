"""Trees of nodes as model states hold them, and as kernels take them.

A node is a column of the rows, which is its id; `FREE` columns have none. The parent of each node is a column,
`ROOT` for the root in column 0. All full paths have ``depth`` nodes. Every node is also an *end*: the end at a leaf is
the full path to it, the end at an inner node stands for all full paths that leave the tree below it, which are alike
and are summed in closed form.

Nodes are added and removed between sweeps. A model state holds the tree of the last sweep (`FittedTree`), to which rows
and local states belong, the tree of the next sweep (`UpcomingTree`), and the moves by which rows are brought to it
(`MoveTable`).

The driver computes the sticks of the nested Chinese restaurant process, and the masses of paths outside the tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import OptionError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.annotations import indices, numbers, offsets, size
from collapsium.workers.arrays.state import CheckContext, State
from collapsium.workers.families.family import FamilyOptions
from collapsium.workers.options import Formerly
from collapsium.workers.special_functions import betaln, digamma

# Default alpha of the first levels; default eta of the levels above the leaves, and of the leaves
ALPHAS, ETAS = (50.0, 20.0, 10.0), (0.2, 0.1)
Learned = Literal["alpha", "eta", "gamma"]


class NcrpOptions(FamilyOptions, title="nested Chinese restaurant process: a tree of topics, variational"):
    """Options of `Ncrp`."""

    drawn = ("branching",)
    depth: int = Field(
        3, ge=2, le=8, description="number of levels L of the tree; each document has one path of L nodes"
    )
    max_nodes: int = Field(400, ge=2, le=4096, description="largest number of nodes of the tree")
    leaves: int | None = Field(
        None,
        ge=1,
        lt=1 << 31,
        description="number of documents from which the initial clusters start, each of which becomes a leaf "
        "(default: half of the documents, at most 300). It is limited to four fifths of `max_nodes`, or to half of "
        "`max_nodes` with `initial_tree` gradual",
    )
    alpha: tuple[float, ...] = Field(
        (),
        description="Dirichlet parameters of the level proportions, a list with one for each level (default: "
        "50, 20, 10, 5, ...)",
    )
    eta: tuple[float, ...] = Field(
        (),
        description="Dirichlet parameter of each word in a node's topic: one value, or a list with one for "
        "each level (default: 0.2, and 0.1 at leaves; 1 with `posterior` dirichlet)",
    )
    gamma: float = Field(
        1.0,
        gt=0,
        description="concentration of the nested Chinese restaurant process: larger values give a node more children",
    )
    form: Literal["conditional", "factorised"] = Field(
        "conditional",
        description="variational family: conditional, q(c) q(z | c), the tighter bound; factorised, q(c) "
        "q(z), as in Wang and Blei",
    )
    posterior: Literal["point", "dirichlet"] = Field(
        "point",
        description="posterior of the topics: point, the most probable value, which predicts better; dirichlet, a full "
        "posterior as in Wang and Blei, which uses fewer nodes",
    )
    initial_tree: Annotated[Literal["clustering", "gradual"], Formerly("start")] = Field(
        "clustering",
        description="clustering, documents are clustered into leaves and these into groups; "
        "gradual, the documents are admitted over the first iterations, at least twice as many "
        "each time, and some open new paths, as in Wang and Blei",
    )
    learn: tuple[Learned, ...] = Field(
        (), description="hyperparameters to learn: alpha, eta (with `posterior` dirichlet), gamma"
    )
    document_sweeps: int = Field(1, ge=1, lt=1 << 31, description="passes over a document in an iteration")
    new_paths: Annotated[int | None, Formerly("grow")] = Field(
        None,
        ge=0,
        lt=1 << 31,
        description="number of documents in an iteration that may open a new path, drawn from their q(c) "
        "(default: 0, or 2 with `initial_tree` gradual)",
    )
    prune: float = Field(1e-6, ge=0, description="remove a node whose expected number of documents is smaller")
    merge: float = Field(
        0.95, gt=0, le=1, description="merge two sibling leaves if the cosine of their documents is larger; 1: never"
    )
    compare: bool = Field(True, description="every fifth iteration, merge siblings if that raises the evidence")
    branching: tuple[int, ...] = Field(
        (3,),
        description="simulate: children of each node, one number for all levels but the last, or a list with "
        "one number for each",
    )

    @field_validator("alpha", "eta", "branching")
    @classmethod
    def _above_zero(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if any(not value > 0 for value in values):
            raise ValueError(f"expected numbers above zero, found {list(values)}")
        return values

    @model_validator(mode="after")
    def _one_a_level(self) -> NcrpOptions:
        if self.alpha and len(self.alpha) != self.depth:
            raise OptionError(f"expected {self.depth} values, one per level, found {len(self.alpha)}", "alpha")
        if self.eta and len(self.eta) not in (1, self.depth):
            raise OptionError(f"expected 1 value or {self.depth}, one per level, found {len(self.eta)}", "eta")
        if len(self.branching) not in (1, self.depth - 1):
            raise OptionError(f"expected 1 value or {self.depth - 1}, found {len(self.branching)}", "branching")
        if "eta" in self.learn and self.posterior == "point":
            raise OptionError("eta can be learned only with `posterior` dirichlet", "learn")
        if self.max_nodes < self.depth:
            raise OptionError(f"expected at least {self.depth}, one per level, found {self.max_nodes}", "max_nodes")
        return self

    def growing(self) -> int:
        """Return at how many documents the tree may grow."""
        return self.new_paths if self.new_paths is not None else 2 if self.initial_tree == "gradual" else 0

    def alphas(self) -> npt.NDArray[np.float64]:
        """Return alpha of each level."""
        more = tuple(ALPHAS[-1] * 0.5**n for n in range(1, self.depth))
        return np.array(self.alpha or (ALPHAS + more)[: self.depth])

    def etas(self) -> npt.NDArray[np.float64]:
        """Return eta of each level."""
        if self.eta:
            return np.array(self.eta if len(self.eta) > 1 else self.eta * self.depth)
        if self.posterior == "dirichlet":
            return np.ones(self.depth)
        return np.array([ETAS[0]] * (self.depth - 1) + [ETAS[1]])


SampledLearned = Literal["eta", "alpha", "gamma"]


class GibbsNcrpOptions(FamilyOptions, title="nested Chinese restaurant process: a tree of topics, Gibbs sampling"):
    """Options of `GibbsNcrp`."""

    drawn = ("branching",)
    depth: int = Field(3, ge=2, le=8, description="number of levels L of the tree, root and leaves included")
    eta: tuple[float, ...] = Field(
        (0.1,),
        description="Dirichlet parameter eta of each word at a node: one value, or a list with one for each "
        "level; smaller values give more nodes",
    )
    alpha: tuple[float, ...] = Field(
        (1.0,),
        description="Dirichlet parameter alpha of each level in a document: one value, or a list with one for "
        "each level",
    )
    gamma: float = Field(
        1.0, gt=0, description="concentration of the nested Chinese restaurant process; larger values give more nodes"
    )
    learn: tuple[SampledLearned, ...] = Field(
        ("eta", "alpha", "gamma"),
        description="hyperparameters to sample: eta, alpha, gamma. Each starts at its option, which is the "
        "mean of its exponential prior; eta and alpha have one value for each level",
    )
    entry: Literal["apart", "together"] = Field(
        "apart",
        description="initial path of a document: apart, a new path; together, the path that best fits its words, "
        "which ends with fewer nodes",
    )
    branching: tuple[int, ...] = Field(
        (3,),
        description="simulate: children of each node, one number for all levels but the last, or a list with "
        "one number for each",
    )

    @field_validator("eta", "alpha", "branching")
    @classmethod
    def _above_zero(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value or min(value) < 1e-9:
            raise ValueError(f"expected numbers above zero, found {list(value)}")
        return value

    @model_validator(mode="after")
    def _as_many_as_levels(self) -> GibbsNcrpOptions:
        for name, expected in (("eta", self.depth), ("alpha", self.depth), ("branching", self.depth - 1)):
            if len(getattr(self, name)) not in (1, expected):
                raise OptionError(f"expected 1 value or {expected}, found {len(getattr(self, name))}", name)
        return self


Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]

ROOT, FREE = -1, -2  # in place of a parent
NOWHERE = -1  # source of a column that starts empty

MAX_DEPTH = 100  # Most levels of a tree, far more than any option allows
MIN_MASS = 1e-12  # Least probability of a stored end, which is the largest of a document, or not far below it
MIN_LOG = -1e300  # Logarithm of a prior mass of zero, as the families write it
MAX_END_LOG = 1e3  # Largest logarithm of a prior mass, which vectors' masses, not being normalised, may reach


@dataclass(frozen=True)
class Tree:
    """A tree over columns."""

    parents: Ints  # Column of each node's parent; `ROOT` for column 0, `FREE` where there is no node; int64 (columns,)
    depth: int  # Nodes of a full path

    @cached_property
    def levels(self) -> Ints:
        """Level of each column, 0 for the root; -1 where there is no node."""
        levels = np.full(self.parents.size, -1, dtype=np.int64)
        levels[0] = 0
        for level in range(1, self.depth):
            below = np.flatnonzero(self.parents >= 0)
            levels[below[levels[self.parents[below]] == level - 1]] = level
        return levels

    @cached_property
    def columns(self) -> Ints:
        """Columns of the nodes, level by level and ascending within: parents come before their children."""
        nodes = np.flatnonzero(self.levels >= 0)
        return nodes[np.argsort(self.levels[nodes], kind="stable")]

    @cached_property
    def places(self) -> Ints:
        """Place of each column's node among `columns`; -1 where there is no node."""
        places = np.full(self.parents.size, -1, dtype=np.int64)
        places[self.columns] = np.arange(self.columns.size)
        return places

    @cached_property
    def parent(self) -> Ints:
        """Place of the parent of each node in `columns`; -1 for the root."""
        above = self.parents[self.columns]
        return np.where(above >= 0, self.places[above], ROOT)

    @cached_property
    def level(self) -> Ints:
        """Level of each node in `columns`."""
        return self.levels[self.columns]

    def children(self, column: int) -> Ints:
        """Columns of a node's children, ascending."""
        return np.flatnonzero(self.parents == column)

    def gathered(self, ends: Vector) -> Vector:
        """Add the mass of each end to all nodes above it: return the mass that passes each node; both by columns."""
        passes = np.where(self.levels >= 0, ends, 0.0)
        for level in range(self.depth - 1, 0, -1):
            nodes = np.flatnonzero(self.levels == level)
            np.add.at(passes, self.parents[nodes], passes[nodes])
        return passes

    def path(self, column: int) -> list[int]:
        """Columns from the root down to a node."""
        path = [int(column)]
        while self.parents[path[-1]] >= 0:
            path.append(int(self.parents[path[-1]]))
        return path[::-1]

    def paths(self) -> Ints:
        """Columns of each column's path, shape (columns, depth); -1 beyond its end, and where there is no node."""
        paths = np.full((self.parents.size, self.depth), -1, dtype=np.int64)
        for column in self.columns:
            level = self.levels[column]
            if level:
                paths[column, :level] = paths[self.parents[column], :level]
            paths[column, level] = column
        return paths


def tree_faults(parents: AnyArray, depth: int, name: str) -> Iterator[str]:
    """Yield the fault of parents that do not form a tree of a depth."""
    columns = np.asarray(parents)
    if not columns.size or columns[0] != ROOT or (columns[1:] == ROOT).any():
        yield f"expected the root in the first column of '{name}', and no other"
    lost = np.flatnonzero((columns != FREE) & (Tree(columns, depth).levels < 0))
    if lost.size:
        yield f"expected a tree of {depth} levels in '{name}'; column {lost[0]} is in none"


@dataclass(frozen=True)
class FittedTree(State):
    """The tree of the last sweep."""

    node_parent: Annotated[Ints, indices("topic", below="topic", low=FREE)]  # Column of each node's parent
    depth: Annotated[int, size("depth", 1, MAX_DEPTH)]  # Nodes of a full path
    end_log: Annotated[Vector, numbers("end", MIN_LOG, MAX_END_LOG)]  # Log prior mass of each end
    # Nodes that were added, merged and removed before the sweep
    grown: Annotated[int, numbers(low=0)]
    merged: Annotated[int, numbers(low=0)]
    pruned: Annotated[int, numbers(low=0)]

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of parents that are no tree."""
        yield from super().faults(context)
        yield from tree_faults(self.node_parent, self.depth, "node_parent")

    @property
    def tree(self) -> Tree:
        """The nodes."""
        return Tree(np.asarray(self.node_parent), self.depth)


@dataclass(frozen=True)
class UpcomingTree(State):
    """The tree of the next sweep, with the attributes of `FittedTree`."""

    next_parent: Annotated[Ints, indices("next", below="next", low=FREE)]
    next_depth: Annotated[int, numbers("", 1, MAX_DEPTH)]
    next_end_log: Annotated[Vector, numbers("next_end", MIN_LOG, MAX_END_LOG)]
    next_grown: Annotated[int, numbers(low=0)]
    next_merged: Annotated[int, numbers(low=0)]
    next_pruned: Annotated[int, numbers(low=0)]

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of parents that are no tree."""
        yield from super().faults(context)
        yield from tree_faults(self.next_parent, self.next_depth, "next_parent")

    @property
    def tree(self) -> Tree:
        """The nodes."""
        return Tree(np.asarray(self.next_parent), self.next_depth)

    def fitted(self, end_log: Vector) -> FittedTree:
        """Return it as the tree of the last sweep, with other prior masses."""
        moved = self.next_grown, self.next_merged, self.next_pruned
        return FittedTree(self.next_parent, self.next_depth, end_log, *moved)


def size_faults(fitted: FittedTree, upcoming: UpcomingTree) -> Iterator[str]:
    """Yield the fault of the trees of a fit, which have the same columns; a simulated one has fewer for the next."""
    columns = fitted.node_parent.size
    named = {"next_parent": upcoming.next_parent, "end_log": fitted.end_log, "next_end_log": upcoming.next_end_log}
    for name, values in named.items():
        if values.size != columns:
            yield f"expected {columns} columns in '{name}' of the global state"


@dataclass(frozen=True)
class MoveTable(State):
    """The moves from the tree of the last sweep to the next sweep's."""

    # Columns; each target becomes the sum of its sources times their weights. `NOWHERE` is the source of a column that
    # starts empty.
    move_source: Annotated[Ints, indices("move", below="column", low=NOWHERE)]
    move_target: Annotated[Ints, indices("move", below="column")]
    move_weight: Annotated[Vector, numbers("move")]  # The weights

    def apply(self, columns: AnyArray) -> npt.NDArray[np.float64]:
        """Bring numbers by column to the tree of the next sweep."""
        if not self.move_target.size:
            return columns
        after = np.array(columns, dtype=np.float64)
        after[..., np.unique(self.move_target)] = 0.0
        for source, target, weight in zip(self.move_source, self.move_target, self.move_weight, strict=True):
            if source != NOWHERE:
                after[..., target] += weight * columns[..., source]
        return after


@dataclass(frozen=True)
class DocumentEnds(State):
    """The most probable ends of documents."""

    # Index of each document's first end; the last is the number of ends
    document_lists: Annotated[Ints, offsets("document", into="stored_end")]
    # Columns of the ends, and q(c)
    document_ends: Annotated[npt.NDArray[np.int32], indices("stored_end", below="topic")]
    document_masses: Annotated[npt.NDArray[np.float32], numbers("stored_end", MIN_MASS, 1.001)]

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of ends at columns that are not nodes."""
        yield from super().faults(context)
        if (context.global_state.fitted.node_parent[self.document_ends] == FREE).any():
            yield "expected columns of nodes in 'document_ends'"

    @classmethod
    def empty(cls, documents: int) -> Self:
        """Return the ends of documents that have not been swept."""
        return cls(np.zeros(documents + 1, dtype=np.int64), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32))

    @classmethod
    def of_largest(cls, ends: AnyArray, masses: AnyArray, columns: AnyArray) -> Self:
        """Return the ends that a kernel has chosen."""
        chosen = ends >= 0
        return cls(
            np.concatenate([[0], np.cumsum(chosen.sum(axis=1))]).astype(np.int64),
            columns[ends[chosen]].astype(np.int32),
            masses[chosen].astype(np.float32),
        )

    def with_roots(self) -> tuple[Ints, Ints, Vector]:
        """Return offsets, ends and masses in which documents that have not been swept are at the root's end."""
        absent = np.flatnonzero(np.diff(self.document_lists) == 0)
        ends = np.insert(np.asarray(self.document_ends, dtype=np.int64), self.document_lists[absent], 0)
        masses = np.insert(np.asarray(self.document_masses, dtype=np.float64), self.document_lists[absent], 1.0)
        lengths = np.maximum(np.diff(self.document_lists), 1)
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), ends, masses

    def products(self, columns: int) -> Vector:
        """Return the sum of q(c_n = i) q(c_n = j) over the documents, shape (columns, columns)."""
        sums = np.zeros((columns, columns))
        lists, ends = self.document_lists, self.document_ends
        owner = np.repeat(np.arange(lists.size - 1), np.diff(lists))
        masses = self.document_masses.astype(np.float64)
        for shift in range(int(np.diff(lists).max(initial=0))):  # ends with those so many places behind
            pairs = np.flatnonzero(owner[: owner.size - shift] == owner[shift:])
            both = masses[pairs] * masses[pairs + shift]
            np.add.at(sums, (ends[pairs], ends[pairs + shift]), both)
            if shift:
                np.add.at(sums, (ends[pairs + shift], ends[pairs]), both)
        return sums


def level_sums(values: Vector, depth: int) -> Vector:
    """Return one value for each level of a tree that is not as deep: the last is the sum of those below it."""
    return np.append(values[: depth - 1], values[depth - 1 :].sum())


def deepened(document_level: AnyArray, alpha: Vector) -> npt.NDArray[np.float64]:
    """Distribute the tokens of the last level over it and further levels, in proportion to alpha."""
    last = document_level.shape[1] - 1
    if last == alpha.size - 1:
        return np.asarray(document_level, dtype=np.float64)
    share = alpha[last:] / alpha[last:].sum()
    return np.hstack([document_level[:, :last], document_level[:, last:] * share])


LOG_GAMMA_RANGE = -7.0, 7.0  # Range of log gamma, if gamma is learned


@dataclass(frozen=True)
class Sticks:
    """The factors q(v_i) = Beta(a_i, b_i) of all nodes but the root, and the order of siblings."""

    # The prior's, for columns without a node and for the root; float64 (columns,)
    a: Vector
    b: Vector
    rank: Ints  # A node's number among its siblings, from 0; int64 (columns,)

    @property
    def log_stick(self) -> Vector:
        """E[log v_i]."""
        log_stick: Vector = digamma(self.a) - digamma(self.a + self.b)
        return log_stick

    @property
    def log_rest(self) -> Vector:
        """E[log(1 - v_i)]."""
        log_rest: Vector = digamma(self.b) - digamma(self.a + self.b)
        return log_rest


def sticks(tree: Tree, passes: Vector, ends: Vector, gamma: float) -> Sticks:
    """Return the best q(v) given q(c): a_i = 1 + mass of i, b_i = gamma + mass of later siblings.

    Siblings are numbered by falling mass, which no other order beats; paths outside the tree come behind all of them.
    """
    a, b = np.ones(passes.size), np.full(passes.size, gamma)
    rank = np.zeros(passes.size, dtype=np.int64)
    for node in tree.columns:
        children = tree.children(node)
        if not children.size:
            continue
        order = children[np.argsort(-passes[children], kind="stable")]
        later = np.cumsum(np.append(passes[order], ends[node])[::-1])[::-1][1:]
        a[order], b[order], rank[order] = 1.0 + passes[order], gamma + later, np.arange(order.size)
    return Sticks(a, b, rank)


def outside_log(gamma: float) -> float:
    """Return the log mass of all nodes of one level outside the tree: u - log(1 - exp r).

    With u = E[log v] and r = E[log(1 - v)] of v ~ Beta(1, gamma), a sum over j of exp(u + (j - 1) r).
    """
    both = digamma(1.0 + gamma)
    return float(digamma(1.0) - both - special.log(-special.expm1(digamma(gamma) - both)))


def end_logs(tree: Tree, factors: Sticks, gamma: float) -> Vector:
    """Return log sum_c exp(E[log p(c | V)]) over the full paths of each end."""
    logs = np.full(tree.parents.size, -np.inf)
    log_stick, log_rest, beyond = factors.log_stick, factors.log_rest, outside_log(gamma)
    down = np.zeros(tree.parents.size)
    for node in tree.columns:
        children = tree.children(node)
        order = children[np.argsort(factors.rank[children], kind="stable")]
        before = np.cumsum(np.append(0.0, log_rest[order]))
        down[order] = down[node] + log_stick[order] + before[:-1]
        left = tree.depth - 1 - tree.levels[node]
        logs[node] = down[node] + (before[-1] + left * beyond if left else 0.0)
    return logs


def sticks_bound(tree: Tree, factors: Sticks, ends: Vector, gamma: float) -> float:
    """Return E[log p(c | V)] + the entropy outside the tree, and -KL(q(v) | p(v)), all given q(c) and its best q(v)."""
    nodes = tree.columns[1:]
    value = (betaln(factors.a[nodes], factors.b[nodes]) - betaln(1.0, gamma)).sum()
    left = tree.depth - 1 - tree.level
    return float(value + (ends[tree.columns] * left).sum() * outside_log(gamma))


def sticks_divergence(tree: Tree, factors: Sticks, gamma: float) -> float:
    """Return KL(q(v) | p(v)) of all nodes but the root."""
    nodes = tree.columns[1:]
    a, b = factors.a[nodes], factors.b[nodes]
    value = betaln(1.0, gamma) - betaln(a, b) + (a - 1.0) * digamma(a) + (b - gamma) * digamma(b)
    return float((value + (1.0 + gamma - a - b) * digamma(a + b)).sum())


def learned_gamma(tree: Tree, factors: Sticks, ends: Vector, gamma: float) -> float:
    """Return the gamma of a (perhaps local) maximum of the bound given q(c) and q(v), no worse than the present."""
    from scipy import optimize

    nodes = tree.columns[1:]
    rest = float(factors.log_rest[nodes].sum())
    left = float((ends[tree.columns] * (tree.depth - 1 - tree.level)).sum())

    def loss(log_gamma: float) -> float:
        value = float(special.exp(log_gamma))
        return -(nodes.size * log_gamma + (value - 1.0) * rest + left * outside_log(value))

    best = optimize.minimize_scalar(loss, bounds=LOG_GAMMA_RANGE, method="bounded", options={"xatol": 1e-6})
    return float(special.exp(best.x)) if best.fun < loss(float(special.log(gamma))) else gamma
