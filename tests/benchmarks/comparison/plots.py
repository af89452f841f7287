"""Plots of a comparison in addition to `collapsium compare`: after Teh, Kurihara and Welling (2007), and of predicted
classes."""

from __future__ import annotations

import json
import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.plots.style import (
    COLOURS,
    LATE,
    MARKS,
    SALT,
    integer_ticks,
    new_panels,
    saved,
    thousands,
)
from collapsium.pipeline.workflows.compare import Row, work_seconds
from collapsium.pipeline.workflows.compare_options import EVERY, RANDOM
from collapsium.storage.data_types import JsonObject
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.comparison import RUNS
from collapsium.storage.runs.members import restarts_in
from collapsium.storage.runs.run import Run
from tests.benchmarks.comparison.tables import label_of

Rows = Sequence[Row]

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


@dataclass(frozen=True)
class Results:
    """The results of a comparison."""

    record: JsonObject  # The comparison's record, with its options
    # Rows of the cells, and of other libraries and classifiers
    rows: Rows
    baselines: Rows
    series: Rows  # Iterations of the fits, by `series_of`

    @property
    def classified(self) -> list[Row]:
        """The rows of families and classifiers that predict the field."""
        return [row for row in (*self.rows, *self.baselines) if row.get("classified")]

    def series_of(self, cell: str) -> list[Row]:
        """Return the iterations of a cell's fits."""
        return [row for row in self.series if row["cell"] == cell]


def series_of(row: Row, out: Path) -> list[Row]:
    """Return a row for each iteration of a cell's fits; ``steps`` are numbers of topics, summed over the iterations."""
    lines = []
    for restart, run in restarts_in(Run(str(out / RUNS / row["cell"]))):
        steps = seconds = 0.0
        for event in run.events():
            if event["event"] == "iteration":
                steps += row["topics"] if row["topics"] is not None else event.get("topics", math.nan)
                seconds += work_seconds(event)
                line = {"restart": restart, "steps": None if math.isnan(steps) else steps, "seconds": seconds}
                line |= {name: event.get(name) for name in ("iteration", "score", "objective", "topics_99")}
                lines.append({**{name: row[name] for name in ("cell", "family", "start", "topics")}, **line})
    return lines


def best_of_families(rows: Rows) -> dict[str, Row]:
    """Return the row of each family whose perplexity is lowest."""
    best: dict[str, Row] = {}
    for row in rows:
        if row["family"] not in best or row["perplexity"] < best[row["family"]]["perplexity"]:
            best[row["family"]] = row
    return best


class Plot(ABC):
    """A picture of a comparison's results."""

    name: str  # Name of its files, without their endings
    style: Mapping[str, object] = {}  # Matplotlib's settings under which it is drawn

    @abstractmethod
    def draw(self, results: Results) -> Figure | None:
        """Return a figure; None if there is nothing to show."""


LINES = ("-", "--", ":", "-.")  # Line styles of a family, by the start of its fits
SCORE = "held-out score (nats per token)"


