"""Marginal likelihoods of documents by enumeration of all topic assignments, and slow twins of the kernels' estimates."""

from itertools import product

import numpy as np
from scipy.special import gammaln, logsumexp

from tests.naive.random import uniform


def exact(words, word_topic, prior):
    """Return log p(w) of a document, summed over all assignments of its tokens to topics."""
    terms = []
    for topics in product(range(prior.size), repeat=len(words)):
        counts = np.bincount(topics, minlength=prior.size)
        log_prior = gammaln(prior.sum()) - gammaln(prior.sum() + len(words))
        log_prior += (gammaln(prior + counts) - gammaln(prior)).sum()
        terms.append(
            log_prior + np.log([word_topic[word, topic] for word, topic in zip(words, topics, strict=True)]).sum()
        )
    return logsumexp(terms)


def draw(weights, number):
    """Draw an index in proportion to weights."""
    return min(int(np.searchsorted(np.cumsum(weights), number * weights.sum(), side="right")), weights.size - 1)


def left_to_right(words, word_topic, prior, particles, key, first):
    """Apply Algorithm 3 of Wallach et al. (2009) to one document."""
    predictive, number = np.zeros(len(words)), first
    for _ in range(particles):
        topics = []
        for n, word in enumerate(words):
            for before in range(n):
                remaining = topics[:before] + topics[before + 1 :]
                weights = word_topic[words[before]] * (prior + np.bincount(remaining, minlength=prior.size))
                topics[before] = draw(weights, uniform(key, number))
                number += 1
            weights = word_topic[word] * (prior + np.bincount(topics, minlength=prior.size).astype(float))
            predictive[n] += weights.sum() / (n + prior.sum())
            topics.append(draw(weights, uniform(key, number)))
            number += 1
    return np.log(predictive / particles).sum()


def annealed_importance(words, word_topic, prior, steps, runs, key, first):
    """Apply annealed importance sampling from p(z) to p(z | w) to one document, in equal steps."""
    log_weights, number = [], first
    for _ in range(runs):
        topics = []
        for _ in words:
            topics.append(draw(prior + np.bincount(topics, minlength=prior.size), uniform(key, number)))
            number += 1
        log_weight = 0.0
        for step in range(steps):
            for n, word in enumerate(words if step else []):
                remaining = topics[:n] + topics[n + 1 :]
                weights = word_topic[word] ** (step / steps) * (prior + np.bincount(remaining, minlength=prior.size))
                topics[n] = draw(weights, uniform(key, number))
                number += 1
            log_weight += np.log([word_topic[w, z] for w, z in zip(words, topics, strict=True)]).sum() / steps
        log_weights.append(log_weight)
    return logsumexp(log_weights) - np.log(runs)
