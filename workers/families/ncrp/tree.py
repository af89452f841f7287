"""Trees of nodes as globals hold them, and as kernels take them.

A node is a column of the rows, which is its id; `FREE` columns have none. ``node_parent`` is the column of each node's
parent, `ROOT` for the root in column 0. All full paths have ``depth`` nodes. Every node is also an *end*: the end at a
leaf is the full path to it, the end at an inner node stands for all full paths that leave the tree below it, which are
alike and are summed in closed form.

Nodes come and go between sweeps. The globals hold the tree that the last sweep was made with, to which rows and local
states belong, and as ``next_...`` the tree for the coming one, with a table of moves by which rows are brought to it:
each column named in ``move_target`` becomes the sum of ``move_weight`` times the column ``move_source``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.delta import Arrays

Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]

ROOT, FREE = -1, -2  # in place of a parent
NOWHERE = -1  # source of a column that begins empty


@dataclass(frozen=True)
class Tree:
    """A tree over columns.

    Attributes
    ----------
    parents : numpy.ndarray of int64, shape (columns,)
        Column of each node's parent; `ROOT` for column 0, `FREE` where there is no node.
    depth : int
        Nodes of a full path.
    """

    parents: Ints
    depth: int

    @cached_property
    def levels(self) -> Ints:
        """Level of each column, 0 for the root; -1 where there is no node."""
        found = np.full(self.parents.size, -1, dtype=np.int64)
        found[0] = 0
        for level in range(1, self.depth):
            above = np.flatnonzero(self.parents >= 0)
            found[above[found[self.parents[above]] == level - 1]] = level
        return found

    @cached_property
    def columns(self) -> Ints:
        """Columns of the nodes, level by level and ascending within: parents stand before their children."""
        nodes = np.flatnonzero(self.levels >= 0)
        return nodes[np.argsort(self.levels[nodes], kind="stable")]

    @cached_property
    def places(self) -> Ints:
        """Place of each column's node among `columns`; -1 where there is no node."""
        found = np.full(self.parents.size, -1, dtype=np.int64)
        found[self.columns] = np.arange(self.columns.size)
        return found

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
        """Add what is at each end to all nodes above it: from ends to what passes each node, both by columns."""
        passes = np.where(self.levels >= 0, ends, 0.0)
        for level in range(self.depth - 1, 0, -1):
            nodes = np.flatnonzero(self.levels == level)
            np.add.at(passes, self.parents[nodes], passes[nodes])
        return passes

    def path(self, column: int) -> list[int]:
        """Columns from the root down to a node."""
        found = [int(column)]
        while self.parents[found[-1]] >= 0:
            found.append(int(self.parents[found[-1]]))
        return found[::-1]

    def paths(self) -> Ints:
        """Columns of each column's path, shape (columns, depth); -1 beyond its end, and where there is no node."""
        found = np.full((self.parents.size, self.depth), -1, dtype=np.int64)
        for column in self.columns:
            level = self.levels[column]
            if level:
                found[column, :level] = found[self.parents[column], :level]
            found[column, level] = column
        return found


def swept(globals: Arrays) -> Tree:
    """Return the tree of the last sweep, to which rows, local states and models belong."""
    return Tree(np.asarray(globals["node_parent"]), int(globals["depth"]))


def ahead(globals: Arrays) -> Tree:
    """Return the tree of the coming sweep."""
    return Tree(np.asarray(globals["next_parent"]), int(globals["next_depth"]))


def moved(columns: npt.NDArray[Any], globals: Arrays) -> npt.NDArray[np.float64]:
    """Bring what has a column a node to the tree of the coming sweep, by the table of moves.

    Parameters
    ----------
    columns : numpy.ndarray, shape (..., columns)
        As the last sweep left it.
    globals : Arrays
        With the table.

    Returns
    -------
    numpy.ndarray of float64
        The same shape; the argument itself where nothing moves.
    """
    targets, sources = globals["move_target"], globals["move_source"]
    if not targets.size:
        return columns
    after = np.array(columns, dtype=np.float64)
    after[..., np.unique(targets)] = 0.0
    for source, target, weight in zip(sources, targets, globals["move_weight"], strict=True):
        if source != NOWHERE:
            after[..., target] += weight * columns[..., source]
    return after


def level_sums(values: Vector, depth: int) -> Vector:
    """Return one value for each level of a tree that is not as deep: the last takes up those below it."""
    return np.append(values[: depth - 1], values[depth - 1 :].sum())


def deepened(document_level: npt.NDArray[Any], alpha: Vector) -> npt.NDArray[np.float64]:
    """Spread what documents have at the last level over it and further ones, in proportion to alpha.

    Parameters
    ----------
    document_level : numpy.ndarray, shape (documents, levels)
        Expected tokens.
    alpha : numpy.ndarray of float64, shape (at least as many levels,)
        Dirichlet parameters.

    Returns
    -------
    numpy.ndarray of float64, shape (documents, alpha.size)
        The same sums.
    """
    last = document_level.shape[1] - 1
    if last == alpha.size - 1:
        return np.asarray(document_level, dtype=np.float64)
    share = alpha[last:] / alpha[last:].sum()
    return np.hstack([document_level[:, :last], document_level[:, last:] * share])


def kept_lists(
    kept: npt.NDArray[Any], masses: npt.NDArray[Any], columns: npt.NDArray[Any]
) -> dict[str, npt.NDArray[Any]]:
    """Return documents' ends as a local state has them: where each one's list begins, columns, and q(c).

    Parameters
    ----------
    kept, masses : numpy.ndarray, shape (documents, most)
        Places of the largest ends and their q(c); -1 where there are no more.
    columns : numpy.ndarray of int64, shape (nodes,)
        Column of each place.

    Returns
    -------
    dict of str to numpy.ndarray
        ``document_lists``, ``document_ends`` and ``document_masses``.
    """
    there = kept >= 0
    return {
        "document_lists": np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64),
        "document_ends": columns[kept[there]].astype(np.int32),
        "document_masses": masses[there].astype(np.float32),
    }


def products_of_ends(local: Arrays, columns: int) -> Vector:
    """Sum q(c_n = i) q(c_n = j) over the documents of a local state, from their lists."""
    found = np.zeros((columns, columns))
    lists, ends, masses = (local[name] for name in ("document_lists", "document_ends", "document_masses"))
    owner = np.repeat(np.arange(lists.size - 1), np.diff(lists))
    masses = masses.astype(np.float64)
    for shift in range(int(np.diff(lists).max(initial=0))):  # ends with those that stand so many places behind
        here = np.flatnonzero(owner[: owner.size - shift] == owner[shift:])
        both = masses[here] * masses[here + shift]
        np.add.at(found, (ends[here], ends[here + shift]), both)
        if shift:
            np.add.at(found, (ends[here + shift], ends[here]), both)
    return found
