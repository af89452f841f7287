"""The author-topic model by collapsed Gibbs sampling (Rosen-Zvi, Griffiths, Steyvers and Smyth 2004).

Labels are authors. Each token has one of its document's, all as likely, and a topic of this author: theta_a ~
Dir(alpha, ..., alpha), phi_k ~ Dir(eta, ..., eta). Documents without a known author share one without a name. With
several shards as AD-LDA.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import Field

from collapsium.pipeline.families import generative as drawing
from collapsium.pipeline.families.base import Description, Footprint, Summary
from collapsium.pipeline.families.gibbs import common as gibbs
from collapsium.pipeline.families.gibbs import labelled as gibbs_labels
from collapsium.storage.corpus.label_index import LabelTable
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.gibbs.author_topic import counted, priors
from collapsium.workers.families.gibbs.common import MOST
from collapsium.workers.special_functions import gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

CORPUS = "documents"
CHANGE = "moved"
SCHEDULES = gibbs.SCHEDULES
SAMPLER = True
NEEDS_LABELS = True


class Config(gibbs_labels.LabelConfig, title="author-topic model, labels being authors, collapsed Gibbs sampling"):
    """Options of the family."""

    topics: int = Field(ge=1, le=65_535, description="number of topics K")


def initialise(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Make the globals before any document has been seen; raise `OptionError` if there are no labels."""
    table = gibbs_labels.require_labels(summary)
    if table.most > MOST:
        raise OptionError(f"a document has {table.most} labels; expected {MOST} at most: take fewer fields of labels")
    return {
        "vocabulary": np.array(float(summary.words)),
        "alpha": np.array(config.alpha),
        "beta": np.array(config.eta * summary.words),
        "label_table": table.packed(),
        "label_topic": np.zeros((len(table.names) + 1, config.topics), dtype=np.int64),
        "topic": np.zeros(config.topics, dtype=np.int64),
    }


def carry(globals: Arrays, known: Arrays, config: Config, before: Config) -> tuple[Arrays, int] | None:
    """Go on from the authors and topics of another run, where its authors are the same."""
    if config.topics != before.topics or not gibbs_labels.same_labels(globals, known):
        return None
    return globals, config.topics


def footprint(summary: Summary, config: Config) -> Footprint:
    """Return what the state takes: 4 bytes a token; 4 a label of a document, and 16."""
    found = gibbs.footprint(summary, config.topics)
    pair, document = 2.0 * found.pair, 4.0 * max(gibbs_labels.mean_labels(summary), 1.0) + 16.0
    authors = 16.0 * config.topics * (gibbs_labels.label_count(summary) + 1)
    return replace(
        found,
        pair=pair,
        document=document,
        portion=2.0 * (pair * summary.pairs + document * summary.documents) + authors,
    )


def update(globals: Arrays, delta: Delta, config: Config, stream: Stream) -> Arrays:
    """Add the changes of the counts."""
    return {**globals, "topic": gibbs.counted(globals, delta), "label_topic": counted(globals, delta)}


def objective(globals: Arrays, delta: Delta) -> dict[str, float]:
    """Give log p(w, z, a) of the sample, in nats, theta and phi summed out.

    -sum_d n_d log A_d + sum_a log G(K alpha)/G(K alpha + n_a) + sum_ak log G(alpha + n_ak)/G(alpha), A_d being how many
    authors a document has, and what words add as in LDA.

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
    if "tokens" not in delta:
        return {}
    given, alpha = priors(globals), float(globals["alpha"])
    topic, authors = gibbs.counted(globals, delta), counted(globals, delta)
    some = authors[authors > 0]
    each, held = gammaln(alpha + some) - gammaln(alpha), authors.sum(axis=1)
    whole = gammaln(given.concentration) - gammaln(given.concentration + held)
    fall = gammaln(given.total) - gammaln(given.total + topic)
    words = float(fall.sum()) + delta.number("word_rising")
    return {"objective": delta.number("choosing") + float(each.sum()) + float(whole.sum()) + words}


def figures(globals: Arrays) -> dict[str, float]:
    """Give nothing: no parameter is learned."""
    return {}


def describe(block: Arrays, globals: Arrays, count: int) -> Description:
    """Describe the topics, the largest first."""
    return gibbs.describe(block, globals, priors(globals), count)


def truth(summary: Summary, config: Config, stream: Stream) -> tuple[Arrays, Arrays]:
    """Draw topics, and the proportions of eight authors and one without a name, to simulate from."""
    globals_ = initialise(replace(summary, labels=gibbs_labels.simulated_table()), config, stream)
    tokens, authors = np.full(config.topics, 1e9 / config.topics), len(globals_["label_topic"])
    generator = stream.at(purpose="simulate authors").generator()
    theta = drawing.draw_proportions(np.full(config.topics, config.alpha), authors, generator)
    drawn = drawing.draw_topics(summary.words, tokens, config.eta * summary.words, stream)
    large = np.rint(1e12 * theta).astype(np.int64)
    return drawn, {**globals_, "beta": np.array(gibbs_labels.SHARPLY), "topic": tokens, "label_topic": large}


def simulate(
    rows: Arrays,
    globals: Arrays,
    documents: int,
    tokens: float,
    stream: Stream,
) -> tuple[Documents, npt.NDArray[np.float64]]:
    """Draw documents with authors, and their proportions, the mean of the authors'."""
    generator, names = stream.generator(), LabelTable.unpacked(globals["label_table"]).names
    has = gibbs_labels.draw_labels(len(names), documents, generator)
    alone = ~has.any(axis=1)
    author = globals["label_topic"] / globals["label_topic"].sum(axis=1, keepdims=True)
    weight = np.column_stack([has, alone]).astype(np.float64)
    theta = weight @ author / weight.sum(axis=1, keepdims=True)
    drawn = drawing.draw_bags(rows, int(globals["vocabulary"]), theta, tokens, generator)
    return gibbs_labels.labelled(drawn, has, names), theta
