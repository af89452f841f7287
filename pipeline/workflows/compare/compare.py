"""Compare families on a corpus: fit and measure each cell once, record the results, and continue where it stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.schedulers import MemoryOptions, SchedulerOptions, check_scheduler
from collapsium.pipeline.monitoring.events import Sink, emit
from collapsium.pipeline.options import keywords
from collapsium.pipeline.workflows.compare.fits import Corpora, Fitter, require_comparable
from collapsium.pipeline.workflows.compare.options import Cell, CompareOptions, cells_of, shown
from collapsium.pipeline.workflows.compare.table import (
    SERIES,
    draw_plot,
    measured_row,
    report_text,
    require_metrics,
    row_schema,
    table_text,
    write_rows,
)
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import CollapsiumError, OccupiedError, OptionError, flag_of
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from collapsium.storage.io.run_lock import RunLock
from collapsium.storage.printable import ShortRepr
from collapsium.storage.runs.comparison import (
    CELL_KIND,
    CELLS,
    KIND,
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
from collapsium.storage.units import parse_size
from collapsium.workers.options import former_names

FLAGS = {"corpus": "CORPUS", "settings": "--set"}  # Flags of recorded options whose flag is not their name
# Options that version 0.1 alone has and that changed what was fitted, with the values of comparisons without them
FORMER: Mapping[str, Any] = {"labels": [], "without": []}
# Options that some records lack, with the values that they stand for
ABSENT: Mapping[str, Any] = {**FORMER, "metrics": [], "label_field": None}


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
    left_out : tuple of str
        Figures of cells that could not be measured, with the reason.
    plots : tuple of str
        Names of the plots, without suffix.
    tables : str
        The table as Markdown.
    """

    folder: str
    rows: tuple[JsonObject, ...]
    left_out: tuple[str, ...]
    plots: tuple[str, ...]
    tables: str


@keywords(options=CompareOptions, scheduling=SchedulerOptions, memory=MemoryOptions)
def compare(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    options: CompareOptions,
    scheduling: SchedulerOptions,
    memory: MemoryOptions,
    tls: TLS | None = None,
    sinks: Sequence[Sink] = (),
) -> Comparison:
    """Compare families over numbers of topics and restarts, by held-out tokens or on unseen documents.

    With `unseen` no tokens are held out: families are compared by the perplexity of unseen documents given their
    labels. With `field` they are also compared by the prediction of that field. An interrupted comparison is continued
    by a call with the same options.

    Parameters
    ----------
    corpus : str or path-like
        Folder of the corpus.
    out : str or path-like
        Folder of the comparison, new or to be continued.
    options : CompareOptions
        Families, grid and held-out data.
    scheduling : SchedulerOptions
        The executor.
    memory : MemoryOptions
        Memory and scratch space.
    tls, sinks
        As for `fit`.

    Returns
    -------
    Comparison
        The results; the folder also has the series of all fits and a plot.

    Raises
    ------
    OptionError
        An option is invalid, or differs from that of the comparison to continue.
    MismatchError
        The corpora have different vocabularies or documents, or unseen documents are in the training corpus.
    LockedError
        Another process is working on the comparison.
    CollapsiumError
        As for `fit`.
    """
    # All checks come before anything is written.
    train, folder = Corpus(corpus), Folder(out)
    require_comparable(train, options)
    cells = cells_of(options, len(train.manifest.shards))
    corpora = Corpora(train, options)
    corpora.require(cells)
    require_metrics(options, corpora)
    check_scheduler(scheduling.scheduler, scheduling.workers)
    if memory.memory is not None:
        parse_size(memory.memory)
    digest = corpora.scored.manifest.digest
    scored = {"heldout": options.heldout, "unseen": options.unseen}
    digests = {name: None if url is None else digest for name, url in scored.items()}
    is_new = _begin(folder, {**options.record(), "corpus": train.manifest.digest, **digests})
    with RunLock(folder / "lock") as lock:
        fenced = folder.fenced(lock)
        try:
            corpora.prepare(fenced)
            execution = {**dict(scheduling), **dict(memory), "tls": tls}
            return _compare(cells, Fitter(fenced, corpora, execution, sinks, lock.require))
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
    for name, value in {**FORMER, **record}.items():
        if before.get(name, ABSENT.get(name)) != value:
            flag = FLAGS.get(name, flag_of(former_names(CompareOptions).get(name, name)))
            raise OptionError(
                f"{flag}: the comparison in {folder.url} was begun with {shown(before.get(name))}, found "
                f"{shown(value)}; name a new folder, or use the same value"
            )
    return is_new


def _compare(cells: Sequence[Cell], fitter: Fitter) -> Comparison:
    """Fit and measure the cells that are not done, and write the table, the series and the plot."""
    corpora, folder = fitter.corpora, fitter.folder
    options = corpora.options

    def report(event: str, **fields: object) -> None:
        emit(fitter.sinks, {"event": event, **fields})

    done = [cell for cell in cells if (folder / CELLS).exists(cell.name + SUFFIX)]
    work, work_done = (sum(cell.work for cell in some) for some in (cells, done))
    report("grid", cells=len(cells), done=len(done), work=work, work_done=work_done)
    rows: list[JsonObject] = []
    left_out: list[str] = []
    for cell in cells:
        if options.field is not None and not corpora.can_predict(cell):
            left_out.append(f"{cell.name} does not use '{options.field}' and cannot predict it")
            report("notice", text=f"left out: {left_out[-1]}")
        if cell in done:
            rows.append(row_of(folder, cell.name))
        else:
            report("cell_begins", cell=cell.name, fits=cell.restarts, iterations=cell.iterations, work=cell.work)
            began = time.perf_counter()
            rows.append(measured_row(fitter.fit(cell, fitter.fits_of(cells[0]).urls if cell.warm else ()), fitter))
            fitter.require_lock()
            record = {"format": CELL_KIND, "version": VERSION, "row": rows[-1]}
            (folder / CELLS).write(cell.name + SUFFIX, dump(record))
            score = {name: rows[-1][name] for name in ("score", "score_error")}
            report("cell_done", cell=cell.name, work=cell.work, elapsed=time.perf_counter() - began, **score)
        write_rows(folder, TABLE, rows, row_schema(options))
        folder.write(TEXT, report_text(corpora, rows, left_out).encode())
    series = [row for cell in cells for row in fitter.fits_of(cell).series()]
    write_rows(folder, SERIES_FILE, series, SERIES)
    plots = draw_plot(rows, folder / "plots", given_labels=options.unseen is not None)
    if plots is None:
        report("notice", text="no plots: matplotlib is not installed (pip install 'collapsium[plots]')")
    report("compared", rows=len(rows), plots=len(plots or ()))
    return Comparison(folder.url, tuple(rows), tuple(left_out), tuple(plots or ()), table_text(options, rows))
