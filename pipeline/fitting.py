"""Fitting a model: from a corpus and options to a run with its events, its checkpoints and its model."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import time
import traceback
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from collapsar.pipeline.alignment import HeldoutReference, align
from collapsar.pipeline.checkpointing import CheckpointKeeper
from collapsar.pipeline.config import LIMIT_NAMES, Limits, make_config
from collapsar.pipeline.contract import Summary, load_family
from collapsar.pipeline.events import Sink, event_of, first, tell, usage
from collapsar.pipeline.executor import PATIENCE, TLS, Executor
from collapsar.pipeline.keeping import documents_of, keep_model
from collapsar.pipeline.loop import run
from collapsar.pipeline.opening import Model
from collapsar.pipeline.placing import Where, freed_memory, place_there, scratch_folder
from collapsar.pipeline.planning import Plan, cuts, place_of, plan
from collapsar.pipeline.requests import DONE, Request, differing_versions, fingerprint, is_done, taken_up
from collapsar.pipeline.state import Problem
from collapsar.pipeline.stochastic import run_stochastic, settled
from collapsar.storage.corpus import Corpus
from collapsar.storage.errors import ClusterError, CollapsarError, LockedError
from collapsar.storage.folder import ensure_free
from collapsar.storage.lock import RunLock
from collapsar.storage.run import Run
from collapsar.storage.shard import Shard
from collapsar.workers import buffers, tasks
from collapsar.workers.contract import load_sweeps
from collapsar.workers.delta import Arrays
from collapsar.workers.kernels.compile import warm
from collapsar.workers.streams import Stream


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
    checkpoint_every: int | None = None,
    patience: float = PATIENCE,
    tls: TLS | None = None,
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
    checkpoint_every : int, optional
        Iterations between two checkpoints; by default one a minute, fewer where they would take over 5% of the time.
    patience : float, optional
        Seconds after which a worker that shows no sign of life, or a cluster without workers, is given up.
    tls : TLS, optional
        Certificates for a cluster whose messages are encrypted.
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
        The fit was stopped. As after an error, the last whole iteration is kept as a checkpoint; see `resume`.
    """
    limits = Limits(**{name: options.pop(name) for name in LIMIT_NAMES if name in options})
    config = make_config(family, options)
    target = Run(out)
    ensure_free(target.folder)
    request = Request(Corpus(corpus), None if heldout is None else Corpus(heldout), family, config, limits, seed)
    where = Where(scheduler, workers, memory, scratch, checkpoint_every, patience, tls)
    return _Fit(request, target, where, sinks).run()


