"""What is told of a shard's documents once a model is fitted: examples of its topics, and its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csr_array

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FLOORS = (0.2, 0.01)  # shares of at least so much make a document an example; few have to be sorted so
LEAST_TOKENS = 0.5  # a document with fewer is empty
SHOWN = 8  # topics told of an example
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
    """

    documents: int
    largest: Ints
    candidates: Candidates
    fields: dict[str, Labelled]


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
    return ShardSummary(int(held.size), largest, _candidates(theta, tokens, shard, count), fields)


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
    owners: dict[str, dict[str, dict[int, None]]] = {}
    for row, pairs in enumerate(labels.to_pylist()):
        for pair in pairs or () if held[row] else ():
            if pair is not None and pair["field"] is not None and pair["value"] is not None:
                owners.setdefault(pair["field"], {}).setdefault(pair["value"], {})[row] = None
    found = {}
    for field, rows in sorted(owners.items()):
        values = sorted(rows)
        if len(values) * theta.shape[1] > CELLS:
            found[field] = too_many(theta.shape[1])
            continue
        documents = np.array([len(rows[value]) for value in values], dtype=np.int64)
        columns = np.concatenate([np.array(list(rows[value]), dtype=np.int64) for value in values])
        starts = np.concatenate([[0], np.cumsum(documents)])
        shape = (len(values), theta.shape[0])
        members = csr_array((np.ones(columns.size), columns, starts), shape=shape)
        found[field] = Labelled(values, documents, np.asarray(members @ theta))
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
