"""Summarise a shard's documents after a fit: examples of topics, sums by label, and topics along segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers.periods import DateSums

if TYPE_CHECKING:
    import pyarrow as pa


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Least shares of a topic in its example documents; the second where the first leaves too few examples
MIN_SHARES = (0.2, 0.01)

MIN_TOKENS = 0.5  # Documents with fewer tokens are empty
SHOWN_TOPICS = 8  # Topics that are reported of an example, the largest ones
MAX_RUNS = 120  # Most points along a document's segments: more cannot be told apart in a picture
MAX_CELLS = 2_000_000  # Most values of a field times topics


@dataclass(frozen=True)
class Candidates:
    """Candidates for example documents of topics."""

    # The topic, and the document's shard and row; int64 (candidates,)
    topic: Ints
    shard: Ints
    row: Ints
    # The topic's share of the document, and the document's tokens; float64 (candidates,)
    share: Floats
    tokens: Floats
    topics: Ints  # The document's largest topics, falling; int64 (candidates, n)
    shares: Floats  # Their shares; float64 (candidates, n)

    def best(self, count: int) -> Candidates:
        """Return the `count` best of each topic, by larger share, then longer document, then earlier row."""
        order = np.lexsort((self.row, self.shard, -self.tokens, -self.share, self.topic))
        topic = self.topic[order]
        first = np.searchsorted(topic, topic, side="left")
        return self.take(order[np.arange(topic.size) - first < count])

    def take(self, chosen: Ints) -> Candidates:
        """Return the candidates of some indices."""
        return Candidates(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    @staticmethod
    def join(parts: Sequence[Candidates]) -> Candidates:
        """Return the candidates of all parts."""
        return Candidates(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in Candidates.__dataclass_fields__)
        )


@dataclass(frozen=True)
class Labelled:
    """The documents of each value of a field."""

    values: list[str] | None  # The values, ascending; None where there are too many
    documents: Ints  # Number of documents with each value; int64 (values,)
    sums: Floats  # The sums of their proportions; float64 (values, topics)

    def __add__(self, other: Labelled) -> Labelled:
        """Return the sums over both shards, which have the same topics."""
        topics = max(self.sums.shape[1], other.sums.shape[1])
        if self.values is None or other.values is None:
            return too_many(topics)
        values = sorted({*self.values, *other.values})
        if len(values) * topics > MAX_CELLS:
            return too_many(topics)
        place = {value: number for number, value in enumerate(values)}
        documents, sums = np.zeros(len(values), dtype=np.int64), np.zeros((len(values), topics))
        for part in (self, other):
            rows = [place[value] for value in part.values or []]
            documents[rows] += part.documents
            sums[rows, : part.sums.shape[1]] += part.sums
        return Labelled(values, documents, sums)


@dataclass(frozen=True)
class Segmented:
    """A document's segments, and its largest topics along them."""

    # Number of segments, and the document's shard and row
    segments: int
    shard: int
    row: int
    distance: float  # Mean Hellinger distance between neighbouring segments
    topics: Ints  # The topics, falling; int64 (n,)
    # Their shares at each segment, or their means over runs of segments where there are more than `MAX_RUNS`; float64
    # (n, places)
    shares: Floats


@dataclass(frozen=True)
class ShardSummary:
    """Summary of a shard's documents."""

    documents: int  # Number of documents that are not empty
    largest: Ints  # Number of documents in which each topic has the largest share; int64 (topics,)
    candidates: Candidates  # Best example documents of the shard
    fields: dict[str, Labelled]  # Sums over the documents of each value, by field
    segmented: tuple[Segmented, ...] = ()  # Documents of most segments; empty where the family uses no segments
    dates: DateSums | None = None  # Sums over the documents of each date; None where the corpus has no dates
    # Sums of the proportions of the documents that are not empty; float64 (topics,)
    sums: Floats = field(default_factory=lambda: np.zeros(0))


def too_many(topics: int) -> Labelled:
    """Return the record of a field with too many values."""
    return Labelled(None, np.zeros(0, dtype=np.int64), np.zeros((0, topics)))


def summarise(theta: Floats, tokens: Floats, shard: int, labels: pa.Array | None, count: int) -> ShardSummary:
    """Return the summary of a shard's documents."""
    rows = np.flatnonzero(tokens >= MIN_TOKENS)
    topics = theta.shape[1]
    largest_topic = theta.argmax(axis=1)[rows] if topics and rows.size else np.zeros(0, dtype=np.int64)
    largest = np.bincount(largest_topic, minlength=topics).astype(np.int64)
    fields = {} if labels is None else _fields(theta, labels, tokens >= MIN_TOKENS)
    candidates, sums = _candidates(theta, tokens, shard, count), theta[rows].sum(axis=0)
    return ShardSummary(int(rows.size), largest, candidates, fields, sums=sums)


