"""The loop: one sweep a shard, a sum over a tree fixed by shard number, an update, and again."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from collapsium.pipeline.engine.loop.convergence import CHANGE, OBJECTIVE, PREFIX, SCORE, Windows
from collapsium.pipeline.engine.loop.iteration import Round, iterate, require_finite, submit_round
from collapsium.pipeline.engine.loop.topic_snapshots import Glance, Words
from collapsium.pipeline.engine.model_io.checkpoints import Keeper, NoKeeper
from collapsium.pipeline.engine.setup.limits import AUTO, Limits
from collapsium.pipeline.engine.state import Kept, Problem, Progress, State
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.storage.errors import ClusterError, OptionError
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.state import GlobalState

SLOWEST = 3  # shards whose seconds are told by themselves
NO_OBJECTIVE = "`stop_on` objective: the family has no objective under these options; use counts or score"
LOSSES = 3  # of work that cannot be done again, in a row, before the loop gives up


def run(
    problem: Problem,
    executor: Executor,
    global_state: GlobalState,
    limits: Limits,
    keeper: Keeper | None = None,
    glance: Glance | None = None,
) -> Iterator[tuple[State, Progress]]:
    """Run the iterations, giving the state after each; the caller may stop at any.

    Parameters
    ----------
    problem : Problem
        What to fit.
    executor : Executor
        Who runs the tasks.
    global_state : Arrays
        As the family's `initialise` made them.
    limits : Limits
        When to end.
    keeper : Keeper, optional
        Keeps states, and gives one back at the beginning and when work is lost that Dask cannot do again. The iteration
        of a state that it gives back is told again.
    glance : Glance, optional
        Looks at the topics; without it, nothing is told of them.

    Returns
    -------
    iterator of (State, Progress)
        After each iteration: the state, to go on from or to keep as a model, and what to tell.

    Raises
    ------
    ClusterError
        Work was lost three times in a row without an iteration between.
    """
    return Loop(problem, executor, global_state, limits, keeper or NoKeeper(), glance).run()


class Loop:
    """The iterations of the batch schedule, and what any schedule does about work that is lost.

    Parameters
    ----------
    problem, executor, global_state, limits, keeper, glance
        As for `run`.
    """

    def __init__(
        self,
        problem: Problem,
        executor: Executor,
        global_state: GlobalState,
        limits: Limits,
        keeper: Keeper,
        glance: Glance | None = None,
    ) -> None:
        self.problem, self.executor, self.limits, self.keeper = problem, executor, limits, keeper
        self.glance = glance
        self._global_state = global_state
        self._began = self._clock = time.perf_counter()
        self.state: State | None = None
        self._pending: Progress | None = None  # of a state that was given back, and is not told yet
        self._ahead: Round | None = None
        self.previous: dict[str, float] = {}
        self._windows = Windows()

    def run(self) -> Iterator[tuple[State, Progress]]:
        """Run the iterations; see `run`."""
        losses, error = 0, None
        while True:
            try:
                if self.state is None:
                    self.state = self._begin(error)
                    if error is not None:
                        yield self.state, lost(self.state, time.perf_counter() - self._began, error)
                        error = None
                if self._pending is None and self.ended(self.state):
                    require_whole(self.problem, self.state)
                    return
                progress = self.advance()
            except ClusterError as loss:
                losses, error = losses + 1, loss
                self.state = self._pending = self._ahead = None
                if losses == LOSSES:
                    raise
                continue
            losses = 0
            ends = self.why_ends(self.state, progress)
            yield self.state, replace(progress, ends=ends, flat="" if ends else self._flat(progress))
            if ends:
                return
            self.remember(progress)

    def _begin(self, error: ClusterError | None) -> State:
        """Find the state to begin from: the one kept last, or a blank one."""
        if error is not None:
            self.executor.recover(error)
            self.problem.reload()
        kept = self.keeper.back(self.problem)
        if kept is None:
            self.previous, self._windows = {}, Windows()
            return self.blank(self._global_state)
        self._pending, self._windows = kept.progress, Windows(kept.previous)
        self.previous = {name: value for name, value in kept.previous.items() if not name.startswith(PREFIX)}
        self._began = time.perf_counter() - kept.progress.elapsed
        return kept.state

    def blank(self, global_state: GlobalState) -> State:
        """Return the state before anything has been seen."""
        return blank_state(self.problem, self.executor, global_state)

    def ended(self, state: State) -> bool:
        """Say whether all iterations are made."""
        return state.swept != [] and state.iteration >= self.limits.sweeps

    def remember(self, progress: Progress) -> None:
        """Remember what the next iteration is compared with."""
        score = progress.score
        self.previous = (
            {"score": score, **progress.figures} if score is not None else {**self.previous, **progress.figures}
        )

    def advance(self) -> Progress:
        """Make the next iteration, or make whole what is pending of one that is made."""
        state, progress, again = self.taken()
        if progress is None:
            ahead, self._ahead = self._ahead, None
            before = state.global_state
            state, told, figures, updating = iterate(self.problem, self.executor, state, ahead)
            scoring = self._submit_scores(state)
            progress = self.told(state, before, told, figures, updating)
            state = self.keeper.keep(Kept(state, progress, self.before()))
        else:
            scoring = self._submit_scores(state)
        # The next sweeps go out before the score has come in, so that no worker waits for the driver; and after the
        # search for words, or what is reported of this iteration would wait for all of them.
        words = self.submit_words(state, progress, last=state.iteration >= self.limits.sweeps)
        if state.iteration < self.limits.sweeps:
            self._ahead = submit_round(self.problem, self.executor, state)
        waited: list[Future[tasks.Score | Words]] = [*scoring, *words]
        results = self.executor.collect(waited)
        scores = [one for one in results if isinstance(one, tasks.Score)]
        found = [one for one in results if isinstance(one, Words)]
        progress = self.scored(progress, scores, again=again, words=found)
        if progress.score is None and self.why_ends(state, progress):
            # The last iteration is always scored.
            scores = self.executor.collect(submit_scores(self.problem, self.executor, state))
            progress = replace(progress, score=mean_score(scores))
        self.state = state
        return progress

    def taken(self) -> tuple[State, Progress | None, bool]:
        """Hand out the state, and what is pending of it; nobody else holds it then, so that it goes when it may."""
        state, self.state = self.state, None
        pending, self._pending = self._pending, None
        if state is None:
            raise RuntimeError("there is no state to go on from")
        return state, pending, pending is not None

    def before(self) -> dict[str, float]:
        """Return the figures that a checkpoint keeps of the iterations before."""
        return {**self.previous, **self._windows.record()}

    def why_ends(self, state: State, progress: Progress) -> str:
        """Return why the run ends here, before its iterations; an empty text where it does not."""
        if progress.iteration < 1:
            return ""
        if self.limits.tolerance and self.limits.stop_on == OBJECTIVE and OBJECTIVE not in progress.figures:
            raise OptionError(NO_OBJECTIVE)
        if self.problem.family.uncounted_tokens(state.global_state) > 0:
            return ""
        if self.problem.family.cannot_change(state.global_state) and progress.change == 0.0 and not self.limits.samples:
            return "converged"
        if self.limits.tolerance != AUTO:
            return "tolerance" if is_settled(progress, self.previous, self.limits) else ""
        return "tolerance" if self._windows_of(progress).flat(self._watched(), progress.iteration) else ""

    def _flat(self, progress: Progress) -> str:
        """Return the figure that is flat, once, where the run was given no tolerance."""
        windows, iteration = self._windows_of(progress), progress.iteration
        name = SCORE if windows.has(SCORE) else self._watched()
        fresh = not self.limits.tolerance and not self.limits.samples
        return name if fresh and iteration and windows.flat(name, iteration) and windows.once() else ""

    def _watched(self) -> str:
        """Return the figure whose windows are compared."""
        sampled = self.limits.stop_on == "counts" and self.problem.family.is_sampler and self._windows.has(OBJECTIVE)
        return OBJECTIVE if sampled else self.limits.stop_on

    def _windows_of(self, progress: Progress) -> Windows:
        """Add an iteration to the windows, and return them."""
        figures = {CHANGE: progress.change, OBJECTIVE: progress.figures.get("objective"), SCORE: progress.score}
        if progress.iteration > 0 and not progress.lost:
            self._windows.add(progress.iteration, figures)
        return self._windows

    def _submit_scores(self, state: State) -> list[Future[tasks.Score]]:
        return submit_scores(self.problem, self.executor, state) if _due(state.iteration, self.limits) else []

    def submit_words(self, state: State, progress: Progress, *, last: bool) -> list[Future[Words]]:
        """Submit the search for topics' words, where it is time to."""
        if self.glance is None:
            return []
        return self.glance.submit(self.problem, self.executor, state, progress.topics, last=last)

    def told(
        self, state: State, before: GlobalState, told: Delta, figures: dict[str, float], updating: float
    ) -> Progress:
        """Return what an iteration told, before it is scored; `before` is the global state that it began from."""
        now, iteration = time.perf_counter(), state.iteration
        with np.errstate(over="ignore"):  # windows sum squares
            require_finite({name: np.square(value) for name, value in figures.items()}, iteration)
        seconds = shares(told, self.executor.workers, 0.0, updating, 0.0)
        tokens = told.number("tokens")
        moved = self.problem.family.moved_tokens(told) / max(tokens, 1.0) if iteration else None
        topics = {} if self.glance is None else self.glance.topics(self.problem, iteration, before, state.global_state)
        more: dict[str, Any] = {"sweeps": sweep_times(told), "topics": topics}
        more["tokens"] = tokens * self.problem.local_sweeps
        return Progress(iteration, now - self._began, moved, None, figures, seconds, **more)

    def scored(
        self,
        progress: Progress,
        scores: Sequence[tasks.Score],
        *,
        again: bool,
        words: Sequence[Words] = (),
    ) -> Progress:
        """Add an iteration's score, its topics' words, and the time that it took in all."""
        now = time.perf_counter()
        seconds = {**progress.seconds, "score": sum(one.seconds for one in scores) / self.executor.workers}
        spent = sum(seconds.values()) - seconds.get("wait", 0.0)
        seconds["wait"] = max(now - self._clock - spent, 0.0)
        self._clock = now
        elapsed = progress.elapsed if again else now - self._began
        named = {} if self.glance is None else self.glance.words(words)
        return replace(progress, elapsed=elapsed, score=mean_score(scores), seconds=seconds, words=named)


