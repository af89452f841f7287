"""Latent Dirichlet allocation by mean-field variational Bayes (Blei, Ng and Jordan 2003), topics smoothed too.

theta_d ~ Dir(a_1..a_K), phi_k ~ Dir(b_1..b_W); q(theta_d) = Dir(gamma_d), q(phi_k) = Dir(lambda_k).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from collapsium.pipeline.families import description
from collapsium.pipeline.families import generative as drawing
from collapsium.pipeline.families import hyperparameters as dirichlet
from collapsium.pipeline.families.base import Description, FamilyConfig, Footprint, Summary
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.vb.vb_lda import parameters
from collapsium.workers.special_functions import digamma, gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

CORPUS = "documents"
CHANGE = "moved"
SCHEDULES = ("batch",)
SAMPLER = False

Learned = Literal["alpha", "beta", "asymmetric-alpha"]


class Config(FamilyConfig, title="latent Dirichlet allocation, mean-field variational Bayes"):
    """Options of the family."""

    topics: int = Field(ge=1, le=65_535, description="number of topics K")
    alpha: float = Field(0.1, gt=0, description="Dirichlet parameter of each topic in a document, a_k")
    beta: float = Field(
        100.0,
        gt=0,
        description="concentration of a topic over the words, B; each word has beta/W, W being the vocabulary",
    )
    learn: tuple[Learned, ...] = Field(
        (),
        description="what is learned: alpha, beta (one value for all), asymmetric-alpha (a value a topic)",
    )
    document_sweeps: int = Field(
        5, ge=1, description="most passes over a document in an iteration, each of which updates gamma and q"
    )
    document_tolerance: float = Field(
        0.001,
        ge=0,
        description="a document is left when its expected counts move by less, in tokens and the mean over the topics; "
        "0 for always all passes",
    )

    even_sweeps: int = Field(
        20,
        ge=0,
        description="first iterations in which documents begin from even proportions instead of where they were, "
        "as else the random start holds them, and nothing is learned; from then on the objective never falls",
    )

    @field_validator("learn")
    @classmethod
    def _one_kind_each(cls, learn: tuple[Learned, ...]) -> tuple[Learned, ...]:
        if "alpha" in learn and "asymmetric-alpha" in learn:
            raise ValueError("name either alpha or asymmetric-alpha")
        return learn


def initialise(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Make the globals before any document has been seen."""
    return {
        "vocabulary": np.array(float(summary.words)),
        "alpha": np.full(config.topics, config.alpha),
        "beta": np.array(config.beta),
        "learn_alpha": np.array(bool({"alpha", "asymmetric-alpha"} & set(config.learn))),
        "document_sweeps": np.array(config.document_sweeps),
        "document_tolerance": np.array(config.document_tolerance),
        "even_sweeps": np.array(config.even_sweeps),
        "topic_moments": np.zeros((1, config.topics)),
        "topic_log": np.full(config.topics, digamma(config.beta)),
    }


def carry(globals: Arrays, known: Arrays, config: Config, before: Config) -> tuple[Arrays, int] | None:
    """Go on from what another run has learned of a_k and B."""
    if config.topics != before.topics:
        return None
    names = ["alpha"] if {"alpha", "asymmetric-alpha"} & set(config.learn) else []
    names += ["beta"] if "beta" in config.learn else []
    return {**globals, **{name: known[name] for name in names}}, config.topics


def footprint(summary: Summary, config: Config) -> Footprint:
    """Say what the state of a fit takes: counts of documents in 4 bytes, counts and weights of words in 8."""
    return Footprint(
        kept=16 * config.topics,
        shown=8 * config.topics,
        swept=16.0 * config.topics,  # what folding makes meanwhile
        delta=8 * config.topics,
        pair=0.0,
        document=4.0 * config.topics,
        portion=8.0 * config.topics * summary.documents,
    )


def update(globals: Arrays, delta: Delta, config: Config, stream: Stream) -> Arrays:
    """Take the topics' totals and, where asked for, learn a_k and b_w.

    Both maximise the bound: a_k by E[log theta_dk] of the documents that have tokens, b_w by E[log phi_kw]. They are
    held while documents begin from even proportions, as topics that are alike would drive them up.

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
        The next globals; ``topic_log`` is psi(sum_w lambda_kw).
    """
    beta, learn = float(globals["beta"]), set(config.learn)
    topic_log = digamma(beta + delta["topic_total"])
    after = {**globals, "topic_moments": delta["topic_total"][np.newaxis], "topic_log": topic_log}
    if "tokens" not in delta or delta.number("even") > 0:  # the start's delta, of which nothing has been swept yet
        return after
    if "log_theta" in delta and delta.number("occupied") > 0:
        logs, count = delta["log_theta"], delta.number("occupied")
        if "asymmetric-alpha" in learn and config.topics > 1:
            after["alpha"] = dirichlet.asymmetric(globals["alpha"], logs, count)
        elif "alpha" in learn:
            found = dirichlet.symmetric(float(globals["alpha"][0]), config.topics, float(logs.sum()), count)
            after["alpha"] = np.full(config.topics, found)
    if "beta" in learn:
        words = int(globals["vocabulary"])
        logs = delta.number("log_phi") - words * topic_log.sum()
        after["beta"] = np.array(words * dirichlet.symmetric(beta / words, words, float(logs), config.topics))
    return after


def objective(globals: Arrays, delta: Delta) -> dict[str, float]:
    """Give the evidence lower bound, in nats, of the q, gamma and lambda that the sweep has made.

    sum_d [log B(gamma_d) - log B(a)] + sum_k [log B(lambda_k) - log B(b)] - sum c q log q, where log B(x) =
    sum_i log G(x_i) - log G(sum_i x_i); gamma and lambda being the best for q, all else of the bound cancels.

    Parameters
    ----------
    globals : Arrays
        As the sweep was made against.
    delta : Delta
        What the sweep and the folding of its rows told.

    Returns
    -------
    dict of str to float
        ``objective``; nothing of the start, of which no bound is made.
    """
    if "tokens" not in delta:
        return {}
    beta = float(globals["beta"])
    totals = gammaln(beta + delta["topic_total"]) - gammaln(beta)
    return {"objective": delta.number("bound_documents") + delta.number("bound_words") - float(totals.sum())}


def figures(globals: Arrays) -> dict[str, float]:
    """Give the mean a_k, and B."""
    return {"alpha": float(globals["alpha"].mean()), "beta": float(globals["beta"])}


def describe(block: Arrays, globals: Arrays, count: int) -> Description:
    """Describe the topics, the largest first."""
    prior = parameters(block, globals)
    return description.describe(block["word_topic"], prior.words, prior.total, globals["topic_moments"][0], count)


def truth(summary: Summary, config: Config, stream: Stream) -> tuple[Arrays, Arrays]:
    """Draw topics to simulate from; they stand as counts so large that the prior does not show."""
    tokens = np.full(config.topics, 1e9 / config.topics)
    globals_ = dict(initialise(summary, config, stream))
    globals_.update(beta=np.array(1e-9), topic_moments=tokens[np.newaxis], topic_log=digamma(tokens))
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
