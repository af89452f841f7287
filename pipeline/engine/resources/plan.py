"""The estimate of a fit's resources, and its table."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from collapsium.pipeline.executors.schedulers import Scheduler
from collapsium.storage.errors import CapacityError
from collapsium.storage.printable import ShortRepr
from collapsium.storage.units import parse_size, size

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


@dataclass(frozen=True, repr=False)
class Plan(ShortRepr):
    """Resources that a fit takes.

    Attributes
    ----------
    place : Place
        Processes, threads and memory that it may use.
    memory : dict of str to float
        Bytes of each worker process at its peak, by use.
    driver : float
        Bytes of the driver at its peak, where it is a process of its own; else 0.
    scratch : float
        Bytes on the local disks of all machines together; 0 where local states stay in memory.
    run : float
        Bytes of the run's folder: checkpoints and the model.
    moved, moved_scoring : float
        Bytes that move between worker processes in an iteration, and more where held-out tokens are scored after it.
    free : float or None
        Bytes that are free where the scratch files would lie; None where that is another machine's.
    run_free : float or None
        Bytes that are free where the run would lie; None where that is not known.
    members : int
        Members of an ensemble that are fitted at a time; 1 for a fit by itself.
    matching : int
        Tasks at a time that compare the topics of several models.
    inferring : float
        Bytes of a process of `infer` that folds new documents into several models, whose mean the run has; else 0.
    """

    place: Place
    memory: dict[str, float] = field(default_factory=dict)
    driver: float = 0.0
    scratch: float = 0.0
    run: float = 0.0
    moved: float = 0.0
    moved_scoring: float = 0.0
    free: float | None = None
    run_free: float | None = None
    members: int = 1
    matching: int = 1
    inferring: float = 0.0

    @property
    def needed(self) -> float:
        """Bytes of each worker process at its peak."""
        return sum(self.memory.values())

    @property
    def on_disk(self) -> bool:
        """True if local states are spilled to disk."""
        return self.scratch > 0

    def problem(self) -> str:
        """Return a line about what does not fit; empty if all does."""
        if self.needed > self.place.usable:
            return (
                f"a worker process needs {size(self.needed)} of memory and may hold {self._limit()}; give it "
                "more (`memory`), or take fewer topics, a smaller vocabulary or smaller shards"
            )
        if self.free is not None and self.scratch > self.free:
            return (
                f"local states need {size(self.scratch)} of disk, and {size(self.free)} are free in "
                f"{self.place.scratch}; name another folder (`scratch`), or give more memory (`memory`)"
            )
        if self.run_free is not None and self.run > self.run_free:
            return (
                f"the run needs {size(self.run)} of disk for two checkpoints and the model, and {size(self.run_free)} "
                f"are free in {self.place.run}; write it elsewhere"
            )
        return ""

    def _limit(self) -> str:
        """Return the memory that a worker process may hold."""
        place = self.place
        share = f" ({place.usable / place.memory:.0%} of {size(place.memory)})" if place.is_killed else ""
        return f"{size(place.usable)}{share}"

    def table(self) -> str:
        """Return the plan as lines of text."""
        place = self.place
        where = f"{place.scheduler}: {place.processes} worker process(es) of {place.threads} thread(s)"
        lines = [f"{where}, {self.members} members side by side" if self.members > 1 else where, ""]
        rows = [(f"  {name}", value) for name, value in self.memory.items()]
        lines += ["memory of each worker process, at its peak"] + [
            f"{name:<58}{size(value):>10}" for name, value in rows
        ]
        limit = "  in all" if math.isinf(place.memory) else f"  in all, of {self._limit()}"
        lines.append(f"{limit:<58}{size(self.needed):>10}")
        lines.append(f"{'memory of all processes':<58}{size(self.needed * place.processes + self.driver):>10}")
        if self.driver:
            lines.append(f"{'  of which the driver':<58}{size(self.driver):>10}")
        lines.append(f"{'disk for local states (scratch)':<58}{size(self.scratch):>10}")
        lines.append(f"{'disk for the run: two checkpoints and the model':<58}{size(self.run):>10}")
        lines.append(f"{'moved between processes, an iteration':<58}{size(self.moved):>10}")
        if self.moved_scoring:
            lines.append(f"{'  and more if held-out tokens are scored after it':<58}{size(self.moved_scoring):>10}")
        if self.inferring:
            lines.append(f"{'memory of infer, which folds into all models':<58}{size(self.inferring):>10}")
        return "\n".join(lines)

    def record(self) -> dict[str, object]:
        """Return the plan for programs; sizes in bytes, None where there is no limit."""
        plan = asdict(self)
        if math.isinf(self.place.memory):
            plan["place"]["memory"] = None
        return {**plan, "needed": self.needed, "fits": not self.problem(), "problem": self.problem()}

    def require(self) -> None:
        """Raise an error if the fit does not fit.

        Raises
        ------
        CapacityError
            Memory or disk is short; the error has the table.
        """
        problem = self.problem()
        if problem:
            raise CapacityError(f"this fit does not fit: {problem}\n{self.table()}")
