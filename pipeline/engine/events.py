"""Events of the iterations of a run, and of the resources that it took."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from collapsium.storage.errors import CollapsiumError

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
