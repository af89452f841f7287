"""Hierarchical component analysis: vectors on the paths of a Gaussian tree, by variational inference (Wang, Blei 2009).

c_n ~ nCRP(gamma), x_n ~ N(0, I_L), t_n ~ N(W_{c_n} x_n + mu, I / tau), w_i and mu ~ N(0, s0 I), tau ~ Gamma.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from collapsium.pipeline.families.base import Description, FamilyConfig, Footprint, Summary
from collapsium.pipeline.families.hca import generative as planted
from collapsium.pipeline.families.hca import leaf_merges as pooling
from collapsium.pipeline.families.hca import posterior as gaussian
from collapsium.pipeline.families.hca import shared_paths as chains
from collapsium.pipeline.families.hca import tree_moves as splitting
from collapsium.pipeline.families.hca.initialisation import Begun
from collapsium.pipeline.families.hca.posterior import Components, Prior, Sums
from collapsium.pipeline.families.hca.tree_moves import Judge
from collapsium.pipeline.families.ncrp import nodes as tallies
from collapsium.pipeline.families.ncrp import prior as nested
from collapsium.pipeline.families.ncrp.prior import Moves
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.ranking import largest
from collapsium.workers.families.hca.hca import CLUSTERS, SEEDING, TREE, loadings
from collapsium.workers.families.ncrp.tree import Tree, ahead, swept

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
POOLING = 6  # sweeps between two looks for chains that span the same
EVERY = 3  # iterations between two looks for nodes that are better merged
SHRINKING = 0.35  # nodes of a level for each of the level below
MOVES = "grown", "pruned", "merged"


class Config(FamilyConfig, title="hierarchical component analysis: a Gaussian tree on vectors, variational"):
    """Options of the family."""

    depth: int = Field(2, ge=1, le=8, description="levels L of the tree: components that a vector has")
    max_nodes: int = Field(30, ge=1, le=1024, description="most nodes that the tree may have")
    gamma: float = Field(1.0, gt=0, description="concentration of each node's children")
    form: Literal["conditional", "factorised"] = Field(
        "conditional",
        description="conditional: q(c) q(x | c), the tighter bound; factorised: q(c) q(x), that of Wang and Blei",
    )
    prior_variance: float = Field(1000.0, gt=0, description="variance s0 of each loading, and of the mean")
    tau_shape: float = Field(0.001, gt=0, description="shape of tau's Gamma prior; tau: precision of the noise")
    tau_rate: float = Field(0.001, gt=0, description="rate of tau's Gamma prior")
    prune: float = Field(1e-6, ge=0, description="vectors below which a node is dropped")
    merge: float = Field(
        0.95, gt=0, le=1, description="cosine of two sibling leaves' vectors above which they become one; 1 for never"
    )
    split: bool = Field(
        True, description="whether leaves are parted on trial, in a full tree with a merge elsewhere (SMEM)"
    )
    compare: bool = Field(True, description="whether siblings become one where the bound is larger then")
    branching: tuple[int, ...] = Field(
        (3,), description="to simulate from: children of each node, one number for all levels but the last, or a list"
    )
    loading_scale: float = Field(3.0, gt=0, description="to simulate from: standard deviation of loadings and mean")
    noise_scale: float = Field(0.3, gt=0, description="to simulate from: standard deviation of the noise")

    @field_validator("branching")
    @classmethod
    def _above_zero(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 1:
            raise ValueError("expected numbers above zero")
        return value

    @model_validator(mode="after")
    def _a_node_a_level(self) -> Config:
        if self.max_nodes < self.depth:
            raise ValueError(f"max_nodes: expected at least {self.depth}, a node a level")
        if len(self.branching) not in (1, self.depth - 1):
            raise ValueError(f"branching: expected one value, or {self.depth - 1} with a depth of {self.depth}")
        return self

    def prior(self) -> Prior:
        """Return the priors."""
        return Prior(self.prior_variance, self.tau_shape, self.tau_rate)

    def sizes(self) -> list[int]:
        """Return how many nodes each level begins with: a root, and as many leaves as leave room for the others."""
        for leaves in range(self.max_nodes, 0, -1):
            above = [
                max(1, round(leaves * SHRINKING ** (self.depth - 1 - level))) for level in range(1, self.depth - 1)
            ]
            found = [1, *above, leaves][-self.depth :] if self.depth > 1 else [1]
            if sum(found) <= self.max_nodes:
                return [*found[:-1], found[-1] + self.max_nodes - sum(found)] if self.depth > 1 else found
        return [1] * self.depth


def initialise(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Make the globals before any vector has been seen."""
    seeds = max(1, min(SEEDS * config.sizes()[-1], summary.documents))
    columns = max(config.max_nodes, seeds, 1 + config.sizes()[-1] * config.depth)
    chained = config.depth > 2
    root = nested.first_tree(columns, 0)
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
        **_held(found),
        "end_log": np.maximum(nested.end_logs(tree, sticks, config.gamma), -1e300),
        "rounds": np.array(rounds),
        "apart": np.array(int(config.form == "factorised" and began)),
        "another_round": np.array(0.0),
        "restoring": np.array(0),
        "probe_scale": 1.0 / np.sqrt(np.where(delta["probe_square"] > 0.0, delta["probe_square"], 1.0)),
        **{name: globals[f"next_{name}"] for name in MOVES},
    }
    if int(globals["chained"]):
        return {**after, **again, **_chained(tree, sums, found, ends, config, int(globals["chained"]) - 1)}
    swept_ = _Swept(sums, whole, found, delta, ends, passes, objective(globals, delta)["objective"])
    if int(globals["trial_left"]):
        after = _tried(after, swept_, config)
        if float(after["another_round"]):
            return after
    return _moved(after, swept_, config)


