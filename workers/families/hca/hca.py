"""Hierarchical component analysis: vectors on the paths of a Gaussian tree, by variational inference (Wang, Blei 2009).

c_n ~ nCRP(gamma), x_n ~ N(0, I_L), t_n ~ N(W_{c_n} x_n + mu, I / tau), w_i and mu ~ N(0, s0 I), tau ~ Gamma.

A node is a column of the rows, and the mean is the last one, a node that all vectors have with x = 1. Rows hold B_i =
sum_n q(c_n through i) E[x_i] t_n, a row for each column of the vectors. With A_ij = sum_n q E[x_i x_j], which the
driver has, the best q(w) is m = tau (I / s0 + tau A)^-1 B for all nodes and the mean at once; `Loadings.solve` is
that matrix, so that loadings are computed where rows are.

* Form ``conditional``: q(c) q(x | c); local states have no factors that a sweep reads. Form ``factorised``: q(c) q(x)
  of the paper; the local state has the mean and covariance of each x. It begins when clusters have become a tree.

The first rounds of the start compute clusters: vectors sampled by stable hash, and then means of the nearest vectors.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import NumericalError, OptionError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.annotations import MAX_MAGNITUDE
from collapsium.workers.arrays.delta import Delta, Part, fresh
from collapsium.workers.arrays.random_streams import Stream, smallest_hashes, vector_hashes
from collapsium.workers.arrays.state import Arrays, present
from collapsium.workers.families.description import largest
from collapsium.workers.families.family import Description, Footprint, Simulates, Summary
from collapsium.workers.families.hca import posterior as gaussian
from collapsium.workers.families.hca.posterior import Sums
from collapsium.workers.families.hca.states import (
    CANDIDATES,
    CLUSTERS,
    SEEDING,
    TREE,
    Candidates,
    Clustering,
    ClusterSums,
    HcaGlobalState,
    HcaOptions,
    HcaRows,
    LeafProbes,
    Loadings,
    NextLoadings,
    NextSweep,
    NodeMasses,
    NodeSums,
    Splits,
    TreeModel,
    TreeSums,
    VectorFactors,
)
from collapsium.workers.families.hca.tree_update import (
    SweepResult,
    continue_trial,
    move_nodes,
    next_sweep,
    sweep_chains,
)
from collapsium.workers.families.ncrp import node_moves
from collapsium.workers.families.ncrp import tree as nested
from collapsium.workers.families.ncrp.node_moves import Moves, depth_first, regular_tree
from collapsium.workers.families.ncrp.tree import FREE, ROOT, DocumentEnds, FittedTree, Tree, Vector
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.trees.gaussian import (
    FactorPosterior,
    GaussianTree,
    TreeStatistics,
    VectorPosterior,
    nearest,
    sweep_components,
    sweep_factors,
)

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import Vectors, VectorShard


MAX_ENDS, MIN_SHARE = 16, 1e-3  # Most ends that are stored of a vector, and the least q(c) of a stored end


class VectorPaths:
    """Paths and factors of a shard's vectors after a pass."""

    def __init__(
        self,
        shard: VectorShard,
        local: VectorFactors | None,
        sums: Vector,
        model: TreeModel,
        global_state: HcaGlobalState,
        prior_variance: float,
    ) -> None:
        tree, self._tree = model.tree, model.tree
        size, count, columns = tree.columns.size, shard.documents, tree.parents.size
        places = np.append(tree.columns, columns)
        loadings = np.ascontiguousarray(np.einsum("wi,ij->jw", sums, model.loadings.solve[:, places]))
        paths = end_paths(tree, without_root=model.without_root)
        tau = global_state.next_sweep.tau
        quadratic, covariance, log_determinant = end_quadratics(
            model, paths, global_state.vocabulary, prior_variance, tau
        )
        end_log = np.ascontiguousarray(model.end_log[tree.columns])
        self.by_node, self.second = np.zeros((size + 1, shard.words.size)), np.zeros((size + 1, size + 1))
        self.ends, self.sums = np.zeros(size), np.zeros(3)
        self._ends = np.zeros((count, MAX_ENDS), dtype=np.int32)
        self._masses = np.zeros((count, MAX_ENDS), dtype=np.float32)
        self._best, self._factors = np.zeros(count, dtype=np.int32), np.zeros((count, paths.shape[1]))
        self._spread: Vector | None = None
        posterior = VectorPosterior(self._ends, self._masses, self._best, self._factors)
        statistics = TreeStatistics(self.by_node, self.second, self.ends, self.sums)
        nodes, mean = np.ascontiguousarray(loadings[:-1]), np.ascontiguousarray(loadings[-1])
        if global_state.separate_factors and local is not None and local.document_spread is not None:
            factors = FactorPosterior(np.array(local.document_factors), np.array(local.document_spread))
            self._spread = factors.covariance
            gaussian_tree = GaussianTree(nodes, mean, paths, quadratic, end_log, tau)
            sweep_factors(shard.values, gaussian_tree, MIN_SHARE, factors, posterior, statistics)
        else:
            gaussian_tree = GaussianTree(nodes, mean, paths, covariance, end_log - 0.5 * log_determinant, tau)
            sweep_components(shard.values, gaussian_tree, MIN_SHARE, posterior, statistics)
            if global_state.factorised:
                self._spread = covariance[self._best]
        self._values, self._loadings, self._paths, self._covariance = shard.values, loadings, paths, covariance

    def step_probes(self, probes: LeafProbes) -> None:
        """Step the probes of all leaves."""
        for place in np.flatnonzero(self._paths[:, -1] >= 0):
            chosen, loadings = np.flatnonzero(self._best == place), self._loadings[self._paths[place]]
            if chosen.size:
                column = int(self._tree.columns[place])
                probes.step(column, self._loadings[-1], loadings, chosen, self._factors[chosen])

    def add_other_side(
        self, column: int, chosen: npt.NDArray[np.int64], by_word: Vector, second: Vector, ends: Vector
    ) -> None:
        """Add the sums over some of a leaf's vectors in a separate column."""
        if not chosen.size:
            return
        place = int(self._best[chosen[0]])
        share = np.where(self._ends[chosen] == place, self._masses[chosen].astype(np.float64), 0.0).sum(axis=1)
        location = self._factors[chosen]
        spread = self._spread[chosen] if self._spread is not None else self._covariance[self._best[chosen]]
        moments = np.einsum("n,nk->k", share, spread[:, -1] + location[:, -1:] * location)
        by_word[:, column] = np.einsum("n,nw->w", share * location[:, -1], self._values[chosen])
        path = np.append(self._tree.columns[self._paths[place]], column)
        second[column, path] = second[path, column] = np.append(moments, moments[-1])
        second[column, -1] = second[-1, column] = float(share @ location[:, -1])
        ends[column] = float(share.sum())

    def local(self) -> VectorFactors:
        """Return the local state."""
        columns = self._tree.columns
        ends = DocumentEnds.of_largest(self._ends, self._masses, columns)
        return VectorFactors(ends, columns[self._best].astype(np.int32), self._factors, self._spread)


