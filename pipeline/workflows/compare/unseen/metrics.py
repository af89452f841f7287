"""What a comparison on unseen documents came to: a row a cell, a row a class, and the tables of it all."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from collapsium.pipeline.analysis.labels.candidates import candidates_of
from collapsium.pipeline.analysis.labels.classification import Classification, classify
from collapsium.pipeline.analysis.labels.conditional import score_given
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.workflows.compare import tables
from collapsium.pipeline.workflows.compare.cells import RANDOM
from collapsium.pipeline.workflows.compare.grid import Cell
from collapsium.pipeline.workflows.compare.metrics import spent
from collapsium.pipeline.workflows.compare.tables import Row
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.members import leaves

CLASSIFIED = ("accuracy", "macro_f1", "micro_f1", "predict_seconds")
ROW = tables.row_schema(
    [
        *((name, pa.int64()) for name in ("documents", "labelled", "unknown")),
        *((name, pa.float64()) for name in CLASSIFIED),
    ]
)
CLASSES = pa.schema(
    [
        *((name, pa.string()) for name in ("cell", "field", "value")),
        *((name, pa.float64()) for name in ("precision", "recall", "f1")),
        ("support", pa.int64()),
    ]
)
SHOWN = 12  # classes whose F1 the table has
DEFINITIONS = """\
* **Score**: given labels alone, the mean over all tokens of the unseen documents of log sum_k theta_dk phi_kw, in nats,
  theta_d being what the document's labels and numbers let one expect; no word of it is looked at. (40) of Kim and Oh
  (2017). Families that take no labels have their prior's. Labels that training did not have count as missing. Told are
  the mean over the restarts and its standard error, s / sqrt(R). **Perplexity**: exp(-score), lower is better; the best
  of each family is in bold. **Ensemble**: the score of the mean of the predictions of all restarts and samples.
* **Objective**: the family's own at the last iteration, in nats; those of different families are not comparable.
* **Seconds**: of a fit, the mean over the restarts: kernels, sums and updates of all iterations as if all workers had
  worked on it. **Topics (99%)**: how many of the largest topics hold 99% of the training tokens, likewise.
"""
CLASS_DEFINITIONS = """\
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


def measure_unseen(
    cell: Cell, place: Folder, unseen: Corpus, field: str | None, executor: Executor, seed: int
) -> dict[str, Any]:
    """Measure a cell whose fits are all at their ends on unseen documents.

    Parameters
    ----------
    cell : Cell
        The cell.
    place : Folder
        Where its runs lie.
    unseen : Corpus
        The documents.
    field : str or None
        What to predict; None where the family cannot.
    executor : Executor
        Who does the work.
    seed : int
        For families that draw random numbers.

    Returns
    -------
    dict
        A row of the table, and ``classified``, a `Classification` as a dict, or None.
    """
    named = [(name, Model(url)) for name, url in leaves(place.url)]
    together = score_given(named, unseen, executor, seed)
    scores = [one.score for one in together.members] or [together.score]
    if cell.limits.get("samples"):
        own = [[one for one in named if one[0].partition("/")[0] == f"{r:03d}"] for r in range(cell.restarts)]
        scores = [score_given(each, unseen, executor, seed).score for each in own]
    found = {
        **spent(cell, place),
        **tables.summarise_scores(scores, together.score),
        "documents": together.documents,
        "labelled": together.labelled,
        "unknown": together.unknown,
        **dict.fromkeys((*CLASSIFIED, "classified")),
    }
    if field is not None:
        began = time.perf_counter()
        candidates = candidates_of(named[0][1], unseen, field)
        found.update(told_of(classify(named, unseen, candidates, executor, seed)))
        found["predict_seconds"] = time.perf_counter() - began
    return found


def told_of(found: Classification) -> dict[str, Any]:
    """Return what a row has of a classification.

    Parameters
    ----------
    found : Classification
        How well a field was predicted.

    Returns
    -------
    dict
        ``accuracy``, ``macro_f1``, ``micro_f1`` and ``classified``, all of it as JSON has it.
    """
    record = {name: value for name, value in asdict(found).items() if name != "definition"}
    figures = {"accuracy": found.accuracy, "macro_f1": found.macro_f1, "micro_f1": found.micro_f1}
    return {**figures, "classified": json.loads(json.dumps(record))}


