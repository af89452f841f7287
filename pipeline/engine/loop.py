"""A fit: sweep every shard, add up the deltas, fold them in, update the global state, score, checkpoint, and so on.

In the stochastic schedule an iteration is a minibatch of shards, which moves the topics by a decaying step. No local
state is retained: documents whose proportions are needed, for a score or at the end, are folded in. One pass gives a
good model of a large corpus.
"""

from __future__ import annotations

import contextlib
import math
import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from collapsium.pipeline.engine.checkpoints import Checkpointer
from collapsium.pipeline.engine.exchange import Exchange, HeldParts, links_of
from collapsium.pipeline.engine.setup.limits import AUTO, Limits
from collapsium.pipeline.engine.state import (
    GROUP_SHARDS,
    UNSUMMED_SHARDS,
    Problem,
    Progress,
    ShardTimes,
    Snapshot,
    State,
)
from collapsium.pipeline.engine.topic_snapshots import TopicSnapshots, TopWords
from collapsium.pipeline.executors.base import Executor, Future, HaltedError
from collapsium.storage.errors import ClusterError, NumericalError, OptionError
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays, GlobalState
from collapsium.workers.exchange import HostLostError, Links
from collapsium.workers.families.family import Stochastic
from collapsium.workers.shard_loading import DocumentSample

T = TypeVar("T")

PREFIX = "bin:"
LAST, REPORTED = f"{PREFIX}last", f"{PREFIX}reported"
CHANGE, OBJECTIVE, SCORE = "counts", "objective", "score"


# Thresholds under which a figure counts as flat; chosen on the KOS corpus with 120 topics
BIN_ITERATIONS = 10  # Iterations that are summed in a bin; a metric is tested at the end of every second bin
FIRST_ITERATION = 60  # No figure is flat before this iteration
MIN_VALUES = 4  # Values that a window needs
# Relative difference of the two windows' means up to which a figure is flat
MAX_CHANGE = {CHANGE: 5e-2, OBJECTIVE: 2.5e-3, SCORE: 5e-4}
# Standard errors of the difference up to which a figure is flat too, because noise may cause it
STANDARD_ERRORS = 1.0


