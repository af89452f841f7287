"""Functions that Dask runs in its scheduler and workers, which it passes as `dask_scheduler` and `dask_worker`."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any


def worker_signs(dask_scheduler: Any) -> tuple[int, dict[str, tuple[float, float, bool, tuple[str, ...]]], int]:
    """Return how much has happened, what is known of each worker, and how many tasks have none; Dask hands us it."""
    now = time.time()
    found = {}
    for address, worker in dask_scheduler.workers.items():
        tasks = tuple(str(task.key) for task in list(worker.processing)[:1])
        processor = float((worker.metrics or {}).get("cpu", 0.0))
        found[address] = (max(now - worker.last_seen, 0.0), processor, worker.status.name == "paused", tasks)
    return dask_scheduler.transition_counter, found, len(getattr(dask_scheduler, "unrunnable", ()))


def scheduler_addresses(dask_scheduler: Any) -> list[str]:
    """Return the addresses that a scheduler listens on; Dask passes it by this name."""
    return [str(listener.listen_address) for listener in dask_scheduler.listeners]


def worker_addresses(dask_worker: Any) -> list[str]:
    """Return the addresses that a worker listens on; Dask passes it by this name."""
    return [str(listener.listen_address) for listener in dask_worker.listeners]


async def remove_worker(address: str, dask_scheduler: Any) -> None:
    """Remove a worker, so that others do its tasks."""
    named = inspect.signature(dask_scheduler.remove_worker).parameters
    said = {"expected" if "expected" in named else "safe": True}  # no task is to blame; other releases say it otherwise
    await dask_scheduler.remove_worker(address, stimulus_id="collapsium-given-up", **said)


async def run_aside(function: Callable[..., Any], args: Sequence[Any], dask_worker: Any) -> Any:
    """Run a function beside a worker's event loop, which has to answer meanwhile: a silent worker is given up."""
    hands = {"dask_worker": dask_worker} if "dask_worker" in inspect.signature(function).parameters else {}
    return await asyncio.to_thread(function, *args, **hands)


def bytes_sent(dask_worker: Any) -> int:
    """Return what a worker has sent; Dask hands it to whatever asks for it by this name."""
    return int(dask_worker.transfer_outgoing_bytes_total)
