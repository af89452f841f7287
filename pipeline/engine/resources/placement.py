"""Where a fit runs, what it may take there, and what it gives back in the end."""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from collapsium.pipeline.engine.resources.estimate import Plan
from collapsium.pipeline.engine.resources.place import Place
from collapsium.pipeline.engine.setup.limits import CheckpointOptions
from collapsium.pipeline.executors.base import CLUSTER_TIMEOUT, TLS, Executor
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.options import MemoryOptions, SchedulerOptions, TimeoutOptions
from collapsium.storage.errors import OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.transactions import unfinished
from collapsium.storage.units import parse_size
from collapsium.workers.arrays import buffer_pool as buffers

HERE = ("threads", "serial", "local")  # schedulers whose workers all run on this machine


@dataclass(frozen=True)
class Where:
    """Where a fit runs and what it may take there; see `fit`."""

    scheduler: str = "threads"
    workers: int | None = None
    memory: str | int | None = None
    scratch: str | None = None
    checkpoint_every: int | None = None
    cluster_timeout: float = CLUSTER_TIMEOUT
    tls: TLS | None = None
    strict_bits: bool = False

    def __post_init__(self) -> None:
        every = self.checkpoint_every
        if every is not None and (type(every) is not int or every < 1):
            raise OptionError(f"expected a whole number of 1 or more, found {every!r}", "checkpoint_every")
        if not self.cluster_timeout > 0:
            raise OptionError(f"expected seconds above 0, found {self.cluster_timeout!r}", "cluster_timeout")
        if type(self.strict_bits) is not bool:
            raise OptionError(f"expected true or false, found {self.strict_bits!r}", "strict_bits")

    @staticmethod
    def of(
        scheduling: SchedulerOptions,
        memory: MemoryOptions,
        checkpoints: CheckpointOptions,
        timeouts: TimeoutOptions,
        tls: TLS | None,
    ) -> Where:
        """Put together the options of where a fit runs."""
        return Where(**dict(scheduling), **dict(memory), **dict(checkpoints), **dict(timeouts), tls=tls)

    @property
    def here(self) -> bool:
        """Whether what a place may hold is known before anything is started."""
        return self.scheduler in HERE

    def open(self, notice: Callable[[str], None]) -> Executor:
        """Start or reach what runs the tasks."""
        memory = None if self.memory is None else parse_size(self.memory)
        return open_executor(
            self.scheduler, self.workers, memory, tls=self.tls, cluster_timeout=self.cluster_timeout, notice=notice
        )


def place_there(scheduler: str, executor: Executor, memory: str | int | None, scratch: str | None) -> Place:
    """Say what a cluster that runs elsewhere may hold."""
    limit = parse_size(memory) if memory is not None else executor.memory or math.inf
    threads = max(executor.workers // executor.homes, 1)
    return Place(scheduler, executor.homes, threads, float(limit), scratch or tempfile.gettempdir())


@contextlib.contextmanager
def freed_memory(executor: Executor) -> Iterator[None]:
    """Give back, in the end, the memory that workers have fetched ahead."""
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            executor.everywhere(_release)


def _release() -> None:
    buffers.pool.release()


@contextlib.contextmanager
def scratch_folder(planned: Plan, executor: Executor) -> Iterator[str | None]:
    """Name a folder for scratch files that no other run has, if one is needed, and remove it on all machines.

    On this machine alone, those that drivers who died have left in the same place are removed first.

    Parameters
    ----------
    planned : Plan
        What the fit takes, and where.
    executor : Executor
        Whose workers write there.

    Yields
    ------
    str or None
        The folder's path; None where none is needed.
    """
    if not planned.on_disk:
        yield None
        return
    parent = Path(planned.place.scratch).absolute()
    if planned.place.scheduler in HERE:
        with unfinished(Folder(str(parent / "collapsium-scratch"))) as place:
            yield place.path
        return
    folder = str(parent / f"collapsium-{uuid.uuid4().hex[:12]}")
    try:
        yield folder
    finally:
        with contextlib.suppress(Exception):
            executor.everywhere(shutil.rmtree, folder, True)
