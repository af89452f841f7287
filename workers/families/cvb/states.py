"""Rows and local states of LDA and the HDP by collapsed variational inference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.labels import DocumentRows
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.annotations import (
    ROUNDING_TOLERANCE,
    ascending,
    indices,
    non_negative,
    numbers,
    offsets,
    presence_faults,
)
from collapsium.workers.arrays.spill import SpillFiles
from collapsium.workers.arrays.state import Array, CheckContext, LocalState, block_only, present
from collapsium.workers.families.cvb.global_state import CollapsedGlobalState, PlainTopicsGlobalState
from collapsium.workers.families.document_entries import DocumentEntries, WeighedRows
from collapsium.workers.kernels.cvb.active import MIN_INACTIVE_PRIOR, STEP, UNIT
from collapsium.workers.kernels.cvb.records import ActiveTopics

# Share of a document's tokens by which its counts may be below zero: more than 1000 iterations of 0.1 had rounded
MAX_DRIFT = 1e-3

Counts: TypeAlias = npt.NDArray[np.float32]
BlockCounts: TypeAlias = npt.NDArray[np.float32 | np.int32 | np.int64]
Ints: TypeAlias = npt.NDArray[np.int64]
Places: TypeAlias = npt.NDArray[np.int32]
Numbers: TypeAlias = npt.NDArray[np.floating]
Topics: TypeAlias = npt.NDArray[np.uint16]
Vector: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class CollapsedRows(WeighedRows):
    """Rows of words: E[n_kw] of all topics, or counts of active topics and background tokens."""

    # E[n_kw] of dense responsibilities, in the stochastic schedule, and of finished models
    word_topic: Annotated[Numbers | None, numbers("word topic", dtypes="f4 f8")] = None
    # Counts of active topics, as sweeps see them: with momentum, ahead of the counts
    word_active: Annotated[Counts | None, numbers("word topic")] = None
    word_rest: Annotated[Vector | None, numbers("word")] = None  # Background tokens
    # V[n_kw] and Z[n_kw]
    word_topic_variance: Annotated[Vector | None, numbers("word topic")] = None
    word_topic_log_absent: Annotated[Vector | None, numbers("word topic")] = None
    word_tables: Annotated[Vector | None, non_negative("word")] = None  # sum_k E[t_kw]
    # The counts of active topics themselves: whole numbers of steps of a responsibility, or where counts are floats
    # (`CollapsedGlobalState.count_bits`), with momentum only, tokens
    block_active: Annotated[BlockCounts | None, numbers("word topic", dtypes="f4 i4 i8")] = block_only()
    # With seeded topics, the pseudo-counts of each word, which its counts include unless they are apart
    word_pseudo: Annotated[Vector | None, non_negative("word")] = block_only()
    # Ids of the words, ascending, where words differ by topic: by keywords, or by pseudo-counts that are apart
    word_number: Annotated[Ints | None, non_negative("word")] = None

    @classmethod
    def stored(cls, context: CheckContext) -> set[str]:
        """Return the arrays on disk: a finished model has E[n_kw], and sums for learned parameters of words."""
        model: CollapsedGlobalState = context.global_state
        sparse = model.active and not context.finished
        presence = {
            "word_topic": not sparse,
            "word_active": sparse,
            "word_rest": sparse,
            "block_active": sparse and (model.rows_ahead or bool(model.count_bits)),
            "word_topic_variance": model.moments and not (context.finished and model.active),
            "word_topic_log_absent": model.moments and not (context.finished and model.active),
            "word_tables": model.moments,
            "word_pseudo": model.seed_counts is not None,
            "word_number": model.numbers_words or (bool(model.seeds_apart) and not context.finished),
            "word_weight": model.topic_plain is not None,
            "word_mean": model.topic_plain is not None,
        }
        return {name for name, is_present in presence.items() if is_present}

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of counts with other numbers than the fit has."""
        yield from super().faults(context)
        bits = context.global_state.count_bits
        expected = f"int{bits}" if bits else "float32"
        if self.block_active is not None and self.block_active.dtype.name != expected:
            yield f"expected numbers of type {expected} in 'block_active', found {self.block_active.dtype}"

    @property
    def words(self) -> int:
        """Number of rows."""
        return len(next(iter(self.to_arrays().values())))

    @property
    def dense_counts(self) -> npt.NDArray[np.floating]:
        """E[n_kw] of dense responsibilities or finished models."""
        return present(self.word_topic)

    @property
    def active_counts(self) -> Counts:
        """Counts of active topics in tokens, also where sweeps see others."""
        return present(self.word_active) if self.block_active is None else in_tokens(self.block_active)

    @property
    def background(self) -> Vector:
        """Background tokens."""
        return present(self.word_rest)

    def counted(self) -> Self:
        """Return the rows by which held-out tokens are scored."""
        return self if self.block_active is None else replace(self, word_active=self.active_counts, block_active=None)


