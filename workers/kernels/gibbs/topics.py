"""Collapsed Gibbs sampling of the topics of tokens, with a number of topics that is fixed or that grows.

The weights of all topics are computed side by side, in chunks whose sums are stored, so that a draw searches one chunk
only. They are float32, so a probability has a relative error of some 1e-7; counts are integers.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np

from collapsium.workers.kernels.jit import (
    Array,
    DocumentPairs,
    Filled,
    Float32Matrix,
    Float32Vector,
    Float64Matrix,
    Float64Vector,
    Int32Matrix,
    Int32Vector,
    Int64Vector,
    Number,
    OutFloat32Vector,
    OutFloat64Vector,
    OutInt32Matrix,
    OutInt64Vector,
    OutUInt16Vector,
    UInt16Vector,
    UInt64Vector,
    borrower,
    helper,
    kernel,
)
from collapsium.workers.kernels.random import uniform
from collapsium.workers.kernels.special import digamma


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


CHUNK = 32  # Topics whose weights are summed together; arrays by topic are padded to a multiple
# Most factors of a rising factorial that are multiplied one by one; beyond, special functions are faster
MAX_FACTORS = 16
TALLIED_COUNTS = 4096  # Counts below this are tallied; each greater one is evaluated by itself


@helper
def _draw_topic(
    coefficient: Float32Vector,
    word_counts: Int32Vector,
    word_parameter: float,
    new_weight: float,
    number: float,
    weight: OutFloat32Vector,
    sums: OutFloat32Vector,
) -> int:
    """Draw a topic in proportion to its coefficient times (n_kw + b), or -1 in proportion to `new_weight`."""
    total, parameter = new_weight, np.float32(word_parameter)
    for chunk in range(sums.size):
        chunk_sum: Number = np.float32(0.0)
        for place in range(CHUNK):
            k = chunk * CHUNK + place
            term = coefficient[k] * (np.float32(word_counts[k]) + parameter)
            weight[k] = term
            chunk_sum += term
        sums[chunk] = chunk_sum
        total += chunk_sum
    remaining = number * total - new_weight
    if remaining < 0.0:
        return -1
    chunk = 0
    while chunk < sums.size - 1 and remaining >= sums[chunk]:
        remaining -= sums[chunk]
        chunk += 1
    k = chunk * CHUNK
    last = k + CHUNK - 1
    while k < last and remaining >= weight[k]:
        remaining -= weight[k]
        k += 1
    # Rounding may lead past the last topic that has a weight.
    while k > 0 and weight[k] <= 0.0:
        k -= 1
    return k


@borrower
def _count_document(
    token_topic: Array,
    first: int,
    end: int,
    prior: Array,
    inverse: Array,
    local_counts: OutFloat64Vector,
    coefficient: OutFloat32Vector,
) -> None:
    """Add a document's tokens to its counts by topic, and fill the coefficients of its topics."""
    for token in range(first, end):
        local_counts[token_topic[token]] += 1.0
    for token in range(first, end):
        k = token_topic[token]
        coefficient[k] = (local_counts[k] + prior[k]) * inverse[k]


@borrower
def _clear_document(
    token_topic: Array,
    first: int,
    end: int,
    prior: Array,
    inverse: Array,
    local_counts: OutFloat64Vector,
    coefficient: OutFloat32Vector,
) -> None:
    """Set the counts of a document's topics to zero, and their coefficients to the values of an empty document."""
    for token in range(first, end):
        k = token_topic[token]
        local_counts[k] = 0.0
        coefficient[k] = prior[k] * inverse[k]


@borrower
def _free_topic(k: int, prior: Array, remainder: Array, reusable: Array, free: Array, free_count: Array) -> None:
    """Return a_k of a topic without tokens to a_rest, and its slot to the free ones if it is reusable."""
    remainder[0] += prior[k]
    prior[k] = 0.0
    if reusable[k]:
        free[free_count[0]] = k
        free_count[0] += 1


@borrower
def _create_topic(gamma: float, number: float, prior: Array, remainder: Array, free: Array, free_count: Array) -> int:
    """Return the slot of a new topic, whose a_k is broken off a_rest by v ~ Beta(1, gamma)."""
    free_count[0] -= 1
    k = free[free_count[0]]
    stick = -math.expm1(math.log1p(-number) / gamma)
    prior[k] = max(stick * remainder[0], 1e-300)
    remainder[0] = max(remainder[0] - prior[k], 0.0)
    return int(k)


