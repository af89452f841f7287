"""Ensembles of restarts: fits with seeds of their own on the same shards, side by side."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from collapsium.pipeline.engine.events import usage
from collapsium.pipeline.engine.processors import Processors
from collapsium.pipeline.engine.run import Running, Teller
from collapsium.pipeline.engine.setup.loading import Loaded
from collapsium.pipeline.engine.setup.request import Request
from collapsium.pipeline.engine.setup.resumption import is_done
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.monitoring.events import first
from collapsium.storage.errors import CollapsiumError, OptionError
from collapsium.storage.io.locks.run_lock import RunLock
from collapsium.storage.runs.members import member_seed, restarts_in
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.run import DONE, Run


def member_request(request: Request, number: int) -> Request:
    """Return what a member of an ensemble is asked for: a fit by itself."""
    warm = None if request.warm is None else request.warm.member(number)
    return replace(request, seed=member_seed(request.seed, number), warm=warm, restarts=0, keep="all")


def finished_members(target: Run, request: Request) -> bool:
    """Say whether there is nothing more to do for an ensemble.

    Parameters
    ----------
    target : Run
        Its run.
    request : Request
        What it is asked for now.

    Returns
    -------
    bool
        Whether all members are at their ends, and that has been told.

    Raises
    ------
    OptionError
        More is asked for of one that has only its best member left, or fewer iterations than there are.
    """
    members = restarts_in(target)
    done = [run.exists() and is_done(run, member_request(request, number)) for number, run in members]
    if "best_member" in target.record() and not all(done):
        raise OptionError(
            f"{target.folder.url}: only its best member is left; go on with that: `resume` {members[0][1].folder.url}"
        )
    last: dict[str, Any] = next((one for one in reversed(target.events()) if one.get("event") == "end"), {})
    return all(done) and last.get("reason") in DONE


class Ensemble:
    """An ensemble that is worked on by whoever holds its lock.

    Parameters
    ----------
    request : Request
        What it was asked for.
    teller : Teller
        Tells of it.
    loaded : Loaded
        The corpus, which all members share.
    executor : Executor
        Who runs the tasks of all.
    at_a_time : int
        How many members to work on side by side.
    every : int or None
        Iterations between two checkpoints.
    owned : callable
        Raises an error where another process has taken the ensemble over.
    processors : Processors
        Which take part.
    """

    def __init__(
        self,
        request: Request,
        teller: Teller,
        loaded: Loaded,
        executor: Executor,
        *,
        at_a_time: int,
        every: int | None,
        owned: Callable[[], None],
        processors: Processors,
    ) -> None:
        self._request, self._teller, self._target = request, teller, teller.target
        self._loaded, self._executor, self._at_a_time = loaded, executor, at_a_time
        self._every, self._owned, self._processors = every, owned, processors
        self._stopping = False
        self._mutex = threading.Lock()
        self._began = time.perf_counter()

    def run(self, opening: Sequence[dict[str, Any]], *, silent: int, resumed: bool) -> Model:
        """Work on all members that are not at their ends, and on the choice of those that are kept.

        Parameters
        ----------
        opening : sequence of dict
            Events that tell how it begins.
        silent : int
            How many of them those who listen have been told already.
        resumed : bool
            Whether it is taken up again.

        Returns
        -------
        Model
            That of the first member there is.
        """
        pending: list[int] = []
        ended: list[int] = []
        for number, run in restarts_in(self._target):
            done = run.exists() and is_done(run, member_request(self._request, number))
            (ended if done else pending).append(number)
        self._begin(opening, ended, silent=silent, resumed=resumed)
        try:
            self._work(pending)
        except (KeyboardInterrupt, Exception) as stopped:
            reason = "interrupt" if isinstance(stopped, KeyboardInterrupt) else "error"
            self._end(reason)
            raise
        if self._request.keep == "best":
            self._keep_best()
        self._end(None)
        return Model(self._target.folder.url)

    def _begin(self, opening: Sequence[dict[str, Any]], ended: list[int], *, silent: int, resumed: bool) -> None:
        """Tell how it begins; of one that is taken up again, what was told of finished members stays."""
        target, teller = self._target, self._teller
        target.clean()
        for event in opening:
            teller.note(event)
        told = [event for event in target.events() if event["event"] not in ("end", "notice")] if resumed else []
        told = [event for event in told if event["event"] != "member" or event["member"] in ended]
        if {"cluster", "start"} <= {event["event"] for event in told}:
            target.replace_events(told)
            for event in opening[silent:]:
                teller.say(event)
        else:
            target.replace_events([])
            for number, event in enumerate(opening):
                teller.record(event) if number < silent else teller.tell(event)
        said = {event["member"] for event in told if event["event"] == "member"}
        for number in ended:
            tell = teller.say if number in said else teller.tell
            tell(self._outcome(number))

    def _outcome(self, number: int) -> dict[str, Any]:
        """Return what is told of a member at its end."""
        run = self._target.in_member(number)
        events = run.events()
        last = next(event for event in reversed(events) if event["event"] == "iteration")
        end = next(event for event in reversed(events) if event["event"] == "end")
        found = {"event": "member", "member": number, "seed": run.record()["seed"], "iteration": end["iteration"]}
        score: dict[str, Any] = {name: last[name] for name in ("score", "objective") if name in last}
        return {**found, "elapsed": end["elapsed"], **score, "reason": end["reason"]}

    def _work(self, pending: list[int]) -> None:
        """Work on members, so many at a time; what one of them meets ends all."""
        if min(self._at_a_time, len(pending)) <= 1:
            for number in pending:
                self._member(number)
            return
        waiting = iter(pending)
        ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

        def work() -> None:
            try:
                while True:
                    with self._mutex:
                        number = None if self._stopping else next(waiting, None)
                    if number is None:
                        break
                    self._member(number)
            except BaseException as error:  # whatever it is, the main thread shall meet it
                ends.put(error)
            else:
                ends.put(None)

        count = min(self._at_a_time, len(pending))
        threads = [threading.Thread(target=work, name=f"collapsium-member-{n}", daemon=True) for n in range(count)]
        for thread in threads:
            thread.start()
        try:
            for _ in threads:
                error = ends.get()
                if error is not None:
                    raise error
        finally:  # after an error or an interrupt, the others keep what they have
            if any(thread.is_alive() for thread in threads):
                with self._mutex:
                    self._stopping = True
                self._executor.halt()
            for thread in threads:
                thread.join()

    def _member(self, number: int) -> None:
        """Work on a member until its end."""
        request, run = member_request(self._request, number), self._target.in_member(number)
        if run.folder.exists() and not run.exists():
            run.folder.remove()  # its record was not written yet
        resumed, processors = run.exists(), self._processors
        if resumed:
            run.rewrite(
                {
                    **run.record(),
                    **request.record(),
                    "versions": run.record().get("versions", {}),
                    **processors.record(),
                }
            )
        else:
            run.create({**request.record(), **processors.record()})
        with run.held() as lock:
            teller = Teller(run, [self._teller.say], begun=True, more={"member": number})
            owned = _both(self._owned, lock)
            options: dict[str, Any] = {"resumed": resumed, "every": self._every, "owned": owned, "alone": False}
            running = Running(request, teller, processors=processors, **options)
            manifest = request.corpus.manifest
            counts = {"documents": manifest.documents, "tokens": manifest.tokens, "words": manifest.vocabulary.words}
            sizes: dict[str, Any] = {**counts, "holds": manifest.holds}
            shards = len(manifest.shards)
            iterations = request.limits.planned(shards)
            begins = first("begin", family=request.family, **sizes, shards=shards, iterations=iterations)
            running.begin([{**begins, "seed": request.seed}])
            running.loop(*self._ready(request, number))
        with self._mutex:
            self._teller.tell(self._outcome(number))

    def _ready(self, request: Request, number: int) -> tuple[Any, Executor, Any]:
        problem, global_state = self._loaded.problem(request.seed, number)
        return problem, self._executor, global_state

    @property
    def _chosen_by(self) -> str:
        """What `keep` chooses by."""
        return "objective" if self._request.heldout is None else "score"

    def _keep_best(self) -> None:
        """Keep the member with the best held-out score, or objective, and remove the others."""
        record = self._target.record()
        if "best_member" not in record:
            outcomes = {number: self._outcome(number) for number, _ in restarts_in(self._target)}
            values = {number: one.get(self._chosen_by) for number, one in outcomes.items()}
            if all(value is None for value in values.values()):
                raise OptionError(
                    f"keep best: the fits have no {self._chosen_by} under these options to choose by; all are kept"
                )
            best = max(values, key=lambda number: (-math.inf if values[number] is None else values[number], -number))
            record["best_member"] = best
            self._target.rewrite(record)
        for number in range(self._request.restarts):
            if number != record["best_member"]:
                self._target.member(number).remove()

    def _end(self, reason: str | None) -> None:
        """Tell how it ended, and how many members are at their ends."""
        members = restarts_in(self._target)
        done = [number for number, run in members if run.model.exists(MODEL_RECORD)]
        more: dict[str, Any] = {"best_member": members[0][0]} if "best_member" in self._target.record() else {}
        if reason is None:
            outcomes = [self._outcome(number) for number in done]
            reasons = {one["reason"] for one in outcomes}
            reason = next((one for one in DONE if one in reasons), DONE[0])
            more.update({"chosen_by": self._chosen_by} if more else {})
            more.update(usage(self._executor, sum(int(one["iteration"]) for one in outcomes)))
        iterations = [(run.checkpoints.candidates()[0] or [0])[0] for _, run in members]
        end: dict[str, Any] = {"event": "end", "iteration": max(iterations, default=0), "reason": reason}
        end["elapsed"] = time.perf_counter() - self._began
        ended = (
            self._request.restarts if "best_member" in more and done else len(done)
        )  # the others were removed at theirs
        end.update(members=self._request.restarts, ended=ended, **more)
        self._teller.note(end)
        try:
            self._teller.record(end)
        except CollapsiumError:
            if reason in DONE:
                raise
        self._teller.say(end)


def _both(ensemble: Callable[[], None], lock: RunLock) -> Callable[[], None]:
    """Return what raises an error once another process has taken over the ensemble or the member."""

    def owned() -> None:
        ensemble()
        lock.require()

    return owned
