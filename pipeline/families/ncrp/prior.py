"""The nested Chinese restaurant process on the driver: sticks, masses of paths outside the tree, and moves of nodes.

Arrays are by column of the rows; see `collapsium.workers.families.ncrp.tree`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.families.ncrp.tree import FREE, NOWHERE, ROOT, Tree
from collapsium.workers.special_functions import betaln, digamma, gammaln

Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]

CLEAR = 0.05  # Hellinger distance by which one number of groups is better than the others
LOPSIDED = 0.6  # share of the leaves in one group by which these are no groups
GAMMAS = -7.0, 7.0  # logarithms between which gamma is learned


@dataclass(frozen=True)
class Sticks:
    """The factors q(v_i) = Beta(a_i, b_i) of all nodes but the root, and the order of siblings.

    Attributes
    ----------
    a, b : numpy.ndarray of float64, shape (columns,)
        Of columns without a node, and of the root, those of the prior.
    rank : numpy.ndarray of int64, shape (columns,)
        A node's number among its siblings, from 0.
    """

    a: Vector
    b: Vector
    rank: Ints

    @property
    def log_stick(self) -> Vector:
        """E[log v_i]."""
        found: Vector = digamma(self.a) - digamma(self.a + self.b)
        return found

    @property
    def log_rest(self) -> Vector:
        """E[log(1 - v_i)]."""
        found: Vector = digamma(self.b) - digamma(self.a + self.b)
        return found


def sticks(tree: Tree, passes: Vector, ends: Vector, gamma: float) -> Sticks:
    """Return the best q(v) given q(c): a_i = 1 + what passes i, b_i = gamma + what passes a later sibling.

    Siblings are numbered by falling mass, which no other order beats; paths outside the tree come behind all of them.

    Parameters
    ----------
    tree : Tree
        The nodes.
    passes, ends : numpy.ndarray of float64, shape (columns,)
        sum_n q(c_n passes i), and sum_n q(c_n = c) of the ends at each node.
    gamma : float
        Concentration.

    Returns
    -------
    Sticks
        (11) of Wang and Blei (2009).
    """
    a, b = np.ones(passes.size), np.full(passes.size, gamma)
    rank = np.zeros(passes.size, dtype=np.int64)
    for node in tree.columns:
        children = tree.children(node)
        if not children.size:
            continue
        order = children[np.argsort(-passes[children], kind="stable")]
        later = np.cumsum(np.append(passes[order], ends[node])[::-1])[::-1][1:]
        a[order], b[order], rank[order] = 1.0 + passes[order], gamma + later, np.arange(order.size)
    return Sticks(a, b, rank)


def outside_log(gamma: float) -> float:
    """Return the log mass of all that is below one level outside the tree: u - log(1 - exp r).

    With u = E[log v] and r = E[log(1 - v)] of v ~ Beta(1, gamma), a sum over j of exp(u + (j - 1) r).

    Parameters
    ----------
    gamma : float
        Concentration.

    Returns
    -------
    float
        In nats.
    """
    both = digamma(1.0 + gamma)
    return float(digamma(1.0) - both - special.log(-special.expm1(digamma(gamma) - both)))


def end_logs(tree: Tree, found: Sticks, gamma: float) -> Vector:
    """Return log sum_c exp(E[log p(c | V)]) over the full paths of each end.

    Parameters
    ----------
    tree : Tree
        The nodes.
    found : Sticks
        q(v).
    gamma : float
        Concentration of the prior, which holds outside the tree.

    Returns
    -------
    numpy.ndarray of float64, shape (columns,)
        (14) of Wang and Blei (2009) without Z0; -inf where there is no node.
    """
    logs = np.full(tree.parents.size, -np.inf)
    log_stick, log_rest, beyond = found.log_stick, found.log_rest, outside_log(gamma)
    down = np.zeros(tree.parents.size)
    for node in tree.columns:
        children = tree.children(node)
        order = children[np.argsort(found.rank[children], kind="stable")]
        before = np.cumsum(np.append(0.0, log_rest[order]))
        down[order] = down[node] + log_stick[order] + before[:-1]
        left = tree.depth - 1 - tree.levels[node]
        logs[node] = down[node] + (before[-1] + left * beyond if left else 0.0)
    return logs


def sticks_bound(tree: Tree, found: Sticks, ends: Vector, gamma: float) -> float:
    """Return E[log p(c | V)] + H of what is outside, and -KL(q(v) | p(v)), all given q(c) and its best q(v)."""
    nodes = tree.columns[1:]
    value = (betaln(found.a[nodes], found.b[nodes]) - betaln(1.0, gamma)).sum()
    left = tree.depth - 1 - tree.level
    return float(value + (ends[tree.columns] * left).sum() * outside_log(gamma))


def sticks_divergence(tree: Tree, found: Sticks, gamma: float) -> float:
    """Return KL(q(v) | p(v)) of all nodes but the root."""
    nodes = tree.columns[1:]
    a, b = found.a[nodes], found.b[nodes]
    value = betaln(1.0, gamma) - betaln(a, b) + (a - 1.0) * digamma(a) + (b - gamma) * digamma(b)
    return float((value + (1.0 + gamma - a - b) * digamma(a + b)).sum())


def learned_gamma(tree: Tree, found: Sticks, ends: Vector, gamma: float) -> float:
    """Return the gamma that maximises the bound given q(c) and q(v); at least as good as the one given."""
    from scipy.optimize import minimize_scalar

    nodes = tree.columns[1:]
    rest = float(found.log_rest[nodes].sum())
    left = float((ends[tree.columns] * (tree.depth - 1 - tree.level)).sum())

    def worse(log_gamma: float) -> float:
        value = float(special.exp(log_gamma))
        return -(nodes.size * log_gamma + (value - 1.0) * rest + left * outside_log(value))

    best = minimize_scalar(worse, bounds=GAMMAS, method="bounded", options={"xatol": 1e-6})
    return float(special.exp(best.x)) if best.fun < worse(float(special.log(gamma))) else gamma


@dataclass(frozen=True)
class Moves:
    """A tree on its way to another: nodes that went, came and were put together.

    Attributes
    ----------
    tree : Tree
        As it is by now.
    sources : dict of int to list of (int, float)
        Of each column that changes, the columns of the rows that make it up, with weights; none for an empty node.
    counts : dict of str to int
        How many nodes were ``grown``, ``pruned`` and ``merged``.
    """

    tree: Tree
    sources: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: {"grown": 0, "pruned": 0, "merged": 0})

    def table(self) -> dict[str, npt.NDArray[np.float64] | Ints]:
        """Return the table of moves as globals hold it."""
        rows = [
            (source, target, weight)
            for target, made in self.sources.items()
            for source, weight in (made or [(NOWHERE, 0.0)])
        ]
        return {
            "move_source": np.array([row[0] for row in rows], dtype=np.int64),
            "move_target": np.array([row[1] for row in rows], dtype=np.int64),
            "move_weight": np.array([row[2] for row in rows], dtype=np.float64),
        }

    def summed(self, values: Vector) -> Vector:
        """Bring a value a node that is above zero, such as a mass, to the new tree."""
        after = np.where(self.tree.levels >= 0, values, 0.0)
        for target, made in self.sources.items():
            after[target] = sum(abs(weight) * values[source] for source, weight in made)
        return after

    def _made(self, column: int) -> list[tuple[int, float]]:
        return self.sources.get(column, [(column, 1.0)])

    def _with(
        self,
        parents: Ints,
        sources: dict[int, list[tuple[int, float]]],
        what: str,
        count: int,
        depth: int | None = None,
    ) -> Moves:
        counts = {**self.counts, what: self.counts[what] + count}
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
        """Drop the nodes that next to nothing passes, with all below them."""
        parents, sources = np.array(self.tree.parents), dict(self.sources)
        gone = [node for node in self.tree.columns[1:] if passes[node] < least]
        for node in gone:
            sources.pop(int(node), None)
            parents[node] = FREE
        while True:  # what hung on them
            hanging = [node for node in np.flatnonzero(parents >= 0) if parents[parents[node]] == FREE]
            if not hanging:
                break
            for node in hanging:
                parents[node] = FREE
                sources.pop(int(node), None)
        dropped = int((self.tree.parents != FREE).sum() - (parents != FREE).sum())
        return self._with(parents, sources, "pruned", dropped)

    def grown(self, ends: list[int]) -> Moves:
        """Add to each of some inner nodes the nodes that make its path full, at the prior; as far as there is room."""
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
    """Return by how much log p(c, t | z) rises when pairs of siblings become one node, all else being as it is.

    Parameters
    ----------
    gains : numpy.ndarray of float64, shape (pairs,)
        The words' part; see `collapsium.workers.kernels.trees.nodes.together`.
    first, second : numpy.ndarray of int64, shape (pairs,)
        Columns.
    tokens, passes : numpy.ndarray of float64, shape (columns,)
        Expected tokens at each node and documents that pass it.
    prior : numpy.ndarray of float64, shape (columns,)
        eta.
    words : float
        Size of the vocabulary.
    gamma : float
        Concentration.

    Returns
    -------
    numpy.ndarray of float64, shape (pairs,)
        In nats.
    """
    one, other, whole = tokens[first], tokens[second], words * prior[first]
    total = gammaln(one + whole) + gammaln(other + whole) - gammaln(one + other + whole) - gammaln(whole)
    some, more = np.maximum(passes[first], 0.5), np.maximum(passes[second], 0.5)
    found: Vector = gains + total + gammaln(some + more) - gammaln(some) - gammaln(more) - special.log(gamma)
    return found


def disjoint(first: Ints, second: Ints, value: Vector, passes: Vector) -> list[tuple[int, int]]:
    """Choose pairs in falling order of value, none below zero, each column once; the larger node comes first."""
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
        others = tree.children(tree.parents[node])
        others = others[others != node]
        for other in others[np.argsort(-affinity[node, others], kind="stable")[:count]]:
            pairs.add((min(int(node), int(other)), max(int(node), int(other))))
    found = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    return np.ascontiguousarray(found[:, 0]), np.ascontiguousarray(found[:, 1])


def affinities(roots: Vector, tokens: Vector) -> Vector:
    """Return sum_w sqrt(p_iw p_jw) of all columns, from sums of roots of counts; 0 where there are no tokens."""
    scale = np.where(tokens > 0.0, 1.0 / np.sqrt(np.maximum(tokens, 1e-300)), 0.0)
    found: Vector = np.clip(roots * scale * scale[:, np.newaxis], 0.0, 1.0)
    return found


def alike_paths(tree: Tree, alike: Vector, least: float) -> list[tuple[int, int]]:
    """Return pairs of sibling leaves whose documents are almost the same: P_i'P_j / (|P_i| |P_j|) above a threshold."""
    norm = np.sqrt(np.maximum(np.diag(alike), 1e-300))
    cosine = alike / (norm * norm[:, np.newaxis])
    found: list[tuple[int, int, float]] = []
    for one in np.flatnonzero(tree.levels == tree.depth - 1):
        others = tree.children(tree.parents[one])
        found.extend(
            (int(one), int(other), float(cosine[one, other]))
            for other in others[(others > one) & (cosine[one, others] > least)]
        )
    pairs = np.array([pair[:2] for pair in found], dtype=np.int64).reshape(-1, 2)
    return disjoint(pairs[:, 0], pairs[:, 1], np.array([pair[2] for pair in found]), np.diag(alike))


