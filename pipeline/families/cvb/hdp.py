"""The hierarchical Dirichlet process by collapsed variational inference (CV-HDP; Teh, Kurihara and Welling 2007).

theta_d ~ Dir(alpha pi), phi_k ~ Dir(beta tau), pi_k = pt_k prod_{l<k} (1 - pt_l), pt_k ~ Beta(1, gamma);
alpha, beta, gamma ~ Gamma(shape, rate), tau ~ Dir. Truncated at K topics, nested: beyond K, pi keeps its prior.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from collapsium.pipeline.families import description
from collapsium.pipeline.families import generative as drawing
from collapsium.pipeline.families.base import Description, Footprint, Summary
from collapsium.pipeline.families.cvb import common as collapsed
from collapsium.pipeline.families.cvb import topic_moves as moves
from collapsium.storage.errors import OptionError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import topic_moves as shard_moves
from collapsium.workers.families.cvb.hdp import predicting, updating
from collapsium.workers.special_functions import betaln, digamma, gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

CORPUS = "documents"
CHANGE = "moved"
SCHEDULES = ("batch", "stochastic")
SAMPLER = False
NO_ROWS: Arrays = {"word_tables": np.zeros(0)}  # where parameters are wanted that no word has

# A plateau of equal topics would drive E[alpha] up and keep it there for long: on KOS, K=120, 300 sweeps of order 0
# reach -7.158 and -7.159 without holding it, -7.146 and -7.148 with it; order 2 loses (-7.54 against -7.47, K=40).
HOLD = {0: 15, 2: 0}

Learned = Literal["alpha", "gamma", "pi", "beta", "tau"]


class Config(collapsed.ActiveConfig, title="hierarchical Dirichlet process, collapsed variational inference (CV-HDP)"):
    """Options of the family."""

    topics: int = Field(200, ge=1, le=65_535, description="truncation K: the most topics there can be")
    alpha_shape: float = Field(
        4.0, gt=0, description="shape of alpha's Gamma prior; alpha: concentration of a document"
    )
    alpha_rate: float = Field(4.0, gt=0, description="rate of alpha's Gamma prior")
    gamma_shape: float = Field(
        7.0, gt=0, description="shape of gamma's Gamma prior; gamma: concentration of the sticks"
    )
    gamma_rate: float = Field(7.0, gt=0, description="rate of gamma's Gamma prior")
    beta: float = Field(
        100.0, gt=0, description="concentration of a topic over the words; the start where beta is learned"
    )
    beta_shape: float = Field(4.0, gt=0, description="shape of beta's Gamma prior, where beta is learned")
    beta_rate: float = Field(4.0, gt=0, description="rate of beta's Gamma prior, where beta is learned")
    tau: float = Field(40.0, gt=0, description="concentration of tau's Dirichlet prior, where tau is learned")
    order: Literal[0, 2] = Field(0, description="0: zeroth-order updates (CVB0); 2: the paper's second order")
    hold: int | None = Field(
        None,
        ge=0,
        description="first sweeps, while topics have not parted yet, over which what is learned stays at its start; "
        "by itself 15 with order 0 and, as in the paper, 0 with order 2, and 0 where another run is begun from",
    )
    moves: bool | None = Field(
        None,
        description="whether topics that are no use are merged with others or deleted, and others split, as "
        f"{moves.SHARE:.0%} of the tokens, held out of the counts meanwhile, judge; by itself so with active "
        f"responsibilities and {moves.LEAST_SWEEPS} iterations or more, but not with --warm",
    )
    learn: tuple[Learned, ...] = Field(
        ("alpha", "gamma", "pi"),
        description="what is learned: alpha, gamma, pi (shares of topics), beta, tau (shares of words; else 1/W)",
    )


def initialise(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Make the globals before any document has been seen: expectations at the priors' means, pi_k = 1/K."""
    learn = set(config.learn)
    uniform = np.full(config.topics, 1.0 / config.topics)
    moments = config.order == 2 or bool(learn & {"beta", "tau"})
    collapsed.require_schedule(summary, moments=moments)
    alpha = np.array([config.alpha_shape, config.alpha_rate])
    gamma = np.array([config.gamma_shape, config.gamma_rate])
    priors = {"alpha": alpha, "gamma": gamma, "beta": np.array([config.beta_shape, config.beta_rate])}
    return {
        **{f"{name}_prior": prior for name, prior in priors.items() if name in learn},
        "order": np.array(config.order),
        **collapsed.active_globals(summary, config),
        "sweeps": np.array(0),
        "hold": np.array(config.hold if config.hold is not None else 0 if summary.warm else HOLD[config.order]),
        "vocabulary": np.array(float(summary.words)),
        "tables": np.array(bool(learn & {"alpha", "pi"})),
        "moments": np.array(moments),
        "learn_tau": np.array("tau" in learn),
        "alpha_posterior": alpha,
        **_alpha_start(config),
        "gamma_posterior": gamma,
        "gamma": np.array(gamma[0] / gamma[1]),
        "pi": uniform,
        "pi_geometric": uniform,
        "stick_order": np.arange(config.topics),
        "stick_posterior": np.zeros((0, 2)),
        "beta": np.array(config.beta),
        "beta_geometric": np.array(config.beta),
        "beta_posterior": np.zeros(0),
        "tau_prior": np.array(config.tau / summary.words),
        "tau_total": np.array(0.0),
        "topic_moments": np.zeros((2, config.topics)),
        "topic_log_absent": np.zeros(config.topics),
        **_moves(summary, config, stream),
    }


