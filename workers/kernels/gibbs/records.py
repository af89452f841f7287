"""Named tuples of arrays that the Gibbs kernels take."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

from collapsium.workers.kernels.argument_types import (
    Filled,
    Float32Matrix,
    Float32Vector,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    OutFloat64Vector,
    OutInt32Matrix,
    OutInt64Vector,
    OutUInt16Vector,
    UInt16Vector,
)


class WordPrior(NamedTuple):
    """Symmetric Dirichlet prior of a topic over the vocabulary."""

    parameter: float  # b, the parameter of each word
    total: float  # B, the sum over the vocabulary


class TopicPrior(NamedTuple):
    """Dirichlet prior of a document over the topics, updated as topics are born and die."""

    parameters: OutFloat64Vector  # a_k; 0 of a free slot, and in padding; (topics,)
    remainder: OutFloat64Vector  # Sum of the parameters of all topics that do not exist yet; (1,)


class TopicSlots(NamedTuple):
    """Free slots, which new topics take."""

    concentration: float  # gamma of the stick-breaking prior; 0 where the number of topics is fixed
    reusable: Int64Vector  # 1 of slots that are free again when their topic has lost its last token, else 0; (topics,)
    free: OutInt64Vector  # Stack of free slots, the next to be taken last; updated; (slots,)
    free_count: OutInt64Vector  # Height of the stack; updated; (1,)


class TopicCounts(NamedTuple):
    """Tokens of each topic, updated with each token that is drawn."""

    totals: OutFloat64Vector  # n_k; (topics,)
    word_topic: OutInt32Matrix  # n_kw; (rows, topics)


class DocumentTopics(NamedTuple):
    """Topics that each document uses, with their tokens."""

    offsets: Int64Vector  # Index of each document's first entry; the last is the number of entries; (documents + 1,)
    topic: UInt16Vector  # Topic of each entry; (entries,)
    counts: Float32Vector  # n_dk, or its expectation; (entries,)


# `DocumentTopics` that a kernel fills, with room for more entries than there are
OutDocumentTopics: TypeAlias = Annotated[DocumentTopics, Filled()]


class DocumentLabels(NamedTuple):
    """Labels of each document, and the numbers of topics by which they determine the topics that it may have."""

    # Index of each document's first label; the last is the number of labels of all documents; (documents + 1,)
    offsets: Int64Vector
    label: Int32Vector  # Numbers of the labels, distinct within a document; (labels of all documents,)
    topics_per_label: int  # N; label l has the topics l N to l N + N - 1
    background_topics: int  # Topics of the background, the last ones


class FixedTopics(NamedTuple):
    """Topics at the last sample, phi_kw = (b + n_kw) / (B + n_k)."""

    word_topic: Float32Matrix  # n_kw; (rows, topics)
    word_parameter: float  # b
    inverse_totals: Float64Vector  # 1 / (B + n_k); (topics,)


class DocumentAuthors(NamedTuple):
    """Authors of each document, at least one of a document that has tokens."""

    # Index of each document's first author; the last is the number of authors of all documents; (documents + 1,)
    offsets: Int64Vector
    author: Int32Vector  # Their rows in the counts by author, distinct within a document; (authors of all documents,)


class TokenAssignments(NamedTuple):
    """Topic and author of each token, tokens of a pair side by side; updated."""

    topic: OutUInt16Vector  # z; (tokens,)
    author: OutUInt16Vector  # Index of the token's author among its document's authors; (tokens,)
