"""Move nodes of a Gaussian tree after a sweep: merges, pruning, splits on trial, and chains that become a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.hca import leaf_merges as pooling
from collapsium.pipeline.families.hca import posterior as gaussian
from collapsium.pipeline.families.hca import shared_paths as chains
from collapsium.pipeline.families.hca import tree_moves as splitting
from collapsium.pipeline.families.hca.options import Config
from collapsium.pipeline.families.hca.posterior import Components, Sums
from collapsium.pipeline.families.hca.tree_moves import Judge
from collapsium.pipeline.families.ncrp import node_moves
from collapsium.pipeline.families.ncrp import prior as nested
from collapsium.pipeline.families.ncrp.node_moves import Moves
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.families.ncrp.tree import Tree, swept

POOLING = 6  # sweeps between two looks for chains that span the same
EVERY = 3  # iterations between two looks for nodes that are better merged


@dataclass(frozen=True)
class SweepResult:
    """Results of a sweep: sums of the tree, and with a side of a leaf; the best q given them; and the bound."""

    sums: Sums
    whole: Sums
    found: Components
    delta: Delta
    ends: npt.NDArray[np.float64]
    passes: npt.NDArray[np.float64]
    bound: float


def continue_trial(
    after: dict[str, npt.NDArray[Any]], told: SweepResult, config: Config
) -> dict[str, npt.NDArray[Any]]:
    """Go on with a split on trial; at its end keep it, or go back to what was before."""
    left = int(after["trial_left"]) - 1
    if left:
        moves = _eased(Moves(swept(after)), told, after, config)
        more = {"trial_left": np.array(left), "another_round": np.array(1.0)}
        return {**after, **next_globals(moves, told.sums, told.found, told.ends, config, told.ends), **more}
    if not splitting.surpassed(after, told.bound):
        return splitting.restored(after)
    return {**splitting.accepted(after), "grown": np.array(1)}


def _eased(moves: Moves, told: SweepResult, after: Arrays, config: Config) -> Moves:
    """Bring factors to their prior, unless vectors keep them."""
    if int(after["apart"]):
        return moves
    return gaussian.expanded(moves, told.sums, told.passes, config.prior(), told.found.tau)


def move_nodes(after: dict[str, npt.NDArray[Any]], told: SweepResult, config: Config) -> Arrays:
    """Move nodes, or put a split on trial, or name the leaf that the coming sweep shall part."""
    tree = swept(after)
    compare = int(after["rounds"]) % EVERY == 0
    moves = _moves(Moves(tree), told.sums, told.found, told.delta, config, told.passes, compare=compare)
    still = not sum(moves.counts.values())
    brought = told.ends if still else moves.summed(told.ends)
    if still:
        moves = _eased(moves, told, after, config)
    begun = config.form == "conditional" or bool(after["apart"])
    after["another_round"] = np.array(float(not begun))  # the first iteration has a bound of the form asked for
    onward = {**after, **next_globals(moves, told.sums, told.found, told.ends, config, brought)}
    calm = int(after["calm"]) + 1 if still and begun and splitting.steady(after, told.bound) else 0
    split, named = after["split"], np.full(3, -1)
    onward.update(calm=np.array(calm), split=named)
    if int(split[0]) >= 0:
        trial = _parted(tree, split, told, config) if calm else None
        if trial is not None:
            return splitting.on_trial(onward, trial, int(split[0]), told.bound)
        onward["tried"] = splitting.in_vain(after, int(split[0]))
    elif config.split and calm >= splitting.CALM:
        named = splitting.chosen(after, tree, told.delta["probe_gain"], told.ends, told.found.tau)
    return {**onward, "split": named, "last_bound": np.array(told.bound)}


def _parted(
    tree: Tree, split: npt.NDArray[np.int64], told: SweepResult, config: Config
) -> dict[str, npt.NDArray[Any]] | None:
    """Return the globals of a tree with a leaf parted and, where it is full, the pair merged that is missed least."""
    moves, ends = splitting.parted(tree, split, told.delta["ends"])
    if min(ends[split[:2]]) < 1.0:
        return None
    if tree.columns.size >= config.max_nodes:
        sums, kept = told.whole.moved(moves), (int(split[0]), int(split[1]))
        pair = _judge(sums, told.found, config).best_pair(Moves(moves.tree), ends, kept)[0]
        if pair is None:
            return None
        moves = moves.merged([pair[:2]], pair[2])
        ends[pair[0]] += ends[pair[1]]
        ends[pair[1]] = 0.0
    return next_globals(moves, told.whole, told.found, ends, config, ends)


def components_table(found: Components, which: str = "") -> dict[str, npt.NDArray[Any]]:
    """Return the components as globals hold them, `which` before each name."""
    return {f"{which}{name}": getattr(found, name) for name in ("solve", "gram", "spread")}


def sweep_chains(
    tree: Tree, sums: Sums, found: Components, ends: npt.NDArray[np.float64], config: Config, left: int
) -> dict[str, npt.NDArray[Any]]:
    """Sweep chains once more or, when that has been often enough, join them to a tree; pool those that are the same."""
    moves, brought = Moves(tree), ends
    if left % POOLING == 0:
        moves, brought = pooling.pooled(tree, sums, found, ends, config.prior(), config.gamma)
        left += POOLING * bool(moves.sources)  # as those that are left shall settle
    if left:
        if not moves.sources:
            moves = gaussian.expanded(moves, sums, tree.gathered(ends), config.prior(), found.tau)
        return {**next_globals(moves, sums, found, ends, config, brought), "chained": np.array(left)}

    moves, brought = chains.joined(tree, sums, found, ends, config.sizes(), config.prior(), config.gamma)
    return {**next_globals(moves, sums, found, ends, config, brought), "chained": np.array(left)}


def next_globals(
    moves: Moves,
    sums: Sums,
    found: Components,
    ends: npt.NDArray[np.float64],
    config: Config,
    brought: npt.NDArray[np.float64] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return what the next sweep is made with: components and sticks of the tree that has moved, and KL(q | p)."""
    if moves.sources or sum(moves.counts.values()):
        sums, ends = sums.moved(moves), moves.summed(ends) if brought is None else brought
        found = gaussian.fitted(sums, config.prior(), found.tau)
    tree, gamma = moves.tree, config.gamma
    sticks = nested.sticks(tree, tree.gathered(ends), ends, gamma)
    new = [column for column, made in moves.sources.items() if not made]
    sticks.a[new], sticks.b[new] = 1.0, gamma
    kl = gaussian.divergence(found, tree.columns, config.prior(), sums.words)
    kl += nested.sticks_divergence(tree, sticks, gamma)
    return {
        **components_table(found, "next_"),
        "tau": np.array(found.tau),
        "log_tau": np.array(found.log_tau),
        "kl": np.array(kl),
        "next_parent": tree.parents,
        "next_depth": np.array(tree.depth),
        "next_end_log": np.maximum(nested.end_logs(tree, sticks, gamma), -1e300),
        **moves.table(),
        **{f"next_{name}": np.array(count) for name, count in moves.counts.items()},
    }


def _moves(
    moves: Moves,
    sums: Sums,
    found: Components,
    delta: Delta,
    config: Config,
    passes: npt.NDArray[np.float64],
    *,
    compare: bool,
) -> Moves:
    """Merge leaves whose vectors are the same, prune, and merge what the bound prefers as one."""
    tree = moves.tree
    if config.merge < 1.0:
        moves = moves.merged(node_moves.alike_paths(tree, delta["alike"], config.merge))
    moves = moves.pruned(moves.summed(passes), config.prune)
    if compare and config.compare and not moves.sources and tree.columns.size > 1:
        return _judge(sums, found, config).compared(moves, delta["ends"])
    return moves


def _judge(sums: Sums, found: Components, config: Config) -> Judge:
    return Judge(sums, found, config.prior(), config.gamma)
