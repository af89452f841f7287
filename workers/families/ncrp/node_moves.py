"""Moves of nodes from one tree to another: merges, pruning and growth, and the evidence that merges gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.families.ncrp.tree import FREE, NOWHERE, ROOT, MoveTable, Tree, UpcomingTree
from collapsium.workers.special_functions import gammaln


def depth_first(parent: Ints, weight: npt.NDArray[np.generic]) -> Ints:
    """Return the nodes of a tree, each before those below it."""
    below: dict[int, list[int]] = {}
    # The last node comes first off the stack.
    for node in np.lexsort((-np.arange(parent.size), weight)):
        below.setdefault(int(parent[node]), []).append(int(node))
    nodes, waiting = [], list(below.get(-1, []))
    while waiting:
        nodes.append(waiting.pop())
        waiting += below.get(nodes[-1], [])
    return np.array(nodes, dtype=np.int64)


def regular_tree(branching: Sequence[int]) -> Ints:
    """Return the parents of the nodes of a tree, level by level; the nodes of a level have equally many children."""
    parent, last = [-1], [0]
    for children in branching:
        above = [node for node in last for _ in range(children)]
        last = list(range(len(parent), len(parent) + len(above)))
        parent += above
    return np.array(parent, dtype=np.int64)


Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]

CLEAR_GAP = 0.05  # Hellinger distance by which a number of groups must be better than the others
MAX_GROUP_SHARE = 0.6  # Share of the leaves in one group above which a linkage has no groups


@dataclass(frozen=True)
class Moves:
    """A tree with some of its nodes removed, added or merged."""

    tree: Tree  # After the moves
    # For each column that changes, the columns that it is the weighted sum of; none for an empty node
    sources: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    # How many nodes were ``grown``, ``pruned`` and ``merged``
    counts: dict[str, int] = field(default_factory=lambda: {"grown": 0, "pruned": 0, "merged": 0})

    def move_table(self) -> MoveTable:
        """Return the table of moves."""
        rows = [
            (source, target, weight)
            for target, sources in self.sources.items()
            for source, weight in (sources or [(NOWHERE, 0.0)])
        ]
        return MoveTable(
            np.array([row[0] for row in rows], dtype=np.int64),
            np.array([row[1] for row in rows], dtype=np.int64),
            np.array([row[2] for row in rows], dtype=np.float64),
        )

    def upcoming(self, end_log: Vector) -> UpcomingTree:
        """Return the tree as the next sweep's tree, with its ends' log prior masses."""
        counts = self.counts
        return UpcomingTree(
            next_parent=self.tree.parents,
            next_depth=self.tree.depth,
            next_end_log=np.maximum(end_log, -1e300),
            next_grown=counts["grown"],
            next_merged=counts["merged"],
            next_pruned=counts["pruned"],
        )

    def summed(self, values: Vector) -> Vector:
        """Return numbers by node that are above zero, such as masses, of the new tree."""
        after = np.where(self.tree.levels >= 0, values, 0.0)
        for target, sources in self.sources.items():
            after[target] = sum(abs(weight) * values[source] for source, weight in sources)
        return after

    def _made(self, column: int) -> list[tuple[int, float]]:
        return self.sources.get(column, [(column, 1.0)])

    def _with(
        self,
        parents: Ints,
        sources: dict[int, list[tuple[int, float]]],
        kind: str,
        count: int,
        depth: int | None = None,
    ) -> Moves:
        counts = {**self.counts, kind: self.counts[kind] + count}
        return replace(self, tree=Tree(parents, depth or self.tree.depth), sources=sources, counts=counts)

    def merged(self, pairs: list[tuple[int, int]], sign: float = 1.0) -> Moves:
        """Put the second of each pair of siblings, times a sign, into the first; its children become the first's."""
        parents, sources = np.array(self.tree.parents), dict(self.sources)
        for first, second in pairs:
            parents[parents == second] = first
            parents[second] = FREE
            sources[first] = [*self._made(first), *((source, sign * weight) for source, weight in self._made(second))]
            sources.pop(second, None)
        return self._with(parents, sources, "merged", len(pairs))

    def pruned(self, passes: Vector, least: float) -> Moves:
        """Remove the nodes whose mass is below a threshold, with all below them."""
        parents, sources = np.array(self.tree.parents), dict(self.sources)
        removed = [node for node in self.tree.columns[1:] if passes[node] < least]
        for node in removed:
            sources.pop(int(node), None)
            parents[node] = FREE
        # The nodes below these are removed with them.
        while True:
            hanging = [node for node in np.flatnonzero(parents >= 0) if parents[parents[node]] == FREE]
            if not hanging:
                break
            for node in hanging:
                parents[node] = FREE
                sources.pop(int(node), None)
        dropped = int((self.tree.parents != FREE).sum() - (parents != FREE).sum())
        return self._with(parents, sources, "pruned", dropped)

    def grown(self, ends: list[int]) -> Moves:
        """Add the nodes that complete the paths of some inner nodes, at the prior, while columns are free."""
        parents, sources = np.array(self.tree.parents), dict(self.sources)
        free = [int(column) for column in np.flatnonzero(parents == FREE)]
        count = 0
        for end in ends:
            missing = self.tree.depth - 1 - int(self.tree.levels[end])
            if missing > len(free) or missing == 0 or parents[end] == FREE:
                continue
            above = end
            for _ in range(missing):
                column = free.pop(0)
                parents[column], sources[column] = above, []
                above, count = column, count + 1
        return self._with(parents, sources, "grown", count)


