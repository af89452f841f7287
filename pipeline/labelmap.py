"""Labels and topics in one plane: close where a label's weight on a topic is high, and texts that do not overlap.

Distances: a label and a topic are as far apart as their weight is below the largest of that label and of that topic, if
there is no shorter way over others; two labels, or two topics, as the shortest way over topics and labels is long, so
that labels lie together that raise the same topics. The plane is found by SMACOF, from where classical scaling puts the
points. On Reuters, of 40 labels 33 have the topic that they raise most among the three that are next to them; 9 had,
where two labels, and two topics, were as far apart as their weights are uncorrelated.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import shortest_path

from collapsar.pipeline.expecting import LabelTopics
from collapsar.pipeline.progress import plain
from collapsar.pipeline.reporting.topicmap import scaled

Floats = npt.NDArray[np.float64]
Box = tuple[float, float, float, float]

LABELS, TOPICS = 40, 40  # that are drawn, the largest
PLANE = (900.0, 660.0)
EDGE = 56.0  # about the points
FONT, SMALL = 13.0, 11.0  # of labels, and of topics
WIDE, BOLD, LINE = 0.6, 0.68, 1.2  # of a letter, and of a line, in the font's size: what wide fonts take
LETTERS = 26
WORDS = 2  # of a topic
LEAST_RADIUS, MOST_RADIUS, LABEL_RADIUS = 3.0, 13.0, 3.5
ROUNDS = 300
LEAST = 0.02  # distance of a label and a topic, of the largest
NEAR = (0.0, 10.0, 22.0, 36.0, 52.0, 70.0)  # how far a text may lie from its point
WAYS = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1))


@dataclass(frozen=True)
class Mark:
    """A label or a topic in the plane.

    Attributes
    ----------
    name : str
        What stands beside it.
    topic : int or None
        The id of a topic; None of a label.
    title : str
        What it is, in full.
    x, y, radius : float
        Its point, y downwards.
    left, base : float
        Where its text begins, and the height of the text's middle.
    width, size : float
        Of the text: what it takes at most, and the letters' size.
    joined : bool
        Whether a line joins text and point, as they lie apart.
    """

    name: str
    topic: int | None
    title: str
    x: float
    y: float
    radius: float
    left: float
    base: float
    width: float
    size: float
    joined: bool

    @property
    def anchor(self) -> str:
        """Which end of the text stays where it is, in fonts that are narrower: the one next to the point."""
        if self.left >= self.x:
            return "start"
        return "end" if self.left + self.width <= self.x else "middle"

    @property
    def at(self) -> float:
        """Where that end is."""
        return round(self.left + self.width * ("start", "middle", "end").index(self.anchor) / 2, 1)


@dataclass(frozen=True)
class LabelMap:
    """The marks of a map, topics before labels, and how many of all there are are left out."""

    marks: tuple[Mark, ...]
    labels_left: int
    topics_left: int


def label_map(table: LabelTopics) -> LabelMap:
    """Lay out the labels that most documents have, and the largest topics.

    Parameters
    ----------
    table : LabelTopics
        The weights.

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
    points = [*((table.titles[one], None, "") for one in labels)]
    texts = [_short(title) for title, _, _ in points]
    full = [f"{title}, {table.documents[one]:,} documents" for (title, _, _), one in zip(points, labels, strict=True)]
    for one in chosen:
        topic = table.topics[one]
        title = [] if topic.title is None else [topic.title]
        texts.append(_short(" ".join([str(topic.id), *(title or topic.names[:WORDS])])))
        full.append(f"Topic {topic.id}, {topic.share:.2%}: {' '.join([*title, *topic.names[:8]])}")
    ids = [None] * labels.size + [table.topics[one].id for one in chosen]
    sizes = [FONT] * labels.size + [SMALL] * chosen.size
    radius = [LABEL_RADIUS] * labels.size + radii.tolist()
    order = [*range(labels.size), *(labels.size + np.argsort(-share[chosen], kind="stable")).tolist()]
    boxes = _texts(places, radius, texts, sizes, order)
    marks = []
    for n, (x, y) in enumerate(places.tolist()):
        left, base, width, joined = boxes[n]
        marks.append(Mark(texts[n], ids[n], plain(full[n]), x, y, radius[n], left, base, width, sizes[n], joined))
    several = sorted(marks, key=lambda one: one.topic is None)
    return LabelMap(tuple(several), len(table.titles) - labels.size, len(table.topics) - chosen.size)


def _places(weights: Floats) -> Floats:
    """Find the plane, shape (labels + topics, 2)."""
    from sklearn.manifold import smacof

    labels, topics = weights.shape
    below = 0.5 * (weights.max(axis=1, keepdims=True) + weights.max(axis=0, keepdims=True)) - weights
    apart = np.zeros((labels + topics, labels + topics))
    apart[:labels, labels:] = np.maximum(below / max(float(below.max(initial=0.0)), 1e-12), LEAST)
    apart = shortest_path(apart, directed=False)
    begun = scaled(apart)
    places = np.stack([begun.x, begun.y], axis=1)
    if len(places) < 3 or not places.any():
        return places
    found, _ = smacof(apart, init=places, n_init=1, max_iter=ROUNDS, normalized_stress=False)
    return np.asarray(np.round(found, 6), dtype=np.float64)


