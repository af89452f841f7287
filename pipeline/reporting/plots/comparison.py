"""Plots of comparisons: scores by number of topics, figures that tell these numbers apart, and confusion matrices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.label_prediction import Tally, Value
from collapsium.pipeline.formatting import plain, shortened
from collapsium.pipeline.reporting.plots.style import COLOURS, MARKS, SALT, drawn, new_panels
from collapsium.workers.families.family import COMPUTED_STARTS, FILE_START, RANDOM_START

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Row = Mapping[str, Any]

LINES = ("-", "--", ":", "-.")  # Line styles of a family, by the start of its fits
# Starts without varied options, which labels of cells leave out
INITIALISATIONS = (RANDOM_START, FILE_START, *COMPUTED_STARTS)
# Panels of the picture: field, label, and the field of the standard error
PANELS = (
    ("score", "held-out score (nats per token)", "document_error"),
    ("npmi", "coherence (NPMI)", None),
    ("exclusivity", "exclusivity", None),
    ("dispersion", "dispersion of residuals", None),
    ("found_again", "topics found again", None),
)
TOPICS_SHOWN, WORDS_SHOWN, COLUMNS = (
    8,
    3,
    6,
)  # Topics and words of each number in the picture, and numbers of topics whose words are shown


def comparison_figure(rows: Sequence[Row], choice: int | None) -> Figure:
    """Return scores with their standard errors as a figure or, over topics, all figures by number of topics.

    Families that determine the number of topics are horizontal lines.
    """
    if choice is not None:
        return _topics_figure(rows, choice)
    from matplotlib import rc_context

    with rc_context({**SALT, "font.size": 10, "axes.grid": True, "grid.alpha": 0.3}):
        figure, (axes,) = new_panels(1, "Held-out score by number of topics")
        # A line for each family and start: its colour is the family's, its style the start's.
        cells: dict[str, list[Row]] = {}
        for row in rows:
            cells.setdefault(label_of(row, topics=False), []).append(row)
        families = list(dict.fromkeys(row["family"] for row in rows))
        for number, (label, points) in enumerate(cells.items()):
            family = points[0]["family"]
            starts = [start for start, cell_rows in cells.items() if cell_rows[0]["family"] == family]
            style: dict[str, Any] = {
                "color": COLOURS[families.index(family) % len(COLOURS)],
                "linestyle": LINES[starts.index(label) % len(LINES)],
                "linewidth": 1.6,
            }
            points.sort(key=lambda row: int(row["topics"] or 0))
            scores, errors = [row["score"] for row in points], [row["score_error"] or 0.0 for row in points]
            if points[0]["topics"] is None:
                axes.axhline(scores[0], label=f"{plain(label)} (own K)", **style)
                axes.axhspan(
                    scores[0] - errors[0], scores[0] + errors[0], color=style["color"], alpha=0.12, linewidth=0
                )
            else:
                style |= {"marker": MARKS[number % len(MARKS)], "markersize": 5, "capsize": 3}
                axes.errorbar([row["topics"] for row in points], scores, errors, label=plain(label), **style)
        counts = sorted({row["topics"] for row in rows if row["topics"] is not None})
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        if counts:
            room = max((counts[-1] - counts[0]) * 0.08, 1.0)
            axes.set_xlim(counts[0] - room, counts[-1] + room)
        axes.set_xlabel("number of topics K")
        axes.ticklabel_format(axis="y", useOffset=False, style="plain")
        axes.set_ylabel("held-out score (nats per token)")
        handles, labels = axes.get_legend_handles_labels()
        # Outside the panel, the legend covers no line.
        figure.legend(handles, labels, loc="outside right center", frameon=False)
    return figure


def label_of(row: Row, *, topics: bool = True) -> str:
    """Return the label of a cell: its family, K if `topics`, and the options in which its family's cells differ."""
    count = f", K = {row['topics']}" if topics and row["topics"] is not None else ""
    return str(row["family"]) + count + ("" if row["start"] in INITIALISATIONS else f", {row['start']}")