class Windows:
    """Sums of metrics over bins of iterations, by whose means over windows convergence is judged.

    The mean over the last quarter of all iterations is compared with the mean over the quarter before. Checkpoints
    store the sums, so that a resumed fit stops where an uninterrupted one does.
    """

    def __init__(self, sums: Mapping[str, float] | None = None) -> None:
        self._sums = {name: value for name, value in (sums or {}).items() if name.startswith(PREFIX)}

    def record(self) -> dict[str, float]:
        """Return all sums, for a checkpoint."""
        return dict(self._sums)

    def add(self, iteration: int, metrics: Mapping[str, float | None]) -> None:
        """Add the metrics of an iteration, unless they were added before."""
        if iteration <= self._sums.get(LAST, 0.0):
            return
        self._sums[LAST] = float(iteration)
        for name, value in metrics.items():
            if value is not None and math.isfinite(value):
                for power, term in (("n", 1.0), ("x", value), ("xx", value * value)):
                    key = f"{PREFIX}{name}:{(iteration - 1) // BIN_ITERATIONS}:{power}"
                    self._sums[key] = self._sums.get(key, 0.0) + term

    def has(self, name: str) -> bool:
        """Return true if there is a value of a figure."""
        return any(key.startswith(f"{PREFIX}{name}:") for key in self._sums)

    def flat(self, name: str, iteration: int) -> bool:
        """Return true if a figure is flat after the iteration that was added last."""
        bins = iteration // BIN_ITERATIONS
        if iteration % BIN_ITERATIONS or iteration < FIRST_ITERATION or bins % 2:
            return False
        width = max(bins // 4, 1)
        last, before = (self._window(name, bins - (k + 1) * width, bins - k * width) for k in (0, 1))
        if last is None or before is None:
            return False
        difference = abs(last[0] - before[0])
        noise = STANDARD_ERRORS * math.hypot(last[1], before[1])
        return difference <= max(MAX_CHANGE[name] * abs(before[0]), noise)

    def _window(self, name: str, first: int, end: int) -> tuple[float, float] | None:
        """Return the mean of a figure over some bins, and its standard error."""
        bins = range(max(first, 0), end)
        number, total, squares = (
            math.fsum(self._sums.get(f"{PREFIX}{name}:{index}:{power}", 0.0) for index in bins)
            for power in ("n", "x", "xx")
        )
        if number < MIN_VALUES:
            return None
        mean = total / number
        return mean, math.sqrt(max(squares / number - mean * mean, 0.0) / number)

    def first_report(self) -> bool:
        """Return true at the first call, also over the resumptions of a run."""
        is_first = REPORTED not in self._sums
        self._sums[REPORTED] = 1.0
        return is_first


BlockPart = tuple[int, int, bool] | None  # part of a delta that concerns a block, as `tasks.delta_part` takes it
Summand = Future[Delta] | Future[tasks.Swept]
SLOWEST_SHARDS = 3  # Shards whose seconds are reported one by one
MAX_CONSECUTIVE_LOSSES = 3  # Losses of work in a row, without an iteration between, after which a fit gives up
ROUNDING = 1e-9  # Largest rounding of a sum, relative to the largest one


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
    # Tasks that move the rows to other processes; a reference to each is stored, because Dask drops tasks without one.
    prefetched: list[Future[None]] = field(default_factory=list)


@dataclass(frozen=True)
class Summed:
    """Sums that the update of the global state takes, from each block.

    This is not a closure: the frames of an interrupted fit would keep a closure alive, and with it waiting sweeps.
    """

    statistics: list[Future[Delta]]

    def sums(self, executor: Executor) -> Delta:
        """Wait for the sums over all blocks."""
        return reduce(operator.add, executor.collect(self.statistics), Delta())


@dataclass(frozen=True)
class Round:
    """A submitted round of sweeps."""

    swept: Sequence[Future[tasks.Swept]]  # The shards' next local states
    blocks: Sequence[Future[tasks.Block]]  # The blocks of the vocabulary, with the deltas folded in
    sums: Callable[[Executor], Delta]  # Waits for the inputs of the global state's update
    scores: Sequence[Future[list[tasks.Score]]]  # Scores of the state before, by hosts that exchange their changes
    rows: BlockRows  # Rows of the blocks; empty where hosts exchange their changes


class Fit:
    """A problem that is being fitted: its state between iterations, the schedule, and the recovery from lost work.

    Iterating over it runs the iterations, and yields the state and the progress after each; the caller may stop at any.
    """

    def __init__(
        self,
        problem: Problem,
        limits: Limits,
        checkpointer: Checkpointer | None = None,
        snapshots: TopicSnapshots | None = None,
    ) -> None:
        self.problem, self.limits, self._snapshots = problem, limits, snapshots
        self._checkpointer = Checkpointer() if checkpointer is None else checkpointer
        self._began = self._clock = time.perf_counter()
        self._state: State | None = None
        self._pending: Progress | None = None  # of a restored state, not yet reported
        self._submitted: Round | None = None  # ahead of its iteration
        self._rows: BlockRows | None = None  # of the state, for sweeps that are not submitted ahead
        self._exchange: Exchange | None = None  # Where hosts exchange the changes of their rows
        self._interrupt: KeyboardInterrupt | None = None  # One that came while local states were being replaced
        self._previous: dict[str, float] = {}  # metrics with which the next iteration is compared
        self._windows = Windows()
        self._is_stochastic = limits.schedule == "stochastic"
        passes = range(limits.passes if self._is_stochastic else 0)
        batches = [minibatches(problem, limits.batch_shards, number) for number in passes]
        self._minibatches = [minibatch for of_pass in batches for minibatch in of_pass]
        self._pass_ends = set(accumulate(len(of_pass) for of_pass in batches))
        self._planned = limits.sweeps
        if self._is_stochastic:
            self._planned = min(len(self._minibatches), limits.iterations or len(self._minibatches))

    def __iter__(self) -> Iterator[tuple[State, Progress]]:
        """Run the iterations, and save the last one."""
        losses, error, stopped = 0, None, False
        while True:
            try:
                if self._state is None:
                    self._state = self._restored(error)
                    if error is not None:
                        # The report of a fit that goes back to a state after a loss.
                        elapsed, iteration = time.perf_counter() - self._began, max(self._state.iteration, 0)
                        yield self._state, Progress(iteration, elapsed, None, None, {}, {}, str(error))
                        error = None
                if stopped or (self._pending is None and self._is_finished(self._state)):
                    if not stopped:
                        require_all_tokens_counted(self.problem, self._state)
                    self._checkpointer.save_last()
                    return
                progress = self._step() if self._is_stochastic else self._sweep()
            except ClusterError as loss:
                losses, error, stopped = losses + 1, loss, False
                self._state = self._pending = self._submitted = self._rows = None
                if self._exchange is not None:
                    self._exchange.close()
                    self._exchange = None
                if losses == MAX_CONSECUTIVE_LOSSES:
                    raise
                continue
            losses = 0
            stop_reason = self._stop_reason(progress)
            flat = "" if stop_reason else self._flat_figure(progress)
            yield self._state, replace(progress, stop_reason=stop_reason, flat=flat)
            stopped = bool(stop_reason)
            before = self._previous if progress.score is None else {SCORE: progress.score}
            self._previous = {**before, **progress.metrics}
            if self._interrupt is not None and self._submitted is None:
                raise self._interrupt

    @property
    def state(self) -> State:
        """The state after the last iteration."""
        if self._state is None:
            raise RuntimeError("there is no state to continue from")
        return self._state

    def _restored(self, error: ClusterError | None) -> State:
        """Return the last checkpoint's state, or the initial state where there is none."""
        if error is not None:
            self.problem.executor.recover(error)
            self.problem.reload()
        snapshot = self._checkpointer.restore()
        if snapshot is None:
            self._previous, self._windows = {}, Windows()
            # The stochastic schedule has no start, so that its initial state counts as iteration 0.
            return self.problem.initial_state(0 if self._is_stochastic else -1)
        self._pending, self._windows = snapshot.progress, Windows(snapshot.previous)
        self._previous = {name: value for name, value in snapshot.previous.items() if not name.startswith(PREFIX)}
        self._began = time.perf_counter() - snapshot.progress.elapsed
        return snapshot.state

    def _is_finished(self, state: State) -> bool:
        """Return true after the last planned iteration."""
        return state.iteration >= self._planned and (self._is_stochastic or state.swept != [])

    def _save_if_due(self, progress: Progress) -> None:
        """Give the state to the checkpointer, and continue from the state that it returns."""
        self._state = self._checkpointer.save_if_due(Snapshot(self.state, progress, self._history()))

    def _history(self) -> dict[str, float]:
        """Return the metrics of the previous iterations, for a checkpoint."""
        return {**self._previous, **self._windows.record()}

    def _sweep(self) -> Progress:
        """Run one iteration of the batch schedule, or finish scoring the one restored from a checkpoint."""
        restored, self._pending = self._pending, None
        if restored is None:
            due = self._due(self.state.iteration + 1)
            rows, progress = self._iterate(due)
            # Hosts of an exchange score in their next turn, while changes are in transit.
            together = due.scored and due.swept and isinstance(self.state.blocks, HeldParts)
            scores = self._submit_scores(rows.scored) if due.scored and not together else []
            blocks = self.state.blocks
            self._save_if_due(progress)
            if self.state.blocks is not blocks:
                # After a checkpoint, its rows are read back, so that the tasks that computed them can be forgotten.
                rows = self._submit_rows(self.state.blocks, due._replace(scored=False))
            del blocks
        else:
            progress, due = restored, self._due(self.state.iteration)
            # Hosts of an exchange make the rows themselves.
            by_hosts = due.swept and Exchange.links_for(self.problem, self.state.global_state) is not None
            together = by_hosts and due.scored
            rows = BlockRows() if by_hosts else self._submit_rows(self.state.blocks, due)
            scores = self._submit_scores(rows.scored) if due.scored and not together else []
        # The next sweeps are submitted before the scores are collected, so that no worker waits for the driver. They
        # come after the fetching of words, for which the report of this iteration would else wait.
        is_last = self.state.iteration >= self._planned
        words, words_links = self._submit_words(progress, rows.scored, last=is_last), links_of(self.state)
        if due.swept and not self._may_end():
            # If a host has just been lost, the turn is submitted again.
            with contextlib.suppress(HostLostError):
                self._submitted = self._submit_round(self._due(self.state.iteration + 1), rows=rows, scored=together)
                scores += self._submitted.scores
        elif due.swept:
            self._rows = rows
        self._waited(self._checkpointer.complete)
        links = self._exchange.links if together and self._exchange is not None else None
        scored = self._collected(scores, links) if scores or not due.scored else self._scores()
        top_words = self._collected_words(words, words_links)
        progress = self._finished_progress(progress, scored, top_words, restored=restored is not None)
        if progress.score is None and self._stop_reason(progress):
            # The last iteration is always scored.
            progress = replace(progress, score=mean_score(self._scores()))
        return progress

    def _step(self) -> Progress:
        """Step on the next minibatch, and score the state where that is due."""
        problem, family = self.problem, self.problem.family
        if not isinstance(family, Stochastic):
            raise TypeError(f"family '{problem.name}' has no stochastic schedule")
        restored, self._pending = self._pending, None
        if restored is None:
            before, minibatch = self.state.global_state, self._minibatches[self.state.iteration]
            self._state, statistics, seconds = step(problem, self.state, minibatch)
            metrics = family.metrics(self.state.global_state)
            progress = self._progress_of(before, statistics, metrics, seconds)
            corpus_tokens = max(family.corpus_tokens(self.state.global_state), 1.0)
            progress = replace(progress, change=family.moved_tokens(statistics) / corpus_tokens)
            self._save_if_due(progress)
            self._checkpointer.complete()
        else:
            progress = restored
        iteration, every, scores = self.state.iteration, self.limits.score_every, list[tasks.Score]()
        due = iteration % every == 0 if every else iteration in self._pass_ends
        if problem.heldout and (due or iteration == self._planned):
            self._state = problem.folded_in(self.state)
            scores = self._scores()
            self._checkpointer.hold(Snapshot(self.state, progress, self._history()))
        words = self._collected_words(self._submit_words(progress, last=iteration == self._planned))
        return self._finished_progress(progress, scores, words, restored=restored is not None)

    def _iterate(self, due: Due) -> tuple[BlockRows, Progress]:
        """Run one iteration, with the rounds of sweeps that the family needs; return the rows of its blocks too."""
        problem, before = self.problem, self.state.global_state
        seconds, rounds, moves, iteration = 0.0, 0, 0, self.state.iteration + 1
        rows, self._rows = self._rows, None
        while True:
            try:
                current = self._submitted or self._submit_round(due, rounds, rows)
                rows, self._submitted = current.rows, None
                statistics, moves = self._waited(partial(current.sums, problem.executor)), 0
            except HostLostError:
                moves += 1
                if moves == MAX_CONSECUTIVE_LOSSES:
                    raise
                self._leave_lost_hosts()
                continue
            began = time.perf_counter()
            metrics = self._waited(partial(problem.family.objective, self.state.global_state, statistics))
            stream = problem.stream.at(iteration=iteration, purpose=_purpose("update", rounds))
            updated = self._waited(partial(problem.family.update, self.state.global_state, statistics, stream))
            seconds += time.perf_counter() - began
            require_readable(updated, iteration)
            rounds += 1
            # A further round belongs to the same iteration, and its sweeps follow the iteration before.
            more = problem.family.needs_another_round(updated)
            self._state = State(iteration - 1 if more else iteration, updated, current.blocks, current.swept)
            if not more:
                metrics = {**metrics, **problem.family.metrics(updated)}
                return rows, self._progress_of(before, statistics, metrics, seconds)

    def _submit_rows(self, blocks: Sequence[Future[tasks.Block]], due: Due) -> BlockRows:
        """Submit the rows of blocks for their uses, and the tasks that fetch them to other processes.

        A worker fetches the rows that a task needs before it runs the task. These tasks let it do so while the driver
        still updates the global state, before scores and sweeps are submitted.
        """
        problem, executor = self.problem, self.problem.executor
        if isinstance(blocks, HeldParts):
            return BlockRows()
        processes = [problem.process_of_block(number) for number in range(len(blocks))]

        def submit(task: Callable[[tasks.Block], tasks.Block]) -> list[Future[tasks.Block]]:
            return [
                executor.submit(task, block, process=process) for block, process in zip(blocks, processes, strict=True)
            ]

        scored = submit(tasks.scored_rows) if due.scored and problem.heldout else []
        swept = submit(tasks.swept_rows) if due.swept else []
        shard_processes = sorted({problem.process_of(number) for number in range(len(problem.shards))})
        without_rows = [process for process in shard_processes if {process} != set(processes)]
        prefetched = [
            executor.submit(tasks.prefetch, rows, process=process)
            for rows in (scored, swept)
            if rows
            for process in without_rows
        ]
        return BlockRows(swept, scored, prefetched)

    def _submit_round(self, due: Due, number: int = 0, rows: BlockRows | None = None, *, scored: bool = False) -> Round:
        """Submit a sweep of every shard, the sums of the deltas, and the folding of the sums into the blocks.

        With `scored`, hosts of an exchange score the state meanwhile.
        """
        problem, state = self.problem, self.state
        purpose = _purpose("sweep", number) if state.swept else "start"
        stream = problem.stream.at(iteration=state.iteration + 1, purpose=purpose)
        sample = problem.sample(state.iteration + 1, number)
        if isinstance(state.blocks, HeldParts) and not state.blocks.exchange.is_current:
            state = self._move_to_present_hosts()
        if not isinstance(state.blocks, HeldParts):
            self._exchange = Exchange.begun(problem, state)
        if self._exchange is not None:
            last = self._checkpointer.last
            last_state = None if last is None else last.state
            turn = self._exchange.submit(state, last_state, stream, sample, scored=scored)
            return Round(turn.swept, turn.blocks, turn.sums, turn.scores, BlockRows())
        shown = rows.swept if rows is not None and rows.swept else self._submit_rows(state.blocks, Due()).swept
        swept, blocks = self._submit_sweeps(shown, stream, sample)
        if problem.scratch.replaced and state.swept:
            # Only the sweeps refer to the local states now, so that each can be freed as its shard has been swept.
            self._state = replace(state, swept=[])
            self._checkpointer.release()
        statistics = [problem.executor.submit(tasks.block_sums, block) for block in blocks]
        return Round(swept, blocks, Summed(statistics).sums, [], self._submit_rows(blocks, due))

    def _may_end(self) -> bool:
        """Return true if a fit whose sweeps replace local states may end with this iteration, whose state it needs."""
        ends = bool(self.limits.tolerance or self.limits.samples or self._interrupt is not None)
        return self.problem.scratch.replaced and (ends or self.problem.family.cannot_change(self.state.global_state))

    def interrupt(self, interrupt: KeyboardInterrupt) -> None:
        """Raise an interrupt; if local states are being replaced, raise it at the end of the iteration instead."""
        state = self.state
        is_replacing = self.problem.scratch.replaced and state.iteration >= 0 and not state.swept
        at_once = not is_replacing or self._interrupt is not None or isinstance(interrupt, HaltedError)
        if at_once or not self._checkpointer.finishes(state.iteration + 1):
            raise interrupt
        self._interrupt = interrupt

    def _waited(self, wait: Callable[[], T]) -> T:
        """Wait for a result, or compute it, again after an interrupt that the end of the iteration will raise."""
        try:
            return wait()
        except KeyboardInterrupt as interrupt:
            self.interrupt(interrupt)
            return wait()

    def _leave_lost_hosts(self) -> None:
        """Abandon a turn that waits for lost hosts, and hand over the state of the others."""
        self._submitted = None
        if self._exchange is not None:
            self._exchange.interrupt()
        self.problem.executor.look()
        self._move_to_present_hosts()

    def _move_to_present_hosts(self) -> State:
        """Hand over the state of the hosts of an exchange, after some have left or others joined; return the state."""
        state, executor = self.state, self.problem.executor
        if isinstance(state.blocks, HeldParts):
            self._state = replace(state, blocks=[*state.blocks], swept=[*state.swept])
            # Until the blocks and local states are results of tasks, they need the exchange, to which the state refers.
            parts: list[Future[tasks.Block] | Future[tasks.Swept]] = [*self._state.blocks, *self._state.swept]
            executor.collect([executor.submit(tasks.is_there, part) for part in parts])
        return self.state

    def _submit_sweeps(
        self, shown: list[Future[tasks.Block]], stream: Stream, sample: DocumentSample | None
    ) -> tuple[list[Future[tasks.Swept]], list[Future[tasks.Block]]]:
        """Submit sweeps and sums in the order in which they are to run; return the swept shards and the new blocks.

        The order of the sums depends only on the number of shards: neighbours two by two, and so on up. A sum is
        submitted as soon as its terms are, so that few deltas wait at a time.
        """
        problem, executor = self.problem, self.problem.executor
        bounds = problem.block_bounds
        parts: list[BlockPart] = [None] if len(bounds) == 2 else [(*ends, not ends[0]) for ends in pairwise(bounds)]
        sums = [_Sums(executor, problem.waiting_deltas) for _ in parts]
        is_unsummed = len(problem.shards) <= UNSUMMED_SHARDS
        swept: list[Future[tasks.Swept]] = []
        unsummed: list[Future[tasks.Swept]] = []
        for number in range(len(problem.shards)):
            result, process = self._submit_sweep(number, shown, stream, sample), problem.process_of(number)
            swept.append(executor.submit(tasks.without_delta, result, process=process))
            if is_unsummed:
                unsummed.append(result)
                continue
            # Only the first delta of a group may be added in the process of another shard, so that the others need no
            # task.
            picks = parts[0] is not None or number % GROUP_SHARDS == 0
            for total, part in zip(sums, parts, strict=True):
                total.add(self._picked([result], number, part)[0] if picks else result, process)
        folded = []
        for number, (block, total, part) in enumerate(zip(self.state.blocks, sums, parts, strict=True)):
            deltas = self._picked(unsummed, 0, part) if is_unsummed else total.remaining
            inputs = (problem.family, block, deltas, self.state.global_state)
            folded.append(executor.submit(tasks.fold, *inputs, process=problem.process_of_block(number)))
        return swept, folded

    def _submit_sweep(
        self, number: int, shown: list[Future[tasks.Block]], stream: Stream, sample: DocumentSample | None
    ) -> Future[tasks.Swept]:
        """Submit the sweep of a shard, or its start where it has no local state."""
        problem, state = self.problem, self.state
        shard = (problem.family, problem.shards[number])
        inputs = (problem.scratch.of(number), shown, state.global_state, stream)
        submit, process = problem.executor.submit, problem.process_of(number)
        if state.swept:
            last = (problem.local_sweeps, sample)
            return submit(tasks.sweep, *shard, state.swept[number], *inputs, *last, process=process)
        known = None if problem.warm is None else problem.warm[number]
        return submit(tasks.start, *shard, *inputs, known, sample, process=process)

    def _picked(
        self, swept: list[Future[tasks.Swept]], first: int, part: BlockPart
    ) -> list[Future[tasks.Swept]] | list[Future[Delta]]:
        """Return the deltas of swept shards, the first of which is number `first`.

        The parts that a block needs are taken out in the shards' processes, if the block may be elsewhere.
        """
        executor = self.problem.executor
        if part is None and executor.processes == 1:
            return swept
        return [
            executor.submit(tasks.delta_part, result, part, process=self.problem.process_of(first + offset))
            for offset, result in enumerate(swept)
        ]

    def _scores(self) -> list[tasks.Score]:
        """Return the scores of the state's shards; none where nothing is held out."""
        rows = self._submit_rows(self.state.blocks, Due(swept=False, scored=True))
        return self._collected(self._submit_scores(rows.scored), links_of(self.state))

    def _collected(self, submitted: list[Future[list[tasks.Score]]], links: Links | None) -> list[tasks.Score]:
        """Wait for scores; submit them again if a host of the exchange was lost."""
        try:
            collected = self._waited(partial(self.problem.executor.collect, submitted, links))
        except HostLostError:
            self._leave_lost_hosts()
            return self._scores()
        return [score for scores in collected for score in scores]

    def _submit_scores(self, scored: list[Future[tasks.Block]]) -> list[Future[list[tasks.Score]]]:
        """Submit the scoring of the held-out pairs by the rows of all blocks, a task for each thread of a process.

        A task costs driver, scheduler and worker some 4 ms on a cluster. Threads of one process share the shards better
        one by one.
        """
        problem, executor, state = self.problem, self.problem.executor, self.state
        if isinstance(state.blocks, HeldParts):
            return state.blocks.exchange.scores(state, problem.sample(state.iteration))
        threads = max(executor.workers // executor.processes, 1)
        groups: dict[tuple[int, int], list[int]] = {}
        for number in range(len(problem.heldout)):
            thread = number if executor.processes == 1 else number % threads
            groups.setdefault((problem.process_of(number), thread), []).append(number)
        return [
            executor.submit(
                tasks.score,
                problem.family,
                [problem.heldout[number] for number in numbers],
                [state.swept[number] for number in numbers],
                scored,
                state.global_state,
                problem.sample(state.iteration),
                process=process,
            )
            for (process, _), numbers in groups.items()
        ]

    def _submit_words(
        self, progress: Progress, scored: Sequence[Future[tasks.Block]] = (), *, last: bool
    ) -> list[Future[list[TopWords]]]:
        """Submit the fetching of the topics' top words, where it is due."""
        return [] if self._snapshots is None else self._snapshots.submit(self.state, progress.topics, scored, last=last)

    def _collected_words(
        self, submitted: list[Future[list[TopWords]]], links: Links | None = None
    ) -> list[list[TopWords]]:
        """Wait for top words; return none if a host of the exchange was lost: the next iteration refetches them."""
        try:
            return self._waited(partial(self.problem.executor.collect, submitted, links)) if submitted else []
        except HostLostError:
            if self._snapshots is not None:
                self._snapshots.forget()
            return []

    def _due(self, iteration: int) -> Due:
        """Return the uses of the rows after an iteration."""
        every = self.limits.score_every or 1
        is_scored = iteration > 0 and (iteration % every == 0 or iteration == self._planned)
        return Due(iteration < self._planned, is_scored)

    def _progress_of(
        self, before: GlobalState, statistics: Delta, metrics: dict[str, float], updating: float
    ) -> Progress:
        """Return the progress of an iteration before it is scored; `before` is the global state that it began from."""
        now, state, problem = time.perf_counter(), self.state, self.problem
        iteration = state.iteration
        # Before the first checkpoint, because a run with such options is of no use.
        needs_objective = self.limits.tolerance and self.limits.stop_on == OBJECTIVE
        if iteration > 0 and needs_objective and OBJECTIVE not in metrics:
            raise OptionError(
                "expected 'counts' or 'score', found 'objective': the family has no objective under these options",
                "stop_on",
            )
        # Windows sum squares, which must be finite too.
        with np.errstate(over="ignore"):
            require_finite({name: np.square(value) for name, value in metrics.items()}, iteration)
        tokens, workers = statistics.number("tokens"), problem.executor.workers
        spent = {name: statistics.seconds.get(name, 0.0) / workers for name in ("kernel", "reduce")}
        topics = {} if self._snapshots is None else self._snapshots.topics(iteration, before, state.global_state)
        return Progress(
            iteration,
            elapsed=now - self._began,
            change=problem.family.moved_tokens(statistics) / max(tokens, 1.0) if iteration else None,
            score=None,
            metrics=metrics,
            seconds={**spent, "update": updating, "score": 0.0, "wait": 0.0},
            tokens=tokens * problem.local_sweeps,
            every=1 if problem.growth is None else problem.growth.every(iteration),
            sweeps=shard_times(statistics),
            topics=topics,
        )

    def _finished_progress(
        self, progress: Progress, scores: Sequence[tasks.Score], words: Sequence[Sequence[TopWords]], *, restored: bool
    ) -> Progress:
        """Return the progress of an iteration with its score, its topics' words, and the time that it took in all."""
        now, workers = time.perf_counter(), self.problem.executor.workers
        seconds = {**progress.seconds, "score": sum(score.seconds for score in scores) / workers}
        spent = sum(seconds.values()) - seconds.get("wait", 0.0)
        seconds["wait"] = max(now - self._clock - spent, 0.0)
        self._clock = now
        elapsed = progress.elapsed if restored else now - self._began
        words_by_topic = {} if self._snapshots is None else self._snapshots.words(words)
        return replace(progress, elapsed=elapsed, score=mean_score(scores), seconds=seconds, words=words_by_topic)

    def _stop_reason(self, progress: Progress) -> str:
        """Return the reason for which the run stops before its last planned iteration; empty if it continues."""
        if progress.iteration < 1 or not self.problem.is_complete(progress.iteration):
            return ""
        family, global_state = self.problem.family, self.state.global_state
        if family.uncounted_tokens(global_state) > 0:
            return ""
        if family.cannot_change(global_state) and progress.change == 0.0 and not self.limits.samples:
            return "converged"
        if self.limits.tolerance != AUTO:
            return "tolerance" if is_within_tolerance(progress, self._previous, self.limits) else ""
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
        metrics = {CHANGE: progress.change, OBJECTIVE: progress.metrics.get(OBJECTIVE), SCORE: progress.score}
        if progress.iteration > 0 and not progress.lost:
            self._windows.add(progress.iteration, metrics)
        return self._windows


class _Sums:
    """Sums of deltas in a fixed order, submitted as the deltas arrive, so that few deltas wait at a time.

    The deltas of a group of neighbouring shards are added one after another, and the groups' sums in pairs, along a
    tree. A task adds all deltas of a group that may wait at the same time. If a group continues in another process, its
    sum so far arrives there last, and one task adds all deltas of that process to it.
    """

    def __init__(self, executor: Executor, waiting: int = 1) -> None:
        self._executor, self._max_waiting, self._count = executor, waiting, 0
        self._group: Summand | None = None
        self._process = 0  # of the group's sum
        self._from_elsewhere = False  # whether the sum is from another process
        self._waiting: list[Summand] = []  # deltas in the process of the group's sum
        self._tree: list[tuple[int, Summand]] = []  # (height, sum) from left to right

    def add(self, delta: Summand, process: int) -> None:
        """Add the next shard's delta in its process; a sum moves once from one process to the next."""
        self._count += 1
        if self._group is None:
            self._group, self._process, self._from_elsewhere = delta, process, False
        elif process != self._process:
            self._add_waiting()
            # A worker fetches a task's inputs once all exist. A separate task moves the sum while this process sweeps.
            self._group = self._executor.submit(tasks.received, self._group, process=process)
            self._waiting, self._process, self._from_elsewhere = [delta], process, True
        else:
            self._waiting.append(delta)
        if len(self._waiting) >= self._max_waiting and not self._from_elsewhere:
            self._add_waiting()
        if self._count % GROUP_SHARDS:
            return
        self._add_waiting()
        height, group, self._group = 0, self._group, None
        while self._tree and self._tree[-1][0] == height:
            group, height = self._sum([self._tree.pop()[1], group], process), height + 1
        self._tree.append((height, group))

    def _add_waiting(self) -> None:
        """Add the deltas that wait to the group's sum."""
        if self._group is not None and self._waiting:
            self._group, self._waiting = self._sum([self._group, *self._waiting], self._process), []

    def _sum(self, summands: list[Summand], process: int) -> Future[Delta]:
        return self._executor.submit(tasks.add, summands, process=process)

    @property
    def remaining(self) -> list[Summand]:
        """The sums that are still to be added, from left to right."""
        self._add_waiting()
        return [total for _, total in self._tree] + ([self._group] if self._group is not None else [])


def _purpose(name: str, number: int) -> str:
    """Return the purpose by which a round addresses its random stream; each round draws other numbers."""
    return f"{name} {number}" if number else name


def minibatches(problem: Problem, size: int, number: int) -> list[list[int]]:
    """Divide a pass over the shards into minibatches."""
    generator = problem.stream.at(iteration=number, purpose="order").generator()
    order = [int(shard) for shard in generator.permutation(len(problem.shards))]
    first = [order[:1]] if number == 0 and len(order) > 1 else []
    rest = order[len(first) :]
    return first + [rest[start : start + size] for start in range(0, len(rest), size)]


def step(problem: Problem, state: State, minibatch: list[int]) -> tuple[State, Delta, float]:
    """Step on the shards of a minibatch, all from the same state, and average.

    Returns the state, without local states; sums over the minibatch; and the seconds that the driver's update took.
    """
    executor = problem.executor
    stream = problem.stream.at(iteration=state.iteration + 1, purpose="step")
    deltas = [
        executor.submit(
            tasks.step,
            problem.family,
            problem.shards[number],
            [*state.blocks],
            state.global_state,
            stream,
            process=problem.process_of(number),
        )
        for number in sorted(minibatch)
    ]
    rest = executor.submit(tasks.add, [executor.submit(Delta.without_dim, delta, "word") for delta in deltas])
    blocks = []
    for number, (block, bounds) in enumerate(zip(state.blocks, pairwise(problem.block_bounds), strict=True)):
        parts = [executor.submit(Delta.between, delta, "word", *bounds) for delta in deltas]
        process = problem.process_of_block(number)
        blocks.append(
            executor.submit(tasks.blend, problem.family, block, parts, rest, state.global_state, process=process)
        )
    statistics, *folded = executor.collect([rest, *(executor.submit(tasks.block_sums, block) for block in blocks)])
    for part in folded:
        statistics = statistics + part
    began = time.perf_counter()
    updated = problem.family.update(state.global_state, statistics, stream.at(purpose="update"))
    require_readable(updated, state.iteration + 1)
    return State(state.iteration + 1, updated, blocks), statistics, time.perf_counter() - began


def require_finite(arrays: Arrays, iteration: int) -> None:
    """Raise `NumericalError` if an array of the global state, or a metric, is not finite."""
    for name, values in arrays.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise NumericalError(
                f"iteration {iteration}: {name} is no longer finite; the options may be out of proportion"
            )


def require_readable(updated: GlobalState, iteration: int) -> None:
    """Raise `NumericalError` if a number of the global state is so large or small that no model could be read again."""
    arrays, declared = updated.to_arrays(), updated.declared_arrays()
    require_finite(arrays, iteration)
    for name, values in arrays.items():
        if name not in declared or values.dtype.kind != "f" or not values.size:
            continue
        least, largest, limits = values.min(), values.max(), declared[name]
        # A sum may fall below its limit by rounding, and rise again in the next iteration.
        is_small, is_large = least < limits.low - ROUNDING * abs(largest), largest > limits.high
        if is_small or is_large:
            value, limit = (largest, f"most {limits.high:g}") if is_large else (least, f"least {limits.low:g}")
            raise NumericalError(
                f"iteration {iteration}: {name} is {value:g}, and a model has at {limit}; the options may be out of "
                "proportion"
            )


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
    """Return true if the quantity that `stop_on` names changed by less than a numeric tolerance."""
    if isinstance(limits.tolerance, str) or limits.tolerance <= 0:
        return False
    if limits.stop_on == CHANGE:
        return progress.change is not None and progress.change < limits.tolerance
    now = progress.score if limits.stop_on == SCORE else progress.metrics.get(OBJECTIVE)
    before = previous.get(limits.stop_on)
    if now is None or before is None:
        return False
    return abs(now - before) < limits.tolerance * abs(before)


def shard_times(statistics: Delta) -> ShardTimes:
    """Return the seconds of single shards; see `Progress`. Empty where there are none."""
    by_shard = {name: spent for name, spent in statistics.seconds.items() if name.startswith(tasks.SHARD_SECONDS)}
    if not by_shard:
        return {}
    quartiles = np.quantile(list(by_shard.values()), [0.0, 0.25, 0.5, 0.75, 1.0])
    slowest = sorted(by_shard, key=lambda name: -by_shard[name])[:SLOWEST_SHARDS]
    return {
        "shards": len(by_shard),
        "total": round(math.fsum(by_shard.values()), 6),
        "quartiles": [round(float(second), 6) for second in quartiles],
        "slowest": [[int(name.removeprefix(tasks.SHARD_SECONDS)), round(by_shard[name], 6)] for name in slowest],
    }


def mean_score(scores: Sequence[tasks.Score]) -> float | None:
    """Return the mean log probability of a token, in nats; None where there is no token."""
    tokens = sum(score.tokens for score in scores)
    return math.fsum(score.log_probability for score in scores) / tokens if tokens else None
