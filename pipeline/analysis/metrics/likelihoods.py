"""Likelihoods of unseen documents, with proportions integrated out: left-to-right and annealed importance sampling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.metrics.catalogue import Metric
from collapsium.pipeline.analysis.metrics.measurement import Job, Measurement, measurement
from collapsium.pipeline.analysis.scoring.predictive import load_blocks
from collapsium.pipeline.corpora.passes import in_order
from collapsium.pipeline.executors.base import Future
from collapsium.pipeline.families.model import Model
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import InputError
from collapsium.workers import tasks
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.kernels.child_processes import fill_cache
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.metrics import likelihood
from collapsium.workers.kernels.metrics.likelihood import DirichletTopics, TokenSequences

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LikelihoodSettings:
    """Effort of the estimates; the numbers are those of Wallach et al. (2009) or smaller, for long documents."""

    particles: int = 20  # Particles of the left-to-right estimate
    runs: int = 3  # Weights of annealed importance sampling that are averaged
    steps: int = 1000  # Even steps of annealed importance sampling from the prior to the posterior
    documents_per_task: int = 4  # Documents of a task, so that long ones do not hold up the others
    numbers_per_document: int = 1 << 40  # Random numbers that each document has for itself


SETTINGS = LikelihoodSettings()
KERNELS: Mapping[str, AnyKernel] = {
    "left-to-right": likelihood.left_to_right,
    "annealed-importance": likelihood.annealed_importance,
}


def measure_likelihood(metrics: Sequence[Metric], job: Job, unseen: Corpus, sample: int) -> list[Measurement]:
    """Estimate the likelihood of a random sample of unseen documents."""
    documents = unseen.manifest.documents
    generator = Stream(job.seed, "likelihood documents").generator()
    chosen = np.sort(generator.choice(documents, min(sample, documents), replace=False)).astype(np.int64)
    measurements, done = [], 0
    for metric in metrics:
        values, tokens = [], 0
        for _, model in job.named:
            blocks = load_blocks(model, job.executor)
            # Without a dashboard tasks run in this process, where an interrupt would wait for the compiler.
            if job.executor.dashboard is None:
                fill_cache([KERNELS[metric.name]])
            total, tokens = 0.0, 0
            for logs, lengths in in_order(job.executor, _submitted(metric, model, unseen, chosen, blocks, job)):
                total, tokens, done = total + float(logs.sum()), tokens + int(lengths.sum()), done + lengths.size
                job.progress(done)
            if not tokens:
                raise InputError(unseen.url, "no token is left to score")
            values.append(total / tokens)
        of = f"all {documents:,} documents" if chosen.size == documents else (
            f"{chosen.size:,} of {documents:,} documents, drawn at random"
        )  # fmt: skip
        figures = {**vars(SETTINGS), "sampled": f"{of}, with {tokens:,} tokens"}
        measurements.append(measurement(metric, job.named, values, figures))
    return measurements


def _submitted(
    metric: Metric, model: Model, unseen: Corpus, chosen: Ints, blocks: list[Future[tasks.Block]], job: Job
) -> Iterator[Future[tuple[Floats, Ints]]]:
    """Submit a task for each few documents of each shard."""
    first = 0
    for reference in unseen.references:
        low, high = np.searchsorted(chosen, [first, first + reference.record.documents])
        for start in range(int(low), int(high), SETTINGS.documents_per_task):
            end = min(start + SETTINGS.documents_per_task, int(high))
            rows = chosen[start:end] - first
            url = model.folder.address
            yield job.executor.submit(_estimate, url, reference, rows, start, blocks, metric.name, job.seed)
        first += reference.record.documents


def _estimate(
    url: str, reference: ShardReference, rows: Ints, first: int, blocks: list[tasks.Block], name: str, seed: int
) -> tuple[Floats, Ints]:
    """Return the log likelihood and the tokens of some documents of a shard, by their number in the sample."""
    model, documents = Model(url), reference.documents()
    keep = np.zeros(len(documents), dtype=bool)
    keep[rows] = True
    shard = Shard.of(reference.number, documents.take(keep))
    topics = model.shard_model.dirichlet_topics(tasks.gather(blocks, shard.words, complete=True), model.global_state)
    return log_likelihood(shard, topics, name, seed, first), shard.lengths


def log_likelihood(shard: Shard, topics: DirichletTopics, name: str, seed: int, first: int = 0) -> Floats:
    """Estimate the log likelihood of documents under fixed topics."""
    stream = Stream(seed, name)
    numbers = first + np.arange(shard.documents, dtype=np.int64)
    tokens = np.repeat(shard.position, shard.counts)
    ends = np.concatenate([[0], np.cumsum(shard.lengths)]).astype(np.int64)
    for number, low, high in zip(numbers.tolist(), ends[:-1], ends[1:], strict=True):
        tokens[low:high] = stream.at(purpose=f"{name} order", place=number).generator().permutation(tokens[low:high])
    sequences = TokenSequences(ends, tokens.astype(np.int32), numbers * SETTINGS.numbers_per_document)
    logs = np.empty(shard.documents)
    if name == "left-to-right":
        likelihood.left_to_right(sequences, topics, SETTINGS.particles, stream.key(), logs)
    else:
        likelihood.annealed_importance(sequences, topics, SETTINGS.steps, SETTINGS.runs, stream.key(), logs)
    return logs
