"""Estimates of the marginal likelihood of documents under fixed topics (Wallach, Murray, Salakhutdinov and Mimno 2009).

p(w) = sum over z of p(w | z, phi) p(z | a), with theta ~ Dir(a) integrated out. Both estimates of p(w) are unbiased or
nearly so, and both use all tokens, unlike document completion.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt64Vector,
    UInt64Vector,
)
from collapsium.workers.kernels.jit import helper, kernel
from collapsium.workers.kernels.random import uniform


class TokenSequences(NamedTuple):
    """Documents as sequences of tokens."""

    offsets: Int64Vector  # Index of each document's first token; the last is the number of tokens; (documents + 1,)
    position: Int32Vector  # Row of each token's word in `DirichletTopics.word_topic`; (tokens,)
    first: Int64Vector  # Number of the first random number of each document; the next ones follow; (documents,)


class DirichletTopics(NamedTuple):
    """Fixed topics, and the Dirichlet prior of their proportions in a document."""

    word_topic: Float64Matrix  # Probability phi_kw of each word in each topic; (words, topics)
    prior: Float64Vector  # Dirichlet parameter a_k; (topics,)


@helper
def draw(weight: Float64Vector, total: float, number: float) -> int:
    """Draw an index in proportion to weights."""
    remaining, k = number * total, 0
    while k < weight.size - 1 and remaining >= weight[k]:
        remaining -= weight[k]
        k += 1
    return k


@helper
def token_weights(
    probability: Float64Vector, counts: Int64Vector, prior: Float64Vector, weight: OutFloat64Vector
) -> float:
    """Fill `weight` with p_k (a_k + n_k), and return the sum."""
    total = 0.0
    for k in range(prior.size):
        weight[k] = probability[k] * (prior[k] + counts[k])
        total += weight[k]
    return total


@kernel
def left_to_right(
    documents: TokenSequences,
    topics: DirichletTopics,
    particles: int,
    key: UInt64Vector,
    log_likelihood: OutFloat64Vector,
) -> None:
    """Estimate log p(w) token by token, each by particles (Algorithm 3); twin: `naive.likelihood.left_to_right`.

    log p(w) = sum_n log 1/R sum_r p(w_n | z_1..z_{n-1}), where each particle r draws z_1..z_{n-1} anew before token n.
    The time grows with the square of a document's tokens.

    Shapes: `key` (2,); `log_likelihood` (documents,).
    """
    offsets, position, word_topic, prior = documents.offsets, documents.position, topics.word_topic, topics.prior
    weight, all_prior = np.empty(prior.size), prior.sum()
    for document in range(offsets.size - 1):
        begin, tokens = offsets[document], offsets[document + 1] - offsets[document]
        number, predictive = documents.first[document], np.zeros(tokens)
        for _particle in range(particles):
            topic, counts = np.zeros(tokens, dtype=np.int64), np.zeros(prior.size, dtype=np.int64)
            for n in range(tokens):
                for before in range(n):
                    counts[topic[before]] -= 1
                    row = word_topic[position[begin + before]]
                    total = token_weights(row, counts, prior, weight)
                    topic[before] = draw(weight, total, uniform(key, number))
                    number += 1
                    counts[topic[before]] += 1
                total = token_weights(word_topic[position[begin + n]], counts, prior, weight)
                predictive[n] += total / (n + all_prior)
                topic[n] = draw(weight, total, uniform(key, number))
                number += 1
                counts[topic[n]] += 1
        log_likelihood[document] = 0.0
        for n in range(tokens):
            log_likelihood[document] += math.log(predictive[n] / particles)


@kernel
def annealed_importance(
    documents: TokenSequences,
    topics: DirichletTopics,
    steps: int,
    runs: int,
    key: UInt64Vector,
    log_likelihood: OutFloat64Vector,
) -> None:
    """Estimate log p(w) by annealed importance sampling (Neal 2001); twin: `naive.likelihood.annealed_importance`.

    z is drawn from its prior, then by a Gibbs sweep of p(z | a) p(w | z)^s for each s = 1/S, 2/S, .., (S - 1)/S. The
    log of a run's weight is the mean of log p(w | z) over these S states.

    Shapes: `key` (2,); `log_likelihood` (documents,).
    """
    offsets, word_topic, prior = documents.offsets, topics.word_topic, topics.prior
    weight, log_weight = np.empty(prior.size), np.empty(runs)
    for document in range(offsets.size - 1):
        position, number = documents.position[offsets[document] : offsets[document + 1]], documents.first[document]
        tokens, counts = position.size, np.zeros(prior.size, dtype=np.int64)
        topic, power = np.zeros(tokens, dtype=np.int64), np.empty((tokens, prior.size))
        step_power = np.empty((tokens, prior.size))
        for n in range(tokens):
            for k in range(prior.size):
                step_power[n, k] = word_topic[position[n], k] ** (1.0 / steps)
        for run in range(runs):
            counts[:] = 0
            power[:] = 1.0
            log_weight[run] = 0.0
            for n in range(tokens):
                total = token_weights(power[n], counts, prior, weight)
                topic[n] = draw(weight, total, uniform(key, number))
                number += 1
                counts[topic[n]] += 1
            for step in range(steps):
                if step:
                    number = _anneal(power, step_power, prior, key, number, topic, counts, weight)
                for n in range(tokens):
                    log_weight[run] += math.log(word_topic[position[n], topic[n]]) / steps
        largest = log_weight.max()
        log_likelihood[document] = largest + math.log(np.exp(log_weight - largest).mean())


@helper
def _anneal(
    power: OutFloat64Matrix,
    step_power: Float64Matrix,
    prior: Float64Vector,
    key: UInt64Vector,
    number: int,
    topic: OutInt64Vector,
    counts: OutInt64Vector,
    weight: OutFloat64Vector,
) -> int:
    """Raise the power of p(w | z) by a step, make a Gibbs sweep, and return the number of the next random number."""
    for n in range(topic.size):
        counts[topic[n]] -= 1
        for k in range(prior.size):
            power[n, k] *= step_power[n, k]
        total = token_weights(power[n], counts, prior, weight)
        topic[n] = draw(weight, total, uniform(key, number))
        number += 1
        counts[topic[n]] += 1
    return number
