"""Move nodes of a tree of topics after a sweep: merges, pruning, growth, and groups of the first clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.ncrp import initialisation as planting
from collapsium.pipeline.families.ncrp import node_moves
from collapsium.pipeline.families.ncrp import prior as nested
from collapsium.pipeline.families.ncrp.node_moves import Moves
from collapsium.pipeline.families.ncrp.options import Config
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.ncrp.documents import column_priors
from collapsium.workers.families.ncrp.initialisation import ALL
from collapsium.workers.families.ncrp.tree import Tree

SETTLING, LONGEST = 12, 30  # sweeps of the clustering that begins a fit: fewest, most; half of those planned at most
FIRST_MERGES = 4  # sweeps before leaves are compared
EVERY = 5  # iterations between two comparisons of siblings
NEAREST = 3  # siblings that a node is compared with


def move_nodes(
    globals: dict[str, npt.NDArray[Any]], delta: Delta, config: Config, tree: Tree, stream: Stream
) -> Arrays:
    """Merge, prune and grow, and say what the next sweep shall tell."""
    clustering, sweeps = tree.depth < config.depth, int(globals["clustering"])
    moves, passes, tokens = Moves(tree), globals["node_passes"], globals["node_tokens"]
    affinity = node_moves.affinities(delta["roots"], tokens) if "roots" in delta else None
    quiet, longest = int(globals["quiet"]), int(globals["longest"])
    if config.merge < 1.0 and not clustering:
        moves = moves.merged(node_moves.alike_paths(tree, delta["alike"], config.merge))
    if "gains" in delta:
        first, second = globals["wanted_first"], globals["wanted_second"]
        prior = column_priors(globals, tree)
        gains = node_moves.evidence_gains(
            delta["gains"], first, second, tokens, passes, prior, float(globals["vocabulary"]), float(globals["gamma"])
        )
        there = (moves.tree.levels[first] > 0) & (moves.tree.levels[second] > 0)
        chosen = node_moves.disjoint(first[there], second[there], gains[there], passes)
        moves, quiet = moves.merged(chosen), 0 if chosen else quiet + 1
    moves = moves.pruned(moves.summed(passes), config.prune)
    if clustering and affinity is not None and (sweeps >= longest or (sweeps >= SETTLING and quiet >= 2)):
        held = moves.summed(tokens)
        whole = _merged_affinity(moves, delta["roots"], held)
        moves = node_moves.regrouped(moves, np.sqrt(1.0 - whole), config.alphas(), config.depth)
        clustering = False
    elif not clustering and config.growing():
        moves = moves.grown(_growing(delta, config, tree, moves, stream))
    if config.start == "gradual" and int(globals["limit"]) < ALL:
        limit = int(globals["limit"])
        wider = int(min(float(globals["widening"]) * limit, float(ALL - 1024)))
        wider = wider if wider < ALL // 100 * 99 else ALL
        seeds = globals["candidates"][(globals["candidates"] > limit) & (globals["candidates"] <= wider)]
        return planting.entering({**globals, "limit": np.array(wider, dtype=np.int64)}, moves, seeds, stream)
    end_log = _end_logs_of(moves, globals, delta, tree)
    comparing = sweeps >= min(FIRST_MERGES, longest - 1) if clustering else config.compare and sweeps % EVERY < 2
    pairs = (np.zeros(0, np.int64),) * 2
    if comparing and affinity is not None and moves.tree.depth == tree.depth:
        pairs = node_moves.nearest_siblings(moves.tree, affinity, NEAREST)
    counts = {f"next_{name}": np.array(count) for name, count in moves.counts.items()}
    return {
        **globals,
        **counts,
        **planting.for_next(moves, end_log),
        **planting.wanted(*pairs, roots=comparing),
        "quiet": np.array(quiet),
        "unsettled": np.array(
            planting.SOME * float(globals["planned"] > 0 and (clustering or moves.tree.depth > tree.depth))
        ),
    }


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


def _growing(delta: Delta, config: Config, tree: Tree, moves: Moves, stream: Stream) -> list[int]:
    """Return the inner nodes at which the tree grows: where sampled documents leave it, and one by expected mass."""
    drawn = (delta["drawn"] / delta["drawers"])[: config.growing()].astype(np.int64)
    inner = [int(end) for end in drawn if 0 <= tree.levels[end] < tree.depth - 1]
    leaving = np.where((tree.levels >= 0) & (tree.levels < tree.depth - 1), delta["ends"], 0.0)
    if leaving.sum() > 0.0:
        place = np.searchsorted(np.cumsum(leaving), stream.generator().random() * leaving.sum(), side="right")
        inner.append(int(min(place, leaving.size - 1)))
    return [end for end in inner if moves.tree.levels[end] >= 0 and leaving[end] > 0.0]


def _end_logs_of(moves: Moves, globals: Arrays, delta: Delta, tree: Tree) -> npt.NDArray[np.float64]:
    """Return the prior masses of the coming tree's ends; nodes that have just grown keep the prior's sticks."""
    gamma = float(globals["gamma"])
    if moves.tree.depth > tree.depth:
        ends = np.where(
            moves.tree.levels == moves.tree.depth - 1, moves.summed(np.asarray(globals["node_passes"])), 0.0
        )
        ends *= delta["ends"].sum() / max(ends.sum(), 1e-300)
    else:
        ends = moves.summed(delta["ends"])
    passes = moves.tree.gathered(ends)
    found = nested.sticks(moves.tree, passes, ends, gamma)
    new = [column for column, made in moves.sources.items() if not made]
    found.a[new], found.b[new] = 1.0, gamma
    return nested.end_logs(moves.tree, found, gamma)
