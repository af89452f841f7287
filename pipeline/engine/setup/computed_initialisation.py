"""Initial proportions that are computed from the corpus, by tasks on its shards, when the first sweep asks for them.

All sums are over shards in a fixed order, so that a start has the same bits for any number of workers.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, overload

import numpy as np

from collapsium.pipeline.engine.setup.initialisation import ShardProportions, StartSource
from collapsium.pipeline.engine.state import Shards
from collapsium.pipeline.executors.base import Executor, Future, T
from collapsium.storage.readers.proportions_file import DocumentProportions, sparse_proportions
from collapsium.workers import initialisation
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import QUICK_CLUSTERS_START
from collapsium.workers.initialisation import (
    CLUSTERS,
    QUICK_CLUSTERS,
    VECTORS,
    ClusterSettings,
    Floats,
    Ints,
    Matrix,
    StartWords,
    Vector,
    VectorSettings,
    WordCounts,
    add,
)
from collapsium.workers.kernels.initialisation import Mixture
from collapsium.workers.kernels.jit import AnyKernel

UNWEIGHTED = np.zeros(0)  # Weights of vectors that all weigh one
GROUP = 8  # Results that one task adds up
PROGRESS_SECONDS = 10.0  # Seconds between notices of progress


def start_kernels(kind: str) -> Sequence[AnyKernel]:
    """Return the kernels that a computed start calls."""
    return {
        QUICK_CLUSTERS_START: initialisation.QUICK_CLUSTER_KERNELS,
        "clusters": (*initialisation.VECTOR_KERNELS, *initialisation.CLUSTER_KERNELS),
    }.get(kind, initialisation.MIXTURE_KERNELS)


class _Progress:
    """Sends occasional notices of what is being computed, and none for short starts."""

    def __init__(self, kind: str, notice: Callable[[str], None]) -> None:
        self._kind, self._notice, self._last = kind, notice, time.perf_counter()

    def __call__(self, step: str, number: int, total: int) -> None:
        """Take note that a step begins."""
        if time.perf_counter() - self._last >= PROGRESS_SECONDS:
            self._last = time.perf_counter()
            self._notice(f"start {self._kind}: {step} {number} of at most {total}")


class _Use(NamedTuple):
    """The documents of a shard, how many of them have each topic, and how many have none."""

    documents: int
    topics: Ints
    unknown: int


def _use_of(part: DocumentProportions, topics: int) -> _Use:
    return _Use(part.documents, np.bincount(part.topics, minlength=topics), int((~part.known).sum()))


def _itself(value: T) -> T:
    return value


def _sent(executor: Executor, value: T) -> Future[T]:
    """Return a future of a large argument of many tasks, which a worker then holds once, and not once for each task."""
    return executor.submit(_itself, value)


class ComputedStart(Sequence[Future[ShardProportions]]):
    """The proportions of each shard's documents, computed when the first is asked for; they stay on the workers.

    A shard takes its proportions once and frees them after initialising. If its state is lost, and it has to initialise
    again, the proportions of all shards are computed again.
    """

    def __init__(
        self,
        source: StartSource,
        topics: int,
        shards: Shards,
        executor: Executor,
        stream: Stream,
        notice: Callable[[str], None],
    ) -> None:
        self._usual = source.usual
        self._kind, self._strength, self._topics = source.kind, source.strength, topics
        self._shards, self._executor = shards, executor
        self._stream, self._notice = stream.at(purpose=f"start {source.kind}"), notice
        self._proportions: list[Future[ShardProportions] | None] = [None] * len(shards)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of shards."""
        return len(self._shards)

    @overload
    def __getitem__(self, number: int) -> Future[ShardProportions]: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Future[ShardProportions]]: ...
    def __getitem__(self, number: int | slice) -> Future[ShardProportions] | Sequence[Future[ShardProportions]]:
        """Return the proportions of a shard's documents."""
        if isinstance(number, slice):
            return [self[place] for place in range(*number.indices(len(self)))]
        with self._lock:
            proportions = self._proportions[number]
            if proportions is None:
                self._compute()
                proportions = self._proportions[number]
            self._proportions[number] = None
        if proportions is None:
            raise IndexError(number)
        return proportions

    def _compute(self) -> None:
        """Compute the proportions of all shards."""
        began, submit = time.perf_counter(), self._executor.submit
        progress = _Progress(self._kind, self._notice)
        parts = _documents(self._kind, self._topics, self._shards, self._executor, self._stream, progress)
        uses = self._executor.collect([submit(_use_of, part, self._topics) for part in parts])
        self._proportions = [submit(ShardProportions, part, self._strength) for part in parts]
        self._report(uses, time.perf_counter() - began)

    def _report(self, uses: Sequence[_Use], seconds: float) -> None:
        """Send a notice of a start that was asked for, or took long."""
        if self._usual and seconds < PROGRESS_SECONDS:
            return
        documents = sum(use.documents for use in uses)
        used = int(np.count_nonzero(sum(use.topics for use in uses)))
        unknown = sum(use.unknown for use in uses)
        rest = f"; {unknown:,} documents of rare words alone begin at random" if unknown else ""
        self._notice(f"start {self._kind}: {documents:,} documents in {used} topics after {seconds:.1f} s{rest}")


