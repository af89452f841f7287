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
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import dask
import distributed

from collapsium.pipeline.executors import dask_links
from collapsium.pipeline.executors.base import Activity
from collapsium.pipeline.executors.liveness import WORKER_POLL
from collapsium.storage.errors import ClusterError, CollapsiumError, OptionError

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


if TYPE_CHECKING:
    import distributed


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
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


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
    return int(dask_worker.transfer_outgoing_bytes_total) + dask_links.sent_by(dask_worker)
