"""What the loop goes back to: states kept on disk, every so often, and loaded again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

from collapsar.pipeline.executor import Executor
from collapsar.pipeline.state import Problem, State
from collapsar.storage.checkpoint import Checkpoint, Checkpoints
from collapsar.workers import tasks
from collapsar.workers.delta import Delta
from collapsar.workers.shelf import Shelf, ShelfWriter

SECONDS = 60.0  # between two checkpoints, at least
SHARE = 0.05  # of the time that checkpoints may take
ITERATIONS = 1000  # between two, at most: until then the scheduler remembers every task


class Keeper(Protocol):
    """Keeps states and gives them back."""

    def keep(self, state: State) -> State:
        """Keep a state if it is time to; the state to go on from has no history."""

    def back(self, problem: Problem) -> State | None:
        """Return the state kept last; None where there is none."""


class NoKeeper:
    """Keeps nothing: whoever goes back begins anew."""

    def keep(self, state: State) -> State:
        """Keep nothing."""
        return state

    def back(self, problem: Problem) -> State | None:  # noqa: ARG002
        """Give nothing back."""
        return None


class CheckpointKeeper:
    """Keeps states as checkpoints of a run.

    Parameters
    ----------
    checkpoints : Checkpoints
        Where.
    executor : Executor
        Whose workers write and read their parts.
    problem : Problem
        Says where the shards live.
    seconds : float, optional
        Time between two checkpoints, at least.
    share : float, optional
        Share of the time that checkpoints may take.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        executor: Executor,
        problem: Problem,
        seconds: float = SECONDS,
        share: float = SHARE,
    ) -> None:
        self._checkpoints, self._executor, self._problem = checkpoints, executor, problem
        self._seconds, self._wait, self._share = seconds, seconds, share
        self._last, self._iteration = time.monotonic(), 0

    def keep(self, state: State) -> State:
        """Keep a state if it is time to, and cut the history of its tasks: they become tasks that load it."""
        now = time.monotonic()
        late = now - self._last >= self._wait or state.iteration - self._iteration >= ITERATIONS
        if not state.iteration or not late:
            return state
        place = self._checkpoints.at(state.iteration)
        place.write("globals", state.globals)
        submit = self._executor.submit
        written = [submit(write_block, place, number, block) for number, block in enumerate(state.blocks)]
        written += [submit(write_local, place, number, swept) for number, swept in enumerate(state.swept)]
        self._executor.collect(written)
        self._checkpoints.publish(state.iteration)
        after = self._loaded(state.iteration, self._problem)
        self._last, self._iteration = time.monotonic(), state.iteration
        self._wait = max(self._seconds, (self._last - now) / self._share)
        return after

    def back(self, problem: Problem) -> State | None:
        """Return the latest checkpoint's state; None where there is none."""
        iteration = self._checkpoints.latest()
        return None if iteration is None else self._loaded(iteration, problem)

    def _loaded(self, iteration: int, problem: Problem) -> State:
        place, submit = self._checkpoints.at(iteration), self._executor.submit
        cuts: Sequence[int] = problem.cuts
        blocks = [
            submit(read_block, place, number, *bound, home=problem.block_home(number, self._executor.homes))
            for number, bound in enumerate(pairwise(cuts))
        ]
        homes = [problem.home(number, self._executor.homes) for number in range(len(problem.shards))]
        swept: list[Any] = [
            submit(read_local, place, number, problem.scratch, home=home) for number, home in enumerate(homes)
        ]
        return State(iteration, place.read("globals"), blocks, swept)


def write_block(place: Checkpoint, number: int, block: tasks.Block) -> None:
    """Write a block of the vocabulary where it lies."""
    place.write(f"rows/{number:05d}", block.rows)


def write_local(place: Checkpoint, number: int, swept: tasks.Swept) -> None:
    """Write a shard's local state where it lies."""
    local = swept.local
    place.write(f"locals/{number:05d}", local.lying() if isinstance(local, Shelf) else local)


def read_block(place: Checkpoint, number: int, low: int, high: int) -> tasks.Block:
    """Read a block of the vocabulary."""
    return tasks.Block(low, high, place.read(f"rows/{number:05d}"), Delta())


def read_local(place: Checkpoint, number: int, scratch: str | None = None) -> tasks.Swept:
    """Read a shard's local state, as a sweep that changed nothing would have left it."""
    part = f"locals/{number:05d}"
    if scratch is None:
        return tasks.Swept(place.read(part), Delta())
    writer = ShelfWriter(scratch)
    for name, rows in place.open(part).items():
        for piece in rows.pieces():
            writer.add({name: piece})
    return tasks.Swept(writer.finish(), Delta())