@kernel
def sweep_tokens(
    documents: DocumentPairs,
    key: UInt64Vector,
    word_prior: WordPrior,
    topic_prior: TopicPrior,
    slots: TopicSlots,
    topic_counts: TopicCounts,
    token_topic: OutUInt16Vector,
    progress: OutInt64Vector,
) -> None:
    """Draw each token's topic given all other topics; twin: `naive.gibbs.sweep`.

    p(z = k) ~ (n_dk' + a_k) (n_kw' + b) / (n_k' + B), and p(z = new) ~ a_rest b / B. A new topic breaks a_rest by
    v ~ Beta(1, gamma); a topic that has lost its last token gives its a_k back (Teh, Jordan, Beal and Blei 2006,
    section 5.3, with a_k = alpha pi_k). Numbers 2 t and 2 t + 1 of the random stream belong to token t.

    Shapes: `key` (2,); `token_topic` (tokens,); `progress` (3,).
    """
    offsets, position, counts = documents.offsets, documents.position, documents.counts
    word_parameter, total_prior = word_prior.parameter, word_prior.total
    prior, remainder = topic_prior.parameters, topic_prior.remainder
    gamma, reusable, free, free_count = slots.concentration, slots.reusable, slots.free, slots.free_count
    totals, word_topic = topic_counts.totals, topic_counts.word_topic
    inverse, coefficient = 1.0 / (totals + total_prior), np.empty(prior.size, dtype=np.float32)
    coefficient[:] = prior * inverse
    weight, sums = np.empty(prior.size, dtype=np.float32), np.empty(prior.size // CHUNK, dtype=np.float32)
    local_counts = np.zeros(prior.size)
    begin = token = progress[1]
    for document in range(progress[0], offsets.size - 1):
        begin = token
        for pair in range(offsets[document], offsets[document + 1]):
            token += counts[pair]
        _count_document(token_topic, begin, token, prior, inverse, local_counts, coefficient)
        token = begin
        for pair in range(offsets[document], offsets[document + 1]):
            word_counts = word_topic[position[pair]]
            for _ in range(counts[pair]):
                # Drawn before the sweep was interrupted.
                if token < progress[2]:
                    token += 1
                    continue
                if gamma > 0.0 and free_count[0] == 0:
                    progress[0], progress[1], progress[2] = document, begin, token
                    return
                k = token_topic[token]
                local_counts[k] -= 1.0
                totals[k] -= 1.0
                word_counts[k] -= 1
                if gamma > 0.0 and totals[k] == 0.0:
                    _free_topic(k, prior, remainder, reusable, free, free_count)
                inverse[k] = 1.0 / (totals[k] + total_prior)
                coefficient[k] = (local_counts[k] + prior[k]) * inverse[k]
                new_weight = remainder[0] * word_parameter / total_prior
                number = uniform(key, 2 * token)
                k = _draw_topic(coefficient, word_counts, word_parameter, new_weight, number, weight, sums)
                if k < 0:
                    k = _create_topic(gamma, uniform(key, 2 * token + 1), prior, remainder, free, free_count)
                local_counts[k] += 1.0
                totals[k] += 1.0
                word_counts[k] += 1
                inverse[k] = 1.0 / (totals[k] + total_prior)
                coefficient[k] = (local_counts[k] + prior[k]) * inverse[k]
                token_topic[token] = k
                token += 1
        _clear_document(token_topic, begin, token, prior, inverse, local_counts, coefficient)
    progress[0] = offsets.size - 1


@helper
def _log_rising(prior: float, count: float) -> Number:
    """Return log G(a + n) / G(a)."""
    if count > MAX_FACTORS:
        return math.lgamma(prior + count) - math.lgamma(prior)
    product = 1.0
    for number in range(int(count)):
        product *= prior + number
    return math.log(product)


@helper
def _expected_tables(prior: float, count: float) -> Number:
    """Return a (psi(a + n) - psi(a)), the mean number of tables of n customers."""
    if count > MAX_FACTORS:
        return prior * (digamma(prior + count) - digamma(prior))
    total = 0.0
    for number in range(int(count)):
        total += prior / (prior + number)
    return total


@kernel
def list_documents(
    documents: DocumentPairs,
    token_topic: UInt16Vector,
    prior: Float64Vector,
    document_topics: OutDocumentTopics,
    tables: OutFloat64Vector,
    rising: OutFloat64Vector,
) -> None:
    """Count each document's tokens by topic; twin: `naive.gibbs.list_documents`.

    Shapes: `token_topic` (tokens,); `prior`, `tables` (topics,); `rising` (1,).
    """
    offsets, counts = documents.offsets, documents.counts
    first_topic, topic, count = document_topics.offsets, document_topics.topic, document_topics.counts
    local_counts = np.zeros(prior.size)
    token = filled = 0
    first_topic[0] = 0
    for document in range(offsets.size - 1):
        for pair in range(offsets[document], offsets[document + 1]):
            for _ in range(counts[pair]):
                k = token_topic[token]
                if local_counts[k] == 0.0:
                    topic[filled] = k
                    filled += 1
                local_counts[k] += 1.0
                token += 1
        for entry in range(first_topic[document], filled):
            k = topic[entry]
            count[entry] = local_counts[k]
            rising[0] += _log_rising(prior[k], local_counts[k])
            if tables.size:
                tables[k] += _expected_tables(prior[k], local_counts[k])
            local_counts[k] = 0.0
        first_topic[document + 1] = filled


@kernel
def draw_tables(
    topic: UInt16Vector, count: Float32Vector, prior: Float64Vector, key: UInt64Vector, tables: OutFloat64Vector
) -> None:
    """Draw the number of tables of each topic in each document, and sum them; twin: `naive.gibbs.draw_tables`.

    m_dk are the tables of a Chinese restaurant with n_dk customers and strength a_k: customer j + 1 opens one with
    probability a_k / (a_k + j).

    Shapes: `topic`, `count` (entries,); `prior`, `tables` (topics,); `key` (2,).
    """
    first_number = 0
    for entry in range(topic.size):
        strength = prior[topic[entry]]
        opened = 1.0
        for customer in range(1, int(count[entry])):
            opened += uniform(key, first_number + customer) * (strength + customer) < strength
        first_number += int(count[entry])
        tables[topic[entry]] += opened


@kernel
def word_rising(word_topic: Int32Matrix, prior: float, sums: OutFloat64Vector) -> None:
    """Sum over the cells of counts by word and topic; twin: `naive.gibbs.word_rising`.

    Shapes: `word_topic` (words, topics); `sums` (2,).
    """
    tally = np.zeros(TALLIED_COUNTS)
    for word in range(word_topic.shape[0]):
        for k in range(word_topic.shape[1]):
            count = word_topic[word, k]
            if 0 < count < TALLIED_COUNTS:
                tally[count] += 1.0
            elif count > 0:
                sums[0] += _log_rising(prior, float(count))
                sums[1] += _expected_tables(prior, float(count))
    log_rising = tables = 0.0
    for count in range(1, TALLIED_COUNTS):
        log_rising += math.log(prior + count - 1.0)
        tables += prior / (prior + count - 1.0)
        sums[0] += tally[count] * log_rising
        sums[1] += tally[count] * tables


@kernel
def draw_topics(
    documents: DocumentPairs,
    proportions: Float64Matrix,
    word_probability: Float64Matrix,
    key: UInt64Vector,
    token_topic: OutUInt16Vector,
) -> None:
    """Draw the topic of each token in proportion to theta_dk phi_kw; twin: `naive.gibbs.draw_topics`.

    Shapes: `proportions` (documents, topics); `word_probability` (rows, topics); `key` (2,); `token_topic` (tokens,).
    """
    offsets, position, counts = documents.offsets, documents.position, documents.counts
    topics, token = proportions.shape[1], 0
    cumulative = np.empty(topics)
    for document in range(offsets.size - 1):
        for pair in range(offsets[document], offsets[document + 1]):
            total = 0.0
            for k in range(topics):
                # Where all products underflow, every topic has the same probability.
                total += proportions[document, k] * word_probability[position[pair], k] + 1e-200
                cumulative[k] = total
            for _ in range(counts[pair]):
                drawn = np.searchsorted(cumulative, uniform(key, token) * total, side="right")
                token_topic[token] = min(drawn, topics - 1)
                token += 1
