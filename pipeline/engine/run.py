"""A run at work: its loop, its events, and the checkpoints, samples and model that it saves.

An ensemble fits several seeds to the same shards, several at a time.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import queue
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NotRequired, TypedDict

from collapsium.pipeline.engine.checkpoints import RunCheckpointer, part_faults
from collapsium.pipeline.engine.consensus import join
from collapsium.pipeline.engine.loop import CHANGE, OBJECTIVE, SCORE, Fit
from collapsium.pipeline.engine.plan import Plan, exchange_advice
from collapsium.pipeline.engine.processors import Processors
from collapsium.pipeline.engine.save import inherit_names, matched_names, names_in, save_model
from collapsium.pipeline.engine.setup.limits import AUTO
from collapsium.pipeline.engine.setup.loading import LoadedCorpus
from collapsium.pipeline.engine.setup.request import Request, differing_versions, end_reason, fingerprint, is_finished
from collapsium.pipeline.engine.state import Problem, Progress, State
from collapsium.pipeline.engine.topic_snapshots import TopicSnapshots
from collapsium.pipeline.executors.base import Executor, HaltedError
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.monitoring.events import Sink, emit, initial_event
from collapsium.storage.errors import (
    ClusterError,
    CollapsiumError,
    DamagedError,
    LockedError,
    NotFiniteError,
    OptionError,
    TakenOverError,
    interrupt_behind,
)
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.members import member_seed, members_of, restarts_in
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.run import CHECKPOINTS, DONE, Run
from collapsium.storage.runs.topic_names import TopicName

Event = dict[str, object]
FIGURE_NAMES = {CHANGE: "change of the counts", OBJECTIVE: "objective", SCORE: "held-out score"}


REPORT_SECONDS = 2.0  # Least time between two reports on the worker processes
HELD_OUT = (
    "`tolerance` does not end this fit while it holds out training tokens to choose its number of topics (until 75% of "
    "the iterations, `split_merge_moves`) or its inverse temperature (until 90%, `inverse_temperature`)"
)
# Iteration after which `local_sweeps` auto suggests a number; the first iteration includes connecting
SUGGESTED_AFTER = 6
REPORTED_PROCESSES = 32  # Processes of a report, those with the most memory


def usage(executor: Executor, iterations: int) -> Event:
    """Return the bytes that moved between workers and the processes' peak memory; empty if the cluster is gone."""
    try:
        peaks = executor.everywhere(_peak_memory)
        moved = executor.moved()
    except CollapsiumError:
        return {}
    return {
        "moved_bytes": moved,
        # The start is an iteration too.
        "moved_bytes_an_iteration": moved / (iterations + 1),
        "worker_peak_bytes": peaks,
        "driver_peak_bytes": 0 if executor.links() is None else _peak_memory(),
    }


def _peak_memory() -> int:
    """Return the most memory that this process has held, in bytes."""
    # The value of getrusage begins with the peak of the process that started this one (getrusage(2)).
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
    event.update(progress.metrics)
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


# A score has fallen if this number of last scores are below the best, the very last by this many nats per token; scores
# of successive iterations vary by some ten thousandths
FALLEN_SCORES = 5
LEAST_FALL = 1e-3


def fallen_score(events: Sequence[Event]) -> str:
    """Return a line about a score that has fallen since its best iteration, and the way to a model of that.

    It is empty where scores have not fallen, and leaves out iterations that swept a sample of the documents.
    """
    scored = [
        (float(str(event["score"])), int(str(event["iteration"])))
        for event in events
        if event["event"] == "iteration" and "score" in event and "documents_share" not in event
    ]
    best, iteration = max(scored, key=lambda pair: (pair[0], -pair[1]), default=(-math.inf, 0))
    if sum(later > iteration for _, later in scored) < FALLEN_SCORES or best - scored[-1][0] < LEAST_FALL:
        return ""
    return (
        f"the held-out score has fallen since iteration {iteration}, from {best:.4f} to {scored[-1][0]:.4f}; a fit "
        f"with iterations {iteration} ends there"
    )


