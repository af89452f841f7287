"""Mean-field updates of bag-of-words topics (Blei, Ng and Jordan 2003): passes over documents, and rows of words.

q_dwk ~ exp( psi(gamma_dk) + psi(lambda_kw) - psi(sum_w lambda_kw) ) is a product of a weight of the document and one of
the word, so that no exponential is taken a pair: E[n_dk] = weight_dk sum_w c word_kw / norm_dw, and likewise E[n_kw].
Both kinds of weights are scaled so that the largest over the topics is one, and none is below exp(`FLOOR`); what they
are scaled by cancels in the bound.

Logarithms, exponentials and digamma are written out over arrays, with the bits of a double as whole numbers, so that
the compiler takes several topics at a time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import F4_2, F8, F8_2, I4, I8, OUT_F4_2, OUT_F8, OUT_F8_2, f8, helper, i8, kernel
from collapsium.workers.kernels.special import digamma

Array = npt.NDArray[Any]

FLOOR = -345.0  # least logarithm of a weight: the product of two stays a normal number
ROOT_BITS = 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2), as a whole number
LN2, PER_LN2, HALF_LOG_2PI = math.log(2.0), 1.0 / math.log(2.0), 0.5 * math.log(2.0 * math.pi)


@kernel(I8, I4, I4, F8_2, F8, F8, F4_2, i8, f8, OUT_F4_2, OUT_F8_2, OUT_F8, OUT_F8)
def sweep_mean_field(
    offsets: Array,
    position: Array,
    counts: Array,
    word_expected: Array,
    prior: Array,
    topic_log: Array,
    before: Array,
    passes: int,
    tolerance: float,
    document_topic: Array,
    row_topic: Array,
    log_theta: Array,
    bound: Array,
) -> None:
    """Update each document's gamma and responsibilities in turn, some passes over; twin: `naive.mean_field.sweep`.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row of each pair's word, and its count.
    word_expected : float64, shape (rows, topics)
        exp(psi(lambda_kw)) of the words, each word's scaled at will.
    prior : float64, shape (topics,)
        a_k.
    topic_log : float64, shape (topics,)
        psi(sum_w lambda_kw).
    before : float32, shape (documents, topics)
        E[n_dk] = gamma_dk - a_k to begin from.
    passes : int
        The most passes over a document.
    tolerance : float
        A document is left when its E[n_dk] move by less, in tokens and the mean over the topics.
    document_topic : float32, shape (documents, topics)
        Filled with E[n_dk] of the last pass.
    row_topic : float64, shape (rows, topics)
        Filled with E[n_kw] of the last passes.
    log_theta : float64, shape (topics,) or (0,)
        Unless it is empty, increased by sum_d E[log theta_dk] over the documents that are not empty.
    bound : float64, shape (1,)
        Increased by what documents add to the bound: sum_dk log G(a_k + n_dk)/G(a_k) - sum_d log G(A + n_d)/G(A), and
        -sum c q log q without the part that is linear in the logarithms of `word_expected`.
    """
    topics, all_prior = prior.size, prior.sum()
    here, gamma, weight, log_weight = np.zeros(topics), np.zeros(topics), np.zeros(topics), np.zeros(topics)
    at_prior, made, work = np.zeros(topics), np.zeros(topics), np.zeros(topics)
    bits = work.view(np.int64)
    norm = np.zeros(np.diff(offsets).max() if offsets.size > 1 else 0)
    log_gammas(prior, work, bits, made, at_prior)
    row_topic[:] = 0.0
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        if first == last:
            document_topic[document] = 0.0
            continue
        here[:] = before[document]
        for _ in range(passes):
            for k in range(topics):
                gamma[k] = prior[k] + here[k]
            digammas(gamma, work, bits, log_weight)
            for k in range(topics):
                log_weight[k] -= topic_log[k]
            scaled(log_weight)
            exponentials(log_weight, work, bits, weight)
            if pass_over(first, last, position, counts, word_expected, weight, norm, made, here) < tolerance * topics:
                break
        bound[0] += add_pairs(first, last, position, counts, weight, norm, row_topic)
        tokens = 0.0
        for pair in range(first, last):
            tokens += counts[pair]
        for k in range(topics):
            document_topic[document, k] = here[k]
        for k in range(topics):
            gamma[k] = prior[k] + here[k]
        if log_theta.size:
            digammas(gamma, work, bits, made)
            of_all = digamma(all_prior + tokens)
            for k in range(topics):
                log_theta[k] += made[k] - of_all
        log_gammas(gamma, work, bits, weight, made)
        for k in range(topics):
            bound[0] += made[k] - at_prior[k] - here[k] * log_weight[k]
        bound[0] += math.lgamma(all_prior) - math.lgamma(all_prior + tokens)
    finish_rows(word_expected, row_topic)


@kernel(I8, I4, I4, F8_2, F8_2, OUT_F4_2, OUT_F8_2)
def count_products(
    offsets: Array,
    position: Array,
    counts: Array,
    document_weight: Array,
    word_weight: Array,
    document_topic: Array,
    row_topic: Array,
) -> None:
    """Count responsibilities that are products of a document's and a word's weights; twin: `naive.mean_field.products`.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row of each pair's word, and its count.
    document_weight, word_weight : float64, shapes (documents, topics) and (rows, topics)
        q_dwk is in proportion to their product, of which a topic at least is above zero.
    document_topic : float32, shape (documents, topics)
        Filled with E[n_dk].
    row_topic : float64, shape (rows, topics)
        Filled with E[n_kw].
    """
    topics = document_weight.shape[1]
    here, made = np.zeros(topics), np.zeros(topics)
    norm = np.zeros(np.diff(offsets).max() if offsets.size > 1 else 0)
    row_topic[:] = 0.0
    for document in range(offsets.size - 1):
        first, last, weight = offsets[document], offsets[document + 1], document_weight[document]
        here[:] = 0.0
        pass_over(first, last, position, counts, word_weight, weight, norm, made, here)
        add_pairs(first, last, position, counts, weight, norm, row_topic)
        for k in range(topics):
            document_topic[document, k] = here[k]
    finish_rows(word_weight, row_topic)


@helper
def add_pairs(
    first: int, last: int, position: Array, counts: Array, weight: Array, norm: Array, row_topic: Array
) -> float:
    """Add a document's pairs to the rows, but for the words' weights; return sum c log norm."""
    logs = 0.0
    for pair in range(first, last):
        row, total = position[pair], norm[pair - first]
        each = counts[pair] / total
        logs += counts[pair] * math.log(total)
        for k in range(weight.size):
            row_topic[row, k] += each * weight[k]
    return logs


@helper
def finish_rows(word_weight: Array, row_topic: Array) -> None:
    """Make counts of what `add_pairs` has summed."""
    for row in range(row_topic.shape[0]):
        for k in range(row_topic.shape[1]):
            row_topic[row, k] *= word_weight[row, k]


@helper
def pass_over(
    first: int,
    last: int,
    position: Array,
    counts: Array,
    word_expected: Array,
    weight: Array,
    norm: Array,
    made: Array,
    here: Array,
) -> float:
    """Give a document's pairs their responsibilities; fill their sums and E[n_dk], and return how far these moved."""
    made[:] = 0.0
    for pair in range(first, last):
        row, total = position[pair], 0.0
        for k in range(weight.size):
            total += weight[k] * word_expected[row, k]
        norm[pair - first] = total
        each = counts[pair] / total
        for k in range(weight.size):
            made[k] += each * word_expected[row, k]
    change = 0.0
    for k in range(weight.size):
        made[k] *= weight[k]
    for k in range(weight.size):
        change += abs(made[k] - here[k])
    here[:] = made
    return change


