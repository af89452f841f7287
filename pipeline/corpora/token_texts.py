"""Open texts whose tokens are read in their order, as a model's own documents were read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from collapsium.pipeline.corpora.new_texts import Paths, as_headings, new_sources, temporary_folder
from collapsium.pipeline.corpora.recorded_reading import history_like, recorded_reading
from collapsium.pipeline.corpora.text_ingest import check_reading, leave_phrases
from collapsium.pipeline.corpora.text_sources import Sources, find_sources
from collapsium.pipeline.executors.schedulers import Scheduler
from collapsium.storage.errors import OptionError
from collapsium.storage.readers.open import TEXTS
from collapsium.storage.readers.texts.blocks import Block
from collapsium.workers.ingest.token_reading import ReadRequest


@dataclass(frozen=True)
class TokenTexts:
    """Texts that are read block by block, as tokens in their order."""

    sources: Sources  # The files
    request: ReadRequest  # Options of reading
    by_segment: bool  # Whether each segment is a document, as in a corpus of `explode`

    @property
    def name(self) -> str:
        """Name of the texts in errors."""
        return self.sources.name

    def blocks(self) -> Iterator[Block]:
        """Cut the texts into blocks, one for a task."""
        return self.sources.blocks(self.request.kind, self.request.options)


@contextmanager
def token_texts(
    run: str | os.PathLike[str],
    texts: Paths,
    *,
    reading: Mapping[str, Any] | None = None,
    scheduler: Scheduler | None = None,
    workers: int | None = None,
) -> Iterator[TokenTexts]:
    """Open texts to be read as a model's own documents were read."""
    recorded = recorded_reading(run)
    new = new_sources(texts, reading or {})
    with as_headings(reading or {}):
        history = history_like(recorded, list(new.paths), new.options, new.format)
    if history.kind not in TEXTS:
        raise OptionError(
            f"{new.paths[0]}: windows of tokens need texts in their order ({', '.join(TEXTS)}), found word counts "
            f"(format {history.kind})"
        )
    history, scheduler, stops = check_reading(history, scheduler, workers)
    vocabulary = recorded.vocabulary
    # A word with tokens was no stop word when the vocabulary was made, even if a list has it today.
    stops = stops.sparing(pa.array(vocabulary.words, pa.string()).filter(pa.array(vocabulary.tokens > 0)))
    sources = find_sources(list(new.paths), history, scheduler)
    joined = history.phrasing is not None
    with temporary_folder(run, scheduler) as place:
        if joined:
            leave_phrases(place, history.phrasing)
        request = ReadRequest(history.kind, history.options, place, sources.numbered, phrases=joined, stops=stops)
        yield TokenTexts(sources, request, history.exploded)
