"""The hierarchical Dirichlet process by direct-assignment Gibbs sampling (Teh, Jordan, Beal and Blei 2006).

theta_d ~ Dir(alpha pi), phi_k ~ Dir(beta tau), pi the sticks of a Dirichlet process of concentration gamma;
alpha, gamma ~ Gamma(shape, rate); tau_w = 1 / W. Topics are born and die: nothing is truncated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from collapsium.pipeline.families import generative as drawing
from collapsium.pipeline.families.base import Description, FamilyConfig, Footprint, Summary
from collapsium.pipeline.families.description import holding
from collapsium.pipeline.families.gibbs import common as gibbs
from collapsium.storage.errors import NumericalError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.gibbs.common import MOST, padded
from collapsium.workers.families.gibbs.gibbs_hdp import priors, with_columns

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

CORPUS = "documents"
CHANGE = "moved"
SCHEDULES = gibbs.SCHEDULES
SAMPLER = True
LANES = 16  # shards whose new topics stay apart; more share them
SPARE = 2  # free slots of a lane, at least, before a sweep

Learned = Literal["alpha", "gamma"]


class Config(FamilyConfig, title="hierarchical Dirichlet process, Gibbs sampling by direct assignment"):
    """Options of the family."""

    start_topics: int = Field(100, ge=1, le=32_768, description="topics over which tokens are spread at the start")
    alpha_shape: float = Field(
        4.0, gt=0, description="shape of alpha's Gamma prior; alpha: concentration of a document"
    )
    alpha_rate: float = Field(4.0, gt=0, description="rate of alpha's Gamma prior")
    gamma_shape: float = Field(
        7.0, gt=0, description="shape of gamma's Gamma prior; gamma: concentration of the sticks"
    )
    gamma_rate: float = Field(7.0, gt=0, description="rate of gamma's Gamma prior")
    beta: float = Field(
        100.0,
        gt=0,
        description="concentration of a topic over the words; each word has beta/W, W being the vocabulary",
    )
    learn: tuple[Learned, ...] = Field(
        ("alpha", "gamma"), description="what is sampled: alpha, gamma; what is not named stays at its prior's mean"
    )


def initialise(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Make the globals before any document has been seen: alpha and gamma at their priors' means, pi even."""
    lanes, first = min(max(summary.shards, 1), LANES), summary.warm or config.start_topics
    pi = np.zeros(_columns(first, lanes))
    pi[:first] = 1.0 / (first + 1)
    return {
        "vocabulary": np.array(float(summary.words)),
        "start_topics": np.array(first),
        "lanes": np.array(lanes),
        "alpha": np.array(config.alpha_shape / config.alpha_rate),
        "gamma": np.array(config.gamma_shape / config.gamma_rate),
        "beta": np.array(config.beta),
        "pi": pi,
        "topic": np.zeros(pi.size, dtype=np.int64),
        "free": pi == 0.0,
    }


def _columns(topics: int, lanes: int) -> int:
    """Return the slots for so many topics, with some for those that will be born."""
    return padded(topics + max(SPARE * lanes, 8))


def carry(globals: Arrays, known: Arrays, config: Config, before: Config) -> tuple[Arrays, int] | None:
    """Go on with another run's slots, and from the last it has drawn of alpha, gamma and pi."""
    after = dict(with_columns(globals, known["pi"].size))
    columns = after["pi"].size
    after["pi"] = np.concatenate([known["pi"], np.zeros(columns - known["pi"].size)])
    after["free"] = after["pi"] == 0.0
    return {**after, **{name: known[name] for name in config.learn}}, columns


def footprint(summary: Summary, config: Config) -> Footprint:
    """Say what the state of a fit takes, with twice the topics that it starts from, and 100 more."""
    return gibbs.footprint(summary, _columns(2 * config.start_topics + 100, LANES))


