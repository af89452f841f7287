"""One iteration of the batch schedule: sweep every shard, reduce the deltas, fold them in, update the global state."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

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


class Due(NamedTuple):
    """Uses of the rows of blocks after a round."""

    swept: bool = True  # Whether sweeps follow
    scored: bool = False  # Whether held-out tokens are scored


@dataclass(frozen=True)
class BlockRows:
    """Submitted rows of all blocks."""

    swept: list[Future[tasks.Block]] = field(default_factory=list)  # Those that sweeps see; empty where none follows
    # Those that score held-out tokens; empty where scores are not due
    scored: list[Future[tasks.Block]] = field(default_factory=list)
    # Tasks by which the rows come to other homes. A task that nobody holds is not run.
    prefetched: list[Future[None]] = field(default_factory=list)


@dataclass(frozen=True)
class Round:
    """A submitted round of sweeps."""

    swept: list[Future[tasks.Swept]]  # The shards' next local states
    blocks: list[Future[tasks.Block]]  # The blocks of the vocabulary, with the deltas folded in
    statistics: list[Future[Delta]]  # What the update of the global state takes, from each block
    rows: BlockRows  # Rows of the blocks


class Iterated(NamedTuple):
    """Result of an iteration."""

    state: State  # The state after the iteration
    rows: BlockRows  # Rows of its blocks
    statistics: Delta  # Those of the last round
    figures: dict[str, float]  # The family's hyperparameters and, where it has one, the ``objective``
    seconds: float  # Time that the updates on the driver took


def iterate(problem: Problem, executor: Executor, state: State, submitted: Round | None, due: Due) -> Iterated:
    """Run one iteration, of as many rounds of sweeps as the family needs."""
    seconds, rounds, iteration = 0.0, 0, state.iteration + 1
    rows: BlockRows | None = None
    while True:
        current = submitted or submit_round(problem, executor, state, due, rounds, rows)
        rows = current.rows
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
            return Iterated(state, rows, statistics, {**figures, **problem.family.figures(updated)}, seconds)
        # A further round belongs to the same iteration, and its sweeps follow the iteration before.
        state = State(iteration - 1, updated, current.blocks, current.swept)


def submit_rows(problem: Problem, executor: Executor, blocks: list[Future[tasks.Block]], due: Due) -> BlockRows:
    """Submit the rows of blocks for their uses, and the tasks by which they come to other homes.

    A worker fetches the rows that a task needs before it runs it. Scores and sweeps are submitted once the driver has
    updated the global state; until then the rows have come.
    """
    homes = [problem.block_home(number, executor.homes) for number in range(len(blocks))]

    def submit(task: Callable[[tasks.Block], tasks.Block]) -> list[Future[tasks.Block]]:
        return [executor.submit(task, block, home=home) for block, home in zip(blocks, homes, strict=True)]

    scored = submit(tasks.scored_rows) if due.scored and problem.heldout else []
    swept = submit(tasks.swept_rows) if due.swept else []
    others = [home for home in _shard_homes(problem, executor) if {home} != set(homes)]
    prefetched = [
        executor.submit(tasks.prefetch, rows, home=home) for rows in (scored, swept) if rows for home in others
    ]
    return BlockRows(swept, scored, prefetched)


def submit_round(
    problem: Problem,
    executor: Executor,
    state: State,
    due: Due,
    number: int = 0,
    rows: BlockRows | None = None,
) -> Round:
    """Submit a sweep of every shard, the sums of the deltas, and the folding of the sums into the blocks."""
    purpose = _purpose("sweep", number) if state.swept else "start"
    stream = problem.stream.at(iteration=state.iteration + 1, purpose=purpose)
    sample = problem.sample(state.iteration + 1, number)
    shown = rows.swept if rows is not None and rows.swept else submit_rows(problem, executor, state.blocks, Due()).swept
    swept, blocks = _submit_sweeps(problem, executor, state, shown, stream, sample)
    statistics = [executor.submit(tasks.block_sums, block) for block in blocks]
    return Round(swept, blocks, statistics, submit_rows(problem, executor, blocks, due))


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
    sums = [_Sums(executor, problem.waiting_deltas) for _ in parts]
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

    Groups of neighbours are added one after another, the groups two by two, and so on up. A task adds as many deltas of
    a group as may wait. Where a group goes on at another home, its sum so far comes there last of all, and one task
    adds all deltas of that home to it.
    """

    def __init__(self, executor: Executor, waiting: int = 1) -> None:
        self._executor, self._most_waiting, self._count = executor, waiting, 0
        self._group: Summand | None = None
        self._home = 0  # of the group's sum
        self._from_elsewhere = False  # whether the sum is from another home
        self._waiting: list[Summand] = []  # deltas at the home of the group's sum
        self._tree: list[tuple[int, Summand]] = []  # (height, sum) from left to right

    def add(self, delta: Summand, home: int) -> None:
        """Add the next shard's delta at its home; a sum moves once from one home to the next."""
        self._count += 1
        if self._group is None:
            self._group, self._home, self._from_elsewhere = delta, home, False
        elif home != self._home:
            self._add_waiting()
            # A worker fetches what a task needs once all of it is there: alone, the sum comes while this home sweeps.
            self._group = self._executor.submit(tasks.received, self._group, home=home)
            self._waiting, self._home, self._from_elsewhere = [delta], home, True
        else:
            self._waiting.append(delta)
        if len(self._waiting) >= self._most_waiting and not self._from_elsewhere:
            self._add_waiting()
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


def _shard_homes(problem: Problem, executor: Executor) -> list[int]:
    """Return the homes of all shards."""
    return sorted({_home(problem, executor, number) for number in range(len(problem.shards))})


def _home(problem: Problem, executor: Executor, number: int) -> int:
    return problem.home(number, executor.homes)
