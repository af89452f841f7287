"""Pictures of confusion matrices, where matplotlib is installed: PNG and SVG."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from collapsium.pipeline.analysis.labels.classification import Tally, Value
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.plots.style import SALT, saved

MOST = 30  # values that have a row; what is left is one more
NUMBERED = 16  # up to so many rows, cells have their numbers
REST = "all others"
CELL, FRAME = 0.34, (2.6, 2.2)  # inches
LETTERS = 24  # of a name


def draw_confusion(tally: Tally, title: str, kind: str) -> bytes:
    """Draw the documents of exactly one value by that value (rows) and the predicted one (columns).

    Parameters
    ----------
    tally : Tally
        What was counted.
    title : str
        What stands above.
    kind : str
        ``png`` or ``svg``.

    Returns
    -------
    bytes
        The picture. Of more than 30 values the most frequent are shown, and one more for all others.
    """
    from matplotlib import rc_context

    names, matrix = _shown(tally)
    style = {"font.size": 9, "svg.fonttype": "none"}
    with rc_context({**SALT, **style}):
        return saved(_figure(names, matrix, title), kind)


def _shown(tally: Tally) -> tuple[list[str], np.ndarray[Any, np.dtype[np.int64]]]:
    """Return the rows' names and the matrix; values beyond the most frequent are added up."""
    classes = tally.classes()
    matrix = tally.matrix(classes)
    if len(classes) > MOST:
        size: Counter[Value] = Counter(
            dict(zip(classes, (matrix.sum(axis=0) + matrix.sum(axis=1)).tolist(), strict=True))
        )
        large = {one for one, _ in size.most_common(MOST)}
        place = np.array([MOST] * len(classes))
        place[[number for number, one in enumerate(classes) if one in large]] = np.arange(MOST)
        folded = np.zeros((MOST + 1, MOST + 1), dtype=np.int64)
        np.add.at(folded, (place[:, np.newaxis], place[np.newaxis, :]), matrix)
        classes, matrix = [one for one in classes if one in large] + [REST], folded
    return [_name(one) for one in classes], matrix


def _name(value: Value) -> str:
    name = plain(value if isinstance(value, str) else f"{value:g}")
    return name if len(name) <= LETTERS else name[: LETTERS - 1] + "…"


def _figure(names: list[str], matrix: np.ndarray[Any, np.dtype[np.int64]], title: str) -> Any:
    from matplotlib.figure import Figure

    count = max(len(names), 4)
    figure = Figure(figsize=(FRAME[0] + CELL * count, FRAME[1] + CELL * count), layout="constrained")
    axes = figure.subplots()
    share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 2 else 0, parse_math=False)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_xlabel("predicted")
    axes.set_ylabel("known")
    axes.set_title(plain(title), loc="left", parse_math=False)
    axes.spines[:].set_visible(False)
    if len(names) <= NUMBERED:
        for row, column in zip(*np.nonzero(matrix), strict=True):
            ink = "white" if share[row, column] > 0.6 else "black"
            text = f"{matrix[row, column]:,}"
            axes.text(column, row, text, ha="center", va="center", color=ink, fontsize=7 if len(text) < 5 else 6)
    figure.colorbar(image, ax=axes, label="share of the row", shrink=0.8)
    return figure
