"""Initialisations that are computed from the corpus: pure tasks on shards.

Clusters of documents are found by spherical k-means of the vectors of their words. Mixtures have one topic per
document, alone or under a root that all documents share. Quick clusters are clusters of words, and documents are
mixtures of these. N has the counts of words in documents, D and C their sums by documents and by words. Words lie near
each other if they share documents beyond chance: their coordinates are the largest singular vectors of
D^-1/2 N C^-1/2 beside the trivial one, times their singular values (Greenacre 1984, chapter 4), by subspace iteration
(Halko, Martinsson and Tropp 2011). Words are clustered by their directions, and weigh by their inertia; a document's
shares follow from its words' shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.shard import Shard
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.readers.proportions_file import DocumentProportions, sparse_proportions
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels import initialisation as kernels
from collapsium.workers.kernels.initialisation import Mixture, WordMixtures
from collapsium.workers.shard_loading import DocumentSample, ShardOnDisk, open_shard

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
AnyTrainingShard = AnyShard | ShardOnDisk

SumsT = TypeVar("SumsT")


def add(parts: Sequence[SumsT]) -> SumsT:
    """Return the sum of arrays or numbers, or of named tuples of these field by field, in their order."""
    first = parts[0]
    if isinstance(first, tuple):
        return type(first)(*map(add, zip(*parts, strict=True)))
    total = first
    for part in parts[1:]:
        total = total + part  # type: ignore[operator]
    return total


VECTOR_KERNELS = (
    kernels.cooccurrences,
    kernels.positive_information,
    kernels.multiply,
    kernels.multiply_transposed,
    kernels.orthonormalise,
    kernels.products,
    kernels.eigenvectors,
)


@dataclass(frozen=True)
class VectorSettings:
    """Word vectors of a corpus."""

    # Words that have vectors: the most frequent ones. Their mutual information takes 4 bytes per pair of words.
    max_words: int = 5000
    block_words: int = 256  # Words of a block of co-occurrences
    dimensions: int = 200  # Numbers of a vector
    # Further directions that are iterated, so that the smallest of the others converge (Halko et al., section 4.2)
    oversampling: int = 20
    rounds: int = 4  # Pairs of products by which directions are iterated
    context_power: float = 0.75  # Power of the context distribution
    jacobi_sweeps: int = 12  # Rotations of each pair of directions; the off-diagonal falls quadratically


VECTORS = VectorSettings()  # The settings of the best start on 20 Newsgroups, AG News and SearchSnippets


class StartWords(NamedTuple):
    """The words that a start uses."""

    ids: Ints  # Their numbers in the vocabulary, ascending; int64 (words,)
    weight: Vector  # log(D / D_w): their inverse document frequencies; float64 (words,)

    def numbers(self, shard: Shard) -> Ints:
        """Return the number of each of a shard's words among these, -1 for none; shape (shard words,)."""
        place = np.searchsorted(self.ids, shard.words)
        place = np.minimum(place, max(self.ids.size - 1, 0))
        return np.where(self.ids[place] == shard.words, place, -1) if self.ids.size else np.full(shard.words.size, -1)


def opened(shard: AnyTrainingShard) -> Shard:
    """Return a shard of documents in memory."""
    loaded = open_shard(shard)
    if not isinstance(loaded, Shard):
        raise TypeError("expected documents of words")
    return loaded


def sampled(shard: AnyTrainingShard, sample: DocumentSample) -> Shard:
    """Return a shard with only the words of a sample's documents."""
    return sample.of(opened(shard))


class WordCounts(NamedTuple):
    """Counts of words over documents."""

    words: Ints  # Their ids; int64 (words,)
    documents: Ints  # Documents with each word; int64 (words,)
    corpus_documents: int  # Documents with or without words


def word_counts(shard: AnyTrainingShard) -> WordCounts:
    """Return the counts of a shard's words."""
    loaded = opened(shard)
    frequency = np.bincount(loaded.position, minlength=loaded.words.size).astype(np.int64)
    return WordCounts(loaded.words.astype(np.int64), frequency, loaded.documents)


def frequent_words(frequency: Ints, documents: int, max_words: int, min_documents: int = 1) -> StartWords:
    """Return the words of most documents."""
    telling = np.flatnonzero((frequency >= min_documents) & (frequency < documents))
    ranked = telling[np.argsort(-frequency[telling], kind="stable")[:max_words]]
    ids = np.sort(ranked)
    return StartWords(ids, special.log(documents / np.maximum(frequency[ids], 1)))


