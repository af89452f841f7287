"""Words that starts use, and their vectors, from products of blocks of their mutual information.

The vectors are the largest directions of positive pointwise mutual information (Levy and Goldberg 2014), whose context
distribution is smoothed by a power of 0.75 (Levy, Goldberg and Dagan 2015), by randomised subspace iteration (Halko,
Martinsson and Tropp 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.shard import Shard
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.document_samples import DocumentSample
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.starts import word_vectors as kernels
from collapsium.workers.shard_loading import ShardOnDisk, open_shard

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


Ints = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
AnyTrainingShard = AnyShard | ShardOnDisk


KERNELS = (
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
    """Return a shard with the words of a sample's documents alone."""
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


def frequent_words(frequency: Ints, documents: int, most: int, least: int = 1) -> StartWords:
    """Return the words of most documents."""
    telling = np.flatnonzero((frequency >= least) & (frequency < documents))
    ranked = telling[np.argsort(-frequency[telling], kind="stable")[:most]]
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