@kernel(F8_2, F8_2, F8, OUT_F8_2, OUT_F8)
def fold_words(word_topic: Array, word_expected: Array, prior: Array, new_expected: Array, sums: Array) -> None:
    """Make the weights of words from their new counts, and the words' part of the bound; twin: `naive.mean_field.fold`.

    Parameters
    ----------
    word_topic : float64, shape (words, topics)
        E[n_kw]; lambda_kw is this plus b_w.
    word_expected : float64, shape (words, topics)
        The weights with which it was counted.
    prior : float64, shape (words,)
        b_w.
    new_expected : float64, shape (words, topics)
        Filled with exp(psi(lambda_kw)), each word's scaled so that the largest is one.
    sums : float64, shape (2,)
        Increased by sum_kw log G(b_w + n_kw)/G(b_w) - n_kw log `word_expected`, and by sum_kw psi(lambda_kw).
    """
    topics = word_topic.shape[1]
    value, logs, made, work = np.zeros(topics), np.zeros(topics), np.zeros(topics), np.zeros(topics)
    bits = work.view(np.int64)
    for word in range(word_topic.shape[0]):
        at_prior = math.lgamma(prior[word])
        logarithms(word_expected[word], work, bits, logs)
        for k in range(topics):
            sums[0] -= word_topic[word, k] * logs[k] + at_prior
        for k in range(topics):
            value[k] = prior[word] + word_topic[word, k]
        log_gammas(value, work, bits, logs, made)
        for k in range(topics):
            sums[0] += made[k]
        digammas(value, work, bits, logs)
        for k in range(topics):
            sums[1] += logs[k]
        scaled(logs)
        exponentials(logs, work, bits, made)
        for k in range(topics):
            new_expected[word, k] = made[k]


@helper
def scaled(logs: Array) -> None:
    """Subtract the largest of some logarithms from all, none to stay below `FLOOR`."""
    top = -np.inf
    for k in range(logs.size):
        top = max(top, logs[k])
    for k in range(logs.size):
        logs[k] = max(logs[k] - top, FLOOR)


