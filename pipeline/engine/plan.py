"""Places where fits run, and the resources that they take there: scheduler, memory, scratch folder, estimate."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import LOCAL_SCHEDULERS, ExecutorOptions, Scheduler, Scheduling
from collapsium.storage.errors import CapacityError
from collapsium.storage.io.folder import Folder, unfinished
from collapsium.storage.printable import ShortRepr
from collapsium.storage.units import parse_size, rate, size
from collapsium.workers.arrays import buffer_pool as buffers

# Share of a memory limit that plans use, as estimates may err by 10%
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
    def usable(self) -> float:
        """Bytes of each process that a plan may use."""
        return USABLE_SHARE * self.memory


@dataclass(frozen=True)
class Scratch:
    """Place of shards and their local states between sweeps: memory, or scratch files.

    The shards in scratch files are spread evenly over all, so that each process has its part of them.
    """

    folder: str | None = None  # Folder of scratch files, local to each machine; None if all stay in memory
    # Number of shards in scratch files, and of all shards
    spilled: int = 1
    shards: int = 1
    # Whether each local state is freed as soon as its sweep has made the next one; else all are held until the
    # iteration is complete
    replaced: bool = False

    def of(self, shard: int) -> str | None:
        """Return the folder of a shard's scratch files; None where the shard stays in memory."""
        before, after = (number * self.spilled // self.shards for number in (shard, shard + 1))
        return self.folder if after > before else None


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
    if scheduler in LOCAL_SCHEDULERS:
        processes, threads = 1, 1 if scheduler == "serial" else count
    else:
        processes, threads = count, 1
    total = free_memory() + int(psutil.Process().memory_info().rss)
    limit = parse_size(memory) if memory is not None else total
    return Place(str(scheduler), processes, threads, float(limit), scratch or tempfile.gettempdir(), run)


def free_bytes(folder: str) -> float:
    """Return the free bytes of the disk on which a folder is or would be."""
    path = Path(folder).absolute()
    while not path.exists():
        path = path.parent
    return float(shutil.disk_usage(path).free)


@dataclass(frozen=True)
class Exchange:
    """Traffic and time of the exchange by which worker processes on different machines learn of each other's counts.

    Where changes are whole numbers, every machine sends the changes of a part of the vocabulary to the machine that
    adds them up (reduce-scatter), and receives the sums of all parts (all-gather): M (H - 1) / H bytes in each
    direction on H machines, whatever H is. Otherwise the machine that holds most rows sends these to all others.

    Attributes
    ----------
    machines : int
        Machines, with a worker process each.
    link : float
        Bits per second of a machine's link, in each direction.
    sent : float
        Bytes that leave the machine that sends most in an iteration.
    coding : float
        Seconds in which a core of each machine encodes, adds and decodes the counts of an iteration.
    sweeps : int
        Sweeps between two exchanges, `local_sweeps`.
    sweeping, scoring : float or None
        Seconds of one sweep and of the scores of an iteration, from the run that measured them; None without such a
        run.
    """

    machines: int
    link: float
    sent: float
    coding: float
    sweeps: int = 1
    sweeping: float | None = None
    scoring: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds of an iteration's exchange."""
        return 8 * self.sent / self.link + self.coding

    @property
    def iteration(self) -> float | None:
        """Seconds of an iteration, none of which overlap; None without measured sweeps."""
        if self.sweeping is None:
            return None
        return self.sweeps * self.sweeping + (self.scoring or 0.0) + self.seconds

    @property
    def balancing_sweeps(self) -> int | None:
        """Sweeps between two exchanges that take as long as an exchange; None without measured sweeps."""
        return None if self.sweeping is None else balancing_sweeps(self.sweeping, self.seconds)

    def table(self) -> list[str]:
        """Return the exchange as lines of text."""
        rows = [
            ("through the busiest link, per iteration", size(self.sent)),
            (f"  exchange, at {rate(self.link)}", f"{self.seconds:.3g} s"),
        ]
        if self.sweeping is None:
            return [f"{name:<58}{value:>10}" for name, value in rows]
        rows.append(("  sweeps", f"{self.sweeps * self.sweeping:.3g} s"))
        if self.scoring is not None:
            rows.append(("  scores", f"{self.scoring:.3g} s"))
        rows.append(("an iteration, if nothing overlaps", f"{self.iteration:.3g} s"))
        advice = exchange_advice(self.sweeping, self.seconds, self.machines, self.sweeps)
        return [*(f"{name:<58}{value:>10}" for name, value in rows), *([advice] if advice else [])]

    def record(self) -> dict[str, object]:
        """Return the exchange for programs."""
        derived = {name: getattr(self, name) for name in ("seconds", "iteration", "balancing_sweeps")}
        return {**asdict(self), **derived}


def balancing_sweeps(sweeping: float, exchanging: float) -> int:
    """Return the sweeps between two exchanges that take as long as an exchange; at least one."""
    return max(math.ceil(exchanging / max(sweeping, 1e-9)), 1)


def exchange_advice(sweeping: float, exchanging: float, machines: int, sweeps: int = 1) -> str:
    """Return a line about what would balance an exchange and the sweeps before it; empty if it takes no longer."""
    swept = max(sweeping * sweeps, 1e-9)
    if exchanging <= swept:
        return ""
    ratio = exchanging / swept
    compared = f"the exchange takes {ratio:.1f} times as long as the sweeps ({exchanging:.3g} and {swept:.3g} s)"
    if ratio > machines - 1:
        return f"{compared}: one of the {machines} worker processes alone would take less"
    balancing = balancing_sweeps(sweeping, exchanging)
    return f"{compared}: `local_sweeps` {balancing} would balance them, where each sweep gains a little less"


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
        Bytes of the driver at its peak, if it is a separate process; else 0.
    scratch : float
        Bytes on the local disks of all machines together; 0 where all local states stay in memory.
    run : float
        Bytes of the run's folder: checkpoints and the model.
    moved, moved_scoring : float
        Bytes that move between worker processes in an iteration, and the additional bytes if held-out tokens are scored
        after it.
    free : float or None
        Free bytes on the disk of the scratch files; None if it belongs to another machine.
    run_free : float or None
        Free bytes on the disk of the run; None if unknown.
    members : int
        Members of an ensemble that are fitted at a time; 1 for a fit by itself.
    matching : int
        Tasks at a time that compare the topics of several models.
    inferring : float
        Bytes that a process of `infer` needs to fold new documents into all models of an ensemble; 0 for a single
        model.
    exchange : Exchange or None
        Traffic and time of the exchange between machines; None if their `link` is not stated.
    shards, spilled : int
        Shards of the corpus, and how many of them are in scratch files between sweeps; the others stay in memory.
    replaced : bool
        Whether each local state is freed as soon as its sweep has made the next one, so that an interrupted fit first
        finishes its iteration; else all are held until the iteration is complete.
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
    exchange: Exchange | None = None
    shards: int = 0
    spilled: int = 0
    replaced: bool = False

    @property
    def needed(self) -> float:
        """Bytes of each worker process at its peak."""
        return sum(self.memory.values())

    @property
    def on_disk(self) -> bool:
        """True if local states of some shards are spilled to disk."""
        return self.spilled > 0

    def problem(self) -> str:
        """Return a line about the resource that is too small; empty if all suffice."""
        if self.needed > self.place.usable:
            return (
                f"a worker process needs {size(self.needed)} of memory and may use {self._limit()}; give it "
                "more (`memory`), or use fewer topics, a smaller vocabulary or smaller shards"
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
        return f"{size(self.place.usable)} ({USABLE_SHARE:.0%} of {size(self.place.memory)})"

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
        if self.spilled:
            lines.append(
                f"{'  of so many shards; the others stay in memory':<58}{f'{self.spilled} of {self.shards}':>10}"
            )
        lines.append(f"{'disk for the run: two checkpoints and the model':<58}{size(self.run):>10}")
        lines.append(f"{'moved between processes, per iteration':<58}{size(self.moved):>10}")
        if self.moved_scoring:
            lines.append(f"{'  and more if held-out tokens are scored after it':<58}{size(self.moved_scoring):>10}")
        if self.inferring:
            lines.append(f"{'memory of infer, which folds into all models':<58}{size(self.inferring):>10}")
        if self.exchange is not None:
            lines += self.exchange.table()
        return "\n".join(lines)

    def record(self) -> dict[str, object]:
        """Return the plan for programs; sizes in bytes, None where there is no limit."""
        plan = asdict(self)
        if math.isinf(self.place.memory):
            plan["place"]["memory"] = None
        if self.exchange is not None:
            plan["exchange"] = self.exchange.record()
        return {**plan, "needed": self.needed, "fits": not self.problem(), "problem": self.problem()}

    def require(self) -> None:
        """Raise an error if the memory or the disk is too small for the fit.

        Raises
        ------
        CapacityError
            The memory or the disk is too small; the error contains the table.
        """
        problem = self.problem()
        if problem:
            raise CapacityError(f"not enough memory or disk for this fit: {problem}\n{self.table()}")


class Placement(ExecutorOptions, Scheduling):
    """The options of `fit` that say where and how its tasks run."""

    @property
    def is_local(self) -> bool:
        """True if all workers run on this machine, so that their memory is known before they start."""
        return self.scheduler in LOCAL_SCHEDULERS

    def open(self, notice: Callable[[str], None]) -> Executor:
        """Start the executor, or connect to it."""
        memory = None if self.memory is None else parse_size(self.memory)
        return open_executor(
            self.scheduler, self.workers, memory, tls=self.tls, cluster_timeout=self.cluster_timeout, notice=notice
        )


def cluster_place(scheduler: Scheduler, executor: Executor, memory: str | int | None, scratch: str | None) -> Place:
    """Return the place of a cluster on other machines."""
    # Beyond their limit, workers are killed, whatever the option says.
    limit = min(math.inf if memory is None else parse_size(memory), executor.memory or math.inf)
    threads = max(executor.workers // executor.processes, 1)
    return Place(str(scheduler), executor.processes, threads, float(limit), scratch or tempfile.gettempdir())


@contextlib.contextmanager
def freed_memory(executor: Executor) -> Iterator[None]:
    """Release, in the end, the memory that the workers' buffer pools hold."""
    try:
        yield
    finally:
        release_memory(executor)


def release_memory(executor: Executor) -> None:
    """Release the memory that the workers' buffer pools hold for sweeps; what fails here costs memory only."""
    with contextlib.suppress(Exception):
        executor.everywhere(_release)


def _release() -> None:
    buffers.pool.release()


@contextlib.contextmanager
def scratch_folder(planned: Plan, executor: Executor) -> Iterator[Scratch]:
    """Provide a folder for the scratch files of only this run, if one is needed, and remove it on all machines.

    Where all workers run on this machine, folders that dead processes left in the same place are removed first.
    """
    if not planned.on_disk:
        yield Scratch(replaced=planned.replaced)
        return
    with temporary_folder(planned.place.scratch, planned.place.scheduler, executor) as folder:
        yield Scratch(folder, planned.spilled, planned.shards, planned.replaced)


@contextlib.contextmanager
def temporary_folder(parent: str, scheduler: str, executor: Executor) -> Iterator[str]:
    """Provide a folder in `parent` on each worker's machine for the duration of a piece of work."""
    place = Path(parent).absolute()
    if scheduler in LOCAL_SCHEDULERS:
        with unfinished(Folder(str(place / "collapsium-scratch"))) as scratch:
            yield scratch.path
        return
    folder = str(place / f"collapsium-{uuid.uuid4().hex[:12]}")
    try:
        yield folder
    finally:
        with contextlib.suppress(Exception):
            executor.everywhere(shutil.rmtree, folder, True)
