"""A run on disk: `run.json`, written once, and `events.jsonl`, to which each iteration appends an event."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, Field, model_validator

from collapsium.storage.corpus.manifest import MANIFEST
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import AbsentError, DamagedError, NotFiniteError, OccupiedError, OptionError
from collapsium.storage.io.folder import Folder, ensure_free, recorded_url, remove_parts
from collapsium.storage.io.records import (
    MAX_BYTES,
    Count,
    Digest,
    Number,
    OpenRecord,
    check,
    dump,
    parse_json,
    read_record,
)
from collapsium.storage.io.run_lock import RunLock
from collapsium.storage.runs.model import Processor

if TYPE_CHECKING:
    from collapsium.storage.runs import checkpoint

MAX_RESTARTS = 1000  # Largest number of restarts of an ensemble
MAX_LINE = 1 << 24  # Largest event, in bytes; large ones have the top words of some hundred topics

# Required fields of each kind of event
REQUIRED: dict[str, tuple[str, ...]] = {
    "cluster": ("scheduler", "workers", "dashboard"),
    "compile": ("compile_seconds",),
    "compiling": ("compiled", "kernels"),
    "start": ("family", "documents", "tokens", "words", "shards"),
    "begin": ("family", "documents", "tokens", "words", "shards"),
    "iteration": ("iteration", "elapsed"),
    "member": ("member", "iteration", "elapsed", "reason"),
    "notice": ("text",),
    "back": ("iteration", "reason"),
    "saving": ("iteration",),
    "end": ("iteration", "elapsed", "reason"),
}

Member = Annotated[int, Field(strict=True, ge=0, lt=MAX_RESTARTS)]


class ProcessActivity(BaseModel):
    """A worker process: its name, its memory in bytes, and its running tasks."""

    name: str | int
    memory: Number
    doing: tuple[str, ...]


class SweepTimes(BaseModel):
    """Durations of the sweeps of shards, in seconds."""

    quartiles: Annotated[tuple[Number, ...], Field(min_length=5, max_length=5)] = (0.0,) * 5
    shards: Count = 0
    total: Number = 0.0


class Event(OpenRecord):
    """A line of `events.jsonl` or `journal.jsonl`, which may have further metrics of a family."""

    event: str
    iteration: Count = 0
    elapsed: Number = 0.0
    member: Member = 0
    generation: Count = 0
    family: str = ""
    holds: Literal["documents", "vectors"] = "documents"
    documents: Count = 0
    tokens: Number = 0.0
    words: Count = 0
    shards: Count = 0
    iterations: Count = 0
    restarts: Annotated[int, Field(strict=True, ge=0, le=MAX_RESTARTS)] = 0
    scheduler: str = ""
    workers: Count = 0
    dashboard: str | None = None
    compile_seconds: Number = 0.0
    saving_seconds: Number = 0.0
    compiled: Count = 0
    kernels: Count = 0
    score: Number = 0.0
    objective: Number = 0.0
    change: Number = 0.0
    topics_99: Number = 0.0
    topics: Number = 0.0
    tokens_a_second: Number = 0.0
    documents_share: Annotated[float, Field(strict=True, gt=0, le=1)] = 1.0
    active: Count = 0
    sizes: tuple[tuple[Count, Number], ...] = ()
    moved: tuple[tuple[Count, Number], ...] = ()
    seconds: dict[str, Number] = Field(default_factory=dict)
    sweeps: SweepTimes = SweepTimes()
    top_words: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    processes: tuple[ProcessActivity, ...] = ()
    text: str = ""
    reason: str = ""
    remark: str = ""
    members: Count = 0
    ended: Count = 0


def parse_event(line: bytes, path: str, where: str) -> JsonObject:
    """Parse and check an event."""
    record = parse_json(line, path, where, max_bytes=MAX_LINE)
    if not isinstance(record, dict) or not isinstance(record.get("event"), str):
        raise DamagedError(path, "expected an event", where)
    event = check(Event, record, path, where)
    missing = next((name for name in REQUIRED.get(event.event, ()) if name not in event.model_fields_set), None)
    if missing is not None:
        raise DamagedError(path, f"expected the field {missing!r} of an event {event.event!r}", where)
    return record


DONE = ("iterations", "tolerance", "converged")  # Reasons for which a run has ended, rather than stopped

RECORD, EVENTS, MODEL, CHECKPOINTS = "run.json", "events.jsonl", "model", "checkpoints"
CORPUS = "corpus"  # Folder of the corpus that a fit to texts has made

LOCK, JOURNAL, MEMBERS = "lock", "journal.jsonl", "members"
KIND = "collapsium-run"
VERSION = 2

MAX_PROCESSORS = 1_000  # Largest number of distinct processors in a run
MAX_STAGES = 64  # Largest number of stages of a fit over samples of the documents
MAX_SAMPLES = 10_000  # Largest number of posterior samples of a run, each a model on disk

# Largest number of pseudo-tokens by which an initialisation stays in a document's prior, far above any document's
# length
MAX_START_STRENGTH = 1e9

Restarts = Annotated[int, Field(strict=True, ge=0, le=MAX_RESTARTS)]


class CorpusPlace(OpenRecord):
    """The URL of a corpus at the beginning of the run, its digest, and its shards' files' digests."""

    url: str
    digest: Digest
    shards: tuple[Digest, ...] = ()


class WarmPlace(OpenRecord):
    """The model of a warm start or, for an ensemble, the models of its members."""

    url: str
    digest: Digest
    topics: Count
    local_states: str = ""
    members: Annotated[tuple[WarmPlace, ...], Field(max_length=MAX_RESTARTS)] = ()


class StartPlace(OpenRecord):
    """The start of a fit: the way that it is computed, or ``file`` with the URL and the digest of its proportions."""

    kind: Literal["file", "quick-clusters", "clusters", "documents", "tree"]
    url: str = ""
    digest: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = ""
    strength: Annotated[Number, Field(ge=0, le=MAX_START_STRENGTH)] = 0.0

    @model_validator(mode="after")
    def _file_has_a_place(self) -> StartPlace:
        if (self.kind == "file") != bool(self.url) or bool(self.url) != bool(self.digest):
            raise ValueError("expected the URL and the digest of a file, and of nothing else")
        return self


class LimitsRecord(OpenRecord):
    """Limits of a run; `collapsium.pipeline.engine.setup.limits.Limits` checks the rest."""

    iterations: Count | None
    tolerance: Number | str
    schedule: str
    local_sweeps: Count | Literal["auto"]
    batch_shards: Count
    passes: Count = 1
    samples: Annotated[int, Field(strict=True, ge=0, le=MAX_SAMPLES)] = 0
    sample_every: Count = 0


Stage: TypeAlias = tuple[Count, Count]  # First iteration of a stage, and the n of its sample: one document in n


def _ascending(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return stages; raise `ValueError` unless they begin with the run and end with all documents."""
    firsts, sizes = [first for first, _ in stages], [every for _, every in stages]
    ascending = firsts == sorted(set(firsts)) and sizes == sorted(set(sizes), reverse=True)
    if not stages or not ascending or firsts[0] != 0 or sizes[-1] != 1:
        raise ValueError("expected stages from iteration 0 on, with samples that grow to all documents")
    return stages


