"""Hierarchical component analysis beside a shard: vectors on the paths of a Gaussian tree (Wang and Blei 2009).

c_n ~ nCRP(gamma), x_n ~ N(0, I_L), t_n ~ N(W_{c_n} x_n + mu, I / tau), w_i and mu ~ N(0, s0 I).

A node is a column of the rows, and the mean is the last one, a node that all vectors have with x = 1. Rows hold
``word_node``, B_i = sum_n q(c_n through i) E[x_i] t_n, a row for each column of the vectors. With A_ij = sum_n q
E[x_i x_j], which the driver has, the best q(w) is m = tau (I / s0 + tau A)^-1 B for all nodes and the mean at once;
`next_solve` is that matrix, so that loadings are made where rows are.

* Form ``conditional``: q(c) q(x | c); nothing is kept of a vector. Form ``factorised``: q(c) q(x) of the paper; the
  local state has the mean and covariance of each x. It begins when clusters have become a tree.

The first rounds of the start make clusters: vectors sampled by address, and then means of the nearest vectors.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Arrays, Delta, Part, fresh
from collapsium.workers.arrays.document_hash import smallest, vector_addresses
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.hca.leaf_splits import ROUNDS, Parting
from collapsium.workers.families.hca.vector_paths import Vector, VectorPaths
from collapsium.workers.families.ncrp.arrays import HCA_ARRAYS
from collapsium.workers.families.ncrp.tree import ahead, kept_lists, moved, products_of_ends, swept
from collapsium.workers.kernels.jit import Kernel
from collapsium.workers.kernels.trees.gaussian import nearest, sweep_components, sweep_factors

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import VectorShard

ARRAYS = HCA_ARRAYS


FOLD_IN_PASSES = 20  # over unseen vectors in the factorised form
CANDIDATES, SEEDING, CLUSTERS, TREE = range(4)  # stages of a fit


def kernels(globals: Arrays) -> Sequence[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    return [nearest, sweep_components, *([sweep_factors] if globals["factorised"] else [])]


def blank(words: int, globals: Arrays) -> Arrays:
    """Make the rows of `words` columns before any vector has been seen."""
    columns = globals["node_parent"].size
    more = {"word_kept": np.zeros((words, columns + 1)), "word_probe": np.zeros((words, columns))}
    return {"word_node": np.zeros((words, columns + 1)), **more}


def start(
    shard: VectorShard,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
    warm: Arrays | None = None,
) -> tuple[Arrays, Delta]:
    """Name the vectors that may begin a cluster.

    Parameters
    ----------
    shard : VectorShard
        The vectors.
    rows : Arrays
        Not used.
    globals : Arrays
        As `initialise` made them.
    stream : Stream
        Addressed to the shard.
    warm : Arrays, optional
        Refused.

    Returns
    -------
    local : Arrays
        Empty lists of ends.
    delta : Delta
        Fresh ``candidates``, by address.

    Raises
    ------
    OptionError
        There is another run to begin from.
    """
    if warm is not None:
        raise OptionError("--warm: the family 'hca' begins from no other run")
    count, depth = shard.documents, int(globals["full_depth"])
    local: dict[str, npt.NDArray[Any]] = {
        **kept_lists(np.full((count, 1), -1), np.zeros((count, 1), dtype=np.float32), np.arange(1)),
        "document_best": np.zeros(count, dtype=np.int32),
        "document_factors": np.zeros((count, depth)),
    }
    if globals["factorised"]:
        local["document_spread"] = np.tile(np.eye(depth), (count, 1, 1))
    found = smallest(vector_addresses(shard, stream), int(globals["seeds_wanted"]), np.ones(count, dtype=bool))
    return local, Delta({"candidates": fresh(np.ones(found.size), "document")}, {"document": found})


def sweep(
    shard: VectorShard,
    local: Arrays,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
) -> tuple[Arrays, Delta]:
    """Pass over a shard, or bring its vectors to clusters.

    Parameters
    ----------
    shard : VectorShard
        The vectors.
    local : Arrays
        Lists of ends and, in the factorised form, ``document_factors`` and ``document_spread``, y and C of q(x).
    rows : Arrays
        ``word_node``.
    globals : Arrays
        As the iteration began.
    stream : Stream
        Addressed to the shard.

    Returns
    -------
    local : Arrays
        The new one.
    delta : Delta
        Fresh ``word_node``, ``second`` (A), ``ends``, ``alike``, ``bound``, ``square`` (sum |t|^2), ``beyond``
        (sum E[x^2] outside the tree), ``documents`` and ``tokens``; ``drawn``, by address, where the tree may grow.
    """
    began = time.perf_counter()
    if int(globals["stage"]) < TREE:
        return local, _clusters(shard, rows, globals, stream)
    tree = ahead(globals)
    held = _held(local, globals)
    if bool(globals["apart"]):
        local = {**local, **_gone_back(local, globals)}
        local = {**local, **_turned(local, globals)}
    sums = rows["word_kept"] if int(globals["restoring"]) else rows["word_node"]
    found = VectorPaths(shard, local, moved(sums, globals), tree, globals, "next_")
    after, columns = {**found.local(tree), **held}, tree.parents.size
    places = np.append(tree.columns, columns)
    by_word, second, ends = np.zeros((shard.words.size, columns + 1)), np.zeros((columns + 1,) * 2), np.zeros(columns)
    by_word[:, places], second[np.ix_(places, places)], ends[tree.columns] = found.by_node.T, found.second, found.ends
    parting = found.parted(tree, Parting(shard, stream, rows["word_probe"], globals))
    if parting.other is not None:
        found.other_side(tree, *parting.other, by_word, second, ends)
    parts: dict[str, Part] = {
        "word_node": fresh(by_word, "word", "node"),
        **parting.parts(),
        "second": fresh(second, "node", "other"),
        "ends": fresh(ends, "end"),
        "alike": fresh(products_of_ends(after, columns), "end", "also"),
        "bound": fresh(found.sums[0]),
        "square": fresh(found.sums[1]),
        "beyond": fresh(found.sums[2]),
        "documents": fresh(float(shard.documents)),
        "tokens": fresh(float(shard.tokens)),
    }
    return after, Delta(parts, {"word": shard.words}, {"kernel": time.perf_counter() - began})


def _gone_back(local: Arrays, globals: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Return the factors from before a split that was tried in vain."""
    if not int(globals["restoring"]):
        return {}
    return {name: local[f"{name}_kept"] for name in ("document_factors", "document_spread")}


