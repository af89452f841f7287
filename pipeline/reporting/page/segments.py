"""Topics along the segments of a few documents as a page shows them, from the summary of a model's documents."""

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

WIDTH, HEIGHT = 720.0, 230.0  # of a picture, in its own units, which are about pixels
LEFT, RIGHT, TOP, BOTTOM = 38.0, 16.0, 6.0, 24.0
COLOURS = 10  # classes s0, s1, ... of the page's style; the grey of all other topics is `rest`
WORDS = 3


@dataclass(frozen=True)
class Area:
    """A topic along a document, or all other topics: its outline as SVG has it, the class of its colour, its name."""

    topic: int | None
    path: str
    colour: str
    words: str


@dataclass(frozen=True)
class SegmentView:
    """A document: its name, how far neighbours lie apart, its areas from below, and places and texts of the ticks."""

    name: str
    said: str
    areas: list[Area]
    across: list[tuple[float, str]]
    up: list[tuple[float, str]]


def views(documents: Sequence[SegmentedDocument], topics: Sequence[Topic]) -> list[SegmentView]:
    """Lay out the segments of documents.

    Parameters
    ----------
    documents : sequence of SegmentedDocument
        As the summary has them.
    topics : sequence of Topic
        Those of the page, the largest first.

    Returns
    -------
    list of SegmentView
        A topic has one colour in all of them, but where one of them has two topics that would have the same.
    """
    known = {topic.id: topic for topic in topics}
    return [_view(one, known) for one in documents]


def _view(one: SegmentedDocument, known: dict[int, Topic]) -> SegmentView:
    drawn = [topic for topic in one.topics if topic in known]
    colours = colours_of(drawn, list(known), COLOURS)
    rows = dict(zip(one.topics, np.array(one.shares), strict=True))
    base, areas = np.zeros(len(one.shares[0]) if one.shares else 1), []
    for topic in drawn:
        above = np.minimum(base + rows[topic], 1.0)
        words = " ".join(plain(word) for word in known[topic].names[:WORDS])
        areas.append(Area(topic, _path(base, above), f"s{colours[topic]}", words))
        base = above
    if (base < 0.999).any():
        areas.append(Area(None, _path(base, np.ones(base.size)), "rest", "other topics"))
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    marks = ticks(1, one.segments, 8, whole=True)
    across = [(LEFT + wide * (mark - 0.5) / one.segments, f"{mark:,.0f}") for mark in marks]
    up = [(TOP + tall * (1.0 - share), f"{share:.0%}") for share in (0.0, 0.5, 1.0)]
    name = plain(one.id if one.title is None else f"{one.id}: {one.title}")
    said = f"{one.segments:,} segments; neighbours lie {number(one.distance, 3)} apart"
    if base.size < one.segments:
        said += f"; drawn are means of about {one.segments / base.size:.2g} neighbours"
    return SegmentView(name, said, areas, across, up)


def _path(base: Floats, above: Floats) -> str:
    """Return the outline of an area: forth along its upper edge, and back along its lower one."""
    x = np.round(LEFT + (WIDTH - LEFT - RIGHT) * np.arange(base.size + 1) / base.size, 1).tolist()
    upper, lower = (np.round(TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - one), 1).tolist() for one in (above, base))
    forth = "".join(f"V{y}H{right}" for y, right in zip(upper, x[1:], strict=True))
    back = "".join(f"V{y}H{left}" for y, left in zip(reversed(lower), reversed(x[:-1]), strict=True))
    return f"M{x[0]},{lower[0]}{forth}{back}Z"
