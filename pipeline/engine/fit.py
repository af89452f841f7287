"""Fit a model: turn a corpus and options into a run with events, checkpoints and a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from collapsium.pipeline.corpora.texts_in_memory import (
    OPTIONS,
    in_memory,
    index_of,
    is_path,
    reading_of,
    require_corpus_folder,
)
from collapsium.pipeline.engine.active_fit import ActiveFit
from collapsium.pipeline.engine.consensus.mean import has_mean, is_mean_current
from collapsium.pipeline.engine.ensemble import is_ensemble_finished
from collapsium.pipeline.engine.resources.placement import Placement
from collapsium.pipeline.engine.setup.limits import (
    LIMIT_NAMES,
    CheckpointOptions,
    Limits,
    MovedOptions,
    RequestOptions,
    RestartOptions,
)
from collapsium.pipeline.engine.setup.request import Request
from collapsium.pipeline.engine.setup.resumption import is_finished, resumed_request
from collapsium.pipeline.engine.setup.starts import FitInputs, StartSource
from collapsium.pipeline.engine.setup.warm_start import WarmSource
from collapsium.pipeline.engine.temporary_runs import run_folder
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.options import MemoryOptions, SchedulerOptions, TimeoutOptions
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.registry import load_family, make_options
from collapsium.pipeline.monitoring.events import Sink
from collapsium.pipeline.options import keywords, option_names
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.runs.members import CONSENSUS
from collapsium.storage.runs.run import Run


@keywords(
    request=RequestOptions,
    ensemble=RestartOptions,
    scheduling=SchedulerOptions,
    memory=MemoryOptions,
    checkpoints=CheckpointOptions,
    timeouts=TimeoutOptions,
)
def fit(
    corpus: object,
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
        are documents without text), a column, or a frame (pandas, polars, Arrow, or any object with
        ``__arrow_c_stream__``) with a column of texts, named ``text`` or by the option `text`. Texts are read as
        `ingest` reads those of a file, with its options and defaults: English stop words are left out, all other words
        are retained.
    out : str or path-like, optional
        Folder of the run to make; a corpus that is made of texts is written into it. By default nothing stays on disk:
        the model has a temporary folder, which is removed when the model is closed (`Model.close`) or collected, or the
        process ends.
    family : str
        Name of the model family, such as ``hdp``.
    request : RequestOptions
        Seed, held-out tokens and warm start.
    ensemble : RestartOptions
        Fits of several seeds.
    scheduling : SchedulerOptions
        Executor that runs the tasks.
    memory : MemoryOptions
        Memory and disk of the workers.
    checkpoints : CheckpointOptions
        Frequency of checkpoints, and the check of processors and versions.
    timeouts : TimeoutOptions
        Timeouts of a silent cluster.
    tls : TLS, optional
        Certificates for a cluster whose messages are encrypted.
    sinks : sequence of callable, optional
        Each is called with each event, a dict with the fields that `events.jsonl` has.
    **options
        Those of the loop (`collapsium.pipeline.engine.setup.limits.Limits`): ``iterations``, ``tolerance``,
        ``stop_on``, ``score_every``, ``schedule``, ``grow``, ``passes``, ``batch_shards``, ``samples``,
        ``sample_every``; and the family's own. Of texts also those of `ingest`: ``text``, ``id``, ``title``, ``date``,
        ``labels``, ``covariates`` (columns of a frame), ``min_documents``, ``max_document_share``, ``max_words``,
        ``stop_words``, ``min_letters``, ``tokenizer``, ``phrases``, ``segments``, ``like`` and so on.

    Returns
    -------
    Model
        The finished model; of restarts and samples the mean of theirs, or their consensus, and the first of those whose
        topics cannot be matched. Functions that take a run take it too: ``topics(model)``.

    Raises
    ------
    CapacityError
        It does not fit into memory or disk; the error has the table of `estimate`.
    CollapsiumError
        An input or option is wrong, or the cluster is lost. No file is left if no iteration was finished.
    KeyboardInterrupt
        The fit was stopped. As after an error, the last complete iteration is saved as a checkpoint; see `resume`.
    """
    reading = {} if is_path(corpus) else reading_of(options, load_family(family).Options.model_fields)
    limits = Limits(**{name: options.pop(name) for name in LIMIT_NAMES if name in options})
    limits.require_used(heldout=request.heldout is not None)
    others = (*option_names(fit), *LIMIT_NAMES, *(() if is_path(corpus) else OPTIONS))
    config = make_options(family, options, others)
    placement = Placement.of(scheduling, memory, checkpoints, timeouts, tls)
    with run_folder(out, scheduling.scheduler) as folder:
        if is_path(corpus):
            require_corpus_folder(corpus)
            training = Corpus(corpus)
        else:
            training = Corpus(folder.ingest(in_memory(corpus), reading))
        heldout = None if request.heldout is None else Corpus(request.heldout)
        warm = None if request.warm is None else WarmSource.of(request.warm, ensemble.restarts)
        # The samples of a single fit are joined as those of an ensemble of one.
        restarts = ensemble.restarts or int(ensemble.combine == CONSENSUS)
        full = Request(
            training,
            heldout,
            family,
            config,
            limits,
            request.seed,
            warm,
            restarts,
            ensemble.keep,
            combine=ensemble.combine,
            start=StartSource.of_fit(
                request.start,
                request.start_strength,
                FitInputs(
                    family,
                    config,
                    training.manifest.documents,
                    elsewhere=limits.schedule != "batch" or warm is not None,
                ),
            ),
        )
        model = ActiveFit(full.with_growth(), Run(folder.run), placement, sinks).run()
        folder.hand_over(model)
        model.index = index_of(corpus)
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
    """Resume a run from its latest complete checkpoint, or from its record where there is none.

    The result is, bit for bit, that of a run that was never stopped.

    Parameters
    ----------
    run : str or path-like
        Folder of the run.
    moved : MovedOptions
        New places of the run's inputs, where they were moved.
    scheduling : SchedulerOptions
        Executor that runs the tasks.
    memory : MemoryOptions
        Memory and disk of the workers.
    checkpoints : CheckpointOptions
        Frequency of checkpoints, and the check of processors and versions.
    timeouts : TimeoutOptions
        Timeouts of a silent cluster.
    tls, sinks
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
        start = None if moved.start is None else StartSource.of(moved.start)
        request, record = resumed_request(target, moved.corpus, moved.heldout, options, source, start)
        finished = is_ensemble_finished if request.restarts else is_finished
        ended = finished(target, request)
        if ended and (not has_mean(request) or is_mean_current(target)):
            return Model(run)
        target.rewrite(record)
        placement = Placement.of(scheduling, memory, checkpoints, timeouts, tls)
        active = ActiveFit(request, target, placement, sinks, lock)
        return active.match() if ended else active.run()
