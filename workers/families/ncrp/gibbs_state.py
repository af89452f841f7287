"""What samplers of trees keep beside a shard: a path for each document, a level for each token, and whole counts.

A node is a slot, whose number is its id: a column of the counts. ``node_parent`` says where each one hangs, -1 for the
root, which is slot 0, and -2 for a slot that is free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import NumericalError
from collapsium.workers.arrays.delta import Arrays, Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.gibbs.common import MOST, Counts, Slots, padded, widened
from collapsium.workers.kernels.trees.gibbs_documents import MAX_TALLIED, count_histogram, sweep_documents
from collapsium.workers.kernels.trees.gibbs_records import (
    FREE,
    Assignments,
    FreeSlots,
    SampledTree,
    SweepOptions,
    TreePriors,
)
from collapsium.workers.kernels.trees.gibbs_subtrees import move_subtrees

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]


def levels(parent: npt.ArrayLike) -> Ints:
    """Return the level of each node: 0 of the root, -1 of a slot that is free; shape (slots,)."""
    up = np.asarray(parent, dtype=np.int64)
    found = np.where(up == -1, 0, -1)
    for level in range(up.size):
        below = (up >= 0) & (found[up] == level)
        if not below.any():
            break
        found[below] = level + 1
    return found


@dataclass(frozen=True)
class Priors:
    """Parameters of a tree.

    Attributes
    ----------
    alpha, eta : numpy.ndarray of float64, shape (levels,)
        Dirichlet parameters of the levels in a document, and of each word at the nodes of a level.
    gamma : float
        Concentration of the nested Chinese restaurant process.
    words : int
        W.
    apart : bool
        Whether documents enter on paths of their own.
    """

    alpha: Vector
    eta: Vector
    gamma: float
    words: int
    apart: bool

    @property
    def record(self) -> TreePriors:
        """The hyperparameters as kernels take them."""
        return TreePriors(self.alpha, self.eta, self.eta * self.words, self.gamma)

    def of_nodes(self, level: Ints) -> Vector:
        """Return eta of each slot; of a free one 1, so that its words are even."""
        return np.where(level >= 0, self.eta[level], 1.0)


@dataclass
class Growth:
    """A shard's tree while it is swept, and what it comes to.

    Attributes
    ----------
    parent, level, documents, totals : numpy.ndarray of int64, shape (slots,)
        The tree, the documents that pass each node, and its tokens.
    row : numpy.ndarray of int32, shape (shard words, slots)
        n_iw.
    path : numpy.ndarray of int32, shape (documents, levels)
        c; -1 of documents that are not in the tree yet.
    token_level : numpy.ndarray of uint8, shape (tokens,)
        z.
    """

    parent: Ints
    level: Ints
    documents: Ints
    totals: Ints
    row: Counts
    path: npt.NDArray[np.int32]
    token_level: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, local: Arrays, rows: Arrays, globals: Arrays) -> Growth:
        """Copy what a sweep begins from."""
        columns = padded(globals["node_parent"].size)
        found = cls(
            parent=np.array(globals["node_parent"]),
            level=levels(globals["node_parent"]),
            documents=np.array(globals["node_documents"]),
            totals=np.array(globals["topic"], dtype=np.int64),
            row=widened(rows["word_topic"], columns),
            path=np.array(local["document_path"]),
            token_level=np.array(local["token_level"]),
        )
        found._lengthen(columns)
        return found

    def _lengthen(self, columns: int) -> None:
        more = columns - self.parent.size
        self.parent, self.level = (
            np.concatenate([values, np.full(more, free)]) for values, free in ((self.parent, FREE), (self.level, -1))
        )
        self.documents, self.totals = (
            np.concatenate([values, np.zeros(more, dtype=np.int64)]) for values in (self.documents, self.totals)
        )

    def widen(self, columns: int) -> None:
        """Let there be more slots, all free; raise `NumericalError` if there are too many."""
        if columns > MOST:
            raise NumericalError(f"more than {MOST} nodes are asked for; take a smaller gamma or a larger eta")
        self.row = widened(self.row, columns)
        self._lengthen(columns)

    def run(self, shard: Shard, priors: Priors, stream: Stream, slots: Slots | None, *, known: bool) -> None:
        """Sweep once, then draw where nodes hang; where new nodes find no slot, make more and go on.

        Parameters
        ----------
        shard : Shard
            The documents.
        priors : Priors
            Parameters.
        stream : Stream
            Addressed to the shard and iteration.
        slots : Slots or None
            Where new nodes go; without, there are none.
        known : bool
            Whether other shards know the nodes too, which then stay where they hang.
        """
        depth, reserved = priors.alpha.size, slots.free[::-1] if slots else []
        free, count = np.zeros(self.parent.size, dtype=np.int64), np.array([len(reserved)])
        free[: len(reserved)] = reserved
        reusable = np.zeros(self.parent.size, dtype=np.int64)
        reusable[reserved] = 1
        pairs, record, assignments = document_pairs(shard), priors.record, Assignments(self.path, self.token_level)
        options, cursor = SweepOptions(int(priors.apart), stream.iteration), np.zeros(2, dtype=np.int64)
        while True:
            tree = self._record(FreeSlots(int(slots is not None), reusable, free, count))
            sweep_documents(pairs, stream.key(), record, options, tree, assignments, cursor)
            if slots is None or cursor[0] == shard.documents:
                break
            more: list[int] = []
            while len(more) < depth:
                more += slots.more()
            self.widen(padded(more[-1] + 1))
            reusable = np.concatenate([reusable, np.zeros(self.parent.size - reusable.size, dtype=np.int64)])
            reusable[more] = 1
            left = free[: count[0]]
            free = np.zeros(self.parent.size, dtype=np.int64)
            free[: len(more)], free[len(more) : len(more) + left.size] = more[::-1], left
            count[0] += len(more)
        key = stream.at(purpose=f"{stream.purpose} hang").key()
        move_subtrees(pairs, key, record, int(known), tree, assignments)

    def _record(self, slots: FreeSlots) -> SampledTree:
        """Return the tree as kernels take it."""
        return SampledTree(self.parent, self.level, self.documents, self.totals, self.row, slots)

    def local(self, shard: Shard) -> Arrays:
        """Return the local state: with ``document_level``, n_dl."""
        depth = self.path.shape[1]
        owner = np.repeat(np.arange(shard.documents), shard.lengths)
        cell = np.bincount(owner * depth + self.token_level, minlength=shard.documents * depth)
        inside = self.path[:, :1] >= 0
        document_level = np.where(inside, cell.reshape(shard.documents, depth), 0).astype(np.int32)
        return {"token_level": self.token_level, "document_path": self.path, "document_level": document_level}

    def changes(self, globals: Arrays) -> dict[str, Part]:
        """Return how far ``node_documents`` has moved, and ``node_parent`` of nodes that hang elsewhere, or are new.

        Parameters
        ----------
        globals : Arrays
            What the sweep began from.

        Returns
        -------
        dict of str to Part
            Both by ``topic``. What this shard has emptied keeps its parent: another one may have put documents there.
        """
        columns = self.parent.size
        before, parent = np.zeros(columns, dtype=np.int64), np.full(columns, FREE)
        before[: globals["node_documents"].size] = globals["node_documents"]
        parent[: globals["node_parent"].size] = globals["node_parent"]
        hung = np.where(self.level >= 0, self.parent - parent, 0)
        return {"node_documents": change(self.documents - before, "topic"), "node_parent": change(hung, "topic")}


def level_cells(shard: Shard, local: Arrays) -> tuple[Part, Ints]:
    """Tally n_dl, and n_d, over the documents: fresh, shape (counts, levels + 1), and which counts these are."""
    found = np.column_stack([local["document_level"], shard.lengths])
    counts, place = np.unique(found, return_inverse=True)
    cells = np.zeros((counts.size, found.shape[1]), dtype=np.int64)
    np.add.at(cells, (place.reshape(found.shape), np.arange(found.shape[1])), 1)
    return fresh(cells, "tokens"), counts.astype(np.int64)


def word_cells(row: Counts, level: Ints, depth: int) -> tuple[Part, dict[str, Ints]]:
    """Tally n_iw over words and nodes.

    Parameters
    ----------
    row : numpy.ndarray of int32, shape (words, slots)
        n_iw.
    level : numpy.ndarray of int64, shape (slots,)
        Levels, as far as they are known where the counts are folded: those of nodes that were there before.
    depth : int
        L.

    Returns
    -------
    cells : Part
        Fresh, shape (groups, counts): how many cells of a group hold a count.
    ids : dict of str to numpy.ndarray
        ``group``: a level or, of a new node, L plus its slot; ``count``.
    """
    new = np.flatnonzero((level < 0) & row.any(axis=0))
    group = level.copy()
    group[new] = depth + np.arange(new.size)
    tally, large = np.zeros((depth + new.size, MAX_TALLIED), dtype=np.int64), np.zeros(1, dtype=np.int64)
    larger = np.zeros((int((row >= MAX_TALLIED).sum()), 2), dtype=np.int64)
    count_histogram(row, group, tally, large, larger)
    small = np.flatnonzero(tally.any(axis=0))
    counts = np.union1d(small, larger[:, 1])
    cells = np.zeros((len(tally), counts.size), dtype=np.int64)
    cells[:, np.searchsorted(counts, small)] = tally[:, small]
    np.add.at(cells, (larger[:, 0], np.searchsorted(counts, larger[:, 1])), 1)
    return fresh(cells, "group", "count"), {"group": np.append(np.arange(depth), depth + new), "count": counts}