def blank_state(problem: Problem, executor: Executor, global_state: GlobalState) -> State:
    """Return the state before anything has been seen."""
    blocks = [
        executor.submit(
            tasks.empty_block,
            problem.shard_model,
            *bound,
            global_state,
            home=problem.block_home(number, executor.homes),
        )
        for number, bound in enumerate(pairwise(problem.cuts))
    ]
    return State(-1, global_state, blocks)


def _due(iteration: int, limits: Limits) -> bool:
    return iteration > 0 and (iteration % (limits.score_every or 1) == 0 or iteration == limits.sweeps)


def lost(state: State, elapsed: float, error: ClusterError) -> Progress:
    """Return what to tell when the loop goes back to a state."""
    return Progress(max(state.iteration, 0), elapsed, None, None, {}, {}, str(error))


def submit_scores(problem: Problem, executor: Executor, state: State) -> list[Future[tasks.Score]]:
    """Submit the scoring of the held-out pairs; nothing where there are none."""
    submitted = []
    blocks = [
        executor.submit(tasks.scored_rows, block, home=problem.block_home(place, executor.homes))
        for place, block in enumerate(state.blocks if problem.heldout else [])
    ]
    for number, heldout in enumerate(problem.heldout):
        given = (heldout, state.swept[number], blocks, state.global_state)
        submitted.append(
            executor.submit(tasks.score, problem.shard_model, *given, home=problem.home(number, executor.homes))
        )
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


