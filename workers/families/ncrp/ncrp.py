"""Topics on a tree of the nested Chinese restaurant process, on a shard (Wang and Blei 2009).

c_n ~ nCRP(gamma), theta_n ~ Dir(alpha_1..alpha_L), z_nm ~ theta_n, t_nm ~ w_{c_n[z_nm]}, w_i ~ Dir(eta_l) at level l.
Outside the tree, q keeps the prior for every node.

* Form ``conditional``: q(c) q(z | c) q(theta), the bound in which a path's own levels explain its words; the local
  state is the expected tokens by level of each document.
* Form ``factorised``: q(c) q(z) q(theta) of the paper; the local state has q(z) of each pair too.
* Posterior ``dirichlet``: q(w_i) = Dir(eta + n_i). Posterior ``point``: w_i is the most probable under a Dir(eta + 1)
  prior, (eta + n_iw) / (W eta + n_i), nodes outside being uniform, where that prior has its mode: counts weigh as
  they do in a prediction, while exp(E[log w]) of the Dirichlet takes half a token off each.

A sweep returns its shard's expected counts as fresh totals, and folding puts their sum in place of the counts before;
so the number of shards changes nothing but rounding. The nodes, and the moves between sweeps, are in the global state;
see `collapsium.workers.families.ncrp.tree`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray
from collapsium.workers import special_functions as special
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Delta, Part, fresh
from collapsium.workers.arrays.document_hash import document_hashes, smallest_hashes
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.base import ShardModel
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.ncrp import initialisation
from collapsium.workers.families.ncrp.arrays import NCRP_ARRAYS
from collapsium.workers.families.ncrp.state import NcrpDocuments, NcrpGlobalState, NcrpLocal, NcrpOptions, NcrpRows
from collapsium.workers.families.ncrp.tree import DocumentEnds, Ints, Tree, Vector, deepened
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.trees.levels import LevelCounts, sweep_levels
from collapsium.workers.kernels.trees.nodes import merge_gains, path_probability, root_products
from collapsium.workers.kernels.trees.paths import MIN_PROBABILITY, sweep_paths
from collapsium.workers.kernels.trees.records import (
    DocumentPrior,
    LargestEnds,
    StoppingRule,
    StoredEnds,
    TreeStatistics,
    TreeTopics,
)
from collapsium.workers.special_functions import digamma, gammaln, xlogy

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


MAX_ENDS = 16  # ends that are stored of a document
MIN_END_SHARE = 1e-3  # least q(c) of a stored end behind the largest


@dataclass(frozen=True)
class WordLogs:
    """E[log w], or log w, of the words of the rows at the nodes of a tree, in the order of `Tree.columns`."""

    tree: Tree  # The nodes
    alpha: Vector  # Dirichlet parameters of the level proportions; float64 (depth,)
    log_node: Vector  # Of the tree's nodes; float64 (words, nodes)
    log_outside: Vector  # Of nodes outside the tree, by level; float64 (depth,)

    @classmethod
    def of(
        cls, global_state: NcrpGlobalState, tree: Tree, word_topic: AnyArray, totals: Vector, *, point: bool
    ) -> WordLogs:
        """Return those of a tree's topics."""
        words = global_state.vocabulary
        alpha, eta = global_state.level_priors(tree.depth)
        prior, counts = eta[tree.level], np.ascontiguousarray(word_topic[:, tree.columns])
        if point:
            log_outside = np.full(tree.depth, -special.log(words))
            log_node = special.log(counts + prior) - special.log(totals[tree.columns] + words * prior)
        else:
            log_outside = digamma(eta) - digamma(words * eta)
            log_node = digamma(counts + prior) - digamma(totals[tree.columns] + words * prior)
        return cls(tree, alpha, log_node, log_outside)


