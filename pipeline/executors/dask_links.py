"""Messages between the workers of a Dask cluster, for the exchange of changes (`workers.exchange`).

They use the workers' existing connections, with their encryption, from memory to memory and without the scheduler.
Messages are not results of tasks, because Dask would store and move results as it likes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

import distributed
from distributed.protocol import to_serialize

from collapsium.workers import exchange

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


def sent_by(worker: distributed.Worker) -> int:
    """Return the bytes that a worker of this process has sent."""
    return _sent[worker.address]
