"""Collapsed Gibbs sampling of the topics of tokens, with a number of topics that is given or that grows.

The weights of all topics are computed side by side, in chunks whose sums are kept, so that a draw looks at one chunk
only. They are float32, so a chance is off by some 1e-7 of itself; counts are whole numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import (
    F4,
    F8,
    F8_2,
    I4,
    I4_2,
    I8,
    OUT_F4,
    OUT_F8,
    OUT_I4_2,
    OUT_I8,
    OUT_U2,
    U2,
    U8,
    f8,
    helper,
    kernel,
)
from collapsium.workers.kernels.random import uniform
from collapsium.workers.kernels.special import digamma

Array = npt.NDArray[Any]

CHUNK = 32  # topics whose weights are summed together; arrays by topic are padded to a multiple
FEW = 16  # factors of a rising factorial that are multiplied one by one
COMMON = 4096  # counts that are tallied, not looked at one by one


@helper
def _draw(coefficient: Array, row: Array, prior: float, new: float, chance: float, weight: Array, sums: Array) -> int:
    """Draw a topic in proportion to its coefficient times (n_kw + b), or -1 in proportion to `new`."""
    total, least = new, np.float32(prior)
    for chunk in range(sums.size):
        here: Any = np.float32(0.0)
        for place in range(CHUNK):
            k = chunk * CHUNK + place
            one = coefficient[k] * (np.float32(row[k]) + least)
            weight[k] = one
            here += one
        sums[chunk] = here
        total += here
    left = chance * total - new
    if left < 0.0:
        return -1
    chunk = 0
    while chunk < sums.size - 1 and left >= sums[chunk]:
        left -= sums[chunk]
        chunk += 1
    k = chunk * CHUNK
    last = k + CHUNK - 1
    while k < last and left >= weight[k]:
        left -= weight[k]
        k += 1
    while k > 0 and weight[k] <= 0.0:  # rounding has led past the last topic that has a weight
        k -= 1
    return k


@kernel(
    I8, I4, I4, U8, f8, f8, f8, I8, OUT_I8, OUT_I8, OUT_F8, OUT_F8, OUT_F8, OUT_I4_2, OUT_U2,
)  # fmt: skip
def sweep_tokens(
    offsets: Array,
    position: Array,
    counts: Array,
    key: Array,
    word_prior: float,
    total_prior: float,
    gamma: float,
    reusable: Array,
    state: Array,
    free: Array,
    prior: Array,
    rest: Array,
    totals: Array,
    row: Array,
    token_topic: Array,
) -> None:
    """Draw each token's topic given those of all others; twin: `naive.gibbs.sweep`.

    p(z = k) ~ (n_dk' + a_k) (n_kw' + b) / (n_k' + B), and p(z = new) ~ a_rest b / B. A new topic breaks a_rest by
    v ~ Beta(1, gamma); a topic that has lost its last token gives its a_k back (Teh, Jordan, Beal and Blei 2006,
    section 5.3, with a_k = alpha pi_k). Numbers 2 t and 2 t + 1 of the stream belong to token t.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row and count of each pair.
    key : uint64, shape (2,)
        Of the random stream.
    word_prior, total_prior : float
        b and B.
    gamma : float
        Concentration of the sticks; 0 where the number of topics is given.
    reusable : int64, shape (topics,)
        Not 0 for slots that go back to `free` when they are empty again.
    state : int64, shape (4,)
        Document to go on with, its first token, the token to go on with, and how many slots are free; moved. The sweep
        ends before a token that could find no free slot, else with the number of documents.
    free : int64
        Free slots, the next to be taken last.
    prior : float64, shape (topics,)
        a_k; 0 where a slot is free, and in padding.
    rest : float64, shape (1,)
        a_rest.
    totals : float64, shape (topics,)
        n_k; moved.
    row : int32, shape (rows, topics)
        n_kw; moved.
    token_topic : uint16, shape (tokens,)
        z of each token, those of a pair side by side; moved.
    """
    inverse, coefficient = 1.0 / (totals + total_prior), np.empty(prior.size, dtype=np.float32)
    coefficient[:] = prior * inverse
    weight, sums = np.empty(prior.size, dtype=np.float32), np.empty(prior.size // CHUNK, dtype=np.float32)
    here = np.zeros(prior.size)
    begin = at = state[1]
    for document in range(state[0], offsets.size - 1):
        begin = at
        for pair in range(offsets[document], offsets[document + 1]):
            at += counts[pair]
        for token in range(begin, at):
            here[token_topic[token]] += 1.0
        for token in range(begin, at):
            k = token_topic[token]
            coefficient[k] = (here[k] + prior[k]) * inverse[k]
        at = begin
        for pair in range(offsets[document], offsets[document + 1]):
            words = row[position[pair]]
            for _ in range(counts[pair]):
                if at < state[2]:  # drawn before the sweep was broken off
                    at += 1
                    continue
                if gamma > 0.0 and state[3] == 0:
                    state[0], state[1], state[2] = document, begin, at
                    return
                k = token_topic[at]
                here[k] -= 1.0
                totals[k] -= 1.0
                words[k] -= 1
                if gamma > 0.0 and totals[k] == 0.0:
                    rest[0] += prior[k]
                    prior[k] = 0.0
                    if reusable[k]:
                        free[state[3]] = k
                        state[3] += 1
                inverse[k] = 1.0 / (totals[k] + total_prior)
                coefficient[k] = (here[k] + prior[k]) * inverse[k]
                new = rest[0] * word_prior / total_prior
                k = _draw(coefficient, words, word_prior, new, uniform(key, 2 * at), weight, sums)
                if k < 0:
                    state[3] -= 1
                    k = free[state[3]]
                    stick = -math.expm1(math.log1p(-uniform(key, 2 * at + 1)) / gamma)
                    prior[k] = max(stick * rest[0], 1e-300)
                    rest[0] = max(rest[0] - prior[k], 0.0)
                here[k] += 1.0
                totals[k] += 1.0
                words[k] += 1
                inverse[k] = 1.0 / (totals[k] + total_prior)
                coefficient[k] = (here[k] + prior[k]) * inverse[k]
                token_topic[at] = k
                at += 1
        for token in range(begin, at):
            k = token_topic[token]
            here[k] = 0.0
            coefficient[k] = prior[k] * inverse[k]
    state[0] = offsets.size - 1


@helper
def _log_rising(prior: float, count: float) -> Any:
    """Return log G(a + n) / G(a)."""
    if count > FEW:
        return math.lgamma(prior + count) - math.lgamma(prior)
    product = 1.0
    for number in range(int(count)):
        product *= prior + number
    return math.log(product)


@helper
def _tables(prior: float, count: float) -> Any:
    """Return a (psi(a + n) - psi(a)), the mean number of tables of n customers."""
    if count > FEW:
        return prior * (digamma(prior + count) - digamma(prior))
    total = 0.0
    for number in range(int(count)):
        total += prior / (prior + number)
    return total


@kernel(I8, I4, U2, F8, OUT_I8, OUT_U2, OUT_F4, OUT_F8, OUT_F8)
def list_documents(
    offsets: Array,
    counts: Array,
    token_topic: Array,
    prior: Array,
    lists: Array,
    topic: Array,
    count: Array,
    tables: Array,
    rising: Array,
) -> None:
    """List each document's topics with their tokens; twin: `naive.gibbs.list_documents`.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    counts : int32, shape (pairs,)
        Count of each pair.
    token_topic : uint16, shape (tokens,)
        z.
    prior : float64, shape (topics,)
        a_k.
    lists : int64, shape (documents + 1,)
        Filled with where each document's topics begin.
    topic, count : uint16 and float32, shape (tokens,)
        Filled, as far as there are topics, with each document's topics in the order in which they occur, and n_dk.
    tables : float64, shape (topics,)
        Increased by sum_d a_k (psi(a_k + n_dk) - psi(a_k)); of size 0 if not wanted.
    rising : float64, shape (1,)
        Increased by sum_dk log G(a_k + n_dk) / G(a_k).
    """
    here = np.zeros(prior.size)
    at = filled = 0
    lists[0] = 0
    for document in range(offsets.size - 1):
        for pair in range(offsets[document], offsets[document + 1]):
            for _ in range(counts[pair]):
                k = token_topic[at]
                if here[k] == 0.0:
                    topic[filled] = k
                    filled += 1
                here[k] += 1.0
                at += 1
        for entry in range(lists[document], filled):
            k = topic[entry]
            count[entry] = here[k]
            rising[0] += _log_rising(prior[k], here[k])
            if tables.size:
                tables[k] += _tables(prior[k], here[k])
            here[k] = 0.0
        lists[document + 1] = filled


@kernel(U2, F4, F8, U8, OUT_F8)
def draw_tables(topic: Array, count: Array, prior: Array, key: Array, tables: Array) -> None:
    """Draw how many tables each topic has in each document, and sum them; twin: `naive.gibbs.draw_tables`.

    m_dk are the tables of a Chinese restaurant with n_dk customers and strength a_k: customer j + 1 opens one with
    chance a_k / (a_k + j).

    Parameters
    ----------
    topic, count : uint16 and float32, shape (entries,)
        A document's topic and n_dk, as `list_documents` gives them.
    prior : float64, shape (topics,)
        a_k.
    key : uint64, shape (2,)
        Of the random stream.
    tables : float64, shape (topics,)
        Increased by sum_d m_dk.
    """
    number = 0
    for entry in range(topic.size):
        strength = prior[topic[entry]]
        opened = 1.0
        for customer in range(1, int(count[entry])):
            opened += uniform(key, number + customer) * (strength + customer) < strength
        number += int(count[entry])
        tables[topic[entry]] += opened


@kernel(I4_2, f8, OUT_F8)
def word_rising(row: Array, prior: float, sums: Array) -> None:
    """Sum over the cells of counts by word and topic; twin: `naive.gibbs.word_rising`.

    Parameters
    ----------
    row : int32, shape (words, topics)
        n_kw.
    prior : float
        b.
    sums : float64, shape (2,)
        Increased by the sums of log G(b + n_kw) / G(b) and of b (psi(b + n_kw) - psi(b)).
    """
    tally = np.zeros(COMMON)
    for word in range(row.shape[0]):
        for k in range(row.shape[1]):
            count = row[word, k]
            if 0 < count < COMMON:
                tally[count] += 1.0
            elif count > 0:
                sums[0] += _log_rising(prior, float(count))
                sums[1] += _tables(prior, float(count))
    log_rising = tables = 0.0
    for count in range(1, COMMON):
        log_rising += math.log(prior + count - 1.0)
        tables += prior / (prior + count - 1.0)
        sums[0] += tally[count] * log_rising
        sums[1] += tally[count] * tables


@kernel(I8, I4, I4, F8_2, F8_2, U8, OUT_U2)
def draw_topics(
    offsets: Array,
    position: Array,
    counts: Array,
    proportions: Array,
    word_topic: Array,
    key: Array,
    token_topic: Array,
) -> None:
    """Draw the topic of each token in proportion to theta_dk phi_kw; twin: `naive.gibbs.draw_topics`.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row and count of each pair.
    proportions : float64, shape (documents, topics)
        theta.
    word_topic : float64, shape (rows, topics)
        phi.
    key : uint64, shape (2,)
        Of the random stream; number t belongs to token t.
    token_topic : uint16, shape (tokens,)
        Filled.
    """
    topics, at = proportions.shape[1], 0
    running = np.empty(topics)
    for document in range(offsets.size - 1):
        for pair in range(offsets[document], offsets[document + 1]):
            total = 0.0
            for k in range(topics):
                # Where a word has no chance at all in a document, its topics are even.
                total += proportions[document, k] * word_topic[position[pair], k] + 1e-200
                running[k] = total
            for _ in range(counts[pair]):
                token_topic[at] = min(np.searchsorted(running, uniform(key, at) * total, side="right"), topics - 1)
                at += 1
