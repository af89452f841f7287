"""Hierarchical component analysis: vectors on the paths of a Gaussian tree, by variational inference (Wang, Blei 2009).

c_n ~ nCRP(gamma), x_n ~ N(0, I_L), t_n ~ N(W_{c_n} x_n + mu, I / tau), w_i and mu ~ N(0, s0 I), tau ~ Gamma.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.base import Description, Footprint, Simulates, Summary
from collapsium.pipeline.families.hca import posterior as gaussian
from collapsium.pipeline.families.hca import shared_paths as chains
from collapsium.pipeline.families.hca.options import HcaOptions
from collapsium.pipeline.families.hca.posterior import Sums
from collapsium.pipeline.families.hca.tree_update import (
    SweepResult,
    continue_trial,
    move_nodes,
    next_sweep,
    sweep_chains,
)
from collapsium.pipeline.families.ncrp import node_moves
from collapsium.pipeline.families.ncrp import prior as nested
from collapsium.pipeline.families.ncrp.node_moves import Moves, depth_first, regular_tree
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.ranking import largest
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.hca.hca import HcaShardModel
from collapsium.workers.families.hca.states import (
    CANDIDATES,
    CLUSTERS,
    SEEDING,
    TREE,
    Candidates,
    Clustering,
    ClusterSums,
    HcaGlobalState,
    HcaRows,
    Loadings,
    NextLoadings,
    NextSweep,
    NodeMasses,
    Splits,
    TreeSums,
)
from collapsium.workers.families.ncrp.tree import FREE, ROOT, FittedTree, Tree, Vector

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import Vectors


Ints = npt.NDArray[np.int64]

FACTOR_VARIANCE = 0.01  # Variance of the initial factors, without which those of one path would be one direction


class InitialTree:
    """A tree of clusters, each with factors of plus and minus one.

    A leaf's factor is one for all its vectors, so that it starts at their mean; those of the nodes above are drawn for
    each cluster, so that nodes on a path differ.
    """

    def __init__(self, labels: list[Ints], columns: int, clusters: Ints, stream: Stream, *, chained: bool) -> None:
        self._clusters, depth = clusters, len(labels)
        parents = np.full(columns, FREE, dtype=np.int64)
        parents[0] = ROOT
        nodes: list[dict[int, int]] = [{0: 0}]
        free = iter(range(1, columns))
        for level in range(1, depth):
            nodes.append({})
            for row, label in enumerate(labels[level]):
                if label not in nodes[level]:
                    nodes[level][int(label)] = next(free)
                    parents[nodes[level][label]] = nodes[level - 1][labels[level - 1][row]]
        self.tree = Tree(parents, depth)
        self._leaves = np.array([nodes[-1][int(label)] for label in labels[-1]], dtype=np.int64)
        factors = np.where(stream.generator().random((clusters.size, depth)) < 0.5, -1.0, 1.0)
        factors[:, -1] = 1.0
        # Weights of clusters in nodes.
        self._weights = np.zeros((columns + 1, columns + 1))
        self._weights[-1, -1] = 1.0
        self.sources: dict[int, list[tuple[int, float]]] = {}
        for row, cluster in enumerate(clusters):
            for level in range(int(chained), depth):
                node = nodes[level][int(labels[level][row])]
                self.sources.setdefault(node, []).append((int(cluster), float(factors[row, level])))
                self._weights[cluster, node] = factors[row, level]

    def ends(self, counts: Vector) -> Vector:
        """Return the vectors at each leaf, from those of each cluster."""
        ends = np.zeros(counts.size)
        np.add.at(ends, self._leaves, counts[self._clusters])
        return ends

    def sums(self, counts: Vector, products: Vector, square: float, documents: float, words: float) -> Sums:
        """Return the sums of a sweep of this tree."""
        weights = self._weights
        second = np.einsum("ci,cj->ij", weights[:-1] * counts[:, np.newaxis], weights[:-1])
        mean = np.einsum("ci,c->i", weights[:-1], counts)
        second += FACTOR_VARIANCE * np.diag(np.diag(second))
        second[-1], second[:, -1] = mean, mean
        second[-1, -1] = documents
        brought = np.einsum("ci,cj->ij", weights, np.einsum("cd,dj->cj", products, weights))
        return Sums(second, brought, square, 0.0, documents, words)


NO_MASS = -1e300  # Logarithm of no mass


def draw_tree(
    global_state: HcaGlobalState, options: HcaOptions, words: int, stream: Stream
) -> tuple[Vector, HcaGlobalState]:
    """Draw a tree's loadings and mean.

    Returns rows: Loadings of each node and, last, the mean; global_state: As a sweep would leave them: all leaves are
    equally likely, and nothing is outside
    """
    branching = [int(one) for one in np.resize(options.branching, options.depth - 1)]
    parents = regular_tree(branching)
    tree = Tree(parents, len(branching) + 1)
    size, generator = parents.size + 1, stream.at(purpose="simulate loadings").generator()
    rows = np.ascontiguousarray(generator.normal(scale=options.loading_scale, size=(size, words)).T)
    full = tree.levels == tree.depth - 1
    ends = np.where(full, global_state.documents / full.sum(), 0.0)
    logs = np.where(full, -np.log(full.sum()), NO_MASS)
    solve, gram, spread = np.eye(size), np.einsum("wi,wj->ij", rows, rows), np.zeros(size)
    upcoming = replace(global_state.next_sweep.upcoming, next_parent=parents, next_end_log=logs)
    following = replace(
        global_state.next_sweep,
        upcoming=upcoming,
        moves=Moves(tree).move_table(),
        next_loadings=NextLoadings(solve, gram, spread),
        tau=options.noise_scale**-2.0,
        log_tau=float(-2.0 * np.log(options.noise_scale)),
    )
    drawn = replace(
        global_state,
        clustering=replace(global_state.clustering, stage=TREE),
        fitted=replace(global_state.fitted, node_parent=parents, end_log=logs),
        masses=NodeMasses(tree.gathered(ends), ends),
        loadings=Loadings(solve, gram, spread),
        next_sweep=following,
    )
    return rows, drawn


def draw_vectors(
    rows: npt.NDArray[np.float64], tree: Tree, tau: float, documents: int, stream: Stream
) -> tuple[Vectors, npt.NDArray[np.float64]]:
    """Draw vectors from a tree.

    Returns vectors: The vectors, without ids; theta: 1 at the leaf of each vector, else 0
    """
    from collapsium.pipeline.families import corpus_columns

    generator = stream.generator()
    leaf = generator.choice(np.flatnonzero(tree.levels == tree.depth - 1), documents)
    factors, noise = generator.normal(size=(documents, tree.depth)), generator.normal(size=(documents, len(rows)))
    values = rows[:, -1] + noise / np.sqrt(tau)
    for level, nodes in enumerate(tree.paths()[leaf].T):
        values += factors[:, level, np.newaxis] * rows.T[nodes]
    theta = np.zeros((documents, tree.parents.size))
    theta[np.arange(documents), leaf] = 1.0
    return corpus_columns.drawn_vectors(values), theta


SEEDS_PER_LEAF = 4  # Initial clusters for each leaf

CLUSTER_ROUNDS = 10
SWEEPS_BEFORE_FACTORS = 5  # Sweeps with q(x | c) before the factorised form begins
CHAIN_SWEEPS = 18  # Sweeps of chains, before these are joined to a tree


class Hca(Simulates[HcaOptions, HcaGlobalState, HcaRows]):
    """Hierarchical component analysis."""

    shard_model, Options = HcaShardModel, HcaOptions
    corpus_kind = "vectors"
    uses_linear_algebra = True

    def initialise(self, summary: Summary, options: HcaOptions, stream: Stream) -> HcaGlobalState:
        """Return the global state before any vector was swept."""
        seeds = max(1, min(SEEDS_PER_LEAF * options.sizes()[-1], summary.documents))
        columns = max(options.max_nodes, seeds, 1 + options.sizes()[-1] * options.depth)
        root = node_moves.first_tree(columns, 0)
        size, nothing, moves = columns + 1, np.zeros(columns), Moves(root)
        loadings = Loadings(np.zeros((size, size)), np.zeros((size, size)), np.ones(size))
        upcoming = replace(moves.upcoming(nothing), next_depth=options.depth)
        return HcaGlobalState(
            vocabulary=float(summary.words),
            documents=float(summary.documents),
            full_depth=options.depth,
            factorised=options.form == "factorised",
            separate_factors=False,
            rounds=0,
            chain_sweeps_left=CHAIN_SWEEPS if options.depth > 2 else 0,
            clustering=Clustering(CANDIDATES, seeds, np.zeros(0, dtype=np.int64), nothing),
            fitted=FittedTree(root.parents, options.depth, nothing, grown=0, merged=0, pruned=0),
            masses=NodeMasses(nothing, nothing),
            loadings=loadings,
            next_sweep=NextSweep(
                upcoming=upcoming,
                moves=moves.move_table(),
                next_loadings=NextLoadings(loadings.solve, loadings.gram, loadings.spread),
                tau=1.0,
                log_tau=0.0,
                kl=0.0,
            ),
            splits=Splits.none(columns),
        )

    def footprint(self, summary: Summary, options: HcaOptions) -> Footprint:
        """Return the memory that the state of a fit takes: sums, those saved, and probes, by column and node."""
        columns = max(options.max_nodes, max(SEEDS_PER_LEAF, options.depth) * options.sizes()[-1] + 1) + 1
        own = 8.0 * options.depth + 12.0 * 4 + (8.0 * options.depth**2 if options.form == "factorised" else 0.0)
        return Footprint(
            rows=24.0 * columns,
            shown=24.0 * columns,
            swept=48.0 * columns,
            delta=16.0 * columns,
            pair=0.0,
            document=own,
            chunk=0.0,
        )

    def update(self, global_state: HcaGlobalState, delta: Delta, options: HcaOptions, stream: Stream) -> HcaGlobalState:
        """Compute clusters and from them a tree, then the best q(w), q(mu), q(tau) and q(v), and move nodes."""
        clusters, swept = delta.read(ClusterSums), delta.read(TreeSums)
        if delta.read(Candidates) is not None:
            seeds = delta.ids["document"][: global_state.clustering.max_seeds]
            clustering = replace(global_state.clustering, seeds=seeds, stage=SEEDING)
            return replace(global_state, clustering=clustering, another_round=True)
        if global_state.clustering.stage < TREE and clusters is not None:
            return _with_clusters(global_state, clusters, options, stream)
        if swept is None:
            raise ValueError("expected the sums of a sweep")
        return _with_sweep(global_state, swept, self.objective(global_state, delta)["objective"], options)

    def needs_another_round(self, global_state: HcaGlobalState) -> bool:
        """Return true if the iteration goes on with one more sweep."""
        return global_state.another_round

    def objective(self, global_state: HcaGlobalState, delta: Delta) -> dict[str, float]:
        """Return the evidence lower bound, in nats, right after q(c).

        sum_n log sum_c S_nc - KL(q | p) of w, mu, tau and v.
        """
        swept = delta.read(TreeSums)
        if swept is None:
            return {}
        model = global_state.next_sweep
        spread = float(model.next_loadings.next_spread[-1])
        constant = 0.5 * global_state.vocabulary * (model.log_tau - special.log(2.0 * np.pi) - model.tau * spread)
        return {"objective": swept.bound + swept.documents * constant - model.kl}

    def figures(self, global_state: HcaGlobalState) -> dict[str, float]:
        """Return the nodes and leaves, how many nodes moved before the sweep, and the noise's variance 1 / E[tau]."""
        tree, fitted = global_state.fitted.tree, global_state.fitted
        leaves = float((tree.levels == tree.depth - 1).sum())
        moved = {"grown": float(fitted.grown), "pruned": float(fitted.pruned), "merged": float(fitted.merged)}
        return {
            "nodes": float(tree.columns.size),
            "leaves": leaves,
            **moved,
            "noise": 1.0 / global_state.next_sweep.tau,
        }

    def describe(self, block: HcaRows, global_state: HcaGlobalState, count: int) -> Description:
        """Describe the nodes depth-first by their largest loadings; a share is that of the vectors that end there."""
        tree, masses = global_state.fitted.tree, global_state.masses
        columns = depth_first(tree.parents, masses.node_passes)
        loadings = block.loadings(global_state)[:, columns]
        top = largest(np.abs(loadings.T), count)
        share = masses.node_ends[columns] / max(float(masses.node_ends.sum()), 1e-300)
        values = np.take_along_axis(loadings.T, top, axis=1)
        return Description(columns, share, top, values, parent=tree.parents[columns], signed=True)

    def draw_model(self, summary: Summary, options: HcaOptions, stream: Stream) -> tuple[Arrays, HcaGlobalState]:
        """Draw a tree in which each node has as many children as ``branching`` says, for simulation."""
        global_state = self.initialise(summary, options, stream)
        rows, drawn = draw_tree(global_state, options, summary.words, stream)
        return {"word_node": rows}, drawn

    def simulate(
        self, topics: Arrays, global_state: HcaGlobalState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Vectors, npt.NDArray[np.float64]]:
        """Draw vectors and their leaves: all leaves are equally likely, x ~ N(0, I), t ~ N(W x + mu, I / tau)."""
        tau = global_state.next_sweep.tau
        return draw_vectors(topics["word_node"], global_state.fitted.tree, tau, documents, stream)


