"""Spherical k-means of documents: tasks on their vectors, which stay on the workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapsium.storage.readers.proportions import DocumentProportions, sparse_proportions
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.starts import clusters as kernels
from collapsium.workers.starts.words import (
    QUICK_VECTORS,
    VECTORS,
    AnyTrainingShard,
    StartWords,
    VectorSettings,
    opened,
)

Floats = npt.NDArray[np.float32]


KERNELS = (kernels.document_vectors, kernels.choose_seeds, kernels.nearest, kernels.cluster_shares)


@dataclass(frozen=True)
class ClusterSettings:
    """Settings of the clusters of documents."""

    vectors: VectorSettings = VECTORS
    """Vectors of the words."""
    sample: int = 20_000
    """Documents among which seeds are chosen, at least; see `sample_each`."""
    sample_each: int = 20
    """Documents of this sample for each cluster, at least."""
    iterations: int = 40
    """Most assignments of all documents."""
    tolerance: float = 1e-5
    """Relative gain of the mean cosine below which assignments end."""
    sharpness: float = 60.0
    """s of a document's shares of the clusters, exp(s cos). Documents between clusters then begin in both, and topics
    share fewer words than with the nearest cluster alone."""
    min_share: float = 0.01
    """Smaller shares of the largest one are left out."""
    most_shares: int = 64
    """Largest number of clusters that a document begins in: more take memory by the number of topics, and score no
    better (64 as all of 200, 32 less by 0.004 on the papers of NIPS)."""
    block: int = 4096
    """Documents whose shares of all clusters are in memory at a time."""


CLUSTERS = ClusterSettings()
QUICK_CLUSTERS = ClusterSettings(vectors=QUICK_VECTORS, iterations=5, sharpness=20.0, min_share=0.03)
"""Fewer assignments, and documents between clusters in more of them: sweeps tell soon to which they belong."""


class ClusterSums(NamedTuple):
    """Sums over the documents of each cluster.

    Attributes
    ----------
    vectors : numpy.ndarray of float64, shape (clusters, dimensions)
        Sums of their vectors.
    sizes : numpy.ndarray of float64, shape (clusters,)
        Their number.
    cosine : float
        Sum of their cosines with the centroids.
    """

    vectors: npt.NDArray[np.float64]
    sizes: npt.NDArray[np.float64]
    cosine: float


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


def sample_vectors(vectors: Floats, share: float, stream: Stream) -> Floats:
    """Return the vectors of a random share of a shard's documents, without those of zero."""
    taken = stream.generator().random(len(vectors)) < share
    return vectors[taken & vectors.any(axis=1)]


def first_centroids(samples: Sequence[Floats], clusters: int, stream: Stream) -> Floats:
    """Return the centroids that k-means++ chooses among sampled vectors, shape (clusters, dimensions)."""
    vectors = np.concatenate(samples)
    if not len(vectors):
        return np.zeros((clusters, vectors.shape[1]), dtype=np.float32)
    seeds = np.empty(clusters, dtype=np.int64)
    kernels.choose_seeds(vectors, stream.generator().random(clusters), seeds)
    return vectors[seeds]


def assign(vectors: Floats, centroids: Floats) -> ClusterSums:
    """Return the sums of a shard's documents by their nearest centroids."""
    labels, sums = np.empty(len(vectors), dtype=np.int64), np.zeros(centroids.shape)
    sizes = np.zeros(len(centroids))
    cosine = kernels.nearest(vectors, centroids, labels, sums, sizes)
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
    none = np.zeros(0, dtype=np.int64)
    owners, topics, shares = [none], [none], [np.zeros(0, dtype=np.float32)]
    for low in range(0, len(vectors), settings.block):
        some = vectors[low : low + settings.block]
        block = np.empty((len(some), len(centroids)), dtype=np.float32)
        kernels.cluster_shares(some, centroids, settings.sharpness, block)
        owner, topic = np.nonzero(block >= _least_shares(block, settings)[:, None])
        owners.append(owner + low)
        topics.append(topic)
        shares.append(block[owner, topic])
    owner, topic = np.concatenate(owners), np.concatenate(topics)
    return sparse_proportions(owner, topic, np.concatenate(shares), len(vectors), len(centroids))


def _least_shares(shares: Floats, settings: ClusterSettings) -> Floats:
    """Return the smallest share of each document that is not left out."""
    least = np.full(len(shares), settings.min_share, dtype=np.float32)
    many = np.flatnonzero(np.count_nonzero(shares >= settings.min_share, axis=1) > settings.most_shares)
    if many.size:
        place = shares.shape[1] - settings.most_shares
        least[many] = np.partition(shares[many], place, axis=1)[:, place]
    return least
