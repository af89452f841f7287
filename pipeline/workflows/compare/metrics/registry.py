"""The metrics of each kind of comparison, and the rows, tables and definitions that they give."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa

from collapsium.pipeline.analysis.labels.candidates import candidates_of
from collapsium.pipeline.analysis.labels.classification import Classification, classify
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.workflows.compare.fits import CellFits, Resources
from collapsium.pipeline.workflows.compare.metrics.base import Metric
from collapsium.pipeline.workflows.compare.metrics.scores import DocumentCompletion, LabelsOnlyScore
from collapsium.pipeline.workflows.compare.metrics.topics import FitFigures, TopicMetrics, TopicQuality
from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.pipeline.workflows.compare.tables import (
    CELL_COLUMNS,
    CELL_FIELDS,
    Column,
    Row,
    Rows,
    label_of,
    number_column,
    number_text,
    table_lines,
)
from collapsium.pipeline.workflows.compare.targets import Target
from collapsium.storage.data_types import JsonObject
from collapsium.storage.runs.members import leaves

# Figures of each class, with a row for each cell and value of the field
CLASSES = pa.schema(
    {
        **dict.fromkeys(("cell", "field", "value"), pa.string()),
        **dict.fromkeys(("precision", "recall", "f1"), pa.float64()),
        "support": pa.int64(),
    }
)
SHOWN_CLASSES = 12  # Number of classes whose F1 the report shows


def classification_fields(classification: Classification) -> JsonObject:
    """Return the fields of a row: figures, and ``classified``, the complete classification for JSON."""
    record = {name: value for name, value in asdict(classification).items() if name != "definition"}
    figures = {
        "accuracy": classification.accuracy,
        "macro_f1": classification.macro_f1,
        "micro_f1": classification.micro_f1,
    }
    return {**figures, "classified": json.loads(json.dumps(record))}


class FieldPrediction(Metric):
    """Accuracy and F1 of a field's prediction."""

    fields = dict.fromkeys(("accuracy", "macro_f1", "micro_f1", "predict_seconds"), pa.float64())
    definition = """\
* Families predict the value, among all values in training, under which a document's perplexity given its labels is
  lowest; its other labels stay. lda-svm: a linear support vector machine on the proportions of LDA, which is fitted
  without labels, and on the other labels (as 1) and covariates (standardised). naive-bayes and tree: on word counts.
  svm: linear, on TF-IDF. slda: tomotopy's supervised LDA on words, with a linear response rounded to the nearest class,
  or a binary response for each class.
* Parameters are tuned by macro F1 on a random tenth of the training documents; the classifier is then fitted to all.
  Classifiers learn from training documents with exactly one value. Families are not tuned.
* **Accuracy**: the share of correct predictions, over the unseen documents with words and a value; a prediction is
  correct if it is one of the document's values. **F1** is over documents with exactly one value; **micro F1** is their
  accuracy, **macro F1** the mean over values.
* **Seconds**: time to fit (for families see above; for classifiers including tuning, for lda-svm including LDA) and to
  predict; for classifiers the sum of both.
"""

    def measure(self, fits: CellFits, target: Target, resources: Resources) -> JsonObject:
        """Return the figures of the fits' mean prediction; None for families that cannot predict the field."""
        field, unseen = target.fields.target, target.scored
        if field is None or not target.fields.can_predict(fits.cell):
            return dict.fromkeys((*self.fields, "classified"))
        named = [(name, Model(url)) for name, url in leaves(fits.folder.url)]
        with resources.scoring() as executor:
            began = time.perf_counter()
            candidates = candidates_of(named[0][1], unseen, field)
            classification = classify(named, unseen, candidates, executor, target.options.seed)
            seconds = time.perf_counter() - began
        return {**classification_fields(classification), "predict_seconds": seconds}

    def further_lines(self, rows: Rows, baselines: Rows) -> list[str]:
        """Return a table of all families and classifiers that predict the field."""
        predicting = [row for row in (*rows, *baselines) if row["classified"]]
        if not predicting:
            return []
        support: dict[str, int] = {}
        for one in _class_rows(predicting):
            support[one["value"]] = max(support.get(one["value"], 0), one["support"])
        shown = sorted(sorted(support, key=lambda value: -support[value])[:SHOWN_CLASSES])
        columns = (
            Column("", label_of, number=False),
            number_column("accuracy", "accuracy", ".3f"),
            number_column("macro F1", "macro_f1", ".3f"),
            number_column("micro F1", "micro_f1", ".3f"),
            *(_f1_column(value) for value in shown),
            number_column("seconds to fit", "seconds", ".1f"),
            number_column("to predict", "predict_seconds", ".1f"),
            Column("tuned", _tuned, number=False),
        )
        lines = ["## Classification", "", *table_lines(columns, predicting)]
        if len(support) > SHOWN_CLASSES:
            note = f"F1 of the {SHOWN_CLASSES} most frequent values; classes.parquet has all {len(support)}."
            lines += ["", note]
        return lines

    def further_tables(self, rows: Rows) -> dict[str, tuple[Rows, pa.Schema]]:
        """Return a table of the figures of each class."""
        return {"classes.parquet": (_class_rows(rows), CLASSES)}


def _class_rows(rows: Rows) -> list[JsonObject]:
    """Return a row for each class of each row with a classification."""
    return [
        {"cell": row["cell"], "field": row["classified"]["field"], **one, "value": _value_text(one["value"])}
        for row in rows
        if row["classified"]
        for one in row["classified"]["classes"]
    ]


def _value_text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _f1_column(value: str) -> Column:
    def text(row: Row) -> str:
        f1 = {_value_text(one["value"]): one["f1"] for one in row["classified"]["classes"]}
        return number_text(f1.get(value), ".3f")

    # Values are arbitrary texts and must not break the table.
    printable = "".join(one if one.isprintable() else " " for one in value).replace("|", "/")
    return Column(f"F1 of {printable}", text)


def _tuned(row: Row) -> str:
    return ", ".join(f"{name} = {value}" for name, value in (row.get("tuned") or {}).items())


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
