"""Supplying a batch job's corpus: its sources are ingested at first, and later those that are new are appended."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from collapsium.pipeline.corpora.ingest import ingest
from collapsium.pipeline.corpora.unknown_words import UnknownWords
from collapsium.pipeline.workflows.batch.context import Bench, clean_hidden
from collapsium.pipeline.workflows.batch.journal import find_sources
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.errors import AbsentError, InputError
from collapsium.storage.readers.open import kind_of_name
from collapsium.storage.readers.texts.blocks import BELOW
from collapsium.storage.readers.texts.segment import HEADINGS

GONE, COPY = "gone", "copy"  # of a source in the journal: its absence was reported; it added nothing to the corpus
REPORTED = "reported"  # of a source in the journal: digest of its later content, which was warned of


def settle_pending(bench: Bench) -> None:
    """Find out whether files that were being read as the job was killed are in the corpus."""
    journal, corpus = bench.journal, bench.corpus
    if journal.pending is None:
        return
    if corpus is not None and corpus.manifest.digest != journal.pending["before"]:
        journal.sources.update(journal.pending["sources"])
    journal.pending = None
    bench.write()


def take_in(bench: Bench) -> None:
    """Read the files that are new: all of them into a new corpus, or behind the documents that there are.

    Parameters
    ----------
    bench : Bench
        The job. Files that were read and have changed or gone since are warned of; the corpus keeps what it has. Empty
        files are not taken note of: they are read once something has been written to them.

    Raises
    ------
    CollapsiumError
        There is no file, or one is damaged. The corpus is as it was.
    """
    journal, corpus = bench.journal, bench.corpus
    found = find_sources(bench.job.ingest.sources, journal.sources)
    if not found:
        raise AbsentError(f"{', '.join(bench.job.ingest.sources)}: there is no file yet")
    if corpus is None:
        journal.sources = {}
    _follow(bench, found)
    fresh = {path: one for path, one in found.items() if path not in journal.sources and one["size"]}
    if corpus is None and not fresh:
        raise InputError(next(iter(found)), "expected documents, the file is empty")
    _compare(bench, found)
    if not fresh:
        bench.write()
        return
    copies = _copies(bench, fresh)
    fresh = {path: one for path, one in fresh.items() if path not in copies}
    journal.pending = {"sources": {**fresh, **copies}, "before": None if corpus is None else corpus.manifest.digest}
    if corpus is None:
        journal.reading = _plain(bench.job.reading)
    bench.write()
    step = "ingest" if corpus is None else "append"
    bench.say(step, done=False)
    if corpus is None:
        _ingest(bench, _paths(bench, fresh))
    else:
        added = _append(bench, _paths(bench, fresh))
        for path, one in fresh.items():
            if path not in added:
                one[COPY] = True
                bench.note(f"{path}: added nothing, all its documents are in the corpus already")
    bench.say(step, done=True)
    journal.sources.update(fresh)
    journal.sources.update(copies)
    journal.pending = None
    bench.write()


def _follow(bench: Bench, found: dict[str, dict[str, Any]]) -> None:
    """Give files that were read and have been moved or copied their new names: their documents are in the corpus.

    Where another file has taken the old name, as when files are rotated, that one is new.
    """
    sources = bench.journal.sources
    known = {one["sha256"]: path for path, one in sources.items()}
    for path, one in found.items():
        before = known.get(one["sha256"])
        if before is None or path in sources:
            continue
        if before in found and found[before]["sha256"] == one["sha256"]:
            sources[path] = _copied(bench, path, before, one)
        else:
            sources[path] = {**one, **({COPY: True} if COPY in sources[before] else {})}
            del sources[before]
            known[one["sha256"]] = path


def _copied(bench: Bench, path: str, before: str, one: dict[str, Any]) -> dict[str, Any]:
    """Report that a file is a copy of another, and return what the journal has of it."""
    bench.note(f"{path}: is a copy of {before}, and adds nothing")
    return {**one, COPY: True}


def _copies(bench: Bench, fresh: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return those of new files that are the same to the byte as one before; texts of a file each are no copies."""
    first: dict[str, str] = {}
    found = {}
    for path, one in fresh.items():
        before = first.setdefault(one["sha256"], path)
        if before != path and not _is_text(bench, path):
            found[path] = _copied(bench, path, before, one)
    return found