def update(globals: Arrays, delta: Delta, config: Config, stream: Stream) -> Arrays:
    """Add the changes of the counts, draw alpha, gamma and pi, and make room for topics that will be born.

    alpha ~ Gamma(a + m, b - sum_d log eta_d), eta_d ~ Beta(alpha, n_d); gamma ~ Gamma(a + K, b - log eta),
    eta ~ Beta(gamma, m); (pi, pi_u) ~ Dir(m_1, ..., m_K, gamma), with m_k tables of topic k and m in all.

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
        The next globals. A topic without tokens is a free slot.

    Raises
    ------
    NumericalError
        There are more topics than tokens can name.
    """
    topic = gibbs.counted(globals, delta)
    after = {**with_columns(globals, topic.size), "topic": topic, "free": topic == 0}
    if "tokens" in delta:
        after.update(_drawn(globals, delta, config, stream.generator()))
    else:  # the start's delta: nothing has been swept yet
        even = 1.0 / (np.count_nonzero(topic) + 1)
        known = (topic == 0) | (after["pi"] > 0)
        after["pi"] = np.where(topic > 0, after["pi"] if known.all() else even, 0.0)
    lanes = int(globals["lanes"])
    free = np.flatnonzero(after["free"])
    short = np.bincount(free % lanes, minlength=lanes).min() < max(SPARE, 8 // lanes)
    columns = padded(topic.size + topic.size // 8 + 1) if short else topic.size
    if columns > MOST:
        raise NumericalError(f"more than {MOST} topics are asked for; take a smaller gamma or a larger beta")
    return with_columns(after, columns)


def _drawn(globals: Arrays, delta: Delta, config: Config, generator: np.random.Generator) -> Arrays:
    """Draw alpha, gamma and pi given the tables of all topics."""
    tables = delta["tables"]
    there, total = tables > 0, float(tables.sum())
    found = {"alpha": globals["alpha"], "gamma": globals["gamma"]}
    if "alpha" in config.learn:
        rate = config.alpha_rate - delta.number("log_stick")
        found["alpha"] = np.array(generator.gamma(config.alpha_shape + total) / rate)
    if "gamma" in config.learn:
        stick = generator.beta(float(globals["gamma"]), total) if total else 1.0
        rate = config.gamma_rate - special.log(max(stick, 1e-300))
        found["gamma"] = np.array(generator.gamma(config.gamma_shape + np.count_nonzero(there)) / rate)
    weight = generator.gamma(np.append(tables[there], found["gamma"]))
    pi = np.zeros(tables.size)
    pi[there] = weight[:-1] / weight.sum()
    return {**found, "pi": pi}


def objective(globals: Arrays, delta: Delta) -> dict[str, float]:
    """Give log p(w, z | alpha, pi) of the sample, in nats, with pi as its sweep has left it."""
    return gibbs.objective(globals, delta, priors(globals))


def figures(globals: Arrays) -> dict[str, float]:
    """Give alpha, gamma, the number of topics that have tokens, and of those that hold 99% of them."""
    named = {name: float(globals[name]) for name in ("alpha", "gamma")}
    named["topics"] = float(np.count_nonzero(globals["topic"]))
    return {**named, "topics_99": float(holding(globals["topic"]))}


def describe(block: Arrays, globals: Arrays, count: int) -> Description:
    """Describe the topics that have tokens, the largest first; an id is that of its slot."""
    return gibbs.describe(block, globals, priors(globals), count)


def truth(summary: Summary, config: Config, stream: Stream) -> tuple[Arrays, Arrays]:
    """Draw sticks of the first topics, and these, to simulate from; alpha and gamma are at their priors' means."""
    topics = config.start_topics
    pi = drawing.draw_sticks(topics, config.gamma_shape / config.gamma_rate, stream)
    tokens = np.maximum(1e9 * pi, 1.0)
    globals_ = {**initialise(summary, config, stream), "beta": np.array(1e-9), "pi": pi, "topic": tokens}
    return drawing.draw_topics(summary.words, tokens, config.beta, stream), {**globals_, "free": pi == 0.0}


def simulate(
    rows: Arrays,
    globals: Arrays,
    documents: int,
    tokens: float,
    stream: Stream,
) -> tuple[Documents, npt.NDArray[np.float64]]:
    """Draw documents, theta_d ~ Dir(alpha pi), and give their proportions too."""
    prior = float(globals["alpha"]) * globals["pi"]
    return drawing.draw_documents(rows, int(globals["vocabulary"]), prior, documents, tokens, stream)
