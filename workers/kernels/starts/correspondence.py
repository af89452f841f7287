"""Correspondence analysis of words and documents, and documents as mixtures of clusters of words."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Float32Matrix,
    Float32Vector,
    Int32Vector,
    Int64Vector,
    OutFloat32Matrix,
)
from collapsium.workers.kernels.jit import kernel
from collapsium.workers.kernels.records import DocumentPairs
from collapsium.workers.kernels.starts.word_vectors import MAX_COUNT


class WordMixtures(NamedTuple):
    """Clusters of words: for each word, those that it may be of."""

    offsets: Int64Vector  # Index of each word's first entry; the last is the number of entries; (words + 1,)
    clusters: Int32Vector  # Cluster of each entry; (entries,)
    shares: Float32Vector  # In proportion to the word's probability in the cluster, positive; (entries,)


@kernel
def add_products(
    pairs: DocumentPairs, number: Int64Vector, directions: Float32Matrix, products: OutFloat32Matrix
) -> None:
    """Add N^T D^-1 N X, of the documents' counts N and their row sums D; twin: `naive.starts.add_products`.

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
                each = np.float32(count)
                for c in range(total.size):
                    total[c] += each * directions[word, c]
        if not tokens:
            continue
        scale = np.float32(1.0 / tokens)
        for c in range(total.size):
            total[c] *= scale
        for pair in range(offsets[document], offsets[document + 1]):
            word = number[position[pair]]
            if word >= 0:
                each = np.float32(min(counts[pair], MAX_COUNT))
                for c in range(total.size):
                    products[word, c] += each * total[c]


@kernel
def mix_documents(
    pairs: DocumentPairs, number: Int64Vector, words: WordMixtures, rounds: int, first: int, mixed: OutFloat32Matrix
) -> None:
    """Fill documents' shares of clusters by steps of EM from even shares; twin: `naive.starts.mix_documents`.

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
                    each = pairs.counts[pair] / weight
                    for entry in range(words.offsets[word], words.offsets[word + 1]):
                        cluster = words.clusters[entry]
                        total[cluster] += each * float(words.shares[entry]) * float(before[cluster])
            for cluster in range(total.size):
                before[cluster] = np.float32(total[cluster] / tokens) if tokens > 0.0 else np.float32(0.0)
