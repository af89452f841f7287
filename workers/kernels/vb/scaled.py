"""Mean-field updates of topics whose proportions are gamma variables with rates of their own (Kim and Oh 2017).

q(pi_mk) = Gamma(a_mk, b_mk) with a = g + n and b = R + u, where g_k = beta p_k, n_mk = E[n_mk], R_mk = E[rate] and
u_m = N_m / xi_m. That is the best q(pi) and xi for given n where sum_k a u / (R + u) = N, which has one solution. Rates
are log-linear in what is known of a document: log R_mk = sum_j r_mj x_jk.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import (
    F4_2,
    F8,
    F8_2,
    I4,
    I8,
    OUT_F4_2,
    OUT_F8,
    OUT_F8_2,
    OUT_F8_3,
    f8,
    helper,
    i8,
    kernel,
)
from collapsium.workers.kernels.vb.mean_field import (
    add_pairs,
    digammas,
    exponentials,
    finish_rows,
    log_gammas,
    logarithms,
    pass_over,
    scaled,
)

Array = npt.NDArray[Any]

STEPS = 60  # of Newton's method, which needs five where the last pass was near
CLOSE = 1e-13  # relative change of u that ends it
APART, TAIL, MOST_STEPS = 0.5, 30.0, 20_000  # steps of y, how far it goes beyond the rates, and how many at most


@helper
def _log_rates(first: int, last: int, label: Array, value: Array, label_log: Array, log_rate: Array) -> None:
    """Fill log R_k = sum_j r_j x_jk of a document whose labels are `first` to `last` - 1."""
    log_rate[:] = 0.0
    for place in range(first, last):
        row, much = label[place], value[place]
        for k in range(log_rate.size):
            log_rate[k] += much * label_log[row, k]


@helper
def _rates(first: int, last: int, label: Array, value: Array, label_log: Array, rate: Array) -> None:
    """Fill R_k of a document."""
    _log_rates(first, last, label, value, label_log, rate)
    for k in range(rate.size):
        rate[k] = math.exp(rate[k])


@helper
def _balance(prior: Array, here: Array, rate: Array, u: float) -> float:
    """Solve sum_k (g_k + n_k) u / (R_k + u) = N = sum_k n_k for u, by Newton's method from `u` or from below."""
    least, tokens, beyond = rate[0], 0.0, 0.0
    for k in range(rate.size):
        least = min(least, rate[k])
        tokens += here[k]
        beyond += prior[k]
    if tokens <= 0.0:
        return 0.0
    # The sum is concave in u, so that from below Newton's steps stay below; u / (least + u) is at least each share.
    below = tokens * least / beyond
    u = max(float(u), below)
    for _ in range(STEPS):
        held, slope = 0.0, 0.0
        for k in range(rate.size):
            each = 1.0 / (rate[k] + u)
            share = (prior[k] + here[k]) * each
            held += share * u
            slope += share * rate[k] * each
        after = max(u - (held - tokens) / slope, below)
        close = abs(after - u) <= CLOSE * u
        u = after
        if close:
            break
    return float(u)


