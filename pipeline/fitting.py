"""Fitting a model: from a corpus and options to a run with its events and its model."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from collapsar.pipeline.alignment import HeldoutReference, align
from collapsar.pipeline.checkpointing import CheckpointKeeper
from collapsar.pipeline.config import LIMIT_NAMES, Limits, make_config
from collapsar.pipeline.contract import FamilyConfig, Summary, load_family
from collapsar.pipeline.executor import Executor, open_executor
from collapsar.pipeline.keeping import documents_of, keep_model
from collapsar.pipeline.loop import Progress, run
from collapsar.pipeline.planning import Place, Plan, cuts, place_of, plan
from collapsar.pipeline.sizes import parse_size
from collapsar.pipeline.state import Problem, State
from collapsar.pipeline.stochastic import run_stochastic, settled
from collapsar.storage.corpus import Corpus
from collapsar.storage.errors import CollapsarError, OptionError
from collapsar.storage.folder import ensure_free
from collapsar.storage.model import Model
from collapsar.storage.run import Run
from collapsar.storage.shard import Shard
from collapsar.workers import buffers, tasks
from collapsar.workers.contract import load_sweeps
from collapsar.workers.delta import Arrays
from collapsar.workers.kernels.compile import warm
from collapsar.workers.streams import Stream

VERSIONS = ("collapsar", "dask", "distributed", "numba", "numpy", "pyarrow", "zarr")

Sink = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Request:
    """All that a fit was asked for.

    Attributes
    ----------
    corpus : Corpus
        What to fit.
    heldout : Corpus or None
        What to score.
    family : str
        The family's name.
    config : FamilyConfig
        Its options.
    limits : Limits
        When to end.
    seed : int
        Seed of all random numbers.
    """

    corpus: Corpus
    heldout: Corpus | None
    family: str
    config: FamilyConfig
    limits: Limits
    seed: int

    def __post_init__(self) -> None:
        if type(self.seed) is not int:
            raise OptionError(f"--seed: expected a whole number, found {self.seed!r}")
        if self.limits.stop_on == "score" and self.heldout is None:
            raise OptionError("--stop-on score needs a held-out corpus (--heldout)")

    def record(self) -> dict[str, Any]:
        """Return what `run.json` shall say."""
        heldout = self.heldout
        return {
            "family": self.family,
            "options": self.config.model_dump(mode="json"),
            "limits": asdict(self.limits),
            "seed": self.seed,
            "corpus": {"url": self.corpus.folder.address, "digest": self.corpus.manifest.digest},
            "heldout": heldout and {"url": heldout.folder.address, "digest": heldout.manifest.digest},
            "versions": {name: version(name) for name in VERSIONS} | {"python": platform.python_version()},
        }


def fit(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    family: str,
    heldout: str | os.PathLike[str] | None = None,
    seed: int = 0,
    scheduler: str = "threads",
    workers: int | None = None,
    memory: str | int | None = None,
    scratch: str | None = None,
    sinks: Sequence[Sink] = (),
    **options: Any,
) -> Model:
    """Fit a model to a corpus.

    Parameters
    ----------
    corpus : str or path-like
        Folder of the corpus, local or an fsspec URL that the workers see too.
    out : str or path-like
        Folder of the run to make.
    family : str
        Name of the model family, such as ``hdp``.
    heldout : str or path-like, optional
        Held-out tokens of the same documents, scored after each iteration and not looked at otherwise.
    seed : int, optional
        Seed of all random numbers.
    scheduler : str, optional
        ``threads`` (worker threads in this process), ``local`` (a Dask cluster of worker processes here, with its
        dashboard), ``serial``, or a Dask scheduler's address.
    workers : int, optional
        Workers to start; by default one a processor.
    memory : str or int, optional
        What each worker process may hold, such as ``1.5GB``; ``threads`` are one process. By default what the machine
        has left, or what the cluster says.
    scratch : str, optional
        Folder, on each machine its own, for local states that do not fit into memory; by default the system's.
    sinks : sequence of callable, optional
        Told each event, a dict, as `events.jsonl` gets it.
    **options
        ``iterations``, ``tolerance``, ``stop_on``, ``score_every``, ``schedule``, ``passes``, ``batch_shards`` (see
        `collapsar.pipeline.config.Limits`), and the family's own options.

    Returns
    -------
    Model
        The finished model.

    Raises
    ------
    CapacityError
        It does not fit into memory or disk; the error holds the table of `estimate`.
    CollapsarError
        An input or option is wrong, or the cluster is lost. Nothing is left behind if no iteration was finished.
    KeyboardInterrupt
        The fit was stopped. As after an error, the model of the last whole iteration is kept.
    """
    limits = Limits(**{name: options.pop(name) for name in LIMIT_NAMES if name in options})
    config = make_config(family, options)
    target = Run(out)
    ensure_free(target.folder)
    request = Request(Corpus(corpus), None if heldout is None else Corpus(heldout), family, config, limits, seed)
    heldouts = _aligned(request)
    here = scheduler in ("threads", "serial", "local")
    if here:
        place = place_of(scheduler, workers, memory, scratch, target.folder.path if target.folder.local else None)
        planned = plan(request.corpus, family, config, place, stochastic=limits.schedule == "stochastic")
        planned.require()
    with _executor(scheduler, workers, memory, sinks) as (executor, event):
        if not here:
            there = _place_there(scheduler, executor, memory, scratch)
            planned = plan(request.corpus, family, config, there, stochastic=limits.schedule == "stochastic")
            planned.require()
        with _memory(executor), _scratch(planned, executor) as folder:
            return _fit(request, heldouts, target, executor, planned, folder, [event], sinks)


def _place_there(scheduler: str, executor: Executor, memory: str | int | None, scratch: str | None) -> Place:
    limit = parse_size(memory) if memory is not None else executor.memory or math.inf
    threads = max(executor.workers // executor.homes, 1)
    return Place(scheduler, executor.homes, threads, float(limit), scratch or tempfile.gettempdir())


@contextlib.contextmanager
def _memory(executor: Executor) -> Iterator[None]:
    """Give back, in the end, the memory that workers have fetched ahead."""
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            executor.everywhere(_release)


def _release() -> None:
    buffers.pool.release()


@contextlib.contextmanager
def _scratch(planned: Plan, executor: Executor) -> Iterator[str | None]:
    """Name a folder for scratch files that no other run has, if one is needed, and remove it on all machines."""
    if not planned.on_disk:
        yield None
        return
    folder = str(Path(planned.place.scratch).absolute() / f"collapsar-{uuid.uuid4().hex[:12]}")
    try:
        yield folder
    finally:
        with contextlib.suppress(Exception):
            executor.everywhere(shutil.rmtree, folder, True)


def _aligned(request: Request) -> list[HeldoutReference]:
    if request.heldout is None:
        return []
    request.heldout.require_vocabulary_of(request.corpus.manifest.vocabulary.words_sha256, request.corpus.url)
    return align(documents_of(request.corpus), request.heldout, request.corpus.url)


@contextlib.contextmanager
def _executor(
    scheduler: str, workers: int | None, memory: str | int | None, sinks: Sequence[Sink]
) -> Iterator[tuple[Executor, dict[str, Any]]]:
    began = time.perf_counter()
    executor = open_executor(scheduler, workers, None if memory is None else parse_size(memory))
    try:
        event = {
            "event": "cluster",
            "iteration": 0,
            "elapsed": 0.0,
            "scheduler": scheduler,
            "workers": executor.workers,
            "dashboard": executor.dashboard,
            "start_seconds": time.perf_counter() - began,
        }
        for sink in sinks:
            sink(event)
        yield executor, event
    finally:
        executor.close()


def _fit(
    request: Request,
    heldouts: list[HeldoutReference],
    target: Run,
    executor: Executor,
    planned: Plan,
    scratch: str | None,
    events: list[dict[str, Any]],
    sinks: Sequence[Sink],
) -> Model:
    family = load_family(request.family)
    manifest = request.corpus.manifest
    summary = Summary(
        manifest.documents,
        manifest.vocabulary.words,
        manifest.tokens,
        manifest.pairs,
        stochastic=request.limits.schedule == "stochastic",
    )
    stream = Stream(request.seed)
    globals_ = family.initialise(summary, request.config, stream.at(purpose="initialise"))
    footprint = family.footprint(summary, request.config)
    problem = Problem(
        request.family,
        family,
        request.config,
        *_load(request, heldouts, executor, scratch, 0.0 if summary.stochastic else footprint.pair),
        cuts(summary.words, footprint),
        stream,
        scratch,
        request.limits.local_sweeps,
    )
    began = time.perf_counter()
    executor.everywhere(_warm, request.family, globals_, planned.on_disk)
    compiled = {"event": "compile", "iteration": 0, "elapsed": 0.0, "compile_seconds": time.perf_counter() - began}
    with _folder(target, request.record()) as tell:
        for event in events:
            target.tell(event)
        listeners = [tell, *sinks]
        _tell(listeners, compiled)
        _tell(listeners, {**_opening(request), "planned": planned.record()})
        return _iterate(request, problem, executor, globals_, target, listeners)


def _load(
    request: Request, heldouts: list[HeldoutReference], executor: Executor, scratch: str | None, reserve: float
) -> tuple[list[Any], list[Any]]:
    """Read all shards where they will be swept, and meet what is wrong with them before a run is made."""
    references = request.corpus.references
    homes = [number * executor.homes // len(references) for number in range(len(references))]
    shards = [
        executor.submit(tasks.load, one, scratch, reserve, home=home)
        for one, home in zip(references, homes, strict=True)
    ]
    held = [executor.submit(load_heldout, one, scratch, home=home) for one, home in zip(heldouts, homes, strict=False)]
    executor.collect([executor.submit(count_tokens, one) for one in (*shards, *held)])
    return shards, held


def load_heldout(reference: HeldoutReference, scratch: str | None = None) -> Shard | tasks.ShardOnDisk:
    """Read the held-out pairs of a training shard's documents."""
    return tasks.stored(reference.load(), scratch)