@helper
def logarithms(x: Array, work: Array, bits: Array, out: Array) -> None:
    """Fill log x, to 1e-15, of normal numbers above 0; `bits` is a view of `work` as whole numbers."""
    # With x = 2^e m, sqrt(1/2) <= m < sqrt(2), and f = (m - 1)/(m + 1): log m = 2 (f + f^3/3 + f^5/5 + ...).
    for k in range(x.size):
        work[k] = x[k]
    for k in range(x.size):
        whole = (bits[k] - ROOT_BITS) >> 52
        bits[k] -= whole << 52
        out[k] = whole
    for k in range(x.size):
        f = (work[k] - 1.0) / (work[k] + 1.0)
        r = f * f
        high = 1 / 11 + r * (1 / 13 + r * (1 / 15 + r * (1 / 17 + r * (1 / 19))))
        series = 1 + r * (1 / 3 + r * (1 / 5 + r * (1 / 7 + r * (1 / 9 + r * high))))
        out[k] = out[k] * LN2 + 2.0 * f * series


@helper
def exponentials(x: Array, work: Array, bits: Array, out: Array) -> None:
    """Fill exp x, to 1e-13, for -700 <= x <= 0: 2^n times a polynomial in what is left; `bits` as for `logarithms`."""
    for k in range(x.size):
        n = np.int32(x[k] * PER_LN2 - 0.5)  # cut towards zero, so to the nearest
        bits[k] = (np.int64(n) + 1023) << 52
        r = x[k] - n * LN2
        high = 1 / 720 + r * (1 / 5040 + r * (1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r * (1 / 39916800)))))
        out[k] = 1 + r * (1 + r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120 + r * high)))))
    for k in range(x.size):
        out[k] *= work[k]


@helper
def digammas(x: Array, work: Array, bits: Array, out: Array) -> None:
    """Fill psi(x), to 1e-12, for 1e-12 <= x <= 1e30: the series at z = x + 8, less 1/x + 1/(x+1) + ... + 1/(x+7)."""
    # With y = x (x + 7), the last sum is (2x + 7) ( 1/y + 1/(y+6) + 1/(y+10) + 1/(y+12) ).
    for k in range(x.size):
        work[k] = x[k] + 8.0
    logarithms(work, work, bits, out)
    for k in range(x.size):
        z, y = x[k] + 8.0, x[k] * (x[k] + 7.0)
        r = 1.0 / z
        r2 = r * r
        series = r2 * (1 / 12 - r2 * (1 / 120 - r2 * (1 / 252 - r2 * (1 / 240 - r2 * (1 / 132)))))
        outer, inner = y * (y + 6.0), (y + 10.0) * (y + 12.0)
        below = (2.0 * x[k] + 7.0) * ((2.0 * y + 6.0) * inner + (2.0 * y + 22.0) * outer) / (outer * inner)
        out[k] += -0.5 * r - series - below


@helper
def log_gammas(x: Array, work: Array, bits: Array, logs: Array, out: Array) -> None:
    """Fill log G(x), to 1e-12 of itself or one, for 1e-12 <= x <= 1e30: at x + 8, less log x (x+1) ... (x+7)."""
    for k in range(x.size):
        y = x[k] * (x[k] + 7.0)
        out[k] = y * (y + 6.0) * (y + 10.0) * (y + 12.0)
    logarithms(out, work, bits, logs)
    for k in range(x.size):
        out[k] = -logs[k]
    for k in range(x.size):
        work[k] = x[k] + 8.0
    logarithms(work, work, bits, logs)
    for k in range(x.size):
        z = x[k] + 8.0
        r = 1.0 / z
        r2 = r * r
        series = r * (1 / 12 - r2 * (1 / 360 - r2 * (1 / 1260 - r2 * (1 / 1680 - r2 * (1 / 1188)))))
        out[k] += (z - 0.5) * logs[k] - z + HALF_LOG_2PI + series


@kernel(F8, OUT_F8, OUT_F8, OUT_F8, OUT_F8)
def functions(x: Array, logs: Array, exponential: Array, log_gamma: Array, first: Array) -> None:
    """Fill log x, exp(-x), log G(x) and psi(x), as the kernels above have them.

    Parameters
    ----------
    x : float64, shape (n,)
        Positive, the exponential's at most 700.
    logs, exponential, log_gamma, first : float64, shape (n,)
        Filled.
    """
    work, negative = np.zeros(x.size), -x
    bits = work.view(np.int64)
    logarithms(x, work, bits, logs)
    for k in range(x.size):
        negative[k] = max(negative[k], -700.0)
    exponentials(negative, work, bits, exponential)
    log_gammas(x, work, bits, first, log_gamma)
    digammas(x, work, bits, first)