def _with_clusters(
    global_state: HcaGlobalState, sums: ClusterSums, options: HcaOptions, stream: Stream
) -> HcaGlobalState:
    """Return the global state after a round of clustering; after the last with a tree of the clusters."""
    clustering = replace(global_state.clustering, cluster_counts=sums.cluster_counts, stage=CLUSTERS)
    after = replace(global_state, another_round=True, rounds=global_state.rounds + 1, clustering=clustering)
    if after.rounds <= CLUSTER_ROUNDS:
        return after
    tree = _tree_of_clusters(after, sums, options, stream)
    return replace(after, clustering=replace(clustering, stage=TREE), next_sweep=tree)


def _tree_of_clusters(
    global_state: HcaGlobalState, clusters: ClusterSums, options: HcaOptions, stream: Stream
) -> NextSweep:
    """Return a tree of clusters, or a chain for each group of them under a root that no vector has."""
    counts, chained = clusters.cluster_counts, global_state.chain_sweeps_left > 0
    present = np.flatnonzero(counts > 0)
    labels = chains.levels(clusters.products, counts, present, options.sizes())
    if chained:
        labels[1:] = [labels[-1]] * options.depth
    initial = InitialTree(labels, global_state.fitted.node_parent.size, present, stream, chained=chained)
    sums = initial.sums(counts, clusters.products, clusters.square, clusters.documents, global_state.vocabulary)
    components = gaussian.fitted(sums, options.prior(), gaussian.first_tau(sums, options.prior()))
    following = next_sweep(Moves(initial.tree), sums, components, initial.ends(counts), options)
    return replace(following, moves=Moves(initial.tree, initial.sources).move_table())


