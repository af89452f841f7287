"""Networks of probability vectors with expected tables, on the driver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from collapsium.pipeline.families.base import Summary
from collapsium.pipeline.families.footprint import Footprint
from collapsium.pipeline.families.networks.sampled import MIN_PARAMETER, NODE_BYTES, SEGMENT_PAIRS
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.state import State
from collapsium.workers.families.networks.states import ExpectedNetworkGlobalState, SampledNetworkGlobalState, Vector
from collapsium.workers.families.networks.sums import ExpectedSums, NodeTotals
from collapsium.workers.families.networks.variational import expect_shared
from collapsium.workers.kernels.networks.responsibilities import MAX_TOPICS
from collapsium.workers.special_functions import digamma

if TYPE_CHECKING:
    from collapsium.pipeline.families.networks.options import NetworkOptions

PAIR_BYTES, OWN_BYTES = 4.0, 10.0  # Bytes of an active topic of a pair, and of a topic of a segment
# Assumed active topics of a pair, and the share of them that a segment counts once
PAIR_TOPICS, DISTINCT_SHARE = 8.0, 0.5


@dataclass(frozen=True)
class ExpectedRound(State):
    """Sums of a round of sweeps."""

    sums: ExpectedSums  # Sums over the nodes of documents
    # Customers that documents are to shared nodes, and their Z; float64 (shared nodes, topics)
    shared_customers: Vector
    shared_log_absent: Vector
    log_likelihood: float  # sum c log sum_k E[nu_j]'(k) phi'_kw
    # Expected tables of the roots of documents; None where alpha is not learned; float64 (topics,)
    alpha_numerator: Vector | None = None
    tables_of_words: float | None = None  # Expected tables of words; None where B is not learned


@dataclass(frozen=True)
class ExpectedTopicChanges(State):
    """Changes of the expected counts by topic."""

    topic: Vector  # Change of E[n_k]; float64 (topics,)


def with_expected_tables(state: SampledNetworkGlobalState) -> ExpectedNetworkGlobalState:
    """Return the first global state with expected tables."""
    none = np.zeros(state.shared_customers.shape)
    global_state = ExpectedNetworkGlobalState(
        vocabulary=state.vocabulary,
        beta=state.beta,
        topic=np.zeros(state.topic.shape),
        alpha=state.alpha,
        strength=state.strength,
        discount=state.discount,
        shared_customers=none,
        plan=state.plan,
        shared_log_absent=none,
        shared_mean=none,
        shared_response=none,
    )
    return expect_shared(global_state)[0]


def footprint(summary: Summary, topics: int) -> Footprint:
    """Return the memory of the state: the active topics of pairs, and the counts of each node's tokens."""
    entries = min(PAIR_TOPICS, topics)
    pair = 1.0 + PAIR_BYTES * entries + OWN_BYTES * DISTINCT_SHARE * entries + NODE_BYTES / SEGMENT_PAIRS
    return Footprint(
        rows=8.0 * topics,
        shown=8.0 * topics,
        swept=4.0 * topics,
        delta=8.0 * topics,
        pair=pair,
        document=NODE_BYTES + 8.0,
        chunk=(2.0 * pair + (PAIR_BYTES + OWN_BYTES) * min(MAX_TOPICS, topics)) * summary.pairs,
    )


def update(
    global_state: ExpectedNetworkGlobalState, delta: Delta, options: NetworkOptions
) -> ExpectedNetworkGlobalState:
    """Return the next global state: changed counts, and hyperparameters learned as in CV-HDP.

    With q(b) = Gamma(1 + X, 1/mean + Y), E[b] = (1 + X) / (1/mean + Y), where X is the sum over vectors of T_j without
    discount and of (b/a) (psi(b/a + T_j) - psi(b/a)) with one, and Y that of psi(b + M_j) - psi(b);
    a_k <- sum E[s_jk] / sum [psi(A + M_j) - psi(A)] over roots, and b_w likewise.
    """
    changes, own = delta.read(ExpectedTopicChanges), delta.read(ExpectedRound)
    topic = global_state.topic if changes is None else np.maximum(global_state.topic + changes.topic, 0.0)
    after = replace(global_state, topic=topic)
    if own is None:
        # The start sweeps nothing.
        return after
    after = replace(after, shared_customers=own.shared_customers, shared_log_absent=own.shared_log_absent)
    graph, (after, statistics) = after.plan.shared_graph(), expect_shared(after)
    totals: NodeTotals[Vector] = NodeTotals(graph.node_kind, graph.is_root, statistics.customers, statistics.tables)
    shared = ExpectedSums.of(totals, global_state)
    opened, log_q = own.sums.opened + shared.opened, own.sums.log_q + shared.log_q
    if "strength" in options.learn:
        learned = (1.0 + opened) / (1.0 / options.strength_mean + log_q)
        after = replace(after, strength=np.where(opened > 0, np.maximum(learned, MIN_PARAMETER), after.strength))
    log_eta = own.sums.log_eta + shared.log_eta
    if own.alpha_numerator is not None and log_eta < 0:
        numerator = own.alpha_numerator + statistics.alpha_numerator
        numerator = np.full(options.topics, numerator.mean()) if "alpha" in options.learn else numerator
        after = replace(after, alpha=np.maximum(numerator / -log_eta, MIN_PARAMETER))
    if own.tables_of_words is not None:
        rate = float((digamma(global_state.beta + after.topic) - digamma(global_state.beta)).sum())
        if rate > 0:
            after = replace(after, beta=max(own.tables_of_words / rate, MIN_PARAMETER))
    return expect_shared(after)[0]


def objective(delta: Delta) -> dict[str, float]:
    """Return sum c log sum_k E[nu_j]'(k) phi'_kw, in nats: each word given all others. It is no bound, and may fall."""
    own = delta.read(ExpectedRound)
    return {} if own is None else {"objective": own.log_likelihood}
