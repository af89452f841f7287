"""Hierarchical component analysis: vectors on the paths of a Gaussian tree, by variational inference (Wang, Blei 2009).

c_n ~ nCRP(gamma), x_n ~ N(0, I_L), t_n ~ N(W_{c_n} x_n + mu, I / tau), w_i and mu ~ N(0, s0 I), tau ~ Gamma.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.base import Description, Footprint, Summary
from collapsium.pipeline.families.hca import generative as planted
from collapsium.pipeline.families.hca import posterior as gaussian
from collapsium.pipeline.families.hca import shared_paths as chains
from collapsium.pipeline.families.hca import tree_moves as splitting
from collapsium.pipeline.families.hca.initialisation import Begun
from collapsium.pipeline.families.hca.options import Config
from collapsium.pipeline.families.hca.posterior import Sums
from collapsium.pipeline.families.hca.tree_update import (
    SweepResult,
    components_table,
    continue_trial,
    move_nodes,
    next_globals,
    sweep_chains,
)
from collapsium.pipeline.families.ncrp import node_moves
from collapsium.pipeline.families.ncrp import nodes as tallies
from collapsium.pipeline.families.ncrp import prior as nested
from collapsium.pipeline.families.ncrp.node_moves import Moves
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.ranking import largest
from collapsium.workers.families.hca.hca import CLUSTERS, SEEDING, TREE, loadings
from collapsium.workers.families.ncrp.tree import ahead, swept

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import Vectors

CHANGE = "moved"
SCHEDULES = ("batch",)
SAMPLER = False
LINEAR_ALGEBRA = True
CORPUS = "vectors"

SEEDS = 4  # clusters to begin with, for each leaf
CLUSTER_ROUNDS = 10
FACTORED = 5  # sweeps with q(x | c) before the factorised form begins
CHAINED = 18  # sweeps of chains, before these are joined to a tree
MOVES = "grown", "pruned", "merged"


def initialise(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Make the globals before any vector has been seen."""
    seeds = max(1, min(SEEDS * config.sizes()[-1], summary.documents))
    columns = max(config.max_nodes, seeds, 1 + config.sizes()[-1] * config.depth)
    chained = config.depth > 2
    root = node_moves.first_tree(columns, 0)
    size, nothing = columns + 1, np.zeros(columns)
    empty = {"solve": np.zeros((size, size)), "gram": np.zeros((size, size)), "spread": np.ones(size)}
    return {
        "vocabulary": np.array(float(summary.words)),
        "documents": np.array(float(summary.documents)),
        "full_depth": np.array(config.depth),
        "gamma": np.array(config.gamma),
        "prior_variance": np.array(config.prior_variance),
        "factorised": np.array(config.form == "factorised"),
        "apart": np.array(0),  # whether the factorised form has begun
        "seeds_wanted": np.array(seeds),
        "seeds": np.zeros(0, dtype=np.int64),
        "stage": np.array(0),
        "rounds": np.array(0),
        "chained": np.array(CHAINED if chained else 0),  # sweeps until chains are joined
        "cluster_counts": nothing,
        "tau": np.array(1.0),
        "log_tau": np.array(0.0),
        "kl": np.array(0.0),
        "another_round": np.array(0.0),
        "depth": np.array(config.depth),
        "node_parent": root.parents,
        "node_passes": nothing,
        "node_ends": nothing,
        "end_log": np.zeros(columns),
        **empty,
        **{f"next_{name}": value for name, value in empty.items()},
        "next_parent": root.parents,
        "next_depth": np.array(config.depth),
        "next_end_log": np.zeros(columns),
        **Moves(root).table(),
        **{f"{when}{name}": np.array(0) for name in MOVES for when in ("", "next_")},
        **splitting.begun(columns),
    }


def footprint(summary: Summary, config: Config) -> Footprint:
    """Say what the state of a fit takes: sums, those kept and probes, of columns and nodes."""
    columns = max(config.max_nodes, max(SEEDS, config.depth) * config.sizes()[-1] + 1) + 1
    own = 8.0 * config.depth + 12.0 * 4 + (8.0 * config.depth**2 if config.form == "factorised" else 0.0)
    return Footprint(
        kept=24.0 * columns,
        shown=24.0 * columns,
        swept=48.0 * columns,
        delta=16.0 * columns,
        pair=0.0,
        document=own,
        portion=0.0,
    )


