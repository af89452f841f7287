"""Draw confusion matrices as PNG or SVG, with matplotlib."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.labels.candidates import Tally, Value
from collapsium.pipeline.formatting import plain, shortened
from collapsium.pipeline.reporting.plots.style import drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Matrix = npt.NDArray[np.int64]

MAX_VALUES = 30  # Values with a row of their own; all others share one row
MAX_NUMBERED = 16  # Rows up to which cells show their counts
REST = "all others"
# Sizes of a cell, and of the frame around the matrix, in inches.
CELL, FRAME = 0.34, (2.6, 2.2)
LETTERS = 24


def draw_confusion(tally: Tally, title: str, kind: str) -> bytes:
    """Draw the documents with exactly one value by that value (rows) and the predicted value (columns)."""
    names, matrix = _names_and_counts(tally)
    return drawn(lambda: _figure(names, matrix, title), kind, {"font.size": 9})


def _names_and_counts(tally: Tally) -> tuple[list[str], Matrix]:
    """Return the rows' names and the matrix, with infrequent values merged."""
    classes = tally.classes()
    matrix = tally.matrix(classes)
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
    return [shortened(value if isinstance(value, str) else f"{value:g}", LETTERS) for value in classes], matrix


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