def sweep_times(told: Delta) -> dict[str, Any]:
    """Return what single shards took; see `Progress`. Nothing where that was not told."""
    named = {name: spent for name, spent in told.seconds.items() if name.startswith(tasks.SHARD_SECONDS)}
    if not named:
        return {}
    quartiles = np.quantile(list(named.values()), [0.0, 0.25, 0.5, 0.75, 1.0])
    slowest = sorted(named, key=lambda name: -named[name])[:SLOWEST]
    return {
        "shards": len(named),
        "total": round(math.fsum(named.values()), 6),
        "quartiles": [round(float(one), 6) for one in quartiles],
        "slowest": [[int(name.removeprefix(tasks.SHARD_SECONDS)), round(named[name], 6)] for name in slowest],
    }


def require_whole(problem: Problem, state: State) -> None:
    """Raise `OptionError` where a run would end with a model that its family calls unsettled."""
    if problem.family.uncounted_tokens(state.global_state) > 0:
        raise OptionError(
            f"`iterations` {state.iteration}: the run was planned with more, and some tokens do not count yet; "
            "go on with as many as it was begun with"
        )


def is_settled(progress: Progress, previous: dict[str, float], limits: Limits) -> bool:
    """Say whether the run has come under its tolerance."""
    if isinstance(limits.tolerance, str) or limits.tolerance <= 0:
        return False
    if limits.stop_on == "counts":
        return progress.change is not None and progress.change < limits.tolerance
    now = progress.score if limits.stop_on == "score" else progress.figures.get("objective")
    before = previous.get(limits.stop_on)
    if now is None or before is None:
        return False
    return abs(now - before) < limits.tolerance * abs(before)
