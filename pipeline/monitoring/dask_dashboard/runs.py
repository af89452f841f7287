"""Runs that a Dask scheduler has been told of, for its page and its metrics."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

import distributed

from collapsium.pipeline.monitoring.run_status import Picture

TOPIC, NAME = "collapsium", "collapsium-runs"
RUNS = 8  # that are remembered


class Runs(distributed.SchedulerPlugin):  # type: ignore[misc]
    """Remembers what drivers tell of their runs; the scheduler's own log keeps only the last 1000 messages."""

    name = NAME

    def __init__(self) -> None:
        self._pictures: dict[str, Picture] = {}  # as they began: runs side by side keep their order
        self._told: OrderedDict[str, float] = OrderedDict()  # when; the one told of last at the end

    def log_event(self, topic: str, msg: Any) -> None:
        """Take a message of a driver; see `collapsium.pipeline.monitoring.dask_dashboard.feed`."""
        if topic != TOPIC or not isinstance(msg, dict) or not {"run", "event", "totals"} <= set(msg):
            return
        run, event = str(msg["run"]), msg["event"]
        if run not in self._pictures or event["event"] == "cluster":  # a fit begins, or is taken up again
            self._pictures.pop(run, None)
            self._pictures[run] = Picture()
        self._told[run] = time.monotonic()
        self._told.move_to_end(run)
        while len(self._told) > RUNS:
            self._pictures.pop(self._told.popitem(last=False)[0])
        picture = self._pictures[run]
        picture.add(event)
        member = event.get("member") if picture.restarts else None
        if member in picture.courses:
            picture.courses[member].totals = dict(msg["totals"])

    def quiet(self, run: str) -> float:
        """Return the seconds since a run was told of."""
        return time.monotonic() - self._told.get(run, time.monotonic())

    def pictures(self) -> dict[str, Picture]:
        """Return what is known of each run by its folder, the one that began last at the end."""
        return dict(self._pictures)


def runs_of(scheduler: Any) -> Runs:
    """Return what a scheduler knows of runs, from now on if it knew of none."""
    found = scheduler.plugins.get(NAME)
    if not isinstance(found, Runs):
        found = Runs()
        scheduler.add_plugin(found)
    return found
