"""A run on its way: its loop, what is told of it, and what is kept: checkpoints, samples and the model."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from collapsium.pipeline.engine.events import event_of, usage
from collapsium.pipeline.engine.loop.convergence import CHANGE, OBJECTIVE, SCORE
from collapsium.pipeline.engine.loop.loop import run
from collapsium.pipeline.engine.loop.stochastic import run_stochastic, settled
from collapsium.pipeline.engine.loop.topic_snapshots import Glance
from collapsium.pipeline.engine.model_io.checkpoints import CheckpointKeeper
from collapsium.pipeline.engine.model_io.save import keep_model
from collapsium.pipeline.engine.processors import Processors
from collapsium.pipeline.engine.setup.request import Request, differing_versions, fingerprint
from collapsium.pipeline.engine.state import Problem, Progress, State
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.monitoring.events import Sink, first, tell
from collapsium.storage.errors import ClusterError, CollapsiumError, DamagedError, LockedError, TakenOverError
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.run import DONE, Run
from collapsium.workers.arrays.state import GlobalState

FIGURES = {CHANGE: "change of the counts", OBJECTIVE: "objective", SCORE: "held-out score"}
LOOK, PROCESSES = 2.0, 32  # seconds between two looks at the worker processes, and how many are told of


class Teller:
    """Tells of a run: to its folder, once there is one, and to all who listen.

    Parameters
    ----------
    target : Run
        The run.
    sinks : sequence of callable
        Who listens.
    begun : bool
        Whether its folder is there.
    more : mapping, optional
        What each event says besides, such as the member's number.
    """

    def __init__(
        self, target: Run, sinks: Sequence[Sink], *, begun: bool, more: Mapping[str, Any] | None = None
    ) -> None:
        self.target, self._sinks, self.begun, self._more = target, [*sinks], begun, dict(more or {})
        self._lock = threading.Lock()  # members tell the same folder side by side

    def listen(self, sink: Sink) -> None:
        """Let one more listen."""
        self._sinks.append(sink)

    def say(self, event: dict[str, Any]) -> None:
        """Tell those who listen."""
        tell(self._sinks, {**event, **self._more})

    def tell(self, event: dict[str, Any]) -> None:
        """Tell the run's events, and those who listen."""
        self.record(event)
        self.say(event)

    def record(self, event: dict[str, Any]) -> None:
        """Tell the run's events."""
        with self._lock:
            self.target.append_event({**event, **self._more})

    def notice(self, text: str) -> None:
        """Say in a line what befell the run: to whoever watches, and in its journal."""
        event = first("notice", text=text)
        if self.begun:
            self.note(event)
        self.say(event)

    def note(self, event: dict[str, Any]) -> None:
        """Write into the run's journal."""
        here = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "process": os.getpid(),
            "host": platform.node(),
        }
        # A journal that cannot be written shall not end the run.
        with self._lock, contextlib.suppress(CollapsiumError):
            self.target.append_journal({**here, **event, **self._more})


