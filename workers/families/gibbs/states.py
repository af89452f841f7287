"""States and sums of families of collapsed Gibbs sampling: whole counts, and a topic for each token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from collapsium.storage.corpus.labels import LabelTable, numbered
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.annotations import SAVED, UNSAVED, indices, non_negative, numbers, offsets
from collapsium.workers.arrays.state import CheckContext, GlobalState, LocalState, Rows, State
from collapsium.workers.families.dirichlet import DirichletPriors
from collapsium.workers.families.document_entries import MIN_POSITIVE, SampledTokens
from collapsium.workers.families.family import FamilyOptions, Summary
from collapsium.workers.kernels.gibbs.topics import DocumentTopics

if TYPE_CHECKING:
    from collapsium.storage.corpus.labels import Name
    from collapsium.storage.corpus.shard import Documents, Shard

Counts: TypeAlias = npt.NDArray[np.int32]
Ints: TypeAlias = npt.NDArray[np.int64]
TokenTopics: TypeAlias = npt.NDArray[np.uint16]
Vector: TypeAlias = npt.NDArray[np.float64]

MAX_TOPICS = 1 << 16  # Topics that 16 bits of a token can name


@dataclass(frozen=True)
class DirichletGlobalState(GlobalState, ABC):
    """Dirichlet priors of documents over topics, and of topics over words."""

    vocabulary: Annotated[float, numbers(low=MIN_POSITIVE)]  # W, the number of words
    beta: Annotated[float, numbers(low=MIN_POSITIVE)]  # B, the concentration of a topic over the words

    @property
    @abstractmethod
    def topic_parameters(self) -> Vector:
        """Dirichlet parameters of the topics in a document, a_k."""

    @property
    def concentration(self) -> float:
        """Sum of the Dirichlet parameters of all topics, including topics that do not exist yet."""
        return float(self.topic_parameters.sum())

    @property
    def priors(self) -> DirichletPriors:
        """Dirichlet priors of documents and topics."""
        return DirichletPriors(self.topic_parameters, self.concentration, self.beta / self.vocabulary, self.beta)


@dataclass(frozen=True)
class SampledGlobalState(DirichletGlobalState):
    """Hyperparameters, and the tokens of each topic."""

    grows: ClassVar[bool] = False  # Whether topics are created in sweeps, so that blocks may lack the last ones

    topic: Annotated[Ints, non_negative("topic", dtypes="i8 f8")]  # n_k; float64 in a simulated model

    @property
    def initial_topics(self) -> int:
        """Number of topics over which tokens are spread at the start."""
        return self.topic.size

    def with_changes(self, changes: Ints | None) -> Self:
        """Return the state after changes of n_k, which may have more entries than there are topics."""
        return replace(self, topic=added_counts(self.topic, changes))


@dataclass(frozen=True)
class SymmetricGlobalState(SampledGlobalState):
    """Global state of a family in which all topics of a document have the same Dirichlet parameter."""

    alpha: Annotated[float, numbers(low=MIN_POSITIVE)]  # The parameter

    @property
    def topic_parameters(self) -> Vector:
        """Dirichlet parameters of the topics in a document, a_k."""
        return np.full(self.topic.size, self.alpha)


def added_counts(topic: Ints, changes: Ints | None) -> Ints:
    """Return n_k after changes, which may be of more topics."""
    before = np.asarray(topic, dtype=np.int64)
    if changes is None:
        return before
    after = np.zeros(max(changes.size, before.size), dtype=np.int64)
    after[: before.size] = before
    after[: changes.size] += changes
    return after


@dataclass(frozen=True)
class SampledRows(Rows):
    """Tokens of each word by topic."""

    word_topic: Annotated[Counts, non_negative("word <topic", dtypes="i4 f8")]  # n_kw; float64 in a simulated model

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of counts: a fit has whole ones, and a finished model all topics."""
        yield from super().faults(context)
        (words, columns), topics = self.word_topic.shape, context.sizes["topic"]
        if columns != topics and (context.finished or not context.global_state.grows):
            yield f"expected the shape ({words}, {topics}) of 'word_topic', found {self.word_topic.shape}"
        if not context.finished and self.word_topic.dtype != np.int32:
            yield f"expected numbers of type int32 in 'word_topic', found {self.word_topic.dtype}"
        if not context.finished and context.global_state.topic.dtype.kind != "i":
            yield "expected whole counts in 'topic' of the global state"


