"""Trees of topics by the nested Chinese restaurant process, Gibbs sampling (Blei, Griffiths, Jordan, Tenenbaum 2003).

c_d ~ nCRP(gamma), a path of L nodes from the root down; theta_d ~ Dir(alpha_1..alpha_L); a token's level z ~ theta_d,
its word from the path's node of that level, phi_i ~ Dir(eta_l, ..., eta_l). Nodes are born and die.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from collapsium.pipeline.families import generative as drawing
from collapsium.pipeline.families.base import Description, FamilyConfig, Footprint, Summary
from collapsium.pipeline.families.gibbs import common as gibbs
from collapsium.pipeline.families.hyperparameters import slice_sampled
from collapsium.pipeline.families.ncrp import nodes as tallies
from collapsium.storage.errors import NumericalError
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.ranking import largest
from collapsium.workers.families.gibbs.common import MOST, padded
from collapsium.workers.families.ncrp.gibbs_ncrp import hung, with_columns, word_probability
from collapsium.workers.families.ncrp.gibbs_state import levels
from collapsium.workers.kernels.trees.gibbs_records import FREE

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

CHANGE = "moved"
SCHEDULES = gibbs.SCHEDULES
SAMPLER = True
CORPUS = "documents"
LANES = 16  # shards whose new nodes have slots of their own in one iteration; more take turns
SPARE = 2  # paths for which a lane has free slots, at least, before a sweep
EXPECTED = 1000  # nodes that a plan reckons with
PLANTED = 1e9  # tokens of a tree to simulate from: so many that the prior does not show

Learned = Literal["eta", "alpha", "gamma"]


class Config(FamilyConfig, title="trees of topics: nested Chinese restaurant process, Gibbs sampling"):
    """Options of the family."""

    depth: int = Field(3, ge=2, le=8, description="levels of the tree L, the root's and the leaves' included")
    eta: tuple[float, ...] = Field(
        (0.1,),
        description="Dirichlet parameter of each word at a node: one for all levels, or a list of one each; less makes "
        "more nodes",
    )
    alpha: tuple[float, ...] = Field(
        (1.0,), description="Dirichlet parameter of each level in a document: one for all, or a list of one each"
    )
    gamma: float = Field(1.0, gt=0, description="concentration of the paths; more makes more nodes")
    learn: tuple[Learned, ...] = Field(
        ("eta", "alpha", "gamma"),
        description="what is sampled: eta, alpha, gamma; each begins at its option, the mean of its exponential prior, "
        "and eta and alpha have a value a level",
    )
    entry: Literal["apart", "together"] = Field(
        "apart",
        description="how a document begins: apart, on a path of its own; together, on one that its words fit, which "
        "ends with fewer nodes",
    )
    branching: tuple[int, ...] = Field(
        (3,), description="to simulate from: children of each node, one number for all levels but the last, or a list"
    )

    @field_validator("eta", "alpha", "branching")
    @classmethod
    def _above_zero(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value or min(value) < 1e-9:
            raise ValueError("expected numbers above zero")
        return value

    @model_validator(mode="after")
    def _as_many_as_levels(self) -> Config:
        for name, wanted in (("eta", self.depth), ("alpha", self.depth), ("branching", self.depth - 1)):
            found = len(getattr(self, name))
            if found not in (1, wanted):
                raise ValueError(f"{name}: expected one value, or {wanted} with a depth of {self.depth}")
        return self


def initialise(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Make the globals before any document has been seen: a root or, for a warm start, a path for each topic below."""
    lanes, deeper = min(max(summary.shards, 1), LANES), config.depth - 1
    planted = 1 + summary.warm * deeper
    parent = np.full(padded(planted + SPARE * lanes * deeper), FREE, dtype=np.int64)
    parent[0] = -1
    node = np.arange(1, planted)
    parent[node] = np.where((node - 1) % deeper == 0, 0, node - 1)
    return {
        "vocabulary": np.array(float(summary.words)),
        "shards": np.array(max(summary.shards, 1)),
        "lanes": np.array(lanes),
        "planted": np.array(summary.warm),
        "apart": np.array(config.entry == "apart"),
        "eta": np.resize(np.array(config.eta), config.depth),
        "alpha": np.resize(np.array(config.alpha), config.depth),
        "gamma": np.array(config.gamma),
        "node_parent": parent,
        "node_documents": np.zeros(parent.size, dtype=np.int64),
        "topic": np.zeros(parent.size, dtype=np.int64),
        "free": parent == FREE,
        "another_round": np.array(0),
    }


