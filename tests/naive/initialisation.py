"""The kernels of initialisations, in plain NumPy."""

import numpy as np

from tests.naive.warm_start import owners


def table(offsets, position, counts, number, words):
    """Return the counts of documents by word, without words that have no number."""
    result = np.zeros((offsets.size - 1, words))
    known = number[position] >= 0
    np.add.at(result, (owners(offsets)[known], number[position][known]), counts[known])
    return result


def cooccurrences(offsets, position, counts, number, words):
    """Return the co-occurrences of all pairs of distinct words."""
    capped = np.minimum(counts, 3)
    totals = np.bincount(owners(offsets), weights=capped, minlength=offsets.size - 1)
    counted = table(offsets, position, capped, number, words)
    together = counted.T @ (counted / np.maximum(totals - 1, 1)[:, np.newaxis])
    np.fill_diagonal(together, 0.0)
    return together


def positive_information(together, sums, context):
    """Return the positive pointwise mutual information."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(together / (sums[:, np.newaxis] * context))
    return np.where(np.isfinite(value), np.maximum(value, 0.0), 0.0)


def document_vectors(offsets, position, counts, weight, word_vectors):
    """Return sums of the words' vectors weighted by log-TF-IDF, scaled to unit length."""
    result = np.zeros((offsets.size - 1, word_vectors.shape[1]))
    np.add.at(result, owners(offsets), (np.log1p(counts) * weight[position])[:, np.newaxis] * word_vectors[position])
    norms = np.linalg.norm(result, axis=1, keepdims=True)
    return np.divide(result, norms, out=np.zeros_like(result), where=norms > 0)


def choose_seeds(vectors, weights, draws):
    """Return the rows that k-means++ selects."""
    weights = weights if weights.size else np.ones(len(vectors))
    distance, seeds = weights, []
    for some in draws:
        running, left = np.cumsum(distance), []
        for draw in some:
            row = min(int(np.searchsorted(running, draw * running[-1], side="right")), len(vectors) - 1)
            apart = 1.0 - vectors.astype(np.float64) @ vectors[row].astype(np.float64)
            left.append((row, np.minimum(distance, weights * np.where(apart > 1e-6, apart, 0.0))))
        row, distance = min(left, key=lambda cluster: cluster[1].sum())
        seeds.append(row)
    return seeds


def document_shares(counted, leaf, root, log_share, root_share, power):
    """Return the probability of each document's topic."""
    score = counted @ np.log((1 - root_share) * leaf.astype(np.float64) + root_share * root[:, np.newaxis]) + log_share
    weight = np.exp(power * (score - score.max(axis=1, keepdims=True)))
    return weight / weight.sum(axis=1, keepdims=True)


def count_words(counted, shares, leaf, root, root_share):
    """Return the tokens of words in topics and in the root."""
    from_leaves = (1 - root_share) * shares @ leaf.T.astype(np.float64)
    held = counted * from_leaves / (from_leaves + root_share * root)
    return held.T @ shares, (counted - held).sum(axis=0)


def nearest(vectors, weights, centroids):
    """Return the nearest centroid of each vector (-1 for a zero vector), sums and sizes by centroid, and the sum of
    cosines."""
    weights = weights if weights.size else np.ones(len(vectors))
    cosines, known = vectors @ centroids.T, np.abs(vectors).sum(axis=1) > 0.0
    labels = np.where(known, cosines.argmax(axis=1), -1)
    members = (labels == np.arange(len(centroids))[:, np.newaxis]) * weights
    return labels, members @ vectors, members.sum(axis=1), (weights * cosines.max(axis=1))[known].sum()


def cluster_shares(vectors, centroids, sharpness):
    """Return exp(s (c_dk - max_j c_dj)) of the cosines c, or zeros for a zero vector."""
    cosines = np.asarray(vectors, dtype=np.float64) @ np.asarray(centroids, dtype=np.float64).T
    shares = np.exp(sharpness * (cosines - cosines.max(axis=1, keepdims=True)))
    return np.where(np.abs(vectors).sum(axis=1, keepdims=True) > 0.0, shares, 0.0)


def add_products(offsets, position, counts, number, directions):
    """Return N^T D^-1 N X of counts truncated to at most 3."""
    counted = table(offsets, position, np.minimum(counts, 3), number, len(directions))
    return counted.T @ ((counted @ directions) / np.maximum(counted.sum(axis=1, keepdims=True), 1.0))


def mix_documents(counted, shares, rounds):
    """Return the documents' shares of clusters after some EM steps from uniform shares."""
    mixed = np.ones((len(counted), shares.shape[1]))
    for _ in range(rounds):
        weights = mixed @ shares.T
        parts = np.divide(counted, weights, out=np.zeros_like(counted), where=weights > 0.0)
        mixed = mixed * (parts @ shares)
        totals = mixed.sum(axis=1, keepdims=True)
        mixed = np.divide(mixed, totals, out=np.zeros_like(mixed), where=totals > 0.0)
    return mixed