def add_cooccurrences(
    shard: AnyTrainingShard, words: StartWords, bounds: tuple[int, int], before: Matrix | None
) -> Matrix:
    """Return the co-occurrences of a block of words with all words, after adding a shard's."""
    loaded, low, high = opened(shard), *bounds
    together = np.zeros((high - low, words.ids.size)) if before is None else np.array(before)
    kernels.cooccurrences(document_pairs(loaded), words.numbers(loaded), low, together)
    return together


def row_sums(together: Matrix) -> Vector:
    """Return the sum of each row."""
    sums: Vector = together.sum(axis=1)
    return sums


def context_shares(sums: Vector) -> Vector:
    """Return the smoothed context distribution from the sums of co-occurrences, shape (words,)."""
    powers: Vector = np.where(
        sums > 0.0, special.exp(VECTORS.context_power * special.log(np.maximum(sums, 1e-300))), 0.0
    )
    return powers / max(float(powers.sum()), 1e-300)


def information(together: Matrix, sums: Vector, context: Vector) -> Floats:
    """Return the positive pointwise mutual information of a block of words, shape (block, words)."""
    result = np.empty(together.shape, dtype=np.float32)
    kernels.positive_information(np.ascontiguousarray(together), sums, context, result)
    return result


def product(block: Floats, vectors: Matrix) -> Matrix:
    """Return the product of a block and vectors, shape (block, columns)."""
    result = np.empty((block.shape[0], vectors.shape[1]))
    kernels.multiply(block, vectors, result)
    return result


def transposed_product(block: Floats, vectors: Matrix) -> Matrix:
    """Return the product of a transposed block and vectors, shape (words, columns)."""
    result = np.empty((block.shape[1], vectors.shape[1]))
    kernels.multiply_transposed(block, vectors, result)
    return result


def first_directions(words: int, settings: VectorSettings, stream: Stream) -> Matrix:
    """Return random vectors from which the largest directions are iterated, shape (words, columns)."""
    columns = min(settings.dimensions + settings.oversampling, words)
    return stream.at(purpose="word vectors").generator().random((words, columns)) - 0.5


def orthonormal(vectors: Matrix) -> Matrix:
    """Return vectors whose columns are orthonormal and span the same space."""
    rows = np.ascontiguousarray(vectors.T)
    kernels.orthonormalise(rows)
    return np.ascontiguousarray(rows.T)


def word_vectors(directions: Matrix, projected: Matrix, dimensions: int) -> Floats:
    """Return word vectors from the largest directions."""
    axes, squares = (part[:dimensions] for part in principal_axes(projected))
    scaled = np.ascontiguousarray((axes * np.sqrt(np.sqrt(squares))[:, np.newaxis]).T)
    return product(np.ascontiguousarray(directions, dtype=np.float32), scaled).astype(np.float32)


def principal_axes(vectors: Matrix) -> tuple[Matrix, Vector]:
    """Return the principal axes of columns, the longest first."""
    columns = vectors.shape[1]
    sums, axes = np.empty((columns, columns)), np.empty((columns, columns))
    kernels.products(np.ascontiguousarray(vectors.T), sums)
    kernels.eigenvectors(sums, axes, VECTORS.jacobi_sweeps)
    squares = np.maximum(np.diag(sums), 0.0)
    longest = np.argsort(-squares, kind="stable")
    return axes[longest], squares[longest]


CLUSTER_KERNELS = (kernels.document_vectors, kernels.choose_seeds, kernels.nearest, kernels.cluster_shares)


@dataclass(frozen=True)
class ClusterSettings:
    """Settings of the clusters of documents."""

    vectors: VectorSettings = VECTORS  # Vectors of the words
    sample: int = 20_000  # Documents among which seeds are chosen, at least; see `sample_per_cluster`
    sample_per_cluster: int = 20  # Documents of this sample for each cluster, at least
    iterations: int = 40  # Most assignments of all documents
    candidates: int = 1  # Vectors that are drawn for each seed, of which the best is chosen
    tolerance: float = 1e-5  # Relative gain of the mean cosine below which assignments end
    # s of a document's shares of the clusters, exp(s cos). Documents between clusters then begin in both, and topics
    # share fewer words than with the nearest cluster alone.
    sharpness: float = 60.0
    min_share: float = 0.01  # Smaller shares of the largest one are left out
    # Largest number of clusters that a document begins in: more take memory by the number of topics, and score no
    # better (64 as all of 200, 32 less by 0.004 on the papers of NIPS)
    max_shares: int = 64
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
    weights: Vector  # Their weights; float64 (vectors,)


