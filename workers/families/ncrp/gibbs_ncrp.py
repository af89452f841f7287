"""The nested Chinese restaurant process by collapsed Gibbs sampling, on a shard.

Blei, Griffiths, Jordan and Tenenbaum (2003): a document takes a path c_d of L nodes, from the root down, by the nested
Chinese restaurant process of concentration gamma; theta_d ~ Dir(alpha_1..alpha_L), z ~ theta_d, and w comes from the
path's node of level z, phi_i ~ Dir(eta_l, ..., eta_l). Topics and proportions are summed out.

A shard creates nodes in free slots of its lane, as `gibbs_hdp` does with topics; shards that share a lane take turns,
an iteration each, since nodes of several shards in one slot could have several parents. A node that existed when an
iteration began keeps its parent, and its slot is free only when the sum of all shards leaves no document there: so
where one shard empties a node below which another has created one, it stays. One shard alone samples exactly.

In a cold start the documents of the first shard join the tree one after another, and then, with the tree that results,
those of all others.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import NumericalError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta, Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.base import ShardModel
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.gibbs.states import MAX_TOPICS, Counts
from collapsium.workers.families.gibbs.token_counts import add_word_changes, delta_ids, padded, widened, word_changes
from collapsium.workers.families.gibbs.token_sweep import Slots
from collapsium.workers.families.ncrp.arrays import GIBBS_NCRP_ARRAYS
from collapsium.workers.families.ncrp.gibbs_state import (
    GibbsNcrpDocuments,
    GibbsNcrpGlobalState,
    GibbsNcrpLocal,
    GibbsNcrpOptions,
    GibbsNcrpRows,
    Ints,
    NodeChanges,
    all_columns,
)
from collapsium.workers.kernels.gibbs.topics import draw_topics
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.trees.gibbs_documents import (
    MAX_TALLIED,
    count_histogram,
    fold_documents,
    sweep_documents,
)
from collapsium.workers.kernels.trees.gibbs_records import (
    FREE,
    Assignments,
    CandidatePaths,
    FreeSlots,
    SampledTree,
    SweepOptions,
)
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


Floats = npt.NDArray[np.float64]


class GibbsNcrpShardModel(ShardModel[GibbsNcrpOptions, GibbsNcrpGlobalState, GibbsNcrpRows, GibbsNcrpLocal]):
    """A path for each document, a level for each token, and whole counts."""

    global_state_type = GibbsNcrpGlobalState
    rows_type = GibbsNcrpRows
    local_type = GibbsNcrpLocal
    documents_type = GibbsNcrpDocuments
    arrays = GIBBS_NCRP_ARRAYS
    folds_in_at_a_point = True

    def kernels(self, global_state: GibbsNcrpGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        return [sweep_documents, move_subtrees, count_histogram]

    def initial_rows(self, words: int, global_state: GibbsNcrpGlobalState) -> GibbsNcrpRows:
        """Return the rows of `words` words before the first document is counted."""
        return GibbsNcrpRows(np.zeros((words, global_state.node_parent.size), dtype=np.int32))

    def start(
        self,
        shard: Shard,
        rows: GibbsNcrpRows,
        global_state: GibbsNcrpGlobalState,
        stream: Stream,
        warm: Arrays | None = None,
    ) -> tuple[GibbsNcrpLocal, Delta]:
        """Put the documents of the first shard into the tree, or all of them by another run's proportions."""
        outside = np.full((shard.documents, global_state.alpha.size), -1, dtype=np.int32)
        before = self.initial_rows(shard.words.size, global_state).word_topic
        tree = TreeSweep.of(outside, np.zeros(shard.tokens, dtype=np.uint8), before, global_state)
        if warm is not None:
            _assign_warm_paths(tree, shard, global_state, stream, warm)
        elif shard.number == 0:
            tree.run(shard, global_state, stream, global_state.slots_of(0, 0), separate=self._separate, shared=False)
        parts = {"word_topic": word_changes(before, tree.row), **tree.node_changes(global_state)}
        parts["outside"] = fresh(float((tree.path[:, 0] < 0).sum()))
        return tree.local(shard), Delta(parts, delta_ids(shard, tree.parent.size))

    def sweep(
        self,
        shard: Shard,
        local: GibbsNcrpLocal,
        rows: GibbsNcrpRows,
        global_state: GibbsNcrpGlobalState,
        stream: Stream,
    ) -> tuple[GibbsNcrpLocal, Delta]:
        """Pass once over a shard; documents that are not in the tree yet join it."""
        began = time.perf_counter()
        tree = TreeSweep.of(local.document_path, local.token_level, rows.word_topic, global_state)
        slots = global_state.slots_of(shard.number, stream.iteration)
        tree.run(shard, global_state, stream, slots, separate=self._separate, shared=global_state.shards > 1)
        local = tree.local(shard)
        histogram, counts = level_histogram(shard, local.document_level)
        changes = word_changes(rows.word_topic, tree.row)
        parts = {"word_topic": changes, "level_histogram": histogram, **tree.node_changes(global_state)}
        numbers = {"documents": shard.documents, "tokens": shard.tokens, "outside": (tree.path[:, 0] < 0).sum()}
        parts.update({name: fresh(float(value)) for name, value in numbers.items()})
        ids = {**delta_ids(shard, tree.parent.size), "level_count": counts}
        return local, Delta(parts, ids, {"kernel": time.perf_counter() - began})

    @property
    def _separate(self) -> bool:
        return self.options.entry == "apart"

    def advance(
        self, rows: GibbsNcrpRows, delta: Delta, global_state: GibbsNcrpGlobalState
    ) -> tuple[GibbsNcrpRows, GibbsNcrpGlobalState]:
        """Return the rows and globals with which a shard is swept once more, with the nodes that it has created."""
        changes, nodes = delta.read(GibbsNcrpRows), delta.read(NodeChanges)
        if changes is None or nodes is None:
            return rows, global_state
        after = widened(rows.word_topic, changes.word_topic.shape[1]) + changes.word_topic
        moved = changes.word_topic.sum(axis=0, dtype=np.int64)
        grown = global_state.with_slots(moved.size).with_nodes(nodes)
        free = grown.free & (grown.node_documents == 0)
        return GibbsNcrpRows(after), dataclasses.replace(grown, topic=grown.topic + moved, free=free)

    def fold(
        self, block: GibbsNcrpRows, delta: Delta, global_state: GibbsNcrpGlobalState
    ) -> tuple[GibbsNcrpRows, Delta]:
        """Return a block of the vocabulary after the changes of its rows, and tally its counts."""
        changes = delta.read(GibbsNcrpRows)
        if changes is None:
            return block, Delta()
        after, parts = add_word_changes(block.word_topic, changes.word_topic, delta.ids["word"])
        level = np.full(after.shape[1], -1)
        known = global_state.levels[: level.size]
        level[: known.size] = known
        histogram, ids = word_histogram(after, level, global_state.alpha.size)
        ids["topic"] = np.arange(parts["topic"].values.size)
        return GibbsNcrpRows(after), Delta({**parts, "word_histogram": histogram}, ids)

    def finished_rows(self, block: GibbsNcrpRows, global_state: GibbsNcrpGlobalState) -> GibbsNcrpRows:
        """Return the rows as a finished model saves them: with all slots, which a block gets only when it is folded."""
        return GibbsNcrpRows(all_columns(block.word_topic, global_state.node_parent.size))

    def fold_in(
        self,
        shard: Shard,
        rows: GibbsNcrpRows,
        global_state: GibbsNcrpGlobalState,
        stream: Stream,
    ) -> GibbsNcrpDocuments:
        """Fit the paths and levels of unseen documents in the tree as it is, without drawing numbers.

        Paths are scored by log p(c) + sum_m log sum_l theta_l phi_{c_l,w_m}, with theta fitted in between.
        """
        depth, level = global_state.alpha.size, global_state.levels
        nodes, leaves = np.flatnonzero(level >= 0), np.flatnonzero(level == depth - 1)
        path = np.full((shard.documents, depth), -1, dtype=np.int32)
        mean = np.zeros((shard.documents, depth))
        if not leaves.size:  # no document has been seen: there is a root alone
            path[:, 0], mean[:, 0] = 0, shard.lengths
            return GibbsNcrpDocuments(path, mean)
        paths = _candidate_paths(global_state, nodes, leaves, rows)
        chosen = np.zeros(shard.documents, dtype=np.int64)
        fold_documents(document_pairs(shard), global_state.alpha, paths, chosen, mean)
        path[:] = nodes[paths.nodes[chosen]]
        return GibbsNcrpDocuments(path, mean)

    def predict(
        self, heldout: Shard, local: GibbsNcrpDocuments, rows: GibbsNcrpRows, global_state: GibbsNcrpGlobalState
    ) -> Arrays:
        """Return each held-out pair's probability sum_l theta_dl phi_{c_dl,w}, of the last sample."""
        owner, words = np.repeat(np.arange(heldout.documents), np.diff(heldout.offsets)), global_state.words
        counts = all_columns(rows.word_topic, global_state.node_parent.size)
        total, theta = np.asarray(global_state.topic, dtype=np.float64), proportions(local, global_state)
        probability = np.zeros(heldout.pairs)
        for level, eta in enumerate(global_state.eta):
            node = local.document_path[owner, level]
            phi = (counts[heldout.position, node] + eta) / (total[node] + words * eta)
            probability += theta[owner, level] * np.where(node >= 0, phi, 1.0 / words)
        return {"probability": probability}

    def probabilities(self, rows: GibbsNcrpRows, global_state: GibbsNcrpGlobalState) -> Arrays:
        """Return phi_iw of the words of the rows, of the last sample, and ``topic_parent``; columns are slots."""
        return {"word_topic": global_state.word_probability(rows.word_topic), "topic_parent": global_state.node_parent}

    def infer(self, local: GibbsNcrpDocuments, global_state: GibbsNcrpGlobalState) -> Arrays:
        """Return the documents' proportions at the nodes of their paths, and ``document_path``, these nodes' slots."""
        path, theta = np.asarray(local.document_path), proportions(local, global_state)
        document_topic = np.zeros((len(path), global_state.node_parent.size))
        document, level = np.nonzero(path >= 0)
        document_topic[document, path[document, level]] = theta[document, level]
        return {"document_topic": document_topic, "document_path": path}

    def word_tokens(self, rows: GibbsNcrpRows) -> Floats:
        """Return the tokens of each word."""
        tokens: Floats = np.asarray(rows.word_topic, dtype=np.float64).sum(axis=1)
        return tokens

    def document_lengths(self, local: GibbsNcrpDocuments) -> Floats:
        """Return the tokens of each document."""
        tokens: Floats = np.asarray(local.document_level, dtype=np.float64).sum(axis=1)
        return tokens


