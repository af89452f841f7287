"""Records of events, with the fields, types and bounds that are checked when they are read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.records import Count, Number, OpenRecord, check, parse_json

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
