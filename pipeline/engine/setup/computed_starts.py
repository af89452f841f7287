"""Starts that are computed from the corpus, by tasks on its shards, when the first sweep asks for them.

All sums are over shards in a fixed order, so that a start has the same bits for any number of workers.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar, overload

import numpy as np

from collapsium.pipeline.engine.setup.starts import ShardProportions, StartSource
from collapsium.pipeline.engine.state import Shards
from collapsium.pipeline.executors.base import Executor, Future, SerialExecutor
from collapsium.pipeline.families.base import QUICK_CLUSTERS_START
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.readers.proportions import DocumentProportions, sparse_proportions
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.document_samples import DocumentSample
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.starts.mixture import Mixture
from collapsium.workers.starts import clusters, mixtures
from collapsium.workers.starts import words as vectors
from collapsium.workers.starts.clusters import CLUSTERS, QUICK_CLUSTERS, ClusterSettings
from collapsium.workers.starts.sums import add
from collapsium.workers.starts.words import VECTORS, Floats, Matrix, StartWords, VectorSettings, WordCounts

ResultT = TypeVar("ResultT")
CLUSTER_SETTINGS = {"clusters": CLUSTERS, QUICK_CLUSTERS_START: QUICK_CLUSTERS}
"""Settings of the starts that are clusters of documents."""
SAMPLE = 4000
"""Documents by which `sets_apart` decides, at least."""
SAMPLE_EACH = 10
"""The same for each cluster."""
MOST_BETWEEN = 0.6
"""Largest share of the clusters between which documents lie on average, where clusters tell them apart."""
GROUP = 8
"""Results that one task adds up."""
PROGRESS_SECONDS = 10.0
"""Seconds between notices of progress."""


def start_kernels(kind: str) -> Sequence[AnyKernel]:
    """Return the kernels that a computed start calls."""
    return (*vectors.KERNELS, *clusters.KERNELS) if kind in CLUSTER_SETTINGS else mixtures.KERNELS


class _Progress:
    """Sends notices of what is being computed, few enough for long starts and none for short ones."""

    def __init__(self, kind: str, notice: Callable[[str], None]) -> None:
        self._kind, self._notice, self._last = kind, notice, time.perf_counter()

    def __call__(self, step: str, number: int, total: int) -> None:
        """Take note that a step begins."""
        if time.perf_counter() - self._last >= PROGRESS_SECONDS:
            self._last = time.perf_counter()
            self._notice(f"start {self._kind}: {step} {number} of at most {total}")


class ComputedStart(Sequence[ShardProportions]):
    """The proportions of each shard's documents, computed when the first is asked for.

    Parameters
    ----------
    source : StartSource
        The start: clusters, documents or tree.
    topics : int
        Number of topics.
    shards : list of futures
        The shards, which are replaced in place where they were lost.
    executor : Executor
        Runs the tasks.
    stream : Stream
        Random stream of the seed.
    notice : callable
        Receives a line when the start is ready.
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
        self._proportions: list[ShardProportions] | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of shards."""
        return len(self._shards)

    @overload
    def __getitem__(self, number: int) -> ShardProportions: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[ShardProportions]: ...
    def __getitem__(self, number: int | slice) -> ShardProportions | Sequence[ShardProportions]:
        """Return the proportions of a shard's documents."""
        with self._lock:
            if self._proportions is None:
                began = time.perf_counter()
                progress = _Progress(self._kind, self._notice)
                settings = CLUSTER_SETTINGS.get(self._kind)
                parts = _documents(
                    self._kind, settings, self._topics, self._shards, self._executor, self._stream, progress
                )
                self._proportions = [ShardProportions(part, self._strength) for part in parts]
                self._report(parts, time.perf_counter() - began)
            return self._proportions[number]

    def _report(self, parts: Sequence[DocumentProportions], seconds: float) -> None:
        """Send a notice of a start that was asked for, or took long."""
        if self._usual and seconds < PROGRESS_SECONDS:
            return
        documents = sum(part.documents for part in parts)
        used = int(np.count_nonzero(sum(np.bincount(part.topics, minlength=self._topics) for part in parts)))
        unknown = sum(int((~part.known).sum()) for part in parts)
        rest = f"; {unknown:,} documents of rare words alone begin at random" if unknown else ""
        self._notice(f"start {self._kind}: {documents:,} documents in {used} topics after {seconds:.1f} s{rest}")


