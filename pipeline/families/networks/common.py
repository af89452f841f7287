"""What families of networks of probability vectors share on the driver (Buntine, Du and Nurmi 2010)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.base import Description, Footprint, Summary
from collapsium.pipeline.families.gibbs import common as gibbs
from collapsium.pipeline.families.hyperparameters import slice_sampled
from collapsium.pipeline.families.networks import variational as networkexpecting
from collapsium.pipeline.families.networks.options import NetworkConfig
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta, total
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.networks.common import priors, variational
from collapsium.workers.families.networks.graph import Plan, graph_above
from collapsium.workers.families.networks.sampler import padded
from collapsium.workers.families.networks.shared_nodes import mended, visited
from collapsium.workers.special_functions import digamma, gammaln

Vector = npt.NDArray[np.float64]

SCHEDULES = gibbs.SCHEDULES
LEAST = 1e-8  # smallest Dirichlet parameter that learning may reach
DISCOUNTS = 1e-6, 0.999  # between which a discount stays once it is drawn
NODE = 60.0  # bytes of a vector, its edge, and where its counts lie
SEGMENT_PAIRS = 5.0  # that a segment is taken to have, where memory is planned


def initialise(summary: Summary, config: NetworkConfig, plan: Plan, table: bool = False) -> Arrays:
    """Make the globals before any document has been seen.

    Parameters
    ----------
    summary : Summary
        Of the corpus.
    config : NetworkConfig
        The options.
    plan : Plan
        Kinds of vectors and what they depend on.
    table : bool, optional
        Whether labels have vectors, so that the table of labels is kept.

    Returns
    -------
    Arrays
        The globals.
    """
    learn, kinds = set(config.learn), len(plan.kinds)
    discount = 0.1 if "discount" in learn and not config.discount else config.discount
    found: dict[str, npt.NDArray[Any]] = {
        **plan.packed(),
        "vocabulary": np.array(float(summary.words)),
        "alpha": np.full(config.topics, config.alpha),
        "beta": np.array(config.beta),
        "strength": np.full(kinds, config.strength),
        "discount": np.full(kinds, discount),
        "learn_alpha": np.array(bool({"alpha", "asymmetric-alpha"} & learn)),
        "learn_discount": np.array("discount" in learn),
        "move_tables": np.array(config.tables),
        "topic": np.zeros(config.topics, dtype=np.int64),
    }
    if table and summary.labels is not None:
        found["label_table"] = summary.labels.packed()
    graph = graph_above(found)
    found["vector_topic"] = np.zeros((graph.above, config.topics), dtype=np.int64)
    found["vector_tables"] = np.zeros((graph.edge_parent.size, config.topics), dtype=np.int64)
    if config.inference == "variational":
        return networkexpecting.initialise(found, config)
    return found


def carry(globals: Arrays, known: Arrays, config: NetworkConfig, before: NetworkConfig) -> tuple[Arrays, int] | None:
    """Go on from what another run has learned, where its network has as many kinds."""
    same = config.topics == before.topics and config.inference == before.inference
    if not same or globals["strength"].shape != known["strength"].shape:
        return None
    learned = {name.removeprefix("asymmetric-") for name in config.learn}
    return {**globals, **{name: known[name] for name in sorted(learned)}}, config.topics


def footprint(summary: Summary, config: NetworkConfig) -> Footprint:
    """Return what the state takes: 2 bytes a token, 6 a topic of a segment, as many a table, and a segment's node."""
    found = gibbs.footprint(summary, config.topics)
    if config.inference == "variational":
        return networkexpecting.footprint(summary, config.topics, NODE, SEGMENT_PAIRS)
    tokens = summary.tokens / max(summary.pairs, 1)
    pair = 2.0 * tokens + 8.0 + NODE / SEGMENT_PAIRS
    document = 2.0 * NODE + 6.0 * min(config.topics, summary.tokens / max(summary.documents, 1))
    portion = 2.0 * (pair * summary.pairs + document * summary.documents)
    return replace(found, swept=4.0 * padded(config.topics), pair=pair, document=document, portion=portion)


def moved_above(globals: Arrays, delta: Delta) -> Arrays:
    """Return the globals after a delta's changes of n_k and of the counts above documents, which are then mended."""
    after = {**globals, "topic": gibbs.counted(globals, delta)}
    if "vector_topic" in delta:
        graph = graph_above(globals)
        counts = [np.asarray(globals[name]) + delta[name] for name in ("vector_topic", "vector_tables")]
        after["vector_topic"], after["vector_tables"] = mended(graph, counts[0], counts[1])
    return after


def update(globals: Arrays, delta: Delta, config: NetworkConfig, stream: Stream) -> Arrays:
    """Add the changes of the counts, draw the tables above documents, and learn what is to be learned.

    b ~ p(b) prod_j (b|a)_{T_j} q_j^b, by a slice; a ~ Beta(1 + X, 1 + Y), X and Y being how many factors b + i a and
    m - 1 - t a of p(n, s) a and 1 - a stand for; alpha and B by Minka's fixed point.

    Parameters
    ----------
    globals : Arrays
        As the sweep was made against.
    delta : Delta
        The sum over all shards, and what folding it told.
    config : NetworkConfig
        The options.
    stream : Stream
        Addressed to the iteration.

    Returns
    -------
    Arrays
        The next globals.
    """
    if variational(globals):
        return networkexpecting.update(globals, delta, config)
    after = dict(moved_above(globals, delta))
    if "tokens" not in delta:  # the start's delta: nothing has been swept yet
        return after
    above = visited(after, stream, moving=config.tables)
    after.update(vector_topic=above.customers, vector_tables=above.tables)
    sums = _together(delta, above.sums)
    if "strength" in config.learn:
        after["strength"] = draw_strengths(after, sums, config.strength_mean, stream)
    if "discount" in config.learn:
        after["discount"] = draw_discounts(after, sums, stream)
    if globals["learn_alpha"] and sums.number("log_eta") < 0:
        rising = sums["rising"]
        if "alpha" in config.learn:
            rising = np.full(config.topics, rising.mean())
        after["alpha"] = np.maximum(rising / -sums.number("log_eta"), LEAST)
    if "beta" in config.learn:
        rate = float((digamma(float(globals["beta"]) + after["topic"]) - digamma(float(globals["beta"]))).sum())
        if rate > 0:
            after["beta"] = np.array(max(delta.number("tables_of_words") / rate, LEAST))
    return after


