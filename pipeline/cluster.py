"""Tasks on Dask: a local cluster of our own, or one that runs elsewhere."""

from __future__ import annotations

import contextlib
import logging
import uuid
import warnings
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import dask
import distributed
from dask.system import CPU_COUNT

from collapsar.pipeline.executor import Executor
from collapsar.pipeline.preload import PROMPT
from collapsar.storage.errors import ClusterError, CollapsarError

WAIT_SECONDS = 30  # for workers to arrive

# Design: stealing moves soft-pinned tasks; Dask's own spilling pickles, so it is off.
_SETTINGS = {
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.terminate": 1.0,  # of the limit, under which plans stay
    "distributed.worker.memory.pause": False,  # nothing that a sweep waits for would free memory
    "distributed.comm.timeouts.connect": "10s",
    "distributed.admin.tick.limit": "60s",
}


class DaskExecutor:
    """Runs tasks on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
        Connected; closed with the executor.
    cluster : distributed.LocalCluster, optional
        A cluster of our own, closed too.
    """

    def __init__(self, client: Any, cluster: Any = None) -> None:
        self._client, self._cluster = client, cluster
        self._token = uuid.uuid4().hex[:8]
        self._submitted = 0
        self._addresses: list[str] = []
        self._slots, self._memory = 0, 0.0
        self._look()

    def _look(self) -> None:
        found = self._client.scheduler_info(n_workers=-1)["workers"]
        self._addresses = sorted(found)
        self._slots = sum(int(state["nthreads"]) for state in found.values())
        self._memory = min((float(state["memory_limit"]) for state in found.values()), default=0.0)

    @property
    def workers(self) -> int:
        """Threads of all workers."""
        return self._slots

    @property
    def homes(self) -> int:
        """Worker processes."""
        return max(len(self._addresses), 1)

    @property
    def dashboard(self) -> str | None:
        """Address of the Dask dashboard."""
        link = self._client.dashboard_link
        if link and self._cluster is not None:  # ours listens on this machine only, whatever its link says
            return f"http://127.0.0.1:{urlsplit(str(link)).port}/status"
        return str(link) if link else None

    @property
    def memory(self) -> float | None:
        """Bytes that each worker process may hold; None where the cluster sets no limit."""
        return self._memory or None

    def moved(self) -> int:
        """Bytes that workers have sent one another so far; of those that are still there."""
        return sum(self.everywhere(_sent))

    def submit(self, function: Callable[..., Any], *args: Any, home: int | None = None) -> Any:
        """Submit a task; `home` is kept softly, so that a lost worker is no deadlock."""
        self._submitted += 1
        name = function.__name__.replace("_", "-")
        where: dict[str, Any] = {}
        if home is not None and self._addresses:
            where = {"workers": [self._addresses[home % len(self._addresses)]], "allow_other_workers": True}
        key = f"{name}-{self._token}-{self._submitted}"
        # First come, first served: by itself, Dask would make all sweeps before it adds what they changed.
        return self._client.submit(function, *args, key=key, pure=False, priority=-self._submitted, **where)

    def collect(self, futures: Sequence[Any]) -> list[Any]:
        """Bring results here."""
        with _cluster_errors():
            return list(self._client.gather(list(futures)))

    def everywhere(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a function once in each worker process."""
        with _cluster_errors():
            return list(self._client.run(function, *args).values())

    def close(self) -> None:
        """Close the client, and the cluster if it is ours."""
        with contextlib.suppress(Exception):
            self._client.close(timeout=5)
        if self._cluster is not None:
            with contextlib.suppress(Exception):
                self._cluster.close(timeout=5)


def _sent(dask_worker: Any) -> int:
    """Return what a worker has sent; Dask hands it to whatever asks for it by this name."""
    return int(dask_worker.transfer_outgoing_bytes_total)


@contextlib.contextmanager
def _cluster_errors() -> Any:
    try:
        yield
    except (
        distributed.KilledWorker,
        distributed.CancelledError,
        distributed.comm.CommClosedError,
        TimeoutError,
    ) as error:
        raise ClusterError(f"the cluster lost work that cannot be repeated: {error}") from error


def start_cluster(workers: int | None = None, memory: int | None = None) -> Executor:
    """Start a Dask cluster of worker processes on this machine.

    Parameters
    ----------
    workers : int, optional
        How many; by default one a processor.
    memory : int, optional
        Bytes that each may hold; one that holds more is started anew. By default its share of the machine's.

    Returns
    -------
    Executor
        Closing it stops the cluster.
    """
    with dask.config.set(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Port .* is already in use", UserWarning)
        cluster = distributed.LocalCluster(
            n_workers=workers or CPU_COUNT,
            threads_per_worker=1,
            memory_limit=memory or "auto",
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:8787",
            silence_logs=logging.CRITICAL,
            preload=["collapsar.pipeline.preload"],
        )
    prompt = _Prompt()
    cluster.scheduler.add_plugin(prompt)
    for worker in list(cluster.scheduler.stream_comms):
        prompt.add_worker(cluster.scheduler, worker)
    client = distributed.Client(cluster)
    client.scheduler_comm.interval = PROMPT
    return DaskExecutor(client, cluster)


class _Prompt(distributed.SchedulerPlugin):  # type: ignore[misc]
    """Lets the scheduler of a cluster of our own answer at once, also to workers that come later."""

    name = "collapsar-prompt"

    def add_worker(self, scheduler: Any, worker: str) -> None:
        if worker in scheduler.stream_comms:
            scheduler.stream_comms[worker].interval = PROMPT


def reach_cluster(address: str, workers: int) -> Executor:
    """Reach a Dask cluster that runs elsewhere.

    Parameters
    ----------
    address : str
        Of its scheduler.
    workers : int
        How many workers to wait for.

    Returns
    -------
    Executor
        Closing it leaves the cluster as it is.

    Raises
    ------
    ClusterError
        The scheduler cannot be reached, or has too few workers.
    """
    try:
        with dask.config.set(_SETTINGS):
            client = distributed.Client(address, timeout=10)
    except (OSError, ValueError, TimeoutError) as error:
        raise ClusterError(f"{address}: the scheduler cannot be reached ({_first_line(error)})") from None
    try:
        client.wait_for_workers(workers, timeout=WAIT_SECONDS)
    except (TimeoutError, OSError):
        found = len(client.scheduler_info(n_workers=-1)["workers"])
        client.close(timeout=5)
        raise ClusterError(
            f"{address}: the scheduler has {found} of {workers} workers after {WAIT_SECONDS} s; start more with "
            f"`dask worker {address}`"
        ) from None
    try:
        return DaskExecutor(client)
    except CollapsarError:
        client.close(timeout=5)
        raise


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