def sample_vectors(vectors: Floats, weights: Vector, share: float, stream: Stream) -> Sampled:
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


def assign(vectors: Floats, weights: Vector, centroids: Floats) -> ClusterSums:
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
        crowded = np.flatnonzero(np.count_nonzero(shares >= least[:, None], axis=1) > settings.max_shares)
        if crowded.size:
            place = shares.shape[1] - settings.max_shares
            least[crowded] = np.partition(shares[crowded], place, axis=1)[:, place]
        owner, cluster = np.nonzero((shares > 0.0) & (shares >= least[:, None]))
        owners.append(owner + low)
        chosen.append(cluster)
        values.append(shares[owner, cluster])
    owner, cluster = np.concatenate(owners), np.concatenate(chosen)
    return sparse_proportions(owner, cluster, np.concatenate(values), documents, clusters)


QUICK_CLUSTER_KERNELS = (
    kernels.add_products,
    kernels.mix_documents,
    kernels.multiply,
    kernels.products,
    kernels.eigenvectors,
    kernels.choose_seeds,
    kernels.nearest,
    kernels.cluster_shares,
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
        default=ClusterSettings(iterations=5, candidates=3, sharpness=6.0, min_share=0.02, max_shares=16)
    )
    # Mean number of different words per document below which documents are clustered directly: they have few topics
    short: float = 64.0
    # Words of a cluster, on average, below which documents are clustered too: so few words are no topic. (With 7, on
    # KOS with 1000 topics, fits end lower by 0.025; with 11 to 17 as high.)
    least_words: int = 10
    # Settings of clusters of short documents; `max_shares` also limits the clusters that the longest documents begin in
    documents: ClusterSettings = field(
        default=ClusterSettings(iterations=5, candidates=3, sharpness=12.0, min_share=0.03)
    )
    least_shares: int = 12  # Most clusters that a document begins in, however short
    words_per_cluster: int = (
        16  # Different words of a document, on average, for each cluster that documents may begin in
    )
    # Steps of EM of the documents' shares: in the first, each word counts as much in its clusters wherever it is
    mixing_rounds: int = 2

    def of_documents(self, pairs: int, documents: int, words: int, topics: float) -> bool:
        """Return whether documents are clustered, and not their words, by the numbers of these and of the clusters."""
        return pairs < self.short * documents or words < self.least_words * topics

    def begun_by(self, pairs: int, documents: int) -> ClusterSettings:
        """Return the settings of the clusters that documents begin in.

        Short documents that begin in many topics tell less soon which are theirs.
        """
        max_shares = max(round(pairs / max(documents, 1) / self.words_per_cluster), self.least_shares)
        return replace(self.documents, max_shares=min(max_shares, self.documents.max_shares))


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
    counts = np.minimum(loaded.counts, kernels.MAX_COUNT)
    of_rows = np.bincount(loaded.position, weights=counts, minlength=loaded.words.size)
    number, masses = words.numbers(loaded), np.zeros(words.ids.size)
    masses[number[number >= 0]] = of_rows[number >= 0]
    return Masses(masses, loaded.position.size, int(np.count_nonzero(np.diff(loaded.offsets))))


def first_word_directions(masses: Vector, settings: QuickClusterSettings, stream: Stream) -> Floats:
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


def rotated(products: Floats, power: float, max_dimensions: int, settings: QuickClusterSettings) -> Floats:
    """Return the principal axes of columns, the longest first."""
    axes, squares = principal_axes(products.astype(np.float64))
    size = min(int(np.count_nonzero(squares > settings.least * squares.max(initial=0.0))), max_dimensions)
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


MIXTURE_KERNELS = (kernels.document_shares, kernels.count_words)


# Priors and annealing; chosen by purity and NMI on SearchSnippets and AG News.
MIXTURE_ROUNDS = 40  # Rounds over all documents
FIRST_POWER = 0.3  # Power of the likelihood in the first round
ANNEALED_SHARE = 0.6  # Share of the rounds after which the power is 1
TOPIC_PRIOR = 1.0  # Documents that each topic has more
WORD_PRIOR = 100.0  # Tokens that each topic has more, over all words
ROOT_PRIOR = 0.1  # Tokens that the root has more of each word
ROOT_SHARE = 0.5  # Share of a document's tokens that are the root's, in a tree
MIN_SHARE = 1e-3  # Proportions below are left out at the end