class EventLog:
    """Writes events into a run's folder, once that exists, and sends them to sinks."""

    def __init__(
        self, target: Run, sinks: Sequence[Sink], *, has_folder: bool, fields: Mapping[str, object] | None = None
    ) -> None:
        self.target, self.sinks, self.has_folder, self._fields = target, [*sinks], has_folder, dict(fields or {})
        self.has_iterations = False
        # Members of an ensemble write to one folder from several threads.
        self._lock = threading.Lock()

    def send(self, event: Mapping[str, object]) -> None:
        """Send an event to the sinks."""
        ended = event["event"] == "iteration" or (event["event"] == "saving" and event["iteration"] != 0)
        self.has_iterations = self.has_iterations or ended
        emit(self.sinks, {**event, **self._fields})

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


@dataclass(frozen=True)
class Session:
    """Request, log and lock that the fits of a run or of an ensemble share in a process."""

    request: Request  # What is fitted
    log: EventLog  # Receives the events
    processors: Processors  # Kinds of processors that take part
    every: int | None  # Iterations between two checkpoints; by default they follow the clock
    require_ownership: Callable[[], None]  # Raises `LockedError` if another process has taken the run over


class ActiveRun:
    """A run that this process works on."""

    def __init__(self, session: Session, *, resumed: bool, is_member: bool = False) -> None:
        self._session, self._request, self._log, self._target = (
            session,
            session.request,
            session.log,
            session.log.target,
        )
        self._resumed, self._is_member = resumed, is_member
        self._sampled = session.request.own_samples
        self._elapsed = 0.0
        self._reported_at = time.monotonic()
        self._stop_reason = ""
        # Seconds of the first iterations, for `local_sweeps` auto
        self._sweeping = self._exchanging = 0.0
        self._snapshots: TopicSnapshots | None = None
        self._processors, self._workers = session.processors, frozenset[str]()

    def begin(self, events: Sequence[Event], *, sent: int = 0) -> None:
        """Record the first events; a run that continues from a checkpoint retains its earlier ones."""
        target, log = self._target, self._log
        target.clean()
        for event in events:
            log.write_journal(event)
        iterations = target.checkpoints.candidates()[0] if self._resumed else []
        if iterations:
            self._require_samples(iterations[0])
            for event in events[sent:]:
                log.send(event)
            differing = differing_versions(target.record())
            if differing:
                log.notice(
                    f"versions differ from those that the run began with ({', '.join(differing)}): the last bits of "
                    "the result may differ too"
                )
            return
        target.truncate_events(0)
        for number, event in enumerate(events):
            log.record(event) if number < sent else log.emit(event)

    def _require_samples(self, reached: int) -> None:
        """Raise `DamagedError` if a sample from before the checkpoint is missing, because it cannot be made again."""
        for number, iteration in enumerate(self._sampled):
            folder = self._target.member(number)
            if iteration < reached and not folder.exists(MODEL_RECORD):
                raise DamagedError(
                    f"{folder.url}/{MODEL_RECORD}",
                    f"the sample of iteration {iteration} is missing, and the checkpoint of iteration {reached} comes "
                    "after it; a fit into another folder begins anew",
                )

    def fit(self, problem: Problem) -> None:
        """Fit a problem and save its last state; if the fit is stopped or fails, the last one that is still there."""
        limits = self._request.limits
        checkpointer = RunCheckpointer(
            self._target,
            problem,
            fingerprint(self._request.record()),
            with_locals=not self._request.stochastic,
            every=self._session.every,
            require_ownership=self._session.require_ownership,
            notice=self._log.notice,
        )
        vocabulary = self._request.corpus.vocabulary.words
        self._snapshots = TopicSnapshots(problem, vocabulary, limits.planned(len(problem.shards)))
        fitting = None
        try:
            fitting = Fit(problem, limits, checkpointer, self._snapshots)
            begins = True
            reached = time.perf_counter()
            for state, progress in fitting:
                recorded = self._target.events_size()
                try:
                    if begins or progress.lost:
                        # They will be made again.
                        for number, sampled in enumerate(self._sampled):
                            if sampled > progress.iteration:
                                self._target.member(number).remove()
                    self._save_sample(problem, state, progress)
                    if begins and limits.tolerance and problem.family.uncounted_tokens(state.global_state):
                        self._log.notice(HELD_OUT)
                    # Else the state would be held until the next one exists.
                    del state
                    self._report(progress, problem.executor)
                except KeyboardInterrupt as interrupt:
                    fitting.interrupt(interrupt)
                    if self._target.events_size() == recorded:
                        self._report(progress, problem.executor)
                begins, reached = False, time.perf_counter()
            self._finish(problem, checkpointer, reached)
        except (KeyboardInterrupt, Exception) as error:
            # The fit holds pending sweeps.
            fitting = None
            # Whatever the error is, what is left of the iterations so far is saved.
            self._stop(checkpointer, error)
            raise

    def _report(self, progress: Progress, executor: Executor) -> None:
        """Report an iteration, and what follows from its metrics."""
        self._log.emit({**event_of(progress), **self._processes(executor)})
        self._elapsed, self._stop_reason = progress.elapsed, progress.stop_reason
        if progress.flat:
            figure = FIGURE_NAMES[progress.flat]
            stop_on = " and stop_on score" if progress.flat == SCORE else ""
            text = (
                f"the {figure} has hardly changed since iteration {progress.iteration // 2}; a fit with "
                f"tolerance auto{stop_on} ends when it does not"
            )
            self._log.emit(
                {**initial_event("notice", text=text), "iteration": progress.iteration, "elapsed": progress.elapsed}
            )
        if self._request.limits.local_sweeps == AUTO and executor.processes > 1:
            self._suggest_local_sweeps(progress, executor)

    def _final_words(self, state: State) -> Event:
        """Return the top words of the last state, unless they were reported; an error here does not end the run."""
        words: dict[str, list[str]] = {}
        with contextlib.suppress(CollapsiumError):
            words = {} if self._snapshots is None else self._snapshots.final_words(state)
        return {"top_words": words} if words else {}

    def _suggest_local_sweeps(self, progress: Progress, executor: Executor) -> None:
        """Say after the first iterations where workers spend more time on the exchange than on sweeps."""
        if not 1 < progress.iteration <= SUGGESTED_AFTER or progress.lost:
            return
        self._sweeping += progress.sweeps.get("total", 0.0) / executor.workers
        self._exchanging += progress.seconds["reduce"] + progress.seconds["wait"]
        if progress.iteration == SUGGESTED_AFTER:
            measured = SUGGESTED_AFTER - 1
            advice = exchange_advice(self._sweeping / measured, self._exchanging / measured, executor.processes)
            if advice:
                self._log.notice(f"{advice}; this fit continues unchanged")

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

    def _save_sample(self, problem: Problem, state: State, progress: Progress) -> None:
        """Save a state as a sample, if its iteration is one of those; one that is reported again is written again."""
        if progress.lost or progress.iteration not in self._sampled:
            return
        folder = self._target.member(self._sampled.index(progress.iteration))
        save_model(folder, self._request.corpus, problem, problem.folded_in(state), self._processors.seen)

    def _finish(self, problem: Problem, checkpointer: RunCheckpointer, began: float) -> None:
        """Save the last state, whose checkpoint began to be written at a time, as the model."""
        if checkpointer.last is None:
            raise RuntimeError("the loop gave no state")
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
        fallen = fallen_score(self._target.events())
        if fallen:
            self._log.notice(fallen)
        remark = problem.family.remark(state.global_state)
        if remark is not None:
            self._log.notice(remark)
            end["remark"] = remark
        self._log.emit({**end, **({} if self._is_member else usage(problem.executor, state.iteration))})

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
        except TakenOverError:
            raise
        except CollapsiumError as error:
            self._log.notice(f"the names of the topics were not carried over: {error}")

    def _stop(self, checkpointer: RunCheckpointer, error: BaseException) -> None:
        """Save the last complete iteration as a checkpoint, if its workers are still there, and report the end."""
        if isinstance(error, TakenOverError):
            # The process that has taken the run over reports it.
            return
        behind = interrupt_behind(error)
        interrupted = isinstance(behind, KeyboardInterrupt) and not isinstance(behind, HaltedError)
        reason = "interrupt" if interrupted else "error"
        log, elapsed = self._log, self._elapsed
        # Frames hold pending sweeps, after which the checkpoint would come.
        traceback.clear_frames(error.__traceback__)
        iteration = checkpointer.saved_iteration
        reached = checkpointer.reached
        if reached is not None and not isinstance(error, (ClusterError, LockedError, NotFiniteError)):
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


