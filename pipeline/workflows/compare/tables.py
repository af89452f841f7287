"""Tables of comparisons: the columns that all of them have, as Parquet and as Markdown."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from collapsium.pipeline.workflows.compare.cells import RANDOM
from collapsium.storage.io.folder import Folder

Row = Mapping[str, Any]


def row_schema(measures: Iterable[tuple[str, pa.DataType]]) -> pa.Schema:
    """Return the schema of a table of cells: what all comparisons tell, and the measures of one kind of comparison."""
    return pa.schema(
        [
            *((name, pa.string()) for name in ("cell", "family", "start")),
            *((name, pa.int32()) for name in ("topics", "restarts", "iterations", "samples")),
            *((name, pa.float64()) for name in ("score", "score_error", "ensemble_score", "perplexity")),
            *((name, pa.float64()) for name in ("objective", "objective_error", "seconds", "cell_seconds")),
            ("topics_99", pa.float64()),
            *measures,
            ("scores", pa.list_(pa.float64())),
            ("options", pa.string()),
        ]
    )


def write_rows(folder: Folder, name: str, rows: Sequence[Row], schema: pa.Schema) -> None:
    """Write rows as a Parquet file, whole."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), sink)
    folder.write(name, sink.getvalue())


def summarise_scores(scores: Sequence[float], ensemble: float) -> dict[str, Any]:
    """Return what a row tells of the scores of restarts and of their mean prediction, in nats a token."""
    score = statistics.fmean(scores)
    return {
        "score": score,
        "score_error": standard_error(scores),
        "ensemble_score": ensemble,
        "perplexity": math.exp(-score),
        "scores": scores,
    }


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of the mean of some values; None of one."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def label_of(row: Row, *, topics: bool = True) -> str:
    """Return the label of a fit: its family or library, K if `topics`, and how its start or options differ."""
    count = f", K = {row['topics']}" if topics and row["topics"] is not None else ""
    return str(row.get("family") or row["peer"]) + count + ("" if row["start"] == RANDOM else f", {row['start']}")


def iterations_text(row: Row) -> str:
    """Return how many iterations a fit has had, and of how many samples predictions are averaged."""
    return f"{row['iterations']}" + (f", {row['samples']} samples" if row["samples"] else "")


def number_text(value: float | None, form: str, error: float | None = None) -> str:
    """Return a number in a format, with its standard error where there is one; nothing for None."""
    if value is None:
        return ""
    return format(value, form) + ("" if error is None else f" ± {error:{form}}")


class Column(NamedTuple):
    """A column of a Markdown table: its head, and the text of a row's cell; numbers stand at the right."""

    head: str
    text: Callable[[Row], str]
    number: bool = True


def figure(head: str, field: str, form: str, error: str | None = None) -> Column:
    """Return a column of numbers in a format, with the standard errors that the field `error` has."""
    return Column(head, lambda row: number_text(row[field], form, row[error] if error is not None else None))


FAMILY = Column("family", lambda row: str(row["family"]), number=False)
TOPICS = figure("K", "topics", "d")
RESTARTS = figure("restarts", "restarts", "d")
ITERATIONS = Column("iterations", iterations_text)
SCORE = figure("score", "score", ".4f", "score_error")
ENSEMBLE = figure("ensemble", "ensemble_score", ".4f")
PERPLEXITY = figure("perplexity", "perplexity", ".1f")
SECONDS = figure("seconds a fit", "seconds", ".2f")
TOPICS_99 = figure("topics (99%)", "topics_99", ".1f")


def table_lines(columns: Sequence[Column], rows: Iterable[Row]) -> list[str]:
    """Return the lines of a Markdown table."""
    body = [[column.text(row) for column in columns] for row in rows]
    rule = ["---:" if column.number else "---" for column in columns]
    return [f"| {' | '.join(cells)} |" for cells in ([column.head for column in columns], rule, *body)]


def report_text(title: str, about: Sequence[str], parts: Sequence[str], notes: str, left_out: Sequence[str]) -> str:
    """Return a report as Markdown: what was compared, the tables' lines, their definitions, and what is left out."""
    before = [line for one in about for line in (one, "")]
    missing = "".join(f"* Left out: {one}\n" for one in left_out)
    return "\n".join([f"# {title}", "", *before, *parts, notes + missing])
