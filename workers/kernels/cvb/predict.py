"""Prediction: probabilities of pairs under fitted proportions, and proportions of documents under fixed topics."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import F8, F8_2, I4, I8, OUT_F8, OUT_F8_2, i8, kernel

Array = npt.NDArray[Any]


@kernel(I8, I4, F8_2, F8_2, F8, F8, OUT_F8)
def pair_probability(
    offsets: Array,
    position: Array,
    proportions: Array,
    word_probability: Array,
    rest: Array,
    rest_word: Array,
    probability: Array,
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


@kernel(I8, I4, I4, F8_2, F8, i8, OUT_F8_2)
def fold_in(
    offsets: Array,
    position: Array,
    counts: Array,
    word_probability: Array,
    prior: Array,
    sweeps: int,
    document_topic: Array,
) -> None:
    """Fit the counts of unseen documents with the topics held fixed; twin: `naive.predict.fold_in`.

    Zeroth-order sweeps, q_dwk ~ (a_k + E'[n_dk]) phi_kw, from q ~ a_k phi_kw, until no count of the document moves
    by more than 1e-4 tokens or the sweeps are used up.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row of `word_probability` and count of each pair.
    word_probability : float64, shape (rows, topics)
        phi of the words that occur.
    prior : float64, shape (topics,)
        a_k.
    sweeps : int
        The most sweeps that a document gets.
    document_topic : float64, shape (documents, topics)
        Filled with E[n_dk].
    """
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
                    # In the first sweep nothing is counted yet: proportions start at the prior, not at what came first.
                    own = 0.0 if sweep == 0 else max(here[k] - old[k], 0.0)
                    weight[k] = (prior[k] + own) * phi[k] + 1e-300
                    total += weight[k]
                for k in range(topics):
                    new = weight[k] / total
                    here[k] += counts[pair] * (new - old[k])
                    old[k] = new
            if np.abs(here - before).max() < 1e-4:
                break
