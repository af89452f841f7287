"""Check the tables of a finished comparison."""

from __future__ import annotations

import io

import pyarrow as pa

from collapsium.storage.errors import CollapsiumError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.parquet.bounded_file import BoundedFile
from collapsium.storage.runs.comparison import REWRITE_HINT, SERIES_FILE, TABLE, cells_done, row_of


def table_faults(folder: Folder) -> list[str]:
    """Return the faults of the tables of a finished comparison, each beginning with the file."""
    # This file is written last.
    if not folder.exists(SERIES_FILE):
        return []
    done = [name for name in cells_done(folder) if "baseline" not in row_of(folder, name)]
    faults = []
    for name in (TABLE, SERIES_FILE):
        path = f"{folder.url}/{name}"
        try:
            present = set(BoundedFile(io.BytesIO(folder.read(name))).table(["cell"])["cell"].to_pylist())
        except (CollapsiumError, pa.ArrowException, OSError, ValueError, KeyError) as error:
            faults.append(f"{path}: {str(error).splitlines()[0]}{REWRITE_HINT}")
            continue
        missing = [cell for cell in done if cell not in present]
        faults += [f"{path}: has nothing of {missing[0]}{REWRITE_HINT}"] if missing else []
    return faults
