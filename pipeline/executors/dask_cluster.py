"""Start a Dask cluster on this machine, or connect to one that runs elsewhere."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import logging
import multiprocessing
import sys
import threading
import time
import warnings
from pathlib import Path
from urllib.parse import urlsplit

import dask
import distributed
from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT

from collapsium.pipeline.executors.base import CLUSTER_TIMEOUT, TLS, Executor
from collapsium.pipeline.executors.dask import DaskExecutor
from collapsium.pipeline.executors.dask_client import (
    answer_within,
    ask_scheduler,
    close_client,
    first_line,
    has_resources,
    require_release,
    required_resources,
    required_workers,
    scheduler_addresses,
    stand_by_on,
    within,
    worker_addresses,
)
from collapsium.pipeline.executors.liveness import CLOSE_LIMIT, CLUSTER_POLL, QUIET_START, WORKER_POLL, Watch
from collapsium.pipeline.executors.schedulers import ClientOrCluster, Scheduler, address_of
from collapsium.storage.errors import ClusterError, CollapsiumError, OptionError

# Names in the condition by which a script does not run in the processes that it has started
GUARDS = {"__name__", "parent_process", "current_process"}

# Hosts of sockets that accept connections from every network of a machine
ALL_INTERFACES = ("0.0.0.0", "::")  # noqa: S104

# Work stealing would move tasks away from their data. Dask's spilling pickles; ours writes arrays.
SETTINGS = {
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    # The share of the memory limit at which a worker is restarted; plans stay below the limit.
    "distributed.worker.memory.terminate": 1.0,
    # A nanny looks at its worker's memory so often; every 100 ms takes 0.6% of a core.
    "distributed.worker.memory.monitor-interval": "500ms",
    # A paused worker would never free memory, as a sweep waits for its tasks.
    "distributed.worker.memory.pause": False,
    # Dask's threshold of 64 KB gives freed memory back to the system at once, and each large temporary array fetches it
    # anew: finding the topics' top words took four times as long.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
    # Dask's sampling profiler takes a few percent of a core in each process at its interval of 10 ms.
    "distributed.worker.profile.interval": "100ms",
    "distributed.comm.timeouts.connect": "10s",
    # A worker without a heartbeat for so long is dead.
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.admin.tick.limit": "60s",
    # Each scheduler, nanny and worker looks at its event loop so often; every 20 ms takes 1% of an iteration's time.
    "distributed.admin.tick.interval": "1s",
    # Each process reads its use of the machine so often; twice a second takes up to 1% of a core in each.
    "distributed.admin.system-monitor.interval": "2s",
}


def start_cluster(
    workers: int | None = None, memory: int | None = None, tls: TLS | None = None, watch: Watch | None = None
) -> Executor:
    """Start a Dask cluster of one worker process on this machine, with a thread for each worker.

    Threads of one process share the rows, which several processes would have to exchange. The cluster listens on
    127.0.0.1 only and encrypts its messages: loopback ports are open to all users of a machine, and a process that can
    connect to a scheduler or worker can run code as its owner. By default the certificates are temporary and exist in
    memory only.
    """
    # A worker process imports the main script again.
    if multiprocessing.current_process().daemon:
        raise OptionError(
            "local starts a process, which a daemonic process, such as a worker of Dask or of multiprocessing.Pool, "
            "may not; expected threads, or the address of a Dask scheduler",
            "scheduler",
        )
    line = _unguarded_line()
    if line:
        raise OptionError(
            f"local starts a process that imports {line} again, and so would begin this fit anew; put it under "
            '`if __name__ == "__main__":`, or use threads',
            "scheduler",
        )
    with dask.config.set(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Port .* is already in use", UserWarning)
        try:
            cluster = distributed.LocalCluster(
                n_workers=1,
                threads_per_worker=workers or CPU_COUNT,
                memory_limit=memory or MEMORY_LIMIT,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:8787",
                silence_logs=logging.CRITICAL,
                preload=["collapsium.pipeline.executors.dask_client"],
                protocol="tls://",
                security=distributed.Security.temporary() if tls is None else _security(tls),
            )
        except (OSError, RuntimeError) as error:
            cause = error.__cause__ or error
            raise ClusterError(
                f"the process of a local cluster could not be started ({first_line(cause)}): it imports the main "
                'script, which needs a guard (`if __name__ == "__main__":`); `scheduler` threads needs no process'
            ) from error
    return DaskExecutor(distributed.Client(cluster, set_as_default=False), cluster, watch)


def _unguarded_line() -> str:
    """Return the place in the main script that is being run, if an import would run it too, and else an empty text."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    main_thread = threading.main_thread().ident
    frame = None if main_thread is None else sys._current_frames().get(main_thread)
    while frame is not None and (frame.f_code.co_name, frame.f_globals.get("__name__")) != ("<module>", "__main__"):
        frame = frame.f_back
    # Code typed at a prompt is in no file.
    if frame is None or path is None or Path(frame.f_code.co_filename).resolve() != Path(path).resolve():
        return ""
    try:
        statements = ast.parse(Path(path).read_bytes()).body
    # A script without readable source, such as compiled code.
    except (OSError, SyntaxError, ValueError):
        return ""
    number = frame.f_lineno
    for statement in statements:
        is_test = isinstance(statement, ast.If) and GUARDS & {
            node.id if isinstance(node, ast.Name) else getattr(node, "attr", "") for node in ast.walk(statement.test)
        }
        # A guard may also end the script early.
        if is_test and statement.lineno <= number:
            return ""
    return f"{path}, line {number},"