class DocumentPaths:
    """The paths and levels of a shard's documents after a pass."""

    def __init__(
        self,
        shard: Shard,
        document_level: Vector,
        pair_level: npt.NDArray[np.float32] | None,
        logs: WordLogs,
        end_log: Vector,
        stopping: StoppingRule,
    ) -> None:
        tree = self._tree = logs.tree
        size, depth = tree.columns.size, tree.depth
        self.document_level = np.zeros((shard.documents, depth))
        self.row_node = buffers.empty((shard.words.size, size), np.float64)
        self.ends, self.log_theta, bound = np.zeros(size), np.zeros(depth), np.zeros(1)
        self.pair_level: npt.NDArray[np.float32] | None = None
        self._largest = LargestEnds(
            np.zeros((shard.documents, MAX_ENDS), dtype=np.int32),
            np.zeros((shard.documents, MAX_ENDS), dtype=np.float32),
            MIN_END_SHARE,
        )
        statistics = TreeStatistics(self.row_node, self.ends, self.log_theta, bound)
        prior = DocumentPrior(np.ascontiguousarray(end_log[tree.columns]), logs.alpha)
        pairs = document_pairs(shard)
        if pair_level is not None:
            previous = _deepened_pairs(pair_level, logs.alpha)
            self.pair_level = np.empty_like(previous)
            topics = TreeTopics(tree.parent, tree.level, logs.log_node, logs.log_outside)
            levels = LevelCounts(self.document_level, self.pair_level)
            sweep_levels(pairs, topics, prior, previous, stopping.passes, levels, statistics, self._largest)
        else:
            start = np.ascontiguousarray(deepened(document_level, logs.alpha))
            weights, outside = (
                np.maximum(special.exp(one), MIN_PROBABILITY) for one in (logs.log_node, logs.log_outside)
            )
            topics = TreeTopics(tree.parent, tree.level, weights, outside)
            sweep_paths(pairs, topics, prior, start, stopping, self.document_level, statistics, self._largest)
        self.bound = float(bound[0])

    def local(self) -> NcrpLocal:
        """Return the local state from which the next sweep starts."""
        ends = DocumentEnds.of_largest(self._largest.ends, self._largest.masses, self._tree.columns)
        return NcrpLocal(self.document_level, ends, self.pair_level)


def _deepened_pairs(pair_level: npt.NDArray[np.float32], alpha: Vector) -> npt.NDArray[np.float32]:
    if pair_level.shape[1] == alpha.size:
        return np.ascontiguousarray(pair_level)
    return np.ascontiguousarray(deepened(pair_level, alpha), dtype=np.float32)


def level_proportions(local: NcrpDocuments, global_state: NcrpGlobalState) -> Vector:
    """Return E[theta] of each document, shape (documents, depth)."""
    alpha = global_state.level_priors(global_state.fitted.depth)[0]
    gamma = deepened(local.document_level, alpha) + alpha
    theta: Vector = np.ascontiguousarray(gamma / gamma.sum(axis=1, keepdims=True))
    return theta


def best_paths(global_state: NcrpGlobalState, owner: AnyArray, ends: AnyArray, masses: Vector, documents: int) -> Ints:
    """Return the most probable full path of each document in the tree."""
    tree, passes = global_state.fitted.tree, global_state.node_passes
    order = np.lexsort((-masses, tree.levels[ends] < tree.depth - 1, owner))
    best = np.zeros(documents, dtype=np.int64)
    best[owner[order][::-1]] = ends[order][::-1]
    paths = tree.paths()
    for level in range(1, tree.depth):
        for column in np.flatnonzero((tree.levels == level - 1) & (paths[:, -1] < 0)):
            children = tree.children(int(column))
            if children.size:
                best[best == column] = children[np.argmax(passes[children])]
    best_path: Ints = paths[best]
    return best_path


FOLD_IN = StoppingRule(passes=30, tolerance=1e-3)  # Of the passes over unseen documents


