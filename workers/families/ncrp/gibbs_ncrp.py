"""Topics on a tree of the nested Chinese restaurant process, by collapsed Gibbs sampling.

Blei, Griffiths, Jordan and Tenenbaum (2003): a document takes a path c_d of L nodes, from the root down, by the nested
Chinese restaurant process of concentration gamma; theta_d ~ Dir(alpha_1..alpha_L), z ~ theta_d, and w comes from the
path's node of level z, phi_i ~ Dir(eta_l, ..., eta_l). Topics and proportions are summed out.

A shard creates nodes in free slots of its lane, as `gibbs_hdp` does with topics; shards that share a lane take turns,
an iteration each, since nodes of several shards in one slot could have several parents. A node that existed when an
iteration began keeps its parent, and its slot is free only when the sum of all shards leaves no document there: so
where one shard empties a node below which another has created one, it stays. Only a single shard samples exactly.

In a cold start the documents of the first shard join the tree one after another, and then, with the tree that results,
all others do.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import NumericalError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta, Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families import generative
from collapsium.workers.families.description import largest
from collapsium.workers.families.dirichlet import slice_sampled
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.families.family import Description, Footprint, Simulates, Summary
from collapsium.workers.families.gibbs.sampler import Slots, add_word_changes, delta_ids, padded, widened, word_changes
from collapsium.workers.families.gibbs.states import MAX_TOPICS, Counts
from collapsium.workers.families.ncrp.node_moves import depth_first, regular_tree
from collapsium.workers.families.ncrp.state import (
    GibbsNcrpDocuments,
    GibbsNcrpGlobalState,
    GibbsNcrpLocal,
    GibbsNcrpRows,
    GibbsNcrpSums,
    Histograms,
    NodeChanges,
    all_columns,
    levels,
)
from collapsium.workers.families.ncrp.tree import GibbsNcrpOptions, Ints
from collapsium.workers.kernels.gibbs.topics import draw_topics
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.trees.gibbs_documents import (
    MAX_TALLIED,
    count_histogram,
    fold_documents,
    sweep_documents,
)
from collapsium.workers.kernels.trees.gibbs_subtrees import move_subtrees
from collapsium.workers.kernels.trees.paths import (
    FREE,
    Assignments,
    CandidatePaths,
    FreeSlots,
    SampledTree,
    SweepOptions,
)
from collapsium.workers.special_functions import gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents, Shard


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
        """Copy the state that a sweep starts from."""
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
            raise NumericalError(f"more than {MAX_TOPICS} nodes are needed; use a smaller gamma or a larger eta")
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

    A document's path is its largest topic's; tokens of that topic get a level below the root, others the root.
    """
    theta, phi = (np.ascontiguousarray(warm[name], dtype=np.float64) for name in ("document_topic", "word_topic"))
    depth = tree.path.shape[1]
    if theta.shape[1] > global_state.warm_topics:
        raise ValueError(f"expected at most {global_state.warm_topics} topics to start from, found {theta.shape[1]}")
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