def footprint(summary: Summary, config: Config) -> Footprint:
    """Say what the state of a fit takes, with 1000 nodes: a byte a token, 8 bytes a document and level."""
    slots, deeper = padded(EXPECTED + SPARE * LANES * (config.depth - 1)), 8.0 * config.depth
    pair = summary.tokens / max(summary.pairs, 1)
    return Footprint(
        kept=4.0 * slots,
        shown=4.0 * slots,
        swept=4.0 * slots,
        delta=4.0 * slots,
        pair=pair,
        document=deeper,
        portion=2.0 * (pair * summary.pairs + deeper * summary.documents) + 8.0 * summary.tokens,
    )


def update(globals: Arrays, delta: Delta, config: Config, stream: Stream) -> Arrays:
    """Add the changes of the counts and the tree, draw eta, alpha and gamma, and make room for nodes that will be born.

    Each is drawn by slice sampling (Neal 2003) of its logarithm, from its part of `objective` and its prior.

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
        The next globals. A slot is free where no document passes a node; while there are documents outside the tree,
        ``another_round`` lets them in.

    Raises
    ------
    NumericalError
        There are too many nodes.
    """
    after = _counted(globals, delta)
    if "tokens" in delta:
        after.update(_drawn(after, delta, config, stream.generator()))
    after["another_round"] = np.array(int(delta.number("outside") > 0))
    lanes, columns = int(globals["lanes"]), after["free"].size
    least = SPARE * (config.depth - 1)
    free = np.flatnonzero(after["free"])
    if np.bincount(free % lanes, minlength=lanes).min() < min(least, max(least, 8) // lanes + 1):
        columns = padded(columns + columns // 8 + 1)
    if columns > MOST:
        raise NumericalError(f"more than {MOST} nodes are asked for; take a smaller gamma or a larger eta")
    return with_columns(after, columns)


def _counted(globals: Arrays, delta: Delta) -> dict[str, npt.NDArray[Any]]:
    """Return globals after a delta's counts and nodes."""
    topic = gibbs.counted(globals, delta)
    after = {**with_columns(globals, topic.size), "topic": topic}
    if "node_documents" in delta:
        after = {**hung(after, delta)}
    return {**after, "free": after["node_parent"] == FREE}


def _drawn(after: Arrays, delta: Delta, config: Config, generator: np.random.Generator) -> Arrays:
    """Draw the parameters given the sample; each one's logarithm, its exponential prior's mean being its option."""
    known, found = tallies.Tallies.of(after, delta), {name: np.array(after[name]) for name in ("eta", "alpha", "gamma")}
    means = {"eta": np.resize(config.eta, config.depth), "alpha": np.resize(config.alpha, config.depth)}
    if "eta" in config.learn:
        for level, mean in enumerate(means["eta"]):

            def of_words(eta: float, level: int = level) -> float:
                return known.log_words(level, eta)

            found["eta"][level] = slice_sampled(of_words, float(found["eta"][level]), mean, generator)
    if "alpha" in config.learn:
        for level, mean in enumerate(means["alpha"]):

            def of_levels(alpha: float, level: int = level) -> float:
                return known.log_level(level, alpha) + known.log_documents(
                    float(found["alpha"].sum() - found["alpha"][level] + alpha)
                )

            found["alpha"][level] = slice_sampled(of_levels, float(found["alpha"][level]), mean, generator)
    if "gamma" in config.learn:
        found["gamma"] = np.array(slice_sampled(known.log_paths, float(found["gamma"]), config.gamma, generator))
    return found


def objective(globals: Arrays, delta: Delta) -> dict[str, float]:
    """Give log p(w, z, c | eta, alpha, gamma) of the sample, in nats: theta, phi and the restaurants summed out.

    sum_i log G(W eta_l) / G(W eta_l + n_i) + sum_iw log G(eta_l + n_iw) / G(eta_l) + sum_d log G(A) / G(A + n_d)
    + sum_dl log G(alpha_l + n_dl) / G(alpha_l) + sum_i [K_i log gamma + log G(gamma) / G(gamma + m_i)
    + sum_j log G(m_j)], with K_i children j of an inner node i, and m documents that pass a node.

    Parameters
    ----------
    globals : Arrays
        As the sweep was made against.
    delta : Delta
        What the sweep and the folding of its rows told.

    Returns
    -------
    dict of str to float
        ``objective``; none before the first sweep, and while there are documents outside the tree.
    """
    if "tokens" not in delta or delta.number("outside"):
        return {}
    known = tallies.Tallies.of(_counted(globals, delta), delta)
    eta, alpha = globals["eta"], globals["alpha"]
    words = sum(known.log_words(level, float(one)) for level, one in enumerate(eta))
    documents = sum(known.log_level(level, float(one)) for level, one in enumerate(alpha))
    passing = globals["gamma"]
    paths = known.log_paths(float(passing)) + known.log_seats()
    return {"objective": words + documents + known.log_documents(float(alpha.sum())) + paths}


def figures(globals: Arrays) -> dict[str, float]:
    """Give the numbers of nodes and leaves, and eta, alpha and gamma."""
    level = levels(globals["node_parent"])
    depth = globals["alpha"].size
    found = {"nodes": float((level >= 0).sum()), "leaves": float((level == depth - 1).sum())}
    for name in ("eta", "alpha"):
        found.update({f"{name}_{one}": float(value) for one, value in enumerate(globals[name])})
    return {**found, "gamma": float(globals["gamma"])}


def describe(block: Arrays, globals: Arrays, count: int) -> Description:
    """Describe the nodes, depth first, siblings by falling numbers of documents; an id is that of a node's slot."""
    parent, topic = np.asarray(globals["node_parent"]), np.asarray(globals["topic"], dtype=np.float64)
    ids = tallies.depth_first(parent, np.asarray(globals["node_documents"]))
    phi = word_probability(block, globals)[:, ids].T
    top = largest(phi, count)
    share = topic[ids] / max(float(topic.sum()), 1e-300)
    return Description(ids, share, top, np.take_along_axis(phi, top, axis=1), parent[ids])


def truth(summary: Summary, config: Config, stream: Stream) -> tuple[Arrays, Arrays]:
    """Draw a tree in which each node has as many children as ``branching`` says, to simulate from."""
    parent = tallies.planted([int(one) for one in np.resize(config.branching, config.depth - 1)])
    level = levels(parent)
    eta = np.resize(np.array(config.eta, dtype=np.float64), config.depth)
    alpha = np.resize(np.array(config.alpha, dtype=np.float64), config.depth)
    share = 1.0 / np.bincount(level)[level]  # of the documents
    tokens = PLANTED * share * (alpha / alpha.sum())[level]
    globals_ = {
        **initialise(summary, config, stream),
        "eta": np.full(config.depth, 1e-9 / summary.words),
        "node_parent": parent,
        "node_documents": PLANTED * share,
        "topic": tokens,
        "free": np.zeros(parent.size, dtype=bool),
    }
    return drawing.draw_topics(summary.words, tokens, summary.words * eta[level], stream), globals_


def simulate(
    rows: Arrays,
    globals: Arrays,
    documents: int,
    tokens: float,
    stream: Stream,
) -> tuple[Documents, npt.NDArray[np.float64]]:
    """Draw documents: paths to all leaves are as likely, theta_d ~ Dir(alpha); give their proportions at nodes too."""
    generator = stream.generator()
    parent, alpha = np.asarray(globals["node_parent"]), np.asarray(globals["alpha"], dtype=np.float64)
    node = generator.choice(np.flatnonzero(levels(parent) == alpha.size - 1), documents)
    share = drawing.draw_proportions(alpha, documents, generator)
    theta = np.zeros((documents, parent.size))
    for level in range(alpha.size - 1, -1, -1):
        theta[np.arange(documents), node] = share[:, level]
        node = parent[node]
    return drawing.draw_bags(rows, int(globals["vocabulary"]), theta, tokens, generator), theta
