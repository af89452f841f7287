"""Labels and topics in one plane: close where a label's weight on a topic is high, and texts that do not overlap.

Distances: a label and a topic are as far apart as their weight is below the largest of that label and of that topic, if
there is no shorter way over others; two labels, or two topics, as the shortest way over topics and labels is long, so
that labels lie together that raise the same topics. The plane is found by SMACOF, from where classical scaling puts the
points. On Reuters, of 40 labels 33 have the topic that they raise most among the three that are next to them; 9 had,
where two labels, and two topics, were as far apart as their weights are uncorrelated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import shortest_path
from threadpoolctl import threadpool_limits

from collapsium.pipeline.analysis.labels.expected_topics import LabelTopics
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.embedding import scaled, separate
from collapsium.pipeline.reporting.text_layout import Placed, Placement, Point, place_texts, shortened

Floats = npt.NDArray[np.float64]

LABELS, TOPICS = 40, 40  # that are drawn, the largest
PLANE = (900.0, 660.0)  # at most
EDGE = 56.0  # about the points, for their texts
ROOM = 6.0  # about points and texts
FONT, SMALL = 13.0, 11.0  # of labels, and of topics
LETTERS = 26
HEAD, LEAST_WIDTH = 44.0, 360.0  # of a picture: height of what stands above the map, and width at least
WORDS = 2  # of a topic
LEAST_RADIUS, MOST_RADIUS, LABEL_RADIUS = 3.0, 13.0, 3.5
APART = 17.0  # half of what lies between two points at least
LEAST = 0.02  # distance of a label and a topic, of the largest
NEAR = (0.0, 10.0, 22.0, 36.0, 52.0, 70.0, 90.0, 115.0)  # how far a text may lie from its point


@dataclass(frozen=True)
class Mark:
    """A label or a topic in the plane.

    Attributes
    ----------
    name : str
        What it is called.
    topic : int or None
        The id of a topic; None of a label.
    title : str
        What it is, in full.
    x, y, radius : float
        Its point, y downwards.
    text : Placed or None
        Where its name stands; None where there is no room.
    """

    name: str
    topic: int | None
    title: str
    x: float
    y: float
    radius: float
    text: Placed | None


@dataclass(frozen=True)
class LabelMap:
    """The marks of a map, topics before labels.

    Attributes
    ----------
    marks : tuple of Mark
        No name covers another.
    width, height : float
        The plane's, which the marks fill.
    labels_left, topics_left : int
        How many of all there are are left out.
    """

    marks: tuple[Mark, ...]
    width: float
    height: float
    labels_left: int
    topics_left: int


def label_map(table: LabelTopics, names: Sequence[str] | None = None) -> LabelMap:
    """Lay out the labels that most documents have, and the largest topics.

    Parameters
    ----------
    table : LabelTopics
        The weights.
    names : sequence of str, optional
        Names of its topics; by default their titles, or first words.

    Returns
    -------
    LabelMap
        The same for the same table. At most 40 labels and 40 topics.
    """
    labels = np.sort(np.argsort(-np.array(table.documents), kind="stable")[:LABELS])
    share = np.array([max(one.share, 0.0) for one in table.topics])
    chosen = np.sort(np.argsort(-share, kind="stable")[:TOPICS])
    places = _spread(_places(table.weights[np.ix_(labels, chosen)]))
    radii = np.maximum(MOST_RADIUS * np.sqrt(share[chosen] / max(float(share.max(initial=0.0)), 1e-300)), LEAST_RADIUS)
    points: list[Point] = []
    ids: list[int | None] = []
    titles: list[str] = []
    for (x, y), label in zip(places[: labels.size].tolist(), labels.tolist(), strict=True):
        points.append(Point(x, y, LABEL_RADIUS, shortened(table.titles[label], LETTERS), FONT, bold=True))
        ids.append(None)
        titles.append(f"{table.titles[label]}, {table.documents[label]:,} documents")
    for (x, y), radius, place in zip(places[labels.size :].tolist(), radii.tolist(), chosen.tolist(), strict=True):
        topic = table.topics[place]
        title = [] if topic.title is None else [topic.title]
        name = " ".join(title or topic.names[:WORDS]) if names is None else names[place]
        points.append(Point(x, y, radius, shortened(f"{topic.id} {name}", LETTERS), SMALL))
        ids.append(topic.id)
        titles.append(f"Topic {topic.id}, {topic.share:.2%}: {' '.join([*title, *topic.names[:8]])}")
    order = [*range(labels.size), *(labels.size + np.argsort(-share[chosen], kind="stable")).tolist()]
    texts = place_texts(points, order, Placement(*PLANE, distances=NEAR))
    marks = [
        Mark(point.text, topic, plain(title), point.x, point.y, point.radius, text)
        for point, topic, title, text in zip(points, ids, titles, texts, strict=True)
    ]
    marks.sort(key=lambda one: one.topic is None)
    left = len(table.titles) - labels.size, len(table.topics) - chosen.size
    return LabelMap(*_cropped(marks), *left)


def _cropped(marks: Sequence[Mark]) -> tuple[tuple[Mark, ...], float, float]:
    """Move marks so that they fill a plane that begins at zero; return them, and its width and height."""
    boxes = np.array(
        [(one.x - one.radius, one.y - one.radius, one.x + one.radius, one.y + one.radius) for one in marks]
        + [one.text.box for one in marks if one.text is not None]
    )
    left, top = (boxes[:, :2].min(axis=0) - ROOM).round(1).tolist()
    right, bottom = (boxes[:, 2:].max(axis=0) + ROOM).tolist()
    moved = []
    for one in marks:
        text = one.text and replace(
            one.text,
            left=round(one.text.left - left, 1),
            middle=round(one.text.middle - top, 1),
            x=round(one.text.x - left, 1),
        )
        moved.append(replace(one, x=round(one.x - left, 1), y=round(one.y - top, 1), text=text))
    return tuple(moved), round(right - left, 1), round(bottom - top, 1)


def _places(weights: Floats) -> Floats:
    """Find the plane, shape (labels + topics, 2)."""
    labels, topics = weights.shape
    below = 0.5 * (weights.max(axis=1, keepdims=True) + weights.max(axis=0, keepdims=True)) - weights
    apart = np.zeros((labels + topics, labels + topics))
    apart[:labels, labels:] = np.maximum(below / max(float(below.max(initial=0.0)), 1e-12), LEAST)
    with threadpool_limits(limits=1):
        return np.round(scaled(shortest_path(apart, directed=False)), 6)


def _spread(places: Floats) -> Floats:
    """Let the points fill the plane: each axis half by distance and half by rank, so that none lies in a heap."""
    even = np.empty(places.shape)
    for axis, room in enumerate(PLANE):
        values = places[:, axis]
        reach = max(float(np.ptp(values)), 1e-12)
        rank = np.argsort(np.argsort(values, kind="stable"), kind="stable") / max(values.size - 1, 1)
        even[:, axis] = (room - 2 * EDGE) * (0.5 * (values - values.min()) / reach + 0.5 * rank)
    even[:, 1] *= -1.0
    even = separate(even, np.full(len(even), APART))
    even -= even.min(axis=0)
    shrink = np.minimum(1.0, (np.array(PLANE) - 2 * EDGE) / np.maximum(even.max(axis=0), 1e-12))
    return np.asarray(np.round(EDGE + even * shrink, 1), dtype=np.float64)
