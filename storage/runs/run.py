"""A run on disk: `run.json`, written once, and `events.jsonl`, which grows."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from collapsium.storage.corpus.manifest import MANIFEST
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import AbsentError, DamagedError, OccupiedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.locks.run_lock import RunLock
from collapsium.storage.io.recorded_urls import recorded_url
from collapsium.storage.io.records import Count, Digest, Number, check, dump, read_record
from collapsium.storage.io.transactions import ensure_free
from collapsium.storage.runs.event_records import MAX_RESTARTS, parse_event
from collapsium.storage.runs.processor import Processor

if TYPE_CHECKING:
    from collapsium.storage.runs.checkpoint import Checkpoints

DONE = ("iterations", "tolerance", "converged")  # why a run is at its end
RECORD, EVENTS, MODEL, CHECKPOINTS = "run.json", "events.jsonl", "model", "checkpoints"
CORPUS = "corpus"  # that a fit to texts has made
LOCK, JOURNAL, MEMBERS = "lock", "journal.jsonl", "members"
KIND = "collapsium-run"
VERSION = 2


MAX_PROCESSORS = 1_000  # kinds of them
MAX_SAMPLES = 10_000  # of a run; each is a model on disk

Restarts = Annotated[int, Field(strict=True, ge=0, le=MAX_RESTARTS)]


class _Fields(BaseModel):
    """A part of `run.json`, beside whose fields later releases may write others."""

    model_config = ConfigDict(extra="allow")


class CorpusPlace(_Fields):
    """Where a corpus lay as the run began, its digest and those of its shards' files."""

    url: str
    digest: Digest
    shards: tuple[Digest, ...] = ()


class WarmPlace(_Fields):
    """The model that a run begins from; of an ensemble, those of its members."""

    url: str
    digest: Digest
    topics: Count
    local_states: str = ""
    members: Annotated[tuple[WarmPlace, ...], Field(max_length=MAX_RESTARTS)] = ()


class LimitsRecord(_Fields):
    """When the run ends; see `collapsium.pipeline.engine.setup.limits.Limits`, which checks the rest."""

    iterations: Count | None
    tolerance: Number | str
    schedule: str
    local_sweeps: Count
    batch_shards: Count
    passes: Count = 1
    samples: Annotated[int, Field(strict=True, ge=0, le=MAX_SAMPLES)] = 0
    sample_every: Count = 0


class RunRecord(_Fields):
    """What `run.json` says of a run; ``kept`` is the member that is left of an ensemble of which the best is kept."""

    family: str
    options: JsonObject
    limits: LimitsRecord
    planned: Count | None = None
    seed: Annotated[int, Field(strict=True)]
    corpus: CorpusPlace
    heldout: CorpusPlace | None
    versions: dict[str, str] = {}
    warm: WarmPlace | None = None
    restarts: Restarts = 0
    keep: Literal["all", "best"] = "all"
    best_member: Annotated[int, Field(strict=True, ge=0, lt=MAX_RESTARTS)] = 0
    processors: Annotated[tuple[Processor, ...], Field(max_length=MAX_PROCESSORS)] = ()


