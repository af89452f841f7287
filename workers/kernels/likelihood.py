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
    OutFloat64Vector,
    OutInt64Vector,
    UInt64Vector,
)
from collapsium.workers.kernels.jit import helper, kernel
from collapsium.workers.kernels.random import uniform


class TokenSequences(NamedTuple):
    """Documents as sequences of tokens.

    Attributes
    ----------
    offsets : int64, shape (documents + 1,)
        Index of each document's first token; the last is the number of tokens.
    position : int32, shape (tokens,)
        Row of each token's word in `TopicModel.word_topic`.
    first : int64, shape (documents,)
        Number of the first random number of each document; the next ones follow.
    """

    offsets: Int64Vector
    position: Int32Vector
    first: Int64Vector


class TopicModel(NamedTuple):
    """Fixed topics and the prior of their proportions.

    Attributes
    ----------
    word_topic : float64, shape (words, topics)
        Probability phi_kw of each word in each topic.
    prior : float64, shape (topics,)
        Dirichlet parameter a_k.
    """

    word_topic: Float64Matrix
    prior: Float64Vector


@helper
def _draw(weight: Float64Vector, total: float, number: float) -> int:
    """Draw an index in proportion to weights."""
    remaining, k = number * total, 0
    while k < weight.size - 1 and remaining >= weight[k]:
        remaining -= weight[k]
        k += 1
    return k


@helper
def _token_weights(
    probability: Float64Vector, counts: Int64Vector, prior: Float64Vector, power: float, weight: OutFloat64Vector
) -> float:
    """Fill `weight` with phi_kw^power (a_k + n_k), and return the sum."""
    total = 0.0
    for k in range(prior.size):
        likelihood = probability[k] if power == 1.0 else probability[k] ** power
        weight[k] = likelihood * (prior[k] + counts[k])
        total += weight[k]
    return total


@kernel
def left_to_right(
    documents: TokenSequences, model: TopicModel, particles: int, key: UInt64Vector, log_likelihood: OutFloat64Vector
) -> None:
    """Estimate log p(w) token by token, each by particles (Algorithm 3); twin: `naive.likelihood.left_to_right`.

    log p(w) = sum_n log 1/R sum_r p(w_n | z_1..z_{n-1}), where each particle r draws z_1..z_{n-1} anew before token n.
    The time grows with the square of a document's tokens.

    Parameters
    ----------
    documents : TokenSequences
        The documents.
    model : TopicModel
        Topics and prior.
    particles : int
        R.
    key : uint64, shape (2,)
        Of the random stream.
    log_likelihood : float64, shape (documents,)
        Filled, in nats.
    """
    offsets, position, word_topic, prior = documents.offsets, documents.position, model.word_topic, model.prior
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
                    total = _token_weights(row, counts, prior, 1.0, weight)
                    topic[before] = _draw(weight, total, uniform(key, number))
                    number += 1
                    counts[topic[before]] += 1
                total = _token_weights(word_topic[position[begin + n]], counts, prior, 1.0, weight)
                predictive[n] += total / (n + all_prior)
                topic[n] = _draw(weight, total, uniform(key, number))
                number += 1
                counts[topic[n]] += 1
        log_likelihood[document] = 0.0
        for n in range(tokens):
            log_likelihood[document] += math.log(predictive[n] / particles)


@kernel
def annealed_importance(
    documents: TokenSequences,
    model: TopicModel,
    temperatures: Float64Vector,
    runs: int,
    key: UInt64Vector,
    log_likelihood: OutFloat64Vector,
) -> None:
    """Estimate log p(w) by annealed importance sampling (Neal 2001); twin: `naive.likelihood.annealed_importance`.

    z is drawn from its prior, then by Gibbs sweeps of p(z | a) p(w | z)^s for rising s; the log of a run's weight is
    the sum over steps of (s' - s) log p(w | z).

    Parameters
    ----------
    documents : TokenSequences
        The documents.
    model : TopicModel
        Topics and prior.
    temperatures : float64, shape (steps + 1,)
        s, rising from 0 to 1.
    runs : int
        Weights that are averaged.
    key : uint64, shape (2,)
        Of the random stream.
    log_likelihood : float64, shape (documents,)
        Filled, in nats.
    """
    offsets, position, word_topic, prior = documents.offsets, documents.position, model.word_topic, model.prior
    weight, flat, log_weight = np.empty(prior.size), np.ones(prior.size), np.empty(runs)
    for document in range(offsets.size - 1):
        begin, tokens = offsets[document], offsets[document + 1] - offsets[document]
        number, topic = documents.first[document], np.zeros(tokens, dtype=np.int64)
        for run in range(runs):
            counts = np.zeros(prior.size, dtype=np.int64)
            for n in range(tokens):
                total = _token_weights(flat, counts, prior, 1.0, weight)
                topic[n] = _draw(weight, total, uniform(key, number))
                number += 1
                counts[topic[n]] += 1
            log_weight[run] = 0.0
            for step in range(1, temperatures.size):
                likelihood = 0.0
                for n in range(tokens):
                    likelihood += math.log(word_topic[position[begin + n], topic[n]])
                log_weight[run] += (temperatures[step] - temperatures[step - 1]) * likelihood
                if step == temperatures.size - 1:
                    break
                number = _anneal(
                    position[begin : begin + tokens], model, temperatures[step], key, number, topic, counts, weight
                )
        largest = log_weight.max()
        log_likelihood[document] = largest + math.log(np.exp(log_weight - largest).mean())


@helper
def _anneal(
    position: Int32Vector,
    model: TopicModel,
    power: float,
    key: UInt64Vector,
    number: int,
    topic: OutInt64Vector,
    counts: OutInt64Vector,
    weight: OutFloat64Vector,
) -> int:
    """Make a Gibbs sweep of p(z | a) p(w | z)^power, and return the number of the next random number."""
    for n in range(position.size):
        counts[topic[n]] -= 1
        total = _token_weights(model.word_topic[position[n]], counts, model.prior, power, weight)
        topic[n] = _draw(weight, total, uniform(key, number))
        number += 1
        counts[topic[n]] += 1
    return number