def _sums(globals: Arrays, delta: Delta) -> Sums:
    square, beyond, documents = (delta.number(name) for name in ("square", "beyond", "documents"))
    return Sums(delta["second"], delta["products"], square, beyond, documents, float(globals["vocabulary"]))


@dataclass(frozen=True)
class _Swept:
    """What a sweep came to: sums of the tree, and with a side of a leaf; the best q given them; and the bound."""

    sums: Sums
    whole: Sums
    found: Components
    delta: Delta
    ends: npt.NDArray[np.float64]
    passes: npt.NDArray[np.float64]
    bound: float


def _tried(after: dict[str, npt.NDArray[Any]], told: _Swept, config: Config) -> dict[str, npt.NDArray[Any]]:
    """Go on with a split on trial; at its end keep it, or go back to what was before."""
    left = int(after["trial_left"]) - 1
    if left:
        moves = _eased(Moves(swept(after)), told, after, config)
        more = {"trial_left": np.array(left), "another_round": np.array(1.0)}
        return {**after, **_ahead(moves, told.sums, told.found, told.ends, config, told.ends), **more}
    if not splitting.surpassed(after, told.bound):
        return splitting.restored(after)
    return {**splitting.accepted(after), "grown": np.array(1)}


def _eased(moves: Moves, told: _Swept, after: Arrays, config: Config) -> Moves:
    """Bring factors to their prior, unless vectors keep them."""
    if int(after["apart"]):
        return moves
    return gaussian.expanded(moves, told.sums, told.passes, config.prior(), told.found.tau)


def _moved(after: dict[str, npt.NDArray[Any]], told: _Swept, config: Config) -> Arrays:
    """Move nodes, or put a split on trial, or name the leaf that the coming sweep shall part."""
    tree = swept(after)
    compare = int(after["rounds"]) % EVERY == 0
    moves = _moves(Moves(tree), told.sums, told.found, told.delta, config, told.passes, compare=compare)
    still = not sum(moves.counts.values())
    brought = told.ends if still else moves.summed(told.ends)
    if still:
        moves = _eased(moves, told, after, config)
    begun = config.form == "conditional" or bool(after["apart"])
    after["another_round"] = np.array(float(not begun))  # the first iteration has a bound of the form asked for
    onward = {**after, **_ahead(moves, told.sums, told.found, told.ends, config, brought)}
    calm = int(after["calm"]) + 1 if still and begun and splitting.steady(after, told.bound) else 0
    split, named = after["split"], np.full(3, -1)
    onward.update(calm=np.array(calm), split=named)
    if int(split[0]) >= 0:
        trial = _parted(tree, split, told, config) if calm else None
        if trial is not None:
            return splitting.on_trial(onward, trial, int(split[0]), told.bound)
        onward["tried"] = splitting.in_vain(after, int(split[0]))
    elif config.split and calm >= splitting.CALM:
        named = splitting.chosen(after, tree, told.delta["probe_gain"], told.ends, told.found.tau)
    return {**onward, "split": named, "last_bound": np.array(told.bound)}


