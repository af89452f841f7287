"""Runs on the Dask dashboard: a page ``/collapsium``, plots for JupyterLab's list, and metrics for Prometheus.

A cluster of our own has them by itself; a scheduler that runs elsewhere gets them when a driver reaches it, or from its
beginning with ``dask scheduler --preload collapsium.pipeline.monitoring.dask_dashboard.plugin``.
"""

from __future__ import annotations

from typing import Any

from tornado.ioloop import IOLoop

from collapsium.pipeline.monitoring.dask_dashboard.runs import NAME, Runs, runs_of


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
    from collapsium.pipeline.monitoring.prometheus import publish

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
    from collapsium.pipeline.monitoring.dask_dashboard.page import PAGES

    variables = template_variables(dask_scheduler)  # all pages share it
    prefix = getattr(served[0], "prefix", "")
    application = BokehApplication(PAGES, dask_scheduler, prefix=prefix, template_variables=variables)
    dask_scheduler.http_application.add_application(application)
    application.initialize(IOLoop.current())
    application.start()
    # What is asked for the list of plots is the first application's, and what is in its navigation these variables.
    served[0]._applications.update(application._applications)
    variables["pages"].insert(0, "collapsium")
    plots = [
        {"url": url.strip("/"), "name": url.strip("/").partition("-")[2].replace("-", " ").title()} for url in PAGES
    ]
    variables["plots"] += [plot for plot in plots if plot["name"]]
    variables["plots"].sort(key=lambda plot: str(plot["name"]))


def dask_setup(scheduler: Any) -> None:
    """Install it as a preload of a scheduler."""
    install(scheduler)
