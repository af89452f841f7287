"""Posterior means and variances of documents' proportions, with the topics fixed and a prior that follows a design.

Proportions of a fit under one prior for all documents shrink towards the common mean, and effects on them with it.
Here the prior of document d is Dirichlet with log a_dk = x_d lambda_k (Mimno and McCallum 2008). Each step climbs the
likelihood of lambda from tables s_dk sampled by Gibbs, with h_d = psi(A_d + n_d) - psi(A_d):

    gradient   sum_d x_d (s_dk - h_d a_dk) - (lambda_k - mu_k)
    curvature  sum_d h_d a_dk x_d x_d' + 1

Then proportions are sampled with lambda fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.analysis.infer import THETA
from collapsium.pipeline.models.model import Model
from collapsium.storage.corpus.corpus import ShardReference
from collapsium.storage.corpus.shard import Documents, Shard
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.arrays import read_arrays, write_arrays
from collapsium.storage.io.folder import Folder
from collapsium.workers import special_functions as special
from collapsium.workers import tasks
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.spill import SpillFiles, SpillWriter, read_rows, spill
from collapsium.workers.arrays.state import Array
from collapsium.workers.families.family import IntegratesProportions
from collapsium.workers.kernels.prediction import (
    DirichletTopics,
    SampledProportions,
    TokenSequences,
    sample_proportions,
    weighted_squares,
    weighted_sums,
)

Floats = npt.NDArray[np.float64]

POSTERIOR = ("mean", "variance", "tokens")  # Arrays of a part's posteriors
POLISH_SKIPPED, POLISH_COUNTED = 5, 10  # Sweeps of a step of the prior: skipped, and averaged
SKIPPED, COUNTED = 10, 30  # Sweeps of the posteriors
MAX_LOG_PRIOR = 30.0  # Bound on the logarithm of a prior, against overflow far from the data
MIN_LOG_PRIOR = -30.0
CHUNK = 8192  # Documents whose arrays by topic are in memory at once; larger chunks are no faster


@dataclass(frozen=True)
class DocumentPriors:
    """The model whose documents are sampled, and the prior that all its documents share."""

    url: str
    references: Sequence[ShardReference]
    prior: Floats  # a_k of the topics that `dirichlet_topics` returns
    columns: npt.NDArray[np.int64]  # Column of the proportions of each of them; -1 for topics that do not exist yet
    reported: npt.NDArray[np.int64]  # Columns of the topics that are reported

    @cached_property
    def model(self) -> Model:
        """The model, which each process opens for itself."""
        return Model(self.url)

    def __getstate__(self) -> dict[str, object]:
        """Return the fields."""
        return {name: value for name, value in self.__dict__.items() if name != "model"}


def prior_of(url: str, blocks: list[tasks.Block]) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the prior that all documents share, and the column of the proportions of each of its topics."""
    model = Model(url)
    none = np.zeros(0, dtype=np.int32)
    shard = Shard.of(0, Documents(pa.array([""]), np.zeros(2, dtype=np.int64), none, none))
    local = tasks.fold_in(model.family, shard, blocks, model.global_state, Stream(0, "prior"))
    # A document without words has the prior's proportions; topics without a prior have none.
    mean = np.asarray(model.family.infer(local, model.global_state)[THETA], dtype=np.float64)[0]
    topics = _topics(model, shard.words, blocks)
    columns = np.flatnonzero(mean > 0.0)
    rest = topics.prior.size - columns.size
    return topics.prior, np.concatenate([columns, np.full(rest, -1)]).astype(np.int64)


def _topics(model: Model, words: npt.NDArray[np.int32], blocks: list[tasks.Block]) -> DirichletTopics:
    family = cast("IntegratesProportions[Any, Any, Any, Any]", model.family)
    return family.dirichlet_topics(tasks.gather(blocks, words, complete=True), model.global_state)


def store_documents(
    rows_of: Callable[[int], tuple[Floats, npt.NDArray[np.bool_]]], part: int, priors: DocumentPriors, scratch: str
) -> SpillFiles:
    """Write the design rows and the words of a part's documents that are not empty, which each step reads."""
    design, occupied = rows_of(part)
    shard = Shard.of(part, priors.references[part].documents().take(occupied))
    tokens = np.repeat(shard.position, shard.counts).astype(np.int32)
    ends = np.concatenate([[0], np.cumsum(shard.lengths)]).astype(np.int64)
    return spill({"design": design, "words": shard.words, "tokens": tokens, "ends": ends}, scratch)


@dataclass(frozen=True)
class _Sampled:
    """Documents that are not empty, with their sampled proportions; a chunk of a part."""

    design: Floats  # (documents, columns)
    lengths: Floats  # Tokens
    prior: Floats  # a_dk
    proportions: SampledProportions