# Kinds of events of an ensemble until its members have ended, which stay when it is resumed
BEFORE_MEMBERS = ("cluster", "compile", "start", "member")


def member_request(request: Request, number: int) -> Request:
    """Return the request of a member of an ensemble, which is a fit by itself."""
    warm = None if request.warm is None else request.warm.member(number)
    seed = member_seed(request.seed, number)
    return replace(request, seed=seed, warm=warm, restarts=0, keep="all", combine="predictions")


def is_ensemble_finished(target: Run, request: Request) -> bool:
    """Return true if an ensemble has nothing more to do."""
    members = restarts_in(target)
    joined = not request.has_consensus or is_finished(target, request)
    finished = [run.exists() and is_finished(run, member_request(request, number)) for number, run in members]
    if "best_member" in target.record() and not all(finished):
        raise OptionError(
            f"{target.folder.url}: only its best member was kept; continue that one: `resume` "
            f"{members[0][1].folder.url}"
        )
    return all(finished) and joined and end_reason(target) in DONE


class MemberEvent(TypedDict):
    """Event of a finished member: the metrics of its last iteration, and the reason of its end."""

    event: str
    member: int
    seed: int
    iteration: int
    elapsed: float
    reason: str
    score: NotRequired[float]
    objective: NotRequired[float]


