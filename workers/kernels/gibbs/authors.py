"""Collapsed Gibbs sampling where each token has one of its document's authors, and one of that author's topics."""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.argument_types import Array, Number, OutInt32Matrix, UInt64Vector
from collapsium.workers.kernels.gibbs.records import DocumentAuthors, TokenAssignments, TopicCounts, WordPrior
from collapsium.workers.kernels.jit import helper, kernel
from collapsium.workers.kernels.random import uniform
from collapsium.workers.kernels.records import DocumentPairs


@helper
def _sum_masses(
    local_counts: Array, local_totals: Array, size: int, topic_prior: float, weight: Array, cumulative: Array
) -> Number:
    """Fill the cumulative probability masses of a document's authors, and return their sum."""
    total = 0.0
    for j in range(size):
        own, mass = local_counts[j], 0.0
        for k in range(weight.size):
            mass += (own[k] + topic_prior) * weight[k]
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
    topics, most_authors = totals.size, 1
    for document in range(first_author.size - 1):
        most_authors = max(most_authors, first_author[document + 1] - first_author[document])
    inverse, weight = 1.0 / (totals + total_prior), np.empty(topics)
    local_counts, local_totals = np.empty((most_authors, topics)), np.empty(most_authors)
    cumulative = np.empty(most_authors)
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
                own, old = local_counts[token_author[token]], token_topic[token]
                own[old] -= 1.0
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
                own = local_counts[j]
                k = _draw_topic(own, topic_prior, weight, uniform(key, 2 * token + 1) * mass)
                own[k] += 1.0
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
