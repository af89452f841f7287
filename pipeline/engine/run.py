"""A run at work: its loop, its events, and the checkpoints, samples and model that it saves."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from collapsium.pipeline.engine.loop.convergence import CHANGE, OBJECTIVE, SCORE
from collapsium.pipeline.engine.loop.fit import Fit
from collapsium.pipeline.engine.loop.topic_snapshots import TopicSnapshots
from collapsium.pipeline.engine.model_io.checkpoints import RunCheckpointer
from collapsium.pipeline.engine.model_io.save import inherit_names, matched_names, names_in, save_model
from collapsium.pipeline.engine.processors import Processors
from collapsium.pipeline.engine.setup.request import Request, differing_versions, fingerprint
from collapsium.pipeline.engine.state import Problem, Progress, State
from collapsium.pipeline.executors.base import Executor, HaltedError
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.monitoring.events import Sink, emit, initial_event
from collapsium.storage.errors import (
    ClusterError,
    CollapsiumError,
    DamagedError,
    LockedError,
    NotFiniteError,
    TakenOverError,
)
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.run import DONE, Run
from collapsium.storage.runs.topic_names import TopicName

Event = dict[str, object]
FIGURE_NAMES = {CHANGE: "change of the counts", OBJECTIVE: "objective", SCORE: "held-out score"}


REPORT_SECONDS = 2.0  # Least time between two reports on the worker processes
REPORTED_PROCESSES = 32  # Processes of a report, those with the most memory


def usage(executor: Executor, iterations: int) -> Event:
    """Return the bytes that moved between workers and the processes' peak memory; empty if the cluster is gone."""
    try:
        peaks = executor.everywhere(_peak_memory)
        moved = executor.moved()
    except CollapsiumError:
        return {}
    has_driver = executor.homes > 1 or executor.dashboard is not None
    return {
        "moved_bytes": moved,
        # The start is an iteration too.
        "moved_bytes_an_iteration": moved / (iterations + 1),
        "worker_peak_bytes": peaks,
        "driver_peak_bytes": _peak_memory() if has_driver else 0,
    }


def _peak_memory() -> int:
    """Return the most memory that this process has held, in bytes."""
    # The figure of getrusage begins with that of the process that started this one (getrusage(2)).
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def event_of(progress: Progress) -> Event:
    """Return the event of an iteration."""
    event: Event = {"event": "iteration", "iteration": progress.iteration, "elapsed": progress.elapsed}
    if progress.lost:
        return {**event, "event": "back", "reason": progress.lost}
    if progress.iteration == 0:
        event["event"] = "started"
    if progress.score is not None:
        event["score"] = progress.score
    if progress.change is not None:
        event["change"] = progress.change
    event.update(progress.figures)
    total = sum(progress.seconds.values())
    if progress.iteration and progress.tokens and total > 0.0:
        event["tokens"] = progress.tokens
        event["tokens_a_second"] = float(f"{progress.tokens / total:.4g}")
    if progress.every > 1:
        event["documents_share"] = 1.0 / progress.every
    event.update(progress.topics)
    event["seconds"] = {name: round(spent, 6) for name, spent in progress.seconds.items()}
    if progress.sweeps:
        event["sweeps"] = progress.sweeps
    if progress.words:
        event["top_words"] = progress.words
    return event


class EventLog:
    """Writes events into a run's folder, once that exists, and sends them to sinks."""

    def __init__(
        self, target: Run, sinks: Sequence[Sink], *, has_folder: bool, fields: Mapping[str, object] | None = None
    ) -> None:
        self.target, self._sinks, self.has_folder, self._fields = target, [*sinks], has_folder, dict(fields or {})
        self.has_iterations = False
        # Members of an ensemble write to one folder from several threads.
        self._lock = threading.Lock()

    def subscribe(self, sink: Sink) -> None:
        """Add a sink."""
        self._sinks.append(sink)

    def send(self, event: Mapping[str, object]) -> None:
        """Send an event to the sinks."""
        ended = event["event"] == "iteration" or (event["event"] == "saving" and event["iteration"] != 0)
        self.has_iterations = self.has_iterations or ended
        emit(self._sinks, {**event, **self._fields})

    def record(self, event: Mapping[str, object]) -> None:
        """Append an event to the run's events."""
        with self._lock:
            self.target.append_event({**event, **self._fields})

    def emit(self, event: Mapping[str, object]) -> None:
        """Append an event to the run's events, and send it to the sinks."""
        self.record(event)
        self.send(event)

    def notice(self, text: str) -> None:
        """Send a line about the run to the sinks, and write it into the journal."""
        event = initial_event("notice", text=text)
        if self.has_folder:
            self.write_journal(event)
        self.send(event)

    def write_journal(self, event: Mapping[str, object]) -> None:
        """Append an event to the run's journal; a journal that cannot be written does not end the run."""
        origin = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "process": os.getpid(),
            "host": platform.node(),
        }
        with self._lock, contextlib.suppress(CollapsiumError):
            self.target.append_journal({**origin, **event, **self._fields})