@dataclass(frozen=True)
class SampleProbability:
    """Log probability of a sample of paths and levels, in parts that each depend on one hyperparameter."""

    words: int  # W
    tokens: list[Ints]  # n_i of the nodes of the level
    word_histogram: Ints  # Words and nodes of the level that have each count; int64 (levels, word counts)
    word_counts: Ints  # The counts; int64 (word counts,)
    # Documents that have each count of tokens at a level and, last, in all; int64 (level counts, levels + 1)
    level_histogram: Ints
    level_counts: Ints  # The counts; int64 (level counts,)
    # Documents that pass each, and its children; int64 (inner nodes,)
    passing: Ints
    children: Ints
    seats: Ints  # Documents that pass each; int64 (nodes but the root,)

    @classmethod
    def of(cls, global_state: GibbsNcrpGlobalState, histograms: Histograms) -> SampleProbability:
        """Return the probability of the sample of a round."""
        parent, depth = global_state.node_parent, global_state.alpha.size
        documents, tokens = (
            counts.astype(np.int64, copy=False) for counts in (global_state.node_documents, global_state.topic)
        )
        level, group = global_state.levels, histograms.group_ids
        group_level = np.where(group < depth, group, level[np.maximum(group - depth, 0)])
        word_histogram = np.zeros((depth, histograms.word_histogram.shape[1]), dtype=np.int64)
        np.add.at(word_histogram, group_level, histograms.word_histogram)
        inner = np.flatnonzero((level >= 0) & (level < depth - 1) & (documents > 0))
        below = np.flatnonzero(level > 0)
        return cls(
            global_state.words,
            [tokens[level == at_level] for at_level in range(depth)],
            word_histogram,
            histograms.word_count_ids,
            histograms.level_histogram,
            histograms.level_count_ids,
            documents[inner],
            np.bincount(parent[below], minlength=parent.size)[inner],
            documents[below],
        )

    def log_words(self, level: int, eta: float) -> float:
        """Return sum_i log G(W eta) / G(W eta + n_i) + sum_iw log G(eta + n_iw) / G(eta) over the nodes of a level."""
        total = self.words * eta
        log_rising = self.word_histogram[level] * (gammaln(eta + self.word_counts) - gammaln(eta))
        return float(log_rising.sum() + (gammaln(total) - gammaln(total + self.tokens[level])).sum())

    def log_level(self, level: int, alpha: float) -> float:
        """Return sum_d log G(alpha + n_dl) / G(alpha)."""
        rising = gammaln(alpha + self.level_counts) - gammaln(alpha)
        return float((self.level_histogram[:, level] * rising).sum())

    def log_documents(self, total: float) -> float:
        """Return sum_d log G(A) / G(A + n_d)."""
        return float((self.level_histogram[:, -1] * (gammaln(total) - gammaln(total + self.level_counts))).sum())

    def log_paths(self, gamma: float) -> float:
        """Return sum_i K_i log gamma + log G(gamma) / G(gamma + m_i) over the inner nodes."""
        falling = gammaln(gamma) - gammaln(gamma + self.passing)
        return float(self.children.sum() * special.log(gamma) + falling.sum())

    def log_seats(self) -> float:
        """Return sum_j log G(m_j) over all nodes but the root: the part of the paths that does not depend on gamma."""
        return float(gammaln(self.seats).sum())


MAX_LANES = 16  # Shards that create nodes in separate slots in one iteration; more shards share slots
SPARE_PATHS = 2  # Paths for which a lane has free slots before a sweep, at least
EXPECTED_NODES = 1000  # Assumed nodes of a tree, to estimate memory
SIMULATED_TOKENS = 1e9  # Tokens of a simulated tree, so many that the prior is negligible


