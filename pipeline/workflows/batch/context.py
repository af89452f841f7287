"""What a batch job has at hand while it is worked on: its tables, its folder and journal, and those who listen."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from collapsium.pipeline.monitoring.events import Sink, tell
from collapsium.pipeline.workflows.batch.config import Job
from collapsium.pipeline.workflows.batch.journal import Journal
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import MANIFEST
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import digest_of
from collapsium.storage.runs.published import Versions

CYCLES, PUBLISHED, CORPUS = "cycles", "published", "corpus"


@dataclass
class Bench:
    """A job that is worked on by whoever holds its lock.

    Attributes
    ----------
    job : Job
        What is asked for.
    folder : Folder
        Where everything of it lies.
    sinks : sequence of callable
        Told each event.
    owned : callable
        Raises an error where another process has taken the job over.
    warnings : list of str
        What should be looked at.
    notices : list of str
        What is good to know, and is reported once.
    """

    job: Job
    folder: Folder
    sinks: Sequence[Sink]
    owned: Callable[[], None]
    warnings: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal = Journal.read(self.folder)
        self.versions = Versions(self.folder / PUBLISHED)
        self.place = self.folder / CORPUS

    @property
    def corpus(self) -> Corpus | None:
        """The corpus; None before there is one."""
        return Corpus(self.place.url) if self.place.exists(MANIFEST) else None

    @property
    def where(self) -> dict[str, Any]:
        """Where it is computed."""
        cluster = self.job.cluster
        return {"scheduler": cluster.scheduler, "workers": cluster.workers, "tls": self.job.tls}

    def able(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Return where it is computed, for a function that can be told."""
        named = inspect.signature(function).parameters
        return {name: value for name, value in self.where.items() if name in named and value is not None}

    def plan(self) -> str:
        """Return the digest of what the next version would be made of; empty before there is a corpus."""
        corpus = self.corpus
        return "" if corpus is None else digest_of({**self.job.plan(), "corpus": corpus.manifest.digest})

    def write(self) -> None:
        """Write the journal."""
        self.owned()
        self.journal.write(self.folder)

    def warn(self, text: str) -> None:
        """Say what should be looked at."""
        self.warnings.append(text)
        self.tell({"event": "warning", "text": text})

    def note(self, text: str) -> None:
        """Report what is good to know, once."""
        self.notices.append(text)
        self.tell({"event": "notice", "text": text})

    def tell(self, event: dict[str, Any]) -> None:
        """Give an event to those who listen."""
        tell(self.sinks, event)

    def say(self, step: str, *, done: bool) -> None:
        """Say that a step begins, or is done."""
        tell(self.sinks, {"event": "step", "step": step, "done": done, "version": self.journal.number})

    def documents(self, step: str) -> Callable[[int], None]:
        """Return what a step tells the number of its documents."""
        return lambda number: tell(self.sinks, {"event": "documents", "step": step, "documents": number})


def clean_hidden(folder: Folder) -> None:
    """Remove what a process that died has left half done."""
    for name in folder.names():
        if name.startswith(".") and name.endswith(".part"):
            (folder / name).remove()
