"""Perplexities of tokens and of documents by document completion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collapsium.pipeline.analysis.metrics.catalogue import Metric
from collapsium.pipeline.analysis.metrics.measurement import Job, Measurement, measurement
from collapsium.pipeline.analysis.scoring.leakage_checks import (
    require_disjoint,
    require_no_training_documents,
    require_other_tokens,
    require_same_vocabulary,
)
from collapsium.pipeline.analysis.scoring.predictive import Predicted, load_blocks
from collapsium.pipeline.analysis.scoring.targets import Scored
from collapsium.storage.errors import InputError
from collapsium.workers import special_functions as special


@dataclass(frozen=True)
class CompletionSums:
    """Sums over the documents of a shard that have scored tokens; they add over shards."""

    log_probability: float = 0.0  # Sum of the log probabilities of tokens, in nats
    tokens: int = 0  # Number of tokens
    means: float = 0.0  # Sum of the documents' mean log probabilities of a token
    documents: int = 0  # Number of documents

    def __add__(self, other: CompletionSums) -> CompletionSums:
        return CompletionSums(
            self.log_probability + other.log_probability,
            self.tokens + other.tokens,
            self.means + other.means,
            self.documents + other.documents,
        )


def completion_sums(predicted: Predicted) -> CompletionSums:
    """Return the sums over a shard's documents."""
    documents = predicted.offsets.size - 1
    if not predicted.counts.size:
        return CompletionSums()
    owner = np.repeat(np.arange(documents), np.diff(predicted.offsets))
    logs = np.bincount(owner, predicted.counts * special.log(predicted.probability), documents)
    tokens = np.bincount(owner, predicted.counts, documents)
    some = tokens > 0
    means = float((logs[some] / tokens[some]).sum())
    return CompletionSums(float(logs.sum()), int(tokens.sum()), means, int(some.sum()))


def measure_completion(metrics: Sequence[Metric], job: Job, what: Scored) -> list[Measurement]:
    """Measure perplexities of held-out tokens or of unseen documents."""
    for one in (what.corpus, what.tokens):
        require_same_vocabulary(job.named, one)
    note, certain = require_disjoint(job.named, what)
    first = job.named[0][1]
    held = what.held(first)
    if not certain and held is not None:
        require_other_tokens(first, what, held, job.executor)
    if not what.known:
        require_no_training_documents(job.named, what.corpus, job.executor)
    submit = what.submit(held, job.executor, job.seed)
    values: dict[str, list[float]] = {metric.name: [] for metric in metrics}
    total = CompletionSums()
    for _, model in job.named:
        predicted = submit(model, load_blocks(model, job.executor))
        parts = job.executor.collect([job.executor.submit(completion_sums, one) for one in predicted])
        total = sum(parts, CompletionSums())
        if not total.tokens:
            raise InputError(what.tokens.url, "no token is left to score")
        for metric in metrics:
            by_token = metric.name == "perplexity"
            log = total.log_probability / total.tokens if by_token else total.means / total.documents
            values[metric.name].append(math.exp(-log))
    completion = what.definition.removesuffix("; perplexity = exp(-score)") + note
    figures = {"documents": total.documents, "completion": completion}
    return [measurement(metric, job.named, values[metric.name], figures) for metric in metrics]