def in_tokens(counts: BlockCounts) -> Counts:
    """Return counts of rows, or their changes, in tokens; those in steps of a responsibility are whole numbers."""
    if counts.dtype.kind == "f":
        return cast(Counts, counts)
    tokens: Counts = buffers.empty(counts.shape, np.float32)
    return np.multiply(counts, STEP, out=tokens, dtype=np.float32, casting="same_kind")


def _document_rows(rows: Counts | None, place: Places | None) -> DocumentRows | None:
    return None if rows is None or place is None else DocumentRows(np.asarray(rows), np.asarray(place))


@dataclass(frozen=True)
class CollapsedDocuments(LocalState, ABC):
    """Documents as a finished model saves them: active topics with their counts, or counts of all topics."""

    # Distinct rows of a design that the documents' priors follow, and the row of each document
    design_rows: Annotated[Counts | None, numbers("design_row design_number")] = field(default=None, kw_only=True)
    design_place: Annotated[Places | None, indices("document", below="design_row")] = field(default=None, kw_only=True)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Any:
        """Return the documents that named arrays hold."""
        if cls is not CollapsedDocuments:
            return super().from_arrays(arrays)
        kind = ActiveDocuments if ActiveDocuments.is_in(arrays) else DenseDocuments
        return kind.from_arrays(arrays)

    @classmethod
    def array_names(cls) -> frozenset[str]:
        """Return the names of all arrays that the documents may have."""
        if cls is not CollapsedDocuments:
            return super().array_names()
        return ActiveDocuments.array_names() | DenseDocuments.array_names()

    @classmethod
    def stored_type(cls, context: CheckContext) -> type[CollapsedDocuments]:
        """Return the form of the documents: a finished model has them without responsibilities."""
        if context.global_state.active:
            return ActiveDocuments if context.finished else ActiveLocal
        return DenseDocuments if context.finished else DenseLocal

    def loaded(self) -> CollapsedDocuments:
        """Return the documents with their arrays in memory."""
        return self

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield a fault if the columns of a design do not match the model's coefficients."""
        yield from super().faults(context)
        state, rows = context.global_state, self.design_rows
        prevalence = state.prevalence if isinstance(state, PlainTopicsGlobalState) else None
        yield from presence_faults(rows, "design_rows", expected=prevalence is not None)
        yield from presence_faults(self.design_place, "design_place", expected=prevalence is not None)
        if rows is not None and prevalence is not None and rows.shape[1] != prevalence.row_size:
            yield f"expected {prevalence.row_size} columns in 'design_rows', found {rows.shape[1]}"

    @property
    def design(self) -> DocumentRows | None:
        """Rows of a design that the documents' priors follow."""
        return _document_rows(self.design_rows, self.design_place)

    def with_design(self, design: DocumentRows | None) -> Self:
        """Return the documents with rows of a design."""
        return self if design is None else replace(self, design_rows=design.rows, design_place=design.place)

    def rounded(self) -> CollapsedDocuments:
        """Return the documents with counts in single precision, as finished models have them."""
        return self

    @abstractmethod
    def counts(self, prior: Vector) -> Vector:
        """Return E[n_dk], shape (documents, topics)."""

    @abstractmethod
    def lengths(self) -> Vector:
        """Return the expected tokens of each document, shape (documents,)."""

    def pseudo_counts(self) -> Numbers | None:
        """Return the tokens of a start that stays in each document's prior, shape (documents,); None without one."""
        return None

    @abstractmethod
    def sums(self, prior: Vector, values: Vector) -> Vector:
        """Return the sums over the topics of (a_k + E[n_dk]) times a value of the topic, shape (documents,)."""

    def mean(self, prior: Vector, rest: float, values: Vector) -> Vector:
        """Return sum_k theta_dk v_k + theta_rest of values of topics that are 1 beyond them, shape (documents,)."""
        mean: Vector = (self.sums(prior, values) + rest) / (self.sums(prior, np.ones_like(values)) + rest)
        return mean

    @abstractmethod
    def entries(self) -> DocumentEntries:
        """Return the counts as sparse entries."""

    @abstractmethod
    def with_entries(self, entries: DocumentEntries, topics: int) -> Any:
        """Return documents of the same form with other counts and number of topics."""


