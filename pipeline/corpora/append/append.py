"""Append documents to a corpus as new shards; existing shards do not change.

The last step replaces the manifest, and nothing that it names changes before. The names of new files contain digests of
their content, so neither a reader nor an interrupted addition meets the bytes of another addition. The history is
written just before the manifest; an addition that the manifest lacks is ignored when the history is read
(`History.until`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from collapsium.pipeline.corpora.append.additions import (
    LOCK,
    Added,
    Addition,
    clean,
    clean_hidden,
    layout_of,
    scratch_inside,
)
from collapsium.pipeline.corpora.append.documents import DocumentAddition
from collapsium.pipeline.corpora.append.vectors import append_vectors
from collapsium.pipeline.corpora.options import AppendOptions, SideFileOptions
from collapsium.pipeline.corpora.recorded_reading import format_of, history_for, require_named_again
from collapsium.pipeline.corpora.side_files import read_appended_side_files
from collapsium.pipeline.corpora.text_ingest import check_reading
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.options import SchedulerOptions
from collapsium.pipeline.options import keywords
from collapsium.storage.building.ingest_record import History, Report, read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import VECTORS, Manifest
from collapsium.storage.errors import OptionError
from collapsium.storage.io.locks.run_lock import RunLock
from collapsium.storage.readers.guesses import with_guesses
from collapsium.storage.readers.side_files.columns import SideFileRequest
from collapsium.storage.readers.texts.segment import HEADINGS
from collapsium.storage.units import Counting, silent


@keywords(options=AppendOptions, sides=SideFileOptions, scheduling=SchedulerOptions)
def append(
    corpus: str | os.PathLike[str],
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    options: AppendOptions,
    sides: SideFileOptions,
    scheduling: SchedulerOptions,
    tls: TLS | None = None,
    progress: Counting = silent,
) -> Manifest:
    """Add documents, or vectors, to a corpus as new shards, read as its own documents were.

    Parameters
    ----------
    corpus : str or path-like
        The corpus, local or an fsspec URL.
    sources : path or sequence of paths
        Files, folders or globs, local or fsspec URLs.
    options : AppendOptions
        Treatment of new words and of documents that the corpus already has.
    sides : SideFileOptions
        Files with labels and covariates of documents, separate from the documents.
    scheduling : SchedulerOptions
        Executor of the tasks.
    tls : TLS, optional
        Certificates for a Dask cluster with encrypted messages.
    progress : callable, optional
        Called with the number of documents read so far.

    Returns
    -------
    Manifest
        The corpus's manifest after the addition, unchanged if nothing is new.

    Raises
    ------
    CollapsiumError
        A source is missing or damaged, the corpus already has an id, or another process appends. The corpus does not
        change.
    """
    addition = Addition(
        options.grow,
        options.skip_existing,
        options.format,
        options.tokenizer,
        options.max_decompressed,
        scheduling.scheduler,
        scheduling.workers,
        tls,
        SideFileRequest(sides.label_files, sides.label_names),
        options.headings,
        options.encoding,
        options.separator,
        sides.label_separator,
    )
    return append_with_report(corpus, sources, addition, progress).manifest


def append_with_report(
    corpus: str | os.PathLike[str],
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    addition: Addition,
    progress: Counting = silent,
) -> Added:
    """Add documents to a corpus, and return a report; see `append`."""
    paths = [os.fspath(path) for path in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    if not paths:
        raise OptionError("expected at least one source")
    opened = Corpus(corpus)
    opened.require_documents()
    if opened.holds == VECTORS:
        return append_vectors(opened, paths, addition, progress)
    recorded = read_history(opened.folder) or History("")
    history = _history_of(opened, recorded, paths, addition)
    history, scheduler, stops = check_reading(history, addition.scheduler, addition.workers)
    sides = read_appended_side_files(addition.side_files, recorded.side_files, history.options, opened.manifest.fields)
    if sides is not None and sides.by_order and addition.skip_existing:
        raise OptionError(
            "leaves documents out, and side files have a line for each document; use side files with ids",
            "skip_existing",
        )
    with RunLock(opened.folder / LOCK) as lock, scratch_inside(opened.folder.fenced(lock)) as scratch:
        opened = Corpus(corpus)
        opened.folder = opened.folder.fenced(lock)
        # Another process may have added documents meanwhile.
        recorded = read_history(opened.folder) or recorded
        recorded = recorded.until(opened.manifest.documents)
        clean_hidden(opened)
        executor = open_executor(scheduler, addition.workers, tls=addition.tls)
        try:
            adding = DocumentAddition(executor, opened, scratch, history, recorded, stops, addition, sides)
            counted = adding.read(paths, scheduler, progress)
            if not counted.notes:
                return Added(opened.manifest, adding.report, recorded)
            if adding.repeats(counted):
                return Added(opened.manifest, adding.report, recorded, repeated=True)
            clean(opened)
            manifest = adding.write(counted)
        finally:
            executor.close()
        lock.require()
        recorded = replace(recorded, appended=(*recorded.appended, adding.report))
        recorded.write(opened.folder)
        manifest.write(opened.folder)
    files = frozenset(path for note in counted.notes for path, count in note.origins if count)
    return Added(manifest, adding.report, recorded, files)


def _history_of(corpus: Corpus, own_history: History, paths: list[str], addition: Addition) -> History:
    """Return the reading of new sources: that of the corpus, as far as their format allows."""
    kind, guesses = format_of(paths, addition.format, own_history.kind)
    if kind == "vectors":
        raise OptionError(f"`format` {kind}: {corpus.url} is a corpus of documents")
    if own_history.flattened:
        raise OptionError(
            f"{corpus.url}: its documents are segments made by `collapsium flatten`; append to the original corpus, "
            "and flatten that again"
        )
    segments = None if addition.headings is None else f"{HEADINGS}{addition.headings}"
    require_named_again(corpus.url, own_history.options, addition.tokenizer, segments)
    for name, value, recorded in (
        ("tokenizer", addition.tokenizer, own_history.options.tokenizer),
        ("headings", segments, own_history.options.segments),
    ):
        if value is not None and value != recorded:
            made = "without it" if recorded is None else f"with {recorded}"
            raise OptionError(
                f"expected the value that {corpus.url} was made with, found {value}; it was made {made}", parameter=name
            )
    history = history_for(own_history, kind)
    options = with_guesses(replace(history.options, **layout_of(addition)), own_history.report.guesses)
    report = Report(guesses=guesses)
    return replace(history, options=replace(options, max_decompressed=addition.max_decompressed), report=report)
