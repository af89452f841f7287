"""Read the summary of the documents of a model, or make it from the corpus."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collapsium.pipeline.engine.model_io.summary import summary_of
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.families.model import Model
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import ClusterError, CollapsiumError
from collapsium.storage.io.recorded_urls import recorded_url
from collapsium.storage.runs.summary import SummaryRecord, read_summary
from collapsium.storage.units import Counting, silent


@dataclass(frozen=True)
class Where:
    """Where documents are looked at, if the model has no summary of them."""

    corpus: str | os.PathLike[str] | None = None
    scheduler: str = "threads"
    workers: int | None = None
    tls: TLS | None = None
    progress: Counting = silent


def documents_summary(model: Model, record: Mapping[str, Any], where: Where, notes: list[str]) -> SummaryRecord | None:
    """Read the summary that lies with the model, or make it from the corpus; note why where neither can be."""
    try:
        found = read_summary(model.folder, model.record)
    except CollapsiumError as error:
        notes.append(f"The summary of the documents cannot be read: {error}.")
        found = None
    if found is not None:
        return found
    given = where.corpus if where.corpus is not None else (record.get("corpus") or {}).get("url")
    if given is None or not model.fitted:
        notes.append("There is no summary of the documents, so that no examples and labels are shown.")
        return None
    executor = None
    try:
        corpus = Corpus(recorded_url(model.folder, given) if where.corpus is None else given)
        executor = open_executor(where.scheduler, where.workers, tls=where.tls)
        return summary_of(model, corpus, executor, where.progress)
    except ClusterError:
        raise
    except CollapsiumError as error:
        if where.corpus is not None:
            raise
        notes.append(f"There is no summary of the documents, and none could be made from the corpus: {error}.")
        return None
    finally:
        if executor is not None:
            executor.close()
