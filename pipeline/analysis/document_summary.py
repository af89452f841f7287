"""Read the document summary of a model, or make it from the training corpus."""

from __future__ import annotations

import os
from dataclasses import dataclass

from collapsium.pipeline.engine.model_io.summary import summary_of
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import Scheduler
from collapsium.pipeline.families.model import Model
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import ClusterError, CollapsiumError
from collapsium.storage.io.recorded_urls import recorded_url
from collapsium.storage.runs.summary import SummaryRecord, read_summary
from collapsium.storage.units import Counting, silent


@dataclass(frozen=True)
class SummarySource:
    """Corpus and executor that make a document summary if the model has none."""

    corpus: str | os.PathLike[str] | None = None
    scheduler: Scheduler = "threads"
    workers: int | None = None
    tls: TLS | None = None
    progress: Counting = silent


def documents_summary(
    model: Model, corpus_url: object, source: SummarySource, notes: list[str]
) -> SummaryRecord | None:
    """Return a model's document summary, read or made from the corpus."""
    try:
        summary = read_summary(model.folder, model.record)
    except CollapsiumError as error:
        notes.append(f"The summary of the documents cannot be read: {error}.")
        summary = None
    if summary is not None:
        return summary
    if (source.corpus is None and corpus_url is None) or not model.fitted:
        notes.append("There is no summary of the documents, so examples and labels are not shown.")
        return None
    executor = None
    try:
        corpus = Corpus(recorded_url(model.folder, corpus_url) if source.corpus is None else source.corpus)
        executor = open_executor(source.scheduler, source.workers, tls=source.tls)
        return summary_of(model, corpus, executor, source.progress)
    except ClusterError:
        raise
    except CollapsiumError as error:
        if source.corpus is not None:
            raise
        notes.append(f"There is no summary of the documents, and none could be made from the corpus: {error}.")
        return None
    finally:
        if executor is not None:
            executor.close()
