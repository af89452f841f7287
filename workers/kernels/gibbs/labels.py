"""Topics of tokens where a document has only its labels' topics and the background's, or the topics of its authors.

Label l has the topics l N to l N + N - 1; the background has the last ones. A document without labels has the
background alone or, where there is none, all topics. Time grows with the topics that a document may have.
"""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.gibbs.topics import (
    DocumentAuthors,
    DocumentLabels,
    DocumentTopics,
    FixedTopics,
    OutDocumentTopics,
    TokenAssignments,
    TopicCounts,
    WordPrior,
)
from collapsium.workers.kernels.jit import (
    Array,
    DocumentPairs,
    Number,
    OutFloat64Vector,
    OutInt32Matrix,
    OutInt64Vector,
    OutUInt16Vector,
    UInt64Vector,
    borrower,
    helper,
    kernel,
)
from collapsium.workers.kernels.random import uniform

FOLD_IN_TOLERANCE = 1e-4  # Tokens: a document is folded in once no count has moved by more in a sweep


@borrower
def _allowed_topics(labels: DocumentLabels, document: int, allowed: OutInt64Vector) -> int:
    """Fill `allowed` with the topics that a document may have, and return their number."""
    first, last = labels.offsets[document], labels.offsets[document + 1]
    if first == last and labels.background_topics == 0:
        for k in range(allowed.size):
            allowed[k] = k
        return allowed.size
    size = 0
    for entry in range(first, last):
        for index in range(labels.topics_per_label):
            allowed[size] = np.int64(labels.label[entry]) * labels.topics_per_label + index
            size += 1
    for k in range(allowed.size - labels.background_topics, allowed.size):
        allowed[size] = k
        size += 1
    return size


@kernel
def sweep_labels(
    documents: DocumentPairs,
    key: UInt64Vector,
    labels: DocumentLabels,
    topic_prior: float,
    word_prior: WordPrior,
    topic_counts: TopicCounts,
    token_topic: OutUInt16Vector,
) -> None:
    """Draw each token's topic given all other topics; twin: `naive.gibbs_labels.sweep`.

    p(z = k) ~ (n_dk' + a) (n_kw' + b) / (n_k' + B) over the topics that the document may have. Number t of the random
    stream belongs to token t.

    Shapes: `key` (2,); `token_topic` (tokens,).
    """
    offsets, position, counts = documents.offsets, documents.position, documents.counts
    word_parameter, total_prior = word_prior.parameter, word_prior.total
    totals, word_topic = topic_counts.totals, topic_counts.word_topic
    inverse = 1.0 / (totals + total_prior)
    allowed, index = np.empty(totals.size, dtype=np.int64), np.empty(totals.size, dtype=np.int64)
    local_counts, cumulative = np.empty(totals.size), np.empty(totals.size)
    token = 0
    for document in range(offsets.size - 1):
        begin = token
        for pair in range(offsets[document], offsets[document + 1]):
            token += counts[pair]
        if begin == token:
            continue
        size = _allowed_topics(labels, document, allowed)
        if size == 1:
            continue
        for j in range(size):
            index[allowed[j]] = j
            local_counts[j] = 0.0
        for counted in range(begin, token):
            local_counts[index[token_topic[counted]]] += 1.0
        token = begin
        for pair in range(offsets[document], offsets[document + 1]):
            word_counts = word_topic[position[pair]]
            for _ in range(counts[pair]):
                old = token_topic[token]
                local_counts[index[old]] -= 1.0
                totals[old] -= 1.0
                word_counts[old] -= 1
                inverse[old] = 1.0 / (totals[old] + total_prior)
                total = 0.0
                for j in range(size):
                    k = allowed[j]
                    total += (local_counts[j] + topic_prior) * (word_counts[k] + word_parameter) * inverse[k]
                    cumulative[j] = total
                target = uniform(key, token) * total
                j = min(np.searchsorted(cumulative[:size], target, side="right"), size - 1)
                k = allowed[j]
                local_counts[j] += 1.0
                totals[k] += 1.0
                word_counts[k] += 1
                inverse[k] = 1.0 / (totals[k] + total_prior)
                token_topic[token] = k
                token += 1


