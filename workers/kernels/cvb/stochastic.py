"""A pass over documents in small batches, each of which moves the topics by a decaying step (SCVB0)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import F8, I4, I8, OUT_F4_2, OUT_F8, f8, helper, i8, kernel
from collapsium.workers.kernels.moments import LARGEST, expected_tables, positive, power

Array = npt.NDArray[Any]

TINY = np.float32(1e-30)


@kernel(I8, I4, I4, F8, F8, f8, i8, F8, F8, i8, OUT_F4_2, OUT_F8, OUT_F8, OUT_F4_2, OUT_F8)
def sweep_stochastic(
    offsets: Array,
    position: Array,
    counts: Array,
    word_prior: Array,
    prior: Array,
    total_prior: float,
    batch: int,
    rates: Array,
    scales: Array,
    passes: int,
    row_topic: Array,
    totals: Array,
    decay: Array,
    document_topic: Array,
    tables: Array,
) -> None:
    """Move the counts of topics towards what each batch of documents expects; twin: `naive.stochastic.sweep`.

    Foulds, Boyles, DuBois, Smyth and Welling (2013), equations 7 to 9: with the topics held, each document's counts
    are n_dk = sum over pairs of c q, q ~ (a_k + n_dk) phi_kw, after some passes over it; then
    N_kw <- (1 - rate) N_kw + rate scale sum over the batch's pairs of c q, and N_k likewise.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row and count of each pair.
    word_prior : float64, shape (rows,)
        b_w.
    prior : float64, shape (topics,)
        a_k.
    total_prior : float
        B.
    batch : int
        Documents a batch.
    rates, scales : float64, shape (batches,)
        Step of each batch, and tokens of the corpus for each of its tokens.
    passes : int
        Passes over each document.
    row_topic : float32, shape (rows, topics)
        E[n_kw] divided by `decay`; moved.
    totals : float64, shape (topics,)
        E[n_k]; moved.
    decay : float64, shape (1,)
        What is left of a count that no batch adds to; moved.
    document_topic : float32, shape (documents, topics)
        Filled with n_dk.
    tables : float64, shape (topics,)
        Increased by the sums over documents of E[s_dk]; of size 0 if they are not wanted.
    """
    topics = prior.size
    own, inverse = prior.astype(np.float32), np.empty(topics, dtype=np.float32)
    share = np.empty(topics, dtype=np.float32)
    absent, variance, mean = np.empty(topics), np.empty(topics), np.empty(topics)
    for number in range(rates.size):
        rate = rates[number]
        decay[0] *= 1.0 - rate
        for k in range(topics):
            totals[k] *= 1.0 - rate
        for document in range(number * batch, min((number + 1) * batch, offsets.size - 1)):
            first, last = offsets[document], offsets[document + 1]
            here = document_topic[document]
            for k in range(topics):
                inverse[k] = np.float32(1.0 / (total_prior + totals[k]))
            given = position[first:last], counts[first:last]
            phi = np.empty((last - first, topics), dtype=np.float32)
            _probabilities(given[0], word_prior, row_topic, np.float32(decay[0]), inverse, phi)
            _expect(given[1], phi, own, passes, share, here)
            step = rate * scales[number]
            _add(*given, phi, own, here, step, step / decay[0], share, row_topic, totals)
            if tables.size:
                _document_tables(given[1], phi, own, here, share, absent, variance, mean, prior, tables)


@helper
def _probabilities(
    position: Array, word_prior: Array, row_topic: Array, decay: Any, inverse: Array, phi: Array
) -> None:
    """Fill phi_kw of a document's pairs."""
    for pair in range(position.size):
        row = position[pair]
        b = np.float32(word_prior[row])
        for k in range(inverse.size):
            phi[pair, k] = (b + decay * max(row_topic[row, k], np.float32(0.0))) * inverse[k]


@helper
def _expect(counts: Array, phi: Array, own: Array, passes: int, share: Array, here: Array) -> None:
    """Fill a document's counts: each pass takes them from the proportions of the pass before."""
    topics, tokens = own.size, np.float32(0.0)
    for pair in range(counts.size):
        tokens += np.float32(counts[pair])
    whole = np.float32(0.0)
    for k in range(topics):
        whole += own[k]
    for k in range(topics):
        here[k] = tokens * own[k] / whole
    for _ in range(passes):
        share[:] = np.float32(0.0)
        for pair in range(counts.size):
            total = TINY
            for k in range(topics):
                total += (own[k] + here[k]) * phi[pair, k]
            each = np.float32(counts[pair]) / total
            for k in range(topics):
                share[k] += each * phi[pair, k]
        for k in range(topics):
            here[k] = (own[k] + here[k]) * share[k]


@helper
def _add(
    position: Array,
    counts: Array,
    phi: Array,
    own: Array,
    here: Array,
    step: float,
    stored: float,
    share: Array,
    row_topic: Array,
    totals: Array,
) -> None:
    """Add what a document expects to the rows of its words, and to the totals."""
    topics = own.size
    share[:] = np.float32(0.0)
    for pair in range(counts.size):
        row, total = position[pair], TINY
        for k in range(topics):
            total += (own[k] + here[k]) * phi[pair, k]
        each = np.float32(counts[pair]) / total
        added = each * np.float32(stored)
        for k in range(topics):
            row_topic[row, k] += added * (own[k] + here[k]) * phi[pair, k]
        for k in range(topics):
            share[k] += each * phi[pair, k]
    for k in range(topics):
        totals[k] += step * (own[k] + here[k]) * share[k]


@helper
def _document_tables(
    counts: Array,
    phi: Array,
    own: Array,
    here: Array,
    share: Array,
    absent: Array,
    variance: Array,
    mean: Array,
    prior: Array,
    tables: Array,
) -> None:
    """Add a document's E[s_dk], all moments being those of the same q: the mean too, which n_dk is one pass behind."""
    absent[:] = 1.0
    variance[:] = 0.0
    mean[:] = 0.0
    for pair in range(counts.size):
        total = TINY
        for k in range(own.size):
            share[k] = (own[k] + here[k]) * phi[pair, k]
            total += share[k]
        count = counts[pair]
        if count == 1:
            for k in range(own.size):
                q = min(float(share[k] / total), LARGEST)
                absent[k] *= 1.0 - q
                variance[k] += q * (1.0 - q)
                mean[k] += q
        else:
            for k in range(own.size):
                q = min(float(share[k] / total), LARGEST)
                absent[k] *= power(1.0 - q, count)
                variance[k] += count * q * (1.0 - q)
                mean[k] += count * q
    for k in range(own.size):
        present, tokens, spread = positive(mean[k], variance[k], absent[k], 1.0 - absent[k])
        if present > 0.0:
            tables[k] += expected_tables(prior[k], present, tokens, spread)
