"""Latent Dirichlet allocation by collapsed Gibbs sampling (Griffiths and Steyvers 2004).

theta_d ~ Dir(a_1..a_K), phi_k ~ Dir(b, ..., b). With several shards it is AD-LDA (Newman, Asuncion, Smyth and Welling
2009). Dirichlet parameters are learned, where asked for, by Minka's fixed point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from collapsium.pipeline.families import generative as drawing
from collapsium.pipeline.families.base import Description, FamilyConfig, Footprint, Summary
from collapsium.pipeline.families.gibbs import common as gibbs
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.gibbs.gibbs_lda import priors
from collapsium.workers.special_functions import digamma

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

CORPUS = "documents"
CHANGE = "moved"
SCHEDULES = gibbs.SCHEDULES
SAMPLER = True
LEAST = 1e-8  # smallest Dirichlet parameter that learning may reach

Learned = Literal["alpha", "asymmetric-alpha", "beta"]


class Config(FamilyConfig, title="latent Dirichlet allocation, collapsed Gibbs sampling"):
    """Options of the family."""

    topics: int = Field(ge=1, le=65_535, description="number of topics K")
    alpha: float = Field(0.1, gt=0, description="Dirichlet parameter of each topic in a document, a_k")
    beta: float = Field(
        100.0,
        gt=0,
        description="concentration of a topic over the words, B; each word has beta/W, W being the vocabulary",
    )
    learn: tuple[Learned, ...] = Field(
        (), description="what is learned: alpha (one value for all), asymmetric-alpha (a value a topic), beta"
    )

    @field_validator("learn")
    @classmethod
    def _one_alpha(cls, learn: tuple[Learned, ...]) -> tuple[Learned, ...]:
        if {"alpha", "asymmetric-alpha"} <= set(learn):
            raise ValueError("name either alpha or asymmetric-alpha")
        return learn


def initialise(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Make the globals before any document has been seen."""
    return {
        "vocabulary": np.array(float(summary.words)),
        "alpha": np.full(config.topics, config.alpha),
        "beta": np.array(config.beta),
        "learn_alpha": np.array(bool({"alpha", "asymmetric-alpha"} & set(config.learn))),
        "topic": np.zeros(config.topics, dtype=np.int64),
    }


def carry(globals: Arrays, known: Arrays, config: Config, before: Config) -> tuple[Arrays, int] | None:
    """Go on from what another run has learned of a_k and B."""
    if config.topics != before.topics:
        return None
    names = ["alpha"] if {"alpha", "asymmetric-alpha"} & set(config.learn) else []
    names += ["beta"] if "beta" in config.learn else []
    return {**globals, **{name: known[name] for name in names}}, config.topics


def footprint(summary: Summary, config: Config) -> Footprint:
    """Say what the state of a fit takes."""
    return gibbs.footprint(summary, config.topics)


def update(globals: Arrays, delta: Delta, config: Config, stream: Stream) -> Arrays:
    """Add the changes of the counts and, where asked for, learn a_k and B.

    a_k <- a_k sum_d [psi(a_k+n_dk) - psi(a_k)] / sum_d [psi(A+n_d) - psi(A)];
    B <- sum_kw b [psi(b+n_kw) - psi(b)] / sum_k [psi(B+n_k) - psi(B)].

    Parameters
    ----------
    globals : Arrays
        As the sweep was made against.
    delta : Delta
        The sum over all shards, and what folding it told.
    config : Config
        The options.
    stream : Stream
        Not used.

    Returns
    -------
    Arrays
        The next globals.
    """
    after = {**globals, "topic": gibbs.counted(globals, delta)}
    if "tokens" not in delta:  # the start's delta: nothing has been swept yet
        return after
    if globals["learn_alpha"] and delta.number("log_eta") < 0:
        tables = delta["tables"]
        if "alpha" in config.learn:
            tables = np.full(config.topics, tables.mean())
        after["alpha"] = np.maximum(tables / -delta.number("log_eta"), LEAST)
    if "beta" in config.learn:
        total = float(globals["beta"])
        rate = float((digamma(total + after["topic"]) - digamma(total)).sum())
        if rate > 0:
            after["beta"] = np.array(max(delta.number("tables_of_words") / rate, LEAST))
    return after


def objective(globals: Arrays, delta: Delta) -> dict[str, float]:
    """Give log p(w, z) of the sample, in nats."""
    return gibbs.objective(globals, delta, priors(globals))


def figures(globals: Arrays) -> dict[str, float]:
    """Give the mean a_k, and B."""
    return {"alpha": float(globals["alpha"].mean()), "beta": float(globals["beta"])}


def describe(block: Arrays, globals: Arrays, count: int) -> Description:
    """Describe the topics, the largest first."""
    return gibbs.describe(block, globals, priors(globals), count)


def truth(summary: Summary, config: Config, stream: Stream) -> tuple[Arrays, Arrays]:
    """Draw topics to simulate from; they stand as counts so large that the prior does not show."""
    tokens = np.full(config.topics, 1e9 / config.topics)
    globals_ = {**initialise(summary, config, stream), "beta": np.array(1e-9), "topic": tokens}
    return drawing.draw_topics(summary.words, tokens, config.beta, stream), globals_


def simulate(
    rows: Arrays,
    globals: Arrays,
    documents: int,
    tokens: float,
    stream: Stream,
) -> tuple[Documents, npt.NDArray[np.float64]]:
    """Draw documents, theta_d ~ Dir(alpha, ..., alpha), and give their proportions too."""
    return drawing.draw_documents(rows, int(globals["vocabulary"]), globals["alpha"], documents, tokens, stream)