@kernel
def fold_in_labels(
    documents: DocumentPairs,
    labels: DocumentLabels,
    topics: FixedTopics,
    topic_prior: float,
    sweeps: int,
    document_topics: OutDocumentTopics,
) -> None:
    """Fit the counts of unseen documents with the topics held fixed; twin: `naive.gibbs_labels.fold_in`.

    Zeroth-order sweeps as in `prediction.fold_in`, over the topics that each document may have.
    """
    offsets, position, counts = documents.offsets, documents.position, documents.counts
    word_topic, word_parameter, inverse = topics.word_topic, topics.word_parameter, topics.inverse_totals
    first_topic, topic, count = document_topics.offsets, document_topics.topic, document_topics.counts
    allowed, weight = np.empty(inverse.size, dtype=np.int64), np.empty(inverse.size)
    local_counts, previous = np.empty(inverse.size), np.empty(inverse.size)
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        size = _allowed_topics(labels, document, allowed)
        responsibilities = np.zeros((last - first, size))
        local_counts[:size] = 0.0
        for sweep in range(sweeps):
            previous[:size] = local_counts[:size]
            for pair in range(first, last):
                old, word_counts = responsibilities[pair - first], word_topic[position[pair]]
                total = 0.0
                for j in range(size):
                    k = allowed[j]
                    # Before the first sweep no count is known: proportions start at the prior.
                    remaining = 0.0 if sweep == 0 else max(local_counts[j] - old[j], 0.0)
                    weight[j] = (topic_prior + remaining) * (word_counts[k] + word_parameter) * inverse[k]
                    total += weight[j]
                for j in range(size):
                    new = weight[j] / total
                    local_counts[j] += counts[pair] * (new - old[j])
                    old[j] = new
            largest_change = 0.0
            for j in range(size):
                largest_change = max(largest_change, abs(local_counts[j] - previous[j]))
            if largest_change < FOLD_IN_TOLERANCE:
                break
        for j in range(size):
            topic[first_topic[document] + j] = allowed[j]
            count[first_topic[document] + j] = local_counts[j]


@kernel
def label_probability(
    documents: DocumentPairs,
    labels: DocumentLabels,
    topics: FixedTopics,
    topic_prior: float,
    document_topics: DocumentTopics,
    probability: OutFloat64Vector,
) -> None:
    """Fill sum_k theta_dk phi_kw of each pair, over the topics that its document may have.

    Twin: `naive.gibbs_labels.probability`.

    Shapes: `probability` (pairs,).
    """
    offsets, position = documents.offsets, documents.position
    word_topic, word_parameter, inverse = topics.word_topic, topics.word_parameter, topics.inverse_totals
    first_topic, topic, count = document_topics.offsets, document_topics.topic, document_topics.counts
    allowed, local_counts = np.empty(inverse.size, dtype=np.int64), np.zeros(inverse.size)
    theta = np.empty(inverse.size)
    for document in range(offsets.size - 1):
        if offsets[document] == offsets[document + 1]:
            continue
        size, tokens = _allowed_topics(labels, document, allowed), 0.0
        for entry in range(first_topic[document], first_topic[document + 1]):
            local_counts[topic[entry]] = count[entry]
            tokens += count[entry]
        for j in range(size):
            theta[j] = (local_counts[allowed[j]] + topic_prior) * inverse[allowed[j]] / (size * topic_prior + tokens)
        for entry in range(first_topic[document], first_topic[document + 1]):
            local_counts[topic[entry]] = 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            word_counts, total = word_topic[position[pair]], 0.0
            for j in range(size):
                total += theta[j] * (word_counts[allowed[j]] + word_parameter)
            probability[pair] = total