def evidence_gains(
    gains: Vector, first: Ints, second: Ints, tokens: Vector, passes: Vector, prior: Vector, words: float, gamma: float
) -> Vector:
    """Return by how much log p(c, t | z) rises when pairs of siblings become one node, all else being as it is."""
    n, m, mass = tokens[first], tokens[second], words * prior[first]
    total = gammaln(n + mass) + gammaln(m + mass) - gammaln(n + m + mass) - gammaln(mass)
    c, d = np.maximum(passes[first], 0.5), np.maximum(passes[second], 0.5)
    evidence: Vector = gains + total + gammaln(c + d) - gammaln(c) - gammaln(d) - special.log(gamma)
    return evidence


def disjoint(first: Ints, second: Ints, value: Vector, passes: Vector) -> list[tuple[int, int]]:
    """Return pairs in descending order of value, none below zero, each column once; the larger node comes first."""
    taken: set[int] = set()
    chosen = []
    for place in np.argsort(-value, kind="stable"):
        pair = int(first[place]), int(second[place])
        if value[place] <= 0.0:
            break
        if taken.isdisjoint(pair):
            taken.update(pair)
            chosen.append(pair if passes[pair[0]] >= passes[pair[1]] else pair[::-1])
    return chosen


def nearest_siblings(tree: Tree, affinity: Vector, count: int) -> tuple[Ints, Ints]:
    """Return pairs of siblings, each node with those most alike, as columns; ascending."""
    pairs = set()
    for node in tree.columns[1:]:
        siblings = tree.children(tree.parents[node])
        siblings = siblings[siblings != node]
        for sibling in siblings[np.argsort(-affinity[node, siblings], kind="stable")[:count]]:
            pairs.add((min(int(node), int(sibling)), max(int(node), int(sibling))))
    columns = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    return np.ascontiguousarray(columns[:, 0]), np.ascontiguousarray(columns[:, 1])


def affinities(roots: Vector, tokens: Vector) -> Vector:
    """Return sum_w sqrt(p_iw p_jw) of all columns, from sums of roots of counts; 0 where there are no tokens."""
    scale = np.where(tokens > 0.0, 1.0 / np.sqrt(np.maximum(tokens, 1e-300)), 0.0)
    affinity: Vector = np.clip(roots * scale * scale[:, np.newaxis], 0.0, 1.0)
    return affinity


