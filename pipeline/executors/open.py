"""Open the executor that a scheduler option names."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from collapsium.pipeline.executors.base import CLUSTER_TIMEOUT, TLS, Executor, SerialExecutor
from collapsium.storage.errors import OptionError

SCHEDULERS = "threads, local, serial or an address such as tcp://host:8786"


def check_scheduler(scheduler: str, workers: int | None) -> None:
    """Raise `OptionError` if `workers` is less than 1 or the scheduler's name is unknown; no connection is made."""
    if workers is not None and (type(workers) is not int or workers < 1):
        raise OptionError(f"expected a whole number of 1 or more, found {workers!r}", "workers")
    if scheduler not in ("serial", "threads", "local") and "://" not in scheduler:
        raise OptionError(f"expected {SCHEDULERS}, found {scheduler!r}", "scheduler")


_warned = logging.getLogger("collapsium").warning


def open_executor(
    scheduler: str = "threads",
    workers: int | None = None,
    memory: int | None = None,
    *,
    tls: TLS | None = None,
    cluster_timeout: float = CLUSTER_TIMEOUT,
    notice: Callable[[str], None] = _warned,
) -> Executor:
    """Return an executor: threads, a local cluster, or a connection to a Dask scheduler.

    Parameters
    ----------
    scheduler : str, optional
        ``threads`` runs worker threads in this process, ``local`` starts a Dask cluster of worker processes on this
        machine, with its dashboard, ``serial`` runs each task at once; else the address of a Dask scheduler.
    workers : int, optional
        Number of workers to start, by default one a processor, or number to wait for on a cluster that runs elsewhere.
        ``serial`` ignores it.
    memory : int, optional
        Bytes that each worker process of ``local`` may hold; by default its share of the machine's.
    tls : TLS, optional
        Certificates for a cluster whose messages are encrypted.
    cluster_timeout : float, optional
        Seconds after which a silent worker or scheduler counts as lost, and limit of the wait for the first workers.
    notice : callable, optional
        Receives a line of text about each problem of the cluster; by default a warning of the logger ``collapsium``.

    Returns
    -------
    Executor
        The executor; the caller closes it.

    Raises
    ------
    ClusterError
        The scheduler cannot be reached, or has too few workers.
    OptionError
        `workers` is less than 1, or the scheduler's name is unknown.
    """
    check_scheduler(scheduler, workers)
    if tls is not None and scheduler in ("serial", "threads"):
        raise OptionError(f"expected a cluster (`scheduler` local or tls://...), found {scheduler}", "tls_ca")
    if scheduler == "serial":
        return SerialExecutor()
    if scheduler == "threads":
        from collapsium.pipeline.executors.threads import ThreadExecutor

        return ThreadExecutor(workers or len(os.sched_getaffinity(0)), notice)
    # Dask takes half a second to import, which a fit in threads need not wait for.
    from collapsium.pipeline.executors.dask_cluster import reach_cluster, start_cluster
    from collapsium.pipeline.executors.liveness import Watch

    watch = Watch(cluster_timeout, notice)
    if scheduler == "local":
        return start_cluster(workers, memory, tls, watch)
    return reach_cluster(scheduler, workers or 1, tls, watch)
