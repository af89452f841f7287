"""Files in the folder of a comparison: its record, the results of its cells, and their runs."""

from __future__ import annotations

from collections.abc import Iterator

from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import check, read_record
from collapsium.storage.runs.comparison_records import CellRecord, ComparisonRecord
from collapsium.storage.runs.run import Run

RECORD, KIND, CELL_KIND, VERSION = "compare.json", "collapsium-comparison", "collapsium-comparison-cell", 3
TABLE, TEXT, SERIES_FILE, LIBRARIES_TEXT = "table.parquet", "table.md", "series.parquet", "peers.md"
CELLS, RUNS, SUFFIX = "cells", "runs", ".json"
REWRITE_HINT = "; the same `collapsium compare` writes it anew"
PARTS = ("train", "heldout")  # Folders of the corpora that the comparison has split off


def record_of(folder: Folder) -> JsonObject:
    """Read the record of a comparison: its options and the digests of its corpora."""
    try:
        record = read_record(folder, RECORD, KIND, VERSION, oldest=VERSION)
    except DamagedError as error:
        if error.where != "field 'version'":
            raise
        raise DamagedError(error.path, f"{error.expected}; compare again, into a new folder", error.where) from None
    check(ComparisonRecord, record, f"{folder.url}/{RECORD}")
    return record


def cells_done(folder: Folder) -> list[str]:
    """Return the names of the finished cells, such as ``lda-40``, in order."""
    return [name.removesuffix(SUFFIX) for name in (folder / CELLS).names() if name.endswith(SUFFIX)]


def row_of(folder: Folder, name: str) -> JsonObject:
    """Read the result of a finished cell."""
    cells = folder / CELLS
    try:
        record = read_record(cells, name + SUFFIX, CELL_KIND, VERSION, oldest=VERSION)
        check(CellRecord, record, f"{cells.url}/{name}{SUFFIX}")
    except DamagedError as error:
        hint = f"{error.expected}; remove the file, and the cell is measured again"
        raise DamagedError(error.path, hint, error.where) from None
    row: JsonObject = record["row"]
    return row


def runs_there(folder: Folder) -> Iterator[Run]:
    """Yield the runs of a comparison that have a record: one for each cell or, with warm starts, for each fit."""
    runs = folder / RUNS
    for cell in runs.names():
        run = Run((runs / cell).url)
        if run.exists():
            yield run
            continue
        for number in (runs / cell).names():
            fit = Run((runs / cell / number).url)
            if fit.exists():
                yield fit
