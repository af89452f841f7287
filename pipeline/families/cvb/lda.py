"""Latent Dirichlet allocation by collapsed variational inference (Teh, Newman and Welling 2007).

theta_d ~ Dir(a_1..a_K), phi_k ~ Dir(b_1..b_W); zeroth order (CVB0) or the paper's second order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from collapsium.pipeline.families import description
from collapsium.pipeline.families import generative as drawing
from collapsium.pipeline.families.base import Description, Footprint, Summary
from collapsium.pipeline.families.cvb import common as collapsed
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb.lda import parameters

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

CORPUS = "documents"
CHANGE = "moved"
SCHEDULES = ("batch", "stochastic")
SAMPLER = False
NO_ROWS: Arrays = {"word_tables": np.zeros(0)}  # where parameters are wanted that no word has
LEAST = 1e-8  # smallest Dirichlet parameter that learning may reach

Learned = Literal["alpha", "beta", "asymmetric-alpha", "asymmetric-beta"]


class Config(collapsed.ActiveConfig, title="latent Dirichlet allocation, collapsed variational inference"):
    """Options of the family."""

    topics: int = Field(ge=1, le=65_535, description="number of topics K")
    alpha: float = Field(0.1, gt=0, description="Dirichlet parameter of each topic in a document, a_k")
    beta: float = Field(
        100.0,
        gt=0,
        description="concentration of a topic over the words, B; each word has beta/W, W being the vocabulary",
    )
    tau: float = Field(
        40.0,
        gt=0,
        description="where asymmetric-beta is learned: pseudo-tables shared by all words, so that one without tokens "
        "keeps a chance",
    )
    order: Literal[0, 2] = Field(0, description="0: zeroth-order updates (CVB0); 2: the second order, with its bound")
    learn: tuple[Learned, ...] = Field(
        (),
        description="what is learned: alpha, beta (one value for all), asymmetric-alpha (a value a topic), "
        "asymmetric-beta (a value a word)",
    )

    @field_validator("learn")
    @classmethod
    def _one_kind_each(cls, learn: tuple[Learned, ...]) -> tuple[Learned, ...]:
        for name in ("alpha", "beta"):
            if name in learn and f"asymmetric-{name}" in learn:
                raise ValueError(f"name either {name} or asymmetric-{name}")
        return learn


def initialise(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Make the globals before any document has been seen."""
    learn = set(config.learn)
    learn_beta = bool(learn & {"beta", "asymmetric-beta"})
    collapsed.require_schedule(summary, moments=config.order == 2 or learn_beta)
    return {
        "order": np.array(config.order),
        **collapsed.active_globals(summary, config),
        "vocabulary": np.array(float(summary.words)),
        "alpha": np.full(config.topics, config.alpha),
        "beta": np.array(config.beta),
        "beta_rate": np.array(0.0),
        "word_tables_prior": np.array(config.tau / summary.words),
        "asymmetric_beta": np.array("asymmetric-beta" in learn),
        "learn_alpha": np.array(bool(learn & {"alpha", "asymmetric-alpha"})),
        "moments": np.array(config.order == 2 or learn_beta),
        "topic_moments": np.zeros((2, config.topics)),
        "topic_log_absent": np.zeros(config.topics),
    }


def carry(globals: Arrays, known: Arrays, config: Config, before: Config) -> tuple[Arrays, int] | None:
    """Go on from what another run has learned of a_k and B."""
    learn = set(config.learn)
    names = ["alpha"] if learn & {"alpha", "asymmetric-alpha"} else []
    names += ["beta"] if "beta" in learn else []
    return collapsed.carried(globals, known, config, before, names)


def footprint(summary: Summary, config: Config) -> Footprint:
    """Say what the state of a fit takes."""
    return collapsed.footprint(
        summary, config, moments=config.order == 2 or bool(set(config.learn) & {"beta", "asymmetric-beta"})
    )


def update(globals: Arrays, delta: Delta, config: Config, stream: Stream) -> Arrays:
    """Add the changes of the counts and, where asked for, learn a_k and b_w.

    a_k <- sum_d E[s_dk] / sum_d [psi(A+n_d) - psi(A)];  b_w <- sum_k E[t_kw] / (-sum_k E[log xi_k]), to whose tables
    the asymmetric form adds tau / W.

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
    delta, so_far = collapsed.of_corpus(globals, delta)
    after = {**globals, **so_far, **collapsed.counted(globals, delta, parameters(NO_ROWS, globals))}
    if "tokens" not in delta:  # the start's delta: nothing has been swept yet
        return after
    if {"alpha", "asymmetric-alpha"} & set(config.learn) and delta.number("log_eta") < 0:
        tables = (
            delta["tables"] if "asymmetric-alpha" in config.learn else np.full(config.topics, delta["tables"].mean())
        )
        after["alpha"] = np.maximum(tables / -delta.number("log_eta"), LEAST)
    if {"beta", "asymmetric-beta"} & set(config.learn):
        log_xi, _ = collapsed.topic_totals(after["topic_moments"], after["topic_log_absent"], float(globals["beta"]))
        rate = -float(log_xi.sum())
        if rate > 0:
            after["beta_rate"] = np.array(rate)
            pseudo = config.tau if "asymmetric-beta" in config.learn else 0.0
            after["beta"] = np.array(max((delta.number("tables_of_words") + pseudo) / rate, LEAST))
    return after


def objective(globals: Arrays, delta: Delta) -> dict[str, float]:
    """Give the second-order bound, in nats; the zeroth order has none."""
    if int(globals["order"]) != 2 or "bound_documents" not in delta:
        return {}
    return {"objective": collapsed.likelihood_bound(globals, delta, float(globals["beta"]))}


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
    globals_.update(beta=np.array(1e-9), moments=np.array(False), order=np.array(0))
    globals_.update(active=np.array(False))  # the counts are whole: no word has background to spread
    globals_.update(asymmetric_beta=np.array(False), topic_moments=np.stack([tokens, np.zeros(config.topics)]))
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
