"""Clusters: one of worker processes on this machine, or one that runs elsewhere and is reached."""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from typing import Any

import dask
import distributed
from dask.system import CPU_COUNT

from collapsium.pipeline.executors.base import CLUSTER_TIMEOUT, TLS, Executor
from collapsium.pipeline.executors.dask import CLOSE, DaskExecutor
from collapsium.pipeline.executors.dask_client import answer_within, close_client, first_line, within
from collapsium.pipeline.executors.dask_preload import PROMPT
from collapsium.pipeline.executors.liveness import Watch
from collapsium.pipeline.executors.scheduler_memory import forget_later
from collapsium.storage.errors import ClusterError, CollapsiumError, OptionError

SOON = 5.0  # seconds in which workers arrive that nobody needs to be told of
BETWEEN = 0.2  # seconds between two looks at the workers that have come

# Design: stealing moves soft-pinned tasks; Dask's own spilling pickles, so it is off.
SETTINGS = {
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.terminate": 1.0,  # of the limit, under which plans stay
    "distributed.worker.memory.pause": False,  # nothing that a sweep waits for would free memory
    "distributed.comm.timeouts.connect": "10s",
    "distributed.scheduler.worker-ttl": "60s",  # a process that says nothing for so long is gone
    "distributed.admin.tick.limit": "60s",
}


