"""Initialise the documents of a tree of topics.

Three schemes: seed documents that start nodes, gradual admission of the remaining documents, and a warm start from
another tree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.document_hash import document_hashes, smallest_hashes
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.ncrp.state import NcrpGlobalState, NcrpLocal
from collapsium.workers.families.ncrp.tree import FREE, DocumentEnds, Tree, Vector

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

ALL = np.iinfo(np.int64).max  # Hash limit that admits all documents
CHUNK_PAIRS = 1 << 14  # Pairs that a warm start counts at a time
MIN_WEIGHT = 1e-290  # Least weight of a pair at a node

Chosen = npt.NDArray[np.bool_]


def word_tokens(shard: Shard) -> Vector:
    """Return the tokens of each word of a shard."""
    tokens: Vector = np.bincount(shard.position, shard.counts, shard.words.size).astype(np.float64)
    return tokens


def joined_documents(shard: Shard, global_state: NcrpGlobalState, stream: Stream) -> Chosen:
    """Return which documents are in the tree: all but in a gradual start, where they join by their hash."""
    limit = global_state.initialisation.hash_limit
    if limit >= ALL:
        return np.ones(shard.documents, dtype=bool)
    return document_hashes(shard, stream.at(purpose="start", iteration=0)) <= limit


def select_documents(shard: Shard, local: NcrpLocal, chosen: Chosen) -> tuple[Shard, NcrpLocal]:
    """Return some documents of a shard, and their local state without ends."""
    pairs = np.repeat(chosen, np.diff(shard.offsets))
    offsets = np.concatenate([[0], np.cumsum(np.diff(shard.offsets)[chosen])]).astype(np.int64)
    pair_level = None if local.pair_level is None else local.pair_level[pairs]
    selected = replace(shard, offsets=offsets, position=shard.position[pairs], counts=shard.counts[pairs])
    return selected, NcrpLocal(local.document_level[chosen], DocumentEnds.empty(int(chosen.sum())), pair_level)


def merge_documents(shard: Shard, local: NcrpLocal, after: NcrpLocal, chosen: Chosen) -> NcrpLocal:
    """Return the local state of all documents, of which those chosen have been swept."""
    document_level = np.zeros((shard.documents, after.document_level.shape[1]))
    document_level[chosen] = after.document_level
    document_level[~chosen] = local.document_level[~chosen]
    lengths = np.zeros(shard.documents, dtype=np.int64)
    lengths[chosen] = np.diff(after.ends.document_lists)
    ends = replace(after.ends, document_lists=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    pair_level = None
    if local.pair_level is not None and after.pair_level is not None:
        pair_level = np.array(local.pair_level)
        pair_level[np.repeat(chosen, np.diff(shard.offsets))] = after.pair_level
    return NcrpLocal(document_level, ends, pair_level)


def seed_counts(shard: Shard, global_state: NcrpGlobalState, stream: Stream) -> Delta:
    """Return the words of the documents that start nodes, and for a new root those of all documents."""
    seeds, columns = global_state.initialisation.seeds, global_state.fitted.node_parent.size
    hashes = document_hashes(shard, stream.at(purpose="start", iteration=0))
    word_topic = np.zeros((shard.words.size, columns))
    if global_state.initialisation.seeds_root:
        np.add.at(word_topic[:, 0], shard.position, shard.counts)
    place = np.minimum(np.searchsorted(seeds, hashes), max(seeds.size - 1, 0))
    chosen = np.flatnonzero(seeds[place] == hashes) if seeds.size else np.zeros(0, dtype=np.int64)
    for document in chosen[shard.lengths[chosen] > 0]:
        pairs = slice(shard.offsets[document], shard.offsets[document + 1])
        for column in global_state.initialisation.seed_columns[place[document]]:
            if column > 0:
                word_topic[shard.position[pairs], column] += shard.counts[pairs]
    return Delta({"word_topic": fresh(word_topic, "word", "node")}, {"word": shard.words})


def draw_ends(
    shard: Shard, ends: DocumentEnds, count: int, stream: Stream, joined: Chosen
) -> tuple[npt.NDArray[np.int64], Vector]:
    """Return the smallest hashes of a shard's documents, and for each a column that is drawn from q(c_n)."""
    hashes = document_hashes(shard, stream)
    chosen = smallest_hashes(hashes, count, joined & (shard.lengths > 0))
    documents = {int(value): number for number, value in reversed(list(enumerate(hashes)))}
    columns = np.zeros(chosen.size)
    for place, value in enumerate(chosen):
        document = documents[int(value)]
        stored = slice(ends.document_lists[document], ends.document_lists[document + 1])
        masses = ends.document_masses[stored].astype(np.float64)
        # The low bits of a hash are as good as a random number, also of the smallest hashes.
        number = (int(value) % 2**32) / 2.0**32
        drawn = np.searchsorted(np.cumsum(masses), number * masses.sum(), side="right")
        columns[place] = ends.document_ends[stored][min(drawn, masses.size - 1)]
    return chosen, columns


