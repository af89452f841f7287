"""The hierarchical Dirichlet scaling process (Kim and Oh 2017), by mean-field variational Bayes.

p_k = V_k prod_{l<k} (1 - V_l), V_k ~ Beta(1, gamma); pi_mk ~ Gamma(alpha p_k, rate R_mk); z ~ pi_m / sum_k pi_mk; phi_k
~ Dir(eta, ..., eta). R_mk is a function of what is known of document m
(`collapsium.pipeline.families.vb.label_scaling`); where nothing is, R = 1 and this is the hierarchical Dirichlet
process. gamma and alpha are the paper's alpha and beta.

V has a point for its q. In g_k = alpha p_k the bound is sum_m [ log G(g_k + n_mk) - log G(g_k) + g_k (E[log R_mk] -
log b_mk) ] + (gamma - 1) log p_K, as prod_{k<K} (1 - V_k) = p_K. With log G(g+n)/G(g) >= g0 (psi(g0+n) - psi(g0)) log g
+ const (Minka 2000) and -log sum_k g_k below its tangent, each g_k has its best value in closed form.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from collapsium.pipeline.families import description
from collapsium.pipeline.families import generative as drawing
from collapsium.pipeline.families.base import Description, FamilyConfig, Footprint, Summary
from collapsium.pipeline.families.vb.label_scaling import FEW, Scaling, Sums, scaling_of
from collapsium.pipeline.families.vb.topic_prior import LEAST, log_rate_rest, next_prior, prior_by_size
from collapsium.storage.corpus.label_index import LabelTable
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.vb.hdsp import SUMS, parameters
from collapsium.workers.special_functions import digamma, gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

CORPUS = "documents"
CHANGE = "moved"
SCHEDULES = ("batch",)
SAMPLER = False

Vector = npt.NDArray[np.float64]
Learned = Literal["gamma", "alpha", "weights", "variance"]

LEAD = 8.0  # log of how much a label favours the topics that it leads to, while topics part
BACKGROUND = 10  # one of so many topics is led to by none
MANY = 1000.0  # tokens that labels count for where a document's topics begin
MEANWHILE = 24  # arrays of labels x topics that globals and their update hold, counted twice as rows are
DRAWN, EACH = 8, 2.0  # labels of a simulated corpus, and of a document in the mean


class Config(FamilyConfig, title="hierarchical Dirichlet scaling process, mean-field variational Bayes"):
    """Options of the family."""

    topics: int = Field(200, ge=1, le=65_535, description="truncation K: the most topics there may be")
    scaling: Literal["labels", "linear"] = Field(
        "labels",
        description="what proportions are scaled by: labels, a weight of each label that a document has, with an "
        "inverse-gamma prior; linear, the exponential of a linear function of labels and numbers, with a normal prior",
    )
    labels: tuple[str, ...] = Field((), description="fields of labels to take; by default all that the corpus has")
    covariates: tuple[str, ...] = Field(
        (), description="fields of numbers to take, with linear scaling; they are standardised, and missing is the mean"
    )
    gamma: float = Field(1.0, ge=1, description="concentration of the corpus's topics to begin with")
    alpha: float | None = Field(
        None,
        gt=0,
        description="concentration of a document's topics to begin with; by itself 1000 where there are labels, so "
        "that topics form by them, and 1 where there are none. Labels alone predict best with 1000 held (--learn "
        "gamma,weights), or 5 where most labels are missing",
    )
    eta: float = Field(0.1, gt=0, description="Dirichlet parameter of each word in a topic; it is not learned")
    weight_shape: float = Field(1.0, gt=0, description="labels: a_w of the weights' inverse-gamma prior to begin with")
    weight_rate: float = Field(1.0, gt=0, description="labels: b_w of that prior to begin with")
    weight_variance: float = Field(1.0, gt=0, description="linear: variance of the weights' normal prior to begin with")
    learn: tuple[Learned, ...] = Field(
        ("gamma", "alpha", "weights"),
        description="what is learned: gamma, alpha, weights (a_w and b_w), variance (of linear weights; it shrinks to "
        "nothing where most labels are rare); the weights themselves always are",
    )
    start: Literal["labels", "lda"] = Field(
        "labels",
        description="how topics part: by sweeps of LDA in which each label leads to topics of its own (labels), or "
        "without labels, as in the paper (lda), which mostly ends in poorer bounds and predictions",
    )
    lda_sweeps: int = Field(3, ge=1, description="how many such sweeps the first iteration begins with")
    document_sweeps: int = Field(
        5, ge=1, description="most passes over a document in an iteration, each of which updates q(pi) and q(z)"
    )
    document_tolerance: float = Field(
        0.001,
        ge=0,
        description="a document is left when its expected counts move by less, in tokens and the mean over the topics; "
        "0 for always all passes",
    )

    def begin_alpha(self, labels: int) -> float:
        """Return the concentration of a document's topics to begin with, given how many labels there are."""
        return self.alpha if self.alpha is not None else MANY if labels else 1.0

    @model_validator(mode="after")
    def _numbers_are_linear(self) -> Config:
        if self.covariates and self.scaling != "linear":
            raise ValueError("covariates are numbers, which take scaling = linear")
        return self


