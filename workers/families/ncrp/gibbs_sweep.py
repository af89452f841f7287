"""One sweep of a shard's documents in a sampled tree, and the histograms of counts that updates need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import NumericalError
from collapsium.workers.arrays.delta import Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.gibbs.states import MAX_TOPICS, Counts
from collapsium.workers.families.gibbs.token_counts import padded, widened
from collapsium.workers.families.gibbs.token_sweep import Slots
from collapsium.workers.families.ncrp.gibbs_state import GibbsNcrpGlobalState, GibbsNcrpLocal, Ints
from collapsium.workers.kernels.trees.gibbs_documents import MAX_TALLIED, count_histogram, sweep_documents
from collapsium.workers.kernels.trees.gibbs_records import FREE, Assignments, FreeSlots, SampledTree, SweepOptions
from collapsium.workers.kernels.trees.gibbs_subtrees import move_subtrees

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


@dataclass
class TreeSweep:
    """A shard's copy of the tree, which a sweep changes."""

    # The tree, the documents that pass each node, and its tokens; int64 (slots,)
    parent: Ints
    level: Ints
    documents: Ints
    totals: Ints
    row: Counts  # n_iw; int32 (shard words, slots)
    path: npt.NDArray[np.int32]  # c; -1 of documents outside the tree; int32 (documents, levels)
    token_level: npt.NDArray[np.uint8]  # z; uint8 (tokens,)

    @classmethod
    def of(
        cls,
        path: npt.NDArray[np.int32],
        token_level: npt.NDArray[np.uint8],
        word_topic: Counts,
        global_state: GibbsNcrpGlobalState,
    ) -> TreeSweep:
        """Copy what a sweep starts from."""
        columns = padded(global_state.node_parent.size)
        sweep = cls(
            parent=np.array(global_state.node_parent),
            level=global_state.levels,
            documents=np.array(global_state.node_documents),
            totals=np.array(global_state.topic, dtype=np.int64),
            row=widened(word_topic, columns),
            path=np.array(path),
            token_level=np.array(token_level),
        )
        sweep._add_slots(columns)
        return sweep

    def _add_slots(self, columns: int) -> None:
        added = columns - self.parent.size
        self.parent, self.level = (
            np.concatenate([values, np.full(added, free)]) for values, free in ((self.parent, FREE), (self.level, -1))
        )
        self.documents, self.totals = (
            np.concatenate([values, np.zeros(added, dtype=np.int64)]) for values in (self.documents, self.totals)
        )

    def widen(self, columns: int) -> None:
        """Add slots, all free; raise `NumericalError` if there are too many."""
        if columns > MAX_TOPICS:
            raise NumericalError(f"more than {MAX_TOPICS} nodes are needed; take a smaller gamma or a larger eta")
        self.row = widened(self.row, columns)
        self._add_slots(columns)

    def run(
        self,
        shard: Shard,
        global_state: GibbsNcrpGlobalState,
        stream: Stream,
        slots: Slots | None,
        *,
        separate: bool,
        shared: bool,
    ) -> None:
        """Sweep once, then draw the parents of nodes; where new nodes find no slot, add some and continue."""
        depth, reserved = global_state.alpha.size, slots.free[::-1] if slots else []
        free, free_count = np.zeros(self.parent.size, dtype=np.int64), np.array([len(reserved)])
        free[: len(reserved)] = reserved
        reusable = np.zeros(self.parent.size, dtype=np.int64)
        reusable[reserved] = 1
        pairs, priors, assignments = (
            document_pairs(shard),
            global_state.priors,
            Assignments(self.path, self.token_level),
        )
        options, cursor = SweepOptions(int(separate), stream.iteration), np.zeros(2, dtype=np.int64)
        while True:
            tree = self._record(FreeSlots(int(slots is not None), reusable, free, free_count))
            sweep_documents(pairs, stream.key(), priors, options, tree, assignments, cursor)
            if slots is None or cursor[0] == shard.documents:
                break
            further: list[int] = []
            while len(further) < depth:
                further += slots.take_further()
            self.widen(padded(further[-1] + 1))
            reusable = np.concatenate([reusable, np.zeros(self.parent.size - reusable.size, dtype=np.int64)])
            reusable[further] = 1
            left = free[: free_count[0]]
            free = np.zeros(self.parent.size, dtype=np.int64)
            free[: len(further)], free[len(further) : len(further) + left.size] = further[::-1], left
            free_count[0] += len(further)
        key = stream.at(purpose=f"{stream.purpose} hang").key()
        move_subtrees(pairs, key, priors, int(shared), tree, assignments)

    def _record(self, slots: FreeSlots) -> SampledTree:
        """Return the tree as kernels take it."""
        return SampledTree(self.parent, self.level, self.documents, self.totals, self.row, slots)

    def local(self, shard: Shard) -> GibbsNcrpLocal:
        """Return the local state."""
        depth = self.path.shape[1]
        owner = np.repeat(np.arange(shard.documents), shard.lengths)
        counts = np.bincount(owner * depth + self.token_level, minlength=shard.documents * depth)
        inside = self.path[:, :1] >= 0
        document_level = np.where(inside, counts.reshape(shard.documents, depth), 0).astype(np.int32)
        return GibbsNcrpLocal(self.path, document_level, self.token_level)

    def node_changes(self, global_state: GibbsNcrpGlobalState) -> dict[str, Part]:
        """Return the changes of ``node_documents``, and of ``node_parent`` of nodes that moved or are new, by slot."""
        columns = self.parent.size
        documents, parent = np.zeros(columns, dtype=np.int64), np.full(columns, FREE)
        documents[: global_state.node_documents.size] = global_state.node_documents
        parent[: global_state.node_parent.size] = global_state.node_parent
        moved = np.where(self.level >= 0, self.parent - parent, 0)
        return {"node_documents": change(self.documents - documents, "topic"), "node_parent": change(moved, "topic")}


