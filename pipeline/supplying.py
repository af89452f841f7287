"""Supplying a batch job's corpus: its sources are ingested at first, and later those that are new are appended."""

from __future__ import annotations

import inspect
import json
from typing import Any

from collapsar.pipeline.intake import ingest
from collapsar.pipeline.journal import find_sources
from collapsar.pipeline.workbench import Bench, clean_hidden
from collapsar.storage.errors import AbsentError, InputError
from collapsar.storage.manifest import Manifest
from collapsar.storage.readers import kind_of_name
from collapsar.storage.readers.blocks import BELOW


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
    CollapsarError
        There is no file, or one is damaged. The corpus is as it was.
    """
    journal, corpus = bench.journal, bench.corpus
    found = find_sources(bench.job.ingest.sources, journal.sources)
    if not found:
        raise AbsentError(f"{', '.join(bench.job.ingest.sources)}: there is no file yet")
    if corpus is None:
        journal.sources = {}
    _follow(journal.sources, found)
    fresh = {path: one for path, one in found.items() if path not in journal.sources and one["size"]}
    if corpus is None and not fresh:
        raise InputError(next(iter(found)), "expected documents, the file is empty")
    _compare(bench, found)
    if not fresh:
        bench.write()
        return
    journal.pending = {"sources": fresh, "before": None if corpus is None else corpus.manifest.digest}
    if corpus is None:
        journal.reading = _plain(bench.job.reading)
    bench.write()
    step = "ingest" if corpus is None else "append"
    bench.say(step, done=False)
    (_ingest if corpus is None else _append)(bench, _paths(bench, fresh))
    bench.say(step, done=True)
    journal.sources.update(fresh)
    journal.pending = None
    bench.write()


def _follow(sources: dict[str, dict[str, Any]], found: dict[str, dict[str, Any]]) -> None:
    """Give files that were read and have been moved or copied their new names: what they hold is in the corpus.

    Where another file has taken the old name, as when files are rotated, that one is new.
    """
    known = {one["sha256"]: path for path, one in sources.items()}
    for path, one in found.items():
        before = known.get(one["sha256"])
        if before is not None and path not in sources:
            sources[path] = one
            if before not in found or found[before]["sha256"] != one["sha256"]:
                sources.pop(before, None)


def _compare(bench: Bench, found: dict[str, dict[str, Any]]) -> None:
    """Say which files that were read have changed or gone."""
    sources = bench.journal.sources
    for path, before in list(sources.items()):
        now = found.get(path)
        if now is None:
            bench.warn(f"{path}: was read, and is gone; the corpus keeps what was in it")
        elif now["sha256"] != before["sha256"]:
            bench.warn(f"{path}: has changed since it was read; the corpus keeps what was in it then")
        else:
            sources[path] = now
    if sources and bench.journal.reading != _plain(bench.job.reading):
        bench.warn("[ingest]: has changed; new files are read as the first ones were")


def _paths(bench: Bench, files: dict[str, dict[str, Any]]) -> list[str]:
    """Name files to their reader; those that are a text each are called by their paths below the source."""
    if (bench.job.reading.get("format") or kind_of_name(next(iter(files)))) != "text":
        return list(files)
    return [f"{path.removesuffix(one['below'])[:-1]}{BELOW}{one['below']}" for path, one in files.items()]


def _plain(reading: dict[str, Any]) -> dict[str, Any]:
    """Return what JSON makes of it."""
    plain: dict[str, Any] = json.loads(json.dumps(reading, default=str))
    return plain


def _ingest(bench: Bench, paths: list[str]) -> Manifest:
    if bench.place.exists():  # on stores that cannot rename: what was cut short
        bench.place.remove()
    clean_hidden(bench.folder)
    given = {**bench.able(ingest), **bench.job.reading}
    return ingest(paths, bench.place.url, progress=bench.documents("ingest"), **given)


def _append(bench: Bench, paths: list[str]) -> Manifest:
    from collapsar.pipeline import append

    named = inspect.signature(append).parameters
    reading = {name: value for name, value in bench.job.reading.items() if name in named}
    how = {"grow": bench.job.ingest.grow, "skip_existing": bench.job.ingest.skip_existing}
    given = {**how, **reading, **bench.able(append)}
    manifest: Manifest = append(bench.place.url, paths, progress=bench.documents("append"), **given)
    return manifest
