"""Processes, threads, memory and folders that a fit may use."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil

from collapsium.pipeline.executors.schedulers import Scheduler
from collapsium.storage.units import parse_size

# Share of a memory limit that plans use, where a process that exceeds it is killed; estimates may err by 10%
USABLE_SHARE = 0.9


@dataclass(frozen=True)
class Place:
    """Processes, threads, memory and folders that a fit may use."""

    scheduler: str  # As for `fit`
    # Worker processes, and threads in each
    processes: int
    threads: int
    memory: float  # Bytes that each process may hold
    scratch: str  # Folder for spilled local states
    run: str | None = None  # Folder of the run; None where it is not known, or not on this machine

    @property
    def is_killed(self) -> bool:
        """True if a process that holds more than its memory is killed: Dask's nannies restart a worker that does."""
        return self.scheduler not in ("threads", "serial")

    @property
    def usable(self) -> float:
        """Bytes of each process that a plan may use."""
        return USABLE_SHARE * self.memory if self.is_killed else self.memory


def free_memory() -> int:
    """Return the bytes of memory that are free on this machine, or in this process's control group if that has less."""
    available = int(psutil.virtual_memory().available)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
    except OSError:
        return available
    return min(available, max(int(limit) - int(used), 0)) if limit.isdigit() and used.isdigit() else available


def local_place(
    scheduler: Scheduler,
    workers: int | None = None,
    memory: str | int | None = None,
    scratch: str | None = None,
    run: str | None = None,
) -> Place:
    """Return the place of a scheduler on this machine; see `estimate` for the parameters."""
    processors = len(os.sched_getaffinity(0))
    count = workers or (1 if scheduler == "serial" else processors)
    if scheduler in ("threads", "serial"):
        processes, threads = 1, 1 if scheduler == "serial" else count
    else:
        processes, threads = count, 1
    total = free_memory() + int(psutil.Process().memory_info().rss)
    limit = parse_size(memory) if memory is not None else total / (processes if scheduler == "local" else 1)
    return Place(str(scheduler), processes, threads, float(limit), scratch or tempfile.gettempdir(), run)


def free_bytes(folder: str) -> float:
    """Return the free bytes of the disk on which a folder is or would be."""
    path = Path(folder).absolute()
    while not path.exists():
        path = path.parent
    return float(shutil.disk_usage(path).free)