@dataclass(frozen=True)
class DenseDocuments(CollapsedDocuments):
    """Counts of all topics."""

    document_topic: Annotated[Counts, non_negative("document topic")]  # E[n_dk]

    def counts(self, prior: Vector) -> Vector:
        """Return E[n_dk], shape (documents, topics)."""
        return np.asarray(self.document_topic, dtype=np.float64)

    def lengths(self) -> Vector:
        """Return the expected tokens of each document, shape (documents,)."""
        lengths: Vector = np.asarray(self.document_topic, dtype=np.float64).sum(axis=1)
        return lengths

    def sums(self, prior: Vector, values: Vector) -> Vector:
        """Return the sums over the topics of (a_k + E[n_dk]) times a value of the topic, shape (documents,)."""
        sums: Vector = ((np.asarray(self.document_topic, dtype=np.float64) + prior) * values).sum(axis=1)
        return sums

    def entries(self) -> DocumentEntries:
        """Return the counts as sparse entries."""
        owner, topic = np.nonzero(self.document_topic)
        count = np.asarray(self.document_topic, dtype=np.float64)[owner, topic]
        return DocumentEntries(owner, topic, count, np.zeros(len(self.document_topic)))

    def with_entries(self, entries: DocumentEntries, topics: int) -> DenseDocuments:
        """Return documents with other counts."""
        counts = np.zeros((entries.documents, topics), dtype=np.float32)
        counts[entries.owner, entries.topic] = entries.count
        return DenseDocuments(counts)


@dataclass(frozen=True)
class DenseLocal(DenseDocuments):
    """Dense responsibilities."""

    pair_topic: Annotated[Counts, numbers("pair topic", 0, 1.001)]  # q


