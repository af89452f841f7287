"""Bound the memory of a long-lived scheduler: remove the event log of a client when the client disconnects.

Dask logs up to 1000 events of each client, with the graphs that it has sent. It empties a client's log an hour after
the client has disconnected, and never removes its name.
"""

from __future__ import annotations

import distributed

from collapsium.storage.data_types import JsonObject

NAME = "collapsium-clients"
SHARED_LOGS = ("all", "scheduler")  # Dask's event logs that hold the events of clients too
LAST_EVENT_DELAY = 5.0  # Seconds after a client's disconnection by which its last event is logged


class ForgottenClients(distributed.SchedulerPlugin):  # type: ignore[misc]
    """Removes the event logs of drivers' clients when they disconnect; those of other clients stay."""

    name = NAME

    def __init__(self) -> None:
        self.clients: set[str] = set()

    def remove_client(self, scheduler: distributed.Scheduler, client: str) -> None:
        """Remove the logs of a client that has disconnected; Dask calls this method."""
        topics = getattr(getattr(scheduler, "_broker", None), "_topics", {})
        if client in self.clients:
            self.clients.discard(client)
            _forget(topics, client)
            scheduler.loop.call_later(LAST_EVENT_DELAY, _forget, topics, client)


def _forget(topics: JsonObject, client: str) -> None:
    """Remove the log of a client, and its events from the shared logs."""
    log = topics.pop(client, None)
    own = set() if log is None else {id(event) for event in log.events}
    for name in SHARED_LOGS:
        if own and name in topics:
            events = topics[name].events
            others = [event for event in events if id(event) not in own]
            events.clear()
            events.extend(others)


def forget_later(client: str, dask_scheduler: distributed.Scheduler) -> None:
    """Have a scheduler remove the logs of a client once it has disconnected."""
    plugin = dask_scheduler.plugins.get(NAME)
    if not isinstance(plugin, ForgottenClients):
        plugin = ForgottenClients()
        dask_scheduler.add_plugin(plugin)
    plugin.clients.add(client)
