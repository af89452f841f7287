"""Families of networks of probability vectors on the driver (Buntine, Du and Nurmi 2010)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar

import numpy as np

from collapsium.pipeline.families import description
from collapsium.pipeline.families.base import COMPUTED_STARTS, FILE_START, Description, Resumable, Simulates, Summary
from collapsium.pipeline.families.footprint import Footprint
from collapsium.pipeline.families.networks import generative, sampled, variational
from collapsium.pipeline.families.networks.options import NetworkOptions
from collapsium.storage.corpus.label_index import LabelTable
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.gibbs.states import SampledRows
from collapsium.workers.families.networks.graph import Plan
from collapsium.workers.families.networks.sampled import SampledNetworkModel
from collapsium.workers.families.networks.states import (
    ExpectedNetworkGlobalState,
    ExpectedRows,
    NetworkGlobalState,
    SampledNetworkGlobalState,
    Vector,
)
from collapsium.workers.families.networks.variational import ExpectedNetworkModel

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

NetworkState: TypeAlias = SampledNetworkGlobalState | ExpectedNetworkGlobalState
GlobalStateT = TypeVar("GlobalStateT", bound=NetworkGlobalState)
NetworkRows: TypeAlias = SampledRows | ExpectedRows
OptionsT = TypeVar("OptionsT", bound=NetworkOptions)

INITIAL_DISCOUNT = 0.1  # First discount where it is learned and none is given


class NetworkFamily(Resumable[OptionsT, NetworkState, NetworkRows], Simulates[OptionsT, NetworkState, NetworkRows]):
    """Family of networks; tables are sampled or expected, by the option ``inference``."""

    # The half for the shards, with sampled tables and with expected tables
    shard_model: ClassVar[type[SampledNetworkModel]] = SampledNetworkModel
    expected_model: ClassVar[type[ExpectedNetworkModel]] = ExpectedNetworkModel
    fixed_plan: ClassVar[Plan]  # Kinds of vectors and their parents, where they do not depend on options
    is_sampler = True
    starts = (FILE_START, *COMPUTED_STARTS)

    def make_shard_model(self, options: OptionsT) -> SampledNetworkModel | ExpectedNetworkModel:
        """Return the half for the shards."""
        expected = options.inference == "variational"
        return self.expected_model(options) if expected else self.shard_model(options)

    def plan(self, options: OptionsT, labels: LabelTable | None) -> Plan:
        """Return kinds of vectors and their parents."""
        return self.fixed_plan

    def initialise(self, summary: Summary, options: OptionsT, stream: Stream) -> NetworkState:
        """Return the global state before any document was swept."""
        plan = self.plan(options, summary.labels)
        graph, kinds = plan.shared_graph(), len(plan.kinds)
        discount = INITIAL_DISCOUNT if "discount" in options.learn and not options.discount else options.discount
        state = SampledNetworkGlobalState(
            vocabulary=float(summary.words),
            beta=options.beta,
            topic=np.zeros(options.topics, dtype=np.int64),
            alpha=np.full(options.topics, options.alpha),
            strength=np.full(kinds, options.strength),
            discount=np.full(kinds, discount),
            shared_customers=np.zeros((graph.shared, options.topics), dtype=np.int64),
            plan=plan,
            shared_tables=np.zeros((graph.edge_parent.size, options.topics), dtype=np.int64),
        )
        return variational.with_expected_tables(state) if options.inference == "variational" else state

    def carry(
        self, global_state: NetworkState, known: NetworkState, options: OptionsT, before: OptionsT
    ) -> tuple[NetworkState, int] | None:
        """Return the global state of a fit that goes on from another run, whose network has as many kinds."""
        same = options.topics == before.topics and options.inference == before.inference
        if not same or global_state.strength.shape != known.strength.shape:
            return None
        return carry_parameters(global_state, known, options), options.topics

    def footprint(self, summary: Summary, options: OptionsT) -> Footprint:
        """Return the memory that the state of a fit takes."""
        if options.inference == "variational":
            return variational.footprint(summary, options.topics)
        return sampled.footprint(summary, options.topics)

    def update(self, global_state: NetworkState, delta: Delta, options: OptionsT, stream: Stream) -> NetworkState:
        """Return the next global state, from the sums of a round of sweeps."""
        if isinstance(global_state, ExpectedNetworkGlobalState):
            return variational.update(global_state, delta, options)
        return sampled.update(global_state, delta, options, stream)

    def objective(self, global_state: NetworkState, delta: Delta) -> dict[str, float]:
        """Return log p(w, z, s) given the hyperparameters, or the log probability of each pair given all others."""
        if isinstance(global_state, ExpectedNetworkGlobalState):
            return variational.objective(delta)
        return sampled.objective(global_state, delta)

    def figures(self, global_state: NetworkState) -> dict[str, float]:
        """Return the mean alpha_k, B, and the mean b and a of the kinds that have parents."""
        child = np.unique(global_state.plan.links[:, 0])
        figures = {"alpha": float(global_state.alpha.mean()), "beta": global_state.beta}
        if child.size:
            figures["strength"] = float(global_state.strength[child].mean())
            figures["discount"] = float(global_state.discount[child].mean())
        return figures

    def describe(self, block: NetworkRows, global_state: NetworkState, count: int) -> Description:
        """Describe the topics, the largest first."""
        word_topic, topic = (np.asarray(counts, dtype=np.float64) for counts in (block.word_topic, global_state.topic))
        prior = np.full(len(word_topic), global_state.priors.word)
        return description.describe(word_topic, prior, global_state.priors.total, topic, count)

    def word_concentration(self, global_state: NetworkState) -> float:
        """Return B, the concentration of a topic over the words."""
        return global_state.beta

    def label_table(self, global_state: NetworkState) -> LabelTable | None:
        """Return the labels of the training corpus, where labels have vectors."""
        return global_state.plan.labels()

    def draw_model(self, summary: Summary, options: OptionsT, stream: Stream) -> tuple[Arrays, NetworkState]:
        """Draw topics, and vectors of shared nodes, for simulation."""
        return generative.draw_model(summary, options.beta, self.initialise(summary, options, stream), stream)

    def simulate(
        self, topics: Arrays, global_state: NetworkState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, Vector]:
        """Draw documents of segments, and the proportions of whole documents."""
        return generative.simulate(topics, global_state, documents, tokens, stream)


def carry_parameters(global_state: GlobalStateT, known: NetworkState, options: NetworkOptions) -> GlobalStateT:
    """Return a global state with another run's values of the parameters that the options learn."""
    return replace(
        global_state,
        alpha=known.alpha if options.learns_alpha else global_state.alpha,
        beta=known.beta if "beta" in options.learn else global_state.beta,
        strength=known.strength if "strength" in options.learn else global_state.strength,
        discount=known.discount if "discount" in options.learn else global_state.discount,
    )
