"""Fitting a model: from a corpus and options to a run with its events and its model."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from collapsar.pipeline.alignment import HeldoutReference, align
from collapsar.pipeline.checkpointing import CheckpointKeeper
from collapsar.pipeline.config import LIMIT_NAMES, Limits, make_config
from collapsar.pipeline.contract import FamilyConfig, Summary, load_family
from collapsar.pipeline.executor import Executor, open_executor
from collapsar.pipeline.keeping import documents_of, keep_model
from collapsar.pipeline.loop import Progress, run
from collapsar.pipeline.state import Problem, State
from collapsar.storage.corpus import Corpus
from collapsar.storage.errors import OptionError
from collapsar.storage.folder import ensure_free
from collapsar.storage.model import Model
from collapsar.storage.run import Run
from collapsar.storage.shard import Shard
from collapsar.workers import tasks
from collapsar.workers.contract import load_sweeps
from collapsar.workers.kernels.compile import warm
from collapsar.workers.streams import Stream

BLOCK_CELLS = 64_000_000  # of words x topics, so half a gigabyte of float64
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
    scheduler: str = "local",
    workers: int | None = None,
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
        ``local`` (worker processes here), ``threads``, ``serial``, or a Dask scheduler's address.
    workers : int, optional
        Workers to start; by default one a processor.
    sinks : sequence of callable, optional
        Told each event, a dict, as `events.jsonl` gets it.
    **options
        ``iterations``, ``tolerance``, ``stop_on``, ``score_every``, and the family's own options.

    Returns
    -------
    Model
        The finished model.

    Raises
    ------
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
    with _executor(scheduler, workers, sinks) as (executor, event):
        return _fit(request, heldouts, target, executor, [event], sinks)


def _aligned(request: Request) -> list[HeldoutReference]:
    if request.heldout is None:
        return []
    request.heldout.require_vocabulary_of(request.corpus.manifest.vocabulary.words_sha256, request.corpus.url)
    return align(documents_of(request.corpus), request.heldout, request.corpus.url)


@contextlib.contextmanager
def _executor(scheduler: str, workers: int | None, sinks: Sequence[Sink]) -> Iterator[tuple[Executor, dict[str, Any]]]:
    began = time.perf_counter()
    executor = open_executor(scheduler, workers)
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
    events: list[dict[str, Any]],
    sinks: Sequence[Sink],
) -> Model:
    family = load_family(request.family)
    manifest = request.corpus.manifest
    summary = Summary(manifest.documents, manifest.vocabulary.words, manifest.tokens)
    stream = Stream(request.seed)
    globals_ = family.initialise(summary, request.config, stream.at(purpose="initialise"))
    problem = Problem(
        request.family,
        family,
        request.config,
        *_load(request, heldouts, executor),
        _cuts(summary.words, globals_),
        stream,
    )
    began = time.perf_counter()
    executor.everywhere(_warm, request.family)
    compiled = {"event": "compile", "iteration": 0, "elapsed": 0.0, "compile_seconds": time.perf_counter() - began}
    with _folder(target, request.record()) as tell:
        for event in events:
            target.tell(event)
        listeners = [tell, *sinks]
        _tell(listeners, compiled)
        _tell(listeners, _opening(request))
        return _iterate(request, problem, executor, globals_, target, listeners)


def _load(request: Request, heldouts: list[HeldoutReference], executor: Executor) -> tuple[list[Any], list[Any]]:
    """Read all shards where they will be swept, and meet what is wrong with them before a run is made."""
    references = request.corpus.references
    homes = [number * executor.homes // len(references) for number in range(len(references))]
    shards = [executor.submit(tasks.load, one, home=home) for one, home in zip(references, homes, strict=True)]
    held = [executor.submit(load_heldout, one, home=home) for one, home in zip(heldouts, homes, strict=False)]
    executor.collect([executor.submit(count_tokens, one) for one in (*shards, *held)])
    return shards, held


def load_heldout(reference: HeldoutReference) -> Shard:
    """Read the held-out pairs of a training shard's documents."""
    return reference.load()


def count_tokens(shard: Shard) -> int:
    """Count a shard's tokens where it lies."""
    return shard.tokens


def _warm(family: str) -> int:
    load_sweeps(family)
    return warm()


def _cuts(words: int, globals_: Any) -> tuple[int, ...]:
    """Cut the vocabulary into blocks of bounded size; the cuts depend on the sizes alone, never on the cluster."""
    topics = max((values.shape[-1] for values in globals_.values() if values.ndim), default=1)
    blocks = max(-(-words * topics // BLOCK_CELLS), 1)
    return tuple(words * block // blocks for block in range(blocks + 1))


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
        "iterations": request.limits.iterations,
    }


def _iterate(
    request: Request, problem: Problem, executor: Executor, globals_: Any, target: Run, listeners: list[Sink]
) -> Model:
    """Run the loop, tell of it, and keep the model that it ends with, also when it is stopped or fails."""
    keeper = CheckpointKeeper(target.checkpoints, executor, problem)
    state: State | None = None
    elapsed, reason = 0.0, "iterations"
    stopped: BaseException | None = None
    try:
        for current, progress in run(problem, executor, globals_, request.limits, keeper):
            _tell(listeners, _event(progress))
            elapsed, state = progress.elapsed, state if progress.lost else current
        if state is not None and state.iteration < request.limits.iterations:
            reason = "tolerance"
    except KeyboardInterrupt as interrupt:
        reason, stopped = "interrupt", interrupt
    except Exception as error:  # whatever it was, what is fitted so far shall not be lost with it
        reason, stopped = "error", error
    if state is None or state.iteration < 1:
        raise stopped or RuntimeError("the loop gave no state")
    if stopped is not None:
        _tell(listeners, {"event": "keeping", "iteration": state.iteration, "elapsed": elapsed, "reason": reason})
    try:
        keep_model(target.model, request.corpus, request.config, problem, executor, state)
    except Exception:
        if stopped is None:
            raise
        raise stopped from None  # the first error is the one to tell
    _tell(listeners, {"event": "end", "iteration": state.iteration, "elapsed": elapsed, "reason": reason})
    if stopped is not None:
        raise stopped
    return Model(target.folder.url)


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
