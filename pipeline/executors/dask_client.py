"""Bounded waiting for a Dask client, and errors of a cluster as our own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import distributed

from collapsium.pipeline.executors.base import Activity
from collapsium.storage.errors import ClusterError

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """Make a call that may never return, and wait for it no longer than so many seconds.

    Parameters
    ----------
    seconds : float
        How long; the call goes on in a thread of its own that nobody waits for.
    call : callable
        What to do.

    Returns
    -------
    object
        What it returns; what it raises is raised.

    Raises
    ------
    TimeoutError
        It has not returned in time.
    """
    done: Future[T] = Future()

    def work() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # whatever it is, who waits shall meet it
            done.set_exception(error)

    threading.Thread(target=work, name="collapsium-within", daemon=True).start()
    try:
        return done.result(timeout=seconds)
    except TimeoutError as error:
        raise TimeoutError(str(error) or f"no answer within {seconds:g} s") from None


def answer_within(client: Any, coroutine: Any, seconds: float) -> Any:
    """Return the answer to what a client asks, within so many seconds; its own calls know no such limit.

    Parameters
    ----------
    client : distributed.Client
        Connected.
    coroutine : coroutine
        What it asks.
    seconds : float
        How long.

    Returns
    -------
    object
        The answer.

    Raises
    ------
    TimeoutError
        None has come.
    """
    asked = asyncio.run_coroutine_threadsafe(coroutine, client.loop.asyncio_loop)
    try:
        return asked.result(timeout=seconds)
    except TimeoutError as error:
        asked.cancel()
        raise TimeoutError(str(error) or f"no answer within {seconds:g} s") from None


def close_client(client: Any, seconds: float) -> None:
    """Close a client, which may wait for its scheduler without limit, within so many seconds or unseen."""
    with contextlib.suppress(Exception):
        within(seconds, lambda: client.close(timeout=max(seconds, 1.0)))


async def activity_of(scheduler: Any) -> list[Activity]:
    """Ask for each worker's address, the bytes of its process, and the first of its tasks."""
    identity, processing = await scheduler.identity(n_workers=-1), await scheduler.processing(workers=None)
    found = []
    for address, worker in sorted(identity["workers"].items()):
        tasks = [str(key).rsplit("-", 2)[0] for key in processing.get(address, ())[: int(worker["nthreads"])]]
        memory = int((worker.get("metrics") or {}).get("memory", 0))
        found.append(Activity(address.rpartition("//")[2], memory, tuple(tasks)))
    return found


@contextlib.contextmanager
def cluster_errors() -> Any:
    """Raise `ClusterError` for what Dask raises when a cluster has lost work."""
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
    """Return the first line of what an error says."""
    return (str(error) or type(error).__name__).splitlines()[0]