def end_paths(tree: Tree, *, without_root: bool) -> npt.NDArray[np.int64]:
    """Return the places of the nodes on the path to each end, -1 outside the tree."""
    columns = tree.paths()[tree.columns, int(without_root) :]
    return np.ascontiguousarray(np.where(columns >= 0, tree.places[columns], -1))


def end_quadratics(
    model: TreeModel, paths: npt.NDArray[np.int64], words: float, prior_variance: float, tau: float
) -> tuple[Vector, Vector, Vector]:
    """Return Q = M'M + D diag(s) of each end, C = (I + tau Q)^-1, and log |C^-1|."""
    gram, spread = model.loadings.gram, model.loadings.spread
    columns = np.where(paths >= 0, model.tree.columns[paths], -1)
    inside = (columns >= 0)[:, :, np.newaxis] & (columns >= 0)[:, np.newaxis, :]
    quadratic = np.where(inside, gram[columns[:, :, np.newaxis], columns[:, np.newaxis, :]], 0.0)
    steps = np.arange(paths.shape[1])
    quadratic[:, steps, steps] += words * np.where(columns >= 0, spread[columns], prior_variance)
    precision = np.eye(paths.shape[1]) + tau * quadratic
    log_determinant = np.linalg.slogdet(precision)[1]
    return quadratic, np.ascontiguousarray(np.linalg.inv(precision)), log_determinant


