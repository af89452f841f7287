"""Fit a model: turn a corpus and options into a run with events, checkpoints and a model."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from collapsium.pipeline.corpora.new_texts import ingest_documents, names_corpus, options_of_reading, reading_of
from collapsium.pipeline.engine.consensus import has_mean, is_mean_current, save_mean
from collapsium.pipeline.engine.estimate import plan
from collapsium.pipeline.engine.leakage import require_held_out, trained_on
from collapsium.pipeline.engine.plan import (
    Placement,
    Plan,
    cluster_place,
    freed_memory,
    local_place,
    scratch_folder,
)
from collapsium.pipeline.engine.processors import Processors, compile_for, reporting_to
from collapsium.pipeline.engine.run import ActiveRun, Ensemble, Event, EventLog, Session, is_ensemble_finished
from collapsium.pipeline.engine.setup.initialisation import Start, StartSource, most_topics, start_of_file
from collapsium.pipeline.engine.setup.inputs import missing_inputs
from collapsium.pipeline.engine.setup.limits import FitOptions, MovedOptions
from collapsium.pipeline.engine.setup.loading import LoadedCorpus, heldout_references
from collapsium.pipeline.engine.setup.request import (
    Request,
    differing_versions,
    is_finished,
    new_request,
    offered_presets,
    resumed_request,
)
from collapsium.pipeline.engine.setup.warm_start import WarmSource, WarmStart, warm_start
from collapsium.pipeline.engine.state import Problem
from collapsium.pipeline.executors.base import TLS, Executor
from collapsium.pipeline.executors.open import require_shared
from collapsium.pipeline.executors.schedulers import Scheduler, is_elsewhere
from collapsium.pipeline.fitted_model import Model
from collapsium.pipeline.models.model import Model as OpenModel
from collapsium.pipeline.models.registry import load_family, make_options
from collapsium.pipeline.monitoring.events import Feed, Sink, initial_event
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords, option_names
from collapsium.pipeline.outputs import ResultPlace, overwrites, place_for
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.data_types import is_annotated
from collapsium.storage.io.folder import Folder, ensure_free
from collapsium.storage.io.run_lock import RunLock
from collapsium.storage.runs.run import CORPUS, RECORD, Run


class RunFolder:
    """The folder of a run."""

    def __init__(self, place: ResultPlace, scheduler: Scheduler) -> None:
        self.run, self.temporary = place.path, place.temporary
        self._scheduler = scheduler
        self._made = False

    def share(self, tls: TLS | None) -> None:
        """Refuse a folder that the workers cannot read, before anything is ingested."""
        if is_elsewhere(self._scheduler):
            parent = Folder(Folder(self.run).address.rpartition("/")[0] or "/")
            require_shared(parent, self._scheduler, tls, target=parent.url if self.temporary is None else None)

    def ingest(self, documents: object, reading: Mapping[str, object]) -> Corpus:
        """Ingest documents into a corpus in the run's folder."""
        try:
            corpus = ingest_documents(documents, f"{self.run}/{CORPUS}", reading, self._scheduler)
        except BaseException:
            # Other files in the folder belong to another fit that began at the same time.
            Folder(self.run).remove(known=())
            raise
        self._made = True
        return corpus

    def discard(self) -> None:
        """Remove the corpus of a run that was not begun, after a fit has failed."""
        if self._made and not Folder(self.run).exists(RECORD):
            Folder(self.run).remove()