def regrouped(moves: Moves, distance: Vector, alpha: Vector, depth: int) -> Moves:
    """Put the leaves of a tree of depth 2 under groups, and these under groups, down to the full depth.

    Leaves are joined by average linkage; each level cuts the dendrogram where its gap is widest or, where no gap stands
    out, into as many groups as keep the branching even. Where that puts most into one group, Ward's linkage does.

    Parameters
    ----------
    moves : Moves
        At a tree of depth 2.
    distance : numpy.ndarray of float64, shape (columns, columns)
        Between leaves.
    alpha : numpy.ndarray of float64, shape (depth,)
        In proportion to it a leaf's tokens go to the levels above it.
    depth : int
        Of the tree to make.

    Returns
    -------
    Moves
        At the deeper tree.
    """
    leaves = moves.tree.children(0)
    free = [int(one) for one in np.flatnonzero(moves.tree.parents == FREE)]
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
    return after._with(parents, sources, "merged", int(leaves.size))  # as leaves are put together


def _nested_groups(distance: Vector, levels: int, room: int) -> list[Ints]:
    """Return a label of each leaf for each of some levels, the coarsest first; each level splits the one above."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    size = len(distance)
    if size < 2:
        return [np.zeros(size, dtype=np.int64)] * levels
    np.fill_diagonal(distance, 0.0)
    near, most = squareform(distance, checks=False), max(1, min(size, room // max(levels, 1)))
    even = [max(1, min(most, round(size ** ((level + 1) / (levels + 1))))) for level in range(levels)]
    tree = linkage(near, "average")
    heights = tree[:, 2]
    numbers: list[int] = []
    for level in range(levels):
        low = numbers[-1] if numbers else 1
        able = np.arange(max(low, 2), min(most, max(3 * even[level], 3), size - 1) + 1)
        gap = heights[size - able] - heights[size - able - 1]
        clear = able.size and gap.max() >= CLEAR
        numbers.append(int(able[gap.argmax()]) if clear else max(even[level], low))
    found = [fcluster(tree, number, "maxclust").astype(np.int64) for number in numbers]
    if levels and np.bincount(found[0]).max() > LOPSIDED * size:  # a few leaves stand apart, which makes no groups
        tree = linkage(near, "ward")
        found = [fcluster(tree, number, "maxclust").astype(np.int64) for number in even]
    return found


def first_tree(columns: int, leaves: int) -> Tree:
    """Return a root in column 0 with so many leaves behind it."""
    parents = np.full(columns, FREE, dtype=np.int64)
    parents[0], parents[1 : 1 + leaves] = ROOT, 0
    return Tree(parents, 2)
