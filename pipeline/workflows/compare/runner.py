"""Run a comparison: fit and measure each cell once, record the results, and continue an interrupted comparison."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collapsium.pipeline.monitoring.events import Sink, emit
from collapsium.pipeline.workflows.compare.baselines.base import Baseline, BaselineError
from collapsium.pipeline.workflows.compare.baselines.classifier_fits import classifier_fits
from collapsium.pipeline.workflows.compare.baselines.libraries import library_fits, library_report
from collapsium.pipeline.workflows.compare.fits import Fitter, Resources
from collapsium.pipeline.workflows.compare.grid import Cell, cells_of, require_comparable
from collapsium.pipeline.workflows.compare.metrics.registry import (
    definitions,
    measure,
    metrics_for,
    row_schema,
    tables_text,
)
from collapsium.pipeline.workflows.compare.options import CompareOptions, shown
from collapsium.pipeline.workflows.compare.plots import Results, draw_plots
from collapsium.pipeline.workflows.compare.tables import SERIES, report_text, write_rows
from collapsium.pipeline.workflows.compare.targets import Target, target_of
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import CollapsiumError, OccupiedError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from collapsium.storage.io.run_lock import RunLock
from collapsium.storage.printable import ShortRepr
from collapsium.storage.runs.comparison import (
    CELL_KIND,
    CELLS,
    KIND,
    LIBRARIES_TEXT,
    RECORD,
    SERIES_FILE,
    SUFFIX,
    TABLE,
    TEXT,
    VERSION,
    cells_done,
    record_of,
    row_of,
    runs_there,
)

FLAGS = {"corpus": "CORPUS", "settings": "--set"}  # Flags of recorded options whose flag is not their name
# Options that records of version 0.1 lack, with the values that they stand for
ADDED: Mapping[str, Any] = {"metrics": [], "label_field": None}


@dataclass(frozen=True, repr=False)
class Comparison(ShortRepr):
    """Results of a comparison.

    Attributes
    ----------
    folder : str
        Folder of the comparison.
    rows : tuple of dict
        A row for each cell, as in ``table.parquet``. If a field is predicted, ``classified`` has a `Classification` as
        a dict, or None.
    baselines : tuple of dict
        A row for each fit of another library or a classifier.
    left_out : tuple of str
        Cells that could not be fitted, with the reason.
    plots : tuple of str
        Names of the plots, without suffix.
    tables : str
        The tables as Markdown.
    """

    folder: str
    rows: tuple[JsonObject, ...]
    baselines: tuple[JsonObject, ...]
    left_out: tuple[str, ...]
    plots: tuple[str, ...]
    tables: str


def run_comparison(
    corpus: Corpus, folder: Folder, options: CompareOptions, resources: Resources, sinks: Sequence[Sink]
) -> Comparison:
    """Fit and measure the remaining cells, and write tables and plots."""
    # All checks come before anything is written.
    require_comparable(corpus, options)
    target = target_of(corpus, options)
    cells = cells_of(options, len(corpus.manifest.shards))
    libraries = library_fits(options, target, resources)
    target.require()
    for metric in metrics_for(options):
        metric.require(target)
    cells = target.fields.variants(cells)
    resources.require()
    digest = target.scored.manifest.digest
    corpora = {"heldout": options.heldout, "unseen": options.unseen}
    digests = {name: None if url is None else digest for name, url in corpora.items()}
    is_new = _begin(folder, {**options.record(), "corpus": corpus.manifest.digest, **digests})
    with RunLock(folder / "lock") as lock:
        fenced = folder.fenced(lock)
        try:
            target.prepare(fenced)
            fitter = Fitter(fenced, target.train.url, target.heldout, options.seed, resources, sinks, lock.require)
            return _Runner(target, fitter).run(cells, [*libraries, *classifier_fits(options, target, fitter)])
        except CollapsiumError:
            if is_new and not cells_done(fenced) and not any(True for _ in runs_there(fenced)):
                fenced.remove()
            raise


def _begin(folder: Folder, record: Mapping[str, Any]) -> bool:
    """Write the record, or require the record of the comparison to continue; return whether it is new."""
    is_new = not folder.exists(RECORD)
    if is_new:
        if folder.exists() and folder.names():
            raise OccupiedError(f"{folder.url}: exists, and is not a comparison; name a new folder")
        folder.make()
        folder.create(RECORD, dump({"format": KIND, "version": VERSION, **record}))
    before = record_of(folder)
    for name, value in record.items():
        if before.get(name, ADDED.get(name)) != value:
            flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
            raise OptionError(
                f"{flag}: the comparison in {folder.url} was begun with {shown(before.get(name))}, found "
                f"{shown(value)}; name a new folder, or use the same value"
            )
    return is_new


class _Runner:
    """A running comparison, whose folder is locked."""

    def __init__(self, target: Target, fitter: Fitter) -> None:
        self._target, self._fitter, self._options = target, fitter, target.options
        self._folder = fitter.folder
        self._metrics = metrics_for(self._options)
        self._rows: list[JsonObject] = []
        self._baselines: list[JsonObject] = []
        self._left_out: list[str] = []

    def run(self, cells: Sequence[Cell], baselines: Sequence[Baseline]) -> Comparison:
        """Fit and measure all cells and baselines, and write tables and plots."""
        self._announce(cells, baselines)
        for cell in cells:
            self._note_prediction(cell)
            self._rows.append(self._recorded(cell.name) or self._fit_cell(cell, cells[0]))
            self._write_tables()
        for baseline in baselines:
            row = self._recorded(baseline.name) or self._fit_baseline(baseline)
            if row is not None:
                self._baselines.append(row)
                self._write_tables()
        if self._options.peers:
            self._write_library_report(cells)
        return self._finish(cells)

    def _announce(self, cells: Sequence[Cell], baselines: Sequence[Baseline]) -> None:
        """Report the number of cells, and of those done before."""
        done = [cell for cell in cells if self._recorded(cell.name) is not None]
        self._emit(
            "grid",
            cells=len(cells) + len(baselines),
            done=len(done) + sum(self._recorded(one.name) is not None for one in baselines),
            work=sum(cell.work for cell in cells),
            work_done=sum(cell.work for cell in done),
            baselines=len(baselines),
        )

    def _note_prediction(self, cell: Cell) -> None:
        """Report a cell that cannot predict the field."""
        field = self._options.field
        if field is not None and not self._target.fields.can_predict(cell):
            self._leave_out(f"{cell.name} does not use '{field}' and cannot predict it")

    def _fit_cell(self, cell: Cell, source: Cell) -> JsonObject:
        """Fit and measure a cell; warm starts are from the fits of the source."""
        self._emit("cell_begins", cell=cell.name, fits=cell.restarts, iterations=cell.iterations, work=cell.work)
        began = time.perf_counter()
        fits = self._fitter.fit_cell(cell, self._fitter.fits_of(source).urls if cell.warm else ())
        row = measure(self._metrics, fits, self._target, self._fitter.resources)
        self._record(cell.name, row)
        score = {"score": row["score"], "score_error": row["score_error"]}
        self._emit("cell_done", cell=cell.name, work=cell.work, elapsed=time.perf_counter() - began, **score)
        return row

    def _fit_baseline(self, baseline: Baseline) -> JsonObject | None:
        """Fit and score a baseline; return None if it cannot be fitted."""
        self._emit("cell_begins", cell=baseline.name, fits=1, iterations=baseline.iterations, work=0.0)
        began = time.perf_counter()
        try:
            row = baseline.measure()
        except BaselineError as error:
            self._leave_out(f"{baseline.name}: {error}")
            self._emit("cell_done", cell=baseline.name, work=0.0, elapsed=0.0)
            return None
        self._record(baseline.name, row)
        score = {"figures": {"macro F1": row["macro_f1"]}} if row["score"] is None else {"score": row["score"]}
        self._emit("cell_done", cell=baseline.name, work=0.0, elapsed=time.perf_counter() - began, **score)
        return row

    def _recorded(self, name: str) -> JsonObject | None:
        """Return the recorded row of a cell; None if it is not done."""
        return row_of(self._folder, name) if (self._folder / CELLS).exists(name + SUFFIX) else None

    def _record(self, name: str, row: JsonObject) -> None:
        self._fitter.require_lock()
        (self._folder / CELLS).write(name + SUFFIX, dump({"format": CELL_KIND, "version": VERSION, "row": row}))

    def _leave_out(self, text: str) -> None:
        self._left_out.append(text)
        self._emit("notice", text=f"left out: {text}")

    def _tables(self) -> str:
        return tables_text(self._metrics, self._rows, self._baselines)

    def _write_tables(self) -> None:
        """Write the tables of the results so far."""
        write_rows(self._folder, TABLE, self._rows, row_schema(self._metrics))
        for metric in self._metrics:
            for name, (rows, schema) in metric.further_tables([*self._rows, *self._baselines]).items():
                write_rows(self._folder, name, rows, schema)
        notes = definitions(self._metrics)
        text = report_text(self._target.title, self._target.about(), self._tables(), notes, self._left_out)
        self._folder.write(TEXT, text.encode())

    def _write_library_report(self, cells: Sequence[Cell]) -> None:
        """Write a report of the scores and topics of other libraries and the families."""
        runs = {cell.name: self._fitter.fits_of(cell).runs[0] for cell in cells}
        about = [*self._target.about(), *(f"Left out: {one}" for one in self._left_out)]
        self._folder.write(LIBRARIES_TEXT, library_report(self._rows, self._baselines, runs, about).encode())

    def _finish(self, cells: Sequence[Cell]) -> Comparison:
        """Write the series and plots of the complete grid, and return the results."""
        self._write_tables()
        series = [row for cell in cells for row in self._fitter.fits_of(cell).series()]
        write_rows(self._folder, SERIES_FILE, series, SERIES)
        results = Results(self._options, self._rows, self._baselines, series)
        plots = draw_plots(results, self._folder / "plots")
        if plots is None:
            self._emit("notice", text="no plots: matplotlib is not installed (pip install 'collapsium[plots]')")
        self._emit("compared", rows=len(self._rows), plots=len(plots or []))
        return Comparison(
            self._folder.url,
            tuple(self._rows),
            tuple(self._baselines),
            tuple(self._left_out),
            tuple(plots or []),
            self._tables(),
        )

    def _emit(self, name: str, **fields: object) -> None:
        emit(self._fitter.sinks, {"event": name, **fields})
