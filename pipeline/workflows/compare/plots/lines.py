"""Lines of scores, objectives and topics: by number of topics, by steps and seconds, and by iterations."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collapsium.pipeline.reporting.plots.style import (
    COLOURS,
    LATE,
    MARKS,
    integer_log_ticks,
    integer_ticks,
    new_panels,
    thousands,
)
from collapsium.pipeline.workflows.compare.grid import RANDOM
from collapsium.pipeline.workflows.compare.plots.base import Plot, Results
from collapsium.pipeline.workflows.compare.tables import Row, Rows, label_of
from collapsium.storage.data_types import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = ("-", "--", ":", "-.")  # Line styles of a family, by the start of its fits
SCORE = "held-out score (nats a token)"


class LinePlot(Plot):
    """A plot of a comparison by held-out tokens."""

    style: Mapping[str, object] = {"axes.grid": True, "grid.alpha": 0.3}


class ScoreByTopics(LinePlot):
    """The score against K with its standard error; families that determine K are horizontal lines."""

    name = "score-by-topics"

    def draw(self, results: Results) -> Figure | None:
        """Draw all cells in one panel."""
        if not results.rows:
            return None
        figure, (axes,) = new_panels(1, "Held-out score by number of topics")
        _draw_by_topics(axes, results.rows, _styles(results.rows), "score", SCORE)
        _legend(figure, [axes])
        return figure


class ObjectiveByTopics(LinePlot):
    """The objective against K, in a panel for each family with a number of topics."""

    name = "objective-by-topics"

    def draw(self, results: Results) -> Figure | None:
        """Draw a panel for each family, as objectives of different families are not comparable."""
        families = {row["family"] for row in results.rows if row["topics"] is not None}
        shown = [row for row in results.rows if row["objective"] is not None and row["family"] in families]
        if not shown:
            return None
        figure, panels = _family_panels(shown, "Objective by number of topics (each family has its own)")
        for axes, rows in panels:
            _draw_by_topics(axes, rows, _styles(results.rows), "objective", "objective (nats)")
            thousands(axes.yaxis)
        _legend(figure, [axes for axes, _ in panels])
        return figure


@dataclass(frozen=True)
class ScoreCourse(LinePlot):
    """The score against a running total, in a panel for each K; families that determine K are in all panels."""

    name: str  # Name of its files
    across: str  # Field of the series: ``steps`` or ``seconds``
    label: str  # Label of the axis

    def draw(self, results: Results) -> Figure | None:
        """Draw the mean over the restarts of each cell."""
        rows, across = results.rows, self.across
        counts: list[int | None] = sorted({row["topics"] for row in rows if row["topics"] is not None}) or [None]
        styles, limits = _styles(rows), _Limits()
        figure, panels = new_panels(len(counts), f"Held-out score by {across}")
        for axes, count in zip(panels, counts, strict=True):
            for row in rows:
                if row["topics"] not in (count, None):
                    continue
                x, y = _mean(results.series_of(row["cell"]), across, "score")
                if not y:
                    continue
                label = _label(row) + (" (finds K)" if row["topics"] is None else "")
                axes.plot(x, y, label=label, markevery=[len(x) - 1], **styles[_label(row)])
                limits.add(y)
            axes.set_xscale("log")
            axes.set_title("" if count is None else f"K = {count}")
            axes.set_xlabel(f"{self.label}, log scale")
        if not limits.lowest:
            return None
        for axes in panels:
            limits.set(axes, least_room=0.01)
            axes.ticklabel_format(axis="y", useOffset=False)
            if across == "steps":
                integer_log_ticks(axes)
        panels[0].set_ylabel(SCORE)
        _legend(figure, panels)
        return figure


class ObjectiveByIterations(LinePlot):
    """The objective against iterations, in a panel for each family."""

    name = "objective-by-iterations"

    def draw(self, results: Results) -> Figure | None:
        """Draw a panel for each family, as objectives of different families are not comparable."""
        shown = [row for row in results.rows if row["objective"] is not None]
        if not shown:
            return None
        figure, panels = _family_panels(shown, "Objective by iterations (each family has its own)")
        for axes, rows in panels:
            limits = _draw_each(axes, rows, results, "objective", "objective (nats)")
            if limits.lowest:
                limits.set(axes, least_room=1.0)
            thousands(axes.yaxis)
        return figure


class TopicsByIterations(LinePlot):
    """The number of topics with 99% of the tokens against iterations, for families that report it."""

    name = "topics-by-iterations"

    def draw(self, results: Results) -> Figure | None:
        """Draw a panel for each family."""
        reporting = {row["cell"] for row in results.series if row["topics_99"] is not None}
        shown = [row for row in results.rows if row["cell"] in reporting]
        if not shown:
            return None
        figure, panels = _family_panels(shown, "Topics that hold 99% of the tokens, by iterations")
        for axes, rows in panels:
            _draw_each(axes, rows, results, "topics_99", "topics")
            axes.set_ylim(0, 1.05 * max(axes.get_ylim()[1], 1.0))
            integer_ticks(axes.yaxis)
        return figure


class _Limits:
    """Limits of an axis without the first iterations, whose low values would compress all others."""

    def __init__(self) -> None:
        self.lowest: list[float] = []
        self.highest: list[float] = []

    def add(self, values: Sequence[float]) -> None:
        """Include the values of a line, without its first iterations."""
        self.lowest.append(values[int(len(values) * LATE)])
        self.highest.append(max(values))

    def set(self, axes: Axes, least_room: float) -> None:
        """Set the limits of the vertical axis."""
        low, high = min(self.lowest), max(self.highest)
        room = 0.05 * (high - low) or least_room
        axes.set_ylim(low - room, high + room)


def _family_panels(rows: Rows, title: str) -> tuple[Figure, list[tuple[Axes, list[Row]]]]:
    """Return a figure, and each family's panel with its rows."""
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row["family"], []).append(row)
    figure, panels = new_panels(len(families), title)
    for axes, family in zip(panels, families, strict=True):
        axes.set_title(family)
    return figure, list(zip(panels, families.values(), strict=True))