def resume(
    run: str | os.PathLike[str],
    *,
    corpus: str | os.PathLike[str] | None = None,
    heldout: str | os.PathLike[str] | None = None,
    scheduler: str = "threads",
    workers: int | None = None,
    memory: str | int | None = None,
    scratch: str | None = None,
    checkpoint_every: int | None = None,
    patience: float = PATIENCE,
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
    corpus, heldout : str or path-like, optional
        Where its corpora lie by now, if they were moved.
    scheduler, workers, memory, scratch, checkpoint_every, patience, tls, sinks
        As for `fit`; they may differ from before.
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
    CollapsarError
        As for `fit`.
    """
    target = Run(run)
    target.record()
    with target.lock as lock:
        request, record = taken_up(target, corpus, heldout, options)
        if is_done(target, request):
            return Model(run)
        target.rewrite(record)
        where = Where(scheduler, workers, memory, scratch, checkpoint_every, patience, tls)
        return _Fit(request, target, where, sinks, lock).run()


class _Fit:
    """A fit on its way: new, or a run that is taken up again by whoever holds its lock."""

    def __init__(
        self, request: Request, target: Run, where: Where, sinks: Sequence[Sink], lock: RunLock | None = None
    ) -> None:
        self._request, self._target, self._where, self._sinks = request, target, where, sinks
        self._lock, self._resumed = lock, lock is not None
        self._begun = lock is not None  # whether the run's folder is there
        self._folder: str | None = None  # for scratch files

    def run(self) -> Model:
        """Load, compile, run the loop and keep what it ends with."""
        heldouts = _aligned(self._request)
        planned = self._plan(None) if self._where.here else None
        began = time.perf_counter()
        executor = self._where.open(self._notice)
        try:
            cluster = {
                "scheduler": self._where.scheduler,
                "workers": executor.workers,
                "dashboard": executor.dashboard,
                "start_seconds": time.perf_counter() - began,
            }
            opening = [first("cluster", **cluster)]
            tell(self._sinks, opening[0])
            planned = planned or self._plan(executor)
            with freed_memory(executor), scratch_folder(planned, executor) as folder:
                self._folder = folder
                problem, globals_ = make_problem(self._request, heldouts, executor, folder)
                opening += [self._compiled(executor, globals_, planned), self._start(planned)]
                with self._held():
                    return self._loop(problem, executor, globals_, opening)
        finally:
            executor.close()
            if self._folder is not None:  # what tasks that were still running have left behind on this machine
                shutil.rmtree(self._folder, ignore_errors=True)

    def _plan(self, executor: Executor | None) -> Plan:
        """Foresee what the fit takes; raise `CapacityError` if it does not fit."""
        where, request, folder = self._where, self._request, self._target.folder
        if executor is None:
            out = folder.path if folder.local and not self._resumed else None  # its checkpoints are there already
            place = place_of(where.scheduler, where.workers, where.memory, where.scratch, out)
        else:
            place = place_there(where.scheduler, executor, where.memory, where.scratch)
        planned = plan(request.corpus, request.family, request.config, place, stochastic=request.stochastic)
        planned.require()
        return planned

    def _compiled(self, executor: Executor, globals_: Arrays, planned: Plan) -> dict[str, Any]:
        began = time.perf_counter()
        executor.everywhere(_warm, self._request.family, globals_, planned.on_disk)
        return first("compile", compile_seconds=time.perf_counter() - began)

    def _start(self, planned: Plan) -> dict[str, Any]:
        manifest = self._request.corpus.manifest
        return first(
            "start",
            family=self._request.family,
            documents=manifest.documents,
            tokens=manifest.tokens,
            words=manifest.vocabulary.words,
            shards=len(manifest.shards),
            iterations=self._request.limits.planned(len(manifest.shards)),
            planned=planned.record(),
        )

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the run's folder: make a new one, and remove it again if an error comes before the first iteration."""
        if self._resumed:
            yield
            return
        self._target.create(self._request.record())
        self._begun = True
        with self._target.lock as self._lock:
            try:
                yield
            except Exception:
                if not any(event.get("event") == "iteration" for event in self._target.events()):
                    self._begun = False
                    self._target.folder.remove()
                raise

    def _tell(self, event: dict[str, Any]) -> None:
        self._target.tell(event)
        tell(self._sinks, event)

    def _notice(self, text: str) -> None:
        """Say in a line what befell the run: to whoever watches, and in its journal."""
        event = first("notice", text=text)
        if self._begun:
            self._note(event)
        tell(self._sinks, event)

    def _owned(self) -> None:
        """Raise `LockedError` if another process has taken the run over."""
        if self._lock is not None:
            self._lock.require()

    def _note(self, event: dict[str, Any]) -> None:
        here = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "process": os.getpid(),
            "host": platform.node(),
        }
        with contextlib.suppress(CollapsarError):  # a journal that cannot be written shall not end the run
            self._target.note({**here, **event})

    def _open(self, opening: list[dict[str, Any]]) -> None:
        """Tell how it begins; the events of a run that goes on from a checkpoint stay as they were."""
        target = self._target
        target.clean()
        for event in opening:
            self._note(event)
        if self._resumed and any(target.checkpoints.candidates()):
            for event in opening[1:]:
                tell(self._sinks, event)
            differing = differing_versions(target.record())
            if differing:
                self._notice(
                    f"other versions than the run began with ({', '.join(differing)}): other bits may come out"
                )
            return
        target.cut_events(0)
        target.tell(opening[0])
        for event in opening[1:]:
            self._tell(event)

    def _loop(self, problem: Problem, executor: Executor, globals_: Arrays, opening: list[dict[str, Any]]) -> Model:
        """Run the loop, tell of it, and keep what it ends with, also when it is stopped or fails."""
        self._open(opening)
        limits = self._request.limits
        keeper = CheckpointKeeper(
            self._target,
            executor,
            problem,
            fingerprint(self._request.record()),
            with_locals=not self._request.stochastic,
            every=self._where.checkpoint_every,
            owned=self._owned,
            notice=self._notice,
        )
        elapsed = 0.0
        try:
            schedule = run_stochastic if self._request.stochastic else run
            for found in schedule(problem, executor, globals_, limits, keeper):
                progress = found[1]
                del found  # or the state would be held until the next is there
                self._tell(event_of(progress))
                elapsed = progress.elapsed
            return self._finish(problem, executor, keeper, elapsed)
        except (KeyboardInterrupt, Exception) as stopped:  # whatever it was, what is fitted so far shall not be lost
            self._stop(keeper, elapsed, stopped)
            raise

    def _finish(self, problem: Problem, executor: Executor, keeper: CheckpointKeeper, elapsed: float) -> Model:
        """Keep the last state, as a checkpoint and as the model."""
        if keeper.last is None:
            raise RuntimeError("the loop gave no state")
        keeper.finish()
        state = settled(problem, executor, keeper.last.state)
        keep_model(self._target.model, self._request.corpus, self._request.config, problem, executor, state)
        early = state.iteration < self._request.limits.planned(len(problem.shards))
        end = {"event": "end", "iteration": state.iteration, "elapsed": elapsed, "reason": DONE[early]}
        self._tell({**end, **usage(executor, state.iteration)})
        return Model(self._target.folder.url)

    def _stop(self, keeper: CheckpointKeeper, elapsed: float, stopped: BaseException) -> None:
        """Keep the last whole iteration as a checkpoint, if the workers that hold it are still there, and say so."""
        reason = "interrupt" if isinstance(stopped, KeyboardInterrupt) else "error"
        traceback.clear_frames(stopped.__traceback__)  # they hold sweeps that wait: the checkpoint would come after
        iteration = keeper.kept
        if keeper.last is not None and not isinstance(stopped, (ClusterError, LockedError)):
            reached = keeper.last.state.iteration
            tell(self._sinks, {"event": "keeping", "iteration": reached, "elapsed": elapsed, "reason": reason})
            try:
                iteration = keeper.finish()
            except Exception as error:
                self._notice(f"iteration {reached} could not be kept: {error}")
        end = {"event": "end", "iteration": iteration or 0, "elapsed": elapsed, "reason": reason}
        self._note(end)
        with contextlib.suppress(CollapsarError):
            self._target.tell(end)
        tell(self._sinks, end)


