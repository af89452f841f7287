"""What families of trees share on the driver: orders of nodes, planted trees, and the probability of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.families.ncrp.gibbs_state import levels
from collapsium.workers.special_functions import gammaln

Ints = npt.NDArray[np.int64]


def depth_first(parent: Ints, weight: npt.NDArray[np.generic]) -> Ints:
    """Return the nodes of a tree, each before those below it.

    Parameters
    ----------
    parent : numpy.ndarray of int64, shape (slots,)
        Each node's parent; -1 of the root, less of a slot that is free.
    weight : numpy.ndarray, shape (slots,)
        Siblings come by falling weight.

    Returns
    -------
    numpy.ndarray of int64, shape (nodes,)
        Their slots.
    """
    below: dict[int, list[int]] = {}
    for node in np.lexsort((-np.arange(parent.size), weight)):  # the last comes first off the stack
        below.setdefault(int(parent[node]), []).append(int(node))
    found, waiting = [], list(below.get(-1, []))
    while waiting:
        found.append(waiting.pop())
        waiting += below.get(found[-1], [])
    return np.array(found, dtype=np.int64)


def planted(branching: Sequence[int]) -> Ints:
    """Return the parents of the nodes of a tree, level by level, in which each node has as many children as is said.

    Parameters
    ----------
    branching : sequence of int
        Children of each node of the root's level, the next, ...

    Returns
    -------
    numpy.ndarray of int64, shape (nodes,)
        The root, whose parent is -1, comes first.
    """
    parent, last = [-1], [0]
    for children in branching:
        above = [node for node in last for _ in range(children)]
        last = list(range(len(parent), len(parent) + len(above)))
        parent += above
    return np.array(parent, dtype=np.int64)


@dataclass(frozen=True)
class Tallies:
    """A sample of a tree as far as its probability depends on it.

    Attributes
    ----------
    words : int
        W.
    tokens : list of numpy.ndarray, one a level
        n_i of the nodes of the level.
    cells : numpy.ndarray of int64, shape (levels, word counts)
        How many cells of words and nodes of the level hold each count.
    cell_counts : numpy.ndarray of int64, shape (word counts,)
        These.
    documents : numpy.ndarray of int64, shape (counts, levels + 1)
        How many documents have each count of tokens at a level and, last, in all.
    document_counts : numpy.ndarray of int64, shape (counts,)
        These.
    passing, children : numpy.ndarray of int64, shape (inner nodes,)
        Documents that pass each, and its children.
    seats : numpy.ndarray of int64, shape (nodes but the root,)
        Documents that pass each.
    """

    words: int
    tokens: list[Ints]
    cells: Ints
    cell_counts: Ints
    documents: Ints
    document_counts: Ints
    passing: Ints
    children: Ints
    seats: Ints

    @classmethod
    def of(cls, globals: Arrays, delta: Delta) -> Tallies:
        """Take them from what a round has told, and the globals after its counts.

        Parameters
        ----------
        globals : Arrays
            With the tree and n_i.
        delta : Delta
            With ``word_cells`` and ``level_cells``.

        Returns
        -------
        Tallies
            Of all shards.
        """
        parent, documents, depth = globals["node_parent"], globals["node_documents"], globals["alpha"].size
        level = levels(parent)
        group, told = delta.ids["group"], delta["word_cells"]
        of_level = np.where(group < depth, group, level[np.maximum(group - depth, 0)])
        cells = np.zeros((depth, told.shape[1]), dtype=np.int64)
        np.add.at(cells, of_level, told)
        inner = np.flatnonzero((level >= 0) & (level < depth - 1) & (documents > 0))
        below = np.flatnonzero(level > 0)
        return cls(
            int(globals["vocabulary"]),
            [globals["topic"][level == one] for one in range(depth)],
            cells,
            delta.ids["count"],
            delta["level_cells"],
            delta.ids["tokens"],
            documents[inner],
            np.bincount(parent[below], minlength=parent.size)[inner],
            documents[below],
        )

    def log_words(self, level: int, eta: float) -> float:
        """Return sum_i log G(W eta) / G(W eta + n_i) + sum_iw log G(eta + n_iw) / G(eta) over the nodes of a level."""
        total = self.words * eta
        cells = self.cells[level] * (gammaln(eta + self.cell_counts) - gammaln(eta))
        return float(cells.sum() + (gammaln(total) - gammaln(total + self.tokens[level])).sum())

    def log_level(self, level: int, alpha: float) -> float:
        """Return sum_d log G(alpha + n_dl) / G(alpha)."""
        rising = gammaln(alpha + self.document_counts) - gammaln(alpha)
        return float((self.documents[:, level] * rising).sum())

    def log_documents(self, total: float) -> float:
        """Return sum_d log G(A) / G(A + n_d)."""
        return float((self.documents[:, -1] * (gammaln(total) - gammaln(total + self.document_counts))).sum())

    def log_paths(self, gamma: float) -> float:
        """Return sum_i K_i log gamma + log G(gamma) / G(gamma + m_i) over the inner nodes."""
        falling = gammaln(gamma) - gammaln(gamma + self.passing)
        return float(self.children.sum() * special.log(gamma) + falling.sum())

    def log_seats(self) -> float:
        """Return sum_j log G(m_j) over all nodes but the root: what of the paths does not depend on gamma."""
        return float(gammaln(self.seats).sum())
