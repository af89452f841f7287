"""Trees of topics by the nested Chinese restaurant process, Gibbs sampling (Blei, Griffiths, Jordan, Tenenbaum 2003).

c_d ~ nCRP(gamma), a path of L nodes from the root down; theta_d ~ Dir(alpha_1..alpha_L); a token's level z ~ theta_d,
its word from the path's node of that level, phi_i ~ Dir(eta_l, ..., eta_l). Nodes are created and removed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from collapsium.pipeline.families import generative
from collapsium.pipeline.families.base import Description, FamilyOptions, Footprint, Simulates, Summary
from collapsium.pipeline.families.hyperparameters import slice_sampled
from collapsium.pipeline.families.ncrp.node_moves import depth_first, regular_tree
from collapsium.storage.errors import NumericalError, OptionError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.ranking import largest
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.gibbs.states import MAX_TOPICS
from collapsium.workers.families.gibbs.token_counts import padded
from collapsium.workers.families.ncrp.gibbs_ncrp import GibbsNcrpShardModel
from collapsium.workers.families.ncrp.gibbs_state import (
    GibbsNcrpGlobalState,
    GibbsNcrpRows,
    GibbsNcrpSums,
    Histograms,
    levels,
)
from collapsium.workers.kernels.trees.gibbs_records import FREE
from collapsium.workers.special_functions import gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SampleProbability:
    """Log probability of a sample of paths and levels, in parts that each depend on one hyperparameter."""

    words: int  # W
    tokens: list[Ints]  # n_i of the nodes of the level
    word_histogram: Ints  # Words and nodes of the level that have each count; int64 (levels, word counts)
    word_counts: Ints  # The counts; int64 (word counts,)
    # Documents that have each count of tokens at a level and, last, in all; int64 (level counts, levels + 1)
    level_histogram: Ints
    level_counts: Ints  # The counts; int64 (level counts,)
    # Documents that pass each, and its children; int64 (inner nodes,)
    passing: Ints
    children: Ints
    seats: Ints  # Documents that pass each; int64 (nodes but the root,)

    @classmethod
    def of(cls, global_state: GibbsNcrpGlobalState, histograms: Histograms) -> SampleProbability:
        """Return the probability of the sample of a round."""
        parent, depth = global_state.node_parent, global_state.alpha.size
        documents, tokens = (
            counts.astype(np.int64, copy=False) for counts in (global_state.node_documents, global_state.topic)
        )
        level, group = global_state.levels, histograms.group_ids
        group_level = np.where(group < depth, group, level[np.maximum(group - depth, 0)])
        word_histogram = np.zeros((depth, histograms.word_histogram.shape[1]), dtype=np.int64)
        np.add.at(word_histogram, group_level, histograms.word_histogram)
        inner = np.flatnonzero((level >= 0) & (level < depth - 1) & (documents > 0))
        below = np.flatnonzero(level > 0)
        return cls(
            global_state.words,
            [tokens[level == one] for one in range(depth)],
            word_histogram,
            histograms.word_count_ids,
            histograms.level_histogram,
            histograms.level_count_ids,
            documents[inner],
            np.bincount(parent[below], minlength=parent.size)[inner],
            documents[below],
        )

    def log_words(self, level: int, eta: float) -> float:
        """Return sum_i log G(W eta) / G(W eta + n_i) + sum_iw log G(eta + n_iw) / G(eta) over the nodes of a level."""
        total = self.words * eta
        log_rising = self.word_histogram[level] * (gammaln(eta + self.word_counts) - gammaln(eta))
        return float(log_rising.sum() + (gammaln(total) - gammaln(total + self.tokens[level])).sum())

    def log_level(self, level: int, alpha: float) -> float:
        """Return sum_d log G(alpha + n_dl) / G(alpha)."""
        rising = gammaln(alpha + self.level_counts) - gammaln(alpha)
        return float((self.level_histogram[:, level] * rising).sum())

    def log_documents(self, total: float) -> float:
        """Return sum_d log G(A) / G(A + n_d)."""
        return float((self.level_histogram[:, -1] * (gammaln(total) - gammaln(total + self.level_counts))).sum())

    def log_paths(self, gamma: float) -> float:
        """Return sum_i K_i log gamma + log G(gamma) / G(gamma + m_i) over the inner nodes."""
        falling = gammaln(gamma) - gammaln(gamma + self.passing)
        return float(self.children.sum() * special.log(gamma) + falling.sum())

    def log_seats(self) -> float:
        """Return sum_j log G(m_j) over all nodes but the root: the part of the paths that does not depend on gamma."""
        return float(gammaln(self.seats).sum())


MAX_LANES = 16  # Shards that create nodes in slots of their own in one iteration; more shards share slots
SPARE_PATHS = 2  # Paths for which a lane has free slots before a sweep, at least
EXPECTED_NODES = 1000  # Assumed nodes of a tree, to estimate memory
SIMULATED_TOKENS = 1e9  # Tokens of a simulated tree, so many that the prior is negligible

Learned = Literal["eta", "alpha", "gamma"]


class GibbsNcrpOptions(FamilyOptions, title="nested Chinese restaurant process: a tree of topics, Gibbs sampling"):
    """Options of `GibbsNcrp`."""

    depth: int = Field(3, ge=2, le=8, description="number of levels L of the tree, root and leaves included")
    eta: tuple[float, ...] = Field(
        (0.1,),
        description="Dirichlet parameter eta of each word at a node: one value, or a list with one for each "
        "level; smaller values give more nodes",
    )
    alpha: tuple[float, ...] = Field(
        (1.0,),
        description="Dirichlet parameter alpha of each level in a document: one value, or a list with one for "
        "each level",
    )
    gamma: float = Field(
        1.0, gt=0, description="concentration of the nested Chinese restaurant process; larger values give more nodes"
    )
    learn: tuple[Learned, ...] = Field(
        ("eta", "alpha", "gamma"),
        description="hyperparameters to sample: eta, alpha, gamma. Each starts at its option, which is the "
        "mean of its exponential prior; eta and alpha have one value for each level",
    )
    entry: Literal["apart", "together"] = Field(
        "apart",
        description="initial path of a document: apart, a path of its own; together, a path that fits its "
        "words, which ends with fewer nodes",
    )
    branching: tuple[int, ...] = Field(
        (3,),
        description="simulate: children of each node, one number for all levels but the last, or a list with "
        "one number for each",
    )

    @field_validator("eta", "alpha", "branching")
    @classmethod
    def _above_zero(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value or min(value) < 1e-9:
            raise ValueError(f"expected numbers above zero, found {list(value)}")
        return value

    @model_validator(mode="after")
    def _as_many_as_levels(self) -> GibbsNcrpOptions:
        for name, expected in (("eta", self.depth), ("alpha", self.depth), ("branching", self.depth - 1)):
            if len(getattr(self, name)) not in (1, expected):
                raise OptionError(f"expected 1 value or {expected}, found {len(getattr(self, name))}", name)
        return self


class GibbsNcrp(Simulates[GibbsNcrpOptions, GibbsNcrpGlobalState, GibbsNcrpRows]):
    """The nested Chinese restaurant process by collapsed Gibbs sampling."""

    shard_model = GibbsNcrpShardModel
    Options = GibbsNcrpOptions
    is_sampler = True

    def initialise(self, summary: Summary, options: GibbsNcrpOptions, stream: Stream) -> GibbsNcrpGlobalState:
        """Return a tree of a root or, for a warm start, also a path for each topic below it."""
        lanes, deeper = min(max(summary.shards, 1), MAX_LANES), options.depth - 1
        nodes = 1 + summary.warm * deeper
        parent = np.full(padded(nodes + SPARE_PATHS * lanes * deeper), FREE, dtype=np.int64)
        parent[0] = -1
        node = np.arange(1, nodes)
        parent[node] = np.where((node - 1) % deeper == 0, 0, node - 1)
        return GibbsNcrpGlobalState(
            vocabulary=float(summary.words),
            shards=max(summary.shards, 1),
            lanes=lanes,
            warm_topics=summary.warm,
            alpha=np.resize(np.array(options.alpha), options.depth),
            eta=np.resize(np.array(options.eta), options.depth),
            gamma=options.gamma,
            node_parent=parent,
            node_documents=np.zeros(parent.size, dtype=np.int64),
            topic=np.zeros(parent.size, dtype=np.int64),
            free=parent == FREE,
            another_round=False,
        )

    def footprint(self, summary: Summary, options: GibbsNcrpOptions) -> Footprint:
        """Return the memory of a fit with 1000 nodes: a byte a token, 8 bytes a document and level."""
        slots, deeper = padded(EXPECTED_NODES + SPARE_PATHS * MAX_LANES * (options.depth - 1)), 8.0 * options.depth
        pair = summary.tokens / max(summary.pairs, 1)
        return Footprint(
            rows=4.0 * slots,
            shown=4.0 * slots,
            swept=4.0 * slots,
            delta=4.0 * slots,
            pair=pair,
            document=deeper,
            chunk=2.0 * (pair * summary.pairs + deeper * summary.documents) + 8.0 * summary.tokens,
        )

    def update(
        self, global_state: GibbsNcrpGlobalState, delta: Delta, options: GibbsNcrpOptions, stream: Stream
    ) -> GibbsNcrpGlobalState:
        """Add the changes of the counts and the tree, draw eta, alpha and gamma, and add free slots.

        Each is drawn by slice sampling (Neal 2003) of its logarithm, from its part of `objective` and its prior.
        """
        sums = GibbsNcrpSums.of(delta)
        after = replace(global_state.counted(sums), another_round=sums.outside > 0)
        if sums.histograms is not None:
            probability = SampleProbability.of(after, sums.histograms)
            after = _drawn(after, probability, options, stream.generator())
        lanes, columns = global_state.lanes, after.free.size
        least = SPARE_PATHS * (options.depth - 1)
        free = np.flatnonzero(after.free)
        if np.bincount(free % lanes, minlength=lanes).min() < min(least, max(least, 8) // lanes + 1):
            columns = padded(columns + columns // 8 + 1)
        if columns > MAX_TOPICS:
            raise NumericalError(f"the tree has more than {MAX_TOPICS} nodes; use a smaller gamma or a larger eta")
        return after.with_slots(columns)

    def needs_another_round(self, global_state: GibbsNcrpGlobalState) -> bool:
        """Return true if there are documents outside the tree."""
        return global_state.another_round

    def objective(self, global_state: GibbsNcrpGlobalState, delta: Delta) -> dict[str, float]:
        """Return log p(w, z, c | eta, alpha, gamma) of the sample, in nats: theta, phi and the restaurants summed out.

        sum_i log G(W eta_l) / G(W eta_l + n_i) + sum_iw log G(eta_l + n_iw) / G(eta_l) + sum_d log G(A) / G(A + n_d)
        + sum_dl log G(alpha_l + n_dl) / G(alpha_l) + sum_i [K_i log gamma + log G(gamma) / G(gamma + m_i)
        + sum_j log G(m_j)], with K_i children j of an inner node i, and m documents that pass a node.
        """
        sums = GibbsNcrpSums.of(delta)
        if sums.histograms is None or sums.outside:
            return {}
        known = SampleProbability.of(global_state.counted(sums), sums.histograms)
        words = sum(known.log_words(level, float(eta)) for level, eta in enumerate(global_state.eta))
        documents = sum(known.log_level(level, float(alpha)) for level, alpha in enumerate(global_state.alpha))
        paths = known.log_paths(global_state.gamma) + known.log_seats()
        return {"objective": words + documents + known.log_documents(float(global_state.alpha.sum())) + paths}

    def figures(self, global_state: GibbsNcrpGlobalState) -> dict[str, float]:
        """Return the numbers of nodes and leaves, and eta, alpha and gamma."""
        level, depth = global_state.levels, global_state.alpha.size
        figures = {"nodes": float((level >= 0).sum()), "leaves": float((level == depth - 1).sum())}
        figures.update({f"eta_{at}": float(value) for at, value in enumerate(global_state.eta)})
        figures.update({f"alpha_{at}": float(value) for at, value in enumerate(global_state.alpha)})
        return {**figures, "gamma": global_state.gamma}

    def describe(self, block: GibbsNcrpRows, global_state: GibbsNcrpGlobalState, count: int) -> Description:
        """Describe the nodes, depth first, siblings by falling numbers of documents; an id is that of a node's slot."""
        ids = depth_first(global_state.node_parent, global_state.node_documents)
        topic = np.asarray(global_state.topic, dtype=np.float64)
        phi = global_state.word_probability(block.word_topic)[:, ids].T
        top = largest(phi, count)
        share = topic[ids] / max(float(topic.sum()), 1e-300)
        return Description(ids, share, top, np.take_along_axis(phi, top, axis=1), global_state.node_parent[ids])

    def draw_model(
        self, summary: Summary, options: GibbsNcrpOptions, stream: Stream
    ) -> tuple[Arrays, GibbsNcrpGlobalState]:
        """Draw a tree in which each node has as many children as ``branching`` says, for simulation."""
        parent = regular_tree([int(children) for children in np.resize(options.branching, options.depth - 1)])
        level = levels(parent)
        eta = np.resize(np.array(options.eta, dtype=np.float64), options.depth)
        alpha = np.resize(np.array(options.alpha, dtype=np.float64), options.depth)
        # Each node's share of the documents.
        share = 1.0 / np.bincount(level)[level]
        tokens = SIMULATED_TOKENS * share * (alpha / alpha.sum())[level]
        global_state = replace(
            self.initialise(summary, options, stream),
            eta=np.full(options.depth, 1e-9 / summary.words),
            node_parent=parent,
            node_documents=SIMULATED_TOKENS * share,
            topic=tokens,
            free=np.zeros(parent.size, dtype=bool),
        )
        return generative.draw_topics(summary.words, tokens, summary.words * eta[level], stream), global_state

    def simulate(
        self, topics: Arrays, global_state: GibbsNcrpGlobalState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, npt.NDArray[np.float64]]:
        """Draw documents, with their proportions at nodes: all leaves are as likely, theta_d ~ Dir(alpha)."""
        generator, parent, alpha = (
            stream.generator(),
            global_state.node_parent,
            np.asarray(global_state.alpha, dtype=np.float64),
        )
        node = generator.choice(np.flatnonzero(global_state.levels == alpha.size - 1), documents)
        share = generative.draw_proportions(alpha, documents, generator)
        theta = np.zeros((documents, parent.size))
        for level in range(alpha.size - 1, -1, -1):
            theta[np.arange(documents), node] = share[:, level]
            node = parent[node]
        return generative.draw_bags(topics, global_state.words, theta, tokens, generator), theta


def _drawn(
    global_state: GibbsNcrpGlobalState,
    known: SampleProbability,
    options: GibbsNcrpOptions,
    generator: np.random.Generator,
) -> GibbsNcrpGlobalState:
    """Return the state with drawn hyperparameters; each one's prior is exponential, its mean being its option."""
    eta, alpha, gamma = np.array(global_state.eta), np.array(global_state.alpha), global_state.gamma
    if "eta" in options.learn:
        for level, mean in enumerate(np.resize(options.eta, options.depth)):

            def of_words(value: float, level: int = level) -> float:
                return known.log_words(level, value)

            eta[level] = slice_sampled(of_words, float(eta[level]), mean, generator)
    if "alpha" in options.learn:
        for level, mean in enumerate(np.resize(options.alpha, options.depth)):

            def of_levels(value: float, level: int = level) -> float:
                total = float(alpha.sum() - alpha[level] + value)
                return known.log_level(level, value) + known.log_documents(total)

            alpha[level] = slice_sampled(of_levels, float(alpha[level]), mean, generator)
    if "gamma" in options.learn:
        gamma = slice_sampled(known.log_paths, gamma, options.gamma, generator)
    return replace(global_state, eta=eta, alpha=alpha, gamma=gamma)
