"""Tables of comparisons, as Parquet and as Markdown."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from collapsium.pipeline.workflows.compare.grid import RANDOM
from collapsium.storage.io.folder import Folder

Row = Mapping[str, Any]
Rows = Sequence[Row]

# Fields that identify the cell of a row
CELL_FIELDS = {
    **dict.fromkeys(("cell", "family", "start"), pa.string()),
    **dict.fromkeys(("topics", "restarts", "iterations", "samples"), pa.int32()),
    "options": pa.string(),
}
# The progress of the fits, with a row for each cell, restart and iteration
SERIES = pa.schema(
    {
        **dict.fromkeys(("cell", "family", "start"), pa.string()),
        **dict.fromkeys(("topics", "restart", "iteration"), pa.int32()),
        **dict.fromkeys(("steps", "seconds", "score", "objective", "topics_99"), pa.float64()),
    }
)


def write_rows(folder: Folder, name: str, rows: Rows, schema: pa.Schema) -> None:
    """Write rows as a Parquet file, atomically; fields that the schema lacks are left out."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), sink)
    folder.write(name, sink.getvalue())


class Column(NamedTuple):
    """A column of a Markdown table: its head, and the text of a row's cell; numbers are aligned to the right."""

    head: str
    text: Callable[[Row], str]
    number: bool = True


def text_column(head: str, field: str) -> Column:
    """Return a column of texts."""
    return Column(head, lambda row: str(row[field]), number=False)


def number_column(head: str, field: str, form: str, error: str | None = None) -> Column:
    """Return a column of numbers in a format, with the standard errors that the field `error` has."""
    return Column(head, lambda row: number_text(row[field], form, row[error] if error is not None else None))


def label_of(row: Row, *, topics: bool = True) -> str:
    """Return the label of a fit: its family or baseline, K if `topics`, and its start unless it is random."""
    count = f", K = {row['topics']}" if topics and row["topics"] is not None else ""
    return str(row.get("family") or row["baseline"]) + count + ("" if row["start"] == RANDOM else f", {row['start']}")


def iterations_text(row: Row) -> str:
    """Return the numbers of iterations and of averaged samples of a fit, as text."""
    return f"{row['iterations']}" + (f", {row['samples']} samples" if row["samples"] else "")


def number_text(value: float | None, form: str, error: float | None = None) -> str:
    """Return a formatted number with its standard error, if it has one; an empty text for None."""
    if value is None:
        return ""
    return format(value, form) + ("" if error is None else f" ± {error:{form}}")


# Columns that identify the cell of a row
CELL_COLUMNS = (
    text_column("family", "family"),
    text_column("start", "start"),
    number_column("K", "topics", "d"),
    number_column("restarts", "restarts", "d"),
    Column("iterations", iterations_text),
)


def table_lines(columns: Sequence[Column], rows: Iterable[Row]) -> list[str]:
    """Return the lines of a Markdown table."""
    body = [[column.text(row) for column in columns] for row in rows]
    rule = ["---:" if column.number else "---" for column in columns]
    return [f"| {' | '.join(cells)} |" for cells in ([column.head for column in columns], rule, *body)]


def report_text(title: str, about: Sequence[str], tables: str, notes: str, left_out: Sequence[str]) -> str:
    """Return a report as Markdown: the comparison, its tables, their definitions, and cells left out."""
    missing = "".join(f"* Left out: {one}\n" for one in left_out)
    return "\n\n".join([f"# {title}", *about, tables, notes + missing])