def _with_sweep(global_state: HcaGlobalState, swept: TreeSums, bound: float, options: HcaOptions) -> HcaGlobalState:
    """Return the global state after a sweep of a tree."""
    upcoming = global_state.next_sweep.upcoming
    tree, gamma = upcoming.tree, options.gamma
    square = swept.square, swept.beyond, swept.documents
    all_sums = Sums(swept.second, swept.products, *square, global_state.vocabulary)
    # Without the second half of a leaf that may be split.
    sums = all_sums.moved(Moves(tree))
    ends = np.where(tree.levels >= 0, swept.ends, 0.0)
    components = gaussian.fitted(sums, options.prior(), global_state.next_sweep.tau)
    passes = tree.gathered(ends)
    sticks = nested.sticks(tree, passes, ends, gamma)
    rounds, left = global_state.rounds + 1, global_state.chain_sweeps_left
    with_factors = rounds >= CLUSTER_ROUNDS + SWEEPS_BEFORE_FACTORS and not left
    scale = 1.0 / np.sqrt(np.where(swept.probe_square > 0.0, swept.probe_square, 1.0))
    after = replace(
        global_state,
        fitted=upcoming.fitted(np.maximum(nested.end_logs(tree, sticks, gamma), -1e300)),
        masses=NodeMasses(passes, ends),
        loadings=components.loadings,
        rounds=rounds,
        separate_factors=options.form == "factorised" and with_factors,
        another_round=False,
        splits=replace(global_state.splits, restoring=False, probe_scale=scale),
    )
    if left:
        following, left = sweep_chains(tree, sums, components, ends, options, left - 1)
        return replace(after, another_round=True, next_sweep=following, chain_sweeps_left=left)
    result = SweepResult(sums, all_sums, components, swept, ends, passes, bound)
    if after.splits.trial_left:
        after = continue_trial(after, result, options)
        if after.another_round:
            return after
    return move_nodes(after, result, options)