def _compare(bench: Bench, found: dict[str, dict[str, Any]]) -> None:
    """Report files that were read and have changed or gone, each change once."""
    sources = bench.journal.sources
    there = {one["sha256"]: path for path, one in reversed(found.items())}
    for path, before in list(sources.items()):
        now = found.get(path)
        if now is None:
            _miss(bench, path, there.get(before["sha256"]))
        elif now["sha256"] != before["sha256"]:
            if before.get(REPORTED) != now["sha256"]:
                bench.warn(f"{path}: has changed since it was read; the corpus keeps what was in it then")
            before[REPORTED] = now["sha256"]
        else:
            sources[path] = {**now, **({COPY: True} if COPY in before else {})}
    if sources and bench.journal.reading != _plain(bench.job.reading):
        bench.warn("[ingest]: has changed; new files are read as the first ones were")


def _miss(bench: Bench, path: str, other: str | None) -> None:
    """Report once that a file has gone, unless another file holds the same or it added nothing."""
    sources = bench.journal.sources
    one = sources[path]
    if other is not None:
        if COPY not in one and other in sources:
            sources[other].pop(COPY, None)  # from now on that is the file that the documents are from
        del sources[path]
        return
    if COPY not in one and GONE not in one:
        bench.note(f"{path}: was read, and is gone; the corpus keeps what was in it")
    one[GONE] = True


def _is_text(bench: Bench, path: str) -> bool:
    """Return whether a file is a document by itself."""
    return (bench.job.reading.get("format") or kind_of_name(path)) == "text"


def _paths(bench: Bench, files: dict[str, dict[str, Any]]) -> list[str]:
    """Name files to their reader; those that are a text each are called by their paths below the source."""
    if not _is_text(bench, next(iter(files))):
        return list(files)
    return [f"{path.removesuffix(one['below'])[:-1]}{BELOW}{one['below']}" for path, one in files.items()]


def _plain(reading: dict[str, Any]) -> dict[str, Any]:
    """Return what JSON makes of it."""
    plain: dict[str, Any] = json.loads(json.dumps(reading, default=str))
    return plain


def _ingest(bench: Bench, paths: list[str]) -> Manifest:
    if not bench.place.local:  # where nothing can be renamed: what was cut short
        bench.place.remove()
    clean_hidden(bench.folder)
    given = {**bench.able(ingest), **bench.job.reading}
    return ingest(paths, bench.place.url, progress=bench.documents("ingest"), **given)


def _append(bench: Bench, paths: list[str]) -> frozenset[str]:
    """Append files, and return those that documents were added from."""
    from collapsium.pipeline.corpora.append.additions import Addition
    from collapsium.pipeline.corpora.append.append import append_told
    from collapsium.pipeline.formatting import counted

    named = {field.name for field in fields(Addition)}
    reading = {name: value for name, value in bench.job.reading.items() if name in named}
    ingest_table = bench.job.ingest
    segments = str(bench.job.reading.get("segments") or "")
    if segments.startswith(HEADINGS):  # the job's file names the expression
        reading["headings"] = segments.removeprefix(HEADINGS)
    asked = Addition(
        **{**reading, **bench.where, "grow": ingest_table.grow, "skip_existing": ingest_table.skip_existing}
    )
    added = append_told(bench.place.url, paths, asked, bench.documents("append"))
    unknown = UnknownWords.of([added.report])
    text = counted(added.report.documents, bench.job.holds.removesuffix("s")) + " added"
    text += f": {unknown.text()}" if unknown.tokens else ""
    bench.tell({"event": "added", "documents": added.report.documents, **unknown.record(), "text": text})
    return added.files