def _security(tls: TLS) -> distributed.Security:
    """Return Dask's settings by which all parts of a cluster show and require the same certificate."""
    parts = ("scheduler", "worker", "client")
    files = {f"tls_{part}_{kind}": getattr(tls, kind) for part in parts for kind in ("cert", "key")}
    return distributed.Security(tls_ca_file=tls.ca, require_encryption=True, **files)


def reach_cluster(
    scheduler: Scheduler, workers: int | None, tls: TLS | None = None, watch: Watch | None = None
) -> Executor:
    """Connect to a running Dask cluster, with a separate client."""
    address = address_of(scheduler)
    security = _security_for(scheduler, address, tls)
    name = address if str(scheduler) == address else f"{scheduler}: {address}"

    def reach(seconds: float) -> distributed.Client:
        limit = min(dask.utils.parse_timedelta(SETTINGS["distributed.comm.timeouts.connect"]), seconds)
        # Another scheduler may have written the file since. Messages have the limit.
        return _connected(address_of(scheduler), max(round(limit, 1), 0.1), security)

    watch = watch or Watch(CLUSTER_TIMEOUT, lambda text: None)  # noqa: ARG005
    try:
        client = reach(watch.timeout)
    except CollapsiumError:
        raise
    except (OSError, ValueError, TimeoutError, RuntimeError) as error:
        raise ClusterError(f"{name}: the scheduler cannot be reached ({first_line(error)})") from None
    _leave_thread_to_tasks()
    try:
        _wait_for_workers(client, workers or required_workers(), watch)
        executor = DaskExecutor(client, None, watch, reach)
        if address.startswith(("tcp://", "ws://")):
            _warn_if_exposed(client, watch)
        return executor
    except (CollapsiumError, KeyboardInterrupt):
        close_client(client, CLOSE_LIMIT)
        raise


def _leave_thread_to_tasks() -> None:
    """Free the thread of a worker in which this fit runs as a task, because its tasks may need the thread."""
    try:
        distributed.get_worker()
    # This is not a task of a worker.
    except ValueError:
        return
    # A thread leaves the pool once, however many executors its task opens.
    with contextlib.suppress(KeyError):
        distributed.secede()


def _security_for(scheduler: Scheduler, address: str, tls: TLS | None) -> distributed.Security:
    """Return the certificates for a scheduler: named ones, a client's or cluster's, or Dask's settings."""
    if isinstance(scheduler, ClientOrCluster):
        if tls is not None:
            raise OptionError("expected none with a Dask client or cluster object, which has certificates", "tls_ca")
        return scheduler.security or distributed.Security()
    if tls is not None:
        if not address.startswith("tls://"):
            raise OptionError(f"`scheduler` {address}: expected an address that begins with tls://")
        return _security(tls)
    if address.startswith("tls://") and dask.config.get("distributed.comm.tls.client.cert", None) is None:
        raise OptionError(
            f"`scheduler` {address}: expected `tls_ca`, `tls_cert` and `tls_key`, or certificates in Dask's settings"
        )
    return distributed.Security()


