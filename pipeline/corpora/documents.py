"""Documents of users that a model is fitted to: corpora, files of any format, and texts in memory.

Documents for a model are opened by `documents_for` (`collapsium.pipeline.corpora.new_texts`).
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from collapsium.pipeline.corpora.ingest import ingest
from collapsium.pipeline.corpora.new_texts import DocumentSource, names_corpus
from collapsium.pipeline.corpora.options import IngestOptions, TextsInMemory
from collapsium.pipeline.corpora.text_ingest import unspaced_notice
from collapsium.pipeline.corpora.texts_in_memory import (
    ID,
    OPTIONS,
    fields_of,
    in_memory,
    is_lazy,
    named_texts,
    paths_or_texts,
    table_of,
    write_texts,
)
from collapsium.pipeline.executors.schedulers import Scheduler
from collapsium.pipeline.monitoring.progress import counter_here
from collapsium.pipeline.options import names_of
from collapsium.pipeline.outputs import TEMPORARY
from collapsium.storage.building.ingest_record import read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import OptionError
from collapsium.storage.io.folder import Folder
from collapsium.workers.options import former_names


def options_of_reading(documents: DocumentSource) -> tuple[str, ...]:
    """Return the names of the options of `ingest` that apply to documents: none to a corpus, all to files."""
    if names_corpus(documents):
        return ()
    return OPTIONS if isinstance(paths_or_texts(documents), TextsInMemory) else tuple(IngestOptions.model_fields)


def reading_of(options: dict[str, Any], documents: DocumentSource, family: Iterable[str]) -> dict[str, Any]:
    """Return the options of reading documents, and remove them from a fit's options; none for a corpus."""
    known = options_of_reading(documents)
    names = (*known, *former_names(IngestOptions)) if known else ()
    reading = {name: options.pop(name) for name in names if name in options}
    if "covariates" in reading and "covariates" in set(family):
        options["covariates"] = tuple(item.partition("=")[0] for item in names_of(reading["covariates"], "covariates"))
    return reading


def ingest_documents(
    documents: DocumentSource, corpus: str, reading: Mapping[str, object], scheduler: Scheduler
) -> Corpus:
    """Write a corpus of files, or of texts in memory, as `ingest` would of a file of them."""
    progress, sources = counter_here("reading documents"), paths_or_texts(documents)
    how: dict[str, Any] = {**reading, "progress": progress}
    if not isinstance(sources, TextsInMemory):
        ingest(sources, corpus, scheduler=scheduler, **how)
    elif is_lazy(sources.texts):
        ingest(sources.texts, corpus, scheduler=scheduler, **how)
    else:
        table = table_of(in_memory(sources.texts), fields_of(reading), () if reading.get(ID) else (ID,))
        if not table.num_rows:
            raise OptionError("expected at least one text")
        with tempfile.TemporaryDirectory(prefix=TEMPORARY, ignore_cleanup_errors=True) as temporary:
            path = write_texts(table, temporary)
            local = "serial" if scheduler == "serial" else "threads"
            with named_texts(path):
                ingest(path, corpus, format="parquet", scheduler=local, **how)
    history = read_history(Folder(corpus))
    notice = None if history is None else unspaced_notice(history.report, "`tokenizer`")
    if notice is not None:
        warnings.warn(notice, UserWarning, stacklevel=2)
    return Corpus(corpus)


@contextmanager
def corpus_of(
    documents: DocumentSource, reading: Mapping[str, object], scheduler: Scheduler = "threads"
) -> Iterator[Corpus]:
    """Open a corpus, or make a temporary one of other documents."""
    if names_corpus(documents):
        corpus = documents if isinstance(documents, Corpus) else Corpus(documents)
        if reading:
            raise OptionError(f"applies only to texts, and {corpus.url} is a corpus", next(iter(reading)))
        yield corpus
        return
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, ignore_cleanup_errors=True) as place:
        yield ingest_documents(documents, os.path.join(place, "corpus"), reading, scheduler)  # noqa: PTH118
