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
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import F4_2, F8, F8_2, I4, I8, OUT_F4_2, OUT_F8, OUT_F8_2, helper, kernel
from collapsium.workers.kernels.moments import document_moments, expected_log_rising, expected_tables, positive

Array = npt.NDArray[Any]

LEAST = np.float32(1e-12)  # of a prior: products and squares of two are still numbers in float32
STEEPEST = np.float32(60.0)  # exponent of the second order, beyond which a topic is certain or out of the question


@kernel(I8, I4, I4, F4_2, F8, F8, F8, F4_2, F4_2, F8, OUT_F4_2, OUT_F4_2, OUT_F8_2, OUT_F8)
def sweep_zeroth(
    offsets: Array,
    position: Array,
    counts: Array,
    base: Array,
    word_prior: Array,
    prior: Array,
    totals: Array,
    pair_topic: Array,
    document_topic: Array,
    table_prior: Array,
    new_pair_topic: Array,
    new_document_topic: Array,
    row_change: Array,
    tables: Array,
) -> None:
    """Update the responsibilities of all pairs of a shard by the zeroth order; twin: `naive.assign.sweep_zeroth`.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row of `base` and count of each pair.
    base : float32, shape (shard words, topics)
        E[n_kw] as the iteration began.
    word_prior : float64, shape (shard words,)
        b_w.
    prior, totals : float64, shape (topics,)
        a_k; B + E[n_k] as the iteration began.
    pair_topic, document_topic : float32, shape (pairs or documents, topics)
        q and E[n_dk] after the previous sweep.
    table_prior : float64, shape (topics,) or (0,)
        g of E[s_dk]; empty if no tables are asked for.
    new_pair_topic, new_document_topic : float32
        Filled with q and E[n_dk] after this sweep.
    row_change : float64, shape (shard words, topics)
        Zero on entry; filled with the change of E[n_kw].
    tables : float64, shape (topics,)
        Zero on entry; filled with the sums over documents of E[s_dk].
    """
    topics = prior.size
    weight = np.empty(topics, dtype=np.float32)
    inverse, here, recounted = np.empty_like(weight), np.empty_like(weight), np.empty_like(weight)
    own_prior = np.maximum(prior.astype(np.float32), LEAST)
    running = totals.copy()
    variance, absent, none = np.empty(topics), np.empty(topics), np.zeros(2)
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        for k in range(topics):
            inverse[k] = np.float32(1.0 / running[k])
            here[k] = document_topic[document, k]
        for pair in range(first, last):
            row = position[pair]
            b = max(np.float32(word_prior[row]), LEAST)
            scale = _weigh_zeroth(here, own_prior, base[row], b, row_change[row], inverse, pair_topic[pair], weight)
            _move(scale, counts[pair], pair_topic[pair], weight, new_pair_topic[pair], here, row_change[row])
        _recount(first, last, counts, new_pair_topic, recounted)
        for k in range(topics):
            running[k] += recounted[k] - document_topic[document, k]
            new_document_topic[document, k] = recounted[k]
        if table_prior.size and last > first:
            document_moments(first, last, counts, new_pair_topic, variance, absent)
            _add_tables(recounted, variance, absent, table_prior, False, tables, none)


@helper
def _weigh_zeroth(
    here: Array, prior: Array, base: Array, b: Any, changed: Array, inverse: Array, old: Array, weight: Array
) -> Any:
    """Fill a pair's update before it is normalised, and return what normalises it.

    Priors are added after the own copy is taken out: in float32 a small one would be lost beside it. Excluding the
    copy from N = B + E[n_k] takes no division: with x = q/N, 1 / (N - q) is (1 + x) (1 + x^2) / N to within x^4.
    """
    total = np.float32(0.0)
    for k in range(weight.size):
        q = old[k]
        rows = max(base[k] + np.float32(changed[k]) - q, np.float32(0.0)) + b
        x = q * inverse[k]
        own = max(here[k] - q, np.float32(0.0)) + prior[k]
        value = own * rows * inverse[k] * (np.float32(1.0) + x) * (np.float32(1.0) + x * x)
        weight[k] = value
        total += value
    return np.float32(1.0) / total


@helper
def _move(scale: Any, count: Any, old: Array, weight: Array, new: Array, here: Array, row_change: Array) -> None:
    """Store a pair's new responsibilities and move its tokens in the running counts."""
    tokens = np.float32(count)
    for k in range(weight.size):
        value = weight[k] * scale
        new[k] = value
        weight[k] = tokens * (value - old[k])
    for k in range(weight.size):
        row_change[k] += count * (np.float64(new[k]) - np.float64(old[k]))
    for k in range(weight.size):
        here[k] += weight[k]


@helper
def _recount(first: int, last: int, counts: Array, pair_topic: Array, document_topic: Array) -> None:
    """Sum a document's counts anew, so that rounding does not gather over the sweeps."""
    document_topic[:] = np.float32(0.0)
    for pair in range(first, last):
        tokens = np.float32(counts[pair])
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
            tables[k] += expected_tables(prior[k], present, mean_positive, variance_positive)
            if bound:
                sums[0] += expected_log_rising(prior[k], present, mean_positive, variance_positive)


