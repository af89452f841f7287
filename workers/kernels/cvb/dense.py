"""Sweeps of the collapsed updates of Teh, Kurihara and Welling (2007): one pass over the pairs of a shard.

Zeroth order (CVB0; Asuncion, Welling, Smyth and Teh 2009):  q_dwk ~ (a_k + E'[n_dk]) (b_w + E'[n_kw]) / (B + E'[n_k]).
Second order, the papers': the same times
exp( - V'[n_dk] / (2 (a_k + E'[n_dk])^2) - V'[n_kw] / (2 (b_w + E'[n_kw])^2) + V'[n_k] / (2 (B + E'[n_k])^2) ).

A prime excludes one copy of the pair itself. Both sweep against the counts as the iteration began plus the shard's own
changes, document by document; the topics' totals are brought up to date after each document. What is read-only stays
so, and no loop writes more than two arrays: with three the compiler gives up vectorising.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.cvb.records import DenseState, NewDenseState, Priors
from collapsium.workers.kernels.jit import (
    Array,
    DocumentPairs,
    Float32Matrix,
    Float64Matrix,
    Float64Vector,
    Number,
    OutFloat64Matrix,
    OutFloat64Vector,
    borrower,
    helper,
    kernel,
    token_weight,
)
from collapsium.workers.kernels.special import digamma, document_moments, expected_log_rising, expected_tables, positive

MIN_PRIOR = np.float32(1e-12)  # products and squares of two are still numbers in float32
MAX_EXPONENT = np.float32(60.0)  # of the second order: beyond it a topic is certain or out of the question
# Numbers left free in front of a pair's update. `_weigh_zeroth` and `_weigh_second` sum while they store, for which the
# compiler makes a second version, whose order of additions differs: it runs where arrays begin within 64 bytes.
DISTANCE = 16


class Tables(NamedTuple):
    """Expected tables of the documents."""

    prior: Float64Vector  # g of E[s_dk]; empty where none are needed; (topics,)
    sums: OutFloat64Vector  # Increased by the sums over documents of E[s_dk]; (topics,)


class RowMoments(NamedTuple):
    """Moments of the rows of the shard's words as the iteration began."""

    # E[n_kw] and V[n_kw]; (rows, topics)
    mean: Float32Matrix
    variance: Float32Matrix


class MomentChanges(NamedTuple):
    """Changes of the moments of the rows."""

    # Zero on entry; filled with the changes of E[n_kw] and V[n_kw]; (rows, topics)
    mean: OutFloat64Matrix
    variance: OutFloat64Matrix


class BoundTerms(NamedTuple):
    """Terms of the documents in the bound."""

    tables: OutFloat64Vector  # Zero on entry; filled with the sums over documents of E[s_dk], with g = a_k; (topics,)
    # Zero on entry; filled with the bound's sum_dk F[log G(a_k + n_dk) / G(a_k)] and - sum c q log q; (2,)
    sums: OutFloat64Vector


class DocumentWork(NamedTuple):
    """Running moments of the current document, and of the topics."""

    mean: Array  # E[n_dk]; (topics,)
    variance: Array  # V[n_dk]; (topics,)
    prior: Array  # a_k; (topics,)
    # B + E[n_k] and V[n_k]; (topics,)
    total: Array
    total_variance: Array


class WordRow(NamedTuple):
    """Moments of a word as the iteration began, and their changes since; arrays of shape (topics,)."""

    # E[n_kw]
    mean: Array
    mean_change: Array
    # V[n_kw]
    variance: Array
    variance_change: Array