def proportions(local: GibbsNcrpDocuments, global_state: GibbsNcrpGlobalState) -> Floats:
    """Return theta_dl = (alpha_l + n_dl) / (sum alpha + n_d), shape (documents, levels)."""
    theta: Floats = global_state.alpha + np.asarray(local.document_level, dtype=np.float64)
    theta /= theta.sum(axis=1, keepdims=True)
    return theta


def _candidate_paths(
    global_state: GibbsNcrpGlobalState,
    nodes: npt.NDArray[np.int64],
    leaves: npt.NDArray[np.int64],
    rows: GibbsNcrpRows,
) -> CandidatePaths:
    """Return the paths to all leaves, with their log prior and the probabilities of words at their nodes."""
    depth, parent = global_state.alpha.size, global_state.node_parent
    paths, log_prior, at = np.zeros((leaves.size, depth), dtype=np.int64), np.zeros(leaves.size), leaves
    for level in range(depth - 1, -1, -1):
        paths[:, level] = np.searchsorted(nodes, at)
        if level:
            up = parent[at]
            passing = np.asarray(global_state.node_documents, dtype=np.float64)
            log_prior += special.log(passing[at]) - special.log(global_state.gamma + passing[up])
            at = up
    phi = np.ascontiguousarray(global_state.word_probability(rows.word_topic)[:, nodes])
    return CandidatePaths(paths, log_prior, phi)


