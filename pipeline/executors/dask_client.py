"""Calls of a Dask client, bounded in time, and the functions that they run in the scheduler or in workers.

Dask passes the scheduler and the worker to these functions as `dask_scheduler` and `dask_worker`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import dask
import distributed
from distributed.protocol import to_serialize
from distributed.versions import get_versions

from collapsium.pipeline.executors.base import Activity
from collapsium.pipeline.executors.liveness import MEMBER_POLL, WORKER_POLL, WorkerSign
from collapsium.storage.errors import ClusterError, CollapsiumError, MismatchError, OptionError
from collapsium.workers import exchange

if TYPE_CHECKING:
    import distributed

T = TypeVar("T")

Resources: TypeAlias = dict[str, float]  # Amounts of the resources of Dask's workers, by name

# Settings of the user, by files or variables of the environment, take precedence.
dask.config.update_defaults(next(dask.config.collect_yaml([str(Path(__file__).with_name("collapsium.yaml"))])))


def required_resources() -> Resources:
    """Return the resources that each task needs, by the setting ``collapsium.resources``."""
    named = dask.config.get("collapsium.resources") or {}
    amounts = named.values() if isinstance(named, Mapping) else [None]
    if not all(isinstance(amount, int | float) and amount > 0 for amount in amounts):
        raise OptionError(f"dask.config, collapsium.resources: expected amounts above 0 by name, found {named!r}")
    return {str(name): float(amount) for name, amount in named.items()}


def required_workers() -> int:
    """Return the number of workers to wait for, by the setting ``collapsium.workers``."""
    named = dask.config.get("collapsium.workers")
    if type(named) is not int or named < 1:
        raise OptionError(f"dask.config, collapsium.workers: expected a whole number of 1 or more, found {named!r}")
    return named


def has_resources(provided: Mapping[str, float], required: Mapping[str, float]) -> bool:
    """Return whether a worker has the resources that each task needs."""
    return all(provided.get(name, 0.0) >= amount for name, amount in required.items())


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of a call that may block for ever, or raise `TimeoutError`."""
    done: Future[T] = Future()

    def work() -> None:
        try:
            done.set_result(call())
        # The error is raised in the thread that waits.
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, name="collapsium-within", daemon=True).start()
    try:
        return done.result(timeout=seconds)
    except TimeoutError as error:
        raise TimeoutError(str(error) or f"no answer within {seconds:.3g} s") from None


def answer_within(client: distributed.Client, request: Callable[[], Coroutine[object, object, T]], seconds: float) -> T:
    """Return the answer to a client's request, or raise `TimeoutError`; the client itself sets no limit.

    Dask raises an `OSError` when Dask's limit for a connection ends first; the request is then made again until
    `seconds` have passed, so that it does not matter which of the two limits ends first.
    """
    deadline = time.monotonic() + seconds
    while True:
        answer = asyncio.run_coroutine_threadsafe(request(), client.loop.asyncio_loop)
        try:
            return answer.result(timeout=max(deadline - time.monotonic(), 0.0))
        except CollapsiumError:
            raise
        except OSError as error:
            answer.cancel()
            if time.monotonic() + WORKER_POLL >= deadline or not is_unanswered(error):
                raise TimeoutError(str(error) or f"no answer within {seconds:.3g} s") from None
            time.sleep(WORKER_POLL)
        except AttributeError as error:
            require_scheduler(client, error)
            raise


def require_scheduler(client: distributed.Client, error: AttributeError) -> None:
    """Raise `TimeoutError` in place of Dask's error about a client that has given up its connection."""
    if client.scheduler is None:
        raise TimeoutError("the connection to the scheduler is closed") from error


def ask_scheduler(client: distributed.Client, seconds: float, function: Callable[..., T], *args: object) -> T:
    """Run a function on the scheduler and return its result; raise `TimeoutError` without an answer in time."""

    def request() -> Coroutine[object, object, T]:
        return cast("Coroutine[object, object, T]", client.run_on_scheduler(function, *args, asynchronous=True))

    return answer_within(client, request, seconds)


def is_unanswered(error: OSError) -> bool:
    """Return True for Dask's limit for a connection; a connection that broke has lost its tasks too."""
    return not isinstance(error, CollapsiumError | distributed.comm.CommClosedError)