@kernel
def sweep_zeroth(
    pairs: DocumentPairs,
    rows: Float32Matrix,
    priors: Priors,
    totals: Float64Vector,
    before: DenseState,
    after: NewDenseState,
    row_change: OutFloat64Matrix,
    tables: Tables,
) -> None:
    """Update the responsibilities of all pairs of a shard by the zeroth order; twin: `naive.assign.sweep_zeroth`.

    Shapes: `rows`, `row_change` (rows, topics); `totals` (topics,).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    pair_topic, document_topic = before.pair_topic, before.document_topic
    new_pair_topic, new_document_topic = after.pair_topic, after.document_topic
    prior, word_prior, table_prior, table_sums = priors.topics, priors.words, tables.prior, tables.sums
    topics = prior.size
    weight = np.empty(DISTANCE + topics, dtype=np.float32)[DISTANCE:]
    inverse, current, recounted = np.empty_like(weight), np.empty_like(weight), np.empty_like(weight)
    prior32 = np.maximum(prior.astype(np.float32), MIN_PRIOR)
    running = totals.copy()
    variance, absent, unused = np.empty(topics), np.empty(topics), np.zeros(2)
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        for k in range(topics):
            inverse[k] = np.float32(1.0 / running[k])
            current[k] = document_topic[document, k]
        for pair in range(first, last):
            row = position[pair]
            b = max(np.float32(word_prior[row]), MIN_PRIOR)
            unit, base = token_weight(pairs.weights, pair), rows[row]
            changed, old = row_change[row], pair_topic[pair]
            if pairs.weights.size:
                scale = _weigh_zeroth(current, prior32, base, (b, np.float32(unit)), changed, inverse, old, weight)
            else:
                scale = _weigh_zeroth(current, prior32, base, (b, np.float32(1.0)), changed, inverse, old, weight)
            _move(scale, unit * counts[pair], old, weight, new_pair_topic[pair], current, changed)
        _recount(first, last, pairs, new_pair_topic, recounted)
        for k in range(topics):
            running[k] += recounted[k] - document_topic[document, k]
            new_document_topic[document, k] = recounted[k]
        if table_prior.size and last > first:
            document_moments(first, last, pairs, new_pair_topic, variance, absent)
            _add_tables(recounted, variance, absent, table_prior, False, table_sums, unused)


@helper
def _weigh_zeroth(
    current: Array,
    prior: Array,
    base: Array,
    word: tuple[Number, Number],
    changed: Array,
    inverse: Array,
    old: Array,
    weight: Array,
) -> Number:
    """Fill a pair's update before it is normalised, and return what normalises it.

    Priors are added after the own copy is taken out: in float32 a small one would be lost beside it. Excluding the
    copy from N = B + E[n_k] takes no division: with x = q/N, 1 / (N - q) is (1 + x) (1 + x^2) / N to within x^4. The
    responsibilities of the copy are multiplied by the weight of a token, which `word` has behind the word's prior.
    """
    b, unit = word
    total = np.float32(0.0)
    for k in range(weight.size):
        q = old[k] * unit
        rows = max(base[k] + np.float32(changed[k]) - q, np.float32(0.0)) + b
        x = q * inverse[k]
        documents = max(current[k] - q, np.float32(0.0)) + prior[k]
        value = documents * rows * inverse[k] * (np.float32(1.0) + x) * (np.float32(1.0) + x * x)
        weight[k] = value
        total += value
    return np.float32(1.0) / total


@helper
def _move(
    scale: Number, tokens: Number, old: Array, weight: Array, new: Array, current: Array, row_change: Array
) -> None:
    """Store a pair's new responsibilities and move its tokens in the running counts."""
    rounded = np.float32(tokens)
    for k in range(weight.size):
        value = weight[k] * scale
        new[k] = value
        weight[k] = rounded * (value - old[k])
    for k in range(weight.size):
        row_change[k] += tokens * (np.float64(new[k]) - np.float64(old[k]))
    for k in range(weight.size):
        current[k] += weight[k]


@helper
def _recount(first: int, last: int, pairs: DocumentPairs, pair_topic: Array, document_topic: Array) -> None:
    """Sum a document's counts anew, so that rounding does not gather over the sweeps."""
    document_topic[:] = np.float32(0.0)
    for pair in range(first, last):
        tokens = np.float32(pairs.counts[pair] * token_weight(pairs.weights, pair))
        for k in range(document_topic.size):
            document_topic[k] += tokens * pair_topic[pair, k]


@helper
def _add_tables(
    mean: Array, variance: Array, absent: Array, prior: Array, bound: bool, tables: Array, sums: Array
) -> None:
    """Add a document's E[s_dk] to `tables` and, for the bound, its sum_k F[log G(g_k + n_dk) / G(g_k)] to `sums[0]`."""
    for k in range(prior.size):
        present, mean_positive, variance_positive = positive(mean[k], variance[k], absent[k], 1.0 - absent[k])
        if present > 0.0:
            tables[k] += expected_tables(prior[k], digamma(prior[k]), present, mean_positive, variance_positive)
            if bound:
                sums[0] += expected_log_rising(prior[k], present, mean_positive, variance_positive)


