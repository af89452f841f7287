"""The loop: one sweep a shard, a sum over a tree fixed by shard number, an update, and again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from collapsar.pipeline.config import Limits
from collapsar.pipeline.contract import Family, FamilyConfig
from collapsar.pipeline.executor import Executor
from collapsar.workers import tasks
from collapsar.workers.delta import Arrays, Delta
from collapsar.workers.streams import Stream

BRANCHES = 4  # of the reduction's tree


@dataclass(frozen=True)
class Problem:
    """What a run works on; fixed before the first sweep.

    Attributes
    ----------
    name : str
        The family's name.
    family : Family
        Its half on the driver.
    config : FamilyConfig
        Its options.
    shards, heldout : sequence of futures
        The shards, and the held-out pairs of their documents; no held-out ones where there is no such corpus.
    cuts : tuple of int
        First words of the blocks of the vocabulary and, last, its size.
    stream : Stream
        The run's seed.
    """

    name: str
    family: Family
    config: FamilyConfig
    shards: Sequence[Any]
    heldout: Sequence[Any]
    cuts: tuple[int, ...]
    stream: Stream

    def home(self, shard: int, workers: int) -> int:
        """Return the worker that a shard lives on: neighbours live together, as they are added first."""
        return shard * workers // len(self.shards)


@dataclass(frozen=True)
class State:
    """What the loop holds between iterations: globals here, all else as futures."""

    iteration: int
    globals: Arrays
    blocks: list[Any]
    swept: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Progress:
    """What one iteration told.

    Attributes
    ----------
    iteration : int
        1 for the first; 0 for the start.
    elapsed : float
        Seconds since the start began.
    change : float or None
        Share of the tokens that moved between topics.
    score : float or None
        Mean log probability of a held-out token, in nats.
    figures : dict
        The family's hyperparameters and, where it has one, the ``objective``.
    seconds : dict
        Where the iteration's time went: ``kernel`` (in sweeps, a worker's mean), ``reduce``, ``update``, ``score``,
        and ``wait`` for the rest.
    """

    iteration: int
    elapsed: float
    change: float | None
    score: float | None
    figures: dict[str, float]
    seconds: dict[str, float]


def run(
    problem: Problem,
    executor: Executor,
    globals: Arrays,
    limits: Limits,
) -> Iterator[tuple[State, Progress]]:
    """Run the iterations, giving the state after each; the caller may stop at any.

    Parameters
    ----------
    problem : Problem
        What to fit.
    executor : Executor
        Who runs the tasks.
    globals : Arrays
        As the family's `initialise` made them.
    limits : Limits
        When to end.

    Yields
    ------
    state : State
        To go on from, or to keep as a model.
    progress : Progress
        What to tell.
    """
    began = time.perf_counter()
    bounds = zip(problem.cuts, problem.cuts[1:], strict=False)
    blocks = [executor.submit(tasks.blank, problem.name, low, high, globals) for low, high in bounds]
    state = State(0, globals, blocks)
    previous: dict[str, float] = {}
    for iteration in range(limits.iterations + 1):
        state = replace(state, iteration=iteration)
        clock = time.perf_counter()
        state, told, figures, updating = _iterate(problem, executor, state)
        last = iteration == limits.iterations
        scored = iteration and (iteration % limits.score_every == 0 or last)
        scoring = time.perf_counter()
        score = _score(problem, executor, state) if scored and problem.heldout else None
        now = time.perf_counter()
        seconds = _shares(told, executor.workers, now - clock, updating, now - scoring)
        change = told.number(problem.family.CHANGE) / max(told.number("tokens"), 1.0) if iteration else None
        progress = Progress(iteration, now - began, change, score, figures, seconds)
        yield state, progress
        if iteration and _settled(progress, previous, limits):
            return
        previous = {"score": score, **figures} if score is not None else {**previous, **figures}


def _iterate(problem: Problem, executor: Executor, state: State) -> tuple[State, Delta, dict[str, float], float]:
    """Make one iteration, of as many rounds as the family asks for; also time its update."""
    updating = 0.0
    while True:
        swept = _submit_sweeps(problem, executor, state)
        blocks = _reduce(problem, executor, state, swept)
        told = Delta()
        for part in executor.collect([executor.submit(tasks.tell, block) for block in blocks]):
            told = told + part
        began = time.perf_counter()
        figures = problem.family.objective(state.globals, told)
        stream = problem.stream.at(purpose="update", iteration=state.iteration)
        after = problem.family.update(state.globals, told, problem.config, stream)
        updating += time.perf_counter() - began
        state = State(state.iteration, after, blocks, swept)
        if float(after.get("another_round", 0)) <= 0:
            return state, told, {**figures, **problem.family.figures(after)}, updating


def _submit_sweeps(problem: Problem, executor: Executor, state: State) -> list[Any]:
    stream = problem.stream.at(purpose="sweep" if state.swept else "start", iteration=state.iteration)
    submitted = []
    task: Callable[..., tasks.Swept]
    for number, shard in enumerate(problem.shards):
        home = problem.home(number, executor.workers)
        if state.swept:
            task, given = tasks.sweep, [shard, state.swept[number]]
        else:
            task, given = tasks.start, [shard]
        submitted.append(executor.submit(task, problem.name, *given, state.blocks, state.globals, stream, home=home))
    return submitted


def _reduce(problem: Problem, executor: Executor, state: State, swept: list[Any]) -> list[Any]:
    """Add the deltas, block by block, and fold them in; what concerns no word goes with the first block."""
    folded = []
    for number, (low, high) in enumerate(zip(problem.cuts, problem.cuts[1:], strict=False)):
        if len(problem.cuts) == 2:
            picked = [executor.submit(tasks.pick_all, one) for one in swept]
        else:
            picked = [executor.submit(tasks.pick, one, low, high, number == 0) for one in swept]
        while len(picked) > 1:
            groups = [picked[first : first + BRANCHES] for first in range(0, len(picked), BRANCHES)]
            picked = [executor.submit(tasks.add, group) if len(group) > 1 else group[0] for group in groups]
        folded.append(executor.submit(tasks.fold, problem.name, state.blocks[number], picked[0], state.globals))
    return folded


def _score(problem: Problem, executor: Executor, state: State) -> float | None:
    """Return the mean log probability of a held-out token; the sum is taken in the order of the shards."""
    submitted = []
    for number, heldout in enumerate(problem.heldout):
        home = problem.home(number, executor.workers)
        given = (heldout, state.swept[number], state.blocks, state.globals)
        submitted.append(executor.submit(tasks.score, problem.name, *given, home=home))
    return mean_score(executor.collect(submitted))


def mean_score(scores: Sequence[tasks.Score]) -> float | None:
    """Return the mean log probability of a token, in nats; None where there is no token."""
    tokens = sum(score.tokens for score in scores)
    return math.fsum(score.log_probability for score in scores) / tokens if tokens else None


def _shares(told: Delta, workers: int, whole: float, updating: float, scoring: float) -> dict[str, float]:
    kernel = told.seconds.get("kernel", 0.0) / workers
    reduce = told.seconds.get("reduce", 0.0) / workers
    wait = max(whole - kernel - reduce - updating - scoring, 0.0)
    return {"kernel": kernel, "reduce": reduce, "update": updating, "score": scoring, "wait": wait}


def _settled(progress: Progress, previous: dict[str, float], limits: Limits) -> bool:
    if limits.tolerance <= 0:
        return False
    if limits.stop_on == "counts":
        return progress.change is not None and progress.change < limits.tolerance
    now = progress.score if limits.stop_on == "score" else progress.figures.get("objective")
    before = previous.get(limits.stop_on)
    if now is None or before is None:
        return False
    return abs(now - before) < limits.tolerance * abs(before)
