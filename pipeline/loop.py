"""The loop: one sweep a shard, a sum over a tree fixed by shard number, an update, and again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from collapsar.pipeline.checkpointing import Keeper, NoKeeper
from collapsar.pipeline.config import Limits
from collapsar.pipeline.executor import Executor
from collapsar.pipeline.planning import GROUP
from collapsar.pipeline.state import Problem, State
from collapsar.storage.errors import ClusterError, NumericalError, OptionError
from collapsar.workers import tasks
from collapsar.workers.delta import Arrays, Delta
from collapsar.workers.streams import Stream

NEIGHBOURS = 2  # shards whose deltas need no sums before they are folded
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
        Where the iteration's time went, a worker's mean: ``kernel`` (sweeps), ``reduce`` (sums and folding), ``score``,
        the driver's ``update``, and ``wait`` for the rest.
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
    problem: Problem,
    executor: Executor,
    globals: Arrays,
    limits: Limits,
    keeper: Keeper | None = None,
    reached: Callable[[State], None] | None = None,
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
    reached : callable, optional
        Told each state as soon as it is whole. Whoever holds a state only so long frees the one before in time for
        the sweeps that follow.

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
    state = keeper.back(problem) or blank_state(problem, executor, globals)
    previous: dict[str, float] = {}
    clock, ahead = began, None
    while state.iteration < limits.sweeps or not state.swept:
        try:
            state, told, figures, updating = _iterate(problem, executor, state, ahead)
            scoring = submit_scores(problem, executor, state) if _due(state.iteration, limits) else []
            state = keeper.keep(state)
            if reached is not None:
                reached(state)
            # The next sweeps go out before the score has come in, so that no worker waits for the driver.
            ahead = _submit_round(problem, executor, state) if state.iteration < limits.sweeps else None
            scores = executor.collect(scoring)
        except ClusterError as error:
            losses, ahead = losses + 1, None
            if losses == LOSSES:
                raise
            state = keeper.back(problem) or blank_state(problem, executor, globals)
            yield state, lost(state, time.perf_counter() - began, error)
            continue
        losses, now = 0, time.perf_counter()
        seconds = shares(told, executor.workers, now - clock, updating, sum(one.seconds for one in scores))
        score, clock = mean_score(scores), now
        moved = told.number(problem.family.CHANGE) / max(told.number("tokens"), 1.0)
        progress = Progress(state.iteration, now - began, moved if state.iteration else None, score, figures, seconds)
        settled = state.iteration > 0 and is_settled(progress, previous, limits)
        if settled and progress.score is None:  # the last iteration is always scored
            progress = replace(progress, score=mean_score(executor.collect(submit_scores(problem, executor, state))))
        yield state, progress
        if settled:
            return
        previous = {"score": score, **figures} if score is not None else {**previous, **figures}


def blank_state(problem: Problem, executor: Executor, globals: Arrays) -> State:
    """Return the state before anything has been seen."""
    blocks = [
        executor.submit(tasks.blank, problem.name, *bound, globals, home=problem.block_home(number, executor.homes))
        for number, bound in enumerate(pairwise(problem.cuts))
    ]
    return State(-1, globals, blocks)


def _due(iteration: int, limits: Limits) -> bool:
    return iteration > 0 and (iteration % (limits.score_every or 1) == 0 or iteration == limits.sweeps)


def lost(state: State, elapsed: float, error: ClusterError) -> Progress:
    """Return what to tell when the loop goes back to a state."""
    return Progress(max(state.iteration, 0), elapsed, None, None, {}, {}, str(error))


@dataclass(frozen=True)
class _Round:
    """A round of sweeps on its way: what the shards will leave, the folded blocks, and what folding will tell."""

    swept: list[Any]
    blocks: list[Any]
    told: list[Any]


def _submit_round(problem: Problem, executor: Executor, state: State, number: int = 0) -> _Round:
    """Submit a sweep of every shard, the sums of their deltas and the folding of these into the blocks."""
    again = f" {number}" if number else ""  # other numbers in each round
    purpose = f"sweep{again}" if state.swept else "start"
    stream = problem.stream.at(iteration=state.iteration + 1, purpose=purpose)
    swept, blocks = _submit_sweeps(problem, executor, state, stream)
    return _Round(swept, blocks, [executor.submit(tasks.tell, block) for block in blocks])


def _iterate(
    problem: Problem, executor: Executor, state: State, ahead: _Round | None
) -> tuple[State, Delta, dict[str, float], float]:
    """Make one iteration, of as many rounds as the family asks for; also time its update."""
    updating, rounds, iteration = 0.0, 0, state.iteration + 1
    while True:
        submitted = ahead or _submit_round(problem, executor, state, rounds)
        told, ahead = Delta(), None
        for part in executor.collect(submitted.told):
            told = told + part
        began = time.perf_counter()
        figures = problem.family.objective(state.globals, told)
        again = f" {rounds}" if rounds else ""
        stream = problem.stream.at(iteration=iteration, purpose=f"update{again}")
        after = problem.family.update(state.globals, told, problem.config, stream)
        updating += time.perf_counter() - began
        require_finite(after, iteration)
        # A further round belongs to the same iteration: its sweeps are of the iteration before plus one.
        rounds += 1
        if float(after.get("another_round", 0)) <= 0:
            state = State(iteration, after, submitted.blocks, submitted.swept)
            return state, told, {**figures, **problem.family.figures(after)}, updating
        state = State(iteration - 1, after, submitted.blocks, submitted.swept)


def require_finite(globals: Arrays, iteration: int) -> None:
    """Raise `NumericalError` if the globals have left what floating point can hold."""
    for name, values in globals.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise NumericalError(
                f"iteration {iteration}: {name} is no longer finite; the options may be out of proportion"
            )


def _submit_sweeps(problem: Problem, executor: Executor, state: State, stream: Stream) -> tuple[list[Any], list[Any]]:
    """Submit sweeps and sums in the order in which they shall be done; return the swept shards and the new blocks.

    The tree is fixed by the number of shards: neighbours two by two, and so on up. A node is submitted as soon as what
    it adds has been, so that few deltas wait for their sum at a time.
    """
    swept: list[Any] = []
    parts: list[Any] = (
        [None] if len(problem.cuts) == 2 else [(*bound, not bound[0]) for bound in pairwise(problem.cuts)]
    )
    sums = [_Sums(executor) for _ in parts]
    shown = [
        executor.submit(tasks.show, block, home=problem.block_home(place, executor.homes))
        for place, block in enumerate(state.blocks)
    ]
    few = len(problem.shards) <= NEIGHBOURS
    left: list[Any] = []
    for number in range(len(problem.shards)):
        whole = _submit_sweep(problem, executor, state, shown, stream, number)
        swept.append(executor.submit(tasks.keep, whole, home=_home(problem, executor, number)))
        if few:
            left.append(whole)
            continue
        for one, part in zip(sums, parts, strict=True):
            one.add(_picked(problem, executor, [whole], number, part)[0], _home(problem, executor, number))
    folded = []
    for number, (block, one, part) in enumerate(zip(state.blocks, sums, parts, strict=True)):
        deltas = _picked(problem, executor, left, 0, part) if few else one.deltas
        home = problem.block_home(number, executor.homes)
        folded.append(executor.submit(tasks.fold, problem.name, block, deltas, state.globals, home=home))
    return swept, folded


def _submit_sweep(
    problem: Problem, executor: Executor, state: State, shown: list[Any], stream: Stream, number: int
) -> Any:
    home = _home(problem, executor, number)
    given = (problem.scratch, shown, state.globals, stream)
    if state.swept:
        return executor.submit(
            tasks.sweep,
            problem.name,
            problem.shards[number],
            state.swept[number],
            *given,
            problem.local_sweeps,
            home=home,
        )
    return executor.submit(tasks.start, problem.name, problem.shards[number], *given, home=home)


class _Sums:
    """Adds deltas as they come, in an order fixed by their number: few wait at a time, however many there are.

    Groups of neighbours are added one after another, the groups two by two, and so on up.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor, self._count = executor, 0
        self._group: Any = None
        self._tree: list[tuple[int, Any]] = []  # (height, sum) from left to right

    def add(self, delta: Any, home: int) -> None:
        """Add the next shard's delta, where that shard lives: a sum moves once from one home to the next."""
        self._count += 1
        self._group = delta if self._group is None else self._sum(self._group, delta, home)
        if self._count % GROUP:
            return
        height, self._group, group = 0, None, self._group
        while self._tree and self._tree[-1][0] == height:
            group, height = self._sum(self._tree.pop()[1], group, home), height + 1
        self._tree.append((height, group))

    def _sum(self, left: Any, right: Any, home: int) -> Any:
        return self._executor.submit(tasks.add, [left, right], home=home)

    @property
    def deltas(self) -> list[Any]:
        """What is left to add, from left to right."""
        return [one for _, one in self._tree] + ([self._group] if self._group is not None else [])