@dataclass(frozen=True)
class ActiveDocuments(CollapsedDocuments):
    """Active topics of documents."""

    # Index of each document's first active topic
    document_lists: Annotated[Ints, offsets("document", into="active")]
    document_topics: Annotated[Topics, indices("active", below="topic")]  # The topics, ascending in a document
    # Their E[n_dk]: exact in double precision, rounded in finished models and in checkpoints up to release 0.1
    document_counts: Annotated[Numbers, numbers("active", dtypes="f4 f8")]
    document_rest: Annotated[Numbers, numbers("document", dtypes="f4 f8")]  # Background tokens
    # Pseudo-counts of a start that stays in the prior
    start_counts: Annotated[Counts | None, numbers("active", low=0)] = field(default=None, kw_only=True)
    # Pseudo-counts of each document that `document_counts` include: in edited models, and in what releases up to 0.1
    # have written
    document_pseudo: Annotated[Numbers | None, non_negative("document", dtypes="f4 f8")] = field(
        default=None, kw_only=True
    )

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of topics that do not ascend, and of counts below zero.

        Releases up to 0.1 have rounded the counts of long documents.
        """
        yield from super().faults(context)
        yield from ascending(self, "document_lists", "document_topics")
        lists = np.asarray(self.document_lists)
        count, rest = np.asarray(self.document_counts), np.asarray(self.document_rest)
        tokens = np.add.reduceat(np.append(np.abs(count), 0.0), lists[:-1]) * (np.diff(lists) > 0) + np.abs(rest)
        least = -(ROUNDING_TOLERANCE + MAX_DRIFT * tokens)
        for name, values, limit in (("counts", count, np.repeat(least, np.diff(lists))), ("rest", rest, least)):
            wrong = np.flatnonzero(values < limit)
            if wrong.size:
                yield f"expected numbers of 0 or more in 'document_{name}', found {values[wrong[0]]:g}"

    @property
    def active(self) -> ActiveTopics:
        """Active topics as kernels take them."""
        return ActiveTopics(self.document_lists, self.document_topics)

    def rounded(self) -> ActiveDocuments:
        """Return the documents with counts in single precision, as finished models have them."""
        if self.document_pseudo is not None:
            return self
        counts, rest = (np.asarray(values, np.float32) for values in (self.document_counts, self.document_rest))
        return replace(self, document_counts=counts, document_rest=rest)

    @property
    def expected(self) -> Vector:
        """E[n_dk] of the active topics with pseudo-counts, shape (active,).

        What releases up to 0.1 have written may be below zero, by rounding.
        """
        counts: Vector = np.maximum(np.asarray(self.document_counts, dtype=np.float64), 0.0)
        return counts if self.start_counts is None else counts + self.start_counts

    def counts(self, prior: Vector) -> Vector:
        """Return E[n_dk], a_k E[n_d,rest] / a_rest where a topic is inactive; shape (documents, topics)."""
        owner, growth = self._owners_and_growth(prior)
        counts: Vector = growth[:, np.newaxis] * prior  # `prior` may have a row for each document
        counts[owner, self.document_topics] = self.expected
        return counts

    def _owners_and_growth(self, prior: Vector) -> tuple[Ints, Vector]:
        """Return the document of each active topic, and E[n_d,rest] / a_rest of each document."""
        starts, topics = self.document_lists, self.document_topics
        owner = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        total, active = prior.sum(axis=-1), prior[topics] if prior.ndim == 1 else prior[owner, topics]
        left = total - np.bincount(owner, weights=active, minlength=starts.size - 1)
        some = (left > MIN_INACTIVE_PRIOR * total) & (np.diff(starts) < prior.shape[-1])
        return owner, np.where(some, self.document_rest / np.where(some, left, 1.0), 0.0)

    def sums(self, prior: Vector, values: Vector) -> Vector:
        """Return the sums over the topics of (a_k + E[n_dk]) times a value of the topic, shape (documents,)."""
        owner, growth = self._owners_and_growth(prior)
        topics = self.document_topics
        active = prior[topics] if prior.ndim == 1 else prior[owner, topics]
        more = (self.expected - growth[owner] * active) * values[topics]
        every: Vector = (1.0 + growth) * (prior * values).sum(axis=-1)
        return every + np.bincount(owner, weights=more, minlength=growth.size)

    def lengths(self) -> Vector:
        """Return the expected tokens of each document, shape (documents,)."""
        lists = np.asarray(self.document_lists)
        running = np.concatenate([[0.0], np.cumsum(np.asarray(self.document_counts, dtype=np.float64))])
        lengths: Vector = running[lists[1:]] - running[lists[:-1]] + np.asarray(self.document_rest)
        return lengths if self.document_pseudo is None else np.maximum(lengths - self.document_pseudo, 0.0)

    def pseudo_counts(self) -> Numbers | None:
        """Return the tokens of a start that stays in each document's prior, shape (documents,); None without one."""
        if self.start_counts is None:
            return self.document_pseudo
        return summed_by_document(self.document_lists, self.start_counts)

    def entries(self) -> DocumentEntries:
        """Return the counts as sparse entries."""
        owner = np.repeat(np.arange(self.document_lists.size - 1), np.diff(self.document_lists))
        rest = np.asarray(self.document_rest, dtype=np.float64)
        return DocumentEntries(owner, self.document_topics.astype(np.int64), self.expected, rest)

    def with_entries(self, entries: DocumentEntries, topics: int) -> ActiveDocuments:
        """Return documents with other counts; topics with entries are active."""
        sizes, pseudo = np.bincount(entries.owner, minlength=entries.documents), self.pseudo_counts()
        # Beside pseudo-counts, single precision may have no room for tokens.
        dtype = np.float32 if pseudo is None else np.float64
        return ActiveDocuments(
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            entries.topic.astype(np.uint16),
            entries.count.astype(dtype),
            entries.rest.astype(dtype),
            document_pseudo=pseudo,
        )


