"""Topics of labels by collapsed Gibbs sampling: a document's tokens have the topics of its labels.

theta_d ~ Dir(alpha, ..., alpha) over the topics that a document may have, phi_k ~ Dir(eta, ..., eta). With several
shards as AD-LDA.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from collapsium.pipeline.families import generative
from collapsium.pipeline.families.base import Description, FamilyOptions, Footprint, Summary
from collapsium.pipeline.families.gibbs.sampler import (
    SIMULATED_CONCENTRATION,
    SIMULATED_TOKENS,
    GibbsFamily,
    footprint,
)
from collapsium.storage.corpus.label_index import LabelTable
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.gibbs.allowed_topics import LabelLists, TopicSizes
from collapsium.workers.families.gibbs.label_topics import LabelTopicsGlobalState, LabelTopicsShardModel
from collapsium.workers.families.gibbs.states import MAX_TOPICS, SampledRows, Vector

if TYPE_CHECKING:
    from collapsium.storage.corpus.labels import Name
    from collapsium.storage.corpus.shard import Documents


# Labels of which simulated documents have some; as many are foreseen where a corpus's are not known
SIMULATED_LABELS = 8
MEAN_LABELS = 2.0  # Labels of a simulated document in the mean; as many are foreseen where a corpus's are not known


class LabelOptions(FamilyOptions):
    """Options that families with labels share."""

    labels: tuple[str, ...] = Field((), description="fields of labels to use (default: all fields of the corpus)")
    alpha: float = Field(0.1, gt=0, description="Dirichlet parameter alpha of each topic that a document may use")
    eta: float = Field(0.1, gt=0, description="Dirichlet parameter eta of each word in a topic")


def require_labels(summary: Summary) -> LabelTable:
    """Return the labels that a corpus has."""
    if summary.labels is None or not summary.labels.names:
        raise OptionError(
            "the corpus has no labels, and this family needs them: `ingest` with `labels` takes them from columns or "
            "keys of the documents, with `label_files` from files; or take a family without labels"
        )
    return summary.labels


def label_count(summary: Summary) -> int:
    """Return the number of labels, or an estimate where they are not known."""
    known = summary.labels is not None and summary.labels.names
    return len(summary.labels.names) if summary.labels is not None and known else SIMULATED_LABELS


def mean_labels(summary: Summary) -> float:
    """Return the mean number of labels of a document, or an estimate where they are not known."""
    if summary.labels is None:
        return MEAN_LABELS
    return sum(summary.labels.documents) / max(summary.documents, 1)


def simulated_table() -> LabelTable:
    """Return the labels of which simulated documents have some."""
    names = tuple(("label", f"label-{number}") for number in range(1, SIMULATED_LABELS + 1))
    return LabelTable(names, (1,) * SIMULATED_LABELS, (), SIMULATED_LABELS, SIMULATED_LABELS)


def draw_labels(labels: int, documents: int, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Draw the labels of documents, shape (documents, labels): a Poisson number, all equally likely."""
    number = np.minimum(generator.poisson(MEAN_LABELS, documents), labels)
    order = np.argsort(generator.random((documents, labels)), axis=1, kind="stable")
    return np.argsort(order, axis=1, kind="stable") < number[:, np.newaxis]


def with_labels(documents: Documents, has: npt.NDArray[np.bool_], names: Sequence[Name]) -> Documents:
    """Return documents with a column of labels; `has` has the shape (documents, labels)."""
    from collapsium.pipeline.families import corpus_columns

    return replace(documents, extras={**documents.extras, "labels": corpus_columns.label_column(has, names)})


class LabelTopicsOptions(LabelOptions):
    """Options from which the numbers of topics follow."""

    @property
    @abstractmethod
    def sizes(self) -> TopicSizes:
        """Topics of each label, and of the background."""


LabelTopicsOptionsT = TypeVar("LabelTopicsOptionsT", bound=LabelTopicsOptions)