@contextmanager
def run_folder(out: str | os.PathLike[str] | None, scheduler: Scheduler, tls: TLS | None = None) -> Iterator[RunFolder]:
    """Provide the folder of a run that workers can read; if the fit fails or is stopped, remove a temporary one."""
    if out is not None:
        out = os.fspath(out).rstrip("/")
        ensure_free(Folder(out))
    with place_for(out, "run") as place:
        folder = RunFolder(place, scheduler)
        try:
            folder.share(tls)
            yield folder
        except BaseException:
            folder.discard()
            raise


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

    def run(self) -> None:
        """Read the corpus, compile the kernels, run the loop and save its last state."""
        request = self._request
        heldouts, warm, start = heldout_references(request), self._warm_starts(), self._start()
        name = f"the training corpus {request.corpus.url}"
        if request.heldout is not None:
            require_held_out(lineage_of(request.corpus), request.heldout, name)
        planned = self._plan(None) if self._placement.is_local else None
        began = time.perf_counter()
        executor = self._placement.open(self._log.notice)
        try:
            seconds = time.perf_counter() - began
            cluster = initial_event(
                "cluster",
                scheduler=str(self._placement.scheduler),
                workers=executor.workers,
                dashboard=executor.dashboard,
                start_seconds=seconds,
            )
            self._log.sinks.append(Feed(executor.publish, self._target.folder.address, self._earlier_events))
            notices = missing_inputs(self._request.corpus, self._request.family, self._request.config)
            notices += [] if self._resumed else offered_presets(self._request)
            differing = self._check_processors(executor)
            notices += [] if differing is None else [differing]
            events = [cluster, *(initial_event("notice", text=text) for text in notices)]
            for event in events:
                self._log.send(event)
            planned = planned or self._plan(executor)
            with freed_memory(executor), scratch_folder(planned, executor) as scratch:
                self._scratch = scratch.folder
                loaded = LoadedCorpus(request, heldouts, executor, scratch, warm, start, self._log.notice)
                self._fit(loaded, executor, events, planned)
        finally:
            executor.close()
            if self._scratch is not None:
                # Tasks that were still running may have left files on this machine.
                shutil.rmtree(self._scratch, ignore_errors=True)

    def match(self) -> None:
        """Match the models of a run that has ended, but was stopped before they were matched."""
        planned = self._plan(None) if self._placement.is_local else None
        with contextlib.closing(self._placement.open(self._log.notice)) as executor:
            planned = planned or self._plan(executor)
            save_mean(self._target, self._request, executor, planned.matching, self._log.notice)

    def _fit(self, loaded: LoadedCorpus, executor: Executor, sent: list[Event], planned: Plan) -> None:
        """Fit the model, or the members of the ensemble; the sinks have received the events `sent`."""
        problem = loaded.problem(self._request.seed)
        manifest = self._request.corpus.manifest
        restarts = {"restarts": self._request.restarts} if self._request.restarts else {}
        events = [
            *sent,
            self._compile(problem),
            initial_event(
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
            ),
        ]
        every = self._placement.checkpoint_every
        session = Session(self._request, self._log, self._processors, every, self._require_ownership)
        with self._run_folder_held():
            if self._request.restarts:
                del problem
                ensemble = Ensemble(session, loaded, executor, planned)
                ensemble.run(events, sent=len(sent), resumed=self._resumed)
            else:
                active = ActiveRun(session, resumed=self._resumed)
                active.begin(events, sent=len(sent))
                active.fit(problem)
            if has_mean(self._request):
                save_mean(self._target, self._request, executor, planned.matching, self._log.notice)

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
            trained = trained_on(OpenModel(source.url))
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
        planned = plan(request, place)
        planned.require()
        return planned

    def _compile(self, problem: Problem) -> Event:
        """Compile the kernels, and return the event of it."""
        began = time.perf_counter()
        report = reporting_to(self._log.send)
        compile_for(
            problem.executor,
            problem.family,
            problem.global_state,
            report,
            start=self._request.start_kind,
            local=self._placement.is_local,
        )
        return initial_event("compile", compile_seconds=time.perf_counter() - began)

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
        if self._lock is not None:
            self._lock.require()


