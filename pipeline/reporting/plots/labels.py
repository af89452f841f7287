"""Pictures of the map of labels and topics, where matplotlib is installed."""

from __future__ import annotations

from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.label_map import HEAD, LEAST_WIDTH, LabelMap


def draw(found: LabelMap, title: str, kind: str) -> bytes:
    """Draw a map; needs matplotlib.

    Parameters
    ----------
    found : LabelMap
        The map.
    title : str
        What stands above.
    kind : str
        ``png`` or ``svg``.

    Returns
    -------
    bytes
        The picture.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from collapsium.pipeline.reporting.plots.style import COLOURS, SALT, saved

    with rc_context({**SALT, "svg.fonttype": "none"}):
        # One unit of the plane is one point, so that letters are as large as they were taken to be.
        width = max(found.width, LEAST_WIDTH)
        figure = Figure(figsize=(width / 72, (found.height + HEAD) / 72))
        axes = figure.add_axes((0.0, 0.0, 1.0, found.height / (found.height + HEAD)))
        axes.set(xlim=((found.width - width) / 2, (found.width + width) / 2), ylim=(found.height, 0))
        axes.set_axis_off()
        for one in found.marks:
            colour = COLOURS[1] if one.topic is None else COLOURS[0]
            if one.text is not None and one.text.joined:
                middle = min(max(one.x, one.text.left), one.text.left + one.text.width)
                axes.plot([one.x, middle], [one.y, one.text.middle], color=colour, linewidth=0.5, alpha=0.5)
            area = (2 * one.radius) ** 2
            marker = "s" if one.topic is None else "o"
            axes.scatter([one.x], [one.y], area, color=colour, alpha=0.9 if one.topic is None else 0.35, marker=marker)
        for one in found.marks:
            if one.text is None:
                continue
            weight, ink = ("bold", "#7a3500") if one.topic is None else ("normal", "#16384f")
            style = {"fontsize": one.text.size, "fontweight": weight, "color": ink, "parse_math": False}
            across = {"start": "left", "middle": "center", "end": "right"}[one.text.anchor]
            axes.text(one.text.at, one.text.middle, one.name, ha=across, va="center", **style)
        top = found.height + HEAD
        figure.text(8 / width, 1 - 6 / top, plain(title), va="top", fontsize=13, parse_math=False)
        said = "squares: labels; circles: topics, by their share"
        figure.text(8 / width, 1 - 26 / top, said, va="top", fontsize=10)
        return saved(figure, kind)
