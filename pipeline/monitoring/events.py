"""Events of a run: dicts of plain values that sinks receive, and that `events.jsonl` records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Event = dict[str, Any]  # An event; its key ``event`` has the kind, and the other keys depend on the kind
Sink = Callable[[Event], None]  # Receives events


def initial_event(name: str, **fields: Any) -> Event:
    """Return an event before the first iteration."""
    return {"event": name, "iteration": 0, "elapsed": 0.0, **fields}


def emit(sinks: Sequence[Sink], event: Event) -> None:
    """Send an event to all sinks."""
    for sink in sinks:
        sink(event)
