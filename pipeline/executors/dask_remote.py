"""Functions that run in the scheduler or in workers; Dask passes these as `dask_scheduler` and `dask_worker`."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import distributed

T = TypeVar("T")


def worker_signs(
    dask_scheduler: distributed.Scheduler,
) -> tuple[int, dict[str, tuple[float, float, bool, tuple[str, ...]]], int]:
    """Return the number of task transitions, the fields of each worker's `WorkerSign`, and the stranded tasks."""
    now = time.time()
    signs = {}
    for address, worker in dask_scheduler.workers.items():
        tasks = tuple(str(task.key) for task in list(worker.processing)[:1])
        processor = float((worker.metrics or {}).get("cpu", 0.0))
        signs[address] = (max(now - worker.last_seen, 0.0), processor, worker.status.name == "paused", tasks)
    return dask_scheduler.transition_counter, signs, len(getattr(dask_scheduler, "unrunnable", ()))


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


def bytes_sent(dask_worker: distributed.Worker) -> int:
    """Return the bytes that a worker has sent to others."""
    return int(dask_worker.transfer_outgoing_bytes_total)
