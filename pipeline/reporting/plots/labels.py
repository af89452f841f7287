"""Draw the map of labels and topics as PNG or SVG, with matplotlib."""

from __future__ import annotations

from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.label_map import LabelMap
from collapsium.pipeline.reporting.plots.style import ALIGNMENT, COLOURS, SALT, saved

# Height of the title above the map, and minimum width of the picture, in points.
HEAD, MIN_WIDTH = 44.0, 360.0


def draw(label_map: LabelMap, title: str, kind: str) -> bytes:
    """Draw a map of labels and topics."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**SALT, "svg.fonttype": "none"}):
        # A unit of the map is a point, so that texts have the sizes for which they were placed.
        width = max(label_map.width, MIN_WIDTH)
        figure = Figure(figsize=(width / 72, (label_map.height + HEAD) / 72))
        axes = figure.add_axes((0.0, 0.0, 1.0, label_map.height / (label_map.height + HEAD)))
        axes.set(xlim=((label_map.width - width) / 2, (label_map.width + width) / 2), ylim=(label_map.height, 0))
        axes.set_axis_off()
        for mark in label_map.marks:
            colour, alpha, shape = (COLOURS[1], 0.9, "s") if mark.topic is None else (COLOURS[0], 0.35, "o")
            if mark.text is not None and mark.text.has_leader:
                middle = min(max(mark.x, mark.text.left), mark.text.left + mark.text.width)
                axes.plot([mark.x, middle], [mark.y, mark.text.middle], color=colour, linewidth=0.5, alpha=0.5)
            axes.scatter([mark.x], [mark.y], (2 * mark.radius) ** 2, color=colour, alpha=alpha, marker=shape)
        for mark in label_map.marks:
            if mark.text is None:
                continue
            weight, ink = ("bold", "#7a3500") if mark.topic is None else ("normal", "#16384f")
            style = {"fontsize": mark.text.size, "fontweight": weight, "color": ink, "parse_math": False}
            axes.text(
                mark.text.anchor_x, mark.text.middle, mark.name, ha=ALIGNMENT[mark.text.anchor], va="center", **style
            )
        top = label_map.height + HEAD
        figure.text(8 / width, 1 - 6 / top, plain(title), va="top", fontsize=13, parse_math=False)
        legend = "squares: labels; circles: topics, sized by share"
        figure.text(8 / width, 1 - 26 / top, legend, va="top", fontsize=10)
        return saved(figure, kind)