def _parted(
    tree: Tree, split: npt.NDArray[np.int64], told: _Swept, config: Config
) -> dict[str, npt.NDArray[Any]] | None:
    """Return the globals of a tree with a leaf parted and, where it is full, the pair merged that is missed least."""
    moves, ends = splitting.parted(tree, split, told.delta["ends"])
    if min(ends[split[:2]]) < 1.0:
        return None
    if tree.columns.size >= config.max_nodes:
        sums, kept = told.whole.moved(moves), (int(split[0]), int(split[1]))
        pair = _judge(sums, told.found, config).best_pair(Moves(moves.tree), ends, kept)[0]
        if pair is None:
            return None
        moves = moves.merged([pair[:2]], pair[2])
        ends[pair[0]] += ends[pair[1]]
        ends[pair[1]] = 0.0
    return _ahead(moves, told.whole, told.found, ends, config, ends)


def _held(found: Components, which: str = "") -> dict[str, npt.NDArray[Any]]:
    return {f"{which}{name}": getattr(found, name) for name in ("solve", "gram", "spread")}


def _chained(
    tree: Tree, sums: Sums, found: Components, ends: npt.NDArray[np.float64], config: Config, left: int
) -> dict[str, npt.NDArray[Any]]:
    """Sweep chains once more or, when that has been often enough, join them to a tree; pool those that are the same."""
    moves, brought = Moves(tree), ends
    if left % POOLING == 0:
        moves, brought = pooling.pooled(tree, sums, found, ends, config.prior(), config.gamma)
        left += POOLING * bool(moves.sources)  # as those that are left shall settle
    if left:
        if not moves.sources:
            moves = gaussian.expanded(moves, sums, tree.gathered(ends), config.prior(), found.tau)
        return {**_ahead(moves, sums, found, ends, config, brought), "chained": np.array(left)}

    moves, brought = chains.joined(tree, sums, found, ends, config.sizes(), config.prior(), config.gamma)
    return {**_ahead(moves, sums, found, ends, config, brought), "chained": np.array(left)}


def _ahead(
    moves: Moves,
    sums: Sums,
    found: Components,
    ends: npt.NDArray[np.float64],
    config: Config,
    brought: npt.NDArray[np.float64] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return what the next sweep is made with: components and sticks of the tree that has moved, and KL(q | p)."""
    if moves.sources or sum(moves.counts.values()):
        sums, ends = sums.moved(moves), moves.summed(ends) if brought is None else brought
        found = gaussian.fitted(sums, config.prior(), found.tau)
    tree, gamma = moves.tree, config.gamma
    sticks = nested.sticks(tree, tree.gathered(ends), ends, gamma)
    new = [column for column, made in moves.sources.items() if not made]
    sticks.a[new], sticks.b[new] = 1.0, gamma
    kl = gaussian.divergence(found, tree.columns, config.prior(), sums.words)
    kl += nested.sticks_divergence(tree, sticks, gamma)
    return {
        **_held(found, "next_"),
        "tau": np.array(found.tau),
        "log_tau": np.array(found.log_tau),
        "kl": np.array(kl),
        "next_parent": tree.parents,
        "next_depth": np.array(tree.depth),
        "next_end_log": np.maximum(nested.end_logs(tree, sticks, gamma), -1e300),
        **moves.table(),
        **{f"next_{name}": np.array(count) for name, count in moves.counts.items()},
    }


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
    ahead_ = _ahead(Moves(begun.tree), sums, found, begun.ends(counts), config)
    return {**globals, "stage": np.array(TREE), **ahead_, **Moves(begun.tree, begun.sources).table()}


def _moves(
    moves: Moves,
    sums: Sums,
    found: Components,
    delta: Delta,
    config: Config,
    passes: npt.NDArray[np.float64],
    *,
    compare: bool,
) -> Moves:
    """Merge leaves whose vectors are the same, prune, and merge what the bound prefers as one."""
    tree = moves.tree
    if config.merge < 1.0:
        moves = moves.merged(nested.alike_paths(tree, delta["alike"], config.merge))
    moves = moves.pruned(moves.summed(passes), config.prune)
    if compare and config.compare and not moves.sources and tree.columns.size > 1:
        return _judge(sums, found, config).compared(moves, delta["ends"])
    return moves


def _judge(sums: Sums, found: Components, config: Config) -> Judge:
    return Judge(sums, found, config.prior(), config.gamma)


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