@shows("fitting a model")
@overwrites("out")
@keywords(settings=FitOptions, placement=Placement)
def fit(
    corpus: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    family: str,
    settings: FitOptions,
    placement: Placement,
    sinks: Sequence[Sink] = (),
    **options: Any,
) -> Model:
    """Fit a model to a corpus, or to texts.

    Parameters
    ----------
    corpus : Corpus, path, sequence of paths or str, column, frame or AnnData
        A corpus, or its folder: a local path, or an fsspec URL that the workers can reach too.

        Or texts: files, folders and globs in any format of `ingest`; a list of strings (None and NaN are documents
        without text); a column; or a frame (pandas, polars, Arrow, or any object with ``__arrow_c_stream__``) with a
        column of texts, which is named ``text`` or by the option `text`. Texts are read as by `ingest`, with its
        options and defaults: English stop words are left out, all other words are retained.

        Or an AnnData object, in memory, backed or lazy: its cells are the documents, and its genes or peaks the words.
        It accepts the options `layer`, `binarise`, `id`, `labels` and `covariates` of `ingest`, and the ones
        that leave out words, such as `min_documents`.
    out : str or path-like, optional
        Folder of the new run. If the documents are texts, their corpus is written into it too. By default the run is
        in a temporary folder, which is removed when the model is closed (`Model.close`) or garbage-collected, or when
        the process ends.
    family : str
        Name of the model family, such as ``hdp``.
    settings : FitOptions
        Options of the fit.
    placement : Placement
        Where and how the tasks run.
    sinks : sequence of callable, optional
        Functions that are called with each event, a dict with the fields of a line of `events.jsonl`.
    **options
        The family's options, such as ``topics``, and, for texts, the options of `ingest`: ``text``, ``id``, ``title``,
        ``date``, ``labels``, ``covariates`` (columns of a frame), ``min_documents``, ``max_document_share``,
        ``max_words``, ``stop_words``, ``min_characters``, ``tokenizer``, ``phrases``, ``segments``, ``like`` and so on.

    Returns
    -------
    Model
        The finished model. For restarts or samples, it is their mean or their consensus; if their topics cannot be
        matched, it is the first restart or the last sample. Functions of runs accept it too, as in ``topics(model)``.
        A model of texts in memory remembers them for passages and reports, and has the index of a pandas frame.

    Raises
    ------
    CapacityError
        The fit would exceed the memory or the disk; the error contains the table of `estimate`.
    CollapsiumError
        An input or option is wrong, or the cluster is lost. No file is left if no iteration was finished.
    KeyboardInterrupt
        The fit was stopped. As after an error, the last complete iteration is saved as a checkpoint; see `resume`. A
        fit in threads with local states of 256 MB or more finishes its iteration first; after an error, it continues
        from its last checkpoint.
    """
    is_texts, known = not names_corpus(corpus), options_of_reading(corpus)
    reading = reading_of(options, corpus, load_family(family).Options.model_fields)
    settings, options = settings.with_preset(family, options)
    settings.require_used(heldout=settings.heldout is not None)
    config = make_options(family, options, (*option_names(fit), *known))
    with run_folder(out, placement.scheduler, placement.tls) as folder:
        training = folder.ingest(corpus, reading) if is_texts else Corpus(corpus)
        full = new_request(training, family, config, settings)
        ActiveFit(full, Run(folder.run), placement, sinks).run()
        model = OpenModel(folder.run)
        if folder.temporary is not None:
            model.take_over(folder.temporary, folder.run)
    return Model(model, texts=corpus if is_texts and not is_annotated(corpus) else None)


@shows("resuming a fit")
@keywords(moved=MovedOptions, placement=Placement)
def resume(
    run: str | os.PathLike[str],
    *,
    moved: MovedOptions,
    placement: Placement,
    sinks: Sequence[Sink] = (),
    **options: Any,
) -> Model:
    """Resume a run from its latest complete checkpoint, or from its record where there is none.

    The result equals, bit for bit, the result of a run that was never stopped.

    Parameters
    ----------
    run : str or path-like
        Folder of the run.
    moved : MovedOptions
        New locations of inputs of the run that were moved.
    placement : Placement
        Where and how the tasks run.
    sinks
        As for `fit`.
    **options
        ``iterations``, ``tolerance``, ``stop_on``, ``score_every`` and ``passes`` may differ from before; options that
        would change the model may not.

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
        start = None if moved.init is None else StartSource.of(moved.init)
        request, record = resumed_request(target, moved.corpus, moved.heldout, options, source, start)
        finished = is_ensemble_finished if request.restarts else is_finished
        ended = finished(target, request)
        if ended and (not has_mean(request) or is_mean_current(target)):
            return Model(run)
        target.rewrite(record)
        active = ActiveFit(request, target, placement, sinks, lock)
        active.match() if ended else active.run()
        return Model(run)
