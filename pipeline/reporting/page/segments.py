"""Charts of topic proportions along the segments of a few documents, for the report's page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from collapsium.pipeline.analysis.segments import colours_of
from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.formatting import number, plain
from collapsium.pipeline.svg import Chart, ticks
from collapsium.storage.runs.summary import SegmentedDocument

Floats = npt.NDArray[np.float64]

WIDTH, HEIGHT, LEFT = 720.0, 230.0, 44.0
# Classes s0, s1, ... of the page's style; `rest` is the grey of all other topics.
COLOURS = 10
WORDS = 3


@dataclass(frozen=True)
class Area:
    """A topic's area, or that of all other topics: CSS class of the colour, and first words."""

    topic: int | None
    colour: str
    words: str


@dataclass(frozen=True)
class SegmentView:
    """A document's chart: name, caption, areas from the bottom up, and the drawing."""

    name: str
    caption: str
    areas: list[Area]
    svg: Markup


def views(documents: Sequence[SegmentedDocument], topics: Sequence[Topic], kind: str) -> list[SegmentView]:
    """Draw the segments of documents, with links to the topics, which are of a `kind`: ``Topic`` or ``Node``."""
    known = {topic.id: topic for topic in topics}
    return [_view(document, known, kind) for document in documents]


def _view(document: SegmentedDocument, known: dict[int, Topic], kind: str) -> SegmentView:
    drawn = [topic for topic in document.topics if topic in known]
    colours = colours_of(drawn, list(known), COLOURS)
    rows = dict(zip(document.topics, np.array(document.shares), strict=True))
    base, areas = np.zeros(len(document.shares[0]) if document.shares else 1), []
    chart = Chart((0.0, float(document.segments)), (0.0, 1.0), WIDTH, HEIGHT, LEFT)
    edges = np.arange(base.size + 1) * document.segments / base.size
    for topic in drawn:
        above = np.minimum(base + rows[topic], 1.0)
        title = known[topic].title
        words = " ".join(plain(word) for word in (known[topic].names[:WORDS] if title is None else [title]))
        areas.append(Area(topic, f"s{colours[topic]}", words))
        outline = [*_steps(edges, above), *reversed(_steps(edges, base))]
        chart.area(outline, areas[-1].colour, f"{kind} {topic}: {words}", f"{kind.lower()}-{topic}")
        base = above
    if (base < 0.999).any():
        areas.append(Area(None, "rest", "other topics"))
        outline = [(edges[0], 1.0), (edges[-1], 1.0), *reversed(_steps(edges, base))]
        chart.area(outline, areas[-1].colour, areas[-1].words)
    x_ticks = [(mark - 0.5, f"{mark:,.0f}") for mark in ticks(1, document.segments, 8, integer=True)]
    y_ticks = [(share, f"{share:.0%}") for share in (0.0, 0.5, 1.0)]
    name = plain(document.id if document.title is None else f"{document.id}: {document.title}")
    caption = f"{document.segments:,} segments; mean distance between neighbours {number(document.distance, 3)}"
    if base.size < document.segments:
        caption += f"; each step is the mean of about {document.segments / base.size:.2g} neighbouring segments"
    return SegmentView(name, caption, areas, chart.drawn(f"{name}: {caption}", x_ticks, y_ticks, grid=False))


def _steps(edges: Floats, heights: Floats) -> list[tuple[float, float]]:
    """Return the upper edge of an area with a step for each segment."""
    return list(zip(np.repeat(edges, 2)[1:-1].tolist(), np.repeat(heights, 2).tolist(), strict=True))
