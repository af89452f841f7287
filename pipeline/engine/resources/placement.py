"""The placement of a fit on an executor, its scratch folder, and the release of its memory."""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from collapsium.pipeline.engine.resources.plan import Place, Plan
from collapsium.pipeline.engine.setup.limits import CheckpointOptions
from collapsium.pipeline.executors.base import CLUSTER_TIMEOUT, TLS, Executor
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import (
    LOCAL_SCHEDULERS,
    MemoryOptions,
    Scheduler,
    SchedulerOptions,
    TimeoutOptions,
)
from collapsium.storage.errors import OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.transactions import unfinished
from collapsium.storage.units import parse_size
from collapsium.workers.arrays import buffer_pool as buffers


@dataclass(frozen=True)
class Placement:
    """Scheduler, memory and checks of a fit; see `fit` for the fields."""

    scheduler: Scheduler = "threads"
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
    ) -> Placement:
        """Return the placement that these options describe."""
        return Placement(**dict(scheduling), **dict(memory), **dict(checkpoints), **dict(timeouts), tls=tls)

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
    # Beyond the workers' own limit they are killed, whatever the option says.
    limit = min(math.inf if memory is None else parse_size(memory), executor.memory or math.inf)
    threads = max(executor.workers // executor.homes, 1)
    return Place(str(scheduler), executor.homes, threads, float(limit), scratch or tempfile.gettempdir())


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
def scratch_folder(planned: Plan, executor: Executor) -> Iterator[str | None]:
    """Provide a folder for the scratch files of this run alone, if one is needed, and remove it on all machines.

    Where all workers run on this machine, folders that dead processes left in the same place are removed first.
    """
    if not planned.on_disk:
        yield None
        return
    parent = Path(planned.place.scratch).absolute()
    if planned.place.scheduler in LOCAL_SCHEDULERS:
        with unfinished(Folder(str(parent / "collapsium-scratch"))) as scratch:
            yield scratch.path
        return
    folder = str(parent / f"collapsium-{uuid.uuid4().hex[:12]}")
    try:
        yield folder
    finally:
        with contextlib.suppress(Exception):
            executor.everywhere(shutil.rmtree, folder, True)
