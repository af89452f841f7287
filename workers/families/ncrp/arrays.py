"""Declarations of the arrays of families of trees: sampled and variational nested CRPs, and Gaussian trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.array_fields import (
    ArrayField,
    ArrayGroup,
    CheckContext,
    FamilyArrays,
    Keys,
    Rule,
    counts,
    flags,
    indices,
    numbers,
    offsets,
    optional,
    same_field,
    scalars,
)
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.ncrp.tree import FREE, ROOT, Tree
from collapsium.workers.families.topic_arrays import GROWING_BLOCKS, MIN_POSITIVE, SAMPLED_ROWS, free_of
from collapsium.workers.kernels.gibbs.consistency import FingerprintKeys, fingerprint_levels

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

MAX_DEPTH = 100  # Most levels of a tree, far more than any option allows
MIN_MASS = 1e-12  # Least probability of a stored end, which is the largest of a document, or not far below it
MIN_LOG = -1e300  # Logarithm of a prior mass of zero, as the families write it

MOVE_COUNTS = "grown merged pruned"


def tree(parents: str, depth: str = "") -> Rule:
    """Return the rule that an array has the parents of a tree."""

    def rule(arrays: Arrays, context: CheckContext) -> str | None:
        # Without a split on trial no tree is saved.
        if parents not in arrays:
            return None
        columns = np.asarray(arrays[parents])
        levels = int(arrays[depth]) if depth else context.sizes["level"]
        if not columns.size or columns[0] != ROOT or (columns[1:] == ROOT).any():
            return f"expected the root in the first column of '{parents}', and no other"
        lost = np.flatnonzero((columns != FREE) & (Tree(columns, levels).levels < 0))
        return f"expected a tree of {levels} levels in '{parents}'; column {lost[0]} is in none" if lost.size else None

    return rule


def nodes_of(name: str, parents: str) -> Rule:
    """Return the rule that all columns that an array names are nodes of the tree that the global state holds."""

    def rule(arrays: Arrays, context: CheckContext) -> str | None:
        is_node = np.asarray(context.global_state[parents]) != FREE
        columns = np.asarray(arrays[name])
        return None if is_node[columns[columns >= 0]].all() else f"expected columns of nodes in '{name}'"

    return rule


def _paths(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of paths, which go down from the root and are -1 beyond their end."""
    path, parents = np.asarray(arrays["document_path"]), np.asarray(context.global_state["node_parent"])
    if path.shape[1] and ((path[:, 0] > 0).any() or not _goes_down(path, parents)):
        return "expected paths from the root down in 'document_path'"
    return None


def _goes_down(path: np.ndarray, parents: np.ndarray) -> bool:
    for level in range(1, path.shape[1]):
        node, above = path[:, level], path[:, level - 1]
        if not np.where(node >= 0, (above >= 0) & (parents[node] == above), True).all():
            return False
    return True


