"""Move nodes of a tree of topics after a sweep: merges, pruning, growth, and groups of the first clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.ncrp import node_moves
from collapsium.pipeline.families.ncrp.initialisation import SOME_TOKENS, admit_seeds
from collapsium.pipeline.families.ncrp.node_moves import Moves
from collapsium.pipeline.families.ncrp.options import NcrpOptions
from collapsium.pipeline.families.ncrp.prior import end_logs, sticks
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.ncrp.initialisation import ALL
from collapsium.workers.families.ncrp.state import Comparisons, NcrpGlobalState, SweepSums
from collapsium.workers.families.ncrp.tree import Tree


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
