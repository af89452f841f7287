"""Spherical k-means of documents: tasks on their vectors, which stay on the workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapsium.storage.readers.proportions_file import DocumentProportions, sparse_proportions
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.starts import clusters as kernels
from collapsium.workers.starts.words import (
    VECTORS,
    AnyTrainingShard,
    StartWords,
    VectorSettings,
    opened,
)

Floats = npt.NDArray[np.float32]
Weights = npt.NDArray[np.float64]


KERNELS = (kernels.document_vectors, kernels.choose_seeds, kernels.nearest, kernels.cluster_shares)


@dataclass(frozen=True)
class ClusterSettings:
    """Settings of the clusters of documents."""

    vectors: VectorSettings = VECTORS  # Vectors of the words
    sample: int = 20_000  # Documents among which seeds are chosen, at least; see `sample_each`
    sample_each: int = 20  # Documents of this sample for each cluster, at least
    iterations: int = 40  # Most assignments of all documents
    candidates: int = 1  # Vectors that are drawn for each seed, of which the best is chosen
    tolerance: float = 1e-5  # Relative gain of the mean cosine below which assignments end
    # s of a document's shares of the clusters, exp(s cos). Documents between clusters then begin in both, and topics
    # share fewer words than with the nearest cluster alone.
    sharpness: float = 60.0
    min_share: float = 0.01  # Smaller shares of the largest one are left out
    # Largest number of clusters that a document begins in: more take memory by the number of topics, and score no
    # better (64 as all of 200, 32 less by 0.004 on the papers of NIPS)
    most_shares: int = 64
    block: int = 4096  # Documents whose shares of all clusters are in memory at a time


CLUSTERS = ClusterSettings()


class ClusterSums(NamedTuple):
    """Sums over the vectors of each cluster, times their weights."""

    vectors: npt.NDArray[np.float64]  # Sums of the vectors; float64 (clusters, dimensions)
    sizes: npt.NDArray[np.float64]  # Sums of the weights; float64 (clusters,)
    cosine: float  # Sum of the cosines with the centroids


def document_vectors(shard: AnyTrainingShard, words: StartWords, word_vectors: Floats) -> Floats:
    """Return the vectors of a shard's documents: sums of their words' vectors by log-TF-IDF, at unit length."""
    loaded = opened(shard)
    numbers = words.numbers(loaded)
    known = numbers >= 0
    weight, vectors = np.zeros(numbers.size), np.zeros((numbers.size, word_vectors.shape[1]), dtype=np.float32)
    weight[known], vectors[known] = words.weight[numbers[known]], word_vectors[numbers[known]]
    result = np.empty((loaded.documents, word_vectors.shape[1]), dtype=np.float32)
    kernels.document_vectors(document_pairs(loaded), weight, vectors, result)
    return result


class Sampled(NamedTuple):
    """Vectors that are drawn, and the weights of them."""

    vectors: Floats  # Of unit length; float32 (vectors, dimensions)
    weights: Weights  # Their weights; float64 (vectors,)


def sample_vectors(vectors: Floats, weights: Weights, share: float, stream: Stream) -> Sampled:
    """Return the vectors of a random share of a shard's documents, without zero vectors."""
    taken = (stream.generator().random(len(vectors)) < share) & vectors.any(axis=1)
    return Sampled(vectors[taken], weights[taken] if weights.size else np.ones(int(taken.sum())))


def first_centroids(samples: Sequence[Sampled], clusters: int, candidates: int, stream: Stream) -> Floats:
    """Return the centroids that k-means++ chooses among sampled vectors, shape (clusters, dimensions)."""
    vectors, weights = (np.concatenate(parts) for parts in zip(*samples, strict=True))
    if not len(vectors):
        return np.zeros((clusters, vectors.shape[1]), dtype=np.float32)
    seeds = np.empty(clusters, dtype=np.int64)
    kernels.choose_seeds(vectors, weights, stream.generator().random((clusters, candidates)), seeds)
    return vectors[seeds]


def assign(vectors: Floats, weights: Weights, centroids: Floats) -> ClusterSums:
    """Return the sums of vectors by their nearest centroids."""
    labels, sums = np.empty(len(vectors), dtype=np.int64), np.zeros(centroids.shape)
    sizes = np.zeros(len(centroids))
    cosine = kernels.nearest(vectors, weights, centroids, labels, sums, sizes)
    return ClusterSums(sums, sizes, cosine)


def cosine(sums: ClusterSums) -> float:
    """Return the sum of the cosines."""
    return sums.cosine


def new_centroids(sums: ClusterSums, before: Floats) -> Floats:
    """Return the directions of the sums; an empty cluster keeps its centroid."""
    norms = np.sqrt((sums.vectors * sums.vectors).sum(axis=1, keepdims=True))
    filled = norms[:, 0] > 1e-9
    after = np.array(before)
    after[filled] = sums.vectors[filled] / norms[filled]
    return after


def cluster_proportions(vectors: Floats, centroids: Floats, settings: ClusterSettings) -> DocumentProportions:
    """Return the shares of the clusters in each of a shard's documents; those with a vector of zero have none."""

    def block(low: int, count: int) -> Floats:
        shares = np.empty((count, len(centroids)), dtype=np.float32)
        kernels.cluster_shares(vectors[low : low + count], centroids, settings.sharpness, shares)
        return shares

    return shares_above(block, len(vectors), len(centroids), settings)


def shares_above(
    block: Callable[[int, int], Floats], documents: int, clusters: int, settings: ClusterSettings
) -> DocumentProportions:
    """Return the shares of clusters that are not left out."""
    none = np.zeros(0, dtype=np.int64)
    owners, chosen, values = [none], [none], [np.zeros(0, dtype=np.float32)]
    for low in range(0, documents, settings.block):
        shares = block(low, min(settings.block, documents - low))
        least: Floats = np.float32(settings.min_share) * shares.max(axis=1, initial=0.0)
        many = np.flatnonzero(np.count_nonzero(shares >= least[:, None], axis=1) > settings.most_shares)
        if many.size:
            place = shares.shape[1] - settings.most_shares
            least[many] = np.partition(shares[many], place, axis=1)[:, place]
        owner, cluster = np.nonzero((shares > 0.0) & (shares >= least[:, None]))
        owners.append(owner + low)
        chosen.append(cluster)
        values.append(shares[owner, cluster])
    owner, cluster = np.concatenate(owners), np.concatenate(chosen)
    return sparse_proportions(owner, cluster, np.concatenate(values), documents, clusters)