def _connected(address: str, limit: float, security: distributed.Security) -> distributed.Client:
    """Return a client of a scheduler that has this release installed; each request has `limit` seconds."""
    with dask.config.set({**SETTINGS, "distributed.comm.timeouts.connect": f"{limit}s"}), warnings.catch_warnings():
        # Differing versions are reported, or refused, in one line.
        warnings.simplefilter("ignore", distributed.versions.VersionMismatchWarning)
        _require_answer(address, limit, security)
        client = within(
            2 * limit,
            lambda: distributed.Client(address, timeout=limit, set_as_default=False, security=security),
        )
    try:
        versions = answer_within(client, lambda: client.scheduler.versions(packages=["collapsium"]), limit)
        require_release(address, versions)
    except (TimeoutError, CollapsiumError):
        close_client(client, 1.0)
        raise
    return client


def _require_answer(address: str, seconds: float, security: distributed.Security) -> None:
    """Raise `TimeoutError` if a scheduler does not identify itself in time.

    `distributed.Client` waits without limit for a scheduler that accepts the connection and does not answer.
    """

    async def ask() -> None:
        comm = await distributed.core.connect(address, timeout=seconds, **security.get_connection_args("client"))
        try:
            await distributed.core.send_recv(comm, op="identity", n_workers=0)
        finally:
            comm.abort()

    # `asyncio.run` would wait for a pending name lookup as it closes its loop.
    loop = asyncio.new_event_loop()
    try:
        # Dask's limit for the connection ends first, and its error says more.
        loop.run_until_complete(asyncio.wait_for(ask(), seconds + WORKER_POLL))
    except TimeoutError as error:
        raise TimeoutError(str(error) or f"no answer within {seconds:.3g} s") from None
    finally:
        loop.close()


def _warn_if_exposed(client: distributed.Client, watch: Watch) -> None:
    """Give notice of schedulers and workers that listen on all interfaces without TLS, if they answer in time."""
    listening: dict[str, list[str]] = {}
    limit = min(CLUSTER_POLL, watch.timeout)
    with contextlib.suppress(TimeoutError):
        listening["the scheduler"] = ask_scheduler(client, limit, scheduler_addresses)
        workers = answer_within(
            client, lambda: client.run(worker_addresses, on_error="ignore", asynchronous=True), limit
        )
        listening |= {f"worker {address}": urls for address, urls in sorted(workers.items())}
    exposed = [
        name for name, urls in listening.items() if any(urlsplit(url).hostname in ALL_INTERFACES for url in urls)
    ]
    if exposed:
        more = f" and {len(exposed) - 1} more" if len(exposed) > 1 else ""
        watch.notice(
            f"{exposed[0]}{more} listens on all interfaces without TLS: whoever reaches it can run code there; start "
            "schedulers and workers with --host or certificates (docs/howto/clusters.md, 'Restrict who can connect')"
        )


def _wait_for_workers(client: distributed.Client, workers: int, watch: Watch) -> None:
    """Wait until enough workers have joined; a new cluster starts them one after another."""
    address, began, noticed = client.scheduler.address, time.monotonic(), False
    standing_by, resources = None, required_resources()
    needed = "".join(f" with {name}={amount:g}" for name, amount in resources.items())
    while True:
        waited = time.monotonic() - began
        left = max(watch.timeout - waited, WORKER_POLL)
        try:
            identity = answer_within(client, lambda: client.scheduler.identity(n_workers=-1), left)
            joined = sum(has_resources(worker["resources"], resources) for worker in identity["workers"].values())
            missing = f"{address}: the scheduler has {joined} of {workers} workers{needed}"
            if joined >= workers:
                return
            standing_by = standing_by or stand_by_on(client, resources)
        except TimeoutError as error:
            missing = f"{address}: the scheduler does not answer ({first_line(error)})"
        if not noticed and waited >= min(QUIET_START, watch.timeout):
            noticed = True
            watch.notice(f"{missing}; waiting for more ({watch.timeout:.0f} s at most)")
        if waited >= watch.timeout:
            break
        time.sleep(WORKER_POLL)
    advice = f"; start more with `dask worker {address} --host ...`" if " of " in missing else ""
    raise ClusterError(f"{missing} after {watch.timeout:g} s{advice}")
