"""Topics on a tree of the nested Chinese restaurant process, beside a shard (Wang and Blei 2009).

c_n ~ nCRP(gamma), theta_n ~ Dir(alpha_1..alpha_L), z_nm ~ theta_n, t_nm ~ w_{c_n[z_nm]}, w_i ~ Dir(eta_l) at level l.
Outside the tree, q keeps the prior for every node.

* Form ``conditional``: q(c) q(z | c) q(theta), the bound in which a path's own levels explain its words; the local
  state is the expected tokens by level of each document.
* Form ``factorised``: q(c) q(z) q(theta) of the paper; the local state has q(z) of each pair besides.
* Posterior ``dirichlet``: q(w_i) = Dir(eta + n_i). Posterior ``point``: w_i is the most probable under a Dir(eta + 1)
  prior, (eta + n_iw) / (W eta + n_i), nodes outside being uniform, where that prior has its mode: counts weigh as
  they do in a prediction, while exp(E[log w]) of the Dirichlet takes half a token off each.

A sweep gives its shard's expected counts as fresh totals, and folding puts their sum in place of the counts before; so
the number of shards changes nothing but rounding. Which nodes there are, and the moves between sweeps, are in the
globals; see `collapsium.workers.families.ncrp.tree`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta, Part, fresh
from collapsium.workers.arrays.document_hash import addresses, smallest
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.ncrp import initialisation as entering
from collapsium.workers.families.ncrp.arrays import NCRP_ARRAYS
from collapsium.workers.families.ncrp.documents import (
    DocumentPaths,
    Topics,
    Vector,
    best_paths,
    column_priors,
    document_ends,
    level_priors,
    level_proportions,
)
from collapsium.workers.families.ncrp.tree import Tree, ahead, moved, products_of_ends, swept
from collapsium.workers.kernels.jit import Kernel
from collapsium.workers.kernels.trees import nodes
from collapsium.workers.kernels.trees.levels import sweep_levels
from collapsium.workers.kernels.trees.paths import MIN_PROBABILITY, sweep_paths
from collapsium.workers.kernels.trees.records import StoredEnds, TreeTopics
from collapsium.workers.special_functions import digamma, gammaln, xlogy

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

ARRAYS = NCRP_ARRAYS


FOLD_IN_PASSES, FOLD_IN_TOLERANCE = 30, 1e-3  # over unseen documents; tokens


def kernels(globals: Arrays) -> Sequence[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    sweeping = sweep_levels if globals["factorised"] else sweep_paths
    return [sweeping, nodes.root_products, nodes.merge_gains, nodes.path_probability]


def blank(words: int, globals: Arrays) -> Arrays:
    """Make the rows of `words` words before any document has been seen."""
    return {"word_topic": np.zeros((words, globals["node_parent"].size)), "word_rest": np.zeros(words)}


def start(
    shard: Shard,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
    warm: Arrays | None = None,
) -> tuple[Arrays, Delta]:
    """Make even level proportions, and name the documents that may begin a leaf; or count another tree's paths.

    Parameters
    ----------
    shard : Shard
        The documents.
    rows : Arrays
        Not used.
    globals : Arrays
        As `initialise` made them.
    stream : Stream
        Addressed to the shard.
    warm : Arrays, optional
        Of another tree: ``document_topic``, ``word_topic`` and ``topic_parent``.

    Returns
    -------
    local : Arrays
        ``document_level``, expected tokens by level, shape (documents, depth), and lists of ends.
    delta : Delta
        Fresh ``candidates``, by address.
    """
    alpha = level_priors(globals, int(globals["next_depth"]))[0]
    if warm is not None:
        return entering.warm_start(shard, globals, warm)
    by_level = np.outer(shard.lengths, alpha / alpha.sum())
    local = {"document_level": by_level, **entering.no_lists(shard.documents)}
    if globals["factorised"]:
        local["pair_level"] = np.tile((alpha / alpha.sum()).astype(np.float32), (shard.pairs, 1))
    found = smallest(addresses(shard, stream), int(globals["seeds_wanted"]), shard.lengths > 0)
    part = Delta({"candidates": fresh(np.ones(found.size), "document")}, {"document": found})
    return local, part


def sweep(
    shard: Shard,
    local: Arrays,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
) -> tuple[Arrays, Delta]:
    """Pass over a shard, or give the words of the documents that begin leaves.

    Parameters
    ----------
    shard : Shard
        The documents.
    local : Arrays
        ``document_level`` and, in the factorised form, ``pair_level``, q(z).
    rows : Arrays
        ``word_topic`` of the shard's words.
    globals : Arrays
        As the iteration began.
    stream : Stream
        Addressed to the shard.

    Returns
    -------
    local : Arrays
        The new one.
    delta : Delta
        Fresh ``word_topic``; ``word_rest``, tokens outside the tree; ``ends`` (sum_n q(c_n = c) by column), ``alike``
        (sum_n q(c_n = i) q(c_n = j)), ``bound``, ``log_theta`` and ``occupied``, ``level_tokens``, ``documents``,
        ``tokens``, ``joined`` and ``absent``; ``drawn``, by address, an end drawn from q(c_n) of the documents at which
        the tree may grow.
    """
    began = time.perf_counter()
    if bool(globals["seeding"]):
        return local, entering.seeds(shard, globals, stream)
    tree = ahead(globals)
    topics = Topics(
        globals, tree, {"word_topic": moved(rows["word_topic"], globals)}, moved(globals["node_tokens"], globals)
    )
    there = entering.joined(shard, globals, stream)
    part, own = (shard, local) if there.all() else entering.part(shard, local, there)
    found = DocumentPaths(part, own, topics, tree, globals, int(globals["document_sweeps"]), 0.0)
    after = found.local(tree)
    if part is not shard:
        after = entering.whole(shard, local, after, there)
    q_sums = np.zeros(tree.parents.size)
    q_sums[tree.columns] = found.ends
    by_word = np.zeros((shard.words.size, tree.parents.size))
    by_word[:, tree.columns] = found.row_node
    bound = found.bound - float((found.ends * globals["next_end_log"][tree.columns]).sum())
    if not globals["factorised"]:  # there the kernel has left out what q(z) makes of E[log w]
        bound -= float((found.row_node * np.maximum(topics.log, special.log(MIN_PROBABILITY))).sum())
    parts = {
        "word_topic": fresh(by_word, "word", "node"),
        "word_rest": fresh(np.maximum(entering.word_tokens(part) - by_word.sum(axis=1), 0.0), "word"),
        "ends": fresh(q_sums, "node"),
        "alike": fresh(products_of_ends(after, tree.parents.size), "node", "other"),
        "bound": fresh(bound),
        "level_tokens": fresh(found.document_level.sum(axis=0), "level"),
        "log_theta": fresh(found.log_theta, "level"),
        "occupied": fresh(float((part.lengths > 0).sum())),
        "documents": fresh(float(shard.documents)),
        "joined": fresh(float(there.sum())),
        "absent": fresh(float(shard.tokens - part.tokens)),
        "tokens": fresh(float(shard.tokens)),
    }
    ids: dict[str, npt.NDArray[Any]] = {"word": shard.words}
    if globals["grow"] > 0:
        chosen, drawn = entering.drawn(shard, after, int(globals["grow"]), stream, there)
        ids["document"], parts["drawn"] = chosen, fresh(drawn, "document")
        parts["drawers"] = fresh(np.ones(chosen.size), "document")  # documents that are alike have one address
    return after, Delta(parts, ids, {"kernel": time.perf_counter() - began})


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Give the rows as they were, as what a shard changes acts from the next iteration on."""
    return rows, globals


