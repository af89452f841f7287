"""A pass over documents in small batches, each of which moves the topics by a decaying step (SCVB0)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.cvb.records import Priors
from collapsium.workers.kernels.jit import (
    Array,
    DocumentPairs,
    Float64Vector,
    Number,
    OutFloat32Matrix,
    OutFloat64Vector,
    borrower,
    helper,
    kernel,
    token_weight,
)
from collapsium.workers.kernels.special import LARGEST, absence, digamma, expected_tables, positive

MIN_TOTAL = np.float32(1e-30)


class Batches(NamedTuple):
    """Batches of documents."""

    documents: int  # Documents a batch
    passes: int  # Passes over each document
    rates: Float64Vector  # Step of each batch; (batches,)
    scales: Float64Vector  # Tokens of the corpus for each token of the batch; (batches,)


class MovingCounts(NamedTuple):
    """Counts of the topics, which batches move."""

    rows: OutFloat32Matrix  # E[n_kw] divided by `decay`; (rows, topics)
    totals: OutFloat64Vector  # E[n_k]; (topics,)
    decay: OutFloat64Vector  # Factor of a count to which no batch adds; (1,)


class _Document(NamedTuple):
    """The current document; arrays of float32."""

    counts: Array  # Tokens of the pairs; int32 (pairs,)
    weights: Array  # Weights of these tokens; float32 (pairs,)
    phi: Array  # phi_kw of the pairs; (pairs, topics)
    prior: Array  # a_k; (topics,)
    expected: Array  # n_dk; (topics,)
    share: Array  # To write on; (topics,)


class _Moments(NamedTuple):
    """Moments of n_dk to fill, float64 of shape (topics,)."""

    # P(n_dk = 0), V[n_dk] and E[n_dk]
    absent: Array
    variance: Array
    mean: Array


@kernel
def sweep_stochastic(
    pairs: DocumentPairs,
    priors: Priors,
    batches: Batches,
    counts: MovingCounts,
    document_topic: OutFloat32Matrix,
    tables: OutFloat64Vector,
) -> None:
    """Move the counts of topics towards the expectation of each batch of documents; twin: `naive.stochastic.sweep`.

    Foulds, Boyles, DuBois, Smyth and Welling (2013), equations 7 to 9: with the topics held fixed, each document's
    counts are n_dk = sum over pairs of c q, q ~ (a_k + n_dk) phi_kw, after some passes over it; then
    N_kw <- (1 - rate) N_kw + rate scale sum over the batch's pairs of c q, and N_k likewise.

    Shapes: `document_topic` (documents, topics); `tables` (topics,).
    """
    offsets, position, tokens, weights = pairs.offsets, pairs.position, pairs.counts, pairs.weights
    prior, word_prior, rates, scales = priors.topics, priors.words, batches.rates, batches.scales
    row_topic, totals, decay = counts.rows, counts.totals, counts.decay
    topics, size = prior.size, batches.documents
    prior32, inverse = prior.astype(np.float32), np.empty(topics, dtype=np.float32)
    share = np.empty(topics, dtype=np.float32)
    moments = _Moments(np.empty(topics), np.empty(topics), np.empty(topics))
    for number in range(rates.size):
        rate = rates[number]
        decay[0] *= 1.0 - rate
        for k in range(topics):
            totals[k] *= 1.0 - rate
        for document in range(number * size, min((number + 1) * size, offsets.size - 1)):
            first, last = offsets[document], offsets[document + 1]
            for k in range(topics):
                inverse[k] = np.float32(1.0 / (priors.words_total + totals[k]))
            words = position[first:last]
            phi = np.empty((last - first, topics), dtype=np.float32)
            current = _Document(tokens[first:last], weights[first:last], phi, prior32, document_topic[document], share)
            _probabilities(words, word_prior, row_topic, np.float32(decay[0]), inverse, phi)
            _expect(current, batches.passes)
            step = rate * scales[number]
            _add(current, words, step, step / decay[0], row_topic, totals)
            if tables.size:
                _document_tables(current, moments, prior, tables)


@helper
def _probabilities(
    position: Array, word_prior: Array, row_topic: Array, decay: Number, inverse: Array, phi: Array
) -> None:
    """Fill phi_kw of a document's pairs."""
    for pair in range(position.size):
        row = position[pair]
        b = np.float32(word_prior[row])
        for k in range(inverse.size):
            phi[pair, k] = (b + decay * max(row_topic[row, k], np.float32(0.0))) * inverse[k]