class RunRecord(OpenRecord):
    """The fields of `run.json`.

    ``growth`` has the stages of a fit over samples of the documents. ``best_member`` is the only member left of an
    ensemble with ``keep`` "best". ``combine`` is "consensus" if the run's model joins its members.
    """

    family: str
    options: JsonObject
    limits: LimitsRecord
    planned: Count | None = None
    growth: Annotated[tuple[Stage, ...], Field(max_length=MAX_STAGES), AfterValidator(_ascending)] | None = None
    seed: Annotated[int, Field(strict=True)]
    corpus: CorpusPlace
    heldout: CorpusPlace | None
    versions: dict[str, str] = Field(default_factory=dict)
    warm: WarmPlace | None = None
    start: StartPlace | None = None
    restarts: Restarts = 0
    keep: Literal["all", "best"] = "all"
    combine: Literal["predictions", "consensus"] = "predictions"
    best_member: Annotated[int, Field(strict=True, ge=0, lt=MAX_RESTARTS)] = 0
    processors: Annotated[tuple[Processor, ...], Field(max_length=MAX_PROCESSORS)] = ()


class Run:
    """A run's folder."""

    def __init__(self, url: str | os.PathLike[str] | Folder) -> None:
        self.folder = url if isinstance(url, Folder) else Folder(url)
        self.generation = 0
        # Size of `events.jsonl`, once known.
        self._size: int | None = None

    @property
    def model(self) -> Folder:
        """Folder of the run's model."""
        return self.folder / MODEL

    @property
    def checkpoints(self) -> checkpoint.Checkpoints:
        """Checkpoints of the run."""
        from collapsium.storage.runs import checkpoint

        return checkpoint.Checkpoints(self.folder / CHECKPOINTS, self.generation)

    def member(self, number: int) -> Folder:
        """Return the folder of a restart, which is a run, or of a sample, which is a model."""
        return self.folder / MEMBERS / f"{number:03d}"

    def in_member(self, number: int) -> Run:
        """Return the run of a restart."""
        return Run(self.member(number))

    def exists(self) -> bool:
        """Return True if the folder holds a run."""
        return self.folder.exists(RECORD)

    @property
    def lock(self) -> RunLock:
        """Lock of the process that works on the run."""
        return RunLock(self.folder / LOCK, before=lambda: self.checkpoints.generation)

    @contextmanager
    def held(self) -> Iterator[RunLock]:
        """Hold the run's lock, which every write then requires."""
        plain = self.folder
        with self.lock as lock:
            self.folder, self.generation = plain.fenced(lock), lock.generation
            try:
                yield lock
            finally:
                self.folder, self.generation = plain, 0

    def create(self, record: JsonObject) -> None:
        """Make the folder and write `run.json`; of two processes at the same time, one succeeds."""
        data = dump({"format": KIND, "version": VERSION, **record})
        # The model's record has the options too, and further fields.
        if len(data) > MAX_BYTES // 2:
            raise OptionError(
                f"expected options that take at most {MAX_BYTES // 2:,} bytes in a record, found {len(data):,}; tables "
                "of words may leave out those that occur rarely"
            )
        if not self.folder.exists(f"{CORPUS}/{MANIFEST}") or self.folder.names() != [CORPUS]:
            ensure_free(self.folder)
        self.folder.make()
        if not self.folder.create(RECORD, data):
            raise OccupiedError(f"{self.folder.url}: another process has just made it; name a new folder")

    def rewrite(self, record: JsonObject) -> None:
        """Replace `run.json`."""
        self.folder.write(RECORD, dump({**record, "format": KIND, "version": VERSION}))

    def record(self) -> JsonObject:
        """Read and check `run.json`."""
        if not self.folder.exists(RECORD):
            raise AbsentError(f"{self.folder.url}: not a run, it has no {RECORD}; `fit` makes one")
        record = read_record(self.folder, RECORD, KIND, VERSION, oldest=2)
        check(RunRecord, record, f"{self.folder.url}/{RECORD}")
        return record

    def place_of(self, part: str) -> str | None:
        """Return the URL of a corpus or model that the run was fitted with."""
        place = self.record().get(part)
        if not isinstance(place, dict) or place.get("url") is None:
            return None
        return recorded_url(self.folder, place["url"])

    def clean(self) -> None:
        """Remove temporary files and folders of processes that have died; only the owner of the lock may."""
        for folder in (self.folder, self.folder / MEMBERS, self.folder / CHECKPOINTS, self.model):
            remove_parts(folder)

    def append_journal(self, event: JsonObject) -> None:
        """Append an event to `journal.jsonl`, which is not part of the run's result."""
        self.folder.append(JOURNAL, self._line(event))

    def append_event(self, event: JsonObject) -> None:
        """Append an event to `events.jsonl`."""
        data, size = self._line(event), self.events_size()
        self._size = None
        self.folder.append(EVENTS, data)
        self._size = size + len(data)

    def _line(self, event: JsonObject) -> bytes:
        """Return an event as a line, with the generation of its writer."""
        by = {"generation": self.generation} if self.generation else {}
        try:
            return (json.dumps({**event, **by}, allow_nan=False) + "\n").encode()
        except ValueError:
            metrics = [(name, value) for name, value in event.items() if isinstance(value, float)]
            fault = next((f"{name} {value}" for name, value in metrics if not math.isfinite(value)), "others")
            raise NotFiniteError(
                self.folder.url,
                f"expected finite metrics, found {fault}; no more is written, and the last checkpoint stays",
                f"iteration {event.get('iteration', 0)}",
            ) from None

    def replace_events(self, events: Sequence[JsonObject]) -> None:
        """Replace all events."""
        self._size = None
        self.folder.write(EVENTS, b"".join((json.dumps(event, allow_nan=False) + "\n").encode() for event in events))

    def events(self) -> list[JsonObject]:
        """Read the events, oldest first, up to the first line that is damaged or incomplete."""
        return self._read_events()[0]

    def events_fault(self) -> str | None:
        """Return the fault of `events.jsonl`; None if there is none."""
        return self._read_events()[1]

    def _read_events(self) -> tuple[list[JsonObject], str | None]:
        events: list[JsonObject] = []
        *lines, _ = self._events_data().split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                events.append(parse_event(line, f"{self.folder.url}/{EVENTS}", f"line {number}"))
            except DamagedError as error:
                return events, str(error)
        return events, None

    def events_size(self) -> int:
        """Return the size of `events.jsonl` in bytes; no other process writes it meanwhile."""
        if self._size is None:
            self._size = len(self._events_data())
        return self._size

    def _events_data(self) -> bytes:
        return self.folder.read(EVENTS) if self.folder.exists(EVENTS) else b""

    def save_events(self, size: int, place: Folder) -> str:
        """Copy the first `size` bytes of `events.jsonl` to another folder; return their SHA-256."""
        return place.write(EVENTS, self._events_data()[:size])

    def truncate_events(self, size: int) -> None:
        """Truncate `events.jsonl` to at most `size` bytes."""
        self._size = None
        self.folder.truncate(EVENTS, size)

    def restore_events(self, size: int, digest: str, place: Folder, notice: Callable[[str], None]) -> None:
        """Truncate `events.jsonl` to its first `size` bytes, or restore these if they are damaged.

        A run continues without events that are lost.
        """
        data = self._events_data()
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
        notice(f"{fault}; continuing with the first {len(events)} events")
