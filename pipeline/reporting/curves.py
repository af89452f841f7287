"""The course of a fit: which figures are drawn over its iterations, and what they are called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from collapsium.pipeline.reporting.charts import Chart, chart
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.members import restarts_of
from collapsium.storage.runs.run import RECORD as RUN_RECORD
from collapsium.storage.runs.run import Run

Events = Sequence[Mapping[str, Any]]
Series = list[tuple[str, list[tuple[float, float]]]]

# Names and units; other figures are hyperparameters, by their own names.
NAMES = {
    "score": ("Held-out score", "nats a token"),
    "objective": ("Objective", "nats"),
    "change": ("Tokens that changed their topic", "share, log scale"),
    "topics": ("Number of topics", "topics"),
    "topics_99": ("Topics that hold 99% of the tokens", "topics"),
    "nodes": ("Nodes of the tree", "nodes"),
    "leaves": ("Leaves of the tree", "leaves"),
    "grown": ("Nodes grown", "nodes"),
    "pruned": ("Nodes pruned", "nodes"),
    "merged": ("Nodes merged", "nodes"),
}
NUMBERS = ("topics", "topics_99", "nodes", "leaves")
MOVES = ("grown", "pruned", "merged")  # how many nodes, in each iteration
COUNTS = (*NUMBERS, *MOVES)
MOST = 16


def events_of(run: str | os.PathLike[str]) -> list[tuple[str, Events]]:
    """Read the events of each fit of a run: one without a name or, of an ensemble, its restarts; none of a model."""
    folder = Folder(run)
    if not folder.exists(RUN_RECORD):
        return []
    restarts = restarts_of(run)
    if restarts:
        return [(f"{number:03d}", one.events()) for number, one in restarts if one.exists()]
    return [("", Run(run).events())]


def series_of(members: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], name: str) -> Series:
    """Return a figure's course, (iteration, value), of each fit that tells it."""
    found: Series = []
    for member, events in members:
        points: dict[float, float] = {}
        for event in events:
            value = event.get(name)
            if event["event"] == "iteration" and isinstance(value, int | float) and not isinstance(value, bool):
                points[float(event["iteration"])] = float(value)
        if points:
            found.append((member, sorted(points.items())))
    return found


def names_of(figures: Mapping[str, float]) -> list[str]:
    """Return the names of what may be drawn: the score first, then the objective, numbers, hyperparameters."""
    counted = [name for name in NUMBERS if name in figures]
    return ["score", "objective", *counted, *(name for name in figures if name not in NUMBERS)]


def title_of(name: str) -> tuple[str, str]:
    """Return a figure's title and unit."""
    return NAMES.get(name, (name.replace("_", " ").capitalize(), ""))


def charts_of(
    members: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], figures: Mapping[str, float]
) -> tuple[list[Chart], dict[str, float]]:
    """Lay out the charts of a run.

    Parameters
    ----------
    members : sequence of (str, events)
        Of each fit.
    figures : mapping of str to float
        The hyperparameters.

    Returns
    -------
    charts : list of Chart
        Of what has changed.
    constant : dict of str to float
        What has not.
    """
    charts, constant = [], {}
    for name in names_of(figures):
        series = series_of(members, name)
        values = {value for _, points in series for _, value in points}
        if len(values) > 1:
            charts.append(chart(name, *title_of(name), series, counted=name in COUNTS))
        elif name in figures:
            constant[name] = figures[name]
    return charts[:MOST], constant
