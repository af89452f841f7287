"""The loop of a fit: sweep, reduce, update, score, checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from collapsium.pipeline.engine.loop.convergence import CHANGE, OBJECTIVE, PREFIX, SCORE, Windows
from collapsium.pipeline.engine.loop.iteration import Due, Round, iterate, require_finite, submit_round, submit_rows
from collapsium.pipeline.engine.loop.scoring import mean_score, submit_scores
from collapsium.pipeline.engine.loop.topic_snapshots import TopicSnapshots, TopWords
from collapsium.pipeline.engine.model_io.checkpoints import Checkpointer, NoCheckpoints
from collapsium.pipeline.engine.setup.limits import AUTO, Limits
from collapsium.pipeline.engine.state import Problem, Progress, ShardTimes, Snapshot, State
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.storage.errors import ClusterError, OptionError
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.state import GlobalState


@dataclass(frozen=True)
class TimingReport:
    """Extent of the report on single shards."""

    slowest_shards: int = 3  # Shards whose seconds are reported one by one


REPORT = TimingReport()


def worker_seconds(statistics: Delta, workers: int, updating: float) -> dict[str, float]:
    """Return the seconds of sweeps and sums, a mean over the workers, and of the driver's update; see `Progress`."""
    spent = {name: statistics.seconds.get(name, 0.0) / workers for name in ("kernel", "reduce")}
    return {**spent, "update": updating, "score": 0.0, "wait": 0.0}


def shard_times(statistics: Delta) -> ShardTimes:
    """Return the seconds of single shards; see `Progress`. Empty where there are none."""
    by_shard = {name: spent for name, spent in statistics.seconds.items() if name.startswith(tasks.SHARD_SECONDS)}
    if not by_shard:
        return {}
    quartiles = np.quantile(list(by_shard.values()), [0.0, 0.25, 0.5, 0.75, 1.0])
    slowest = sorted(by_shard, key=lambda name: -by_shard[name])[: REPORT.slowest_shards]
    return {
        "shards": len(by_shard),
        "total": round(math.fsum(by_shard.values()), 6),
        "quartiles": [round(float(second), 6) for second in quartiles],
        "slowest": [[int(name.removeprefix(tasks.SHARD_SECONDS)), round(by_shard[name], 6)] for name in slowest],
    }


@dataclass(frozen=True)
class LossRule:
    """Limits on work that is lost with its workers."""

    consecutive: int = 3  # Losses in a row, without an iteration between, after which the loop gives up


LOSS_RULE = LossRule()


def run(
    problem: Problem,
    executor: Executor,
    global_state: GlobalState,
    limits: Limits,
    checkpointer: Checkpointer | None = None,
    snapshots: TopicSnapshots | None = None,
) -> Iterator[tuple[State, Progress]]:
    """Run the iterations of the batch schedule and yield the state after each; the caller may stop at any."""
    return Loop(problem, executor, global_state, limits, checkpointer or NoCheckpoints(), snapshots).run()


