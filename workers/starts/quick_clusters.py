"""Clusters of words by correspondence analysis, and documents as mixtures of them.

N has the counts of words in documents, D and C their sums by documents and by words. Words lie near each other if they
share documents beyond chance: their coordinates are the largest singular vectors of D^-1/2 N C^-1/2 beside the trivial
one, times their singular values (Greenacre 1984, chapter 4), by subspace iteration (Halko, Martinsson and Tropp 2011).
Words are clustered by their directions, and weigh by their inertia; a document's shares follow from its words' shares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapsium.storage.readers.proportions_file import DocumentProportions
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.starts import clusters as cluster_kernels
from collapsium.workers.kernels.starts import correspondence as kernels
from collapsium.workers.kernels.starts import word_vectors as linear
from collapsium.workers.kernels.starts.correspondence import WordMixtures
from collapsium.workers.starts.clusters import ClusterSettings, shares_above
from collapsium.workers.starts.words import AnyTrainingShard, StartWords, opened, principal_axes, product

Floats = npt.NDArray[np.float32]
Vector = npt.NDArray[np.float64]

KERNELS = (
    kernels.add_products,
    kernels.mix_documents,
    linear.multiply,
    linear.products,
    linear.eigenvectors,
    cluster_kernels.choose_seeds,
    cluster_kernels.nearest,
    cluster_kernels.cluster_shares,
)


@dataclass(frozen=True)
class QuickClusterSettings:
    """Settings of a start from clusters of words."""

    min_documents: int = 5  # Documents of a word, at least: rarer ones tell by chance what they are like
    max_words: int = 50_000  # Words in clusters, at most: the most frequent ones
    # Tokens from which words have their coordinates, at least: of twice as many and more, one shard in n
    sample_tokens: int = 10_000_000
    dimensions: int = 120  # Coordinates of a word, at most, and no more than the root of the number of words
    # Further directions that are iterated, so that the smallest of the others converge (Halko et al., section 4.2)
    oversampling: int = 8
    rounds: int = 3  # Products by which directions are iterated
    least: float = 1e-10  # Squared length of a direction, as a share of the largest, below which it is rounding
    chains: int = 8  # Sums over shards that are made at a time: more workers than these wait
    block: int = 2048  # Words, or documents, that are assigned at a time
    # Clusters of the words, and the clusters that a word may be of
    words: ClusterSettings = field(
        default=ClusterSettings(iterations=5, candidates=3, sharpness=6.0, min_share=0.02, most_shares=16)
    )
    # Different words of a document, on average, below which documents themselves are clustered: they are of few topics
    short: float = 64.0
    # Words of a cluster, on average, below which documents are clustered too: so few words are no topic. (With 7, on
    # KOS with 1000 topics, fits end lower by 0.025; with 11 to 17 as high.)
    least_words: int = 10
    # Clusters of short documents, and the clusters that any document begins in: `most_shares` of the longest ones
    documents: ClusterSettings = field(
        default=ClusterSettings(iterations=5, candidates=3, sharpness=12.0, min_share=0.03)
    )
    least_shares: int = 12  # Most clusters that a document begins in, however short
    words_each: int = 16  # Different words of a document, on average, for each cluster that documents may begin in
    # Steps of EM of the documents' shares: in the first, each word counts as much in its clusters wherever it is
    mixing_rounds: int = 2

    def of_documents(self, pairs: int, documents: int, words: int, topics: float) -> bool:
        """Return whether documents are clustered, and not their words, by the numbers of these and of the clusters."""
        return pairs < self.short * documents or words < self.least_words * topics

    def begun_by(self, pairs: int, documents: int) -> ClusterSettings:
        """Return the settings of the clusters that documents begin in.

        Short documents that begin in many topics tell less soon which are theirs.
        """
        most = max(round(pairs / max(documents, 1) / self.words_each), self.least_shares)
        return replace(self.documents, most_shares=min(most, self.documents.most_shares))


QUICK_CLUSTERS = QuickClusterSettings()


class Masses(NamedTuple):
    """Sums over documents."""

    masses: Vector  # Tokens of each word that count; float64 (words,)
    # Pairs of documents and different words, and documents that have any
    pairs: int
    documents: int


def masses_of(shard: AnyTrainingShard, words: StartWords) -> Masses:
    """Return the sums over a shard."""
    loaded = opened(shard)
    counts = np.minimum(loaded.counts, linear.MAX_COUNT)
    of_rows = np.bincount(loaded.position, weights=counts, minlength=loaded.words.size)
    number, masses = words.numbers(loaded), np.zeros(words.ids.size)
    masses[number[number >= 0]] = of_rows[number >= 0]
    return Masses(masses, loaded.position.size, int(np.count_nonzero(np.diff(loaded.offsets))))


def first_directions(masses: Vector, settings: QuickClusterSettings, stream: Stream) -> Floats:
    """Return random directions, shape (words, columns)."""
    columns = min(settings.dimensions, math.isqrt(masses.size)) + settings.oversampling
    drawn = stream.at(purpose="word directions").generator().random((masses.size, columns), dtype=np.float32)
    return drawn - np.float32(0.5)


def scaled(directions: Floats, masses: Vector) -> Floats:
    """Return C^-1/2 X; words without counted tokens have none."""
    root = np.where(masses > 0.0, 1.0 / np.sqrt(np.maximum(masses, 1.0)), 0.0).astype(np.float32)
    columns: Floats = directions * root[:, np.newaxis]
    return columns


def centred(products: Floats, masses: Vector) -> Floats:
    """Return columns without their component along the roots of the masses: the axis that all documents share."""
    root = np.sqrt(masses / max(float(masses.sum()), 1.0))[:, np.newaxis]
    along = (root * products).sum(axis=0)
    columns: Floats = (products - root * along).astype(np.float32)
    return columns


def add_products(shard: AnyTrainingShard, words: StartWords, directions: Floats, before: Floats | None) -> Floats:
    """Return N^T D^-1 N X summed over a shard and the earlier shards, shape (words, columns)."""
    loaded = opened(shard)
    products = np.zeros_like(directions) if before is None else np.array(before)
    kernels.add_products(document_pairs(loaded), words.numbers(loaded), directions, products)
    return products


def rotated(products: Floats, power: float, most: int, settings: QuickClusterSettings) -> Floats:
    """Return the principal axes of columns, the longest first."""
    axes, squares = principal_axes(products.astype(np.float64))
    size = min(int(np.count_nonzero(squares > settings.least * squares.max(initial=0.0))), most)
    scale = special.exp(power * special.log(squares[:size]))
    return product(products, np.ascontiguousarray((axes[:size] * scale[:, np.newaxis]).T)).astype(np.float32)


def unit_rows(coordinates: Floats) -> tuple[Floats, Vector]:
    """Return rows at unit length, and their squared lengths: the inertia by which a word departs from chance."""
    inertias: Vector = (coordinates.astype(np.float64) ** 2).sum(axis=1)
    lengths = np.sqrt(inertias)[:, np.newaxis]
    rows = np.divide(coordinates, lengths, out=np.zeros(coordinates.shape), where=lengths > 0.0)
    return rows.astype(np.float32), inertias


def mixtures_of(parts: list[DocumentProportions], masses: Vector) -> WordMixtures:
    """Return what clusters the words are of, from the shares of clusters in words.

    A word's share of a cluster, by the cluster's tokens, is in proportion to its probability in the cluster.
    """
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.offsets) for part in parts]))])
    clusters, shares = (np.concatenate([getattr(part, name) for part in parts]) for name in ("topics", "shares"))
    tokens = np.repeat(masses, np.diff(offsets)) * shares
    sizes = np.bincount(clusters, weights=tokens, minlength=parts[0].width)
    probability = shares / np.maximum(sizes[clusters], 1e-300)
    return WordMixtures(offsets.astype(np.int64), clusters, (probability * sizes.mean()).astype(np.float32))


def document_mixtures(
    shard: AnyTrainingShard, words: StartWords, mixtures: WordMixtures, clusters: int, settings: ClusterSettings
) -> DocumentProportions:
    """Return the shares of clusters of words in a shard's documents; documents with only rare words have none."""
    loaded = opened(shard)
    pairs, number = document_pairs(loaded), words.numbers(loaded)

    def block(low: int, count: int) -> Floats:
        mixed = np.empty((count, clusters), dtype=np.float32)
        kernels.mix_documents(pairs, number, mixtures, QUICK_CLUSTERS.mixing_rounds, low, mixed)
        return mixed

    return shares_above(block, loaded.documents, clusters, settings)
