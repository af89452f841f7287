"""Events of runs as they are read: their fields, types and bounds, as anyone may have written a run's folder."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.records import Count, Number, check, parse_json

MAX_RESTARTS = 1000  # of an ensemble
MAX_LINE = 1 << 24  # bytes of an event; the largest have the top words of a few hundred topics

# Fields without which an event of a kind cannot be used.
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
    """A worker process: its name, the bytes that it holds, and the tasks that it runs."""

    name: str | int
    memory: Number
    doing: tuple[str, ...]


class SweepTimes(BaseModel):
    """Seconds that sweeps of shards took."""

    quartiles: Annotated[tuple[Number, ...], Field(min_length=5, max_length=5)] = (0.0,) * 5
    shards: Count = 0
    total: Number = 0.0


class Event(BaseModel):
    """A line of `events.jsonl` or `journal.jsonl`; figures of families stand beside these fields."""

    model_config = ConfigDict(extra="allow")

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
    compiled: Count = 0
    kernels: Count = 0
    score: Number = 0.0
    objective: Number = 0.0
    change: Number = 0.0
    topics_99: Number = 0.0
    topics: Number = 0.0
    tokens_a_second: Number = 0.0
    active: Count = 0
    sizes: tuple[tuple[Count, Number], ...] = ()
    moved: tuple[tuple[Count, Number], ...] = ()
    seconds: dict[str, Number] = {}
    sweeps: SweepTimes = SweepTimes()
    top_words: dict[str, tuple[str, ...]] = {}
    processes: tuple[ProcessActivity, ...] = ()
    text: str = ""
    reason: str = ""
    members: Count = 0
    ended: Count = 0


def parse_event(line: bytes, path: str, where: str) -> JsonObject:
    """Read an event.

    Parameters
    ----------
    line : bytes
        The line.
    path, where : str
        The file and the place in it, for errors.

    Returns
    -------
    dict
        The event as it stands there.

    Raises
    ------
    DamagedError
        It is no event, or lacks a field of its kind.
    """
    found = parse_json(line, path, where, most=MAX_LINE)
    if not isinstance(found, dict) or not isinstance(found.get("event"), str):
        raise DamagedError(path, "expected an event", where)
    event = check(Event, found, path, where)
    missing = next((name for name in REQUIRED.get(event.event, ()) if name not in event.model_fields_set), None)
    if missing is not None:
        raise DamagedError(path, f"expected the field {missing!r} of an event {event.event!r}", where)
    return found