@kernel
def sweep_second(
    pairs: DocumentPairs,
    rows: RowMoments,
    priors: Priors,
    totals: Float64Matrix,
    before: DenseState,
    after: NewDenseState,
    changes: MomentChanges,
    terms: BoundTerms,
) -> None:
    """Update the responsibilities of all pairs of a shard by the second order; twin: `naive.assign.sweep_second`.

    Shapes: `totals` (2, topics).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    pair_topic, document_topic = before.pair_topic, before.document_topic
    new_pair_topic, new_document_topic = after.pair_topic, after.document_topic
    prior, word_prior, row_change, variance_change = priors.topics, priors.words, changes.mean, changes.variance
    tables, sums = terms.tables, terms.sums
    topics = prior.size
    weight = np.empty(DISTANCE + topics, dtype=np.float32)[DISTANCE:]
    current, recounted = np.empty_like(weight), np.empty_like(weight)
    prior32 = np.maximum(prior.astype(np.float32), MIN_PRIOR)
    running, running_variance = totals[0].copy(), totals[1].copy()
    variance, absent, spread = np.empty(topics), np.empty(topics), np.empty(topics)
    base, base_variance = rows.mean, rows.variance
    work = DocumentWork(current, spread, prior32, running, running_variance)
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        for k in range(topics):
            current[k] = document_topic[document, k]
        document_moments(first, last, pairs, pair_topic, variance, absent)
        spread[:] = variance
        for pair in range(first, last):
            row, old = position[pair], pair_topic[pair]
            b = max(np.float32(word_prior[row]), MIN_PRIOR)
            words = WordRow(base[row], row_change[row], base_variance[row], variance_change[row])
            unit = token_weight(pairs.weights, pair)
            tokens = unit * counts[pair]
            scale = _weigh_second(work, words, b, old, np.float32(unit), weight)
            _move(scale, tokens, old, weight, new_pair_topic[pair], current, row_change[row])
            _spread(tokens, old, new_pair_topic[pair], spread, variance_change[row])
        _recount(first, last, pairs, new_pair_topic, recounted)
        for k in range(topics):
            running[k] += recounted[k] - document_topic[document, k]
            running_variance[k] += spread[k] - variance[k]
            new_document_topic[document, k] = recounted[k]
        if last > first:
            document_moments(first, last, pairs, new_pair_topic, variance, absent)
            _add_tables(recounted, variance, absent, prior, True, tables, sums)
            sums[1] += _entropy(first, last, pairs, new_pair_topic)


@borrower
def _weigh_second(work: DocumentWork, row: WordRow, b: Number, old: Array, unit: Number, weight: Array) -> Number:
    """Fill a pair's second-order update before it is normalised, and return what normalises it."""
    zero = np.float32(0.0)
    total = zero
    for k in range(weight.size):
        q = old[k] * unit
        spread = q * (np.float32(1.0) - old[k])
        documents = max(work.mean[k] - q, zero) + work.prior[k]
        words = max(row.mean[k] + np.float32(row.mean_change[k]) - q, zero) + b
        topic = max(np.float32(work.total[k]) - q, MIN_PRIOR)
        exponent = np.float32(0.5) * (
            max(np.float32(work.total_variance[k]) - spread, zero) / (topic * topic)
            - max(np.float32(work.variance[k]) - spread, zero) / (documents * documents)
            - max(row.variance[k] + np.float32(row.variance_change[k]) - spread, zero) / (words * words)
        )
        steep = np.float32(math.exp(min(max(exponent, -MAX_EXPONENT), MAX_EXPONENT)))
        # Topics of which no token is expected get no less than this, so that something is left to normalise.
        value = max(documents * words / topic * steep, np.float32(1e-30))
        weight[k] = value
        total += value
    return np.float32(1.0) / total


@helper
def _spread(tokens: float, old: Array, new: Array, spread: Array, variance_change: Array) -> None:
    """Move a pair's variances in the running sums."""
    for k in range(spread.size):
        before, after = np.float64(old[k]), np.float64(new[k])
        moved = tokens * (after * (1.0 - after) - before * (1.0 - before))
        spread[k] += moved
        variance_change[k] += moved


@helper
def _entropy(first: int, last: int, pairs: DocumentPairs, pair_topic: Array) -> float:
    """Return - sum c q log q over a document."""
    total = 0.0
    for pair in range(first, last):
        inner = 0.0
        for k in range(pair_topic.shape[1]):
            q = np.float64(pair_topic[pair, k])
            if q > 0.0:
                inner += q * math.log(q)
        total -= pairs.counts[pair] * token_weight(pairs.weights, pair) * inner
    return total