class Ensemble:
    """An ensemble that this process works on; the caller holds its lock."""

    def __init__(self, session: Session, loaded: LoadedCorpus, executor: Executor, planned: Plan) -> None:
        self._session, self._request, self._log, self._target = (
            session,
            session.request,
            session.log,
            session.log.target,
        )
        self._loaded, self._executor, self._planned = loaded, executor, planned
        self._stopping = False
        self._mutex = threading.Lock()
        self._began = time.perf_counter()

    def run(self, events: Sequence[Event], *, sent: int, resumed: bool) -> None:
        """Fit all members that are not finished, and choose the best where the request says so."""
        pending: list[int] = []
        finished: list[int] = []
        for number, run in restarts_in(self._target):
            done = run.exists() and is_finished(run, member_request(self._request, number))
            (finished if done else pending).append(number)
        joins = self._request.has_consensus
        if pending and joins:
            self._discard_consensus()
        goes_on = joins and not pending and resumed and self._has_consensus_checkpoint()
        self._begin(events, finished, sent=sent, resumed=resumed, begun=goes_on)
        try:
            self._fit_members(pending)
            problem = self._consensus(goes_on=goes_on) if joins else None
        except (KeyboardInterrupt, Exception) as error:
            self._end("interrupt" if isinstance(error, KeyboardInterrupt) else "error")
            raise
        if problem is not None:
            ActiveRun(self._session, resumed=False).fit(problem)
            return
        if self._request.keep == "best":
            self._retain_best()
        self._end(None)

    def _has_consensus_checkpoint(self) -> bool:
        """Return true if the consensus has a whole checkpoint; else its members are joined again."""
        checkpoints, faults = self._target.checkpoints, list[str]()
        for iteration in checkpoints.candidates()[0]:
            checkpoint = checkpoints.at(iteration)
            try:
                checkpoint_faults = part_faults(checkpoint, checkpoint.record(), self._executor)
            except DamagedError as error:
                checkpoint_faults = [str(error)]
            if not checkpoint_faults:
                return True
            faults += checkpoint_faults
        if faults:
            self._log.notice(f"no checkpoint of the consensus is complete: {faults[0]}; its members are joined again")
            self._discard_consensus()
        return False

    def _discard_consensus(self) -> None:
        """Remove the checkpoints of the consensus, because its members will continue or the checkpoints are damaged.

        Its model stays until the next one replaces it, with the names of its topics.
        """
        (self._target.folder / CHECKPOINTS).remove()

    def _consensus(self, *, goes_on: bool) -> Problem:
        """Return the problem of the fit that begins from the means of all members, whose topics are matched."""
        request, urls = self._request, [url for _, url in members_of(self._target.folder.url)]
        seed = member_seed(request.seed, request.restarts)
        if goes_on:
            return self._loaded.problem_from(seed)
        began = time.perf_counter()
        consensus = join(urls, request.corpus, self._executor, self._planned.matching)
        self._log.notice(
            f"matched the topics of {len(urls)} models in {counted(consensus.rounds, 'round')}, "
            f"{time.perf_counter() - began:.1f} s; the mean overlap of their words is {consensus.overlap:.2f} of 1"
        )
        # Where the start of the members stays in the documents' priors, their means do so here.
        strength = 0.0 if request.start is None else request.start.strength
        return self._loaded.problem_from(seed, consensus.start(request.corpus, strength), len(consensus.topics))

    def _begin(
        self, events: Sequence[Event], finished: list[int], *, sent: int, resumed: bool, begun: bool = False
    ) -> None:
        """Record the first events; a resumed ensemble retains the events of finished members, or all of a consensus."""
        target, log = self._target, self._log
        target.clean()
        for event in events:
            log.write_journal(event)
        if begun:
            for event in events[sent:]:
                log.send(event)
            for number in finished:
                log.send(self._outcome(number))
            return
        retained = [event for event in target.events() if event["event"] in BEFORE_MEMBERS] if resumed else []
        retained = [event for event in retained if event["event"] != "member" or event["member"] in finished]
        if {"cluster", "start"} <= {event["event"] for event in retained}:
            target.replace_events(retained)
            for event in events[sent:]:
                log.send(event)
        else:
            target.replace_events([])
            for number, event in enumerate(events):
                log.record(event) if number < sent else log.emit(event)
        recorded = {event["member"] for event in retained if event["event"] == "member"}
        for number in finished:
            publish = log.send if number in recorded else log.emit
            publish(self._outcome(number))

    def _outcome(self, number: int) -> MemberEvent:
        """Return the event of a finished member."""
        run = self._target.in_member(number)
        events = run.events()
        # The run is at its end, but earlier lines may be missing, because the file may be untrusted.
        last = next((event for event in reversed(events) if event["event"] == "iteration"), {})
        end = next(event for event in reversed(events) if event["event"] == "end")
        outcome: MemberEvent = {
            "event": "member",
            "member": number,
            "seed": run.record()["seed"],
            "iteration": end["iteration"],
            "elapsed": end["elapsed"],
            "reason": end["reason"],
        }
        if "score" in last:
            outcome["score"] = last["score"]
        if "objective" in last:
            outcome["objective"] = last["objective"]
        return outcome

    def _fit_members(self, pending: list[int]) -> None:
        """Fit members, several at a time; an error in one of them ends all."""
        count = min(self._planned.members, len(pending))
        if count <= 1:
            for number in pending:
                self._fit_member(number)
            return
        waiting = iter(pending)
        errors: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

        def work() -> None:
            try:
                while True:
                    with self._mutex:
                        number = None if self._stopping else next(waiting, None)
                    if number is None:
                        break
                    self._fit_member(number)
            except BaseException as error:
                # The main thread raises every error, of whatever kind.
                errors.put(error)
            else:
                errors.put(None)

        threads = [threading.Thread(target=work, name=f"collapsium-member-{n}", daemon=True) for n in range(count)]
        for thread in threads:
            thread.start()
        failed = False
        try:
            for _ in threads:
                error = errors.get()
                if error is not None:
                    failed = not isinstance(error, KeyboardInterrupt)
                    raise error
        finally:
            # After an error or an interrupt, the other members save their states.
            if any(thread.is_alive() for thread in threads):
                with self._mutex:
                    self._stopping = True
                self._executor.halt(failed=failed)
            try:
                for thread in threads:
                    thread.join()
            except KeyboardInterrupt:
                # A second interrupt: members that finish an iteration stop at once.
                self._executor.halt(failed=failed)
                for thread in threads:
                    thread.join()
                raise

    def _fit_member(self, number: int) -> None:
        """Fit a member to its end."""
        request, run = member_request(self._request, number), self._target.in_member(number)
        if run.folder.exists() and not run.exists():
            # It was stopped before its record was written.
            run.folder.remove()
        resumed = run.exists()
        record = {**request.record(), **self._session.processors.record()}
        if resumed:
            run.rewrite({**run.record(), **record, "versions": run.record().get("versions", {})})
        else:
            run.create(record)
        with run.held() as lock:

            def require_ownership() -> None:
                self._session.require_ownership()
                lock.require()

            log = EventLog(run, [self._receive], has_folder=True, fields={"member": number})
            session = replace(self._session, request=request, log=log, require_ownership=require_ownership)
            active = ActiveRun(session, resumed=resumed, is_member=True)
            active.begin([_member_begins(request)])
            active.fit(self._loaded.problem(request.seed, number))
        with self._mutex:
            self._log.emit(self._outcome(number))

    def _receive(self, event: Event) -> None:
        """Send a member's event; raise `OptionError` after its first iteration if nothing shows which is the best."""
        chooses = self._request.keep == "best" and self._chosen_by == OBJECTIVE
        if chooses and event["event"] == "iteration" and event["iteration"] == 1 and OBJECTIVE not in event:
            raise OptionError("'best' requires `heldout`, as the fits have no objective under these options", "keep")
        self._log.send(event)

    @property
    def _chosen_by(self) -> str:
        """The metric by which the best member is chosen."""
        return "objective" if self._request.heldout is None else "score"

    def _retain_best(self) -> None:
        """Remove all members but the one with the best held-out score or objective."""
        record = self._target.record()
        if "best_member" not in record:
            outcomes = {number: self._outcome(number) for number, _ in restarts_in(self._target)}
            values = {number: outcome.get(self._chosen_by) for number, outcome in outcomes.items()}
            numbers = {number: value for number, value in values.items() if isinstance(value, int | float)}
            if not numbers:
                raise OptionError(
                    f"expected 'all', found 'best': the fits have no {self._chosen_by} under these options; all are "
                    "retained",
                    "keep",
                )
            record["best_member"] = max(values, key=lambda number: (numbers.get(number, -math.inf), -number))
            self._target.rewrite(record)
        for number in range(self._request.restarts):
            if number != record["best_member"]:
                self._target.member(number).remove()

    def _end(self, reason: str | None) -> None:
        """Report the end of the ensemble, and how many members are finished."""
        members = restarts_in(self._target)
        finished = [number for number, run in members if run.model.exists(MODEL_RECORD)]
        details: Event = {"best_member": members[0][0]} if "best_member" in self._target.record() else {}
        if reason is None:
            outcomes = [self._outcome(number) for number in finished]
            reasons = {outcome["reason"] for outcome in outcomes}
            reason = next((name for name in DONE if name in reasons), DONE[0])
            if details:
                details["chosen_by"] = self._chosen_by
            details.update(usage(self._executor, sum(outcome["iteration"] for outcome in outcomes)))
        iterations = [(run.checkpoints.candidates()[0] or [0])[0] for _, run in members]
        end: Event = {
            "event": "end",
            "iteration": max(iterations, default=0),
            "reason": reason,
            "elapsed": time.perf_counter() - self._began,
            "members": self._request.restarts,
            # Members that were removed had finished.
            "ended": self._request.restarts if "best_member" in details and finished else len(finished),
            **details,
        }
        self._log.write_journal(end)
        try:
            self._log.record(end)
        except CollapsiumError:
            if reason in DONE:
                raise
        self._log.send(end)


def _member_begins(request: Request) -> Event:
    """Return the first event of a member."""
    manifest = request.corpus.manifest
    shards = len(manifest.shards)
    return initial_event(
        "begin",
        family=request.family,
        documents=manifest.documents,
        tokens=manifest.tokens,
        words=manifest.vocabulary.words,
        holds=manifest.holds,
        shards=shards,
        iterations=request.limits.planned(shards),
        seed=request.seed,
    )
