"""Memory and processors of the place where a fit runs."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil

from collapsium.storage.units import parse_size


@dataclass(frozen=True)
class Place:
    """Where a fit would run.

    Attributes
    ----------
    scheduler : str
        As for `fit`.
    processes, threads : int
        Worker processes, and threads in each.
    memory : float
        Bytes that each process may hold.
    scratch : str
        Folder for local states that do not fit.
    run : str or None
        Folder of the run, if it is known and on this machine.
    """

    scheduler: str
    processes: int
    threads: int
    memory: float
    scratch: str
    run: str | None = None


def free_memory() -> int:
    """Return the bytes that this process may use: what the machine, or its control group, has left."""
    found = int(psutil.virtual_memory().available)
    for limit, used in (("memory.max", "memory.current"),):
        try:
            most = Path("/sys/fs/cgroup", limit).read_text().strip()
            now = Path("/sys/fs/cgroup", used).read_text().strip()
        except OSError:
            continue
        if most.isdigit() and now.isdigit():
            found = min(found, max(int(most) - int(now), 0))
    return found


def place_of(
    scheduler: str,
    workers: int | None = None,
    memory: str | int | None = None,
    scratch: str | None = None,
    run: str | None = None,
) -> Place:
    """Say what a scheduler on this machine will have; see `estimate` for the parameters."""
    processors = len(os.sched_getaffinity(0))
    count = workers or (1 if scheduler == "serial" else processors)
    if scheduler in ("threads", "serial"):
        processes, threads = 1, 1 if scheduler == "serial" else count
    else:
        processes, threads = count, 1
    here = free_memory() + int(psutil.Process().memory_info().rss)
    limit = parse_size(memory) if memory is not None else here / (processes if scheduler == "local" else 1)
    return Place(scheduler, processes, threads, float(limit), scratch or tempfile.gettempdir(), run)
