"""Probabilities that models give to pairs of documents, summed over the members of an ensemble, and their scores."""

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
    """A member's score by itself: its name, such as ``003`` or ``003/001``, and the score in nats."""

    member: str
    score: float


@dataclass(frozen=True, slots=True)
class Chances:
    """Probabilities of a shard's pairs, of one model or summed over several, and the pairs' counts."""

    probability: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int32]

    def __sizeof__(self) -> int:
        return self.probability.nbytes + self.counts.nbytes


Submit = Callable[[Model, list[Future[tasks.Block]]], list[Future[Chances]]]


def chances_of(model: AnyShardModel, shard: Shard, local: Any, blocks: list[tasks.Block], global_state: Any) -> Chances:
    """Give the probabilities of a shard's pairs.

    Parameters
    ----------
    model : ShardModel
        The family's shard model.
    shard : Shard
        The pairs.
    local : Arrays
        The local state of their documents.
    blocks : list of Block
        The model's blocks of the vocabulary.
    global_state : Arrays
        The model's.

    Returns
    -------
    Chances
        Of no pairs, none.
    """
    if not shard.pairs:
        return Chances(np.zeros(0), shard.counts)
    table = model.predict(shard, local, tasks.gather(blocks, shard.words, complete=True), global_state)
    return Chances(np.asarray(table["probability"], dtype=np.float64), shard.counts)


def score_members(
    named: Named, submit: Submit, executor: Executor
) -> tuple[float | None, int, tuple[MemberScore, ...]]:
    """Score models, one after another, and the mean of their probabilities.

    Parameters
    ----------
    named : sequence of (str, Model)
        The models and their names.
    submit : callable
        Gets a model and its blocks, submits a task a shard and returns the futures of their `Chances`.
    executor : Executor
        Who does the work.

    Returns
    -------
    score : float or None
        Mean log probability of a token, in nats; None where there is none.
    tokens : int
        What was scored.
    members : tuple of MemberScore
        Where there are several models, what each scores by itself.
    """
    single, sums, members = len(named) == 1, [], []
    for name, model in named:
        chances = submit(model, load_blocks(model, executor))
        if single:
            sums = chances
            break
        # The members' rows come and go one after another; the sums are taken in the members' order.
        sums = [executor.submit(_add, *pair) for pair in zip(sums, chances, strict=True)] if sums else chances
        score = mean_score(executor.collect([executor.submit(_score, one, 1) for one in chances]))
        members.append(MemberScore(name, math.nan if score is None else score))
    scores: Sequence[tasks.Score] = executor.collect([executor.submit(_score, one, len(named)) for one in sums])
    return mean_score(scores), sum(part.tokens for part in scores), tuple(members)


def _add(left: Chances, right: Chances) -> Chances:
    return Chances(left.probability + right.probability, left.counts)


def _score(sums: Chances, members: int) -> tasks.Score:
    if not sums.counts.size:
        return tasks.Score(0.0, 0)
    probability = sums.probability if members == 1 else sums.probability / members
    return tasks.Score(float((sums.counts * special.log(probability)).sum()), int(sums.counts.sum()))


def load_blocks(model: Model, executor: Executor) -> list[Future[tasks.Block]]:
    """Bring the blocks of the vocabulary to the workers.

    Parameters
    ----------
    model : Model
        The model.
    executor : Executor
        Who shall read them.

    Returns
    -------
    list of futures
        One a block, of `collapsium.workers.tasks.Block`.
    """
    if executor.dashboard is None:  # its tasks run in this process, where an interrupt would wait for the compiler
        family_kernels = model.shard_model.fold_in_kernels(model.global_state)
        fill_cache([*family_kernels, elementary])
    return [
        executor.submit(_load_block, model.folder.address, number, low, high)
        for number, (low, high) in enumerate(model.blocks)
    ]


def _load_block(url: str, number: int, low: int, high: int) -> tasks.Block:
    return tasks.Block(low, high, Model(url).rows(number), Delta())