def _together(delta: Delta, above: dict[str, Any]) -> Delta:
    """Add what documents' vectors and those above tell."""
    parts = {name: delta.parts[name] for name in above if name in delta}
    each = [(parts, delta["tables"]), (above, above["tables"].values)]
    topics = np.arange(above["rising"].values.size)
    return total([Delta(one, {"tables": np.arange(some.shape[1]), "topic": topics}) for one, some in each])


def draw_strengths(globals: Arrays, sums: Delta, mean: float, stream: Stream) -> Vector:
    """Draw each kind's b given its vectors' tables and q_j.

    Parameters
    ----------
    globals : Arrays
        With b and a.
    sums : Delta
        ``tables``, by kind and i the vectors with more than i tables; ``log_q``, by kind the sum of log 1/q_j.
    mean : float
        Of the prior.
    stream : Stream
        Addressed to the iteration.

    Returns
    -------
    numpy.ndarray of float64, shape (kinds,)
        Those of kinds without tables stay.
    """
    strength, discount = np.array(globals["strength"]), np.asarray(globals["discount"])
    generator = stream.at(purpose="strength").generator()
    beyond, log_q = sums["tables"], sums["log_q"]
    for kind in range(strength.size):
        if not beyond[kind].any():
            continue
        if discount[kind] == 0.0:
            shape = 1.0 + float(beyond[kind].sum())
            strength[kind] = generator.gamma(shape) / (1.0 / mean + log_q[kind])
            continue
        number, some = np.arange(beyond.shape[1]), beyond[kind].astype(np.float64)

        def density(b: float, kind: int = kind, number: Any = number, some: Any = some) -> float:
            return float((some * special.log(b + discount[kind] * number)).sum() - b * log_q[kind])

        strength[kind] = slice_sampled(density, float(strength[kind]), mean, generator)
    return strength


def draw_discounts(globals: Arrays, sums: Delta, stream: Stream) -> Vector:
    """Draw each kind's a given its vectors' tables and how customers came to them.

    Parameters
    ----------
    globals : Arrays
        With b, already drawn, and a.
    sums : Delta
        ``tables`` as for `draw_strengths`; ``joins``, by kind how many customers speak for 1 - a.
    stream : Stream
        Addressed to the iteration.

    Returns
    -------
    numpy.ndarray of float64, shape (kinds,)
        Those of kinds without tables stay.
    """
    strength, discount = np.asarray(globals["strength"]), np.array(globals["discount"])
    generator = stream.at(purpose="discount").generator()
    beyond, joins = sums["tables"], sums["joins"]
    for kind in range(strength.size):
        if not beyond[kind].any():
            continue
        number = np.arange(beyond.shape[1])
        chance = discount[kind] * number / (strength[kind] + discount[kind] * number)
        opened = float(generator.binomial(beyond[kind], chance).sum())
        discount[kind] = np.clip(generator.beta(1.0 + opened, 1.0 + joins[kind]), *DISCOUNTS)
    return discount


def objective(globals: Arrays, delta: Delta) -> dict[str, float]:
    """Give log p(w, z, s) given the hyperparameters, in nats: (4) of the paper, and what words add as in LDA.

    Parameters
    ----------
    globals : Arrays
        As the sweep was made against.
    delta : Delta
        What the sweep and the folding of its rows told.

    Returns
    -------
    dict of str to float
        ``objective``; none before the first sweep.
    """
    if variational(globals):
        return networkexpecting.objective(delta)
    if "tokens" not in delta:
        return {}
    after = moved_above(globals, delta)
    sums = _together(delta, visited(after, Stream(0), moving=False).sums)
    strength, discount = np.asarray(globals["strength"]), np.asarray(globals["discount"])
    number = np.arange(sums["tables"].shape[1])
    rises = (sums["tables"] * special.log(strength[:, np.newaxis] + discount[:, np.newaxis] * number)).sum()
    given = priors(globals)
    words = float((gammaln(given.total) - gammaln(given.total + after["topic"])).sum()) + delta.number("word_rising")
    return {"objective": float(rises + sums["stirling"].sum() + sums["falling"].sum()) + words}


def figures(globals: Arrays) -> dict[str, float]:
    """Give the mean alpha_k, B, and the mean b and a of the kinds that have parents."""
    child = np.unique(np.asarray(globals["network_links"])[:, 0])
    strength, discount = (np.asarray(globals[name])[child] for name in ("strength", "discount"))
    found = {"alpha": float(globals["alpha"].mean()), "beta": float(globals["beta"])}
    if child.size:
        found.update(strength=float(strength.mean()), discount=float(discount.mean()))
    return found


def describe(block: Arrays, globals: Arrays, count: int) -> Description:
    """Describe the topics, the largest first."""
    return gibbs.describe(block, globals, priors(globals), count)
