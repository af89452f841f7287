"""Spherical k-means: vectors of documents, seeds, and the nearest centroid of each document."""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Float32Matrix,
    Float64Vector,
    OutFloat32Matrix,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt64Vector,
)
from collapsium.workers.kernels.jit import kernel
from collapsium.workers.kernels.records import DocumentPairs


@kernel
def document_vectors(
    pairs: DocumentPairs, weight: Float64Vector, word_vectors: Float32Matrix, vectors: OutFloat32Matrix
) -> None:
    """Fill sum_w log(1 + c_w) u_w e_w of each document, at unit length; twin: `naive.starts.document_vectors`.

    Parameters
    ----------
    pairs : DocumentPairs
        The documents.
    weight : float64, shape (rows,)
        u_w.
    word_vectors : float32, shape (rows, dimensions)
        e_w.
    vectors : float32, shape (documents, dimensions)
        Filled; zero where no word has a vector.
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


@kernel
def choose_seeds(vectors: Float32Matrix, draws: Float64Vector, seeds: OutInt64Vector) -> None:
    """Choose seeds as k-means++ does (Arthur and Vassilvitskii 2007); twin: `naive.starts.choose_seeds`.

    The distance of a vector is 1 - cosine of the nearest seed so far, half the squared distance on the sphere.

    Parameters
    ----------
    vectors : float32, shape (vectors, dimensions)
        Of unit length.
    draws : float64, shape (seeds,)
        Numbers from 0 to 1.
    seeds : int64, shape (seeds,)
        Filled with the rows of the seeds.
    """
    size, dimensions = vectors.shape
    distance = np.ones(size)
    for number in range(seeds.size):
        total = 0.0
        for row in range(size):
            total += distance[row]
        left, chosen = draws[number] * total, size - 1
        for row in range(size):
            left -= distance[row]
            if left < 0.0:
                chosen = row
                break
        seeds[number] = chosen
        for row in range(size):
            cosine = np.float32(0.0)
            for c in range(dimensions):
                cosine += vectors[row, c] * vectors[chosen, c]
            # Below this distance, rounding alone.
            apart = 1.0 - float(cosine)
            distance[row] = min(distance[row], apart if apart > 1e-6 else 0.0)


@kernel
def nearest(
    vectors: Float32Matrix,
    centroids: Float32Matrix,
    labels: OutInt64Vector,
    sums: OutFloat64Matrix,
    sizes: OutFloat64Vector,
) -> float:
    """Label each vector with its nearest centroid, and add it to its sum; twin: `naive.starts.nearest`.

    Parameters
    ----------
    vectors : float32, shape (documents, dimensions)
        Of unit length, or zero.
    centroids : float32, shape (clusters, dimensions)
        Of unit length.
    labels : int64, shape (documents,)
        Filled; -1 for a vector of zero.
    sums : float64, shape (clusters, dimensions)
        Increased by the vectors of each cluster.
    sizes : float64, shape (clusters,)
        Increased by the number of these.

    Returns
    -------
    float
        The sum of the vectors' cosines.
    """
    cosines = 0.0
    for document in range(vectors.shape[0]):
        best, label, square = np.float32(-2.0), 0, np.float32(0.0)
        for c in range(vectors.shape[1]):
            square += vectors[document, c] * vectors[document, c]
        if square < np.float32(0.5):
            labels[document] = -1
            continue
        for cluster in range(centroids.shape[0]):
            cosine = np.float32(0.0)
            for c in range(vectors.shape[1]):
                cosine += vectors[document, c] * centroids[cluster, c]
            if cosine > best:
                best, label = cosine, cluster
        labels[document] = label
        cosines += float(best)
        sizes[label] += 1.0
        for c in range(vectors.shape[1]):
            sums[label, c] += float(vectors[document, c])
    return cosines


@kernel
def cluster_shares(
    vectors: Float32Matrix, centroids: Float32Matrix, sharpness: float, shares: OutFloat32Matrix
) -> None:
    """Fill exp(s (c_dk - max_j c_dj)), c_dk being the cosine with a centroid; twin: `naive.starts.cluster_shares`.

    Parameters
    ----------
    vectors : float32, shape (documents, dimensions)
        Of unit length, or zero.
    centroids : float32, shape (clusters, dimensions)
        Of unit length.
    sharpness : float
        s.
    shares : float32, shape (documents, clusters)
        Filled; zero for a vector of zero.
    """
    for document in range(vectors.shape[0]):
        best, square = np.float32(-2.0), np.float32(0.0)
        for c in range(vectors.shape[1]):
            square += vectors[document, c] * vectors[document, c]
        for cluster in range(centroids.shape[0]):
            cosine = np.float32(0.0)
            for c in range(vectors.shape[1]):
                cosine += vectors[document, c] * centroids[cluster, c]
            shares[document, cluster] = cosine
            best = max(best, cosine)
        for cluster in range(centroids.shape[0]):
            apart = float(shares[document, cluster]) - float(best)
            shares[document, cluster] = np.float32(math.exp(sharpness * apart)) if square >= np.float32(0.5) else 0.0
