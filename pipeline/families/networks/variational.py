"""Networks of probability vectors by expected tables, on the driver: vectors above documents, and what is learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.base import Footprint, Summary
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.families.networks.graph import graph_above
from collapsium.workers.families.networks.variational import expected_above, node_sums
from collapsium.workers.kernels.networks.responsibilities import MAX_TOPICS
from collapsium.workers.special_functions import digamma

if TYPE_CHECKING:
    from collapsium.pipeline.families.networks.options import NetworkConfig

LEAST = 1e-8  # smallest Dirichlet parameter, and strength, that learning may reach
PAIR, OWNED = 4.0, 10.0  # bytes of a topic that a pair gives to, and of one that a segment has
LISTED, SHARED = 8.0, 0.5  # topics that a pair is taken to give to; the part of them that a segment has but once


def initialise(globals: Arrays, config: NetworkConfig) -> Arrays:
    """Add to the first globals what expected tables need."""
    found = dict(globals)
    found.update(
        variational=np.array(True),
        learn_beta=np.array("beta" in config.learn),
        topic=np.zeros(config.topics),
        vector_topic=np.zeros(globals["vector_topic"].shape),
        vector_absent=np.zeros(globals["vector_topic"].shape),
        vector_tables=np.zeros(globals["vector_tables"].shape),
    )
    return above_expected(found)[0]


def footprint(summary: Summary, topics: int, node: float, segment_pairs: float) -> Footprint:
    """Return what the state takes: the pairs' lists, and the counts of each node's own tokens.

    Parameters
    ----------
    summary : Summary
        Of the corpus.
    topics : int
        K.
    node, segment_pairs : float
        Bytes of a vector besides its counts, and the pairs that a segment is taken to have.

    Returns
    -------
    Footprint
        In bytes.
    """
    listed = min(LISTED, topics)
    pair = 1.0 + PAIR * listed + OWNED * SHARED * listed + node / segment_pairs
    return Footprint(
        kept=8.0 * topics,
        shown=8.0 * topics,
        swept=4.0 * topics,
        delta=8.0 * topics,
        pair=pair,
        document=node + 8.0,
        portion=(2.0 * pair + (PAIR + OWNED) * min(MAX_TOPICS, topics)) * summary.pairs,
    )


def above_expected(globals: Arrays) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
    """Bring the vectors above documents up to date with their customers; return what this tells too."""
    found = expected_above(graph_above(globals), globals)
    return {**globals, "vector_mean": found["mean"], "vector_response": found["response"]}, found


def counted(globals: Arrays, delta: Delta) -> npt.NDArray[np.float64]:
    """Return E[n_k] after a delta."""
    before = np.asarray(globals["topic"], dtype=np.float64)
    return np.maximum(before + delta["topic"], 0.0) if "topic" in delta else before


def update(globals: Arrays, delta: Delta, config: NetworkConfig) -> Arrays:
    """Add the changes of the counts, and learn what is to be learned, as CV-HDP learns it.

    With q(b) = Gamma(1 + X, 1/mean + Y), E[b] = (1 + X) / (1/mean + Y), where X is the sum over vectors of what tables
    say, T_j without discount and (b/a) (psi(b/a + T_j) - psi(b/a)) with one, and Y that of psi(b + M_j) - psi(b);
    a_k <- sum E[s_jk] / sum [psi(A + M_j) - psi(A)] over roots, and b_w likewise.

    Parameters
    ----------
    globals : Arrays
        As the sweep was made against.
    delta : Delta
        The sum over all shards, and what folding it told.
    config : NetworkConfig
        The options.

    Returns
    -------
    Arrays
        The next globals.
    """
    after: dict[str, npt.NDArray[Any]] = {**globals, "topic": counted(globals, delta)}
    if "tokens" not in delta:  # the start's delta: nothing has been swept yet
        return after
    after.update(vector_topic=delta["vector_topic"], vector_absent=delta["vector_absent"])
    graph = graph_above(after)
    after, above = above_expected(after)
    roots = np.diff(graph.node_edges) == 0
    sums = node_sums(graph.node_kind, roots, above["node_customers"], above["node_tables"], globals)
    opened, log_q = (delta[name] + sums[name].values for name in ("opened", "log_q"))
    if "strength" in config.learn:
        learned = (1.0 + opened) / (1.0 / config.strength_mean + log_q)
        after["strength"] = np.where(opened > 0, np.maximum(learned, LEAST), after["strength"])
    log_eta = delta.number("log_eta") + float(sums["log_eta"].values)
    if {"alpha", "asymmetric-alpha"} & set(config.learn) and log_eta < 0:
        rising = delta["rising"] + above["rising"]
        rising = np.full(config.topics, rising.mean()) if "alpha" in config.learn else rising
        after["alpha"] = np.maximum(rising / -log_eta, LEAST)
    if "beta" in config.learn:
        beta = float(globals["beta"])
        rate = float((digamma(beta + after["topic"]) - digamma(beta)).sum())
        if rate > 0:
            after["beta"] = np.array(max(delta.number("tables_of_words") / rate, LEAST))
    return above_expected(after)[0]


def objective(delta: Delta) -> dict[str, float]:
    """Give sum c log sum_k E[nu_j]'(k) phi'_kw, in nats: each pair's word given all others. No bound; it may fall."""
    return {"objective": delta.number("log_likelihood")} if "log_likelihood" in delta else {}