class Run:
    """A run's folder.

    Parameters
    ----------
    url : str, path-like or Folder
        Local path or fsspec URL; a folder keeps its fences.

    Attributes
    ----------
    folder : Folder
        The run's folder; see `held`.
    generation : int
        That of the lock under which this object writes; 0 without one.
    """

    def __init__(self, url: str | os.PathLike[str] | Folder) -> None:
        self.folder = url if isinstance(url, Folder) else Folder(url)
        self.generation = 0
        self._size: int | None = None  # of the events, as far as this object knows

    @property
    def model(self) -> Folder:
        """The folder of the run's model."""
        return self.folder / MODEL

    @property
    def checkpoints(self) -> Checkpoints:
        """The run's checkpoints."""
        from collapsium.storage.runs.checkpoint import Checkpoints  # arrays, which few of those that open a run read

        return Checkpoints(self.folder / CHECKPOINTS, self.generation)

    def member(self, number: int) -> Folder:
        """Return the folder of a restart, which is a run, or of a kept sample, which is a model."""
        return self.folder / MEMBERS / f"{number:03d}"

    def in_member(self, number: int) -> Run:
        """Return the run of a restart."""
        return Run(self.member(number))

    def exists(self) -> bool:
        """Tell whether there is such a run."""
        return self.folder.exists(RECORD)

    @property
    def lock(self) -> RunLock:
        """The lock of whoever works on the run."""
        return RunLock(self.folder / LOCK, before=lambda: self.checkpoints.generation)

    @contextmanager
    def held(self) -> Iterator[RunLock]:
        """Hold the run's lock, without which nothing is written meanwhile.

        Yields
        ------
        RunLock
            The lock.

        Raises
        ------
        LockedError
            Another process works on the run.
        TakenOverError
            Another process has taken it over since, as this one slept for longer than its lease; raised by whatever
            writes into the run.
        """
        plain = self.folder
        with self.lock as lock:
            self.folder, self.generation = plain.fenced(lock), lock.generation
            try:
                yield lock
            finally:
                self.folder, self.generation = plain, 0

    def create(self, record: JsonObject) -> None:
        """Make the folder and write `run.json`; of two who try at once, one succeeds.

        Parameters
        ----------
        record : dict
            Configuration, corpus, versions and seed.

        Raises
        ------
        OccupiedError
            The folder exists.
        """
        if not self.folder.exists(f"{CORPUS}/{MANIFEST}") or self.folder.names() != [CORPUS]:
            ensure_free(self.folder)
        self.folder.make()
        if not self.folder.create(RECORD, dump({"format": KIND, "version": VERSION, **record})):
            raise OccupiedError(f"{self.folder.url}: another process has just made it; name a new folder")

    def rewrite(self, record: JsonObject) -> None:
        """Replace `run.json`."""
        self.folder.write(RECORD, dump({**record, "format": KIND, "version": VERSION}))

    def record(self) -> JsonObject:
        """Read `run.json`.

        Returns
        -------
        dict
            What `create` wrote.

        Raises
        ------
        AbsentError
            This is no run.
        DamagedError
            The file is not such a record.
        """
        if not self.folder.exists(RECORD):
            raise AbsentError(f"{self.folder.url}: not a run, it has no {RECORD}")
        record = read_record(self.folder, RECORD, KIND, VERSION, oldest=2)
        check(RunRecord, record, f"{self.folder.url}/{RECORD}")
        return record

    def place_of(self, part: str) -> str | None:
        """Return where a corpus or model lies that the run was fitted with.

        Parameters
        ----------
        part : {"corpus", "heldout", "warm"}
            Which.

        Returns
        -------
        str or None
            Its URL; None where the record names none.

        Raises
        ------
        AbsentError
            The record names another store, which a user has to name; see `Folder.recorded`.
        """
        named = self.record().get(part)
        if not isinstance(named, dict) or named.get("url") is None:
            return None
        return recorded_url(self.folder, named["url"])

    def clean(self) -> None:
        """Remove what a process that died has left half done."""
        for folder in (self.folder, self.folder / MEMBERS, self.folder / CHECKPOINTS):
            for name in folder.names():
                if name.startswith(".") and name.endswith(".part"):
                    (folder / name).remove()

    def append_journal(self, event: JsonObject) -> None:
        """Append to `journal.jsonl` what befell the run, which is no part of its result."""
        self.folder.append(JOURNAL, self._line(event))

    def append_event(self, event: JsonObject) -> None:
        """Append an event to `events.jsonl`."""
        data, size = self._line(event), self.events_size()
        self._size = None
        self.folder.append(EVENTS, data)
        self._size = size + len(data)

    def _line(self, event: JsonObject) -> bytes:
        """Return an event as its line says it, with the generation of who has written it."""
        by = {"generation": self.generation} if self.generation else {}
        return (json.dumps({**event, **by}, allow_nan=False) + "\n").encode()

    def replace_events(self, events: Sequence[JsonObject]) -> None:
        """Replace all events."""
        self._size = None
        self.folder.write(EVENTS, b"".join((json.dumps(one, allow_nan=False) + "\n").encode() for one in events))

    def events(self) -> list[JsonObject]:
        """Read the events so far, oldest first, up to the first line that is damaged or still being written."""
        return self._read_events()[0]

    def events_fault(self) -> str | None:
        """Return what is wrong with `events.jsonl`; None where nothing is, or where there is none."""
        return self._read_events()[1]

    def _read_events(self) -> tuple[list[JsonObject], str | None]:
        events: list[JsonObject] = []
        *lines, _ = (self.folder.read(EVENTS) if self.folder.exists(EVENTS) else b"").split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                events.append(parse_event(line, f"{self.folder.url}/{EVENTS}", f"line {number}"))
            except DamagedError as error:
                return events, str(error)
        return events, None

    def events_size(self) -> int:
        """Return the size in bytes of `events.jsonl`, which nobody else writes meanwhile."""
        if self._size is None:
            self._size = len(self.folder.read(EVENTS)) if self.folder.exists(EVENTS) else 0
        return self._size

    def save_events(self, size: int, place: Folder) -> str:
        """Copy the first `size` bytes of `events.jsonl` to another folder; return their SHA-256."""
        data = self.folder.read(EVENTS) if self.folder.exists(EVENTS) else b""
        return place.write(EVENTS, data[:size])

    def truncate_events(self, size: int) -> None:
        """Leave the first `size` bytes of the events."""
        self._size = None
        self.folder.truncate(EVENTS, size)

    def restore_events(self, size: int, digest: str, place: Folder, notice: Callable[[str], None]) -> None:
        """Leave the first `size` bytes of the events, or bring them back where they are damaged.

        Events are history: a run goes on without those that cannot be had any more.

        Parameters
        ----------
        size, digest : int and str
            How much was saved, and its SHA-256.
        place : Folder
            Where `save_events` has saved it.
        notice : callable
            Told in a line what was wrong.
        """
        data = self.folder.read(EVENTS) if self.folder.exists(EVENTS) else b""
        if len(data) >= size and hashlib.sha256(data[:size]).hexdigest() == digest:
            self.truncate_events(size)
            return
        fault = self.events_fault() or f"{self.folder.url}/{EVENTS}: its bytes do not have their digest"
        saved = place.read(EVENTS) if place.exists(EVENTS) else b""
        if hashlib.sha256(saved).hexdigest() == digest:
            self._size = None
            self.folder.write(EVENTS, saved)
            notice(f"{fault}; the events were restored from the checkpoint")
            return
        events = self.events()
        self.replace_events(events)
        notice(f"{fault}; going on with the first {len(events)} events")