def _label(row: Row) -> str:
    return label_of(row, topics=False)


def _styles(rows: Rows) -> dict[str, JsonObject]:
    """Return the style of each label: the colour is the family's, the line style the start's."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    styles: dict[str, JsonObject] = {}
    starts_seen: dict[str, int] = {}
    for row in rows:
        label, family = _label(row), row["family"]
        if label in styles:
            continue
        number = starts_seen.get(family, 0)
        starts_seen[family] = number + 1
        styles[label] = {
            "color": COLOURS[families.index(family) % len(COLOURS)],
            "linestyle": LINES[number % len(LINES)],
            "marker": MARKS[len(styles) % len(MARKS)],
            "markersize": 5,
            "linewidth": 1.6,
        }
    return styles


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Draw a legend outside the panels, so that it covers no line."""
    named = {label: line for one in axes for line, label in zip(*one.get_legend_handles_labels(), strict=True)}
    figure.legend(list(named.values()), list(named), loc="outside right center", frameon=False)


def _draw_by_topics(axes: Axes, rows: Rows, styles: Mapping[str, JsonObject], name: str, axis_label: str) -> None:
    counts = sorted({row["topics"] for row in rows if row["topics"] is not None})
    for label in dict.fromkeys(_label(row) for row in rows):
        own, style = [row for row in rows if _label(row) == label], styles[label]
        if own[0]["topics"] is None:
            value, error = own[0][name], own[0][f"{name}_error"] or 0.0
            plain = {key: style[key] for key in ("color", "linestyle", "linewidth")}
            axes.axhline(value, label=f"{label} (finds K)", **plain)
            axes.axhspan(value - error, value + error, color=style["color"], alpha=0.12, linewidth=0)
            continue
        own = sorted(own, key=lambda row: int(row["topics"]))
        errors = [row[f"{name}_error"] or 0.0 for row in own]
        axes.errorbar(
            [row["topics"] for row in own], [row[name] for row in own], errors, label=label, capsize=3, **style
        )
    axes.set_xticks([])
    if counts:
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        room = max((counts[-1] - counts[0]) * 0.08, 1.0)
        axes.set_xlim(counts[0] - room, counts[-1] + room)
    axes.set_xlabel("number of topics K")
    axes.set_ylabel(axis_label)
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")


def _mean(series: Rows, across: str, name: str) -> tuple[list[float], list[float]]:
    """Return the means over the restarts of two quantities, by iteration; iterations without values are left out."""
    by_iteration: dict[int, list[tuple[float, float]]] = {}
    for row in series:
        if row[across] is not None and row[name] is not None:
            by_iteration.setdefault(row["iteration"], []).append((row[across], row[name]))
    points = [by_iteration[iteration] for iteration in sorted(by_iteration)]
    means = [(statistics.fmean(x for x, _ in each), statistics.fmean(y for _, y in each)) for each in points]
    return [x for x, _ in means], [y for _, y in means]


def _draw_each(axes: Axes, rows: Rows, results: Results, name: str, axis_label: str) -> _Limits:
    """Draw a line for each cell of a family, labelled by K or its start, and return the limits of the lines."""
    limits = _Limits()
    sizes = list(dict.fromkeys(row["topics"] for row in rows))
    starts = list(dict.fromkeys(row["start"] for row in rows))
    for row in rows:
        x, y = _mean(results.series_of(row["cell"]), "iteration", name)
        if not y:
            continue
        start = "" if row["start"] == RANDOM else row["start"]
        label = ", ".join(part for part in ("" if row["topics"] is None else f"K = {row['topics']}", start) if part)
        # The colour is that of K, and the line style that of the start, so that coinciding lines are both visible.
        size, style_number = sizes.index(row["topics"]), starts.index(row["start"])
        style = {"color": COLOURS[(size if len(sizes) > 1 else style_number) % len(COLOURS)]}
        style["linestyle"] = LINES[(style_number + size // len(COLOURS)) % len(LINES)]
        axes.plot(x, y, label=label or row["family"], linewidth=1.6, **style)
        limits.add(y)
    integer_ticks(axes.xaxis)
    axes.set_xlabel("iteration")
    axes.set_ylabel(axis_label)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), frameon=False, ncols=2, fontsize=9)
    return limits
