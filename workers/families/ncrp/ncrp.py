"""Topics on a tree of the nested Chinese restaurant process, by variational inference (Wang and Blei 2009).

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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray
from collapsium.workers import special_functions as special
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Delta, Part, fresh
from collapsium.workers.arrays.random_streams import Stream, document_hashes, smallest_hashes
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families import dirichlet as dirichlet
from collapsium.workers.families import generative
from collapsium.workers.families.description import largest
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.families.family import Description, Footprint, Simulates, Summary
from collapsium.workers.families.ncrp import initialisation, node_moves
from collapsium.workers.families.ncrp.initialisation import (
    ALL,
    SOME_TOKENS,
    admit_seeds,
    initial_global_state,
    with_candidates,
    with_seeds,
    with_warm_tree,
)
from collapsium.workers.families.ncrp.node_moves import Moves, depth_first, regular_tree
from collapsium.workers.families.ncrp.state import (
    Comparisons,
    NcrpDocuments,
    NcrpGlobalState,
    NcrpLocal,
    NcrpRows,
    NodeTokens,
    SweepSums,
    WarmSums,
)
from collapsium.workers.families.ncrp.tree import (
    DocumentEnds,
    FittedTree,
    NcrpOptions,
    Tree,
    Vector,
    deepened,
    end_logs,
    learned_gamma,
    sticks,
    sticks_bound,
)
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.trees.paths import (
    MIN_PROBABILITY,
    DocumentPrior,
    LargestEnds,
    LevelCounts,
    StoppingRule,
    StoredEnds,
    TreeStatistics,
    TreeTopics,
    merge_gains,
    path_probability,
    root_products,
    sweep_levels,
    sweep_paths,
)
from collapsium.workers.special_functions import digamma, gammaln, xlogy

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents, Shard


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
        """Return the log probabilities of a tree's topics."""
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
            deep = pair_level if pair_level.shape[1] == depth else deepened(pair_level, logs.alpha)
            previous = np.ascontiguousarray(deep, dtype=np.float32)
            self.pair_level = np.empty_like(previous)
            topics = TreeTopics(tree.parent, tree.level, logs.log_node, logs.log_outside)
            levels = LevelCounts(self.document_level, self.pair_level)
            sweep_levels(pairs, topics, prior, previous, stopping.passes, levels, statistics, self._largest)
        else:
            start = np.ascontiguousarray(deepened(document_level, logs.alpha))
            weights, outside = (
                np.maximum(special.exp(log), MIN_PROBABILITY) for log in (logs.log_node, logs.log_outside)
            )
            topics = TreeTopics(tree.parent, tree.level, weights, outside)
            sweep_paths(pairs, topics, prior, start, stopping, self.document_level, statistics, self._largest)
        self.bound = float(bound[0])

    def local(self) -> NcrpLocal:
        """Return the local state from which the next sweep starts."""
        ends = DocumentEnds.of_largest(self._largest.ends, self._largest.masses, self._tree.columns)
        return NcrpLocal(self.document_level, ends, self.pair_level)


def level_proportions(local: NcrpDocuments, global_state: NcrpGlobalState) -> Vector:
    """Return E[theta] of each document, shape (documents, depth)."""
    alpha = global_state.level_priors(global_state.fitted.depth)[0]
    gamma = deepened(local.document_level, alpha) + alpha
    theta: Vector = np.ascontiguousarray(gamma / gamma.sum(axis=1, keepdims=True))
    return theta


FOLD_IN = StoppingRule(passes=30, tolerance=1e-3)  # Of the passes over unseen documents


def _even_levels(shard: Shard, alpha: Vector, *, factorised: bool) -> NcrpLocal:
    """Return the local state of documents whose levels have the proportions of the prior."""
    share = alpha / alpha.sum()
    pair_level = np.tile(share.astype(np.float32), (shard.pairs, 1)) if factorised else None
    return NcrpLocal(np.outer(shard.lengths, share), DocumentEnds.empty(shard.documents), pair_level)


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


MIN_CLUSTERING_SWEEPS = 12
SWEEPS_BEFORE_MERGES = 4  # Sweeps of the clustering before leaves are compared
COMPARISON_PERIOD = 5  # Iterations from one comparison of siblings to the next
NEAREST_SIBLINGS = 3  # Siblings that each node is compared with


