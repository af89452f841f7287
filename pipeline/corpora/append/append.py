"""Adding documents to a corpus: new shards behind those that there are, which stay as they are.

Nothing of the corpus is changed before its manifest is replaced, which is the last step: files have names of their own
content, so that neither a reader nor an addition that was cut short meets another's bytes. The history is written just
before; an addition that the manifest does not have is left out when it is read (`History.until`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from collapsium.pipeline.corpora.append.additions import LOCK, Added, Addition, clean, clean_hidden, scratch_inside
from collapsium.pipeline.corpora.append.documents import DocumentAddition
from collapsium.pipeline.corpora.append.vectors import append_vectors
from collapsium.pipeline.corpora.options import AppendOptions, SideFileOptions
from collapsium.pipeline.corpora.recorded_reading import history_for, require_named_again
from collapsium.pipeline.corpora.side_files import look_beside_more
from collapsium.pipeline.corpora.text_ingest import settled
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.options import SchedulerOptions
from collapsium.pipeline.options import keywords
from collapsium.storage.building.ingest_record import History, read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import VECTORS, Manifest
from collapsium.storage.errors import OptionError
from collapsium.storage.io.locks.run_lock import RunLock
from collapsium.storage.readers.open import TEXTS, guess_format
from collapsium.storage.readers.side_files.columns import Wanted
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
    """Add documents, or vectors, to a corpus as new shards, read as those that it was made of.

    Parameters
    ----------
    corpus : str or path-like
        The corpus, local or an fsspec URL.
    sources : path or sequence of paths
        Files, folders or globs, local or fsspec URLs.
    options : AppendOptions
        What is added to a corpus.
    sides : SideFileOptions
        Labels and numbers of documents that lie beside them.
    scheduling : SchedulerOptions
        Which executor runs the tasks.
    tls : TLS, optional
        Certificates for a cluster whose messages are encrypted.
    progress : callable, optional
        Told the number of documents read so far.

    Returns
    -------
    Manifest
        What the corpus holds now; the one that it had, where nothing is new.

    Raises
    ------
    CollapsiumError
        A source is missing or damaged, an id is there already, or another process appends. The corpus is as it was.
    """
    wanted = Wanted(sides.label_files, sides.label_names)
    asked = Addition(
        options.grow,
        options.skip_existing,
        options.format,
        options.tokenizer,
        options.max_decompressed,
        scheduling.scheduler,
        scheduling.workers,
        tls,
        wanted,
        options.headings,
    )
    return append_told(corpus, sources, asked, progress).manifest


def append_told(
    corpus: str | os.PathLike[str],
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    asked: Addition,
    progress: Counting = silent,
) -> Added:
    """Add documents to a corpus, and report what was dropped; see `append`.

    Parameters
    ----------
    corpus, sources
        As for `append`.
    asked : Addition
        The rest of it.
    progress : callable, optional
        As for `append`.

    Returns
    -------
    Added
        What the corpus holds now, and what was added, left out and dropped.
    """
    paths = [os.fspath(path) for path in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    if not paths:
        raise OptionError("expected at least one source")
    opened = Corpus(corpus)
    opened.require_documents()
    if opened.holds == VECTORS:
        return append_vectors(opened, paths, asked, progress)
    kept = read_history(opened.folder) or History("")
    history = _history_of(opened, kept, paths, asked)
    history, scheduler, stops = settled(history, asked.scheduler, asked.workers)
    sides = look_beside_more(asked.beside, kept.beside, history.options, opened.manifest.fields)
    if sides is not None and sides.by_order and asked.skip_existing:
        raise OptionError(
            "leaves documents out, and side files have a line for each; give side files with ids", "skip_existing"
        )
    with RunLock(opened.folder / LOCK) as lock, scratch_inside(opened.folder.fenced(lock)) as scratch:
        opened = Corpus(corpus)
        opened.folder = opened.folder.fenced(lock)
        kept = read_history(opened.folder) or kept  # with additions that another process has made meanwhile
        kept = kept.until(opened.manifest.documents)
        clean_hidden(opened)
        executor = open_executor(scheduler, asked.workers, tls=asked.tls)
        try:
            adding = DocumentAddition(executor, opened, scratch, history, kept, stops, asked, sides)
            told = adding.read(paths, scheduler, progress)
            if not told.notes:
                return Added(opened.manifest, adding.report, kept)
            if adding.repeats(told):
                return Added(opened.manifest, adding.report, kept, repeated=True)
            clean(opened)
            manifest = adding.write(told)
        finally:
            executor.close()
        lock.require()
        kept = replace(kept, appended=(*kept.appended, adding.report))
        kept.write(opened.folder)
        manifest.write(opened.folder)
    files = frozenset(path for note in told.notes for path, count in note.origins if count)
    return Added(manifest, adding.report, kept, files)


def _history_of(corpus: Corpus, kept: History, paths: list[str], asked: Addition) -> History:
    """Say how sources are to be read: as those of the corpus, as far as their format allows."""
    try:
        kind = asked.format or guess_format(paths[0])
    except OptionError:
        if kept.kind not in TEXTS:
            raise
        kind = kept.kind
    if kind == "vectors":
        raise OptionError(f"`format` {kind}: {corpus.url} is a corpus of documents")
    if kept.flattened:
        raise OptionError(
            f"{corpus.url}: its documents are segments that `collapsium flatten` made; append to the corpus that it "
            "was made of, and flatten that again"
        )
    segments = None if asked.headings is None else f"{HEADINGS}{asked.headings}"
    require_named_again(corpus.url, kept.options, asked.tokenizer, segments)
    for name, value, recorded in (
        ("tokenizer", asked.tokenizer, kept.options.tokenizer),
        ("headings", segments, kept.options.segments),
    ):
        if value is not None and value != recorded:
            made = "without it" if recorded is None else f"with {recorded}"
            raise OptionError(
                f"expected what {corpus.url} was made with, found {value}; it was made {made}", parameter=name
            )
    history = history_for(kept, kind)
    return replace(history, options=replace(history.options, max_decompressed=asked.max_decompressed))
