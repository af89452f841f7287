"""Source tracking of a batch job: sources are ingested first, and new ones are appended later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields

from collapsium.pipeline.corpora.additions import Addition
from collapsium.pipeline.corpora.append import append_with_report
from collapsium.pipeline.corpora.ingest import ingest
from collapsium.pipeline.corpora.new_texts import UnknownWords
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.workflows.batch.context import JobContext, clean_hidden
from collapsium.pipeline.workflows.batch.journal import Source, Sources, find_sources
from collapsium.storage.building.ingest_record import History, read_history
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.data_types import Json
from collapsium.storage.errors import AbsentError, InputError
from collapsium.storage.readers.open import kind_of_name
from collapsium.storage.readers.texts.blocks import BELOW
from collapsium.storage.readers.texts.segment import HEADINGS


def resolve_pending(context: JobContext) -> None:
    """Record whether the files that were being read when the job was killed are in the corpus."""
    journal, corpus = context.journal, context.corpus
    if journal.pending is None:
        return
    if corpus is not None and corpus.manifest.digest != journal.pending["before"]:
        journal.sources.update(journal.pending["sources"])
    journal.pending = None
    context.write()


def read_new_sources(context: JobContext) -> None:
    """Ingest all files into a new corpus, or append the new ones."""
    journal, corpus = context.journal, context.corpus
    history = None if corpus is None else read_history(corpus.folder)
    kind = context.job.reading.get("format") or (None if history is None else history.kind)
    others: list[str] = []
    files = find_sources(context.job.ingest.sources, journal.sources, kind, others)
    if not files:
        raise AbsentError(f"{', '.join(context.job.ingest.sources)}: there is no file yet")
    if corpus is None:
        journal.sources = {}
    _track_moved(context, files)
    fresh = {path: one for path, one in files.items() if path not in journal.sources and one["size"]}
    if corpus is None and not fresh:
        raise InputError(next(iter(files)), "expected documents, the file is empty")
    _report_changes(context, files)
    if not fresh:
        context.write()
        return
    if others:
        context.note(f"{counted(len(others), 'file')} left out, by name of another format (such as {others[0]})")
    # Files that are one text each are never copies of others.
    originals: dict[str, str] = {}
    copies: Sources = {}
    for path, one in fresh.items():
        original = originals.setdefault(one["sha256"], path)
        if original != path and not _is_text(context, path):
            copies[path] = _copied(context, path, original, one)
    fresh = {path: one for path, one in fresh.items() if path not in copies}
    journal.pending = {"sources": {**fresh, **copies}, "before": None if corpus is None else corpus.manifest.digest}
    if corpus is None:
        journal.reading = _plain(context.job.reading)
    context.write()
    step = "ingest" if corpus is None else "append"
    context.emit_step(step, done=False)
    if corpus is None:
        _ingest(context, _paths(context, fresh))
        _note_guesses(context, read_history(context.corpus_folder))
    else:
        added = _append(context, _paths(context, fresh))
        for path, one in fresh.items():
            if path not in added:
                one["copy"] = True
                context.note(f"{path}: added nothing, all its documents are in the corpus already")
    context.emit_step(step, done=True)
    journal.sources.update(fresh)
    journal.sources.update(copies)
    journal.pending = None
    context.write()


def _note_guesses(context: JobContext, history: History | None) -> None:
    """Report what the readers found out about the first files by themselves, which later ones follow."""
    for line in () if history is None else history.report.remarks:
        context.note(line)


def _track_moved(context: JobContext, files: Sources) -> None:
    """Rename files in the journal that were moved or copied since they were read.

    If another file has taken the old name, as when files are rotated, that file is new.
    """
    sources = context.journal.sources
    known = {one["sha256"]: path for path, one in sources.items()}
    for path, one in files.items():
        before = known.get(one["sha256"])
        if before is None or path in sources:
            continue
        if before in files and files[before]["sha256"] == one["sha256"]:
            sources[path] = _copied(context, path, before, one)
        else:
            sources[path] = _like(one, sources[before])
            del sources[before]
            known[one["sha256"]] = path


def _copied(context: JobContext, path: str, original: str, source: Source) -> Source:
    """Report that a file is a copy of another, and return its entry of the journal."""
    context.note(f"{path}: is a copy of {original} and adds nothing")
    return {**source, "copy": True}


def _like(source: Source, before: Source) -> Source:
    """Return a file's entry of the journal, marked as a copy if its earlier entry is."""
    return {**source, "copy": True} if "copy" in before else {**source}