class GibbsNcrp(Simulates[GibbsNcrpOptions, GibbsNcrpGlobalState, GibbsNcrpRows, GibbsNcrpLocal]):
    """The nested Chinese restaurant process by collapsed Gibbs sampling."""

    global_state_type = GibbsNcrpGlobalState
    rows_type = GibbsNcrpRows
    local_type = GibbsNcrpLocal
    documents_type = GibbsNcrpDocuments
    folds_in_at_a_point = True
    Options = GibbsNcrpOptions
    is_sampler = True

    def initialise(self, summary: Summary, stream: Stream) -> GibbsNcrpGlobalState:
        """Return a tree of a root or, for a warm start, also a path for each topic below it."""
        options = self.options
        lanes, deeper = min(max(summary.shards, 1), MAX_LANES), options.depth - 1
        nodes = 1 + summary.warm * deeper
        parent = np.full(padded(nodes + SPARE_PATHS * lanes * deeper), FREE, dtype=np.int64)
        parent[0] = -1
        node = np.arange(1, nodes)
        parent[node] = np.where((node - 1) % deeper == 0, 0, node - 1)
        return GibbsNcrpGlobalState(
            vocabulary=float(summary.words),
            shards=max(summary.shards, 1),
            lanes=lanes,
            warm_topics=summary.warm,
            alpha=np.resize(np.array(options.alpha), options.depth),
            eta=np.resize(np.array(options.eta), options.depth),
            gamma=options.gamma,
            node_parent=parent,
            node_documents=np.zeros(parent.size, dtype=np.int64),
            topic=np.zeros(parent.size, dtype=np.int64),
            free=parent == FREE,
            another_round=False,
        )

    def footprint(self, summary: Summary) -> Footprint:
        """Return the memory of a fit with 1000 nodes: 1 byte per token, 8 per document and level."""
        slots, deeper = (
            padded(EXPECTED_NODES + SPARE_PATHS * MAX_LANES * (self.options.depth - 1)),
            8.0 * self.options.depth,
        )
        pair = summary.tokens / max(summary.pairs, 1)
        return Footprint(
            rows=4.0 * slots,
            shown=4.0 * slots,
            swept=4.0 * slots,
            delta=4.0 * slots,
            pair=pair,
            document=deeper,
            chunk=2.0 * (pair * summary.pairs + deeper * summary.documents) + 8.0 * summary.tokens,
        )

    def update(self, global_state: GibbsNcrpGlobalState, delta: Delta, stream: Stream) -> GibbsNcrpGlobalState:
        """Add the changes of the counts and the tree, draw eta, alpha and gamma, and add free slots.

        Each is drawn by slice sampling (Neal 2003) of its logarithm, from its part of `objective` and its prior.
        """
        sums = GibbsNcrpSums.of(delta)
        after = replace(global_state.counted(sums), another_round=sums.outside > 0)
        if sums.histograms is not None:
            probability = SampleProbability.of(after, sums.histograms)
            after = _drawn(after, probability, self.options, stream.generator())
        lanes, columns = global_state.lanes, after.free.size
        least = SPARE_PATHS * (self.options.depth - 1)
        free = np.flatnonzero(after.free)
        if np.bincount(free % lanes, minlength=lanes).min() < min(least, max(least, 8) // lanes + 1):
            columns = padded(columns + columns // 8 + 1)
        if columns > MAX_TOPICS:
            raise NumericalError(f"the tree has more than {MAX_TOPICS} nodes; use a smaller gamma or a larger eta")
        return after.with_slots(columns)

    def needs_another_round(self, global_state: GibbsNcrpGlobalState) -> bool:
        """Return true if there are documents outside the tree."""
        return global_state.another_round

    def objective(self, global_state: GibbsNcrpGlobalState, delta: Delta) -> dict[str, float]:
        """Return log p(w, z, c | eta, alpha, gamma) of the sample, in nats: theta, phi and the restaurants summed out.

        sum_i log G(W eta_l) / G(W eta_l + n_i) + sum_iw log G(eta_l + n_iw) / G(eta_l) + sum_d log G(A) / G(A + n_d)
        + sum_dl log G(alpha_l + n_dl) / G(alpha_l) + sum_i [K_i log gamma + log G(gamma) / G(gamma + m_i)
        + sum_j log G(m_j)], with K_i children j of an inner node i, and m documents that pass a node.
        """
        sums = GibbsNcrpSums.of(delta)
        if sums.histograms is None or sums.outside:
            return {}
        known = SampleProbability.of(global_state.counted(sums), sums.histograms)
        words = sum(known.log_words(level, float(eta)) for level, eta in enumerate(global_state.eta))
        documents = sum(known.log_level(level, float(alpha)) for level, alpha in enumerate(global_state.alpha))
        paths = known.log_paths(global_state.gamma) + known.log_seats()
        return {"objective": words + documents + known.log_documents(float(global_state.alpha.sum())) + paths}

    def metrics(self, global_state: GibbsNcrpGlobalState) -> dict[str, float]:
        """Return the numbers of nodes and leaves, and eta, alpha and gamma."""
        level, depth = global_state.levels, global_state.alpha.size
        metrics = {"nodes": float((level >= 0).sum()), "leaves": float((level == depth - 1).sum())}
        metrics.update({f"eta_{at}": float(value) for at, value in enumerate(global_state.eta)})
        metrics.update({f"alpha_{at}": float(value) for at, value in enumerate(global_state.alpha)})
        return {**metrics, "gamma": global_state.gamma}

    def describe(self, block: GibbsNcrpRows, global_state: GibbsNcrpGlobalState, count: int) -> Description:
        """Describe the nodes, depth first, siblings by falling numbers of documents; an id numbers a node's slot."""
        ids = depth_first(global_state.node_parent, global_state.node_documents)
        topic = np.asarray(global_state.topic, dtype=np.float64)
        phi = global_state.word_probability(block.word_topic)[:, ids].T
        top = largest(phi, count)
        share = topic[ids] / max(float(topic.sum()), 1e-300)
        return Description(ids, share, top, np.take_along_axis(phi, top, axis=1), global_state.node_parent[ids])

    def draw_model(self, summary: Summary, stream: Stream) -> tuple[Arrays, GibbsNcrpGlobalState]:
        """Draw a tree for simulation, with ``branching`` children of each node."""
        options = self.options
        parent = regular_tree([int(children) for children in np.resize(options.branching, options.depth - 1)])
        level = levels(parent)
        eta = np.resize(np.array(options.eta, dtype=np.float64), options.depth)
        alpha = np.resize(np.array(options.alpha, dtype=np.float64), options.depth)
        # Each node's share of the documents.
        share = 1.0 / np.bincount(level)[level]
        tokens = SIMULATED_TOKENS * share * (alpha / alpha.sum())[level]
        global_state = replace(
            self.initialise(summary, stream),
            eta=np.full(options.depth, 1e-9 / summary.words),
            node_parent=parent,
            node_documents=SIMULATED_TOKENS * share,
            topic=tokens,
            free=np.zeros(parent.size, dtype=bool),
        )
        return generative.draw_topics(summary.words, tokens, summary.words * eta[level], stream), global_state

    def simulate(
        self, topics: Arrays, global_state: GibbsNcrpGlobalState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, npt.NDArray[np.float64]]:
        """Draw documents, with their proportions at nodes: all leaves are as likely, theta_d ~ Dir(alpha)."""
        generator, parent, alpha = (
            stream.generator(),
            global_state.node_parent,
            np.asarray(global_state.alpha, dtype=np.float64),
        )
        node = generator.choice(np.flatnonzero(global_state.levels == alpha.size - 1), documents)
        share = generative.draw_proportions(alpha, documents, generator)
        theta = np.zeros((documents, parent.size))
        for level in range(alpha.size - 1, -1, -1):
            theta[np.arange(documents), node] = share[:, level]
            node = parent[node]
        return generative.draw_bags(topics, global_state.words, theta, tokens, generator), theta

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
        histogram, counts = level_histogram(shard, np.asarray(local.document_level, dtype=np.int32))
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
        """Return the rows and the global state for another sweep of a shard, with the nodes that it has created."""
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


def _drawn(
    global_state: GibbsNcrpGlobalState,
    known: SampleProbability,
    options: GibbsNcrpOptions,
    generator: np.random.Generator,
) -> GibbsNcrpGlobalState:
    """Return the state with drawn hyperparameters; each one's prior is exponential, its mean being its option."""
    eta, alpha, gamma = np.array(global_state.eta), np.array(global_state.alpha), global_state.gamma
    if "eta" in options.learn:
        for level, mean in enumerate(np.resize(options.eta, options.depth)):

            def of_words(value: float, level: int = level) -> float:
                return known.log_words(level, value)

            eta[level] = slice_sampled(of_words, float(eta[level]), mean, generator)
    if "alpha" in options.learn:
        for level, mean in enumerate(np.resize(options.alpha, options.depth)):

            def of_levels(value: float, level: int = level) -> float:
                total = float(alpha.sum() - alpha[level] + value)
                return known.log_level(level, value) + known.log_documents(total)

            alpha[level] = slice_sampled(of_levels, float(alpha[level]), mean, generator)
    if "gamma" in options.learn:
        gamma = slice_sampled(known.log_paths, gamma, options.gamma, generator)
    return replace(global_state, eta=eta, alpha=alpha, gamma=gamma)
