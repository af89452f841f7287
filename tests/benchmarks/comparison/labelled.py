"""Families on unseen documents: perplexity given their labels, and prediction of a field."""

import contextlib
import json
import math
import statistics
import time
from dataclasses import asdict

from collapsium.pipeline import evaluate, fit
from collapsium.pipeline.engine.setup.inputs import label_table
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.options import names_of
from collapsium.pipeline.workflows.compare import work_seconds
from collapsium.pipeline.workflows.compare_options import cells_of
from collapsium.storage.runs.members import restarts_in
from collapsium.storage.runs.run import Run

LABELLED = "author-topic,hdsp,labeled-lda,partially-labeled-lda"  # Families that use labels


def can_predict(cell, corpus, field):
    """Tell whether a cell's family is fitted with a field, as a label or a covariate."""
    if field is None or not load_family(cell.family).uses_labels:
        return False
    labels = names_of(cell.options.get("labels", ())) or label_table(corpus).fields
    return field in (*labels, *names_of(cell.options.get("covariates", ())))


def labelled_row(cell, corpus, unseen, out, field, seed, workers):
    """Fit a cell, and return its row: perplexity given labels alone, and how well it predicts the field."""
    run = Run(str(out / "runs" / cell.name))
    if not run.exists():
        options = {**cell.options, **cell.limits, "seed": seed, "restarts": cell.restarts, "workers": workers}
        fit(corpus.url, run.folder.url, family=cell.family, **options, verbose=False)
    fields = (field,) if can_predict(cell, corpus, field) else ()
    began = time.perf_counter()
    found = evaluate(run.folder.url, unseen=unseen.url, given_labels=True, field=fields, seed=seed, workers=workers)
    by_labels = found.given_labels
    scores = [member.score for member in by_labels.members] or [by_labels.score]
    events = [[event for event in member.events() if event["event"] == "iteration"] for _, member in restarts_in(run)]
    row = {"cell": cell.name, "family": cell.family, "start": cell.start, "topics": cell.topics}
    row |= {"restarts": cell.restarts, "iterations": cell.iterations, "samples": cell.limits.get("samples", 0)}
    row |= {"options": json.dumps({**cell.options, **cell.limits}, sort_keys=True), "objective": None}
    row |= {"score": statistics.fmean(scores), "scores": scores, "ensemble_score": by_labels.score}
    row |= {"score_error": None, "perplexity": math.exp(-statistics.fmean(scores))}
    row |= {"seconds": statistics.fmean(sum(map(work_seconds, member_events)) for member_events in events)}
    row |= dict.fromkeys(("accuracy", "macro_f1", "micro_f1", "classified", "predict_seconds"))
    for predicted in found.fields:
        row |= {name: getattr(predicted, name) for name in ("accuracy", "macro_f1", "micro_f1")}
        row["classified"] = json.loads(json.dumps(asdict(predicted)))
        row["predict_seconds"] = time.perf_counter() - began
    return row


def labelled_rows(corpus, unseen, out, options, field, workers):
    """Return a row for each cell of the options' grid; measured ones are read."""
    rows = []
    for cell in cells_of(options, len(corpus.manifest.shards)):
        path = out / "cells" / f"{cell.name}.json"
        with contextlib.suppress(FileNotFoundError):
            rows.append(json.loads(path.read_text()))
            continue
        rows.append(labelled_row(cell, corpus, unseen, out, field, options.seed, workers))
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(json.dumps(rows[-1]))
    return rows
