"""A model in memory that scores texts, and the run or the published versions that it is opened from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from collapsium.pipeline.fitted_model import TextFolding
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import topics
from collapsium.pipeline.workflows.batch.job_file import read_job
from collapsium.pipeline.workflows.batch.journal import PUBLISHED
from collapsium.pipeline.workflows.serve.options import ServeOptions
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import AbsentError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.published import VersionRecord, Versions
from collapsium.workers.arrays.ranking import largest

DIGITS = 6  # Decimal places of proportions in answers; fold-in moves the last sweep's counts by up to 1e-4 tokens
NO_WORDS: tuple[None, tuple[str, ...]] = None, ()  # In place of name and words of a topic without tokens
MAX_WORDS = 50  # Most words of a topic in an answer, which are looked up when the model is loaded


class ScoreRequest(BaseModel):
    """The body of a request to score texts."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    texts: list[str]
    topics: Annotated[int, Field(ge=0, le=1000)] = 5  # Number of the largest proportions of each text
    words: Annotated[int, Field(ge=0, le=MAX_WORDS)] = 10  # Number of words of each topic that is among them
    dense: bool = False  # Whether all proportions are returned too


@dataclass(frozen=True)
class Scored:
    """An answer, and its numbers for the metrics."""

    body: bytes
    texts: int
    tokens: int  # Tokens of known words
    unknown: int  # Tokens of unknown words


@dataclass(frozen=True)
class Scorer:
    """A model in memory, with the words of its topics."""

    folding: TextFolding
    version: VersionRecord | None  # None for a run
    reading: dict[str, str]  # Options of reading that have to be named again
    words: dict[int, tuple[str | None, tuple[str, ...]]]  # Name and first words of each topic that has tokens

    @classmethod
    def open(cls, url: str, reading: dict[str, str], version: VersionRecord | None = None) -> Scorer:
        """Load a model, and score a text, so that the first request finds all in memory."""
        model = Model(url)
        folding = TextFolding(model)
        words = {topic.id: (topic.title, tuple(topic.names)) for topic in topics(model, MAX_WORDS)}
        scorer = cls(folding, version, reading, words)
        scorer.score(ScoreRequest(texts=[""]))
        return scorer

    @property
    def number(self) -> int | None:
        """Number of the published version; None for a run."""
        return None if self.version is None else self.version.number

    @property
    def title(self) -> str:
        """The model, as text."""
        return os.fspath(self.folding.model) if self.version is None else self.version.title

    def describe(self) -> JsonObject:
        """Return the description of the model in answers."""
        model = self.folding.model
        record = model.record
        return {
            "name": self.title,
            "version": self.number,
            "family": record.family,
            "iterations": record.iterations,
            "topics": len(self.words),
            "words": len(model.vocabulary),
        }

    def describe_topics(self, words: int, chosen: Iterable[int] | None = None) -> JsonObject:
        """Return the names and first words of topics, by default of all that have tokens."""
        rows = ((topic, *self.words.get(topic, NO_WORDS)) for topic in (self.words if chosen is None else chosen))
        return {str(topic): {"name": name, "words": names[:words]} for topic, name, names in rows}

    def score(self, request: ScoreRequest) -> Scored:
        """Return the answer to a request."""
        read = self.folding.read(request.texts, self.reading)
        shares = self.folding.proportions(read)
        top = largest(shares, request.topics)
        rounded = np.round(shares, DIGITS)
        known = read.documents.tokens
        rows = zip(
            top.tolist(),
            np.take_along_axis(rounded, top, axis=1).tolist(),
            known.tolist(),
            read.unknown.tolist(),
            strict=True,
        )
        documents = [dict(zip(("topics", "proportions", "tokens", "unknown"), row, strict=True)) for row in rows]
        if request.dense:
            for document, row in zip(documents, rounded.tolist(), strict=True):
                document["dense"] = row
        answer: JsonObject = {"version": self.number, "documents": documents}
        if request.words:
            answer["topics"] = self.describe_topics(request.words, np.unique(top).tolist())
        body = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
        return Scored(body, len(documents), int(known.sum()), int(read.unknown.sum()))


@dataclass(frozen=True)
class ModelSource:
    """A run, or the published versions of a job."""

    url: str
    versions: Versions | None
    reading: dict[str, str]

    @classmethod
    def of(cls, run: str | os.PathLike[str], options: ServeOptions) -> ModelSource:
        """Return the source that a user names: the TOML file of a job, or the folder of a run or model."""
        url = os.fspath(run)
        named = {"tokenizer": options.tokenizer, "headings": options.headings}
        reading = {name: value for name, value in named.items() if value is not None}
        if not url.endswith(".toml"):
            return cls(url, None, reading)
        job = read_job(url)
        # A job file belongs to the user, and names how new texts are read.
        recorded = {name: str(job.reading[name]) for name in ("tokenizer", "segments") if job.reading.get(name)}
        return cls(url, Versions(Folder(job.batch.folder) / PUBLISHED), {**recorded, **reading})

    def current(self) -> int | None:
        """Return the number of the published version; None for a run."""
        return None if self.versions is None else self.versions.current()

    def open(self, number: int | None) -> Scorer:
        """Load the run, or a published version."""
        if self.versions is None:
            return Scorer.open(self.url, self.reading)
        if number is None:
            raise AbsentError(f"{self.url}: no version has been published yet; `batch` publishes one")
        return Scorer.open(self.versions.at(number).url, self.reading, self.versions.record(number))