def name_of(row: Row) -> str:
    """Return the label of a row; classifiers' names have K already."""
    return tables.label_of(row, topics="family" in row)


def best_of(rows: Sequence[Row]) -> dict[str, Row]:
    """Return the row of each family whose perplexity is lowest."""
    found: dict[str, Row] = {}
    for row in rows:
        if row["family"] not in found or row["perplexity"] < found[row["family"]]["perplexity"]:
            found[row["family"]] = row
    return found


def class_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a row a model and class, of all that classified."""
    return [
        {"cell": row["cell"], "field": row["classified"]["field"], **one, "value": _value(one["value"])}
        for row in rows
        if row["classified"]
        for one in row["classified"]["classes"]
    ]


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def text_of(rows: Sequence[Row], others: Sequence[Row], left_out: Sequence[str], about: Sequence[str] = ()) -> str:
    """Return the tables as Markdown, with the definitions under them.

    Parameters
    ----------
    rows : sequence of mapping
        As `measure_unseen` made them.
    others : sequence of mapping
        Of classifiers.
    left_out : sequence of str
        What there is to say of what is not in them.
    about : sequence of str, optional
        What was compared, a paragraph each.

    Returns
    -------
    str
        The text.
    """
    parts: list[str] = []
    if rows:
        parts += ["## Perplexity given labels", "", *_perplexities(rows), "", _best(rows), ""]
    if any(row["classified"] for row in (*rows, *others)):
        parts += ["## Classification", "", *_classifications([*rows, *others]), ""]
    notes = (DEFINITIONS if rows else "") + (CLASS_DEFINITIONS if others or "## Classification" in parts else "")
    return tables.report_text("Comparison on unseen documents", about, parts, notes, left_out)


def _best(rows: Sequence[Row]) -> str:
    falling = sorted(best_of(rows).values(), key=lambda row: float(row["perplexity"]))
    return "Best of each family: " + "; ".join(f"{name_of(row)}: {row['perplexity']:.1f}" for row in falling) + "."


def _perplexities(rows: Sequence[Row]) -> list[str]:
    best = {row["cell"] for row in best_of(rows).values()}

    def perplexity(row: Row) -> str:
        bold = "**" if row["cell"] in best else ""
        return f"{bold}{row['perplexity']:.1f}{bold}"

    columns = (
        tables.FAMILY,
        tables.Column("variant", lambda row: "" if row["start"] == RANDOM else str(row["start"]), number=False),
        tables.TOPICS,
        tables.RESTARTS,
        tables.ITERATIONS,
        tables.Column("perplexity", perplexity),
        tables.SCORE,
        tables.ENSEMBLE,
        tables.figure("objective", "objective", ",.0f"),
        tables.SECONDS,
        tables.TOPICS_99,
    )
    return tables.table_lines(columns, rows)


def _classifications(rows: Sequence[Row]) -> list[str]:
    able = [row for row in rows if row["classified"]]
    support: dict[str, int] = {}
    for one in class_rows(able):
        support[one["value"]] = max(support.get(one["value"], 0), one["support"])
    shown = sorted(sorted(support, key=lambda value: -support[value])[:SHOWN])
    columns = [
        tables.Column("", name_of, number=False),
        tables.figure("accuracy", "accuracy", ".3f"),
        tables.figure("macro F1", "macro_f1", ".3f"),
        tables.figure("micro F1", "micro_f1", ".3f"),
        *(_class_f1(value) for value in shown),
        tables.figure("seconds to fit", "seconds", ".1f"),
        tables.figure("to predict", "predict_seconds", ".1f"),
        tables.Column("tuned", _tuned, number=False),
    ]
    lines = tables.table_lines(columns, able)
    if len(support) > SHOWN:
        lines += ["", f"F1 of the {SHOWN} values of most documents; classes.parquet has all {len(support)}."]
    return lines


def _class_f1(value: str) -> tables.Column:
    def text(row: Row) -> str:
        f1 = {_value(one["value"]): one["f1"] for one in row["classified"]["classes"]}
        return tables.number_text(f1.get(value), ".3f")

    return tables.Column(f"F1 of {_plain(value)}", text)


def _tuned(row: Row) -> str:
    return ", ".join(f"{name} = {value}" for name, value in (row.get("tuned") or {}).items())


def _plain(text: str) -> str:
    """Return a name that breaks no table."""
    return "".join(one if one.isprintable() else " " for one in text).replace("|", "/")
