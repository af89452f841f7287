"""The map of topics by their Hellinger distances, and the words that tell one topic from the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.stability import distances
from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.reporting.embedding import MapQuality, embed, measure, separate
from collapsium.pipeline.reporting.text_layout import Placed, Placement, Point, place_texts, shortened, text_width

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

WEIGHTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # lambda, of which a page lets its reader choose
WORDS = 12
LEAST_TOKENS = 0.5  # words of which a topic has fewer are not characteristic of it


@dataclass(frozen=True)
class MapOptions:
    """Sizes of the topic map, in its width."""

    circles_share: float = 0.16
    """Area of all circles, in that of the box around the topics' places."""
    most_radius: float = 0.065
    least_radius: float = 0.0055
    """Radius of topics that would be too small to see or to choose; their areas are larger than their shares."""
    gap: float = 0.0012
    """Room between two circles at least, on either side."""
    edge: float = 0.006
    """Room between circles and the map's edge."""
    name_weight: float = 0.6
    """lambda of the words that name a topic, the best in the study of Sievert and Shirley (2014)."""
    name_words: int = 2
    name_letters: int = 26


MAP = MapOptions()


@dataclass(frozen=True)
class TopicMap:
    """Topics as circles in a plane; the unit is the map's width.

    Attributes
    ----------
    x, y : numpy.ndarray of float64, shape (topics,)
        Their middles, from the left and from the top.
    radius : numpy.ndarray of float64, shape (topics,)
        The circles' areas are the topics' shares, but of the smallest. No circle overlaps another.
    height : float
        The map's, so that it holds the circles and no more.
    quality : MapQuality
        How much of the distances the places keep.
    """

    x: Floats
    y: Floats
    radius: Floats
    height: float
    quality: MapQuality


def topic_map(model: Model, ids: Ints, share: Floats) -> TopicMap:
    """Lay topics out by the Hellinger distances of their words' probabilities.

    Parameters
    ----------
    model : Model
        Their model.
    ids : numpy.ndarray of int64, shape (topics,)
        Which topics.
    share : numpy.ndarray of float64, shape (topics,)
        Their shares of the tokens.

    Returns
    -------
    TopicMap
        The same for the same model.
    """
    return laid_out(distances(model, model)[np.ix_(ids, ids)], share)


def laid_out(apart: Floats, share: Floats, options: MapOptions = MAP) -> TopicMap:
    """Lay circles out by their distances, shape (topics, topics), with areas that are their shares."""
    if not share.size:
        return TopicMap(np.zeros(0), np.zeros(0), np.zeros(0), 2 * options.edge, measure(apart, np.zeros((0, 2)), ""))
    places, method = embed(apart)
    share = np.maximum(share, 0.0) if (share > 0).any() else np.ones_like(share)
    share /= float(share.max())
    places = places / max(float(np.ptp(places[:, 0])), 1e-12) if places.any() else places
    tall = max(float(np.ptp(places[:, 1])), 0.3)
    radius = np.sqrt(share * options.circles_share * tall / (math.pi * float(share.sum())))
    radius = radius * min(1.0, options.most_radius / float(radius.max()))
    radius = np.maximum(radius, options.least_radius)
    # The middles of circles at the left and right edge lie inside, so that the map is about one wide.
    places = separate(places * (1.0 - 2.0 * float(np.median(radius))), radius + options.gap)
    low, high = (places - radius[:, None]).min(axis=0), (places + radius[:, None]).max(axis=0)
    if places.shape[0] == 1:
        scale, low = 1.0, np.array([places[0, 0] - 0.5 + options.edge, low[1]])
    else:
        scale = (1.0 - 2.0 * options.edge) / float(high[0] - low[0])
    x, y = (np.round(scale * (places - low) + options.edge, 5)).T
    height = round(float(scale * (high[1] - low[1])) + 2 * options.edge, 5)
    return TopicMap(x, y, np.round(scale * radius, 5), height, measure(apart, np.stack([x, y], axis=1), method))


@dataclass(frozen=True)
class Named:
    """What stands in and beside a circle of the map.

    Attributes
    ----------
    inside : bool
        Whether the topic's id stands inside.
    beside : Placed or None
        Where the text beside it stands; None where there is no room.
    text : str
        That text: the topic's name, behind its id where that does not stand inside.
    """

    inside: bool
    beside: Placed | None
    text: str


