"""Events: what a run tells, as dicts of plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass

Sink = Callable[[dict[str, Any]], None]


def first(name: str, **fields: Any) -> dict[str, Any]:
    """Return an event before the first iteration."""
    return {"event": name, "iteration": 0, "elapsed": 0.0, **fields}


def has_iterations(events: Sequence[dict[str, Any]]) -> bool:
    """Say whether an iteration has been told."""
    return any(event.get("event") == "iteration" for event in events)


def tell(listeners: Sequence[Sink], event: dict[str, Any]) -> None:
    """Tell all who listen."""
    for listener in listeners:
        listener(event)
