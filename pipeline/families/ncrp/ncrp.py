"""Topics on a tree of the nested Chinese restaurant process, by variational inference (Wang and Blei 2009).

c_n ~ nCRP(gamma), theta_n ~ Dir(alpha_1..alpha_L), z_nm ~ theta_n, t_nm ~ w_{c_n[z_nm]}, w_i ~ Dir(eta_l) at level l.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families import generative as drawing
from collapsium.pipeline.families import hyperparameters as dirichlet
from collapsium.pipeline.families.base import Description, Footprint, Summary
from collapsium.pipeline.families.ncrp import initialisation as planting
from collapsium.pipeline.families.ncrp import node_moves
from collapsium.pipeline.families.ncrp import nodes as tallies
from collapsium.pipeline.families.ncrp import prior as nested
from collapsium.pipeline.families.ncrp.node_moves import Moves
from collapsium.pipeline.families.ncrp.options import Config
from collapsium.pipeline.families.ncrp.tree_update import LONGEST, move_nodes
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.ranking import largest
from collapsium.workers.families.ncrp.documents import column_priors
from collapsium.workers.families.ncrp.initialisation import ALL
from collapsium.workers.families.ncrp.tree import Tree, ahead, swept
from collapsium.workers.special_functions import digamma, gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

CORPUS = "documents"
CHANGE = "moved"
SCHEDULES = ("batch",)
SAMPLER = False

PLANTED = 1e9  # tokens of a tree to simulate from: so many that no prior shows
MOVES = "grown", "pruned", "merged"


def initialise(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Make the globals before any document has been seen: a root alone, and how many leaves shall begin."""
    columns = config.max_nodes
    leaves = config.leaves or min(300, -(-summary.documents // 2))
    gradual = config.start == "gradual"
    most = columns // 2 if gradual else (columns - 1) * 4 // 5
    root = Tree(node_moves.first_tree(columns, 0).parents, config.depth if gradual else 2)
    end_log = nested.end_logs(
        root, nested.sticks(root, np.zeros(columns), np.zeros(columns), config.gamma), config.gamma
    )
    nothing, none = np.zeros(columns), np.zeros(0, dtype=np.int64)
    return {
        "vocabulary": np.array(float(summary.words)),
        "alpha": config.alphas(),
        "eta": config.etas(),
        "gamma": np.array(config.gamma),
        "factorised": np.array(config.form == "factorised"),
        "point": np.array(config.posterior == "point"),
        "learn_eta": np.array("eta" in config.learn),
        "document_sweeps": np.array(config.document_sweeps),
        "grow": np.array(config.growing()),
        "seeds_wanted": np.array(max(1, min(leaves, most, columns + 1 - config.depth))),
        "candidates": none,
        "seeds": none,
        "seed_columns": np.zeros((0, config.depth - 1), dtype=np.int64),
        "root_seeded": np.array(0),
        "limit": np.array(
            ALL // -(-summary.documents // planting.FIRST_DOCUMENTS)
            if gradual and summary.documents and not summary.warm
            else ALL,
            dtype=np.int64,
        ),
        "seeding": np.array(0),
        "clustering": np.array(0),  # sweeps since the clusters began
        "longest": np.array(min(LONGEST, max(1, summary.iterations // 2)) if summary.iterations else LONGEST),
        "planned": np.array(summary.iterations),
        "quiet": np.array(0),  # comparisons without a merge
        "unsettled": np.array(planting.SOME * float(summary.iterations > 0)),
        "widening": np.array(planting.widening(summary)),
        "absent": np.array(float(summary.tokens) if gradual else 0.0),  # tokens of documents that have not entered
        "another_round": np.array(0.0),
        "depth": np.array(root.depth),
        "node_parent": root.parents,
        "node_passes": nothing,
        "node_tokens": nothing,
        "end_log": np.maximum(end_log, -1e300),
        **planting.for_next(Moves(root), end_log),
        **planting.wanted(none, none, roots=False),
        **{f"{when}{name}": np.array(0) for name in MOVES for when in ("", "next_")},
    }


def footprint(summary: Summary, config: Config) -> Footprint:
    """Say what the state of a fit takes: counts in 8 bytes for each word and column, q(z) in 4 a pair and level."""
    columns = config.max_nodes
    return Footprint(
        kept=8.0 * columns,
        shown=8.0 * columns,
        swept=32.0 * columns,
        delta=8.0 * columns,
        pair=4.0 * config.depth if config.form == "factorised" else 0.0,
        document=8.0 * config.depth + 12.0 * 4,
        portion=0.0,
    )


def update(globals: Arrays, delta: Delta, config: Config, stream: Stream) -> Arrays:
    """Take the new counts, learn what is asked for, make the sticks, and move nodes.

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
        The next globals: the tree of this sweep with its paths' prior masses, and that of the next.
    """
    if "warm_parent" in delta:
        return planting.warmed(globals, delta, config)
    if "joined" not in delta and not globals["seeding"]:
        return planting.candidates(globals, delta, config, stream)
    if globals["seeding"]:
        return planting.seeded(globals, delta)
    tree = ahead(globals)
    ends = delta["ends"]
    after = {
        **globals,
        "node_parent": tree.parents,
        "depth": np.array(tree.depth),
        "node_tokens": delta["node_tokens"],
        "node_passes": tree.gathered(ends),
        "clustering": globals["clustering"] + 1,
        "absent": np.array(delta.number("absent")),
        "another_round": np.array(0.0),
        **{name: globals[f"next_{name}"] for name in MOVES},  # what moved before this sweep
    }
    after.update(_learned(after, delta, config, tree))
    gamma = float(after["gamma"])
    found = nested.sticks(tree, after["node_passes"], ends, gamma)
    after["end_log"] = np.maximum(nested.end_logs(tree, found, gamma), -1e300)
    return move_nodes(after, delta, config, tree, stream)


def _learned(globals: Arrays, delta: Delta, config: Config, tree: Tree) -> dict[str, npt.NDArray[Any]]:
    """Learn alpha, eta and gamma, each given all else."""
    found: dict[str, npt.NDArray[Any]] = {}
    if tree.depth < config.depth:
        return found
    if "alpha" in config.learn and delta.number("occupied") > 0:
        found["alpha"] = dirichlet.asymmetric(globals["alpha"], delta["log_theta"], delta.number("occupied"))
    if "gamma" in config.learn:
        gamma = float(globals["gamma"])
        sticks = nested.sticks(tree, globals["node_passes"], delta["ends"], gamma)
        found["gamma"] = np.array(nested.learned_gamma(tree, sticks, delta["ends"], gamma))
    if "eta" in config.learn:
        found["eta"] = np.array([_learned_eta(level, globals, delta, tree) for level in range(tree.depth)])
    return found


def _learned_eta(level: int, globals: Arrays, delta: Delta, tree: Tree) -> float:
    """Return the eta of a level that maximises the bound given q(w), and what is outside the tree there."""
    from scipy.optimize import minimize_scalar

    nodes, words, eta = np.flatnonzero(tree.levels == level), float(globals["vocabulary"]), float(globals["eta"][level])
    logs = float((delta["log_phi"][nodes] - words * digamma(delta["node_tokens"][nodes] + words * eta)).sum())
    outside = float(delta["level_tokens"][level] - delta["node_tokens"][nodes].sum())

    def worse(log_eta: float) -> float:
        value = float(special.exp(log_eta))
        inside = nodes.size * (gammaln(words * value) - words * gammaln(value)) + (value - 1.0) * logs
        return -float(inside + outside * (digamma(value) - digamma(words * value)))

    best = minimize_scalar(worse, bounds=(-7.0, 4.0), method="bounded", options={"xatol": 1e-6})
    return float(special.exp(best.x)) if best.fun < worse(float(special.log(eta))) else eta


def objective(globals: Arrays, delta: Delta) -> dict[str, float]:
    """Give the evidence lower bound, in nats, of the q(c), q(z) and q(theta) that the sweep has made.

    q(v) and q(w) are the best for these. With posterior 'point' it is a bound of the log likelihood of the topics and
    the penalty eta sum_w log(W w_iw) of each.

    Parameters
    ----------
    globals : Arrays
        As the sweep was made against.
    delta : Delta
        What the sweep and the folding of its rows told.

    Returns
    -------
    dict of str to float
        ``objective``; nothing before all documents have been swept.
    """
    if "bound" not in delta or delta.number("joined") < delta.number("documents"):
        return {}
    tree, ends = ahead(globals), delta["ends"]
    gamma = float(globals["gamma"])
    found = nested.sticks(tree, tree.gathered(ends), ends, gamma)
    value = delta.number("bound") + nested.sticks_bound(tree, found, ends, gamma)
    words, prior = float(globals["vocabulary"]), column_priors(globals, tree)[tree.columns]
    tokens, sums = delta["node_tokens"][tree.columns], delta["node_sum"][tree.columns]
    whole = tokens + words * prior
    if globals["point"]:
        value += float((sums - whole * special.log(whole) + words * prior * special.log(words)).sum())
    else:
        value += float((sums - gammaln(whole) + gammaln(words * prior)).sum())
    return {"objective": value}


def figures(globals: Arrays) -> dict[str, float]:
    """Give the nodes and leaves, how many nodes moved before the sweep, and the hyperparameters that may be learned."""
    tree = swept(globals)
    found = {"nodes": float(tree.columns.size), "leaves": float((tree.levels == tree.depth - 1).sum())}
    found.update({name: float(globals[name]) for name in (*MOVES, "gamma")})
    found.update({f"alpha_{level}": float(value) for level, value in enumerate(globals["alpha"])})
    return found


def describe(block: Arrays, globals: Arrays, count: int) -> Description:
    """Describe the nodes depth-first, siblings by falling share of the documents; an id is that of its column."""
    tree = swept(globals)
    columns = tallies.depth_first(tree.parents, globals["node_passes"])
    prior = column_priors(globals, tree)[columns]
    tokens = globals["node_tokens"][columns]
    mean = (block["word_topic"][:, columns] + prior) / (tokens + float(globals["vocabulary"]) * prior)
    top = largest(mean.T, count)
    share = tokens / max(tokens.sum(), 1e-300)
    return Description(columns, share, top, np.take_along_axis(mean.T, top, axis=1), parent=tree.parents[columns])


def truth(summary: Summary, config: Config, stream: Stream) -> tuple[Arrays, Arrays]:
    """Draw a tree in which each node has as many children as ``branching`` says, to simulate from."""
    parents = tallies.planted([int(one) for one in np.resize(config.branching, config.depth - 1)])
    tree = Tree(parents, config.depth)
    share = 1.0 / np.bincount(tree.levels)[tree.levels]  # of the documents
    tokens = PLANTED * share * (config.alphas() / config.alphas().sum())[tree.levels]
    passes = PLANTED * share
    ends = np.where(tree.levels == tree.depth - 1, passes, 0.0)
    sticks = nested.sticks(tree, passes, ends, config.gamma)
    globals_ = {
        **initialise(summary, config, stream),
        "eta": np.full(config.depth, 1e-9 / summary.words),
        "depth": np.array(config.depth),
        "node_parent": parents,
        "node_tokens": tokens,
        "node_passes": passes,
        "end_log": np.maximum(nested.end_logs(tree, sticks, config.gamma), -1e300),
    }
    return drawing.draw_topics(summary.words, tokens, summary.words * config.etas()[tree.levels], stream), globals_


def simulate(
    rows: Arrays,
    globals: Arrays,
    documents: int,
    tokens: float,
    stream: Stream,
) -> tuple[Documents, npt.NDArray[np.float64]]:
    """Draw documents: paths to all leaves are as likely, theta_n ~ Dir(alpha); give their proportions at nodes too."""
    generator, tree = stream.generator(), swept(globals)
    node = generator.choice(np.flatnonzero(tree.levels == tree.depth - 1), documents)
    share = drawing.draw_proportions(np.asarray(globals["alpha"], dtype=np.float64), documents, generator)
    theta = np.zeros((documents, tree.parents.size))
    for level in range(tree.depth - 1, -1, -1):
        theta[np.arange(documents), node] = share[:, level]
        node = tree.parents[node]
    return drawing.draw_bags(rows, int(globals["vocabulary"]), theta, tokens, generator), theta
