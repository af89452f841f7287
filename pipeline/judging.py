"""Which siblings of a tree of components are better one, by the bound given q(c) and q(x) as they are brought there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapsar.pipeline import gaussian, nested
from collapsar.pipeline.gaussian import Components, Prior, Sums
from collapsar.pipeline.nested import Moves

Vector = npt.NDArray[np.float64]
Pair = tuple[int, int, float]  # two columns, and the sign with which the second goes into the first


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
