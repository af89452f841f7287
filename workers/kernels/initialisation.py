"""Kernels of initialisation: word vectors, clusters of documents, mixtures of one topic, correspondence analysis.

Mixtures have or lack a root that all documents share; documents are mixtures of clusters of words too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.jit import (
    DocumentPairs,
    Float32Matrix,
    Float32Vector,
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    OutFloat32Matrix,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt64Vector,
    helper,
    kernel,
)

MAX_COUNT = 3  # Count of a word in a document above which further tokens say nothing about its contexts
MIN_NORM = 1e-9  # Share of a vector's length below which what remains of it is rounding


@kernel
def cooccurrences(pairs: DocumentPairs, number: Int64Vector, low: int, together: OutFloat64Matrix) -> None:
    """Add the co-occurrences of a block of words with all words; twin: `naive.initialisation.cooccurrences`.

    A document of n tokens has sum_w min(c_w, 3) = m of them counted; a pair of different words adds
    min(c_v, 3) min(c_w, 3) / (m - 1), so that each token has one companion.

    Shapes: `number` (rows,); `together` (block, words).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    high, longest = low + together.shape[0], 0
    for document in range(offsets.size - 1):
        longest = max(longest, offsets[document + 1] - offsets[document])
    words, counted = np.empty(longest, dtype=np.int64), np.empty(longest)
    for document in range(offsets.size - 1):
        total, size = 0, 0
        for pair in range(offsets[document], offsets[document + 1]):
            count = min(counts[pair], MAX_COUNT)
            total += count
            if number[position[pair]] >= 0:
                words[size], counted[size] = number[position[pair]], count
                size += 1
        factor = 1.0 / max(total - 1, 1)
        for i in range(size):
            if words[i] < low or words[i] >= high:
                continue
            row, weight = words[i] - low, factor * counted[i]
            for j in range(i):
                together[row, words[j]] += weight * counted[j]
            for j in range(i + 1, size):
                together[row, words[j]] += weight * counted[j]


@kernel
def positive_information(
    together: Float64Matrix, sums: Float64Vector, context: Float64Vector, information: OutFloat32Matrix
) -> None:
    """Fill max(0, log(C_wv / (r_w p_v))); twin: `naive.initialisation.positive_information`.

    Shapes: `together`, `information` (block, words); `sums` (block,); `context` (words,).
    """
    for word in range(together.shape[0]):
        for column in range(together.shape[1]):
            information[word, column] = 0.0
            if together[word, column] > 0.0:
                information[word, column] = max(0.0, math.log(together[word, column] / (sums[word] * context[column])))


@kernel
def multiply(matrix: Float32Matrix, vectors: Float64Matrix, product: OutFloat64Matrix) -> None:
    """Fill the product of a sparse matrix, shape (rows, words), with vectors, shape (words, columns)."""
    for row in range(matrix.shape[0]):
        for column in range(vectors.shape[1]):
            product[row, column] = 0.0
        for word in range(matrix.shape[1]):
            value = float(matrix[row, word])
            if value != 0.0:
                for column in range(vectors.shape[1]):
                    product[row, column] += value * vectors[word, column]


@kernel
def multiply_transposed(matrix: Float32Matrix, vectors: Float64Matrix, product: OutFloat64Matrix) -> None:
    """Fill the product of a transposed sparse matrix, shape (rows, words), with vectors, shape (rows, columns)."""
    for word in range(product.shape[0]):
        for column in range(product.shape[1]):
            product[word, column] = 0.0
    for row in range(matrix.shape[0]):
        for word in range(matrix.shape[1]):
            value = float(matrix[row, word])
            if value != 0.0:
                for column in range(vectors.shape[1]):
                    product[word, column] += value * vectors[row, column]


@kernel
def orthonormalise(vectors: OutFloat64Matrix) -> None:
    """Make the rows of a matrix orthonormal by Gram and Schmidt, twice; rows that depend on others become zero."""
    rows, columns = vectors.shape
    for i in range(rows):
        first = 0.0
        for c in range(columns):
            first += vectors[i, c] * vectors[i, c]
        for _ in range(2):
            for j in range(i):
                along = 0.0
                for c in range(columns):
                    along += vectors[i, c] * vectors[j, c]
                for c in range(columns):
                    vectors[i, c] -= along * vectors[j, c]
        left = 0.0
        for c in range(columns):
            left += vectors[i, c] * vectors[i, c]
        scale = 1.0 / math.sqrt(left) if left > first * MIN_NORM * MIN_NORM and left > 0.0 else 0.0
        for c in range(columns):
            vectors[i, c] *= scale


