"""Rounds: one sweep a shard, and the sums of what the sweeps changed over a tree fixed by shard number."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from collapsium.pipeline.engine.partition import GROUP
from collapsium.pipeline.engine.state import Problem, State
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.storage.errors import NumericalError
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays

Part = tuple[int, int, bool] | None  # of the vocabulary, as `tasks.delta_part` takes it
Summand = Future[Delta] | Future[tasks.Swept]
NEIGHBOURS = 2  # shards whose deltas need no sums before they are folded


@dataclass(frozen=True)
class Round:
    """A round of sweeps on its way: what the shards will leave, the folded blocks, and what folding will tell."""

    swept: list[Future[tasks.Swept]]
    blocks: list[Future[tasks.Block]]
    told: list[Future[Delta]]


def submit_round(problem: Problem, executor: Executor, state: State, number: int = 0) -> Round:
    """Submit a sweep of every shard, the sums of their deltas and the folding of these into the blocks."""
    again = f" {number}" if number else ""  # other numbers in each round
    purpose = f"sweep{again}" if state.swept else "start"
    stream = problem.stream.at(iteration=state.iteration + 1, purpose=purpose)
    swept, blocks = _submit_sweeps(problem, executor, state, stream)
    return Round(swept, blocks, [executor.submit(tasks.block_sums, block) for block in blocks])


def iterate(
    problem: Problem, executor: Executor, state: State, ahead: Round | None
) -> tuple[State, Delta, dict[str, float], float]:
    """Make one iteration, of as many rounds as the family asks for; also time its update."""
    updating, rounds, iteration = 0.0, 0, state.iteration + 1
    while True:
        submitted = ahead or submit_round(problem, executor, state, rounds)
        told, ahead = Delta(), None
        for part in executor.collect(submitted.told):
            told = told + part
        began = time.perf_counter()
        figures = problem.family.objective(state.global_state, told)
        again = f" {rounds}" if rounds else ""
        stream = problem.stream.at(iteration=iteration, purpose=f"update{again}")
        after = problem.family.update(state.global_state, told, problem.config, stream)
        updating += time.perf_counter() - began
        require_finite(after.to_arrays(), iteration)
        # A further round belongs to the same iteration: its sweeps are of the iteration before plus one.
        rounds += 1
        if not problem.family.needs_another_round(after):
            state = State(iteration, after, submitted.blocks, submitted.swept)
            return state, told, {**figures, **problem.family.figures(after)}, updating
        state = State(iteration - 1, after, submitted.blocks, submitted.swept)


def require_finite(arrays: Arrays, iteration: int) -> None:
    """Raise `NumericalError` if the arrays of the global state, or figures, are no longer finite."""
    for name, values in arrays.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise NumericalError(
                f"iteration {iteration}: {name} is no longer finite; the options may be out of proportion"
            )


def _submit_sweeps(
    problem: Problem, executor: Executor, state: State, stream: Stream
) -> tuple[list[Future[tasks.Swept]], list[Future[tasks.Block]]]:
    """Submit sweeps and sums in the order in which they shall be done; return the swept shards and the new blocks.

    The tree is fixed by the number of shards: neighbours two by two, and so on up. A node is submitted as soon as what
    it adds has been, so that few deltas wait for their sum at a time.
    """
    swept: list[Future[tasks.Swept]] = []
    parts: list[Part] = (
        [None] if len(problem.cuts) == 2 else [(*bound, not bound[0]) for bound in pairwise(problem.cuts)]
    )
    sums = [_Sums(executor) for _ in parts]
    shown = [
        executor.submit(tasks.swept_rows, block, home=problem.block_home(place, executor.homes))
        for place, block in enumerate(state.blocks)
    ]
    few = len(problem.shards) <= NEIGHBOURS
    left: list[Future[tasks.Swept]] = []
    for number in range(len(problem.shards)):
        whole = _submit_sweep(problem, executor, state, shown, stream, number)
        swept.append(executor.submit(tasks.without_delta, whole, home=_home(problem, executor, number)))
        if few:
            left.append(whole)
            continue
        for one, part in zip(sums, parts, strict=True):
            one.add(_picked(problem, executor, [whole], number, part)[0], _home(problem, executor, number))
    folded = []
    for number, (block, one, part) in enumerate(zip(state.blocks, sums, parts, strict=True)):
        deltas = _picked(problem, executor, left, 0, part) if few else one.deltas
        home = problem.block_home(number, executor.homes)
        folded.append(executor.submit(tasks.fold, problem.shard_model, block, deltas, state.global_state, home=home))
    return swept, folded


def _submit_sweep(
    problem: Problem, executor: Executor, state: State, shown: list[Future[tasks.Block]], stream: Stream, number: int
) -> Future[tasks.Swept]:
    home = _home(problem, executor, number)
    given = (problem.scratch, shown, state.global_state, stream)
    if state.swept:
        return executor.submit(
            tasks.sweep,
            problem.shard_model,
            problem.shards[number],
            state.swept[number],
            *given,
            problem.local_sweeps,
            home=home,
        )
    known = None if problem.warm is None else problem.warm[number]
    return executor.submit(tasks.start, problem.shard_model, problem.shards[number], *given, known, home=home)


class _Sums:
    """Adds deltas as they come, in an order fixed by their number: few wait at a time, however many there are.

    Groups of neighbours are added one after another, the groups two by two, and so on up.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor, self._count = executor, 0
        self._group: Summand | None = None
        self._tree: list[tuple[int, Summand]] = []  # (height, sum) from left to right

    def add(self, delta: Summand, home: int) -> None:
        """Add the next shard's delta, where that shard lives: a sum moves once from one home to the next."""
        self._count += 1
        group = delta if self._group is None else self._sum(self._group, delta, home)
        if self._count % GROUP:
            self._group = group
            return
        height, self._group = 0, None
        while self._tree and self._tree[-1][0] == height:
            group, height = self._sum(self._tree.pop()[1], group, home), height + 1
        self._tree.append((height, group))

    def _sum(self, left: Summand, right: Summand, home: int) -> Future[Delta]:
        return self._executor.submit(tasks.add, [left, right], home=home)

    @property
    def deltas(self) -> list[Summand]:
        """What is left to add, from left to right."""
        return [one for _, one in self._tree] + ([self._group] if self._group is not None else [])


def _picked(
    problem: Problem, executor: Executor, swept: list[Future[tasks.Swept]], first: int, part: Part
) -> list[Future[tasks.Swept]] | list[Future[Delta]]:
    """Return what shards left, the first being number `first`: picked out where they live, if they may live apart."""
    if part is None and executor.homes == 1:
        return swept
    return [
        executor.submit(tasks.delta_part, one, part, home=_home(problem, executor, first + place))
        for place, one in enumerate(swept)
    ]


def _home(problem: Problem, executor: Executor, number: int) -> int:
    return problem.home(number, executor.homes)
