"""Describe a folder: a corpus, a run, a comparison or a model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from collapsium.pipeline.formatting import shown_options
from collapsium.pipeline.options import keywords
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import MANIFEST
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import AbsentError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.comparison import RECORD as COMPARISON_RECORD
from collapsium.storage.runs.comparison import cells_done, record_of, row_of
from collapsium.storage.runs.members import restarts_in, samples_of
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.run import RECORD as RUN_RECORD
from collapsium.storage.runs.run import Run

if TYPE_CHECKING:
    from collapsium.pipeline.models import model


@keywords()
def info(path: str | os.PathLike[str]) -> JsonObject:
    """Describe a folder.

    Parameters
    ----------
    path : str or path-like
        A corpus, a run, a comparison or a model.

    Returns
    -------
    dict
        ``kind`` (``corpus``, ``run``, ``comparison`` or ``model``), and sizes, options and results of that kind.

    Raises
    ------
    AbsentError
        The folder does not exist, or is of another kind.
    """
    folder = Folder(path)
    if not folder.exists():
        raise AbsentError(f"{folder.url}: no such folder")
    if folder.exists(MANIFEST):
        return _corpus(Corpus(path), folder)
    if folder.exists(RUN_RECORD):
        return _run(Run(path))
    if folder.exists(COMPARISON_RECORD):
        record = {name: value for name, value in record_of(folder).items() if name not in ("format", "version")}
        cells = {name: row_of(folder, name)["score"] for name in cells_done(folder)}
        return {"kind": "comparison", "path": folder.url, **record, "cells": cells}
    if folder.exists(MODEL_RECORD):
        from collapsium.pipeline.models import model

        return {"kind": "model", "path": folder.url, **_model(model.Model(path))}
    raise AbsentError(
        f"{folder.url}: expected a corpus, run, comparison or model; it has no {MANIFEST}, {RUN_RECORD}, "
        f"{COMPARISON_RECORD} or {MODEL_RECORD}"
    )


def _corpus(corpus: Corpus, folder: Folder) -> JsonObject:
    manifest, vectors = corpus.manifest, corpus.manifest.vectors
    special: JsonObject = {"truth": folder.exists("truth")}
    if vectors is not None:
        special = {"constant": [corpus.vocabulary.words[column] for column in vectors.constant]}
    counts: JsonObject = {}
    fields = corpus.manifest.fields
    if "labels" in fields or "double" in fields.values():
        from collapsium.storage.building.split import label_summary

        counts.update(label_summary(corpus))
    if "segments" in fields:
        from collapsium.storage.building.split import segment_summary

        counts.update(segment_summary(corpus))
    return {
        "kind": "corpus",
        "holds": manifest.holds,
        "path": corpus.url,
        "documents": manifest.documents,
        "words": manifest.vocabulary.words,
        **({"pairs": manifest.pairs} if vectors is None else {}),
        "tokens": manifest.tokens,
        "shards": len(manifest.shards),
        "fields": sorted(manifest.fields),
        **counts,
        **special,
        "digest": manifest.digest,
    }


def _run(run: Run) -> JsonObject:
    from collapsium.pipeline.models import model

    record = run.record()
    events = run.events()
    iterations = [event for event in events if event.get("event") == "iteration"]
    ended = next((event["reason"] for event in reversed(events) if event.get("event") == "end"), None)
    facts: JsonObject = {"kind": "run", "path": run.folder.url}
    facts.update({name: record.get(name) for name in ("family", "options", "limits", "seed", "corpus", "heldout")})
    facts["options"] = None if facts["options"] is None else shown_options(facts["options"])
    facts["iterations"] = iterations[-1]["iteration"] if iterations else 0
    facts["score"] = next((event["score"] for event in reversed(iterations) if "score" in event), None)
    facts["ended"] = ended
    members = restarts_in(run)
    if members:
        facts.update({name: record[name] for name in ("restarts", "keep", "combine", "best_member") if name in record})
        facts["members"] = []
        for number, member in members:
            progress = _run(member) if member.exists() else {"iterations": 0, "score": None, "ended": None}
            shown = [name for name in ("seed", "iterations", "score", "ended") if name in progress]
            facts["members"].append({"member": number, **{name: progress[name] for name in shown}})
        if "combine" not in record:
            facts["iterations"] = max(member["iterations"] for member in facts["members"])
    elif samples_of(run.folder.url):
        facts["samples"] = [model.Model(sample.url).record.iterations for sample in samples_of(run.folder.url)]
    if isinstance(facts.get("corpus"), dict):
        facts["corpus"] = {name: value for name, value in facts["corpus"].items() if name != "shards"}
    facts.update({name: record[name] for name in ("warm", "start") if name in record})
    if run.model.exists(MODEL_RECORD):
        facts["model"] = _model(model.Model(run.folder.url))
    return facts


def _model(model: model.Model) -> JsonObject:
    record, remark = model.record, model.remark()
    return {
        "family": record.family,
        "options": shown_options(record.options),
        "iterations": record.iterations,
        "documents": sum(shard.documents for shard in record.shards),
        "words": record.vocabulary.words,
        "figures": model.metrics(),
        **({} if remark is None else {"remark": remark}),
    }
