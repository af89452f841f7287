"""Predictive probabilities of documents' words, their means over the members of an ensemble, and their scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.loop.scoring import mean_score
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.pipeline.families.model import Model
from collapsium.storage.corpus.shard import Shard
from collapsium.workers import special_functions as special
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.families.base import AnyShardModel
from collapsium.workers.kernels.child_processes import fill_cache
from collapsium.workers.kernels.special import elementary

Named = Sequence[tuple[str, Model]]


@dataclass(frozen=True)
class MemberScore:
    """The score of a single member: its name, such as ``003`` or ``003/001``, and the score in nats."""

    member: str
    score: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """Probabilities of the words of a shard's documents, of one model or summed over several.

    Attributes
    ----------
    probability : numpy.ndarray of float64, shape (pairs,)
        The probabilities.
    counts : numpy.ndarray of int32, shape (pairs,)
        The words' counts.
    offsets : numpy.ndarray of int64, shape (documents + 1,)
        Index of each document's first pair.
    """

    probability: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    def __sizeof__(self) -> int:
        return self.probability.nbytes + self.counts.nbytes + self.offsets.nbytes


Submit = Callable[[Model, list[Future[tasks.Block]]], list[Future[Predicted]]]


def predict_pairs(
    model: AnyShardModel, shard: Shard, local: Any, blocks: list[tasks.Block], global_state: Any
) -> Predicted:
    """Return the probability of each pair of document and word in a shard.

    Parameters
    ----------
    model : ShardModel
        The family's shard model.
    shard : Shard
        The pairs.
    local : LocalState
        The local state of the documents.
    blocks : list of Block
        The model's blocks of the vocabulary.
    global_state : GlobalState
        The model's global state.

    Returns
    -------
    Predicted
        Probabilities and counts of the pairs.
    """
    if not shard.pairs:
        return Predicted(np.zeros(0), shard.counts, shard.offsets)
    table = model.predict(shard, local, tasks.gather(blocks, shard.words, complete=True), global_state)
    return Predicted(np.asarray(table["probability"], dtype=np.float64), shard.counts, shard.offsets)


def score_members(
    named: Named, submit: Submit, executor: Executor
) -> tuple[float | None, int, tuple[MemberScore, ...]]:
    """Score models one after another, and the mean of their probabilities.

    Parameters
    ----------
    named : sequence of (str, Model)
        The models and their names.
    submit : callable
        Function of a model and its blocks that submits a task for each shard and returns the futures of `Predicted`.
    executor : Executor
        Executor of the tasks.

    Returns
    -------
    score : float or None
        Mean log probability of a token, in nats; None without tokens.
    tokens : int
        Number of scored tokens.
    members : tuple of MemberScore
        Score of each model, if there are several.
    """
    single, sums, members = len(named) == 1, [], []
    for name, model in named:
        predicted = submit(model, load_blocks(model, executor))
        if single:
            sums = predicted
            break
        # Only one member's rows are in memory at a time. Sums in the members' order have the same bits everywhere.
        sums = (
            [executor.submit(add_predictions, *pair) for pair in zip(sums, predicted, strict=True)]
            if sums
            else predicted
        )
        score = mean_score(executor.collect([executor.submit(_score, shard, 1) for shard in predicted]))
        members.append(MemberScore(name, math.nan if score is None else score))
    scores: Sequence[tasks.Score] = executor.collect([executor.submit(_score, shard, len(named)) for shard in sums])
    return mean_score(scores), sum(part.tokens for part in scores), tuple(members)


def add_predictions(left: Predicted, right: Predicted) -> Predicted:
    """Return the sums of the probabilities of two models."""
    return Predicted(left.probability + right.probability, left.counts, left.offsets)


def _score(sums: Predicted, members: int) -> tasks.Score:
    if not sums.counts.size:
        return tasks.Score(0.0, 0)
    probability = sums.probability if members == 1 else sums.probability / members
    return tasks.Score(float((sums.counts * special.log(probability)).sum()), int(sums.counts.sum()))


def load_blocks(model: Model, executor: Executor) -> list[Future[tasks.Block]]:
    """Load the blocks of the vocabulary on the workers.

    Parameters
    ----------
    model : Model
        The model.
    executor : Executor
        Executor of the tasks.

    Returns
    -------
    list of futures
        Future of each block, a `collapsium.workers.tasks.Block`.
    """
    # Without a dashboard tasks run in this process, where an interrupt would wait for the compiler.
    if executor.dashboard is None:
        family_kernels = model.shard_model.fold_in_kernels(model.global_state)
        fill_cache([*family_kernels, elementary])
    return [
        executor.submit(_load_block, model.folder.address, number, low, high)
        for number, (low, high) in enumerate(model.blocks)
    ]


def _load_block(url: str, number: int, low: int, high: int) -> tasks.Block:
    return tasks.Block(low, high, Model(url).rows(number), Delta())
