"""The dispersion of the residuals of a model's expected counts (Taddy 2012, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.metrics.catalogue import LEAST_EXPECTED, Metric
from collapsium.pipeline.analysis.metrics.measurement import Job, Measurement, measurement
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import word_tables
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import InputError, OptionError
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import IntegratesProportions

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SAMPLE = 2000  # Documents whose residuals are computed at most; each has one for every word of the vocabulary
DOCUMENTS_AT_A_TIME, WORDS_AT_A_TIME = 256, 8192  # Cells in memory


@dataclass(frozen=True)
class ResidualSums:
    """Sums over documents and words; they add over shards."""

    squares: float = 0.0  # Sum of the squared residuals, in units of their variances
    cells: int = 0  # Number of cells that are expected to have some tokens

    def __add__(self, other: ResidualSums) -> ResidualSums:
        return ResidualSums(self.squares + other.squares, self.cells + other.cells)


def residual_sums(counts: Floats, expected: Floats, lengths: Floats) -> ResidualSums:
    """Return the sums of a table of documents and words; `lengths` are the documents' tokens, shape (documents, 1)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = (counts - expected) ** 2 / (expected * (1.0 - expected / lengths))
    return ResidualSums(float(squares[expected > 0.0].sum()), int((expected > LEAST_EXPECTED).sum()))


def measure_residuals(metrics: Sequence[Metric], job: Job, corpus: Corpus) -> list[Measurement]:
    """Measure the dispersion of the counts of training documents, of a random sample where there are many."""
    documents = corpus.manifest.documents
    generator = Stream(job.seed, "residual documents").generator()
    chosen = np.sort(generator.choice(documents, size=min(SAMPLE, documents), replace=False))
    starts = np.cumsum([0, *(reference.record.documents for reference in corpus.references)])
    values = []
    for _, model in job.named:
        tasks = [
            job.executor.submit(_of_shard, model.folder.address, reference, number, rows - first)
            for number, (reference, first) in enumerate(zip(corpus.references, starts, strict=False))
            if (rows := chosen[(chosen >= first) & (chosen < first + reference.record.documents)]).size
        ]
        sums = sum(job.executor.collect(tasks), ResidualSums())
        topics, words = len(model.describe(model.rows(0), 1).ids), model.record.blocks[-1]
        # The topics' parameters are estimated from all documents.
        parameters = chosen.size * (topics - 1) + topics * (words - 1) * chosen.size / documents
        if sums.cells <= parameters:
            raise InputError(corpus.url, "its documents are too short for as many topics to leave residuals")
        values.append(sums.squares / (sums.cells - parameters))
    of = f"{chosen.size:,} of {documents:,} training documents" if chosen.size < documents else "all training documents"
    return [measurement(metric, job.named, values, {"sampled": of}) for metric in metrics]


def require_residuals(model: Model) -> None:
    """Refuse models whose expected counts are not proportions times topics."""
    if not isinstance(model.family, IntegratesProportions):
        raise OptionError(f"family '{model.record.family}' has no Dirichlet prior of proportions over flat topics")
    if getattr(model.family.options, "weights", None) is not None:
        raise OptionError("the model has weights of words, so that its topics are not probabilities of tokens")


def _of_shard(url: str, reference: ShardReference, number: int, rows: Ints) -> ResidualSums:
    model, documents = Model(url), reference.documents()
    keep = np.zeros(len(documents), dtype=bool)
    keep[rows] = True
    shard = Shard.of(number, documents.take(keep))
    theta = np.asarray(model.family.infer(model.local_state(number), model.global_state)["document_topic"])[rows]
    owner, total = np.repeat(np.arange(shard.documents), np.diff(shard.offsets)), ResidualSums()
    column, lengths = shard.words[shard.position], shard.lengths[:, np.newaxis].astype(np.float64)
    for start, _, table in word_tables(model):
        for low in range(0, len(table), WORDS_AT_A_TIME):
            phi = table[low : low + WORDS_AT_A_TIME]
            for first in range(0, shard.documents, DOCUMENTS_AT_A_TIME):
                some = slice(first, first + DOCUMENTS_AT_A_TIME)
                expected = lengths[some] * (theta[some] @ phi.T)
                here = slice(*shard.offsets[[first, min(first + DOCUMENTS_AT_A_TIME, shard.documents)]])
                words = column[here] - start - low
                inside = (words >= 0) & (words < len(phi))
                counts = np.zeros_like(expected)
                np.add.at(counts, (owner[here][inside] - first, words[inside]), shard.counts[here][inside])
                total += residual_sums(counts, expected, lengths[some])
    return total
