"""Posterior means and variances of documents' proportions, with the topics fixed and a prior that follows a design.

Proportions of a fit under one prior for all documents shrink towards the common mean, and effects on them with it.
Here the prior of document d is Dirichlet with log a_dk = x_d lambda_k (Mimno and McCallum 2008). Each step climbs the
likelihood of lambda from tables s_dk sampled by Gibbs, with h_d = psi(A_d + n_d) - psi(A_d):

    gradient   sum_d x_d (s_dk - h_d a_dk) - (lambda_k - mu_k)
    curvature  sum_d h_d a_dk x_d x_d' + 1

Then proportions are sampled with lambda fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.analysis.infer import THETA
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.pipeline.models.model import Model
from collapsium.storage.corpus.corpus import ShardReference
from collapsium.storage.corpus.shard import Documents, Shard
from collapsium.workers import special_functions as special
from collapsium.workers import tasks
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import IntegratesProportions
from collapsium.workers.kernels.metrics.likelihood import DirichletTopics, TokenSequences
from collapsium.workers.kernels.posteriors import (
    SampledProportions,
    sample_proportions,
    weighted_squares,
    weighted_sums,
)

Floats = npt.NDArray[np.float64]

POLISH_SKIPPED, POLISH_COUNTED = 5, 10  # Sweeps of a step of the prior: skipped, and averaged
SKIPPED, COUNTED = 10, 30  # Sweeps of the posteriors
MAX_LOG_PRIOR = 30.0  # Bound on the logarithm of a prior, against overflow far from the data
MIN_LOG_PRIOR = -30.0


class Rows(Protocol):
    """Gives the design rows of a part's documents."""

    def rows(self, part: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return the rows of the documents that are not empty, and which these are."""


@dataclass(frozen=True)
class Posterior:
    """Posterior moments of a shard's documents, of the topics that are reported; empty documents have zeros."""

    mean: npt.NDArray[np.float32]  # (documents, topics)
    variance: npt.NDArray[np.float32]  # (documents, topics)
    tokens: Floats  # Tokens of each document

    def __sizeof__(self) -> int:
        return self.mean.nbytes + self.variance.nbytes + self.tokens.nbytes


@dataclass(frozen=True)
class DocumentPriors:
    """The model whose documents are sampled, and the prior that all its documents share."""

    url: str
    references: Sequence[ShardReference]
    prior: Floats  # a_k of the topics that `dirichlet_topics` returns
    columns: npt.NDArray[np.int64]  # Column of the proportions of each of them; -1 for topics that do not exist yet
    reported: npt.NDArray[np.int64]  # Columns of the topics that are reported

    @staticmethod
    def of(
        model: Model,
        executor: Executor,
        blocks: list[Future[tasks.Block]],
        references: Sequence[ShardReference],
        reported: npt.NDArray[np.int64],
    ) -> DocumentPriors:
        """Read the prior, and to which columns of the proportions it belongs."""
        [(prior, columns)] = executor.collect([executor.submit(_prior, model.folder.address, blocks)])
        return DocumentPriors(model.folder.address, references, prior, columns, reported)


def _prior(url: str, blocks: list[tasks.Block]) -> tuple[Floats, npt.NDArray[np.int64]]:
    model = Model(url)
    none = np.zeros(0, dtype=np.int32)
    shard = Shard.of(0, Documents(pa.array([""]), np.zeros(2, dtype=np.int64), none, none))
    local = tasks.fold_in(model.family, shard, blocks, model.global_state, Stream(0, "prior"))
    # A document without words has the prior's proportions; topics without a prior have none.
    mean = np.asarray(model.family.infer(local, model.global_state)[THETA], dtype=np.float64)[0]
    topics = _topics(model, shard, blocks)
    columns = np.flatnonzero(mean > 0.0)
    rest = topics.prior.size - columns.size
    return topics.prior, np.concatenate([columns, np.full(rest, -1)]).astype(np.int64)


def _topics(model: Model, shard: Shard, blocks: list[tasks.Block]) -> DirichletTopics:
    family = cast("IntegratesProportions[Any, Any, Any, Any]", model.family)
    return family.dirichlet_topics(tasks.gather(blocks, shard.words, complete=True), model.global_state)


def _sampled(
    rows: Rows, part: int, priors: DocumentPriors, blocks: list[tasks.Block], stream: Stream, coefficients: Floats,
    sweeps: tuple[int, int],
) -> tuple[Floats, npt.NDArray[np.bool_], Floats, Floats, SampledProportions]:  # fmt: skip
    """Return rows, occupied documents, tokens, priors and sampled proportions of the documents that are not empty."""
    design, occupied = rows.rows(part)
    shard = Shard.of(part, priors.references[part].documents().take(occupied))
    topics = _topics(Model(priors.url), shard, blocks)
    prior = np.exp(np.clip(design @ coefficients, MIN_LOG_PRIOR, MAX_LOG_PRIOR))
    ends = np.concatenate([[0], np.cumsum(shard.lengths)]).astype(np.int64)
    first = ends[:-1] * (sum(sweeps) + 1)
    tokens = TokenSequences(ends, np.repeat(shard.position, shard.counts).astype(np.int32), first)
    shape = shard.documents, prior.shape[1]
    sampled = SampledProportions(np.empty(shape), np.empty(shape), np.empty(shape))
    key = stream.at(place=part).key()
    sample_proportions(tokens, topics.word_topic, np.ascontiguousarray(prior), *sweeps, key, sampled)
    return design, occupied, shard.lengths.astype(np.float64), prior, sampled


def polish_step(
    rows: Rows, part: int, priors: DocumentPriors, blocks: list[tasks.Block], stream: Stream, coefficients: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the gradient, the curvature and the largest absolute value of each column, over a part's documents."""
    sweeps = POLISH_SKIPPED, POLISH_COUNTED
    design, _, lengths, prior, sampled = _sampled(rows, part, priors, blocks, stream, coefficients, sweeps)
    total = prior.sum(axis=1)
    expected = prior * np.asarray(special.digamma(total + lengths) - special.digamma(total))[:, np.newaxis]
    gradient = np.zeros((design.shape[1], prior.shape[1]))
    weighted_sums(design, sampled.tables - expected, gradient)
    curvature = np.zeros((design.shape[1] * (design.shape[1] + 1) // 2, prior.shape[1]))
    weighted_squares(design, np.ascontiguousarray(expected), curvature)
    return gradient, curvature, np.abs(design).max(axis=0, initial=0.0)


def sample_posterior(
    rows: Rows, part: int, priors: DocumentPriors, blocks: list[tasks.Block], stream: Stream, coefficients: Floats
) -> Posterior:
    """Return the posterior means and variances of a part's documents."""
    sweeps = SKIPPED, COUNTED
    _, occupied, lengths, _, sampled = _sampled(rows, part, priors, blocks, stream, coefficients, sweeps)
    reported = priors.reported
    mean = np.zeros((occupied.size, reported.size), dtype=np.float32)
    variance, tokens = np.zeros_like(mean), np.zeros(occupied.size)
    place = {column: number for number, column in enumerate(priors.columns.tolist())}
    for target, column in enumerate(reported.tolist()):
        if column in place:
            mean[occupied, target] = sampled.mean[:, place[column]]
            variance[occupied, target] = sampled.variance[:, place[column]]
    tokens[occupied] = lengths
    return Posterior(mean, variance, tokens)