def fold(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Put new counts in the place of a block's, and tell what the bound and moves need of them.

    Parameters
    ----------
    block : Arrays
        The rows so far.
    delta : Delta
        Fresh ``word_topic``; its word ids count from the block's first word. Words that it does not have are in no
        document.
    globals : Arrays
        As the iteration began; ``wanted_first`` and ``wanted_second`` are pairs of columns to compare.

    Returns
    -------
    block : Arrays
        The new rows.
    delta : Delta
        Fresh ``node_tokens``; ``node_sum``, of posterior ``dirichlet`` sum_w log G(eta + n) / G(eta), of ``point``
        sum_w (eta + n) log(eta + n); ``log_phi``, sum_w psi(eta + n); ``moved``; where they are wanted ``roots``
        (sum_w sqrt(n_iw n_jw)) and ``gains`` of the pairs.
    """
    before = block["word_topic"]
    after = np.zeros(before.shape)
    if bool(globals["seeding"]):  # besides what is there
        after += moved(before, globals)
    if "word_topic" in delta:
        after[delta.ids["word"]] += delta["word_topic"]
    rest = np.zeros(len(after))
    if "word_rest" in delta:
        rest[delta.ids["word"]] = delta["word_rest"]
    tree = ahead(globals)
    prior = column_priors(globals, tree)
    told: dict[str, Part] = {
        "node_tokens": fresh(after.sum(axis=0), "node"),
        "node_sum": fresh(_node_sums(after, tree, prior, globals), "node"),
        "moved": fresh(np.abs(after - before).sum() / 2.0),
    }
    if globals["learn_eta"]:
        logs = np.zeros(prior.size)
        logs[tree.columns] = digamma(after[:, tree.columns] + prior[tree.columns]).sum(axis=0)
        told["log_phi"] = fresh(logs, "node")
    if globals["want_roots"]:
        roots = np.zeros((prior.size, prior.size))
        nodes.root_products(after, roots)
        told["roots"] = fresh(roots, "node", "other")
    first, second = globals["wanted_first"], globals["wanted_second"]
    if first.size:
        gain = np.zeros(first.size)
        nodes.merge_gains(after, first, second, np.maximum(prior[first], 0.0), gain)
        told["gains"] = fresh(gain, "pair")
    return {"word_topic": after, "word_rest": rest}, Delta(told)


def _node_sums(counts: Vector, tree: Tree, prior: Vector, globals: Arrays) -> Vector:
    found, columns = np.zeros(prior.size), tree.columns
    held = counts[:, columns] + prior[columns]
    if globals["point"]:
        found[columns] = xlogy(held, held).sum(axis=0)
    else:
        found[columns] = (gammaln(held) - gammaln(prior[columns])).sum(axis=0)
    return found


def finish(block: Arrays, globals: Arrays) -> Arrays:
    """Give the rows that a finished model keeps: E[n_iw]."""
    return block


def settle(shard: Shard, rows: Arrays, globals: Arrays, stream: Stream) -> Arrays:
    """Fit paths and level proportions of unseen documents under fixed topics."""
    tree = swept(globals)
    still = {**globals, "next_end_log": globals["end_log"]}
    topics = Topics(globals, tree, rows, globals["node_tokens"])
    even = topics.alpha / topics.alpha.sum()
    local: Arrays = {"document_level": np.outer(shard.lengths, even)}
    if globals["factorised"]:
        local = {**local, "pair_level": np.tile(even.astype(np.float32), (shard.pairs, 1))}
    found = DocumentPaths(shard, local, topics, tree, still, FOLD_IN_PASSES, FOLD_IN_TOLERANCE)
    return {name: values for name, values in found.local(tree).items() if name.startswith("document")}


def predict(heldout: Shard, local: Arrays, rows: Arrays, globals: Arrays) -> Arrays:
    """Give each held-out pair's probability sum_c q(c) sum_l theta_l w_{c_l}, theta and w being expectations.

    Parameters
    ----------
    heldout : Shard
        Held-out pairs.
    local : Arrays
        As a sweep or `settle` left it.
    rows : Arrays
        Of the held-out words.
    globals : Arrays
        The model's.

    Returns
    -------
    Arrays
        ``probability`` of each pair; ``document_log``, log sum_c q(c) prod_m sum_l theta_l w_{c_l, t_m} of each
        document, the score of section 4.1.
    """
    tree = swept(globals)
    outside = np.full(tree.depth, 1.0 / float(globals["vocabulary"]))
    lists, ends, masses = document_ends(local)
    probability, document_log = np.zeros(heldout.pairs), np.zeros(heldout.documents)
    topics = TreeTopics(tree.parent, tree.level, np.ascontiguousarray(_means(rows, globals, tree)), outside)
    places = tree.places[np.asarray(ends, dtype=np.int64)].astype(np.int32)
    stored = StoredEnds(np.ascontiguousarray(lists, dtype=np.int64), places, masses.astype(np.float32))
    theta = level_proportions(local, globals)
    nodes.path_probability(document_pairs(heldout), topics, theta, stored, probability, document_log)
    return {"probability": probability, "document_log": document_log}


def _means(rows: Arrays, globals: Arrays, tree: Tree) -> Vector:
    prior = column_priors(globals, tree)[tree.columns]
    total = globals["node_tokens"][tree.columns] + float(globals["vocabulary"]) * prior
    found: Vector = (rows["word_topic"][:, tree.columns] + prior) / total
    return found


def probabilities(rows: Arrays, globals: Arrays) -> Arrays:
    """Give E[w_i] of the words at hand by column, and each column's ``topic_parent``."""
    tree = swept(globals)
    found = np.full((len(rows["word_topic"]), tree.parents.size), 1.0 / float(globals["vocabulary"]))
    found[:, tree.columns] = _means(rows, globals, tree)
    return {"word_topic": found, "topic_parent": tree.parents}


def infer(local: Arrays, globals: Arrays) -> Arrays:
    """Give what each document has of each node, sum_c q(c) theta_l, and its most probable full path in the tree.

    What a document has outside the tree is in no column. Where no end of its list is a leaf, the path goes on to the
    largest child.

    Parameters
    ----------
    local : Arrays
        As a sweep or `settle` left it.
    globals : Arrays
        The model's.

    Returns
    -------
    Arrays
        ``document_topic`` and ``document_path``.
    """
    tree, theta = swept(globals), level_proportions(local, globals)
    paths, (lists, ends, masses) = tree.paths(), document_ends(local)
    documents = lists.size - 1
    owner = np.repeat(np.arange(documents), np.diff(lists))
    totals = np.bincount(owner, masses, documents)
    found = np.zeros((documents, tree.parents.size))
    for level in range(tree.depth):
        node = paths[ends, level]
        inside = node >= 0
        part = masses[inside] / totals[owner[inside]] * theta[owner[inside], level]
        np.add.at(found, (owner[inside], node[inside]), part)
    return {"document_topic": found, "document_path": best_paths(tree, globals, owner, ends, masses, documents)}


def lengths(local: Arrays) -> Arrays:
    """Give the tokens that are expected of each document in all."""
    return {"document_tokens": local["document_level"].sum(axis=1)}
