"""What samplers of topics given the documents' labels share on the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import Field

from collapsium.pipeline.families import generative as drawing
from collapsium.pipeline.families.base import Description, FamilyConfig, Footprint, Summary
from collapsium.pipeline.families.gibbs import common as gibbs
from collapsium.storage.corpus.label_index import LabelTable
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.gibbs.common import MOST
from collapsium.workers.families.gibbs.labelled import Allowed, priors

if TYPE_CHECKING:
    from collapsium.storage.corpus.labels import Name
    from collapsium.storage.corpus.shard import Documents

SOME = 8  # labels that are foreseen where none are known, and that are simulated
MEAN_LABELS = 2.0  # of a simulated document
SHARPLY = 1e-9  # concentration over words of topics that stand as large counts
Vector = npt.NDArray[np.float64]


class LabelConfig(FamilyConfig):
    """Options that these families share; their own come behind."""

    labels: tuple[str, ...] = Field((), description="fields of labels to take; by itself all that the corpus has")
    alpha: float = Field(0.1, gt=0, description="Dirichlet parameter of each topic that may occur, in the proportions")
    eta: float = Field(0.1, gt=0, description="Dirichlet parameter of each word in a topic")


def require_labels(summary: Summary) -> LabelTable:
    """Return the labels that a corpus has.

    Parameters
    ----------
    summary : Summary
        What is known of the corpus.

    Returns
    -------
    LabelTable
        With one label at least.

    Raises
    ------
    OptionError
        It has none.
    """
    if summary.labels is None or not summary.labels.names:
        raise OptionError(
            "the corpus has no labels, and this family needs them: add them with 'collapsium ingest --labels NAME' (a "
            "column or key of the documents) or '--label-files FILE', or take a family without labels"
        )
    return summary.labels


def initialise(summary: Summary, config: LabelConfig, each: int, background: int) -> Arrays:
    """Make the globals before any document has been seen.

    Parameters
    ----------
    summary : Summary
        With the corpus's labels.
    config : LabelConfig
        The options.
    each, background : int
        Topics of each label, and of the background.

    Returns
    -------
    Arrays
        ``topic`` is n_k; label l has the columns from l times `each` on, the background the last.

    Raises
    ------
    OptionError
        There are no labels, or more topics than tokens can name.
    """
    table = require_labels(summary)
    topics = len(table.names) * each + background
    if topics > MOST:
        raise OptionError(
            f"{len(table.names)} labels of {each} topics each, and {background} of the background, are {topics} "
            f"topics; expected {MOST} at most: take fewer fields with --labels, or fewer topics of each label"
        )
    return {
        "vocabulary": np.array(float(summary.words)),
        "alpha": np.array(config.alpha),
        "beta": np.array(config.eta * summary.words),
        "label_table": table.packed(),
        "label_topics": np.array(each),
        "background_topics": np.array(background),
        "carried": np.array(False),
        "fixed": np.array(topics_of(table, summary, each, background) == 1),
        "topic": np.zeros(topics, dtype=np.int64),
    }


def topics_of(table: LabelTable, summary: Summary, each: int, background: int) -> int:
    """Return how many topics the tokens of a document may have, at most; a document without labels may have all."""
    return (table.most if table.labelled == summary.documents else len(table.names)) * each + background


def same_labels(globals: Arrays, known: Arrays) -> bool:
    """Tell whether another run's labels have the same names, and so the same numbers."""
    own, other = (LabelTable.unpacked(one["label_table"]).names for one in (globals, known))
    return own == other


def carry(globals: Arrays, known: Arrays) -> tuple[Arrays, int] | None:
    """Go on from another run's topics, where they are those of the same labels."""
    names = ("label_topics", "background_topics")
    if not same_labels(globals, known) or any(int(globals[name]) != int(known[name]) for name in names):
        return None
    return {**globals, "carried": np.array(True)}, globals["topic"].size


def footprint(summary: Summary, each: int, background: int) -> Footprint:
    """Return what the state takes: that of the sampler of all topics, and 4 bytes a label of a document."""
    found = gibbs.footprint(summary, label_count(summary) * each + background)
    document = found.document + 4.0 * mean_labels(summary) + 8.0
    more = 2.0 * (document - found.document) * summary.documents
    return replace(found, document=document, portion=found.portion + more)


def label_count(summary: Summary) -> int:
    """Return how many labels there are, or some where they are not known."""
    return len(summary.labels.names) if summary.labels is not None and summary.labels.names else SOME