class LinePlot(Plot):
    """A plot of a comparison by held-out tokens."""

    style: Mapping[str, object] = {"axes.grid": True, "grid.alpha": 0.3}


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
                from matplotlib.ticker import LogLocator, NullLocator

                # Ticks are on integers only.
                low, high = axes.get_xlim()
                axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high >= 100 * low else (1.0, 2.0, 5.0)))
                axes.xaxis.set_minor_locator(NullLocator())
                thousands(axes.xaxis)
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
    named = {label: line for panel in axes for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(list(named.values()), list(named), loc="outside right center", frameon=False)


def _draw_by_topics(axes: Axes, rows: Rows, styles: Mapping[str, JsonObject], name: str, axis_label: str) -> None:
    counts = sorted({row["topics"] for row in rows if row["topics"] is not None})
    for label in dict.fromkeys(_label(row) for row in rows):
        points, style = [row for row in rows if _label(row) == label], styles[label]
        if points[0]["topics"] is None:
            value, error = points[0][name], points[0][f"{name}_error"] or 0.0
            plain = {key: style[key] for key in ("color", "linestyle", "linewidth")}
            axes.axhline(value, label=f"{label} (finds K)", **plain)
            axes.axhspan(value - error, value + error, color=style["color"], alpha=0.12, linewidth=0)
            continue
        points = sorted(points, key=lambda row: int(row["topics"]))
        errors = [row[f"{name}_error"] or 0.0 for row in points]
        axes.errorbar(
            [row["topics"] for row in points], [row[name] for row in points], errors, label=label, capsize=3, **style
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
    means = [
        (statistics.fmean(x for x, _ in place_points), statistics.fmean(y for _, y in place_points))
        for place_points in points
    ]
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
        # The colour shows K, and the line style the start, so that coinciding lines are both visible.
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


PERPLEXITY = "perplexity of unseen documents given labels"
BAR_INCHES, WIDTH_INCHES = 0.3, 7.5
MAX_CLASSES = 30  # Largest number of classes of a confusion matrix
NUMBERED_CLASSES = 12  # Largest number of classes for which the cells of a confusion matrix show numbers
MATRIX_INCHES, MATRICES_ACROSS, MAX_MATRICES = 3.2, 4, 16


class PerplexityByCell(Plot):
    """The perplexity of each cell with the standard error over its restarts, the best at the top."""

    name = "perplexity"

    def draw(self, results: Results) -> Figure | None:
        """Draw the perplexities."""
        if not results.rows:
            return None
        rows = sorted(results.rows, key=lambda row: -float(row["perplexity"]))
        families = list(dict.fromkeys(row["family"] for row in results.rows))
        label = f"{PERPLEXITY} (lower is better)"
        figure, axes = _bars(len(rows), "Unseen documents given their labels", label)
        for height, row in enumerate(rows):
            error = (row["score_error"] or 0.0) * row["perplexity"]
            axes.errorbar(
                [row["perplexity"]], [height], xerr=[error], capsize=3, **_style(families.index(row["family"]))
            )
            axes.annotate(f"{row['perplexity']:.1f}", (row["perplexity"], height), (8, -3), textcoords="offset points")
        axes.margins(x=0.15)
        axes.set_yticks(range(len(rows)), [plain(label_of(row)) for row in rows], parse_math=False)
        return figure


class PerplexityByOption(Plot):
    """Perplexity against the first varied option, if it is a number; other families are horizontal lines."""

    name = "perplexity-by-option"

    def draw(self, results: Results) -> Figure | None:
        """Draw a line for cells that differ only in the option."""
        vary = results.record.get("vary", {})
        every = vary.get(EVERY, {})
        name = next((option for options in (every, *vary.values()) for option in options), None)
        lines: dict[str, list[tuple[float, float]]] = {}
        level = []
        for row in results.rows:
            value = json.loads(row["options"]).get(name)
            if name not in {**every, **vary.get(row["family"], {})} or value is None:
                level.append(row)
            elif isinstance(value, (int, float)):
                lines.setdefault(_line_label(row, str(name)), []).append((float(value), row["perplexity"]))
        if not lines:
            return None
        figure, (axes,) = new_panels(1, f"Unseen documents given their labels, by {name}")
        for number, (label, points) in enumerate(lines.items()):
            axes.plot(*zip(*sorted(points), strict=True), label=label, markersize=5, **_style(number))
        for number, row in enumerate(best_of_families(level).values()):
            colour = COLOURS[-1 - number % len(COLOURS)]
            axes.axhline(row["perplexity"], label=label_of(row), color=colour, linestyle=":")
        axes.set_xlabel(name)
        axes.set_ylabel(PERPLEXITY)
        axes.grid(visible=True, alpha=0.3)
        figure.legend(loc="outside right center", frameon=False)
        return figure


class ClassificationBars(Plot):
    """Accuracy and macro F1 of families and classifiers, the best macro F1 at the top."""

    name = "classification"

    def draw(self, results: Results) -> Figure | None:
        """Draw two bars for each family or classifier."""
        able = [row for row in results.classified if row["macro_f1"] is not None]
        able.sort(key=lambda row: float(row["macro_f1"]))
        if not able:
            return None
        figure, axes = _bars(len(able), f"Prediction of {plain(able[0]['classified']['field'])}", "share")
        for number, (name, label) in enumerate((("macro_f1", "macro F1"), ("accuracy", "accuracy"))):
            values, heights = [row[name] for row in able], np.arange(len(able)) + 0.2 - 0.4 * number
            axes.barh(heights, values, 0.38, label=label, color=COLOURS[number])
            for height, value in zip(heights.tolist(), values, strict=True):
                axes.annotate(f"{value:.3f}", (value, height), (3, -3), textcoords="offset points", fontsize=8)
        axes.set_yticks(range(len(able)), [plain(label_of(row)) for row in able], parse_math=False)
        axes.margins(x=0.1)
        figure.legend(loc="outside lower center", frameon=False, ncols=2)
        return figure


class ConfusionMatrices(Plot):
    """A confusion matrix for each model, normalised by predicted value."""

    name = "confusion"

    def draw(self, results: Results) -> Figure | None:
        """Draw the matrices of the last models, unless there are too many classes."""
        from matplotlib.figure import Figure

        drawn = [row for row in results.classified if 0 < len(row["classified"]["classes"]) <= MAX_CLASSES]
        drawn = drawn[-MAX_MATRICES:]
        if not drawn:
            return None
        known = sorted({value["value"] for row in drawn for value in row["classified"]["classes"]})
        across = min(len(drawn), MATRICES_ACROSS)
        down = -(-len(drawn) // across)
        size = (MATRIX_INCHES * across + 0.8, (MATRIX_INCHES + 0.3) * down + 0.5)
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(plain(f"{drawn[0]['classified']['field']}: known and predicted"), x=0.01, ha="left")
        axes = list(figure.subplots(down, across, squeeze=False).flat)
        images = [_matrix(panel, row, known) for panel, row in zip(axes, drawn, strict=False)]
        for extra in axes[len(drawn) :]:
            extra.set_visible(False)
        figure.colorbar(images[-1], ax=axes, label="share of the column", shrink=0.8 / down)
        return figure


def _style(number: int) -> dict[str, str]:
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKS[number % len(MARKS)]}


def _line_label(row: Row, name: str) -> str:
    """Return the label of cells that differ only in one option."""
    start = ", ".join(part for part in row["start"].split(", ") if not part.startswith(f"{name} = "))
    return label_of({**row, "start": start or RANDOM})


def _bars(count: int, title: str, axis_label: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, 1.2 + BAR_INCHES * max(count, 3)), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(axis_label)
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    return figure, axes


def _matrix(axes: Axes, row: Row, known: Sequence[str | float]) -> AxesImage:
    positions = {value: number for number, value in enumerate(known)}
    class_positions = [positions[value["value"]] for value in row["classified"]["classes"]]
    matrix = np.zeros((len(known), len(known)), dtype=np.int64)
    matrix[np.ix_(class_positions, class_positions)] = row["classified"]["confusion"]
    share = matrix / np.maximum(matrix.sum(axis=0, keepdims=True), 1)
    image = axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0)
    names = [plain(value if isinstance(value, str) else f"{value:g}")[:16] for value in known]
    axes.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 2 else 0, parse_math=False)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.tick_params(labelsize=9 if len(names) <= NUMBERED_CLASSES else 6)
    axes.set_title(plain(label_of(row)), fontsize=9, parse_math=False, wrap=True)
    axes.set_xlabel("predicted", fontsize=9)
    axes.set_ylabel("known", fontsize=9)
    if len(names) <= NUMBERED_CLASSES:
        for y, x in zip(*np.nonzero(matrix), strict=True):
            ink = "white" if share[y, x] > 0.6 else "black"
            axes.text(x, y, f"{matrix[y, x]:,}", ha="center", va="center", color=ink, fontsize=7)
    return image


def plots_for(record: JsonObject) -> tuple[Plot, ...]:
    """Return the plots of a comparison, in order of drawing."""
    if record["unseen"] is None:
        return (
            ScoreCourse("score-by-steps", "steps", "steps (iterations × topics)"),
            ScoreCourse("score-by-seconds", "seconds", "seconds of work"),
            ObjectiveByTopics(),
            ObjectiveByIterations(),
            TopicsByIterations(),
        )
    return PerplexityByCell(), PerplexityByOption(), ClassificationBars(), ConfusionMatrices()


def draw_plots(results: Results, folder: Folder) -> list[str]:
    """Draw the plots that have data, and return their names."""
    from matplotlib import rc_context

    drawn = []
    for plot in plots_for(results.record):
        with rc_context({**SALT, "font.size": 10, **plot.style}):
            figure = plot.draw(results)
            if figure is None:
                continue
            for kind in ("png", "svg"):
                folder.write(f"{plot.name}.{kind}", saved(figure, kind))
        drawn.append(plot.name)
    return drawn
