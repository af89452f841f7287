"""Word vectors of a corpus: positive pointwise mutual information of words in documents, and its largest directions."""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Float32Matrix,
    Float64Matrix,
    Float64Vector,
    Int64Vector,
    OutFloat32Matrix,
    OutFloat64Matrix,
)
from collapsium.workers.kernels.jit import kernel
from collapsium.workers.kernels.records import DocumentPairs

MAX_COUNT = 3  # Count of a word in a document above which further tokens say nothing about its contexts
MIN_NORM = 1e-9  # Share of a vector's length below which what remains of it is rounding


@kernel
def cooccurrences(pairs: DocumentPairs, number: Int64Vector, low: int, together: OutFloat64Matrix) -> None:
    """Add the co-occurrences of a block of words with all words; twin: `naive.starts.cooccurrences`.

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
        each = 1.0 / max(total - 1, 1)
        for i in range(size):
            if words[i] < low or words[i] >= high:
                continue
            row, weight = words[i] - low, each * counted[i]
            for j in range(i):
                together[row, words[j]] += weight * counted[j]
            for j in range(i + 1, size):
                together[row, words[j]] += weight * counted[j]


@kernel
def positive_information(
    together: Float64Matrix, sums: Float64Vector, context: Float64Vector, information: OutFloat32Matrix
) -> None:
    """Fill max(0, log(C_wv / (r_w p_v))); twin: `naive.starts.positive_information`.

    Shapes: `together`, `information` (block, words); `sums` (block,); `context` (words,).
    """
    for word in range(together.shape[0]):
        for other in range(together.shape[1]):
            information[word, other] = 0.0
            if together[word, other] > 0.0:
                information[word, other] = max(0.0, math.log(together[word, other] / (sums[word] * context[other])))


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
