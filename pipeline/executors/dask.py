"""Run tasks on Dask: submission, results, recovery. `dask_cluster` starts clusters and connects to them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from collapsium.pipeline.executors.base import CLUSTER_TIMEOUT, Activity, Future, Halt, T
from collapsium.pipeline.executors.dask_client import (
    DaskLinks,
    Members,
    activity_of,
    answer_within,
    ask_scheduler,
    bytes_sent,
    close_client,
    cluster_errors,
    first_line,
    gathered,
    ignore_large_graphs,
    is_unanswered,
    remove_worker,
    require_scheduler,
    required_resources,
    run_aside,
    stand_by_on,
    welcome_workers,
    within,
    worker_signs,
)
from collapsium.pipeline.executors.liveness import (
    CLOSE_LIMIT,
    CLUSTER_POLL,
    RESULT_POLL,
    RUN_EVERYWHERE_LIMIT,
    Watch,
    WorkerSign,
)
from collapsium.pipeline.monitoring.dask_dashboard.plugin import TOPIC, install
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import AbsentError, ClusterError, ClusterGoneError, MismatchError
from collapsium.storage.io.file import is_url
from collapsium.storage.units import size
from collapsium.workers.exchange import HostLostError, Links

if TYPE_CHECKING:
    import distributed

RESTART_TOPIC = "worker-restart-memory"  # Topic of Dask's events about workers that exceeded their memory limits

# Least difference of the priorities of two tasks, which are times: above the resolution of a double, 2.4e-7 s
SUBMISSION_SECONDS = 1e-6


def new_token() -> str:
    """Return the part of the keys that distinguishes the tasks of a driver from all other tasks."""
    return uuid.uuid4().hex


class DaskExecutor:
    """Runs tasks on a Dask cluster."""

    keeps_history = True

    def __init__(
        self,
        client: distributed.Client,
        cluster: distributed.LocalCluster | None = None,
        watch: Watch | None = None,
        reach: Callable[[float], distributed.Client] | None = None,
    ) -> None:
        self._client, self._cluster, self._reach = client, cluster, reach
        self._watch = watch or Watch(CLUSTER_TIMEOUT, lambda text: None)  # noqa: ARG005
        self._token, self._priority = new_token(), 0.0
        self._submitted, self._halt = 0, Halt()
        self._numbering, self._looking, self._recovering = (threading.Lock() for _ in range(3))
        self._looked, self._waiting = time.monotonic(), 0
        # Number of losses of work, and the number that each thread has seen.
        self._losses, self._seen = 0, threading.local()
        # The workers of clusters that Collapsium starts have no resources.
        self._resources = required_resources() if cluster is None else {}
        self._members = Members(lambda: self._token, self._watch.notice, self._resources)
        self._pending_activity: concurrent.futures.Future[list[Activity]] | None = None
        self._active: list[Activity] = []
        self._gone = False
        # The task that lets an adaptive cluster start a worker.
        self._standing_by: distributed.Future | None = None
        # Restarts of workers that exceeded their memory limits, not yet reported; time and text of the last report.
        self._restarts: SimpleQueue[JsonObject] = SimpleQueue()
        self._restarted = (0.0, "")
        # The client whose scheduler has the dashboard page.
        self._page_client: distributed.Client | None = None
        ignore_large_graphs()
        self._read_workers()
        self._subscribe()

    def _subscribe(self) -> None:
        """Have the scheduler send the restarts of workers that exceed their memory limits."""
        with cluster_errors():
            self._client.subscribe_topic(RESTART_TOPIC, lambda event: self._restarts.put(event[1]))

    def _report_restarts(self) -> None:
        """Give notice of workers that were restarted, and of what to do."""
        while True:
            try:
                restart = self._restarts.get_nowait()
            except Empty:
                return
            limit = self._members.memory_limit(str(restart.get("worker")))
            held = float(restart.get("rss") or 0)
            bound = f" of {size(limit)}" if limit else ""
            text = (
                f"worker {restart.get('worker')} held {size(held)} and was restarted because it exceeded its memory "
                f"limit{bound}; give each worker more memory, or set `memory` to less than the limit, so that more of "
                "the fit is kept on disk"
            )
            self._restarted = time.monotonic(), text
            self._watch.notice(text)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise `ClusterError` for lost work, with the reason for which a worker has just been restarted."""
        try:
            with cluster_errors():
                yield
        except ClusterError as error:
            self._report_restarts()
            (reported, restarted), self._restarted = self._restarted, (0.0, "")
            recent = restarted and time.monotonic() - reported < self._watch.timeout
            if not recent or isinstance(error, ClusterGoneError):
                raise
            raise ClusterError(f"{str(error).rstrip('.')}: {restarted}") from error
        except AbsentError as error:
            if self._cluster is not None or is_url(str(error)) or "no such" not in str(error):
                raise
            # The file may exist on this machine.
            raise AbsentError(f"{error} on a worker's machine; name files that all machines share") from error

    def _read_workers(self) -> None:
        """Wait for the workers' state, and until all of them are ready for tasks."""
        with cluster_errors():
            signs = ask_scheduler(self._client, self._watch.timeout, worker_signs, self._token, self._resources)[1]
        workers = {name: WorkerSign(*sign) for name, sign in signs.items()}
        joining = self._members.take(workers)
        if joining:
            members = self._members

            def welcome() -> Coroutine[object, object, list[str]]:
                return welcome_workers(self._client, joining, members.calls, members.report_others)

            try:
                members.take(workers, answer_within(self._client, welcome, self._watch.timeout))
            except TimeoutError as error:
                raise ClusterError(f"{len(joining)} workers do not answer ({first_line(error)})") from None

    @property
    def workers(self) -> int:
        """Number of threads of all workers."""
        return max(self._members.threads, 1)

    @property
    def processes(self) -> int:
        """Number of worker processes."""
        return max(len(self._members.addresses), 1)

    @property
    def dashboard(self) -> str | None:
        """Address of the Dask dashboard; None for a cluster of this machine without Bokeh."""
        link = self._client.dashboard_link
        # A local cluster listens on this machine only, whatever its link says.
        if link and self._cluster is not None:
            if find_spec("bokeh") is None:
                return None
            return f"http://127.0.0.1:{urlsplit(str(link)).port}/status"
        return str(link) if link else None

    @property
    def memory(self) -> float | None:
        """Memory limit of each worker process, in bytes; None without a limit."""
        return self._members.memory or None

    def moved(self) -> int:
        """Return the bytes that the present workers have sent one another so far."""
        return sum(self.everywhere(bytes_sent))

    def activity(self) -> list[Activity]:
        """Return the last known state of each worker process, and request the next one in the background."""
        if self._pending_activity is None or self._pending_activity.done():
            # A scheduler that does not answer is reported where results are waited for.
            with contextlib.suppress(Exception):
                if self._pending_activity is not None:
                    self._active = self._pending_activity.result()
                self._pending_activity = self._start(activity_of(self._client.scheduler))
        return self._active

    def publish(self, message: JsonObject) -> None:
        """Send a message about a run to the dashboard's page, which is installed on first use."""
        if self._gone:
            return
        try:
            if self._page_client is not self._client:
                self._page_client = self._client
                installation = self._start(self._client.run_on_scheduler(install, asynchronous=True))
                installation.result(timeout=CLUSTER_POLL)
            self._start(self._client.scheduler.log_event(topic=TOPIC, msg=message))
        # A failure of the page must not end the run.
        except Exception as error:
            self._watch.notice(f"the dashboard shows nothing of the run ({first_line(error)})")

    def submit(
        self, function: Callable[..., T], *args: object, process: int | None = None, strict: bool = False
    ) -> Future[T]:
        """Submit a task, preferably to one worker process; others may run it if that one is lost.

        With `strict` only that process may run it; otherwise a scheduler that steals work may move it at any time.
        """
        # Members of an ensemble submit at the same time.
        with self._numbering:
            self._submitted += 1
            number = self._submitted
            # Priorities are times, so that fits on one scheduler take turns; counters would put the latest fit first.
            self._priority = priority = max(time.time(), self._priority + SUBMISSION_SECONDS)
        name, addresses = function.__name__.replace("_", "-"), self._members.addresses
        workers = None if process is None or not addresses else [addresses[process % len(addresses)]]
        key = f"{name}-{self._token}-{number}"
        # Tasks run in the order of submission; otherwise Dask would run all sweeps before it adds their deltas.
        with cluster_errors():
            future = self._client.submit(
                function,
                *args,
                key=key,
                pure=False,
                priority=-priority,
                workers=workers,
                allow_other_workers=workers is not None and not strict,
                resources=self._resources or None,
            )
        return cast(Future[T], future)

    def collect(self, futures: Sequence[Future[T]], links: Links | None = None) -> list[T]:
        """Wait for results and return them in order; meanwhile check that the cluster makes progress."""
        waited: list[distributed.Future] = list(futures)
        interval = min(CLUSTER_POLL, self._watch.timeout / 4)
        began = checked = time.monotonic()

        def check(*, unanswered: bool) -> None:
            nonlocal checked
            self._halt.check()
            self._members.look(self._client)
            self._report_restarts()
            if self._seen.losses != self._losses:
                raise ClusterError("work was lost, as another thread has found")
            if links is not None and not set(links.addresses) <= set(self._members.addresses):
                raise HostLostError("a worker was lost, with which others exchange changes")
            now = time.monotonic()
            if unanswered or now - checked >= interval:
                first, checked = checked == began, now
                self._take_turns(interval, first=first)

        def is_of_task() -> bool:
            return any(future.status in ("error", "cancelled") for future in waited)

        with self._explained(), self._counted():
            return self._awaited(lambda: gathered(self._client, waited), check, is_of_task)

    def _awaited(
        self,
        request: Callable[[], Coroutine[object, object, T]],
        check: Callable[..., None],
        is_of_task: Callable[[], bool] = lambda: False,
    ) -> T:
        """Return the answer to a request; meanwhile call `check`, which raises an error to stop waiting.

        A request that the scheduler did not accept in time, for example while it was suspended, is sent again; errors
        of tasks are raised.
        """
        answer = self._start(request())
        try:
            check(unanswered=False)
            while True:
                concurrent.futures.wait([answer], RESULT_POLL)
                if answer.done():
                    try:
                        return answer.result()
                    except OSError as error:
                        if not is_unanswered(error) or is_of_task():
                            raise
                    except AttributeError as error:
                        require_scheduler(self._client, error)
                        raise
                    time.sleep(RESULT_POLL)
                    answer = self._start(request())
                    check(unanswered=True)
                else:
                    check(unanswered=False)
        finally:
            answer.cancel()

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the threads that wait, and record the losses that each has seen at its first wait."""
        if not hasattr(self._seen, "losses"):
            self._seen.losses = self._losses
        with self._numbering:
            self._waiting += 1
        try:
            yield
        finally:
            with self._numbering:
                self._waiting -= 1

    def _take_turns(self, interval: float, *, first: bool) -> None:
        """Check the cluster, unless another waiting thread has just done so; a thread that waits alone begins anew."""
        with self._looking:
            alone = self._waiting == 1
            if not alone and time.monotonic() - self._looked < interval / 2:
                return
            if first and alone:
                self._watch.begin()
            self._looked = time.monotonic()
            self._check_workers()

    def _start(self, coroutine: Coroutine[object, object, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine in the client's event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._client.loop.asyncio_loop)

    def _check_workers(self) -> None:
        """Request the workers' state and remove workers that count as lost."""
        signs = self._signs()
        if signs is None:
            return
        counter, workers, stranded = signs
        for address in self._watch.look(counter, workers, stranded):
            self._watch.notice(f"worker {address} is lost; others do its work")
            with contextlib.suppress(TimeoutError):
                ask_scheduler(self._client, CLUSTER_POLL, remove_worker, address)  # type: ignore[unused-coroutine]
            for nanny in list(self._cluster.workers.values()) if self._cluster is not None else []:
                if getattr(nanny, "worker_address", None) == address and nanny.process is not None:
                    # The nanny starts another process.
                    nanny.process.process.kill()

    def _signs(self) -> tuple[int, dict[str, WorkerSign], int] | None:
        """Return the arguments of `Watch.look`; None if the scheduler has not answered in time."""
        limit = min(CLUSTER_POLL, self._watch.timeout)
        try:
            counter, signs, stranded = ask_scheduler(self._client, limit, worker_signs, self._token, self._resources)
        except TimeoutError as error:
            self._watch.silent(first_line(error))
            return None
        return counter, {name: WorkerSign(*sign) for name, sign in signs.items()}, stranded

    def everywhere(self, function: Callable[..., T], *args: object, joining: bool = False) -> list[T]:
        """Run a function once in each worker process; return the results of processes that did not leave meanwhile."""
        if self._gone:
            raise ClusterGoneError("the cluster was lost and cannot be reached again")
        if joining:
            self._members.calls.append((function, args))
        limit = max(self._watch.timeout, RUN_EVERYWHERE_LIMIT)
        interval = min(CLUSTER_POLL, self._watch.timeout / 4)
        began = checked = time.monotonic()

        def check(*, unanswered: bool) -> None:
            nonlocal checked
            self._report_restarts()
            now = time.monotonic()
            if now - began > limit:
                raise ClusterError(f"the workers have not run {function.__name__} within {limit:.0f} s")
            if unanswered or now - checked >= interval:
                checked = now
                signs = self._signs()
                self._watch.answered(None if signs is None else signs[1])

        def run() -> Coroutine[object, object, dict[str, T | Exception]]:
            running = self._client.run(
                run_aside, function, args, workers=self._chosen, on_error="return", asynchronous=True
            )
            return cast("Coroutine[object, object, dict[str, T | Exception]]", running)

        with self._explained():
            self._watch.begin()
            return self._of_present(self._awaited(run, check))

    @property
    def _chosen(self) -> list[str] | None:
        """Addresses of the workers that have the required resources; None for all workers."""
        return list(self._members.addresses) if self._resources else None

    def _of_present(self, results: dict[str, T | Exception]) -> list[T]:
        """Return results of workers; raise a worker's error unless the worker has left."""
        failed = {address: result for address, result in results.items() if isinstance(result, Exception)}
        if failed:
            signs = self._signs()
            departed = {address for address in failed if signs is not None and address not in signs[1]}
            leaving = {address for address, sign in (signs[1] if signs else {}).items() if sign.leaving}
            for address, error in failed.items():
                if address not in departed | leaving:
                    raise error
        return [result for result in results.values() if not isinstance(result, Exception)]

    def links(self) -> DaskLinks | None:
        """Return the connections between the present workers."""
        return DaskLinks(self._members.addresses) if self._members.addresses else None

    def look(self) -> None:
        """Look for workers that have joined or left, and wait until all of them are ready."""
        self._read_workers()

    def tell(self, function: Callable[..., object], *args: object) -> None:
        """Run a function once in each worker that can be reached, without waiting; nothing is raised."""
        # An exchange may be given up after its client was closed.
        if self._client.status != "running":
            return
        with contextlib.suppress(Exception):
            self._start(
                self._client.run(run_aside, function, args, workers=self._chosen, on_error="ignore", asynchronous=True)
            )

    def halt(self, *, failed: bool = False) -> None:
        """Raise `KeyboardInterrupt` or `HaltedError` once in every other thread that waits for results."""
        self._halt.set(failed=failed)

    def recover(self, error: ClusterError) -> None:
        """Connect to the scheduler again, which may be a new one, and wait for a worker.

        The first of several threads does so; the others learn of the loss at their next wait.
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
            return max(deadline - time.monotonic(), RESULT_POLL)

        self._token = new_token()
        while True:
            try:
                limit = min(CLUSTER_POLL, left())
                _, workers, _ = ask_scheduler(self._client, limit, worker_signs, self._token, self._resources)
                if workers:
                    self._read_workers()
                    break
                reason = "it has no workers"
                self._standing_by = stand_by_on(self._client, self._resources)
            except MismatchError:
                raise
            # A client without a scheduler raises errors of many kinds.
            except Exception as failure:
                reason = self._connect(left()) or first_line(failure)
            if time.monotonic() > deadline:
                self._gone = True
                raise ClusterGoneError(
                    f"the cluster cannot be reached again within {self._watch.timeout:.0f} s ({reason}) after: {error}"
                ) from error
            time.sleep(RESULT_POLL)
        self._standing_by = None
        self._subscribe()

    def _connect(self, seconds: float) -> str:
        """Try to connect a new client, and return why that failed; a lost local cluster cannot be reached again."""
        if self._reach is None:
            return ""
        try:
            client = self._reach(seconds)
        except Exception as failure:
            return first_line(failure)
        old, self._client = self._client, client
        self._members.reset()
        close_client(old, 1.0)
        return ""

    def close(self) -> None:
        """Close the client, and the cluster if it is a local one."""
        close_client(self._client, 0.0 if self._gone and self._cluster is None else CLOSE_LIMIT)
        cluster = self._cluster
        if cluster is not None:
            with contextlib.suppress(Exception):
                within(2 * CLOSE_LIMIT, lambda: cluster.close(timeout=CLOSE_LIMIT))