@kernel
def products(vectors: Float64Matrix, sums: OutFloat64Matrix) -> None:
    """Fill the scalar products of the rows of a matrix, shape (rows, rows)."""
    for i in range(vectors.shape[0]):
        for j in range(i + 1):
            total = 0.0
            for c in range(vectors.shape[1]):
                total += vectors[i, c] * vectors[j, c]
            sums[i, j] = total
            sums[j, i] = total


@kernel
def eigenvectors(matrix: OutFloat64Matrix, vectors: OutFloat64Matrix, sweeps: int) -> None:
    """Turn a symmetric matrix into a diagonal one by Jacobi's rotations.

    Shapes: `matrix`, `vectors` (n, n).
    """
    n = matrix.shape[0]
    for i in range(n):
        for j in range(n):
            vectors[i, j] = 1.0 if i == j else 0.0
    for _ in range(sweeps):
        for i in range(n - 1):
            for j in range(i + 1, n):
                if abs(matrix[i, j]) <= 1e-15 * math.sqrt(abs(matrix[i, i] * matrix[j, j])):
                    continue
                ratio = (matrix[j, j] - matrix[i, i]) / (2.0 * matrix[i, j])
                tangent = 1.0 / (abs(ratio) + math.sqrt(ratio * ratio + 1.0))
                tangent = tangent if ratio >= 0.0 else -tangent
                cosine = 1.0 / math.sqrt(tangent * tangent + 1.0)
                sine = tangent * cosine
                for k in range(n):
                    a, b = matrix[k, i], matrix[k, j]
                    matrix[k, i], matrix[k, j] = cosine * a - sine * b, sine * a + cosine * b
                for k in range(n):
                    a, b = matrix[i, k], matrix[j, k]
                    matrix[i, k], matrix[j, k] = cosine * a - sine * b, sine * a + cosine * b
                    a, b = vectors[i, k], vectors[j, k]
                    vectors[i, k], vectors[j, k] = cosine * a - sine * b, sine * a + cosine * b


@kernel
def document_vectors(
    pairs: DocumentPairs, weight: Float64Vector, word_vectors: Float32Matrix, vectors: OutFloat32Matrix
) -> None:
    """Fill sum_w log(1 + c_w) u_w e_w of each document, at unit length; twin: `naive.initialisation.document_vectors`.

    Shapes: `weight` (rows,); `word_vectors` (rows, dimensions); `vectors` (documents, dimensions).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    total = np.empty(vectors.shape[1])
    for document in range(offsets.size - 1):
        total[:] = 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            row = position[pair]
            factor = math.log1p(float(counts[pair])) * weight[row]
            for c in range(total.size):
                total[c] += factor * word_vectors[row, c]
        square = 0.0
        for c in range(total.size):
            square += total[c] * total[c]
        scale = 1.0 / math.sqrt(square) if square > 0.0 else 0.0
        for c in range(total.size):
            vectors[document, c] = np.float32(total[c] * scale)


@helper
def cosine(vectors: Float32Matrix, row: int, references: Float32Matrix, reference: int) -> np.float32:
    """Return the product of a vector and one of others, added up in single precision."""
    total = np.float32(0.0)
    for c in range(vectors.shape[1]):
        total += vectors[row, c] * references[reference, c]
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
    """Choose seeds as k-means++ does (Arthur and Vassilvitskii 2007); twin: `naive.initialisation.choose_seeds`.

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
        for row in range(size):
            distance[row] = best[row]


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
    """Label each vector with its nearest centroid, and add it to its sum; twin: `naive.initialisation.nearest`.

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
    """Fill exp(s (c_dk - max_j c_dj)), c_dk the cosine with a centroid; twin: `naive.initialisation.cluster_shares`.

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


class Mixture(NamedTuple):
    """Topics of the words that count, and their shares."""

    leaf: Float32Matrix  # phi_wk; (words, topics)
    root: Float64Vector  # Probability of each word in the root; (words,)
    log_share: Float64Vector  # log of each topic's number of documents, up to a constant; (topics,)
    root_share: float  # Share of a document's tokens that are the root's; 0 without a root
    power: float  # Power of the likelihood, up to 1


