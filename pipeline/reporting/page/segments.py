"""Charts of topic proportions along the segments of a few documents, for the report's page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.segments import colours_of
from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.charts import number, ticks
from collapsium.storage.runs.summary import SegmentedDocument

Floats = npt.NDArray[np.float64]

# Sizes in the chart's own units, about a pixel each on a wide screen.
WIDTH, HEIGHT = 720.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 38.0, 16.0, 6.0, 24.0
# Classes s0, s1, ... of the page's style; `rest` is the grey of all other topics.
COLOURS = 10
WORDS = 3


@dataclass(frozen=True)
class Area:
    """A topic's area, or that of all other topics: SVG path, CSS class of the colour, and first words."""

    topic: int | None
    path: str
    colour: str
    words: str


@dataclass(frozen=True)
class SegmentView:
    """A document's chart: name, caption, areas from the bottom up, and positions and texts of the ticks."""

    name: str
    caption: str
    areas: list[Area]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


def views(documents: Sequence[SegmentedDocument], topics: Sequence[Topic]) -> list[SegmentView]:
    """Lay out the segments of documents."""
    known = {topic.id: topic for topic in topics}
    return [_view(document, known) for document in documents]


def _view(document: SegmentedDocument, known: dict[int, Topic]) -> SegmentView:
    drawn = [topic for topic in document.topics if topic in known]
    colours = colours_of(drawn, list(known), COLOURS)
    rows = dict(zip(document.topics, np.array(document.shares), strict=True))
    base, areas = np.zeros(len(document.shares[0]) if document.shares else 1), []
    for topic in drawn:
        above = np.minimum(base + rows[topic], 1.0)
        title = known[topic].title
        words = " ".join(plain(word) for word in (known[topic].names[:WORDS] if title is None else [title]))
        areas.append(Area(topic, _path(base, above), f"s{colours[topic]}", words))
        base = above
    if (base < 0.999).any():
        areas.append(Area(None, _path(base, np.ones(base.size)), "rest", "other topics"))
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    marks = ticks(1, document.segments, 8, integer=True)
    x_ticks = [(LEFT + wide * (mark - 0.5) / document.segments, f"{mark:,.0f}") for mark in marks]
    y_ticks = [(TOP + tall * (1.0 - share), f"{share:.0%}") for share in (0.0, 0.5, 1.0)]
    name = plain(document.id if document.title is None else f"{document.id}: {document.title}")
    caption = f"{document.segments:,} segments; mean distance between neighbours {number(document.distance, 3)}"
    if base.size < document.segments:
        caption += f"; each step is the mean of about {document.segments / base.size:.2g} neighbouring segments"
    return SegmentView(name, caption, areas, x_ticks, y_ticks)


def _path(base: Floats, above: Floats) -> str:
    """Return an area's outline: along its upper edge to the right, and along its lower edge back."""
    x = np.round(LEFT + (WIDTH - LEFT - RIGHT) * np.arange(base.size + 1) / base.size, 1).tolist()
    upper, lower = (np.round(TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - edge), 1).tolist() for edge in (above, base))
    forth = "".join(f"V{y}H{right}" for y, right in zip(upper, x[1:], strict=True))
    back = "".join(f"V{y}H{left}" for y, left in zip(reversed(lower), reversed(x[:-1]), strict=True))
    return f"M{x[0]},{lower[0]}{forth}{back}Z"
