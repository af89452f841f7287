"""Open the executor that a scheduler option names."""

from __future__ import annotations

import logging
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

from collapsium.pipeline.executors import liveness
from collapsium.pipeline.executors.base import CLUSTER_TIMEOUT, TLS, Executor, SerialExecutor
from collapsium.pipeline.executors.schedulers import (
    ClientOrCluster,
    Scheduler,
    as_scheduler,
    check_scheduler,
    is_elsewhere,
)
from collapsium.storage.errors import CollapsiumError, OptionError
from collapsium.storage.io.file import File
from collapsium.storage.io.folder import Folder

DASK_LOGGERS = ("distributed", "distributed.client")  # Loggers whose levels Dask sets as it is imported

_warned = logging.getLogger("collapsium").warning


def open_executor(
    scheduler: object = "threads",
    workers: int | None = None,
    memory: int | None = None,
    *,
    tls: TLS | None = None,
    cluster_timeout: float = CLUSTER_TIMEOUT,
    notice: Callable[[str], None] = _warned,
) -> Executor:
    """Return an executor: threads, a local cluster, or a connection to a Dask scheduler."""
    scheduler = as_scheduler(scheduler)
    check_scheduler(scheduler, workers)
    if tls is not None and scheduler in ("serial", "threads"):
        raise OptionError(f"expected a cluster (`scheduler` local or tls://...), found {scheduler}", "tls_ca")
    if scheduler == "serial":
        return SerialExecutor()
    if scheduler == "threads":
        from collapsium.pipeline.executors import threads

        return threads.ThreadExecutor(workers or len(os.sched_getaffinity(0)), notice)
    with _same_log_level():
        from collapsium.pipeline.executors import dask_cluster

    watch = liveness.Watch(cluster_timeout, notice)
    if scheduler == "local":
        return dask_cluster.start_cluster(workers, memory, tls, watch)
    return dask_cluster.reach_cluster(scheduler, workers, tls, watch)


def require_shared(
    folder: Folder, scheduler: Scheduler, tls: TLS | None, *, target: str | None, option: str = "out"
) -> None:
    """Refuse a folder of this machine that the workers of a cluster elsewhere cannot read, as one task finds out.

    `target` is what the user named, or None for a temporary folder.
    """
    if not is_elsewhere(scheduler) or not folder.local:
        return
    name, token = f".shared-{uuid.uuid4().hex[:8]}", uuid.uuid4().bytes
    # Whoever opens the executor that does the work hears of its notices.
    executor = open_executor(scheduler, None, tls=tls, notice=lambda text: None)  # noqa: ARG005
    try:
        folder.write(name, token)
        if executor.collect([executor.submit(_reads, folder.address, name, token)])[0]:
            return
    finally:
        executor.close()
        File(f"{folder.address}/{name}").remove()
    where = (
        f"the workers of {scheduler} cannot read a temporary folder of this machine"
        if target is None
        else f"{target}: the workers of {scheduler} cannot read it"
    )
    raise OptionError(f"{where}; name a folder that all machines share", option)


def require_readable(folder: Folder, name: str) -> None:
    """Refuse a folder of this machine whose file a worker of the active client cannot read.

    Workers answer at once, although all may be busy, as no task is submitted.
    """
    scheduler = as_scheduler(None)
    if not isinstance(scheduler, ClientOrCluster) or not folder.local or dask_collections().is_overridden():
        return
    with dask_collections().client_of(scheduler) as client:
        if client.asynchronous:
            return
        # A worker that does not answer may be gone by the time that the collection is computed.
        answers = client.run(_reads, folder.address, name, folder.read(name), on_error="return")
    worker = next((worker for worker, read in answers.items() if read is False), None)
    if worker is not None:
        raise OptionError(
            f"{folder.url}: the worker {worker} cannot read it; move it to a folder that all machines share"
        )


def _reads(address: str, name: str, token: bytes) -> bool:
    """Return True if a file has a content, on the worker that runs this task."""
    try:
        return Folder(address).read(name) == token
    except (CollapsiumError, OSError):
        return False


def dask_collections() -> ModuleType:
    """Return the module of Dask's collections, which a program that has one has imported Dask for already."""
    with _same_log_level():
        from collapsium.pipeline.executors import dask_collections as module

    return module


@contextmanager
def _same_log_level() -> Iterator[None]:
    """Keep the level of Dask's loggers, which its first import resets, if the program has set one, as commands do."""
    level, imported = logging.getLogger(DASK_LOGGERS[0]).level, DASK_LOGGERS[0] in sys.modules
    yield
    if level != logging.NOTSET and not imported:
        for name in DASK_LOGGERS:
            logging.getLogger(name).setLevel(level)