def _spread(places: Floats) -> Floats:
    """Let the points fill the plane: each axis half by distance and half by rank, so that none lies in a heap."""
    found = np.empty(places.shape)
    for axis, room in enumerate(PLANE):
        values = places[:, axis]
        reach = max(float(np.ptp(values)), 1e-12)
        rank = np.argsort(np.argsort(values, kind="stable"), kind="stable") / max(values.size - 1, 1)
        even = 0.5 * (values - values.min()) / reach + 0.5 * rank
        found[:, axis] = EDGE + (room - 2 * EDGE) * (even if axis == 0 else 1.0 - even)
    return np.round(found, 1)


def _short(text: str) -> str:
    text = plain(text)
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"


def _width(text: str, size: float) -> float:
    """Return what a text takes at most, labels being bold; letters of the Far East are twice as wide."""
    return (
        size
        * (BOLD if size == FONT else WIDE)
        * sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
    )


def _texts(
    places: Floats, radius: Sequence[float], texts: Sequence[str], sizes: Sequence[float], order: Sequence[int]
) -> list[tuple[float, float, float, bool]]:
    """Find a place for each text, those that are named first first: where it covers no other, and few points."""
    taken: list[Box] = []
    points = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(places.tolist(), radius, strict=True)]
    found: list[tuple[float, float, float, bool]] = [(0.0, 0.0, 0.0, False)] * len(texts)
    for one in order:
        width, height = _width(texts[one], sizes[one]), LINE * sizes[one]
        least = float("inf")
        best: tuple[Box, bool] = ((0.0, 0.0, width, height), False)
        for box, far in _boxes(points[one], width, height):
            covered = sum(_common(box, other) for other in taken)
            cost = 4.0 * covered + sum(_common(box, point) for point in points) + 3.0 * far
            if cost < least:
                least, best = cost, (box, far > 0)
            if not covered and cost <= 3.0 * far:
                break
        box, joined = best
        taken.append(box)
        found[one] = round(box[0], 1), round((box[1] + box[3]) / 2, 1), round(width, 1), joined
    return found


def _boxes(point: Box, width: float, height: float) -> Iterator[tuple[Box, float]]:
    """Give the places of a text about a point, the nearest first, within the plane."""
    middle_x, middle_y = (point[0] + point[2]) / 2, (point[1] + point[3]) / 2
    for far, (across, down) in itertools.product(NEAR, WAYS):
        reach = (point[2] - point[0]) / 2 + 2.0 + far
        left = middle_x + across * reach - (width if across < 0 else 0.0 if across else width / 2)
        top = middle_y + down * reach - (height if down < 0 else 0.0 if down else height / 2)
        left = min(max(left, 2.0), PLANE[0] - width - 2.0)
        top = min(max(top, 2.0), PLANE[1] - height - 2.0)
        yield (left, top, left + width, top + height), far


def _common(one: Box, other: Box) -> float:
    """Return the area that two boxes share."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    return wide * tall if wide > 0.0 and tall > 0.0 else 0.0


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

    from collapsar.pipeline.plotting import COLOURS, SALT, saved

    with rc_context({**SALT, "svg.fonttype": "none"}):
        # One unit of the plane is one point, so that letters are as large as they were taken to be.
        figure = Figure(figsize=(PLANE[0] / 72, (PLANE[1] + 44) / 72))
        axes = figure.add_axes((0.0, 0.0, 1.0, PLANE[1] / (PLANE[1] + 44)))
        axes.set(xlim=(0, PLANE[0]), ylim=(PLANE[1], 0))
        axes.set_axis_off()
        for one in found.marks:
            colour = COLOURS[1] if one.topic is None else COLOURS[0]
            if one.joined:
                middle = min(max(one.x, one.left), one.left + one.width)
                axes.plot([one.x, middle], [one.y, one.base], color=colour, linewidth=0.5, alpha=0.5)
            area = (2 * one.radius) ** 2
            marker = "s" if one.topic is None else "o"
            axes.scatter([one.x], [one.y], area, color=colour, alpha=0.9 if one.topic is None else 0.35, marker=marker)
        for one in found.marks:
            weight, ink = ("bold", "#7a3500") if one.topic is None else ("normal", "#16384f")
            style = {"fontsize": one.size, "fontweight": weight, "color": ink, "parse_math": False}
            across = {"start": "left", "middle": "center", "end": "right"}[one.anchor]
            axes.text(one.at, one.base, one.name, ha=across, va="center", **style)
        figure.text(0.01, 0.985, plain(title), va="top", fontsize=13, parse_math=False)
        figure.text(0.01, 0.955, "squares: labels; circles: topics, by their share", va="top", fontsize=10)
        return saved(figure, kind)