def warm_start(shard: Shard, global_state: NcrpGlobalState, warm: Arrays) -> tuple[NcrpLocal, Delta]:
    """Return local state and counts by another run's tree: q(z) ~ theta phi, and the path to the largest leaf."""
    depth, columns = global_state.alpha.size, global_state.fitted.node_parent.size
    tree = _warm_tree(warm, depth, columns)
    theta, phi = (np.asarray(warm[name], dtype=np.float64) for name in ("document_topic", "word_topic"))
    owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
    word_topic, document_level = np.zeros((shard.words.size, columns)), np.zeros((shard.documents, depth))
    for first in range(0, shard.pairs, CHUNK_PAIRS):
        pairs = slice(first, min(first + CHUNK_PAIRS, shard.pairs))
        weight = theta[owner[pairs]] * phi[shard.position[pairs]] + MIN_WEIGHT
        weight *= (shard.counts[pairs] / weight.sum(axis=1))[:, np.newaxis]
        np.add.at(word_topic[:, : tree.parents.size], shard.position[pairs], weight)
        for level in range(depth):
            np.add.at(document_level[:, level], owner[pairs], weight[:, tree.levels == level].sum(axis=1))
    leaves = np.flatnonzero(tree.levels == depth - 1)
    ends = np.bincount(leaves[np.argmax(theta[:, leaves], axis=1)], minlength=columns).astype(np.float64)
    pair_level = None
    if global_state.factorised:
        share = (document_level + 1e-9) / (document_level + 1e-9).sum(axis=1, keepdims=True)
        pair_level = share[owner].astype(np.float32)
    parent = np.zeros(columns)
    if shard.number == 0:  # by one shard, as deltas add
        parent[: tree.parents.size] = tree.parents - FREE
    parts = {
        "word_topic": fresh(word_topic, "word", "node"),
        "warm_parent": fresh(parent, "node"),
        "ends": fresh(ends, "node"),
    }
    local = NcrpLocal(document_level, DocumentEnds.empty(shard.documents), pair_level)
    return local, Delta(parts, {"word": shard.words})


def _warm_tree(warm: Arrays, depth: int, columns: int) -> Tree:
    """Return the tree of another run; raise `OptionError` if the options do not allow it."""
    parents = warm.get("topic_parent")
    if parents is None:
        raise OptionError(
            "the family 'ncrp' can start from a run of a tree alone, and this run has flat topics", "warm"
        )
    tree = Tree(np.asarray(parents, dtype=np.int64), depth)
    if tree.columns.size != tree.parents.size or not (tree.level == depth - 1).any():
        raise OptionError(f"expected a run with a tree of depth={depth}, found another depth", "warm")
    if tree.columns.size > columns:
        raise OptionError(f"expected a tree of at most max_nodes={columns} nodes, found {tree.columns.size}", "warm")
    return tree
