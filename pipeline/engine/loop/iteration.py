"""One iteration of the batch schedule: sweep every shard, reduce the deltas, fold them in, update the global state."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from collapsium.pipeline.engine.partition import PARTITION
from collapsium.pipeline.engine.state import Problem, State
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.storage.errors import NumericalError
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.document_samples import DocumentSample

BlockPart = tuple[int, int, bool] | None  # part of a delta that concerns a block, as `tasks.delta_part` takes it
Summand = Future[Delta] | Future[tasks.Swept]


@dataclass(frozen=True)
class Round:
    """A submitted round of sweeps.

    Attributes
    ----------
    swept : list of futures
        The shards' next local states.
    blocks : list of futures
        The blocks of the vocabulary, with the deltas folded in.
    statistics : list of futures
        What the update of the global state takes, from each block.
    """

    swept: list[Future[tasks.Swept]]
    blocks: list[Future[tasks.Block]]
    statistics: list[Future[Delta]]


def iterate(
    problem: Problem, executor: Executor, state: State, submitted: Round | None
) -> tuple[State, Delta, dict[str, float], float]:
    """Run one iteration, of as many rounds of sweeps as the family needs.

    Parameters
    ----------
    problem : Problem
        The problem.
    executor : Executor
        Runs the tasks.
    state : State
        The state before the iteration.
    submitted : Round or None
        The first round, if it was submitted ahead.

    Returns
    -------
    state : State
        The state after the iteration.
    statistics : Delta
        Those of the last round.
    figures : dict of str to float
        The family's hyperparameters and, where it has one, the ``objective``.
    seconds : float
        Time that the updates on the driver took.

    Raises
    ------
    NumericalError
        The global state is no longer finite.
    """
    seconds, rounds, iteration = 0.0, 0, state.iteration + 1
    while True:
        current = submitted or submit_round(problem, executor, state, rounds)
        statistics, submitted = Delta(), None
        for part in executor.collect(current.statistics):
            statistics = statistics + part
        began = time.perf_counter()
        figures = problem.family.objective(state.global_state, statistics)
        stream = problem.stream.at(iteration=iteration, purpose=_purpose("update", rounds))
        updated = problem.family.update(state.global_state, statistics, problem.config, stream)
        seconds += time.perf_counter() - began
        require_finite(updated.to_arrays(), iteration)
        rounds += 1
        if not problem.family.needs_another_round(updated):
            state = State(iteration, updated, current.blocks, current.swept)
            return state, statistics, {**figures, **problem.family.figures(updated)}, seconds
        # A further round belongs to the same iteration, and its sweeps follow the iteration before.
        state = State(iteration - 1, updated, current.blocks, current.swept)


def submit_shown(problem: Problem, executor: Executor, state: State) -> list[Future[tasks.Block]]:
    """Submit the rows that sweeps see, of all blocks."""
    return [
        executor.submit(tasks.swept_rows, block, home=problem.block_home(number, executor.homes))
        for number, block in enumerate(state.blocks)
    ]


def submit_round(
    problem: Problem,
    executor: Executor,
    state: State,
    number: int = 0,
    shown: list[Future[tasks.Block]] | None = None,
) -> Round:
    """Submit a sweep of every shard, the sums of the deltas, and the folding of the sums into the blocks.

    Parameters
    ----------
    problem : Problem
        The problem.
    executor : Executor
        Runs the tasks.
    state : State
        The state before the round.
    number : int, optional
        Number of the round in its iteration.
    shown : list of futures, optional
        Result of `submit_shown`, if it was submitted before.

    Returns
    -------
    Round
        The submitted round.
    """
    purpose = _purpose("sweep", number) if state.swept else "start"
    stream = problem.stream.at(iteration=state.iteration + 1, purpose=purpose)
    sample = problem.sample(state.iteration + 1, number)
    shown = submit_shown(problem, executor, state) if shown is None else shown
    swept, blocks = _submit_sweeps(problem, executor, state, shown, stream, sample)
    return Round(swept, blocks, [executor.submit(tasks.block_sums, block) for block in blocks])


def require_finite(arrays: Arrays, iteration: int) -> None:
    """Raise `NumericalError` if an array of the global state, or a figure, is not finite."""
    for name, values in arrays.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise NumericalError(
                f"iteration {iteration}: {name} is no longer finite; the options may be out of proportion"
            )


def _purpose(name: str, number: int) -> str:
    """Return the purpose by which a round addresses its random stream; each round draws other numbers."""
    return f"{name} {number}" if number else name


def _submit_sweeps(
    problem: Problem,
    executor: Executor,
    state: State,
    shown: list[Future[tasks.Block]],
    stream: Stream,
    sample: DocumentSample | None,
) -> tuple[list[Future[tasks.Swept]], list[Future[tasks.Block]]]:
    """Submit sweeps and sums in the order in which they are to run; return the swept shards and the new blocks.

    The number of shards alone fixes the order of the sums: neighbours two by two, and so on up. A sum is submitted as
    soon as its terms are, so that few deltas wait at a time.
    """
    bounds = problem.block_bounds
    parts: list[BlockPart] = [None] if len(bounds) == 2 else [(*ends, not ends[0]) for ends in pairwise(bounds)]
    sums = [_Sums(executor) for _ in parts]
    few = len(problem.shards) <= PARTITION.unsummed_shards
    swept: list[Future[tasks.Swept]] = []
    unsummed: list[Future[tasks.Swept]] = []
    for number in range(len(problem.shards)):
        result = _submit_sweep(problem, executor, state, shown, stream, sample, number)
        swept.append(executor.submit(tasks.without_delta, result, home=_home(problem, executor, number)))
        if few:
            unsummed.append(result)
            continue
        # Only the first delta of a group may be added at the home of another shard, so that the others need no task.
        picks = parts[0] is not None or number % PARTITION.group_shards == 0
        for total, part in zip(sums, parts, strict=True):
            delta = _picked(problem, executor, [result], number, part)[0] if picks else result
            total.add(delta, _home(problem, executor, number))
    folded = []
    for number, (block, total, part) in enumerate(zip(state.blocks, sums, parts, strict=True)):
        deltas = _picked(problem, executor, unsummed, 0, part) if few else total.remaining
        home = problem.block_home(number, executor.homes)
        folded.append(executor.submit(tasks.fold, problem.shard_model, block, deltas, state.global_state, home=home))
    return swept, folded


def _submit_sweep(
    problem: Problem,
    executor: Executor,
    state: State,
    shown: list[Future[tasks.Block]],
    stream: Stream,
    sample: DocumentSample | None,
    number: int,
) -> Future[tasks.Swept]:
    """Submit the sweep of a shard, or its start where it has no local state."""
    home = _home(problem, executor, number)
    inputs = (problem.scratch, shown, state.global_state, stream)
    if state.swept:
        return executor.submit(
            tasks.sweep,
            problem.shard_model,
            problem.shards[number],
            state.swept[number],
            *inputs,
            problem.local_sweeps,
            sample,
            home=home,
        )
    known = None if problem.warm is None else problem.warm[number]
    return executor.submit(tasks.start, problem.shard_model, problem.shards[number], *inputs, known, sample, home=home)


class _Sums:
    """Sums of deltas in a fixed order, submitted as the deltas come, so that few deltas wait at a time.

    Groups of neighbours are added one after another, the groups two by two, and so on up. Where a group goes on at
    another home, its sum so far comes there last of all, and one task adds all deltas of that home to it.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor, self._count = executor, 0
        self._group: Summand | None = None
        self._home = 0  # of the group's sum
        self._waiting: list[Summand] = []  # deltas of another home, of which each has the same
        self._tree: list[tuple[int, Summand]] = []  # (height, sum) from left to right

    def add(self, delta: Summand, home: int) -> None:
        """Add the next shard's delta at its home; a sum moves once from one home to the next."""
        self._count += 1
        if self._group is None:
            self._group, self._home = delta, home
        elif home != self._home:
            self._add_waiting()
            # A worker fetches what a task needs once all of it is there: alone, the sum comes while this home sweeps.
            self._group = self._executor.submit(tasks.received, self._group, home=home)
            self._waiting, self._home = [delta], home
        elif self._waiting:
            self._waiting.append(delta)
        else:
            self._group = self._sum([self._group, delta], home)
        if self._count % PARTITION.group_shards:
            return
        self._add_waiting()
        height, group, self._group = 0, self._group, None
        while self._tree and self._tree[-1][0] == height:
            group, height = self._sum([self._tree.pop()[1], group], home), height + 1
        self._tree.append((height, group))

    def _add_waiting(self) -> None:
        """Add the deltas that wait to the group's sum."""
        if self._group is not None and self._waiting:
            self._group, self._waiting = self._sum([self._group, *self._waiting], self._home), []

    def _sum(self, summands: list[Summand], home: int) -> Future[Delta]:
        return self._executor.submit(tasks.add, summands, home=home)

    @property
    def remaining(self) -> list[Summand]:
        """The sums that are still to be added, from left to right."""
        self._add_waiting()
        return [total for _, total in self._tree] + ([self._group] if self._group is not None else [])


def _picked(
    problem: Problem, executor: Executor, swept: list[Future[tasks.Swept]], first: int, part: BlockPart
) -> list[Future[tasks.Swept]] | list[Future[Delta]]:
    """Return the deltas of swept shards, the first of which is number `first`.

    The parts that a block needs are taken out at the shards' homes, if the block may live elsewhere.
    """
    if part is None and executor.homes == 1:
        return swept
    return [
        executor.submit(tasks.delta_part, result, part, home=_home(problem, executor, first + offset))
        for offset, result in enumerate(swept)
    ]


def _home(problem: Problem, executor: Executor, number: int) -> int:
    return problem.home(number, executor.homes)
