"""Memory of a start that is computed or read, before the first sweep."""

from __future__ import annotations

import math
from dataclasses import dataclass

from collapsium.pipeline.families.base import FILE_START, QUICK_CLUSTERS_START
from collapsium.workers.starts.clusters import CLUSTERS, ClusterSettings
from collapsium.workers.starts.quick_clusters import QUICK_CLUSTERS


@dataclass(frozen=True)
class StartCosts:
    """Bytes of arrays of a start, as they are allocated."""

    # A pair of words of the vectors: its co-occurrences in double precision, and their information in single
    word_pair: int = 12
    direction: int = 5 * 8  # A number of an iterated direction of word vectors, with products and copies
    # A number of the products of directions, of a chain of shards, and of the copy that the next shard adds to
    summed_direction: int = 2 * 4
    block_share: int = 3 * 4  # A document's share of a cluster of words, and what is kept of it
    coordinate: int = 2 * 4  # A number of a document's vector, and its copy while a sample is drawn
    word_share: int = 24  # A word in a topic of a mixture: its sums, probability and logarithm
    drawn_share: int = 20  # A topic of a document whose proportions are drawn or computed
    begun_share: int = 24  # A topic of a document, and of a word, while its shard's first state is made
    even_share: int = 16  # A topic of a document, where active topics are selected, and topics are even over the words
    held_share: int = 8  # A topic of a document, and its proportion, from the end of a start to the first sweep


COSTS = StartCosts()


@dataclass(frozen=True)
class StartSizes:
    """Sizes on which the memory of a start depends."""

    # Documents, their pairs and words of the corpus, and documents and words of its largest shard
    documents: int
    pairs: int
    shard_documents: int
    vocabulary: int
    shard_words: int
    topics: float  # Number of topics
    # Worker processes, and tasks that run in one at a time
    processes: int
    tasks: int


@dataclass(frozen=True)
class StartBytes:
    """Bytes of a start, by the time when they are taken."""

    computed: float = 0.0  # In a worker process, before the first sweep
    begun: float = 0.0  # In a worker process, in the first sweep, beside what all sweeps take
    held: float = 0.0  # In all worker processes together, from the end of the start to the first sweep


def start_bytes(kind: str, sizes: StartSizes) -> StartBytes:
    """Return the bytes of a start."""
    if not kind:
        return StartBytes()
    cells = sizes.tasks * sizes.topics
    if kind == QUICK_CLUSTERS_START:
        begun = cells * COSTS.even_share * sizes.shard_documents
        settings = QUICK_CLUSTERS.begun_by(sizes.pairs, sizes.documents)
        return StartBytes(_quick_clusters(sizes), begun, _held(sizes, settings))
    begun = cells * COSTS.begun_share * (sizes.shard_documents + sizes.shard_words)
    if kind == FILE_START:
        return StartBytes(0.0, begun)
    vectors = CLUSTERS.vectors
    words = min(sizes.vocabulary, vectors.max_words)
    if kind != "clusters":
        each = COSTS.word_share * words + COSTS.drawn_share * sizes.shard_documents
        return StartBytes(sizes.tasks * each * sizes.topics, begun)
    spread = COSTS.word_pair * words**2 + COSTS.coordinate * vectors.dimensions * sizes.documents
    directions = COSTS.direction * words * (vectors.dimensions + vectors.oversampling)
    return StartBytes(spread / sizes.processes + directions, begun, _held(sizes, CLUSTERS))


def _quick_clusters(sizes: StartSizes) -> float:
    """Return the bytes of words' coordinates, of documents' if these are clustered, and of the shares of a block."""
    words = min(sizes.vocabulary, QUICK_CLUSTERS.max_words)
    dimensions = min(QUICK_CLUSTERS.dimensions, math.isqrt(words))
    numbers = words * (dimensions + QUICK_CLUSTERS.oversampling)
    clustered = QUICK_CLUSTERS.of_documents(sizes.pairs, sizes.documents, words, sizes.topics) * sizes.documents
    vectors = COSTS.coordinate * dimensions * clustered
    sums = COSTS.summed_direction * QUICK_CLUSTERS.chains * numbers
    block = min(QUICK_CLUSTERS.documents.block, sizes.shard_documents)
    return (
        (sums + vectors) / sizes.processes
        + COSTS.direction * numbers
        + sizes.tasks * COSTS.block_share * block * sizes.topics
    )


def _held(sizes: StartSizes, settings: ClusterSettings) -> float:
    """Return the bytes of the documents' proportions."""
    return COSTS.held_share * min(sizes.topics, settings.most_shares) * sizes.documents
