"""What a folder is: a corpus, a run, a comparison or a model, and what it holds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from collapsium.pipeline.families.registry import load_family
from collapsium.pipeline.options import keywords
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import MANIFEST
from collapsium.storage.errors import AbsentError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.comparison import RECORD as COMPARISON_RECORD
from collapsium.storage.runs.comparison import cells_done, record_of, row_of
from collapsium.storage.runs.members import restarts_in, samples_of
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.run import RECORD as RUN_RECORD
from collapsium.storage.runs.run import Run

if TYPE_CHECKING:
    from collapsium.pipeline.families.model import Model


@keywords()
def info(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Tell what a folder is.

    Parameters
    ----------
    path : str or path-like
        A corpus, a run, a comparison or a model.

    Returns
    -------
    dict
        ``kind`` (``corpus``, ``run``, ``comparison`` or ``model``) and what it holds.

    Raises
    ------
    AbsentError
        There is nothing, or nothing of ours.
    """
    folder = Folder(path)
    if not folder.exists():
        raise AbsentError(f"{folder.url}: no such folder")
    if folder.exists(MANIFEST):
        return _corpus(Corpus(path), folder)
    if folder.exists(RUN_RECORD):
        return _run(Run(path))
    if folder.exists(COMPARISON_RECORD):
        return _comparison(folder)
    if folder.exists(MODEL_RECORD):
        from collapsium.pipeline.families.model import Model

        return {"kind": "model", "path": folder.url, **_model(Model(path))}
    raise AbsentError(
        f"{folder.url}: no corpus, run, comparison or model; it has no {MANIFEST}, {RUN_RECORD}, "
        f"{COMPARISON_RECORD} or {MODEL_RECORD}"
    )


def _summary(corpus: Corpus) -> dict[str, Any]:
    """Count labels and covariates, and segments: shards are read, with PyArrow, only where there are any."""
    found: dict[str, Any] = {}
    fields = corpus.manifest.fields
    if "labels" in fields or "double" in fields.values():
        from collapsium.storage.building.label_split import summary

        found.update(summary(corpus))
    if "segments" in fields:
        from collapsium.storage.building.flatten import segment_summary

        found.update(segment_summary(corpus))
    return found


def _corpus(corpus: Corpus, folder: Folder) -> dict[str, Any]:
    manifest = corpus.manifest
    if manifest.vectors is not None:
        return {
            "kind": "corpus",
            "holds": manifest.holds,
            "path": corpus.url,
            "documents": manifest.documents,
            "words": manifest.vocabulary.words,
            "tokens": manifest.tokens,
            "shards": len(manifest.shards),
            "fields": sorted(manifest.fields),
            **_summary(corpus),
            "constant": [corpus.vocabulary.words[column] for column in manifest.vectors.constant],
            "digest": manifest.digest,
        }
    return {
        "kind": "corpus",
        "holds": manifest.holds,
        "path": corpus.url,
        "documents": manifest.documents,
        "words": manifest.vocabulary.words,
        "pairs": manifest.pairs,
        "tokens": manifest.tokens,
        "shards": len(manifest.shards),
        "fields": sorted(manifest.fields),
        **_summary(corpus),
        "truth": folder.exists("truth"),
        "digest": manifest.digest,
    }


def _run(run: Run) -> dict[str, Any]:
    from collapsium.pipeline.families.model import Model

    record = run.record()
    events = run.events()
    told = [event for event in events if event.get("event") == "iteration"]
    ended = next((event["reason"] for event in reversed(events) if event.get("event") == "end"), None)
    found: dict[str, Any] = {"kind": "run", "path": run.folder.url}
    found.update({name: record.get(name) for name in ("family", "options", "limits", "seed", "corpus", "heldout")})
    found["iterations"] = told[-1]["iteration"] if told else 0
    found["score"] = next((event["score"] for event in reversed(told) if "score" in event), None)
    found["ended"] = ended
    members = restarts_in(run)
    if members:
        found.update({name: record[name] for name in ("restarts", "keep", "best_member") if name in record})
        found["members"] = [_member(number, one) for number, one in members]
        found["iterations"] = max(one["iterations"] for one in found["members"])
    elif samples_of(run.folder.url):
        found["samples"] = [Model(place.url).record.iterations for place in samples_of(run.folder.url)]
    if isinstance(found.get("corpus"), dict):
        found["corpus"] = {name: value for name, value in found["corpus"].items() if name != "shards"}
    if "warm" in record:
        found["warm"] = record["warm"]
    if run.model.exists(MODEL_RECORD):
        found["model"] = _model(Model(run.folder.url))
    return found


def _comparison(folder: Folder) -> dict[str, Any]:
    """Say what a comparison was asked for, and the mean score of each cell that is done."""
    record = {name: value for name, value in record_of(folder).items() if name not in ("format", "version")}
    cells = {name: row_of(folder, name)["score"] for name in cells_done(folder)}
    return {"kind": "comparison", "path": folder.url, **record, "cells": cells}


def _member(number: int, run: Run) -> dict[str, Any]:
    """Say how far a member of an ensemble is."""
    if not run.exists():
        return {"member": number, "iterations": 0, "score": None, "ended": None}
    found = _run(run)
    return {"member": number, **{name: found[name] for name in ("seed", "iterations", "score", "ended")}}


def _model(model: Model) -> dict[str, Any]:
    record = model.record
    figures = load_family(record.family).figures(model.global_state)
    return {
        "family": record.family,
        "options": record.options,
        "iterations": record.iterations,
        "documents": sum(shard.documents for shard in record.shards),
        "words": record.vocabulary.words,
        "figures": figures,
    }
