"""Tasks on Dask: how they are submitted, waited for and recovered; `dask_cluster` starts and reaches what runs them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from collapsium.pipeline.executors.base import CLUSTER_TIMEOUT, Activity, Future, Halt, T
from collapsium.pipeline.executors.dask_client import (
    activity_of,
    answer_within,
    close_client,
    cluster_errors,
    first_line,
    within,
)
from collapsium.pipeline.executors.dask_remote import (
    bytes_sent,
    remove_worker,
    run_aside,
    scheduler_addresses,
    worker_addresses,
    worker_signs,
)
from collapsium.pipeline.executors.liveness import Watch, WorkerSign
from collapsium.pipeline.monitoring.dask_dashboard.plugin import install
from collapsium.pipeline.monitoring.dask_dashboard.runs import TOPIC
from collapsium.storage.errors import ClusterError, ClusterGoneError

TICK, LOOK = 0.5, 10.0  # seconds between two looks at a result, and between two at the cluster
EVERY_INTERFACE = ("0.0.0.0", "::")  # noqa: S104  # hosts of sockets that are open to every network of a machine
CLOSE = 5.0  # seconds in which a client, or a cluster of our own, takes its leave
EVERYWHERE = 600.0  # seconds for what all workers do, such as compiling


class DaskExecutor:
    """Runs tasks on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
        Connected; closed with the executor.
    cluster : distributed.LocalCluster, optional
        A cluster of our own, closed too.
    watch : Watch, optional
        Judges what goes on while results are waited for.
    reach : callable, optional
        Connects to the same scheduler again, within so many seconds.
    """

    keeps_history = True

    def __init__(
        self, client: Any, cluster: Any = None, watch: Watch | None = None, reach: Callable[[float], Any] | None = None
    ) -> None:
        self._client, self._cluster, self._reach = client, cluster, reach
        self._watch = watch or Watch(CLUSTER_TIMEOUT, lambda text: None)  # noqa: ARG005
        self._token = uuid.uuid4().hex[:8]
        self._submitted, self._halt = 0, Halt()
        self._numbering, self._looking, self._recovering = (threading.Lock() for _ in range(3))
        self._looked, self._waiting = time.monotonic(), 0
        self._losses, self._seen = 0, threading.local()  # how often work was lost, and as far as a thread knows
        self._addresses: list[str] = []
        self._slots, self._memory = 0, 0.0
        self._asked: Any = None  # what goes on in the workers
        self._active: list[Activity] = []
        self._gone = False
        self._page_of: Any = None  # the client whose scheduler has our page
        self._look()

    def _look(self) -> None:
        with cluster_errors():
            found = self._within(self._client.scheduler.identity(n_workers=-1), self._watch.timeout)["workers"]
        self._addresses = sorted(found)
        self._slots = sum(int(state["nthreads"]) for state in found.values())
        self._memory = min((float(state["memory_limit"]) for state in found.values()), default=0.0)

    @property
    def workers(self) -> int:
        """Threads of all workers."""
        return max(self._slots, 1)

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
        return sum(self.everywhere(bytes_sent))

    def activity(self) -> list[Activity]:
        """Say what goes on in each worker process, as the scheduler said last; it is asked again meanwhile."""
        if self._asked is None or self._asked.done():
            with contextlib.suppress(Exception):  # a scheduler that does not answer is met elsewhere
                if self._asked is not None:
                    self._active = self._asked.result()
                self._asked = self._ask(activity_of(self._client.scheduler))
        return self._active

    def publish(self, message: dict[str, Any]) -> None:
        """Show a message about a run on the dashboard's page, which is made where there is none yet."""
        if self._gone:
            return
        try:
            if self._page_of is not self._client:
                self._page_of = self._client
                asked = self._ask(self._client.run_on_scheduler(install, asynchronous=True))
                asked.result(timeout=LOOK)
            self._ask(self._client.scheduler.log_event(topic=TOPIC, msg=message))
        except Exception as error:  # whatever it is, a page is not worth a run
            self._watch.notice(f"the dashboard shows nothing of the run ({first_line(error)})")

    def submit(self, function: Callable[..., T], *args: Any, home: int | None = None) -> Future[T]:
        """Submit a task; `home` is kept softly, so that a lost worker is no deadlock."""
        with self._numbering:  # members of an ensemble submit side by side
            self._submitted += 1
            number = self._submitted
        name = function.__name__.replace("_", "-")
        where: dict[str, Any] = {}
        if home is not None and self._addresses:
            where = {"workers": [self._addresses[home % len(self._addresses)]], "allow_other_workers": True}
        key = f"{name}-{self._token}-{number}"
        # First come, first served: by itself, Dask would make all sweeps before it adds what they changed.
        with cluster_errors():
            future = self._client.submit(function, *args, key=key, pure=False, priority=-number, **where)
        return cast(Future[T], future)

    def collect(self, futures: Sequence[Future[T]]) -> list[T]:
        """Bring results here, and look meanwhile whether the cluster still moves."""
        with cluster_errors(), self._counted():
            waiting = self._ask(self._client.gather(list(futures), asynchronous=True))
            began = looked = time.monotonic()
            every = min(LOOK, self._watch.timeout / 4)
            try:
                while True:
                    self._halt.check()
                    if self._seen.losses != self._losses:
                        raise ClusterError("work was lost, as another thread has found")
                    try:
                        return list(waiting.result(timeout=TICK))
                    except TimeoutError:
                        if waiting.done():  # it was the cluster's own
                            raise
                    now = time.monotonic()
                    if now - looked >= every:
                        first, looked = looked == began, now
                        self._take_turns(every, first=first)
            finally:
                waiting.cancel()

    @contextlib.contextmanager
    def _counted(self) -> Any:
        """Count the threads that wait, and note what each knows of losses when it first waits."""
        if not hasattr(self._seen, "losses"):
            self._seen.losses = self._losses
        with self._numbering:
            self._waiting += 1
        try:
            yield
        finally:
            with self._numbering:
                self._waiting -= 1

    def _take_turns(self, every: float, *, first: bool) -> None:
        """Look around, unless another thread that waits has just done so; who waits alone begins anew."""
        with self._looking:
            alone = self._waiting == 1
            if not alone and time.monotonic() - self._looked < every / 2:
                return
            if first and alone:
                self._watch.begin()
            self._looked = time.monotonic()
            self._look_around()

    def _ask(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._client.loop.asyncio_loop)

    def _within(self, coroutine: Any, seconds: float) -> Any:
        return answer_within(self._client, coroutine, seconds)

    def _look_around(self) -> None:
        """Ask the scheduler how it goes, and give up workers that show no sign of life."""
        signs = self._signs()
        if signs is None:
            return
        counter, workers, stranded = signs
        for address in self._watch.look(counter, workers, stranded):
            self._give_up(address)

    def _signs(self) -> tuple[int, dict[str, WorkerSign], int] | None:
        """Ask the scheduler how it goes; None where it has not answered, which may not go on for too long."""
        limit = min(LOOK, self._watch.timeout)
        try:
            signs = self._client.run_on_scheduler(worker_signs, asynchronous=True)
            counter, found, stranded = self._within(signs, limit)
            if sorted(found) != self._addresses:
                self._look()
        except TimeoutError as error:
            self._watch.silent(first_line(error))
            return None
        return counter, {name: WorkerSign(*sign) for name, sign in found.items()}, stranded

    def _give_up(self, address: str) -> None:
        """Have a worker's tasks done by others, and start it anew if it is ours."""
        self._watch.notice(f"worker {address} is given up; others do its work")
        with contextlib.suppress(TimeoutError):
            self._within(self._client.run_on_scheduler(remove_worker, address, asynchronous=True), LOOK)
        for nanny in list(self._cluster.workers.values()) if self._cluster is not None else []:
            if getattr(nanny, "worker_address", None) == address and nanny.process is not None:
                nanny.process.process.kill()  # its nanny starts another

    def everywhere(self, function: Callable[..., T], *args: Any) -> list[T]:
        """Run a function once in each worker process."""
        if self._gone:
            raise ClusterGoneError("there is nothing left of the cluster")
        with cluster_errors():
            asked = self._ask(self._client.run(run_aside, function, args, asynchronous=True))
            began = looked = time.monotonic()
            self._watch.begin()
            try:
                while True:
                    try:
                        return list(asked.result(timeout=TICK).values())
                    except TimeoutError:
                        if asked.done() or time.monotonic() - began > max(self._watch.timeout, EVERYWHERE):
                            raise
                    if time.monotonic() - looked >= min(LOOK, self._watch.timeout / 4):
                        looked = time.monotonic()
                        signs = self._signs()
                        self._watch.answered(None if signs is None else signs[1])
            finally:
                asked.cancel()

    def halt(self) -> None:
        """Interrupt each other thread that waits, once."""
        self._halt.set()

    def recover(self, error: ClusterError) -> None:
        """Reach the scheduler again, if it is another by now, and wait for a worker.

        Of several threads the first does it, and the others meet the loss as soon as they wait.

        Parameters
        ----------
        error : ClusterError
            What was raised.
        """
        with self._recovering:
            if getattr(self._seen, "losses", self._losses) == self._losses:
                self._recover(error)
                self._losses += 1
            self._seen.losses = self._losses

    def _recover(self, error: ClusterError) -> None:
        if self._gone:
            raise error if isinstance(error, ClusterGoneError) else ClusterGoneError(str(error)) from error
        deadline = self._watch.deadline()

        def left() -> float:
            return max(deadline - time.monotonic(), TICK)

        while True:
            try:
                _, found, _ = self._within(
                    self._client.run_on_scheduler(worker_signs, asynchronous=True), min(LOOK, left())
                )
                if found:
                    self._look()
                    break
                reason = "it has no workers"
            except Exception as failure:  # a client that has lost its scheduler raises what it likes
                reason = first_line(failure)
                self._connect(left())
            if time.monotonic() > deadline:
                self._gone = True
                raise ClusterGoneError(
                    f"the cluster cannot be reached again within {self._watch.timeout:.0f} s ({reason}) after: {error}"
                ) from error
            time.sleep(TICK)
        self._token = uuid.uuid4().hex[:8]

    def _connect(self, seconds: float) -> None:
        """Try to reach the scheduler with a new client; one of our own that is gone is gone."""
        if self._reach is None:
            return
        with contextlib.suppress(Exception):
            client = self._reach(seconds)
            old, self._client = self._client, client
            close_client(old, 1.0)

    def exposed(self) -> list[str]:
        """Return the names of the scheduler and of workers that listen on all interfaces of their machines.

        Returns
        -------
        list of str
            The scheduler first; empty where the cluster does not answer in time.
        """
        listening: dict[str, list[str]] = {}
        with contextlib.suppress(TimeoutError):
            client = self._client
            limit = min(LOOK, self._watch.timeout)
            listening["the scheduler"] = self._within(
                client.run_on_scheduler(scheduler_addresses, asynchronous=True), limit
            )
            workers = self._within(client.run(worker_addresses, asynchronous=True), limit)
            listening |= {f"worker {address}": places for address, places in sorted(workers.items())}
        return [
            name
            for name, places in listening.items()
            if any(urlsplit(place).hostname in EVERY_INTERFACE for place in places)
        ]

    def close(self) -> None:
        """Close the client, and the cluster if it is ours."""
        close_client(self._client, 0.0 if self._gone and self._cluster is None else CLOSE)
        if self._cluster is not None:
            with contextlib.suppress(Exception):
                within(2 * CLOSE, lambda: self._cluster.close(timeout=CLOSE))
