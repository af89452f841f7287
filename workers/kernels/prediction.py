"""Prediction: probabilities of pairs under fitted proportions, and proportions of documents under fixed topics."""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    OutFloat64Matrix,
    OutFloat64Vector,
)
from collapsium.workers.kernels.jit import kernel
from collapsium.workers.kernels.records import DocumentPairs


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
    word_probability: Float64Matrix,
    prior: Float64Vector,
    sweeps: int,
    document_topic: OutFloat64Matrix,
) -> None:
    """Fit the counts of unseen documents with the topics held fixed; twin: `naive.predict.fold_in`.

    Zeroth-order sweeps, q_dwk ~ (a_k + E'[n_dk]) phi_kw, from q ~ a_k phi_kw, until no count of the document moves
    by more than 1e-4 tokens or the sweeps are used up.

    Parameters
    ----------
    pairs : DocumentPairs
        The documents.
    word_probability : float64, shape (rows, topics)
        phi of the words that occur.
    prior : float64, shape (topics,)
        a_k.
    sweeps : int
        Maximum number of sweeps over a document.
    document_topic : float64, shape (documents, topics)
        Filled with E[n_dk].
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    topics = prior.size
    weight, before = np.empty(topics), np.empty(topics)
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        here = document_topic[document]
        here[:] = 0.0
        share = np.zeros((last - first, topics))
        for sweep in range(sweeps):
            before[:] = here
            for pair in range(first, last):
                old, phi = share[pair - first], word_probability[position[pair]]
                total = 0.0
                for k in range(topics):
                    # In the first sweep nothing is counted yet: proportions start at the prior, not at the first pairs.
                    own = 0.0 if sweep == 0 else max(here[k] - old[k], 0.0)
                    weight[k] = (prior[k] + own) * phi[k] + 1e-300
                    total += weight[k]
                for k in range(topics):
                    new = weight[k] / total
                    here[k] += counts[pair] * (new - old[k])
                    old[k] = new
            if np.abs(here - before).max() < 1e-4:
                break
