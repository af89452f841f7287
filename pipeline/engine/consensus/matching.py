"""Match the topics of an ensemble's models.

The models are aligned one to one with their mean, in rounds, as in generalised Procrustes analysis (Gower 1975). Two
topics are alike by their words, the Bhattacharyya coefficient sum_w sqrt(phi_kw phi_lw), and by their documents, the
cosine of n_d^(1/2) theta_dk and n_d^(1/2) theta_dl.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.consensus.joined_models import JoinedModel, JoinedReference
from collapsium.pipeline.engine.consensus.overlaps import Overlaps, document_overlaps, total_overlaps, word_overlaps
from collapsium.pipeline.engine.resources.placement import release_memory
from collapsium.pipeline.engine.setup.warm_start import WarmStart
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.families.model import Model
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import ClusterError
from collapsium.workers.families.mean import ABSENT

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MatchingRule:
    """Extent of the matching; measured on the page "Consensus"."""

    rounds: int = 4  # Rounds, at most: on KOS, NIPS and Reuters matches hardly change after the second
    documents: int = 20_000  # Documents by which topics are compared, at most, spread evenly over the corpus
    # Memory of the overlaps that wait on the driver; those of so many models and tasks are computed at a time
    overlap_bytes: float = 256e6
    attempts: int = 3  # Attempts of a round whose work a cluster loses


RULE = MatchingRule()


@dataclass(frozen=True)
class Consensus:
    """The matched models of an ensemble."""

    models: tuple[JoinedModel, ...]  # The models with their columns; the joined topics are those of the first
    rounds: int  # Rounds of matching
    overlap: float  # Mean Bhattacharyya coefficient of the models' topics and the joined topics

    @property
    def topics(self) -> tuple[int, ...]:
        """Columns of the joined topics in the first model."""
        return self.models[0].columns

    def start(self, corpus: Corpus, strength: float = 0.0) -> WarmStart:
        """Return the start of the fit from the means; hyperparameters go on from the first model."""
        url = self.models[0].url
        record, shards = Model(url).record, range(len(corpus.manifest.shards))
        references = [
            JoinedReference(url, number, self.topics, 1.0, models=self.models, strength=strength) for number in shards
        ]
        return WarmStart(references, record.family, record.options, url)


def join(urls: Sequence[str], corpus: Corpus, executor: Executor, at_a_time: int) -> Consensus:
    """Match the topics of models of one corpus.

    Each round matches every model to the mean of the models as they were matched before, with the largest sum of
    similarities; the first round matches them to the first model, whose topics the joined ones are.
    """
    # The plan of a fit's memory counts on that of its sweeps.
    release_memory(executor)
    models = [JoinedModel.of(url) for url in urls]
    models[0] = replace(models[0], columns=models[0].topics)
    mean, overlap, rounds, unchanged = models[:1], 0.0, 0, False
    while rounds < RULE.rounds and not unchanged:
        matched, overlap = _matched_again(mean, models, corpus, executor, at_a_time)
        unchanged, mean, rounds = matched == mean, matched, rounds + 1
    return Consensus(tuple(mean), rounds, overlap)


def _matched_again(
    mean: Sequence[JoinedModel], models: Sequence[JoinedModel], corpus: Corpus, executor: Executor, at_a_time: int
) -> tuple[list[JoinedModel], float]:
    """Match the models to a mean; lost work is done again, as nothing was changed."""
    for attempt in range(1, RULE.attempts + 1):
        try:
            return _round(mean, models, corpus, executor, at_a_time)
        except ClusterError as error:
            if attempt == RULE.attempts:
                raise
            executor.recover(error)
    raise RuntimeError("a rule allows at least one attempt")


def _round(
    mean: Sequence[JoinedModel], models: Sequence[JoinedModel], corpus: Corpus, executor: Executor, at_a_time: int
) -> tuple[list[JoinedModel], float]:
    """Match the models to the mean of others, some at a time; return them, and the mean overlap of their words."""
    most = max(len(model.topics) for model in models)
    tasks = max(min(at_a_time, int(RULE.overlap_bytes / (8 * most * most))), 1)
    width = max(int(RULE.overlap_bytes / (8 * most * most * tasks)), 1)
    blocks, every = range(len(Model(models[0].url).blocks)), max(-(-corpus.manifest.documents // RULE.documents), 1)
    # Models of the stochastic schedule have no proportions of their documents.
    fitted = all(Model(model.url).fitted for model in models)
    matched: list[JoinedModel] = []
    overlaps: list[float] = []
    for low in range(0, len(models), width):
        some = models[low : low + width]
        words = _total(executor, word_overlaps, [(mean, some, block) for block in blocks], tasks)
        similarities = [overlap.coefficients for overlap in words]
        if fitted:
            compared = [(mean, some, reference, every) for reference in corpus.references]
            documents = _total(executor, document_overlaps, compared, tasks)
            similarities = [one + overlap.cosines for one, overlap in zip(similarities, documents, strict=True)]
        for number, (model, similar) in enumerate(zip(some, similarities, strict=True)):
            places, topics = _assigned(similar, mean[0], model)
            columns = np.full(len(mean[0].columns), ABSENT, dtype=np.int64)
            columns[places] = np.asarray(model.topics, dtype=np.int64)[topics]
            matched.append(replace(model, columns=tuple(columns.tolist())))
            overlaps.append(float(words[number].coefficients[places, topics].mean()))
    return matched, float(np.mean(overlaps))


def _total(
    executor: Executor,
    function: Callable[..., list[Overlaps]],
    arguments: Sequence[tuple[object, ...]],
    at_a_time: int,
) -> list[Overlaps]:
    """Return the sums of the overlaps that a function returns for several arguments, so many of them at a time."""
    total: list[list[Overlaps]] = []
    for low in range(0, len(arguments), at_a_time):
        futures = [executor.submit(function, *one) for one in arguments[low : low + at_a_time]]
        total = [total_overlaps([*total, *executor.collect(futures)])]
    return total[0]


def _assigned(similar: Floats, first: JoinedModel, model: JoinedModel) -> tuple[Ints, Ints]:
    """Match joined topics and a model's one to one with the largest sum of similarities; seeded ones to themselves."""
    from scipy import optimize

    joined, own = np.asarray(first.columns)[:, np.newaxis], np.asarray(model.topics)[np.newaxis]
    seeded = (joined < model.fixed) | (own < model.fixed)
    # Similarities are at most 2 each, so that a pair of the same seeds outweighs all others.
    similar = np.where(seeded & (joined != own), -1.0, similar) + np.where(seeded & (joined == own), 4.0, 0.0)
    places, topics = optimize.linear_sum_assignment(similar, maximize=True)
    allowed = similar[places, topics] >= 0.0
    return places[allowed], topics[allowed]
