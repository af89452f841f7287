"""Fits of a comparison: run or resumed, and read back as series of iterations."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from collapsium.pipeline.engine.fit import fit, resume
from collapsium.pipeline.executors.base import TLS, Executor
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import Scheduler, check_scheduler
from collapsium.pipeline.monitoring.events import Event, Sink, emit
from collapsium.pipeline.workflows.compare.grid import Cell
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.comparison import RUNS
from collapsium.storage.runs.event_records import parse_event
from collapsium.storage.runs.members import member_seed
from collapsium.storage.runs.run import EVENTS, JOURNAL, Run
from collapsium.storage.units import parse_size

WORK = ("kernel", "reduce", "update")  # Activities of an iteration whose time counts as work


@dataclass(frozen=True)
class Resources:
    """Executor, memory and scratch space of fits and scores; the fields are arguments of `fit`."""

    scheduler: Scheduler = "threads"
    workers: int | None = None
    memory: str | int | None = None
    scratch: str | None = None
    tls: TLS | None = None

    def require(self) -> None:
        """Refuse an unknown scheduler, and an invalid size."""
        check_scheduler(self.scheduler, self.workers)
        if self.memory is not None:
            parse_size(self.memory)

    def for_scores(self) -> JsonObject:
        """Return the arguments of `evaluate`; threads replace a local cluster, which would start for each score."""
        if self.scheduler == "local":
            return {"scheduler": "threads", "workers": self.workers, "tls": None}
        return {"scheduler": self.scheduler, "workers": self.workers, "tls": self.tls}

    def scoring(self) -> contextlib.closing[Executor]:
        """Return an executor for scores, which is closed at the end of the context."""
        where = self.for_scores()
        return contextlib.closing(open_executor(where["scheduler"], where["workers"], tls=where["tls"]))


@dataclass(frozen=True)
class CellFits:
    """The completed fits of a cell."""

    cell: Cell  # The cell
    folder: Folder  # Folder of its runs

    @property
    def runs(self) -> list[Run]:
        """The runs of the restarts: members of an ensemble or, for warm starts, separate runs."""
        if self.cell.warm:
            return [Run((self.folder / f"{number:03d}").url) for number in range(self.cell.restarts)]
        return [Run(self.folder.url).in_member(number) for number in range(self.cell.restarts)]

    @property
    def urls(self) -> list[str]:
        """The folders of the runs."""
        return [run.folder.url for run in self.runs]

    def last_iterations(self) -> list[JsonObject]:
        """Return the event of each run's last iteration."""
        return [_iterations(run)[-1] for run in self.runs]

    def work_seconds(self) -> list[float]:
        """Return the seconds of work of each run, without scoring and waiting."""
        return [sum(_work(event) for event in _iterations(run)) for run in self.runs]

    def elapsed_seconds(self) -> float:
        """Return the elapsed seconds; an ensemble's journal has an end for each time that it was started."""
        if self.cell.warm:
            return sum(float(run.events()[-1]["elapsed"]) for run in self.runs)
        elapsed = 0.0
        for line in self.folder.read(JOURNAL).splitlines():
            # A process that died may have left a line unfinished.
            with contextlib.suppress(DamagedError):
                event = parse_event(line, f"{self.folder.url}/{JOURNAL}", "a line")
                elapsed += float(event["elapsed"]) if event["event"] == "end" and "members" in event else 0.0
        return elapsed

    def series(self) -> list[JsonObject]:
        """Return a row for each iteration; ``steps`` are numbers of topics, summed over the iterations."""
        cell, rows = self.cell, []
        for restart, run in enumerate(self.runs):
            events = _iterations(run)
            topics = [cell.topics if cell.topics is not None else event.get("topics", math.nan) for event in events]
            steps = itertools.accumulate(float(number) for number in topics)
            seconds = itertools.accumulate(_work(event) for event in events)
            for event, step, second in zip(events, steps, seconds, strict=True):
                rows.append(
                    {
                        "cell": cell.name,
                        "family": cell.family,
                        "start": cell.start,
                        "topics": cell.topics,
                        "restart": restart,
                        "iteration": event["iteration"],
                        "steps": None if math.isnan(step) else step,
                        "seconds": second,
                        **{name: event.get(name) for name in ("score", "objective", "topics_99")},
                    }
                )
        return rows


def _iterations(run: Run) -> list[JsonObject]:
    iterations = [event for event in run.events() if event["event"] == "iteration"]
    if not iterations:
        raise DamagedError(f"{run.folder.url}/{EVENTS}", "expected iterations of a fit, found none")
    return iterations


def _work(event: Event) -> float:
    return sum(float(event.get("seconds", {}).get(name, 0.0)) for name in WORK)


@dataclass(frozen=True)
class Fitter:
    """Runs the fits of a comparison, or resumes them."""

    folder: Folder  # Folder of the comparison
    # Folders of the training corpus and of its held-out tokens; the second may be None
    train: str
    heldout: str | None
    seed: int  # Seed of all fits
    resources: Resources  # Executor, memory and scratch space
    sinks: Sequence[Sink]  # Receive the events of the fits
    require_lock: Callable[[], None]  # Raises an error if another process has taken over the comparison

    def fits_of(self, cell: Cell) -> CellFits:
        """Return the fits of a cell, which need not exist yet."""
        return CellFits(cell, self.folder / RUNS / cell.name)

    def fit_cell(self, cell: Cell, sources: Sequence[str] = ()) -> CellFits:
        """Run a cell's fits: restarts in parallel or, with a source run for each, one after another."""
        fits = self.fits_of(cell)
        options = {"family": cell.family, **cell.options, **cell.limits}
        if not sources:
            self.fit(fits.folder, {**options, "seed": self.seed, "restarts": cell.restarts}, {"cell": cell.name})
        for number, source in enumerate(sources):
            arguments = {**options, "seed": member_seed(self.seed, number), "warm": source}
            self.fit(fits.folder / f"{number:03d}", arguments, {"cell": cell.name, "member": number})
        return fits

    def fit(self, folder: Folder, options: Mapping[str, object], event_fields: Mapping[str, object]) -> None:
        """Run or resume a fit in a folder; its events get further fields."""

        def sink(event: Event) -> None:
            emit(self.sinks, {**event, **event_fields})

        self.require_lock()
        resources = vars(self.resources)
        if Run(folder.url).exists():
            warm = options.get("warm")
            resume(folder.url, sinks=[sink], corpus=self.train, heldout=self.heldout, warm=warm, **resources)
            return
        if folder.exists():
            # A process died before it wrote the run's record.
            folder.remove()
        fit(self.train, folder.url, sinks=[sink], heldout=self.heldout, **options, **resources)
