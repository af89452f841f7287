"""The metrics of a run by iteration: their series from its events, their titles, and their charts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from collapsium.pipeline.svg import curves
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.members import CONSENSUS, has_consensus, restarts_of
from collapsium.storage.runs.run import RECORD as RUN_RECORD
from collapsium.storage.runs.run import Run

Events = Sequence[Mapping[str, Any]]
Series = list[tuple[str, list[tuple[float, float]]]]

# Titles and units; all other metrics are hyperparameters, shown under their names.
TITLES = {
    "score": ("Held-out score", "nats per token"),
    "objective": ("Objective", "nats"),
    "change": ("Tokens that moved between topics", "share of the tokens"),
    "topics": ("Number of topics", "topics"),
    "topics_99": ("Topics that hold 99% of the tokens", "topics"),
    "nodes": ("Nodes of the tree", "nodes"),
    "leaves": ("Leaves of the tree", "leaves"),
    "grown": ("Nodes grown", "nodes"),
    "pruned": ("Nodes pruned", "nodes"),
    "merged": ("Nodes merged", "nodes"),
}
NUMBERS = ("topics", "topics_99", "nodes", "leaves")
# Metrics of how a fit proceeds rather than of its model: events have them, plots and reports do not show them.
# `power` is the inverse temperature in events of 0.1.0.
PROCEDURE = ("inverse_temperature", "power", "small_active_sets")
COUNTS = (*NUMBERS, "grown", "pruned", "merged")
MAX_CHARTS = 16


def events_of(run: str | os.PathLike[str]) -> list[tuple[str, Events]]:
    """Read name and events of each restart of a run, and of its consensus; a single fit has no name."""
    folder = Folder(run)
    if not folder.exists(RUN_RECORD):
        return []
    restarts = restarts_of(run)
    if restarts:
        events: list[tuple[str, Events]] = [
            (f"{number:03d}", restart.events()) for number, restart in restarts if restart.exists()
        ]
        return [*events, (CONSENSUS, Run(run).events())] if has_consensus(run) else events
    return [("", Run(run).events())]


def series_of(members: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], name: str) -> Series:
    """Return the pairs of iteration and value of a metric, for each fit whose events have it."""
    series: Series = []
    for member, events in members:
        points: dict[float, float] = {}
        for event in events:
            value = event.get(name)
            if event["event"] == "iteration" and isinstance(value, int | float) and not isinstance(value, bool):
                points[float(event["iteration"])] = float(value)
        if points:
            series.append((member, sorted(points.items())))
    return series


def parameters_of(metrics: Iterable[str]) -> list[str]:
    """Return the names of the hyperparameters among metrics."""
    return [name for name in metrics if name not in (*NUMBERS, *PROCEDURE)]


def title_of(name: str) -> tuple[str, str]:
    """Return a metric's title and unit."""
    return TITLES.get(name, (name.replace("_", " ").capitalize(), ""))


@dataclass(frozen=True)
class MetricChart:
    """The chart of a metric, with the texts around it."""

    name: str  # Name of the metric in events
    title: str
    unit: str
    svg: Markup
    caption: str


def charts_of(
    members: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], metrics: Mapping[str, float]
) -> tuple[list[MetricChart], dict[str, float]]:
    """Lay out the charts of a run.

    Returns charts: Charts of the metrics that changed; constant: Hyperparameters that did not change
    """
    charts, constant = [], {}
    counted = [name for name in NUMBERS if name in metrics]
    for name in ["score", "change", "objective", *counted, *parameters_of(metrics)]:
        series = series_of(members, name)
        values = {value for _, points in series for _, value in points}
        if len(values) > 1:
            title, unit = title_of(name)
            charts.append(MetricChart(name, title, unit, *curves(title, series, counted=name in COUNTS)))
        elif name in metrics:
            constant[name] = metrics[name]
    return charts[:MAX_CHARTS], constant