def count_tokens(shard: Shard | tasks.ShardOnDisk) -> int:
    """Count a shard's tokens where it lies."""
    return tasks.opened(shard).tokens


def _warm(family: str, globals: Arrays, lean: bool) -> int:
    """Compile what every sweep needs, and say whether memory is short."""
    buffers.pool.lean = lean
    return warm(load_sweeps(family).kernels(globals))


@contextlib.contextmanager
def _folder(target: Run, record: dict[str, Any]) -> Iterator[Sink]:
    """Make the run's folder, and remove it if it fails before the first iteration is told."""
    whole = False

    def tell(event: dict[str, Any]) -> None:
        nonlocal whole
        target.tell(event)
        whole = whole or (event["event"] == "iteration" and event["iteration"] > 0)

    target.create(record)
    try:
        yield tell
    except BaseException:
        if not whole:
            target.folder.remove()
        raise


def _opening(request: Request) -> dict[str, Any]:
    manifest = request.corpus.manifest
    return {
        "event": "start",
        "iteration": 0,
        "elapsed": 0.0,
        "family": request.family,
        "documents": manifest.documents,
        "tokens": manifest.tokens,
        "words": manifest.vocabulary.words,
        "shards": len(manifest.shards),
        "iterations": request.limits.planned(len(manifest.shards)),
    }