def summed_by_document(lists: Ints, values: npt.NDArray[np.floating]) -> Vector:
    """Return the sums of the values of each document's active topics, shape (documents,)."""
    owner = np.repeat(np.arange(lists.size - 1), np.diff(lists))
    return np.asarray(np.bincount(owner, weights=values, minlength=lists.size - 1), dtype=np.float64)


@dataclass(frozen=True)
class ActiveLocal(ActiveDocuments):
    """Sparse responsibilities."""

    # q in steps of 2^-15: pair by pair, in the order of the document's active topics
    pair_shares: Annotated[Topics, numbers("share", 0, UNIT)]
    age: Annotated[int, numbers(low=0)]  # Sweeps so far: the first ones are of another kind

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield a fault unless each pair has a responsibility for each active topic of its document."""
        yield from super().faults(context)
        if context.shard is None or context.shard.of_vectors:
            return
        expected = int(np.dot(np.diff(context.shard.offsets), np.diff(self.document_lists)))
        if len(self.pair_shares) != expected:
            yield f"expected {expected} numbers in 'pair_shares', found {len(self.pair_shares)}"


@dataclass(frozen=True)
class SpilledLocal(LocalState):
    """Sparse responsibilities on disk, which sweeps read in chunks."""

    files: SpillFiles  # The arrays of an `ActiveLocal`

    def to_arrays(self) -> Any:
        """Return the arrays, which stay on disk."""
        return self.files

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return int(self.files.nbytes)

    def loaded(self) -> ActiveDocuments:
        """Return the documents with their arrays in memory."""
        documents: ActiveDocuments = ActiveDocuments.from_arrays(self.files)
        return documents

    @property
    def design(self) -> DocumentRows | None:
        """Rows of a design that the documents' priors follow."""
        return _document_rows(*(self.files.get(name) for name in ("design_rows", "design_place")))

    def pseudo_counts(self) -> Numbers | None:
        """Return the tokens of a start that stays in each document's prior, shape (documents,); None without one."""
        start_counts = self.files.get("start_counts")
        return (
            self.files.get("document_pseudo")
            if start_counts is None
            else summed_by_document(self.files["document_lists"], start_counts)
        )


AnyActiveLocal: TypeAlias = ActiveLocal | SpilledLocal


def local_of(arrays: Mapping[str, Array]) -> DenseDocuments | ActiveLocal | SpilledLocal:
    """Return the local state that arrays hold; active responsibilities on disk stay there."""
    if not ActiveLocal.is_in(arrays):
        dense: DenseDocuments = (DenseLocal if DenseLocal.is_in(arrays) else DenseDocuments).from_arrays(arrays)
        return dense
    if isinstance(arrays, SpillFiles):
        return SpilledLocal(arrays)
    local: ActiveLocal = ActiveLocal.from_arrays(arrays)
    return local