@kernel(
    I8, I4, I4, F8_2, F8, F8, I8, I4, F8, F8_2, F4_2, i8, f8,
    OUT_F4_2, OUT_F8_2, OUT_F8_2, OUT_F8_3, OUT_F8_3, OUT_F8,
)  # fmt: skip
def sweep_scaled(
    offsets: Array,
    position: Array,
    counts: Array,
    word_expected: Array,
    prior: Array,
    topic_log: Array,
    label_offsets: Array,
    label: Array,
    value: Array,
    label_log: Array,
    before: Array,
    passes: int,
    tolerance: float,
    document_topic: Array,
    row_topic: Array,
    topic_sums: Array,
    label_sums: Array,
    curvature: Array,
    bound: Array,
) -> None:
    """Update each document's q(pi) and responsibilities in turn, some passes over; twin: `naive.scaled.sweep`.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row of each pair's word, and its count.
    word_expected : float64, shape (rows, topics)
        exp(psi(lambda_kw)) of the words, each word's scaled at will.
    prior : float64, shape (topics,)
        g_k = beta p_k.
    topic_log : float64, shape (topics,)
        psi(sum_w lambda_kw).
    label_offsets : int64, shape (documents + 1,)
        Where each document's labels begin.
    label : int32
        Each one's row.
    value : float64
        r_mj of each.
    label_log : float64, shape (labels at hand, topics)
        x_jk.
    before : float32, shape (documents, topics)
        E[n_mk] to begin from.
    passes : int
        The most passes over a document.
    tolerance : float
        A document is left when its E[n_mk] move by less, in tokens and the mean over the topics.
    document_topic : float32, shape (documents, topics)
        Filled with E[n_mk] of the last pass.
    row_topic : float64, shape (rows, topics)
        Filled with E[n_kw] of the last passes.
    topic_sums : float64, shape (2, topics)
        Increased by sum_m g_k (psi(g_k + n_mk) - psi(g_k)) and by -sum_m log b_mk.
    label_sums : float64, shape (labels at hand, 4 or 8, topics)
        Increased, over the documents with r_mj > 0, by the sums of |r| R n / b, |r| R / b, and of both times the sum of
        |r_mj| over the document's labels; with 8, then also over those with r_mj < 0.
    curvature : float64, shape (labels at hand, 2 labels, topics) or (0, 0, 0)
        Unless it is empty, row j and column i of each half are increased by r_mj r_mi R n / b and r_mj r_mi R / b; the
        labels are then all at hand.
    bound : float64, shape (1,)
        Increased by sum_mk (log G(a) - log G(g) - a log b) + sum_m (N - N log(N / u)), and by -sum c q log q without
        the part that is linear in the logarithms of `word_expected`.
    """
    topics = prior.size
    here, shape, rate, both = np.zeros(topics), np.zeros(topics), np.zeros(topics), np.zeros(topics)
    weight, log_weight, made, work = np.zeros(topics), np.zeros(topics), np.zeros(topics), np.zeros(topics)
    at_prior, first_prior = np.zeros(topics), np.zeros(topics)
    bits = work.view(np.int64)
    norm = np.zeros(np.diff(offsets).max() if offsets.size > 1 else 0)
    log_gammas(prior, work, bits, made, at_prior)
    digammas(prior, work, bits, first_prior)
    row_topic[:] = 0.0
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        begin, end = label_offsets[document], label_offsets[document + 1]
        _rates(begin, end, label, value, label_log, rate)
        u = 0.0
        here[:] = before[document]
        for _ in range(passes if last > first else 0):
            u = _balance(prior, here, rate, u)
            for k in range(topics):
                shape[k] = prior[k] + here[k]
                both[k] = rate[k] + u
            digammas(shape, work, bits, log_weight)
            logarithms(both, work, bits, made)
            for k in range(topics):
                log_weight[k] -= made[k] + topic_log[k]
            scaled(log_weight)
            exponentials(log_weight, work, bits, weight)
            if pass_over(first, last, position, counts, word_expected, weight, norm, made, here) < tolerance * topics:
                break
        if last > first:
            bound[0] += add_pairs(first, last, position, counts, weight, norm, row_topic)
            for k in range(topics):
                bound[0] -= here[k] * log_weight[k]
        for k in range(topics):
            document_topic[document, k] = here[k]
        u = _balance(prior, here, rate, u)
        for k in range(topics):
            shape[k] = prior[k] + here[k]
            both[k] = rate[k] + u
        logarithms(both, work, bits, made)
        digammas(shape, work, bits, weight)
        for k in range(topics):
            topic_sums[0, k] += prior[k] * (weight[k] - first_prior[k])
        for k in range(topics):
            topic_sums[1, k] -= made[k]
        for k in range(topics):
            bound[0] -= shape[k] * made[k] + at_prior[k]
        log_gammas(shape, work, bits, weight, made)
        bound[0] += _sum(made)
        tokens = _sum(here)
        if tokens > 0.0:
            bound[0] += tokens - tokens * math.log(tokens / u)
        for k in range(topics):
            made[k] = rate[k] / both[k]
        _tell_labels(begin, end, label, value, here, made, label_sums, curvature)
    finish_rows(word_expected, row_topic)


@helper
def _sum(values: Array) -> float:
    """Return the sum of some numbers."""
    total = 0.0
    for k in range(values.size):
        total += values[k]
    return total


