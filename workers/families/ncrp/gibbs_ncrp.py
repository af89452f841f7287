"""The nested Chinese restaurant process by collapsed Gibbs sampling, beside a shard.

Blei, Griffiths, Jordan and Tenenbaum (2003): a document takes a path c_d of L nodes, from the root down, by the nested
Chinese restaurant process of concentration gamma; theta_d ~ Dir(alpha_1..alpha_L), z ~ theta_d, and w comes from the
path's node of level z, phi_i ~ Dir(eta_l, ..., eta_l). Topics and proportions are summed out.

A shard hangs new nodes into free slots of its lane, as `gibbs_hdp` does with topics; shards that share a lane take
turns, an iteration each, since nodes of several shards in one slot could hang at several places. A node that was there
when an iteration began keeps its parent, and its slot is free only when the sum of all shards leaves no document there:
so where one shard empties a node below which another has hung a new one, it stays. One shard alone samples exactly.

In a cold start the documents of the first shard enter one after another, and then, with the tree that has come of it,
those of all others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.gibbs import common as gibbs
from collapsium.workers.families.gibbs.common import Slots
from collapsium.workers.families.ncrp.arrays import GIBBS_NCRP_ARRAYS
from collapsium.workers.families.ncrp.gibbs_state import Growth, Priors, level_cells, levels, word_cells
from collapsium.workers.kernels.gibbs.topics import draw_topics
from collapsium.workers.kernels.jit import Kernel
from collapsium.workers.kernels.trees.gibbs_documents import count_histogram, fold_documents, sweep_documents
from collapsium.workers.kernels.trees.gibbs_records import FREE, CandidatePaths
from collapsium.workers.kernels.trees.gibbs_subtrees import move_subtrees

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

ARRAYS = GIBBS_NCRP_ARRAYS

Floats = npt.NDArray[np.float64]

POINT = True  # an unseen document has one path, also where it has no words


def priors(globals: Arrays) -> Priors:
    """Take the parameters from the globals."""
    return Priors(
        globals["alpha"],
        globals["eta"],
        float(globals["gamma"]),
        int(globals["vocabulary"]),
        bool(globals["apart"]),
    )


def slots(globals: Arrays, shard: int, iteration: int) -> Slots | None:
    """Return where a shard's new nodes go; None where it is another shard's turn."""
    lanes, free = int(globals["lanes"]), np.flatnonzero(globals["free"])
    turns = -(-int(globals["shards"]) // lanes)
    if shard // lanes % turns != iteration % turns:
        return None
    lane, columns = shard % lanes, globals["free"].size
    mine = [int(slot) for slot in free[free % lanes == lane]]
    return Slots(float(globals["gamma"]), mine, columns + (lane - columns) % lanes, lanes)


def kernels(globals: Arrays) -> Sequence[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    return [sweep_documents, move_subtrees, count_histogram]


def blank(words: int, globals: Arrays) -> Arrays:
    """Make the rows of `words` words before any document has been seen."""
    return gibbs.blank(words, globals["node_parent"].size)


def start(
    shard: Shard,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
    warm: Arrays | None = None,
) -> tuple[Arrays, Delta]:
    """Let the documents of the first shard enter, or all of them by another run's proportions and topics."""
    depth = globals["alpha"].size
    outside: Arrays = {
        "token_level": np.zeros(shard.tokens, dtype=np.uint8),
        "document_path": np.full((shard.documents, depth), -1, dtype=np.int32),
    }
    blank_rows = blank(shard.words.size, globals)
    growth = Growth.of(outside, blank_rows, globals)
    if warm is not None:
        _plant(growth, shard, globals, stream, warm)
    elif shard.number == 0:
        growth.run(shard, priors(globals), stream, slots(globals, 0, 0), known=False)
    parts = {"word_topic": gibbs.changes(blank_rows, growth.row), **growth.changes(globals)}
    parts["outside"] = fresh(float((growth.path[:, 0] < 0).sum()))
    return growth.local(shard), Delta(parts, gibbs.ids_of(shard, growth.parent.size))


