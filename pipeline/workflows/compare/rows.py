"""The row of each cell: scores, metrics of topics and labels, and times; and the table of all rows."""

from __future__ import annotations

import io
import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from collapsium.pipeline.analysis.evaluate import evaluate_together
from collapsium.pipeline.analysis.labels.candidates import candidates_of
from collapsium.pipeline.analysis.labels.classification import classify
from collapsium.pipeline.analysis.labels.conditional import score_from_labels
from collapsium.pipeline.analysis.metrics.catalogue import USES, Needs, is_all, metrics_of
from collapsium.pipeline.analysis.metrics.labelled import field_of
from collapsium.pipeline.analysis.metrics.measure import REFUSALS, measure
from collapsium.pipeline.analysis.topics import describe
from collapsium.pipeline.corpora.new_texts import names_corpus
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.workflows.compare.corpora import Corpora
from collapsium.pipeline.workflows.compare.fits import CellFits, Resources
from collapsium.pipeline.workflows.compare.grid import RANDOM
from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import DamagedError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.members import leaves
from collapsium.storage.runs.run import EVENTS, Run
from collapsium.workers.families.description import holding

Row = Mapping[str, Any]

TOPIC_METRICS = ("npmi", "diversity")  # Metrics of every comparison by held-out tokens
PREDICTION = ("accuracy", "macro_f1", "micro_f1", "predict_seconds")
CELL_FIELDS = {
    **dict.fromkeys(("cell", "family", "start"), pa.string()),
    **dict.fromkeys(("topics", "restarts", "iterations", "samples"), pa.int32()),
    "options": pa.string(),
    **dict.fromkeys(("score", "score_error", "ensemble_score", "perplexity"), pa.float64()),
    "scores": pa.list_(pa.float64()),
    **dict.fromkeys(("objective", "objective_error", "seconds", "cell_seconds", "topics_99"), pa.float64()),
}
# The progress of the fits, with a row for each cell, restart and iteration
SERIES = pa.schema(
    {
        **dict.fromkeys(("cell", "family", "start"), pa.string()),
        **dict.fromkeys(("topics", "restart", "iteration"), pa.int32()),
        **dict.fromkeys(("steps", "seconds", "score", "objective", "topics_99"), pa.float64()),
    }
)
# Columns of numbers in Markdown: head, field, format, and the field of the standard error
COLUMNS: tuple[tuple[str, str, str, str | None], ...] = (
    ("score", "score", ".4f", "score_error"),
    ("ensemble", "ensemble_score", ".4f", None),
    ("perplexity", "perplexity", ".1f", None),
    ("objective", "objective", ",.0f", "objective_error"),
    ("seconds a fit", "seconds", ".2f", None),
    ("of the cell", "cell_seconds", ".1f", None),
    ("topics (99%)", "topics_99", ".1f", None),
)
PREDICTION_COLUMNS = (
    ("accuracy", "accuracy", ".3f", None),
    ("macro F1", "macro_f1", ".3f", None),
    ("micro F1", "micro_f1", ".3f", None),
    ("seconds to predict", "predict_seconds", ".1f", None),
)
COMPLETION = """\
* **Score**: document completion, the mean over the held-out tokens of the training documents of
  log sum_k theta_dk phi_kw, in nats; higher is better. For each fit it is the score of the last iteration or, with
  samples, of the mean of their predictions. The table has the mean over the restarts and its standard error,
  s / sqrt(R).
"""
FROM_LABELS = """\
* **Score**: given labels alone, the mean over all tokens of the unseen documents of log sum_k theta_dk phi_kw, in nats.
  theta_d is the expectation given the document's labels and covariates, without its words; Kim and Oh (2017), eq. (40).
  For families without labels it is the expectation under the prior. Labels that training did not have count as missing.
  The table has the mean over the restarts and its standard error, s / sqrt(R).
"""
FIGURES = """\
* **Ensemble**: the score of the mean prediction of all restarts and samples.
* **Perplexity**: exp(-score), lower is better.
* **Objective**: the family's objective at the last iteration, in nats, mean over the restarts: a bound on the log
  probability of the training tokens, or log p(w, z) of a sample. Objectives of different families are not comparable.
* **Seconds** of a fit: time in kernels, sums and updates of all iterations with all workers, mean over the restarts;
  scoring and waiting are not counted. **Of the cell**: time from the start of the first fit to the end of the last one,
  with scoring and waiting; fits run in parallel. The time of killed processes, and of the source of warm starts, is not
  included.
* **Topics (99%)**: number of the largest topics that hold 99% of the training tokens, mean over the restarts.
* In series.parquet and in the plot, scores are those of fits; bars and bands are standard errors.
"""
PREDICTED = """\
* Families predict the value, among all values in training, under which a document's perplexity given its labels is
  lowest; its other labels stay. **Accuracy**: the share of correct predictions, over the unseen documents with words
  and a value; a prediction is correct if it is one of the document's values. **F1** is over documents with exactly one
  value; **micro F1** is their accuracy, **macro F1** the mean over values. The output of `--json` has each class.
"""