class NcrpShardModel(ShardModel[NcrpOptions, NcrpGlobalState, NcrpRows, NcrpLocal]):
    """Expected counts by node, and paths and levels of documents."""

    global_state_type = NcrpGlobalState
    rows_type = NcrpRows
    local_type = NcrpLocal
    documents_type = NcrpDocuments
    arrays = NCRP_ARRAYS

    def kernels(self, global_state: NcrpGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        sweep_documents = sweep_levels if global_state.factorised else sweep_paths
        return [sweep_documents, root_products, merge_gains, path_probability]

    def initial_rows(self, words: int, global_state: NcrpGlobalState) -> NcrpRows:
        """Return the rows of `words` words before the first document is counted."""
        return NcrpRows(np.zeros((words, global_state.fitted.node_parent.size)), np.zeros(words))

    def start(
        self,
        shard: Shard,
        rows: NcrpRows,
        global_state: NcrpGlobalState,
        stream: Stream,
        warm: Arrays | None = None,
    ) -> tuple[NcrpLocal, Delta]:
        """Return even level proportions and the documents that may start nodes; or count another tree's paths."""
        if warm is not None:
            return initialisation.warm_start(shard, global_state, warm)
        alpha = global_state.level_priors(global_state.upcoming.next_depth)[0]
        local = _even_levels(shard, alpha, factorised=global_state.factorised)
        candidates = smallest_hashes(
            document_hashes(shard, stream), global_state.initialisation.max_seeds, shard.lengths > 0
        )
        parts = {"candidates": fresh(np.ones(candidates.size), "document")}
        return local, Delta(parts, {"document": candidates})

    def sweep(
        self, shard: Shard, local: NcrpLocal, rows: NcrpRows, global_state: NcrpGlobalState, stream: Stream
    ) -> tuple[NcrpLocal, Delta]:
        """Pass over a shard, or return the words of the documents that start nodes.

        Returns local: The new one; delta: Fresh ``word_topic`` and ``word_rest``, tokens outside the tree; and what
        `SweepSums` has of the documents
        """
        began = time.perf_counter()
        if global_state.initialisation.seeding:
            return local, initialisation.seed_counts(shard, global_state, stream)
        tree, moves, end_log = global_state.upcoming.tree, global_state.moves, global_state.upcoming.next_end_log
        totals = moves.apply(global_state.node_tokens)
        logs = WordLogs.of(global_state, tree, moves.apply(rows.word_topic), totals, point=global_state.point)
        joined = initialisation.joined_documents(shard, global_state, stream)
        everything = bool(joined.all())
        part, own = (shard, local) if everything else initialisation.select_documents(shard, local, joined)
        stopping = StoppingRule(self.options.document_sweeps, 0.0)
        paths = DocumentPaths(part, own.document_level, own.pair_level, logs, end_log, stopping)
        after = paths.local()
        if not everything:
            after = initialisation.merge_documents(shard, local, after, joined)
        parts = {
            **_path_sums(part, paths, logs, end_log),
            "end_products": fresh(after.ends.products(tree.parents.size), "node", "other"),
            "documents": fresh(float(shard.documents)),
            "joined": fresh(float(joined.sum())),
            "absent": fresh(float(shard.tokens - part.tokens)),
            "tokens": fresh(float(shard.tokens)),
        }
        ids: dict[str, AnyArray] = {"word": shard.words}
        if self.options.growing() > 0:
            chosen, columns = initialisation.draw_ends(shard, after.ends, self.options.growing(), stream, joined)
            ids["document"], parts["drawn_ends"] = chosen, fresh(columns, "document")
            parts["drawn_documents"] = fresh(np.ones(chosen.size), "document")
        return after, Delta(parts, ids, {"kernel": time.perf_counter() - began})

    def advance(self, rows: NcrpRows, delta: Delta, global_state: NcrpGlobalState) -> tuple[NcrpRows, NcrpGlobalState]:
        """Return the rows as they were: the changes of a shard take effect in the next iteration."""
        return rows, global_state

    def fold(self, block: NcrpRows, delta: Delta, global_state: NcrpGlobalState) -> tuple[NcrpRows, Delta]:
        """Replace the counts of a block by new ones, and return what the bound and moves need of them.

        Returns block: The new rows; delta: What `SweepSums` has of the nodes, and ``moved``
        """
        before, counts = block.word_topic, delta.read(NcrpRows)
        after, rest = np.zeros(before.shape), np.zeros(len(before))
        if global_state.initialisation.seeding:  # in addition to the counts so far
            after += global_state.moves.apply(before)
        if counts is not None:
            after[delta.ids["word"]] += counts.word_topic
            if counts.word_rest is not None:
                rest[delta.ids["word"]] = counts.word_rest
        tree = global_state.upcoming.tree
        prior = global_state.column_priors(tree)
        parts: dict[str, Part] = {
            "node_tokens": fresh(after.sum(axis=0), "node"),
            "node_sum": fresh(_node_sums(after, tree, prior, point=global_state.point), "node"),
            "moved": fresh(np.abs(after - before).sum() / 2.0),
        }
        if "eta" in self.options.learn:
            logs = np.zeros(prior.size)
            logs[tree.columns] = digamma(after[:, tree.columns] + prior[tree.columns]).sum(axis=0)
            parts["log_phi"] = fresh(logs, "node")
        comparisons = global_state.comparisons
        if comparisons.compares_affinity:
            roots = np.zeros((prior.size, prior.size))
            root_products(after, roots)
            parts["roots"] = fresh(roots, "node", "other")
        first, second = comparisons.compared_first, comparisons.compared_second
        if first.size:
            gain = np.zeros(first.size)
            merge_gains(after, first, second, np.maximum(prior[first], 0.0), gain)
            parts["gains"] = fresh(gain, "pair")
        return NcrpRows(after, rest), Delta(parts)

    def fold_in(self, shard: Shard, rows: NcrpRows, global_state: NcrpGlobalState, stream: Stream) -> NcrpDocuments:
        """Fit paths and level proportions of unseen documents under fixed topics."""
        fitted = global_state.fitted
        logs = WordLogs.of(
            global_state, fitted.tree, rows.word_topic, global_state.node_tokens, point=global_state.point
        )
        local = _even_levels(shard, logs.alpha, factorised=global_state.factorised)
        paths = DocumentPaths(shard, local.document_level, local.pair_level, logs, fitted.end_log, FOLD_IN)
        return self.documents(paths.local())

    def documents(self, local: NcrpLocal) -> NcrpDocuments:
        """Return the part of a local state that a finished model saves."""
        return NcrpDocuments(local.document_level, local.ends)

    def predict(self, heldout: Shard, local: NcrpDocuments, rows: NcrpRows, global_state: NcrpGlobalState) -> Arrays:
        """Return each held-out pair's probability sum_c q(c) sum_l theta_l w_{c_l}, theta and w being expectations."""
        tree = global_state.fitted.tree
        outside = np.full(tree.depth, 1.0 / global_state.vocabulary)
        offsets, ends, masses = local.ends.with_roots()
        means = np.ascontiguousarray(global_state.word_means(rows.word_topic, tree.columns))
        topics = TreeTopics(tree.parent, tree.level, means, outside)
        stored = StoredEnds(offsets, tree.places[ends].astype(np.int32), masses.astype(np.float32))
        probability, document_log = np.zeros(heldout.pairs), np.zeros(heldout.documents)
        theta = level_proportions(local, global_state)
        path_probability(document_pairs(heldout), topics, theta, stored, probability, document_log)
        return {"probability": probability, "document_log": document_log}

    def probabilities(self, rows: NcrpRows, global_state: NcrpGlobalState) -> Arrays:
        """Return E[w_i] of the words of the rows by column, and each column's ``topic_parent``."""
        tree = global_state.fitted.tree
        word_topic = np.full((len(rows.word_topic), tree.parents.size), 1.0 / global_state.vocabulary)
        word_topic[:, tree.columns] = global_state.word_means(rows.word_topic, tree.columns)
        return {"word_topic": word_topic, "topic_parent": tree.parents}

    def infer(self, local: NcrpDocuments, global_state: NcrpGlobalState) -> Arrays:
        """Return each document's share of each node, sum_c q(c) theta_l, and its most probable full path in the tree.

        Shares outside the tree are in no column. Where no end of a document is a leaf, its path goes on to the largest
        child.
        """
        tree, theta = global_state.fitted.tree, level_proportions(local, global_state)
        paths, (offsets, ends, masses) = tree.paths(), local.ends.with_roots()
        documents = offsets.size - 1
        owner = np.repeat(np.arange(documents), np.diff(offsets))
        totals = np.bincount(owner, masses, documents)
        shares = np.zeros((documents, tree.parents.size))
        for level in range(tree.depth):
            node = paths[ends, level]
            inside = node >= 0
            part = masses[inside] / totals[owner[inside]] * theta[owner[inside], level]
            np.add.at(shares, (owner[inside], node[inside]), part)
        return {"document_topic": shares, "document_path": best_paths(global_state, owner, ends, masses, documents)}

    def word_tokens(self, rows: NcrpRows) -> Vector:
        """Return the expected tokens of each word, in the tree and outside it."""
        expected: Vector = np.asarray(rows.word_topic, dtype=np.float64).sum(axis=1)
        return expected if rows.word_rest is None else expected + rows.word_rest

    def document_lengths(self, local: NcrpDocuments) -> Vector:
        """Return the expected tokens of each document."""
        return local.tokens()


def _even_levels(shard: Shard, alpha: Vector, *, factorised: bool) -> NcrpLocal:
    """Return the local state of documents whose levels have the proportions of the prior."""
    share = alpha / alpha.sum()
    pair_level = np.tile(share.astype(np.float32), (shard.pairs, 1)) if factorised else None
    return NcrpLocal(np.outer(shard.lengths, share), DocumentEnds.empty(shard.documents), pair_level)


def _node_sums(counts: Vector, tree: Tree, prior: Vector, *, point: bool) -> Vector:
    """Return the words' sums of each node that the bound needs."""
    sums, columns = np.zeros(prior.size), tree.columns
    parameters = counts[:, columns] + prior[columns]
    if point:
        sums[columns] = xlogy(parameters, parameters).sum(axis=0)
    else:
        sums[columns] = (gammaln(parameters) - gammaln(prior[columns])).sum(axis=0)
    return sums


def _path_sums(shard: Shard, paths: DocumentPaths, logs: WordLogs, end_log: Vector) -> dict[str, Part]:
    """Return the sums over the documents of a pass."""
    tree = logs.tree
    ends, word_topic = np.zeros(tree.parents.size), np.zeros((shard.words.size, tree.parents.size))
    ends[tree.columns] = paths.ends
    word_topic[:, tree.columns] = paths.row_node
    bound = paths.bound - float((paths.ends * end_log[tree.columns]).sum())
    if paths.pair_level is None:  # in the factorised form the kernel leaves out the part of q(z) in E[log w]
        bound -= float((paths.row_node * np.maximum(logs.log_node, special.log(MIN_PROBABILITY))).sum())
    return {
        "word_topic": fresh(word_topic, "word", "node"),
        "word_rest": fresh(np.maximum(initialisation.word_tokens(shard) - word_topic.sum(axis=1), 0.0), "word"),
        "ends": fresh(ends, "node"),
        "bound": fresh(bound),
        "level_tokens": fresh(paths.document_level.sum(axis=0), "level"),
        "log_theta": fresh(paths.log_theta, "level"),
        "occupied": fresh(float((shard.lengths > 0).sum())),
    }