def _assign_warm_paths(
    tree: TreeSweep, shard: Shard, global_state: GibbsNcrpGlobalState, stream: Stream, warm: Mapping[str, Any]
) -> None:
    """Put documents on the paths of another run's topics, which hang below the root, each with one path below.

    A document's path is that of its largest topic; tokens of that topic get a level below the root, others the root.
    """
    theta, phi = (np.ascontiguousarray(warm[name], dtype=np.float64) for name in ("document_topic", "word_topic"))
    depth = tree.path.shape[1]
    if theta.shape[1] > global_state.warm_topics:
        raise ValueError(f"a start from {theta.shape[1]} topics needs as many; there are {global_state.warm_topics}")
    token_topic = np.empty(shard.tokens, dtype=np.uint16)
    draw_topics(document_pairs(shard), theta, phi, stream.key(), token_topic)
    largest = theta.argmax(axis=1)
    tree.path[:, 0] = 0
    tree.path[:, 1:] = 1 + largest[:, np.newaxis] * (depth - 1) + np.arange(depth - 1)
    owner = np.repeat(np.arange(shard.documents), shard.lengths)
    share = np.cumsum(global_state.alpha[1:]) / global_state.alpha[1:].sum()
    drawn = stream.at(purpose=f"{stream.purpose} levels").generator().random(shard.tokens)
    deeper = 1 + np.minimum(np.searchsorted(share, drawn, side="right"), depth - 2)
    tree.token_level[:] = np.where(token_topic == largest[owner], deeper, 0)
    np.add.at(tree.row, (np.repeat(shard.position, shard.counts), tree.path[owner, tree.token_level]), 1)
    np.add.at(tree.documents, tree.path.ravel(), 1)
