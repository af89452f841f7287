"""Initialise the documents of a tree of topics.

Three schemes: seed documents that start nodes, gradual admission of the remaining documents, and a warm start from
another tree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import OptionError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream, document_hashes, smallest_hashes
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.family import Summary
from collapsium.workers.families.ncrp.node_moves import Moves, first_tree
from collapsium.workers.families.ncrp.state import (
    Clustering,
    Comparisons,
    Initialisation,
    NcrpGlobalState,
    NcrpLocal,
    NodeTokens,
    WarmSums,
)
from collapsium.workers.families.ncrp.tree import (
    FREE,
    DocumentEnds,
    FittedTree,
    NcrpOptions,
    Tree,
    Vector,
    end_logs,
    sticks,
)

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


ALL = np.iinfo(np.int64).max  # Hash limit that admits all documents
CHUNK_PAIRS = 1 << 14  # Pairs that a warm start counts at a time
MIN_WEIGHT = 1e-290  # Least weight of a pair at a node

Chosen = npt.NDArray[np.bool_]


def word_tokens(shard: Shard) -> Vector:
    """Return the tokens of each word of a shard."""
    tokens: Vector = np.bincount(shard.position, shard.counts, shard.words.size).astype(np.float64)
    return tokens


def joined_documents(shard: Shard, global_state: NcrpGlobalState, stream: Stream) -> Chosen:
    """Return which documents are in the tree: all but in a gradual start, where they join by their hash."""
    limit = global_state.initialisation.hash_limit
    if limit >= ALL:
        return np.ones(shard.documents, dtype=bool)
    return document_hashes(shard, stream.at(purpose="start", iteration=0)) <= limit


def select_documents(shard: Shard, local: NcrpLocal, chosen: Chosen) -> tuple[Shard, NcrpLocal]:
    """Return some documents of a shard, and their local state without ends."""
    pairs = np.repeat(chosen, np.diff(shard.offsets))
    offsets = np.concatenate([[0], np.cumsum(np.diff(shard.offsets)[chosen])]).astype(np.int64)
    pair_level = None if local.pair_level is None else local.pair_level[pairs]
    selected = replace(shard, offsets=offsets, position=shard.position[pairs], counts=shard.counts[pairs])
    return selected, NcrpLocal(local.document_level[chosen], DocumentEnds.empty(int(chosen.sum())), pair_level)


def merge_documents(shard: Shard, local: NcrpLocal, after: NcrpLocal, chosen: Chosen) -> NcrpLocal:
    """Return the local state of all documents, after the chosen ones have been swept."""
    document_level = np.zeros((shard.documents, after.document_level.shape[1]))
    document_level[chosen] = after.document_level
    document_level[~chosen] = local.document_level[~chosen]
    lengths = np.zeros(shard.documents, dtype=np.int64)
    lengths[chosen] = np.diff(after.ends.document_lists)
    ends = replace(after.ends, document_lists=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    pair_level = None
    if local.pair_level is not None and after.pair_level is not None:
        pair_level = np.array(local.pair_level)
        pair_level[np.repeat(chosen, np.diff(shard.offsets))] = after.pair_level
    return NcrpLocal(document_level, ends, pair_level)


def seed_counts(shard: Shard, global_state: NcrpGlobalState, stream: Stream) -> Delta:
    """Return the words of the documents that start nodes, and for a new root the words of all documents."""
    seeds, columns = global_state.initialisation.seeds, global_state.fitted.node_parent.size
    hashes = document_hashes(shard, stream.at(purpose="start", iteration=0))
    word_topic = np.zeros((shard.words.size, columns))
    if global_state.initialisation.seeds_root:
        np.add.at(word_topic[:, 0], shard.position, shard.counts)
    place = np.minimum(np.searchsorted(seeds, hashes), max(seeds.size - 1, 0))
    chosen = np.flatnonzero(seeds[place] == hashes) if seeds.size else np.zeros(0, dtype=np.int64)
    for document in chosen[shard.lengths[chosen] > 0]:
        pairs = slice(shard.offsets[document], shard.offsets[document + 1])
        for column in global_state.initialisation.seed_columns[place[document]]:
            if column > 0:
                word_topic[shard.position[pairs], column] += shard.counts[pairs]
    return Delta({"word_topic": fresh(word_topic, "word", "node")}, {"word": shard.words})


def draw_ends(
    shard: Shard, ends: DocumentEnds, count: int, stream: Stream, joined: Chosen
) -> tuple[npt.NDArray[np.int64], Vector]:
    """Return the smallest hashes of a shard's documents, and for each a column that is drawn from q(c_n)."""
    hashes = document_hashes(shard, stream)
    chosen = smallest_hashes(hashes, count, joined & (shard.lengths > 0))
    documents = {int(value): number for number, value in reversed(list(enumerate(hashes)))}
    columns = np.zeros(chosen.size)
    for place, value in enumerate(chosen):
        document = documents[int(value)]
        stored = slice(ends.document_lists[document], ends.document_lists[document + 1])
        masses = ends.document_masses[stored].astype(np.float64)
        # The smallest hashes were chosen, but their low bits are still uniform.
        number = (int(value) % 2**32) / 2.0**32
        drawn = np.searchsorted(np.cumsum(masses), number * masses.sum(), side="right")
        columns[place] = ends.document_ends[stored][min(drawn, masses.size - 1)]
    return chosen, columns