def _documents(
    kind: str, topics: int, shards: Shards, executor: Executor, stream: Stream, progress: _Progress
) -> list[Future[DocumentProportions]]:
    """Return the proportions of the documents of each shard."""
    counts = executor.collect([executor.submit(initialisation.word_counts, shard) for shard in shards])
    quick = kind == QUICK_CLUSTERS_START
    words = (
        _start_words(counts, QUICK_CLUSTERS.max_words, QUICK_CLUSTERS.min_documents)
        if quick
        else _start_words(counts, VECTORS.max_words)
    )
    if not words.ids.size:
        # No word sets documents apart, so that they begin at random.
        return [executor.submit(_unknown, count.corpus_documents, topics) for count in counts]
    if quick:
        return _quick_clusters(executor, shards, words, topics, stream, progress)
    if kind == "clusters":
        word_vectors = _word_vectors(executor, shards, words, CLUSTERS.vectors, stream, progress)
        return _clusters_of(executor, shards, words, word_vectors, topics, CLUSTERS, stream, progress)
    root_share = initialisation.ROOT_SHARE if kind == "tree" else 0.0
    return _mixture(executor, shards, words, topics, root_share, stream, progress)


def _unknown(documents: int, topics: int) -> DocumentProportions:
    none = np.zeros(0, dtype=np.int64)
    return sparse_proportions(none, none, np.zeros(0), documents, topics)


def _start_words(counts: Sequence[WordCounts], max_words: int, min_documents: int = 1) -> StartWords:
    """Return the most frequent words, each of some documents at least, from the counts of the shards."""
    size = 1 + max((int(count.words.max(initial=-1)) for count in counts), default=-1)
    frequency = np.zeros(size, dtype=np.int64)
    for count in counts:
        frequency[count.words] += count.documents
    return initialisation.frequent_words(
        frequency, sum(count.corpus_documents for count in counts), max_words, min_documents
    )


def _summed(executor: Executor, parts: Sequence[Future[T]]) -> Future[T]:
    """Return the sum of results in their order, a few at a time."""
    while len(parts) > 1:
        groups = [list(parts[low : low + GROUP]) for low in range(0, len(parts), GROUP)]
        parts = [executor.submit(add, group) for group in groups]
    return parts[0]


