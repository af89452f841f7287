"""Glances at the topics while a fit goes on: how large they are, which moved, and their top words every so often.

Sizes follow from the global state: they are reported of each iteration and are the same for the same state. Words lie
in the blocks, and reading them takes a worker's time: they are fetched while the next sweeps run, rarely, and count as
times do.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.state import Problem, State
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.pipeline.families.description import shape_of
from collapsium.pipeline.families.registry import load_family
from collapsium.workers.arrays.state import GlobalState
from collapsium.workers.families.base import AnyShardModel
from collapsium.workers.tasks import Block

SIZES, MOVED = 20, 5  # topics whose sizes are told, and that moved most
NAMED, WORDS = 200, 6  # topics whose words are looked for, besides those that moved, and words of each
DIGITS, HELD = 5, 1e-6  # of shares that are told, and the share of the tokens from which on a topic counts as active
SECONDS, STALE = 5.0, 30.0  # between two times that words are fetched: at least, and at most where iterations allow
PARTS = 10  # of the planned iterations: words are fetched once in each part, whatever it takes
COST, SHARE = 200.0, 0.02  # times that fetching took, and share of the run's time, that lie between at least
PIECE = 1 << 20  # cells of a block that are looked at together


@dataclass(frozen=True)
class Words:
    """The largest probabilities or loadings of some topics in a block.

    Attributes
    ----------
    ids : numpy.ndarray of int64, shape (topics,)
        The topics.
    words : numpy.ndarray of int64, shape (topics, words)
        Ids of words, in no order; -1 where there are fewer.
    values : numpy.ndarray of float64, shape (topics, words)
        Their probabilities or loadings.
    seconds : float
        What it took.
    """

    ids: npt.NDArray[np.int64]
    words: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    seconds: float


def sizes(name: str, model: AnyShardModel, global_state: GlobalState) -> tuple[dict[int, float], int]:
    """Find how large the topics are: a description of no words is one of sizes alone.

    Parameters
    ----------
    name : str
        The family's name.
    model : ShardModel
        Its half beside the shards.
    global_state : GlobalState
        Of a state.

    Returns
    -------
    shares : dict of int to float
        Each topic's share of the tokens, a node's own, by permanent id.
    active : int
        How many topics have more than hardly any, or in a tree nodes at or below which there are some.
    """
    rows = model.finished_rows(model.initial_rows(0, global_state), global_state)
    found = load_family(name).describe(rows, global_state, 0)
    held = found.share if found.parent is None else shape_of(found.ids, found.parent, found.share).below
    return dict(zip(found.ids.tolist(), found.share.tolist(), strict=True)), int(np.count_nonzero(held >= HELD))


def top_words(
    name: str, model: AnyShardModel, block: Block, global_state: GlobalState, ids: Sequence[int], count: int
) -> Words:
    """Find the top words of some topics in a block, a piece of it at a time, so that it takes little memory.

    Parameters
    ----------
    name : str
        The family's name.
    model : ShardModel
        Its half beside the shards.
    block : Block
        Of the vocabulary.
    global_state : GlobalState
        Of the same state.
    ids : sequence of int
        The topics.
    count : int
        Words of each.

    Returns
    -------
    Words
        Fewer where the block has fewer.
    """
    began, family = time.perf_counter(), load_family(name)
    words = np.full((len(ids), count), -1, dtype=np.int64)
    values = np.zeros((len(ids), count))
    width = max((rows[:1].size for rows in block.rows.to_arrays().values()), default=1)
    step = max(PIECE // max(width, 1), 1)
    for low in range(0, block.high - block.low, step):
        rows = block.rows.of_words(slice(low, low + step), complete=True)
        found = family.describe(model.finished_rows(rows, global_state), global_state, count)
        place = {one: row for row, one in enumerate(found.ids.tolist())}
        for number, one in enumerate(ids):
            if one in place:
                row = place[one]
                both = np.concatenate([words[number], found.words[row] + block.low + low])
                weight = np.concatenate([values[number], found.probability[row]])
                words[number], values[number] = _largest(both, weight, count)
    return Words(np.array(ids, dtype=np.int64), words, values, time.perf_counter() - began)


def _largest(
    words: npt.NDArray[np.int64], values: npt.NDArray[np.float64], count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    order = np.argsort(np.where(words < 0, 1.0, -np.abs(values)), kind="stable")[:count]
    return words[order], values[order]


class Glance:
    """What a loop tells of topics.

    Parameters
    ----------
    vocabulary : sequence of str
        The words, by id.
    planned : int, optional
        The most iterations that there will be.
    """

    def __init__(self, vocabulary: Sequence[str], planned: int = 0) -> None:
        self._vocabulary, self._age = vocabulary, max(planned // PARTS, 1)
        self._named = -1  # the iteration whose words were fetched last
        self._before: tuple[int, dict[int, float]] | None = None
        self._began = time.monotonic()
        self._due = self._began

    def topics(self, problem: Problem, iteration: int, before: GlobalState, after: GlobalState) -> dict[str, Any]:
        """Say how large the topics are, and which moved most.

        Parameters
        ----------
        problem : Problem
            What is fitted.
        iteration : int
            The iteration that was made.
        before, after : Arrays
            The global state before and after it.

        Returns
        -------
        dict
            ``active``, and as lists of [id, share] ``sizes`` and ``moved``, the largest first. Nothing of the start.
        """
        if iteration < 1:
            return {}
        if self._before is None or self._before[0] != iteration - 1:
            self._before = iteration - 1, sizes(problem.name, problem.shard_model, before)[0]
        old = self._before[1]
        now, active = sizes(problem.name, problem.shard_model, after)
        self._before = iteration, now
        moved = {one: now.get(one, 0.0) - old.get(one, 0.0) for one in {**now, **old}}
        return {"active": active, "sizes": _pairs(_listed(now, SIZES)), "moved": _pairs(_listed(moved, MOVED))}

    def submit(
        self, problem: Problem, executor: Executor, state: State, topics: dict[str, Any], *, last: bool
    ) -> list[Future[Words]]:
        """Submit the search for the top words of the largest topics and of those that moved, where it is time to.

        Parameters
        ----------
        problem, executor, state
            As the loop has them.
        topics : dict
            As `topics` gave them.
        last : bool
            Whether this is the last iteration, whose words are those that stay to be seen.

        Returns
        -------
        list of futures
            For `words`.
        """
        now = time.monotonic()
        old = self._named < 0 or not 0 <= state.iteration - self._named < self._age
        if not topics or not (last or old or now >= self._due):
            return []
        largest = [] if self._before is None else [one for one, _ in _listed(self._before[1], NAMED)]
        return self._submit(problem, executor, state, [*largest, *(one for one, _ in topics["moved"])])

    def _submit(self, problem: Problem, executor: Executor, state: State, wanted: Sequence[int]) -> list[Future[Words]]:
        """Submit the search for the top words of some topics."""
        self._named, ids, homes = state.iteration, list(dict.fromkeys(wanted)), executor.homes
        return [
            executor.submit(
                top_words,
                problem.name,
                problem.shard_model,
                block,
                state.global_state,
                ids,
                WORDS,
                home=problem.block_home(number, homes),
            )
            for number, block in enumerate(state.blocks)
        ]

    def ended(self, problem: Problem, executor: Executor, state: State) -> dict[str, list[str]]:
        """Find the top words of the state that a run ends with; nothing where they were fetched already.

        Parameters
        ----------
        problem, executor, state
            As the loop has them.

        Returns
        -------
        dict of str to list of str
            As of `words`.
        """
        if state.iteration < 1 or state.iteration == self._named:
            return {}
        largest = [one for one, _ in _listed(sizes(problem.name, problem.shard_model, state.global_state)[0], NAMED)]
        return self.words(executor.collect(self._submit(problem, executor, state, largest)))

    def words(self, found: Sequence[Words]) -> dict[str, list[str]]:
        """Name the words that were found in all blocks, a minus sign before those with negative loadings.

        Parameters
        ----------
        found : sequence of Words
            Of each block.

        Returns
        -------
        dict of str to list of str
            By the topic's id. Nothing where nothing was looked for.
        """
        if not found:
            return {}
        now, cost = time.monotonic(), sum(one.seconds for one in found)
        self._due = now + min(max(SECONDS, COST * cost, SHARE * (now - self._began)), STALE)
        words = np.concatenate([one.words for one in found], axis=1)
        values = np.concatenate([one.values for one in found], axis=1)
        told = {}
        for row, number in enumerate(found[0].ids.tolist()):
            best, weight = _largest(words[row], values[row], WORDS)
            chosen = zip(best.tolist(), weight.tolist(), strict=True)
            told[str(number)] = [("-" if p < 0.0 else "") + self._vocabulary[one] for one, p in chosen if one >= 0]
        return told


def _listed(shares: dict[int, float], count: int) -> list[tuple[int, float]]:
    """List the largest, rounded; those that round to nothing are left out."""
    order = sorted(shares, key=lambda one: (-abs(shares[one]), one))[:count]
    return [(one, round(shares[one], DIGITS)) for one in order if round(abs(shares[one]), DIGITS) > 0.0]


def _pairs(listed: Sequence[tuple[int, float]]) -> list[list[float]]:
    return [list(pair) for pair in listed]  # as JSON has them
