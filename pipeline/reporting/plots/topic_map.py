"""Draw the topic map as a panel of a plot, with matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.reporting.plots.style import ALIGNMENT, COLOURS
from collapsium.pipeline.reporting.topic_map import circle_texts, map_names, relevant, topic_map

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Width of a map in a picture of its own, its font size, and that of a map among other panels, in points.
WIDTH = 640.0
FONT, SMALL = 9.0, 7.0
NAME_CANDIDATES = 4  # Words for each lambda from which a topic's name is chosen


class MapPanel:
    """A topic map, which is drawn once the figure's layout has fixed its size."""

    def __init__(self, model: Model, topics: Sequence[Topic]) -> None:
        ids = np.array([topic.id for topic in topics], dtype=np.int64)
        share = np.array([topic.share for topic in topics])
        self.topics = topics
        self.map = topic_map(model, ids, share)
        self.names = map_names(model, topics, relevant(model, ids, share, NAME_CANDIDATES))
        self.alone = False

    def __call__(self, axes: Axes) -> None:
        """Clear axes for the map, and write the map's quality below."""
        axes.grid(visible=False)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        text = self.map.quality.describe("nodes" if self.topics[0].level is not None else "topics")
        axes.set_xlabel(textwrap.fill(text, 130 if self.alone else 62), fontsize=9 if self.alone else 7, loc="left")

    def size(self) -> tuple[float, float]:
        """Return the width and height of a figure that shows only the map, in inches."""
        return WIDTH / 72 + 0.3, WIDTH * self.map.height / 72 + 1.2

    def finish(self, axes: Axes) -> None:
        """Draw circles, ids and names to fill the axes, one unit of which is then a point."""
        from matplotlib.patches import Circle

        box = axes.get_window_extent()
        wide, tall = (72.0 * pixels / axes.figure.dpi for pixels in (box.width, box.height))
        width = min(wide, tall / self.map.height)
        left, top = (width - wide) / 2, (width * self.map.height - tall) / 2
        axes.set(xlim=(left, left + wide), ylim=(top + tall, top))
        size = FONT if self.alone else SMALL
        x, y, radius = ((width * values).tolist() for values in (self.map.x, self.map.y, self.map.radius))
        for number in np.argsort(-self.map.radius, kind="stable").tolist():
            circle = Circle((x[number], y[number]), radius[number], facecolor=f"{COLOURS[0]}66")
            circle.set(edgecolor=COLOURS[0], linewidth=0.8)
            axes.add_patch(circle)
        style = {"fontsize": size, "va": "center", "parse_math": False}
        for number, text in enumerate(circle_texts(self.map, self.topics, self.names, width, size)):
            if text.inside:
                axes.text(x[number], y[number], str(self.topics[number].id), ha="center", **style)
            if text.outside is not None:
                alignment = ALIGNMENT[text.outside.anchor]
                axes.text(text.outside.anchor_x, text.outside.middle, text.text, ha=alignment, **style)