def _word_vectors(
    executor: Executor,
    shards: Shards,
    words: StartWords,
    settings: VectorSettings,
    stream: Stream,
    progress: _Progress,
) -> Floats:
    """Return the vectors of the words, by products of blocks of their mutual information, which stay on the workers."""
    size, sent = words.ids.size, _sent(executor, words)
    bounds = [(low, min(low + settings.block_words, size)) for low in range(0, size, settings.block_words)]
    blocks: list[Future[Matrix] | None] = [None] * len(bounds)
    for shard in shards:
        # A chain for each block, so that few blocks are in memory at a time.
        blocks = [
            executor.submit(initialisation.add_cooccurrences, shard, sent, bound, block)
            for bound, block in zip(bounds, blocks, strict=True)
        ]
    known = _information(executor, blocks)
    # The co-occurrences are no longer needed; they take twice the memory.
    del blocks
    directions = initialisation.first_directions(size, settings, stream)
    for number in range(settings.rounds):
        progress("directions of words, round", number + 1, settings.rounds)
        directions = initialisation.orthonormal(_product(executor, known, directions))
        directions = initialisation.orthonormal(_transposed(executor, known, directions, bounds))
    directions = initialisation.orthonormal(_product(executor, known, directions))
    return initialisation.word_vectors(
        directions, _transposed(executor, known, directions, bounds), settings.dimensions
    )


def _information(executor: Executor, blocks: Sequence[Future[Matrix] | None]) -> list[Future[Floats]]:
    """Return the mutual information of the words of each block, from their co-occurrences."""
    counted = [block for block in blocks if block is not None]
    sums = executor.collect([executor.submit(initialisation.row_sums, block) for block in counted])
    context = initialisation.context_shares(np.concatenate(sums))
    return [executor.submit(initialisation.information, *pair, context) for pair in zip(counted, sums, strict=True)]


def _product(executor: Executor, blocks: Sequence[Future[Floats]], directions: Matrix) -> Matrix:
    sent = _sent(executor, directions)
    parts = executor.collect([executor.submit(initialisation.product, block, sent) for block in blocks])
    return np.concatenate(parts)


def _transposed(
    executor: Executor, blocks: Sequence[Future[Floats]], directions: Matrix, bounds: Sequence[tuple[int, int]]
) -> Matrix:
    parts = [
        executor.submit(initialisation.transposed_product, block, directions[low:high])
        for block, (low, high) in zip(blocks, bounds, strict=True)
    ]
    return executor.collect([_summed(executor, parts)])[0]


def _clusters_of(
    executor: Executor,
    shards: Shards,
    words: StartWords,
    word_vectors: Floats,
    topics: int,
    settings: ClusterSettings,
    stream: Stream,
    progress: _Progress,
) -> list[Future[DocumentProportions]]:
    """Return the spherical clusters of documents as proportions."""
    sent = _sent(executor, words), _sent(executor, word_vectors)
    documents = [executor.submit(initialisation.document_vectors, shard, *sent) for shard in shards]
    centroids = _centroids(executor, documents, [UNWEIGHTED] * len(documents), topics, settings, stream, progress)
    return [executor.submit(initialisation.cluster_proportions, part, centroids, settings) for part in documents]


def _centroids(
    executor: Executor,
    parts: Sequence[Future[Floats]],
    weights: Sequence[Vector],
    topics: int,
    settings: ClusterSettings,
    stream: Stream,
    progress: _Progress,
) -> Future[Floats]:
    """Return the centroids of the spherical clusters of vectors."""
    total = sum(executor.collect([executor.submit(len, part) for part in parts]))
    share = min(1.0, max(settings.sample, settings.sample_per_cluster * topics) / max(total, 1))
    samples = [
        executor.submit(
            initialisation.sample_vectors, part, weight, share, stream.at(purpose="sample of vectors", place=number)
        )
        for number, (part, weight) in enumerate(zip(parts, weights, strict=True))
    ]
    centroids = executor.submit(initialisation.first_centroids, samples, topics, settings.candidates, stream)
    before = -math.inf
    for number in range(settings.iterations):
        progress("clusters, round", number + 1, settings.iterations)
        sums = _summed(
            executor,
            [executor.submit(initialisation.assign, *part, centroids) for part in zip(parts, weights, strict=True)],
        )
        cosine = executor.collect([executor.submit(initialisation.cosine, sums)])[0]
        if cosine <= before + settings.tolerance * abs(cosine):
            break
        centroids, before = executor.submit(initialisation.new_centroids, sums, centroids), cosine
    return centroids


