"""What all comparisons share: cells that are fitted once, and what each came to kept beside the others."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from collapsium.pipeline.engine.fit import fit, resume
from collapsium.pipeline.executors.open import check_scheduler
from collapsium.pipeline.monitoring.events import Sink, tell
from collapsium.pipeline.workflows.compare.grid import Asked, Cell
from collapsium.pipeline.workflows.compare.metrics import SERIES, Reading, runs_of, series_of
from collapsium.pipeline.workflows.compare.options import shown
from collapsium.pipeline.workflows.compare.tables import write_rows
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import CollapsiumError, OccupiedError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.locks.run_lock import RunLock
from collapsium.storage.io.records import dump
from collapsium.storage.runs.comparison import (
    CELL_KIND,
    CELLS,
    KIND,
    RECORD,
    RUNS,
    SERIES_FILE,
    SUFFIX,
    VERSION,
    cells_done,
    record_of,
    row_of,
    runs_there,
)
from collapsium.storage.runs.members import member_seed
from collapsium.storage.runs.run import Run
from collapsium.storage.units import parse_size

Found = TypeVar("Found")
Draw = Callable[[list[dict[str, Any]]], list[str] | None]  # from a series to the names of its plots
FLAGS = {"corpus": "CORPUS", "settings": "--set"}  # of what is recorded, where it is not that of its name


class CellWork(ABC):
    """A comparison on its way: its folder, its record, and the fits of its cells.

    Parameters
    ----------
    corpus : Corpus
        What is fitted to.
    folder : Folder
        Of the comparison.
    asked : Asked
        What spans its cells.
    where : mapping
        Where is fitted: ``scheduler``, ``workers``, ``memory``, ``scratch`` and ``tls`` of `fit`.
    sinks : sequence of callable
        Told what goes on.
    """

    def __init__(
        self, corpus: Corpus, folder: Folder, asked: Asked, where: dict[str, Any], sinks: Sequence[Sink]
    ) -> None:
        self._corpus, self._folder, self._asked, self._where, self._sinks = corpus, folder, asked, where, sinks
        # A cluster of our own is not started again for each score.
        near = "threads" if where["scheduler"] == "local" else where["scheduler"]
        self._reading = Reading(near, where["workers"], where["tls"] if near == where["scheduler"] else None)
        self._owned: Callable[[], None] = lambda: None
        self._train: Corpus = corpus
        self._heldout: Corpus | None = None
        self._left_out: list[str] = []
        self._rows: list[dict[str, Any]] = []

    def _check_where(self) -> None:
        """Refuse, before anything is made, a scheduler or size that there is not."""
        check_scheduler(self._where["scheduler"], self._where["workers"])
        if self._where["memory"] is not None:
            parse_size(self._where["memory"])

    def _within(self, record: Mapping[str, Any], work: Callable[[], Found]) -> Found:
        """Do work in the comparison's folder, which nobody else uses meanwhile, and leave none behind without a fit."""
        new = self._begin(record)
        plain = self._folder
        with RunLock(plain / "lock") as lock:
            self._owned, self._folder = lock.require, plain.fenced(lock)
            try:
                return work()
            except CollapsiumError:
                if new and not self._kept():
                    self._folder.remove()
                raise
            finally:
                self._folder = plain

    def _kept(self) -> bool:
        """Say whether there is a fit, or what one came to."""
        return bool(cells_done(self._folder)) or any(True for _ in runs_there(self._folder))

    def _begin(self, record: Mapping[str, Any]) -> bool:
        """Write what is asked for, or find that it is what was asked for before; say whether it is new."""
        new = not self._folder.exists(RECORD)
        if new:
            if self._folder.exists() and self._folder.names():
                raise OccupiedError(f"{self._folder.url}: exists, and is no comparison; name a new folder")
            self._folder.make()
            self._folder.create(RECORD, dump({"format": KIND, "version": VERSION, **record}))
        before = record_of(self._folder)
        for name, value in record.items():
            if before.get(name) != value:
                flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
                raise OptionError(
                    f"{flag}: the comparison in {self._folder.url} was begun with {shown(before.get(name))}, found "
                    f"{shown(value)}; name a new folder, or say what was said before"
                )
        return new

    @property
    def _held_url(self) -> str | None:
        return None if self._heldout is None else self._heldout.url

    def _row(self, name: str) -> dict[str, Any] | None:
        """Return what was recorded of a cell; None where it is not done."""
        return row_of(self._folder, name) if (self._folder / CELLS).exists(name + SUFFIX) else None

    def _keep(self, name: str, row: dict[str, Any]) -> None:
        self._owned()
        record = {"format": CELL_KIND, "version": VERSION, "row": row}
        (self._folder / CELLS).write(name + SUFFIX, dump(record))

    def _place(self, cell: Cell) -> Folder:
        return self._folder / RUNS / cell.name

    def _leave_out(self, text: str) -> None:
        self._left_out.append(text)
        self._tell("notice", text=f"left out: {text}")

    def _fit(self, cell: Cell, place: Folder, sources: Sequence[str]) -> None:
        """Make a cell's fits, or go on with them: restarts side by side or, where each has its own source, in turn."""
        options = {"family": cell.family, "heldout": self._held_url, **cell.options, **cell.limits}
        if not sources:
            self._fit_one(place, self._sink_of(cell), {**options, "seed": self._asked.seed, "restarts": cell.restarts})
            return
        for number, source in enumerate(sources):
            given = {**options, "seed": member_seed(self._asked.seed, number), "warm": source}
            self._fit_one(place / f"{number:03d}", self._sink_of(cell, member=number), given)

    def _fit_one(self, place: Folder, sink: Callable[[dict[str, Any]], None], options: dict[str, Any]) -> None:
        self._owned()
        if Run(place.url).exists():
            lying: dict[str, Any] = {"corpus": self._train.url, "heldout": self._held_url, "warm": options.get("warm")}
            resume(place.url, sinks=[sink], **lying, **self._where)
            return
        if place.exists():
            place.remove()  # its record was not written yet
        fit(self._train.url, place.url, sinks=[sink], **options, **self._where)

    def _sink_of(self, cell: Cell, **more: Any) -> Sink:
        def sink(event: dict[str, Any]) -> None:
            tell(self._sinks, {**event, "cell": cell.name, **more})

        return sink

    def _foretell(self, cells: Sequence[Cell], others: Sequence[str]) -> None:
        """Tell what there is to do: cells, and fits of others by their names."""
        done = [cell for cell in cells if self._row(cell.name) is not None]
        self._tell(
            "grid",
            cells=len(cells) + len(others),
            done=len(done) + sum(self._row(name) is not None for name in others),
            work=sum(cell.work for cell in cells),
            work_done=sum(cell.work for cell in done),
            peers=len(others),
        )

    def _do(self, cell: Cell, first: Cell) -> None:
        """Fit and measure a cell, if that is not done; one that begins from others begins from the first."""
        row = self._row(cell.name)
        if row is None:
            self._tell("cell_begins", cell=cell.name, fits=cell.restarts, iterations=cell.iterations, work=cell.work)
            began = time.perf_counter()
            sources = [run.folder.url for run in runs_of(first, self._place(first))] if cell.warm else []
            self._fit(cell, self._place(cell), sources)
            row = self._measure(cell)
            self._keep(cell.name, row)
            took = time.perf_counter() - began
            score = {"score": row["score"], "score_error": row["score_error"]}
            self._tell("cell_done", cell=cell.name, work=cell.work, elapsed=took, **score)
        self._rows.append(row)
        self._write_table()

    def _do_other(self, name: str, iterations: int, make: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """Return the row of a fit beside the families, made unless it is recorded; None where it cannot be made."""
        row = self._row(name)
        if row is not None:
            return row
        self._tell("cell_begins", cell=name, fits=1, iterations=iterations, work=0.0)
        began = time.perf_counter()
        row = make()
        took = time.perf_counter() - began
        if "error" in row:
            self._leave_out(f"{name}: {row['error']}")
            self._tell("cell_done", cell=name, work=0.0, elapsed=0.0)
            return None
        self._keep(name, row)
        self._tell("cell_done", cell=name, work=0.0, elapsed=took, **self._figures_of(row))
        return row

    def _figures_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is told of a fit beside the families once it is done."""
        return {"score": row["score"]}

    def _finish(self, cells: Sequence[Cell], draw: Draw) -> tuple[str, ...]:
        """Write series, tables and plots of the whole grid, and return the names of the plots."""
        series = [row for cell in cells for row in series_of(cell, self._place(cell))]
        write_rows(self._folder, SERIES_FILE, series, SERIES)
        self._write_table()
        plots = draw(series)
        if plots is None:
            self._tell("notice", text="no plots: matplotlib is not installed (pip install 'collapsium[plots]')")
        self._tell("compared", rows=len(self._rows), plots=len(plots or []))
        return tuple(plots or [])

    @abstractmethod
    def _measure(self, cell: Cell) -> dict[str, Any]:
        """Return the row of a cell whose fits are all at their ends."""

    @abstractmethod
    def _write_table(self) -> None:
        """Write what there is so far."""

    def _tell(self, name: str, **fields: Any) -> None:
        tell(self._sinks, {"event": name, **fields})