def require_metrics(options: CompareOptions, corpora: Corpora) -> None:
    """Refuse metrics whose texts, labels or documents are missing, before the first fit."""
    if not options.metrics or is_all(options.metrics):
        return
    needed = {metric.needs: metric.name for metric in reversed(metrics_of(options.metrics))}
    if Needs.TEXTS in needed and (options.coherence is None or names_corpus(options.coherence)):
        raise OptionError(f"{needed[Needs.TEXTS]}: needs texts, as a corpus has no order of words (`coherence` TEXTS)")
    if Needs.DOCUMENTS in needed and options.unseen is None:
        raise OptionError(f"{needed[Needs.DOCUMENTS]}: needs `unseen`, documents that are not fitted")
    if Needs.LABELS in needed or Needs.CLASSES in needed:
        field_of(corpora.corpus if options.unseen is None else corpora.scored, options.label_field)


def measured_row(fits: CellFits, corpora: Corpora, resources: Resources) -> JsonObject:
    """Return the row of a cell with completed fits."""
    cell, options = fits.cell, corpora.options
    row: JsonObject = {
        "cell": cell.name,
        "family": cell.family,
        "start": cell.start,
        "topics": cell.topics,
        "restarts": cell.restarts,
        "iterations": cell.iterations,
        "samples": int(cell.limits.get("samples", 0)),
        "options": json.dumps({**cell.options, **cell.limits}, sort_keys=True),
        "definitions": {},
    }
    row.update(
        _scores(fits, corpora, resources) if options.unseen is None else _scores_from_labels(fits, corpora, resources)
    )
    objectives = [event["objective"] for event in fits.last_iterations() if "objective" in event]
    row.update(
        objective=statistics.fmean(objectives) if objectives else None,
        objective_error=_standard_error(objectives),
        seconds=statistics.fmean(fits.work_seconds()),
        cell_seconds=fits.elapsed_seconds(),
        topics_99=statistics.fmean(holding(describe(Model(url), 1).share) for url in fits.urls),
    )
    if options.unseen is None:
        models = [Run(url).model.url for url in fits.urls]
        _add_metrics(row, models, TOPIC_METRICS, {"coherence": corpora.train.url, **resources.for_scores()})
    given = {name: getattr(options, name) for name in ("label_field", "coherence")}
    documents = {"unseen": corpora.scored.url} if corpora.heldout is None else {"heldout": corpora.heldout}
    further = {**documents, **resources.for_scores(), "seed": options.seed}
    for needs in Needs:
        group = [one.name for one in _further(options) if one.needs is needs]
        used = {name: value for name, value in given.items() if needs in USES[name]}
        _add_metrics(row, fits.urls, group, {**further, **used})
    if options.field is not None:
        row.update(_prediction(fits, corpora, resources))
    return row


