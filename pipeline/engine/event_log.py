"""Events of a run, written into its folder and sent to the sinks that follow it."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from collapsium.pipeline.monitoring.events import Sink, emit, initial_event
from collapsium.storage.errors import CollapsiumError
from collapsium.storage.runs.run import Run

if TYPE_CHECKING:
    from collapsium.pipeline.engine.state import Progress
    from collapsium.pipeline.executors.base import Executor


Event = dict[str, object]


def usage(executor: Executor, iterations: int) -> Event:
    """Return the bytes that moved between workers and the processes' peak memory; empty if the cluster is gone."""
    try:
        peaks = executor.everywhere(_peak_memory)
        moved = executor.moved()
    except CollapsiumError:
        return {}
    has_driver = executor.homes > 1 or executor.dashboard is not None
    return {
        "moved_bytes": moved,
        # The start is an iteration too.
        "moved_bytes_an_iteration": moved / (iterations + 1),
        "worker_peak_bytes": peaks,
        "driver_peak_bytes": _peak_memory() if has_driver else 0,
    }


def _peak_memory() -> int:
    """Return the most memory that this process has held, in bytes."""
    # The figure of getrusage begins with that of the process that started this one (getrusage(2)).
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def event_of(progress: Progress) -> Event:
    """Return the event of an iteration."""
    event: Event = {"event": "iteration", "iteration": progress.iteration, "elapsed": progress.elapsed}
    if progress.lost:
        return {**event, "event": "back", "reason": progress.lost}
    if progress.iteration == 0:
        event["event"] = "started"
    if progress.score is not None:
        event["score"] = progress.score
    if progress.change is not None:
        event["change"] = progress.change
    event.update(progress.figures)
    total = sum(progress.seconds.values())
    if progress.iteration and progress.tokens and total > 0.0:
        event["tokens"] = progress.tokens
        event["tokens_a_second"] = float(f"{progress.tokens / total:.4g}")
    if progress.every > 1:
        event["documents_share"] = 1.0 / progress.every
    event.update(progress.topics)
    event["seconds"] = {name: round(spent, 6) for name, spent in progress.seconds.items()}
    if progress.sweeps:
        event["sweeps"] = progress.sweeps
    if progress.words:
        event["top_words"] = progress.words
    return event


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