def warm_start(shard: Shard, global_state: NcrpGlobalState, warm: Arrays) -> tuple[NcrpLocal, Delta]:
    """Return local state and counts by another run's tree: q(z) ~ theta phi, and the path to the largest leaf."""
    depth, columns = global_state.alpha.size, global_state.fitted.node_parent.size
    parents = warm.get("topic_parent")
    if parents is None:
        raise OptionError(
            "the family 'ncrp' can start only from a run with a tree, and this run has flat topics", "warm"
        )
    tree = Tree(np.asarray(parents, dtype=np.int64), depth)
    if tree.columns.size != tree.parents.size or not (tree.level == depth - 1).any():
        raise OptionError(f"expected a run with a tree of depth={depth}, found another depth", "warm")
    if tree.columns.size > columns:
        raise OptionError(f"expected a tree of at most max_nodes={columns} nodes, found {tree.columns.size}", "warm")
    theta, phi = (np.asarray(warm[name], dtype=np.float64) for name in ("document_topic", "word_topic"))
    owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
    word_topic, document_level = np.zeros((shard.words.size, columns)), np.zeros((shard.documents, depth))
    for first in range(0, shard.pairs, CHUNK_PAIRS):
        pairs = slice(first, min(first + CHUNK_PAIRS, shard.pairs))
        weight = theta[owner[pairs]] * phi[shard.position[pairs]] + MIN_WEIGHT
        weight *= (shard.counts[pairs] / weight.sum(axis=1))[:, np.newaxis]
        np.add.at(word_topic[:, : tree.parents.size], shard.position[pairs], weight)
        for level in range(depth):
            np.add.at(document_level[:, level], owner[pairs], weight[:, tree.levels == level].sum(axis=1))
    leaves = np.flatnonzero(tree.levels == depth - 1)
    ends = np.bincount(leaves[np.argmax(theta[:, leaves], axis=1)], minlength=columns).astype(np.float64)
    pair_level = None
    if global_state.factorised:
        share = (document_level + 1e-9) / (document_level + 1e-9).sum(axis=1, keepdims=True)
        pair_level = share[owner].astype(np.float32)
    parent = np.zeros(columns)
    if shard.number == 0:  # by one shard, as deltas add
        parent[: tree.parents.size] = tree.parents - FREE
    parts = {
        "word_topic": fresh(word_topic, "word", "node"),
        "warm_parent": fresh(parent, "node"),
        "ends": fresh(ends, "node"),
    }
    local = NcrpLocal(document_level, DocumentEnds.empty(shard.documents), pair_level)
    return local, Delta(parts, {"word": shard.words})


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
    max_seeds = columns // 2 if gradual else (columns - 1) * 4 // 5
    admits = gradual and summary.documents and not summary.warm
    return Initialisation(
        seeding=False,
        max_seeds=max(1, min(leaves, max_seeds, columns + 1 - options.depth)),
        seed_candidates=np.zeros(0, dtype=np.int64),
        seeds=np.zeros(0, dtype=np.int64),
        seed_columns=np.zeros((0, options.depth - 1), dtype=np.int64),
        seeds_root=False,
        hash_limit=int(ALL // -(-summary.documents // FIRST_DOCUMENTS) if admits else ALL),
        admission_factor=admission_factor(summary),
        absent_tokens=float(summary.tokens) if gradual else 0.0,
    )


def admission_factor(summary: Summary) -> float:
    """Return the factor by which the documents of a gradual start grow: half of the iterations add all."""
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
    """Give some documents new paths, whose nodes start with the document's words in a separate round.

    Where a path leaves the tree is drawn from the nested Chinese restaurant process; the leaf is always new.
    """
    generator = stream.at(purpose=f"{stream.purpose} entering").generator()
    passes, columns, admitted = np.array(moves.summed(np.asarray(global_state.node_passes))), [], []
    for seed in seeds:
        end = 0  # Node at which the new path leaves the tree
        for _ in range(moves.tree.depth - 2):
            children = moves.tree.children(end)
            weights = np.append(passes[children], global_state.gamma)
            place = int(np.searchsorted(np.cumsum(weights), generator.random() * weights.sum(), side="right"))
            if place >= children.size:
                break
            end = int(children[place])
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