def _report_changes(context: JobContext, files: Sources) -> None:
    """Report files that have changed or disappeared since they were read, each change once."""
    sources = context.journal.sources
    paths = {one["sha256"]: path for path, one in reversed(files.items())}
    for path, before in list(sources.items()):
        now = files.get(path)
        if now is None:
            _report_absence(context, path, paths.get(before["sha256"]))
        elif now["sha256"] != before["sha256"]:
            if before.get("reported") != now["sha256"]:
                context.warn(f"{path}: has changed since it was read; the corpus keeps its earlier contents")
            before["reported"] = now["sha256"]
        else:
            sources[path] = _like(now, before)
    if sources and context.journal.reading != _plain(context.job.reading):
        context.warn("[ingest]: has changed; new files are read with the options of the first ingest")


def _report_absence(context: JobContext, path: str, other: str | None) -> None:
    """Report once that a file has disappeared, unless another file has the same contents or it added nothing."""
    sources = context.journal.sources
    source = sources[path]
    if other is not None:
        # The other file is the origin of the documents from now on.
        if "copy" not in source and other in sources:
            sources[other].pop("copy", None)
        del sources[path]
        return
    if "copy" not in source and "gone" not in source:
        context.note(f"{path}: no longer exists; the corpus keeps its documents")
    source["gone"] = True


def _is_text(context: JobContext, path: str) -> bool:
    """Return whether a file is one document."""
    return (context.job.reading.get("format") or kind_of_name(path)) == "text"


def _paths(context: JobContext, files: Sources) -> list[str]:
    """Return the paths for the reader; files that are one text each are named by their paths below the source."""
    if not _is_text(context, next(iter(files))):
        return list(files)
    return [f"{path.removesuffix(one['below'])[:-1]}{BELOW}{one['below']}" for path, one in files.items()]


def _plain(reading: Mapping[str, object]) -> dict[str, Json]:
    """Return options as JSON stores them."""
    plain: dict[str, Json] = json.loads(json.dumps(reading, default=str))
    return plain


def _ingest(context: JobContext, paths: list[str]) -> Manifest:
    # An object store cannot rename folders, so an unfinished corpus may be there.
    if not context.corpus_folder.local:
        context.corpus_folder.remove()
    clean_hidden(context.folder)
    options = {**context.execution_for(ingest), **context.job.reading}
    return ingest(paths, context.corpus_folder.url, progress=context.progress("ingest"), **options)


def _append(context: JobContext, paths: list[str]) -> frozenset[str]:
    """Append files, and return those that added documents."""
    names = {field.name for field in fields(Addition)}
    reading = {name: value for name, value in context.job.reading.items() if name in names}
    ingest_table = context.job.ingest
    segments = str(context.job.reading.get("segments") or "")
    # The expression may be used, as the job's file names it.
    if segments.startswith(HEADINGS):
        reading["headings"] = segments.removeprefix(HEADINGS)
    addition = Addition(
        **{**reading, **context.execution, "grow": ingest_table.grow, "skip_existing": ingest_table.skip_existing}
    )
    added = append_with_report(context.corpus_folder.url, paths, addition, context.progress("append"))
    unknown = UnknownWords.of([added.report])
    text = counted(added.report.documents, context.job.holds.removesuffix("s")) + " added"
    text += f": {unknown.text()}" if unknown.tokens else ""
    context.emit({"event": "added", "documents": added.report.documents, **unknown.record(), "text": text})
    return added.files
