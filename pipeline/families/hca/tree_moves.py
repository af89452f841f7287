"""Splits of leaves on trial, in a full tree with a merge elsewhere: SMEM (Ueda, Nakano, Ghahramani and Hinton 2000).

A leaf of whose vectors most is left along one direction (`collapsium.workers.families.hca.leaf_splits`) is parted in
two. The next rounds, of one iteration, are swept with the new tree, and it stays if the bound is larger then than it
was; else the tree, the rows and the local states are those of before. So the bound never falls for a split.

The globals of a family hold ``split`` (the leaf, the column and the rule that the coming sweep parts by; -1 for none),
``trial_leaf`` and ``trial_left`` (rounds of a trial still to come), ``restoring``, ``last_bound``, ``kept_bound``,
``tried`` (splits in vain, by column), ``calm`` (iterations since the tree has changed) and ``kept_...``, what the
trial may have to go back to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.hca import posterior as gaussian
from collapsium.pipeline.families.hca.posterior import Components, Prior, Sums
from collapsium.pipeline.families.ncrp import prior as nested
from collapsium.pipeline.families.ncrp.node_moves import Moves
from collapsium.workers.arrays.delta import Arrays
from collapsium.workers.families.hca.leaf_splits import ROUNDS
from collapsium.workers.families.ncrp.tree import FREE, Tree

Vector = npt.NDArray[np.float64]
Pair = tuple[int, int, float]  # two columns, and the sign with which the second goes into the first

Table = dict[str, npt.NDArray[Any]]

CALM = 4  # iterations without moves, before a leaf is parted: so long probes are stepped
LEAST = 8  # vectors of a leaf that may be parted
SLACK, STEADY = 1e-7, 3e-4  # of the bound: least gain of a split, and most of an iteration before it
WAYS = 2  # to part a leaf's vectors: as two lines, or as two clusters


def begun(columns: int) -> Table:
    """Return the globals before any split."""
    return {
        "split": np.full(3, -1),
        "trial_leaf": np.array(-1),
        "trial_left": np.array(0),
        "restoring": np.array(0),
        "kept_bound": np.array(0.0),
        "last_bound": np.array(0.0),
        "tried": np.zeros(columns, dtype=np.int64),
        "calm": np.array(0),
        "probe_scale": np.ones(columns),
    }


def chosen(globals: Arrays, tree: Tree, gain: Vector, ends: Vector, tau: float) -> npt.NDArray[np.int64]:
    """Return the leaf of which most is left along its probe, more than noise would leave, a column, and how to part it.

    Parameters
    ----------
    globals : Arrays
        With ``tried`` and ``vocabulary``.
    tree : Tree
        As it is.
    gain : numpy.ndarray of float64, shape (columns,)
        Sums of squares along the probes.
    ends : numpy.ndarray of float64, shape (columns,)
        Vectors that end at each node.
    tau : float
        E[tau].

    Returns
    -------
    numpy.ndarray of int64, shape (3,)
        All -1, if there is no such leaf or column.
    """
    # The largest sum of squares of noise along a direction (Marchenko and Pastur 1967).
    beyond = gain - (np.sqrt(np.maximum(ends, 0.0)) + np.sqrt(float(globals["vocabulary"]))) ** 2 / tau
    leaves = np.flatnonzero(tree.levels == tree.depth - 1)
    able = leaves[(ends[leaves] >= LEAST) & (globals["tried"][leaves] < WAYS) & (leaves > 0) & (beyond[leaves] > 0.0)]
    free = np.flatnonzero(tree.parents == FREE)
    if not able.size or not free.size:
        return np.full(3, -1)
    leaf = int(able[np.lexsort((-beyond[able], globals["tried"][able]))[0]])
    return np.array([leaf, free[0], int(globals["tried"][leaf] == 0)])


def parted(tree: Tree, split: npt.NDArray[np.int64], ends: Vector) -> tuple[Moves, Vector]:
    """Return the moves by which a leaf's other side becomes its sibling, and the ends of the tree that they make."""
    leaf, column = int(split[0]), int(split[1])
    parents, after = np.array(tree.parents), np.array(ends)
    parents[column] = parents[leaf]
    after[leaf] -= ends[column]
    begun_ = Moves(tree)
    sources = {leaf: [(leaf, 1.0), (column, -1.0)], column: [(column, 1.0)]}
    counts = {**begun_.counts, "grown": 1}
    return replace(begun_, tree=Tree(parents, tree.depth), sources=sources, counts=counts), after


