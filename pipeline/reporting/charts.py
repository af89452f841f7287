"""Formatting of numbers for people, and the geometry of small SVG charts, which templates draw."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.members import CONSENSUS, has_consensus, restarts_of
from collapsium.storage.runs.run import RECORD as RUN_RECORD
from collapsium.storage.runs.run import Run

# Sizes in the chart's own units, about a pixel each on a wide screen.
WIDTH, HEIGHT = 360.0, 210.0
LEFT, RIGHT, TOP, BOTTOM = 72.0, 12.0, 10.0, 28.0
MAX_POINTS = 400
# Share of the iterations left out of the vertical range: the first values would flatten all later ones.
EARLY = 0.1
MINUS = "\N{MINUS SIGN}"


def number(value: float, digits: int = 4) -> str:
    """Format a number to `digits` significant digits, with thousands separated: ``-7.140``, ``12,345``, ``1.2e-05``.

    Integers are exact, and floats have all their digits, so that -6.000 beside -6.123 is not -6.
    """
    if not math.isfinite(value):
        return "–"
    if isinstance(value, int) or value == 0 or abs(value) >= 10**digits:
        text = f"{value:,.0f}"
    elif abs(value) >= 1e-4:
        places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
        text = f"{value:,.{places}f}"
    else:
        text = f"{value:.{max(digits - 2, 1)}g}"
    return text.replace("-", MINUS)


def percent(share: float) -> str:
    """Format a share: ``12.3%``, or ``<0.1%`` if it is smaller."""
    return "<0.1%" if 0 < share < 0.001 else f"{share:.1%}"


def times(factor: float) -> str:
    """Format a factor: ``0.4``, ``1.7``, ``23``, ``>999``."""
    return f"{factor:.1f}" if factor < 9.95 else f"{factor:.0f}" if factor < 999.5 else ">999"


def duration(seconds: float) -> str:
    """Format a duration: ``12.3 s``, ``4 min 5 s``, ``2 h 10 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


@dataclass(frozen=True)
class Line:
    """A line of a chart."""

    name: str  # Name of the ensemble's member; empty for a single fit
    path: str  # The SVG path
    points: int  # Number of points
    last: float  # The last value


@dataclass(frozen=True)
class Chart:
    """A chart over iterations."""

    # Name of the figure in events, and the texts around the chart
    name: str
    title: str
    unit: str
    caption: str
    lines: list[Line]  # A line for each member
    # Positions and texts of the ticks
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


Points = Sequence[tuple[float, float]]


def ticks(low: float, high: float, count: int = 4, *, integer: bool = False) -> list[float]:
    """Return about `count` round numbers between two values; there may be no integer between them."""
    if not high > low:
        return [low] if not integer or low == round(low) else []
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    step = max(step, 1.0) if integer else step
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def thinned(points: Points) -> list[tuple[float, float]]:
    """Return at most 400 evenly spaced points; the first and the last stay."""
    if len(points) <= MAX_POINTS:
        return list(points)
    step = (len(points) - 1) / (MAX_POINTS - 1)
    return [points[round(step * index)] for index in range(MAX_POINTS)]


def chart(name: str, title: str, unit: str, series: Sequence[tuple[str, Points]], *, counted: bool = False) -> Chart:
    """Lay out a chart."""
    last = max(points[-1][0] for _, points in series)
    first = min(points[0][0] for _, points in series)
    late = [value for _, points in series for x, value in points if x >= first + EARLY * (last - first)]
    low, high = min(late), max(late)
    room = 0.06 * (high - low) or max(abs(high) * 0.01, 1e-9)
    low, high = low - room, high + room
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + wide * (x - first) / max(last - first, 1e-9), TOP + tall * (high - y) / (high - low)

    lines = []
    for member, points in series:
        positions = [place(*point) for point in thinned(points)]
        # The frame cuts the line off, so coordinates far outside it need not be exact.
        path = " ".join(
            f"{'L' if n else 'M'}{x:.1f},{min(max(y, -500.0), 900.0):.1f}" for n, (x, y) in enumerate(positions)
        )
        lines.append(Line(member, path, len(positions), points[-1][1]))
    marks = ticks(low, high, integer=counted)
    values = [round(value) if counted else value for _, points in series for _, value in points[-1:]]
    ends = f"{number(values[0])}" if len(values) == 1 else f"{number(min(values))} to {number(max(values))}"
    caption = f"{ends} after iteration {last:,.0f}"
    y_ticks = [(place(first, mark)[1], text) for mark, text in zip(marks, _tick_texts(marks), strict=True)]
    x_ticks = [(place(mark, low)[0], f"{mark:,.0f}") for mark in ticks(first, last, 5, integer=True)]
    return Chart(name, title, unit, caption, lines, x_ticks, y_ticks)


def _tick_texts(marks: Sequence[float]) -> list[str]:
    """Format ticks with just enough decimals to tell them apart; large ones in millions."""
    unit, name = (1e6, " M") if max(map(abs, marks), default=0.0) >= 1e6 else (1.0, "")
    digits = _digits([mark / unit for mark in marks])
    return [f"{mark / unit:,.{digits}f}{name}".replace("-", MINUS) for mark in marks]


def _digits(marks: Sequence[float]) -> int:
    """Return the number of decimals by which all ticks differ."""
    step = min((b - a for a, b in itertools.pairwise(marks)), default=abs(marks[0]) if marks else 1.0)
    return max(-math.floor(math.log10(step) + 1e-9), 0) if step > 0 else 0


Events = Sequence[Mapping[str, Any]]
Series = list[tuple[str, list[tuple[float, float]]]]

# Titles and units; all other figures are hyperparameters, shown under their own names.
TITLES = {
    "score": ("Held-out score", "nats a token"),
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
# Figures of how a fit proceeds rather than of its model: events have them, plots and reports do not show them.
PROCEDURE = ("power", "small_active_sets")
COUNTS = (*NUMBERS, "grown", "pruned", "merged")
MAX_CHARTS = 16


def events_of(run: str | os.PathLike[str]) -> list[tuple[str, Events]]:
    """Read name and events of each restart of a run, and of its consensus; those of a single fit have no name."""
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
    """Return the pairs of iteration and value of a figure, for each fit whose events have it."""
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


def names_of(figures: Mapping[str, float]) -> list[str]:
    """Return the names of the figures in order: score, change, objective, numbers of topics, hyperparameters."""
    counted = [name for name in NUMBERS if name in figures]
    return ["score", "change", "objective", *counted, *parameters_of(figures)]


def parameters_of(figures: Iterable[str]) -> list[str]:
    """Return the names of the hyperparameters among figures."""
    return [name for name in figures if name not in (*NUMBERS, *PROCEDURE)]


def title_of(name: str) -> tuple[str, str]:
    """Return a figure's title and unit."""
    return TITLES.get(name, (name.replace("_", " ").capitalize(), ""))


def charts_of(
    members: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], figures: Mapping[str, float]
) -> tuple[list[Chart], dict[str, float]]:
    """Lay out the charts of a run.

    Returns charts: Charts of the figures that changed; constant: Hyperparameters that did not change
    """
    charts, constant = [], {}
    for name in names_of(figures):
        series = series_of(members, name)
        values = {value for _, points in series for _, value in points}
        if len(values) > 1:
            charts.append(chart(name, *title_of(name), series, counted=name in COUNTS))
        elif name in figures:
            constant[name] = figures[name]
    return charts[:MAX_CHARTS], constant
