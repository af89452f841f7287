"""Topics of tokens where a document may have only those of its labels, and the background's.

Label l has the topics l N to l N + N - 1; the background has the last ones. A document without labels has the
background alone or, where there is none, all topics. What a document takes grows with the topics that it may have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import (
    F4,
    F4_2,
    F8,
    I4,
    I8,
    OUT_F4,
    OUT_F8,
    OUT_I4_2,
    OUT_U2,
    U2,
    U8,
    f8,
    helper,
    i8,
    kernel,
)
from collapsium.workers.kernels.random import uniform

Array = npt.NDArray[Any]

ENOUGH = 1e-4  # tokens by which no count of a document moves any more once it has settled


@helper
def _gather(lists: Array, label: Array, document: int, each: int, background: int, allowed: Array) -> int:
    """Write down the topics that a document may have, and return how many they are."""
    first, last = lists[document], lists[document + 1]
    if first == last and background == 0:
        for k in range(allowed.size):
            allowed[k] = k
        return allowed.size
    size = 0
    for entry in range(first, last):
        for place in range(each):
            allowed[size] = np.int64(label[entry]) * each + place
            size += 1
    for k in range(allowed.size - background, allowed.size):
        allowed[size] = k
        size += 1
    return size


@kernel(I8, I4, I4, U8, I8, I4, i8, i8, f8, f8, f8, OUT_F8, OUT_I4_2, OUT_U2)
def sweep_labels(
    offsets: Array,
    position: Array,
    counts: Array,
    key: Array,
    lists: Array,
    label: Array,
    each: int,
    background: int,
    prior: float,
    word_prior: float,
    total_prior: float,
    totals: Array,
    row: Array,
    token_topic: Array,
) -> None:
    """Draw each token's topic given those of all others; twin: `naive.gibbs_labels.sweep`.

    p(z = k) ~ (n_dk' + a) (n_kw' + b) / (n_k' + B) over the topics that the document may have. Number t of the stream
    belongs to token t.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row and count of each pair.
    key : uint64, shape (2,)
        Of the random stream.
    lists : int64, shape (documents + 1,)
        Where each document's labels begin.
    label : int32
        Their numbers; in a document none is twice.
    each, background : int
        Topics of each label, and of the background.
    prior, word_prior, total_prior : float
        a, b and B.
    totals : float64, shape (topics,)
        n_k; moved.
    row : int32, shape (rows, topics)
        n_kw; moved.
    token_topic : uint16, shape (tokens,)
        z of each token, those of a pair side by side; moved.
    """
    inverse = 1.0 / (totals + total_prior)
    allowed, place = np.empty(totals.size, dtype=np.int64), np.empty(totals.size, dtype=np.int64)
    here, running = np.empty(totals.size), np.empty(totals.size)
    at = 0
    for document in range(offsets.size - 1):
        begin = at
        for pair in range(offsets[document], offsets[document + 1]):
            at += counts[pair]
        if begin == at:
            continue
        size = _gather(lists, label, document, each, background, allowed)
        if size == 1:
            continue
        for j in range(size):
            place[allowed[j]] = j
            here[j] = 0.0
        for token in range(begin, at):
            here[place[token_topic[token]]] += 1.0
        at = begin
        for pair in range(offsets[document], offsets[document + 1]):
            words = row[position[pair]]
            for _ in range(counts[pair]):
                old = token_topic[at]
                here[place[old]] -= 1.0
                totals[old] -= 1.0
                words[old] -= 1
                inverse[old] = 1.0 / (totals[old] + total_prior)
                total = 0.0
                for j in range(size):
                    k = allowed[j]
                    total += (here[j] + prior) * (words[k] + word_prior) * inverse[k]
                    running[j] = total
                chance = uniform(key, at) * total
                j = min(np.searchsorted(running[:size], chance, side="right"), size - 1)
                k = allowed[j]
                here[j] += 1.0
                totals[k] += 1.0
                words[k] += 1
                inverse[k] = 1.0 / (totals[k] + total_prior)
                token_topic[at] = k
                at += 1


@kernel(I8, I4, I4, F4_2, I8, I4, i8, i8, f8, f8, F8, i8, I8, OUT_U2, OUT_F4)
def settle_labels(
    offsets: Array,
    position: Array,
    counts: Array,
    row: Array,
    lists: Array,
    label: Array,
    each: int,
    background: int,
    prior: float,
    word_prior: float,
    inverse: Array,
    sweeps: int,
    starts: Array,
    topic: Array,
    count: Array,
) -> None:
    """Fit the counts of unseen documents with the topics held fixed; twin: `naive.gibbs_labels.settle`.

    Zeroth-order sweeps as of `predict.fold_in`, over the topics that each document may have.

    Parameters
    ----------
    offsets, position, counts
        As for `sweep_labels`.
    row : float32, shape (rows, topics)
        n_kw.
    lists, label, each, background, prior, word_prior
        As for `sweep_labels`.
    inverse : float64, shape (topics,)
        1 / (B + n_k).
    sweeps : int
        The most sweeps that a document gets.
    starts : int64, shape (documents + 1,)
        Where the topics that each document may have begin.
    topic, count : uint16 and float32, shape (topics of all documents,)
        Filled with these topics, and E[n_dk].
    """
    allowed, weight = np.empty(inverse.size, dtype=np.int64), np.empty(inverse.size)
    here, before = np.empty(inverse.size), np.empty(inverse.size)
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        size = _gather(lists, label, document, each, background, allowed)
        share = np.zeros((last - first, size))
        here[:size] = 0.0
        for sweep in range(sweeps):
            before[:size] = here[:size]
            for pair in range(first, last):
                old, words = share[pair - first], row[position[pair]]
                total = 0.0
                for j in range(size):
                    k = allowed[j]
                    # In the first sweep nothing is counted yet: proportions start at the prior.
                    own = 0.0 if sweep == 0 else max(here[j] - old[j], 0.0)
                    weight[j] = (prior + own) * (words[k] + word_prior) * inverse[k]
                    total += weight[j]
                for j in range(size):
                    new = weight[j] / total
                    here[j] += counts[pair] * (new - old[j])
                    old[j] = new
            moved = 0.0
            for j in range(size):
                moved = max(moved, abs(here[j] - before[j]))
            if moved < ENOUGH:
                break
        for j in range(size):
            topic[starts[document] + j] = allowed[j]
            count[starts[document] + j] = here[j]


@kernel(I8, I4, F4_2, I8, I4, i8, i8, f8, f8, F8, I8, U2, F4, OUT_F8)
def label_probability(
    offsets: Array,
    position: Array,
    row: Array,
    lists: Array,
    label: Array,
    each: int,
    background: int,
    prior: float,
    word_prior: float,
    inverse: Array,
    starts: Array,
    topic: Array,
    count: Array,
    probability: Array,
) -> None:
    """Fill sum_k theta_dk phi_kw of each pair, over the topics that its document may have.

    Twin: `naive.gibbs_labels.probability`.

    Parameters
    ----------
    offsets, position, row, lists, label, each, background, prior, word_prior, inverse
        As for `settle_labels`.
    starts : int64, shape (documents + 1,)
        Where each document's counts begin.
    topic, count : uint16 and float32
        Topics that have tokens, and n_dk.
    probability : float64, shape (pairs,)
        Filled.
    """
    allowed, here = np.empty(inverse.size, dtype=np.int64), np.zeros(inverse.size)
    theta = np.empty(inverse.size)
    for document in range(offsets.size - 1):
        if offsets[document] == offsets[document + 1]:
            continue
        size, tokens = _gather(lists, label, document, each, background, allowed), 0.0
        for entry in range(starts[document], starts[document + 1]):
            here[topic[entry]] = count[entry]
            tokens += count[entry]
        for j in range(size):
            theta[j] = (here[allowed[j]] + prior) * inverse[allowed[j]] / (size * prior + tokens)
        for entry in range(starts[document], starts[document + 1]):
            here[topic[entry]] = 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            words, total = row[position[pair]], 0.0
            for j in range(size):
                total += theta[j] * (words[allowed[j]] + word_prior)
            probability[pair] = total
