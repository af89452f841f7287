"""Collapsed Gibbs sampling where each token has one of its document's authors, and one of that author's topics."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import I4, I8, OUT_F8, OUT_I4_2, OUT_U2, U8, f8, kernel
from collapsium.workers.kernels.random import uniform

Array = npt.NDArray[Any]


@kernel(I8, I4, I4, U8, I8, I4, f8, f8, f8, OUT_F8, OUT_I4_2, OUT_I4_2, OUT_U2, OUT_U2)
def sweep_authors(
    offsets: Array,
    position: Array,
    counts: Array,
    key: Array,
    lists: Array,
    author: Array,
    prior: float,
    word_prior: float,
    total_prior: float,
    totals: Array,
    row: Array,
    author_topic: Array,
    token_topic: Array,
    token_author: Array,
) -> None:
    """Draw each token's author and topic given those of all others; twin: `naive.gibbs_labels.sweep_authors`.

    p(a, k) ~ (n_ak' + alpha) / (n_a' + K alpha) (n_kw' + b) / (n_k' + B). First the author is drawn, by number 2 t of
    the stream, then the topic of this author, by number 2 t + 1, t being the token.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row and count of each pair.
    key : uint64, shape (2,)
        Of the random stream.
    lists : int64, shape (documents + 1,)
        Where each document's authors begin; a document with tokens has one at least.
    author : int32
        Their rows of `author_topic`; in a document none is twice.
    prior, word_prior, total_prior : float
        alpha, b and B.
    totals : float64, shape (topics,)
        n_k; moved.
    row : int32, shape (rows, topics)
        n_kw; moved.
    author_topic : int32, shape (authors, topics)
        n_ak; moved.
    token_topic, token_author : uint16, shape (tokens,)
        z of each token, and the place of its author among its document's; those of a pair side by side; moved.
    """
    topics, most = totals.size, 1
    for document in range(lists.size - 1):
        most = max(most, lists[document + 1] - lists[document])
    inverse, chance = 1.0 / (totals + total_prior), np.empty(topics)
    here, held, running = np.empty((most, topics)), np.empty(most), np.empty(most)
    at = 0
    for document in range(offsets.size - 1):
        first, size = lists[document], lists[document + 1] - lists[document]
        for j in range(size):
            told = author_topic[author[first + j]]
            held[j] = topics * prior
            for k in range(topics):
                here[j, k] = told[k]
                held[j] += told[k]
        for pair in range(offsets[document], offsets[document + 1]):
            words = row[position[pair]]
            for _ in range(counts[pair]):
                own, old = here[token_author[at]], token_topic[at]
                own[old] -= 1.0
                held[token_author[at]] -= 1.0
                totals[old] -= 1.0
                words[old] -= 1
                inverse[old] = 1.0 / (totals[old] + total_prior)
                for k in range(topics):
                    chance[k] = (words[k] + word_prior) * inverse[k]
                total = 0.0
                for j in range(size):
                    own, mass = here[j], 0.0
                    for k in range(topics):
                        mass += (own[k] + prior) * chance[k]
                    total += mass / held[j]
                    running[j] = total
                left, j = uniform(key, 2 * at) * total, 0
                while j < size - 1 and left >= running[j]:
                    j += 1
                mass = (running[j] - (running[j - 1] if j else 0.0)) * held[j]
                left, k, own = uniform(key, 2 * at + 1) * mass, 0, here[j]
                while k < topics - 1 and left >= (own[k] + prior) * chance[k]:
                    left -= (own[k] + prior) * chance[k]
                    k += 1
                own[k] += 1.0
                held[j] += 1.0
                totals[k] += 1.0
                words[k] += 1
                inverse[k] = 1.0 / (totals[k] + total_prior)
                token_topic[at], token_author[at] = k, j
                at += 1
        for j in range(size):
            told = author_topic[author[first + j]]
            for k in range(topics):
                told[k] = np.int32(here[j, k])
