"""Map labels and topics in one plane: a label is close to the topics that it raises.

The distance of a label and a topic is the mean of the label's and the topic's largest weights minus their weight. All
other distances are shortest paths over these, so that labels which raise the same topics are close.
SMACOF, started from classical scaling, finds the positions. On Reuters, 33 of 40 labels have the topic that they raise
most among the three nearest topics. With distances from correlations of the weights only 9 had.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import shortest_path
from threadpoolctl import threadpool_limits

from collapsium.pipeline.analysis.effects import shares_by
from collapsium.pipeline.analysis.expected_topics import LabelTopics
from collapsium.pipeline.analysis.regression import Effects
from collapsium.pipeline.analysis.topic_shares import SummarySource
from collapsium.pipeline.formatting import plain, shortened
from collapsium.pipeline.models.topics import Topic
from collapsium.pipeline.reporting.embedding import scaled, separate
from collapsium.pipeline.reporting.text_layout import Measure, Placed, Placement, Point, place_texts, text_width
from collapsium.storage.corpus.labels import LabelTable
from collapsium.storage.errors import ClusterError, CollapsiumError

Floats = npt.NDArray[np.float64]


# Sizes are in points, chosen by eye on maps of Reuters and NIPS.
MAX_LABELS = 40
MAX_TOPICS = 40  # The most frequent labels and the largest topics are drawn
PLANE = (900.0, 660.0)  # Maximum width and height of the map
EDGE = 56.0  # Margin around the points, for their texts
MARGIN = 6.0  # Margin around points and texts of the cropped map
LABEL_FONT = 13.0
TOPIC_FONT = 11.0
MAX_LETTERS = 26  # Maximum length of a name
TOPIC_WORDS = 2
MIN_RADIUS = 3.0
MAX_RADIUS = 13.0  # Radii of the smallest and the largest topics
LABEL_RADIUS = 3.5
SEPARATION = 17.0  # Half of the minimum distance between two points
MIN_DISTANCE = 0.02  # Minimum distance of a label and a topic before scaling, relative to the largest
# Permitted distances of a text from its point
TEXT_DISTANCES = (0.0, 10.0, 22.0, 36.0, 52.0, 70.0, 90.0, 115.0)


@dataclass(frozen=True)
class Mark:
    """A label or a topic of the map."""

    name: str  # Its name, shortened
    topic: int | None  # The id of a topic; None for a label
    title: str  # The tooltip
    # Position and size, y downwards
    x: float
    y: float
    radius: float
    text: Placed | None  # Position of the name; None if there is no room


@dataclass(frozen=True)
class LabelMap:
    """The marks of a map, topics before labels."""

    marks: tuple[Mark, ...]  # Marks whose names do not overlap
    # Size of the map
    width: float
    height: float
    # Numbers of labels and topics that are left out
    labels_left: int
    topics_left: int


def shares_of_labels(
    run: str | os.PathLike[str], fields: Iterable[str], source: SummarySource, cluster: str | None = None
) -> dict[str, Effects]:
    """Return the topics' shares by the labels of fields, with intervals.

    Fields of several labels per document have none, and no field has any where the corpus cannot be read.
    """
    shares = {}
    for field in fields:
        try:
            shares[field] = shares_by(
                run, field, cluster=cluster, posteriors="fit", corpus=source.corpus,
                **dict(source.scheduling),
            )  # fmt: skip
        except ClusterError:
            raise
        except CollapsiumError:
            continue
    return shares


def unclear_labels(table: LabelTable, shares: Mapping[str, Effects], topics: Sequence[Topic]) -> set[int]:
    """Return the labels whose topic shares all differ from the corpus's shares by no more than their errors.

    The interval of each topic is widened to the number of topics, by Bonferroni's method.
    """
    from scipy import stats

    overall = {topic.id: topic.share for topic in topics}
    places = {name: place for place, name in enumerate(table.names)}
    unclear = set()
    for field, field_shares in shares.items():
        mean = np.array([overall.get(topic, 0.0) for topic in field_shares.topics.tolist()])
        t = float(stats.t.isf(0.025 / max(mean.size, 1), field_shares.df))
        for row, values in enumerate(field_shares.values):
            place = places.get((field, str(values[field])))
            if place is not None and not (np.abs(field_shares.estimate[row] - mean) > t * field_shares.se[row]).any():
                unclear.add(place)
    return unclear


def label_map(
    table: LabelTopics,
    names: Sequence[str] | None = None,
    measure: Measure = text_width,
    unclear: Collection[int] = (),
) -> LabelMap:
    """Map the most frequent labels and the largest topics, without unclear labels unless all of them are."""
    frequent = np.argsort(-np.array(table.documents), kind="stable")
    clear = frequent[~np.isin(frequent, list(unclear))]
    labels = np.sort((clear if clear.size else frequent)[:MAX_LABELS])
    share = np.array([max(topic.share, 0.0) for topic in table.topics])
    chosen = np.sort(np.argsort(-share, kind="stable")[:MAX_TOPICS])
    weights = table.weights[np.ix_(labels, chosen)]
    below = 0.5 * (weights.max(axis=1, keepdims=True) + weights.max(axis=0, keepdims=True)) - weights
    apart = np.zeros((labels.size + chosen.size, labels.size + chosen.size))
    apart[: labels.size, labels.size :] = np.maximum(below / max(float(below.max(initial=0.0)), 1e-12), MIN_DISTANCE)
    with threadpool_limits(limits=1):
        places = _spread(np.round(scaled(shortest_path(apart, directed=False)), 6))
    radii = MAX_RADIUS * np.sqrt(share[chosen] / max(float(share.max(initial=0.0)), 1e-300))
    radii = np.maximum(radii, MIN_RADIUS)
    points: list[Point] = []
    ids: list[int | None] = []
    titles: list[str] = []
    for (x, y), label in zip(places[: labels.size].tolist(), labels.tolist(), strict=True):
        name = shortened(table.titles[label], MAX_LETTERS)
        points.append(Point(x, y, LABEL_RADIUS, name, LABEL_FONT, bold=True))
        ids.append(None)
        titles.append(f"{table.titles[label]}, {table.documents[label]:,} documents")
    for (x, y), radius, row in zip(places[labels.size :].tolist(), radii.tolist(), chosen.tolist(), strict=True):
        topic = table.topics[row]
        title = [] if topic.title is None else [topic.title]
        name = " ".join(title or topic.names[:TOPIC_WORDS]) if names is None else names[row]
        points.append(Point(x, y, radius, shortened(f"{topic.id} {name}", MAX_LETTERS), TOPIC_FONT))
        ids.append(topic.id)
        titles.append(f"Topic {topic.id}, {topic.share:.2%}: {' '.join([*title, *topic.names[:8]])}")
    order = [*range(labels.size), *(labels.size + np.argsort(-share[chosen], kind="stable")).tolist()]
    texts = place_texts(points, order, Placement(*PLANE, distances=TEXT_DISTANCES), measure=measure)
    marks = [
        Mark(point.text, topic, plain(title), point.x, point.y, point.radius, text)
        for point, topic, title, text in zip(points, ids, titles, texts, strict=True)
    ]
    marks.sort(key=lambda mark: mark.topic is None)
    left = len(table.titles) - labels.size, len(table.topics) - chosen.size
    return LabelMap(*_cropped(marks, MARGIN), *left)


def _cropped(marks: Sequence[Mark], margin: float) -> tuple[tuple[Mark, ...], float, float]:
    """Move marks to the origin; return them with the width and the height that they fill."""
    boxes = np.array(
        [(mark.x - mark.radius, mark.y - mark.radius, mark.x + mark.radius, mark.y + mark.radius) for mark in marks]
        + [mark.text.box for mark in marks if mark.text is not None]
    )
    left, top = (boxes[:, :2].min(axis=0) - margin).round(1).tolist()
    right, bottom = (boxes[:, 2:].max(axis=0) + margin).tolist()
    moved = []
    for mark in marks:
        text = mark.text and replace(
            mark.text,
            left=round(mark.text.left - left, 1),
            middle=round(mark.text.middle - top, 1),
            x=round(mark.text.x - left, 1),
        )
        moved.append(replace(mark, x=round(mark.x - left, 1), y=round(mark.y - top, 1), text=text))
    return tuple(moved), round(right - left, 1), round(bottom - top, 1)


def _spread(places: Floats) -> Floats:
    """Spread the points over the plane: each coordinate is half value and half rank, so that points do not crowd."""
    even = np.empty(places.shape)
    for axis, room in enumerate(PLANE):
        values = places[:, axis]
        reach = max(float(np.ptp(values)), 1e-12)
        rank = np.argsort(np.argsort(values, kind="stable"), kind="stable") / max(values.size - 1, 1)
        even[:, axis] = (room - 2 * EDGE) * (0.5 * (values - values.min()) / reach + 0.5 * rank)
    even[:, 1] *= -1.0
    even = separate(even, np.full(len(even), SEPARATION))
    even -= even.min(axis=0)
    shrink = np.minimum(1.0, (np.array(PLANE) - 2 * EDGE) / np.maximum(even.max(axis=0), 1e-12))
    return np.asarray(np.round(EDGE + even * shrink, 1), dtype=np.float64)
