"""Runs on the Dask dashboard: a page ``/collapsar``, plots for JupyterLab's list, and metrics for Prometheus.

A cluster of our own has them by itself; a scheduler that runs elsewhere gets them when a driver reaches it, or from its
beginning with ``dask scheduler --preload collapsar.pipeline.dashboard``.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

import distributed
from tornado.ioloop import IOLoop

from collapsar.pipeline.picturing import Picture

TOPIC, NAME = "collapsar", "collapsar-runs"
RUNS = 8  # that are remembered


class Runs(distributed.SchedulerPlugin):  # type: ignore[misc]
    """Remembers what drivers tell of their runs; the scheduler's own log keeps only the last 1000 messages."""

    name = NAME

    def __init__(self) -> None:
        self._pictures: dict[str, Picture] = {}  # as they began: runs side by side keep their order
        self._told: OrderedDict[str, float] = OrderedDict()  # when; the one told of last at the end

    def log_event(self, topic: str, msg: Any) -> None:
        """Take a message of a driver; see `collapsar.pipeline.feeding`."""
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


def install(dask_scheduler: Any) -> None:
    """Give a scheduler the page, the plots and the metrics, unless it has them; Dask hands us the scheduler.

    Parameters
    ----------
    dask_scheduler : distributed.Scheduler
        It runs already.
    """
    if isinstance(dask_scheduler.plugins.get(NAME), Runs):
        return
    runs = runs_of(dask_scheduler)
    from collapsar.pipeline.metrics import publish

    publish(runs)
    try:
        from bokeh.server.tornado import BokehTornado
        from distributed.dashboard.core import BokehApplication
        from distributed.dashboard.scheduler import template_variables
    except ImportError:  # a scheduler without Bokeh has no dashboard
        return
    served = [one for one in dask_scheduler.http_application.applications if isinstance(one, BokehTornado)]
    if not served:
        return
    from collapsar.pipeline.dashpage import PAGES

    variables = template_variables(dask_scheduler)  # all pages share it
    prefix = getattr(served[0], "prefix", "")
    application = BokehApplication(PAGES, dask_scheduler, prefix=prefix, template_variables=variables)
    dask_scheduler.http_application.add_application(application)
    application.initialize(IOLoop.current())
    application.start()
    # What is asked for the list of plots is the first application's, and what is in its navigation these variables.
    served[0]._applications.update(application._applications)
    variables["pages"].insert(0, "collapsar")
    plots = [
        {"url": url.strip("/"), "name": url.strip("/").partition("-")[2].replace("-", " ").title()} for url in PAGES
    ]
    variables["plots"] += [plot for plot in plots if plot["name"]]
    variables["plots"].sort(key=lambda plot: str(plot["name"]))


def dask_setup(scheduler: Any) -> None:
    """Install it as a preload of a scheduler."""
    install(scheduler)