class Loop:
    """The batch schedule, and the recovery from lost work that all schedules share."""

    def __init__(
        self,
        problem: Problem,
        executor: Executor,
        global_state: GlobalState,
        limits: Limits,
        checkpointer: Checkpointer,
        snapshots: TopicSnapshots | None = None,
    ) -> None:
        self.problem, self.executor, self.limits, self.checkpointer = problem, executor, limits, checkpointer
        self.snapshots = snapshots
        self._global_state = global_state
        self._began = self._clock = time.perf_counter()
        self.state: State | None = None
        self._pending: Progress | None = None  # of a restored state, not yet reported
        self._submitted: Round | None = None  # ahead of its iteration
        self.previous: dict[str, float] = {}
        self._windows = Windows()

    def run(self) -> Iterator[tuple[State, Progress]]:
        """Run the iterations; see `run`."""
        losses, error = 0, None
        while True:
            try:
                if self.state is None:
                    self.state = self._restore(error)
                    if error is not None:
                        yield self.state, lost_progress(self.state, time.perf_counter() - self._began, error)
                        error = None
                if self._pending is None and self.is_finished(self.state):
                    require_all_tokens_counted(self.problem, self.state)
                    return
                progress = self.advance()
            except ClusterError as loss:
                losses, error = losses + 1, loss
                self.state = self._pending = self._submitted = None
                if losses == LOSS_RULE.consecutive:
                    raise
                continue
            losses = 0
            stop_reason = self.stop_reason(self.state, progress)
            flat = "" if stop_reason else self._flat_figure(progress)
            yield self.state, replace(progress, stop_reason=stop_reason, flat=flat)
            if stop_reason:
                return
            self.remember(progress)

    def _restore(self, error: ClusterError | None) -> State:
        """Return the last checkpoint's state, or the initial state where there is none."""
        if error is not None:
            self.executor.recover(error)
            self.problem.reload()
        snapshot = self.checkpointer.restore(self.problem)
        if snapshot is None:
            self.previous, self._windows = {}, Windows()
            return self.initial_state(self._global_state)
        self._pending, self._windows = snapshot.progress, Windows(snapshot.previous)
        self.previous = {name: value for name, value in snapshot.previous.items() if not name.startswith(PREFIX)}
        self._began = time.perf_counter() - snapshot.progress.elapsed
        return snapshot.state

    def initial_state(self, global_state: GlobalState) -> State:
        """Return the state before any document was swept."""
        return initial_state(self.problem, self.executor, global_state)

    def is_finished(self, state: State) -> bool:
        """Return true after the last planned iteration."""
        return state.swept != [] and state.iteration >= self.limits.sweeps

    def remember(self, progress: Progress) -> None:
        """Store the figures with which the next iteration is compared."""
        score = progress.score
        self.previous = (
            {"score": score, **progress.figures} if score is not None else {**self.previous, **progress.figures}
        )

    def advance(self) -> Progress:
        """Run one iteration, or finish scoring the one restored from a checkpoint."""
        state, progress, restored = self.take_state()
        if progress is None:
            ahead, self._submitted = self._submitted, None
            before, due = state.global_state, self._due(state.iteration + 1)
            state, rows, statistics, figures, seconds = iterate(self.problem, self.executor, state, ahead, due)
            del ahead
            scores = submit_scores(self.problem, self.executor, state, rows.scored) if due.scored else []
            progress = self.progress_of(state, before, statistics, figures, seconds)
            swept, state = state, self.checkpointer.save_if_due(Snapshot(state, progress, self.history()))
            if state is not swept:
                # After a checkpoint the rows are those that are read from it, so that no history stays in memory.
                rows = submit_rows(self.problem, self.executor, state.blocks, due._replace(scored=False))
            del swept
        else:
            due = self._due(state.iteration)
            rows = submit_rows(self.problem, self.executor, state.blocks, due)
            scores = submit_scores(self.problem, self.executor, state, rows.scored) if due.scored else []
        # The next sweeps are submitted before the scores are collected, so that no worker waits for the driver. They
        # come after the fetching of words, for which the report of this iteration would else wait.
        words = self.submit_words(state, progress, rows.scored, last=not due.swept)
        if due.swept:
            after = self._due(state.iteration + 1)
            self._submitted = submit_round(self.problem, self.executor, state, after, rows=rows)
        submitted: list[Future[list[tasks.Score] | TopWords]] = [*scores, *words]
        results = self.executor.collect(submitted)
        progress = self.finished_progress(
            progress,
            [score for result in results if not isinstance(result, TopWords) for score in result],
            [result for result in results if isinstance(result, TopWords)],
            restored=restored,
        )
        if progress.score is None and self.stop_reason(state, progress):
            # The last iteration is always scored.
            progress = replace(progress, score=mean_score(self.scores(state)))
        self.state = state
        return progress

    def take_state(self) -> tuple[State, Progress | None, bool]:
        """Return the state, its pending progress, and whether it was restored; the loop then holds neither."""
        # So the arrays of the state are freed as soon as the next state replaces them.
        state, self.state = self.state, None
        pending, self._pending = self._pending, None
        if state is None:
            raise RuntimeError("there is no state to go on from")
        return state, pending, pending is not None

    def history(self) -> dict[str, float]:
        """Return the figures of the iterations before, for a checkpoint."""
        return {**self.previous, **self._windows.record()}

    def stop_reason(self, state: State, progress: Progress) -> str:
        """Return the reason for which the run stops before its last planned iteration; empty where it goes on."""
        if progress.iteration < 1:
            return ""
        growing = not self.problem.is_complete(progress.iteration)
        if growing or self.problem.family.uncounted_tokens(state.global_state) > 0:
            return ""
        if self.problem.family.cannot_change(state.global_state) and progress.change == 0.0 and not self.limits.samples:
            return "converged"
        if self.limits.tolerance != AUTO:
            return "tolerance" if is_within_tolerance(progress, self.previous, self.limits) else ""
        return "tolerance" if self._windows_with(progress).flat(self._convergence_figure(), progress.iteration) else ""

    def _flat_figure(self, progress: Progress) -> str:
        """Return the figure that is flat, once a run, where the run has no tolerance."""
        windows, iteration = self._windows_with(progress), progress.iteration
        name = SCORE if windows.has(SCORE) else self._convergence_figure()
        reports = not self.limits.tolerance and not self.limits.samples
        return name if reports and iteration and windows.flat(name, iteration) and windows.first_report() else ""

    def _convergence_figure(self) -> str:
        """Return the figure whose windows are compared; of samplers the objective, as counts always change."""
        sampled = self.limits.stop_on == CHANGE and self.problem.family.is_sampler and self._windows.has(OBJECTIVE)
        return OBJECTIVE if sampled else self.limits.stop_on

    def _windows_with(self, progress: Progress) -> Windows:
        """Return the windows, with an iteration added."""
        figures = {CHANGE: progress.change, OBJECTIVE: progress.figures.get(OBJECTIVE), SCORE: progress.score}
        if progress.iteration > 0 and not progress.lost:
            self._windows.add(progress.iteration, figures)
        return self._windows

    def _due(self, iteration: int) -> Due:
        """Return the uses of the rows after an iteration."""
        every, planned = self.limits.score_every or 1, self.limits.sweeps
        return Due(iteration < planned, iteration > 0 and (iteration % every == 0 or iteration == planned))

    def scores(self, state: State) -> list[tasks.Score]:
        """Return the scores of a state's shards; none where nothing is held out."""
        rows = submit_rows(self.problem, self.executor, state.blocks, Due(swept=False, scored=True))
        collected = self.executor.collect(submit_scores(self.problem, self.executor, state, rows.scored))
        return [score for scores in collected for score in scores]

    def submit_words(
        self, state: State, progress: Progress, scored: Sequence[Future[tasks.Block]] = (), *, last: bool
    ) -> list[Future[TopWords]]:
        """Submit the fetching of the topics' top words, where it is due."""
        if self.snapshots is None:
            return []
        return self.snapshots.submit(self.problem, self.executor, state, progress.topics, scored, last=last)

    def progress_of(
        self, state: State, before: GlobalState, statistics: Delta, figures: dict[str, float], updating: float
    ) -> Progress:
        """Return the progress of an iteration before it is scored; `before` is the global state that it began from."""
        now, iteration = time.perf_counter(), state.iteration
        # Before the first checkpoint, as a run with such options is of no use.
        needs_objective = self.limits.tolerance and self.limits.stop_on == OBJECTIVE
        if iteration > 0 and needs_objective and OBJECTIVE not in figures:
            raise OptionError(
                "expected 'counts' or 'score', found 'objective': the family has no objective under these options",
                "stop_on",
            )
        # Windows sum squares, which must be finite too.
        with np.errstate(over="ignore"):
            require_finite({name: np.square(value) for name, value in figures.items()}, iteration)
        tokens = statistics.number("tokens")
        family = self.problem.family
        snapshots = self.snapshots
        return Progress(
            iteration,
            elapsed=now - self._began,
            change=family.moved_tokens(statistics) / max(tokens, 1.0) if iteration else None,
            score=None,
            figures=figures,
            seconds=worker_seconds(statistics, self.executor.workers, updating),
            tokens=tokens * self.problem.local_sweeps,
            every=1 if self.problem.growth is None else self.problem.growth.every(iteration),
            sweeps=shard_times(statistics),
            topics={} if snapshots is None else snapshots.topics(self.problem, iteration, before, state.global_state),
        )

    def finished_progress(
        self, progress: Progress, scores: Sequence[tasks.Score], words: Sequence[TopWords], *, restored: bool
    ) -> Progress:
        """Return the progress of an iteration with its score, its topics' words, and the time that it took in all."""
        now = time.perf_counter()
        seconds = {**progress.seconds, "score": sum(score.seconds for score in scores) / self.executor.workers}
        spent = sum(seconds.values()) - seconds.get("wait", 0.0)
        seconds["wait"] = max(now - self._clock - spent, 0.0)
        self._clock = now
        elapsed = progress.elapsed if restored else now - self._began
        words_by_topic = {} if self.snapshots is None else self.snapshots.words(words)
        return replace(progress, elapsed=elapsed, score=mean_score(scores), seconds=seconds, words=words_by_topic)