def move_nodes(
    global_state: NcrpGlobalState, sums: SweepSums, options: NcrpOptions, tree: Tree, stream: Stream
) -> NcrpGlobalState:
    """Merge, prune and grow nodes, and plan the next sweep."""
    progress, start = global_state.clustering, global_state.initialisation
    sweeps, longest = progress.clustering_sweeps, progress.max_clustering_sweeps
    clustering, passes, tokens = tree.depth < options.depth, global_state.node_passes, global_state.node_tokens
    affinity = None if sums.roots is None else node_moves.affinities(sums.roots, tokens)
    moves, without_merge = _merged(global_state, sums, options, tree)
    moves = moves.pruned(moves.summed(passes), options.prune)
    finished = sweeps >= longest or (sweeps >= MIN_CLUSTERING_SWEEPS and without_merge >= 2)
    if clustering and sums.roots is not None and finished:
        merged_affinity = _merged_affinity(moves, sums.roots, moves.summed(tokens))
        moves = node_moves.regrouped(moves, np.sqrt(1.0 - merged_affinity), options.alphas(), options.depth)
        clustering = False
    elif not clustering and options.growing():
        # The tree grows where sampled documents leave it, and at one node by expected mass.
        inner: list[int] = []
        if sums.drawn is not None:
            drawn = (sums.drawn.drawn_ends / sums.drawn.drawn_documents)[: options.growing()].astype(np.int64)
            inner = [int(end) for end in drawn if 0 <= tree.levels[end] < tree.depth - 1]
        leaving = np.where((tree.levels >= 0) & (tree.levels < tree.depth - 1), sums.ends, 0.0)
        if leaving.sum() > 0.0:
            place = np.searchsorted(np.cumsum(leaving), stream.generator().random() * leaving.sum(), side="right")
            inner.append(int(min(place, leaving.size - 1)))
        moves = moves.grown([end for end in inner if moves.tree.levels[end] >= 0 and leaving[end] > 0.0])
    if options.initial_tree == "gradual" and start.hash_limit < ALL:
        limit = int(min(start.admission_factor * start.hash_limit, float(ALL - 1024)))
        limit = limit if limit < ALL // 100 * 99 else int(ALL)
        seeds = start.seed_candidates[(start.seed_candidates > start.hash_limit) & (start.seed_candidates <= limit)]
        admitting = replace(global_state, initialisation=replace(start, hash_limit=limit))
        return admit_seeds(admitting, moves, seeds, stream)
    if clustering:
        comparing = sweeps >= min(SWEEPS_BEFORE_MERGES, longest - 1)
    else:
        comparing = options.compare and sweeps % COMPARISON_PERIOD < 2
    pairs = (np.zeros(0, np.int64),) * 2
    if comparing and affinity is not None and moves.tree.depth == tree.depth:
        pairs = node_moves.nearest_siblings(moves.tree, affinity, NEAREST_SIBLINGS)
    unfinished = clustering or moves.tree.depth > tree.depth
    return replace(
        global_state,
        upcoming=moves.upcoming(_next_end_logs(moves, global_state, sums, tree)),
        moves=moves.move_table(),
        comparisons=Comparisons(*pairs, compares_affinity=comparing),
        clustering=replace(progress, comparisons_without_merge=without_merge),
        uncounted=SOME_TOKENS * float(progress.planned_iterations > 0 and unfinished),
    )


def _merged(global_state: NcrpGlobalState, sums: SweepSums, options: NcrpOptions, tree: Tree) -> tuple[Moves, int]:
    """Return the merges of siblings, and the number of comparisons since the last one by evidence."""
    moves, without_merge = Moves(tree), global_state.clustering.comparisons_without_merge
    if options.merge < 1.0 and tree.depth == options.depth:
        moves = moves.merged(node_moves.alike_paths(tree, sums.end_products, options.merge))
    if sums.gains is not None:
        first, second = global_state.comparisons.compared_first, global_state.comparisons.compared_second
        gains = node_moves.evidence_gains(
            sums.gains,
            first,
            second,
            global_state.node_tokens,
            global_state.node_passes,
            global_state.column_priors(tree),
            global_state.vocabulary,
            global_state.gamma,
        )
        is_below = (moves.tree.levels[first] > 0) & (moves.tree.levels[second] > 0)
        chosen = node_moves.disjoint(first[is_below], second[is_below], gains[is_below], global_state.node_passes)
        moves, without_merge = moves.merged(chosen), 0 if chosen else without_merge + 1
    return moves, without_merge


