"""Posterior proportions of documents with the topics fixed, by collapsed Gibbs sampling, and weighted sums of squares.

p(z_i = k) ~ (a_dk + n_dk without i) phi_kw. Each document has a prior a_d and a stream of random numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.jit import Float64Matrix, OutFloat64Matrix, UInt64Vector, kernel
from collapsium.workers.kernels.prediction import TokenSequences, draw, token_weights
from collapsium.workers.kernels.random import uniform


class SampledProportions(NamedTuple):
    """Means over the sweeps that are counted; each (documents, topics)."""

    mean: OutFloat64Matrix  # Posterior mean of theta_dk
    variance: OutFloat64Matrix  # Posterior variance of theta_dk
    tables: OutFloat64Matrix  # Expected tables, sum over i < n_dk of a_dk / (a_dk + i)


@kernel
def sample_proportions(
    documents: TokenSequences,
    word_topic: Float64Matrix,
    prior: Float64Matrix,
    skipped: int,
    counted: int,
    key: UInt64Vector,
    sampled: SampledProportions,
) -> None:
    """Sample the topics of each document's tokens; twin: `naive.posteriors.sample_proportions`.

    With u = (a_k + n_k) / (A + n), the mean of u over sweeps is the posterior mean, and the mean of
    u (1 - u) / (A + n + 1) plus the variance of u the posterior variance. A document without tokens has its prior's.

    Shapes: `word_topic` (words, topics); `prior` (documents, topics); `key` (2,); `sampled` (documents, topics).
    """
    offsets, topics = documents.offsets, prior.shape[1]
    weight, squares = np.empty(topics), np.empty(topics)
    for document in range(offsets.size - 1):
        begin, number = offsets[document], documents.first[document]
        tokens = offsets[document + 1] - begin
        topic, counts = np.zeros(tokens, dtype=np.int64), np.zeros(topics, dtype=np.int64)
        total_prior = prior[document].sum()
        for n in range(tokens):
            total = token_weights(word_topic[documents.position[begin + n]], counts, prior[document], weight)
            topic[n] = draw(weight, total, uniform(key, number))
            number += 1
            counts[topic[n]] += 1
        for k in range(topics):
            sampled.mean[document, k] = 0.0
            sampled.variance[document, k] = 0.0
            sampled.tables[document, k] = 0.0
            squares[k] = 0.0
        for sweep in range(skipped + counted):
            for n in range(tokens):
                counts[topic[n]] -= 1
                total = token_weights(word_topic[documents.position[begin + n]], counts, prior[document], weight)
                topic[n] = draw(weight, total, uniform(key, number))
                number += 1
                counts[topic[n]] += 1
            if sweep < skipped:
                continue
            for k in range(topics):
                a = prior[document, k]
                u = (a + counts[k]) / (total_prior + tokens)
                sampled.mean[document, k] += u / counted
                squares[k] += u * u / counted
                sampled.variance[document, k] += u * (1.0 - u) / (total_prior + tokens + 1.0) / counted
                for i in range(counts[k]):
                    sampled.tables[document, k] += a / (a + i) / counted
        for k in range(topics):
            mean = sampled.mean[document, k]
            sampled.variance[document, k] += max(squares[k] - mean * mean, 0.0)


@kernel
def weighted_squares(rows: Float64Matrix, weights: Float64Matrix, sums: OutFloat64Matrix) -> None:
    """Add sum_d w_dk x_dp x_dq for p <= q, pairs in the order of rows; twin: `naive.posteriors.weighted_squares`.

    Shapes: `rows` (documents, columns); `weights` (documents, n); `sums` (columns (columns + 1) / 2, n).
    """
    columns, width = rows.shape[1], weights.shape[1]
    for document in range(rows.shape[0]):
        pair = 0
        for p in range(columns):
            for q in range(p, columns):
                product = rows[document, p] * rows[document, q]
                if product != 0.0:
                    for k in range(width):
                        sums[pair, k] += product * weights[document, k]
                pair += 1


@kernel
def weighted_sums(rows: Float64Matrix, values: Float64Matrix, sums: OutFloat64Matrix) -> None:
    """Add sum_d x_dp y_dk; twin: NumPy's product.

    Shapes: `rows` (documents, columns); `values` (documents, n); `sums` (columns, n).
    """
    for document in range(rows.shape[0]):
        for p in range(rows.shape[1]):
            x = rows[document, p]
            if x != 0.0:
                for k in range(values.shape[1]):
                    sums[p, k] += x * values[document, k]
