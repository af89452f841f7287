"""Runs on the Dask dashboard: a page ``/collapsium``, plots for JupyterLab's list, and metrics for Prometheus.

A scheduler that Collapsium starts has them. Another scheduler gets them when a driver connects to it, or from its start
with ``dask scheduler --preload collapsium.pipeline.monitoring.dask_dashboard.plugin``.
"""

from __future__ import annotations

from distributed import Scheduler
from tornado.ioloop import IOLoop

from collapsium.pipeline.monitoring.dask_dashboard.runs import NAME, Runs, runs_of


def install(dask_scheduler: Scheduler) -> None:
    """Add the page, the plots and the metrics to a running scheduler, unless it has them.

    Parameters
    ----------
    dask_scheduler : distributed.Scheduler
        The scheduler; Dask passes it by this name.
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
    # A scheduler without Bokeh has no dashboard.
    except ImportError:
        return
    served = [one for one in dask_scheduler.http_application.applications if isinstance(one, BokehTornado)]
    if not served:
        return
    from collapsium.pipeline.monitoring.dask_dashboard.page import PAGES

    # All pages share these variables.
    variables = template_variables(dask_scheduler)
    prefix = getattr(served[0], "prefix", "")
    application = BokehApplication(PAGES, dask_scheduler, prefix=prefix, template_variables=variables)
    dask_scheduler.http_application.add_application(application)
    application.initialize(IOLoop.current())
    application.start()
    # The list of plots comes from the first application, and its navigation from these variables.
    served[0]._applications.update(application._applications)
    variables["pages"].insert(0, "collapsium")
    plots = [
        {"url": url.strip("/"), "name": url.strip("/").partition("-")[2].replace("-", " ").title()} for url in PAGES
    ]
    variables["plots"] += [plot for plot in plots if plot["name"]]
    variables["plots"].sort(key=lambda plot: str(plot["name"]))


def dask_setup(scheduler: Scheduler) -> None:
    """Install the page as a preload of a scheduler."""
    install(scheduler)
