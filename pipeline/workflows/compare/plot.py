"""The plot of a comparison: scores against the number of topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.plots.style import COLOURS, MARKS, SALT, can_draw, new_panels, saved
from collapsium.pipeline.workflows.compare.rows import Row, label_of
from collapsium.storage.io.folder import Folder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "score-by-topics"
LINES = ("-", "--", ":", "-.")  # Line styles of a family, by the start of its fits


def draw_plot(rows: Sequence[Row], folder: Folder, *, given_labels: bool) -> tuple[str, ...] | None:
    """Draw scores with their standard errors as PNG and SVG, and return the name; None without matplotlib.

    Families that determine the number of topics are horizontal lines.
    """
    if not can_draw():
        return None
    from matplotlib import rc_context

    with rc_context({**SALT, "font.size": 10, "axes.grid": True, "grid.alpha": 0.3}):
        kind = "score given labels" if given_labels else "held-out score"
        figure, (axes,) = new_panels(1, f"{kind.capitalize()} by number of topics")
        _draw(axes, rows)
        axes.set_ylabel(f"{kind} (nats per token)")
        handles, labels = axes.get_legend_handles_labels()
        # Outside the panel, the legend covers no line.
        figure.legend(handles, labels, loc="outside right center", frameon=False)
        for suffix in ("png", "svg"):
            folder.write(f"{NAME}.{suffix}", saved(figure, suffix))
    return (NAME,)


def _draw(axes: Axes, rows: Sequence[Row]) -> None:
    labels = list(dict.fromkeys(label_of(row, topics=False) for row in rows))
    counts = sorted({row["topics"] for row in rows if row["topics"] is not None})
    styles = _styles(rows)
    for label in labels:
        cells = [row for row in rows if label_of(row, topics=False) == label]
        style, shown = styles[label], plain(label)
        errors = [row["score_error"] or 0.0 for row in cells]
        if cells[0]["topics"] is None:
            score = cells[0]["score"]
            line = {name: value for name, value in style.items() if not name.startswith("marker")}
            axes.axhline(score, label=f"{shown} (own K)", **line)
            axes.axhspan(score - errors[0], score + errors[0], color=style["color"], alpha=0.12, linewidth=0)
            continue
        cells.sort(key=lambda row: int(row["topics"]))
        errors = [row["score_error"] or 0.0 for row in cells]
        topics, scores = [row["topics"] for row in cells], [row["score"] for row in cells]
        axes.errorbar(topics, scores, errors, label=shown, capsize=3, **style)
    axes.set_xticks([])
    if counts:
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        room = max((counts[-1] - counts[0]) * 0.08, 1.0)
        axes.set_xlim(counts[0] - room, counts[-1] + room)
    axes.set_xlabel("number of topics K")
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")


def _styles(rows: Sequence[Row]) -> Mapping[str, dict[str, Any]]:
    """Return the style of each label: the colour is the family's, the line style the start's."""
    families: dict[str, list[str]] = {}
    for row in rows:
        starts = families.setdefault(row["family"], [])
        if label_of(row, topics=False) not in starts:
            starts.append(label_of(row, topics=False))
    styles: dict[str, dict[str, Any]] = {}
    for number, labels in enumerate(families.values()):
        for start, label in enumerate(labels):
            styles[label] = {
                "color": COLOURS[number % len(COLOURS)],
                "linestyle": LINES[start % len(LINES)],
                "marker": MARKS[len(styles) % len(MARKS)],
                "markersize": 5,
                "linewidth": 1.6,
            }
    return styles
