"""Context of a running batch job: its configuration, folder, journal and sinks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from collapsium.pipeline.monitoring.events import Event, Sink, emit
from collapsium.pipeline.workflows.batch.config import Job
from collapsium.pipeline.workflows.batch.journal import Journal
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import MANIFEST
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import digest_of
from collapsium.storage.runs.published import Versions

CYCLES, PUBLISHED, CORPUS = "cycles", "published", "corpus"


@dataclass
class JobContext:
    """A running job, whose lock this process holds."""

    job: Job  # Its configuration
    folder: Folder  # Its folder
    sinks: Sequence[Sink]  # Receive each event
    owned: Callable[[], None]  # Raises an error if another process has taken over the job
    warnings: list[str] = field(default_factory=list)  # Messages that need attention
    notices: list[str] = field(default_factory=list)  # Messages for information, each reported once

    def __post_init__(self) -> None:
        self.journal = Journal.read(self.folder)
        self.versions = Versions(self.folder / PUBLISHED)
        self.corpus_folder = self.folder / CORPUS

    @property
    def corpus(self) -> Corpus | None:
        """The corpus; None before the first ingest."""
        return Corpus(self.corpus_folder.url) if self.corpus_folder.exists(MANIFEST) else None

    @property
    def execution(self) -> dict[str, Any]:
        """Arguments of functions that choose the executor."""
        cluster = self.job.cluster
        return {"scheduler": cluster.scheduler, "workers": cluster.workers, "tls": self.job.tls}

    def execution_for(self, function: Callable[..., object]) -> dict[str, object]:
        """Return those arguments of `execution` that a function has."""
        parameters = inspect.signature(function).parameters
        return {name: value for name, value in self.execution.items() if name in parameters and value is not None}

    def plan(self) -> str:
        """Return the digest of the options and the corpus of the next version; empty without a corpus."""
        corpus = self.corpus
        return "" if corpus is None else digest_of({**self.job.plan(), "corpus": corpus.manifest.digest})

    def write(self) -> None:
        """Write the journal."""
        self.owned()
        self.journal.write(self.folder)

    def warn(self, text: str) -> None:
        """Report a message that needs attention."""
        self.warnings.append(text)
        self.emit({"event": "warning", "text": text})

    def note(self, text: str) -> None:
        """Report a message for information."""
        self.notices.append(text)
        self.emit({"event": "notice", "text": text})

    def emit(self, event: Event) -> None:
        """Send an event to all sinks."""
        emit(self.sinks, event)

    def emit_step(self, step: str, *, done: bool) -> None:
        """Report the start or the end of a step."""
        self.emit({"event": "step", "step": step, "done": done, "version": self.journal.number})

    def progress(self, step: str) -> Callable[[int], None]:
        """Return a function that reports the number of documents of a step."""
        return lambda number: self.emit({"event": "documents", "step": step, "documents": number})


def clean_hidden(folder: Folder) -> None:
    """Remove unfinished files of a process that died."""
    for name in folder.names():
        if name.startswith(".") and name.endswith(".part"):
            (folder / name).remove()
