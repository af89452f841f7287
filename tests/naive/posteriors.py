"""Posterior proportions by Gibbs sampling, sums of squares, and the method of composition, one document at a time."""

import numpy as np

from tests.naive.likelihood import draw
from tests.naive.random import uniform


def sample_proportions(words, word_topic, prior, skipped, counted, key, first):
    """Return the mean, variance and expected tables of one document, whose prior is a vector."""
    topics, number = [], first
    for word in words:
        weights = word_topic[word] * (prior + np.bincount(topics, minlength=prior.size).astype(float))
        topics.append(draw(weights, uniform(key, number)))
        number += 1
    shares, within, tables = [], [], []
    for sweep in range(skipped + counted):
        for n, word in enumerate(words):
            remaining = topics[:n] + topics[n + 1 :]
            weights = word_topic[word] * (prior + np.bincount(np.array(remaining, dtype=int), minlength=prior.size))
            topics[n] = draw(weights, uniform(key, number))
            number += 1
        if sweep >= skipped:
            counts = np.bincount(np.array(topics, dtype=int), minlength=prior.size)
            total = prior.sum() + len(words)
            shares.append((prior + counts) / total)
            within.append(shares[-1] * (1 - shares[-1]) / (total + 1))
            tables.append([sum(a / (a + i) for i in range(n)) for a, n in zip(prior, counts, strict=True)])
    return np.mean(shares, 0), np.mean(within, 0) + np.var(shares, 0), np.mean(tables, 0)


def composition(rows, mean, variance, errors="robust", clusters=None):
    """Return coefficients and covariances of each topic by the closed form, with a loop over documents."""
    documents, columns = rows.shape
    bread = np.linalg.inv(rows.T @ rows)
    found = []
    for topic in range(mean.shape[1]):
        beta = bread @ rows.T @ mean[:, topic]
        residual = mean[:, topic] - rows @ beta
        spread, robust = np.zeros((columns, columns)), np.zeros((columns, columns))
        for row, v, e in zip(rows, variance[:, topic], residual, strict=True):
            spread += v * np.outer(row, row)
            robust += (e**2 + v) * np.outer(row, row)
        if clusters is not None:
            keys = sorted(set(clusters))
            meat = spread.copy()
            for key in keys:
                score = sum(row * e for row, e, cluster in zip(rows, residual, clusters, strict=True) if cluster == key)
                meat += np.outer(score, score)
            factor = len(keys) / (len(keys) - 1) * (documents - 1) / (documents - columns)
            within = bread @ meat @ bread * factor
        elif errors == "classical":
            squares = residual @ residual + variance[:, topic].sum() - np.trace(bread @ spread)
            within = bread * squares / (documents - columns)
        else:
            within = bread @ robust @ bread * documents / (documents - columns)
        found.append((beta, within + bread @ spread @ bread))
    return found
