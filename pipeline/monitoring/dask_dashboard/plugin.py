"""Runs on the Dask dashboard: a page ``/collapsium``, plots for JupyterLab's list, and metrics for Prometheus.

A scheduler that Collapsium starts has them. Another scheduler gets them when a driver connects to it, or from its start
with ``dask scheduler --preload collapsium.pipeline.monitoring.dask_dashboard.plugin``.
"""

from __future__ import annotations

from importlib.util import find_spec

from distributed import Scheduler

from collapsium.pipeline.monitoring.dask_dashboard.runs import NAME, Runs, runs_of


def install(dask_scheduler: Scheduler) -> None:
    """Add the page, the plots and the metrics to a running scheduler, unless it has them."""
    if isinstance(dask_scheduler.plugins.get(NAME), Runs):
        return
    runs = runs_of(dask_scheduler)
    # Both are optional: a scheduler without prometheus-client has no metrics, and one without Bokeh no dashboard.
    if find_spec("prometheus_client") is not None:
        from collapsium.pipeline.monitoring import prometheus

        prometheus.publish(runs)
    if find_spec("bokeh") is not None:
        from collapsium.pipeline.monitoring.dask_dashboard import application

        application.serve_pages(dask_scheduler)


def dask_setup(scheduler: Scheduler) -> None:
    """Install the page as a preload of a scheduler."""
    install(scheduler)
