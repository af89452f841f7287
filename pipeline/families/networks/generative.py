"""Draw documents of segments from a network of probability vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from collapsium.pipeline.families import generative as drawing
from collapsium.pipeline.families.base import Summary
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.networks.graph import LABEL, Graph, graph_of
from collapsium.workers.families.networks.states import (
    ExpectedNetworkGlobalState,
    NetworkGlobalState,
    SampledNetworkGlobalState,
    Vector,
)

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

NetworkState: TypeAlias = SampledNetworkGlobalState | ExpectedNetworkGlobalState

SEGMENT_TOKENS = 20.0  # Mean tokens of a segment
MODEL_TOKENS = 1e9  # Tokens of a drawn model, so many that its priors have no influence
MODEL_CONCENTRATION = 1e-9  # Concentration over words of a drawn model
# Sticks of a Pitman-Yor process that are broken at most, and the rest below which no more are broken
MAX_STICKS, MIN_REST = 2000, 1e-4
STICKS_TOGETHER = 200  # Sticks that are broken at a time


def draw_model(
    summary: Summary, concentration: float, global_state: NetworkState, stream: Stream
) -> tuple[Arrays, NetworkState]:
    """Draw topics and the vectors of shared nodes, as counts so large that the priors have no effect.

    Returns topics: As `families.generative` keeps them; global_state: The model's global state
    """
    if (global_state.plan.kinds[:, 0] == LABEL).any():
        raise OptionError("documents with labels are not drawn; leave out vectors over labels", "network")
    generator, topics = stream.at(purpose="simulate above").generator(), global_state.alpha.size
    vectors = draw_vectors(global_state.plan.shared_graph(), global_state, np.zeros((0, topics)), generator)
    tokens, customers = np.full(topics, MODEL_TOKENS / topics), np.rint(MODEL_TOKENS * vectors)
    drawn = drawing.draw_topics(summary.words, tokens, concentration, stream)
    if isinstance(global_state, ExpectedNetworkGlobalState):
        known = replace(global_state, topic=tokens, beta=MODEL_CONCENTRATION)
        return drawn, replace(known, shared_customers=customers, shared_mean=vectors)
    counts = customers.astype(np.int64)
    return drawn, replace(global_state, topic=tokens, beta=MODEL_CONCENTRATION, shared_customers=counts)


def simulate(
    topics: Arrays, global_state: NetworkState, documents: int, tokens: float, stream: Stream
) -> tuple[Documents, Vector]:
    """Draw documents of Poisson numbers of segments, of 20 tokens each on average.

    Returns documents: Without ids, with segments; theta: The mean of each document's segments
    """
    from collapsium.pipeline.families import corpus_columns

    generator, words = stream.generator(), int(global_state.vocabulary)
    many = np.maximum(generator.poisson(tokens / SEGMENT_TOKENS, documents), 1)
    segments = np.concatenate([[0], np.cumsum(many)]).astype(np.int64)
    none = np.zeros(documents + 1, dtype=np.int64)
    graph = graph_of(global_state.plan, segments, (none, none[:0]))
    shared = np.asarray(global_state.shared_customers, dtype=np.float64)
    shared = shared / np.maximum(shared.sum(axis=1, keepdims=True), 1.0)
    nu = draw_vectors(graph, global_state, shared, generator)[graph.segment_node]
    owner = np.repeat(np.arange(documents), many)
    bags = drawing.draw_bags(topics, words, nu, tokens * documents / owner.size, generator)
    extras = {"segments": corpus_columns.segment_column(many, np.diff(bags.offsets))}
    theta = np.zeros((documents, nu.shape[1]))
    np.add.at(theta, owner, nu)
    simulated = corpus_columns.drawn_documents(bags.offsets[segments], bags.words, bags.counts, extras)
    return simulated, theta / many[:, np.newaxis]


def draw_vectors(
    graph: Graph, global_state: NetworkGlobalState, shared: Vector, generator: np.random.Generator
) -> Vector:
    """Draw all vectors of a network, parents first."""
    alpha, strength, discount = global_state.topic_parameters, global_state.strength, global_state.discount
    nu = np.zeros((graph.node_kind.size, alpha.size))
    nu[: len(shared)] = shared
    for node in range(len(shared), len(nu)):
        first, last = int(graph.node_edges[node]), int(graph.node_edges[node + 1])
        if first == last:
            nu[node] = drawing.draw_proportions(alpha, 1, generator)[0]
            continue
        rho = generator.dirichlet(graph.edge_mixing[first:last]) if last > first + 1 else np.ones(1)
        mean, kind = rho @ nu[graph.edge_parent[first:last]], graph.node_kind[node]
        nu[node] = _draw_about(mean, float(strength[kind]), float(discount[kind]), generator)
    return nu


def _draw_about(mean: Vector, strength: float, discount: float, generator: np.random.Generator) -> Vector:
    """Draw from PDP(a, b, mean): a Dirichlet without discount, else by breaking sticks."""
    if discount == 0.0:
        drawn: Vector = drawing.draw_proportions(strength * mean, 1, generator)[0]
        return drawn
    rest, vector, running = 1.0, np.zeros(mean.size), np.cumsum(mean)
    for first in range(1, MAX_STICKS, STICKS_TOGETHER):
        number = np.arange(first, first + STICKS_TOGETHER)
        left = np.cumprod(1.0 - generator.beta(1.0 - discount, strength + number * discount))
        place = np.searchsorted(running, generator.random(STICKS_TOGETHER) * running[-1], side="right")
        weight = rest * -np.diff(left, prepend=1.0)
        vector += np.bincount(np.minimum(place, mean.size - 1), weight, mean.size)
        rest *= float(left[-1])
        if rest < MIN_REST:
            break
    total: Vector = vector + rest * mean
    return total
