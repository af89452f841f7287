"""Prediction: probabilities of pairs under fitted proportions, and proportions of documents under fixed topics."""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Float32Matrix,
    Float32Vector,
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    OutFloat32Matrix,
    OutFloat64Vector,
)
from collapsium.workers.kernels.jit import kernel
from collapsium.workers.kernels.records import DocumentPairs

ZERO, ONE = np.float32(0.0), np.float32(1.0)
LEAST_WEIGHT = np.float32(1e-37)
"""Weight of a topic that cannot make a word: a little above the smallest normal number of single precision."""
MOVED_TOKENS = 1e-3
"""Tokens by which a count may still move in the last sweep of folding in. With 1e-4, sweeps are 1.3 times as many on
KOS with 200 topics, and the mean log probability of a token of the documents rises by 1e-6 nats."""
MOVED_SHARE = 1e-5
"""The same as a share of the document's tokens, for long documents: counts of single precision have errors of 1e-7."""


@kernel
def pair_probability(
    offsets: Int64Vector,
    position: Int32Vector,
    proportions: Float64Matrix,
    word_probability: Float64Matrix,
    rest: Float64Vector,
    rest_word: Float64Vector,
    probability: OutFloat64Vector,
) -> None:
    """Fill sum_k theta_dk phi_kw + theta_rest tau_w of each pair; twin: `naive.predict.pair_probability`.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position : int32, shape (pairs,)
        Row of each pair's word.
    proportions : float64, shape (documents, topics)
        theta.
    word_probability : float64, shape (rows, topics)
        phi of the words that occur.
    rest : float64, shape (documents,)
        Share of each document beyond the truncation.
    rest_word : float64, shape (rows,)
        Probability of each word there.
    probability : float64, shape (pairs,)
        Filled.
    """
    for document in range(offsets.size - 1):
        theta = proportions[document]
        for pair in range(offsets[document], offsets[document + 1]):
            row = position[pair]
            phi = word_probability[row]
            total = 0.0
            for k in range(theta.size):
                total += theta[k] * phi[k]
            probability[pair] = total + rest[document] * rest_word[row]


@kernel
def fold_in(
    pairs: DocumentPairs,
    word_probability: Float32Matrix,
    prior: Float32Vector,
    sweeps: int,
    document_topic: OutFloat32Matrix,
) -> None:
    """Fit the counts of unseen documents with the topics held fixed; twin: `naive.predict.fold_in`.

    Zeroth-order sweeps, q_dwk ~ (a_k + E'[n_dk]) phi_kw, from q ~ a_k phi_kw, until no count of the document moves
    by more than `MOVED_TOKENS` or `MOVED_SHARE`, or the sweeps are used up. Single precision is used for its speed.

    Parameters
    ----------
    pairs : DocumentPairs
        The documents.
    word_probability : float32, shape (rows, topics)
        phi of the words that occur.
    prior : float32, shape (topics,)
        a_k.
    sweeps : int
        Maximum number of sweeps over a document.
    document_topic : float32, shape (documents, topics)
        Filled with E[n_dk].
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    topics, longest = prior.size, 0
    for document in range(offsets.size - 1):
        longest = max(longest, offsets[document + 1] - offsets[document])
    share = np.empty((longest, topics), dtype=np.float32)
    weight, before = np.empty(topics, dtype=np.float32), np.empty(topics, dtype=np.float32)
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        here = document_topic[document]
        here[:] = ZERO
        share[: last - first] = ZERO
        tokens = 0
        for pair in range(first, last):
            tokens += counts[pair]
        tolerance = max(MOVED_TOKENS, MOVED_SHARE * tokens)
        for sweep in range(sweeps):
            before[:] = here
            for pair in range(first, last):
                old, phi = share[pair - first], word_probability[position[pair]]
                count, total = np.float32(counts[pair]), ZERO
                if sweep == 0:
                    # Nothing is counted yet: proportions start at the prior, not at the first pairs.
                    for k in range(topics):
                        weight[k] = prior[k] * phi[k] + LEAST_WEIGHT
                        total += weight[k]
                else:
                    for k in range(topics):
                        weight[k] = (prior[k] + max(here[k] - old[k], ZERO)) * phi[k] + LEAST_WEIGHT
                        total += weight[k]
                scale = ONE / total
                for k in range(topics):
                    new = weight[k] * scale
                    here[k] += count * (new - old[k])
                    old[k] = new
            moved = ZERO
            for k in range(topics):
                moved = max(moved, abs(here[k] - before[k]))
            if moved < tolerance:
                break
