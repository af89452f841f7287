"""Planted Gaussian trees, and vectors drawn from them, for families to simulate from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.base import Summary
from collapsium.pipeline.families.ncrp import nodes as tallies
from collapsium.pipeline.families.ncrp.node_moves import Moves
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.ncrp.tree import Tree

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import Vectors

Vector = npt.NDArray[np.float64]

NOTHING = -1e300  # logarithm of no mass


def tree(
    summary: Summary, branching: Sequence[int], loading: float, noise: float, stream: Stream
) -> tuple[Vector, dict[str, npt.NDArray[Any]]]:
    """Draw a tree's loadings and mean.

    Parameters
    ----------
    summary : Summary
        Sizes of the corpus.
    branching : sequence of int
        Children of each node of the root's level, the next, ...
    loading, noise : float
        Standard deviations.
    stream : Stream
        The corpus's.

    Returns
    -------
    rows : numpy.ndarray of float64, shape (columns of the vectors, nodes + 1)
        Loadings of each node and, last, the mean.
    globals : dict of str to numpy.ndarray
        What is known of the tree, as a sweep would leave it: all leaves are as likely, and nothing is outside.
    """
    parents = tallies.planted(list(branching))
    found = Tree(parents, len(branching) + 1)
    size = parents.size + 1
    drawn = stream.at(purpose="simulate loadings").generator().normal(scale=loading, size=(size, summary.words))
    rows = np.ascontiguousarray(drawn.T)
    full = found.levels == found.depth - 1
    ends = np.where(full, summary.documents / full.sum(), 0.0)
    logs = np.where(full, -np.log(full.sum()), NOTHING)
    made = {"solve": np.eye(size), "gram": np.einsum("wi,wj->ij", rows, rows), "spread": np.zeros(size)}
    made.update(parent=parents, end_log=logs)
    return rows, {
        **Moves(found).table(),
        **{f"next_{name}": value for name, value in made.items()},
        **{name: value for name, value in made.items() if name != "parent"},
        "node_parent": parents,
        "node_passes": found.gathered(ends),
        "node_ends": ends,
        "tau": np.array(noise**-2.0),
        "log_tau": np.array(-2.0 * np.log(noise)),
    }


def vectors(
    rows: npt.NDArray[Any], found: Tree, tau: float, documents: int, stream: Stream
) -> tuple[Vectors, npt.NDArray[np.float64]]:
    """Draw vectors from a planted tree.

    Parameters
    ----------
    rows : numpy.ndarray, shape (columns of the vectors, nodes + 1)
        As `tree` drew them.
    found : Tree
        The nodes.
    tau : float
        Precision of the noise.
    documents : int
        How many vectors.
    stream : Stream
        Addressed to the portion.

    Returns
    -------
    vectors : Vectors
        Without ids.
    theta : numpy.ndarray of float64, shape (documents, nodes)
        One at the leaf of each, else zero.
    """
    import pyarrow as pa

    from collapsium.storage.corpus.vectors import Vectors

    generator = stream.generator()
    leaf = generator.choice(np.flatnonzero(found.levels == found.depth - 1), documents)
    factors, noise = generator.normal(size=(documents, found.depth)), generator.normal(size=(documents, len(rows)))
    values = rows[:, -1] + noise / np.sqrt(tau)
    for level, nodes in enumerate(found.paths()[leaf].T):
        values += factors[:, level, np.newaxis] * rows.T[nodes]
    theta = np.zeros((documents, found.parents.size))
    theta[np.arange(documents), leaf] = 1.0
    return Vectors(pa.nulls(documents, pa.string()), values), theta