def _further(options: CompareOptions) -> list[Any]:
    """Return the metrics that the user names, without those that the table has anyway."""
    chosen = metrics_of(options.metrics) if options.metrics else ()
    return [metric for metric in chosen if metric.field not in (*CELL_FIELDS, *(TOPIC_METRICS * (not options.unseen)))]


def _add_metrics(row: JsonObject, urls: Sequence[str], names: Sequence[str], how: JsonObject) -> None:
    """Add metrics to a row, as means over the restarts, and their definitions; None if a family does not have them."""
    metrics = metrics_of(names) if names else ()
    row.update(dict.fromkeys(metric.field for metric in metrics))
    try:
        results = [measure(url, metrics=names, **how) for url in urls if names]
    except REFUSALS:
        return
    for metric in metrics:
        row[metric.field] = statistics.fmean(result[metric.name].value for result in results)
        row["definitions"][metric.name] = [results[0][metric.name].definition, metric.source]


def _standard_error(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def _score_fields(scores: Sequence[float], ensemble: float) -> JsonObject:
    """Return the fields on the scores of restarts and of their mean prediction, in nats per token."""
    score = statistics.fmean(scores)
    return {
        "score": score,
        "score_error": _standard_error(scores),
        "ensemble_score": ensemble,
        "perplexity": math.exp(-score),
        "scores": list(scores),
    }


def _scores(fits: CellFits, corpora: Corpora, resources: Resources) -> JsonObject:
    """Score held-out tokens by document completion: of the last iteration, or of the mean of the samples."""
    arguments, heldout = resources.for_scores(), corpora.scored.url
    if fits.cell.limits.get("samples"):
        scores = [evaluate_together([url], heldout, **arguments).score for url in fits.urls]
    else:
        events = dict(zip(fits.urls, fits.last_iterations(), strict=True))
        unscored = next((url for url, event in events.items() if "score" not in event), None)
        if unscored is not None:
            raise DamagedError(f"{unscored}/{EVENTS}", "expected a score of the last iteration")
        scores = [float(event["score"]) for event in events.values()]
    return _score_fields(scores, evaluate_together(fits.urls, heldout, **arguments).score)


def _scores_from_labels(fits: CellFits, corpora: Corpora, resources: Resources) -> JsonObject:
    """Score unseen documents given their labels alone, and count the documents."""
    unseen, seed = corpora.scored, corpora.options.seed
    named = [(name, Model(url)) for name, url in leaves(fits.folder.url)]
    with resources.scoring() as executor:
        together = score_from_labels(named, unseen, executor, seed)
        scores = [one.score for one in together.members] or [together.score]
        if fits.cell.limits.get("samples"):
            of_restarts: dict[str, list[tuple[str, Model]]] = {}
            for name, model in named:
                of_restarts.setdefault(name.partition("/")[0], []).append((name, model))
            scores = [score_from_labels(samples, unseen, executor, seed).score for samples in of_restarts.values()]
    counts = {"documents": together.documents, "labelled": together.labelled, "unknown": together.unknown}
    return {**_score_fields(scores, together.score), **counts}


def _prediction(fits: CellFits, corpora: Corpora, resources: Resources) -> JsonObject:
    """Return how well the fits' mean prediction recovers the field; None for families that cannot predict it."""
    if corpora.options.field is None or not corpora.can_predict(fits.cell):
        return dict.fromkeys((*PREDICTION, "classified"))
    named = [(name, Model(url)) for name, url in leaves(fits.folder.url)]
    with resources.scoring() as executor:
        began = time.perf_counter()
        candidates = candidates_of(named[0][1], corpora.scored, corpora.options.field)
        result = classify(named, corpora.scored, candidates, executor, corpora.options.seed)
        seconds = time.perf_counter() - began
    record = {name: value for name, value in asdict(result).items() if name != "definition"}
    figures = {"accuracy": result.accuracy, "macro_f1": result.macro_f1, "micro_f1": result.micro_f1}
    return {**figures, "classified": json.loads(json.dumps(record)), "predict_seconds": seconds}


def row_schema(options: CompareOptions) -> pa.Schema:
    """Return the schema of the table of cells."""
    fields: dict[str, pa.DataType] = dict(CELL_FIELDS)
    if options.unseen is None:
        fields.update(dict.fromkeys(TOPIC_METRICS, pa.float64()))
    else:
        fields.update(dict.fromkeys(("documents", "labelled", "unknown"), pa.int64()))
    if options.field is not None:
        fields.update(dict.fromkeys(PREDICTION, pa.float64()))
    fields.update({metric.field: pa.float64() for metric in _further(options)})
    return pa.schema(fields)


def write_rows(folder: Folder, name: str, rows: Sequence[Row], schema: pa.Schema) -> None:
    """Write rows as a Parquet file, atomically; fields that the schema lacks are left out."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), sink)
    folder.write(name, sink.getvalue())


def label_of(row: Row, *, topics: bool = True) -> str:
    """Return the label of a cell: its family, K if `topics`, and its start unless it is random."""
    count = f", K = {row['topics']}" if topics and row["topics"] is not None else ""
    return str(row["family"]) + count + ("" if row["start"] == RANDOM else f", {row['start']}")


def number_text(value: float | None, form: str, error: float | None = None) -> str:
    """Return a formatted number with its standard error, if it has one; an empty text for None."""
    if value is None:
        return ""
    return format(value, form) + ("" if error is None else f" ± {error:{form}}")


def table_text(options: CompareOptions, rows: Sequence[Row]) -> str:
    """Return the table of cells as Markdown, with the best cell of each family on unseen documents."""
    columns = [*COLUMNS, *(PREDICTION_COLUMNS if options.field is not None else ())]
    metrics = [*metrics_of(TOPIC_METRICS)] * (options.unseen is None) + _further(options)
    measured = [metric for metric in metrics if any(row.get(metric.field) is not None for row in rows)]
    columns += [(metric.name, metric.field, ".4f", None) for metric in measured]
    heads = ["family", "start", "K", "restarts", "iterations", *(head for head, *_ in columns)]
    body = [heads, ["---", "---", *["---:"] * (len(heads) - 2)]]
    for row in rows:
        samples = f", {row['samples']} samples" if row["samples"] else ""
        cell = [row["family"], row["start"], number_text(row["topics"], "d"), str(row["restarts"])]
        cell.append(f"{row['iterations']}{samples}")
        body.append(
            [*cell, *(number_text(row.get(field), form, error and row[error]) for _, field, form, error in columns)]
        )
    lines = [f"| {' | '.join(cells)} |" for cells in body]
    if options.unseen is not None:
        best = {row["family"]: row for row in sorted(rows, key=lambda row: -float(row["perplexity"]))}
        rising = sorted(best.values(), key=lambda row: float(row["perplexity"]))
        texts = "; ".join(f"{label_of(row)}: {row['perplexity']:.1f}" for row in rising)
        lines += ["", f"Best of each family: {texts}."]
    return "\n".join(lines)


def report_text(corpora: Corpora, rows: Sequence[Row], left_out: Sequence[str]) -> str:
    """Return a report as Markdown: the comparison, its table, the definitions of its columns, and what is left out."""
    options = corpora.options
    title = "Comparison" if options.unseen is None else "Comparison on unseen documents"
    notes = (COMPLETION if options.unseen is None else FROM_LABELS) + FIGURES
    notes += PREDICTED if options.field is not None else ""
    texts = {name: text for row in rows for name, text in row.get("definitions", {}).items()}
    notes += "".join(
        f"* **{name}**: {text}; mean over the restarts. {source}.\n" for name, (text, source) in texts.items()
    )
    notes += "".join(f"* Left out: {reason}\n" for reason in left_out)
    return "\n\n".join([f"# {title}", *corpora.about(), table_text(options, rows), notes])