def ignore_large_graphs() -> None:
    """Ignore Dask's warning about large graphs: initial proportions from a file are sent with each shard's task."""
    warnings.filterwarnings("ignore", "Sending large graph", UserWarning)


async def gathered(client: distributed.Client, futures: Sequence[distributed.Future]) -> list[Any]:
    """Return the results of futures; a request that the client has begun to send is not cancelled.

    A client joins the next requests to one that it is about to send, and would never notice that this one was
    cancelled: every later request would be cancelled too.
    """
    request = asyncio.ensure_future(client.gather(futures, asynchronous=True))
    # The error of a request whose answer nobody awaits any more is not logged.
    request.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        return list(await asyncio.shield(request))
    except asyncio.CancelledError:
        # Until all futures are done, the client only waits for them.
        if any(future.status == "pending" for future in futures):
            request.cancel()
        raise


def close_client(client: distributed.Client, seconds: float) -> None:
    """Close a client, in the background after `seconds`, because it may wait for its scheduler without limit."""
    with contextlib.suppress(Exception):
        within(seconds, lambda: client.close(timeout=max(seconds, 1.0)))


def stand_by_on(client: distributed.Client, resources: Resources) -> distributed.Future:
    """Submit a task that does nothing: an adaptive cluster without workers starts one for it, while it is held."""
    return client.submit(stand_by, key=f"stand-by-{uuid.uuid4().hex}", resources=resources or None)


async def activity_of(scheduler: distributed.Scheduler) -> list[Activity]:
    """Return the address, the process memory and the first tasks of each worker."""
    identity, processing = await scheduler.identity(n_workers=-1), await scheduler.processing(workers=None)
    activities = []
    for address, worker in sorted(identity["workers"].items()):
        tasks = [str(key).rsplit("-", 2)[0] for key in processing.get(address, ())[: int(worker["nthreads"])]]
        memory = int((worker.get("metrics") or {}).get("memory", 0))
        activities.append(Activity(address.rpartition("//")[2], memory, tuple(tasks)))
    return activities