def named(found: TopicMap, topics: Sequence[Topic], names: Sequence[str], width: float, size: float) -> list[Named]:
    """Place ids and names so that none covers another: those of the largest topics first.

    Parameters
    ----------
    found : TopicMap
        The map.
    topics : sequence of Topic
        Its topics.
    names : sequence of str
        Their names.
    width, size : float
        The map's width, and the letters' size.

    Returns
    -------
    list of Named
        One a topic.
    """
    inside, points, taken = [], [], []
    order = sorted(range(len(topics)), key=lambda one: (-topics[one].share, one))
    for place, topic in enumerate(topics):
        x, y, radius = (float(values[place]) * width for values in (found.x, found.y, found.radius))
        wide, tall = text_width(str(topic.id), size), 0.75 * size
        inside.append(math.hypot(wide / 2, tall / 2) <= radius)
        if inside[-1]:
            taken.append((x - wide / 2, y - size / 2, x + wide / 2, y + size / 2))
        name = names[place] if inside[-1] else f"{topic.id} {names[place]}"
        points.append(Point(x, y, radius, name.strip(), size))
    where = Placement(width, width * found.height, most_covered=0.04)
    placed = place_texts(points, order, where, taken)
    return [Named(*one) for one in zip(inside, placed, (point.text for point in points), strict=True)]


def map_names(model: Model, topics: Sequence[Topic], pools: Sequence[Pool], options: MapOptions = MAP) -> list[str]:
    """Name topics by their titles, where they have some, or else by their most relevant words."""
    overall = model.vocabulary.tokens / max(float(model.vocabulary.tokens.sum()), 1.0)
    words, found = model.vocabulary.words, []
    for topic, pool in zip(topics, pools, strict=True):
        score = np.log(pool.probability) - (1.0 - options.name_weight) * np.log(overall[pool.words])
        best = pool.words[np.argsort(-score, kind="stable")[: options.name_words]].tolist()
        found.append(shortened(topic.title or " ".join(words[one] for one in best), options.name_letters))
    return found


@dataclass(frozen=True)
class Pool:
    """Words of a topic among which are the most relevant ones for each of `WEIGHTS`.

    Attributes
    ----------
    words : numpy.ndarray of int64, shape (words,)
        Their ids, by falling probability.
    probability : numpy.ndarray of float64, shape (words,)
        Under the topic.
    """

    words: Ints
    probability: Floats


def relevant(model: Model, ids: Ints, share: Floats, count: int = WORDS) -> list[Pool]:
    """Find the words most relevant to topics: lambda log p(w | k) + (1 - lambda) log p(w | k) / p(w).

    Sievert and Shirley (2014). A block of the vocabulary at a time.

    Parameters
    ----------
    model : Model
        Their model, with probabilities.
    ids : numpy.ndarray of int64, shape (topics,)
        Which topics.
    share : numpy.ndarray of float64, shape (topics,)
        Their shares of the tokens.
    count : int, optional
        Words for each of `WEIGHTS`.

    Returns
    -------
    list of Pool
        One a topic.
    """
    tokens = model.vocabulary.tokens.astype(np.float64)
    overall = tokens / max(tokens.sum(), 1.0)
    sweeps = model.shard_model
    best: list[tuple[Ints, Floats, Floats] | None] = [None] * len(WEIGHTS)
    for number, (low, high) in enumerate(model.blocks):
        phi = np.asarray(sweeps.probabilities(model.rows(number), model.global_state)["word_topic"])[:, ids].T
        enough = (phi * share[:, None] * tokens.sum() >= LEAST_TOKENS) & (overall[low:high] > 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs, lift = np.log(phi), -np.log(overall[low:high])
        for place, weight in enumerate(WEIGHTS):
            # lambda log p + (1 - lambda) (log p - log p(w)) = log p + (1 - lambda) (-log p(w))
            score = np.where(enough, logs + (1.0 - weight) * np.where(np.isfinite(lift), lift, 0.0), -np.inf)
            top = np.argpartition(-score, min(count, score.shape[1] - 1), axis=1)[:, :count]
            found = (top + low, np.take_along_axis(score, top, axis=1), np.take_along_axis(phi, top, axis=1))
            best[place] = _better(best[place], found, count)
    pools = []
    for topic in range(ids.size):
        seen: dict[int, float] = {}
        for one in best:
            if one is not None:
                words, score, phi = (values[topic] for values in one)
                seen.update({int(w): float(p) for w, s, p in zip(words, score, phi, strict=True) if np.isfinite(s)})
        order = sorted(seen, key=lambda word: (-seen[word], word))
        pools.append(Pool(np.array(order, dtype=np.int64), np.array([seen[word] for word in order])))
    return pools


def _better(
    one: tuple[Ints, Floats, Floats] | None, other: tuple[Ints, Floats, Floats], count: int
) -> tuple[Ints, Floats, Floats]:
    """Take the words with the largest scores of two blocks."""
    joined = other if one is None else tuple(np.concatenate(pair, axis=1) for pair in zip(one, other, strict=True))
    order = np.lexsort((joined[0], -joined[1]), axis=1)[:, :count]
    words, score, phi = (np.take_along_axis(values, order, axis=1) for values in joined)
    return words, score, phi