def on_trial(ahead: Arrays, trial: Arrays, leaf: int, bound: float) -> Table:
    """Return the globals with which a trial begins.

    Parameters
    ----------
    ahead : Arrays
        As the next sweep would have them without it.
    trial : Arrays
        What is otherwise with it.
    leaf : int
        Whose it is.
    bound : float
        To be surpassed.

    Returns
    -------
    dict of str to numpy.ndarray
        All globals.
    """
    kept = {f"kept_{name}": ahead[name] for name in (*trial, "node_parent", "node_passes", "node_ends")}
    begun_ = {"trial_leaf": np.array(leaf), "trial_left": np.array(ROUNDS), "kept_bound": np.array(bound)}
    return {**ahead, **trial, **kept, **begun_}


def surpassed(globals: Arrays, bound: float) -> bool:
    """Say whether a trial has gained more than the iterations before would have gone on to."""
    kept = float(globals["kept_bound"])
    return bound - kept > max(ROUNDS * (kept - float(globals["last_bound"])), SLACK * abs(kept))


def steady(globals: Arrays, bound: float) -> bool:
    """Say whether the bound has come near to where it stays."""
    return abs(bound - float(globals["last_bound"])) < STEADY * abs(bound)


def in_vain(globals: Arrays, leaf: int) -> npt.NDArray[np.int64]:
    """Return how often splits of each leaf were tried, with one more."""
    tried = np.array(globals["tried"])
    tried[leaf] += 1
    return tried


def _plain(globals: Arrays) -> Table:
    """Return the globals without what a trial keeps."""
    return {name: value for name, value in globals.items() if not name.startswith("kept_") or name == "kept_bound"}


def accepted(globals: Arrays) -> Table:
    """Return the globals with which a split stays: all leaves may be tried again."""
    over = {"trial_left": np.array(0), "calm": np.array(0)}
    return {**_plain(globals), **over, "tried": np.zeros_like(globals["tried"])}


def restored(globals: Arrays) -> Table:
    """Return the globals as they were before a trial, for a round that goes back to them."""
    kept = {name[5:]: value for name, value in globals.items() if name.startswith("kept_") and name != "kept_bound"}
    over = {"restoring": np.array(1), "trial_left": np.array(0), "another_round": np.array(1.0)}
    tried = in_vain(globals, int(globals["trial_leaf"]))
    return {**_plain(globals), **kept, **over, "tried": tried, "calm": np.array(CALM - 1)}


class Judge:
    """Says what of the bound a tree decides.

    Parameters
    ----------
    sums : Sums
        What a sweep came to.
    found : Components
        The best given these.
    prior : Prior
        The priors.
    gamma : float
        Concentration.
    """

    def __init__(self, sums: Sums, found: Components, prior: Prior, gamma: float) -> None:
        self._sums, self._found, self._prior, self._gamma = sums, found, prior, gamma

    def value(self, tried: Moves, ends: Vector) -> float:
        """Return what of the bound a tree decides, with those `ends`."""
        sticks = nested.sticks(tried.tree, tried.tree.gathered(ends), ends, self._gamma)
        value = gaussian.evidence(self._sums.moved(tried), tried.tree.columns, self._prior, self._found.tau)
        return value + nested.sticks_bound(tried.tree, sticks, ends, self._gamma)

    def compared(self, moves: Moves, ends: Vector) -> Moves:
        """Merge the pair of siblings, if there is one, whose merging raises the bound most."""
        pair, reached = self.best_pair(moves, ends)
        if pair is None or not reached > self.value(moves, moves.summed(ends)):
            return moves
        return moves.merged([pair[:2]], pair[2])

    def best_pair(self, moves: Moves, ends: Vector, kept: tuple[int, ...] = ()) -> tuple[Pair | None, float]:
        """Return the siblings, but for those to be kept, that are best merged, and what the bound is then."""
        best, most = None, -np.inf
        for node in moves.tree.columns[1:]:
            for other in moves.tree.children(moves.tree.parents[node]):
                if other > node and node not in kept and other not in kept:
                    sign = -1.0 if self._found.gram[node, other] < 0.0 else 1.0
                    tried = moves.merged([(int(node), int(other))], sign)
                    reached = self.value(tried, tried.summed(ends))
                    if reached > most:
                        best, most = (int(node), int(other), sign), reached
        return best, most
