"""Functions that run in the scheduler or in workers; Dask passes these as `dask_scheduler` and `dask_worker`."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    import distributed

T = TypeVar("T")


MAX_TASKS = 1000  # Number of a worker's tasks that are looked at: others may have submitted any number

# The fields of a `WorkerSign`, which travel as plain values
SignFields: TypeAlias = tuple[float, float, bool, tuple[str, ...], bool, bool, int, float]
# Task transitions, the fields of each worker, and stranded tasks; see `worker_signs`
Signs: TypeAlias = tuple[int, dict[str, SignFields], int]


def worker_signs(token: str, dask_scheduler: distributed.Scheduler) -> Signs:
    """Return the state of the workers for a driver."""
    now = time.time()
    signs: dict[str, SignFields] = {}
    for address, worker in dask_scheduler.workers.items():
        keys = [str(task.key) for task in islice(worker.processing, MAX_TASKS)]
        own = [key for key in keys if token in key]
        signs[address] = (
            max(now - worker.last_seen, 0.0),
            float((worker.metrics or {}).get("cpu", 0.0)),
            worker.status.name == "paused",
            tuple(own[:1]),
            len(own) < len(keys),
            worker.status.name in ("closing", "closing_gracefully", "closed"),
            int(worker.nthreads),
            float(worker.memory_limit or 0),
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
    """Return the bytes that a worker has sent to others."""
    return int(dask_worker.transfer_outgoing_bytes_total)