def mean_labels(summary: Summary) -> float:
    """Return how many labels a document has, in the mean."""
    if summary.labels is None:
        return MEAN_LABELS
    return sum(summary.labels.documents) / max(summary.documents, 1)


def update(globals: Arrays, delta: Delta) -> Arrays:
    """Add the changes of the counts."""
    return {**globals, "topic": gibbs.counted(globals, delta)}


def objective(globals: Arrays, delta: Delta) -> dict[str, float]:
    """Give log p(w, z | labels) of the sample, in nats."""
    return gibbs.objective(globals, delta, priors(globals))


def describe(block: Arrays, globals: Arrays, count: int) -> Description:
    """Describe the topics, the largest first, with their labels."""
    found = gibbs.describe(block, globals, priors(globals), count)
    named = titles(globals)
    return replace(found, titles=tuple(named[one] for one in found.ids))


def titles(globals: Arrays) -> list[str]:
    """Return what each topic is called: its label's name and, where that has several, which of them it is."""
    labels = LabelTable.unpacked(globals["label_table"]).titles()
    each, background = int(globals["label_topics"]), int(globals["background_topics"])
    named = labels if each == 1 else [f"{name} {number}" for name in labels for number in range(1, each + 1)]
    behind = [f"(background) {number}" for number in range(1, background + 1)]
    return named + (["(background)"] if background == 1 else behind)


def simulated_table() -> LabelTable:
    """Return the labels of which simulated documents have some."""
    names = tuple(("label", f"label-{number}") for number in range(1, SOME + 1))
    return LabelTable(names, (1,) * SOME, (), SOME, SOME)


def truth(summary: Summary, config: LabelConfig, each: int, background: int, stream: Stream) -> tuple[Arrays, Arrays]:
    """Draw topics to simulate from; they stand as counts so large that the prior does not show."""
    globals_ = initialise(replace(summary, labels=simulated_table()), config, each, background)
    tokens = np.full(globals_["topic"].size, 1e9 / globals_["topic"].size)
    drawn = drawing.draw_topics(summary.words, tokens, config.eta * summary.words, stream)
    return drawn, {**globals_, "beta": np.array(SHARPLY), "topic": tokens}


def draw_labels(labels: int, documents: int, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Draw which labels documents have, shape (documents, labels): a Poisson number of them, all as likely."""
    number = np.minimum(generator.poisson(MEAN_LABELS, documents), labels)
    order = np.argsort(generator.random((documents, labels)), axis=1, kind="stable")
    return np.argsort(order, axis=1, kind="stable") < number[:, np.newaxis]


def labelled(documents: Documents, has: npt.NDArray[np.bool_], names: Sequence[Name]) -> Documents:
    """Give documents labels; `has` has the shape (documents, labels)."""
    import pyarrow as pa

    from collapsium.storage.corpus.parquet import LABELS

    label = np.nonzero(has)[1]
    parts = [pa.array([names[one][place] for one in label.tolist()], pa.string()) for place in (0, 1)]
    flat = pa.StructArray.from_arrays(parts, fields=list(LABELS.value_type))
    offsets = pa.array(np.concatenate([[0], np.cumsum(has.sum(axis=1))]).astype(np.int32))
    column = pa.ListArray.from_arrays(offsets, flat, type=LABELS)
    return replace(documents, extras={**documents.extras, "labels": column})


def simulate(rows: Arrays, globals: Arrays, documents: int, tokens: float, stream: Stream) -> tuple[Documents, Vector]:
    """Draw documents with labels, theta_d ~ Dir(a, ..., a) over the topics that they may have, and their proportions.

    Parameters
    ----------
    rows, globals : Arrays
        From `truth`.
    documents : int
        How many.
    tokens : float
        Mean number of tokens of a document.
    stream : Stream
        Addressed to the portion.

    Returns
    -------
    documents : Documents
        Without ids.
    theta : numpy.ndarray of float64, shape (documents, topics)
        Their proportions.
    """
    generator, names = stream.generator(), LabelTable.unpacked(globals["label_table"]).names
    has = draw_labels(len(names), documents, generator)
    lists = np.concatenate([[0], np.cumsum(has.sum(axis=1))])
    allowed = Allowed.of((lists, np.nonzero(has)[1].astype(np.int32)), globals)
    prior = np.zeros((documents, allowed.topics))
    _, document, topic = allowed.flat()
    prior[document, topic] = float(globals["alpha"])
    theta = drawing.draw_proportions(prior, documents, generator)
    drawn = drawing.draw_bags(rows, int(globals["vocabulary"]), theta, tokens, generator)
    return labelled(drawn, has, names), theta
