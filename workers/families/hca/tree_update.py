"""Move nodes of a Gaussian tree after a sweep: merges, pruning, splits on trial, and chains that become a tree.

The leaf whose vectors have the largest residual along one direction (`collapsium.workers.families.hca.states`) is split
in two; if the tree is full, two other nodes are merged: SMEM (Ueda, Nakano, Ghahramani and Hinton 2000). The sweeps of
one iteration try the new tree. It is accepted if they raise the bound; otherwise the earlier tree, rows and local
states are restored. So a split never lowers the bound.

Chains, which are leaves with separate nodes above them, are merged if they span the same directions and the merge
raises the bound. The nodes alone do not show whether two chains are alike, because the factors of a chain may be
mapped, x' = G x with W' G = W. Two chains are therefore compared with the best single chain for both, to which the
factors of their vectors are mapped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from collapsium.workers import special_functions as special
from collapsium.workers.families.hca import posterior as gaussian
from collapsium.workers.families.hca.posterior import Components, Sums
from collapsium.workers.families.hca.states import (
    TRIAL_ROUNDS,
    HcaGlobalState,
    HcaOptions,
    NextSweep,
    Prior,
    SavedTree,
    Splits,
    TreeSums,
)
from collapsium.workers.families.ncrp import node_moves
from collapsium.workers.families.ncrp import tree as nested
from collapsium.workers.families.ncrp.node_moves import Moves
from collapsium.workers.families.ncrp.tree import FREE, Ints, Tree, Vector
from collapsium.workers.special_functions import gammaln

Pair = tuple[int, int, float]  # two columns, and the sign with which the second goes into the first

CALM_ITERATIONS = 4  # Iterations without moves before a leaf is split, in which probes converge
MIN_SPLIT_VECTORS = 8  # Vectors of a leaf that may be split
# Minimum gain of a split, and maximum change of the iteration before it, relative to the bound
MIN_GAIN, MAX_CHANGE = 1e-7, 3e-4
WAYS = 2  # Ways to split a leaf's vectors: as two lines, or as two clusters


def leaf_to_split(splits: Splits, tree: Tree, gain: Vector, ends: Vector, words: float, tau: float) -> Ints:
    """Return the leaf with the largest residual along its probe above the noise, a free column, and its split."""
    # The largest sum of squares of noise along a direction (Marchenko and Pastur 1967).
    beyond = gain - (np.sqrt(np.maximum(ends, 0.0)) + np.sqrt(words)) ** 2 / tau
    tried = splits.tried
    leaves = np.flatnonzero(tree.levels == tree.depth - 1)
    able = leaves[(ends[leaves] >= MIN_SPLIT_VECTORS) & (tried[leaves] < WAYS) & (leaves > 0) & (beyond[leaves] > 0.0)]
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
    """Return true if a trial gained more than its iterations would have gained without the split."""
    before = splits.trial_bound
    return bound - before > max(TRIAL_ROUNDS * (before - splits.last_bound), MIN_GAIN * abs(before))


def with_rejection(splits: Splits, leaf: int) -> Splits:
    """Return the splits with another rejection of a leaf."""
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
        best, best_gain = None, -np.inf
        for node in moves.tree.columns[1:]:
            for sibling in moves.tree.children(moves.tree.parents[node]):
                if sibling > node and node not in excluded and sibling not in excluded:
                    sign = -1.0 if self._components.gram[node, sibling] < 0.0 else 1.0
                    tried = moves.merged([(int(node), int(sibling))], sign)
                    reached = self.value(tried, tried.summed(ends))
                    if reached > best_gain:
                        best, best_gain = (int(node), int(sibling), sign), reached
        return best, best_gain


MERGE_CANDIDATES = 8  # Number of chains, with the most similar spans, with which each chain is compared
MIN_CHAIN_VECTORS = 0.5  # A chain with fewer vectors is dropped
MIN_EIGENVALUE = 1e-12  # A direction with a smaller eigenvalue, relative to the largest, is left out


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
        """Return the part of the bound that depends on a chain's best q(w); see `posterior.evidence`."""
        solve = self.tau * np.linalg.inv(np.eye(len(second)) / self.prior.variance + self.tau * second)
        cost = self.words * special.log1p(self.prior.variance * self.tau * np.diag(second)).sum()
        return 0.5 * (self.tau * float((solve * products).sum()) - float(cost))

    def alone(self, leaf: int) -> float:
        """Return a chain's evidence."""
        chain = np.ix_(self.nodes[leaf], self.nodes[leaf])
        return self.evidence(self.second[chain], self.products[chain])

    def together(self, first_chain: int, second_chain: int, mass: Vector) -> _Pair:
        """Return the merge of two chains, with the largest directions of both spans, weighted by their vectors."""
        size = self.nodes.shape[1]
        nodes = np.concatenate([self.nodes[first_chain], self.nodes[second_chain]])
        merged = np.ix_(nodes, nodes)
        weight = np.repeat(np.sqrt(mass[[first_chain, second_chain]] / mass[[first_chain, second_chain]].sum()), size)
        value, vector = np.linalg.eigh(self.gram[merged] * np.outer(weight, weight))
        value, vector = value[-size:], vector[:, -size:]
        if value[0] <= MIN_EIGENVALUE * value[-1]:
            return _Pair(np.zeros((size, 2 * size)), -np.inf)
        maps: Vector = (vector * weight[:, np.newaxis] / value).T @ self.gram[merged]
        second = np.zeros((size, size))
        entropy = 0.0
        for place, chain in enumerate((first_chain, second_chain)):
            mapping = maps[:, place * size : (place + 1) * size]
            second_moments = self.second[np.ix_(self.nodes[chain], self.nodes[chain])]
            mapped = mapping @ second_moments @ mapping.T
            entropy += mass[chain] * np.linalg.slogdet(mapping)[1] - 0.5 * float(
                np.trace(mapped) - np.trace(second_moments)
            )
            second += mapped
        return _Pair(maps, entropy + self.evidence(second, maps @ self.products[merged] @ maps.T))


