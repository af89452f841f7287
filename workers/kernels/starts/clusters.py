"""Spherical k-means: vectors of documents, seeds, and the nearest centroid of each document."""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Float32Matrix,
    Float64Matrix,
    Float64Vector,
    OutFloat32Matrix,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt64Vector,
)
from collapsium.workers.kernels.jit import helper, kernel
from collapsium.workers.kernels.records import DocumentPairs


@kernel
def document_vectors(
    pairs: DocumentPairs, weight: Float64Vector, word_vectors: Float32Matrix, vectors: OutFloat32Matrix
) -> None:
    """Fill sum_w log(1 + c_w) u_w e_w of each document, at unit length; twin: `naive.starts.document_vectors`.

    Shapes: `weight` (rows,); `word_vectors` (rows, dimensions); `vectors` (documents, dimensions).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    total = np.empty(vectors.shape[1])
    for document in range(offsets.size - 1):
        total[:] = 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            row = position[pair]
            each = math.log1p(float(counts[pair])) * weight[row]
            for c in range(total.size):
                total[c] += each * word_vectors[row, c]
        square = 0.0
        for c in range(total.size):
            square += total[c] * total[c]
        scale = 1.0 / math.sqrt(square) if square > 0.0 else 0.0
        for c in range(total.size):
            vectors[document, c] = np.float32(total[c] * scale)


@helper
def cosine(vectors: Float32Matrix, row: int, others: Float32Matrix, other: int) -> np.float32:
    """Return the product of a vector and one of others, added up in single precision."""
    total = np.float32(0.0)
    for c in range(vectors.shape[1]):
        total += vectors[row, c] * others[other, c]
    return total


@helper
def is_zero(vectors: Float32Matrix, row: int) -> bool:
    """Return whether a vector is zero, and not of unit length."""
    return bool(cosine(vectors, row, vectors, row) < np.float32(0.5))


@helper
def _weight(weights: Float64Vector, row: int) -> float:
    """Return the weight of a vector."""
    return float(weights[row]) if weights.size else 1.0


@kernel
def choose_seeds(vectors: Float32Matrix, weights: Float64Vector, draws: Float64Matrix, seeds: OutInt64Vector) -> None:
    """Choose seeds as k-means++ does (Arthur and Vassilvitskii 2007); twin: `naive.starts.choose_seeds`.

    The distance of a vector is 1 - cosine of the nearest seed so far, half the squared distance on the sphere. Of
    several vectors that are drawn, the one is chosen that leaves the least distance.

    Shapes: `vectors` (vectors, dimensions); `weights` (vectors,); `draws` (seeds, candidates); `seeds` (seeds,).
    """
    size = len(vectors)
    distance = weights.copy() if weights.size else np.ones(size)
    left, best = np.empty(size), np.empty(size)
    for number in range(seeds.size):
        least = np.inf
        for candidate in range(draws.shape[1]):
            chosen = _drawn(distance, draws[number, candidate])
            total = 0.0
            for row in range(size):
                # Below this distance, rounding alone.
                apart = 1.0 - float(cosine(vectors, row, vectors, chosen))
                left[row] = min(distance[row], _weight(weights, row) * apart if apart > 1e-6 else 0.0)
                total += left[row]
            if total < least:
                least = total
                seeds[number] = chosen
                left, best = best, left
        distance[:] = best


@helper
def _drawn(distance: Float64Vector, draw: float) -> int:
    """Return the row at a share of the sum of all distances."""
    total = 0.0
    for row in range(distance.size):
        total += distance[row]
    left = draw * total
    for row in range(distance.size):
        left -= distance[row]
        if left < 0.0:
            return row
    return int(distance.size - 1)


@kernel
def nearest(
    vectors: Float32Matrix,
    weights: Float64Vector,
    centroids: Float32Matrix,
    labels: OutInt64Vector,
    sums: OutFloat64Matrix,
    sizes: OutFloat64Vector,
) -> float:
    """Label each vector with its nearest centroid, and add it to its sum; twin: `naive.starts.nearest`.

    Shapes: `vectors` (documents, dimensions); `weights`, `labels` (documents,); `centroids`, `sums` (clusters,
    dimensions); `sizes` (clusters,).
    """
    cosines = 0.0
    for document in range(vectors.shape[0]):
        if is_zero(vectors, document):
            labels[document] = -1
            continue
        best, label = np.float32(-2.0), 0
        for cluster in range(centroids.shape[0]):
            near = cosine(vectors, document, centroids, cluster)
            if near > best:
                best, label = near, cluster
        labels[document] = label
        weight = _weight(weights, document)
        cosines += weight * float(best)
        sizes[label] += weight
        for c in range(vectors.shape[1]):
            sums[label, c] += weight * float(vectors[document, c])
    return cosines


@kernel
def cluster_shares(
    vectors: Float32Matrix, centroids: Float32Matrix, sharpness: float, shares: OutFloat32Matrix
) -> None:
    """Fill exp(s (c_dk - max_j c_dj)), c_dk being the cosine with a centroid; twin: `naive.starts.cluster_shares`.

    Shapes: `vectors` (documents, dimensions); `centroids` (clusters, dimensions); `shares` (documents, clusters).
    """
    for document in range(vectors.shape[0]):
        if is_zero(vectors, document):
            shares[document, :] = 0.0
            continue
        best = np.float32(-2.0)
        for cluster in range(centroids.shape[0]):
            shares[document, cluster] = cosine(vectors, document, centroids, cluster)
            best = max(best, shares[document, cluster])
        for cluster in range(centroids.shape[0]):
            apart = float(shares[document, cluster]) - float(best)
            shares[document, cluster] = np.float32(math.exp(sharpness * apart))
