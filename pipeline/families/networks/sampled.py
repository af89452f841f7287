"""Networks of probability vectors with sampled tables, on the driver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from collapsium.pipeline.families.base import Footprint, Summary
from collapsium.pipeline.families.gibbs import sampler as gibbs
from collapsium.pipeline.families.hyperparameters import slice_sampled
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import State
from collapsium.workers.families.networks.sampled import repair_tables, sweep_shared
from collapsium.workers.families.networks.sampler import padded
from collapsium.workers.families.networks.states import SampledNetworkGlobalState, Vector
from collapsium.workers.families.networks.sums import SampledSums, SharedChanges
from collapsium.workers.special_functions import digamma, gammaln

if TYPE_CHECKING:
    from collapsium.pipeline.families.networks.options import NetworkOptions

MIN_PARAMETER = 1e-8  # Least Dirichlet parameter that learning may reach
MIN_DISCOUNT, MAX_DISCOUNT = 1e-6, 0.999  # Bounds of a discount that is drawn
NODE_BYTES = 60.0  # Bytes of a node, its edge, and the offsets of its counts
SEGMENT_PAIRS = 5.0  # Assumed pairs of a segment, to estimate memory


@dataclass(frozen=True)
class WordSums(State):
    """Sums over words."""

    word_rising: float  # sum_kw log G(b + n_kw) / G(b)
    tables_of_words: float  # sum_kw b (psi(b + n_kw) - psi(b))


def footprint(summary: Summary, topics: int) -> Footprint:
    """Return the memory of the state: 2 bytes for a token, 6 for a topic of a document, and the nodes of segments."""
    tokens = summary.tokens / max(summary.pairs, 1)
    pair = 2.0 * tokens + 8.0 + NODE_BYTES / SEGMENT_PAIRS
    document = 2.0 * NODE_BYTES + 6.0 * min(topics, summary.tokens / max(summary.documents, 1))
    chunk = 2.0 * (pair * summary.pairs + document * summary.documents)
    words = gibbs.footprint(summary, topics)
    return replace(words, swept=4.0 * padded(topics), pair=pair, document=document, chunk=chunk)


def with_changes(global_state: SampledNetworkGlobalState, delta: Delta) -> SampledNetworkGlobalState:
    """Return the global state after the changes of n_k and of shared nodes, whose tables are then repaired."""
    after, changes = global_state.with_changes(gibbs.topic_changes(delta)), delta.read(SharedChanges)
    if changes is None:
        return after
    customers, tables = repair_tables(
        global_state.plan.shared_graph(),
        global_state.shared_customers + changes.shared_customers,
        global_state.shared_tables + changes.shared_tables,
    )
    return replace(after, shared_customers=customers, shared_tables=tables)


def update(
    global_state: SampledNetworkGlobalState, delta: Delta, options: NetworkOptions, stream: Stream
) -> SampledNetworkGlobalState:
    """Return the next global state: changed counts, drawn tables of shared nodes, and learned hyperparameters.

    b ~ p(b) prod_j (b|a)_{T_j} q_j^b, by a slice; a ~ Beta(1 + X, 1 + Y), X and Y being the numbers of factors b + i a
    and m - 1 - t a of p(n, s) that a and 1 - a stand for; alpha and B by Minka's fixed point.
    """
    after, own = with_changes(global_state, delta), delta.read(SampledSums)
    if own is None:
        # The start sweeps nothing.
        return after
    shared = sweep_shared(after, stream, move=options.tables, count_joins="discount" in options.learn)
    after = replace(after, shared_customers=shared.customers, shared_tables=shared.tables)
    sums = own.plus(shared.sums)
    if "strength" in options.learn:
        after = replace(after, strength=draw_strengths(after, sums, options.strength_mean, stream))
    if "discount" in options.learn:
        after = replace(after, discount=draw_discounts(after, sums, stream))
    if options.learns_alpha and sums.alpha_numerator is not None and sums.log_eta < 0:
        numerator = sums.alpha_numerator
        if "alpha" in options.learn:
            numerator = np.full(options.topics, numerator.mean())
        after = replace(after, alpha=np.maximum(numerator / -sums.log_eta, MIN_PARAMETER))
    words = delta.read(WordSums)
    if "beta" in options.learn and words is not None:
        rate = float((digamma(global_state.beta + after.topic) - digamma(global_state.beta)).sum())
        if rate > 0:
            after = replace(after, beta=max(words.tables_of_words / rate, MIN_PARAMETER))
    return after


def draw_strengths(global_state: SampledNetworkGlobalState, sums: SampledSums, mean: float, stream: Stream) -> Vector:
    """Draw each kind's b given its vectors' tables and q_j; p(b) ~ exp(-b / mean) prod_j (b|a)_{T_j} q_j^b."""
    strength, discount = np.array(global_state.strength), np.asarray(global_state.discount)
    generator = stream.at(purpose="strength").generator()
    number = np.arange(sums.tables.shape[1])
    for kind in _kinds_with_tables(sums):
        tables, log_q = sums.tables[kind].astype(np.float64), sums.log_q[kind]
        if discount[kind] == 0.0:
            strength[kind] = generator.gamma(1.0 + float(sums.tables[kind].sum())) / (1.0 / mean + log_q)
            continue
        steps = discount[kind] * number

        def density(b: float, tables: Vector = tables, steps: Vector = steps, log_q: float = log_q) -> float:
            return float((tables * special.log(b + steps)).sum() - b * log_q)

        strength[kind] = slice_sampled(density, float(strength[kind]), mean, generator)
    return strength


def draw_discounts(global_state: SampledNetworkGlobalState, sums: SampledSums, stream: Stream) -> Vector:
    """Draw each kind's a given its vectors' tables and joins, with b already drawn."""
    strength, discount = np.asarray(global_state.strength), np.array(global_state.discount)
    generator = stream.at(purpose="discount").generator()
    number = np.arange(sums.tables.shape[1])
    for kind in _kinds_with_tables(sums):
        probability = discount[kind] * number / (strength[kind] + discount[kind] * number)
        opened = float(generator.binomial(sums.tables[kind], probability).sum())
        discount[kind] = np.clip(generator.beta(1.0 + opened, 1.0 + sums.joins[kind]), MIN_DISCOUNT, MAX_DISCOUNT)
    return discount


def _kinds_with_tables(sums: SampledSums) -> list[int]:
    kinds: list[int] = np.flatnonzero(sums.tables.any(axis=1)).tolist()
    return kinds


def objective(global_state: SampledNetworkGlobalState, delta: Delta) -> dict[str, float]:
    """Return log p(w, z, s) given the hyperparameters, in nats: (4) of the paper, and the terms of words as in LDA."""
    own, word_sums = delta.read(SampledSums), delta.read(WordSums)
    if own is None or word_sums is None:
        return {}
    after = with_changes(global_state, delta)
    sums = own.plus(sweep_shared(after, Stream(0), move=False).sums)
    number = np.arange(sums.tables.shape[1])
    factors = global_state.strength[:, np.newaxis] + global_state.discount[:, np.newaxis] * number
    rises, total = (sums.tables * special.log(factors)).sum(), global_state.priors.total
    words = float((gammaln(total) - gammaln(total + after.topic)).sum()) + word_sums.word_rising
    return {"objective": float(rises + sums.stirling.sum() + sums.falling.sum()) + words}