def _moves(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Return the globals of merges, deletes and splits, where there are any."""
    able = config.active and not summary.stochastic and "pi" in config.learn and config.topics <= moves.MOST_TOPICS
    if config.moves and not able:
        raise OptionError(
            "--moves true: takes active responsibilities, the batch schedule, pi among what is learned, and at most "
            f"{moves.MOST_TOPICS} topics"
        )
    long = summary.iterations >= moves.LEAST_SWEEPS and not summary.warm  # what is known shall stay known
    wanted = long if config.moves is None else config.moves
    if not (able and wanted) or config.topics == 1:
        return {}
    if summary.iterations and not moves.possible(summary.iterations):
        raise OptionError(f"--moves true: {summary.iterations} iterations end before topics can be judged; take more")
    blank = shard_moves.blank_globals(config.topics, stream.seed, moves.SHARE)
    return {**blank, **moves.begun(summary.iterations)}


def _alpha_start(config: Config) -> Arrays:
    """Return E[alpha] and G[alpha] before anything is known of it, or for ever where it is not learned."""
    prior = np.array([config.alpha_shape, config.alpha_rate])
    mean = prior[0] / prior[1]
    return {
        "alpha": np.array(mean),
        "alpha_geometric": np.array(_geometric(prior) if "alpha" in config.learn else mean),
    }


def _geometric(posterior: npt.NDArray[np.float64]) -> float:
    """Return G[y] = exp(psi(a)) / b of a Gamma with shape a and rate b."""
    return float(special.exp(digamma(posterior[0])) / posterior[1])


def carry(globals: Arrays, known: Arrays, config: Config, before: Config) -> tuple[Arrays, int] | None:
    """Go on from what another run has learned of alpha, gamma, pi and beta."""
    named = {
        "alpha": ("alpha", "alpha_geometric", "alpha_posterior"),
        "gamma": ("gamma", "gamma_posterior"),
        "pi": ("pi", "pi_geometric", "stick_order", "stick_posterior"),
        "beta": ("beta", "beta_geometric", "beta_posterior"),
    }
    names = [name for what, found in named.items() if what in config.learn for name in found]
    return collapsed.carried(globals, known, config, before, names)


def footprint(summary: Summary, config: Config) -> Footprint:
    """Say what the state of a fit takes."""
    return collapsed.footprint(summary, config, moments=config.order == 2 or bool(set(config.learn) & {"beta", "tau"}))


def update(globals: Arrays, delta: Delta, config: Config, stream: Stream) -> Arrays:
    """Add the changes of the counts and bring the posteriors of the hyperparameters up to date.

    q(pt_k) = Beta(1 + E[s_k], E[gamma] + sum_{l>k} E[s_l]) with sticks in the order of falling E[n_k];
    q(alpha) = Gamma(a + E[s], b - sum_d E[log eta_d]); q(gamma) = Gamma(a + K, b - sum_k E[log(1 - pt_k)]);
    q(beta) = Gamma(a + E[t], b - sum_k E[log xi_k]); q(tau) = Dir(a_tau + E[t_w]).

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
    after = {**globals, **so_far, **collapsed.counted(globals, delta, updating(NO_ROWS, globals))}
    if "held_share" in globals:
        after["unsettled"] = np.array(_unsettled(globals, after, delta))
    if "tokens" not in delta:  # the start's delta: nothing has been swept yet
        return after
    after["sweeps"] = globals["sweeps"] + max(delta.number("batches"), 1.0)
    if "held_share" in globals:
        after.update(moves.decided(globals, after, delta))
        if float(globals["held_share"]):  # topics that are too many let alpha grow, and it blurs them
            share = after["topic_alive"] / after["topic_alive"].sum()
            alpha = np.array(moves.PRIOR * after["topic_alive"].sum())
            after.update(alpha=alpha, alpha_geometric=alpha)
            return {**after, "pi": share, "pi_geometric": np.maximum(share, 1e-200)}
        if float(globals["held_before"]):  # the first sweep of all tokens: alpha begins where it would have begun
            after.update(_alpha_start(config))
    if after["sweeps"] <= globals["hold"]:
        return after
    if "pi" in config.learn:
        alive = globals.get("topic_alive", np.ones(config.topics, dtype=bool))
        after.update(_sticks(after["topic_moments"][0], delta["tables"], float(globals["gamma"]), alive))
    if "gamma" in config.learn and after["stick_posterior"].size:
        sticks = after["stick_posterior"]
        log_rest = digamma(sticks[:, 1]) - digamma(sticks.sum(axis=1))
        posterior = np.array([config.gamma_shape + len(sticks), config.gamma_rate - log_rest.sum()])
        after.update(gamma_posterior=posterior, gamma=np.array(posterior[0] / posterior[1]))
    if "alpha" in config.learn:
        posterior = np.array([config.alpha_shape + delta["tables"].sum(), config.alpha_rate - delta.number("log_eta")])
        after.update(alpha_posterior=posterior, alpha=np.array(posterior[0] / posterior[1]))
        after["alpha_geometric"] = np.array(_geometric(posterior))
    if "beta" in config.learn:
        log_xi, _ = collapsed.topic_totals(after["topic_moments"], after["topic_log_absent"], float(globals["beta"]))
        posterior = np.array([config.beta_shape + delta.number("tables_of_words"), config.beta_rate - log_xi.sum()])
        after.update(beta_posterior=posterior, beta=np.array(posterior[0] / posterior[1]))
        after["beta_geometric"] = np.array(_geometric(posterior))
    if "tau" in config.learn:
        after["tau_total"] = np.array(config.tau + delta.number("tables_of_words"))
    return after


def _unsettled(globals: Arrays, after: Arrays, delta: Delta) -> float:
    """Return how many tokens are held out of the counts: a run that ended now would leave them without a topic."""
    if not float(globals["held_share"]):
        return 0.0
    counted = delta.number("tokens") if "tokens" in delta else float(np.rint(after["topic_moments"][0].sum()))
    return float(globals["corpus_tokens"]) - counted


def _sticks(
    topic: npt.NDArray[np.float64], tables: npt.NDArray[np.float64], gamma: float, alive: npt.NDArray[np.bool_]
) -> Arrays:
    """Return q(pt), in the order of the sticks, and E[pi] and G[pi] by the topics' ids: 0 if gone."""
    order = np.argsort(-topic, kind="stable")
    order = order[alive[order]]
    s = tables[order]
    beyond = np.cumsum(s[::-1])[::-1] - s
    posterior = np.stack([1.0 + s, gamma + beyond], axis=1)
    both = posterior.sum(axis=1)
    log_stick, log_rest = digamma(posterior[:, 0]) - digamma(both), digamma(posterior[:, 1]) - digamma(both)
    mean, geometric = np.zeros(topic.size), np.zeros(topic.size)
    rest = np.cumprod(posterior[:, 1] / both)
    mean[order] = posterior[:, 0] / both * np.concatenate([[1.0], rest[:-1]])
    geometric[order] = special.exp(log_stick + np.concatenate([[0.0], np.cumsum(log_rest)[:-1]]))
    # A stick that nothing holds up would fall to zero, whose logarithm the bound and the tables take.
    geometric = np.maximum(geometric, 1e-200)
    return {"stick_order": order, "stick_posterior": posterior, "pi": mean, "pi_geometric": geometric}


def objective(globals: Arrays, delta: Delta) -> dict[str, float]:
    """Give the second-order bound, in nats; the zeroth order has none. What is held fixed has no divergence."""
    if int(globals["order"]) != 2 or "bound_documents" not in delta:
        return {}
    value = collapsed.likelihood_bound(globals, delta, float(globals["beta"]))
    return {"objective": value - divergence(globals, delta)}


def divergence(globals: Arrays, delta: Delta) -> float:
    """Return the sum of KL(q|p) over the hyperparameters, each from the parameters of its current q.

    Parameters
    ----------
    globals : Arrays
        The posteriors under which a sweep was made, with their priors.
    delta : Delta
        What the sweep told of q(tau).

    Returns
    -------
    float
        In nats.
    """
    total = 0.0
    for name in ("alpha", "gamma", "beta"):
        posterior = globals[f"{name}_posterior"]
        if f"{name}_prior" in globals and posterior.size:
            total += _gamma_divergence(posterior, globals[f"{name}_prior"])
    sticks = globals["stick_posterior"]
    if sticks.size:
        both = sticks.sum(axis=1)
        log_stick, log_rest = digamma(sticks[:, 0]) - digamma(both), digamma(sticks[:, 1]) - digamma(both)
        entropy = betaln(*sticks.T) - (sticks[:, 0] - 1) * log_stick - (sticks[:, 1] - 1) * log_rest
        gamma = float(globals["gamma"])
        learned = "gamma_prior" in globals
        log_gamma = special.log(_geometric(globals["gamma_posterior"])) if learned else special.log(gamma)
        total += float((-entropy - log_gamma - (gamma - 1.0) * log_rest).sum())
    if "tau_gammaln" in delta:
        words, prior, tau_total = float(globals["vocabulary"]), float(globals["tau_prior"]), float(globals["tau_total"])
        total += float(gammaln(tau_total)) - delta.number("tau_gammaln")
        total += words * float(gammaln(prior)) - float(gammaln(words * prior))
        total += delta.number("tau_digamma") - float(digamma(tau_total)) * delta.number("tau_more")
    return total


def _gamma_divergence(q: npt.NDArray[np.float64], p: npt.NDArray[np.float64]) -> float:
    """Return KL between two Gammas given as (shape, rate)."""
    return float(
        (q[0] - p[0]) * digamma(q[0])
        - gammaln(q[0])
        + gammaln(p[0])
        + p[0] * special.log(q[1] / p[1])
        + q[0] * (p[1] - q[1]) / q[1]
    )


def figures(globals: Arrays) -> dict[str, float]:
    """Give E[alpha], E[gamma], E[beta] and the number of topics that hold 99% of the tokens."""
    named = {name: float(globals[name]) for name in ("alpha", "gamma", "beta")}
    named["topics_99"] = float(description.holding(globals["topic_moments"][0]))
    if "held_share" in globals:
        named["topics"] = float(globals["topic_alive"].sum())
        named.update({name: float(globals[name]) for name in ("merges", "deletes", "splits")})
    return named


def describe(block: Arrays, globals: Arrays, count: int) -> Description:
    """Describe the topics, the largest first."""
    prior = predicting(block, globals)
    return description.describe(block["word_topic"], prior.words, prior.total, globals["topic_moments"][0], count)


def truth(summary: Summary, config: Config, stream: Stream) -> tuple[Arrays, Arrays]:
    """Draw sticks and topics to simulate from, with alpha, gamma and beta at their priors' means."""
    pi = drawing.draw_sticks(config.topics, config.gamma_shape / config.gamma_rate, stream)
    globals_ = dict(initialise(summary, config, stream))
    tokens = np.maximum(1e9 * pi, 1.0)
    globals_.update(pi=pi, pi_geometric=pi, beta=np.array(1e-9), moments=np.array(False), order=np.array(0))
    globals_.update(active=np.array(False))  # the counts are whole: no word has background to spread
    globals_.update(learn_tau=np.array(False), topic_moments=np.stack([tokens, np.zeros(config.topics)]))
    return drawing.draw_topics(summary.words, tokens, config.beta, stream), globals_


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