def _counted_levels(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of a document's tokens by level, which add up to its length, or to 0 outside the tree."""
    if context.shard is None:
        return None
    levels = np.asarray(arrays["document_level"])
    tokens = np.zeros(len(levels), dtype=np.int64)
    # A sum along rows of a few numbers takes several times as long.
    for level in range(levels.shape[1]):
        tokens += levels[:, level]
    expected = np.where(np.asarray(arrays["document_path"])[:, 0] >= 0, context.shard.lengths, 0)
    return None if (tokens == expected).all() else "expected the tokens of each document in 'document_level'"


def _integer_counts(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of counts during a fit, which are integers; those of a simulated tree are not."""
    wrong = [name for name in ("node_documents", "topic") if context.global_state[name].dtype.kind != "i"]
    return f"expected whole counts in '{wrong[0]}' of the global state" if wrong else None


class TokenNodes:
    """The nodes of tokens, which lie on the paths of their documents."""

    def columns(self, local: Arrays, shard: Shard) -> npt.NDArray[np.int64]:
        """Return the node of each token; -1 if its document is not in the tree yet."""
        owner = np.repeat(np.arange(shard.documents), shard.lengths)
        return np.asarray(local["document_path"])[owner, local["token_level"]].astype(np.int64)

    def fingerprint(self, local: Arrays, shard: Shard, words: Keys, columns: Keys) -> int:
        """Return the sum of the products of the keys of each token's word and node, modulo 2^64."""
        total, keys = np.zeros(1, dtype=np.uint64), FingerprintKeys(words, columns)
        fingerprint_levels(document_pairs(shard), local["token_level"], local["document_path"], keys, total)
        return int(total[0])


GIBBS_NCRP_ARRAYS = FamilyArrays(
    ArrayGroup(
        {
            "alpha": numbers("f8", "level", MIN_POSITIVE),
            "eta": numbers("f8", "level", MIN_POSITIVE),
            **scalars("f8", "gamma vocabulary", MIN_POSITIVE),
            **scalars("i8", "warm_topics", 0),
            **scalars("i8", "lanes shards", 1),
            **flags("another_round"),
            "node_parent": indices("i8", "topic", "topic", FREE),
            **same_field("node_documents topic", counts("i8 f8", "topic")),
            "free": numbers("b1", "topic"),
        },
        (tree("node_parent"), free_of("node_documents", "topic")),
    ),
    lambda global_state: SAMPLED_ROWS,  # noqa: ARG005
    lambda global_state: ArrayGroup(GROWING_BLOCKS.fields, (_integer_counts,)),  # noqa: ARG005
    lambda global_state: ArrayGroup(  # noqa: ARG005
        {
            "document_path": indices("i4", "document level", "topic", -1),
            "document_level": counts("i4", "document level"),
            "token_level": indices("u1", "token", "level"),
        },
        (_paths, _counted_levels),
    ),
    TokenNodes(),
    ("node_documents", "document_path"),
)


# Variational trees.

NEXT = {
    **scalars("i8", "depth next_depth", 1, MAX_DEPTH),
    **scalars("i8", f"{MOVE_COUNTS} next_grown next_merged next_pruned", 0),
    "node_parent": indices("i8", "topic", "topic", FREE),
    "next_parent": indices("i8", "next", "next", FREE),
    "end_log": numbers("f8", "topic", MIN_LOG, 0.0),
    "next_end_log": numbers("f8", "next", MIN_LOG, 0.0),
}
STORED_ENDS = {
    "document_lists": offsets("document", "stored_end"),
    "document_ends": indices("i4", "stored_end", "topic"),
    "document_masses": numbers("f4", "stored_end", MIN_MASS, 1.001),
}
TREES = (tree("node_parent", "depth"), tree("next_parent", "next_depth"))


def fitted(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the columns during a fit: both trees have the same number. A simulated one has fewer."""
    columns = context.global_state["node_parent"].size
    names = ("next_parent", "end_log", "next_end_log", "cluster_counts")
    wrong = [name for name in names if name in context.global_state and context.global_state[name].size != columns]
    return f"expected {columns} columns in '{wrong[0]}' of the global state" if wrong else None


def _moves(columns: str, size: str = "move") -> dict[str, ArrayField]:
    return {
        "move_source": indices("i8", size, columns, -1),
        "move_target": indices("i8", size, columns),
        "move_weight": numbers("f8", size),
    }


def _levels_of_tree(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the level counts of documents, which have a column for each level of the tree."""
    levels, depth = arrays["document_level"].shape[1], int(context.global_state["depth"])
    return None if levels == depth else f"expected {depth} levels in 'document_level', found {levels}"


def _ncrp_local(global_state: Arrays) -> ArrayGroup:
    pairs = {"pair_level": numbers("f4", "pair depth", 0, 1.001)} if global_state["factorised"] else {}
    fields = {"document_level": counts("f8", "document depth"), **STORED_ENDS, **pairs}
    return ArrayGroup(fields, (_levels_of_tree, nodes_of("document_ends", "node_parent")))


NCRP_BLOCKS = {"word_rest": numbers("f8", "word"), "word_topic": numbers("f8", "word topic")}
NCRP_ROWS = ArrayGroup({**NCRP_BLOCKS, "word_rest": replace(NCRP_BLOCKS["word_rest"], optional=True)})
NCRP_ARRAYS = FamilyArrays(
    ArrayGroup(
        {
            "alpha": numbers("f8", "level", MIN_POSITIVE),
            "eta": numbers("f8", "level", MIN_POSITIVE),
            **scalars("f8", "gamma vocabulary", MIN_POSITIVE),
            **NEXT,
            **same_field("node_passes node_tokens", counts("f8", "topic")),
            **_moves("next"),
            **flags("another_round compares_affinity factorised point seeding seeds_root"),
            **scalars("i8", "clustering_sweeps comparisons_without_merge max_clustering_sweeps", 0),
            **scalars("i8", "max_seeds planned_iterations", 0),
            **scalars("i8", "hash_limit", 0, np.inf),
            **scalars("f8", "absent_tokens admission_factor uncounted"),
            "seed_candidates": numbers("i8 u8", "candidate", -np.inf, np.inf),
            "seeds": numbers("i8 u8", "seed", -np.inf, np.inf),
            "seed_columns": indices("i8", "seeded below", "next"),
            **same_field("compared_first compared_second", indices("i8", "compared", "next")),
        },
        TREES,
    ),
    lambda global_state: NCRP_ROWS,  # noqa: ARG005
    lambda global_state: ArrayGroup(NCRP_BLOCKS, (fitted,)),  # noqa: ARG005
    _ncrp_local,
)


# Gaussian trees.

SAVED = "saved_"


def _hca_rows(names: str, *rules: Rule) -> Callable[[Arrays], ArrayGroup]:
    fields = {
        "word_node": numbers("f8", "word topic+1"),
        "word_saved": numbers("f8", "word topic+1"),
        "word_probe": numbers("f8", "word topic"),
    }
    part = ArrayGroup({name: fields[name] for name in names.split()}, rules)
    return lambda global_state: part  # noqa: ARG005


def _hca_local(global_state: Arrays) -> ArrayGroup:
    depth = str(int(global_state["full_depth"]))
    factors = {"document_factors": numbers("f8", f"document {depth}")}
    if global_state["factorised"]:
        factors["document_spread"] = numbers("f8", f"document {depth} {depth}")
    fields = {"document_best": indices("i4", "document", "topic"), **STORED_ENDS, **factors}
    fields |= optional({f"{name}_saved": field for name, field in factors.items()})
    return ArrayGroup(fields, (nodes_of("document_ends", "node_parent"), nodes_of("document_best", "node_parent")))


_GAUSSIAN = {
    "gram": numbers("f8", "topic+1 topic+1"),
    **NEXT,
    "end_log": numbers("f8", "end", MIN_LOG, 1e3),
    "next_end_log": numbers("f8", "end", MIN_LOG, 1e3),
    **same_field("node_ends node_passes", numbers("f8", "topic")),
    **same_field("next_gram solve next_solve", numbers("f8", "topic+1 topic+1")),
    **same_field("spread next_spread", counts("f8", "topic+1")),
    **_moves("next+1"),
    **scalars("f8", "tau vocabulary", MIN_POSITIVE),
    **scalars("f8", "documents kl last_bound log_tau trial_bound"),
    **flags("another_round factorised restoring separate_factors"),
    **scalars("i8", "calm chain_sweeps_left rounds trial_left", 0),
    **scalars("i8", "full_depth", 1, MAX_DEPTH),
    **scalars("i8", "max_seeds", 0),
    **scalars("i8", "stage", 0, 3),
    "trial_leaf": indices("i8", "", "next", -1),
    "split": indices("i8", "3", "next", -1),
    **same_field("cluster_counts probe_scale", numbers("f8", "cluster")),
    "tried": counts("i8", "cluster"),
    "seeds": numbers("i8 u8", "seed", -np.inf, np.inf),
}

_SAVED = {**_GAUSSIAN, **_moves("next+1", "saved_move")}


def _enough_ends(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the prior masses of ends: each node has one. A simulated tree has room for more."""
    ends, nodes = arrays["end_log"].size, arrays["node_parent"].size
    return None if ends >= nodes else f"expected {nodes} numbers in 'end_log', found {ends}"


HCA_ARRAYS = FamilyArrays(
    ArrayGroup(
        {
            **_GAUSSIAN,
            **optional({f"{SAVED}{name}": field for name, field in _SAVED.items()}),
        },
        (
            *TREES,
            _enough_ends,
            tree(f"{SAVED}node_parent", "full_depth"),
            tree(f"{SAVED}next_parent", "full_depth"),
        ),
    ),
    _hca_rows("word_node"),
    _hca_rows("word_node word_saved word_probe", fitted),
    _hca_local,
)