class MixtureSums(NamedTuple):
    """Sums over documents."""

    leaf: npt.NDArray[np.float64]  # Tokens of words in topics; float64 (words, topics)
    root: Vector  # Tokens of words in the root; float64 (words,)
    documents: Vector  # Expected documents of each topic; float64 (topics,)


def power_of(iteration: int) -> float:
    """Return the power of the likelihood in a round, 0 for the first."""
    grown = iteration / (MIXTURE_ROUNDS * ANNEALED_SHARE)
    return min(1.0, FIRST_POWER + (1.0 - FIRST_POWER) * grown)


def even_mixture(words: int, topics: int, root_share: float) -> Mixture:
    """Return a mixture of even topics, under which tokens are shared evenly."""
    share = 1.0 / max(words, 1)
    leaf = np.full((words, topics), share, dtype=np.float32)
    return Mixture(leaf, np.full(words, share), np.zeros(topics), root_share, 1.0)


def first_sums(
    shard: AnyTrainingShard, words: StartWords, topics: int, root_share: float, stream: Stream
) -> MixtureSums:
    """Return the sums of documents whose proportions are drawn."""
    documents = opened(shard).documents
    # Squares of exponential draws are nearly as sparse as Dirichlet draws of parameter 0.5.
    weights = special.log(1.0 - stream.generator().random((documents, topics))) ** 2 + 1e-12
    shares = weights / weights.sum(axis=1, keepdims=True)
    return _sums(shard, words, even_mixture(words.ids.size, topics, root_share), shares.astype(np.float32))


def next_sums(shard: AnyTrainingShard, words: StartWords, mixture: Mixture) -> MixtureSums:
    """Return the sums of documents under a mixture."""
    return _sums(shard, words, mixture, _shares(shard, words, mixture))


def next_mixture(sums: MixtureSums, root_share: float, power: float) -> Mixture:
    """Return the mixture that sums give."""
    words = max(sums.leaf.shape[0], 1)
    leaf = (sums.leaf + WORD_PRIOR / words) / (sums.leaf.sum(axis=0) + WORD_PRIOR)
    root = (sums.root + ROOT_PRIOR) / (sums.root.sum() + ROOT_PRIOR * words)
    log_share = special.log(sums.documents + TOPIC_PRIOR)
    return Mixture(leaf.astype(np.float32), root, log_share, root_share, power)


def topics_of(mixture: Mixture) -> int:
    """Return the number of topics."""
    return int(mixture.leaf.shape[1])


def mixture_proportions(shard: AnyTrainingShard, words: StartWords, mixture: Mixture) -> DocumentProportions:
    """Return the probabilities of the topics of a shard's documents; those without known words have none."""
    loaded, shares = opened(shard), _shares(shard, words, mixture)
    known = np.zeros(loaded.documents, dtype=bool)
    owners = np.repeat(np.arange(loaded.documents), np.diff(loaded.offsets))
    known[owners[words.numbers(loaded)[loaded.position] >= 0]] = True
    owner, topic = np.nonzero((shares >= MIN_SHARE) & known[:, np.newaxis])
    return sparse_proportions(owner, topic, shares[owner, topic], loaded.documents, shares.shape[1])


def _shares(shard: AnyTrainingShard, words: StartWords, mixture: Mixture) -> npt.NDArray[np.float32]:
    loaded = opened(shard)
    shares = np.empty((loaded.documents, mixture.leaf.shape[1]), dtype=np.float32)
    kernels.document_shares(document_pairs(loaded), words.numbers(loaded), mixture, shares)
    return shares


def _sums(shard: AnyTrainingShard, words: StartWords, mixture: Mixture, shares: npt.NDArray[np.float32]) -> MixtureSums:
    leaf, root = np.zeros(mixture.leaf.shape), np.zeros(mixture.leaf.shape[0])
    loaded = opened(shard)
    kernels.count_words(document_pairs(loaded), words.numbers(loaded), mixture, shares, leaf, root)
    return MixtureSums(leaf, root, shares.sum(axis=0, dtype=np.float64))
