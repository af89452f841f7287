"""Sums over the words: probabilities of absence, expected tables, and the bound's word terms."""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Float32Matrix,
    Float32Vector,
    Float64Vector,
    Int32Vector,
    OutFloat64Matrix,
    OutFloat64Vector,
)
from collapsium.workers.kernels.cvb.records import WordMoments
from collapsium.workers.kernels.jit import kernel
from collapsium.workers.kernels.moments import (
    LARGEST,
    absence,
    expected_log_beta,
    expected_log_rising,
    expected_tables,
    positive,
)
from collapsium.workers.kernels.records import token_weight
from collapsium.workers.kernels.special import digamma

MIN_ABSENT = 1e-300  # smallest probability of absence of a shard: below, a count is positive for certain


@kernel
def add_log_absent(
    position: Int32Vector,
    counts: Int32Vector,
    weights: Float32Vector,
    pair_topic: Float32Matrix,
    row_topic: OutFloat64Matrix,
) -> None:
    """Fill Z[n_kw] = sum c log(1 - q) over a shard's pairs of each word; twin: `naive.words.log_absent`.

    The probability itself is a product, with one logarithm a cell at the end, and has a lower limit, so that the
    difference of two sweeps is always finite.

    Shapes: `position`, `counts`, `weights` (pairs,); `pair_topic` (pairs, topics); `row_topic` (shard words, topics).
    """
    row_topic[:] = 1.0
    for pair in range(position.size):
        row, count, weight = position[pair], counts[pair], token_weight(weights, pair)
        for k in range(row_topic.shape[1]):
            absent = 1.0 - min(float(pair_topic[pair, k]), LARGEST)
            row_topic[row, k] = max(row_topic[row, k] * absence(absent, count, weight), MIN_ABSENT)
    for row in range(row_topic.shape[0]):
        for k in range(row_topic.shape[1]):
            row_topic[row, k] = math.log(row_topic[row, k])


@kernel
def add_counts(
    position: Int32Vector,
    counts: Int32Vector,
    weights: Float32Vector,
    pair_topic: Float32Matrix,
    row_topic: OutFloat64Matrix,
    row_variance: OutFloat64Matrix,
) -> None:
    """Add E[n_kw] and V[n_kw] of a shard's pairs; twin: `naive.words.counts`.

    Shapes: `position`, `counts`, `weights` (pairs,); `pair_topic` (pairs, topics); `row_topic`, `row_variance` (shard
    words, topics).
    """
    for pair in range(position.size):
        row, tokens = position[pair], counts[pair] * token_weight(weights, pair)
        for k in range(row_topic.shape[1]):
            row_topic[row, k] += tokens * pair_topic[pair, k]
        if row_variance.size:
            for k in range(row_topic.shape[1]):
                q = float(pair_topic[pair, k])
                row_variance[row, k] += tokens * q * (1.0 - q)


@kernel
def word_tables(words: WordMoments, prior: Float64Vector, tables: OutFloat64Vector, bound: OutFloat64Vector) -> None:
    """Fill sum_k E[t_kw] of each word and sum_kw F[log G(h_w + n_kw) / G(h_w)]; twin: `naive.words.word_tables`.

    Shapes: `prior`, `tables` (words,); `bound` (1,).
    """
    word_topic, variance, log_absent = words.mean, words.variance, words.log_absent
    for word in range(word_topic.shape[0]):
        tables[word], below = 0.0, digamma(prior[word])
        for k in range(word_topic.shape[1]):
            absent, present = math.exp(log_absent[word, k]), -math.expm1(log_absent[word, k])
            present, mean, spread = positive(word_topic[word, k], variance[word, k], absent, present)
            if present > 0.0:
                tables[word] += expected_tables(prior[word], below, present, mean, spread)
                bound[0] += expected_log_rising(prior[word], present, mean, spread)


@kernel
def topic_totals(
    total: Float64Vector,
    variance: Float64Vector,
    log_absent: Float64Vector,
    prior: Float64Vector,
    log_xi: OutFloat64Vector,
    log_rising: OutFloat64Vector,
) -> None:
    """Fill E[log xi_k] and F[log G(B + n_k) / G(B)] of each topic; twin: `naive.words.topic_totals`.

    Shapes: `total`, `variance`, `log_absent`, `log_xi`, `log_rising` (topics,); `prior` (1,).
    """
    for k in range(total.size):
        absent, present = math.exp(log_absent[k]), -math.expm1(log_absent[k])
        present, mean, spread = positive(total[k], variance[k], absent, present)
        log_xi[k] = expected_log_beta(prior[0], present, mean, spread)
        log_rising[k] = expected_log_rising(prior[0], present, mean, spread) if present > 0.0 else 0.0


@kernel
def log_eta(lengths: Float64Vector, prior: Float64Vector, sums: OutFloat64Vector) -> None:
    """Add sum_d E[log eta_d] and sum_d log G(A)/G(A + n_d) over documents; twin: `naive.words.log_eta`.

    `prior` is A, or A_d of each document.

    Shapes: `lengths` (documents,); `prior` (1,) or (documents,); `sums` (2,).
    """
    unit = np.ones(1)
    for document in range(lengths.size):
        if lengths[document] > 0.0:
            total = prior[document if prior.size > 1 else 0]
            sums[0] += expected_log_beta(total, unit[0], lengths[document], 0.0)
            sums[1] += math.lgamma(total) - math.lgamma(total + lengths[document])
