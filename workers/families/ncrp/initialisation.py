"""How documents enter a tree: those that begin nodes, those that are let in by and by, and another tree's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Arrays, Delta, fresh
from collapsium.workers.arrays.document_hash import addresses, smallest
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.ncrp.tree import FREE, Tree, kept_lists

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Vector = npt.NDArray[np.float64]

ALL = np.iinfo(np.int64).max  # limit of addresses under which all documents are
PORTION = 1 << 14  # pairs of a warm start at a time
TINY = 1e-290  # probability of a pair's words at least


def no_lists(documents: int) -> dict[str, npt.NDArray[Any]]:
    """Return lists of ends of documents that have none yet."""
    return kept_lists(np.full((documents, 1), -1), np.zeros((documents, 1)), np.zeros(1, dtype=np.int64))


def word_tokens(shard: Shard) -> Vector:
    """Return the tokens of each word of a shard."""
    found: Vector = np.bincount(shard.position, shard.counts, shard.words.size).astype(np.float64)
    return found


def joined(shard: Shard, globals: Arrays, stream: Stream) -> npt.NDArray[np.bool_]:
    """Return which documents have been let in: all but in a gradual start, where they come by address."""
    limit = int(globals["limit"])
    if limit >= ALL:
        return np.ones(shard.documents, dtype=bool)
    return addresses(shard, stream.at(purpose="start", iteration=0)) <= limit


def part(shard: Shard, local: Arrays, there: npt.NDArray[np.bool_]) -> tuple[Shard, Arrays]:
    """Return the documents that have joined, and their local state."""
    from collapsium.storage.corpus.shard import Shard

    pairs = np.repeat(there, np.diff(shard.offsets))
    offsets = np.concatenate([[0], np.cumsum(np.diff(shard.offsets)[there])]).astype(np.int64)
    own = {"document_level": local["document_level"][there]}
    if "pair_level" in local:
        own["pair_level"] = local["pair_level"][pairs]
    return Shard(shard.number, offsets, shard.words, shard.position[pairs], shard.counts[pairs]), own


def whole(shard: Shard, local: Arrays, after: Arrays, there: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[Any]]:
    """Return the local state of all documents, of which some have been swept."""
    depth = after["document_level"].shape[1]
    found = {"document_level": np.zeros((shard.documents, depth))}
    found["document_level"][there] = after["document_level"]
    found["document_level"][~there] = local["document_level"][~there]
    lengths = np.zeros(shard.documents, dtype=np.int64)
    lengths[there] = np.diff(after["document_lists"])
    found["document_lists"] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    found.update({name: after[name] for name in ("document_ends", "document_masses")})
    if "pair_level" in local:
        pairs = np.repeat(there, np.diff(shard.offsets))
        found["pair_level"] = np.array(local["pair_level"])
        found["pair_level"][pairs] = after["pair_level"]
    return found


def seeds(shard: Shard, globals: Arrays, stream: Stream) -> Delta:
    """Give the words of the documents that begin nodes, and to a root that has none those of all documents."""
    seeds, columns = globals["seeds"], globals["node_parent"].size
    own = addresses(shard, stream.at(purpose="start", iteration=0))
    by_word = np.zeros((shard.words.size, columns))
    if bool(globals["root_seeded"]):
        np.add.at(by_word[:, 0], shard.position, shard.counts)
    place = np.minimum(np.searchsorted(seeds, own), max(seeds.size - 1, 0))
    chosen = np.flatnonzero(seeds[place] == own) if seeds.size else np.zeros(0, dtype=np.int64)
    for document in chosen[shard.lengths[chosen] > 0]:
        pairs = slice(shard.offsets[document], shard.offsets[document + 1])
        for column in globals["seed_columns"][place[document]]:
            if column > 0:
                by_word[shard.position[pairs], column] += shard.counts[pairs]
    return Delta({"word_topic": fresh(by_word, "word", "node")}, {"word": shard.words})


def drawn(
    shard: Shard, local: Arrays, count: int, stream: Stream, there: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Draw an end from q(c_n) for the shard's first documents by address; return addresses and columns."""
    own = addresses(shard, stream)
    chosen = smallest(own, count, there & (shard.lengths > 0))
    where = {int(address): number for number, address in reversed(list(enumerate(own)))}
    ends = np.zeros(chosen.size)
    for place, address in enumerate(chosen):
        document = where[int(address)]
        held = slice(local["document_lists"][document], local["document_lists"][document + 1])
        masses = local["document_masses"][held].astype(np.float64)
        number = (int(address) % 2**32) / 2.0**32  # the low bits are as good as a random number, of the smallest too
        drawn = np.searchsorted(np.cumsum(masses), number * masses.sum(), side="right")
        ends[place] = local["document_ends"][held][min(drawn, masses.size - 1)]
    return chosen, ends


def warm_start(shard: Shard, globals: Arrays, warm: Arrays) -> tuple[Arrays, Delta]:
    """Count the words of each node of another tree by q(z) ~ theta phi; a document's path is its largest leaf's."""
    depth, columns = globals["alpha"].size, globals["node_parent"].size
    if "topic_parent" not in warm:
        raise OptionError("--warm: the family 'ncrp' begins from trees alone, and the run has flat topics")
    tree = Tree(np.asarray(warm["topic_parent"], dtype=np.int64), depth)
    if tree.columns.size != tree.parents.size or not (tree.level == depth - 1).any():
        raise OptionError(f"--warm: expected a tree of depth {depth}, as --depth says")
    if tree.columns.size > columns:
        raise OptionError(f"--warm: a tree of {tree.columns.size} nodes needs --max-nodes {tree.columns.size} or more")
    theta, phi = (np.asarray(warm[name], dtype=np.float64) for name in ("document_topic", "word_topic"))
    owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
    by_word, by_level = np.zeros((shard.words.size, columns)), np.zeros((shard.documents, depth))
    for first in range(0, shard.pairs, PORTION):
        pairs = slice(first, min(first + PORTION, shard.pairs))
        weight = theta[owner[pairs]] * phi[shard.position[pairs]] + TINY
        weight *= (shard.counts[pairs] / weight.sum(axis=1))[:, np.newaxis]
        np.add.at(by_word[:, : tree.parents.size], shard.position[pairs], weight)
        for level in range(depth):
            np.add.at(by_level[:, level], owner[pairs], weight[:, tree.levels == level].sum(axis=1))
    leaves = np.flatnonzero(tree.levels == depth - 1)
    ends = np.bincount(leaves[np.argmax(theta[:, leaves], axis=1)], minlength=columns).astype(np.float64)
    local: dict[str, npt.NDArray[Any]] = {"document_level": by_level, **no_lists(shard.documents)}
    if globals["factorised"]:
        share = (by_level + 1e-9) / (by_level + 1e-9).sum(axis=1, keepdims=True)
        local["pair_level"] = share[owner].astype(np.float32)
    parent = np.zeros(columns)
    if shard.number == 0:  # told once: deltas add
        parent[: tree.parents.size] = tree.parents - FREE
    parts = {"word_topic": by_word, "warm_parent": parent, "ends": ends}
    dims = {"word_topic": ("word", "node"), "warm_parent": ("node",), "ends": ("node",)}
    return local, Delta({name: fresh(values, *dims[name]) for name, values in parts.items()}, {"word": shard.words})
