"""Classification: how well a field of unseen documents is predicted, by families and by classifiers beside them."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from collapsium.pipeline.analysis.labels.candidates import candidates_of
from collapsium.pipeline.analysis.labels.classification import Classification, classify
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.workflows.compare.fits import CellFits, Resources
from collapsium.pipeline.workflows.compare.metrics.base import Metric
from collapsium.pipeline.workflows.compare.tables import (
    Column,
    Row,
    Rows,
    label_of,
    number_column,
    number_text,
    table_lines,
)
from collapsium.pipeline.workflows.compare.targets import Target
from collapsium.storage.runs.members import leaves

CLASSES = pa.schema(
    {
        **dict.fromkeys(("cell", "field", "value"), pa.string()),
        **dict.fromkeys(("precision", "recall", "f1"), pa.float64()),
        "support": pa.int64(),
    }
)
"""Figures of each class, a row a cell and value of the field."""
SHOWN_CLASSES = 12
"""Classes whose F1 the report shows."""


def classification_fields(classification: Classification) -> dict[str, Any]:
    """Return the fields of a row on a classification: its figures, and ``classified``, all of it as JSON has it."""
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
* Families choose, of all values that training had, the one under which a document's perplexity given labels is lowest,
  its other labels staying as they are. lda-svm: a linear support vector machine on the proportions that LDA, fitted
  without labels, gives, and on the other labels (1 of each) and numbers (standardised). naive-bayes and tree: on counts
  of words; svm: linear, on TF-IDF. slda: tomotopy's supervised LDA on words, a linear response put to the nearest class
  or a binary one of each.
* What is tuned was chosen by macro F1 on a tenth of the training documents, drawn by place; then all are fitted.
  Classifiers learn from training documents with exactly one value. Families are not tuned.
* **Accuracy**: the share of the unseen documents with a value and a word whose prediction is among their values.
  **F1** over those with exactly one value, where **micro F1** is their accuracy; **macro F1**: the mean over values.
* **Seconds**: to fit (of families see above; of classifiers with their tuning, of lda-svm with LDA's) and to predict;
  of classifiers both together.
"""

    def measure(self, fits: CellFits, target: Target, resources: Resources) -> dict[str, Any]:
        """Return the figures of the mean prediction of all fits; None for families that cannot predict the field."""
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
        """Return a table of all that predict the field, families and classifiers."""
        able = [row for row in (*rows, *baselines) if row["classified"]]
        if not able:
            return []
        support: dict[str, int] = {}
        for one in _class_rows(able):
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
        lines = ["## Classification", "", *table_lines(columns, able)]
        if len(support) > SHOWN_CLASSES:
            more = f"F1 of the {SHOWN_CLASSES} values of most documents; classes.parquet has all {len(support)}."
            lines += ["", more]
        return lines

    def further_tables(self, rows: Rows) -> dict[str, tuple[Rows, pa.Schema]]:
        """Return a table of the figures of each class."""
        return {"classes.parquet": (_class_rows(rows), CLASSES)}


def _class_rows(rows: Rows) -> list[dict[str, Any]]:
    """Return a row a model and class, of all that classified."""
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

    # A value may be any text; none may break the table.
    printable = "".join(one if one.isprintable() else " " for one in value).replace("|", "/")
    return Column(f"F1 of {printable}", text)


def _tuned(row: Row) -> str:
    return ", ".join(f"{name} = {value}" for name, value in (row.get("tuned") or {}).items())