def _merged_affinity(
    moves: Moves, roots: npt.NDArray[np.float64], tokens: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return affinities of the leaves after merges: a merged leaf has the mean of its parts'."""
    size = roots.shape[0]
    weights = np.zeros((size, size))
    for column in moves.tree.columns:
        for source, weight in moves.sources.get(int(column), [(int(column), 1.0)]):
            weights[column, source] += weight
    merged = np.einsum("ij,kj->ik", np.einsum("ij,jk->ik", weights, roots), weights)
    return node_moves.affinities(merged, np.maximum(tokens, np.diag(merged)))


def _next_end_logs(moves: Moves, global_state: NcrpGlobalState, sums: SweepSums, tree: Tree) -> npt.NDArray[np.float64]:
    """Return the log prior masses of the next tree's ends; nodes that have just grown keep the prior's sticks."""
    if moves.tree.depth > tree.depth:
        leaves = moves.tree.levels == moves.tree.depth - 1
        ends = np.where(leaves, moves.summed(np.asarray(global_state.node_passes)), 0.0)
        ends *= sums.ends.sum() / max(ends.sum(), 1e-300)
    else:
        ends = moves.summed(sums.ends)
    factors = sticks(moves.tree, moves.tree.gathered(ends), ends, global_state.gamma)
    new = [column for column, sources in moves.sources.items() if not sources]
    factors.a[new], factors.b[new] = 1.0, global_state.gamma
    return end_logs(moves.tree, factors, global_state.gamma)


SIMULATED_TOKENS = 1e9  # Tokens of a simulated tree, so many that the prior is negligible


class Ncrp(Simulates[NcrpOptions, NcrpGlobalState, NcrpRows, NcrpLocal]):
    """The nested Chinese restaurant process by variational inference."""

    global_state_type = NcrpGlobalState
    rows_type = NcrpRows
    local_type = NcrpLocal
    documents_type = NcrpDocuments
    Options = NcrpOptions

    def initialise(self, summary: Summary, stream: Stream) -> NcrpGlobalState:
        """Return the state before any document was swept."""
        return initial_global_state(summary, self.options)

    def footprint(self, summary: Summary) -> Footprint:
        """Return the memory of a fit: counts in 8 bytes for each word and column, q(z) in 4 a pair and level."""
        columns = self.options.max_nodes
        return Footprint(
            rows=8.0 * columns,
            shown=8.0 * columns,
            swept=32.0 * columns,
            delta=8.0 * columns,
            pair=4.0 * self.options.depth if self.options.form == "factorised" else 0.0,
            document=8.0 * self.options.depth + 12.0 * 4,
            chunk=0.0,
        )

    def update(self, global_state: NcrpGlobalState, delta: Delta, stream: Stream) -> NcrpGlobalState:
        """Take the new counts, learn hyperparameters, fit the sticks, and move nodes."""
        warm, tokens, sums = delta.read(WarmSums), delta.read(NodeTokens), delta.read(SweepSums)
        if warm is not None:
            return with_warm_tree(global_state, warm, self.options)
        if global_state.initialisation.seeding and tokens is not None:
            return with_seeds(global_state, tokens)
        if sums is None:
            return with_candidates(global_state, delta, self.options, stream)
        upcoming, tree = global_state.upcoming, global_state.upcoming.tree
        start, progress = global_state.initialisation, global_state.clustering
        after = replace(
            global_state,
            fitted=upcoming.fitted(upcoming.next_end_log),
            node_tokens=sums.node_tokens,
            node_passes=tree.gathered(sums.ends),
            clustering=replace(progress, clustering_sweeps=progress.clustering_sweeps + 1),
            initialisation=replace(start, absent_tokens=sums.absent),
            another_round=False,
        )
        if tree.depth == self.options.depth:
            after = _learned(after, sums, self.options, tree)
        factors = sticks(tree, after.node_passes, sums.ends, after.gamma)
        end_log = np.maximum(end_logs(tree, factors, after.gamma), -1e300)
        return move_nodes(replace(after, fitted=upcoming.fitted(end_log)), sums, self.options, tree, stream)

    def needs_another_round(self, global_state: NcrpGlobalState) -> bool:
        """Return true if the iteration continues with one more sweep: an initialisation takes several rounds."""
        return global_state.another_round

    def uncounted_tokens(self, global_state: NcrpGlobalState) -> float:
        """Return how many tokens do not count yet: more than 0 until the tree has its full depth."""
        return global_state.uncounted

    def objective(self, global_state: NcrpGlobalState, delta: Delta) -> dict[str, float]:
        """Return the evidence lower bound, in nats, of the q(c), q(z) and q(theta) that the sweep has made.

        q(v) and q(w) are the best for these. With posterior 'point' it is a bound of the log likelihood of the topics
        and the penalty eta sum_w log(W w_iw) of each.
        """
        sums = delta.read(SweepSums)
        if sums is None or sums.joined < sums.documents:
            return {}
        tree, ends, gamma = global_state.upcoming.tree, sums.ends, global_state.gamma
        factors = sticks(tree, tree.gathered(ends), ends, gamma)
        value = sums.bound + sticks_bound(tree, factors, ends, gamma)
        words, prior = global_state.vocabulary, global_state.column_priors(tree)[tree.columns]
        tokens, node_sum = sums.node_tokens[tree.columns], sums.node_sum[tree.columns]
        posterior = tokens + words * prior
        if global_state.point:
            value += float((node_sum - posterior * special.log(posterior) + words * prior * special.log(words)).sum())
        else:
            value += float((node_sum - gammaln(posterior) + gammaln(words * prior)).sum())
        return {"objective": value}

    def metrics(self, global_state: NcrpGlobalState) -> dict[str, float]:
        """Return the nodes and leaves, the nodes moved before the sweep, and hyperparameters that may be learned."""
        fitted, tree = global_state.fitted, global_state.fitted.tree
        metrics = {"nodes": float(tree.columns.size), "leaves": float((tree.levels == tree.depth - 1).sum())}
        metrics.update(grown=float(fitted.grown), pruned=float(fitted.pruned), merged=float(fitted.merged))
        metrics["gamma"] = global_state.gamma
        metrics.update({f"alpha_{level}": float(value) for level, value in enumerate(global_state.alpha)})
        return metrics

    def describe(self, block: NcrpRows, global_state: NcrpGlobalState, count: int) -> Description:
        """Describe the nodes depth-first, siblings by falling share of the documents; an id numbers its column."""
        tree = global_state.fitted.tree
        columns = depth_first(tree.parents, global_state.node_passes)
        tokens, means = global_state.node_tokens[columns], global_state.word_means(block.word_topic, columns).T
        top = largest(means, count)
        share = tokens / max(tokens.sum(), 1e-300)
        return Description(columns, share, top, np.take_along_axis(means, top, axis=1), parent=tree.parents[columns])

    def draw_model(self, summary: Summary, stream: Stream) -> tuple[Arrays, NcrpGlobalState]:
        """Draw a tree for simulation, with ``branching`` children of each node."""
        options = self.options
        parents = regular_tree([int(children) for children in np.resize(options.branching, options.depth - 1)])
        tree = Tree(parents, options.depth)
        # Each node's share of the documents.
        share = 1.0 / np.bincount(tree.levels)[tree.levels]
        alphas = options.alphas()
        tokens = SIMULATED_TOKENS * share * (alphas / alphas.sum())[tree.levels]
        passes = SIMULATED_TOKENS * share
        ends = np.where(tree.levels == tree.depth - 1, passes, 0.0)
        end_log = end_logs(tree, sticks(tree, passes, ends, options.gamma), options.gamma)
        global_state = replace(
            self.initialise(summary, stream),
            eta=np.full(options.depth, 1e-9 / summary.words),
            fitted=FittedTree(parents, options.depth, np.maximum(end_log, -1e300), 0, 0, 0),
            node_tokens=tokens,
            node_passes=passes,
        )
        return generative.draw_topics(
            summary.words, tokens, summary.words * options.etas()[tree.levels], stream
        ), global_state

    def simulate(
        self, topics: Arrays, global_state: NcrpGlobalState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, npt.NDArray[np.float64]]:
        """Draw documents, with their proportions at nodes: all leaves are as likely, theta_n ~ Dir(alpha)."""
        generator, tree = stream.generator(), global_state.fitted.tree
        node = generator.choice(np.flatnonzero(tree.levels == tree.depth - 1), documents)
        share = generative.draw_proportions(np.asarray(global_state.alpha, dtype=np.float64), documents, generator)
        theta = np.zeros((documents, tree.parents.size))
        for level in range(tree.depth - 1, -1, -1):
            theta[np.arange(documents), node] = share[:, level]
            node = tree.parents[node]
        return generative.draw_bags(topics, int(global_state.vocabulary), theta, tokens, generator), theta

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
        part, part_local = (shard, local) if everything else initialisation.select_documents(shard, local, joined)
        stopping = StoppingRule(self.options.document_sweeps, 0.0)
        paths = DocumentPaths(part, part_local.document_level, part_local.pair_level, logs, end_log, stopping)
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
        prior, columns = global_state.column_priors(tree), tree.columns
        parameters, node_sum = after[:, columns] + prior[columns], np.zeros(prior.size)
        if global_state.point:
            node_sum[columns] = xlogy(parameters, parameters).sum(axis=0)
        else:
            node_sum[columns] = (gammaln(parameters) - gammaln(prior[columns])).sum(axis=0)
        parts: dict[str, Part] = {
            "node_tokens": fresh(after.sum(axis=0), "node"),
            "node_sum": fresh(node_sum, "node"),
            "moved": fresh(np.abs(after - before).sum() / 2.0),
        }
        if "eta" in self.options.learn:
            logs = np.zeros(prior.size)
            logs[columns] = digamma(parameters).sum(axis=0)
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
        after = paths.local()
        return NcrpDocuments(after.document_level, after.ends)

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
        order = np.lexsort((-masses, tree.levels[ends] < tree.depth - 1, owner))
        best = np.zeros(documents, dtype=np.int64)
        best[owner[order][::-1]] = ends[order][::-1]
        for level in range(1, tree.depth):
            for column in np.flatnonzero((tree.levels == level - 1) & (paths[:, -1] < 0)):
                children = tree.children(int(column))
                if children.size:
                    best[best == column] = children[np.argmax(global_state.node_passes[children])]
        return {"document_topic": shares, "document_path": paths[best]}

    def word_tokens(self, rows: NcrpRows) -> Vector:
        """Return the expected tokens of each word, in the tree and outside it."""
        expected: Vector = np.asarray(rows.word_topic, dtype=np.float64).sum(axis=1)
        return expected if rows.word_rest is None else expected + rows.word_rest

    def document_lengths(self, local: NcrpDocuments) -> Vector:
        """Return the expected tokens of each document."""
        return local.tokens()


def _learned(global_state: NcrpGlobalState, sums: SweepSums, options: NcrpOptions, tree: Tree) -> NcrpGlobalState:
    """Return the state with learned alpha, eta and gamma, each given all else."""
    alpha, eta, gamma = global_state.alpha, global_state.eta, global_state.gamma
    if "alpha" in options.learn and sums.occupied > 0:
        alpha = dirichlet.asymmetric(alpha, sums.log_theta, sums.occupied)
    if "gamma" in options.learn:
        factors = sticks(tree, global_state.node_passes, sums.ends, gamma)
        gamma = learned_gamma(tree, factors, sums.ends, gamma)
    if "eta" in options.learn and sums.log_phi is not None:
        eta = np.array([_learned_eta(level, global_state, sums, sums.log_phi, tree) for level in range(tree.depth)])
    return replace(global_state, alpha=alpha, eta=eta, gamma=gamma)


def _learned_eta(
    level: int, global_state: NcrpGlobalState, sums: SweepSums, log_phi: npt.NDArray[np.float64], tree: Tree
) -> float:
    """Return the eta of a level that maximises the bound given q(w), and the tokens outside the tree there."""
    from scipy import optimize

    nodes, words, eta = np.flatnonzero(tree.levels == level), global_state.vocabulary, float(global_state.eta[level])
    logs = float((log_phi[nodes] - words * digamma(sums.node_tokens[nodes] + words * eta)).sum())
    outside = float(sums.level_tokens[level] - sums.node_tokens[nodes].sum())

    def loss(log_eta: float) -> float:
        value = float(special.exp(log_eta))
        inside = nodes.size * (gammaln(words * value) - words * gammaln(value)) + (value - 1.0) * logs
        return -float(inside + outside * (digamma(value) - digamma(words * value)))

    best = optimize.minimize_scalar(loss, bounds=(-7.0, 4.0), method="bounded", options={"xatol": 1e-6})
    return float(special.exp(best.x)) if best.fun < loss(float(special.log(eta))) else eta
