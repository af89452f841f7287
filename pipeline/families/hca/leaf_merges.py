"""Merge chains with the same span: leaves, each with its own nodes above it, if that raises the bound.

The factors of a chain may be mapped, x' = G x with W' G = W, so that whether two chains are the same is not seen from
their nodes: what both span is set against what the best one chain for both would be, their vectors' factors mapped to
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.hca.posterior import Components, Prior, Sums
from collapsium.pipeline.families.ncrp import node_moves
from collapsium.pipeline.families.ncrp.node_moves import Moves
from collapsium.workers import special_functions as special
from collapsium.workers.families.ncrp.tree import FREE, Tree
from collapsium.workers.special_functions import gammaln

Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LeafMergeRule:
    """Search for pairs of chains to merge."""

    candidates: int = 8  # Chains that each is compared with, those with the most similar spans
    min_vectors: float = 0.5  # A chain with fewer vectors is dropped
    min_eigenvalue: float = 1e-12  # A direction with a smaller eigenvalue, relative to the largest, is left out


RULE = LeafMergeRule()


def own_nodes(tree: Tree) -> Ints:
    """Return the nodes of each leaf's chain, without the root, shape (leaves, nodes of each)."""
    leaves = np.flatnonzero(tree.levels == tree.depth - 1)
    return tree.paths()[leaves, 1:]


@dataclass(frozen=True)
class _Pair:
    """The merge of two chains: the maps of their factors, and the gain."""

    maps: Vector
    gain: float


class _Pool:
    """Components and sums of chains, with their vectors relative to the mean."""

    def __init__(self, nodes: Ints, sums: Sums, components: Components, prior: Prior) -> None:
        self.nodes, self.gram, self.second = nodes, components.gram, sums.second
        self.prior, self.tau, self.words = prior, components.tau, sums.words
        factors, mean = sums.second[:, -1], sums.products @ components.solve[:, -1]
        both = np.outer(factors, mean)
        self.products = sums.products - both - both.T + components.gram[-1, -1] * np.outer(factors, factors)

    def evidence(self, second: Vector, products: Vector) -> float:
        """Return the part of the bound that depends on a chain's best q(w); see `gaussian.evidence`."""
        solve = self.tau * np.linalg.inv(np.eye(len(second)) / self.prior.variance + self.tau * second)
        cost = self.words * special.log1p(self.prior.variance * self.tau * np.diag(second)).sum()
        return 0.5 * (self.tau * float((solve * products).sum()) - float(cost))

    def alone(self, one: int) -> float:
        """Return a chain's evidence."""
        own = np.ix_(self.nodes[one], self.nodes[one])
        return self.evidence(self.second[own], self.products[own])

    def together(self, one: int, other: int, mass: Vector) -> _Pair:
        """Return the merge of two chains, with the largest directions of both spans, weighted by their vectors."""
        size = self.nodes.shape[1]
        nodes = np.concatenate([self.nodes[one], self.nodes[other]])
        here = np.ix_(nodes, nodes)
        weight = np.repeat(np.sqrt(mass[[one, other]] / mass[[one, other]].sum()), size)
        value, vector = np.linalg.eigh(self.gram[here] * np.outer(weight, weight))
        value, vector = value[-size:], vector[:, -size:]
        if value[0] <= RULE.min_eigenvalue * value[-1]:
            return _Pair(np.zeros((size, 2 * size)), -np.inf)
        maps: Vector = (vector * weight[:, np.newaxis] / value).T @ self.gram[here]
        second = np.zeros((size, size))
        entropy = 0.0
        for place, chain in enumerate((one, other)):
            mapping = maps[:, place * size : (place + 1) * size]
            own = self.second[np.ix_(self.nodes[chain], self.nodes[chain])]
            mapped = mapping @ own @ mapping.T
            entropy += mass[chain] * np.linalg.slogdet(mapping)[1] - 0.5 * float(np.trace(mapped) - np.trace(own))
            second += mapped
        return _Pair(maps, entropy + self.evidence(second, maps @ self.products[here] @ maps.T))


def _near(nodes: Ints, gram: Vector) -> tuple[Ints, Ints]:
    """Return pairs of chains, each with those whose spans have the smallest angles to its own."""
    count, size = nodes.shape
    value, vector = np.linalg.eigh(gram[nodes[:, :, np.newaxis], nodes[:, np.newaxis, :]])
    root = (
        vector / np.sqrt(np.maximum(value, RULE.min_eigenvalue * np.maximum(value[:, -1:], 1e-280)))[:, np.newaxis, :]
    )
    basis = np.zeros((len(gram), count * size))
    basis[nodes[:, :, np.newaxis], np.arange(count * size).reshape(count, 1, size)] = root
    cosine = (basis.T @ gram @ basis).reshape(count, size, count, size)
    alike = (cosine**2).sum(axis=(1, 3))
    np.fill_diagonal(alike, -np.inf)
    pairs = {
        (min(one, int(other)), max(one, int(other)))
        for one in range(count)
        for other in np.argsort(-alike[one], kind="stable")[: min(RULE.candidates, count - 1)]
    }
    first, second = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
    return first, second


def pooled(
    tree: Tree, sums: Sums, components: Components, ends: Vector, prior: Prior, gamma: float
) -> tuple[Moves, Vector]:
    """Merge the pairs of chains whose merging raises the bound.

    Returns moves: To the tree of fewer chains; none where no pair gains; ends: That tree's
    """
    nodes = own_nodes(tree)
    moves = Moves(tree)
    if len(nodes) < 2:
        return moves, ends
    pool, mass = _Pool(nodes, sums, components, prior), np.maximum(ends[nodes[:, -1]], 1e-300)
    first, second = _near(nodes, components.gram)
    alone = [pool.alone(k) for k in range(len(nodes))]
    pairs = {(k, m): pool.together(k, m, mass) for k, m in zip(first.tolist(), second.tolist(), strict=True)}
    mass_k, mass_m = np.maximum(mass[first], 0.5), np.maximum(mass[second], 0.5)
    sticks = gammaln(mass_k + mass_m) - gammaln(mass_k) - gammaln(mass_m) - special.log(gamma)
    gains = np.array([pair.gain - alone[k] - alone[m] for (k, m), pair in pairs.items()]) + sticks
    parents, sources, after = np.array(tree.parents), dict(moves.sources), np.array(ends)
    empty = np.flatnonzero(ends[nodes[:, -1]] < RULE.min_vectors)
    if empty.size < len(nodes):
        parents[nodes[empty]] = FREE
    gains[np.isin(first, empty) | np.isin(second, empty)] = -np.inf
    chosen = node_moves.disjoint(first, second, gains, mass)
    for k, m in chosen:
        maps = pairs[min(k, m), max(k, m)].maps
        merged = np.concatenate([nodes[min(k, m)], nodes[max(k, m)]])
        for row, node in enumerate(nodes[k]):
            sources[int(node)] = [
                (int(source), float(weight)) for source, weight in zip(merged, maps[row], strict=True)
            ]
        parents[nodes[m]] = FREE
        after[nodes[k]] += after[nodes[m]]
        after[nodes[m]] = 0.0
    counts = {**moves.counts, "merged": len(chosen) * nodes.shape[1], "pruned": empty.size * nodes.shape[1]}
    return replace(moves, tree=Tree(parents, tree.depth), sources=sources, counts=counts), after