@dataclass(frozen=True)
class ActiveTopics(State):
    """Topics that each document uses, with their tokens."""

    document_lists: Annotated[Ints, offsets("document", into="active")]  # Index of each document's first entry
    document_topics: Annotated[TokenTopics, indices("active", below="topic")]  # Topic of each entry
    # n_dk, or its expectation in documents that were folded in
    document_counts: Annotated[npt.NDArray[np.float32], non_negative("active")]

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of a document with more entries than there are topics."""
        yield from super().faults(context)
        longest, limit = int(np.diff(self.document_lists).max(initial=0)), context.sizes["topic"]
        if longest > limit:
            yield f"expected lists of at most {limit} in 'document_lists', found one of {longest}"

    @property
    def record(self) -> DocumentTopics:
        """The arrays as kernels take them."""
        arrays = self.document_lists, self.document_topics, self.document_counts
        return DocumentTopics(*map(np.asarray, arrays))

    @property
    def owner(self) -> Ints:
        """Document of each entry."""
        return np.repeat(np.arange(self.document_lists.size - 1), np.diff(self.document_lists))

    def lengths(self) -> Vector:
        """Return the tokens of each document."""
        cumulative = np.concatenate([[0.0], np.cumsum(np.asarray(self.document_counts, dtype=np.float64))])
        lengths: Vector = cumulative[self.document_lists[1:]] - cumulative[self.document_lists[:-1]]
        return lengths

    def dense(self, topics: int) -> Vector:
        """Return n_dk of all topics, shape (documents, topics)."""
        counts = np.zeros((self.document_lists.size - 1, topics))
        counts[self.owner, self.document_topics] = self.document_counts
        return counts


@dataclass(frozen=True)
class GibbsDocuments(LocalState):
    """Topics of documents whose tokens were sampled, or that were folded in."""

    active: Annotated[ActiveTopics | None, SAVED] = None  # Topics of documents whose tokens were sampled
    # E[n_dk] of documents that were folded in, shape (documents, topics)
    document_topic: Annotated[npt.NDArray[np.float32] | None, UNSAVED] = None

    def dense(self, topics: int) -> Vector:
        """Return n_dk or E[n_dk], shape (documents, topics)."""
        if self.active is not None:
            return self.active.dense(topics)
        return np.asarray(self.document_topic, dtype=np.float64)

    def lengths(self) -> Vector:
        """Return the tokens of each document."""
        if self.active is not None:
            return self.active.lengths()
        lengths: Vector = np.asarray(self.document_topic, dtype=np.float64).sum(axis=1)
        return lengths


@dataclass(frozen=True)
class GibbsLocal(GibbsDocuments, SampledTokens):
    """Local state of a shard."""


@dataclass(frozen=True)
class WordChanges(State):
    """Changes of the counts by word."""

    word_topic: Counts  # Change of n_kw; int32 (words, topics)


@dataclass(frozen=True)
class TopicChanges(State):
    """Changes of the counts by topic."""

    topic: Ints  # Change of n_k; int64 (topics,)


@dataclass(frozen=True)
class SampleSums(State):
    """Sums of a sweep, from which the log joint probability of the sample is computed."""

    rising: float  # sum_dk log G(a_k + n_dk) / G(a_k)
    falling: float  # sum_d log G(A) / G(A + n_d)
    word_rising: float  # sum_kw log G(b + n_kw) / G(b)


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


# Number of labels from which simulated documents draw, and which estimates assume for corpora with unknown labels
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
            "keys of the documents, with `label_files` from files; or use a family without labels"
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
    """Return the labels from which simulated documents draw."""
    names = tuple(("label", f"label-{number}") for number in range(1, SIMULATED_LABELS + 1))
    return LabelTable(names, (1,) * SIMULATED_LABELS, (), SIMULATED_LABELS, SIMULATED_LABELS)


def draw_labels(labels: int, documents: int, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Draw the labels of documents, shape (documents, labels): a Poisson number, all equally likely."""
    number = np.minimum(generator.poisson(MEAN_LABELS, documents), labels)
    order = np.argsort(generator.random((documents, labels)), axis=1, kind="stable")
    return np.argsort(order, axis=1, kind="stable") < number[:, np.newaxis]


def with_labels(documents: Documents, has: npt.NDArray[np.bool_], names: Sequence[Name]) -> Documents:
    """Return documents with a column of labels; `has` has the shape (documents, labels)."""
    from collapsium.storage.corpus import writer

    return replace(documents, extras={**documents.extras, "labels": writer.label_column(has, names)})
