"""Map topics in the plane by their Hellinger distances, and find the words most relevant to each topic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.formatting import shortened
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topic_matching import distances
from collapsium.pipeline.models.topics import MIN_EXPECTED_TOKENS, RELEVANCE_WEIGHT, Topic, relevance
from collapsium.pipeline.reporting.embedding import MapQuality, embed, measure, separate
from collapsium.pipeline.reporting.text_layout import LINE, Measure, Placed, Placement, Point, place_texts, text_width

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

WEIGHTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # Values of lambda that the page's slider offers
WORDS = 12


# Sizes are in units of the width of the map.
CIRCLES_SHARE = 0.16  # Area of all circles, relative to the bounding box of the topics' positions
MAX_RADIUS = 0.065
# Radius of topics that would otherwise be too small to see or to select; their areas exceed their shares
MIN_RADIUS = 0.0055
CIRCLE_GAP = 0.0012  # Margin around each circle; two circles are at least twice as far apart
EDGE = 0.006  # Margin between circles and the map's edge
NAME_WORDS = 2
NAME_LETTERS = 26


@dataclass(frozen=True)
class TopicMap:
    """Topics as circles in the plane, in units of the map's width."""

    # Centres, from the left and from the top; float64 (topics,)
    x: Floats
    y: Floats
    # Radii; except for the smallest, areas are proportional to the topics' shares. Circles do not overlap.; float64
    # (topics,)
    radius: Floats
    height: float  # Height of the map, just enough for the circles
    quality: MapQuality  # Agreement of the positions with the distances


def topic_map(model: Model, ids: Ints, share: Floats) -> TopicMap:
    """Map topics by the Hellinger distances of their word probabilities."""
    return map_of_distances(distances(model, model)[np.ix_(ids, ids)], share)


def map_of_distances(apart: Floats, share: Floats) -> TopicMap:
    """Map circles by their distances, shape (topics, topics), with areas proportional to their shares."""
    if not share.size:
        return TopicMap(np.zeros(0), np.zeros(0), np.zeros(0), 2 * EDGE, measure(apart, np.zeros((0, 2)), ""))
    places, method = embed(apart)
    share = np.maximum(share, 0.0) if (share > 0).any() else np.ones_like(share)
    share /= float(share.max())
    places = places / max(float(np.ptp(places[:, 0])), 1e-12) if places.any() else places
    tall = max(float(np.ptp(places[:, 1])), 0.3)
    radius = np.sqrt(share * CIRCLES_SHARE * tall / (math.pi * float(share.sum())))
    radius = radius * min(1.0, MAX_RADIUS / float(radius.max()))
    radius = np.maximum(radius, MIN_RADIUS)
    # The centres of circles at the left and right edge lie inside, so that the map is about 1 wide.
    places = separate(places * (1.0 - 2.0 * float(np.median(radius))), radius + CIRCLE_GAP)
    low, high = (places - radius[:, None]).min(axis=0), (places + radius[:, None]).max(axis=0)
    if places.shape[0] == 1:
        scale, low = 1.0, np.array([places[0, 0] - 0.5 + EDGE, low[1]])
    else:
        scale = (1.0 - 2.0 * EDGE) / float(high[0] - low[0])
    x, y = (np.round(scale * (places - low) + EDGE, 5)).T
    height = round(float(scale * (high[1] - low[1])) + 2 * EDGE, 5)
    return TopicMap(x, y, np.round(scale * radius, 5), height, measure(apart, np.stack([x, y], axis=1), method))


@dataclass(frozen=True)
class CircleText:
    """Texts in and next to a circle of the map."""

    inside: bool  # True if the topic's id fits inside the circle
    outside: Placed | None  # Position of the text next to the circle; None if there is no room
    text: str  # That text: the topic's name, preceded by its id if that does not fit inside