def _picked(problem: Problem, executor: Executor, swept: list[Any], first: int, part: Any) -> list[Any]:
    """Return what shards left, the first being number `first`: picked out where they live, if they may live apart."""
    if part is None and executor.homes == 1:
        return swept
    return [
        executor.submit(tasks.pick, one, part, home=_home(problem, executor, first + place))
        for place, one in enumerate(swept)
    ]


def _home(problem: Problem, executor: Executor, number: int) -> int:
    return problem.home(number, executor.homes)


def submit_scores(problem: Problem, executor: Executor, state: State) -> list[Any]:
    """Submit the scoring of the held-out pairs; nothing where there are none."""
    submitted = []
    blocks = [
        executor.submit(tasks.counted, block, home=problem.block_home(place, executor.homes))
        for place, block in enumerate(state.blocks if problem.heldout else [])
    ]
    for number, heldout in enumerate(problem.heldout):
        given = (heldout, state.swept[number], blocks, state.globals)
        submitted.append(executor.submit(tasks.score, problem.name, *given, home=_home(problem, executor, number)))
    return submitted


def mean_score(scores: Sequence[tasks.Score]) -> float | None:
    """Return the mean log probability of a token, in nats; None where there is no token."""
    tokens = sum(score.tokens for score in scores)
    return math.fsum(score.log_probability for score in scores) / tokens if tokens else None


def shares(told: Delta, workers: int, whole: float, updating: float, scoring: float) -> dict[str, float]:
    """Return where an iteration's time went, a worker's mean, in seconds; see `Progress`."""
    spent = {name: told.seconds.get(name, 0.0) / workers for name in ("kernel", "reduce")}
    spent.update(update=updating, score=scoring / workers)
    return {**spent, "wait": max(whole - sum(spent.values()), 0.0)}


def is_settled(progress: Progress, previous: dict[str, float], limits: Limits) -> bool:
    """Say whether the run has come under its tolerance."""
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
