"""Serve the page and the plots of runs on the web server of a scheduler."""

from __future__ import annotations

from bokeh.server.tornado import BokehTornado
from distributed import Scheduler
from distributed.dashboard.core import BokehApplication
from distributed.dashboard.scheduler import template_variables
from tornado.ioloop import IOLoop

from collapsium.pipeline.monitoring.dask_dashboard.page import PAGES


def serve_pages(scheduler: Scheduler) -> None:
    """Add the page and the plots to a running scheduler, unless it serves no dashboard."""
    served = [one for one in scheduler.http_application.applications if isinstance(one, BokehTornado)]
    if not served:
        return
    # All pages share these variables.
    variables = template_variables(scheduler)
    prefix = getattr(served[0], "prefix", "")
    application = BokehApplication(PAGES, scheduler, prefix=prefix, template_variables=variables)
    scheduler.http_application.add_application(application)
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