def _candidates(theta: Floats, tokens: Floats, shard: int, count: int) -> Candidates:
    """Return the best documents of each topic; smaller shares count only for topics with too few large ones."""
    topics = theta.shape[1]
    lacking, parts = np.ones(topics, dtype=bool), []
    for min_share in MIN_SHARES:
        above = theta >= min_share if lacking.all() else (theta >= min_share) & lacking
        above &= (tokens >= MIN_TOKENS)[:, None]
        row, topic = (indices.astype(np.int64) for indices in np.nonzero(above))
        no_topics = np.zeros((row.size, 0))
        best = Candidates(
            topic, np.full(row.size, shard), row, theta[row, topic], tokens[row], no_topics.astype(np.int64), no_topics
        ).best(count)
        enough = np.ones(topics, dtype=bool)
        if min_share != MIN_SHARES[-1]:
            enough = np.bincount(best.topic, minlength=topics) >= count
        parts.append(best.take(np.flatnonzero(enough[best.topic] & lacking[best.topic])))
        lacking &= ~enough
        if not lacking.any():
            break
    best = Candidates.join(parts)
    proportions = theta[best.row]
    order = np.argsort(-proportions, axis=1, kind="stable")[:, :SHOWN_TOPICS].astype(np.int64)
    shares = np.zeros((best.row.size, SHOWN_TOPICS))
    shown = np.zeros((best.row.size, SHOWN_TOPICS), dtype=np.int64)
    shown[:, : order.shape[1]] = order
    shares[:, : order.shape[1]] = np.take_along_axis(proportions, order, axis=1)
    return Candidates(best.topic, best.shard, best.row, best.share, best.tokens, shown, shares)


def _fields(theta: Floats, labels: pa.Array, occupied: npt.NDArray[np.bool_]) -> dict[str, Labelled]:
    """Return sums over the documents of each value of each field; a value counts once in a document."""
    from scipy import sparse

    owners: dict[str, dict[str, dict[int, None]]] = {}
    for row, pairs in enumerate(labels.to_pylist()):
        for pair in pairs or () if occupied[row] else ():
            if pair is not None and pair["field"] is not None and pair["value"] is not None:
                owners.setdefault(pair["field"], {}).setdefault(pair["value"], {})[row] = None
    fields = {}
    for name, rows in sorted(owners.items()):
        values = sorted(rows)
        if len(values) * theta.shape[1] > MAX_CELLS:
            fields[name] = too_many(theta.shape[1])
            continue
        documents = np.array([len(rows[value]) for value in values], dtype=np.int64)
        columns = np.concatenate([np.array(list(rows[value]), dtype=np.int64) for value in values])
        starts = np.concatenate([[0], np.cumsum(documents)])
        shape = (len(values), theta.shape[0])
        members = sparse.csr_array((np.ones(columns.size), columns, starts), shape=shape)
        fields[name] = Labelled(values, documents, np.asarray(members @ theta))
    return fields


def explained(
    expected: Floats, topics: Ints, shares: Floats, explaining: Sequence[int], limit: int
) -> Mapping[int, Ints]:
    """Return the words of a document that topics explain best."""
    words = {}
    for column, (topic, share) in enumerate(zip(topics.tolist(), shares.tolist(), strict=True)):
        if topic in explaining and share > 0.0:
            counts = expected[:, column]
            order = np.argsort(-counts, kind="stable")[:limit]
            words[topic] = order[counts[order] >= MIN_TOKENS].astype(np.int64)
    return words


def most_segmented(parts: Sequence[Segmented], count: int) -> tuple[Segmented, ...]:
    """Return the documents of most segments, of equal ones the earlier."""
    return tuple(sorted(parts, key=lambda part: (-part.segments, part.shard, part.row))[:count])


def segmented_documents(
    shares: npt.NDArray[np.floating], segments: Ints, shard: int, count: int
) -> tuple[Segmented, ...]:
    """Return the topics along the segments of the shard's documents that have most segments."""
    ends, documents = np.cumsum(segments), []
    for row in np.argsort(-segments, kind="stable")[:count].tolist():
        number = int(segments[row])
        if number < 2:
            break
        segment_shares = np.asarray(shares[ends[row] - number : ends[row]], dtype=np.float64)
        topics = np.argsort(-segment_shares.sum(axis=0), kind="stable")[:SHOWN_TOPICS].astype(np.int64)
        distance, along = mean_hellinger_distance(segment_shares) or 0.0, means_over_runs(segment_shares[:, topics]).T
        documents.append(Segmented(number, shard, row, distance, topics, along))
    return tuple(documents)


def means_over_runs(proportions: Floats) -> Floats:
    """Return proportions at no more than `MAX_RUNS` points: means over runs of neighbours, about equally long."""
    number = len(proportions)
    if number <= MAX_RUNS:
        return proportions
    run = np.arange(number) * MAX_RUNS // number
    sums = np.zeros((MAX_RUNS, proportions.shape[1]))
    np.add.at(sums, run, proportions)
    means: Floats = sums / np.bincount(run)[:, np.newaxis]
    return means


def mean_hellinger_distance(proportions: npt.NDArray[np.floating]) -> float | None:
    """Return the mean over neighbours of the Hellinger distance sqrt(1 - sum_k sqrt(p_k q_k))."""
    if len(proportions) < 2:
        return None
    root = np.sqrt(np.asarray(proportions, dtype=np.float64))
    overlap = (root[1:] * root[:-1]).sum(axis=1)
    return float(np.sqrt(np.clip(1.0 - overlap, 0.0, 1.0)).mean())
