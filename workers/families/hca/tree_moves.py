"""Splits of leaves on trial, in a full tree with a merge elsewhere: SMEM (Ueda, Nakano, Ghahramani and Hinton 2000).

A leaf of whose vectors most is left along one direction (`collapsium.workers.families.hca.states`) is split in
two. The next rounds, of one iteration, are swept with the new tree, and it stays if the bound is larger then than it
was; else the tree, the rows and the local states are those of before. So the bound never falls for a split.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from collapsium.workers.families.hca import posterior as gaussian
from collapsium.workers.families.hca.posterior import Components, Prior, Sums
from collapsium.workers.families.hca.states import TRIAL_ROUNDS, HcaGlobalState, NextSweep, SavedTree, Splits
from collapsium.workers.families.ncrp import prior as nested
from collapsium.workers.families.ncrp.node_moves import Moves
from collapsium.workers.families.ncrp.tree import FREE, Tree

Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]
Pair = tuple[int, int, float]  # two columns, and the sign with which the second goes into the first

CALM_ITERATIONS = 4  # Iterations without moves before a leaf is split: so long probes are stepped
MIN_VECTORS = 8  # Vectors of a leaf that may be split
MIN_GAIN, MAX_CHANGE = 1e-7, 3e-4  # Of the bound: least gain of a split, and most of the iteration before it
WAYS = 2  # Ways to split a leaf's vectors: as two lines, or as two clusters


def leaf_to_split(splits: Splits, tree: Tree, gain: Vector, ends: Vector, words: float, tau: float) -> Ints:
    """Return the leaf with the largest residual along its probe above the noise, a free column, and its split."""
    # The largest sum of squares of noise along a direction (Marchenko and Pastur 1967).
    beyond = gain - (np.sqrt(np.maximum(ends, 0.0)) + np.sqrt(words)) ** 2 / tau
    tried = splits.tried
    leaves = np.flatnonzero(tree.levels == tree.depth - 1)
    able = leaves[(ends[leaves] >= MIN_VECTORS) & (tried[leaves] < WAYS) & (leaves > 0) & (beyond[leaves] > 0.0)]
    free = np.flatnonzero(tree.parents == FREE)
    if not able.size or not free.size:
        return np.full(3, -1)
    leaf = int(able[np.lexsort((-beyond[able], tried[able]))[0]])
    return np.array([leaf, free[0], int(tried[leaf] == 0)])


def split_leaf(tree: Tree, split: Ints, ends: Vector) -> tuple[Moves, Vector]:
    """Return the moves by which the second half of a leaf becomes its sibling, and the ends of the new tree."""
    leaf, column = int(split[0]), int(split[1])
    parents, after = np.array(tree.parents), np.array(ends)
    parents[column] = parents[leaf]
    after[leaf] -= ends[column]
    unmoved = Moves(tree)
    sources = {leaf: [(leaf, 1.0), (column, -1.0)], column: [(column, 1.0)]}
    counts = {**unmoved.counts, "grown": 1}
    return replace(unmoved, tree=Tree(parents, tree.depth), sources=sources, counts=counts), after


def start_trial(following: HcaGlobalState, trial: NextSweep, leaf: int, bound: float) -> HcaGlobalState:
    """Return the global state with which a trial begins."""
    splits = replace(following.splits, trial_leaf=leaf, trial_left=TRIAL_ROUNDS, trial_bound=bound)
    saved = SavedTree(following.next_sweep, following.masses, following.fitted.node_parent)
    return replace(following, next_sweep=trial, saved=saved, splits=splits)


def surpassed(splits: Splits, bound: float) -> bool:
    """Return true if a trial has gained more than the iterations before would have gone on to."""
    before = splits.trial_bound
    return bound - before > max(TRIAL_ROUNDS * (before - splits.last_bound), MIN_GAIN * abs(before))


def has_converged(splits: Splits, bound: float) -> bool:
    """Return true if the bound has changed little in an iteration."""
    return abs(bound - splits.last_bound) < MAX_CHANGE * abs(bound)


def with_rejection(splits: Splits, leaf: int) -> Splits:
    """Return the splits with one more of a leaf that was rejected."""
    tried = np.array(splits.tried)
    tried[leaf] += 1
    return replace(splits, tried=tried)


def accepted(global_state: HcaGlobalState) -> HcaGlobalState:
    """Return the global state with an accepted split, after which all leaves may be tried again."""
    splits = replace(global_state.splits, trial_left=0, calm=0, tried=np.zeros_like(global_state.splits.tried))
    return replace(global_state, saved=None, splits=splits)


def restored(global_state: HcaGlobalState) -> HcaGlobalState:
    """Return the global state from before a trial, for a round that restores it."""
    if global_state.saved is None:
        raise ValueError("expected a trial, components none")
    splits = with_rejection(global_state.splits, global_state.splits.trial_leaf)
    return replace(
        global_state,
        next_sweep=global_state.saved.next_sweep,
        masses=global_state.saved.masses,
        fitted=replace(global_state.fitted, node_parent=global_state.saved.node_parent),
        saved=None,
        another_round=True,
        splits=replace(splits, restoring=True, trial_left=0, calm=CALM_ITERATIONS - 1),
    )


class TreeScores:
    """Scores of trees: the part of the bound that a tree decides."""

    def __init__(self, sums: Sums, components: Components, prior: Prior, gamma: float) -> None:
        self._sums, self._components, self._prior, self._gamma = sums, components, prior, gamma

    def value(self, tried: Moves, ends: Vector) -> float:
        """Return the part of the bound that a tree decides, with these `ends`."""
        sticks = nested.sticks(tried.tree, tried.tree.gathered(ends), ends, self._gamma)
        value = gaussian.evidence(self._sums.moved(tried), tried.tree.columns, self._prior, self._components.tau)
        return value + nested.sticks_bound(tried.tree, sticks, ends, self._gamma)

    def compared(self, moves: Moves, ends: Vector) -> Moves:
        """Return the moves with the merge of siblings that raises the bound most, if there is one."""
        pair, reached = self.best_pair(moves, ends)
        if pair is None or not reached > self.value(moves, moves.summed(ends)):
            return moves
        return moves.merged([pair[:2]], pair[2])

    def best_pair(self, moves: Moves, ends: Vector, excluded: tuple[int, ...] = ()) -> tuple[Pair | None, float]:
        """Return the siblings whose merge gives the largest bound, without excluded ones, and that bound."""
        best, most = None, -np.inf
        for node in moves.tree.columns[1:]:
            for other in moves.tree.children(moves.tree.parents[node]):
                if other > node and node not in excluded and other not in excluded:
                    sign = -1.0 if self._components.gram[node, other] < 0.0 else 1.0
                    tried = moves.merged([(int(node), int(other))], sign)
                    reached = self.value(tried, tried.summed(ends))
                    if reached > most:
                        best, most = (int(node), int(other), sign), reached
        return best, most