def _plant(growth: Growth, shard: Shard, globals: Arrays, stream: Stream, warm: Arrays) -> None:
    """Put documents on the paths of another run's topics, which hang below the root, each with one path below.

    A document's path is that of its largest topic; tokens of that topic get a level below the root, others the root.
    """
    theta, phi = (np.ascontiguousarray(warm[name], dtype=np.float64) for name in ("document_topic", "word_topic"))
    depth, below = growth.path.shape[1], int(globals["planted"])
    if theta.shape[1] > below:
        raise ValueError(f"a start from {theta.shape[1]} topics needs as many; there are {below}")
    token_topic = np.empty(shard.tokens, dtype=np.uint16)
    draw_topics(document_pairs(shard), theta, phi, stream.key(), token_topic)
    largest = theta.argmax(axis=1)
    growth.path[:, 0] = 0
    growth.path[:, 1:] = 1 + largest[:, np.newaxis] * (depth - 1) + np.arange(depth - 1)
    owner = np.repeat(np.arange(shard.documents), shard.lengths)
    share = np.cumsum(globals["alpha"][1:]) / globals["alpha"][1:].sum()
    drawn = stream.at(purpose=f"{stream.purpose} levels").generator().random(shard.tokens)
    deeper = 1 + np.minimum(np.searchsorted(share, drawn, side="right"), depth - 2)
    growth.token_level[:] = np.where(token_topic == largest[owner], deeper, 0)
    np.add.at(growth.row, (np.repeat(shard.position, shard.counts), growth.path[owner, growth.token_level]), 1)
    np.add.at(growth.documents, growth.path.ravel(), 1)


def sweep(
    shard: Shard,
    local: Arrays,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
) -> tuple[Arrays, Delta]:
    """Pass once over a shard; documents that are not in the tree yet enter it."""
    began = time.perf_counter()
    growth = Growth.of(local, rows, globals)
    growth.run(
        shard, priors(globals), stream, slots(globals, shard.number, stream.iteration), known=int(globals["shards"]) > 1
    )
    local = growth.local(shard)
    cells, counts = level_cells(shard, local)
    parts = {"word_topic": gibbs.changes(rows, growth.row), "level_cells": cells, **growth.changes(globals)}
    numbers = {"documents": shard.documents, "tokens": shard.tokens, "outside": (growth.path[:, 0] < 0).sum()}
    parts.update({name: fresh(float(value)) for name, value in numbers.items()})
    ids = {**gibbs.ids_of(shard, growth.parent.size), "tokens": counts}
    return local, Delta(parts, ids, {"kernel": time.perf_counter() - began})


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Give the rows and globals with which a shard sweeps once more: with the nodes that it has brought forth."""
    after, moved = gibbs.advance(rows, delta)
    grown = hung(with_columns(globals, moved.size), delta)
    free = grown["free"] & (grown["node_documents"] == 0)
    return after, {**grown, "topic": grown["topic"] + moved, "free": free}


def with_columns(globals: Arrays, columns: int) -> Arrays:
    """Return globals with at least so many slots."""
    more = max(columns - globals["node_parent"].size, 0)
    blank_ = {"node_parent": FREE, "node_documents": 0, "topic": 0, "free": True}
    longer = {name: np.append(globals[name], np.full(more, value)) for name, value in blank_.items()}
    return {**globals, **{name: values.astype(globals[name].dtype) for name, values in longer.items()}}


def hung(globals: Arrays, delta: Delta) -> Arrays:
    """Return globals with the nodes that a delta hangs up, and without those that no document passes any more."""
    documents = globals["node_documents"] + delta["node_documents"]
    parent = np.where(documents > 0, globals["node_parent"] + delta["node_parent"], FREE)
    parent[0] = -1
    return {**globals, "node_documents": documents, "node_parent": parent}


def fold(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Add the rows of a delta to a block of the vocabulary, and tally the cells (``word_cells``)."""
    if "word_topic" not in delta:
        return block, Delta()
    after, parts = gibbs.added(block, delta)
    level = np.full(after.shape[1], -1)
    known = levels(globals["node_parent"])[: level.size]
    level[: known.size] = known
    cells, ids = word_cells(after, level, globals["alpha"].size)
    told = Delta({**parts, "word_cells": cells}, {"topic": np.arange(parts["topic"].values.size), **ids})
    return {"word_topic": after}, told


def finish(block: Arrays, globals: Arrays) -> Arrays:
    """Give the rows that a finished model keeps: with all slots, which a block gets only when it is folded."""
    columns = globals["node_parent"].size
    if block["word_topic"].shape[1] == columns:
        return block
    return {"word_topic": gibbs.widened(block["word_topic"], columns)}


