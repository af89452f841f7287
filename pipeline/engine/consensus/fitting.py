"""Fit the consensus of an ensemble, in the run's own folder, from the means of its members."""

from __future__ import annotations

import time
from collections.abc import Callable

from collapsium.pipeline.engine.consensus.matching import join
from collapsium.pipeline.engine.event_log import EventLog
from collapsium.pipeline.engine.model_io.checkpoints import part_faults
from collapsium.pipeline.engine.processors import Processors
from collapsium.pipeline.engine.run import ActiveRun
from collapsium.pipeline.engine.setup.loading import LoadedCorpus
from collapsium.pipeline.engine.setup.request import Request
from collapsium.pipeline.engine.state import Problem
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.formatting import counted
from collapsium.storage.errors import DamagedError
from collapsium.storage.runs.members import member_seed, members_of
from collapsium.storage.runs.run import CHECKPOINTS
from collapsium.workers.arrays.state import GlobalState


class ConsensusFit:
    """The last fit of an ensemble; the caller holds the lock of its run."""

    def __init__(
        self,
        request: Request,
        log: EventLog,
        loaded: LoadedCorpus,
        executor: Executor,
        processors: Processors,
        matching: int,
    ) -> None:
        self._request, self._log, self._target = request, log, log.target
        self._loaded, self._executor, self._processors = loaded, executor, processors
        self._goes_on, self._matching = False, matching

    def look(self) -> bool:
        """Return true if the fit goes on from a checkpoint; where none is whole, the members are joined again."""
        checkpoints, faults = self._target.checkpoints, list[str]()
        for iteration in checkpoints.candidates()[0]:
            checkpoint = checkpoints.at(iteration)
            try:
                own = part_faults(checkpoint, checkpoint.record(), self._executor)
            except DamagedError as error:
                own = [str(error)]
            if not own:
                self._goes_on = True
                return True
            faults += own
        if faults:
            self._log.notice(f"no checkpoint of the consensus is complete: {faults[0]}; its members are joined again")
            self.discard()
        return False

    def discard(self) -> None:
        """Remove the checkpoints of the consensus, as its members will go on for more iterations, or they are damaged.

        Its model stays until the next one replaces it, with the names of its topics.
        """
        (self._target.folder / CHECKPOINTS).remove()
        self._goes_on = False

    def join(self) -> tuple[Problem, GlobalState]:
        """Match the topics of all members, and return the problem of the fit that begins from their means.

        Returns problem: The problem; global_state: Global state before any document was swept
        """
        request, urls = self._request, [url for _, url in members_of(self._target.folder.url)]
        seed = member_seed(request.seed, request.restarts)
        if self._goes_on:
            return self._loaded.problem_from(seed)
        began = time.perf_counter()
        consensus = join(urls, request.corpus, self._executor, self._matching)
        self._log.notice(
            f"matched the topics of {len(urls)} models in {counted(consensus.rounds, 'round')}, "
            f"{time.perf_counter() - began:.1f} s; the mean overlap of their words is {consensus.overlap:.2f} of 1"
        )
        # Where the start of the members stays in the documents' priors, their means do so here.
        strength = 0.0 if request.start is None else request.start.strength
        return self._loaded.problem_from(seed, consensus.start(request.corpus, strength), len(consensus.topics))

    def fit(
        self, problem: Problem, global_state: GlobalState, every: int | None, require_ownership: Callable[[], None]
    ) -> Model:
        """Run the loop to its end, and return the model."""
        active = ActiveRun(
            self._request,
            self._log,
            resumed=False,
            processors=self._processors,
            every=every,
            require_ownership=require_ownership,
        )
        return active.loop(problem, self._executor, global_state)
