"""Ensembles of restarts: fits of several seeds to the same shards, several at a time."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NotRequired, TypedDict

from collapsium.pipeline.engine.consensus import join
from collapsium.pipeline.engine.model_io.checkpoints import part_faults
from collapsium.pipeline.engine.processors import Processors
from collapsium.pipeline.engine.resources.plan import Plan
from collapsium.pipeline.engine.run import ActiveRun, Event, EventLog, usage
from collapsium.pipeline.engine.setup.loading import LoadedCorpus
from collapsium.pipeline.engine.setup.request import Request, end_reason, is_finished
from collapsium.pipeline.engine.state import Problem
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.monitoring.events import initial_event
from collapsium.storage.errors import CollapsiumError, DamagedError, OptionError
from collapsium.storage.io.run_lock import RunLock
from collapsium.storage.runs.members import member_seed, members_of, restarts_in
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.run import CHECKPOINTS, DONE, Run

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
            f"{target.folder.url}: only its best member is left; go on with that: `resume` {members[0][1].folder.url}"
        )
    return all(finished) and joined and end_reason(target) in DONE


class MemberEvent(TypedDict):
    """Event of a finished member: the figures of its last iteration, and the reason of its end."""

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

    def __init__(
        self,
        request: Request,
        log: EventLog,
        loaded: LoadedCorpus,
        executor: Executor,
        processors: Processors,
        planned: Plan,
        every: int | None,
        require_ownership: Callable[[], None],
    ) -> None:
        self._request, self._log, self._target = request, log, log.target
        self._loaded, self._executor, self._processors = loaded, executor, processors
        # `every` iterations of a member there is a checkpoint.
        self._planned, self._every, self._require_ownership = planned, every, require_ownership
        self._stopping = False
        self._mutex = threading.Lock()
        self._began = time.perf_counter()

    def run(self, events: Sequence[Event], *, sent: int, resumed: bool) -> Model:
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
            active = ActiveRun(
                self._request,
                self._log,
                resumed=False,
                processors=self._processors,
                every=self._every,
                require_ownership=self._require_ownership,
            )
            return active.fit(problem)
        if self._request.keep == "best":
            self._retain_best()
        self._end(None)
        return Model(self._target.folder.url)

    def _has_consensus_checkpoint(self) -> bool:
        """Return true if the consensus has a whole checkpoint; else its members are joined again."""
        checkpoints, faults = self._target.checkpoints, list[str]()
        for iteration in checkpoints.candidates()[0]:
            checkpoint = checkpoints.at(iteration)
            try:
                faults_here = part_faults(checkpoint, checkpoint.record(), self._executor)
            except DamagedError as error:
                faults_here = [str(error)]
            if not faults_here:
                return True
            faults += faults_here
        if faults:
            self._log.notice(f"no checkpoint of the consensus is complete: {faults[0]}; its members are joined again")
            self._discard_consensus()
        return False

    def _discard_consensus(self) -> None:
        """Remove the checkpoints of the consensus, as its members will go on for more iterations, or they are damaged.

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
        """Record the first events; a resumed ensemble retains those of finished members, or all of a consensus."""
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
        # The run is at its end, but lines before that may be missing, as anyone may have written them.
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
            for thread in threads:
                thread.join()

    def _fit_member(self, number: int) -> None:
        """Fit a member to its end."""
        request, run = member_request(self._request, number), self._target.in_member(number)
        if run.folder.exists() and not run.exists():
            # It was stopped before its record was written.
            run.folder.remove()
        resumed = run.exists()
        record = {**request.record(), **self._processors.record()}
        if resumed:
            run.rewrite({**run.record(), **record, "versions": run.record().get("versions", {})})
        else:
            run.create(record)
        with run.held() as lock:
            active = ActiveRun(
                request,
                EventLog(run, [self._log.send], has_folder=True, fields={"member": number}),
                resumed=resumed,
                processors=self._processors,
                every=self._every,
                require_ownership=_both(self._require_ownership, lock),
                is_member=True,
            )
            active.begin([_member_begins(request)])
            active.fit(self._loaded.problem(request.seed, number))
        with self._mutex:
            self._log.emit(self._outcome(number))

    @property
    def _chosen_by(self) -> str:
        """The figure by which the best member is chosen."""
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


def _both(require_ownership: Callable[[], None], lock: RunLock) -> Callable[[], None]:
    """Return a function that raises an error if another process has taken over the ensemble or the member."""

    def require() -> None:
        require_ownership()
        lock.require()

    return require
