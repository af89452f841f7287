"""What is told of a shard's documents once a model is fitted: examples of its topics, and its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

from collapsium.workers.date_sums import DateSums

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FLOORS = (0.2, 0.01)  # shares of at least so much make a document an example; few have to be sorted so
LEAST_TOKENS = 0.5  # a document with fewer is empty
SHOWN = 8  # topics told of an example
PLACES = 120  # along the segments of a document, that are told or drawn: more cannot be told apart
CELLS = 2_000_000  # values of a label times topics, at most


@dataclass(frozen=True)
class Candidates:
    """Documents that may be examples, one for each place in the arrays.

    Attributes
    ----------
    topic, shard, row : numpy.ndarray of int64, shape (candidates,)
        The topic, and where the document is.
    share, tokens : numpy.ndarray of float64, shape (candidates,)
        The topic's share of the document, and the document's tokens.
    topics : numpy.ndarray of int64, shape (candidates, n)
        The document's largest topics, falling.
    shares : numpy.ndarray of float64, shape (candidates, n)
        Their shares.
    """

    topic: Ints
    shard: Ints
    row: Ints
    share: Floats
    tokens: Floats
    topics: Ints
    shares: Floats

    def best(self, count: int) -> Candidates:
        """Take the `count` best of each topic: the larger share first, then the longer document, then the earlier."""
        order = np.lexsort((self.row, self.shard, -self.tokens, -self.share, self.topic))
        topic = self.topic[order]
        first = np.searchsorted(topic, topic, side="left")
        return self.take(order[np.arange(topic.size) - first < count])

    def take(self, chosen: Ints) -> Candidates:
        """Take those in some places."""
        return Candidates(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    @staticmethod
    def join(parts: Sequence[Candidates]) -> Candidates:
        """Put candidates behind one another."""
        return Candidates(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in Candidates.__dataclass_fields__)
        )


@dataclass(frozen=True)
class Labelled:
    """The documents of each value of a field.

    Attributes
    ----------
    values : list of str or None
        The values, ascending; None where there are too many.
    documents : numpy.ndarray of int64, shape (values,)
        How many have it.
    sums : numpy.ndarray of float64, shape (values, topics)
        The sums of their proportions.
    """

    values: list[str] | None
    documents: Ints
    sums: Floats

    def __add__(self, other: Labelled) -> Labelled:
        """Add the documents of another shard, which has the same topics."""
        topics = max(self.sums.shape[1], other.sums.shape[1])
        if self.values is None or other.values is None:
            return too_many(topics)
        values = sorted({*self.values, *other.values})
        if len(values) * topics > CELLS:
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
    """A document's segments, and its largest topics along them.

    Attributes
    ----------
    segments, shard, row : int
        How many there are, and where the document is.
    distance : float
        Mean Hellinger distance between neighbours.
    topics : numpy.ndarray of int64, shape (n,)
        The topics, falling.
    shares : numpy.ndarray of float64, shape (n, places)
        Their shares at each segment or, of more than 120, their means in runs of neighbours.
    """

    segments: int
    shard: int
    row: int
    distance: float
    topics: Ints
    shares: Floats


@dataclass(frozen=True)
class ShardSummary:
    """What is told of a shard.

    Attributes
    ----------
    documents : int
        How many documents are not empty.
    largest : numpy.ndarray of int64, shape (topics,)
        In how many of them each topic has the largest share.
    candidates : Candidates
        The best of the shard.
    fields : dict of str to Labelled
        Its labels.
    segmented : tuple of Segmented
        The documents of most segments; none where the family knows no segments.
    dates : DateSums or None
        Its documents by their dates; None where the corpus has none.
    sums : numpy.ndarray of float64, shape (topics,)
        The sums of the proportions of all documents that are not empty.
    """

    documents: int
    largest: Ints
    candidates: Candidates
    fields: dict[str, Labelled]
    segmented: tuple[Segmented, ...] = ()
    dates: DateSums | None = None
    sums: Floats = field(default_factory=lambda: np.zeros(0))


def too_many(topics: int) -> Labelled:
    """Return what stands for a field with too many values."""
    return Labelled(None, np.zeros(0, dtype=np.int64), np.zeros((0, topics)))


def summarise(theta: Floats, tokens: Floats, shard: int, labels: pa.Array | None, count: int) -> ShardSummary:
    """Summarise the documents of a shard.

    Parameters
    ----------
    theta : numpy.ndarray of float64, shape (documents, topics)
        Proportions.
    tokens : numpy.ndarray of float64, shape (documents,)
        Tokens of each document.
    shard : int
        The shard's number.
    labels : pyarrow.Array of lists of (field, value), or None
        The documents' labels.
    count : int
        Examples of each topic.

    Returns
    -------
    ShardSummary
        Empty documents take no part.
    """
    held = np.flatnonzero(tokens >= LEAST_TOKENS)
    topics = theta.shape[1]
    most = theta.argmax(axis=1)[held] if topics and held.size else np.zeros(0, dtype=np.int64)
    largest = np.bincount(most, minlength=topics).astype(np.int64)
    fields = {} if labels is None else _fields(theta, labels, tokens >= LEAST_TOKENS)
    candidates, sums = _candidates(theta, tokens, shard, count), theta[held].sum(axis=0)
    return ShardSummary(int(held.size), largest, candidates, fields, sums=sums)


def _candidates(theta: Floats, tokens: Floats, shard: int, count: int) -> Candidates:
    """Find the best of each topic; of topics that few documents have much of, among smaller shares too."""
    topics = theta.shape[1]
    lacking, parts = np.ones(topics, dtype=bool), []
    for floor in FLOORS:
        above = theta >= floor if lacking.all() else (theta >= floor) & lacking
        above &= (tokens >= LEAST_TOKENS)[:, None]
        row, topic = (one.astype(np.int64) for one in np.nonzero(above))
        nothing = np.zeros((row.size, 0))
        found = Candidates(
            topic, np.full(row.size, shard), row, theta[row, topic], tokens[row], nothing.astype(np.int64), nothing
        ).best(count)
        have = np.bincount(found.topic, minlength=topics)
        enough = have >= count if floor != FLOORS[-1] else np.ones(topics, dtype=bool)
        parts.append(found.take(np.flatnonzero(enough[found.topic] & lacking[found.topic])))
        lacking &= ~enough
        if not lacking.any():
            break
    found = Candidates.join(parts)
    part = theta[found.row]
    order = np.argsort(-part, axis=1, kind="stable")[:, :SHOWN].astype(np.int64)
    shares = np.zeros((found.row.size, SHOWN))
    shown = np.zeros((found.row.size, SHOWN), dtype=np.int64)
    shown[:, : order.shape[1]] = order
    shares[:, : order.shape[1]] = np.take_along_axis(part, order, axis=1)
    return Candidates(found.topic, found.shard, found.row, found.share, found.tokens, shown, shares)


def _fields(theta: Floats, labels: pa.Array, held: npt.NDArray[np.bool_]) -> dict[str, Labelled]:
    """Sum the proportions of the documents of each value of each field; a value counts once in a document."""
    from scipy.sparse import csr_array

    owners: dict[str, dict[str, dict[int, None]]] = {}
    for row, pairs in enumerate(labels.to_pylist()):
        for pair in pairs or () if held[row] else ():
            if pair is not None and pair["field"] is not None and pair["value"] is not None:
                owners.setdefault(pair["field"], {}).setdefault(pair["value"], {})[row] = None
    found = {}
    for name, rows in sorted(owners.items()):
        values = sorted(rows)
        if len(values) * theta.shape[1] > CELLS:
            found[name] = too_many(theta.shape[1])
            continue
        documents = np.array([len(rows[value]) for value in values], dtype=np.int64)
        columns = np.concatenate([np.array(list(rows[value]), dtype=np.int64) for value in values])
        starts = np.concatenate([[0], np.cumsum(documents)])
        shape = (len(values), theta.shape[0])
        members = csr_array((np.ones(columns.size), columns, starts), shape=shape)
        found[name] = Labelled(values, documents, np.asarray(members @ theta))
    return found


def explained(
    counts: Floats, probability: Floats, shares: Floats, topics: Ints, wanted: Sequence[int], most: int
) -> Mapping[int, Ints]:
    """Say which of a document's words some topics explain most of: count times q(topic | word, document).

    Parameters
    ----------
    counts : numpy.ndarray of float64, shape (words,)
        Of each word of the document.
    probability : numpy.ndarray of float64, shape (words, n)
        Of each word under the document's largest topics.
    shares : numpy.ndarray of float64, shape (n,)
        Of these topics.
    topics : numpy.ndarray of int64, shape (n,)
        Their ids.
    wanted : sequence of int
        The topics to explain by.
    most : int
        Words of each.

    Returns
    -------
    mapping of int to numpy.ndarray of int64
        Places of the words, falling, of each of the topics that is among the document's largest.
    """
    weight = probability * shares
    expected = counts[:, None] * weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
    found = {}
    for column, topic in enumerate(topics.tolist()):
        if topic in wanted and shares[column] > 0.0:
            order = np.argsort(-expected[:, column], kind="stable")[:most]
            found[topic] = order[expected[order, column] >= LEAST_TOKENS].astype(np.int64)
    return found


def most_segmented(parts: Sequence[Segmented], count: int) -> tuple[Segmented, ...]:
    """Take the documents of most segments; of those with as many the earlier ones."""
    return tuple(sorted(parts, key=lambda one: (-one.segments, one.shard, one.row))[:count])


def segmented_of(shares: npt.NDArray[np.floating], segments: Ints, shard: int, count: int) -> tuple[Segmented, ...]:
    """Follow the topics of a shard's documents of most segments along these.

    Parameters
    ----------
    shares : numpy.ndarray, shape (segments, topics)
        Proportions.
    segments : numpy.ndarray of int64, shape (documents,)
        How many each document has.
    shard : int
        The shard's number.
    count : int
        How many documents.

    Returns
    -------
    tuple of Segmented
        Documents of one segment take no part.
    """
    ends, found = np.cumsum(segments), []
    for row in np.argsort(-segments, kind="stable")[:count].tolist():
        number = int(segments[row])
        if number < 2:
            break
        own = np.asarray(shares[ends[row] - number : ends[row]], dtype=np.float64)
        topics = np.argsort(-own.sum(axis=0), kind="stable")[:SHOWN].astype(np.int64)
        found.append(Segmented(number, shard, row, neighbours_apart(own) or 0.0, topics, in_runs(own[:, topics]).T))
    return tuple(found)


def in_runs(proportions: Floats) -> Floats:
    """Put neighbours together where there are more than 120: means over runs that are about equally long.

    Parameters
    ----------
    proportions : numpy.ndarray of float64, shape (places, n)
        In their order.

    Returns
    -------
    numpy.ndarray of float64, shape (places, n)
        With 120 places at most.
    """
    number = len(proportions)
    if number <= PLACES:
        return proportions
    place = np.arange(number) * PLACES // number
    found = np.zeros((PLACES, proportions.shape[1]))
    np.add.at(found, place, proportions)
    means: Floats = found / np.bincount(place)[:, np.newaxis]
    return means


def neighbours_apart(proportions: npt.NDArray[np.floating]) -> float | None:
    """Return the mean over neighbours of the Hellinger distance sqrt(1 - sum_k sqrt(p_k q_k)).

    Parameters
    ----------
    proportions : numpy.ndarray, shape (places, topics)
        Rows that add up to one.

    Returns
    -------
    float or None
        In [0, 1]; None of fewer than two places.
    """
    if len(proportions) < 2:
        return None
    root = np.sqrt(np.asarray(proportions, dtype=np.float64))
    overlap = (root[1:] * root[:-1]).sum(axis=1)
    return float(np.sqrt(np.clip(1.0 - overlap, 0.0, 1.0)).mean())