def _near(nodes: Ints, gram: Vector) -> tuple[Ints, Ints]:
    """Return pairs of chains, each with those whose spans have the smallest angles to its own."""
    count, size = nodes.shape
    value, vector = np.linalg.eigh(gram[nodes[:, :, np.newaxis], nodes[:, np.newaxis, :]])
    root = vector / np.sqrt(np.maximum(value, MIN_EIGENVALUE * np.maximum(value[:, -1:], 1e-280)))[:, np.newaxis, :]
    basis = np.zeros((len(gram), count * size))
    basis[nodes[:, :, np.newaxis], np.arange(count * size).reshape(count, 1, size)] = root
    cosine = (basis.T @ gram @ basis).reshape(count, size, count, size)
    alike = (cosine**2).sum(axis=(1, 3))
    np.fill_diagonal(alike, -np.inf)
    pairs = {
        (min(leaf, int(neighbour)), max(leaf, int(neighbour)))
        for leaf in range(count)
        for neighbour in np.argsort(-alike[leaf], kind="stable")[: min(MERGE_CANDIDATES, count - 1)]
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
    empty = np.flatnonzero(ends[nodes[:, -1]] < MIN_CHAIN_VECTORS)
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


SWEEPS_PER_POOLING = 6  # Sweeps between two searches for chains that span the same directions
ITERATIONS_PER_COMPARISON = 3  # Iterations between two searches for nodes to merge


@dataclass(frozen=True)
class SweepResult:
    """Results of a sweep."""

    # Sums of the tree, without and with the second half of a leaf
    sums: Sums
    all_sums: Sums
    components: Components  # The best q given them
    swept: TreeSums  # All sums
    # Vectors that end at each node of the tree, and that pass it; float64 (columns,)
    ends: Vector
    passes: Vector
    bound: float  # The bound


def continue_trial(after: HcaGlobalState, result: SweepResult, options: HcaOptions) -> HcaGlobalState:
    """Continue the trial of a split; at its end accept the split, or return to the state before."""
    left = after.splits.trial_left - 1
    if left:
        moves = _expanded(Moves(after.fitted.tree), result, after, options)
        following = next_sweep(moves, result.sums, result.components, result.ends, options, result.ends)
        splits = replace(after.splits, trial_left=left)
        return replace(after, next_sweep=following, splits=splits, another_round=True)
    if not surpassed(after.splits, result.bound):
        return restored(after)
    after = accepted(after)
    return replace(after, fitted=replace(after.fitted, grown=1))


def _expanded(moves: Moves, result: SweepResult, after: HcaGlobalState, options: HcaOptions) -> Moves:
    """Scale factors to their prior, unless local states have them."""
    if after.separate_factors:
        return moves
    return gaussian.expanded(moves, result.sums, result.passes, options.prior(), result.components.tau)


def move_nodes(after: HcaGlobalState, result: SweepResult, options: HcaOptions) -> HcaGlobalState:
    """Move nodes, begin the trial of a split, or choose the leaf that the next sweep splits."""
    tree = after.fitted.tree
    # Merge leaves with the same vectors, prune, and merge nodes if the bound rises.
    moves = Moves(tree)
    if options.merge < 1.0:
        moves = moves.merged(node_moves.alike_paths(tree, result.swept.end_products, options.merge))
    moves = moves.pruned(moves.summed(result.passes), options.prune)
    compare = options.compare and after.rounds % ITERATIONS_PER_COMPARISON == 0
    if compare and not moves.sources and moves.tree.columns.size > 1:
        scores = TreeScores(result.sums, result.components, options.prior(), options.gamma)
        moves = scores.compared(moves, result.swept.ends)
    unmoved = not sum(moves.counts.values())
    ends = result.ends if unmoved else moves.summed(result.ends)
    if unmoved:
        moves = _expanded(moves, result, after, options)
    # The first iteration has a bound of the requested form.
    in_requested_form = options.form == "conditional" or after.separate_factors
    following = next_sweep(moves, result.sums, result.components, result.ends, options, ends)
    steady = abs(result.bound - after.splits.last_bound) < MAX_CHANGE * abs(result.bound)
    converged = unmoved and in_requested_form and steady
    calm = after.splits.calm + 1 if converged else 0
    split, chosen = after.splits.split, np.full(3, -1)
    splits = replace(after.splits, calm=calm, split=chosen)
    onward = replace(after, next_sweep=following, another_round=not in_requested_form, splits=splits)
    if int(split[0]) >= 0:
        trial = _trial(tree, split, result, options) if calm else None
        if trial is not None:
            return start_trial(onward, trial, int(split[0]), result.bound)
        splits = with_rejection(splits, int(split[0]))
    elif options.split and calm >= CALM_ITERATIONS:
        gain, tau = result.swept.probe_gain, result.components.tau
        chosen = leaf_to_split(after.splits, tree, gain, result.ends, after.vocabulary, tau)
    return replace(onward, splits=replace(splits, split=chosen, last_bound=result.bound))


def _trial(tree: Tree, split: Ints, result: SweepResult, options: HcaOptions) -> NextSweep | None:
    """Return the next sweep with a leaf split and, where the tree is full, the pair merged that costs least."""
    moves, ends = split_leaf(tree, split, result.swept.ends)
    if min(ends[split[:2]]) < 1.0:
        return None
    if tree.columns.size >= options.max_nodes:
        excluded = int(split[0]), int(split[1])
        scores = TreeScores(result.all_sums.moved(moves), result.components, options.prior(), options.gamma)
        pair = scores.best_pair(Moves(moves.tree), ends, excluded)[0]
        if pair is None:
            return None
        moves = moves.merged([pair[:2]], pair[2])
        ends[pair[0]] += ends[pair[1]]
        ends[pair[1]] = 0.0
    return next_sweep(moves, result.all_sums, result.components, ends, options, ends)


def sweep_chains(
    tree: Tree, sums: Sums, components: Components, ends: Vector, options: HcaOptions, left: int
) -> tuple[NextSweep, int]:
    """Sweep chains once more or, after enough sweeps, join them to a tree; pool those that are the same.

    Returns next_sweep: The next one; left: Sweeps of chains still to come; more if chains were pooled, as the others
    converge anew
    """
    moves, moved_ends, prior = Moves(tree), ends, options.prior()
    if left % SWEEPS_PER_POOLING == 0:
        moves, moved_ends = pooled(tree, sums, components, ends, prior, options.gamma)
        left += SWEEPS_PER_POOLING * bool(moves.sources)
    if not left:
        moves, moved_ends = gaussian.joined(tree, sums, components, ends, options.sizes(), prior, options.gamma)
    elif not moves.sources:
        moves = gaussian.expanded(moves, sums, tree.gathered(ends), prior, components.tau)
    return next_sweep(moves, sums, components, ends, options, moved_ends), left


def next_sweep(
    moves: Moves,
    sums: Sums,
    components: Components,
    ends: Vector,
    options: HcaOptions,
    moved_ends: Vector | None = None,
) -> NextSweep:
    """Return the model of the next sweep: components and sticks of the tree that has moved, and KL(q | p)."""
    if moves.sources or sum(moves.counts.values()):
        sums, ends = sums.moved(moves), moves.summed(ends) if moved_ends is None else moved_ends
        components = gaussian.fitted(sums, options.prior(), components.tau)
    tree, gamma = moves.tree, options.gamma
    sticks = nested.sticks(tree, tree.gathered(ends), ends, gamma)
    new = [column for column, sources in moves.sources.items() if not sources]
    sticks.a[new], sticks.b[new] = 1.0, gamma
    kl = gaussian.divergence(components, tree.columns, options.prior(), sums.words)
    kl += nested.sticks_divergence(tree, sticks, gamma)
    return NextSweep(
        upcoming=moves.upcoming(nested.end_logs(tree, sticks, gamma)),
        moves=moves.move_table(),
        next_loadings=components.next_loadings,
        tau=components.tau,
        log_tau=components.log_tau,
        kl=kl,
    )
