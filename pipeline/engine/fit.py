"""Fitting a model: from a corpus and options to a run with its events, its checkpoints and its model."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from typing import Any

from collapsium.pipeline.corpora.texts_in_memory import OPTIONS, is_path, reading_of, require_corpus_folder
from collapsium.pipeline.engine.ensemble import Ensemble, finished_members
from collapsium.pipeline.engine.leakage.lineage import require_held_out, trained_on
from collapsium.pipeline.engine.leakage.token_counts import require_not_contained
from collapsium.pipeline.engine.processors import Processors
from collapsium.pipeline.engine.resources.estimate import Plan, plan
from collapsium.pipeline.engine.resources.place import place_of
from collapsium.pipeline.engine.resources.placement import Where, freed_memory, place_there, scratch_folder
from collapsium.pipeline.engine.run import Running, Teller
from collapsium.pipeline.engine.setup.compile_kernels import compile_for, reporting_to
from collapsium.pipeline.engine.setup.inputs import missing_inputs
from collapsium.pipeline.engine.setup.limits import (
    LIMIT_NAMES,
    CheckpointOptions,
    Limits,
    MovedOptions,
    RequestOptions,
    RestartOptions,
)
from collapsium.pipeline.engine.setup.loading import Loaded, aligned
from collapsium.pipeline.engine.setup.request import Request, differing_versions
from collapsium.pipeline.engine.setup.resumption import is_done, taken_up
from collapsium.pipeline.engine.setup.warm_start import WarmSource, WarmStart, warm_start
from collapsium.pipeline.engine.state import Problem
from collapsium.pipeline.engine.temporary_runs import run_folder
from collapsium.pipeline.executors.base import TLS, Executor
from collapsium.pipeline.executors.options import MemoryOptions, SchedulerOptions, TimeoutOptions
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.registry import load_family, make_options
from collapsium.pipeline.monitoring.dask_dashboard.feed import Feed
from collapsium.pipeline.monitoring.events import Sink, first, has_iterations
from collapsium.pipeline.options import keywords, option_names
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.io.locks.run_lock import RunLock
from collapsium.storage.runs.run import Run
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.state import GlobalState


@keywords(
    request=RequestOptions,
    ensemble=RestartOptions,
    scheduling=SchedulerOptions,
    memory=MemoryOptions,
    checkpoints=CheckpointOptions,
    timeouts=TimeoutOptions,
)
def fit(
    corpus: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    family: str,
    request: RequestOptions,
    ensemble: RestartOptions,
    scheduling: SchedulerOptions,
    memory: MemoryOptions,
    checkpoints: CheckpointOptions,
    timeouts: TimeoutOptions,
    tls: TLS | None = None,
    sinks: Sequence[Sink] = (),
    **options: Any,
) -> Model:
    """Fit a model to a corpus, or to texts.

    Parameters
    ----------
    corpus : path, sequence of str, column or frame
        Folder of the corpus, local or an fsspec URL that the workers see too. Or texts: a list of strings (None and NaN
        are documents without text), a column, or a frame (pandas, polars, Arrow, or whatever has
        ``__arrow_c_stream__``) with a column of texts, named ``text`` or by the option `text`. Texts are read as
        `ingest` reads those of a file, with its options and defaults: English stop words are left out, all other words
        are kept.
    out : str or path-like, optional
        Folder of the run to make; the corpus that is made of texts lies in it. Without, nothing is left on disk: the
        model has a temporary folder, which is removed when it is closed (`Model.close`) or collected, or the process
        ends.
    family : str
        Name of the model family, such as ``hdp``.
    request : RequestOptions
        What is drawn at random, what is scored, and what the fit begins from.
    ensemble : RestartOptions
        Fits of several seeds.
    scheduling : SchedulerOptions
        Which executor runs the tasks.
    memory : MemoryOptions
        What work may take.
    checkpoints : CheckpointOptions
        How often a run is saved, and what must be as it was.
    timeouts : TimeoutOptions
        Timeouts of a silent cluster.
    tls : TLS, optional
        Certificates for a cluster whose messages are encrypted.
    sinks : sequence of callable, optional
        Told each event, a dict, as `events.jsonl` gets it.
    **options
        Those of the loop (`collapsium.pipeline.engine.setup.limits.Limits`): ``iterations``, ``tolerance``,
        ``stop_on``, ``score_every``, ``schedule``, ``passes``, ``batch_shards``, ``samples``, ``sample_every``; and the
        family's own. Of texts also those of `ingest`: ``text``, ``id``, ``title``, ``date``, ``labels``,
        ``covariates`` (columns of a frame), ``min_documents``, ``max_document_share``, ``max_words``, ``stop_words``,
        ``min_letters``, ``tokenizer``, ``phrases``, ``segments``, ``like`` and so on.

    Returns
    -------
    Model
        The finished model; of an ensemble, that of its first member. Functions that take a run take it too:
        ``topics(model)``.

    Raises
    ------
    CapacityError
        It does not fit into memory or disk; the error holds the table of `estimate`.
    CollapsiumError
        An input or option is wrong, or the cluster is lost. Nothing is left behind if no iteration was finished.
    KeyboardInterrupt
        The fit was stopped. As after an error, the last whole iteration is kept as a checkpoint; see `resume`.
    """
    reading = None if is_path(corpus) else reading_of(options, load_family(family).Options.model_fields)
    limits = Limits(**{name: options.pop(name) for name in LIMIT_NAMES if name in options})
    others = (*option_names(fit), *LIMIT_NAMES, *(() if reading is None else OPTIONS))
    config = make_options(family, options, others)
    where = Where.of(scheduling, memory, checkpoints, timeouts, tls)
    with run_folder(out, scheduling.scheduler) as place:
        target = Run(place.run)
        if reading is None:
            require_corpus_folder(corpus)
        else:
            corpus = place.ingest(corpus, reading)
        corpora = Corpus(corpus), None if request.heldout is None else Corpus(request.heldout)
        source = None if request.warm is None else WarmSource.of(request.warm, ensemble.restarts)
        full = Request(*corpora, family, config, limits, request.seed, source, ensemble.restarts, ensemble.keep)
        model = _Fit(full, target, where, sinks).run()
        place.hand_over(model)
    return model


@keywords(
    moved=MovedOptions,
    scheduling=SchedulerOptions,
    memory=MemoryOptions,
    checkpoints=CheckpointOptions,
    timeouts=TimeoutOptions,
)
def resume(
    run: str | os.PathLike[str],
    *,
    moved: MovedOptions,
    scheduling: SchedulerOptions,
    memory: MemoryOptions,
    checkpoints: CheckpointOptions,
    timeouts: TimeoutOptions,
    tls: TLS | None = None,
    sinks: Sequence[Sink] = (),
    **options: Any,
) -> Model:
    """Go on with a run from its latest checkpoint that is whole, or from its record where there is none.

    The result is, bit for bit, that of a run that was never stopped.

    Parameters
    ----------
    run : str or path-like
        Folder of the run.
    moved : MovedOptions
        Where lies by now what the run was made of.
    scheduling : SchedulerOptions
        Which executor runs the tasks.
    memory : MemoryOptions
        What work may take.
    checkpoints : CheckpointOptions
        How often a run is saved, and what must be as it was.
    timeouts : TimeoutOptions
        Timeouts of a silent cluster.
    tls, sinks
        As for `fit`.
    **options
        ``iterations``, ``tolerance``, ``stop_on``, ``score_every`` and ``passes`` may differ from before; what would
        change the model may not.

    Returns
    -------
    Model
        The finished model.

    Raises
    ------
    LockedError
        Another process works on the run.
    OptionError
        An option would change the model.
    DamagedError
        A file of the run is damaged, and there is no older checkpoint.
    CollapsiumError
        As for `fit`.
    """
    target = Run(run)
    target.record()
    with target.held() as lock:
        members = (target.record().get("warm") or {}).get("members", ())
        source = None if moved.warm is None else WarmSource.of(moved.warm, len(members))
        request, record = taken_up(target, moved.corpus, moved.heldout, options, source)
        if finished_members(target, request) if request.restarts else is_done(target, request):
            return Model(run)
        target.rewrite(record)
        where = Where.of(scheduling, memory, checkpoints, timeouts, tls)
        return _Fit(request, target, where, sinks, lock).run()


class _Fit:
    """A fit on its way: new, or a run that is taken up again by whoever holds its lock."""

    def __init__(
        self, request: Request, target: Run, where: Where, sinks: Sequence[Sink], lock: RunLock | None = None
    ) -> None:
        self._request, self._target, self._where = request, target, where
        self._lock, self._resumed = lock, lock is not None
        self._teller = Teller(target, sinks, begun=self._resumed)
        self._folder: str | None = None  # for scratch files
        self._processors = Processors(request.family, strict=where.strict_bits)

    def run(self) -> Model:
        """Load, compile, run the loop and keep what it ends with."""
        request = self._request
        heldouts, warm = aligned(request), self._warm()
        name = f"the training corpus {request.corpus.url}"
        certain = request.heldout is None or require_held_out(lineage_of(request.corpus), request.heldout, name)
        planned = self._plan(None) if self._where.here else None
        began = time.perf_counter()
        executor = self._where.open(self._teller.notice)
        try:
            cluster = {
                "scheduler": self._where.scheduler,
                "workers": executor.workers,
                "dashboard": executor.dashboard,
                "start_seconds": time.perf_counter() - began,
            }
            self._teller.listen(Feed(executor.publish, self._target.folder.address, self._told_before))
            notices = missing_inputs(request.corpus, request.family, request.config)
            differing = self._look_at_processors(executor)
            notices += [] if differing is None else [differing]
            opening = [first("cluster", **cluster), *(first("notice", text=text) for text in notices)]
            for event in opening:
                self._teller.say(event)
            silent = len(opening)
            planned = planned or self._plan(executor)
            with freed_memory(executor), scratch_folder(planned, executor) as folder:
                self._folder = folder
                loaded = Loaded(request, heldouts, executor, folder, warm)
                if request.heldout is not None and not certain:
                    require_not_contained(loaded.count_tables(), request.heldout, name)
                problem, global_state = loaded.problem(self._request.seed)
                opening += [self._compiled(executor, problem, global_state, planned), self._start(planned)]
                with self._held():
                    if self._request.restarts:
                        del problem, global_state
                        return self._ensemble(loaded, executor, opening, planned, silent)
                    every = self._where.checkpoint_every
                    options: dict[str, Any] = {"resumed": self._resumed, "every": every, "owned": self._owned}
                    running = Running(self._request, self._teller, processors=self._processors, **options)
                    running.begin(opening, silent=silent)
                    return running.loop(problem, executor, global_state)
        finally:
            executor.close()
            if self._folder is not None:  # what tasks that were still running have left behind on this machine
                shutil.rmtree(self._folder, ignore_errors=True)

    def _look_at_processors(self, executor: Executor) -> str | None:
        """Find out what computes; return a line where that differs from what has taken part before, or among itself."""
        if self._resumed:
            self._processors.take_up(self._target, differing_versions(self._target.record()))
        differing = self._processors.look(executor)
        if self._resumed:
            self._target.rewrite({**self._target.record(), **self._processors.record()})
        return differing

    def _warm(self) -> list[WarmStart]:
        """Return what to begin from, for each member where they differ; nothing for a run that has checkpoints."""
        source = self._request.warm
        begun = [self._target, *(self._target.in_member(number) for number in range(self._request.restarts))]
        needed = not self._resumed or not all(
            one.checkpoints.candidates()[0] for one in begun[-self._request.restarts :]
        )
        if source is None or not needed:
            return []
        topics = getattr(self._request.config, "topics", None)
        topics = topics if isinstance(topics, int) else None  # where it is no number there is no limit
        return [self._warm_start(one, topics) for one in source.members or (source,)]

    def _warm_start(self, source: WarmSource, topics: int | None) -> WarmStart:
        """Return what to begin from, and report topics that are left out."""
        found = warm_start(source, self._request.corpus, topics)
        if self._request.heldout is not None:
            known = trained_on(Model(source.url))
            require_held_out(known, self._request.heldout, f"the training corpus of {source.url}")
        if topics is not None and source.topics > topics:
            share = f"{found.references[0].share:.1%} of its tokens" if found.references else "it has no documents"
            self._teller.notice(f"begins from the {topics} largest of {source.topics} topics of {source.url} ({share})")
        return found

    def _plan(self, executor: Executor | None) -> Plan:
        """Foresee what the fit takes; raise `CapacityError` if it does not fit."""
        where, request, folder = self._where, self._request, self._target.folder
        if executor is None:
            out = folder.path if folder.local and not self._resumed else None  # its checkpoints are there already
            place = place_of(where.scheduler, where.workers, where.memory, where.scratch, out)
        else:
            place = place_there(where.scheduler, executor, where.memory, where.scratch)
        more = {"restarts": request.restarts, "samples": request.limits.samples}
        planned = plan(request.corpus, request.family, request.config, place, stochastic=request.stochastic, **more)
        planned.require()
        return planned

    def _compiled(
        self, executor: Executor, problem: Problem, global_state: GlobalState, planned: Plan
    ) -> dict[str, Any]:
        began = time.perf_counter()
        report = reporting_to(self._teller.say)
        compile_for(executor, self._where.scheduler, problem.shard_model, global_state, report)
        executor.everywhere(_set_lean, planned.on_disk)
        return first("compile", compile_seconds=time.perf_counter() - began)

    def _start(self, planned: Plan) -> dict[str, Any]:
        manifest = self._request.corpus.manifest
        restarts = {"restarts": self._request.restarts} if self._request.restarts else {}
        return first(
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

    def _told_before(self) -> list[dict[str, Any]]:
        """Return what was told of the run before it was taken up again."""
        return self._target.events() if self._resumed and not self._request.restarts else []

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the run's folder: make a new one, and remove it again if an error comes before the first iteration."""
        if self._resumed:
            yield
            return
        self._target.create({**self._request.record(), **self._processors.record()})
        self._teller.begun = True
        with self._target.held() as self._lock:
            try:
                yield
            except Exception:
                members = [self._target.in_member(number) for number in range(self._request.restarts)]
                if not any(has_iterations(one.events()) for one in (self._target, *members)):
                    self._teller.begun = False
                    self._target.folder.remove()
                raise

    def _owned(self) -> None:
        """Raise `LockedError` if another process has taken the run over."""
        if self._lock is not None:
            self._lock.require()

    def _ensemble(
        self, loaded: Loaded, executor: Executor, opening: list[dict[str, Any]], planned: Plan, silent: int
    ) -> Model:
        ensemble = Ensemble(
            self._request,
            self._teller,
            loaded,
            executor,
            at_a_time=planned.members,
            every=self._where.checkpoint_every,
            owned=self._owned,
            processors=self._processors,
        )
        return ensemble.run(opening, silent=silent, resumed=self._resumed)


def _set_lean(lean: bool) -> None:
    """Set, in a worker process, whether memory is short."""
    buffers.pool.lean = lean