def _quick_clusters(
    executor: Executor, shards: Shards, words: StartWords, topics: int, stream: Stream, progress: _Progress
) -> list[Future[DocumentProportions]]:
    """Return clusters of documents, or mixtures of clusters of words, as proportions."""
    settings, sent = QUICK_CLUSTERS, _sent(executor, words)
    masses, pairs, documents = executor.collect(
        [_summed(executor, [executor.submit(initialisation.masses_of, shard, sent) for shard in shards])]
    )[0]
    coordinates = _coordinates(executor, shards, sent, masses, stream, progress)
    begun = settings.begun_by(pairs, documents)
    if settings.of_documents(pairs, documents, words.ids.size, topics):
        return _clusters_of(executor, shards, words, coordinates, topics, begun, stream, progress)
    coordinates, inertias = initialisation.unit_rows(coordinates)
    lows = range(0, len(coordinates), settings.block)
    blocks = [executor.submit(np.array, coordinates[low : low + settings.block]) for low in lows]
    weights = [inertias[low : low + settings.block] for low in lows]
    centroids = _centroids(executor, blocks, weights, topics, settings.words, stream, progress)
    of_words = executor.collect(
        [executor.submit(initialisation.cluster_proportions, block, centroids, settings.words) for block in blocks]
    )
    mixing = _sent(executor, initialisation.mixtures_of(of_words, masses))
    return [executor.submit(initialisation.document_mixtures, shard, sent, mixing, topics, begun) for shard in shards]


def _coordinates(
    executor: Executor, shards: Shards, words: Future[StartWords], masses: Vector, stream: Stream, progress: _Progress
) -> Floats:
    """Return the coordinates of words by correspondence analysis, shape (words, coordinates)."""
    settings = QUICK_CLUSTERS
    sampled = shards[:: max(int(float(masses.sum()) / settings.sample_tokens), 1)]
    directions = initialisation.first_word_directions(masses, settings, stream)
    dimensions = directions.shape[1]
    for number in range(settings.rounds):
        progress("directions of words, round", number + 1, settings.rounds)
        sums: list[Future[Floats] | None] = [None] * min(len(sampled), settings.chains)
        scaled = _sent(executor, initialisation.scaled(directions, masses))
        for place, shard in enumerate(sampled):
            chain = place % len(sums)
            sums[chain] = executor.submit(initialisation.add_products, shard, words, scaled, sums[chain])
        products = executor.collect([_summed(executor, [shard_sums for shard_sums in sums if shard_sums is not None])])[
            0
        ]
        products = initialisation.centred(initialisation.scaled(products, masses), masses)
        left = settings.rounds - 1 - number
        # Before that, directions still differ little in length, and need no rotation.
        if left == 1:
            products = initialisation.rotated(products, -0.5, dimensions, settings)
        elif not left:
            products = initialisation.rotated(products, -0.25, dimensions - settings.oversampling, settings)
        directions = products
    return directions


def _mixture(
    executor: Executor,
    shards: Shards,
    words: StartWords,
    topics: int,
    root_share: float,
    stream: Stream,
    progress: _Progress,
) -> list[Future[DocumentProportions]]:
    """Return the topics of documents in a mixture of one topic per document, under a root if it has a share."""
    sent = _sent(executor, words)
    mixture: Future[Mixture] | None = None
    for iteration in range(initialisation.MIXTURE_ROUNDS):
        progress("topics of the mixture, round", iteration + 1, initialisation.MIXTURE_ROUNDS)
        sums = [
            executor.submit(initialisation.first_sums, shard, sent, topics, root_share, stream.at(place=number))
            if mixture is None
            else executor.submit(initialisation.next_sums, shard, sent, mixture)
            for number, shard in enumerate(shards)
        ]
        total, power = _summed(executor, sums), initialisation.power_of(iteration)
        mixture = executor.submit(initialisation.next_mixture, total, root_share, power)
        # Otherwise tasks of all rounds would be submitted at once.
        executor.collect([executor.submit(initialisation.topics_of, mixture)])
    return [executor.submit(initialisation.mixture_proportions, shard, sent, mixture) for shard in shards]
