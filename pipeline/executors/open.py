"""Open the executor that a scheduler option names."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from collapsium.pipeline.executors.base import CLUSTER_TIMEOUT, TLS, Executor, SerialExecutor
from collapsium.pipeline.executors.schedulers import as_scheduler, check_scheduler
from collapsium.storage.errors import OptionError
from collapsium.storage.lazy_module import LazyModule

if TYPE_CHECKING:
    from collapsium.pipeline.executors import dask_cluster, liveness, threads
else:
    # Dask takes half a second to import, which a fit in threads need not wait for.
    dask_cluster = LazyModule("collapsium.pipeline.executors.dask_cluster")
    liveness = LazyModule("collapsium.pipeline.executors.liveness")
    threads = LazyModule("collapsium.pipeline.executors.threads")

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
        return threads.ThreadExecutor(workers or len(os.sched_getaffinity(0)), notice)
    _import_dask()
    watch = liveness.Watch(cluster_timeout, notice)
    if scheduler == "local":
        return dask_cluster.start_cluster(workers, memory, tls, watch)
    return dask_cluster.reach_cluster(scheduler, workers or 1, tls, watch)


def _import_dask() -> None:
    """Import Dask, and keep the level of its loggers if the program has set one, as commands do."""
    level = logging.getLogger(DASK_LOGGERS[0]).level
    if level == logging.NOTSET or DASK_LOGGERS[0] in sys.modules:
        return
    _ = dask_cluster.SETTINGS
    for name in DASK_LOGGERS:
        logging.getLogger(name).setLevel(level)
