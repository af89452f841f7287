"""Plots of a comparison on unseen documents, where matplotlib is installed: PNG and SVG."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.plots.style import COLOURS, MARKS, new_panels
from collapsium.pipeline.workflows.compare.cells import RANDOM
from collapsium.pipeline.workflows.compare.options import EVERY
from collapsium.pipeline.workflows.compare.plots import Picture, Rows, draw_pictures
from collapsium.pipeline.workflows.compare.tables import Row
from collapsium.pipeline.workflows.compare.unseen.metrics import best_of, name_of
from collapsium.storage.io.folder import Folder

PERPLEXITY = "perplexity of unseen documents given labels"
BAR, WIDE = 0.3, 7.5  # inches
CLASSES, NUMBERED = 30, 12  # of a confusion matrix that is drawn, and up to which its cells have numbers
PANEL, ACROSS, MATRICES = 3.2, 4, 16  # inches, panels side by side, and most of them


def draw_unseen(rows: Rows, others: Rows, vary: Mapping[str, Mapping[str, Any]], folder: Folder) -> list[str] | None:
    """Draw what a comparison on unseen documents has to show.

    Parameters
    ----------
    rows, others : sequence of mapping
        As `collapsium.pipeline.workflows.compare.unseen.metrics` has them: of families' cells, and of classifiers.
    vary : mapping
        The options that vary.
    folder : Folder
        Where the pictures go.

    Returns
    -------
    list of str or None
        Their names without endings; None where matplotlib is not installed.
    """
    able = [row for row in (*rows, *others) if row["classified"]]
    pictures: dict[str, Picture] = {
        "perplexity": lambda: _perplexities(rows),
        "perplexity-by-option": lambda: _by_option(rows, vary),
        "classification": lambda: _classification(able),
        "confusion": lambda: _confusions(able),
    }
    return draw_pictures(pictures, folder, {})


def _bars(count: int, title: str, what: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDE, 1.2 + BAR * max(count, 3)), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(what)
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    return figure, axes


def _perplexities(rows: Rows) -> Any:
    """Draw a point a cell, with the standard error over its restarts; the best at the top."""
    if not rows:
        return None
    own = sorted(rows, key=lambda row: -float(row["perplexity"]))
    families = list(dict.fromkeys(row["family"] for row in rows))
    figure, axes = _bars(len(own), "Unseen documents given their labels", f"{PERPLEXITY} (lower is better)")
    for place, row in enumerate(own):
        error = (row["score_error"] or 0.0) * row["perplexity"]
        number = families.index(row["family"])
        style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKS[number % len(MARKS)]}
        axes.errorbar([row["perplexity"]], [place], xerr=[error], capsize=3, **style)
        axes.annotate(f"{row['perplexity']:.1f}", (row["perplexity"], place), (8, -3), textcoords="offset points")
    axes.margins(x=0.15)
    axes.set_yticks(range(len(own)), [plain(name_of(row)) for row in own], parse_math=False)
    return figure


def _by_option(rows: Rows, vary: Mapping[str, Mapping[str, Any]]) -> Any:
    """Draw perplexity against the first option that varies, if it is a number; of other families the best is level."""
    name = next((option for options in (vary.get(EVERY, {}), *vary.values()) for option in options), None)
    lines: dict[str, list[tuple[float, float]]] = {}
    level = []
    for row in rows:
        value = json.loads(row["options"]).get(name)
        if name not in {**vary.get(EVERY, {}), **vary.get(row["family"], {})} or value is None:
            level.append(row)
        elif isinstance(value, (int, float)):
            lines.setdefault(_line_of(row, str(name)), []).append((float(value), row["perplexity"]))
    if not lines:
        return None
    figure, (axes,) = new_panels(1, f"Unseen documents given their labels, by {name}")
    for number, (label, points) in enumerate(lines.items()):
        style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKS[number % len(MARKS)], "markersize": 5}
        axes.plot(*zip(*sorted(points), strict=True), label=label, **style)
    for number, row in enumerate(best_of(level).values()):
        axes.axhline(row["perplexity"], label=name_of(row), color=COLOURS[-1 - number % len(COLOURS)], linestyle=":")
    axes.set_xlabel(name)
    axes.set_ylabel(PERPLEXITY)
    axes.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside right center", frameon=False)
    return figure


def _line_of(row: Row, name: str) -> str:
    """Return how the cells are called that differ by one option alone."""
    told = ", ".join(part for part in row["start"].split(", ") if not part.startswith(f"{name} = "))
    return name_of({**row, "start": told or RANDOM})


def _classification(rows: Rows) -> Any:
    """Draw accuracy and macro F1 of each, the best macro F1 at the top."""
    able = sorted((row for row in rows if row["macro_f1"] is not None), key=lambda row: float(row["macro_f1"]))
    if not able:
        return None
    figure, axes = _bars(len(able), f"Prediction of {plain(able[0]['classified']['field'])}", "share")
    for number, (name, label) in enumerate((("macro_f1", "macro F1"), ("accuracy", "accuracy"))):
        values, places = [row[name] for row in able], np.arange(len(able)) + 0.2 - 0.4 * number
        axes.barh(places, values, 0.38, label=label, color=COLOURS[number])
        for place, value in zip(places.tolist(), values, strict=True):
            axes.annotate(f"{value:.3f}", (value, place), (3, -3), textcoords="offset points", fontsize=8)
    axes.set_yticks(range(len(able)), [plain(name_of(row)) for row in able], parse_math=False)
    axes.margins(x=0.1)
    figure.legend(loc="outside lower center", frameon=False, ncols=2)
    return figure


def _confusions(rows: Rows) -> Any:
    """Draw a matrix a model: documents by the value that they have and the predicted one, columns summing to one."""
    from matplotlib.figure import Figure

    drawn = [row for row in rows if 0 < len(row["classified"]["classes"]) <= CLASSES][-MATRICES:]
    if not drawn:
        return None
    known = sorted({one["value"] for row in drawn for one in row["classified"]["classes"]})
    across = min(len(drawn), ACROSS)
    down = -(-len(drawn) // across)
    size = (PANEL * across + 0.8, (PANEL + 0.3) * down + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(plain(f"{drawn[0]['classified']['field']}: known and predicted"), x=0.01, ha="left")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    image = None
    for one, row in zip(axes, drawn, strict=False):
        image = _matrix(one, row, known)
    for extra in axes[len(drawn) :]:
        extra.set_visible(False)
    figure.colorbar(image, ax=axes, label="share of the column", shrink=0.8 / down)
    return figure


def _matrix(axes: Any, row: Row, known: Sequence[Any]) -> Any:
    place = {value: number for number, value in enumerate(known)}
    own = [place[one["value"]] for one in row["classified"]["classes"]]
    matrix = np.zeros((len(known), len(known)), dtype=np.int64)
    matrix[np.ix_(own, own)] = row["classified"]["confusion"]
    share = matrix / np.maximum(matrix.sum(axis=0, keepdims=True), 1)
    image = axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0)
    names = [plain(value if isinstance(value, str) else f"{value:g}")[:16] for value in known]
    axes.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 2 else 0, parse_math=False)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.tick_params(labelsize=9 if len(names) <= NUMBERED else 6)
    axes.set_title(plain(name_of(row)), fontsize=9, parse_math=False, wrap=True)
    axes.set_xlabel("predicted", fontsize=9)
    axes.set_ylabel("known", fontsize=9)
    if len(names) <= NUMBERED:
        for y, x in zip(*np.nonzero(matrix), strict=True):
            ink = "white" if share[y, x] > 0.6 else "black"
            axes.text(x, y, f"{matrix[y, x]:,}", ha="center", va="center", color=ink, fontsize=7)
    return image
