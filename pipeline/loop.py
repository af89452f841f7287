"""The loop: one sweep a shard, a sum over a tree fixed by shard number, an update, and again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collapsar.pipeline.checkpointing import Keeper, NoKeeper
from collapsar.pipeline.config import Limits
from collapsar.pipeline.executor import Executor
from collapsar.pipeline.state import Problem, State
from collapsar.storage.errors import ClusterError, NumericalError, OptionError
from collapsar.workers import tasks
from collapsar.workers.delta import Arrays, Delta
from collapsar.workers.streams import Stream

NEIGHBOURS, BRANCHES = 2, 4  # that a node of the reduction's tree adds, at its leaves and above
LOSSES = 3  # of work that cannot be done again, in a row, before the loop gives up


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
    lost : str
        Why the loop went back to this iteration; empty as a rule.
    """

    iteration: int
    elapsed: float
    change: float | None
    score: float | None
    figures: dict[str, float]
    seconds: dict[str, float]
    lost: str = ""


def run(
    problem: Problem, executor: Executor, globals: Arrays, limits: Limits, keeper: Keeper | None = None
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
    keeper : Keeper, optional
        Keeps states, and gives one back when work is lost that Dask cannot do again.

    Yields
    ------
    state : State
        To go on from, or to keep as a model.
    progress : Progress
        What to tell.

    Raises
    ------
    ClusterError
        Work was lost three times in a row without an iteration between.
    """
    keeper = keeper or NoKeeper()
    began, losses = time.perf_counter(), 0
    state = keeper.back(problem) or _blank(problem, executor, globals)
    previous: dict[str, float] = {}
    while state.iteration < limits.iterations or not state.swept:
        clock = time.perf_counter()
        try:
            state, told, figures, updating = _iterate(problem, executor, state)
            scoring = time.perf_counter()
            score = _score(problem, executor, state) if _due(state.iteration, limits) and problem.heldout else None
            now = time.perf_counter()
            state = keeper.keep(state)
        except ClusterError as error:
            losses += 1
            if losses == LOSSES:
                raise
            state = keeper.back(problem) or _blank(problem, executor, globals)
            yield state, _lost(state, time.perf_counter() - began, error)
            continue
        losses = 0
        seconds = _shares(told, executor.workers, now - clock, updating, now - scoring)
        moved = told.number(problem.family.CHANGE) / max(told.number("tokens"), 1.0)
        progress = Progress(state.iteration, now - began, moved if state.iteration else None, score, figures, seconds)
        settled = state.iteration > 0 and _settled(progress, previous, limits)
        if settled and progress.score is None and problem.heldout:  # the last iteration is always scored
            progress = replace(progress, score=_score(problem, executor, state))
        yield state, progress
        if settled:
            return
        previous = {"score": score, **figures} if score is not None else {**previous, **figures}


def _blank(problem: Problem, executor: Executor, globals: Arrays) -> State:
    bounds = zip(problem.cuts, problem.cuts[1:], strict=False)
    return State(-1, globals, [executor.submit(tasks.blank, problem.name, *bound, globals) for bound in bounds])


def _due(iteration: int, limits: Limits) -> bool:
    return iteration > 0 and (iteration % limits.score_every == 0 or iteration == limits.iterations)


def _lost(state: State, elapsed: float, error: ClusterError) -> Progress:
    return Progress(max(state.iteration, 0), elapsed, None, None, {}, {}, str(error))


def _iterate(problem: Problem, executor: Executor, state: State) -> tuple[State, Delta, dict[str, float], float]:
    """Make one iteration, of as many rounds as the family asks for; also time its update."""
    updating, rounds, iteration = 0.0, 0, state.iteration + 1
    while True:
        stream = problem.stream.at(iteration=iteration)
        again = f" {rounds}" if rounds else ""  # other numbers in each round
        swept = _submit_sweeps(problem, executor, state, stream.at(purpose=f"sweep{again}" if state.swept else "start"))
        blocks = _reduce(problem, executor, state, swept)
        told = Delta()
        for part in executor.collect([executor.submit(tasks.tell, block) for block in blocks]):
            told = told + part
        began = time.perf_counter()
        figures = problem.family.objective(state.globals, told)
        update = stream.at(purpose=f"update{again}")
        after = problem.family.update(state.globals, told, problem.config, update)
        updating += time.perf_counter() - began
        _require_finite(after, iteration)
        state = State(iteration, after, blocks, swept)
        rounds += 1
        if float(after.get("another_round", 0)) <= 0:
            return state, told, {**figures, **problem.family.figures(after)}, updating


def _require_finite(globals: Arrays, iteration: int) -> None:
    for name, values in globals.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise NumericalError(
                f"iteration {iteration}: {name} is no longer finite; the options may be out of proportion"
            )


def _submit_sweeps(problem: Problem, executor: Executor, state: State, stream: Stream) -> list[Any]:
    submitted = []
    task: Callable[..., tasks.Swept]
    for number, shard in enumerate(problem.shards):
        home = problem.home(number, executor.homes)
        if state.swept:
            task, given = tasks.sweep, [shard, state.swept[number]]
        else:
            task, given = tasks.start, [shard]
        submitted.append(executor.submit(task, problem.name, *given, state.blocks, state.globals, stream, home=home))
    return submitted


def _reduce(problem: Problem, executor: Executor, state: State, swept: list[Any]) -> list[Any]:
    """Add the deltas, block by block, and fold them in; what concerns no word goes with the first block.

    The tree is fixed by the number of shards: neighbours two by two, their sums four by four.
    """
    folded = []
    for number, (low, high) in enumerate(zip(problem.cuts, problem.cuts[1:], strict=False)):
        part = None if len(problem.cuts) == 2 else (low, high, number == 0)
        sums = [_add_neighbours(problem, executor, swept, first, part) for first in range(0, len(swept), NEIGHBOURS)]
        while len(sums) > BRANCHES:
            groups = [sums[first : first + BRANCHES] for first in range(0, len(sums), BRANCHES)]
            sums = [executor.submit(tasks.add, group) for group in groups]
        folded.append(executor.submit(tasks.fold, problem.name, state.blocks[number], sums, state.globals))
    return folded


def _add_neighbours(problem: Problem, executor: Executor, swept: list[Any], first: int, part: Any) -> Any:
    """Add the deltas of neighbours where they live, or, if they live apart, pick them out first: locals stay."""
    group = swept[first : first + NEIGHBOURS]
    homes = {problem.home(first + place, executor.homes) for place in range(len(group))}
    if len(homes) == 1:
        return executor.submit(tasks.add_swept, group, part)
    return executor.submit(tasks.add, [executor.submit(tasks.pick, one, part) for one in group])


def _score(problem: Problem, executor: Executor, state: State) -> float | None:
    """Return the mean log probability of a held-out token; the sum is taken in the order of the shards."""
    submitted = []
    for number, heldout in enumerate(problem.heldout):
        home = problem.home(number, executor.homes)
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
    if limits.stop_on == "objective" and "objective" not in progress.figures:
        raise OptionError("--stop-on objective: the family has no objective under these options; use counts or score")
    now = progress.score if limits.stop_on == "score" else progress.figures.get("objective")
    before = previous.get(limits.stop_on)
    if now is None or before is None:
        return False
    return abs(now - before) < limits.tolerance * abs(before)