class Running:
    """A run that is worked on by whoever holds its lock.

    Parameters
    ----------
    request : Request
        What it was asked for.
    teller : Teller
        Tells of it.
    resumed : bool
        Whether it is taken up again.
    processors : Processors
        Which take part.
    every : int, optional
        Iterations between two checkpoints.
    owned : callable, optional
        Raises an error where another process has taken the run over.
    alone : bool, optional
        Whether the executor works for this run only, so that it can say what the run took.
    """

    def __init__(
        self,
        request: Request,
        teller: Teller,
        *,
        resumed: bool,
        processors: Processors,
        every: int | None = None,
        owned: Callable[[], None] = lambda: None,
        alone: bool = True,
    ) -> None:
        self._alone = alone
        self._request, self._teller, self._target = request, teller, teller.target
        self._resumed, self._every, self._owned = resumed, every, owned
        self._sampled = request.sampled
        self._elapsed = 0.0
        self._looked = time.monotonic()
        self._ends = ""
        self._glance: Glance | None = None
        self._processors_at_work, self._workers = processors, frozenset[str]()

    def begin(self, opening: Sequence[dict[str, Any]], *, silent: int = 0) -> None:
        """Tell how it begins; the events of a run that goes on from a checkpoint stay as they were.

        Parameters
        ----------
        opening : sequence of dict
            Events.
        silent : int, optional
            How many of them those who listen have been told already.
        """
        target, teller = self._target, self._teller
        target.clean()
        for event in opening:
            teller.note(event)
        iterations = target.checkpoints.candidates()[0] if self._resumed else []
        self._require_samples(iterations)
        if iterations:
            for event in opening[silent:]:
                teller.say(event)
            differing = differing_versions(target.record())
            if differing:
                teller.notice(
                    f"other versions than the run began with ({', '.join(differing)}): other bits may come out"
                )
            return
        target.truncate_events(0)
        for number, event in enumerate(opening):
            teller.record(event) if number < silent else teller.tell(event)

    def _require_samples(self, iterations: Sequence[int]) -> None:
        """Raise `DamagedError` if a sample is missing that was kept before the checkpoint: it cannot be made again."""
        for number, iteration in enumerate(self._sampled):
            place = self._target.member(number)
            if iterations and iteration < iterations[0] and not place.exists(MODEL_RECORD):
                raise DamagedError(
                    f"{place.url}/{MODEL_RECORD}",
                    f"the sample of iteration {iteration} is missing, and the checkpoint of iteration {iterations[0]} "
                    "comes after it; a fit into another folder begins anew",
                )

    def loop(self, problem: Problem, executor: Executor, global_state: GlobalState) -> Model:
        """Run the loop, tell of it, and keep what it ends with, also when it is stopped or fails.

        Parameters
        ----------
        problem : Problem
            What to fit.
        executor : Executor
            Who runs the tasks.
        global_state : Arrays
            Before any document has been seen.

        Returns
        -------
        Model
            The finished model.
        """
        keeper = CheckpointKeeper(
            self._target,
            executor,
            problem,
            fingerprint(self._request.record()),
            with_locals=not self._request.stochastic,
            every=self._every,
            owned=self._owned,
            notice=self._teller.notice,
        )
        try:
            schedule = run_stochastic if self._request.stochastic else run
            begins, planned = True, self._request.limits.planned(len(problem.shards))
            glance = self._glance = Glance(self._request.corpus.vocabulary.words, planned)
            for found in schedule(problem, executor, global_state, self._request.limits, keeper, glance):
                progress = found[1]
                if begins or progress.lost:
                    self._cut_samples(progress.iteration)
                self._sample(problem, executor, *found)
                del found  # or the state would be held until the next is there
                self._teller.tell({**event_of(progress), **self._processes(executor)})
                self._elapsed, begins = progress.elapsed, False
                self._ends = progress.ends
                if progress.flat:
                    self._say_flat(progress)
            return self._finish(problem, executor, keeper)
        except (KeyboardInterrupt, Exception) as stopped:  # whatever it was, what is fitted so far shall not be lost
            self._stop(keeper, stopped, problem, executor)
            raise

    def _last_words(self, problem: Problem, executor: Executor, state: State) -> dict[str, Any]:
        """Return the top words of the state that the run ends with, where they have not been told yet."""
        found: dict[str, list[str]] = {}
        with contextlib.suppress(CollapsiumError):  # nothing is lost with them
            found = {} if self._glance is None else self._glance.ended(problem, executor, state)
        return {"top_words": found} if found else {}

    def _say_flat(self, progress: Progress) -> None:
        """Say that a figure has hardly changed over half of the iterations, and what would end the run."""
        figure = FIGURES[progress.flat]
        more = " and stop_on score" if progress.flat == SCORE else ""
        text = (
            f"the {figure} has hardly changed since iteration {progress.iteration // 2}; a fit with "
            f"tolerance auto{more} ends when it does not"
        )
        self._teller.tell({**first("notice", text=text), "iteration": progress.iteration, "elapsed": progress.elapsed})

    def _processes(self, executor: Executor) -> dict[str, Any]:
        """Say, every so often, what the worker processes hold and do."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return {}
        self._looked = now
        workers = executor.activity()
        self._look_at_processors(executor, frozenset(one.name for one in workers))
        found = sorted(workers, key=lambda one: -one.memory)[:PROCESSES]
        told = [{"name": one.name, "memory": one.memory, "doing": list(one.doing)} for one in found]
        return {"processes": sorted(told, key=lambda one: str(one["name"]))} if told else {}

    def _look_at_processors(self, executor: Executor, workers: frozenset[str]) -> None:
        """Look again where workers have come that were not there before."""
        if workers <= self._workers:
            return
        self._workers |= workers
        before = self._processors_at_work.seen
        try:
            differing = self._processors_at_work.look(executor)
        finally:
            if self._processors_at_work.seen != before:
                self._target.rewrite({**self._target.record(), **self._processors_at_work.record()})
        if differing is not None:
            self._teller.notice(differing)

    def _cut_samples(self, iteration: int) -> None:
        """Remove the samples that come after an iteration: they will be made again."""
        for number, when in enumerate(self._sampled):
            if when > iteration:
                self._target.member(number).remove()

    def _sample(self, problem: Problem, executor: Executor, state: State, progress: Progress) -> None:
        """Keep a state as a sample, if its iteration is one of those; the one told again is written again."""
        if progress.lost or progress.iteration not in self._sampled:
            return
        place = self._target.member(self._sampled.index(progress.iteration))
        state = settled(problem, executor, state)
        seen = self._processors_at_work.seen
        keep_model(place, self._request.corpus, self._request.config, problem, executor, state, seen)

    def _finish(self, problem: Problem, executor: Executor, keeper: CheckpointKeeper) -> Model:
        """Keep the last state, as a checkpoint and as the model."""
        if keeper.last is None:
            raise RuntimeError("the loop gave no state")
        keeper.finish()
        state = settled(problem, executor, keeper.last.state)
        parts = (self._target.model, self._request.corpus, self._request.config, problem, executor, state)
        keep_model(*parts, self._processors_at_work.seen, self._teller.notice)
        early = state.iteration < self._request.limits.planned(len(problem.shards))
        reason = self._ends if early and self._ends else DONE[early]
        end: dict[str, Any] = {"event": "end", "iteration": state.iteration, "elapsed": self._elapsed, "reason": reason}
        end.update(self._last_words(problem, executor, state))
        self._teller.tell({**end, **(usage(executor, state.iteration) if self._alone else {})})
        return Model(self._target.folder.url)

    def _stop(self, keeper: CheckpointKeeper, stopped: BaseException, problem: Problem, executor: Executor) -> None:
        """Keep the last whole iteration as a checkpoint, if the workers that hold it are still there, and say so."""
        if isinstance(stopped, TakenOverError):  # the run is another's to tell of
            return
        reason = "interrupt" if isinstance(stopped, KeyboardInterrupt) else "error"
        teller, elapsed = self._teller, self._elapsed
        traceback.clear_frames(stopped.__traceback__)  # they hold sweeps that wait: the checkpoint would come after
        iteration = keeper.kept
        if keeper.last is not None and not isinstance(stopped, (ClusterError, LockedError)):
            reached = keeper.last.state.iteration
            teller.say({"event": "saving", "iteration": reached, "elapsed": elapsed, "reason": reason})
            try:
                iteration = keeper.finish()
            except Exception as error:
                teller.notice(f"iteration {reached} could not be kept: {error}")
        end: dict[str, Any] = {"event": "end", "iteration": iteration or 0, "elapsed": elapsed, "reason": reason}
        teller.note(end)
        if reason == "interrupt" and keeper.last is not None and keeper.last.state.iteration == iteration:
            end.update(self._last_words(problem, executor, keeper.last.state))
        with contextlib.suppress(CollapsiumError):
            teller.record(end)
        teller.say(end)