def level_histogram(shard: Shard, document_level: npt.NDArray[np.int32]) -> tuple[Part, Ints]:
    """Tally n_dl, and n_d, over the documents: fresh, shape (counts, levels + 1), and the counts."""
    tokens = np.column_stack([document_level, shard.lengths])
    counts, place = np.unique(tokens, return_inverse=True)
    tally = np.zeros((counts.size, tokens.shape[1]), dtype=np.int64)
    np.add.at(tally, (place.reshape(tokens.shape), np.arange(tokens.shape[1])), 1)
    return fresh(tally, "level_count"), counts.astype(np.int64)


def word_histogram(row: Counts, level: Ints, depth: int) -> tuple[Part, dict[str, Ints]]:
    """Tally n_iw over words and nodes.

    Returns histogram: Fresh, shape (groups, counts): words and nodes of each group that have each count; ids:
    ``group``: a level or, of a new node, L plus its slot; ``word_count``
    """
    new = np.flatnonzero((level < 0) & row.any(axis=0))
    group = level.copy()
    group[new] = depth + np.arange(new.size)
    tally, large = np.zeros((depth + new.size, MAX_TALLIED), dtype=np.int64), np.zeros(1, dtype=np.int64)
    larger = np.zeros((int((row >= MAX_TALLIED).sum()), 2), dtype=np.int64)
    count_histogram(row, group, tally, large, larger)
    small = np.flatnonzero(tally.any(axis=0))
    counts = np.union1d(small, larger[:, 1])
    histogram = np.zeros((len(tally), counts.size), dtype=np.int64)
    histogram[:, np.searchsorted(counts, small)] = tally[:, small]
    np.add.at(histogram, (larger[:, 0], np.searchsorted(counts, larger[:, 1])), 1)
    ids = {"group": np.append(np.arange(depth), depth + new), "word_count": counts}
    return fresh(histogram, "group", "word_count"), ids
