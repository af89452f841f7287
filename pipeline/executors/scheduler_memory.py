"""Bound the memory of a scheduler that outlives drivers: what it has logged of a client goes when the client does.

Dask logs up to 1000 events for each client, with the graphs that it has sent; a client's own log is emptied an hour
after it has gone, and its name stays for ever.
"""

from __future__ import annotations

from typing import Any

import distributed

NAME = "collapsium-clients"
SHARED = ("all", "scheduler")  # Dask's logs that have the events of clients too
LATE = 5.0  # seconds after which the last event of a client that has gone was logged


class ForgottenClients(distributed.SchedulerPlugin):  # type: ignore[misc]
    """Removes the logs of drivers' clients as these go, however they end; other clients keep theirs."""

    name = NAME

    def __init__(self) -> None:
        self.clients: set[str] = set()

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Forget a client that has gone; Dask calls this, and hands us its scheduler."""
        topics = getattr(getattr(scheduler, "_broker", None), "_topics", {})
        if client in self.clients:
            self.clients.discard(client)
            _forget(topics, client)
            scheduler.loop.call_later(LATE, _forget, topics, client)


def _forget(topics: dict[str, Any], client: str) -> None:
    """Remove the log of a client, and its events from the logs of all."""
    gone = topics.pop(client, None)
    own = set() if gone is None else {id(event) for event in gone.events}
    for name in SHARED:
        if own and name in topics:
            events = topics[name].events
            left = [event for event in events if id(event) not in own]
            events.clear()
            events.extend(left)


def forget_later(client: str, dask_scheduler: Any) -> None:
    """Have a scheduler forget a client once it has gone.

    Parameters
    ----------
    client : str
        The client's id.
    dask_scheduler : distributed.Scheduler
        Dask hands it to whatever asks for it by this name.
    """
    plugin = dask_scheduler.plugins.get(NAME)
    if not isinstance(plugin, ForgottenClients):
        plugin = ForgottenClients()
        dask_scheduler.add_plugin(plugin)
    plugin.clients.add(client)
