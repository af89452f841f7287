"""Events of the iterations of a run, and of the resources that it took."""

from __future__ import annotations

import resource
import sys
from typing import TYPE_CHECKING, Any

from collapsium.storage.errors import CollapsiumError

if TYPE_CHECKING:
    from collapsium.pipeline.engine.state import Progress
    from collapsium.pipeline.executors.base import Executor


def usage(executor: Executor, iterations: int) -> dict[str, Any]:
    """Return what the run took: bytes moved between workers, and the peak memory of the processes."""
    try:
        peaks = executor.everywhere(_peak_memory)
        moved = executor.moved()
    except CollapsiumError:  # a cluster that is gone cannot say
        return {}
    own = [] if executor.homes == 1 and executor.dashboard is None else [_peak_memory()]
    each = moved / (iterations + 1)  # the start is one too
    return {
        "moved_bytes": moved,
        "moved_bytes_an_iteration": each,
        "worker_peak_bytes": peaks,
        "driver_peak_bytes": own[0] if own else 0,
    }


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def event_of(progress: Progress) -> dict[str, Any]:
    """Return what is told of an iteration."""
    event: dict[str, Any] = {"event": "iteration", "iteration": progress.iteration, "elapsed": progress.elapsed}
    if progress.lost:
        return {**event, "event": "back", "reason": progress.lost}
    if progress.iteration == 0:
        event["event"] = "started"
    if progress.score is not None:
        event["score"] = progress.score
    if progress.change is not None:
        event["change"] = progress.change
    event.update(progress.figures)
    whole = sum(progress.seconds.values())
    if progress.iteration and progress.tokens and whole > 0.0:
        event["tokens"] = progress.tokens
        event["tokens_a_second"] = float(f"{progress.tokens / whole:.4g}")
    event.update(progress.topics)
    seconds = {name: round(spent, 6) for name, spent in progress.seconds.items()}
    more = {"sweeps": progress.sweeps, "top_words": progress.words}
    return {**event, "seconds": seconds, **{name: value for name, value in more.items() if value}}