def start_cluster(
    workers: int | None = None, memory: int | None = None, tls: TLS | None = None, watch: Watch | None = None
) -> Executor:
    """Start a Dask cluster of worker processes on this machine.

    It listens on 127.0.0.1 alone, and encrypts its messages: loopback ports are open to all users of a machine, and
    whoever a scheduler or worker listens to can run code as its owner. Without certificates of the user's it makes
    some that live in memory, for as long as the cluster does.

    Parameters
    ----------
    workers : int, optional
        How many; by default one a processor.
    memory : int, optional
        Bytes that each may hold; one that holds more is started anew. By default its share of the machine's.
    tls : TLS, optional
        Certificates to use instead of those that are made for the cluster.
    watch : Watch, optional
        Judges what goes on while results are waited for.

    Returns
    -------
    Executor
        Closing it stops the cluster.
    """
    with dask.config.set(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Port .* is already in use", UserWarning)
        cluster = distributed.LocalCluster(
            n_workers=workers or CPU_COUNT,
            threads_per_worker=1,
            memory_limit=memory or "auto",
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:8787",
            silence_logs=logging.CRITICAL,
            preload=["collapsium.pipeline.executors.dask_preload"],
            protocol="tls://",
            security=distributed.Security.temporary() if tls is None else _security(tls),
        )
    prompt = _Prompt()
    cluster.scheduler.add_plugin(prompt)
    for worker in list(cluster.scheduler.stream_comms):
        prompt.add_worker(cluster.scheduler, worker)
    client = distributed.Client(cluster)
    client.scheduler_comm.interval = PROMPT
    return DaskExecutor(client, cluster, watch)


def _security(tls: TLS) -> Any:
    """Let every part of a cluster show the same certificate, and speak to none that has no such one."""
    parts = ("scheduler", "worker", "client")
    files = {f"tls_{part}_{kind}": getattr(tls, kind) for part in parts for kind in ("cert", "key")}
    return distributed.Security(tls_ca_file=tls.ca, require_encryption=True, **files)


class _Prompt(distributed.SchedulerPlugin):  # type: ignore[misc]
    """Lets the scheduler of a cluster of our own answer at once, also to workers that come later."""

    name = "collapsium-prompt"

    def add_worker(self, scheduler: Any, worker: str) -> None:
        if worker in scheduler.stream_comms:
            scheduler.stream_comms[worker].interval = PROMPT


def reach_cluster(address: str, workers: int, tls: TLS | None = None, watch: Watch | None = None) -> Executor:
    """Reach a Dask cluster that runs elsewhere.

    Parameters
    ----------
    address : str
        Of its scheduler.
    workers : int
        How many workers to wait for.
    tls : TLS, optional
        Certificates, if its messages are encrypted.
    watch : Watch, optional
        Judges what goes on while results are waited for.

    Returns
    -------
    Executor
        Closing it leaves the cluster as it is.

    Raises
    ------
    ClusterError
        The scheduler cannot be reached, or has too few workers.
    OptionError
        The address and the certificates do not go together.
    """
    encrypted = address.startswith("tls://")
    if tls is not None and not encrypted:
        raise OptionError(f"`scheduler` {address}: expected an address that begins with tls://")
    if tls is None and encrypted and dask.config.get("distributed.comm.tls.client.cert", None) is None:
        raise OptionError(
            f"`scheduler` {address}: expected `tls_ca`, `tls_cert` and `tls_key`, or certificates in Dask's settings"
        )

    def reach(seconds: float) -> Any:
        limit = min(dask.utils.parse_timedelta(SETTINGS["distributed.comm.timeouts.connect"]), seconds)
        security = {} if tls is None else {"security": _security(tls)}
        with dask.config.set({**SETTINGS, "distributed.comm.timeouts.connect": f"{limit}s"}):
            _require_answer(address, limit, security.get("security") or distributed.Security())
            client = within(
                2 * limit, lambda: distributed.Client(address, timeout=limit, set_as_default=False, **security)
            )
        try:
            answer_within(client, client.run_on_scheduler(forget_later, client.id, asynchronous=True), limit)
        except TimeoutError:
            close_client(client, 1.0)
            raise
        return client

    watch = watch or _silent()
    try:
        client = reach(watch.timeout)
    except (OSError, ValueError, TimeoutError, RuntimeError) as error:
        raise ClusterError(f"{address}: the scheduler cannot be reached ({first_line(error)})") from None
    try:
        _wait_for_workers(client, workers, watch)
        executor = DaskExecutor(client, None, watch, reach)
        if not encrypted:
            _warn_if_exposed(executor, watch)
        return executor
    except (CollapsiumError, KeyboardInterrupt):
        close_client(client, CLOSE)
        raise


def _require_answer(address: str, seconds: float, security: Any) -> None:
    """Ask a scheduler who it is, and raise `TimeoutError` where it does not answer in time.

    `distributed.Client` waits without limit for a scheduler that takes the connection and says nothing.
    """

    async def ask() -> None:
        comm = await distributed.core.connect(address, timeout=seconds, **security.get_connection_args("client"))
        try:
            await distributed.core.send_recv(comm, op="identity", n_workers=0)
        finally:
            comm.abort()

    loop = asyncio.new_event_loop()  # closed without waiting for a name that is still looked up, as asyncio.run would
    try:
        loop.run_until_complete(asyncio.wait_for(ask(), seconds))
    except TimeoutError as error:
        raise TimeoutError(str(error) or f"no answer within {seconds:g} s") from None
    finally:
        loop.close()


def _warn_if_exposed(executor: DaskExecutor, watch: Watch) -> None:
    """Give notice of a cluster without TLS that listens on all interfaces."""
    exposed = executor.exposed()
    if exposed:
        others = f" and {len(exposed) - 1} more" if len(exposed) > 1 else ""
        watch.notice(
            f"{exposed[0]}{others} listens on all interfaces without TLS: whoever reaches it can run code there; start "
            "schedulers and workers with --host, or with certificates (docs/howto/clusters.md, 'Who may reach it')"
        )


def _silent() -> Watch:
    return Watch(CLUSTER_TIMEOUT, lambda text: None)  # noqa: ARG005


def _wait_for_workers(client: Any, workers: int, watch: Watch) -> None:
    """Wait for workers, which a cluster that has just been asked for starts one after another."""
    address, began, told = client.scheduler.address, time.monotonic(), False
    while True:
        waited = time.monotonic() - began
        left = max(watch.timeout - waited, BETWEEN)
        try:
            found = answer_within(client, client.scheduler.identity(n_workers=-1), left)
            missing = f"{address}: the scheduler has {len(found['workers'])} of {workers} workers"
            if len(found["workers"]) >= workers:
                return
        except (TimeoutError, OSError) as error:
            missing = f"{address}: the scheduler does not answer ({first_line(error)})"
        if not told and waited >= min(SOON, watch.timeout):
            told = True
            watch.notice(f"{missing}; waiting for more ({watch.timeout:.0f} s at most)")
        if waited >= watch.timeout:
            break
        time.sleep(BETWEEN)
    advice = f"; start more with `dask worker {address} --host ...`" if " of " in missing else ""
    raise ClusterError(f"{missing} after {watch.timeout:g} s{advice}")
