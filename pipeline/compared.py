"""What lies in the folder of a comparison: its record, what its cells came to, and their runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from collapsar.storage.errors import DamagedError
from collapsar.storage.folder import Folder
from collapsar.storage.records import read_record
from collapsar.storage.run import Run

RECORD, KIND, CELL_KIND, VERSION = "compare.json", "collapsar-comparison", "collapsar-comparison-cell", 2
CELLS, RUNS, SUFFIX = "cells", "runs", ".json"
PARTS = ("train", "heldout")  # corpora that the comparison has split off


def record_of(folder: Folder) -> dict[str, Any]:
    """Read what a comparison was asked for.

    Parameters
    ----------
    folder : Folder
        The comparison's.

    Returns
    -------
    dict
        The fields of `collapsar.pipeline.grid.Asked`, and the corpora's digests.

    Raises
    ------
    AbsentError
        There is no comparison.
    DamagedError
        The file is no such record.
    """
    return read_record(folder, RECORD, KIND, VERSION, oldest=2)


def cells_done(folder: Folder) -> list[str]:
    """Name the cells that are done, in order of their names.

    Parameters
    ----------
    folder : Folder
        The comparison's.

    Returns
    -------
    list of str
        Names, such as ``lda-40``.
    """
    return [name.removesuffix(SUFFIX) for name in (folder / CELLS).names() if name.endswith(SUFFIX)]


def row_of(folder: Folder, name: str) -> dict[str, Any]:
    """Read the record of a cell that is done.

    Parameters
    ----------
    folder : Folder
        The comparison's.
    name : str
        The cell's.

    Returns
    -------
    dict
        Its row.

    Raises
    ------
    DamagedError
        The file is no such record.
    """
    cells = folder / CELLS
    row = read_record(cells, name + SUFFIX, CELL_KIND, VERSION, oldest=2).get("row")
    if not isinstance(row, dict) or "score" not in row:
        raise DamagedError(f"{cells.url}/{name}{SUFFIX}", "expected what a cell came to", "field 'row'")
    return row


def runs_there(folder: Folder) -> Iterator[Run]:
    """Find the runs of a comparison: one for a cell or, where they begin from others, one for each of its fits.

    Parameters
    ----------
    folder : Folder
        The comparison's.

    Yields
    ------
    Run
        Each run that has a record.
    """
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
