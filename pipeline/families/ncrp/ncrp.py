"""Topics on a tree of the nested Chinese restaurant process, by variational inference (Wang and Blei 2009).

c_n ~ nCRP(gamma), theta_n ~ Dir(alpha_1..alpha_L), z_nm ~ theta_n, t_nm ~ w_{c_n[z_nm]}, w_i ~ Dir(eta_l) at level l.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families import generative
from collapsium.pipeline.families import hyperparameters as dirichlet
from collapsium.pipeline.families.base import Description, Footprint, Simulates, Summary
from collapsium.pipeline.families.ncrp import node_moves
from collapsium.pipeline.families.ncrp.initialisation import (
    SOME_TOKENS,
    admit_seeds,
    initial_global_state,
    with_candidates,
    with_seeds,
    with_warm_tree,
)
from collapsium.pipeline.families.ncrp.node_moves import Moves, depth_first, regular_tree
from collapsium.pipeline.families.ncrp.options import NcrpOptions
from collapsium.pipeline.families.ncrp.prior import end_logs, learned_gamma, sticks, sticks_bound
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.ranking import largest
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.ncrp.initialisation import ALL
from collapsium.workers.families.ncrp.ncrp import NcrpShardModel
from collapsium.workers.families.ncrp.state import (
    Comparisons,
    NcrpGlobalState,
    NcrpRows,
    NodeTokens,
    SweepSums,
    WarmSums,
)
from collapsium.workers.families.ncrp.tree import FittedTree, Tree
from collapsium.workers.special_functions import digamma, gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents


@dataclass(frozen=True)
class TreeSchedule:
    """Sweeps of the clustering that starts a fit, and comparisons of siblings after it."""

    min_clustering_sweeps: int = 12
    sweeps_before_merges: int = 4  # Sweeps of the clustering before leaves are compared
    comparison_period: int = 5  # Iterations from one comparison of siblings to the next
    nearest_siblings: int = 3  # Siblings that each node is compared with


SCHEDULE = TreeSchedule()


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
    finished = sweeps >= longest or (sweeps >= SCHEDULE.min_clustering_sweeps and without_merge >= 2)
    if clustering and sums.roots is not None and finished:
        merged_affinity = _merged_affinity(moves, sums.roots, moves.summed(tokens))
        moves = node_moves.regrouped(moves, np.sqrt(1.0 - merged_affinity), options.alphas(), options.depth)
        clustering = False
    elif not clustering and options.growing():
        moves = moves.grown(_growing(sums, options, tree, moves, stream))
    if options.initial_tree == "gradual" and start.hash_limit < ALL:
        limit = _next_limit(start.hash_limit, start.admission_factor)
        seeds = start.seed_candidates[(start.seed_candidates > start.hash_limit) & (start.seed_candidates <= limit)]
        admitting = replace(global_state, initialisation=replace(start, hash_limit=limit))
        return admit_seeds(admitting, moves, seeds, stream)
    if clustering:
        comparing = sweeps >= min(SCHEDULE.sweeps_before_merges, longest - 1)
    else:
        comparing = options.compare and sweeps % SCHEDULE.comparison_period < 2
    pairs = (np.zeros(0, np.int64),) * 2
    if comparing and affinity is not None and moves.tree.depth == tree.depth:
        pairs = node_moves.nearest_siblings(moves.tree, affinity, SCHEDULE.nearest_siblings)
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
        there = (moves.tree.levels[first] > 0) & (moves.tree.levels[second] > 0)
        chosen = node_moves.disjoint(first[there], second[there], gains[there], global_state.node_passes)
        moves, without_merge = moves.merged(chosen), 0 if chosen else without_merge + 1
    return moves, without_merge


def _next_limit(limit: int, factor: float) -> int:
    """Return the hash limit of the next iteration of a gradual start."""
    wider = int(min(factor * limit, float(ALL - 1024)))
    return wider if wider < ALL // 100 * 99 else int(ALL)


def _merged_affinity(
    moves: Moves, roots: npt.NDArray[np.float64], tokens: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return affinities of the leaves after merges: that of a merged leaf is the mean of its parts'."""
    size = roots.shape[0]
    weights = np.zeros((size, size))
    for column in moves.tree.columns:
        for source, weight in moves.sources.get(int(column), [(int(column), 1.0)]):
            weights[column, source] += weight
    merged = np.einsum("ij,kj->ik", np.einsum("ij,jk->ik", weights, roots), weights)
    return node_moves.affinities(merged, np.maximum(tokens, np.diag(merged)))


def _growing(sums: SweepSums, options: NcrpOptions, tree: Tree, moves: Moves, stream: Stream) -> list[int]:
    """Return the inner nodes at which the tree grows: where sampled documents leave it, and one by expected mass."""
    inner: list[int] = []
    if sums.drawn is not None:
        drawn = (sums.drawn.drawn_ends / sums.drawn.drawn_documents)[: options.growing()].astype(np.int64)
        inner = [int(end) for end in drawn if 0 <= tree.levels[end] < tree.depth - 1]
    leaving = np.where((tree.levels >= 0) & (tree.levels < tree.depth - 1), sums.ends, 0.0)
    if leaving.sum() > 0.0:
        place = np.searchsorted(np.cumsum(leaving), stream.generator().random() * leaving.sum(), side="right")
        inner.append(int(min(place, leaving.size - 1)))
    return [end for end in inner if moves.tree.levels[end] >= 0 and leaving[end] > 0.0]