FOLD_IN_PASSES = 20  # Passes over unseen vectors in the factorised form


def _with_moved_factors(local: VectorFactors, global_state: HcaGlobalState) -> VectorFactors:
    """Return the factors for the next sweep: from before a split that was rejected, if there is one, and turned.

    Factors turn at nodes that a move adds to others with a minus, of vectors whose best path has them.
    """
    if global_state.splits.restoring and local.document_factors_saved is not None:
        local = replace(
            local, document_factors=local.document_factors_saved, document_spread=local.document_spread_saved
        )
    tree, moves = global_state.fitted.tree, global_state.next_sweep.moves
    paths = tree.paths()[local.document_best]
    sign = np.ones(paths.shape)
    turned = moves.move_source[moves.move_weight < 0.0]
    for source in turned[tree.levels[turned] >= 0]:  # the other side of a leaf that is split is no node yet
        sign[:, tree.levels[source]] *= np.where(paths[:, tree.levels[source]] == source, -1.0, 1.0)
    if local.document_spread is None:
        raise ValueError("expected factors of the factorised form, found none")
    spread = local.document_spread * sign[:, :, np.newaxis] * sign[:, np.newaxis]
    return replace(local, document_factors=local.document_factors * sign, document_spread=spread)


def _cluster(shard: VectorShard, rows: HcaRows, global_state: HcaGlobalState, stream: Stream) -> Delta:
    """Sum the vectors of each cluster: those that start one, or those nearest to each one's mean."""
    columns, clustering = global_state.fitted.node_parent.size, global_state.clustering
    seeds, label = clustering.seeds, np.full(shard.documents, -1, dtype=np.int32)
    if clustering.stage == SEEDING:
        hashes = vector_hashes(shard, stream.at(purpose="start", iteration=0))
        place = np.minimum(np.searchsorted(seeds, hashes), seeds.size - 1)
        label[:] = np.where(seeds[place] == hashes, place, -1)
    else:
        occupied = np.flatnonzero(clustering.cluster_counts > 0)
        centres = np.ascontiguousarray((rows.word_node[:, occupied] / clustering.cluster_counts[occupied]).T)
        nearest(shard.values, centres, label)
        label = occupied[label].astype(np.int32)
    sums, counts = np.zeros((columns + 1, shard.words.size)), np.zeros(columns)
    inside = label >= 0
    np.add.at(sums, label[inside], shard.values[inside])
    np.add.at(counts, label[inside], 1.0)
    sums[columns] = shard.values.sum(axis=0)
    # The driver refuses an infinite sum, and says what to do.
    with np.errstate(over="ignore"):
        square = float((shard.values**2).sum())
    parts = {
        "word_node": fresh(np.ascontiguousarray(sums.T), "word", "node"),
        "cluster_counts": fresh(counts, "end"),
        "square": fresh(square),
        "documents": fresh(float(shard.documents)),
    }
    return Delta(parts, {"word": shard.words})


Ints = npt.NDArray[np.int64]

FACTOR_VARIANCE = 0.01  # Variance of the initial factors, without which all factors of a path would be one direction