def _sampled(
    arrays: Mapping[str, Array], part: int, priors: DocumentPriors, blocks: list[tasks.Block], stream: Stream,
    coefficients: Floats, sweeps: tuple[int, int],
) -> Iterator[_Sampled]:  # fmt: skip
    """Sample the proportions of a part's documents; a document's numbers do not depend on the chunks."""
    topics = _topics(priors.model, arrays["words"], blocks)
    ends = arrays["ends"]
    key = stream.at(place=part).key()
    for first in range(0, ends.size - 1, CHUNK):
        last = min(first + CHUNK, ends.size - 1)
        design = read_rows(arrays, "design", first, last)
        prior = np.exp(np.clip(design @ coefficients, MIN_LOG_PRIOR, MAX_LOG_PRIOR))
        position = read_rows(arrays, "tokens", int(ends[first]), int(ends[last]))
        tokens = TokenSequences(ends[first : last + 1] - ends[first], position, ends[first:last] * (sum(sweeps) + 1))
        sampled = SampledProportions(np.empty(prior.shape), np.empty(prior.shape), np.empty(prior.shape))
        sample_proportions(tokens, topics.word_topic, np.ascontiguousarray(prior), *sweeps, key, sampled)
        yield _Sampled(design, np.diff(ends[first : last + 1]).astype(np.float64), prior, sampled)


def polish_step(
    arrays: Mapping[str, Array],
    part: int,
    priors: DocumentPriors,
    blocks: list[tasks.Block],
    stream: Stream,
    coefficients: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Return the gradient, the curvature and the largest absolute value of each column, over a part's documents."""
    columns, topics = coefficients.shape
    gradient, reach = np.zeros((columns, topics)), np.zeros(columns)
    curvature = np.zeros((columns * (columns + 1) // 2, topics))
    sweeps = POLISH_SKIPPED, POLISH_COUNTED
    for chunk in _sampled(arrays, part, priors, blocks, stream, coefficients, sweeps):
        total = chunk.prior.sum(axis=1)
        digammas = special.digamma(total + chunk.lengths) - special.digamma(total)
        expected = chunk.prior * np.asarray(digammas)[:, np.newaxis]
        weighted_sums(chunk.design, chunk.proportions.tables - expected, gradient)
        weighted_squares(chunk.design, np.ascontiguousarray(expected), curvature)
        reach = np.maximum(reach, np.abs(chunk.design).max(axis=0))
    return gradient, curvature, reach


def store_posterior(arrays: Mapping[str, Array], url: str, part: int) -> str:
    """Write a part's posteriors into a folder that stays; return the digest of its arrays."""
    return write_arrays(Folder(url) / f"{part:05d}", {name: np.asarray(arrays[name][...]) for name in POSTERIOR})


def read_posterior(url: str, part: int, digest: str, documents: int, topics: int, scratch: str) -> SpillFiles:
    """Read the arrays that `store_posterior` has written, which may be untrusted."""
    folder = Folder(url) / f"{part:05d}"
    arrays = read_arrays(folder, digest)
    shapes = {"mean": (documents, topics), "variance": (documents, topics), "tokens": (documents,)}
    if {name: values.shape for name, values in arrays.items()} != shapes:
        names = ", ".join(POSTERIOR)
        raise DamagedError(folder.url, f"expected {names} of {documents:,} documents and {topics} topics")
    if not all(np.isfinite(values).all() and (values >= 0.0).all() for values in arrays.values()):
        raise DamagedError(folder.url, "expected numbers of 0 or more")
    return spill(arrays, scratch)


def sample_posterior(
    arrays: Mapping[str, Array],
    part: int,
    priors: DocumentPriors,
    blocks: list[tasks.Block],
    stream: Stream,
    coefficients: Floats,
    scratch: str,
) -> SpillFiles:
    """Write posterior means and variances of the topics that are reported, and the tokens of a part's documents.

    They are float32 arrays ``mean`` and ``variance`` (documents, topics) and ``tokens``, of documents that are not
    empty, on disk: in memory they would take 8 bytes per document and topic.
    """
    reported, writer = priors.reported, SpillWriter(scratch)
    place = {column: number for number, column in enumerate(priors.columns.tolist())}
    columns = [(target, place[column]) for target, column in enumerate(reported.tolist()) if column in place]
    empty = np.zeros((0, reported.size), dtype=np.float32)
    writer.add({"mean": empty, "variance": empty, "tokens": np.zeros(0)})
    for chunk in _sampled(arrays, part, priors, blocks, stream, coefficients, (SKIPPED, COUNTED)):
        mean = np.zeros((chunk.lengths.size, reported.size), dtype=np.float32)
        variance = np.zeros_like(mean)
        for target, column in columns:
            mean[:, target] = chunk.proportions.mean[:, column]
            variance[:, target] = chunk.proportions.variance[:, column]
        writer.add({"mean": mean, "variance": variance, "tokens": chunk.lengths})
    return writer.finish()
