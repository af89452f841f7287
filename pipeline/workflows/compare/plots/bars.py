"""Bars, points and matrices of a comparison on unseen documents: perplexities, classification, confusion matrices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.plots.style import COLOURS, MARKS, new_panels
from collapsium.pipeline.workflows.compare.grid import RANDOM
from collapsium.pipeline.workflows.compare.metrics.base import best_of_families
from collapsium.pipeline.workflows.compare.option_values import EVERY
from collapsium.pipeline.workflows.compare.plots.base import Plot, Results
from collapsium.pipeline.workflows.compare.tables import Row, label_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

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
        vary = results.options.vary
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
        known = sorted({one["value"] for row in drawn for one in row["classified"]["classes"]})
        across = min(len(drawn), MATRICES_ACROSS)
        down = -(-len(drawn) // across)
        size = (MATRIX_INCHES * across + 0.8, (MATRIX_INCHES + 0.3) * down + 0.5)
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(plain(f"{drawn[0]['classified']['field']}: known and predicted"), x=0.01, ha="left")
        axes = list(figure.subplots(down, across, squeeze=False).flat)
        images = [_matrix(one, row, known) for one, row in zip(axes, drawn, strict=False)]
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
    own = [positions[one["value"]] for one in row["classified"]["classes"]]
    matrix = np.zeros((len(known), len(known)), dtype=np.int64)
    matrix[np.ix_(own, own)] = row["classified"]["confusion"]
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
