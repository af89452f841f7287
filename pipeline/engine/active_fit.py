"""A fit at work: from a request to a run with events, checkpoints and a model."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence

from collapsium.pipeline.engine.consensus.mean import has_mean, save_mean
from collapsium.pipeline.engine.ensemble import Ensemble, EnsembleOptions
from collapsium.pipeline.engine.event_log import EventLog
from collapsium.pipeline.engine.events import Event
from collapsium.pipeline.engine.leakage.lineage import require_held_out, trained_on
from collapsium.pipeline.engine.leakage.token_counts import require_not_contained
from collapsium.pipeline.engine.processors import Processors
from collapsium.pipeline.engine.resources.estimate import plan
from collapsium.pipeline.engine.resources.place import local_place
from collapsium.pipeline.engine.resources.placement import Placement, cluster_place, freed_memory, scratch_folder
from collapsium.pipeline.engine.resources.plan import Plan
from collapsium.pipeline.engine.run import ActiveRun
from collapsium.pipeline.engine.setup.compile_kernels import compile_for, reporting_to
from collapsium.pipeline.engine.setup.inputs import missing_inputs
from collapsium.pipeline.engine.setup.loading import LoadedCorpus, heldout_references
from collapsium.pipeline.engine.setup.request import Request, differing_versions
from collapsium.pipeline.engine.setup.starts import Start, most_topics, start_of_file
from collapsium.pipeline.engine.setup.warm_start import WarmSource, WarmStart, warm_start
from collapsium.pipeline.engine.state import Problem
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.monitoring.dask_dashboard.feed import Feed
from collapsium.pipeline.monitoring.events import Sink, initial_event
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.io.locks.run_lock import RunLock
from collapsium.storage.runs.run import Run
from collapsium.workers.arrays.state import GlobalState


class ActiveFit:
    """A fit at work: a new one, or a resumed one whose caller holds the run's lock."""

    def __init__(
        self, request: Request, target: Run, placement: Placement, sinks: Sequence[Sink], lock: RunLock | None = None
    ) -> None:
        self._request, self._target, self._placement = request, target, placement
        self._lock, self._resumed = lock, lock is not None
        self._log = EventLog(target, sinks, has_folder=self._resumed)
        self._scratch: str | None = None
        self._processors = Processors(request.family, strict=placement.strict_bits)

    def run(self) -> Model:
        """Read the corpus, compile the kernels, run the loop and save its last state."""
        request = self._request
        heldouts, warm, start = heldout_references(request), self._warm_starts(), self._start()
        name = f"the training corpus {request.corpus.url}"
        disjoint = request.heldout is None or require_held_out(lineage_of(request.corpus), request.heldout, name)
        planned = self._plan(None) if self._placement.is_local else None
        began = time.perf_counter()
        executor = self._placement.open(self._log.notice)
        try:
            events = self._report_cluster(executor, time.perf_counter() - began)
            planned = planned or self._plan(executor)
            with freed_memory(executor), scratch_folder(planned, executor) as scratch:
                self._scratch = scratch
                loaded = LoadedCorpus(request, heldouts, executor, scratch, warm, start, self._log.notice)
                if request.heldout is not None and not disjoint:
                    require_not_contained(loaded.count_tables(), request.heldout, name)
                return self._fit(loaded, executor, events, planned)
        finally:
            executor.close()
            if self._scratch is not None:
                # Tasks that were still running may have left files on this machine.
                shutil.rmtree(self._scratch, ignore_errors=True)

    def match(self) -> Model:
        """Match the models of a run that has ended, but was stopped before they were matched."""
        planned = self._plan(None) if self._placement.is_local else None
        executor = self._placement.open(self._log.notice)
        try:
            planned = planned or self._plan(executor)
            save_mean(self._target, self._request, executor, planned.matching, self._log.notice)
        finally:
            executor.close()
        return Model(self._target.folder.url)

    def _report_cluster(self, executor: Executor, seconds: float) -> list[Event]:
        """Send the sinks the cluster and notices about inputs and processors; return these events."""
        cluster = initial_event(
            "cluster",
            scheduler=str(self._placement.scheduler),
            workers=executor.workers,
            dashboard=executor.dashboard,
            start_seconds=seconds,
        )
        self._log.subscribe(Feed(executor.publish, self._target.folder.address, self._earlier_events))
        notices = missing_inputs(self._request.corpus, self._request.family, self._request.config)
        differing = self._check_processors(executor)
        notices += [] if differing is None else [differing]
        events = [cluster, *(initial_event("notice", text=text) for text in notices)]
        for event in events:
            self._log.send(event)
        return events

    def _fit(self, loaded: LoadedCorpus, executor: Executor, sent: list[Event], planned: Plan) -> Model:
        """Fit the model, or the members of the ensemble; the sinks have received the events `sent`."""
        problem, global_state = loaded.problem(self._request.seed)
        events = [*sent, self._compile(executor, problem, global_state), self._start_event(planned)]
        every = self._placement.checkpoint_every
        with self._run_folder_held():
            if self._request.restarts:
                del problem, global_state
                options = EnsembleOptions(planned.members, planned.matching, every, self._require_ownership)
                ensemble = Ensemble(self._request, self._log, loaded, executor, self._processors, options)
                model = ensemble.run(events, sent=len(sent), resumed=self._resumed)
            else:
                active = ActiveRun(
                    self._request,
                    self._log,
                    resumed=self._resumed,
                    processors=self._processors,
                    every=every,
                    require_ownership=self._require_ownership,
                )
                active.begin(events, sent=len(sent))
                model = active.loop(problem, executor, global_state)
            if not has_mean(self._request):
                return model
            save_mean(self._target, self._request, executor, planned.matching, self._log.notice)
            return Model(self._target.folder.url)

    def _check_processors(self, executor: Executor) -> str | None:
        """Return a line if the processors differ among themselves or from those that took part before."""
        if self._resumed:
            self._processors.restore(self._target, differing_versions(self._target.record()))
        differing = self._processors.look(executor)
        if self._resumed:
            self._target.rewrite({**self._target.record(), **self._processors.record()})
        return differing

    def _warm_starts(self) -> list[WarmStart]:
        """Return the warm start, or one for each member where they differ; none for a run that has checkpoints."""
        source, topics = self._request.warm, most_topics(self._request.config)
        if source is None or not self._begins():
            return []
        return [self._warm_start(member, topics) for member in source.members or (source,)]

    def _begins(self) -> bool:
        """Return true if the run, or a member, has no checkpoint yet."""
        runs = [self._target.in_member(number) for number in range(self._request.restarts)] or [self._target]
        return not self._resumed or not all(run.checkpoints.candidates()[0] for run in runs)

    def _start(self) -> Start | None:
        """Return the proportions of a file that the documents begin with; None for a run that has checkpoints."""
        source = self._request.start
        if source is None or not source.url or not self._begins():
            return None
        start = start_of_file(source, self._request.corpus, self._request.config)
        for text in start.notices:
            self._log.notice(text)
        return start

    def _warm_start(self, source: WarmSource, topics: int | None) -> WarmStart:
        """Return a warm start, and give notice of topics that are left out."""
        start = warm_start(source, self._request.corpus, topics)
        if self._request.heldout is not None:
            trained = trained_on(Model(source.url))
            require_held_out(trained, self._request.heldout, f"the training corpus of {source.url}")
        if topics is not None and source.topics > topics:
            share = f"{start.references[0].share:.1%} of its tokens" if start.references else "it has no documents"
            self._log.notice(f"begins from the {topics} largest of {source.topics} topics of {source.url} ({share})")
        return start

    def _plan(self, executor: Executor | None) -> Plan:
        """Return the estimate of the fit's resources; raise `CapacityError` if it does not fit."""
        placement, request, folder = self._placement, self._request, self._target.folder
        if executor is None:
            # A resumed run has its checkpoints on disk already.
            out = folder.path if folder.local and not self._resumed else None
            place = local_place(placement.scheduler, placement.workers, placement.memory, placement.scratch, out)
        else:
            place = cluster_place(placement.scheduler, executor, placement.memory, placement.scratch)
        planned = plan(
            request.corpus,
            request.family,
            request.config,
            place,
            stochastic=request.stochastic,
            restarts=request.restarts,
            samples=request.limits.samples,
            heldout=request.heldout,
            consensus=request.has_consensus,
            start=request.start_kind,
        )
        planned.require()
        return planned

    def _compile(self, executor: Executor, problem: Problem, global_state: GlobalState) -> Event:
        """Compile the kernels, and return the event of it."""
        began = time.perf_counter()
        report = reporting_to(self._log.send)
        compile_for(
            executor,
            problem.shard_model,
            global_state,
            report,
            start=self._request.start_kind,
            local=self._placement.is_local,
        )
        return initial_event("compile", compile_seconds=time.perf_counter() - began)

    def _start_event(self, planned: Plan) -> Event:
        """Return the event with the sizes of the corpus, the options and the estimate."""
        manifest = self._request.corpus.manifest
        restarts = {"restarts": self._request.restarts} if self._request.restarts else {}
        return initial_event(
            "start",
            family=self._request.family,
            documents=manifest.documents,
            tokens=manifest.tokens,
            holds=manifest.holds,
            words=manifest.vocabulary.words,
            shards=len(manifest.shards),
            iterations=self._request.limits.planned(len(manifest.shards)),
            planned=planned.record(),
            **restarts,
        )

    def _earlier_events(self) -> list[Event]:
        """Return the events of a run from before it was resumed."""
        return self._target.events() if self._resumed and not self._request.restarts else []

    @contextlib.contextmanager
    def _run_folder_held(self) -> Iterator[None]:
        """Hold the lock of the run; make its folder, and remove it if an error comes before the first iteration."""
        if self._resumed:
            yield
            return
        self._target.create({**self._request.record(), **self._processors.record()})
        self._log.has_folder = True
        with self._target.held() as self._lock:
            try:
                yield
            except Exception:
                if not self._log.has_iterations:
                    self._log.has_folder = False
                    self._target.folder.remove()
                raise

    def _require_ownership(self) -> None:
        """Raise `LockedError` if another process has taken the run over."""
        if self._lock is not None:
            self._lock.require()