def alike_paths(tree: Tree, alike: Vector, least: float) -> list[tuple[int, int]]:
    """Return pairs of sibling leaves whose documents are almost the same: P_i'P_j / (|P_i| |P_j|) above a threshold."""
    norm = np.sqrt(np.maximum(np.diag(alike), 1e-300))
    cosine = alike / (norm * norm[:, np.newaxis])
    alike_pairs: list[tuple[int, int, float]] = []
    for leaf in np.flatnonzero(tree.levels == tree.depth - 1):
        siblings = tree.children(tree.parents[leaf])
        alike_pairs.extend(
            (int(leaf), int(sibling), float(cosine[leaf, sibling]))
            for sibling in siblings[(siblings > leaf) & (cosine[leaf, siblings] > least)]
        )
    pairs = np.array([pair[:2] for pair in alike_pairs], dtype=np.int64).reshape(-1, 2)
    return disjoint(pairs[:, 0], pairs[:, 1], np.array([pair[2] for pair in alike_pairs]), np.diag(alike))


def regrouped(moves: Moves, distance: Vector, alpha: Vector, depth: int) -> Moves:
    """Put the leaves of a tree of depth 2 under groups, and these under groups, down to the full depth.

    Leaves are joined by average linkage; each level cuts the dendrogram where its gap is widest or, where no gap stands
    out, into as many groups as keep the branching even. Where that puts most into one group, Ward's linkage does.
    """
    leaves = moves.tree.children(0)
    free = [int(column) for column in np.flatnonzero(moves.tree.parents == FREE)]
    share = alpha[1:] / alpha[1:].sum()
    groups = _nested_groups(distance[np.ix_(leaves, leaves)], depth - 2, len(free))
    parents, sources = np.array(moves.tree.parents), dict(moves.sources)
    above = np.zeros(leaves.size, dtype=np.int64)
    count = 0
    for level, labels in enumerate(groups):
        for label in np.unique(labels):
            inside = np.flatnonzero(labels == label)
            column = free.pop(0)
            parents[column], count = above[inside[0]], count + 1
            sources[column] = [(c, w * share[level]) for leaf in leaves[inside] for c, w in moves._made(int(leaf))]
            above[inside] = column
    for place, leaf in enumerate(leaves):
        parents[leaf] = above[place]
        sources[int(leaf)] = [(c, w * share[-1]) for c, w in moves._made(int(leaf))]
    after = moves._with(parents, sources, "grown", count, depth)
    # Grouped leaves count as merged.
    return after._with(parents, sources, "merged", int(leaves.size))


def _nested_groups(distance: Vector, levels: int, room: int) -> list[Ints]:
    """Return a label of each leaf for each of some levels, the coarsest first; each level splits the one above."""
    from scipy.cluster import hierarchy
    from scipy.spatial import distance as spatial_distance

    size = len(distance)
    if size < 2:
        return [np.zeros(size, dtype=np.int64)] * levels
    np.fill_diagonal(distance, 0.0)
    near, max_groups = spatial_distance.squareform(distance, checks=False), max(1, min(size, room // max(levels, 1)))
    even = [max(1, min(max_groups, round(size ** ((level + 1) / (levels + 1))))) for level in range(levels)]
    tree = hierarchy.linkage(near, "average")
    heights = tree[:, 2]
    numbers: list[int] = []
    for level in range(levels):
        low = numbers[-1] if numbers else 1
        able = np.arange(max(low, 2), min(max_groups, max(3 * even[level], 3), size - 1) + 1)
        gap = heights[size - able] - heights[size - able - 1]
        clear = able.size and gap.max() >= CLEAR_GAP
        numbers.append(int(able[gap.argmax()]) if clear else max(even[level], low))
    labels = [hierarchy.fcluster(tree, number, "maxclust").astype(np.int64) for number in numbers]
    # A few outlying leaves make no groups.
    if levels and np.bincount(labels[0]).max() > MAX_GROUP_SHARE * size:
        tree = hierarchy.linkage(near, "ward")
        labels = [hierarchy.fcluster(tree, number, "maxclust").astype(np.int64) for number in even]
    return labels


def first_tree(columns: int, leaves: int) -> Tree:
    """Return a tree with the root in column 0 and its leaves in the next columns."""
    parents = np.full(columns, FREE, dtype=np.int64)
    parents[0], parents[1 : 1 + leaves] = ROOT, 0
    return Tree(parents, 2)