def sets_apart(corpus: Corpus, kind: str, topics: int, seed: int) -> bool:
    """Return whether clusters tell a corpus's documents apart, by those of a sample of them, in this process.

    Where each document has many topics, their sums of word vectors are alike: documents lie between nearly all clusters
    (83% of them on a corpus that was drawn from such a model, 2 to 41% on news, reviews and papers).

    Parameters
    ----------
    corpus : Corpus
        The corpus.
    kind : str
        Start by clusters.
    topics : int
        Number of clusters.
    seed : int
        Seed of the fit.

    Returns
    -------
    bool
        False if documents lie between most clusters.
    """
    references, least = corpus.references, max(SAMPLE, SAMPLE_EACH * topics)
    number = min(math.ceil(least * len(references) / corpus.manifest.documents), len(references))
    chosen = [references[place * len(references) // number] for place in range(number)]
    every = max(sum(one.record.documents for one in chosen) // least, 1)
    stream = Stream(seed).at(purpose="sample of clusters")
    executor, sample = SerialExecutor(), DocumentSample(stream, every)
    shards: Shards = [executor.submit(vectors.sampled, one.load(), sample) for one in chosen]
    # All clusters count, not only those that a document would begin in.
    settings, silent = replace(CLUSTER_SETTINGS[kind], most_shares=topics), _Progress(kind, lambda text: None)  # noqa: ARG005
    parts = _documents(kind, settings, topics, shards, executor, stream, silent)
    squares = np.concatenate([part.concentrations() for part in parts])
    between = 1.0 / squares[squares > 0.0]
    return bool(between.size and between.mean() <= MOST_BETWEEN * topics)


def _documents(
    kind: str,
    settings: ClusterSettings | None,
    topics: int,
    shards: Shards,
    executor: Executor,
    stream: Stream,
    progress: _Progress,
) -> list[DocumentProportions]:
    """Return the proportions of the documents of each shard; `settings` are those of clusters."""
    counts = executor.collect([executor.submit(vectors.word_counts, shard) for shard in shards])
    words = _start_words(counts, VECTORS if settings is None else settings.vectors)
    if not words.ids.size:
        # Every word is in all documents: nothing sets them apart, so that they begin at random.
        return [_unknown(count.corpus_documents, topics) for count in counts]
    if settings is not None:
        return _clusters(executor, shards, words, topics, settings, stream, progress)
    root_share = mixtures.MIXTURES.root_share if kind == "tree" else 0.0
    return _mixture(executor, shards, words, topics, root_share, stream, progress)


def _unknown(documents: int, topics: int) -> DocumentProportions:
    none = np.zeros(0, dtype=np.int64)
    return sparse_proportions(none, none, np.zeros(0), documents, topics)


def _start_words(counts: Sequence[WordCounts], settings: VectorSettings) -> StartWords:
    """Return the words that starts use, from the counts of the shards."""
    size = 1 + max((int(count.words.max(initial=-1)) for count in counts), default=-1)
    frequency = np.zeros(size, dtype=np.int64)
    for count in counts:
        frequency[count.words] += count.documents
    most = vectors.most_words(settings, int(frequency.sum()))
    return vectors.frequent_words(frequency, sum(count.corpus_documents for count in counts), most)


def _summed(executor: Executor, parts: Sequence[Future[ResultT]]) -> Future[ResultT]:
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
    size = words.ids.size
    bounds = [(low, min(low + settings.block_words, size)) for low in range(0, size, settings.block_words)]
    blocks: list[Future[Matrix] | None] = [None] * len(bounds)
    for shard in shards:
        # A chain for each block, so that few blocks are in memory at a time.
        blocks = [
            executor.submit(vectors.add_cooccurrences, shard, words, bound, block)
            for bound, block in zip(bounds, blocks, strict=True)
        ]
    known = _information(executor, blocks)
    # The co-occurrences are no longer needed; they take twice the memory.
    del blocks
    directions = vectors.first_directions(size, settings, stream)
    for number in range(settings.rounds):
        progress("directions of words, round", number + 1, settings.rounds)
        directions = vectors.orthonormal(_product(executor, known, directions))
        directions = vectors.orthonormal(_transposed(executor, known, directions, bounds))
    directions = vectors.orthonormal(_product(executor, known, directions))
    return vectors.word_vectors(directions, _transposed(executor, known, directions, bounds), settings.dimensions)


def _information(executor: Executor, blocks: Sequence[Future[Matrix] | None]) -> list[Future[Floats]]:
    """Return the mutual information of the words of each block, from their co-occurrences."""
    counted = [block for block in blocks if block is not None]
    sums = executor.collect([executor.submit(vectors.row_sums, block) for block in counted])
    context = vectors.context_shares(np.concatenate(sums))
    return [executor.submit(vectors.information, *pair, context) for pair in zip(counted, sums, strict=True)]


def _product(executor: Executor, blocks: Sequence[Future[Floats]], directions: Matrix) -> Matrix:
    parts = executor.collect([executor.submit(vectors.product, block, directions) for block in blocks])
    return np.concatenate(parts)


def _transposed(
    executor: Executor, blocks: Sequence[Future[Floats]], directions: Matrix, bounds: Sequence[tuple[int, int]]
) -> Matrix:
    parts = [
        executor.submit(vectors.transposed_product, block, directions[low:high])
        for block, (low, high) in zip(blocks, bounds, strict=True)
    ]
    return executor.collect([_summed(executor, parts)])[0]


def _clusters(
    executor: Executor,
    shards: Shards,
    words: StartWords,
    topics: int,
    settings: ClusterSettings,
    stream: Stream,
    progress: _Progress,
) -> list[DocumentProportions]:
    """Return the spherical clusters of documents as proportions."""
    word_vectors = _word_vectors(executor, shards, words, settings.vectors, stream, progress)
    documents = [executor.submit(clusters.document_vectors, shard, words, word_vectors) for shard in shards]
    total = sum(executor.collect([executor.submit(len, part) for part in documents]))
    share = min(1.0, max(settings.sample, settings.sample_each * topics) / max(total, 1))
    samples = [
        executor.submit(clusters.sample_vectors, part, share, stream.at(purpose="sample of vectors", place=number))
        for number, part in enumerate(documents)
    ]
    centroids = executor.submit(clusters.first_centroids, samples, topics, stream)
    before = -math.inf
    for number in range(settings.iterations):
        progress("clusters of documents, round", number + 1, settings.iterations)
        sums = _summed(executor, [executor.submit(clusters.assign, part, centroids) for part in documents])
        cosine = executor.collect([executor.submit(clusters.cosine, sums)])[0]
        if cosine <= before + settings.tolerance * abs(cosine):
            break
        centroids, before = executor.submit(clusters.new_centroids, sums, centroids), cosine
    return executor.collect(
        [executor.submit(clusters.cluster_proportions, part, centroids, settings) for part in documents]
    )


def _mixture(
    executor: Executor,
    shards: Shards,
    words: StartWords,
    topics: int,
    root_share: float,
    stream: Stream,
    progress: _Progress,
) -> list[DocumentProportions]:
    """Return the topics of documents in a mixture of one topic a document, under a root if it has a share."""
    mixture: Future[Mixture] | None = None
    for iteration in range(mixtures.MIXTURES.iterations):
        progress("topics of the mixture, round", iteration + 1, mixtures.MIXTURES.iterations)
        sums = [
            executor.submit(mixtures.first_sums, shard, words, topics, root_share, stream.at(place=number))
            if mixture is None
            else executor.submit(mixtures.next_sums, shard, words, mixture)
            for number, shard in enumerate(shards)
        ]
        total, power = _summed(executor, sums), mixtures.power_of(iteration)
        mixture = executor.submit(mixtures.next_mixture, total, root_share, power)
        # Otherwise tasks of all rounds would be submitted at once.
        executor.collect([executor.submit(mixtures.size, mixture)])
    return executor.collect([executor.submit(mixtures.mixture_proportions, shard, words, mixture) for shard in shards])