def circle_texts(
    topics_map: TopicMap,
    topics: Sequence[Topic],
    names: Sequence[str],
    width: float,
    size: float,
    measure: Measure = text_width,
) -> list[CircleText]:
    """Place ids and names so that texts do not overlap, the largest topics first."""
    inside, points, taken = [], [], []
    order = sorted(range(len(topics)), key=lambda number: (-topics[number].share, number))
    for number, topic in enumerate(topics):
        x, y, radius = (float(values[number]) * width for values in (topics_map.x, topics_map.y, topics_map.radius))
        wide, tall = measure(str(topic.id), size), 0.75 * size
        inside.append(math.hypot(wide / 2, tall / 2) <= radius)
        if inside[-1]:
            taken.append((x - wide / 2, y - LINE * size / 2, x + wide / 2, y + LINE * size / 2))
        name = names[number] if inside[-1] else f"{topic.id} {names[number]}"
        points.append(Point(x, y, radius, name.strip(), size))
    plane = Placement(width, width * topics_map.height, max_covered=0.04)
    placed = place_texts(points, order, plane, taken, measure)
    return [CircleText(*parts) for parts in zip(inside, placed, (point.text for point in points), strict=True)]


def map_names(model: Model, topics: Sequence[Topic], pools: Sequence[Pool]) -> list[str]:
    """Return a name for each topic: its title, or else its most relevant words."""
    overall = model.vocabulary.tokens / max(float(model.vocabulary.tokens.sum()), 1.0)
    words, names = model.vocabulary.words, []
    for topic, pool in zip(topics, pools, strict=True):
        score = relevance(np.log(pool.probability), np.log(overall[pool.words]), RELEVANCE_WEIGHT)
        best = pool.words[np.argsort(-score, kind="stable")[:NAME_WORDS]].tolist()
        names.append(shortened(topic.title or " ".join(words[word] for word in best), NAME_LETTERS))
    return names


@dataclass(frozen=True)
class Pool:
    """The words of a topic that are most relevant for at least one of `WEIGHTS`."""

    words: Ints  # Word ids, by decreasing probability; int64 (words,)
    probability: Floats  # Probabilities in the topic; float64 (words,)


def relevant(model: Model, ids: Ints, share: Floats, count: int = WORDS) -> list[Pool]:
    """Return the words of largest relevance, lambda log p(w | k) + (1 - lambda) log p(w | k) / p(w), for each topic.

    Sievert and Shirley (2014) define it. The vocabulary is read one block at a time.
    """
    tokens = model.vocabulary.tokens.astype(np.float64)
    overall = tokens / max(tokens.sum(), 1.0)
    # Ids, relevance and probabilities of the best words, each of shape (topics, words).
    best: list[tuple[npt.NDArray[Any], ...] | None] = [None] * len(WEIGHTS)
    for number, (low, high) in enumerate(model.blocks):
        table = model.family.probabilities(model.rows(number), model.global_state)["word_topic"]
        phi = np.asarray(table)[:, ids].T
        enough = (phi * share[:, None] * tokens.sum() >= MIN_EXPECTED_TOKENS) & (overall[low:high] > 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs, log_overall = np.log(phi), np.log(overall[low:high])
        log_overall = np.where(np.isfinite(log_overall), log_overall, 0.0)
        for number_of_weight, weight in enumerate(WEIGHTS):
            scores = np.where(enough, relevance(logs, log_overall, weight), -np.inf)
            top = np.argpartition(-scores, min(count, scores.shape[1] - 1), axis=1)[:, :count]
            block: tuple[npt.NDArray[Any], ...] = (
                top + low,
                np.take_along_axis(scores, top, axis=1),
                np.take_along_axis(phi, top, axis=1),
            )
            before = best[number_of_weight]
            if before is not None:
                block = tuple(np.concatenate(pair, 1) for pair in zip(before, block, strict=True))
            ranks = np.lexsort((block[0], -block[1]), axis=1)[:, :count]
            best[number_of_weight] = tuple(np.take_along_axis(values, ranks, axis=1) for values in block)
    pools = []
    for topic in range(ids.size):
        probability: dict[int, float] = {}
        for ranked in best:
            if ranked is not None:
                rows = zip(*(values[topic].tolist() for values in ranked), strict=True)
                probability.update({word: p for word, score, p in rows if math.isfinite(score)})
        order = sorted(probability, key=lambda word: (-probability[word], word))
        pools.append(Pool(np.array(order, dtype=np.int64), np.array([probability[word] for word in order])))
    return pools
