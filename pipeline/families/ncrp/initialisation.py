"""Initialise a tree of topics: by clusters of documents, by gradual admission of documents, or from another tree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.base import Summary
from collapsium.pipeline.families.ncrp.node_moves import Moves, first_tree
from collapsium.pipeline.families.ncrp.options import NcrpOptions
from collapsium.pipeline.families.ncrp.prior import end_logs, sticks
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.ncrp.initialisation import ALL
from collapsium.workers.families.ncrp.state import (
    Clustering,
    Comparisons,
    Initialisation,
    NcrpGlobalState,
    NodeTokens,
    WarmSums,
)
from collapsium.workers.families.ncrp.tree import FREE, FittedTree, Tree

FIRST_DOCUMENTS = 8  # Documents with which a gradual start begins
SOME_TOKENS = 1e-9  # Uncounted tokens of a fit whose tree is not at its full depth, although all tokens count
MAX_LEAVES = 300  # Documents that open leaves at the start, by default
# Sweeps of the clustering that starts a fit, at most; and at most half of the planned iterations
MAX_CLUSTERING_SWEEPS = 30


def initial_global_state(summary: Summary, options: NcrpOptions) -> NcrpGlobalState:
    """Return the state before any document was swept: the root alone, and the number of leaves at the start."""
    columns, gradual = options.max_nodes, options.initial_tree == "gradual"
    nothing = np.zeros(columns)
    root = Tree(first_tree(columns, 0).parents, options.depth if gradual else 2)
    end_log = end_logs(root, sticks(root, nothing, nothing, options.gamma), options.gamma)
    moves, planned = Moves(root), summary.iterations
    return NcrpGlobalState(
        vocabulary=float(summary.words),
        alpha=options.alphas(),
        eta=options.etas(),
        gamma=options.gamma,
        factorised=options.form == "factorised",
        point=options.posterior == "point",
        fitted=FittedTree(root.parents, root.depth, np.maximum(end_log, -1e300), 0, 0, 0),
        upcoming=moves.upcoming(end_log),
        moves=moves.move_table(),
        node_passes=nothing,
        node_tokens=nothing,
        initialisation=_initialisation(summary, options),
        clustering=Clustering(
            clustering_sweeps=0,
            max_clustering_sweeps=(
                min(MAX_CLUSTERING_SWEEPS, max(1, planned // 2)) if planned else MAX_CLUSTERING_SWEEPS
            ),
            planned_iterations=planned,
            comparisons_without_merge=0,
        ),
        comparisons=Comparisons.none(),
        uncounted=SOME_TOKENS * float(planned > 0),
        another_round=False,
    )


def _initialisation(summary: Summary, options: NcrpOptions) -> Initialisation:
    """Return the state of the start before any document was swept."""
    columns, gradual = options.max_nodes, options.initial_tree == "gradual"
    leaves = options.leaves or min(MAX_LEAVES, -(-summary.documents // 2))
    most = columns // 2 if gradual else (columns - 1) * 4 // 5
    admits = gradual and summary.documents and not summary.warm
    return Initialisation(
        seeding=False,
        max_seeds=max(1, min(leaves, most, columns + 1 - options.depth)),
        seed_candidates=np.zeros(0, dtype=np.int64),
        seeds=np.zeros(0, dtype=np.int64),
        seed_columns=np.zeros((0, options.depth - 1), dtype=np.int64),
        seeds_root=False,
        hash_limit=int(ALL // -(-summary.documents // FIRST_DOCUMENTS) if admits else ALL),
        admission_factor=admission_factor(summary),
        absent_tokens=float(summary.tokens) if gradual else 0.0,
    )


def admission_factor(summary: Summary) -> float:
    """Return by what the documents of a gradual start grow in an iteration: all are in after half of them."""
    share = summary.documents / FIRST_DOCUMENTS
    return float(max(2.0, share ** (1.0 / max(summary.iterations // 2, 1)))) if share > 1.0 else 2.0


def with_candidates(
    global_state: NcrpGlobalState, delta: Delta, options: NcrpOptions, stream: Stream
) -> NcrpGlobalState:
    """Take the documents that may start nodes: each a leaf, or in a gradual start the first of them a path."""
    none = np.zeros(0, dtype=np.int64)
    candidates = delta.ids.get("document", none)[: global_state.initialisation.max_seeds]
    start = replace(global_state.initialisation, seed_candidates=candidates, seeds_root=True)
    if options.initial_tree == "gradual":
        first = candidates[candidates <= start.hash_limit]
        return admit_seeds(
            replace(global_state, initialisation=start), Moves(global_state.upcoming.tree), first, stream
        )
    count = max(candidates.size, 1)
    tree = first_tree(global_state.fitted.node_parent.size, count)
    even = np.where(tree.levels == 1, 1.0 / count, 0.0)
    end_log = np.where(tree.levels >= 0, special.log(np.maximum(even, 1e-3 / count)), -np.inf)
    columns = np.zeros((candidates.size, options.depth - 1), dtype=np.int64)
    columns[:, 0] = np.arange(1, candidates.size + 1)
    moves = Moves(tree)
    return replace(
        global_state,
        initialisation=replace(start, seeding=True, seeds=candidates, seed_columns=columns),
        upcoming=moves.upcoming(end_log),
        moves=moves.move_table(),
        another_round=True,
    )


def admit_seeds(
    global_state: NcrpGlobalState, moves: Moves, seeds: npt.NDArray[np.int64], stream: Stream
) -> NcrpGlobalState:
    """Give each of some documents a new path, whose nodes start with its words in a round of their own.

    Where a path leaves the tree is drawn from the nested Chinese restaurant process; the leaf is always new.
    """
    generator = stream.at(purpose=f"{stream.purpose} entering").generator()
    passes, columns, admitted = np.array(moves.summed(np.asarray(global_state.node_passes))), [], []
    for seed in seeds:
        end = _drawn_end(moves.tree, passes, global_state.gamma, generator)
        before = set(moves.tree.columns.tolist())
        moves = moves.grown([end])
        new = [int(column) for column in moves.tree.columns if int(column) not in before]
        if not new:
            # The tree is full.
            break
        passes[moves.tree.path(new[-1])] += 1.0
        columns.append(new + [0] * (moves.tree.depth - 1 - len(new)))
        admitted.append(seed)
    tree, start = moves.tree, global_state.initialisation
    ends = np.where(tree.levels == tree.depth - 1, np.maximum(passes, 0.0), 0.0)
    end_log = end_logs(tree, sticks(tree, tree.gathered(ends), ends, global_state.gamma), global_state.gamma)
    return replace(
        global_state,
        upcoming=moves.upcoming(end_log),
        moves=moves.move_table(),
        comparisons=Comparisons.none(),
        initialisation=replace(
            start,
            seeds=np.array(admitted, dtype=np.int64),
            seed_columns=np.array(columns, dtype=np.int64).reshape(-1, tree.depth - 1),
            seeding=True,
        ),
        uncounted=(start.absent_tokens + SOME_TOKENS) * float(global_state.clustering.planned_iterations > 0),
        # Later seeds begin the next iteration.
        another_round=global_state.clustering.clustering_sweeps == 0,
    )


def _drawn_end(tree: Tree, passes: npt.NDArray[np.float64], gamma: float, generator: np.random.Generator) -> int:
    """Draw the node at which a new path leaves a tree."""
    end = 0
    for _ in range(tree.depth - 2):
        children = tree.children(end)
        weights = np.append(passes[children], gamma)
        place = int(np.searchsorted(np.cumsum(weights), generator.random() * weights.sum(), side="right"))
        if place >= children.size:
            break
        end = int(children[place])
    return end


def with_seeds(global_state: NcrpGlobalState, sums: NodeTokens) -> NcrpGlobalState:
    """Take the words of the seed documents; a sweep ends the iteration."""
    upcoming = global_state.upcoming
    moved = global_state.fitted.grown, global_state.fitted.merged, global_state.fitted.pruned
    return replace(
        global_state,
        fitted=FittedTree(upcoming.next_parent, upcoming.next_depth, upcoming.next_end_log, *moved),
        node_tokens=sums.node_tokens,
        moves=Moves(upcoming.tree).move_table(),
        initialisation=replace(global_state.initialisation, seeding=False, seeds_root=False),
        comparisons=replace(
            global_state.comparisons, compares_affinity=global_state.clustering.max_clustering_sweeps == 1
        ),
        another_round=True,
    )


def with_warm_tree(global_state: NcrpGlobalState, sums: WarmSums, options: NcrpOptions) -> NcrpGlobalState:
    """Start from the tree of another run."""
    tree, gamma = Tree(sums.warm_parent.astype(np.int64) + FREE, options.depth), global_state.gamma
    passes = tree.gathered(sums.ends)
    end_log = end_logs(tree, sticks(tree, passes, sums.ends, gamma), gamma)
    moves, moved = Moves(tree), (global_state.fitted.grown, global_state.fitted.merged, global_state.fitted.pruned)
    return replace(
        global_state,
        fitted=FittedTree(tree.parents, tree.depth, np.maximum(end_log, -1e300), *moved),
        node_tokens=sums.node_tokens,
        node_passes=passes,
        upcoming=moves.upcoming(end_log),
        moves=moves.move_table(),
        initialisation=replace(global_state.initialisation, hash_limit=int(ALL)),
        uncounted=0.0,
        another_round=True,
    )
