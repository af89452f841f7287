"""Events of a run, written into its folder and sent to the sinks that follow it."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from collapsium.pipeline.monitoring.events import Sink, emit, initial_event
from collapsium.storage.errors import CollapsiumError
from collapsium.storage.runs.run import Run


class EventLog:
    """Writes events into a run's folder, once that exists, and sends them to sinks."""

    def __init__(
        self, target: Run, sinks: Sequence[Sink], *, has_folder: bool, fields: Mapping[str, object] | None = None
    ) -> None:
        self.target, self._sinks, self.has_folder, self._fields = target, [*sinks], has_folder, dict(fields or {})
        self.has_iterations = False
        # Members of an ensemble write to one folder from several threads.
        self._lock = threading.Lock()

    def subscribe(self, sink: Sink) -> None:
        """Add a sink."""
        self._sinks.append(sink)

    def send(self, event: Mapping[str, object]) -> None:
        """Send an event to the sinks."""
        ended = event["event"] == "iteration" or (event["event"] == "saving" and event["iteration"] != 0)
        self.has_iterations = self.has_iterations or ended
        emit(self._sinks, {**event, **self._fields})

    def record(self, event: Mapping[str, object]) -> None:
        """Append an event to the run's events."""
        with self._lock:
            self.target.append_event({**event, **self._fields})

    def emit(self, event: Mapping[str, object]) -> None:
        """Append an event to the run's events, and send it to the sinks."""
        self.record(event)
        self.send(event)

    def notice(self, text: str) -> None:
        """Send a line about the run to the sinks, and write it into the journal."""
        event = initial_event("notice", text=text)
        if self.has_folder:
            self.write_journal(event)
        self.send(event)

    def write_journal(self, event: Mapping[str, object]) -> None:
        """Append an event to the run's journal; a journal that cannot be written does not end the run."""
        origin = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "process": os.getpid(),
            "host": platform.node(),
        }
        with self._lock, contextlib.suppress(CollapsiumError):
            self.target.append_journal({**origin, **event, **self._fields})
