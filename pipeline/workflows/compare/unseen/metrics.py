"""What a comparison on unseen documents came to: a row a cell, a row a class, and the tables of it all."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from collapsium.pipeline.analysis.labels.candidates import candidates_of
from collapsium.pipeline.analysis.labels.classification import Classification, classify
from collapsium.pipeline.analysis.labels.conditional import score_given
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.workflows.compare.cells import RANDOM
from collapsium.pipeline.workflows.compare.grid import Cell
from collapsium.pipeline.workflows.compare.metrics import error_of, line_of, spent
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.members import leaves

CLASSIFIED = ("accuracy", "macro_f1", "micro_f1", "predict_seconds")
ROW = pa.schema(
    [
        *((name, pa.string()) for name in ("cell", "family", "start")),
        *((name, pa.int32()) for name in ("topics", "restarts", "iterations", "samples")),
        *((name, pa.float64()) for name in ("score", "score_error", "ensemble_score", "perplexity")),
        *((name, pa.float64()) for name in ("objective", "objective_error", "seconds", "cell_seconds", "topics_99")),
        *((name, pa.int64()) for name in ("documents", "labelled", "unknown")),
        *((name, pa.float64()) for name in CLASSIFIED),
        ("scores", pa.list_(pa.float64())),
        ("options", pa.string()),
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

Row = Mapping[str, Any]


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
    score = statistics.fmean(scores)
    found = {
        **spent(cell, place),
        "score": score,
        "score_error": error_of(scores),
        "ensemble_score": together.score,
        "perplexity": math.exp(-score),
        "documents": together.documents,
        "labelled": together.labelled,
        "unknown": together.unknown,
        "scores": scores,
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
    """Return how a row is called: its family, K and what varies, or a classifier by its name."""
    if "family" not in row:
        return str(row["peer"]) + ("" if row["start"] == RANDOM else f", {row['start']}")
    topics = "" if row["topics"] is None else f", K = {row['topics']}"
    return str(row["family"]) + topics + ("" if row["start"] == RANDOM else f", {row['start']}")


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
    parts = ["# Comparison on unseen documents", "", *(line for one in about for line in (one, ""))]
    if rows:
        parts += ["## Perplexity given labels", "", *_perplexities(rows), "", _best(rows), ""]
    if any(row["classified"] for row in (*rows, *others)):
        parts += ["## Classification", "", *_classifications([*rows, *others]), ""]
    notes = (DEFINITIONS if rows else "") + (CLASS_DEFINITIONS if others or "## Classification" in parts else "")
    return "\n".join([*parts, notes + "".join(f"* Left out: {one}\n" for one in left_out)])


def _best(rows: Sequence[Row]) -> str:
    falling = sorted(best_of(rows).values(), key=lambda row: float(row["perplexity"]))
    return "Best of each family: " + "; ".join(f"{name_of(row)}: {row['perplexity']:.1f}" for row in falling) + "."


def _perplexities(rows: Sequence[Row]) -> list[str]:
    heads = ["family", "variant", "K", "restarts", "iterations", "perplexity", "score", "ensemble", "objective"]
    heads += ["seconds a fit", "topics (99%)"]
    best = {row["cell"] for row in best_of(rows).values()}
    lines = [line_of(heads), line_of(["---", "---", *["---:"] * (len(heads) - 2)])]
    for row in rows:
        bold = "**" if row["cell"] in best else ""
        error = "" if row["score_error"] is None else f" ± {row['score_error']:.4f}"
        made = f"{row['iterations']}" + (f", {row['samples']} samples" if row["samples"] else "")
        cells = [row["family"], "" if row["start"] == RANDOM else row["start"]]
        cells += ["" if row["topics"] is None else str(row["topics"]), str(row["restarts"]), made]
        cells += [f"{bold}{row['perplexity']:.1f}{bold}", f"{row['score']:.4f}{error}", f"{row['ensemble_score']:.4f}"]
        cells += ["" if row["objective"] is None else f"{row['objective']:,.0f}", f"{row['seconds']:.2f}"]
        lines.append(line_of([*cells, f"{row['topics_99']:.1f}"]))
    return lines


def _classifications(rows: Sequence[Row]) -> list[str]:
    able = [row for row in rows if row["classified"]]
    support: dict[str, int] = {}
    for one in class_rows(able):
        support[one["value"]] = max(support.get(one["value"], 0), one["support"])
    shown = sorted(sorted(support, key=lambda value: -support[value])[:SHOWN])
    heads = ["", "accuracy", "macro F1", "micro F1", *(f"F1 of {_plain(value)}" for value in shown)]
    heads += ["seconds to fit", "to predict", "tuned"]
    lines = [line_of(heads), line_of(["---", *["---:"] * (len(heads) - 2), "---"])]
    for row in able:
        f1 = {_value(one["value"]): one["f1"] for one in row["classified"]["classes"]}
        tuned = ", ".join(f"{name} = {value}" for name, value in (row.get("tuned") or {}).items())
        figures = [row[name] for name in ("accuracy", "macro_f1", "micro_f1")] + [f1.get(value) for value in shown]
        cells = [name_of(row), *("" if one is None else f"{one:.3f}" for one in figures), f"{row['seconds']:.1f}"]
        lines.append(
            line_of([*cells, "" if row["predict_seconds"] is None else f"{row['predict_seconds']:.1f}", tuned])
        )
    if len(support) > SHOWN:
        lines += ["", f"F1 of the {SHOWN} values of most documents; classes.parquet has all {len(support)}."]
    return lines


def _plain(text: str) -> str:
    """Return a name that breaks no table."""
    return "".join(one if one.isprintable() else " " for one in text).replace("|", "/")
