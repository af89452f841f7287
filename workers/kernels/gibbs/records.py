"""Named tuples of arrays that the Gibbs kernels take."""

from __future__ import annotations

from typing import NamedTuple

from collapsium.workers.kernels.argument_types import (
    Float32Matrix,
    Float32Vector,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    OutFloat32Vector,
    OutFloat64Vector,
    OutInt32Matrix,
    OutInt64Vector,
    OutUInt16Vector,
    UInt16Vector,
)


class WordPrior(NamedTuple):
    """Symmetric Dirichlet prior of a topic over the vocabulary.

    Attributes
    ----------
    parameter : float
        b, the parameter of each word.
    total : float
        B, the sum over the vocabulary.
    """

    parameter: float
    total: float


class TopicPrior(NamedTuple):
    """Dirichlet prior of a document over the topics, updated as topics are born and die.

    Attributes
    ----------
    parameters : float64, shape (topics,)
        a_k; 0 of a free slot, and in padding.
    remainder : float64, shape (1,)
        Sum of the parameters of all topics that do not exist yet.
    """

    parameters: OutFloat64Vector
    remainder: OutFloat64Vector


class TopicSlots(NamedTuple):
    """Free slots, which new topics take.

    Attributes
    ----------
    concentration : float
        gamma of the stick-breaking prior; 0 where the number of topics is fixed.
    reusable : int64, shape (topics,)
        1 of slots that are free again when their topic has lost its last token, else 0.
    free : int64, shape (slots,)
        Stack of free slots, the next to be taken last; updated.
    free_count : int64, shape (1,)
        Height of the stack; updated.
    """

    concentration: float
    reusable: Int64Vector
    free: OutInt64Vector
    free_count: OutInt64Vector


class TopicCounts(NamedTuple):
    """Tokens of each topic, updated with each token that is drawn.

    Attributes
    ----------
    totals : float64, shape (topics,)
        n_k.
    word_topic : int32, shape (rows, topics)
        n_kw.
    """

    totals: OutFloat64Vector
    word_topic: OutInt32Matrix


class DocumentTopics(NamedTuple):
    """Topics that each document uses, with their tokens.

    Attributes
    ----------
    offsets : int64, shape (documents + 1,)
        Index of each document's first entry; the last is the number of entries.
    topic : uint16, shape (entries,)
        Topic of each entry.
    counts : float32, shape (entries,)
        n_dk, or its expectation.
    """

    offsets: Int64Vector
    topic: UInt16Vector
    counts: Float32Vector


class OutDocumentTopics(NamedTuple):
    """`DocumentTopics` that a kernel fills.

    Attributes
    ----------
    offsets : int64, shape (documents + 1,)
        Index of each document's first entry.
    topic : uint16, shape (entries or more,)
        Topic of each entry.
    counts : float32, shape (entries or more,)
        n_dk, or its expectation.
    """

    offsets: OutInt64Vector
    topic: OutUInt16Vector
    counts: OutFloat32Vector


class DocumentLabels(NamedTuple):
    """Labels of each document, and the numbers of topics by which they determine the topics that it may have.

    Attributes
    ----------
    offsets : int64, shape (documents + 1,)
        Index of each document's first label; the last is the number of labels of all documents.
    label : int32, shape (labels of all documents,)
        Numbers of the labels; those of a document differ.
    topics_per_label : int
        N; label l has the topics l N to l N + N - 1.
    background_topics : int
        Topics of the background, the last ones.
    """

    offsets: Int64Vector
    label: Int32Vector
    topics_per_label: int
    background_topics: int


class FixedTopics(NamedTuple):
    """Topics at the last sample, phi_kw = (b + n_kw) / (B + n_k).

    Attributes
    ----------
    word_topic : float32, shape (rows, topics)
        n_kw.
    word_parameter : float
        b.
    inverse_totals : float64, shape (topics,)
        1 / (B + n_k).
    """

    word_topic: Float32Matrix
    word_parameter: float
    inverse_totals: Float64Vector


class DocumentAuthors(NamedTuple):
    """Authors of each document, at least one of a document that has tokens.

    Attributes
    ----------
    offsets : int64, shape (documents + 1,)
        Index of each document's first author; the last is the number of authors of all documents.
    author : int32, shape (authors of all documents,)
        Their rows in the counts by author; those of a document differ.
    """

    offsets: Int64Vector
    author: Int32Vector


class TokenAssignments(NamedTuple):
    """Topic and author of each token, those of a pair side by side; updated.

    Attributes
    ----------
    topic : uint16, shape (tokens,)
        z.
    author : uint16, shape (tokens,)
        Index of the token's author among those of its document.
    """

    topic: OutUInt16Vector
    author: OutUInt16Vector