@kernel(I8, I4, I4, F4_2, F8, F4_2, F8, F8_2, F4_2, F4_2, OUT_F4_2, OUT_F4_2, OUT_F8_2, OUT_F8_2, OUT_F8, OUT_F8)
def sweep_second(
    offsets: Array,
    position: Array,
    counts: Array,
    base: Array,
    word_prior: Array,
    base_variance: Array,
    prior: Array,
    totals: Array,
    pair_topic: Array,
    document_topic: Array,
    new_pair_topic: Array,
    new_document_topic: Array,
    row_change: Array,
    variance_change: Array,
    tables: Array,
    sums: Array,
) -> None:
    """Update the responsibilities of all pairs of a shard by the second order; twin: `naive.assign.sweep_second`.

    Parameters
    ----------
    offsets, position, counts, base, word_prior
        As for `sweep_zeroth`.
    base_variance : float32, shape (shard words, topics)
        V[n_kw] as the iteration began.
    prior
        As for `sweep_zeroth`.
    totals : float64, shape (2, topics)
        B + E[n_k] and V[n_k] as the iteration began.
    pair_topic, document_topic, new_pair_topic, new_document_topic, row_change
        As for `sweep_zeroth`.
    variance_change : float64, shape (shard words, topics)
        Zero on entry; filled with the change of V[n_kw].
    tables : float64, shape (topics,)
        Zero on entry; filled with the sums over documents of E[s_dk], with g = a_k.
    sums : float64, shape (2,)
        Zero on entry; filled with the bound's sum_dk F[log G(a_k + n_dk) / G(a_k)] and - sum c q log q.
    """
    topics = prior.size
    weight = np.empty(topics, dtype=np.float32)
    here, recounted = np.empty_like(weight), np.empty_like(weight)
    own_prior = np.maximum(prior.astype(np.float32), LEAST)
    running, running_variance = totals[0].copy(), totals[1].copy()
    variance, absent, spread = np.empty(topics), np.empty(topics), np.empty(topics)
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        for k in range(topics):
            here[k] = document_topic[document, k]
        document_moments(first, last, counts, pair_topic, variance, absent)
        spread[:] = variance
        for pair in range(first, last):
            row, old = position[pair], pair_topic[pair]
            scale = _weigh_second(
                here,
                own_prior,
                spread,
                base[row],
                max(np.float32(word_prior[row]), LEAST),
                row_change[row],
                base_variance[row],
                variance_change[row],
                running,
                running_variance,
                old,
                weight,
            )
            _move(scale, counts[pair], old, weight, new_pair_topic[pair], here, row_change[row])
            _spread(counts[pair], old, new_pair_topic[pair], spread, variance_change[row])
        _recount(first, last, counts, new_pair_topic, recounted)
        for k in range(topics):
            running[k] += recounted[k] - document_topic[document, k]
            running_variance[k] += spread[k] - variance[k]
            new_document_topic[document, k] = recounted[k]
        if last > first:
            document_moments(first, last, counts, new_pair_topic, variance, absent)
            _add_tables(recounted, variance, absent, prior, True, tables, sums)
            sums[1] += _entropy(first, last, counts, new_pair_topic)


@helper
def _weigh_second(
    here: Array,
    prior: Array,
    spread: Array,
    base: Array,
    b: Any,
    changed: Array,
    base_variance: Array,
    variance_changed: Array,
    running: Array,
    running_variance: Array,
    old: Array,
    weight: Array,
) -> Any:
    """Fill a pair's second-order update before it is normalised, and return what normalises it."""
    zero = np.float32(0.0)
    total = zero
    for k in range(weight.size):
        q = old[k]
        own = q * (np.float32(1.0) - q)
        documents = max(here[k] - q, zero) + prior[k]
        words = max(base[k] + np.float32(changed[k]) - q, zero) + b
        topic = max(np.float32(running[k]) - q, LEAST)
        exponent = np.float32(0.5) * (
            max(np.float32(running_variance[k]) - own, zero) / (topic * topic)
            - max(np.float32(spread[k]) - own, zero) / (documents * documents)
            - max(base_variance[k] + np.float32(variance_changed[k]) - own, zero) / (words * words)
        )
        steep = np.float32(math.exp(min(max(exponent, -STEEPEST), STEEPEST)))
        # Topics of which no token is expected get no less than this, so that something is left to normalise.
        value = max(documents * words / topic * steep, np.float32(1e-30))
        weight[k] = value
        total += value
    return np.float32(1.0) / total


@helper
def _spread(count: int, old: Array, new: Array, spread: Array, variance_change: Array) -> None:
    """Move a pair's variances in the running sums."""
    for k in range(spread.size):
        before, after = np.float64(old[k]), np.float64(new[k])
        moved = count * (after * (1.0 - after) - before * (1.0 - before))
        spread[k] += moved
        variance_change[k] += moved


@helper
def _entropy(first: int, last: int, counts: Array, pair_topic: Array) -> float:
    """Return - sum c q log q over a document."""
    total = 0.0
    for pair in range(first, last):
        inner = 0.0
        for k in range(pair_topic.shape[1]):
            q = np.float64(pair_topic[pair, k])
            if q > 0.0:
                inner += q * math.log(q)
        total -= counts[pair] * inner
    return total