def _iterate(
    request: Request, problem: Problem, executor: Executor, globals_: Any, target: Run, listeners: list[Sink]
) -> Model:
    """Run the loop, tell of it, and keep the model that it ends with, also when it is stopped or fails."""
    keeper = CheckpointKeeper(target.checkpoints, executor, problem)
    state: State | None = None
    elapsed, reason = 0.0, "iterations"

    def reached(current: State) -> None:
        nonlocal state
        state = current

    stopped: BaseException | None = None
    try:
        schedule = run_stochastic if request.limits.schedule == "stochastic" else run
        for found in schedule(problem, executor, globals_, request.limits, keeper, reached):
            progress = found[1]
            del found  # or the state would be held until the next is there
            _tell(listeners, _event(progress))
            elapsed = progress.elapsed
        if state is not None and state.iteration < request.limits.planned(len(problem.shards)):
            reason = "tolerance"
    except KeyboardInterrupt as interrupt:
        reason, stopped = "interrupt", interrupt
    except Exception as error:  # whatever it was, what is fitted so far shall not be lost with it
        reason, stopped = "error", error
    if state is None or state.iteration < 1:
        raise stopped or RuntimeError("the loop gave no state")
    if stopped is not None:
        traceback.clear_frames(stopped.__traceback__)  # they hold sweeps that wait: the model would come after
        _tell(listeners, {"event": "keeping", "iteration": state.iteration, "elapsed": elapsed, "reason": reason})
    try:
        state = settled(problem, executor, state)
        keep_model(target.model, request.corpus, request.config, problem, executor, state)
    except Exception:
        if stopped is None:
            raise
        raise stopped from None  # the first error is the one to tell
    end = {"event": "end", "iteration": state.iteration, "elapsed": elapsed, "reason": reason}
    _tell(listeners, {**end, **_usage(executor, state.iteration)})
    if stopped is not None:
        raise stopped
    return Model(target.folder.url)


def _usage(executor: Executor, iterations: int) -> dict[str, Any]:
    """Return what the run took: bytes moved between workers, and the peak memory of the processes."""
    try:
        peaks = executor.everywhere(_peak_memory)
        moved = executor.moved()
    except CollapsarError:  # a cluster that is gone cannot say
        return {}
    own = [] if executor.homes == 1 and executor.dashboard is None else [_peak_memory()]
    each = moved / (iterations + 1)  # the start is one too
    return {
        "moved_bytes": moved,
        "moved_bytes_an_iteration": each,
        "worker_peak_bytes": peaks,
        "driver_peak_bytes": own[0] if own else 0,
    }


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _event(progress: Progress) -> dict[str, Any]:
    event: dict[str, Any] = {"event": "iteration", "iteration": progress.iteration, "elapsed": progress.elapsed}
    if progress.lost:
        return {**event, "event": "back", "reason": progress.lost}
    if progress.iteration == 0:
        event["event"] = "started"
    if progress.score is not None:
        event["score"] = progress.score
    if progress.change is not None:
        event["change"] = progress.change
    return {**event, **progress.figures, "seconds": progress.seconds}


def _tell(listeners: Sequence[Sink], event: dict[str, Any]) -> None:
    for listener in listeners:
        listener(event)