def initial_state(problem: Problem, executor: Executor, global_state: GlobalState) -> State:
    """Return the state before any document was swept."""
    blocks = [
        executor.submit(
            tasks.empty_block,
            problem.shard_model,
            *bounds,
            global_state,
            home=problem.block_home(number, executor.homes),
        )
        for number, bounds in enumerate(pairwise(problem.block_bounds))
    ]
    return State(-1, global_state, blocks)


def lost_progress(state: State, elapsed: float, error: ClusterError) -> Progress:
    """Return the report of a loop that goes back to a state after a loss."""
    return Progress(max(state.iteration, 0), elapsed, None, None, {}, {}, str(error))


def require_all_tokens_counted(problem: Problem, state: State) -> None:
    """Raise `OptionError` where a run would end while documents or tokens are still left out."""
    growth = problem.growth
    if growth is not None and state.iteration < growth.complete_from:
        raise OptionError(
            f"expected at least {growth.complete_from}, found {state.iteration}: the run sweeps all documents from "
            "then on",
            "iterations",
        )
    if problem.family.uncounted_tokens(state.global_state) > 0:
        raise OptionError(
            f"expected as many as the run was planned with, found {state.iteration}: some tokens do not count yet",
            "iterations",
        )


def is_within_tolerance(progress: Progress, previous: dict[str, float], limits: Limits) -> bool:
    """Return true if the figure that `stop_on` names changed by less than a numeric tolerance."""
    if isinstance(limits.tolerance, str) or limits.tolerance <= 0:
        return False
    if limits.stop_on == CHANGE:
        return progress.change is not None and progress.change < limits.tolerance
    now = progress.score if limits.stop_on == SCORE else progress.figures.get(OBJECTIVE)
    before = previous.get(limits.stop_on)
    if now is None or before is None:
        return False
    return abs(now - before) < limits.tolerance * abs(before)
