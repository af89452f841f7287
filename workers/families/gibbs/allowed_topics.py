"""Topics that documents may have by their labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.label_index import LabelTable, numbered
from collapsium.workers.arrays.annotations import indices, offsets
from collapsium.workers.arrays.state import State
from collapsium.workers.families.gibbs.states import Ints
from collapsium.workers.kernels.gibbs.records import DocumentLabels

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


class TopicSizes(NamedTuple):
    """Numbers of topics: first the topics of each label, then the background's."""

    per_label: int  # N; label l has the topics l N to l N + N - 1
    background: int  # Topics that all documents may have

    def topics(self, labels: int) -> int:
        """Return the number of all topics, with a number of labels."""
        return labels * self.per_label + self.background


@dataclass(frozen=True)
class LabelLists(State):
    """Labels of documents."""

    document_labels: Annotated[Ints, offsets("document", into="labelled")]  # Index of each document's first label
    # Their numbers in the training corpus's table
    document_label: Annotated[npt.NDArray[np.int32], indices("labelled", below="label")]

    @classmethod
    def from_shard(cls, shard: Shard, table: LabelTable) -> LabelLists:
        """Return the labels of a shard's documents that a table has."""
        labels = numbered(shard.labels, table, shard.documents)
        return cls(labels.offsets, labels.label)


@dataclass(frozen=True)
class AllowedTopics:
    """Topics that documents may have: their labels' and the background's.

    A document without labels that training had may have the background's topics or, where there are none, all.
    """

    labels: LabelLists  # Labels of the documents
    sizes: TopicSizes  # Topics of a label, and of the background
    topics: int  # Number of all topics

    @property
    def record(self) -> DocumentLabels:
        """The documents' labels as kernels take them."""
        labels = np.asarray(self.labels.document_labels), np.asarray(self.labels.document_label)
        return DocumentLabels(*labels, self.sizes.per_label, self.sizes.background)

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.labels.document_labels.size - 1

    def counts(self) -> Ints:
        """Return how many topics each document may have."""
        allowed = np.diff(self.labels.document_labels) * self.sizes.per_label + self.sizes.background
        counts: Ints = np.where(allowed > 0, allowed, self.topics)
        return counts

    def topic(self, document: Ints, index: Ints) -> Ints:
        """Return topics by their index among those that a document may have."""
        per_label, background = self.sizes
        first, label = self.labels.document_labels, self.labels.document_label
        label_topics = np.diff(first)[document] * per_label
        entry = np.minimum(first[document] + index // per_label, label.size)
        of_label = np.append(label, 0)[entry].astype(np.int64) * per_label + index % per_label
        unlabelled = index - label_topics + (self.topics - background if background else 0)
        topic: Ints = np.where(index < label_topics, of_label, unlabelled)
        return topic

    def flat(self) -> tuple[Ints, Ints, Ints]:
        """Return the index of each document's first topic, and the document and topic of each entry."""
        starts = np.concatenate([[0], np.cumsum(self.counts())])
        document = np.repeat(np.arange(self.documents), np.diff(starts))
        return starts, document, self.topic(document, np.arange(starts[-1]) - starts[document])

    def contain(self, document: Ints, topic: Ints) -> npt.NDArray[np.bool_]:
        """Return whether each of some documents may have each of some topics."""
        width, sizes = self.topics + 1, np.diff(self.labels.document_labels)
        owner = np.repeat(np.arange(self.documents), sizes)
        of_label = np.isin(document * width + topic // self.sizes.per_label, owner * width + self.labels.document_label)
        unrestricted = np.full(self.documents, self.sizes.background == 0) & (sizes == 0)
        in_background = topic >= self.topics - self.sizes.background
        allowed: npt.NDArray[np.bool_] = of_label | in_background | unrestricted[document]
        return allowed
