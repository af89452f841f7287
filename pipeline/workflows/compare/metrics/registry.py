"""The metrics of each kind of comparison, and the rows, tables and definitions that they give."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from collapsium.pipeline.workflows.compare.fits import CellFits, Resources
from collapsium.pipeline.workflows.compare.metrics.base import Metric
from collapsium.pipeline.workflows.compare.metrics.classification import FieldPrediction
from collapsium.pipeline.workflows.compare.metrics.scores import DocumentCompletion, LabelsOnlyScore
from collapsium.pipeline.workflows.compare.metrics.topics import FitFigures, TopicMetrics, TopicQuality
from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.pipeline.workflows.compare.tables import CELL_COLUMNS, CELL_FIELDS, Rows, table_lines
from collapsium.pipeline.workflows.compare.targets import Target
from collapsium.storage.data_types import JsonObject


def metrics_for(options: CompareOptions) -> tuple[Metric, ...]:
    """Return the metrics of a comparison, in the order of their columns."""
    metrics: tuple[Metric, ...] = LabelsOnlyScore(), FitFigures()
    if options.unseen is None:
        metrics = DocumentCompletion(), FitFigures(), TopicQuality()
    elif options.field is not None:
        metrics = *metrics, FieldPrediction()
    if not options.metrics:
        return metrics
    return *metrics, TopicMetrics(options, [name for metric in metrics for name in metric.fields])


def row_schema(metrics: Sequence[Metric]) -> pa.Schema:
    """Return the schema of the table of cells."""
    fields = dict(CELL_FIELDS)
    for metric in metrics:
        fields.update(metric.fields)
    return pa.schema(fields)


def measure(metrics: Sequence[Metric], fits: CellFits, target: Target, resources: Resources) -> JsonObject:
    """Return the row of a cell with completed fits: the fields of `row_schema`, and further recorded figures."""
    cell = fits.cell
    row: JsonObject = {
        "cell": cell.name,
        "family": cell.family,
        "start": cell.start,
        "topics": cell.topics,
        "restarts": cell.restarts,
        "iterations": cell.iterations,
        "samples": int(cell.limits.get("samples", 0)),
        "options": json.dumps({**cell.options, **cell.limits}, sort_keys=True),
    }
    for metric in metrics:
        row.update(metric.measure(fits, target, resources))
    return row


def tables_text(metrics: Sequence[Metric], rows: Rows, baselines: Rows) -> str:
    """Return the table of cells as Markdown, with further lines of the metrics below it."""
    columns = [*CELL_COLUMNS, *(column for metric in metrics for column in metric.columns(rows))]
    parts = [table_lines(columns, rows), *(metric.further_lines(rows, baselines) for metric in metrics)]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def definitions(metrics: Sequence[Metric]) -> str:
    """Return the definitions of the figures, as a Markdown list."""
    return "".join(metric.definition for metric in metrics)