def _held(local: Arrays, globals: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Return what a local state holds of the time before a split that is on trial."""
    left = int(globals["trial_left"]) if bool(globals["apart"]) else 0
    names = [name for name in ("document_factors", "document_spread") if left]
    return {f"{name}_kept": local[name if left == ROUNDS else f"{name}_kept"] for name in names}


def _clusters(shard: VectorShard, rows: Arrays, globals: Arrays, stream: Stream) -> Delta:
    """Sum the vectors of each cluster: those that begin one, or those nearest to each one's mean."""
    columns, seeds = globals["node_parent"].size, globals["seeds"]
    label = np.full(shard.documents, -1, dtype=np.int32)
    if int(globals["stage"]) == SEEDING:
        own = vector_addresses(shard, stream.at(purpose="start", iteration=0))
        place = np.minimum(np.searchsorted(seeds, own), seeds.size - 1)
        label[:] = np.where(seeds[place] == own, place, -1)
    else:
        counts = globals["cluster_counts"]
        there = np.flatnonzero(counts > 0)
        centres = np.ascontiguousarray((rows["word_node"][:, there] / counts[there]).T)
        nearest(shard.values, centres, label)
        label = there[label].astype(np.int32)
    sums, counts = np.zeros((columns + 1, shard.words.size)), np.zeros(columns)
    inside = label >= 0
    np.add.at(sums, label[inside], shard.values[inside])
    np.add.at(counts, label[inside], 1.0)
    sums[columns] = shard.values.sum(axis=0)
    parts = {
        "word_node": fresh(np.ascontiguousarray(sums.T), "word", "node"),
        "cluster_counts": fresh(counts, "end"),
        "square": fresh(float((shard.values**2).sum())),
        "documents": fresh(float(shard.documents)),
    }
    return Delta(parts, {"word": shard.words})


def _turned(local: Arrays, globals: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Turn the factors at nodes that a move adds to others with a minus, of vectors whose best path has them."""
    tree = swept(globals)
    paths = tree.paths()[local["document_best"]]
    sign = np.ones(paths.shape)
    turned = globals["move_source"][globals["move_weight"] < 0.0]
    for source in turned[tree.levels[turned] >= 0]:  # a side of a leaf that is parted is no node yet
        sign[:, tree.levels[source]] *= np.where(paths[:, tree.levels[source]] == source, -1.0, 1.0)
    spread = local["document_spread"] * sign[:, :, np.newaxis] * sign[:, np.newaxis]
    return {"document_factors": local["document_factors"] * sign, "document_spread": spread}


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Give the rows as they were, as what a shard changes acts from the next iteration on."""
    return rows, globals


def fold(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Put new sums in the place of a block's, and tell their products.

    Parameters
    ----------
    block : Arrays
        The rows so far.
    delta : Delta
        Fresh ``word_node``.
    globals : Arrays
        As the iteration began.

    Returns
    -------
    block : Arrays
        The new rows.
    delta : Delta
        Fresh ``products``, B'B, and ``moved``, the relative change of B times the values.
    """
    before = block["word_node"]
    if "word_node" not in delta:
        return block, Delta()
    after = np.zeros(before.shape)
    after[delta.ids["word"]] = delta["word_node"]
    change = np.abs(after - before).sum() / max(np.abs(after).sum(), 1e-300)
    probes = np.zeros(block["word_probe"].shape)
    if "word_probe" in delta:
        probes[delta.ids["word"]] = delta["word_probe"]
    begins = int(globals["trial_left"]) == ROUNDS
    told = {
        "probe_square": fresh((probes**2).sum(axis=0), "end"),
        "products": fresh(np.einsum("wi,wj->ij", after, after), "node", "other"),
        "moved": fresh(min(float(change), 1.0) * len(after) * float(globals["documents"])),
    }
    kept = before if begins else block["word_kept"]
    return {"word_node": after, "word_kept": kept, "word_probe": probes}, Delta(told)


def finish(block: Arrays, globals: Arrays) -> Arrays:
    """Give the rows that a finished model keeps: B."""
    return {"word_node": block["word_node"]}


def loadings(rows: Arrays, globals: Arrays) -> Vector:
    """Give E[w_i] by column and, last, E[mu] of the columns of vectors at hand, shape (words, columns + 1)."""
    found: Vector = np.einsum("wi,ij->wj", rows["word_node"], globals["solve"])
    return found


def settle(shard: VectorShard, rows: Arrays, globals: Arrays, stream: Stream) -> Arrays:
    """Fit paths and factors of unseen vectors with the tree held fixed."""
    tree = swept(globals)
    found = VectorPaths(shard, {}, rows["word_node"], tree, globals, "")
    local = found.local(tree)
    for _ in range(FOLD_IN_PASSES if globals["factorised"] and bool(globals["apart"]) else 0):
        local = VectorPaths(shard, local, rows["word_node"], tree, globals, "").local(tree)
    return local


def predict(heldout: VectorShard, local: Arrays, rows: Arrays, globals: Arrays) -> Arrays:
    """Give each vector's ``error`` |t - t^|^2, t^ = W (W'W)^-1 W' (t - mu) + mu along its most probable full path."""
    tree, made = swept(globals), loadings(rows, globals)
    paths, best = tree.paths(), np.asarray(local["document_best"], dtype=np.int64)
    error = np.zeros(heldout.documents)
    for end in np.unique(best):
        chosen = np.flatnonzero(best == end)
        inside = paths[end][paths[end] >= 0]
        basis = made[:, inside]
        distance = heldout.values[chosen] - made[:, -1]
        inverse = np.linalg.pinv(np.einsum("wi,wj->ij", basis, basis), hermitian=True)
        factors = np.einsum("nw,wi,ij->nj", distance, basis, inverse, optimize=False)
        error[chosen] = ((distance - np.einsum("nj,wj->nw", factors, basis)) ** 2).sum(axis=1)
    return {"error": error}


def probabilities(rows: Arrays, globals: Arrays) -> Arrays:
    """Raise `OptionError`: the components of vectors are no probabilities."""
    raise OptionError("a tree of vectors has no topics that another fit could begin from")


def infer(local: Arrays, globals: Arrays) -> Arrays:
    """Give each vector's share of each leaf, its most probable full path, and its factors along it, E[x]."""
    tree = swept(globals)
    lists, ends = local["document_lists"], np.asarray(local["document_ends"], dtype=np.int64)
    owner = np.repeat(np.arange(lists.size - 1), np.diff(lists))
    found = np.zeros((lists.size - 1, tree.parents.size))
    np.add.at(found, (owner, ends), np.asarray(local["document_masses"], dtype=np.float64))
    paths = tree.paths()[np.asarray(local["document_best"], dtype=np.int64)]
    return {"document_topic": found, "document_path": paths, "document_factors": np.asarray(local["document_factors"])}


def lengths(local: Arrays) -> Arrays:
    """Give how many vectors each is: one."""
    return {"document_tokens": np.ones(local["document_best"].size)}
