"""Open the executor that a scheduler option names."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from collapsium.pipeline.executors import liveness
from collapsium.pipeline.executors.base import CLUSTER_TIMEOUT, TLS, Executor, SerialExecutor
from collapsium.pipeline.executors.schedulers import as_scheduler, check_scheduler
from collapsium.storage.errors import OptionError

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
    return dask_cluster.reach_cluster(scheduler, workers or 1, tls, watch)


@contextmanager
def _same_log_level() -> Iterator[None]:
    """Keep the level of Dask's loggers, which its first import resets, if the program has set one, as commands do."""
    level, imported = logging.getLogger(DASK_LOGGERS[0]).level, DASK_LOGGERS[0] in sys.modules
    yield
    if level != logging.NOTSET and not imported:
        for name in DASK_LOGGERS:
            logging.getLogger(name).setLevel(level)