class ActiveRun:
    """A run that this process works on; the caller holds its lock."""

    def __init__(
        self,
        request: Request,
        log: EventLog,
        *,
        resumed: bool,
        processors: Processors,
        every: int | None = None,
        require_ownership: Callable[[], None] = lambda: None,
        is_member: bool = False,
    ) -> None:
        self._request, self._log, self._target = request, log, log.target
        self._resumed, self._every, self._require_ownership = resumed, every, require_ownership
        self._is_member = is_member
        self._sampled = request.own_samples
        self._elapsed = 0.0
        self._reported_at = time.monotonic()
        self._stop_reason = ""
        self._snapshots: TopicSnapshots | None = None
        self._processors, self._workers = processors, frozenset[str]()

    def begin(self, events: Sequence[Event], *, sent: int = 0) -> None:
        """Record the first events; a run that goes on from a checkpoint retains those that it has."""
        target, log = self._target, self._log
        target.clean()
        for event in events:
            log.write_journal(event)
        iterations = target.checkpoints.candidates()[0] if self._resumed else []
        self._require_samples(iterations)
        if iterations:
            for event in events[sent:]:
                log.send(event)
            differing = differing_versions(target.record())
            if differing:
                log.notice(f"other versions than the run began with ({', '.join(differing)}): other bits may come out")
            return
        target.truncate_events(0)
        for number, event in enumerate(events):
            log.record(event) if number < sent else log.emit(event)

    def _require_samples(self, iterations: Sequence[int]) -> None:
        """Raise `DamagedError` if a sample from before the checkpoint is missing, as it cannot be made again."""
        for number, iteration in enumerate(self._sampled):
            folder = self._target.member(number)
            if iterations and iteration < iterations[0] and not folder.exists(MODEL_RECORD):
                raise DamagedError(
                    f"{folder.url}/{MODEL_RECORD}",
                    f"the sample of iteration {iteration} is missing, and the checkpoint of iteration {iterations[0]} "
                    "comes after it; a fit into another folder begins anew",
                )

    def fit(self, problem: Problem) -> Model:
        """Fit a problem and save its last state, also when the fit is stopped or fails."""
        limits = self._request.limits
        checkpointer = RunCheckpointer(
            self._target,
            problem,
            fingerprint(self._request.record()),
            with_locals=not self._request.stochastic,
            every=self._every,
            require_ownership=self._require_ownership,
            notice=self._log.notice,
        )
        vocabulary = self._request.corpus.vocabulary.words
        self._snapshots = TopicSnapshots(problem, vocabulary, limits.planned(len(problem.shards)))
        try:
            begins = True
            # No variable may hold the fit, as it holds pending sweeps.
            for state, progress in Fit(problem, limits, checkpointer, self._snapshots):
                if begins or progress.lost:
                    self._remove_samples_after(progress.iteration)
                self._save_sample(problem, state, progress)
                # Else the state would be held until the next is there.
                del state
                self._log.emit({**event_of(progress), **self._processes(problem.executor)})
                self._elapsed, begins = progress.elapsed, False
                self._stop_reason = progress.stop_reason
                if progress.flat:
                    self._report_flat(progress)
            return self._finish(problem, checkpointer)
        except (KeyboardInterrupt, Exception) as error:
            # Whatever the error is, the iterations so far are saved.
            self._stop(checkpointer, error)
            raise

    def _final_words(self, state: State) -> Event:
        """Return the top words of the last state, unless they were reported; an error here does not end the run."""
        words: dict[str, list[str]] = {}
        with contextlib.suppress(CollapsiumError):
            words = {} if self._snapshots is None else self._snapshots.final_words(state)
        return {"top_words": words} if words else {}

    def _report_flat(self, progress: Progress) -> None:
        """Report a figure that has hardly changed over half of the iterations, and options that would end the run."""
        figure = FIGURE_NAMES[progress.flat]
        stop_on = " and stop_on score" if progress.flat == SCORE else ""
        text = (
            f"the {figure} has hardly changed since iteration {progress.iteration // 2}; a fit with "
            f"tolerance auto{stop_on} ends when it does not"
        )
        self._log.emit(
            {**initial_event("notice", text=text), "iteration": progress.iteration, "elapsed": progress.elapsed}
        )

    def _processes(self, executor: Executor) -> Event:
        """Return the memory and the tasks of the worker processes, where a report is due."""
        now = time.monotonic()
        if now - self._reported_at < REPORT_SECONDS:
            return {}
        self._reported_at = now
        workers = executor.activity()
        self._check_processors(executor, frozenset(worker.name for worker in workers))
        largest = sorted(workers, key=lambda worker: -worker.memory)[:REPORTED_PROCESSES]
        processes = [
            {"name": worker.name, "memory": worker.memory, "doing": list(worker.doing)}
            for worker in sorted(largest, key=lambda worker: worker.name)
        ]
        return {"processes": processes} if processes else {}

    def _check_processors(self, executor: Executor, workers: frozenset[str]) -> None:
        """Look at the processors again where workers have joined."""
        if workers <= self._workers:
            return
        self._workers |= workers
        before = self._processors.seen
        try:
            differing = self._processors.look(executor)
        finally:
            if self._processors.seen != before:
                self._target.rewrite({**self._target.record(), **self._processors.record()})
        if differing is not None:
            self._log.notice(differing)

    def _remove_samples_after(self, iteration: int) -> None:
        """Remove the samples that will be made again."""
        for number, sampled in enumerate(self._sampled):
            if sampled > iteration:
                self._target.member(number).remove()

    def _save_sample(self, problem: Problem, state: State, progress: Progress) -> None:
        """Save a state as a sample, if its iteration is one of those; one that is reported again is written again."""
        if progress.lost or progress.iteration not in self._sampled:
            return
        folder = self._target.member(self._sampled.index(progress.iteration))
        save_model(folder, self._request.corpus, problem, problem.folded_in(state), self._processors.seen)

    def _finish(self, problem: Problem, checkpointer: RunCheckpointer) -> Model:
        """Save the last state, as a checkpoint and as the model."""
        if checkpointer.last is None:
            raise RuntimeError("the loop gave no state")
        began = time.perf_counter()
        checkpointer.save_last()
        state = problem.folded_in(checkpointer.last.state)
        seen = self._processors.seen
        model = self._target.model
        save_model(model, self._request.corpus, problem, state, seen, self._log.notice, self._names)
        self._inherit_names()
        early = state.iteration < self._request.limits.planned(len(problem.shards))
        reason = self._stop_reason if early and self._stop_reason else DONE[early]
        end: Event = {"event": "end", "iteration": state.iteration, "elapsed": self._elapsed, "reason": reason}
        end["saving_seconds"] = time.perf_counter() - began
        end.update(self._final_words(state))
        remark = problem.family.remark(state.global_state)
        if remark is not None:
            self._log.notice(remark)
            end["remark"] = remark
        self._log.emit({**end, **({} if self._is_member else usage(problem.executor, state.iteration))})
        return Model(self._target.folder.url)

    def _names(self, folder: Folder) -> dict[int, TopicName]:
        """Return the names of the model that is replaced; members that went on may number a consensus differently."""
        before = self._target.model
        return matched_names(folder, before) if self._request.has_consensus else names_in(before)

    def _inherit_names(self) -> None:
        """Carry names of topics over from the model that the run began from; what cannot be never costs the model."""
        warm = self._request.warm
        try:
            if warm is not None:
                inherit_names(Model(self._target.model.url), Model(warm.url))
        except CollapsiumError as error:
            self._log.notice(f"the names of the topics were not carried over: {error}")

    def _stop(self, checkpointer: RunCheckpointer, error: BaseException) -> None:
        """Save the last complete iteration as a checkpoint, if its workers are still there, and report the end."""
        if isinstance(error, TakenOverError):
            # The process that has taken the run over reports it.
            return
        interrupted = isinstance(error, KeyboardInterrupt) and not isinstance(error, HaltedError)
        reason = "interrupt" if interrupted else "error"
        log, elapsed = self._log, self._elapsed
        # Frames hold pending sweeps, after which the checkpoint would come.
        traceback.clear_frames(error.__traceback__)
        iteration = checkpointer.saved_iteration
        if checkpointer.last is not None and not isinstance(error, (ClusterError, LockedError, NotFiniteError)):
            reached = checkpointer.last.state.iteration
            log.send({"event": "saving", "iteration": reached, "elapsed": elapsed, "reason": reason})
            try:
                iteration = checkpointer.save_last()
            except Exception as failure:
                log.notice(f"iteration {reached} could not be saved: {failure}")
        end: Event = {"event": "end", "iteration": iteration or 0, "elapsed": elapsed, "reason": reason}
        log.write_journal(end)
        if reason == "interrupt" and checkpointer.last is not None and checkpointer.last.state.iteration == iteration:
            end.update(self._final_words(checkpointer.last.state))
        with contextlib.suppress(CollapsiumError):
            log.record(end)
        log.send(end)
