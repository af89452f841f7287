"""Collapsed Gibbs sampling, one token at a time, with all counts recomputed for each token."""

import numpy as np
from scipy.special import digamma, gammaln

from tests.naive.random import uniform


def tokens_of(offsets, position, counts):
    """Return each token's document and row."""
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return np.repeat(owner, counts), np.repeat(position, counts)


def weights(documents, words, z, token, elsewhere, prior, word_prior, total_prior):
    """Return p(z = k) of a token given all others, up to the factor that all topics share."""
    remaining = np.arange(len(z)) != token
    topics = np.arange(prior.size)
    in_document = (z[remaining & (documents == documents[token])][:, np.newaxis] == topics).sum(axis=0)
    word = (z[remaining & (words == words[token])][:, np.newaxis] == topics).sum(axis=0) + elsewhere[words[token]]
    all_of_them = (z[remaining][:, np.newaxis] == topics).sum(axis=0) + elsewhere.sum(axis=0)
    return (in_document + prior) * (word + word_prior) / (all_of_them + total_prior), all_of_them


def pick(probabilities, number):
    """Return the index into cumulative probabilities that a number in [0, 1) selects."""
    running = np.cumsum(probabilities)
    return int(np.searchsorted(running, number * running[-1], side="right"))


def sweep(offsets, position, counts, key, word_prior, total_prior, gamma, elsewhere, prior, rest, free, z):
    """Sweep once; `elsewhere` are the counts of other shards, `free` the slots for new topics, the next one last.

    Returns z, prior, rest and the remaining slots.
    """
    documents, words = tokens_of(offsets, position, counts)
    z, prior, free, reusable = z.astype(int), prior.copy(), list(free), set(free)
    for token in range(z.size):
        mass, remaining = weights(documents, words, z, token, elsewhere, prior, word_prior, total_prior)
        old = z[token]
        if gamma > 0 and remaining[old] == 0:
            rest, prior[old], mass[old] = rest + prior[old], 0.0, 0.0
            if old in reusable:
                free.append(old)
        new = rest * word_prior / total_prior
        k = pick(np.concatenate([[new], mass]), uniform(key, 2 * token)) - 1
        if k < 0:
            k = free.pop()
            stick = 1.0 - (1.0 - uniform(key, 2 * token + 1)) ** (1.0 / gamma)
            prior[k], rest = stick * rest, (1.0 - stick) * rest
        z[token] = k
    return z, prior, rest, free


def list_documents(offsets, counts, z, prior):
    """Return each document's {topic: tokens} in order of occurrence, E[s_k], and the log of the rising factors."""
    documents, _ = tokens_of(offsets, np.zeros(len(counts), int), counts)
    lists, tables, rising = [], np.zeros(prior.size), 0.0
    for document in range(len(offsets) - 1):
        counts_by_topic = {}
        for k in z[documents == document]:
            counts_by_topic[int(k)] = counts_by_topic.get(int(k), 0) + 1
        lists.append(counts_by_topic)
        for k, n in counts_by_topic.items():
            tables[k] += prior[k] * (digamma(prior[k] + n) - digamma(prior[k]))
            rising += gammaln(prior[k] + n) - gammaln(prior[k])
    return lists, tables, rising


def draw_tables(topic, count, prior, key):
    """Draw the number of tables of each topic: the first customer opens one, each later one with probability a / (a +
    j)."""
    tables, number = np.zeros(prior.size), 0
    for k, n in zip(topic, count, strict=True):
        for customer in range(int(n)):
            strength = prior[k]
            tables[k] += customer == 0 or uniform(key, number) < strength / (strength + customer)
            number += 1
    return tables


def word_rising(row, prior):
    """Return sums of log G(b + n) / G(b) and of b (psi(b + n) - psi(b))."""
    log_rising = gammaln(prior + row) - gammaln(prior)
    return np.array([log_rising.sum(), (prior * (digamma(prior + row) - digamma(prior))).sum()])


def draw_topics(offsets, position, counts, theta, phi, key):
    """Draw z of each token in proportion to theta phi."""
    documents, words = tokens_of(offsets, position, counts)
    return np.array([
        pick(theta[d] * phi[w] + 1e-200, uniform(key, token))
        for token, (d, w) in enumerate(zip(documents, words, strict=True))
    ], dtype=int)  # fmt: skip


def fingerprint(words, columns, word_keys, column_keys):
    """Return the sum of the products of the keys of tokens, modulo 2^64; tokens without a column (-1) are skipped."""
    pairs = zip(words, columns, strict=True)
    return sum(int(word_keys[word]) * int(column_keys[column]) for word, column in pairs if column >= 0) % (1 << 64)


def uncounted(words, columns, word_topic, totals):
    """Return the first token that is missing from the counts of its word or of all words; -1 if there is none."""
    for token, (word, column) in enumerate(zip(words, columns, strict=True)):
        before = columns[:token]
        if column < 0:
            continue
        if column >= totals.size or np.sum(before == column) >= totals[column]:
            return token
        if np.sum((before == column) & (words[:token] == word)) >= word_topic[word, column]:
            return token
    return -1