@kernel
def document_shares(pairs: DocumentPairs, number: Int64Vector, mixture: Mixture, shares: OutFloat32Matrix) -> None:
    """Fill the probability of each document's topic; twin: `naive.initialisation.document_shares`.

    r_dk ~ (m_k prod over pairs of ((1 - s) phi_wk + s root_w)^c)^power.

    Shapes: `number` (rows,); `shares` (documents, topics).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    leaf, topics = mixture.leaf, mixture.leaf.shape[1]
    score, log_word = np.empty(topics), np.empty(leaf.shape)
    for word in range(leaf.shape[0]):
        for k in range(topics):
            word_share = (1.0 - mixture.root_share) * leaf[word, k] + mixture.root_share * mixture.root[word]
            log_word[word, k] = math.log(word_share)
    for document in range(offsets.size - 1):
        for k in range(topics):
            score[k] = mixture.log_share[k]
        for pair in range(offsets[document], offsets[document + 1]):
            word = number[position[pair]]
            if word >= 0:
                count = float(counts[pair])
                for k in range(topics):
                    score[k] += count * log_word[word, k]
        largest = score[0]
        for k in range(topics):
            largest = max(largest, score[k])
        total = 0.0
        for k in range(topics):
            score[k] = math.exp((score[k] - largest) * mixture.power)
            total += score[k]
        for k in range(topics):
            shares[document, k] = np.float32(score[k] / total)


@kernel
def count_words(
    pairs: DocumentPairs,
    number: Int64Vector,
    mixture: Mixture,
    shares: Float32Matrix,
    leaf: OutFloat64Matrix,
    root: OutFloat64Vector,
) -> None:
    """Add the tokens of words in topics and in the root; twin: `naive.initialisation.count_words`.

    Shapes: `number` (rows,); `shares` (documents, topics); `leaf` (words, topics); `root` (words,).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    topics = shares.shape[1]
    for document in range(offsets.size - 1):
        for pair in range(offsets[document], offsets[document + 1]):
            word = number[position[pair]]
            if word < 0:
                continue
            count = float(counts[pair])
            known = 0.0
            for k in range(topics):
                known += shares[document, k] * mixture.leaf[word, k]
            from_leaf, from_root = (1.0 - mixture.root_share) * known, mixture.root_share * mixture.root[word]
            held = count * from_leaf / (from_leaf + from_root) if from_leaf + from_root > 0.0 else 0.0
            root[word] += count - held
            for k in range(topics):
                leaf[word, k] += held * shares[document, k]


class WordMixtures(NamedTuple):
    """Clusters of words: for each word, those that it may be of."""

    offsets: Int64Vector  # Index of each word's first entry; the last is the number of entries; (words + 1,)
    clusters: Int32Vector  # Cluster of each entry; (entries,)
    shares: Float32Vector  # In proportion to the word's probability in the cluster, positive; (entries,)


@kernel
def add_products(
    pairs: DocumentPairs, number: Int64Vector, directions: Float32Matrix, products: OutFloat32Matrix
) -> None:
    """Add N^T D^-1 N X, of the documents' counts N and their row sums D; twin: `naive.initialisation.add_products`.

    Shapes: `number` (rows,); `directions`, `products` (words, columns).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    total = np.empty(directions.shape[1], dtype=np.float32)
    for document in range(offsets.size - 1):
        total[:] = np.float32(0.0)
        tokens = 0
        for pair in range(offsets[document], offsets[document + 1]):
            word = number[position[pair]]
            if word >= 0:
                count = min(counts[pair], MAX_COUNT)
                tokens += count
                factor = np.float32(count)
                for c in range(total.size):
                    total[c] += factor * directions[word, c]
        if not tokens:
            continue
        scale = np.float32(1.0 / tokens)
        for c in range(total.size):
            total[c] *= scale
        for pair in range(offsets[document], offsets[document + 1]):
            word = number[position[pair]]
            if word >= 0:
                factor = np.float32(min(counts[pair], MAX_COUNT))
                for c in range(total.size):
                    products[word, c] += factor * total[c]


@kernel
def mix_documents(
    pairs: DocumentPairs, number: Int64Vector, words: WordMixtures, rounds: int, first: int, mixed: OutFloat32Matrix
) -> None:
    """Fill documents' shares of clusters by steps of EM from even shares; twin: `naive.initialisation.mix_documents`.

    Shapes: `number` (rows,); `mixed` (documents of the block, clusters).
    """
    total = np.empty(mixed.shape[1])
    for row in range(mixed.shape[0]):
        before = mixed[row]
        before[:] = np.float32(1.0)
        for _ in range(rounds):
            total[:] = 0.0
            tokens = 0.0
            for pair in range(pairs.offsets[first + row], pairs.offsets[first + row + 1]):
                word = number[pairs.position[pair]]
                if word < 0:
                    continue
                weight = 0.0
                for entry in range(words.offsets[word], words.offsets[word + 1]):
                    weight += float(words.shares[entry]) * float(before[words.clusters[entry]])
                if weight > 0.0:
                    tokens += pairs.counts[pair]
                    factor = pairs.counts[pair] / weight
                    for entry in range(words.offsets[word], words.offsets[word + 1]):
                        cluster = words.clusters[entry]
                        total[cluster] += factor * float(words.shares[entry]) * float(before[cluster])
            for cluster in range(total.size):
                before[cluster] = np.float32(total[cluster] / tokens) if tokens > 0.0 else np.float32(0.0)