def update(globals: Arrays, delta: Delta, config: Config, stream: Stream) -> Arrays:
    """Make clusters and of them a tree, then the best q(w), q(mu), q(tau) and q(v), and move nodes.

    Parameters
    ----------
    globals : Arrays
        As the sweep was made against.
    delta : Delta
        The sum over all shards, and what folding it told.
    config : Config
        The options.
    stream : Stream
        Addressed to the iteration.

    Returns
    -------
    Arrays
        The next globals: components of the tree of this sweep, and of that of the next.
    """
    again = {"another_round": np.array(1.0)}
    if "candidates" in delta:
        seeds = delta.ids["document"][: int(globals["seeds_wanted"])]
        return {**globals, **again, "seeds": seeds, "stage": np.array(SEEDING)}
    if int(globals["stage"]) < TREE:
        rounds, counts = int(globals["rounds"]) + 1, delta["cluster_counts"]
        after = {**globals, **again, "rounds": np.array(rounds), "cluster_counts": counts, "stage": np.array(CLUSTERS)}
        return after if rounds <= CLUSTER_ROUNDS else _planted(after, delta, config, stream)
    tree = ahead(globals)
    whole = _sums(globals, delta)
    sums = whole.moved(Moves(tree))  # without the side of a leaf that a split would make another
    ends = np.where(tree.levels >= 0, delta["ends"], 0.0)
    found = gaussian.fitted(sums, config.prior(), float(globals["tau"]))
    passes = tree.gathered(ends)
    sticks = nested.sticks(tree, passes, ends, config.gamma)
    rounds = int(globals["rounds"]) + 1
    began = rounds >= CLUSTER_ROUNDS + FACTORED and not globals["chained"]
    after = {
        **globals,
        "node_parent": tree.parents,
        "node_passes": passes,
        "node_ends": ends,
        **components_table(found),
        "end_log": np.maximum(nested.end_logs(tree, sticks, config.gamma), -1e300),
        "rounds": np.array(rounds),
        "apart": np.array(int(config.form == "factorised" and began)),
        "another_round": np.array(0.0),
        "restoring": np.array(0),
        "probe_scale": 1.0 / np.sqrt(np.where(delta["probe_square"] > 0.0, delta["probe_square"], 1.0)),
        **{name: globals[f"next_{name}"] for name in MOVES},
    }
    if int(globals["chained"]):
        return {**after, **again, **sweep_chains(tree, sums, found, ends, config, int(globals["chained"]) - 1)}
    swept_ = SweepResult(sums, whole, found, delta, ends, passes, objective(globals, delta)["objective"])
    if int(globals["trial_left"]):
        after = continue_trial(after, swept_, config)
        if float(after["another_round"]):
            return after
    return move_nodes(after, swept_, config)


def _sums(globals: Arrays, delta: Delta) -> Sums:
    square, beyond, documents = (delta.number(name) for name in ("square", "beyond", "documents"))
    return Sums(delta["second"], delta["products"], square, beyond, documents, float(globals["vocabulary"]))


def _planted(globals: dict[str, npt.NDArray[Any]], delta: Delta, config: Config, stream: Stream) -> Arrays:
    """Make a tree of clusters, or a chain for each group of them under a root that no vector has."""
    counts, chained = delta["cluster_counts"], bool(globals["chained"])
    clusters = np.flatnonzero(counts > 0)
    labels = chains.levels(delta["products"], counts, clusters, config.sizes())
    if chained:
        labels[1:] = [labels[-1]] * config.depth
    columns, words = int(globals["node_parent"].size), float(globals["vocabulary"])
    begun = Begun(labels, columns, clusters, stream, chained=chained)
    documents, square = delta.number("documents"), delta.number("square")
    sums = begun.sums(counts, delta["products"], square, documents, words)
    found = gaussian.fitted(sums, config.prior(), gaussian.first_tau(sums, config.prior()))
    ahead_ = next_globals(Moves(begun.tree), sums, found, begun.ends(counts), config)
    return {**globals, "stage": np.array(TREE), **ahead_, **Moves(begun.tree, begun.sources).table()}


def objective(globals: Arrays, delta: Delta) -> dict[str, float]:
    """Give the evidence lower bound, in nats, right after q(c): sum_n log sum_c S_nc - KL(q | p) of w, mu, tau and v.

    Parameters
    ----------
    globals : Arrays
        As the sweep was made against.
    delta : Delta
        What the sweep told.

    Returns
    -------
    dict of str to float
        ``objective``; nothing before there is a tree.
    """
    if "bound" not in delta:
        return {}
    words, tau = float(globals["vocabulary"]), float(globals["tau"])
    constant = (
        0.5 * words * (float(globals["log_tau"]) - special.log(2.0 * np.pi) - tau * float(globals["next_spread"][-1]))
    )
    return {"objective": delta.number("bound") + delta.number("documents") * constant - float(globals["kl"])}


def figures(globals: Arrays) -> dict[str, float]:
    """Give the nodes and leaves, how many nodes moved before the sweep, and the noise's variance 1 / E[tau]."""
    tree = swept(globals)
    found = {"nodes": float(tree.columns.size), "leaves": float((tree.levels == tree.depth - 1).sum())}
    found.update({name: float(globals[name]) for name in MOVES})
    return {**found, "noise": 1.0 / float(globals["tau"])}


def describe(block: Arrays, globals: Arrays, count: int) -> Description:
    """Describe the nodes depth-first by their largest loadings; a share is that of the vectors that end at the node."""
    tree = swept(globals)
    columns = tallies.depth_first(tree.parents, globals["node_passes"])
    made = loadings(block, globals)[:, columns]
    top = largest(np.abs(made.T), count)
    share = globals["node_ends"][columns] / max(float(globals["node_ends"].sum()), 1e-300)
    values = np.take_along_axis(made.T, top, axis=1)
    return Description(columns, share, top, values, parent=tree.parents[columns], signed=True)


def truth(summary: Summary, config: Config, stream: Stream) -> tuple[Arrays, Arrays]:
    """Draw a tree in which each node has as many children as ``branching`` says, to simulate from."""
    branching = [int(one) for one in np.resize(config.branching, config.depth - 1)]
    drawn, known = planted.tree(summary, branching, config.loading_scale, config.noise_scale, stream)
    return {"word_node": drawn}, {**initialise(summary, config, stream), **known, "stage": np.array(TREE)}


def simulate(
    rows: Arrays,
    globals: Arrays,
    documents: int,
    tokens: float,
    stream: Stream,
) -> tuple[Vectors, npt.NDArray[np.float64]]:
    """Draw vectors: all leaves are as likely, x ~ N(0, I), t ~ N(W x + mu, I / tau); their leaves are proportions."""
    return planted.vectors(rows["word_node"], swept(globals), float(globals["tau"]), documents, stream)
