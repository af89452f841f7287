"""Draw Gaussian trees, and vectors from them, for simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.hca.options import HcaOptions
from collapsium.pipeline.families.ncrp.node_moves import Moves
from collapsium.pipeline.families.ncrp.nodes import regular_tree
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.hca.states import TREE, HcaGlobalState, Loadings, NextLoadings, NodeMasses
from collapsium.workers.families.ncrp.tree import Tree, Vector

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import Vectors

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
