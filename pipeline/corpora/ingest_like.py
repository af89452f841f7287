"""Ingest new documents with the recorded options and the vocabulary of a corpus, run or model."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from collapsium.pipeline.corpora.recorded_reading import RecordedReading, history_like, with_guesses_of_counts
from collapsium.pipeline.corpora.text_ingest import RecordedVocabulary, ingest_texts
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.schedulers import Scheduler
from collapsium.storage.building.flatten import flatten_corpus
from collapsium.storage.building.ingest import ingest as ingest_source
from collapsium.storage.building.ingest import ingest_vectors
from collapsium.storage.building.ingest_record import History
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.errors import MismatchError, NoVocabularyError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.transactions import ensure_free
from collapsium.storage.readers.base import Source
from collapsium.storage.readers.counts.relabelled import RelabelledSource
from collapsium.storage.readers.open import TEXTS, open_source, open_vectors
from collapsium.storage.readers.side_files.table import Sides
from collapsium.storage.units import Counting, silent


@dataclass(frozen=True)
class NewSources:
    """New sources and the options of their reading."""

    paths: Sequence[str]  # Files, folders and globs
    format: str | None = None  # Their format; by default recognised by the first name, or else the recorded one
    # The user's options of reading; see `collapsium.storage.readers.open.ReadOptions`
    options: Mapping[str, Any] = field(default_factory=dict)
    may_be_empty: bool = False  # True if sources without a word of the vocabulary are permitted


def ingest_like(
    recorded: RecordedReading,
    sources: NewSources,
    corpus: str | os.PathLike[str],
    *,
    history: History | None = None,
    sides: Sides | None = None,
    shard_tokens: int | None = None,
    scheduler: Scheduler | None = None,
    workers: int | None = None,
    tls: TLS | None = None,
    progress: Counting = silent,
) -> Manifest:
    """Write new documents as a corpus with the vocabulary of a record."""
    paths = [os.fspath(path) for path in sources.paths]
    ensure_free(Folder(corpus))
    history = history or history_like(recorded, paths, sources.options, sources.format)
    how: dict[str, Any] = {"shard_tokens": shard_tokens, "sides": sides, "progress": progress}
    if history.kind == "vectors":
        return _ingest_vectors(recorded, paths, corpus, history, how)
    if history.kind not in TEXTS:
        history = with_guesses_of_counts(history, paths)
        source = RelabelledSource(_counted(recorded, paths, history), recorded.vocabulary.words)
        return ingest_source(source, corpus, history=_plain(history), **how)
    how |= {"scheduler": scheduler, "workers": workers, "tls": tls}
    how["like"] = RecordedVocabulary(recorded.vocabulary, sources.may_be_empty)
    if not history.flattened:
        return ingest_texts(paths, corpus, history, **how)
    target = Folder(corpus)
    head, _, name = target.address.rpartition("/")
    unflattened = Folder(f"{head or '.'}/.{name}.{uuid.uuid4().hex[:8]}.whole")
    try:
        ingest_texts(paths, unflattened.url, replace(history, flattened=False), **how)
        return flatten_corpus(Corpus(unflattened.url), corpus)
    finally:
        unflattened.remove()


def _plain(history: History) -> History:
    """Return a history without the settings of texts."""
    return replace(history, phrasing=None, flattened=False)


def _ingest_vectors(
    recorded: RecordedReading, paths: list[str], corpus: str | os.PathLike[str], history: History, how: dict[str, Any]
) -> Manifest:
    source, expected = open_vectors(paths, history.options), recorded.vocabulary.words
    columns = source.columns()
    if columns != expected:
        pairs = zip(columns, expected, strict=False)
        first = next((f"{one!r} for {other!r}" for one, other in pairs if one != other), f"{len(columns)} columns")
        raise MismatchError(
            f"{source.name}: expected the {len(expected)} columns of {recorded.name}, in their order, found {first}"
        )
    return ingest_vectors(source, corpus, history=history, **how)


def _counted(recorded: RecordedReading, paths: list[str], history: History) -> Source:
    """Open word counts with their own vocabulary file or, if they have none, with the recorded words."""
    options = replace(history.options, optional=())
    try:
        return open_source(paths, history.kind, options)
    except NoVocabularyError as error:
        history_of_record = recorded.history
        pruned = (
            history_of_record is None
            or history_of_record.kind in TEXTS
            or history_of_record.report.words < history_of_record.report.source_words
        )
        if pruned:
            raise NoVocabularyError(
                error.path,
                f"expected the words of its numbers: they need not be those of {recorded.name}, whose vocabulary was "
                "made of texts or pruned; name the file of words that belongs to it (`vocabulary` FILE)",
            ) from None
        return open_source(paths, history.kind, replace(options, vocabulary=tuple(recorded.vocabulary.words)))
