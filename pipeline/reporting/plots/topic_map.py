"""The topic map as a panel of a plot, where matplotlib is installed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.reporting.plots.style import COLOURS
from collapsium.pipeline.reporting.topic_map import map_names, named, relevant, topic_map

ALONE = 640.0  # width of a map that has a picture by itself, in points
LETTERS, SMALL = 9.0, 7.0  # size of its letters, and of those of a map among other panels
POOL = 4  # words among which those are that name a topic


class MapPanel:
    """A topic map, which is drawn when the room that the figure's layout leaves it is known.

    Parameters
    ----------
    model : Model
        The model.
    shown : sequence of Topic
        Its topics.
    """

    def __init__(self, model: Model, shown: Sequence[Topic]) -> None:
        ids = np.array([topic.id for topic in shown], dtype=np.int64)
        share = np.array([topic.share for topic in shown])
        self.shown = shown
        self.map = topic_map(model, ids, share)
        self.names = map_names(model, shown, relevant(model, ids, share, POOL))
        self.alone = False
        self._axes: Any = None

    def __call__(self, axes: Any) -> None:
        """Clear axes for the map, and say below what it is."""
        self._axes = axes
        axes.grid(visible=False)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        said = self.map.quality.said("nodes" if self.shown[0].level is not None else "topics")
        axes.set_xlabel(textwrap.fill(said, 130 if self.alone else 62), fontsize=9 if self.alone else 7, loc="left")

    def size(self) -> tuple[float, float]:
        """Return the width and height of a figure for the map by itself, in inches."""
        return ALONE / 72 + 0.3, ALONE * self.map.height / 72 + 1.2

    def finish(self) -> None:
        """Draw circles, ids and names as large as the axes let them; one unit of the axes is then one point."""
        from matplotlib.patches import Circle

        axes, found = self._axes, self.map
        box = axes.get_window_extent()
        wide, tall = (72.0 * pixels / axes.figure.dpi for pixels in (box.width, box.height))
        width = min(wide, tall / found.height)
        left, top = (width - wide) / 2, (width * found.height - tall) / 2
        axes.set(xlim=(left, left + wide), ylim=(top + tall, top))
        size = LETTERS if self.alone else SMALL
        for place in np.argsort(-found.radius, kind="stable").tolist():
            middle = width * float(found.x[place]), width * float(found.y[place])
            circle = Circle(middle, width * float(found.radius[place]), facecolor=f"{COLOURS[0]}66")
            circle.set(edgecolor=COLOURS[0], linewidth=0.8)
            axes.add_patch(circle)
        style = {"fontsize": size, "va": "center", "parse_math": False}
        for place, text in enumerate(named(found, self.shown, self.names, width, size)):
            if text.inside:
                x, y = width * float(found.x[place]), width * float(found.y[place])
                axes.text(x, y, str(self.shown[place].id), ha="center", **style)
            if text.beside is not None:
                across = {"start": "left", "middle": "center", "end": "right"}[text.beside.anchor]
                axes.text(text.beside.at, text.beside.middle, text.text, ha=across, **style)