class InitialTree:
    """A tree of clusters, each with factors of plus and minus one.

    A leaf's factor is one for all its vectors, so that it starts at their mean; the factors above are drawn for
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
        """Return the vectors at each leaf, from the vectors of each cluster."""
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


SEEDS_PER_LEAF = 4  # Initial clusters for each leaf

CLUSTER_ROUNDS = 10
SWEEPS_BEFORE_FACTORS = 5  # Sweeps with q(x | c) before the factorised form begins
CHAIN_SWEEPS = 18  # Sweeps of chains, before these are joined to a tree


class Hca(Simulates[HcaOptions, HcaGlobalState, HcaRows, VectorFactors]):
    """Hierarchical component analysis."""

    Options = HcaOptions
    global_state_type, rows_type = HcaGlobalState, HcaRows
    local_type, documents_type = VectorFactors, VectorFactors
    corpus_kind = "vectors"
    uses_linear_algebra = True

    def initialise(self, summary: Summary, stream: Stream) -> HcaGlobalState:
        """Return the global state before any vector was swept."""
        options = self.options
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

    def footprint(self, summary: Summary) -> Footprint:
        """Return the memory that the state of a fit takes: sums, those saved, and probes, by column and node."""
        options = self.options
        columns = max(options.max_nodes, max(SEEDS_PER_LEAF, options.depth) * options.sizes()[-1] + 1) + 1
        document = 8.0 * options.depth + 12.0 * 4 + (8.0 * options.depth**2 if options.form == "factorised" else 0.0)
        return Footprint(
            rows=24.0 * columns,
            shown=24.0 * columns,
            swept=48.0 * columns,
            delta=16.0 * columns,
            pair=0.0,
            document=document,
            chunk=0.0,
        )

    def update(self, global_state: HcaGlobalState, delta: Delta, stream: Stream) -> HcaGlobalState:
        """Compute clusters and from them a tree, then the best q(w), q(mu), q(tau) and q(v), and move nodes."""
        clusters, swept = delta.read(ClusterSums), delta.read(TreeSums)
        if delta.read(Candidates) is not None:
            seeds = delta.ids["document"][: global_state.clustering.max_seeds]
            clustering = replace(global_state.clustering, seeds=seeds, stage=SEEDING)
            return replace(global_state, clustering=clustering, another_round=True)
        if global_state.clustering.stage < TREE and clusters is not None:
            return _with_clusters(global_state, clusters, self.options, stream)
        if swept is None:
            raise ValueError("expected the sums of a sweep")
        return _with_sweep(global_state, swept, self.objective(global_state, delta)["objective"], self.options)

    def needs_another_round(self, global_state: HcaGlobalState) -> bool:
        """Return true if the iteration continues with one more sweep."""
        return global_state.another_round

    def objective(self, global_state: HcaGlobalState, delta: Delta) -> dict[str, float]:
        """Return the evidence lower bound, in nats, right after q(c).

        sum_n log sum_c S_nc - KL(q | p) of w, mu, tau and v.
        """
        swept = delta.read(TreeSums)
        if swept is None:
            return {}
        model = global_state.next_sweep
        spread = float(model.next_loadings.spread[-1])
        constant = 0.5 * global_state.vocabulary * (model.log_tau - special.log(2.0 * np.pi) - model.tau * spread)
        return {"objective": swept.bound + swept.documents * constant - model.kl}

    def metrics(self, global_state: HcaGlobalState) -> dict[str, float]:
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
        """Describe the nodes depth-first by their largest loadings; a share is the share of vectors that end there."""
        tree, masses = global_state.fitted.tree, global_state.masses
        columns = depth_first(tree.parents, masses.node_passes)
        loadings = block.loadings(global_state)[:, columns]
        top = largest(np.abs(loadings.T), count)
        share = masses.node_ends[columns] / max(float(masses.node_ends.sum()), 1e-300)
        values = np.take_along_axis(loadings.T, top, axis=1)
        return Description(columns, share, top, values, parent=tree.parents[columns], signed=True)

    def draw_model(self, summary: Summary, stream: Stream) -> tuple[Arrays, HcaGlobalState]:
        """Draw the loadings of each node and, last, the mean of a tree with ``branching`` children of each node.

        The global state is as a sweep would leave it: all leaves are equally likely, and nothing is outside.
        """
        options, global_state = self.options, self.initialise(summary, stream)
        branching = [int(branches) for branches in np.resize(options.branching, options.depth - 1)]
        parents = regular_tree(branching)
        tree = Tree(parents, len(branching) + 1)
        size, generator = parents.size + 1, stream.at(purpose="simulate loadings").generator()
        rows = np.ascontiguousarray(generator.normal(scale=options.loading_scale, size=(size, summary.words)).T)
        full = tree.levels == tree.depth - 1
        ends = np.where(full, global_state.documents / full.sum(), 0.0)
        logs = np.where(full, -np.log(full.sum()), NO_MASS)
        loadings = np.eye(size), np.einsum("wi,wj->ij", rows, rows), np.zeros(size)
        following = replace(
            global_state.next_sweep,
            upcoming=replace(global_state.next_sweep.upcoming, next_parent=parents, next_end_log=logs),
            moves=Moves(tree).move_table(),
            next_loadings=NextLoadings(*loadings),
            tau=options.noise_scale**-2.0,
            log_tau=float(-2.0 * np.log(options.noise_scale)),
        )
        return {"word_node": rows}, replace(
            global_state,
            clustering=replace(global_state.clustering, stage=TREE),
            fitted=replace(global_state.fitted, node_parent=parents, end_log=logs),
            masses=NodeMasses(tree.gathered(ends), ends),
            loadings=Loadings(*loadings),
            next_sweep=following,
        )

    def simulate(
        self, topics: Arrays, global_state: HcaGlobalState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Vectors, npt.NDArray[np.float64]]:
        """Draw vectors and their leaves: all leaves are equally likely, x ~ N(0, I), t ~ N(W x + mu, I / tau)."""
        from collapsium.storage.corpus import writer

        rows, tree, generator = topics["word_node"], global_state.fitted.tree, stream.generator()
        leaf = generator.choice(np.flatnonzero(tree.levels == tree.depth - 1), documents)
        factors, noise = generator.normal(size=(documents, tree.depth)), generator.normal(size=(documents, len(rows)))
        values = rows[:, -1] + noise / np.sqrt(global_state.next_sweep.tau)
        for level, nodes in enumerate(tree.paths()[leaf].T):
            values += factors[:, level, np.newaxis] * rows.T[nodes]
        theta = np.zeros((documents, tree.parents.size))
        theta[np.arange(documents), leaf] = 1.0
        return writer.drawn_vectors(values), theta

    def kernels(self, global_state: HcaGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        return [nearest, sweep_components, *([sweep_factors] if global_state.factorised else [])]

    def initial_rows(self, words: int, global_state: HcaGlobalState) -> HcaRows:
        """Return the rows of `words` columns before the first vector is counted."""
        columns = global_state.fitted.node_parent.size
        sums = np.zeros((words, columns + 1))
        return HcaRows(sums, np.zeros_like(sums), np.zeros((words, columns)))

    def start(
        self,
        shard: VectorShard,
        rows: HcaRows,
        global_state: HcaGlobalState,
        stream: Stream,
        warm: Arrays | None = None,
    ) -> tuple[VectorFactors, Delta]:
        """Return local states without ends, and candidates for the first clusters by stable hash."""
        if warm is not None:
            raise OptionError("the family 'hca' cannot start from another run; omit `warm`", "warm")
        count, depth = shard.documents, global_state.full_depth
        spread = np.tile(np.eye(depth), (count, 1, 1)) if global_state.factorised else None
        best, factors = np.zeros(count, dtype=np.int32), np.zeros((count, depth))
        local = VectorFactors(DocumentEnds.empty(count), best, factors, spread)
        hashes = vector_hashes(shard, stream)
        chosen = smallest_hashes(hashes, global_state.clustering.max_seeds, np.ones(count, dtype=bool))
        return local, Delta({"candidates": fresh(np.ones(chosen.size), "document")}, {"document": chosen})

    def sweep(
        self, shard: VectorShard, local: VectorFactors, rows: HcaRows, global_state: HcaGlobalState, stream: Stream
    ) -> tuple[VectorFactors, Delta]:
        """Return the result of a sweep over a shard, or of assigning its vectors to clusters."""
        began = time.perf_counter()
        if global_state.clustering.stage < TREE:
            return local, _cluster(shard, rows, global_state, stream)
        upcoming, splits, before = global_state.next_sweep.upcoming, global_state.splits, local
        loadings, chained = global_state.next_sweep.next_loadings, global_state.chain_sweeps_left > 0
        model = TreeModel(upcoming.tree, loadings, upcoming.next_end_log, chained)
        if global_state.separate_factors:
            local = _with_moved_factors(local, global_state)
        sums = global_state.next_sweep.moves.apply(present(rows.word_saved) if splits.restoring else rows.word_node)
        paths = VectorPaths(shard, local, sums, model, global_state, self.options.prior_variance)
        after, tree = paths.local(), model.tree
        columns = tree.parents.size
        places = np.append(tree.columns, columns)
        by_word, second = np.zeros((shard.words.size, columns + 1)), np.zeros((columns + 1,) * 2)
        by_word[:, places], second[np.ix_(places, places)] = paths.by_node.T, paths.second
        ends = np.zeros(columns)
        ends[tree.columns] = paths.ends
        probes = LeafProbes(shard, stream, present(rows.word_probe), splits)
        paths.step_probes(probes)
        if probes.other_side is not None:
            paths.add_other_side(*probes.other_side, by_word, second, ends)
        parts: dict[str, Part] = {
            "word_node": fresh(by_word, "word", "node"),
            **probes.parts(),
            "second": fresh(second, "node", "other"),
            "ends": fresh(ends, "end"),
            "end_products": fresh(after.ends.products(columns), "end", "also"),
            "bound": fresh(paths.sums[0]),
            "square": fresh(paths.sums[1]),
            "beyond": fresh(paths.sums[2]),
            "documents": fresh(float(shard.documents)),
            "tokens": fresh(float(shard.tokens)),
        }
        if global_state.separate_factors and splits.trial_left:
            # A trial keeps the factors from before the split.
            factors, spread = before.document_factors_saved, before.document_spread_saved
            if splits.begins_trial:
                factors, spread = before.document_factors, before.document_spread
            after = replace(after, document_factors_saved=factors, document_spread_saved=spread)
        return after, Delta(parts, {"word": shard.words}, {"kernel": time.perf_counter() - began})

    def fold(self, block: HcaRows, delta: Delta, global_state: HcaGlobalState) -> tuple[HcaRows, Delta]:
        """Replace a block's sums by new ones, and return their products.

        Returns block: The new rows; delta: Fresh ``products``, B'B, ``probe_square``, and ``moved``, the relative
        change of B times the values
        """
        swept = delta.read(NodeSums)
        if swept is None:
            return block, Delta()
        before, after = block.word_node, np.zeros(block.word_node.shape)
        after[delta.ids["word"]] = swept.word_node
        reached = np.abs(after).max(initial=0.0)
        if reached > MAX_MAGNITUDE:
            raise NumericalError(
                f"sums over the vectors reach {reached:.3g}, and a model has at most {MAX_MAGNITUDE:g}; divide the "
                "vectors by a constant"
            )
        change = np.abs(after - before).sum() / max(np.abs(after).sum(), 1e-300)
        probes = np.zeros(present(block.word_probe).shape)
        if swept.word_probe is not None:
            probes[delta.ids["word"]] = swept.word_probe
        parts = {
            "probe_square": fresh((probes**2).sum(axis=0), "end"),
            "products": fresh(np.einsum("wi,wj->ij", after, after), "node", "other"),
            "moved": fresh(min(float(change), 1.0) * len(after) * global_state.documents),
        }
        saved = before if global_state.splits.begins_trial else present(block.word_saved)
        return HcaRows(after, saved, probes), Delta(parts)

    def finished_rows(self, block: HcaRows, global_state: HcaGlobalState) -> HcaRows:
        """Return the rows as a finished model saves them: B."""
        return HcaRows(block.word_node)

    def fold_in(self, shard: VectorShard, rows: HcaRows, global_state: HcaGlobalState, stream: Stream) -> VectorFactors:
        """Return paths and factors of unseen vectors, fitted with the tree fixed."""
        fitted, variance = global_state.fitted, self.options.prior_variance
        model = TreeModel(fitted.tree, global_state.loadings, fitted.end_log, without_root=False)
        local = VectorPaths(shard, None, rows.word_node, model, global_state, variance).local()
        for _ in range(FOLD_IN_PASSES if global_state.factorised and global_state.separate_factors else 0):
            local = VectorPaths(shard, local, rows.word_node, model, global_state, variance).local()
        return local

    def predict(
        self, heldout: VectorShard, local: VectorFactors, rows: HcaRows, global_state: HcaGlobalState
    ) -> Mapping[str, AnyArray]:
        """Return |t - t^|^2 of each vector, t^ = W (W'W)^-1 W' (t - mu) + mu along its most probable full path."""
        loadings = rows.loadings(global_state)
        paths, best = global_state.fitted.tree.paths(), np.asarray(local.document_best, dtype=np.int64)
        error = np.zeros(heldout.documents)
        for end in np.unique(best):
            chosen = np.flatnonzero(best == end)
            inside = paths[end][paths[end] >= 0]
            basis = loadings[:, inside]
            distance = heldout.values[chosen] - loadings[:, -1]
            inverse = np.linalg.pinv(np.einsum("wi,wj->ij", basis, basis), hermitian=True)
            factors = np.einsum("nw,wi,ij->nj", distance, basis, inverse, optimize=False)
            error[chosen] = ((distance - np.einsum("nj,wj->nw", factors, basis)) ** 2).sum(axis=1)
        return {"error": error}

    def probabilities(self, rows: HcaRows, global_state: HcaGlobalState) -> Mapping[str, AnyArray]:
        """Raise `OptionError`: the components of vectors are not probabilities."""
        raise OptionError("a tree of vectors has no topics that another fit could begin from")

    def infer(self, local: VectorFactors, global_state: HcaGlobalState) -> Mapping[str, AnyArray]:
        """Return each vector's share of each leaf, its most probable full path, and its factors along it, E[x]."""
        tree = global_state.fitted.tree
        lists, ends = local.ends.document_lists, np.asarray(local.ends.document_ends, dtype=np.int64)
        owner = np.repeat(np.arange(lists.size - 1), np.diff(lists))
        shares = np.zeros((lists.size - 1, tree.parents.size))
        np.add.at(shares, (owner, ends), np.asarray(local.ends.document_masses, dtype=np.float64))
        paths = tree.paths()[np.asarray(local.document_best, dtype=np.int64)]
        factors = np.asarray(local.document_factors)
        return {"document_topic": shares, "document_path": paths, "document_factors": factors}

    def document_lengths(self, local: VectorFactors) -> Vector:
        """Return the length of each vector as a document: one."""
        return np.ones(local.document_best.size)


def _with_clusters(
    global_state: HcaGlobalState, clusters: ClusterSums, options: HcaOptions, stream: Stream
) -> HcaGlobalState:
    """Return the global state after a round of clustering; after the last with a tree of the clusters."""
    clustering = replace(global_state.clustering, cluster_counts=clusters.cluster_counts, stage=CLUSTERS)
    after = replace(global_state, another_round=True, rounds=global_state.rounds + 1, clustering=clustering)
    if after.rounds <= CLUSTER_ROUNDS:
        return after
    # The tree has the clusters, or a chain for each group of them under a root that no vector has.
    counts, chained = clusters.cluster_counts, global_state.chain_sweeps_left > 0
    occupied = np.flatnonzero(counts > 0)
    labels = gaussian.levels(clusters.products, counts, occupied, options.sizes())
    if chained:
        labels[1:] = [labels[-1]] * options.depth
    initial = InitialTree(labels, global_state.fitted.node_parent.size, occupied, stream, chained=chained)
    sums = initial.sums(counts, clusters.products, clusters.square, clusters.documents, global_state.vocabulary)
    components = gaussian.fitted(sums, options.prior(), gaussian.first_tau(sums, options.prior()))
    tree = next_sweep(Moves(initial.tree), sums, components, initial.ends(counts), options)
    tree = replace(tree, moves=Moves(initial.tree, initial.sources).move_table())
    return replace(after, clustering=replace(clustering, stage=TREE), next_sweep=tree)


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