def _scaling(config: Config) -> Scaling:
    """Return the scaling function that is asked for."""
    learn = ("weights" if config.scaling == "labels" else "variance") in config.learn
    return scaling_of(config.scaling, config.weight_shape, config.weight_rate, config.weight_variance, learn=learn)


def initialise(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Make the globals before any document has been seen."""
    table = summary.labels or LabelTable()
    largest = np.array([1.0] * len(table.names) + [one.largest for one in table.numbers])
    few = len(table) ** 2 * config.topics <= FEW
    lead = _lead(table, config)
    begun: dict[str, npt.NDArray[np.generic]] = {
        "vocabulary": np.array(float(summary.words)),
        "eta": np.array(config.eta),
        "gamma": np.array(config.gamma),
        "prior": np.full(config.topics, config.begin_alpha(len(table)) / config.topics),
        "topic_moments": np.zeros((1, config.topics)),
        "topic_log": np.full(config.topics, digamma(config.eta * summary.words)),
        "document_sweeps": np.array(config.document_sweeps),
        "document_tolerance": np.array(config.document_tolerance),
        "early": np.array(0 if summary.warm else config.lda_sweeps),
        "another_round": np.array(0.0),
        "last": np.array(config.topics - 1),
        "label_table": table.packed(),
        "label_most": np.array(table.most + largest[len(table.names) :].sum()),
        "label_least": np.array(0.0 if table.numbers else 1.0),
        "label_reach": largest,
        "signed": np.array(bool(table.numbers)),
        "curved": np.array(config.scaling == "linear" and len(table) > 0 and few),
        "led": np.array(bool(lead.any())),
        **_scaling(config).begin(lead),
    }
    return {**begun, **_rates(begun, config)}


def _lead(table: LabelTable, config: Config) -> Vector:
    """Return log E[R] that labels begin with, shape (labels, topics): lower by `LEAD` for the topics that they lead to.

    A tenth of the topics are left to all. Each label has a topic, if there are so many, the most frequent labels first,
    and what is left is shared out by the roots of the labels' documents. A number counts as two labels, for what is
    above its mean and what is below, of half its documents each.
    """
    lead = np.zeros((len(table), config.topics))
    if config.start == "lda" or not len(table):
        return lead
    leads = [(place, -LEAD, float(count)) for place, count in enumerate(table.documents)]
    for place, one in enumerate(table.numbers, start=len(table.names)):
        leads += [(place, sign * LEAD / max(one.largest, 1.0), one.documents / 2) for sign in (-1, 1)]
    counts = np.array([count for _, _, count in leads], dtype=np.float64)
    room = config.topics - config.topics // BACKGROUND
    each = np.zeros(counts.size, dtype=np.int64)
    each[np.argsort(-counts, kind="stable")[:room]] = 1
    roots = np.sqrt(counts)
    each += np.floor(max(room - int(each.sum()), 0) * roots / max(float(roots.sum()), 1.0)).astype(np.int64)
    ends = np.cumsum(each)
    for (place, gain, _), last, many in zip(leads, ends.tolist(), each.tolist(), strict=True):
        lead[place, last - many : last] = gain
    return lead


def _rates(globals: Arrays, config: Config) -> dict[str, Vector]:
    """Return what sweeps see of the weights, and E[log R] beside it."""
    log_mean, mean_log = _scaling(config).rates(globals)
    return {"label_log": log_mean, "label_mean_log": mean_log}


def carry(globals: Arrays, known: Arrays, config: Config, before: Config) -> tuple[Arrays, int] | None:
    """Go on from what another run has learned, where it has the same labels and the same scaling."""
    same = config.topics == before.topics and config.scaling == before.scaling
    if not same or not np.array_equal(globals["label_table"], known["label_table"]):
        return None
    names = ["prior", "last", "label_log", "label_mean_log", *_scaling(config).begin(np.zeros((0, 1)))]
    names += ["gamma"] if "gamma" in config.learn else []
    return {**globals, **{name: known[name] for name in names}, "carried": np.array(True)}, config.topics


def footprint(summary: Summary, config: Config) -> Footprint:
    """Say what the state of a fit takes: counts of documents in 4 bytes, counts and weights of words in 8."""
    table = summary.labels or LabelTable()
    labels, topics = len(table), config.topics
    few = config.scaling == "linear" and labels**2 * topics <= FEW
    kinds = SUMS * (2 if table.numbers else 1)
    each = 8.0 * labels * topics * (kinds + 5 + (2 * labels if few else 0))  # sums, and what the globals hold
    known = 12.0 * sum(table.documents) / max(summary.documents, 1) + 12.0 * len(table.numbers) + 8.0
    return Footprint(
        kept=16.0 * topics + MEANWHILE * 8.0 * labels * topics / max(summary.words, 1),
        shown=8.0 * topics,
        swept=16.0 * topics + each / max(summary.words, 1),
        delta=8.0 * topics + each / max(summary.words, 1),
        pair=0.0,
        document=4.0 * topics + known,
        portion=8.0 * topics * summary.documents,
    )


def update(globals: Arrays, delta: Delta, config: Config, stream: Stream) -> Arrays:
    """Update what is known of all documents: alpha p_k, the labels' weights, and the priors' parameters.

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
        The next globals. While LDA is at the beginning, ``another_round`` is asked for.
    """
    total = delta["topic_total"]
    topic_log = digamma(config.eta * float(globals["vocabulary"]) + total)
    after = {**globals, "topic_moments": total[np.newaxis], "topic_log": topic_log}
    early = int(globals["early"])
    if "tokens" not in delta:  # the start's delta, of which nothing has been swept yet
        if not early and not globals.get("carried", False):
            after.update(prior_by_size(globals, total))
        return after
    if early:
        left = {"early": np.array(early - 1), "another_round": np.array(1.0)}
        return {**after, **left, **(prior_by_size(globals, total) if early == 1 else {})}
    after["another_round"] = np.array(0.0)
    after["prior"] = next_prior(globals, delta, learn_alpha="alpha" in config.learn)
    if "label_sums" in delta:
        sums = Sums.of(after["prior"], *_whole(globals, delta), _curvature(delta))
        after.update(_scaling(config).step(globals, sums))
        after.update(_rates(after, config))
    if "gamma" in config.learn and config.topics > 1:
        last = float(after["prior"][int(globals["last"])] / after["prior"].sum())
        after["gamma"] = np.array(max((config.topics - 1) / -special.log(last), 1.0))
    return after


def _whole(globals: Arrays, delta: Delta) -> tuple[Vector, Vector]:
    """Return sum_m r_mj and the labels' sums for all labels, zero of those that no document of the sweep has."""
    sums = delta["label_sums"]
    every, ids = np.zeros((globals["label_log"].shape[0], *sums.shape[1:])), delta.ids["label"]
    total = np.zeros(len(every))
    every[ids], total[ids] = sums, delta["label_total"]
    return total, every


def _curvature(delta: Delta) -> Vector | None:
    """Return the labels' Hessian, but for the prior, where it was asked for."""
    return np.asarray(delta["label_curvature"]) if "label_curvature" in delta else None


def objective(globals: Arrays, delta: Delta) -> dict[str, float]:
    """Give the evidence lower bound (46), in nats, of q(z), q(pi) and q(phi) as the sweep has made them.

    Parameters
    ----------
    globals : Arrays
        As the sweep was made against.
    delta : Delta
        What the sweep and the folding of its rows told.

    Returns
    -------
    dict of str to float
        ``objective``; nothing of the start and of the sweeps of LDA, of which no bound is made.
    """
    if "tokens" not in delta or globals["early"]:
        return {}
    prior, total = globals["prior"], float(globals["eta"]) * float(globals["vocabulary"])
    totals = gammaln(total + delta["topic_total"]) - gammaln(total)
    documents = delta.number("bound_documents")
    documents += float((prior * (log_rate_rest(globals, delta) - delta["minus_log_rate"])).sum())
    gamma, last = float(globals["gamma"]), float(prior[int(globals["last"])] / prior.sum())
    sticks = (prior.size - 1) * special.log(gamma) + (gamma - 1.0) * special.log(last)
    weights = _scaling_of_globals(globals).bound(globals)
    return {"objective": documents + delta.number("bound_words") - float(totals.sum()) + float(sticks) + weights}


def _scaling_of_globals(globals: Arrays) -> Scaling:
    """Return the scaling function whose weights the globals hold."""
    return scaling_of("labels" if "weight_shape" in globals else "linear", 1.0, 1.0, 1.0, learn=False)


def figures(globals: Arrays) -> dict[str, float]:
    """Give gamma, alpha, the parameters of the weights' prior, and how many topics hold 99% of the tokens."""
    held = description.holding(globals["topic_moments"][0])
    found = {"gamma": float(globals["gamma"]), "alpha": float(globals["prior"].sum())}
    return {**found, **_scaling_of_globals(globals).figures(globals), "topics_99": float(held)}


def describe(block: Arrays, globals: Arrays, count: int) -> Description:
    """Describe the topics, the largest first."""
    prior = parameters(block, globals)
    return description.describe(block["word_topic"], prior.words, prior.total, globals["topic_moments"][0], count)


def label_weights(globals: Arrays) -> Vector:
    """Tell how much each label raises each topic: -log E[R], shape (labels, topics)."""
    weights: Vector = -globals["label_log"]
    return weights


def truth(summary: Summary, config: Config, stream: Stream) -> tuple[Arrays, Arrays]:
    """Draw topics, sticks and weights of some labels to simulate from."""
    table = LabelTable(tuple(("label", f"l{number}") for number in range(DRAWN)), (1,) * DRAWN, (), DRAWN, 0)
    pi = drawing.draw_sticks(config.topics, config.gamma, stream)
    globals_ = dict(initialise(Summary(summary.documents, summary.words, summary.tokens, labels=table), config, stream))
    generator = stream.at(purpose="simulate weights").generator()
    size = DRAWN, config.topics
    if config.scaling == "labels":
        drawn = config.weight_rate / generator.standard_gamma(config.weight_shape, size)
        sure = 1e6  # so that q(w) is this point
        globals_.update(weight_shape=np.full(size, sure), weight_rate=sure * drawn)
    else:
        globals_["label_topic"] = generator.normal(0.0, np.sqrt(config.weight_variance), size)
    globals_.update(_rates(globals_, config))
    tokens = 1e9 * pi
    shown = {"topic_moments": tokens[np.newaxis], "topic_log": digamma(np.maximum(tokens, LEAST))}
    globals_.update(prior=np.maximum((config.alpha or 1.0) * pi, LEAST), eta=np.array(1e-9), early=np.array(0), **shown)
    return drawing.draw_topics(summary.words, tokens, config.eta * summary.words, stream), globals_


def simulate(
    rows: Arrays,
    globals: Arrays,
    documents: int,
    tokens: float,
    stream: Stream,
) -> tuple[Documents, Vector]:
    """Draw documents with some labels each, pi_mk ~ Gamma(alpha p_k, R_mk), and give their proportions too."""
    import pyarrow as pa

    from collapsium.storage.corpus.shard import EXTRAS

    table = LabelTable.unpacked(globals["label_table"])
    generator = stream.at(purpose="simulate labels").generator()
    has = generator.random((documents, len(table))) < min(EACH / max(len(table), 1), 1.0)
    listed = [[{"field": name, "value": value} for name, value in np.array(table.names)[row]] for row in has]
    extras = {"labels": pa.array(listed, EXTRAS["labels"])}
    log_pi = drawing.log_gammas(globals["prior"], documents, generator) - has @ globals["label_log"]
    pi = special.exp(log_pi - log_pi.max(axis=1, keepdims=True))
    theta = pi / pi.sum(axis=1, keepdims=True)
    drawn = drawing.draw_bags(rows, int(globals["vocabulary"]), theta, tokens, generator)
    return replace(drawn, extras=extras), theta