def _aligned(request: Request) -> list[HeldoutReference]:
    if request.heldout is None:
        return []
    request.heldout.require_vocabulary_of(request.corpus.manifest.vocabulary.words_sha256, request.corpus.url)
    return align(documents_of(request.corpus), request.heldout, request.corpus.url)


def make_problem(
    request: Request, heldouts: list[HeldoutReference], executor: Executor, scratch: str | None
) -> tuple[Problem, Arrays]:
    """Read the shards to where they will be swept, and make the first globals.

    Parameters
    ----------
    request : Request
        What is asked for.
    heldouts : list of HeldoutReference
        The held-out pairs of the shards' documents; none where nothing is scored.
    executor : Executor
        Who runs the tasks.
    scratch : str, optional
        Folder for scratch files, where local states lie on disk.

    Returns
    -------
    problem : Problem
        What to fit.
    globals : Arrays
        As the family's `initialise` makes them.
    """
    family, manifest = load_family(request.family), request.corpus.manifest
    sizes = (manifest.documents, manifest.vocabulary.words, manifest.tokens, manifest.pairs)
    count = len(manifest.shards)
    iterations = request.limits.planned(count)
    summary = Summary(*sizes, shards=count, stochastic=request.stochastic, iterations=iterations)
    footprint = family.footprint(summary, request.config)
    reserve = 0.0 if summary.stochastic else footprint.pair
    stream = Stream(request.seed)

    def load() -> tuple[list[Any], list[Any]]:
        return _load(request, heldouts, executor, scratch, reserve)

    shards, held = load()
    blocks = cuts(summary.words, footprint)
    parts = (request.family, family, request.config, shards, held, blocks, stream, scratch)
    problem = Problem(*parts, request.limits.local_sweeps, load)
    return problem, family.initialise(summary, request.config, stream.at(purpose="initialise"))


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