@helper
def _sum_masses(
    local_counts: Array, local_totals: Array, size: int, topic_prior: float, weight: Array, cumulative: Array
) -> Number:
    """Fill the cumulative probability masses of a document's authors, and return their sum."""
    total = 0.0
    for j in range(size):
        author_counts, mass = local_counts[j], 0.0
        for k in range(weight.size):
            mass += (author_counts[k] + topic_prior) * weight[k]
        total += mass / local_totals[j]
        cumulative[j] = total
    return total


@helper
def _draw_topic(author_counts: Array, topic_prior: float, weight: Array, remaining: float) -> int:
    """Draw an author's topic in proportion to (n_ak + alpha) times its weight, by a share of the sum of these."""
    k = 0
    while k < weight.size - 1 and remaining >= (author_counts[k] + topic_prior) * weight[k]:
        remaining -= (author_counts[k] + topic_prior) * weight[k]
        k += 1
    return k


@kernel
def sweep_authors(
    documents: DocumentPairs,
    key: UInt64Vector,
    authors: DocumentAuthors,
    topic_prior: float,
    word_prior: WordPrior,
    topic_counts: TopicCounts,
    author_topic: OutInt32Matrix,
    assignments: TokenAssignments,
) -> None:
    """Draw each token's author and topic given all others; twin: `naive.gibbs_labels.sweep_authors`.

    p(a, k) ~ (n_ak' + alpha) / (n_a' + K alpha) (n_kw' + b) / (n_k' + B). First the author is drawn, by number 2 t of
    the random stream, then the topic of this author, by number 2 t + 1, t being the token.

    Shapes: `key` (2,); `author_topic` (authors, topics).
    """
    offsets, position, counts = documents.offsets, documents.position, documents.counts
    first_author, author = authors.offsets, authors.author
    word_parameter, total_prior = word_prior.parameter, word_prior.total
    totals, word_topic = topic_counts.totals, topic_counts.word_topic
    token_topic, token_author = assignments.topic, assignments.author
    topics, max_authors = totals.size, 1
    for document in range(first_author.size - 1):
        max_authors = max(max_authors, first_author[document + 1] - first_author[document])
    inverse, weight = 1.0 / (totals + total_prior), np.empty(topics)
    local_counts, local_totals = np.empty((max_authors, topics)), np.empty(max_authors)
    cumulative = np.empty(max_authors)
    token = 0
    for document in range(offsets.size - 1):
        first, size = first_author[document], first_author[document + 1] - first_author[document]
        for j in range(size):
            global_counts = author_topic[author[first + j]]
            local_totals[j] = topics * topic_prior
            for k in range(topics):
                local_counts[j, k] = global_counts[k]
                local_totals[j] += global_counts[k]
        for pair in range(offsets[document], offsets[document + 1]):
            word_counts = word_topic[position[pair]]
            for _ in range(counts[pair]):
                author_counts, old = local_counts[token_author[token]], token_topic[token]
                author_counts[old] -= 1.0
                local_totals[token_author[token]] -= 1.0
                totals[old] -= 1.0
                word_counts[old] -= 1
                inverse[old] = 1.0 / (totals[old] + total_prior)
                for k in range(topics):
                    weight[k] = (word_counts[k] + word_parameter) * inverse[k]
                total = _sum_masses(local_counts, local_totals, size, topic_prior, weight, cumulative)
                remaining, j = uniform(key, 2 * token) * total, 0
                while j < size - 1 and remaining >= cumulative[j]:
                    j += 1
                mass = (cumulative[j] - (cumulative[j - 1] if j else 0.0)) * local_totals[j]
                author_counts = local_counts[j]
                k = _draw_topic(author_counts, topic_prior, weight, uniform(key, 2 * token + 1) * mass)
                author_counts[k] += 1.0
                local_totals[j] += 1.0
                totals[k] += 1.0
                word_counts[k] += 1
                inverse[k] = 1.0 / (totals[k] + total_prior)
                token_topic[token], token_author[token] = k, j
                token += 1
        for j in range(size):
            global_counts = author_topic[author[first + j]]
            for k in range(topics):
                global_counts[k] = np.int32(local_counts[j, k])