@contextlib.contextmanager
def cluster_errors() -> Iterator[None]:
    """Raise `ClusterError` in place of Dask's errors about lost work."""
    try:
        yield
    except (
        distributed.KilledWorker,
        distributed.CancelledError,
        distributed.comm.CommClosedError,
        distributed.client.ClosedClientError,
        TimeoutError,
    ) as error:
        if isinstance(error, ClusterError):
            raise
        raise ClusterError(f"the cluster lost work that cannot be repeated: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error) or type(error).__name__).splitlines()[0]


MAX_TASKS = 1000  # Number of a worker's tasks that are inspected, because other users may have submitted any number

# The fields of a `WorkerSign`, which are sent as plain values
SignFields: TypeAlias = tuple[float, float, bool, tuple[str, ...], bool, bool, int, float, bool]
# Task transitions, the fields of each worker, and stranded tasks; see `worker_signs`
Signs: TypeAlias = tuple[int, dict[str, SignFields], int]


def worker_signs(token: str, resources: Resources, dask_scheduler: distributed.Scheduler) -> Signs:
    """Return the state of the workers for a driver whose tasks need resources."""
    now = time.time()
    signs: dict[str, SignFields] = {}
    # Tasks that have left their thread wait for hosts of an exchange, which sweep outside of tasks.
    waiting = (task for worker in dask_scheduler.workers.values() for task in worker.long_running)
    exchanging = any(token in str(task.key) for task in islice(waiting, MAX_TASKS))
    for address, worker in dask_scheduler.workers.items():
        if not has_resources(worker.resources, resources):
            continue
        tasks = (task for task in worker.processing if task not in worker.long_running)
        keys = [str(task.key) for task in islice(tasks, MAX_TASKS)]
        run_keys = [key for key in keys if token in key]
        signs[address] = (
            max(now - worker.last_seen, 0.0),
            float((worker.metrics or {}).get("cpu", 0.0)),
            worker.status.name == "paused",
            tuple(run_keys[:1]),
            len(run_keys) < len(keys),
            worker.status.name in ("closing", "closing_gracefully", "closed"),
            int(worker.nthreads),
            float(worker.memory_limit or 0),
            exchanging,
        )
    unrunnable = islice(getattr(dask_scheduler, "unrunnable", ()), MAX_TASKS)
    return dask_scheduler.transition_counter, signs, sum(token in str(task.key) for task in unrunnable)


def scheduler_addresses(dask_scheduler: distributed.Scheduler) -> list[str]:
    """Return the addresses that a scheduler listens on."""
    return [str(listener.listen_address) for listener in dask_scheduler.listeners]


def worker_addresses(dask_worker: distributed.Worker) -> list[str]:
    """Return the addresses that a worker listens on."""
    return [str(listener.listen_address) for listener in dask_worker.listeners]


async def remove_worker(address: str, dask_scheduler: distributed.Scheduler) -> None:
    """Remove a worker, so that others run its tasks; the tasks do not count as the cause of its loss."""
    parameters = inspect.signature(dask_scheduler.remove_worker).parameters
    # Releases of Dask differ in the name of this parameter.
    blameless = {"expected" if "expected" in parameters else "safe": True}
    await dask_scheduler.remove_worker(address, stimulus_id="collapsium-given-up", **blameless)


def dask_setup(dask_worker: distributed.Worker) -> None:  # noqa: ARG001
    """Ignore the signals that a terminal or a batch system sends to all processes, in the worker of a local cluster.

    The driver handles them: it needs the worker to save a checkpoint, and then stops it itself. Dask calls this
    function by its name in a worker that preloads this module.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


async def run_aside(function: Callable[..., T], args: Sequence[object], dask_worker: distributed.Worker) -> T:
    """Run a function in a thread beside a worker's event loop, which has to send heartbeats meanwhile."""
    options = {"dask_worker": dask_worker} if "dask_worker" in inspect.signature(function).parameters else {}
    return await asyncio.to_thread(function, *args, **options)


async def run_all_aside(
    calls: Sequence[tuple[Callable[..., object], tuple[object, ...]]], dask_worker: distributed.Worker
) -> None:
    """Run functions one after another, as `run_aside` does."""
    for function, args in calls:
        await run_aside(function, args, dask_worker)


def stand_by() -> None:
    """Do nothing; see `stand_by_on`."""


def bytes_sent(dask_worker: distributed.Worker) -> int:
    """Return the bytes that a worker has sent to others, as results of tasks and in exchanges."""
    return int(dask_worker.transfer_outgoing_bytes_total) + _sent[dask_worker.address]


Call: TypeAlias = tuple[Callable[..., object], tuple[object, ...]]

# Packages whose versions must be the same in the driver and in all workers: other versions may compute other bits
REFUSED = ("python", "numpy", "scipy", "numba", "collapsium")
# Packages whose version may differ, with a notice
REPORTED = ("dask", "distributed", "cloudpickle", "msgpack", "pyarrow", "zarr")
ADVICE = "install the same versions for scheduler, workers and driver"
PACKAGES = ("numba", "scipy", "collapsium", "pyarrow", "zarr")  # Packages that Dask does not report by itself


class Members:
    """The workers that are ready for a driver's tasks."""

    def __init__(
        self, token: Callable[[], str], notice: Callable[[str], None], resources: Resources | None = None
    ) -> None:
        self._token, self._notice, self._resources = token, notice, resources or {}
        self.addresses: tuple[str, ...] = ()
        self.threads, self.memory = 0, 0.0
        # Limits of all workers, also of those that have left, whose loss is explained afterwards
        self._limits: dict[str, float] = {}
        self.calls: list[Call] = []
        self._ready: set[str] = set()
        self._lock = threading.Lock()
        self._looked = 0.0
        self._report: Future[Signs] | None = None
        self._welcome: Future[list[str]] | None = None
        self._reported: set[str] = set()

    def take(self, signs: Mapping[str, WorkerSign], welcomed: Sequence[str] = ()) -> list[str]:
        """Update the members from a report of the scheduler."""
        staying = {address for address, sign in signs.items() if not sign.leaving}
        self._ready = (self._ready | set(welcomed)) & staying
        new = iter(sorted(self._ready - set(self.addresses)))
        places = [address if address in self._ready else next(new, None) for address in self.addresses]
        self.addresses = tuple(address for address in (*places, *new) if address is not None)
        limits = [signs[address].memory for address in self.addresses]
        self._limits |= {address: sign.memory for address, sign in signs.items()}
        self.threads = sum(signs[address].threads for address in self.addresses)
        self.memory = min((limit for limit in limits if limit), default=0.0)
        return sorted(staying - self._ready)

    def memory_limit(self, address: str) -> float:
        """Return the memory limit of a worker in bytes, also of one that has gone; 0 without a limit."""
        return self._limits.get(address, self.memory)

    def look(self, client: distributed.Client) -> None:
        """Look for workers that have joined or left; their answers are processed by a later call."""
        # Members of an ensemble wait in several threads, one of which is enough.
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._process_answers(client)
            if self._report is None and time.monotonic() - self._looked >= MEMBER_POLL:
                self._looked = time.monotonic()
                request = client.run_on_scheduler(worker_signs, self._token(), self._resources, asynchronous=True)
                self._report = asyncio.run_coroutine_threadsafe(request, client.loop.asyncio_loop)
        finally:
            self._lock.release()

    def _process_answers(self, client: distributed.Client) -> None:
        if self._report is None or not self._report.done():
            return
        report, self._report = self._report, None
        welcomed: list[str] = []
        if self._welcome is not None and self._welcome.done():
            welcome, self._welcome = self._welcome, None
            # A worker may leave again while it is prepared. Versions that differ end the run.
            error = welcome.exception()
            if isinstance(error, MismatchError):
                raise error
            welcomed = [] if error is not None else welcome.result()
        # A scheduler that does not answer is reported where results are waited for.
        if report.exception() is not None:
            return
        joining = self.take({name: WorkerSign(*sign) for name, sign in report.result()[1].items()}, welcomed)
        if joining and self._welcome is None:
            coroutine = welcome_workers(client, joining, tuple(self.calls), self.report_others)
            self._welcome = asyncio.run_coroutine_threadsafe(coroutine, client.loop.asyncio_loop)

    def reset(self) -> None:
        """Forget pending requests, whose answers are lost with the connection to the scheduler."""
        with self._lock:
            self._report = self._welcome = None

    def report_others(self, text: str) -> None:
        """Report a difference of versions once."""
        if text not in self._reported:
            self._reported.add(text)
            self._notice(text)


async def welcome_workers(
    client: distributed.Client, addresses: Sequence[str], calls: Sequence[Call], notice: Callable[[str], None]
) -> list[str]:
    """Compare the versions of workers with the driver's, and run functions on the workers."""
    message = {"op": "versions", "packages": list(PACKAGES)}
    answers = await client.scheduler.broadcast(msg=message, workers=list(addresses), on_error="ignore")
    driver = get_versions(packages=PACKAGES)["packages"]
    installed = {address: answer["packages"] for address, answer in sorted(answers.items())}
    require_same_versions(installed, driver)
    differing = _differing(installed, driver, REPORTED)
    if differing:
        notice(f"{differing[0]}{_and_more(differing)}")
    if not calls or not installed:
        return list(installed)
    results = await client.run(
        run_all_aside, list(calls), workers=list(installed), on_error="return", asynchronous=True
    )
    failed = {address: error for address, error in results.items() if isinstance(error, Exception)}
    for address, error in failed.items():
        if not isinstance(error, OSError):
            notice(f"worker {address} takes no part yet: {first_line(error)}")
    return [address for address in installed if address in results and address not in failed]


def require_same_versions(installed: Mapping[str, Mapping[str, str | None]], driver: Mapping[str, str | None]) -> None:
    """Raise `MismatchError` if a worker has another version of a package on which results depend."""
    differing = _differing(installed, driver, REFUSED)
    if differing:
        raise MismatchError(f"{differing[0]}{_and_more(differing)}; {ADVICE}")


def require_release(address: str, versions: Mapping[str, Any]) -> None:
    """Raise `MismatchError` unless a scheduler has this release installed, because it runs functions of the release."""
    driver = get_versions(packages=PACKAGES)["packages"]
    lines = _differing({address: versions["packages"]}, driver, ("collapsium",), "the scheduler")
    if lines:
        raise MismatchError(f"{lines[0]}; {ADVICE}")


def _differing(
    installed: Mapping[str, Mapping[str, str | None]],
    driver: Mapping[str, str | None],
    names: Sequence[str],
    role: str = "worker",
) -> list[str]:
    """Return a line for each worker that differs from the driver in some packages."""
    lines = []
    for address, versions in installed.items():
        pairs = [(name, versions.get(name), driver.get(name)) for name in names]
        texts = [
            f"{_package(name, version)}, the driver {_version(expected)}"
            for name, version, expected in pairs
            if version != expected
        ]
        if texts:
            lines.append(f"{role} {address} has {' and '.join(texts)}")
    return lines


def _package(name: str, version: str | None) -> str:
    label = "Python" if name == "python" else name
    return f"no {label}" if version is None else f"{label} {_version(version)}"


def _version(version: str | None) -> str:
    return "none" if version is None else version.removesuffix(".final.0")


def _and_more(lines: Sequence[str]) -> str:
    return f" (and {len(lines) - 1} more workers differ)" if len(lines) > 1 else ""


OPERATION = "collapsium_exchange"  # Name of the messages in the workers' tables of handlers
# Messages of a host in transit: many connections that begin at the same time, as in an exchange of 64 hosts, would
# all take longer than Dask waits for one
MAX_IN_TRANSIT = 8
RETRY_SECONDS = 0.2  # Seconds between two attempts to reach a worker

Fields: TypeAlias = tuple[str, int, int, int, int, int, tuple[bytes, ...]]

_sent: Counter[str] = Counter()  # Bytes that workers of this process have sent, by address


@dataclass(frozen=True)
class DaskLinks:
    """Connections between the workers that are hosts."""

    addresses: tuple[str, ...]  # Address of each host

    def is_at(self, host: int) -> bool:
        """Return whether the worker that runs this task is a host."""
        return bool(distributed.get_worker().address == self.addresses[host])

    def open(self) -> exchange.Send:
        """Begin to receive messages in the worker that runs this task; return the function that sends messages."""
        worker = distributed.get_worker()
        worker.handlers[OPERATION] = _receive
        transit = asyncio.Semaphore(MAX_IN_TRANSIT)

        def send(message: exchange.Message) -> Future[None]:
            _sent[worker.address] += sum(map(len, message.parts))
            sending = _send(worker, self.addresses[message.receiver], message, transit)
            return asyncio.run_coroutine_threadsafe(sending, worker.loop.asyncio_loop)

        return send

    def leave_thread(self) -> None:
        """Free the thread of this task for other tasks."""
        distributed.secede()

    def when_released(self, leave: Callable[[], None]) -> None:
        """Call a function once the result of this task is no longer needed, or its worker closes."""
        worker = distributed.get_worker()
        release = _Release(worker, str(worker.get_current_task()), leave)
        adding = worker.plugin_add(release, name=release.name)
        asyncio.run_coroutine_threadsafe(adding, worker.loop.asyncio_loop).result()


class _Release(distributed.WorkerPlugin):  # type: ignore[misc]
    """Calls a function once a worker releases the result of a task, even if the driver could not close the exchange."""

    def __init__(self, worker: distributed.Worker, key: str, leave: Callable[[], None]) -> None:
        self._worker, self._key, self._leave = worker, key, leave
        self._left = False
        self.name = f"collapsium-release-{key}"

    def transition(self, key: distributed.worker.Key, start: str, finish: str, **context: object) -> None:  # noqa: ARG002
        """Call the function when the result is released; remove the plugin once the worker has called all plugins."""
        # A result is often released and then forgotten.
        if key == self._key and finish in ("released", "forgotten") and not self._left:
            self._left = True
            self._leave()
            asyncio.get_running_loop().create_task(self._worker.plugin_remove(name=self.name))

    def teardown(self, worker: distributed.Worker) -> None:  # noqa: ARG002
        """Call the function when the worker closes."""
        self._leave()


async def _send(
    worker: distributed.Worker, address: str, message: exchange.Message, transit: asyncio.Semaphore
) -> None:
    while True:
        try:
            async with transit:
                await getattr(worker.rpc(address), OPERATION)(fields=to_serialize(tuple(message)))
        # The driver notices a worker that is lost for good, and ends the exchange.
        except OSError:
            if exchange.has_ended(message.token):
                raise
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return


async def _receive(fields: Fields) -> None:
    token, receiver, turn, kind, sender, number, parts = fields
    exchange.deliver(exchange.Message(token, receiver, turn, exchange.Kind(kind), sender, number, parts))