def _topics_figure(rows: Sequence[Row], choice: int) -> Figure:
    """Return the picture of a comparison of numbers of topics: figures by K, and the words of the largest topics."""
    from matplotlib.figure import Figure

    family = rows[0]["family"]
    shown = sorted((row for row in rows if row["family"] == family), key=lambda row: int(row["topics"]))
    panels = [panel for panel in PANELS if any(row.get(panel[0]) is not None for row in shown)]
    figure = Figure(figsize=(2.9 * len(panels), 5.6), layout="constrained")
    figure.suptitle(f"How many topics? Recommended: {choice}", x=0.01, ha="left")
    upper, lower = figure.subfigures(2, 1, height_ratios=(3, 2.4))
    for axes, (field, label, error) in zip(upper.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        counts = [row["topics"] for row in shown if row.get(field) is not None]
        values = [row[field] for row in shown if row.get(field) is not None]
        errors = None if error is None else [row[error] for row in shown if row.get(field) is not None]
        axes.axvline(choice, color=COLOURS[1], linewidth=1, alpha=0.7)
        axes.errorbar(counts, values, errors, color=COLOURS[0], marker="o", markersize=4, capsize=3, linewidth=1.4)
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        axes.minorticks_off()
        if field == "found_again":
            axes.set_ylim(0.0, 1.05)
        axes.set_xlabel("topics")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
        axes.ticklabel_format(axis="y", useOffset=False, style="plain")
        axes.set_title(label, loc="left", fontsize=10)
    chosen_rows = (
        shown
        if len(shown) <= COLUMNS
        else [shown[place] for place in np.linspace(0, len(shown) - 1, COLUMNS, dtype=int)]
    )
    for axes, row in zip(lower.subplots(1, len(chosen_rows), squeeze=False)[0], chosen_rows, strict=True):
        axes.axis("off")
        is_chosen = row["topics"] == choice
        axes.set_title(f"{row['topics']} topics", loc="left", fontsize=10, fontweight="bold" if is_chosen else "normal")
        lines = [plain(" ".join(words[:WORDS_SHOWN])) for words in row["words"][:TOPICS_SHOWN]]
        more = len(row["words"]) - TOPICS_SHOWN
        text = "\n".join([*lines, *([f"and {more} more"] if more > 0 else [])])
        axes.text(0, 1, text, va="top", fontsize=8, transform=axes.transAxes).set_in_layout(False)
    return figure


Matrix = npt.NDArray[np.int64]

MAX_VALUES = 30  # Largest number of values that each have a row; all others share one row
MAX_NUMBERED = 16  # Rows up to which cells show their counts
REST = "all others"
# Sizes of a cell, and of the frame around the matrix, in inches.
CELL, FRAME = 0.34, (2.6, 2.2)
LETTERS = 24


def draw_confusion(tally: Tally, title: str, kind: str) -> bytes:
    """Draw the documents with exactly one value by that value (rows) and the predicted value (columns)."""
    classes = tally.classes()
    matrix = tally.matrix(classes)
    # Infrequent values share a row.
    if len(classes) > MAX_VALUES:
        size: Counter[Value] = Counter(
            dict(zip(classes, (matrix.sum(axis=0) + matrix.sum(axis=1)).tolist(), strict=True))
        )
        large = {value for value, _ in size.most_common(MAX_VALUES)}
        row = np.array([MAX_VALUES] * len(classes))
        row[[number for number, value in enumerate(classes) if value in large]] = np.arange(MAX_VALUES)
        merged = np.zeros((MAX_VALUES + 1, MAX_VALUES + 1), dtype=np.int64)
        np.add.at(merged, (row[:, np.newaxis], row[np.newaxis, :]), matrix)
        classes, matrix = [value for value in classes if value in large] + [REST], merged
    names = [shortened(value if isinstance(value, str) else f"{value:g}", LETTERS) for value in classes]
    return drawn(lambda: _figure(names, matrix, title), kind, {"font.size": 9})


def _figure(names: list[str], matrix: Matrix, title: str) -> Figure:
    from matplotlib.figure import Figure

    count = max(len(names), 4)
    figure = Figure(figsize=(FRAME[0] + CELL * count, FRAME[1] + CELL * count), layout="constrained")
    axes = figure.subplots()
    share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 2 else 0, parse_math=False)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_xlabel("predicted value")
    axes.set_ylabel("actual value")
    axes.set_title(plain(title), loc="left", parse_math=False)
    axes.spines[:].set_visible(False)
    if len(names) <= MAX_NUMBERED:
        for row, column in zip(*np.nonzero(matrix), strict=True):
            ink = "white" if share[row, column] > 0.6 else "black"
            text = f"{matrix[row, column]:,}"
            axes.text(column, row, text, ha="center", va="center", color=ink, fontsize=7 if len(text) < 5 else 6)
    figure.colorbar(image, ax=axes, label="share of the documents with this actual value", shrink=0.8)
    return figure