def settle(shard: Shard, rows: Arrays, globals: Arrays, stream: Stream) -> Arrays:
    """Find the paths and levels of unseen documents in the tree as it is, without drawing numbers.

    Paths are judged by log p(c) + sum_m log sum_l theta_l phi_{c_l,w_m}, with theta fitted in between.

    Parameters
    ----------
    shard : Shard
        The documents.
    rows : Arrays
        ``word_topic`` of the shard's words.
    globals : Arrays
        The tree.
    stream : Stream
        Not used.

    Returns
    -------
    Arrays
        ``document_path``, shape (documents, levels), -1 where the tree has no such node, and ``document_level``,
        E[n_dl].
    """
    given, parent = priors(globals), globals["node_parent"]
    depth, level = given.alpha.size, levels(parent)
    nodes, leaves = np.flatnonzero(level >= 0), np.flatnonzero(level == depth - 1)
    path = np.full((shard.documents, depth), -1, dtype=np.int32)
    mean = np.zeros((shard.documents, depth))
    if not leaves.size:  # no document has been seen: there is a root alone
        path[:, 0], mean[:, 0] = 0, shard.lengths
        return {"document_path": path, "document_level": mean}
    paths = np.zeros((leaves.size, depth), dtype=np.int64)
    log_prior, at = np.zeros(leaves.size), leaves
    for one in range(depth - 1, -1, -1):
        paths[:, one] = np.searchsorted(nodes, at)
        if one:
            up = parent[at]
            passing = np.asarray(globals["node_documents"], dtype=np.float64)
            log_prior += special.log(passing[at]) - special.log(given.gamma + passing[up])
            at = up
    phi = np.ascontiguousarray(word_probability(rows, globals)[:, nodes])
    chosen = np.zeros(shard.documents, dtype=np.int64)
    fold_documents(document_pairs(shard), given.alpha, CandidatePaths(paths, log_prior, phi), chosen, mean)
    path[:] = nodes[paths[chosen]]
    return {"document_path": path, "document_level": mean}


def word_probability(rows: Arrays, globals: Arrays) -> Floats:
    """Return phi_iw = (n_iw + eta_l) / (n_i + W eta_l) of the words at hand, shape (words, slots); even if free."""
    given = priors(globals)
    eta = given.of_nodes(levels(globals["node_parent"]))
    found: Floats = (finish(rows, globals)["word_topic"] + eta) / (globals["topic"] + given.words * eta)
    return found


def proportions(local: Arrays, globals: Arrays) -> Floats:
    """Return theta_dl = (alpha_l + n_dl) / (sum alpha + n_d), shape (documents, levels)."""
    found: Floats = np.asarray(globals["alpha"]) + np.asarray(local["document_level"], dtype=np.float64)
    found /= found.sum(axis=1, keepdims=True)
    return found


def predict(heldout: Shard, local: Arrays, rows: Arrays, globals: Arrays) -> Arrays:
    """Give each held-out pair's probability sum_l theta_dl phi_{c_dl,w}, of the last sample."""
    given, owner = priors(globals), np.repeat(np.arange(heldout.documents), np.diff(heldout.offsets))
    counts, total = finish(rows, globals)["word_topic"], np.asarray(globals["topic"], dtype=np.float64)
    path, theta = np.asarray(local["document_path"]), proportions(local, globals)
    probability = np.zeros(heldout.pairs)
    for one, eta in enumerate(given.eta):
        node = path[owner, one]
        phi = (counts[heldout.position, node] + eta) / (total[node] + given.words * eta)
        probability += theta[owner, one] * np.where(node >= 0, phi, 1.0 / given.words)
    return {"probability": probability}


def probabilities(rows: Arrays, globals: Arrays) -> Arrays:
    """Give phi_iw of the words at hand, of the last sample, and ``topic_parent``; columns are slots."""
    return {"word_topic": word_probability(rows, globals), "topic_parent": np.asarray(globals["node_parent"])}


def infer(local: Arrays, globals: Arrays) -> Arrays:
    """Give the documents' proportions at the nodes of their paths, and ``document_path``, these nodes' slots."""
    path, theta = np.asarray(local["document_path"]), proportions(local, globals)
    found = np.zeros((len(path), globals["node_parent"].size))
    document, level = np.nonzero(path >= 0)
    found[document, path[document, level]] = theta[document, level]
    return {"document_topic": found, "document_path": path}


def lengths(local: Arrays) -> Arrays:
    """Give the tokens of each document."""
    return {"document_tokens": np.asarray(local["document_level"], dtype=np.float64).sum(axis=1)}