@borrower
def _expect(document: _Document, passes: int) -> None:
    """Fill a document's counts: each pass starts from the proportions of the pass before."""
    counts, weights, phi, prior, document_counts, share = document
    topics, tokens = prior.size, np.float32(0.0)
    for pair in range(counts.size):
        tokens += np.float32(counts[pair] * token_weight(weights, pair))
    prior_total = np.float32(0.0)
    for k in range(topics):
        prior_total += prior[k]
    for k in range(topics):
        document_counts[k] = tokens * prior[k] / prior_total
    for _ in range(passes):
        share[:] = np.float32(0.0)
        for pair in range(counts.size):
            total = MIN_TOTAL
            for k in range(topics):
                total += (prior[k] + document_counts[k]) * phi[pair, k]
            factor = np.float32(counts[pair] * token_weight(weights, pair)) / total
            for k in range(topics):
                share[k] += factor * phi[pair, k]
        for k in range(topics):
            document_counts[k] = (prior[k] + document_counts[k]) * share[k]


@borrower
def _add(document: _Document, position: Array, step: float, stored: float, row_topic: Array, totals: Array) -> None:
    """Add a document's expectation to the rows of its words, and to the totals."""
    counts, weights, phi, prior, document_counts, share = document
    topics = prior.size
    share[:] = np.float32(0.0)
    for pair in range(counts.size):
        row, total = position[pair], MIN_TOTAL
        for k in range(topics):
            total += (prior[k] + document_counts[k]) * phi[pair, k]
        factor = np.float32(counts[pair] * token_weight(weights, pair)) / total
        added = factor * np.float32(stored)
        for k in range(topics):
            row_topic[row, k] += added * (prior[k] + document_counts[k]) * phi[pair, k]
        for k in range(topics):
            share[k] += factor * phi[pair, k]
    for k in range(topics):
        totals[k] += step * (prior[k] + document_counts[k]) * share[k]


@borrower
def _document_tables(document: _Document, moments: _Moments, prior: Array, tables: Array) -> None:
    """Add a document's E[s_dk], all moments being of the same q: the mean too, as n_dk is one pass behind."""
    counts, weights, phi, prior32, document_counts, share = document
    absent, variance, mean = moments
    absent[:] = 1.0
    variance[:] = 0.0
    mean[:] = 0.0
    for pair in range(counts.size):
        total = MIN_TOTAL
        for k in range(prior32.size):
            share[k] = (prior32[k] + document_counts[k]) * phi[pair, k]
        for k in range(prior32.size):
            total += share[k]
        count, weight = counts[pair], token_weight(weights, pair)
        if count == 1 and weight == 1.0:
            for k in range(prior32.size):
                q = min(float(share[k] / total), LARGEST)
                absent[k] *= 1.0 - q
                variance[k] += q * (1.0 - q)
                mean[k] += q
        else:
            for k in range(prior32.size):
                q = min(float(share[k] / total), LARGEST)
                absent[k] *= absence(1.0 - q, count, weight)
                variance[k] += count * weight * q * (1.0 - q)
                mean[k] += count * weight * q
    for k in range(prior32.size):
        present, tokens, spread = positive(mean[k], variance[k], absent[k], 1.0 - absent[k])
        if present > 0.0:
            tables[k] += expected_tables(prior[k], digamma(prior[k]), present, tokens, spread)