@helper
def _tell_labels(
    begin: int, end: int, label: Array, value: Array, here: Array, part: Array, label_sums: Array, curvature: Array
) -> None:
    """Add a document to the sums of its labels; `part` is R / b."""
    length = 0.0
    for place in range(begin, end):
        length += abs(value[place])
    for place in range(begin, end):
        row, much = label[place], abs(value[place])
        kind = 0 if value[place] > 0.0 else 4
        if much == 0.0:
            continue
        for k in range(part.size):
            each = much * part[k]
            label_sums[row, kind, k] += each * here[k]
            label_sums[row, kind + 1, k] += each
            label_sums[row, kind + 2, k] += length * each * here[k]
            label_sums[row, kind + 3, k] += length * each
        if curvature.shape[0]:
            half = curvature.shape[1] // 2
            for other in range(begin, end):
                beside, product = label[other], value[place] * value[other]
                for k in range(part.size):
                    each = product * part[k]
                    curvature[row, beside, k] += each * here[k]
                    curvature[row, half + beside, k] += each


@kernel(I8, I4, F8, F8_2, F8, OUT_F8_2)
def expected_proportions(
    label_offsets: Array,
    label: Array,
    value: Array,
    label_log: Array,
    prior: Array,
    theta: Array,
) -> None:
    """Give theta_k = E[pi_k / sum_l pi_l] of documents without words; twin: `naive.scaled.expected`.

    pi_k ~ Gamma(g_k, R_k). 1 / s being the integral of exp(-s t) over t > 0, theta_k is that of g_k / (R_k + t) prod_l
    (1 + t / R_l)^-g_l. With t = exp(y) it falls on both sides and is analytic beside the real line, without
    growing up to pi / 2, so that sums over steps h of y are off by some exp(-pi^2 / h) of themselves: 3e-9.

    Parameters
    ----------
    label_offsets, label, value, label_log, prior
        As for `sweep_scaled`.
    theta : float64, shape (documents, topics)
        Filled.
    """
    topics, beyond = prior.size, _sum(prior)
    log_rate, down, part, logs = np.zeros(topics), np.zeros(topics), np.zeros(topics), np.zeros(topics)
    work = np.zeros(topics)
    bits = work.view(np.int64)
    for document in range(theta.shape[0]):
        _log_rates(label_offsets[document], label_offsets[document + 1], label, value, label_log, log_rate)
        low, high = log_rate.min() - TAIL, log_rate.max() + TAIL / min(beyond, 1.0)
        steps = min(int((high - low) / APART) + 1, MOST_STEPS)
        theta[document] = 0.0
        for step in range(steps):
            y = low + step * APART
            for k in range(topics):
                down[k] = max(-abs(y - log_rate[k]), -600.0)
            exponentials(down, work, bits, part)
            for k in range(topics):
                down[k] = 1.0 + part[k]
            logarithms(down, work, bits, logs)
            falls = 0.0
            for k in range(topics):
                falls += prior[k] * (max(y - log_rate[k], 0.0) + logs[k])
            weight = math.exp(-falls)
            for k in range(topics):
                above = 1.0 if y > log_rate[k] else part[k]
                theta[document, k] += weight * prior[k] * above / down[k]
        total = _sum(theta[document])
        for k in range(topics):
            theta[document, k] /= total


@kernel(I8, I4, F8, F8_2, F8, F8_2, OUT_F8_2)
def scaled_proportions(
    label_offsets: Array,
    label: Array,
    value: Array,
    label_log: Array,
    prior: Array,
    document_topic: Array,
    theta: Array,
) -> None:
    """Give proportions theta_mk = E[pi_mk] / sum_k E[pi_mk], E[pi] = a / b; twin: `naive.scaled.proportions`.

    Parameters
    ----------
    label_offsets, label, value, label_log, prior
        As for `sweep_scaled`.
    document_topic : float64, shape (documents, topics)
        E[n_mk].
    theta : float64, shape (documents, topics)
        Filled.
    """
    topics = prior.size
    shape, rate = np.zeros(topics), np.zeros(topics)
    for document in range(document_topic.shape[0]):
        _rates(label_offsets[document], label_offsets[document + 1], label, value, label_log, rate)
        u = _balance(prior, document_topic[document], rate, 0.0)
        total = 0.0
        for k in range(topics):
            shape[k] = (prior[k] + document_topic[document, k]) / (rate[k] + u)
            total += shape[k]
        for k in range(topics):
            theta[document, k] = shape[k] / total