class LabelTopicsFamily(GibbsFamily[LabelTopicsOptionsT, LabelTopicsGlobalState]):
    """Family whose topics are those of labels, and of a background that all documents share."""

    shard_model = LabelTopicsShardModel
    requires_labels = True
    # Its topics are those of labels, not those of a start.
    starts = ()

    def initialise(self, summary: Summary, options: LabelTopicsOptionsT, stream: Stream) -> LabelTopicsGlobalState:
        """Return the global state before any document was swept."""
        table, sizes = require_labels(summary), options.sizes
        topics = sizes.topics(len(table.names))
        if topics > MAX_TOPICS:
            raise OptionError(
                f"{len(table.names)} labels of {sizes.per_label} topics each, and {sizes.background} of the "
                f"background, are {topics} topics; expected {MAX_TOPICS} at most: take fewer fields with `labels`, or "
                "fewer topics of each label"
            )
        # A document without labels may have all topics.
        most_labels = table.most if table.labelled == summary.documents else len(table.names)
        return LabelTopicsGlobalState(
            vocabulary=float(summary.words),
            beta=options.eta * summary.words,
            topic=np.zeros(topics, dtype=np.int64),
            alpha=options.alpha,
            label_table=table.packed(),
            label_topics=sizes.per_label,
            background_topics=sizes.background,
            carried=False,
            single_topics=sizes.topics(most_labels) == 1,
        )

    def carry(
        self,
        global_state: LabelTopicsGlobalState,
        known: LabelTopicsGlobalState,
        options: LabelTopicsOptionsT,
        before: LabelTopicsOptionsT,
    ) -> tuple[LabelTopicsGlobalState, int] | None:
        """Return the global state with another run's topics, if it has the same labels."""
        if global_state.labels.names != known.labels.names or global_state.sizes != known.sizes:
            return None
        return replace(global_state, carried=True), global_state.topic.size

    def footprint(self, summary: Summary, options: LabelTopicsOptionsT) -> Footprint:
        """Return the memory of a sampler of all topics, and 4 bytes a label of a document."""
        memory = footprint(summary, options.sizes.topics(label_count(summary)))
        labels = 4.0 * mean_labels(summary) + 8.0
        chunk = memory.chunk + 2.0 * labels * summary.documents
        return replace(memory, document=memory.document + labels, chunk=chunk)

    def cannot_change(self, global_state: LabelTopicsGlobalState) -> bool:
        """Return true if each document may have one topic alone."""
        return global_state.single_topics

    def label_table(self, global_state: LabelTopicsGlobalState) -> LabelTable:
        """Return the labels of the training corpus."""
        return global_state.labels

    def describe(self, block: SampledRows, global_state: LabelTopicsGlobalState, count: int) -> Description:
        """Describe the topics, the largest first, with their labels."""
        topics, titles = super().describe(block, global_state, count), _titles(global_state)
        return replace(topics, titles=tuple(titles[topic] for topic in topics.ids))

    def draw_model(
        self, summary: Summary, options: LabelTopicsOptionsT, stream: Stream
    ) -> tuple[Arrays, LabelTopicsGlobalState]:
        """Draw the topics of eight labels, and of the background, for simulation."""
        global_state = self.initialise(replace(summary, labels=simulated_table()), options, stream)
        tokens = np.full(global_state.topic.size, SIMULATED_TOKENS / global_state.topic.size)
        topics = generative.draw_topics(summary.words, tokens, options.eta * summary.words, stream)
        return topics, replace(global_state, beta=SIMULATED_CONCENTRATION, topic=tokens)

    def simulate(
        self, topics: Arrays, global_state: LabelTopicsGlobalState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, Vector]:
        """Draw documents with labels, theta_d ~ Dir(a, ..., a) over the topics that they may have, and theta.

        Returns documents: Without ids; theta: Their proportions
        """
        generator, names = stream.generator(), global_state.labels.names
        has = draw_labels(len(names), documents, generator)
        offsets = np.concatenate([[0], np.cumsum(has.sum(axis=1))])
        allowed = global_state.allowed(LabelLists(offsets, np.nonzero(has)[1].astype(np.int32)))
        prior: npt.NDArray[np.float64] = np.zeros((documents, allowed.topics))
        _, document, topic = allowed.flat()
        prior[document, topic] = global_state.alpha
        theta = generative.draw_proportions(prior, documents, generator)
        drawn = generative.draw_bags(topics, int(global_state.vocabulary), theta, tokens, generator)
        return with_labels(drawn, has, names), theta


def _titles(global_state: LabelTopicsGlobalState) -> list[str]:
    """Return the title of each topic: its label's name and, where that has several topics, its number."""
    labels, (per_label, background) = global_state.labels.titles(), global_state.sizes
    of_labels = labels if per_label == 1 else [f"{name} {number}" for name in labels for number in _numbers(per_label)]
    if background == 1:
        return [*of_labels, "(background)"]
    return [*of_labels, *(f"(background) {number}" for number in _numbers(background))]


def _numbers(count: int) -> range:
    return range(1, count + 1)