def _next_end_logs(moves: Moves, global_state: NcrpGlobalState, sums: SweepSums, tree: Tree) -> npt.NDArray[np.float64]:
    """Return the log prior masses of the next tree's ends; nodes that have just grown keep the prior's sticks."""
    if moves.tree.depth > tree.depth:
        leaves = moves.tree.levels == moves.tree.depth - 1
        ends = np.where(leaves, moves.summed(np.asarray(global_state.node_passes)), 0.0)
        ends *= sums.ends.sum() / max(ends.sum(), 1e-300)
    else:
        ends = moves.summed(sums.ends)
    factors = sticks(moves.tree, moves.tree.gathered(ends), ends, global_state.gamma)
    new = [column for column, made in moves.sources.items() if not made]
    factors.a[new], factors.b[new] = 1.0, global_state.gamma
    return end_logs(moves.tree, factors, global_state.gamma)


SIMULATED_TOKENS = 1e9  # Tokens of a simulated tree, so many that the prior is negligible


class Ncrp(Simulates[NcrpOptions, NcrpGlobalState, NcrpRows]):
    """The nested Chinese restaurant process by variational inference."""

    shard_model = NcrpShardModel
    Options = NcrpOptions

    def initialise(self, summary: Summary, options: NcrpOptions, stream: Stream) -> NcrpGlobalState:
        """Return the state before any document was swept."""
        return initial_global_state(summary, options)

    def footprint(self, summary: Summary, options: NcrpOptions) -> Footprint:
        """Return the memory of a fit: counts in 8 bytes for each word and column, q(z) in 4 a pair and level."""
        columns = options.max_nodes
        return Footprint(
            rows=8.0 * columns,
            shown=8.0 * columns,
            swept=32.0 * columns,
            delta=8.0 * columns,
            pair=4.0 * options.depth if options.form == "factorised" else 0.0,
            document=8.0 * options.depth + 12.0 * 4,
            chunk=0.0,
        )

    def update(
        self, global_state: NcrpGlobalState, delta: Delta, options: NcrpOptions, stream: Stream
    ) -> NcrpGlobalState:
        """Take the new counts, learn hyperparameters, fit the sticks, and move nodes."""
        warm, tokens, sums = delta.read(WarmSums), delta.read(NodeTokens), delta.read(SweepSums)
        if warm is not None:
            return with_warm_tree(global_state, warm, options)
        if global_state.initialisation.seeding and tokens is not None:
            return with_seeds(global_state, tokens)
        if sums is None:
            return with_candidates(global_state, delta, options, stream)
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
        if tree.depth == options.depth:
            after = _learned(after, sums, options, tree)
        factors = sticks(tree, after.node_passes, sums.ends, after.gamma)
        end_log = np.maximum(end_logs(tree, factors, after.gamma), -1e300)
        return move_nodes(replace(after, fitted=upcoming.fitted(end_log)), sums, options, tree, stream)

    def needs_another_round(self, global_state: NcrpGlobalState) -> bool:
        """Return true if the iteration goes on with one more sweep: a start takes several rounds."""
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

    def figures(self, global_state: NcrpGlobalState) -> dict[str, float]:
        """Return the nodes and leaves, the nodes moved before the sweep, and hyperparameters that may be learned."""
        fitted, tree = global_state.fitted, global_state.fitted.tree
        figures = {"nodes": float(tree.columns.size), "leaves": float((tree.levels == tree.depth - 1).sum())}
        figures.update(grown=float(fitted.grown), pruned=float(fitted.pruned), merged=float(fitted.merged))
        figures["gamma"] = global_state.gamma
        figures.update({f"alpha_{level}": float(value) for level, value in enumerate(global_state.alpha)})
        return figures

    def describe(self, block: NcrpRows, global_state: NcrpGlobalState, count: int) -> Description:
        """Describe the nodes depth-first, siblings by falling share of the documents; an id is that of its column."""
        tree = global_state.fitted.tree
        columns = depth_first(tree.parents, global_state.node_passes)
        tokens, means = global_state.node_tokens[columns], global_state.word_means(block.word_topic, columns).T
        top = largest(means, count)
        share = tokens / max(tokens.sum(), 1e-300)
        return Description(columns, share, top, np.take_along_axis(means, top, axis=1), parent=tree.parents[columns])

    def draw_model(self, summary: Summary, options: NcrpOptions, stream: Stream) -> tuple[Arrays, NcrpGlobalState]:
        """Draw a tree in which each node has as many children as ``branching`` says, for simulation."""
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
            self.initialise(summary, options, stream),
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
